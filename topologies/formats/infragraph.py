"""InfraGraph files (schema 2 and 3, YAML or JSON): devices of components, their instances, and edges between them.

Components of the kind `xpu` (in older files `npu`) are the NPUs, in the order of instances, devices, components and
indices; every other component on a path between them is a switch; ports and NICs add no latency. An edge is a cable;
its link gives bandwidth and latency. Where it has no bandwidth, its words may name one (`topologies.accelerators`:
"nvlink_4", "PCI Express GEN5 x16", a device "dgx_h100"); links inside a chip with ports are no limit; else the caller
gives it, and links that carry nothing between NPUs are left out. `one2one` pairs the two sides in order up to the end
of the shorter one, `many2many` pairs all, as the InfraGraph service does; `ring`, which the schema has and the service
does not, joins both sides in their order, the last to the first. Among paths with the same number of links, the one
through the faster switch is taken.
"""

import json
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from topologies.accelerators import gpu_links_Bps, is_pcie, nvlinks_Bps, of_cpu_Bps, pcie_Bps
from topologies.checks import WeftError, integer, number
from topologies.core.links import DEFAULT_HOP_LATENCY, DEFAULT_LATENCY, Cable, wired
from topologies.core.topology import Topology
from topologies.text.schema import note, tell_over
from topologies.text.strict_yaml import loader
from topologies.units import PS_PER_S, Quantity, from_bytes_per_s, from_seconds, parse_bandwidth, parse_time

KINDS = ("custom", "device", "cpu", "xpu", "npu", "nic", "memory", "port", "switch")
NPU_KINDS, PASSIVE_KINDS = ("xpu", "npu"), ("nic", "port")
MOST_NODES, MOST_DEPTH = 200_000, 16
MOST_YAML = 2 * 2**20
"""Limit on characters of YAML, which is parsed at about 100,000 per second; JSON is a thousand times faster."""


_BITS = {"gigabits_per_second": 1e9 / 8, "gigabytes_per_second": 1e9}
_SECONDS = {"ms": 10**9, "us": 10**6, "ns": 10**3}
_PART = re.compile(r"^([^\[\].]+)(?:\[([-0-9: ]*)\])?$")
_KEYS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "file": (("name", "description", "devices", "links", "instances", "edges"), ("devices", "instances")),
    "device": (("name", "description", "components", "links", "edges"), ("name", "components")),
    "component": (("name", "description", "count", "choice", *KINDS), ("name", "count", "choice")),
    "link": (("name", "description", "physical"), ("name",)),
    "instance": (("name", "description", "device", "count"), ("name", "device", "count")),
    "edge": (("ep1", "ep2", "scheme", "link"), ("ep1", "ep2", "scheme", "link")),
}


class _Link(NamedTuple):
    """None if nothing gives the bandwidth; words are its name, its description, and the name of its device."""

    bandwidth_Bps: float | None
    latency_ps: int
    words: str
    name: str
    is_inside: bool  # whether it is of a device


class _Component(NamedTuple):
    copies: int
    kind: str
    words: str


class _Device(NamedTuple):
    """Components by name, links by name, and edges."""

    components: dict[str, _Component]
    links: dict[str, _Link]
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
    tell_over(name, dict.fromkeys(_unknown(data, "file")), "the InfraGraph service")
    rate = None if bandwidth is None else parse_bandwidth(bandwidth, "bandwidth")
    latency_ps = parse_time(latency, "latency")
    devices = {
        where_name[1]: _device(one, where_name[0], latency_ps)
        for one, where_name in _named(data, "devices", "device", name)
    }
    graph = _Graph(devices, name)
    for one, (where, instance) in _named(data, "instances", "instance", name):
        graph.add_instance(instance, _text(one, "device", where), _count(one, where), where)
    links = {link: _link(one, where, latency_ps) for one, (where, link) in _named(data, "links", "link", name)}
    for at, edge in enumerate(_items(data, "edges", name)):
        where = f"{name}: edges[{at}]"
        _check(edge, "edge", where)
        graph.add_edge(edge, where, links, _instance_end)
    if graph.missing:
        note(f"{name}: {'; '.join(graph.missing)}: its edges join nothing, as in the InfraGraph service")
    hop_ps = parse_time(hop_latency, "hop latency")
    return graph.topology(hop_ps, str(data.get("name") or name), rate)


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
    if kind == "device" and "connections" in data:
        raise WeftError(f"{where} has connections: it is a draft of InfraGraph, from before its schema 2")
    for key in needed:
        if data.get(key) is None:
            raise WeftError(f"{where} lacks the key {key!r}")


