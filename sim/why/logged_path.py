"""The critical path of a run with a log, walked by a kernel."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from sim.engine.compile.rows import Rows, row, rows
from sim.program.columns import BLOCK, blocks, unique_rows
from sim.program.contract import I32, I64, PER_CHUNK, Program
from sim.program.outcome import Log, Outcome
from sim.why import backward
from sim.why.backward import DELIVERED, ENDED, NONE, RELEASED, Back, Frame, PieceRow, WalkRow
from sim.why.path import CREDITS, PLAIN, POSTING, QUEUEING, SERIALIZATION, SOME, Labels, Trail, Wait, Walks, in_parts
from topologies import WeftError
from topologies.core.paths import ranges
from topologies.stages import staged

_SERVICES = {backward.SERIALIZATION: SERIALIZATION, backward.QUEUEING: QUEUEING}
_OTHERS = {backward.POSTING: POSTING, backward.CREDITS: CREDITS}


@staged("critical path")
def services_on_path(program: Program, outcome: Outcome) -> I64:
    """Services on the critical path of a logged run, by server, (S,) ps, as `LoggedWalk.served_ps` counts them."""
    walk = LoggedWalk(program, outcome)
    return walk.served_ps(walk.followed(walk.end())[0])


class LoggedWalk(Walks):
    """Walks over a log; `sim.why.faulty_path` walks over a journal.

    `once`: there will be one walk alone, by `account`.
    WeftError: the run kept no log.
    """

    def __init__(self, program: Program, outcome: Outcome, labels: Labels = PLAIN, once: bool = False) -> None:
        super().__init__(program, outcome, labels)
        if outcome.log is None:
            raise WeftError("the critical path needs a run with log=True")
        self.back = _state(program, outcome, outcome.log, once)
        self._parts: dict[int, list[tuple[int, int]]] = {}

    def walked(self, waits: Sequence[Wait]) -> tuple[Rows[PieceRow], I64]:
        """Pieces of the paths of some waits, and the first one of each, (n,)."""
        first = self._ask(waits)
        while self._walk_on() == backward.NEEDS_ROOM:
            more = rows(PieceRow, 2 * len(self.back.pieces))  # no zeros are copied: half of it may never be touched
            more.view(np.ndarray)[: len(self.back.pieces)] = self.back.pieces.view(np.ndarray)
            self.back = self.back._replace(pieces=more)
        return self.back.pieces, first

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
        self._ask(self.end())
        status = backward.NEEDS_ROOM
        while status == backward.NEEDS_ROOM:
            status = self._walk_on()
            written = int(self.back.walk["pieces"]) - (status == backward.FINISHED)  # the last one leads nowhere
            yield self.back.pieces.view(np.ndarray)[: max(written, 0)]
            self.back.walk["pieces"] = 0

    def _ask(self, waits: Sequence[Wait]) -> I64:
        """Let the next walks be those of some waits; where the first piece of each will be said, (n,)."""
        program, task = self.program, np.array([wait.task for wait in waits], np.int64)
        ends = np.array([wait.delivered for wait in waits], np.bool_)
        self.back.walk["asked"], first = 0, np.zeros(task.size, np.int64)
        self.back = self.back._replace(
            asked_task=task, asked_chunk=np.where(ends, program.cut_chunks[program.task_cut[task]] - 1, 0),
            asked_hop=np.where(ends, DELIVERED, RELEASED), asked_ps=self.outcome.start_ps[task], asked_piece=first,
        )
        return first

    def _walk_on(self) -> int:
        status: int = backward.walk_back(self.program, self.back)
        if status == backward.UNEXPLAINED:  # a fault of the engine, not of the input
            raise AssertionError(f"nothing released task {self.back.walk['task']} at {self.back.walk['time_ps']} ps")
        return status

    def named(self, piece: Any) -> tuple[Trail, I64]:
        """A path with the number of the name of each piece."""
        p = self.program
        hop = p.route_hop[piece["at"]].astype(np.int64)
        kinds, kind = unique_rows(piece["what"] * np.int64(p.hop_server.size) + hop)
        parts = [self._parts_of(one) for one in kinds.tolist()]
        return in_parts(piece, p.hop_server[hop].astype(np.int64), kind, parts)

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
    chunks, hops = program.chunks(), program.hops()
    first = np.concatenate(([0], np.cumsum(chunks)))
    none, joins, n_chunks = np.zeros(0, np.int64), hops == 0, int(first[-1])
    walk = row(WalkRow)
    walk["hop"] = ENDED
    pool, task, chunk = _givers(program, chunks) if program.task_pool.size else (none, none, none)
    back = Back(
        walk=walk, asked_task=none, asked_chunk=none, asked_hop=none, asked_ps=none, asked_piece=none,
        base=log.base, start_ps=log.start_ps, before=log.before, finish_ps=outcome.finish_ps, first=first,
        whole_ptr=_pointers(program.whole_ptr), whole=np.empty_like(program.whole_child),
        pushed_ptr=_pointers(program.pushed_ptr), pushed=np.empty_like(program.pushed_child),
        join_ps=np.zeros(n_chunks if (chunks[joins] > 1).any() else 0, np.int64),
        given_ptr=none, given_ps=np.empty_like(task), given_task=task, given_chunk=chunk,
        found=np.full(0 if once else log.start_ps.size + n_chunks, NONE, np.int32), seen=np.zeros(n_chunks, np.int32),
        frames=rows(Frame, int(chunks[joins].sum()) + 1), pieces=rows(PieceRow, BLOCK // 16 if once else SOME),
    )
    backward.prepare(program, back)
    order = np.lexsort((back.given_ps, pool))
    ptr = np.searchsorted(pool[order], np.arange(program.pool_capacity.size + 1))
    return back._replace(given_ptr=ptr, given_ps=back.given_ps[order], given_task=task[order], given_chunk=chunk[order])


def _pointers(child_ptr: I32) -> I32:
    return np.zeros(child_ptr.size + 1 if child_ptr.size else 0, np.int32)


def _givers(program: Program, chunks: I64) -> tuple[I64, I64, I64]:
    """Deliveries that return units, of whole tasks and then of chunks: pool, task and chunk of each."""
    giver = np.repeat(np.arange(program.n_tasks), np.diff(program.give_ptr))
    last = chunks[giver] - 1
    by_chunk = np.flatnonzero((program.give_per == PER_CHUNK) & (last > 0))
    task = np.concatenate((giver, np.repeat(giver[by_chunk], last[by_chunk])))
    chunk = np.concatenate((last, ranges(np.zeros(by_chunk.size, np.int64), last[by_chunk])))
    pool = np.concatenate((program.give_pool, np.repeat(program.give_pool[by_chunk], last[by_chunk])))
    return pool.astype(np.int64), task, chunk
