"""Lower bound on what an all-reduce without reducing switches moves between the parts of a network.

Take j disjoint parts that each hold an NPU. For each element of the array the parts gossip: every part must learn
something from every other, for which j parties need at least 2 (j - 1) one-way messages (F. Harary, A. J. Schwenk, "The
communication problem on graphs and digraphs", 1974). Each message leaves one part and enters another, so that
T >= 2 (j - 1) M / (bandwidth out of all parts), and likewise into them. With single NPUs as the parts this is the
2 (N - 1) M of Patarasuk and Yuan (2009).
"""

from fractions import Fraction

import numpy as np
import numpy.typing as npt

from topologies.core.components import components
from topologies.core.topology import Topology
from topologies.flows.cuts import whole_capacities
from topologies.flows.tightest_cut import remembered_in_proportion

Ints = npt.NDArray[np.int64]


def _faster(found: tuple[Fraction, Ints], times: Fraction) -> tuple[Fraction, Ints]:
    return found[0] / times, found[1]


@remembered_in_proportion(_faster)
def partition_s_per_byte(topology: Topology) -> tuple[Fraction, Ints]:
    """The largest such bound among a few partitions, in seconds per byte of the array, and its parts.

    The candidates are single NPUs, and the components connected by links of at least a given bandwidth, for every
    bandwidth that occurs: boxes, and boxes of boxes.

    Returns the least time, 0 for one NPU, and the part of each node, -1 for a switch outside of them.
    """
    alone = np.where(np.arange(topology.n_nodes) < topology.n_npus, np.arange(topology.n_nodes), -1)
    candidates = [alone, *boxes(topology)]
    bounds = [_s_per_byte(topology, parts) for parts in candidates]
    best = max(range(len(bounds)), key=bounds.__getitem__)
    return bounds[best], candidates[best]


def boxes(topology: Topology) -> list[Ints]:
    """Parts joined by fast links, for every bandwidth above the least."""
    found = []
    for least in np.unique(topology.bandwidth_Bps)[1:]:
        fast = topology.bandwidth_Bps >= least
        label = components(topology.n_nodes, topology.src[fast], topology.dst[fast])
        occupied = np.unique(label[: topology.n_npus])
        found.append(np.where(np.isin(label, occupied), label, -1))
    return found


def _s_per_byte(topology: Topology, parts: Ints) -> Fraction:
    unit, capacity = whole_capacities(topology.bandwidth_Bps)
    count = np.unique(parts[: topology.n_npus]).size
    tail, head = parts[topology.src], parts[topology.dst]
    crossing = tail != head
    out, into = (sum(capacity[link] for link in np.flatnonzero(crossing & (end >= 0)).tolist()) for end in (tail, head))
    if count < 2 or not min(out, into):
        return Fraction(0)
    return 2 * (count - 1) / (unit * min(out, into))
