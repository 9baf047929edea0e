"""The shape of a collective: its tasks, routes and dependencies without sizes, rates and latencies.

Schedules of one pattern share it, on all topologies of one wiring whose links are alike to each other in the same way,
so that a sweep over sizes, chunk counts, models, bandwidths and latencies builds it once.
"""

from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property, partial
from typing import NamedTuple, cast
from weakref import WeakKeyDictionary, ref

import numpy as np

from collectives.core.emission import Emit
from collectives.core.laid import Laid
from collectives.core.pattern import Pattern
from collectives.core.transfers import Again, Pool, Transfers, without_waits
from sim.lower.marks import Marks
from sim.lower.progress import FREE, Waiting, waiting_rows
from sim.lower.quotient import LINKS_ONLY, Quotient, Ranks, Routes, find_rows, quotient
from sim.program import I8, I32, I64, WHOLE, Program, Waits, Works, i32, unique_rows, waits_of
from sim.program.columns import BLOCK, is_dense, numbered
from sim.program.model import Model
from sim.program.passes import rows_of
from sim.program.waits import slot_waits, whole_waits
from topologies import Paths, Topology, WeftError
from topologies.core.rateless import alike, wiring_of
from topologies.text.brief import one_line

LAID = BLOCK // 8
"""Transfers from which on those of all ranks have no rows, where slots tell them."""

MOST_SHAPES = 16
"""Limit on the shapes of one pattern that are kept."""

_shapes: "WeakKeyDictionary[Emit, dict[tuple[object, ...], Shape]]" = WeakKeyDictionary()
"""By what emits the transfers, which patterns have in common on topologies of the same nodes and links."""


class Speeds(NamedTuple):
    """What of a program depends on the rates and latencies of a topology."""

    at_once: int  # links that a NIC has at once
    rates: list[Fraction]
    server_rate: I32
    latency_ps: I64  # of each hop, or of each kind of hop

    def fits(self, other: "Speeds") -> bool:
        """Whether servers are alike in the same way, and latencies equal."""
        return np.array_equal(self.server_rate, other.server_rate) and np.array_equal(self.latency_ps, other.latency_ps)


class Timed(NamedTuple):
    """The program of a shape at one size under one model on a topology, with task bytes.

    And its legend: link, rank and stream of each server, names of streams, and operation of each task.
    """

    program: Program
    task_bytes: I64
    speeds: Speeds
    topology: Topology
    legend: tuple[I32, I32, I32, tuple[str, ...], I32]
    uncut: dict[str, object]  # the model, but for how it cuts


