"""Greedy synthesis: a schedule found by filling the links of a time-expanded network (as in TACOS).

Whenever a link is free it takes a block that its source has and its destination lacks, rarest first and at random
among equals; links that deliver soonest choose first (W. Won et al., "TACOS: topology-aware collective algorithm
synthesizer", MICRO 2024). The best of several runs is used. Transfers then follow that order on every link. Works on
any network: logical links past switches come from `collectives.trees.edge_splitting`.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache, partial
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from collectives.core._matches import Lanes, lanes_in_order, match
from collectives.core.builders import by_wiring, of_kind
from collectives.core.by_slots import WHOLE
from collectives.core.collective import collective
from collectives.core.pattern import ALONE_MOVES, PROOF_TRANSFERS, OwnProof, Pattern
from collectives.core.proof import ScheduleError
from collectives.core.schedule import ELEMENT_BYTES, Schedule, schedule
from collectives.core.sends import Columns
from collectives.core.transfers import sources_only
from collectives.trees.edge_splitting import without_switches
from collectives.trees.shares import gather_shares
from topologies import Topology, WeftError
from topologies.checks import Count, Natural
from topologies.core.paths import distinct_of, ranges
from topologies.flows.tightest_cut import remembered
from topologies.stages import count
from topologies.units import MOST_PS, PS_PER_S, Quantity, format_time, parse_size

if TYPE_CHECKING:
    from collectives.core._matches import Matches

NAME = "tacos"
DEFAULT_RUNS = 8

PAST_SWITCHES = 300_000
"""Limit on transfers past switches, whose paths take most of the time: half a minute for 432 NPUs of a fat tree."""

I64 = npt.NDArray[np.int64]


class Lane(NamedTuple):
    """A physical link, or a path past switches with its share of their bandwidth."""

    src: int
    dst: int
    links: tuple[int, ...]
    rate_Bps: float
    latency_ps: int


class Sends(NamedTuple):
    """Transfers of one block each, in order."""

    # src, dst, lane, block: (n,)
    src: I64
    dst: I64
    lane: I64
    block: I64
    reduces: npt.NDArray[np.bool_]  # (n,)
    # child, parent: (n_waits,): transfers that wait, and what each waits for
    child: I64
    parent: I64


def _schedule(
    kind: str, topology: Topology, size: Quantity, *, parts: Count = 1, seed: Natural = 0, runs: Count = DEFAULT_RUNS,
    element_bytes: int = ELEMENT_BYTES,
) -> Schedule:
    n_blocks = topology.n_npus * parts
    _check_proof(topology, kind, n_blocks)
    block_bytes = -(-parse_size(size) // n_blocks)
    return schedule(_pattern(topology, kind, parts, seed, runs, block_bytes), size, element_bytes)


all_gather = of_kind("all-gather", _schedule, """
    A synthesized all-gather.

    `size`: bytes of the array: the search weighs latency against bandwidth.
    `parts`: blocks per rank.
    `seed`: the same seed gives the same schedule.
    `runs`: number of searches; the best is used.
    WeftError: unreachable NPUs, or more transfers than can be proved.
    """)
reduce_scatter = of_kind("reduce-scatter", _schedule, """
    An all-gather on the reversed network, run in reverse; parameters as for `all_gather`.""")
all_reduce = of_kind("all-reduce", _schedule, "Reduce-scatter, then all-gather; parameters as for `all_gather`.")


def is_long(topology: Topology) -> bool:
    """Whether it takes more than a few seconds to find."""
    return topology.n_npus**2 > PROOF_TRANSFERS


def _check_proof(topology: Topology, kind: str, n_blocks: int) -> None:
    """Reject what takes minutes: every NPU gets every block that it lacks in one transfer; paths past switches."""
    phases = 2 if kind == "all-reduce" else 1
    transfers = phases * n_blocks * max(topology.n_npus - 1, 1)
    most, where = (PAST_SWITCHES, " past switches") if topology.n_nodes > topology.n_npus else (ALONE_MOVES, "")
    if transfers > most:
        raise WeftError(
            f"{NAME} on {topology.name}: {kind} of {n_blocks:,} blocks takes {transfers:,} transfers, too many to "
            f"find and prove{where} (limit: {most:,}). Use a smaller fabric, or fewer parts"
        )


@by_wiring
def _pattern(topology: Topology, kind: str, parts: int, seed: int, runs: int, block_bytes: int) -> Pattern:
    n, n_blocks, (ends, _, _) = topology.n_npus, topology.n_npus * parts, _kinds_of(topology)
    if kind != "all-gather":
        sends = up = _up(ends, search(topology, parts, seed, runs, block_bytes, inward=True), n, n_blocks)
    if kind != "reduce-scatter":
        sends = down = _down(ends, search(topology, parts, seed, runs, block_bytes), n, n_blocks)
    if kind == "all-reduce":
        sends = _joined(up, down, n)
    by_source = np.argsort(sends.src, kind="stable")
    first = np.searchsorted(sends.src[by_source], np.arange(n))
    return Pattern(
        topology=topology, kind=collective(kind), algorithm=NAME, n_blocks=n_blocks,
        emit=partial(sources_only, _columns(topology, sends).table()),
        blocks_of=partial(_block_of, first, sends.block[by_source]),
        own_proof=OwnProof(partial(prove_sends, sends, n, n_blocks, kind)),
    )


def _block_of(first: I64, blocks: I64, source: int, slot: int) -> list[int]:
    """`first`: of each source its place among `blocks`, which are ordered by source and slot."""
    return [int(blocks[first[source] + slot])]


def search(topology: Topology, parts: int, seed: int, runs: int, block_bytes: int, *, inward: bool = False) -> Matches:
    """The best all-gather of several runs, on `lanes_of` the topology.

    With `inward` the search runs on the reversed network, but lanes keep their own direction. Lanes are taken in the
    order of their ends and costs, so that a network that is its own reversal has one search for both directions.
    """
    (ends, kind, kinds), n_blocks = _kinds_of(topology), topology.n_npus * parts
    cost_of = [_cost_ps(block_bytes, *one) for one in kinds]
    if (most := max(cost_of, default=0)) > MOST_PS // (n_blocks * topology.n_npus):
        slowest = [cost_of[one] for one in kind.tolist()].index(most)
        names = "->".join(map(topology.node_name, ends[slowest].tolist()))
        raise WeftError(
            f"{NAME} on {topology.name}: a block of {block_bytes:,} B takes {format_time(most)} over "
            f"{names}; the clock ends at {format_time(MOST_PS)}: use smaller sizes or faster links"
        )
    costs, ends = np.array(cost_of, np.int64)[kind], ends[:, ::-1] if inward else ends
    order = np.lexsort((costs, ends[:, 1], ends[:, 0]))
    found = _best(topology.n_npus, n_blocks, ends[order].tobytes(), costs[order].tobytes(), seed, runs)
    if found.lane.size < n_blocks * (topology.n_npus - 1):
        raise _unreached(topology, n_blocks, ends[order], found)
    return found._replace(lane=order[found.lane])


@remembered
def _kinds_of(topology: Topology) -> tuple[I64, I64, list[tuple[int, float]]]:
    """Ends of each lane, (n_lanes, 2), and which of the kinds it is of: latencies with rates."""
    lanes, number = lanes_of(topology), dict[tuple[int, float], int]()
    ends = np.array([(lane.src, lane.dst) for lane in lanes], np.int64).reshape(-1, 2)
    kind = [number.setdefault((lane.latency_ps, lane.rate_Bps), len(number)) for lane in lanes]
    return ends, np.array(kind, np.int64), [*number]


def _cost_ps(block_bytes: int, latency_ps: int, rate_Bps: float) -> int:
    """At least 1 ps, for a block that takes no time could leave a rank in the picosecond in which it arrives."""
    return max(1, latency_ps + -(-block_bytes * PS_PER_S // (int(rate_Bps) or Fraction(rate_Bps))))


@lru_cache(maxsize=2)
def _best(n: int, n_blocks: int, ends: bytes, costs: bytes, seed: int, runs: int) -> Matches:
    """The best of several runs; the first where an NPU cannot be reached. Ends and costs are columns of int64.

    After one that no run can beat there is no other.
    """
    total, found = n_blocks * (n - 1), []
    lanes = lanes_in_order(n, np.frombuffer(ends, np.int64).reshape(-1, 2), np.frombuffer(costs, np.int64))
    for run in range(runs):
        tell = partial(_count, run * total, runs * total)
        found.append(match(n, n_blocks, lanes, np.random.default_rng([seed, run]), tell))
        if found[0].lane.size < total or _is_least(lanes, total // n, _end_ps(found[-1])):
            break
    return min(found, key=_end_ps)


def _end_ps(matches: Matches) -> int:
    return int(matches.end_ps.max(initial=0))


def _is_least(lanes: Lanes, lacks: int, end_ps: int) -> bool:
    """Whether the lanes to some NPU cannot bring it all blocks that it lacks in less time, each one after another."""
    sooner = np.maximum(end_ps - 1, 0) // lanes.cost_ps
    return bool(np.any(np.bincount(lanes.dst, sooner) < lacks))


def _count(before: int, total: int, found: int) -> None:
    count("blocks that are sent", before + found, total)


def _unreached(topology: Topology, n_blocks: int, ends: I64, found: Matches) -> WeftError:
    n = topology.n_npus
    holds = np.zeros((n, n_blocks), np.bool_)
    holds[np.arange(n_blocks) % n, np.arange(n_blocks)] = True
    holds[ends[found.lane, 1], found.block] = True
    rank, block = np.argwhere(~holds)[0].tolist()
    start, end = topology.node_name(block % n), topology.node_name(rank)
    return WeftError(f"topology {topology.name}: no route leads from {start} to {end}")


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


@remembered
def _ways_of(topology: Topology) -> tuple[I64, I64]:
    """Links of each lane: how many, (n_lanes,), and which, one lane after another."""
    ways = [lane.links for lane in lanes_of(topology)]
    return np.array([*map(len, ways)], np.int64), np.array([*chain.from_iterable(ways)], np.int64)


def _down(ends: I64, found: Matches, n: int, n_blocks: int) -> Sends:
    """Transfers in order of their start: each waits for its block, and for the previous one on its lane."""
    src, dst, lane, block = _in_order(ends, found, np.lexsort((found.lane, found.start_ps)))
    number, brings = np.arange(lane.size), np.full((n, n_blocks), -1)
    brings[dst, block] = number
    child, parent = _waits([(number, brings[src, block]), (number, _previous(lane))])
    return Sends(src, dst, lane, block, np.zeros(lane.size, np.bool_), child, parent)


def _up(ends: I64, found: Matches, n: int, n_blocks: int) -> Sends:
    """The same in reverse, with receivers adding: each waits for all that is added to its block before."""
    src, dst, lane, block = _in_order(ends, found, np.lexsort((found.lane, -found.end_ps)))
    number, passes_on = np.arange(lane.size), np.full((n, n_blocks), -1)
    passes_on[src, block] = number
    child, parent = _waits([(passes_on[dst, block], number), (number, _previous(lane))])
    return Sends(src, dst, lane, block, np.ones(lane.size, np.bool_), child, parent)


def _in_order(ends: I64, found: Matches, order: I64) -> tuple[I64, I64, I64, I64]:
    lane = found.lane[order]
    return *ends[lane].T.copy(), lane, found.block[order]


def _previous(lane: I64) -> I64:
    """The transfer before each on its lane, or -1."""
    previous = np.full(lane.size, -1)
    order = np.argsort(lane, kind="stable")
    same = lane[order[1:]] == lane[order[:-1]]
    previous[order[1:][same]] = order[:-1][same]
    return previous


def _waits(pairs: Sequence[tuple[I64, I64]]) -> tuple[I64, I64]:
    """Children and parents, without those of which one is -1."""
    child, parent = (np.concatenate(column) for column in zip(*pairs, strict=True))
    both = (child >= 0) & (parent >= 0)
    return child[both], parent[both]


def _joined(up: Sends, down: Sends, n: int) -> Sends:
    """One phase, then the other: what a root sends waits for all that its block is brought by."""
    brings = np.flatnonzero(up.dst == up.block % n)
    brings = brings[np.argsort(up.block[brings], kind="stable")]
    leaves = np.flatnonzero(down.src == down.block % n)
    begin, end = (np.searchsorted(up.block[brings], down.block[leaves], side) for side in ("left", "right"))
    child = np.concatenate((up.child, up.src.size + down.child, up.src.size + np.repeat(leaves, end - begin)))
    parent = np.concatenate((up.parent, up.src.size + down.parent, brings[ranges(begin, end - begin)]))
    src, dst, lane, block, reduces = (np.concatenate(pair) for pair in zip(up[:5], down[:5], strict=True))
    return Sends(src, dst, lane, block, reduces.astype(np.bool_), child, parent)


def prove_sends(sends: Sends, n: int, n_blocks: int, kind: str) -> str:
    """Prove by induction over their order; ScheduleError otherwise.

    Every rank but its root adds each block once, in a transfer that waits for all that add to it; and gets each block
    once, in a transfer that waits for the one that brought it to the sender, or at the root for all that add to it.
    """
    size, root = sends.src.size, sends.block % n
    waits = distinct_of(sends.child * size + sends.parent)
    child, parent = np.divmod(waits, max(size, 1))
    holds = bool((parent < child).all())
    for reduces, without in ((True, "all-gather"), (False, "reduce-scatter")):
        rows = np.flatnonzero(sends.reduces == reduces)
        mine, other = (sends.src, sends.dst) if reduces else (sends.dst, sends.src)
        place = np.full((n, n_blocks), -1)  # the transfer by which a rank adds or gets a block
        place[mine[rows], sends.block[rows]] = rows
        once = np.count_nonzero(place >= 0) == rows.size == (kind != without) * n_blocks * (n - 1)
        near = place[other[rows], sends.block[rows]]
        ends = np.stack((near, rows) if reduces else (rows, near))[:, near >= 0]
        holds &= once and not (mine[rows] == root[rows]).any() and bool(np.isin(ends[0] * size + ends[1], waits).all())
    if kind == "all-reduce":
        sums = np.bincount(sends.block[sends.reduces & (sends.dst == root)], minlength=n_blocks)
        last = sends.reduces[parent] & (sends.dst == root)[parent] & (sends.block[parent] == sends.block[child])
        leaves = ~sends.reduces & (sends.src == root)
        holds &= bool((np.bincount(child[last], minlength=size) == sums[sends.block])[leaves].all())
    if not holds:
        raise ScheduleError(f"{NAME}: transfers do not bring every block where it is wanted")
    return "proved block by block"


def _columns(topology: Topology, sends: Sends) -> Columns:
    n, (hops, links) = sends.src.size, _ways_of(topology)
    order = np.lexsort((sends.parent, sends.child))
    first, none = np.cumsum(hops) - hops, np.zeros(n, np.int64)
    return Columns(
        src=sends.src, dst=sends.dst, step=none, port=none, blocks=np.ones(n, np.int64),
        reduces=sends.reduces.astype(np.int64), waits=np.bincount(sends.child, minlength=n),
        other=sends.parent[order], lag=np.full(order.size, WHOLE), hops=hops[sends.lane],
        links=links[ranges(first[sends.lane], hops[sends.lane])],
    )
