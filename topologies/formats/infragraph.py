"""InfraGraph files (schema 2.4, YAML or JSON): devices of components, instances of devices, and edges between them.

Components of the kind `xpu` (in older files `npu`) are the NPUs, in the order of instances, devices, components and
indices; every other component on a path between them is a switch; ports and NICs add no latency. An edge is a cable;
its link gives bandwidth and latency, or else the caller does. `one2one` pairs the two sides in order up to the end of
the shorter one, `many2many` pairs all, as the InfraGraph service does. Among paths with the same number of links, the
one through the faster switch is taken.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from topologies.checks import WeftError, integer, number
from topologies.core.custom import Cable, wired
from topologies.core.links import DEFAULT_HOP_LATENCY, DEFAULT_LATENCY
from topologies.core.topology import Topology
from topologies.text.strict_yaml import loader
from topologies.units import PS_PER_S, Quantity, from_bytes_per_s, from_seconds, parse_bandwidth, parse_time

KINDS = ("custom", "device", "cpu", "xpu", "npu", "nic", "memory", "port", "switch")
NPU_KINDS, PASSIVE_KINDS = ("xpu", "npu"), ("nic", "port")
MOST_NODES, MOST_DEPTH = 200_000, 16
MOST_YAML = 2 * 2**20
"""Limit on characters of YAML, which is parsed at about 100,000 per second; JSON is a thousand times faster."""

_BITS = {"gigabits_per_second": 1e9 / 8, "gigabytes_per_second": 1e9}
_SECONDS = {"ms": 10**9, "us": 10**6, "ns": 10**3}
_PART = re.compile(r"^([^\[\].]+)(?:\[([0-9]*)(:)?([0-9]*)(?::([0-9]+))?\])?$")
_KEYS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "file": (("name", "description", "devices", "links", "instances", "edges"), ("devices", "instances")),
    "device": (("name", "description", "components", "links", "edges"), ("name", "components")),
    "component": (("name", "description", "count", "choice", *KINDS), ("name", "count", "choice")),
    "link": (("name", "description", "physical"), ("name",)),
    "instance": (("name", "description", "device", "count"), ("name", "device", "count")),
    "edge": (("ep1", "ep2", "scheme", "link"), ("ep1", "ep2", "scheme", "link")),
}


class _Link(NamedTuple):
    bandwidth_Bps: float
    latency_ps: int


class _Device(NamedTuple):
    """Counts and kinds of components by name, links by name, and edges."""

    components: dict[str, tuple[int, str]]
    links: dict[str, _Link | None]
    edges: list[tuple[str, Mapping[str, Any]]]


def looks_like_infragraph(text: str) -> bool:
    """Whether a text has the top-level keys of such a file."""
    return bool(re.search(r'(?:^|")instances"?\s*:', text, re.MULTILINE))


def parse_infragraph(
    text: str, name: str, *, bandwidth: Quantity | None = None, latency: Quantity = DEFAULT_LATENCY,
    hop_latency: Quantity = DEFAULT_HOP_LATENCY,
) -> Topology:
    """The network of an InfraGraph file.

    `name`: name of the file, for messages.
    `bandwidth`, `latency`: for links that do not specify their own.
    `hop_latency`: of every component on a path other than ports and NICs.
    WeftError: names the file, place and key: not YAML, an unknown or missing key, an undefined name, a link without a
        bandwidth, or a rate in transfers per second.
    """
    data = _load(text, name)
    _check(data, "file", name)
    rate = None if bandwidth is None else parse_bandwidth(bandwidth, "bandwidth")
    default = rate, parse_time(latency, "latency")
    devices = {
        where_name[1]: _device(one, where_name[0], default)
        for one, where_name in _named(data, "devices", "device", name)
    }
    graph = _Graph(devices, name)
    for one, (where, instance) in _named(data, "instances", "instance", name):
        graph.add_instance(instance, _text(one, "device", where), _count(one, where), where)
    links = {link: _link(one, where, default) for one, (where, link) in _named(data, "links", "link", name)}
    for at, edge in enumerate(_items(data, "edges", name)):
        where = f"{name}: edges[{at}]"
        _check(edge, "edge", where)
        graph.add_edge(edge, where, links, _instance_end)
    hop_ps = parse_time(hop_latency, "hop latency")
    return graph.topology(hop_ps, str(data.get("name") or name))


def _load(text: str, name: str) -> Mapping[str, Any]:
    import yaml  # heavy: loaded where it is used

    is_json = text.lstrip().startswith("{")
    if not is_json and len(text) > MOST_YAML:
        raise WeftError(f"{name} has {len(text):,} characters of YAML; at most {MOST_YAML:,}: write it as JSON")
    try:
        data = json.loads(text) if is_json else yaml.load(text, Loader=loader())
    except (yaml.YAMLError, RecursionError, ValueError) as fault:
        raise WeftError(f"{name} is neither YAML nor JSON: {' '.join(str(fault).split())[:200]}") from None
    if not isinstance(data, Mapping):
        raise WeftError(f"{name} is not an InfraGraph file: it needs the keys {', '.join(_KEYS['file'][0])}")
    return data


def _check(data: Any, kind: str, where: str) -> None:
    accepted, needed = _KEYS[kind]
    if not isinstance(data, Mapping):
        raise WeftError(f"{where} is not a {kind}: it needs the keys {', '.join(accepted)}")
    for key in data:
        if key not in accepted:
            raise WeftError(f"{where} has the unknown key {key!r}: accepted are {', '.join(accepted)}")
    for key in needed:
        if data.get(key) is None:
            raise WeftError(f"{where} lacks the key {key!r}")


def _items(data: Mapping[str, Any], key: str, where: str) -> list[Any]:
    items = data.get(key) or []
    if not isinstance(items, list):
        raise WeftError(f"{where}: {key} is not a list")
    return items


def _named(
    data: Mapping[str, Any], key: str, kind: str, where: str
) -> Iterator[tuple[Mapping[str, Any], tuple[str, str]]]:
    """Entries of a list, each with its location and its unique name."""
    seen = set()
    for at, one in enumerate(_items(data, key, where)):
        place = f"{where}: {key}[{at}]"
        _check(one, kind, place)
        name = _text(one, "name", place)
        if name in seen:
            raise WeftError(f"{place} is called {name!r}, like another entry")
        seen.add(name)
        yield one, (f"{where}: {kind} {name}", name)


def _text(data: Mapping[str, Any], key: str, where: str) -> str:
    value = data.get(key)
    if not isinstance(value, str) or not value:
        raise WeftError(f"{where}: {key} is {value!r}: give a name")
    return value


def _count(data: Mapping[str, Any], where: str) -> int:
    return integer(data["count"], f"{where}: count", 1, MOST_NODES)


def _device(data: Mapping[str, Any], where: str, default: tuple[float | None, int]) -> _Device:
    components = {}
    for one, (place, name) in _named(data, "components", "component", where):
        kind = one["choice"]
        if kind not in KINDS:
            raise WeftError(f"{place}: choice is {kind!r}: known are {', '.join(KINDS)}")
        components[name] = _count(one, place), str(kind)
    links = {name: _link(one, place, default) for one, (place, name) in _named(data, "links", "link", where)}
    edges = [(f"{where}: edges[{at}]", edge) for at, edge in enumerate(_items(data, "edges", where))]
    for place, edge in edges:
        _check(edge, "edge", place)
    return _Device(components, links, edges)


def _link(data: Mapping[str, Any], where: str, default: tuple[float | None, int]) -> _Link | None:
    """Bandwidth and latency; None if the bandwidth is unspecified, which is an error only if an edge uses the link."""
    physical = data.get("physical") or {}
    if not isinstance(physical, Mapping) or not set(physical) <= {"bandwidth", "latency"}:
        raise WeftError(f"{where}: physical accepts only the keys bandwidth and latency, not {physical!r}")
    latency = _chosen(physical.get("latency"), _SECONDS, f"{where}: latency")
    latency_ps = default[1] if latency is None else from_seconds(latency / PS_PER_S, f"{where}: latency")
    rate = _chosen(physical.get("bandwidth"), _BITS, f"{where}: bandwidth")
    rate = default[0] if rate is None else from_bytes_per_s(rate, f"{where}: bandwidth")
    return None if rate is None else _Link(rate, latency_ps)


def _chosen(data: Any, units: Mapping[str, float], where: str) -> float | None:
    """The number under the key named by `choice`, in SI units (times in ps)."""
    if data is None:
        return None
    choice = data.get("choice") if isinstance(data, Mapping) else None
    if choice == "gigatransfers_per_second":
        raise WeftError(f"{where} is in transfers per second, not bytes; write gigabits_per_second")
    if not isinstance(choice, str) or choice not in units or set(data) != {"choice", choice}:
        raise WeftError(f"{where} is {data!r}: choice names one of {', '.join(units)}, and that key has the number")
    return number(data[choice], f"{where}: {choice}") * units[choice]


class _Graph:
    """Nodes and cables, named by location: "host.0.nic.1"."""

    def __init__(self, devices: Mapping[str, _Device], name: str) -> None:
        self.devices, self.name = devices, name
        self.kind: dict[str, str] = {}
        self.instances: dict[str, tuple[str, int]] = {}
        self.cables: dict[tuple[str, str], _Link] = {}

    def add_instance(self, name: str, device: str, count: int, where: str) -> None:
        if device not in self.devices:
            raise WeftError(f"{where}: device {device!r} is not one of {', '.join(self.devices)}")
        self.instances[name] = device, count
        for at in range(count):
            self._add_device(f"{name}.{at}", device, where, 0)

    def _add_device(self, prefix: str, name: str, where: str, depth: int) -> None:
        if depth > MOST_DEPTH:
            raise WeftError(f"{where}: devices are nested more than {MOST_DEPTH} deep")
        device = self.devices[name]
        for component, (count, kind) in device.components.items():
            if kind == "device" and component not in self.devices:
                raise WeftError(f"{where}: component {component!r} is a device, but no device has that name")
            for at in range(count):
                place = f"{prefix}.{component}.{at}"
                if kind == "device":
                    self._add_device(place, component, where, depth + 1)
                else:
                    self.kind[place] = kind
            if len(self.kind) > MOST_NODES:
                raise WeftError(f"{self.name} has more than {MOST_NODES} components")
        for place, edge in device.edges:
            self.add_edge(edge, place, device.links, _DeviceEnd(prefix, name))

    def add_edge(self, edge: Mapping[str, Any], where: str, links: Mapping[str, _Link | None], ends: Any) -> None:
        sides = [ends(self, edge[end], f"{where}: {end}") for end in ("ep1", "ep2")]
        link = _text(edge, "link", where)
        if link not in links:
            raise WeftError(f"{where}: link {link!r} is not one of {', '.join(links) or 'none'}")
        chosen = links[link]
        if chosen is None:
            raise WeftError(f"{where}: link {link!r} has no bandwidth: give --link-bandwidth for links without one")
        scheme = edge["scheme"]
        if scheme == "one2one":
            pairs = list(zip(*sides, strict=False))
        elif scheme == "many2many":
            pairs = [(a, b) for a in sides[0] for b in sides[1]]
        else:
            raise WeftError(f"{where}: scheme is {scheme!r}: choose one2one or many2many")
        for a, b in pairs:
            if a != b:
                key = min(a, b), max(a, b)
                if self.cables.setdefault(key, chosen) != chosen:
                    raise WeftError(f"{where}: {a} and {b} are connected by two different links")

    def expand(self, device: str, text: str, where: str) -> list[str]:
        """Locations inside a device that "cx5[0:2].port" refers to."""
        places = [""]
        for part in text.split("."):
            found = _PART.match(part)
            if found is None or device not in self.devices or found[1] not in self.devices[device].components:
                raise WeftError(f"{where}: {part!r} is not a component of the device {device!r}")
            count, _ = self.devices[device].components[found[1]]
            places = [f"{place}.{found[1]}.{at}" for place in places for at in _slice(found, count, where)]
            device = found[1]
        return places

    def topology(self, hop_ps: int, title: str) -> Topology:
        """The network between the NPUs."""
        npus = [place for place, kind in self.kind.items() if kind in NPU_KINDS]
        if not npus:
            raise WeftError(f"{self.name} has no component of kind xpu")
        near: dict[str, set[str]] = {place: set() for place in self.kind}
        rate = dict.fromkeys(self.kind, 0.0)
        for (a, b), link in self.cables.items():
            for one, other in ((a, b), (b, a)):
                if one not in near:
                    raise WeftError(f"{self.name}: {one} is a device: an edge must end at one of its components")
                near[one].add(other)
                rate[one] = max(rate[one], link.bandwidth_Bps)
        _cut_dead_ends(near, set(npus))
        others = sorted((place for place in near if place not in set(npus)), key=lambda place: -rate[place])
        cables = [
            Cable(ends, link.bandwidth_Bps, link.latency_ps, -1)
            for ends, link in self.cables.items() if ends[0] in near and ends[1] in near
        ]
        passive = {place for place in others if self.kind[place] in PASSIVE_KINDS}
        return wired(title, npus, others, cables, hop_ps, passive)


class _DeviceEnd(NamedTuple):
    """Resolves the ends of a device's edges within one instance."""

    prefix: str
    device: str

    def __call__(self, graph: _Graph, end: Any, where: str) -> list[str]:
        _check_end(end, ("device", "component"), where)
        text = _text(end, "component", where)
        if end.get("device") is not None:
            text = f"{_text(end, 'device', where)}.{text}"
        return [self.prefix + place for place in graph.expand(self.device, text, where)]