_INSIDE = {"file": {"devices": "device", "links": "link", "instances": "instance", "edges": "edge"},
           "device": {"components": "component", "links": "link", "edges": "edge"}}
"""What lists of a kind hold."""


def _unknown(data: Any, kind: str) -> Iterator[str]:
    """Keys that the service does not know, here and below."""
    if not isinstance(data, Mapping):
        return
    yield from (f"{key} of a {kind}" for key in data if key not in _KEYS[kind][0])
    for key, inside in _INSIDE.get(kind, {}).items():
        listed = data.get(key)
        for one in listed if isinstance(listed, list) else ():
            yield from _unknown(one, inside)


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


def _device(data: Mapping[str, Any], where: str, latency_ps: int) -> _Device:
    components = {}
    for one, (place, name) in _named(data, "components", "component", where):
        kind = one["choice"]
        if kind not in KINDS:
            raise WeftError(f"{place}: choice is {kind!r}: known are {', '.join(KINDS)}")
        components[name] = _Component(_count(one, place), str(kind), _words(one))
    links = {name: _link(one, place, latency_ps, str(data["name"]))
             for one, (place, name) in _named(data, "links", "link", where)}
    edges = [(f"{where}: edges[{at}]", edge) for at, edge in enumerate(_items(data, "edges", where))]
    for place, edge in edges:
        _check(edge, "edge", place)
    return _Device(components, links, edges)


def _words(data: Mapping[str, Any]) -> str:
    return f"{data.get('name') or ''} {data.get('description') or ''}"


def _link(data: Mapping[str, Any], where: str, latency_ps: int, device: str = "") -> _Link:
    """Bandwidth, if it has one, and latency."""
    physical = data.get("physical") or {}
    if not isinstance(physical, Mapping) or not set(physical) <= {"bandwidth", "latency"}:
        raise WeftError(f"{where}: physical accepts only the keys bandwidth and latency, not {physical!r}")
    latency = _chosen(physical.get("latency"), _SECONDS, f"{where}: latency")
    latency_ps = latency_ps if latency is None else from_seconds(latency / PS_PER_S, f"{where}: latency")
    rate = _chosen(physical.get("bandwidth"), _BITS, f"{where}: bandwidth")
    rate = None if rate is None else from_bytes_per_s(rate, f"{where}: bandwidth")
    return _Link(rate, latency_ps, f"{_words(data)} {device}", str(data["name"]), bool(device))