@one_line
@dataclass(frozen=True, eq=False)
class Shape:
    """What of a program does not depend on the size of the array, nor on rates and latencies."""

    quotient: Quotient
    server_link: I32  # (S,): link of each server
    # rows, task_half: transfer of each task (a row of the quotient's), None where each is that of its number; and which
    # half of its bytes, -1 for all
    rows: I32 | None
    task_half: I8
    # route_ptr, route_hop, route_channel: distinct routes: of each hop twice its server, and one more where it ends a
    # route; and its channel (empty where links have one)
    route_ptr: I32
    route_hop: I32
    task_route: I32  # (T,)
    waiting: Waiting = FREE  # what its ranks wait for beyond the dependencies
    route_channel: I8 = field(default_factory=lambda: np.zeros(0, np.int8))
    # programs by the size of a block, to be timed again with other rates, or cut otherwise
    timed: dict[tuple[int, Model, tuple[Pool, ...]], Timed] = field(default_factory=dict)

    @property
    def route_server(self) -> I32:
        """Server of each hop of the routes."""
        return self.route_hop >> 1

    @property
    def task_row(self) -> I32:
        """Transfer of each task, (T,)."""
        return self.rows_of(slice(None))

    @property
    def task_src(self) -> I32:
        """Source of each task, (T,)."""
        src = self.quotient.transfers.src
        return src if self.rows is None else src[self.rows]

    def rows_of(self, tasks: slice) -> I32:
        """Transfer of some tasks."""
        every = tasks.indices(self.task_route.size)
        return np.arange(*every, dtype=np.int32) if self.rows is None else self.rows[tasks]

    @cached_property
    def _even(self) -> int | None:
        """Blocks of each task, where all have as many."""
        n_blocks = self.quotient.transfers.blocks
        alike = n_blocks.size and np.ptp(n_blocks) == 0 and self.task_half.max() < 0
        return int(n_blocks[0]) if alike else None

    def task_bytes(self, block_bytes: int | I64, tasks: slice = slice(None)) -> I64 | int:
        """Bytes of some tasks, or of each, headers left out; two tasks of a split transfer have half of them each.

        Blocks are of one size, or of one for each slot.
        """
        if self._even is not None and isinstance(block_bytes, int):
            return self._even * block_bytes
        transfers, row, half = self.quotient.transfers, self.rows_of(tasks), self.task_half[tasks]
        each = block_bytes if isinstance(block_bytes, int) else block_bytes[transfers.slot[row]]
        whole = transfers.blocks[row] * each
        if half.max(initial=-1) < 0:
            return whole
        return np.where(half < 0, whole, np.where(half == 0, whole - whole // 2, whole // 2))

    def works(self, block_bytes: int) -> Works:
        """The distinct sizes of tasks, and which of them each task has, for blocks of one size."""
        (n_blocks, half), row = self._parts
        whole = n_blocks * block_bytes
        sizes = np.where(half < 0, whole, np.where(half == 0, whole - whole // 2, whole // 2))
        works, at = unique_rows(sizes)
        return works, row if np.array_equal(at, np.arange(at.size)) else i32(at)[row]

    @cached_property
    def _parts(self) -> tuple[tuple[I64, I64], I32]:
        """The distinct pairs of blocks and half, (2, n), and which of them each task has."""
        if (laid := self.quotient.laid) is not None:
            each, of = unique_rows(laid.of_slot["blocks"])
            n, p = self.task_route.size, laid.shape[1]
            return (each, np.full(each.size, -1)), np.repeat(i32(of), p) if each.size > 1 else np.zeros(n, np.int32)
        n_blocks, half = self.quotient.transfers.blocks, self.task_half
        if half.size and n_blocks.strides == half.strides == (0,):  # one value for all
            return (n_blocks[:1], half[:1].astype(np.int64)), np.zeros(half.size, np.int32)
        row = self.task_row
        pairs, part = numbered(row.size, lambda some: n_blocks[row[some]] * 3 + half[some] + 1)
        return (pairs // 3, pairs % 3 - 1), part

    @property
    def laps(self) -> I64 | None:
        """How often each route counts its latency, None for once each; more: for rounds, and for acknowledgements."""
        rounds = self.quotient.transfers.rounds
        if rounds is None:
            return None
        laps = np.ones(self.route_ptr.size - 1, np.int64)
        laps[self.task_route] = rounds[self.task_row, 1]
        return laps

    @cached_property
    def edges(self) -> tuple[I32, I32, I32]:
        """Parent, child and lag of each dependency, (E,)."""
        return _edges(self.quotient, self.task_row, self.task_half, self.waiting)

    @cached_property
    def waits(self) -> Waits:
        """What its tasks wait for, where they are the whole program."""
        t, laid, found = self.quotient.transfers, self.quotient.laid, None
        if laid is not None:
            none = np.zeros(0, np.int32)
            found = slot_waits(laid.child, laid.parent, laid.source, laid.sources, laid.shape[0])
            return found or waits_of(none, none, none, self.task_route.size)
        if t.src.size > BLOCK and self.waiting == FREE and self.task_half.max() < 0 and t.dep_lag.max(initial=-1) < 0:
            found = whole_waits(t.dep_ptr, *_named(self.quotient))
        return found or waits_of(*self.edges, self.task_route.size, forward=self._steps_rise())

    def _steps_rise(self) -> bool:
        """Whether steps are known to wait for earlier ones, however many of a step its ranks wait for."""
        if self.waiting.steps is None:
            return False
        t = self.quotient.transfers
        return bool(np.all(t.step[rows_waited_for(self.quotient)] < np.repeat(t.step, np.diff(t.dep_ptr))))

    @cached_property
    def task_class(self) -> I32:
        """Class of each task, where they are the whole program."""
        if (laid := self.quotient.laid) is not None:
            return np.repeat(i32(unique_rows(laid.of_slot["tie_class"])[1]), laid.shape[1])
        tie = self.quotient.transfers.tie_class
        if self.task_half.strides == (0,) and is_dense(tie):
            return np.array(tie, np.int32)
        return numbered(self.task_route.size, self.task_tie)[1]

    def task_tie(self, tasks: slice = slice(None)) -> I64:
        """What orders some tasks that ask for a server at the same time."""
        tie: I64 = self.quotient.transfers.tie_class[self.task_row[tasks]].astype(np.int64)
        return tie * 2 + np.maximum(self.task_half[tasks], 0)

    def alone(self, few: Transfers) -> "Shape":
        """The same, where its tasks are the whole program: waits, classes and routes stand for what made them.

        `few`: what is kept of the transfers.
        """
        made = {"waits": self.waits, "task_class": self.task_class, "_parts": self._parts}
        none = Routes(Paths(np.zeros(1, np.int64), np.zeros(0, np.int32), np.zeros(0, np.int64)), np.zeros(0, np.int32))
        kept = self.quotient._replace(transfers=few, routes=none, laid=None)
        found = replace(self, quotient=kept)
        vars(found).update(made)
        return found


def shape_of(
    pattern: Pattern, tie: str, seed: int, symmetry: str, marks: Marks | None = None, waiting: Waiting = FREE,
    ranks: Ranks = LINKS_ONLY, chunks: int = 1,
) -> Shape:
    """The shape of a pattern, built once per routing and per use of its symmetry.

    A quotient depends on rates and latencies only through which links are alike: a topology on which other links are
    alike has a shape of its own, whose symmetry is checked anew.

    `seed`: for `ecmp`; 0 for other rules, so that they share one shape.
    `symmetry`: {"auto", "off"}.
    `waiting`: what a rank waits for, beyond the dependencies.
    `ranks`: what else a group has to keep.
    `chunks`: of a transfer, for the memory that all ranks would take.
    """
    known = _shapes.setdefault(pattern.emit, {})
    topology = pattern.topology
    links = alike(topology) if symmetry == "auto" else b""
    key = wiring_of(topology), tie, seed, symmetry, links, marks and marks.digest, waiting, ranks
    if key not in known:
        if len(known) >= MOST_SHAPES:
            del known[next(iter(known))]  # the oldest
        may_be_laid = tie != "split" and not waiting.pushed
        q = quotient(pattern, tie, seed, symmetry, marks, ranks, chunks, partial(_laid, pattern, waiting, may_be_laid))
        if q.laid is not None:
            known[key] = make_shape(q, waiting).alone(q.transfers)
            return known[key]
        few = without_waits(q.transfers)
        others = few.via_ptr, few.pool, few.rounds
        if q.orbits.is_whole and few.src.size > BLOCK and waiting == FREE and tie != "split" and not any(
            one is not None for one in others
        ):
            q, few = _let_go(q, few, pattern.emit)
        known[key] = make_shape(q, waiting).alone(few)
    return known[key]


def forget(pattern: Pattern) -> None:
    """Keep no shape of a pattern; the next one is built anew."""
    _shapes.pop(pattern.emit, None)


def _laid(pattern: Pattern, waiting: Waiting, may_be: bool) -> Laid | None:
    """All transfers without rows, with what their ranks wait for; None where they are few, or need rows."""
    found = pattern.emission.laid(LAID) if may_be else None
    return found if found is None or waiting.steps is None else found.together(waiting.steps)


def _let_go(q: Quotient, few: Transfers, emit: Emit) -> tuple[Quotient, Transfers]:
    """The quotient with the columns that routes, waits and classes are made of; and what emits the others again."""
    again, every, none = ref(emit), np.arange(q.orbits.rank.shape[1]), np.zeros(0, np.int32)
    later = Again.of(few, lambda: without_waits(cast(Emit, again())(every)))
    bare = q.transfers._replace(dst=none, step=none, port=none, reduces=none.astype(np.bool_))
    return q._replace(transfers=bare), cast(Transfers, later)


def make_shape(q: Quotient, waiting: Waiting = FREE) -> Shape:
    """Tasks, routes and edges of the representative transfers."""
    t, few = q.transfers, q.routes.paths
    server_link, of_hop = numbered(few.links.size, lambda some: few.links[some])
    split = bool(np.any(few.pair[1:] == few.pair[:-1]))
    if split or t.rounds is not None or t.via_ptr is not None:
        paths, channel = q.routes.of_transfers()
        server = i32(np.searchsorted(server_link, paths.links))
        row = i32(paths.pair)
        half = np.full(row.size, -1, np.int8)
        twin = np.flatnonzero(row[1:] == row[:-1])
        half[twin], half[twin + 1] = 0, 1
        task_route, route_ptr, at = _distinct_routes(q, paths, half)
        rows: I32 | None = row
        hop, channel = server[at], channel[at] if channel.size else channel
    else:
        rows, half = None, np.broadcast_to(np.full(1, -1, np.int8), q.routes.row.size)
        task_route, route_ptr, hop, channel = q.routes.row, i32(few.ptr), of_hop, q.routes.channel
    hop *= 2
    hop[route_ptr[1:][route_ptr[1:] > route_ptr[:-1]] - 1] += 1
    return Shape(
        quotient=q, server_link=i32(server_link), rows=rows, task_half=half, route_ptr=route_ptr,
        route_hop=hop, task_route=task_route, waiting=waiting, route_channel=channel,
    )


def _distinct_routes(q: Quotient, paths: Paths, half: I8) -> tuple[I32, I32, I64]:
    """Routes are identified by their ends (and half), so that a ring's steps share one.

    Returns the route of each path, and the hops of each route among those of the paths.
    """
    src, dst = q.transfers.src[paths.pair].astype(np.int64), q.transfers.dst[paths.pair]
    span = max(int(src.max(initial=0)), int(dst.max(initial=0))) + 1
    source = unique_rows(src)[1]  # few sources make a short range
    key = (source * span + dst) * 3 + half + 1
    if q.transfers.rounds is not None:
        laps = q.transfers.rounds[paths.pair, 1].astype(np.int64)
        key = key * (int(laps.max(initial=0)) + 1) + laps
    if q.transfers.via_ptr is not None:
        key = _named_routes(paths, key)
    distinct, route = unique_rows(key)
    first = np.zeros(distinct.size, np.int64)
    first[route[::-1]] = np.arange(route.size)[::-1]
    hops = np.diff(paths.ptr)[first]
    ptr = np.concatenate(([0], np.cumsum(hops)))
    at = np.repeat(paths.ptr[first] - ptr[:-1], hops) + np.arange(ptr[-1])
    return route.astype(np.int32), ptr.astype(np.int32), at


def _named_routes(paths: Paths, key: I64) -> I64:
    """Numbers for routes that transfers may name themselves: equal where ends, half and all links are equal."""
    hops = np.diff(paths.ptr)
    n_links = int(paths.links.max(initial=0)) + 1
    for hop in range(int(hops.max(initial=0))):
        longer = hops > hop
        link = np.full(key.size, n_links, np.int64)
        link[longer] = paths.links[paths.ptr[:-1][longer] + hop]
        key = np.unique(key * (n_links + 1) + link, return_inverse=True)[1].astype(np.int64)
    return key


def _edges(q: Quotient, row: I32, half: I8, waiting: Waiting) -> tuple[I32, I32, I32]:
    """Dependencies between tasks; both halves of a split transfer are waited for."""
    t = q.transfers
    edges = rows_waited_for(q), np.repeat(np.arange(t.src.size, dtype=np.int32), np.diff(t.dep_ptr)), t.dep_lag
    if waiting != FREE:
        edges = waiting_rows(t, waiting, *edges)
    if np.any(half >= 0):
        if np.any(t.dep_lag != WHOLE):
            raise WeftError(
                "tie rule 'split' cannot serve transfers that follow each other chunk by chunk: "
                "choose first, alternating or ecmp"
            )
        if t.pool is not None and np.any(t.pool[row[half >= 0], :2] >= 0):
            raise WeftError(
                "tie rule 'split' cannot serve transfers that use a pool, for each half would take or give a unit: "
                "choose first, alternating or ecmp"
            )
        return _split_edges(t.src.size, row, *edges)
    return edges


_ABSENT = "a transfer waits for one that no rank sends"


def _named(q: Quotient) -> tuple[I64, I32, I32, I32]:
    """First row of each slot, source of each row; and slot and source, or its representative, that are waited for."""
    t, source = q.transfers, q.transfers.dep_src
    if not q.orbits.is_whole:
        ports = np.zeros(int(t.slot.max(initial=-1)) + 1, np.int32)
        ports[t.slot] = t.port
        source = q.orbits.rank_of(ports[t.dep_slot], source)
    first = np.searchsorted(t.slot, np.arange(int(t.slot[-1]) + 2, dtype=np.int32))
    return first, i32(t.src), i32(t.dep_slot), i32(source)


def rows_waited_for(q: Quotient) -> I32:
    """Row of the transfer (or of its representative) that each dependency names."""
    t = q.transfers
    if not t.dep_src.size:  # messages of a job, which are not in the order of their sources
        return np.zeros(0, np.int32)
    _, src, slot, source = named = _named(q)
    if t.src.size > BLOCK:
        if not rows_of(*named, found := np.empty(slot.size, np.int32)):
            raise WeftError(_ABSENT)
        return found
    stride = int(max(src.max(initial=0), q.orbits.rank.max(initial=0))) + 1
    key, want = (at.astype(np.int64) * stride + of for at, of in ((t.slot, src), (slot, source)))
    found = i32(find_rows(key, want))
    if not np.array_equal(key[found], want):
        raise WeftError(_ABSENT)
    return found


def _split_edges(n: int, row: I32, parent_row: I32, child_row: I32, lag: I32) -> tuple[I32, I32, I32]:
    first = np.searchsorted(row, np.arange(n))
    count = np.bincount(row, minlength=n)
    found = []
    for i, j in ((0, 0), (0, 1), (1, 0), (1, 1)):
        there = (count[parent_row] > i) & (count[child_row] > j)
        found.append(np.stack([first[parent_row] + i, first[child_row] + j, lag])[:, there])
    parent, child, lags = np.concatenate(found, axis=1).astype(np.int32)
    return parent, child, lags
