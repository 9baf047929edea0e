"""Greedy synthesis: a schedule found by filling the links of a time-expanded network (as in TACOS).

Whenever a link is free it takes a block that its source has and its destination lacks, rarest first and at random
among equals; links that deliver soonest choose first (W. Won et al., "TACOS: topology-aware collective algorithm
synthesizer", MICRO 2024). The best of several runs is used. Transfers then follow that order on every link. Works on
any network: logical links past switches come from `collectives.trees.edge_splitting`.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from collectives.core.by_wiring import by_wiring
from collectives.core.pattern import PROOF_TRANSFERS, Pattern
from collectives.core.schedule import ELEMENT_BYTES, Schedule, schedule
from collectives.core.sends import SendList
from collectives.trees.edge_splitting import without_switches
from collectives.trees.shares import gather_shares
from topologies import Topology, WeftError
from topologies.checks import Count, Natural, checked
from topologies.flows.tightest_cut import remembered
from topologies.stages import count
from topologies.units import PS_PER_S, Quantity, parse_size

NAME = "tacos"
DEFAULT_RUNS = 3

class Lane(NamedTuple):
    """A physical link, or a path past switches with its share of their bandwidth."""

    src: int
    dst: int
    links: tuple[int, ...]
    rate_Bps: float
    latency_ps: int


class Match(NamedTuple):
    """A block on a lane, with start and end time."""

    lane: int
    block: int
    start_ps: int
    end_ps: int


@checked
def all_gather(
    topology: Topology, size: Quantity, *, parts: Count = 1, seed: Natural = 0, runs: Count = DEFAULT_RUNS,
    element_bytes: int = ELEMENT_BYTES,
) -> Schedule:
    """A synthesized all-gather.

    `size`: bytes of the array: the search weighs latency against bandwidth.
    `parts`: blocks per rank.
    `seed`: the same seed gives the same schedule.
    `runs`: number of searches; the best is used.
    WeftError: unreachable NPUs, or more transfers than can be proved.
    """
    return _schedule(topology, "all-gather", size, parts, seed, runs, element_bytes)


@checked
def reduce_scatter(
    topology: Topology, size: Quantity, *, parts: Count = 1, seed: Natural = 0, runs: Count = DEFAULT_RUNS,
    element_bytes: int = ELEMENT_BYTES,
) -> Schedule:
    """An all-gather on the reversed network, run in reverse; parameters as for `all_gather`."""
    return _schedule(topology, "reduce-scatter", size, parts, seed, runs, element_bytes)


@checked
def all_reduce(
    topology: Topology, size: Quantity, *, parts: Count = 1, seed: Natural = 0, runs: Count = DEFAULT_RUNS,
    element_bytes: int = ELEMENT_BYTES,
) -> Schedule:
    """Reduce-scatter, then all-gather; parameters as for `all_gather`."""
    return _schedule(topology, "all-reduce", size, parts, seed, runs, element_bytes)


def _schedule(
    topology: Topology, kind: str, size: Quantity, parts: int, seed: int, runs: int, element_bytes: int
) -> Schedule:
    n_blocks = topology.n_npus * parts
    _check_proof(topology, kind, n_blocks)
    block_bytes = -(-parse_size(size) // n_blocks)
    return schedule(_pattern(topology, kind, parts, seed, runs, block_bytes), size, element_bytes)


def _check_proof(topology: Topology, kind: str, n_blocks: int) -> None:
    """Reject what could not be proved once it is found: every NPU gets every block that it lacks in one transfer."""
    phases = 2 if kind == "all-reduce" else 1
    transfers = phases * n_blocks * max(topology.n_npus - 1, 1)
    if transfers > PROOF_TRANSFERS:
        raise WeftError(
            f"{NAME} on {topology.name}: {kind} of {n_blocks:,} blocks takes {transfers:,} transfers, too many to "
            f"prove (limit: {PROOF_TRANSFERS:,}). Use a smaller fabric, or fewer parts"
        )


@by_wiring
def _pattern(topology: Topology, kind: str, parts: int, seed: int, runs: int, block_bytes: int) -> Pattern:
    sends = SendList()
    roots: dict[int, list[int]] = {}
    if kind != "all-gather":
        roots = _add_up(sends, *search(topology, parts, seed, runs, block_bytes, inward=True), topology.n_npus)
    if kind != "reduce-scatter":
        _add_down(sends, *search(topology, parts, seed, runs, block_bytes), roots)
    return sends.pattern(topology, kind, NAME, topology.n_npus * parts)


def search(
    topology: Topology, parts: int, seed: int, runs: int, block_bytes: int, *, inward: bool = False
) -> tuple[list[Lane], list[Match]]:
    """The best all-gather of several runs: its lanes, and its matches ordered by start.

    With `inward` the search runs on the reversed network, but lanes keep their own direction.
    """
    lanes = lanes_of(topology)
    ends = [(lane.dst, lane.src) if inward else (lane.src, lane.dst) for lane in lanes]
    rates = [int(lane.rate_Bps) or Fraction(lane.rate_Bps) for lane in lanes]
    costs = [
        lane.latency_ps + -(-block_bytes * PS_PER_S // rate) for lane, rate in zip(lanes, rates, strict=True)
    ]
    found = (
        _run(topology, ends, costs, parts, np.random.default_rng([seed, run]), (run, runs)) for run in range(runs)
    )
    return lanes, min(found, key=lambda matches: max((match.end_ps for match in matches), default=0))


@remembered
def lanes_of(topology: Topology) -> list[Lane]:
    """Direct links, and paths past switches."""
    t = topology
    if t.n_nodes == t.n_npus:
        return [_lane(t, (link,), float(t.bandwidth_Bps[link])) for link in range(t.n_links)]
    shares = gather_shares(t, 1)  # few trees: a link with a thin share would be chosen and delay a block
    logical = without_switches(t, shares.links, shares.roots)
    return [
        _lane(t, links, many / float(shares.s_per_block_byte))
        for found in logical.paths.values() for links, many in found
        if int(t.src[links[0]]) < t.n_npus and int(t.dst[links[-1]]) < t.n_npus
    ]


def _lane(t: Topology, links: Sequence[int], rate_Bps: float) -> Lane:
    latency = sum(int(t.latency_ps[link]) + int(t.hop_latency_ps[t.dst[link]]) for link in links)
    return Lane(int(t.src[links[0]]), int(t.dst[links[-1]]), tuple(links), rate_Bps, latency)


def _run(
    topology: Topology, ends: list[tuple[int, int]], costs: list[int], parts: int, rng: np.random.Generator,
    turn: tuple[int, int],
) -> list[Match]:
    """One search. `turn`: its number among all searches, and how many they are."""
    n = topology.n_npus
    n_blocks = n * parts
    holds = np.zeros((n, n_blocks), np.bool_)
    holds[np.arange(n_blocks) % n, np.arange(n_blocks)] = True
    lacks = ~holds  # neither present nor in flight
    lacking = int(lacks.sum())
    held, missing = _bits(holds), _bits(lacks)
    holders = np.ones(n_blocks)
    leaving: list[list[int]] = [[] for _ in range(n)]
    for lane, (src, _) in enumerate(ends):
        leaving[src].append(lane)
    free = [True] * len(ends)
    matches: list[Match] = []
    arrivals: list[tuple[int, int, int]] = []
    now, ready = 0, set(range(len(ends)))
    while True:
        drawn = zip(ready, rng.random(len(ready)).tolist(), strict=True)
        # Most lanes have nothing to send, and get nothing before the next arrival: one number for all blocks shows it.
        able = [(costs[lane], draw, lane) for lane, draw in drawn
                if free[lane] and held[ends[lane][0]] & missing[ends[lane][1]]]
        for _, _, lane in sorted(able):
            src, dst = ends[lane]
            if not held[src] & missing[dst]:
                continue
            (wanted,) = (holds[src] & lacks[dst]).nonzero()
            block = int(wanted[(holders[wanted] + rng.random(wanted.size)).argmin()])
            lacks[dst, block], free[lane] = False, False
            missing[dst] &= ~(1 << block)
            holders[block] += 1
            matches.append(Match(lane, block, now, now + costs[lane]))
            heapq.heappush(arrivals, (now + costs[lane], lane, block))
        count("blocks that are sent", turn[0] * lacking + len(matches), turn[1] * lacking)
        if not arrivals:
            break
        now, ready = arrivals[0][0], set()
        while arrivals and arrivals[0][0] == now:
            _, lane, block = heapq.heappop(arrivals)
            dst = ends[lane][1]
            holds[dst, block], free[lane] = True, True
            held[dst] |= 1 << block
            ready.update([lane, *leaving[dst]])
    if np.any(lacks):
        rank, block = np.argwhere(lacks)[0].tolist()
        start, end = topology.node_name(block % n), topology.node_name(rank)
        raise WeftError(f"topology {topology.name}: no route leads from {start} to {end}")
    return matches


def _bits(rows: npt.NDArray[np.bool_]) -> list[int]:
    """Each row as one integer: block b is the bit 2**b."""
    return [int.from_bytes(np.packbits(row, bitorder="little").tobytes(), "little") for row in rows]


def _add_down(sends: SendList, lanes: list[Lane], matches: list[Match], roots: dict[int, list[int]]) -> None:
    """Transfers in order: each waits for its block, and for the previous transfer on its lane."""
    brings: dict[tuple[int, int], int] = {}
    last: dict[int, int] = {}
    for match in sorted(matches, key=lambda one: (one.start_ps, one.lane)):
        lane = lanes[match.lane]
        held = brings.get((lane.src, match.block))
        after = {one for one in (held, last.get(match.lane)) if one is not None}
        after |= set(roots.get(match.block, ())) if held is None else set()
        number = sends.add(lane.src, lane.dst, [match.block], after=sorted(after), links=lane.links)
        brings[lane.dst, match.block] = last[match.lane] = number


def _add_up(sends: SendList, lanes: list[Lane], matches: list[Match], n: int) -> dict[int, list[int]]:
    """The same in reverse, with receivers adding; returns the transfers that bring each block to its root."""
    into: dict[tuple[int, int], list[int]] = {}
    last: dict[int, int] = {}
    for match in sorted(matches, key=lambda one: (-one.end_ps, one.lane)):
        lane = lanes[match.lane]
        after = set(into.get((lane.src, match.block), ())) | ({last[match.lane]} if match.lane in last else set())
        number = sends.add(lane.src, lane.dst, [match.block], after=sorted(after), links=lane.links, reduces=True)
        into.setdefault((lane.dst, match.block), []).append(number)
        last[match.lane] = number
    return {block: numbers for (rank, block), numbers in into.items() if rank == block % n}