def _chosen(data: Any, units: Mapping[str, float], where: str) -> float | None:
    """The number under the key named by `choice`, if there is one, in SI units (times in ps)."""
    if data is None:
        return None
    choice = data.get("choice") if isinstance(data, Mapping) else None
    if choice in (*units, "gigatransfers_per_second") and data.get(choice) is None:
        return None  # a file that was written after its graph was made has choices without numbers
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
        self.words: dict[str, str] = {}
        self.instances: dict[str, tuple[str, int]] = {}
        self.cables: dict[tuple[str, str], _Link] = {}
        self.missing: dict[str, None] = {}

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
        for component, (count, kind, words) in device.components.items():
            if kind == "device" and component not in self.devices:
                raise WeftError(f"{where}: component {component!r} is a device, but no device has that name")
            for at in range(count):
                place = f"{prefix}.{component}.{at}"
                if kind == "device":
                    self._add_device(place, component, where, depth + 1)
                else:
                    self.kind[place], self.words[place] = kind, words
            if len(self.kind) > MOST_NODES:
                raise WeftError(f"{self.name} has more than {MOST_NODES} components")
        for place, edge in device.edges:
            self.add_edge(edge, place, device.links, _DeviceEnd(prefix, name))

    def add_edge(self, edge: Mapping[str, Any], where: str, links: Mapping[str, _Link], ends: Any) -> None:
        sides = [ends(self, edge[end], f"{where}: {end}") for end in ("ep1", "ep2")]
        link = _text(edge, "link", where)
        if link not in links:
            raise WeftError(f"{where}: link {link!r} is not one of {', '.join(links) or 'none'}")
        chosen = links[link]
        scheme = edge["scheme"]
        if scheme == "one2one":
            pairs = list(zip(*sides, strict=False))
        elif scheme == "many2many":
            pairs = [(a, b) for a in sides[0] for b in sides[1]]
        elif scheme == "ring":
            around = list(dict.fromkeys([*sides[0], *sides[1]]))
            pairs = list(zip(around, [*around[1:], around[0]], strict=True))
        else:
            raise WeftError(f"{where}: scheme is {scheme!r}: choose one2one, many2many or ring")
        for a, b in pairs:
            if a != b:
                key = min(a, b), max(a, b)
                if self.cables.setdefault(key, chosen) != chosen:
                    raise WeftError(f"{where}: {a} and {b} are connected by two different links")

    def expand(self, device: str, text: str, where: str) -> list[str]:
        """Locations inside a device that "cx5[0:2].port" refers to."""
        places = [""]
        alone = _PART.match(text)
        if alone and device in self.devices and alone[1] not in self.devices[device].components:
            self.missing.setdefault(f"{alone[1]!r} is no component of the device {device!r}")
            return []
        for part in text.split("."):
            found = _PART.match(part)
            if found is None or device not in self.devices or found[1] not in self.devices[device].components:
                raise WeftError(f"{where}: {part!r} is not a component of the device {device!r}")
            count = self.devices[device].components[found[1]].copies
            places = [f"{place}.{found[1]}.{at}" for place in places for at in _slice(found, count, where)]
            device = found[1]
        return places

    def topology(self, hop_ps: int, title: str, given_Bps: float | None) -> Topology:
        """The network between the NPUs; `given_Bps`: of links for which nothing gives a bandwidth."""
        npus = [place for place, kind in self.kind.items() if kind in NPU_KINDS]
        if not npus:
            raise WeftError(f"{self.name} has no component of kind xpu")
        near: dict[str, set[str]] = {place: set() for place in self.kind}
        for a, b in self.cables:
            for one, other in ((a, b), (b, a)):
                if one not in near:
                    raise WeftError(f"{self.name}: {one} is a device: an edge must end at one of its components")
                near[one].add(other)
        _cut_dead_ends(near, set(npus))
        cables = [Cable(ends, rate, self.cables[ends].latency_ps, -1)
                  for ends, rate in self._rates(near, npus, given_Bps).items()]
        best = dict.fromkeys(near, 0.0)
        for cable in cables:
            best |= {end: max(best[end], cable.bandwidth_Bps) for end in cable.ends}
        others = sorted((place for place in near if place not in set(npus)), key=lambda place: -best[place])
        passive = {place for place in others if self.kind[place] in PASSIVE_KINDS}
        return wired(title, npus, others, cables, hop_ps, passive)


    def _rates(
        self, near: Mapping[str, Collection[str]], npus: Sequence[str], given_Bps: float | None
    ) -> dict[tuple[str, str], float]:
        """Bandwidth of every cable between nodes that are left, but for those that carry nothing and have none."""
        there = {ends: link for ends, link in self.cables.items() if ends[0] in near and ends[1] in near}
        own = Counter((end, link.name) for ends, link in there.items() for end in ends)
        rates = {ends: link.bandwidth_Bps or self._named_Bps(ends, link, own) for ends, link in there.items()}
        most = max((rate for rate in rates.values() if rate), default=given_Bps or 0.0)
        for ends, rate in rates.items():
            rates[ends] = rate or (most if self._is_chip(ends, there[ends]) else None) or given_Bps
        known = {ends: rate for ends, rate in rates.items() if rate}
        names = ", ".join(dict.fromkeys(there[ends].name for ends in rates if ends not in known))
        if names and _may_carry(there, known, npus):
            raise WeftError(f"{self.name}: link {names} has no bandwidth, and no words that name one: give "
                            "--link-bandwidth for links without one")
        if names:
            note(f"{self.name}: link {names} has no bandwidth, and is left out: other ways between NPUs are shorter")
        return known

    def _is_chip(self, ends: tuple[str, str], link: _Link) -> bool:
        """Whether a link is between a port and what is behind it in one device."""
        kinds = {self.kind[end] for end in ends}
        return link.is_inside and "port" in kinds and kinds <= {"port", "custom", "switch", "cpu"}

    def _named_Bps(self, ends: tuple[str, str], link: _Link, own: Counter[tuple[str, str]]) -> float | None:
        """What the words of a link, of its device and of what it joins say; a GPU's links share its rate."""
        around = f"{link.words} {self.words[ends[0]]} {self.words[ends[1]]}"
        if is_pcie(link.words):
            return pcie_Bps(link.words) or pcie_Bps(around)
        gpus = [end for end in ends if self.kind[end] in NPU_KINDS]
        if any(self.kind[end] == "cpu" for end in ends):
            return of_cpu_Bps(link.words) if gpus or self.kind[ends[0]] == self.kind[ends[1]] else None
        if not gpus:
            return None
        among = all(self.kind[end] in (*NPU_KINDS, "switch", "custom") for end in ends)
        whole = nvlinks_Bps(link.words) or (gpu_links_Bps(around) if among else None)
        return None if whole is None else whole / max(own[end, link.name] for end in gpus)


