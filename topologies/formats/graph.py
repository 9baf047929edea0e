"""What readers of other simulators' networks share: rates and times as SimGrid and ns-3 write them (125MBps, 10Gbps,
50us, or a number in the unit of the tool), and a network under construction.

In graphs of networkx and the Internet Topology Zoo nodes do not say what they are: all are NPUs, ranked in the order of
the file. An edge is a cable, or in a directed graph one direction of it; its rate is `LinkSpeedRaw` in bits per second,
as the Topology Zoo has it, or the one that is given.
"""

import re
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from topologies.checks import WeftError, number, told
from topologies.core.links import DEFAULT_HOP_LATENCY, DEFAULT_LATENCY, network_of
from topologies.core.topology import Topology
from topologies.text.schema import note
from topologies.units import Quantity, from_bytes_per_s, from_seconds, parse_bandwidth, parse_time

if TYPE_CHECKING:
    import networkx as nx


MOST_NODES = 200_000
MOST_LINKS = 4_000_000


class Graph:
    """NPUs in rank order, switches in the order in which ties between paths prefer them."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.npus: dict[str, None] = {}
        self.npu_hop_ps = 0
        self.switches: dict[str, int] = {}
        self._links: list[tuple[str, str, float, int, int]] = []

    def add(self, name: str, hop_ps: int = 0) -> str:
        """A switch, by its name."""
        self.switches[name] = hop_ps
        return name

    def link(self, src: str, dst: str, rate_Bps: float, latency_ps: int, tier: int = -1) -> None:
        """One direction."""
        if len(self._links) >= MOST_LINKS:
            raise WeftError(f"{self.name} has more than {MOST_LINKS:,} links")
        self._links.append((src, dst, rate_Bps, latency_ps, tier))

    def cable(self, one: str, other: str, rate_Bps: float, latency_ps: int, tier: int = -1) -> None:
        """Both directions, each of this rate."""
        self.link(one, other, rate_Bps, latency_ps, tier)
        self.link(other, one, rate_Bps, latency_ps, tier)

    def topology(self) -> Topology:
        """The network, with routes over the fewest links.

        WeftError: no NPU.
        """
        if not self.npus:
            raise WeftError(f"{self.name} has no NPU")
        names = (*self.npus, *self.switches)
        number = {name: at for at, name in enumerate(names)}
        src, dst, rates, times, tiers = zip(*self._links, strict=True) if self._links else ((),) * 5
        ends = [(number[one], number[other]) for one, other in zip(src, dst, strict=True)]
        hops = [self.npu_hop_ps] * len(self.npus) + list(self.switches.values())
        return network_of(self.name, len(self.npus), len(names), ends, rates, times, hops, dimension=tiers,
                          node_names=names)


def check_size(name: str, nodes: int) -> None:
    """Refuse what is too large before it is built."""
    if nodes > MOST_NODES:
        raise WeftError(f"{name} has {nodes:,} nodes; at most {MOST_NODES:,}")


_RATE = re.compile(r"([0-9]*\.?[0-9]+(?:[eE][-+]?[0-9]+)?)\s*(?:([kKMGTPE]?)(i?)([bB])(?:ps|/s))?")
_TIME = re.compile(r"([0-9]*\.?[0-9]+(?:[eE][-+]?[0-9]+)?)\s*(ps|ns|us|ms|s|min|m|h|d|w)?")
_POWERS = {"": 0, "k": 1, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5, "E": 6}
_SECONDS = {
    "ps": Fraction(1, 10**12), "ns": Fraction(1, 10**9), "us": Fraction(1, 10**6), "ms": Fraction(1, 1000),
    "s": Fraction(1), "m": Fraction(60), "min": Fraction(60), "h": Fraction(3600), "d": Fraction(86400),
    "w": Fraction(7 * 86400),
}


@lru_cache
def foreign_Bps(text: str, what: str, bare: int = 8) -> float:
    """A rate in bytes per second; `bare`: bits of the unit of a number without one.

    WeftError: no rate, or zero.
    """
    found = _RATE.fullmatch(text.strip())
    if found is None:
        raise WeftError(f"{what} is {told(text)}: a rate such as 10Gbps or 125MBps is expected")
    number, prefix, binary, unit = found.groups()
    base = 1024 if binary else 1000
    bits = bare if unit is None else 1 if unit == "b" else 8
    return from_bytes_per_s(float(Fraction(number) * base ** _POWERS[prefix or ""] * bits / 8), what)


@lru_cache
def foreign_ps(text: str, what: str) -> int:
    """A time in integer picoseconds; a number without a unit is in seconds.

    WeftError: no time.
    """
    found = _TIME.fullmatch(text.strip())
    if found is None:
        raise WeftError(f"{what} is {told(text)}: a time such as 50us is expected")
    return from_seconds(float(Fraction(found[1]) * _SECONDS[found[2] or "s"]), what)


RATE = "LinkSpeedRaw"
_OWN = {"kind", "rank", "coord", "hop_latency_s", "bandwidth_Bps", "latency_s", "dimension", "count"}


def is_foreign(graph: "nx.Graph") -> bool:
    """Whether a graph has nodes, and nothing in it an attribute of ours."""
    found = [data for _, data in graph.nodes(data=True)] + [data for *_, data in graph.edges(data=True)]
    return graph.number_of_nodes() > 0 and not any(_OWN & set(data) for data in found)


def foreign_graph(
    graph: "nx.Graph", name: str, *, bandwidth: Quantity | None = None, latency: Quantity = DEFAULT_LATENCY,
    hop_latency: Quantity = DEFAULT_HOP_LATENCY,
) -> Topology:
    """The network of a graph.

    `name`: of the file, for messages.
    `bandwidth`: per direction of cables without a rate of their own.
    `latency`, `hop_latency`: of every link, and of every node that messages pass.
    WeftError: a cable without a rate, or a bad one.
    """
    check_size(name, graph.number_of_nodes())
    given = None if bandwidth is None else parse_bandwidth(bandwidth, "bandwidth")
    latency_ps, hop_ps = parse_time(latency, "latency"), parse_time(hop_latency, "hop latency")
    made = Graph(name)
    made.npus = dict.fromkeys(map(str, graph.nodes))
    made.npu_hop_ps = hop_ps
    if len(made.npus) < graph.number_of_nodes():
        raise WeftError(f"{name}: two nodes have the same name as text")
    join = made.link if graph.is_directed() else made.cable
    for one, other, data in graph.edges(data=True):
        if one != other:
            join(str(one), str(other), _rate(data, given, f"{name}: edge {one}->{other}"), latency_ps)
    note(f"{name}: no node says what it is: all {graph.number_of_nodes()} are NPUs, in the order of the file")
    return made.topology()


def _rate(data: dict[str, Any], given: float | None, what: str) -> float:
    if data.get(RATE) is not None:
        return from_bytes_per_s(number(data[RATE], f"{what}: {RATE}") / 8, f"{what}: {RATE}")
    if given is None:
        raise WeftError(f"{what} has no rate: give --link-bandwidth for edges without {RATE}")
    return given
