"""The shape of a collective: its tasks, routes and dependencies without sizes, rates and latencies.

Schedules of one pattern share it, on all topologies of one wiring whose links are alike to each other in the same way,
so that a sweep over sizes, chunk counts, models, bandwidths and latencies builds it once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from collectives.core.emission import Emit
from collectives.core.pattern import Pattern
from collectives.core.transfers import Pool
from sim.lower.marks import Marks
from sim.lower.progress import FREE, Waiting, waiting_rows
from sim.lower.quotient import Quotient, Ranks, find_rows, quotient
from sim.program import I32, I64, WHOLE, Program, Waits, Works, i32, unique_rows, waits_of
from sim.program.model import Model
from topologies import Topology, WeftError
from topologies.core.rateless import alike, wiring_of
from topologies.text.brief import one_line

MOST_SHAPES = 16
"""Limit on the shapes of one pattern that are kept."""

_shapes: WeakKeyDictionary[Emit, dict[tuple[object, ...], Shape]] = WeakKeyDictionary()
"""By what emits the transfers, which patterns have in common on topologies of the same nodes and links."""


class Timed(NamedTuple):
    """The program of a shape at one size under one model on a topology, with task bytes and the latency of each hop."""

    program: Program
    task_bytes: I64
    latency_ps: I64
    topology: Topology


@one_line
@dataclass(frozen=True, eq=False)
class Shape:
    """What of a program does not depend on the size of the array, nor on rates and latencies.

    Attributes
    ----------
    quotient : Quotient
    server_link : (S,) int32
        Link of each server.
    task_row, task_half : (T,) int64
        Transfer of each task (a row of the quotient's), and which half of its bytes, -1 for all.
    task_src : (T,) int32
        Source of each task.
    route_ptr, route_server : int32
        Distinct routes, over servers.
    task_route : (T,) int32
    edge_parent, edge_child, edge_lag : (E,) int32
    timed : dict of (int, Model, tuple of Pool) to Timed
        Programs by the size of a block, to be timed again with other rates.
    """

    quotient: Quotient
    server_link: I32
    task_row: I64
    task_half: I64
    task_src: I32
    route_ptr: I32
    route_server: I32
    task_route: I32
    edge_parent: I32
    edge_child: I32
    edge_lag: I32
    timed: dict[tuple[int, Model, tuple[Pool, ...]], Timed] = field(default_factory=dict)

    def task_bytes(self, block_bytes: int | I64, tasks: slice = slice(None)) -> I64:
        """Bytes of some tasks, headers left out; two tasks of a split transfer have half of them each.

        Blocks are of one size, or of one for each slot.
        """
        transfers, row, half = self.quotient.transfers, self.task_row[tasks], self.task_half[tasks]
        each = block_bytes if isinstance(block_bytes, int) else block_bytes[transfers.slot[row]]
        whole = transfers.blocks[row] * each
        return np.where(half < 0, whole, np.where(half == 0, whole - whole // 2, whole // 2))

    def works(self, block_bytes: int) -> Works:
        """The distinct sizes of tasks, and which of them each task has, for blocks of one size."""
        (blocks, half), row = self._parts
        whole = blocks * block_bytes
        sizes = np.where(half < 0, whole, np.where(half == 0, whole - whole // 2, whole // 2))
        works, at = unique_rows(sizes)
        return works, row if np.array_equal(at, np.arange(at.size)) else i32(at)[row]

    @cached_property
    def _parts(self) -> tuple[tuple[I64, I64], I32]:
        """The distinct pairs of blocks and half, (2, n), and which of them each task has."""
        blocks = self.quotient.transfers.blocks[self.task_row]
        pairs, row = unique_rows(blocks * 3 + self.task_half + 1)
        return (pairs // 3, pairs % 3 - 1), i32(row)

    @cached_property
    def route_ends(self) -> tuple[I64, I64 | None]:
        """The last hop of each route that has hops; and how often each route counts its latency, None for once each.

        More than once: for further rounds, and for acknowledgements.
        """
        ends = self.route_ptr[1:][np.diff(self.route_ptr) > 0].astype(np.int64) - 1
        rounds = self.quotient.transfers.rounds
        if rounds is None:
            return ends, None
        laps = np.ones(self.route_ptr.size - 1, np.int64)
        laps[self.task_route] = rounds[self.task_row, 1]
        return ends, laps

    @cached_property
    def waits(self) -> Waits:
        """What its tasks wait for, where they are the whole program."""
        return waits_of(self.edge_parent, self.edge_child, self.edge_lag, self.task_row.size)

    @cached_property
    def task_class(self) -> I32:
        """Class of each task, where they are the whole program."""
        return i32(unique_rows(self.task_tie())[1])

    def task_tie(self) -> I64:
        """What orders tasks that ask for a server at the same time, (T,)."""
        return self.quotient.transfers.tie_class[self.task_row] * 2 + np.maximum(self.task_half, 0)


def shape_of(
    pattern: Pattern, tie: str, seed: int, symmetry: str, marks: Marks | None = None, waiting: Waiting = FREE,
    ends: int = 0,
) -> Shape:
    """The shape of a pattern, built once per routing and per use of its symmetry.

    A quotient depends on rates and latencies only through which links are alike: a topology on which other links are
    alike has a shape of its own, whose symmetry is checked anew.

    Parameters
    ----------
    pattern : Pattern
    tie : str
    seed : int
        For `ecmp`; 0 for other rules, so that they share one shape.
    symmetry : {"auto", "off"}
    waiting : Waiting
        What a rank waits for, beyond the dependencies.
    ends : int
        As in `sim.lower.quotient.Ranks`.
    """
    known = _shapes.setdefault(pattern.emit, {})
    topology = pattern.topology
    links = alike(topology) if symmetry == "auto" else b""
    key = wiring_of(topology), tie, seed, symmetry, links, marks and marks.digest, waiting, ends
    if key not in known:
        if len(known) >= MOST_SHAPES:
            del known[next(iter(known))]  # the oldest
        ranks = Ranks(ends, together=waiting.steps is not None)
        known[key] = make_shape(quotient(pattern, tie, seed, symmetry, marks, ranks), waiting)
    return known[key]


def make_shape(q: Quotient, waiting: Waiting = FREE) -> Shape:
    """Tasks, routes and edges of the representative transfers."""
    paths = q.paths
    server_link, server = unique_rows(paths.links)
    half = np.full(paths.pair.size, -1, np.int64)
    twin = np.flatnonzero(paths.pair[1:] == paths.pair[:-1])
    half[twin], half[twin + 1] = 0, 1
    task_route, route_ptr, route_server = _distinct_routes(q, half, server.astype(np.int32))
    parent, child, lag = _edges(q, half, waiting)
    return Shape(
        quotient=q,
        server_link=server_link.astype(np.int32),
        task_row=paths.pair,
        task_half=half,
        task_src=q.transfers.src[paths.pair],
        route_ptr=route_ptr,
        route_server=route_server,
        task_route=task_route,
        edge_parent=parent,
        edge_child=child,
        edge_lag=lag,
    )


def _distinct_routes(q: Quotient, half: I64, server: I32) -> tuple[I32, I32, I32]:
    """Routes are identified by their ends (and half), so that a ring's steps share one."""
    src, dst = q.transfers.src[q.paths.pair].astype(np.int64), q.transfers.dst[q.paths.pair]
    span = int(max(src.max(initial=0), dst.max(initial=0))) + 1
    source = unique_rows(src)[1]  # few sources make a short range
    key = (source * span + dst) * 3 + half + 1
    if q.transfers.rounds is not None:
        laps = q.transfers.rounds[q.paths.pair, 1].astype(np.int64)
        key = key * (int(laps.max(initial=0)) + 1) + laps
    if q.transfers.via_ptr is not None:
        key = _named_routes(q, key)
    distinct, route = unique_rows(key)
    first = np.zeros(distinct.size, np.int64)
    first[route[::-1]] = np.arange(route.size)[::-1]
    hops = np.diff(q.paths.ptr)[first]
    ptr = np.concatenate(([0], np.cumsum(hops)))
    at = np.repeat(q.paths.ptr[first] - ptr[:-1], hops) + np.arange(ptr[-1])
    return route.astype(np.int32), ptr.astype(np.int32), server[at]


def _named_routes(q: Quotient, key: I64) -> I64:
    """Numbers for routes that transfers may name themselves: equal where ends, half and all links are equal."""
    hops = np.diff(q.paths.ptr)
    n_links = int(q.paths.links.max(initial=0)) + 1
    for hop in range(int(hops.max(initial=0))):
        longer = hops > hop
        link = np.full(key.size, n_links, np.int64)
        link[longer] = q.paths.links[q.paths.ptr[:-1][longer] + hop]
        key = np.unique(key * (n_links + 1) + link, return_inverse=True)[1].astype(np.int64)
    return key


def _edges(q: Quotient, half: I64, waiting: Waiting) -> tuple[I32, I32, I32]:
    """Dependencies between tasks; both halves of a split transfer are waited for."""
    t = q.transfers
    counts = np.diff(t.dep_ptr)
    child_row = np.repeat(np.arange(t.src.size), counts)
    parent_row = rows_waited_for(q)
    lag = t.dep_lag
    if np.any(half >= 0):
        if np.any(lag != WHOLE):
            raise WeftError(
                "tie rule 'split' cannot serve transfers that follow each other chunk by chunk: "
                "choose first, alternating or ecmp"
            )
        return _split_edges(q, parent_row, child_row)
    if waiting != FREE:
        return waiting_rows(q.transfers, waiting, parent_row, child_row, lag)
    return parent_row.astype(np.int32), child_row.astype(np.int32), lag.astype(np.int32)


def rows_waited_for(q: Quotient) -> I64:
    """Row of the transfer (or of its representative) that each dependency names."""
    t = q.transfers
    if not t.dep_src.size:
        return np.zeros(0, np.int64)
    ports = np.zeros(int(t.slot.max(initial=-1)) + 1, np.int32)
    ports[t.slot] = t.port
    rank = q.orbits.rank_of(ports[t.dep_slot], t.dep_src)
    stride = int(max(t.src.max(initial=0), rank.max(initial=0))) + 1
    key = t.slot.astype(np.int64) * stride + t.src
    want = t.dep_slot.astype(np.int64) * stride + rank
    found = find_rows(key, want)
    if not np.array_equal(key[found], want):
        raise WeftError("a transfer waits for one that no rank sends")
    return found


def _split_edges(q: Quotient, parent_row: I64, child_row: I64) -> tuple[I32, I32, I32]:
    first = np.searchsorted(q.paths.pair, np.arange(q.transfers.src.size))
    count = np.bincount(q.paths.pair, minlength=q.transfers.src.size)
    pairs = [
        (first[parent_row] + i, first[child_row] + j, (count[parent_row] > i) & (count[child_row] > j))
        for i in (0, 1)
        for j in (0, 1)
    ]
    parent = np.concatenate([p[keep] for p, _, keep in pairs]).astype(np.int32)
    child = np.concatenate([c[keep] for _, c, keep in pairs]).astype(np.int32)
    return parent, child, np.full(parent.size, WHOLE, np.int32)
