"""When the operations of a job ran on each NPU, and what of the communication its computations had to wait for."""

from collections.abc import Callable
from functools import cached_property
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from sim.engine.compile.rows import Rows, rows
from sim.engine.run import check_size, run
from sim.lower.job import lower
from sim.lower.lowered import Lowered
from sim.lower.nics import STREAMS
from sim.lower.rotor import Turns, in_turns, turns_of
from sim.program import I32, I64, unique_rows
from sim.program.columns import counted, services_ps
from sim.program.contract import NEVER_PS
from sim.program.outcome import Outcome
from sim.why.backward import MEETS, NONE
from sim.why.exposed import Gaps, Interval, fill_gaps, find_gaps, unite
from sim.why.faulty_path import MOVED, RESENT, walk_of
from sim.why.path import REPAIR, Account, Labels, LoggedWalk, Piece, Trail, Waits, Walks, Why, classes_of
from topologies.checks import choice
from topologies.core.paths import distinct_of, ranges
from topologies.process import few_searches
from topologies.stages import staged
from workloads.job import COMPUTE_STREAM, Compute, Operation, Reconfigure, Send

LATE, RECONFIGURATION, TURN = "late worker", "reconfiguration", "waiting for the turn of a circuit"

IDLE_ELSEWHERE = "computation of others"
"""Time in which an NPU waits for what another one computes: the bubbles of a pipeline."""

WAIT_ELSEWHERE = "communication of others"
"""Time in which an NPU waits for communication in which it does not take part at that moment."""

NO_DIMENSION = ""

MOST_KEPT = 4_000_000
"""Services of a run up to which the pieces of its critical path are kept: they would outgrow all else."""


class Names:
    """Names for the critical path of a lowered run.

    `labels`: links by their dimension, streams, late starts; latencies as wire, hop, endpoint.
    """

    def __init__(self, lowered: Lowered) -> None:
        self.lowered = lowered
        turns = turns_of(lowered.topology) is not None
        self.labels = Labels(self._server, self._latency, TURN if turns else REPAIR)

    def operation(self, piece: Piece) -> Operation | None:
        """The operation of a piece; None for a task that faults have added."""
        number = self.number(piece)
        return self.lowered.job.operations[number] if number >= 0 else None

    def number(self, piece: Piece) -> int:
        """Number of the operation of a piece; -1 for a task that faults have added."""
        of_task = self.lowered.task_operation
        return int(of_task[piece.task]) if piece.task < of_task.size else -1

    def kinds(self, walks: Walks, trail: Trail, classes: I64) -> tuple[tuple[Piece, ...], I64]:
        """A piece of each kind, and the kind of each piece of some paths.

        `classes`: of the operations, (n,); pieces of operations of one class are called alike.
        """
        named = trail.name.astype(np.int64) * self.server_class.size + self.server_class[trail.server]
        kinds, kind = unique_rows(named * (classes.size + 1) + self.class_of(trail.task, classes))
        some = np.zeros(kinds.size, np.int64)
        some[kind] = np.arange(kind.size)
        return trail.at(some).listed(walks.names), kind

    def class_of(self, task: I32 | I64, classes: I64) -> I64:
        """Of the operation of each task; one more of those that faults have added."""
        of_task = self.lowered.task_operation
        operation: I64 = classes[of_task[np.minimum(task, of_task.size - 1)]]
        operation[task >= of_task.size] = classes.size
        return operation

    def name(self, piece: Piece, by: str = "dimension") -> str:
        """Of a piece by its dimension, operation, kind or tenant; a late start whichever task waits for it."""
        if piece.server in self.lowered.late:
            return self._server(piece.server)
        operation = self.operation(piece)
        return piece.name if operation is None else self.said(operation, piece.name, by)

    @staticmethod
    def said(operation: Operation, name: str, by: str) -> str:
        """What a piece of an operation is called that has a name of its own."""
        if by == "dimension":
            return RECONFIGURATION if isinstance(operation.work, Reconfigure) else name
        return {"operation": operation.name, "kind": operation.kind, "tenant": operation.tenant}[by] or operation.name

    def exposed(self, piece: Piece) -> tuple[str, str]:
        """Kind of communication and dimension of a piece for which a computation waits."""
        operation = self.operation(piece)
        if operation is None:
            return LATE, NO_DIMENSION
        if piece.name.startswith((REPAIR, TURN, RESENT, MOVED)):
            return operation.kind, piece.name.partition(",")[0]
        if isinstance(operation.work, Compute):
            return IDLE_ELSEWHERE, NO_DIMENSION
        return operation.kind, NO_DIMENSION if isinstance(operation.work, Reconfigure) else self._server(piece.server)

    @cached_property
    def server_class(self) -> I64:
        """Servers with one label have one number; the last one is of no server."""
        return classes_of([*map(self._server, range(self.lowered.program.n_servers)), None])

    def dimension(self, link: int) -> str:
        """Of a link: "dimension 0", or "links" where it has none."""
        number = int(self.lowered.topology.dimension[link])
        return f"dimension {number}" if number >= 0 else "links"

    def _server(self, index: int) -> str:
        lowered = self.lowered
        if index in lowered.late:
            return f"{LATE} {lowered.late[index]}"
        if index in lowered.timers:
            return "timeout"
        link = int(lowered.server_link[index])
        if link >= 0:
            return self.dimension(link)
        if lowered.is_end(index):
            return STREAMS[lowered.server_stream[index]]
        return "compute" if lowered.server_rank[index] >= 0 else RECONFIGURATION

    def _latency(self, hop: int) -> list[tuple[str, int]]:
        lowered, program, topology = self.lowered, self.lowered.program, self.lowered.topology
        server = int(program.hop_server[hop])
        link = int(lowered.server_link[server])
        if link < 0:
            name = "endpoint" if lowered.is_end(server) else self._server(server)
            return [(name, int(program.hop_latency_ps[hop]))]
        endpoint = lowered.model.endpoint_latency_ps if program.hop_last[hop] else 0
        if program.has_nics:  # a part of it lies behind the NIC
            of_link = int(topology.latency_ps[link] + topology.hop_latency_ps[topology.dst[link]])
            endpoint = int(program.hop_latency_ps[hop]) - of_link if program.hop_last[hop] else 0
        return [("hop processing", int(topology.hop_latency_ps[topology.dst[link]])), ("endpoint", endpoint)]


