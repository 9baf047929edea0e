"""Platform files of SimGrid (XML, DTD 3 to 4.1): one cluster with a shape, TORUS, FAT_TREE or DRAGONFLY; others have
routes, see `topologies.formats.simgrid_zones`.

Links of a shape are split-duplex, each direction with the cluster's bandwidth and latency; nodes add no time of their
own. A limiter is one link that all messages of a node cross, whichever way. Hosts beside it are passed over: between
its own nodes nothing crosses theirs. Factors of SimGrid's network models (0.97 of the bandwidth, 13 times the latency)
are no part of the file, and not applied.
Routes in a shape are the shortest: of several, SimGrid may take others (d-mod-k in fat-trees).
"""

import itertools
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import replace

from topologies.checks import WeftError, told
from topologies.core.topology import Topology
from topologies.formats.graph import Graph, check_size, foreign_Bps, foreign_ps
from topologies.formats.simgrid_zones import BYPASSES, DUPLEX, ROUTES, network_of_zones, radical
from topologies.products import torus
from topologies.text.plain_xml import Element, parse_xml
from topologies.text.schema import Absent, Known, fill, pass_over
from topologies.units import bytes_per_s

_OUTER = ("zone", "AS", "cluster")
_INSIDE = (*_OUTER, "host", "router", "peer", "cabinet", "host_link", "link", "backbone", *ROUTES, *BYPASSES)
_ENDS = ("src", "dst", "gw_src", "gw_dst", "symmetrical")
KNOWN: Known = {
    "platform": (("version",), _OUTER),
    **dict.fromkeys(("zone", "AS"), (("id", "routing"), _INSIDE)),
    "host": (("id", "speed", "power", "core", "coordinates", "pstate"), ()),
    "router": (("id", "coordinates"), ()),
    "peer": (("id", "speed", "power", "coordinates", "bw_in", "bw_out"), ()),
    "cabinet": (("id", "prefix", "suffix", "radical", "speed", "power", "bw", "lat"), ()),
    "host_link": (("id", "up", "down"), ()),
    **dict.fromkeys(("link", "backbone"), (("id", "bandwidth", "latency", "sharing_policy"), ())),
    **dict.fromkeys((*ROUTES, *BYPASSES), (_ENDS, ("link_ctn",))),
    "link_ctn": (("id", "direction"), ()),
    "cluster": (("id", "prefix", "suffix", "radical", "speed", "power", "core", "bw", "lat", "sharing_policy",
                 "topology", "topo_parameters", "bb_bw", "bb_lat", "bb_sharing_policy", "router_id", "limiter_link",
                 "loopback_bw", "loopback_lat"), ()),
}
_SAY_NOTHING = ("config", "prop", "actor", "process", "argument", "disk", "mount")
"""Elements without which the network is the same."""

ABSENT = tuple(Absent(*row, "simgrid.dtd") for row in (
    ("cluster", "sharing_policy", "SPLITDUPLEX"), ("cluster", "topology", "FLAT"), ("cluster", "topo_parameters", ""),
    ("cluster", "bb_bw", ""), ("cluster", "bb_lat", "0s"), ("cluster", "bb_sharing_policy", "SHARED"),
    ("cluster", "limiter_link", ""), ("link", "latency", "0"), ("link", "sharing_policy", "SHARED"),
    ("route", "symmetrical", "YES"), ("zoneRoute", "symmetrical", "YES"), ("link_ctn", "direction", "NONE"),
))


def looks_like_simgrid(text: str) -> bool:
    """Whether the root of a text is a platform."""
    return bool(re.search(r"<platform\b", text[:4096]))


def parse_simgrid(text: str, name: str) -> Topology:
    """The network of a platform file.

    `name`: of the file, for messages.
    WeftError: names file and line: a policy or a shape that is not read, or a bad quantity.
    """
    root = parse_xml(text, name, ("trace",), named_type=True)
    if root.tag != "platform":
        raise WeftError(f"{root.where} is not the root of a SimGrid platform, which is <platform>")
    for one in root.every():
        one.children[:] = [child for child in one.children if child.tag not in _SAY_NOTHING]
    clusters = [one for one in root.every() if one.tag == "cluster"]
    shaped = len(clusters) == 1 and clusters[0].attributes.get("topology", "FLAT") != "FLAT"
    around = dict.fromkeys(("zone", "AS"), (("id", "routing"), _OUTER)) if shaped else {}
    pass_over(root, {**KNOWN, **around}, "weft", name)
    fill(root, ABSENT)
    return replace(_Cluster(clusters[0], name).topology(), name=name) if shaped else network_of_zones(root, name)


class _Cluster:
    """A cluster, whose quantities were read."""

    def __init__(self, element: Element, name: str) -> None:
        self.element, self.name = element, name
        self.hosts = sum(map(len, radical(element)))
        check_size(name, self.hosts)
        policy = element.text("sharing_policy")
        if policy not in DUPLEX:
            raise WeftError(f"{element.where} has sharing_policy={policy!r}: links that both directions share, or "
                            "that nobody shares, are not simulated here; read is SPLITDUPLEX")
        self.rate = foreign_Bps(element.text("bw"), f"{element.where} bw")
        self.latency = foreign_ps(element.text("lat"), f"{element.where} lat")
        limit = element.text("limiter_link")
        self.limit = foreign_Bps(limit, f"{element.where} limiter_link") if limit.strip("0") else 0.0

    def topology(self) -> Topology:
        """By its shape."""
        shapes: dict[str, Callable[[], Topology]] = {
            "TORUS": self._torus, "FAT_TREE": self._fat_tree, "DRAGONFLY": self._dragonfly}
        return shapes[self.element.choice("topology", ("FLAT", *shapes))]()

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
        head, down, up, cables = (self._numbers(part) for part in parts)
        if not [len(down)] == [len(up)] == [len(cables)] == head:
            raise WeftError(f"{self.element.where} has topo_parameters={told(self.element.text('topo_parameters'))}: a "
                            "number of levels, and as many of links down, links up and cables are expected")
        levels = head[0]
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
