"""Flows and cuts between sets of nodes, which bound every schedule from below."""

import math
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from topologies.checks import checked
from topologies.core.topology import Topology
from topologies.flows.maxflow import LARGEST, FlowNetwork

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@checked
def ingress_Bps(topology: Topology) -> Floats:
    """Total bandwidth of the links into each NPU, in bytes/s, (n_npus,)."""
    return _at_npus(topology, topology.dst)


@checked
def egress_Bps(topology: Topology) -> Floats:
    """Total bandwidth of the links out of each NPU, in bytes/s, (n_npus,)."""
    return _at_npus(topology, topology.src)


def _at_npus(topology: Topology, end: npt.NDArray[np.int32]) -> Floats:
    rates = np.bincount(end, topology.bandwidth_Bps, minlength=topology.n_nodes)
    return np.asarray(rates[: topology.n_npus], np.float64)


@checked
def bisection_Bps(topology: Topology) -> float:
    """Most bytes per second from one half of the NPUs to the other, over the tightest halfway cut of a dimension.

    Every cut bounds a schedule from below; this is the tightest of one cut per dimension of extent above 1, not
    of all cuts. Infinite for one NPU.
    """
    coords = topology.coords[: topology.n_npus]
    flows = [
        flow_Bps(topology, np.flatnonzero(place < extent // 2), np.flatnonzero(place >= extent // 2))
        for place, extent in zip(coords.T, topology.shape, strict=True)
        if extent > 1
    ]
    return min(flows, default=math.inf)


def flow_Bps(topology: Topology, sources: Ints, sinks: Ints) -> float:
    """Bytes per second from some nodes to others, through any nodes; the two sets have no node in common.

    Each set is one node, and links between two nodes are one arc, so that what is left of a halved product is two
    nodes and its switches, however large it is.
    """
    place = np.arange(topology.n_nodes)
    place[sources], place[sinks] = sources[0], sinks[0]
    src, dst = place[topology.src], place[topology.dst]
    between = np.flatnonzero(src != dst)
    unit, whole, which = proportions(topology.bandwidth_Bps)
    total = sum(rate * many for rate, many in zip(whole, np.bincount(which).tolist(), strict=True))
    is_exact = 2 * total > LARGEST
    arcs, row = np.unique(src[between] * topology.n_nodes + dst[between], return_inverse=True)
    room = np.zeros(arcs.size, object if is_exact else np.int64)
    np.add.at(room, row, np.array(whole, room.dtype)[which[between]])
    tails, heads = np.divmod(arcs, topology.n_nodes)
    nodes, ends = np.unique(np.concatenate([sources[:1], sinks[:1], tails, heads]), return_inverse=True)
    network = FlowNetwork(nodes.size, is_exact)
    for tail, head, most in zip(ends[2 : 2 + arcs.size].tolist(), ends[2 + arcs.size :].tolist(), room, strict=True):
        network.add(tail, head, int(most))
    return float(unit * network.flow(int(ends[0]), int(ends[1]), total))


def together_Bps(bandwidth_Bps: Floats) -> Fraction:
    """The sum of some bandwidths, exact."""
    unit, whole, which = proportions(bandwidth_Bps)
    counts: list[int] = np.bincount(which).tolist()
    return unit * sum(rate * many for rate, many in zip(whole, counts, strict=True))


def whole_capacities(bandwidth_Bps: Floats) -> tuple[Fraction, list[int]]:
    """The largest unit that divides all bandwidths, and each bandwidth in that unit."""
    unit, whole, which = proportions(bandwidth_Bps)
    return unit, [whole[i] for i in which.tolist()]


def proportions(bandwidth_Bps: Floats) -> tuple[Fraction, tuple[int, ...], Ints]:
    """The largest unit that divides all bandwidths, the distinct ones in that unit, and which of these each one is."""
    if bandwidth_Bps.size and (bandwidth_Bps == bandwidth_Bps[0]).all():
        rates, which = bandwidth_Bps[:1], np.zeros(bandwidth_Bps.size, np.int64)
    else:
        rates, which = np.unique(bandwidth_Bps, return_inverse=True)
    exact = [rate.as_integer_ratio() for rate in rates.tolist()]
    below = math.lcm(*(down for _, down in exact))
    whole = [up * (below // down) for up, down in exact]
    unit = math.gcd(*whole) or 1
    return Fraction(unit, below), tuple(rate // unit for rate in whole), which
