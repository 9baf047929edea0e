"""Lower bound on what an all-reduce without reducing switches moves between the parts of a network.

Take j disjoint parts that each hold an NPU. For each element of the array the parts gossip: every part must learn
something from every other, for which j parties need at least 2 (j - 1) one-way messages (F. Harary, A. J. Schwenk, "The
communication problem on graphs and digraphs", 1974). Each message leaves one part and enters another, so that
T >= 2 (j - 1) M / (bandwidth out of all parts), and likewise into them. With single NPUs as the parts this is the
2 (N - 1) M of Patarasuk and Yuan (2009).

Switches outside of all parts that reduce and multicast save messages, at the rate that the fabric has for that:

- each part must still send the array once, and receive it once, over links at the rate that reduction reaches;
- of a unit behind a switch, what it takes in could as well have gone into a part that adds it up, so that the messages
  and what all units take in are 2 (j - 1) together.
"""

from fractions import Fraction
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from topologies.core.components import components
from topologies.core.paths import distinct_of
from topologies.core.reduction_units import unit_of
from topologies.core.topology import REDUCER, SWITCH, Aggregation, Topology
from topologies.flows.cuts import together_Bps
from topologies.flows.tightest_cut import remembered_in_proportion

Ints = npt.NDArray[np.int64]


class Partition(NamedTuple):
    """Parts of a network, and the least time of an all-reduce by what must cross from one to another."""

    s_per_byte: Fraction  # of the array; 0 for one NPU
    parts: Ints  # of each node, -1 for a switch outside of them
    saves: bool  # whether switches between them that reduce make it less


def _faster(found: Partition, times: Fraction) -> Partition:
    return found._replace(s_per_byte=found.s_per_byte / times)


def least_crossing(topology: Topology, reducing_switches: bool | None = False) -> Partition:
    """The largest such bound among a few partitions, in seconds per byte of the array, and its parts.

    The candidates are single NPUs, and the components connected by links of at least a given bandwidth, for every
    bandwidth that occurs: boxes, and boxes of boxes.

    `reducing_switches`: which switches reduce, as in `sim.analytic.cut_bound`.
    """
    return _tightest(topology, reducing_switches, None if reducing_switches is False else topology.aggregation)


@remembered_in_proportion(_faster)
def _tightest(
    topology: Topology, reducing_switches: bool | None, aggregation: Aggregation | None
) -> Partition:
    alone = np.where(np.arange(topology.n_nodes) < topology.n_npus, np.arange(topology.n_nodes), -1)
    candidates = [alone, *boxes(topology)]
    owner, has = np.arange(topology.n_nodes), np.flatnonzero(unit_of(topology) != np.arange(topology.n_nodes))
    owner[unit_of(topology)[has]] = has
    candidates = [parts[owner] for parts in candidates]  # a unit belongs to its node
    reducing = reducing_nodes(topology, reducing_switches)
    found = (_crossed(topology, parts, reducing, aggregation) for parts in candidates)
    return max(found, key=lambda one: one.s_per_byte)


def reducing_nodes(topology: Topology, reducing_switches: bool | None) -> npt.NDArray[np.bool_]:
    """Whether each node is a switch that reduces; `reducing_switches` as in `sim.analytic.cut_bound`."""
    switch: npt.NDArray[np.bool_] = topology.kind == SWITCH
    if reducing_switches is not None:
        return switch if reducing_switches else np.zeros_like(switch)
    known = unit_of(topology) != np.arange(topology.n_nodes)
    if topology.aggregation is not None:
        others = topology.src[~np.isin(topology.dimension, topology.aggregation.tiers)]
        known |= ~np.isin(np.arange(topology.n_nodes), others)
    reduces: npt.NDArray[np.bool_] = switch & known
    return reduces


def boxes(topology: Topology) -> list[Ints]:
    """Parts joined by fast links, for every bandwidth above the least."""
    found = []
    for least in sorted({*topology.bandwidth_Bps.tolist()})[1:]:
        fast = topology.bandwidth_Bps >= least
        label = components(topology.n_nodes, topology.src[fast], topology.dst[fast])
        occupied = distinct_of(label[: topology.n_npus])
        found.append(np.where(np.isin(label, occupied), label, -1))
    return found


def _crossed(
    topology: Topology, parts: Ints, reducing: npt.NDArray[np.bool_], aggregation: Aggregation | None
) -> Partition:
    count = distinct_of(parts[: topology.n_npus]).size
    tail, head = parts[topology.src], parts[topology.dst]
    ways = tuple(np.flatnonzero((tail != head) & (end >= 0)) for end in (tail, head))
    out, into = (_rate(topology, way) for way in ways)
    if count < 2 or not min(out, into):
        return Partition(Fraction(0), parts, False)
    forwarded, adding = 2 * (count - 1) / min(out, into), reducing & (parts < 0)
    if not adding.any():
        return Partition(forwarded, parts, False)
    reached = topology if aggregation is None else topology.as_it_reduces()
    least = min(forwarded, count / min(_rate(reached, way) for way in ways))
    into_units = adding[topology.src] & (topology.kind[topology.dst] == REDUCER)
    if np.isin(np.flatnonzero(adding), topology.src[into_units]).all():
        least = max(least, 2 * (count - 1) / (into + _rate(topology, np.flatnonzero(into_units))))
    return Partition(least, parts, least < forwarded)


def _rate(topology: Topology, links: Ints) -> Fraction:
    """Of some links together, in bytes per second."""
    return together_Bps(topology.bandwidth_Bps[links]) if links.size else Fraction(0)
