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
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

import numpy as np

from sim.engine.compile.rows import Rows
from sim.program import I32, I64, Program
from sim.program.columns import blocks
from sim.program.outcome import Outcome
from sim.why.backward import PieceRow, Ways, follow
from topologies.checks import checked
from topologies.core.paths import ranges
from topologies.text.brief import one_line
from topologies.units import format_time

Part = TypeVar("Part", int, float)

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


REPAIR = "waiting for repair"


class Labels(NamedTuple):
    """Names for the account.

    Attributes
    ----------
    server : callable (server) -> str
        Class of a server, such as "dimension 0".
    latency : callable (kind of hop) -> sequence of (name, ps)
        Named parts of a latency; a rest is called "propagation".
    down : str
        What waits for a link that is down.
    """

    server: Callable[[int], str]
    latency: Callable[[int], list[tuple[str, int]]]
    down: str = REPAIR


def _plain_server(server: int) -> str:
    return f"server {server}"


def _plain_latency(hop: int) -> list[tuple[str, int]]:
    return []


PLAIN = Labels(_plain_server, _plain_latency)


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
    def walked(self, waits: Sequence[Wait]) -> tuple[Rows[PieceRow], I64]:
        """All pieces so far, and the first of each path."""

    @abstractmethod
    def named(self, piece: Any) -> tuple[Trail, I64]:
        """Some pieces, from late to early, in parts that have names; and which of the pieces each is of."""

    @abstractmethod
    def served(self, piece: Any) -> dict[str, int]:
        """Services among some pieces, by class of server."""

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
        pieces, first = self.walked(waits)
        since_ps = np.array([wait.since_ps for wait in waits], np.int64)
        ways = Ways(pieces, first, since_ps, np.zeros(first.size + 1, np.int64), np.zeros(SOME, np.int64))
        if (count := follow(ways)) > SOME:
            ways = ways._replace(on=np.zeros(count, np.int64))
            follow(ways)
        on: slice | I64 = ways.on[:count]
        if len(waits) == 1 and count and ways.on[count - 1] - ways.on[0] == count - 1:
            on = slice(ways.on[0], ways.on[0] + count)  # of one walk: pieces need not be copied
        return pieces.view(np.ndarray)[on], np.repeat(since_ps, np.diff(ways.ptr))

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


def in_parts(piece: Any, server: I64, kind: I64, parts: Sequence[list[tuple[int, int]]]) -> tuple[Trail, I64]:
    """Pieces of some kinds in the parts of these, as `Walks.named` has them; the earliest part takes what is left."""
    counts = np.array([len(some) for some in parts], np.int64)
    name, length = np.array([part for some in parts for part in some], np.int64).reshape(-1, 2).T
    after = np.cumsum(length) - length
    first, n = (np.cumsum(counts) - counts)[kind], counts[kind]
    source, part = np.repeat(np.arange(kind.size), n), ranges(first, n)
    end_ps = piece["end_ps"][source] - (after[part] - after[first[source]])
    start_ps = np.append(end_ps[1:], 0)[: end_ps.size]
    start_ps[np.cumsum(n) - 1] = piece["start_ps"]
    return Trail(start_ps, end_ps, name[part], piece["task"][source].astype(np.int64), server[source]), source