BY = ("dimension", "operation", "kind", "tenant")


def run_with_log(lowered: Lowered) -> Outcome:
    """A run of the chunk engine that keeps every service."""
    check_size(lowered.program, log=True, asked=True)
    return run(lowered.program, log=True)


@staged("critical path")
@few_searches()
def explain_run(lowered: Lowered, outcome: Outcome, by: str = "dimension") -> Why:
    """Why a run takes as long as it does.

    `outcome`: of a run with `log=True`.
    `by`: {"dimension", "operation", "kind", "tenant"}; how pieces are named: what was done on which class of servers
        ("serialization, dimension 0"), or whose it was: the operation ("gradients 3"), its kind ("data all-reduce"), or
        its tenant.
    WeftError: the run kept no log, or another name.
    """
    choice(by, BY, "by")
    if outcome.log is None or outcome.events <= MOST_KEPT:
        return _walked(lowered, outcome, by)
    walks = LoggedWalk(lowered.program, outcome, Names(lowered).labels, once=True)
    account = walks.account(_renaming(lowered, walks, by))
    return Account(outcome.makespan_ps, *account, lambda: _walked(lowered, run_with_log(lowered), by))


def _walked(lowered: Lowered, outcome: Outcome, by: str) -> Why:
    walks = walk_of(lowered.program, outcome, Names(lowered).labels)
    return walks.walk(_renaming(lowered, walks, by))


def _renaming(lowered: Lowered, walks: Walks, by: str) -> Callable[[Trail], Trail]:
    """What gives pieces the names that are asked for."""
    names, classes = Names(lowered), classes_of(Names.said(one, "", by) for one in lowered.job.operations)

    def rename(trail: Trail) -> Trail:
        some, kind = names.kinds(walks, trail, classes)
        return trail._replace(name=np.array([walks.number(names.name(one, by)) for one in some], np.int64)[kind])

    return rename


class Span(NamedTuple):
    """An operation on an NPU."""

    operation: int
    rank: int
    start_ps: int
    end_ps: int


class _Rows(NamedTuple):
    """Spans column by column, (n,), with the task at the end of each."""

    operation: I64
    rank: I64
    start_ps: I64
    end_ps: I64
    task: I64

    def of(self, some: slice | I64) -> "_Rows":
        return _Rows(*(column[some] for column in self))

    def listed(self) -> list[Span]:
        return list(map(Span, *(column.tolist() for column in self[:4])))


class _Idle(NamedTuple):
    """Gaps of the compute streams of N NPUs, and of those without operations, from late to early."""

    busy_ps: I64  # (N + 1,): how long each computes
    npu: I64  # (n,): of each gap
    waits: Waits  # (n,): what ends it


