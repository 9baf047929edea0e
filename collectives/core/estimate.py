"""Closed-form cost of a schedule, used to choose the default form of an algorithm.

A step takes the latency of its longest route plus the time for the busiest dimension to carry the bytes of the step,
assuming evenly loaded links: T = sum over steps of (latency + bytes x hops / bandwidth), alpha-beta
with hops (Swing paper, section 2.1). Queueing is left to the simulator.
"""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from collectives.core.emission import Emit
from collectives.core.pattern import Pattern
from collectives.core.routes import paths_of
from collectives.core.schedule import ELEMENT_BYTES, Schedule, schedule
from collectives.core.transfers import Transfers
from topologies import Paths, Topology
from topologies.core.paths import evenly
from topologies.core.rateless import wiring_of
from topologies.units import PS_PER_S, Quantity


def cheapest(patterns: Sequence[Pattern], size: Quantity, element_bytes: int = ELEMENT_BYTES) -> Schedule:
    """The schedule of the pattern with the lowest estimate; the first among equals."""
    if len(patterns) == 1:
        return schedule(patterns[0], size, element_bytes)
    return min((schedule(pattern, size, element_bytes) for pattern in patterns), key=estimate_s)


def estimate_s(schedule: Schedule) -> float:
    """Closed-form time of a schedule, in seconds; an approximation for comparing forms."""
    latency_s, s_per_byte = _cost(schedule.pattern)
    return latency_s + s_per_byte * schedule.block_bytes


@lru_cache(maxsize=256)
def _cost(pattern: Pattern) -> tuple[float, float]:
    """Latency in seconds and seconds per byte of a block, summed over all steps, from the transfers of four ranks."""
    few = evenly(pattern.p, 4)
    t, paths = _routed(pattern.emit, wiring_of(pattern.topology), tuple(few.tolist()))
    if t.src.size == 0:
        return 0.0, 0.0
    route = np.repeat(paths.pair, np.diff(paths.ptr))
    latency_s = _latency_s(pattern.topology, t, paths.links, route)
    return latency_s, _s_per_byte(pattern.topology, t, paths.links, route, few.size)


@lru_cache(maxsize=256)
def _routed(emit: Emit, wiring: Topology, ranks: tuple[int, ...]) -> tuple[Transfers, Paths]:
    """The transfers of a few ranks, with their routes: the same for every pattern on a topology of the wiring."""
    t = emit(np.array(ranks, np.int64))
    return t, paths_of(t, wiring)


def _latency_s(topology: Topology, t: Transfers, links: npt.NDArray[np.int32], route: npt.NDArray[np.int64]) -> float:
    """Sum over steps of the longest route's latency."""
    hop_ps = topology.latency_ps[links] + topology.hop_latency_ps[topology.dst[links]]
    route_ps = np.bincount(route, hop_ps, minlength=t.src.size)
    longest_ps = np.zeros(int(t.step.max()) + 1)
    np.maximum.at(longest_ps, t.step, route_ps)
    return float(longest_ps.sum()) / PS_PER_S


def _s_per_byte(
    topology: Topology, t: Transfers, links: npt.NDArray[np.int32], route: npt.NDArray[np.int64], n_ranks: int
) -> float:
    """Sum over steps of the busiest dimension's time for one byte per block."""
    dims = int(topology.dimension.max()) + 2
    carried = np.zeros((int(t.step.max()) + 1, dims))
    np.add.at(carried, (t.step[route], topology.dimension[links]), t.blocks[route])
    rate_Bps = np.zeros(dims)
    np.add.at(rate_Bps, topology.dimension, topology.bandwidth_Bps)
    per_rank = carried / n_ranks / np.maximum(rate_Bps / topology.n_npus, 1)
    return float(per_rank.max(axis=1).sum())
