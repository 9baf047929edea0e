"""Where the time went: the critical path of a run, every picosecond of it under a name.

A walk starts at the last delivery and goes back along what each chunk waited for: the service before it on the
same server, the hop before, the chunk before it at the first server, or the delivery that released it. The parts
sum to the makespan exactly.

One chunk over two servers, and where the walk goes from each `*` (a state: a delivery, or the start of a service):

    server a  ......[ other task ]* service ]~~ latency ~~>
    server b                              ......* service ]~~ latency ~~>* delivery
                                          <- queueing ->|
    delivery -> start of its last service: latency, serialization
    start, the server was busy until then -> start of the service before it there: serialization or queueing
    start, the chunk arrived then         -> start at the hop before: latency, serialization
    start at the first hop                -> the service of the chunk before, or the delivery that released this one

Invariant: each step adds pieces that end where the pieces before began, so there is neither a gap nor an overlap, and
the sum is exact. Where two causes end in the same picosecond, any of them explains it; the first found is taken.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from sim.engine.compile.rows import Rows, row, rows
from sim.program.columns import BLOCK, blocks, unique_rows
from sim.program.contract import I32, I64, PER_CHUNK, Program
from sim.program.outcome import Log, Outcome
from sim.why import backward
from sim.why.backward import DELIVERED, ENDED, RELEASED, Back, Frame, PieceRow, WalkRow, Ways, follow
from topologies import WeftError
from topologies.checks import checked
from topologies.core.paths import ranges
from topologies.text.brief import one_line
from topologies.units import format_time

Part = TypeVar("Part", int, float)

Numbers = npt.NDArray[np.integer]

Alike = tuple[I32, I64, I64]
"""The operation of each task, (T,), and classes of operations and of servers, (n,), (S,): pieces of a log that lie one
behind the other and are of one class of both are one."""

SERIALIZATION, QUEUEING, POSTING, CREDITS = "serialization", "queueing", "posting", "credits"
"""The path's own bytes on a server; those of another transfer in front of it; from the release of a chunk until it is
in the queue of its NIC: posts of the rank, engines, pushes; until a link knows of room that was given back."""

SOME = 1024
"""Pieces of paths that there is room for at first."""


class Piece(NamedTuple):
    """A stretch of the critical path: [start, end) ps, its name, and the task and server it was spent on (-1: none)."""

    start_ps: int
    end_ps: int
    name: str
    task: int
    server: int


class Wait(NamedTuple):
    """A question: why did this task start (or, if `delivered`, end) so late, back to `since_ps`?

    It started as soon as it was released, without queueing.
    """

    task: int
    since_ps: int
    delivered: bool = False


class Waits(NamedTuple):
    """Questions column by column, (n,)."""

    task: I64
    since_ps: I64
    delivered: npt.NDArray[np.bool_]

    @classmethod
    def of(cls, waits: Sequence[Wait]) -> "Waits":
        """From a list."""
        task, since_ps, delivered = np.array(waits, np.int64).reshape(-1, 3).T
        return cls(task.copy(), since_ps.copy(), delivered != 0)

    def at(self, places: I64) -> "Waits":
        """Some of them."""
        return Waits(self.task[places], self.since_ps[places], self.delivered[places])

    def listed(self) -> list[Wait]:
        """As a list."""
        return list(map(Wait, self.task.tolist(), self.since_ps.tolist(), self.delivered.tolist()))


REPAIR = "waiting for repair"


class Labels(NamedTuple):
    """Names for the account."""

    server: Callable[[int], str]  # class of a server, such as "dimension 0"
    latency: Callable[[int], list[tuple[str, int]]]  # parts of that of a kind of hop, ps; a rest is "propagation"
    down: str = REPAIR  # what waits for a link that is down


PLAIN = Labels("server {}".format, lambda hop: [])


class Trail(NamedTuple):
    """Pieces of paths, column by column, (n,)."""

    start_ps: I64
    end_ps: I64
    name: I32 | I64  # among `Walks.names`
    task: I32 | I64
    server: I32 | I64

    @property
    def length_ps(self) -> I64:
        """Of each piece, in ps."""
        return self.end_ps - self.start_ps

    def at(self, places: I64) -> "Trail":
        """Some of the pieces."""
        some: Iterator[Any] = (column[places] for column in self)
        return Trail(*some)

    def before(self, others: "Trail") -> "Trail":
        """These pieces, and others behind them."""
        columns: Iterator[Any] = map(np.append, self, others)
        return Trail(*columns)

    def listed(self, names: Sequence[str]) -> tuple[Piece, ...]:
        """The same piece by piece."""
        start, end, name, task, server = (column.tolist() for column in self)
        return tuple(map(Piece, start, end, map(names.__getitem__, name), task, server))


@checked
@one_line
@dataclass(frozen=True, eq=False)
class Why:
    """The critical path and its account.

    Attributes
    ----------
    makespan_ps : int
    trail : Trail
        The path in time order, without gaps, from 0 to the makespan.
    names : sequence of str
        Of its pieces, by their numbers.
    service_ps : dict of str to int
        Services on the path by class of server, other tasks' included: the derivative of the time by the logarithm
        of that class's slowness. Under cut-through, less those of a class that hide the ends of others.
    """

    makespan_ps: int
    trail: Trail
    names: Sequence[str]
    service_ps: dict[str, int]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Why) and all(
            getattr(self, name) == getattr(other, name) for name in ("makespan_ps", "pieces", "service_ps")
        )

    @cached_property
    def pieces(self) -> tuple[Piece, ...]:
        """The path as a list."""
        return self.trail.listed(self.names)

    @cached_property
    def parts(self) -> dict[str, int]:
        """Picoseconds under each name, largest first; they sum to the makespan."""
        total = np.zeros(len(self.names), np.int64)
        np.add.at(total, self.trail.name, self.trail.length_ps)
        number, first = np.unique(self.trail.name, return_index=True)
        in_order = number[np.lexsort((first, -total[number]))]
        return {self.names[one]: int(total[one]) for one in in_order.tolist()}

    def __str__(self) -> str:
        lines = [f"{format_time(self.makespan_ps)} = {self.makespan_ps} ps, of which"]
        for name, part in self.parts.items():
            lines.append(f"  {part:>16} ps  {part / max(self.makespan_ps, 1):6.1%}  {name}")
        return "\n".join(lines)


class Account(Why):
    """Why, of a path so long that its pieces are not kept: they are walked once more where they are asked for."""

    def __init__(
        self, makespan_ps: int, parts: dict[str, int], service_ps: dict[str, int], again: Callable[[], Why]
    ) -> None:
        vars(self).update(makespan_ps=makespan_ps, parts=parts, service_ps=service_ps, again=again)

    def __getattr__(self, name: str) -> Any:
        if name not in ("trail", "names"):
            raise AttributeError(name)
        found = vars(self)["again"]()
        vars(self).update(trail=found.trail, names=found.names)
        return vars(self)[name]


def by_kind(parts: Mapping[str, Part], mark: str = ",") -> dict[str, Part]:
    """Parts of a path by what stands before the mark: "serialization, dimension 0" is serialization."""
    total: dict[str, Part] = {}
    for name, part in parts.items():
        kind = name.partition(mark)[0]
        total[kind] = total[kind] + part if kind in total else part
    return total


class Walks(ABC):
    """Walks over one run, each to the beginning of time; what paths have in common is walked once."""

    def __init__(self, program: Program, outcome: Outcome, labels: Labels) -> None:
        self.program, self.outcome, self.labels = program, outcome, labels
        self._numbers: dict[str, int] = {}

    @abstractmethod
    def walked(self, waits: Waits) -> tuple[Rows[PieceRow], I64]:
        """All pieces so far, and the first of each path."""

    @abstractmethod
    def told(self, piece: Any) -> Trail:
        """Some pieces, row by row, each with the name of a part of it, or any where that says nothing of its kind."""

    @abstractmethod
    def named(self, piece: Any, times: I64 | int = 1) -> tuple[Trail, I64]:
        """Some pieces, from late to early, in parts that have names; and which of the pieces each is of.

        `times`: how many pieces of one kind each stands for, as long as all of them.
        """

    @abstractmethod
    def alike(self, piece: Any) -> I64:
        """A number of each piece, from 0 on: those of one number have the same parts, on servers called alike."""

    @abstractmethod
    def served(self, piece: Any) -> dict[str, int]:
        """Services among some pieces, by class of server."""

    def together(self, piece: Any, group: I64) -> tuple[Trail, I64]:
        """Parts of some pieces, of those of one group and alike as of one, and the group of each part.

        Each begins at 0 or where another part of the same pieces ends; its task is one of a piece of its group.
        """
        kind = self.alike(piece)
        n = int(kind.max(initial=0)) + 1
        distinct, row = unique_rows(group * n + kind)
        some, length_ps = np.zeros((2, distinct.size), np.int64)
        some[row] = np.arange(row.size)
        np.add.at(length_ps, row, piece["end_ps"] - piece["start_ps"])
        all_of = piece[some]
        all_of["start_ps"], all_of["end_ps"] = 0, length_ps
        trail, source = self.named(all_of, np.bincount(row, minlength=distinct.size))
        return trail, distinct[source] // n

    @property
    def names(self) -> list[str]:
        """By their numbers."""
        return list(self._numbers)

    def number(self, name: str) -> int:
        """The number of a name, a new one where it has none."""
        return self._numbers.setdefault(name, len(self._numbers))

    def walk(self, rename: Callable[[Trail], Trail] = lambda trail: trail) -> Why:
        """The path to the last delivery."""
        trail = self.trail(self.end(), rename)
        return Why(self.outcome.makespan_ps, trail, self.names, self.served(self.followed(self.end())[0]))

    def end(self) -> list[Wait]:
        """The last delivery, if the run took time."""
        last = np.flatnonzero(self.outcome.finish_ps == self.outcome.makespan_ps)[:1]
        return [Wait(task, 0, delivered=True) for task in last.tolist() if self.outcome.makespan_ps]

    def followed(self, waits: Sequence[Wait]) -> tuple[Any, I64]:
        """The pieces on some paths, each from late to early, and since when each piece counts."""
        asked = Waits.of(waits)
        (pieces, first), since_ps = self.walked(asked), asked.since_ps
        ways = Ways(pieces, first, since_ps, np.zeros(first.size + 1, np.int64), *np.zeros((2, SOME), np.int64))
        if (count := follow(ways)) > SOME:
            ways = ways._replace(on=np.zeros(count, np.int64), end_ps=np.zeros(count, np.int64))
            follow(ways)
        on: slice | I64 = ways.on[:count]
        if len(waits) == 1 and count and ways.on[count - 1] - ways.on[0] == count - 1:
            on = slice(ways.on[0], ways.on[0] + count)  # of one walk: pieces need not be copied
        found = pieces.view(np.ndarray)[on]
        if (found["end_ps"] != ways.end_ps[:count]).any():
            found = found.copy()
            found["end_ps"] = ways.end_ps[:count]
        return found, np.repeat(since_ps, np.diff(ways.ptr))

    def trail(self, waits: Sequence[Wait], rename: Callable[[Trail], Trail] = lambda trail: trail) -> Trail:
        """The paths to some ends in the order of time, one behind the other; what lies before `since_ps` is cut off."""
        piece, since_ps = self.followed(waits[::-1])
        parts: list[tuple[Any, ...]] = []
        for some in blocks(max(piece.size, 1)):
            found, source = self.named(piece[some])
            found = found._replace(start_ps=np.maximum(found.start_ps, since_ps[some][source]))
            kept = np.flatnonzero(found.length_ps > 0)[::-1]
            found = rename(found.at(kept))
            parts.append((*found[:2], *(column.astype(np.int32) for column in found[2:])))
        return Trail(*(np.concatenate(columns) for columns in zip(*reversed(parts), strict=True)))

    def latency_parts(self, hop: int) -> list[tuple[int, int]]:
        """Parts of the latency after a kind of hop, from late to early: number of the name, and ps."""
        named = self.labels.latency(hop)
        rest = int(self.program.hop_latency_ps[hop]) - sum(ps for _, ps in named)
        return [(self.number(name), ps) for name, ps in (*reversed(named), ("propagation", rest)) if ps]


def classes_of(values: Iterable[Hashable]) -> I64:
    """The number of each value, (n,): equal ones have one."""
    every = list(values)
    number = {value: at for at, value in enumerate(dict.fromkeys(every))}
    return np.fromiter(map(number.__getitem__, every), np.int64, len(every))


def in_parts(
    piece: Any, server: I64, kind: I64, parts: Sequence[list[tuple[int, int]]], times: I64 | int
) -> tuple[Trail, I64]:
    """Pieces of some kinds in the parts of these, as `Walks.named` has them; the earliest part takes what is left."""
    counts = np.array([len(some) for some in parts], np.int64)
    name, length = np.array([part for some in parts for part in some], np.int64).reshape(-1, 2).T
    first = np.cumsum(counts) - counts
    after = np.cumsum(length) - length
    after -= after[np.repeat(first, counts)]
    n = counts[kind]
    source, part = np.repeat(np.arange(kind.size), n), ranges(first[kind], n)
    end_ps = piece["end_ps"][source] - after[part] * np.broadcast_to(times, kind.size)[source]
    start_ps = np.append(end_ps[1:], 0)[: end_ps.size]
    start_ps[np.cumsum(n) - 1] = piece["start_ps"]
    return Trail(start_ps, end_ps, name[part], piece["task"][source].astype(np.int64), server[source]), source


_SERVICES = {backward.SERIALIZATION: SERIALIZATION, backward.QUEUEING: QUEUEING}
_OTHERS = {backward.POSTING: POSTING, backward.CREDITS: CREDITS}


class LoggedWalk(Walks):
    """Walks over a log; `sim.why.faulty_path` walks over a journal.

    `once`: there will be one walk alone, by `account`.
    `alike`: what makes pieces one.
    WeftError: the run kept no log.
    """

    def __init__(
        self, program: Program, outcome: Outcome, labels: Labels = PLAIN, once: bool = False,
        alike: Alike | None = None,
    ) -> None:
        super().__init__(program, outcome, labels)
        if outcome.log is None:
            raise WeftError("the critical path needs a run with log=True")
        self.back = _state(program, outcome, outcome.log, once)
        if alike is not None:
            operation, classes, servers = alike
            added = np.full(program.n_tasks - operation.size, classes.size, np.int32)  # by faults: of no operation
            self.back = self.back._replace(
                task_operation=np.append(operation, added) if added.size else operation,
                operation_class=np.append(classes, -1), at_class=servers[program.route_server],
            )
        self._parts: dict[int, list[tuple[int, int]]] = {}

    def walked(self, waits: Waits) -> tuple[Rows[PieceRow], I64]:
        """Pieces of the paths of some waits, and the first one of each, (n,)."""
        first = self._ask(waits)
        while self._walk_on() == backward.NEEDS_ROOM:
            more = rows(PieceRow, 2 * len(self.back.pieces))  # no zeros are copied: half of it may never be touched
            more.view(np.ndarray)[: len(self.back.pieces)] = self.back.pieces.view(np.ndarray)
            self.back = self.back._replace(pieces=more)
        return rows(PieceRow, self.back.pieces[: int(self.back.walk["pieces"])]), first

    def account(self, rename: Callable[[Trail], Trail]) -> tuple[dict[str, int], dict[str, int]]:
        """Parts and services of the path to the last delivery, as in `Why`; its pieces are counted and forgotten."""
        length_ps, earliest, pieces = dict[int, int](), dict[int, int](), 0
        services_ps = np.zeros(self.program.n_servers, np.int64)
        for piece in self._in_turn():
            found = self.named(piece)[0]
            found = rename(found.at(np.flatnonzero(found.length_ps > 0)))
            number, name = unique_rows(found.name)
            total, last = np.zeros((2, number.size), np.int64)
            np.add.at(total, name, found.length_ps)
            last[name] = np.arange(pieces, pieces + name.size)
            pieces += name.size
            earliest |= zip(number.tolist(), last.tolist(), strict=True)
            for one, ps in zip(number.tolist(), total.tolist(), strict=True):
                length_ps[one] = length_ps.get(one, 0) + ps
            services_ps += self.served_ps(piece)
        in_order = sorted(length_ps, key=lambda one: (-length_ps[one], -earliest[one]))
        return {self.names[one]: length_ps[one] for one in in_order}, self._labeled(services_ps)

    def _in_turn(self) -> Iterator[Any]:
        """The pieces of the path to the last delivery, from late to early, as many at a time as there is room for."""
        self._ask(Waits.of(self.end()))
        status = backward.NEEDS_ROOM
        while status == backward.NEEDS_ROOM:
            status = self._walk_on()
            written = int(self.back.walk["pieces"]) - (status == backward.FINISHED)  # the last one leads nowhere
            yield self.back.pieces.view(np.ndarray)[: max(written, 0)]
            self.back.walk["pieces"] = 0

    def _ask(self, waits: Waits) -> I64:
        """Let the next walks be those of some waits; where the first piece of each will be said, (n,)."""
        program, task, ends = self.program, waits.task, waits.delivered
        self.back.walk["asked"], first = 0, np.zeros(task.size, np.int64)
        self.back = self.back._replace(
            asked_task=task, asked_chunk=np.where(ends, program.cut_chunks[program.task_cut[task]] - 1, 0),
            asked_hop=np.where(ends, DELIVERED, RELEASED), asked_piece=first,
            asked_ps=np.where(ends, self.outcome.finish_ps[task], self.outcome.start_ps[task]),
            since_ps=waits.since_ps,
        )
        return first

    def _walk_on(self) -> int:
        status: int = backward.walk_back(self.program, self.back)
        if status == backward.UNEXPLAINED:  # a fault of the engine, not of the input
            raise AssertionError(f"nothing released task {self.back.walk['task']} at {self.back.walk['time_ps']} ps")
        return status

    def named(self, piece: Any, times: I64 | int = 1) -> tuple[Trail, I64]:
        """A path with the number of the name of each piece."""
        kinds, kind = self._kinds(piece)
        server = self.program.route_server[piece["at"]].astype(np.int64)
        return in_parts(piece, server, kind, [self._parts_of(one) for one in kinds], times)

    def alike(self, piece: Any) -> I64:
        """Pieces of one kind, on hops that have the same parts and servers called alike."""
        kinds, kind = self._kinds(piece)
        labels = [self.labels.server(int(self.program.hop_server[one % self.program.hop_server.size])) for one in kinds]
        return classes_of((label, *self._parts_of(one)) for label, one in zip(labels, kinds, strict=True))[kind]

    def _kinds(self, piece: Any) -> tuple[list[int], I64]:
        """What some pieces are and at which hops, and the number of each of them among these."""
        p = self.program
        kinds, kind = unique_rows(piece["what"] * np.int64(p.hop_server.size) + p.route_hop[piece["at"]])
        return kinds.tolist(), kind

    def told(self, piece: Any) -> Trail:
        """Pieces as they are; none of their names tells of what they are but their server and operation."""
        p, name = self.program, np.full(piece.size, self.number(SERIALIZATION))
        return Trail(piece["start_ps"], piece["end_ps"], name, piece["task"], p.route_server[piece["at"]])

    def _parts_of(self, kind: int) -> list[tuple[int, int]]:
        """Parts of pieces of a kind, as `Walks.latency_parts` has them."""
        if kind not in self._parts:
            what, hop = divmod(kind, self.program.hop_server.size)
            if what == backward.LATENCY:
                self._parts[kind] = self.latency_parts(hop)
            elif what in _OTHERS:
                self._parts[kind] = [(self.number(_OTHERS[what]), 0)]
            else:
                label = self.labels.server(int(self.program.hop_server[hop]))
                self._parts[kind] = [(self.number(f"{_SERVICES[what]}, {label}"), 0)]
        return self._parts[kind]

    def served(self, piece: Any) -> dict[str, int]:
        """Time on each server, ps, by its label."""
        return self._labeled(self.served_ps(piece))

    def _labeled(self, services: I64) -> dict[str, int]:
        found: dict[str, int] = {}
        for server in np.flatnonzero(services).tolist():
            label = self.labels.server(server)
            found[label] = found.get(label, 0) + int(services[server])
        return found

    def served_ps(self, piece: Any) -> I64:
        """Services among some pieces, by server, (S,).

        Under cut-through as much of a service hides behind the next one as that takes: slower servers hide more.
        """
        p, servers, total = self.program, self.program.route_server, np.zeros(self.program.n_servers, np.int64)
        for some in map(piece.__getitem__, blocks(piece.size)):
            some = some[np.isin(some["what"], list(_SERVICES))]
            server = servers[some["at"]]
            service_ps = p.service(some["size"], p.server_rate[server])
            np.add.at(total, server, service_ps)
            hidden_ps = service_ps - (some["end_ps"] - some["start_ps"])
            hides = np.flatnonzero(hidden_ps)
            np.subtract.at(total, servers[some["at"][hides] + 1], hidden_ps[hides])
        return total


def _state(program: Program, outcome: Outcome, log: Log, once: bool) -> Back:
    """Before the first walk."""
    first, none, walk = np.empty(program.n_tasks, np.int32), np.zeros(0, np.int64), row(WalkRow)
    n_joins, n_chunks = map(int, backward.number_joins(program, first))
    walk["hop"], walk["at"] = ENDED, backward.NONE
    pool, task, chunk = _givers(program) if program.task_pool.size else (none, none, none)
    back = Back(
        walk=walk, asked_task=none, asked_chunk=none, asked_hop=none, asked_ps=none, since_ps=none,
        asked_piece=none,
        base=log.base, start_ps=log.start_ps, before=log.before, finish_ps=outcome.finish_ps,
        begin_ps=outcome.start_ps if program.task_pool.size else none, first=first,
        whole_ptr=_pointers(program.whole_ptr), whole=np.empty_like(program.whole_child),
        pushed_ptr=_pointers(program.pushed_ptr), pushed=np.empty_like(program.pushed_child),
        join_ps=np.zeros(n_chunks if n_chunks > n_joins else 0, np.int64),
        given_ptr=none, given_ps=np.empty_like(task), given_task=task, given_chunk=chunk,
        found=np.zeros(0 if once else log.start_ps.size + n_chunks, np.int32), seen=np.zeros(n_chunks, np.int32),
        frames=rows(Frame, n_chunks + 1), pieces=rows(PieceRow, BLOCK // 16 if once else SOME + log.start_ps.size // 8),
        task_operation=np.zeros(0, np.int32), operation_class=none, at_class=none,
    )
    backward.prepare(program, back)
    order = np.argsort(pool, kind="stable")  # and each pool by time, in which it lies in long runs
    ptr = np.searchsorted(pool[order], np.arange(program.pool_capacity.size + 1))
    for some in map(order.__getitem__, map(slice, ptr[:-1], ptr[1:])):
        some[:] = some[np.argsort(back.given_ps[some], kind="stable")]
    return back._replace(given_ptr=ptr, given_ps=back.given_ps[order], given_task=task[order], given_chunk=chunk[order])


def _pointers(child_ptr: I32) -> I32:
    return np.zeros(child_ptr.size + 1 if child_ptr.size else 0, np.int32)


def _givers(program: Program) -> tuple[Numbers, I64, I64]:
    """Deliveries that return units, of whole tasks and then of chunks: pool, task and chunk of each."""
    given = np.diff(program.give_ptr)
    giver = np.flatnonzero(given)
    giver = np.repeat(giver, given[giver])
    last = program.cut_chunks[program.task_cut[giver]].astype(np.int64) - 1
    by_chunk = np.flatnonzero((program.give_per == PER_CHUNK) & (last > 0))
    task = np.concatenate((giver, np.repeat(giver[by_chunk], last[by_chunk])))
    chunk = np.concatenate((last, ranges(np.zeros(by_chunk.size, np.int64), last[by_chunk])))
    pool = np.concatenate((program.give_pool, np.repeat(program.give_pool[by_chunk], last[by_chunk])))
    return pool.astype(np.int16 if program.pool_capacity.size < 2**15 else np.int64), task, chunk  # sorted by digits