def _instance_end(graph: _Graph, end: Any, where: str) -> list[str]:
    _check_end(end, ("instance", "component"), where)
    found = _PART.match(_text(end, "instance", where))
    if found is None or found[1] not in graph.instances:
        raise WeftError(f"{where}: instance {end['instance']!r} is not one of {', '.join(graph.instances)}")
    device, count = graph.instances[found[1]]
    inside = graph.expand(device, _text(end, "component", where), where)
    return [f"{found[1]}.{at}{place}" for at in _slice(found, count, where) for place in inside]


def _check_end(end: Any, accepted: tuple[str, ...], where: str) -> None:
    if not isinstance(end, Mapping) or not set(end) <= set(accepted):
        raise WeftError(f"{where} is {end!r}: it needs the keys {' and '.join(accepted)}")


def _slice(found: re.Match[str], count: int, where: str) -> range:
    """Indices selected by "[1]", "[0:2]" or no brackets."""
    _, first, colon, last, step = found.groups()
    if first is None:
        return range(count)
    if not colon:
        low, high = (int(first), int(first) + 1) if first else (0, 0)
    else:
        low, high = int(first or 0), int(last) if last else count
    if not 0 <= low < high <= count:
        raise WeftError(f"{where}: {found[0]} selects indices outside 0 to {count - 1}")
    return range(low, high, max(1, int(step or 1)))


def _cut_dead_ends(near: dict[str, set[str]], npus: set[str]) -> None:
    """Remove nodes that no path between NPUs passes, judging by their number of cables."""
    open_ = [place for place, others in near.items() if len(others) < 2 and place not in npus]
    while open_:
        place = open_.pop()
        for other in near.pop(place, ()):
            near[other].discard(place)
            if len(near[other]) < 2 and other not in npus and other in near:
                open_.append(other)
