"""Graphs of other tools (networkx, Internet Topology Zoo), whose nodes do not say what they are: all are NPUs.

They are ranked in the order of the file. An edge is a cable, or in a directed graph one direction of it; its rate is
`LinkSpeedRaw` in bits per second, as the Topology Zoo has it, or the one that is given.
"""

from typing import TYPE_CHECKING, Any

from topologies.checks import WeftError, number
from topologies.core.links import DEFAULT_HOP_LATENCY, DEFAULT_LATENCY
from topologies.core.topology import Topology
from topologies.formats.graph import Graph, check_size
from topologies.text.notes import note
from topologies.units import Quantity, from_bytes_per_s, parse_bandwidth, parse_time

if TYPE_CHECKING:
    import networkx as nx

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
