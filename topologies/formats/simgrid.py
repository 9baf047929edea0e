"""Platform files of SimGrid (XML, DTD 3 to 4.1) with one cluster: FLAT, TORUS, FAT_TREE or DRAGONFLY.

Links are split-duplex, each direction with the cluster's bandwidth and latency; nodes add no time of their own. A
backbone is one link that all messages cross, a limiter one that all messages of a node cross, whichever way. Hosts and
links beside the cluster are passed over: between its own nodes nothing crosses them. Factors of SimGrid's network
models (0.97 of the bandwidth, 13 times the latency in LV08) are no part of the file, and not applied.
Routes are the shortest: of several, SimGrid may take others (d-mod-k in fat-trees).
"""

import itertools
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import replace

from topologies.checks import WeftError, told
from topologies.core.topology import Topology
from topologies.formats.graph import Graph, check_size, foreign_Bps, foreign_ps
from topologies.products import torus
from topologies.text.plain_xml import Element, parse_xml
from topologies.text.schema import Absent, Known, Producer, fill, pass_over
from topologies.units import bytes_per_s

KNOWN: Known = {
    "platform": (("version",), ("zone", "AS", "cluster")),
    "zone": (("id", "routing"), ("zone", "AS", "cluster")),
    "AS": (("id", "routing"), ("zone", "AS", "cluster")),
    "cluster": (("id", "prefix", "suffix", "radical", "speed", "power", "core", "bw", "lat", "sharing_policy",
                 "topology", "topo_parameters", "bb_bw", "bb_lat", "bb_sharing_policy", "router_id", "limiter_link",
                 "loopback_bw", "loopback_lat"), ()),
}
_SAY_NOTHING = ("config", "prop", "actor", "process", "argument")
"""Elements without which the network is the same."""

ABSENT = (
    Absent("cluster", "sharing_policy", "SPLITDUPLEX", "simgrid.dtd"),
    Absent("cluster", "topology", "FLAT", "simgrid.dtd"),
    Absent("cluster", "topo_parameters", "", "simgrid.dtd"),
    Absent("cluster", "bb_bw", "", "simgrid.dtd"),
    Absent("cluster", "bb_lat", "0s", "simgrid.dtd"),
    Absent("cluster", "bb_sharing_policy", "SHARED", "simgrid.dtd"),
    Absent("cluster", "limiter_link", "", "simgrid.dtd"),
)
_DUPLEX = ("SPLITDUPLEX", "FULLDUPLEX")

PRODUCERS = (
    Producer(
        "SimGrid platform XML", "SimGrid", "sources of 2024, DTD 4.1", "--topology FILE.xml",
        "one cluster: FLAT with a backbone, TORUS, FAT_TREE, DRAGONFLY, limiters",
        "hosts with routes alone, several clusters, links that both directions share: routes there are lists of links, "
        "not a graph; platforms in C++, which are programs", ABSENT,
    ),
)


def looks_like_simgrid(text: str) -> bool:
    """Whether the root of a text is a platform."""
    return bool(re.search(r"<platform\b", text[:4096]))


def parse_simgrid(text: str, name: str) -> Topology:
    """The network of a platform file.

    `name`: of the file, for messages.
    WeftError: names file and line: not one cluster, a policy or a shape that is not read, or a bad quantity.
    """
    root = parse_xml(text, name, named_type=True)
    if root.tag != "platform":
        raise WeftError(f"{root.where} is not the root of a SimGrid platform, which is <platform>")
    clusters = [one for one in root.every() if one.tag == "cluster"]
    others = [one for one in root.every() if one.tag not in (*KNOWN, *_SAY_NOTHING)]
    if refused := [one for one in others if not clusters or one.tag.startswith("bypass")]:
        raise WeftError(f"{refused[0].where} is not read: only platforms of one <cluster> are, whose links have a "
                        "shape")
    if len(clusters) != 1:
        raise WeftError(f"{name} has {len(clusters)} clusters: platforms of one are read")
    for one in root.every():
        one.children[:] = [child for child in one.children if child.tag not in _SAY_NOTHING]
    pass_over(root, KNOWN, "weft", name)
    fill(root, ABSENT)
    return replace(_Cluster(clusters[0], name).topology(), name=name)