class _UnderWay(NamedTuple):
    """When N NPUs, and those without operations, have each of M kinds of communication in progress."""

    intervals: Rows[Interval]
    first: I64  # (N + 1, M): the first row
    last: I64  # (N + 1, M): the last interval; NONE where there is no row
    length_ps: I64  # (N + 1, M)


class Spans:
    """The operations of one run.

    `lowered`: with the joins of its operations.
    """

    @staged("critical path")
    @few_searches()
    def __init__(self, lowered: Lowered, outcome: Outcome) -> None:
        self.lowered, self.outcome, self.operations = lowered, outcome, lowered.job.operations
        self.names = Names(lowered)
        self._by_rank = _rows_of(lowered, outcome)
        kinds, works = [one.kind for one in self.operations], [one.work for one in self.operations]
        self._kinds, self._kind = list(dict.fromkeys(kinds)), classes_of(kinds)
        types = list(map(type, works))
        each, of_type = list(dict.fromkeys(types)), classes_of(types)
        is_stream = [isinstance(work, Compute) and work.stream == COMPUTE_STREAM for work in works]
        self._streams = np.array(is_stream, np.bool_)
        flags = np.array([(one is not Compute, one is Send) for one in each], np.bool_).reshape(-1, 2)
        self._communicates, self._sends = flags.T[:, of_type]
        self._classes = unique_rows(self._kind * len(each) + of_type)[1]
        self._ranks = distinct_of(self._by_rank.rank)
        self._ends = np.append(np.searchsorted(self._by_rank.rank, self._ranks), self._by_rank.rank.size)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_walk"}  # closures; walked again

    @property
    def ranks(self) -> list[int]:
        """NPUs that have operations."""
        ranks: list[int] = self._ranks.tolist()
        return ranks

    @property
    def all(self) -> list[Span]:
        """Every operation on every NPU, by start."""
        mine = self._by_rank
        return mine.of(np.lexsort((mine.rank, mine.operation, mine.start_ps))).listed()

    def of_rank(self, rank: int) -> list[Span]:
        """The operations of one NPU, by start."""
        return self._of(rank).listed()

    def _of(self, rank: int) -> _Rows:
        return self._by_rank.of(slice(*np.searchsorted(self._by_rank.rank, [rank, rank + 1])))

    @cached_property
    def _npu(self) -> I64:
        """The number of the NPU of each row, among those that have operations."""
        return np.repeat(np.arange(self._ranks.size), np.diff(self._ends))

    def _number(self, rank: int) -> int:
        """Of an NPU; those that have no operation are the one behind all others."""
        at = int(np.searchsorted(self._ranks, rank))
        return at if rank in self._ranks[at : at + 1] else self._ranks.size

    def compute_ps(self, rank: int) -> int:
        """Time for which the compute stream of an NPU is busy, up to the delivery of each computation."""
        return int(self._idle.busy_ps[self._number(rank)])

    @cached_property
    @staged("critical path")
    @few_searches()
    def _idle(self) -> "_Idle":
        """Gaps of the compute streams."""
        some = np.flatnonzero(self._streams[self._by_rank.operation])
        mine, npu, since_ps = self._by_rank.of(some), self._npu[some], np.empty(some.size, np.int64)
        free_ps, busy_ps = np.zeros((2, self._ranks.size + 1), np.int64)
        find_gaps(npu, mine.start_ps, mine.end_ps, free_ps, busy_ps, since_ps)
        late, last = np.flatnonzero(since_ps != NONE), np.flatnonzero(free_ps < self.outcome.makespan_ps)
        task, delivered = np.append(mine.task[late], np.repeat(self._last, last.size)), np.arange(late.size + last.size)
        waits = Waits(task, np.append(since_ps[late], free_ps[last]), delivered >= late.size)
        npu, order = np.append(npu[late], last), np.argsort(-waits.since_ps, kind="stable")
        return _Idle(busy_ps, npu[order], waits.at(order))

    def communication_ps(self, rank: int) -> dict[str, int]:
        """Time for which an NPU has an operation of each kind of communication in progress."""
        of, at = self._under_way, self._number(rank)
        kinds = np.flatnonzero(of.last[at] != NONE)
        in_order = kinds[np.argsort(of.first[at, kinds])].tolist()
        return {self._kinds[kind]: int(of.length_ps[at, kind]) for kind in in_order}

    @cached_property
    @staged("critical path")
    @few_searches()
    def _under_way(self) -> "_UnderWay":
        """When each NPU has an operation of each kind of communication in progress."""
        operation, begun_ps, n = self._by_rank.operation, self._begun_ps, len(self._kinds)
        kind = np.where(self._communicates[operation], self._kind[operation], NONE)
        moved = np.zeros(n + 1, np.bool_)  # kinds whose rows need not come by when they begin; none is the last one
        moved[self._kind[self._sends]] = True
        some = np.flatnonzero(moved[kind])
        order = np.append(np.flatnonzero(~moved[kind]), some[np.lexsort((begun_ps[some], self._npu[some]))])
        union = np.where(kind == NONE, NONE, self._npu * n + kind)
        first, last, length_ps = np.repeat([[0], [NONE], [0]], (self._ranks.size + 1) * n, axis=1)
        of_any = np.flatnonzero(kind != NONE)[::-1]
        first[union[of_any]] = of_any  # of several, the last one stays
        intervals = rows(Interval, order.size)
        unite(union[order], begun_ps[order], self._by_rank.end_ps[order], intervals, last, length_ps)
        return _UnderWay(intervals, *(column.reshape(-1, n) for column in (first, last, length_ps)))

    @cached_property
    def _begun_ps(self) -> I64:
        """When operations begin, of all rows; messages that an NPU only receives do when a source begins to send."""
        rows, n = self._by_rank, self.lowered.topology.n_npus
        sends = np.flatnonzero(self._sends[rows.operation])
        key = rows.operation[sends] * n + rows.rank[sends]
        sends, key = sends[(order := np.argsort(key))], key[order]
        numbers = distinct_of(rows.operation[sends])
        works = [self.operations[number].work for number in numbers.tolist()]
        ends = [[work.src for work in works], [work.dst for work in works]]
        count = np.fromiter(map(len, ends[0]), np.int64, numbers.size)
        pairs = np.fromiter(chain.from_iterable(chain(*ends)), np.int64, 2 * int(count.sum()))
        wanted = pairs.reshape(2, -1) + n * np.repeat(numbers, count)
        src, dst = places = np.minimum(np.searchsorted(key, wanted), max(key.size - 1, 0))
        is_src, is_dst = key[places] == wanted
        start_ps, begun_ps = rows.start_ps.copy(), np.full(sends.size, NEVER_PS)
        both = np.flatnonzero(is_src & is_dst)
        np.minimum.at(begun_ps, dst[both], start_ps[sends[src[both]]])
        begun_ps[src[is_src]] = NEVER_PS
        moved = np.flatnonzero(begun_ps < NEVER_PS)
        start_ps[sends[moved]] = begun_ps[moved]
        return start_ps

    @cached_property
    def busy_ps(self) -> dict[tuple[str, str], int]:
        """Time that each kind of communication takes on the busiest link of each dimension."""
        busy = np.zeros((len(self._kinds), self.lowered.server_link.size), np.int64)
        kind, server, service = self._crossings()
        np.add.at(busy, (kind, server), service)
        return {
            (name, dimension): int(row[busiest].max())
            for name, row in zip(self._kinds, busy, strict=True)
            for dimension, busiest in self._dimensions().items()
            if row[busiest].any()
        }

    def _crossings(self) -> tuple[I64, I64, I64]:
        """Kind of communication and server of everything that was served, and for how long; of tasks alike at once."""
        journal, p, of_task = self.outcome.journal, self.lowered.program, self.lowered.task_operation
        if journal is not None:
            kept = journal.task < of_task.size  # what begins late comes after them
            server = p.route_server[journal.at[kept]].astype(np.int64)
            return self._kind[of_task[journal.task[kept]]], server, (journal.end_ps - journal.start_ps)[kept]
        routes, cuts = p.route_ptr.size, np.int64(p.cut_chunks.size)
        of_kind = self._kind * (routes * cuts)
        key, n = counted(of_task.size, len(self._kinds) * routes * int(cuts), lambda some: (
            of_kind[of_task[some]] + p.task_route[some] * cuts + p.task_cut[some]))
        first, end = (p.route_ptr[key // cuts % routes + side].astype(np.int64) for side in (0, 1))
        hops = end - first
        row, server = np.repeat(np.arange(key.size), hops), p.route_server[ranges(first, hops)].astype(np.int64)
        return key[row] // (routes * cuts), server, services_ps(p, key[row] % cuts, server) * n[row]

    def exposed_ps(self, rank: int) -> dict[tuple[str, str], int]:
        """Where the time goes in which an NPU does not compute, by kind of communication and dimension.

        Each gap between computations is filled with the critical path to the computation after it (or to the end),
        so that compute and exposed times sum to the makespan. What the path spends in a kind of communication while
        the NPU itself has none in progress is communication of others: no kind is exposed for longer than it is in
        progress. The run must have kept a log.
        """
        keys, spent_ps, earliest_ps = self._account
        at, found = self._number(rank), dict[tuple[str, str], tuple[int, int]]()
        for one in np.flatnonzero(spent_ps[at]).tolist():
            before, earliest = found.get(keys[one], (0, NEVER_PS))
            found[keys[one]] = before + int(spent_ps[at, one]), min(earliest, int(earliest_ps[at, one]))
        return {key: time for key, (time, _) in sorted(found.items(), key=lambda one: (-one[1][0], one[1][1]))}

    @cached_property
    @staged("critical path")
    @few_searches()
    def _account(self) -> tuple[list[tuple[str, str]], I64, I64]:
        """What the time of all gaps is called, how much of each NPU's is called so, and when that first was."""
        idle, under_way = self._idle, self._under_way
        pieces, first = self._walk.walked(idle.waits)
        on = np.flatnonzero(pieces.view(np.ndarray)["what"] > MEETS)
        some, kind = self.names.kinds(self._walk, self._walk.told(pieces.view(np.ndarray)[on]), self._classes)
        numbers: dict[tuple[tuple[str, str], bool], int] = {}
        number = np.array([numbers.setdefault(self._exposed_as(one), len(numbers)) for one in some], np.int64)
        key = np.zeros(len(pieces), np.int64)
        key[on] = number[kind]
        keys = [one for one, _ in numbers]
        kinds = [self._kinds.index(one) if communicates else NONE for (one, _), communicates in numbers]
        spent_ps, earliest_ps = np.zeros((2, self._ranks.size + 1, len(keys) + 1), np.int64)
        fill_gaps(Gaps(
            pieces, key, np.array(kinds, np.int64), idle.npu, first, idle.waits.since_ps, under_way.intervals,
            under_way.last.copy(), spent_ps, earliest_ps,
        ))
        return [*keys, (WAIT_ELSEWHERE, NO_DIMENSION)], spent_ps, earliest_ps

    def _exposed_as(self, piece: Piece) -> tuple[tuple[str, str], bool]:
        """The kind of communication and dimension of a piece, and whether NPUs communicate in it."""
        operation = self.names.operation(piece)
        communicates = operation is not None and not isinstance(operation.work, Compute | Reconfigure)
        return self.names.exposed(piece), communicates

    @cached_property
    def _walk(self) -> Walks:
        """The one walk of the run: where the paths of two NPUs meet, they are one."""
        alike = self.lowered.task_operation, self._classes, self.names.server_class
        return walk_of(self.lowered.program, self.outcome, self.names.labels, alike)

    @cached_property
    def _last(self) -> int:
        """The task of the last delivery."""
        return int(np.flatnonzero(self.outcome.finish_ps == self.outcome.makespan_ps)[-1])

    def _dimensions(self) -> dict[str, list[int]]:
        """Servers of each dimension, and of the NICs."""
        found: dict[str, list[int]] = {}
        for server, link in enumerate(self.lowered.server_link.tolist()):
            if link >= 0 or self.lowered.is_end(server):
                found.setdefault(self.names.labels.server(server), []).append(server)
        return found


def _rows_of(lowered: Lowered, outcome: Outcome) -> _Rows:
    """All spans by NPU and start, and by operation, as they come."""
    n, operation, rank = lowered.end_task.rows()
    task, begin = lowered.end_task.tasks(n), lowered.begin_task.tasks(n)  # of the same ranks
    start_ps = np.where(begin == task, outcome.start_ps[begin], outcome.finish_ps[begin])
    order = np.argsort(start_ps, kind="stable")
    short = rank[order].astype(np.int16 if lowered.topology.n_npus < 2**15 else np.int64)  # sorted by digits
    order = order[np.argsort(short, kind="stable")]
    return _Rows(operation, rank, start_ps, outcome.finish_ps[task], task).of(order)


def run_with_joins(
    lowered: Lowered, change: Callable[[Lowered, Turns | None], Lowered]
) -> tuple[Lowered, Outcome]:
    """A schedule alone once more, as an operation that shows when each NPU has finished; with a log.

    `change` adds the faults of the run to the program, and the turns of its circuits.
    """
    symmetry = "off" if lowered.is_whole else "auto"
    joined = lower(lowered.job, lowered.model, symmetry, joins=True, marks=lowered.marks)
    return in_turns(joined, run_with_log, change)