def _may_carry(cables: Collection[tuple[str, str]], known: Collection[tuple[str, str]], npus: Sequence[str]) -> bool:
    """Whether a cable that is not known is on a shortest path between two NPUs."""
    near: dict[str, list[tuple[str, bool]]] = {}
    for ends in cables:
        for one, other in (ends, ends[::-1]):
            near.setdefault(one, []).append((other, ends not in known))
    return any(reached.get(other) for reached in (_reached(near, npu) for npu in npus) for other in npus)


def _reached(near: Mapping[str, Collection[tuple[str, bool]]], npu: str) -> dict[str, bool]:
    """What is reached from an NPU, with whether a shortest path to it has a cable that is not known."""
    found: dict[str, bool] = {}
    level = {npu: False}
    while level:
        found |= level
        after: dict[str, bool] = {}
        for one, unknown in level.items():
            for other, is_unknown in near.get(one, ()):
                if other not in found:
                    after[other] = after.get(other, False) or unknown or is_unknown
        level = after
    return found


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
    """Indices that "[1]", "[-1]", "[0:2]", "[:-1]" or no brackets select, by Python's rules."""
    text = found[2] or ":"
    try:
        words = [int(one) if one.strip() else None for one in text.split(":")]
        one = range(count)[words[0]] if words[0] is not None and len(words) == 1 else None
        chosen = range(count)[slice(*words)] if one is None else range(one, one + 1)
    except (ValueError, TypeError, IndexError):
        raise WeftError(f"{where}: {found[0]} selects none of indices 0 to {count - 1}: write [1] or [0:2]") from None
    if one is None and (not chosen or any(abs(bound or 0) > count for bound in words[:2])):
        note(f"{where}: {found[0]} selects {len(chosen)} of {count}, as the InfraGraph service reads it")
    return chosen


def _cut_dead_ends(near: dict[str, set[str]], npus: set[str]) -> None:
    """Remove nodes that no path between NPUs passes, judging by their number of cables."""
    open_ = [place for place, others in near.items() if len(others) < 2 and place not in npus]
    while open_:
        place = open_.pop()
        for other in near.pop(place, ()):
            near[other].discard(place)
            if len(near[other]) < 2 and other not in npus and other in near:
                open_.append(other)