class _Cluster:
    """A cluster, whose quantities were read."""

    def __init__(self, element: Element, name: str) -> None:
        self.element, self.name = element, name
        self.hosts = _radical(element)
        check_size(name, self.hosts)
        policy = element.text("sharing_policy")
        if policy not in _DUPLEX:
            raise WeftError(f"{element.where} has sharing_policy={policy!r}: links that both directions share, or that "
                            "nobody shares, are not simulated here; read is SPLITDUPLEX")
        self.rate = foreign_Bps(element.text("bw"), f"{element.where} bw")
        self.latency = foreign_ps(element.text("lat"), f"{element.where} lat")
        limit = element.text("limiter_link")
        self.limit = foreign_Bps(limit, f"{element.where} limiter_link") if limit.strip("0") else 0.0

    def topology(self) -> Topology:
        """By its shape."""
        shapes: dict[str, Callable[[], Topology]] = {
            "FLAT": self._flat, "TORUS": self._torus, "FAT_TREE": self._fat_tree, "DRAGONFLY": self._dragonfly}
        return shapes[self.element.choice("topology", shapes)]()

    def _flat(self) -> Topology:
        element, graph = self.element, Graph(self.name)
        up, down = graph.add("router"), "router"
        if bandwidth := element.text("bb_bw"):
            if element.text("bb_sharing_policy") != "SHARED":
                raise WeftError(f"{element.where} has bb_sharing_policy={element.text('bb_sharing_policy')!r}: a "
                                "backbone that nobody shares is not simulated here; read is SHARED")
            down = graph.add("backbone")
            latency = foreign_ps(element.text("bb_lat"), f"{element.where} bb_lat")
            graph.link(up, down, foreign_Bps(bandwidth, f"{element.where} bb_bw"), latency, 1)
        for host in self._hosts(graph):
            graph.link(self._out(graph, host), up, self.rate, self.latency, 0)
            graph.link(down, self._in(host), self.rate, self.latency, 0)
        return graph.topology()

    def _torus(self) -> Topology:
        extents = self._numbers(self.element.text("topo_parameters"))
        if not extents:
            raise WeftError(f"{self.element.where} has topo_parameters='': extents such as 4,4 are expected")
        self._check_hosts(math.prod(extents))
        if self.limit:
            raise WeftError(f"{self.element.where} has limiter_link, which a torus crosses at every hop: omit it")
        return torus(extents, bandwidth=bytes_per_s(self.rate), latency=f"{self.latency}ps", hop_latency=0)

    def _fat_tree(self) -> Topology:
        parts = self._parts(4, "levels;down;up;cables, such as 2;4,4;1,2;1,2")
        (levels,), down, up, cables = (self._numbers(part) for part in parts)
        if not len(down) == len(up) == len(cables) == levels:
            raise WeftError(f"{self.element.where} has topo_parameters={told(self.element.text('topo_parameters'))}: "
                            f"{levels} numbers each of links down, links up and cables are expected")
        self._check_hosts(math.prod(down))
        extents = [[*up[:level], *down[level:]] for level in range(levels + 1)]
        check_size(self.name, sum(map(math.prod, extents)))
        graph = Graph(self.name)
        hosts = self._hosts(graph)
        nodes = [dict(zip(_places(extents[0]), hosts, strict=True))]
        for level in range(levels):
            nodes.append({place: self._switch(graph, f"level{level + 1}-{at}")
                          for at, place in enumerate(_places(extents[level + 1]))})
            for place, node in nodes[level].items():
                for parent in range(up[level]):
                    above = nodes[level + 1][*place[:level], parent, *place[level + 1:]]
                    for _ in range(cables[level]):
                        self._cable(graph, node, above, 1, level)
        return graph.topology()

    def _dragonfly(self) -> Topology:
        parts = self._parts(4, "groups,links;chassis,links;blades,links;nodes, such as 3,4;4,3;5,1;2")
        sizes = [self._numbers(part) for part in parts]
        if [len(one) for one in sizes] != [2, 2, 2, 1]:
            raise WeftError(f"{self.element.where} has topo_parameters={told(self.element.text('topo_parameters'))}: "
                            "two numbers are expected of groups, chassis and blades, and one of nodes")
        (groups, blue), (chassis, black), (blades, green), (nodes,) = sizes
        self._check_hosts(groups * chassis * blades * nodes)
        if groups > chassis * blades:
            raise WeftError(f"{self.element.where} has {groups} groups of {chassis * blades} routers: each needs a "
                            "router for every other group")
        graph = Graph(self.name)
        hosts = self._hosts(graph)
        places = list(itertools.product(range(groups), range(chassis), range(blades)))
        routers = {place: self._switch(graph, f"router{at}") for at, place in enumerate(places)}
        for at, place in enumerate(places):
            for host in hosts[at * nodes:(at + 1) * nodes]:
                self._cable(graph, host, routers[place], 1, 0)
        for (group, c, b), router in routers.items():
            for other in range(b + 1, blades):
                self._cable(graph, router, routers[group, c, other], green, 1)
            for other in range(c + 1, chassis):
                self._cable(graph, router, routers[group, other, b], black, 2)
        for one, other in itertools.combinations(range(groups), 2):
            ends = [routers[mine, *divmod(to, blades)] for mine, to in ((one, other), (other, one))]
            self._cable(graph, ends[0], ends[1], blue, 3)
        return graph.topology()

    def _hosts(self, graph: Graph) -> list[str]:
        """NPUs by name; those with a limiter have a switch each way beside them."""
        hosts = [f"host{at}" for at in range(self.hosts)]
        graph.npus = dict.fromkeys(hosts)
        for host in hosts if self.limit else ():
            self._limited(graph, host)
            graph.link(host, f"{host}-in", self.limit, 0, 0)
            graph.link(f"{host}-out", host, self.limit, 0, 0)
        return hosts

    def _switch(self, graph: Graph, name: str) -> str:
        if self.limit:
            self._limited(graph, name)
        else:
            graph.add(name)
        return name

    def _limited(self, graph: Graph, name: str) -> None:
        """A node that every message crosses over one link, whichever way it goes."""
        graph.link(graph.add(f"{name}-in"), graph.add(f"{name}-out"), self.limit, 0, 0)

    def _in(self, node: str) -> str:
        return f"{node}-in" if self.limit else node

    def _out(self, graph: Graph, node: str) -> str:
        return f"{node}-out" if self.limit else node

    def _cable(self, graph: Graph, one: str, other: str, links: int, tier: int) -> None:
        for src, dst in ((one, other), (other, one)):
            graph.link(self._out(graph, src), self._in(dst), self.rate * links, self.latency, tier)

    def _check_hosts(self, wanted: int) -> None:
        if wanted != self.hosts:
            raise WeftError(f"{self.element.where} has {self.hosts} hosts by its radical, and {wanted} by its "
                            "topo_parameters")

    def _parts(self, count: int, such: str) -> list[str]:
        said = self.element.text("topo_parameters")
        parts = said.split(";")
        if len(parts) != count:
            raise WeftError(f"{self.element.where} has topo_parameters={told(said)}: {such} are expected")
        return parts

    def _numbers(self, text: str) -> list[int]:
        words = [word.strip() for word in text.split(",")] if text.strip() else []
        for word in words:
            if not (word.isascii() and word.isdecimal() and 0 < int(word[:7]) < 10**6 and len(word) < 7):
                raise WeftError(f"{self.element.where} has {told(word)} in topo_parameters: numbers from 1 are "
                                "expected")
        return [int(word) for word in words]


def _places(extents: list[int]) -> Iterator[tuple[int, ...]]:
    """Coordinates, the first of which counts fastest."""
    for place in itertools.product(*(range(extent) for extent in reversed(extents))):
        yield place[::-1]


def _radical(element: Element) -> int:
    """How many hosts "0-15,20" are."""
    total = 0
    for part in element.text("radical").split(","):
        found = re.fullmatch(r"\s*(\d{1,9})(?:\s*-\s*(\d{1,9}))?\s*", part)
        first, last = (int(found[1]), int(found[2] or found[1])) if found else (1, 0)
        if last < first:
            raise WeftError(f"{element.where} has radical={told(element.text('radical'))}: ranges such as 0-15 are "
                            "expected")
        total += last - first + 1
    return total
