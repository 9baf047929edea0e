"""The tape: the order of service of one run, replayed with other bandwidths and latencies.

While every server serves in the recorded order, all times are longest paths over the services, and one sweep gives
them without a heap. The sweep checks whether each server's arrivals are still in order, ties included; if so, the
replay is the run that the engine would have done, to the picosecond. If not, it reports so, and the program must
be recorded again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from sim.engine import _tape as kernel
from sim.engine._resume import Places
from sim.engine._state import FAR, State
from sim.engine._tape import JOIN, Ops, Scratch, Waits
from sim.engine.run import advance_to_end, start
from sim.program import FIFO, I32, I64, Program, check_healthy, unique_rows
from sim.program.checks import check_clock
from sim.program.contract import CLOCK_END_PS, HEAD
from sim.program.outcome import Outcome, log_base
from topologies import WeftError
from topologies.stages import staged
from topologies.text.brief import one_line


class Kinds(NamedTuple):
    """Distinct services; K of them."""

    size: I64  # (K,): chunk size
    hop: I64  # (K,): class of the hop
    following: I64  # (K,): class of the next one; -1 where the service is the last


class Replay(NamedTuple):
    """What a sweep found."""

    makespan_ps: int
    change_ps: int = int(FAR)  # first picosecond in which the order of service is not the recorded one

    @property
    def in_order(self) -> bool:
        """Whether every server serves in the recorded order all the time; if not, the makespan is that of no run."""
        return self.change_ps == FAR


@one_line
@dataclass(frozen=True, eq=False)
class Tape:
    """A recorded order of service.

    Examples
    --------
    >>> from sim.program import ProgramBuilder
    >>> builder = ProgramBuilder()
    >>> wire = builder.server(rate=1e9)
    >>> _ = builder.task(1000, [(wire, 500)])
    >>> program = builder.build()
    >>> tape = Tape.record(program)
    >>> tape.replay(program._replace(service_ps=2 * program.service_ps)).makespan_ps
    2000500
    """

    program: Program  # as recorded
    ops: Ops
    kinds: Kinds
    hop_class: I64  # (H,): class of each kind of hop: hops of one class have the same rate and latency, in every replay
    first_op: I32  # (T,): the op of a task's first service
    last_op: I32  # (T,): the op of its last delivery
    places: Places
    _out: I64
    _end: I64

    @classmethod
    @staged("engine")
    def record(cls, program: Program, outcome: Outcome | None = None) -> Tape:
        """Record the order of service of a run.

        `program`: fifo servers and pools. Give servers whose rates will differ in a replay different rate columns.
        `outcome`: of this program, with a log; run anew if not given, or if there are pools.
        WeftError: the program has another discipline: run the engine for each variant.
        """
        check_healthy(program, "the tape")
        if not can_record(program):
            raise WeftError("a tape needs fifo servers and pools: run the engine for each variant of this program")
        uses = np.zeros((0, 4), np.int32)
        if outcome is None or outcome.log is None or program.pool_capacity.size:
            one = start(program, log=True, general=program.pool_capacity.size > 0)
            outcome = advance_to_end(one)
            if isinstance(one.state, State):
                uses = one.state.pool_log.reshape(-1, 4)
        assert outcome.log is not None
        hops = program.hops().astype(np.int32)
        row_task = np.repeat(np.arange(program.n_tasks, dtype=np.int32), program.chunks() * hops)
        classes = _hop_classes(program)
        kinds, row_kind = _kinds(program, row_task, hops, classes)
        order = np.argsort(outcome.log.start_ps, kind="stable")
        waits = _waits(program, order, row_task, row_kind, hops, _pool_waits(program, uses, kinds))
        ops, scratch = _record(program, waits)
        places = Places(waits.log_base, scratch.op_of, outcome.log.before, waits.empty_base, scratch.empty_op)
        return cls(program, ops, kinds, classes, *_ends(program, waits, scratch), places, *_room(ops))

    @property
    def n_ops(self) -> int:
        """Services and joins on the tape."""
        return self.ops.server.size - 1

    @property
    def heads(self) -> npt.NDArray[np.bool_]:
        """Kinds of service that deliver heads, (K,)."""
        of_class = np.zeros(int(self.hop_class.max(initial=-1)) + 1, np.bool_)
        of_class[self.hop_class] = self.program.hop_last == HEAD
        return of_class[self.kinds.hop]

    def nbytes(self) -> int:
        """Bytes of the tape, the times of a sweep included."""
        return sum(array.nbytes for array in (*self.ops, *self.places, self._out, self._end))

    @staged("engine")
    def replay(self, program: Program) -> Replay:
        """Sweep over the tape with the times of another program.

        `program`: the recorded one but for `service_ps`, `server_rate` and `hop_latency_ps`.
        WeftError: hops that were alike when the tape was recorded differ now, the program is another one, or its run
            could outlast the clock.
        """
        longest = int(program.service_ps.max(initial=1)) + int(program.hop_latency_ps.max(initial=0))
        if self.n_ops * longest >= CLOCK_END_PS:
            check_clock(program)
        service, onward = self.times(program)
        n_servers = program.n_servers + 3 * program.pool_capacity.size
        free, arrived = np.zeros(n_servers, np.int64), np.full(n_servers, -1, np.int64)
        makespan, change = kernel.sweep(self.ops, service, onward, free, arrived, self._out, self._end)
        return Replay(int(makespan), int(change))

    def start_ps(self, program: Program) -> I64:
        """Start of every task in the last replay, which was of this program, (T,)."""
        service, _ = self.times(program)
        own = self.ops.server[self.first_op] != JOIN
        begun: I64 = self._end[self.first_op] - np.where(own, service[self.ops.kind[self.first_op] >> 1], 0)
        return begun

    def finish_ps(self) -> I64:
        """Finish of every task in the last replay, (T,)."""
        finish: I64 = self._out[self.last_op]
        return finish

    def times(self, program: Program) -> tuple[I64, I64]:
        """Service of each kind, and the time from its end to what follows, (K+1,) each; the last takes no time."""
        rate, latency = self._class_times(program)
        kinds = self.kinds
        if kinds.size.size == 0:
            return np.zeros(1, np.int64), np.zeros(1, np.int64)
        service = program.service(kinds.size, rate[kinds.hop])
        onward = latency[kinds.hop].copy()
        last, heads = kinds.following < 0, self.heads
        onward[heads] -= service[heads]
        if program.cut_through:
            there = program.service(kinds.size, rate[kinds.following])
            onward[~last] -= np.minimum(service, there)[~last]
        return np.append(service, 0), np.append(onward, 0)

    def _class_times(self, program: Program) -> tuple[I32, I64]:
        """Rate column and latency of each class of hop."""
        mine = self.program
        if program.hop_server.size != mine.hop_server.size or program.chunk_work.size != mine.chunk_work.size:
            raise WeftError("this is not the program that was recorded: only rates and latencies may differ")
        if program.cut_through != mine.cut_through or np.any(program.hop_last != mine.hop_last):
            raise WeftError("the tape was recorded with another forwarding or delivery")
        hop_rate = program.server_rate[program.hop_server]
        n_classes = int(self.hop_class.max(initial=-1)) + 1
        rate, latency = np.zeros(n_classes, np.int32), np.zeros(n_classes, np.int64)
        rate[self.hop_class], latency[self.hop_class] = hop_rate, program.hop_latency_ps
        latencies_differ = np.any(latency[self.hop_class] != program.hop_latency_ps)
        if latencies_differ or not _alike(program, rate[self.hop_class], hop_rate):
            raise WeftError("hops of one rate and latency differ now: record the tape with a rate column for each")
        return rate, latency


def _alike(program: Program, rate: I32, other: I32) -> bool:
    """Whether all sizes take as long at one rate as at the other; of a packed table, whether they are the same."""
    apart = rate != other
    if program.is_packed or not apart.any():
        return not apart.any()
    size = np.arange(program.chunk_work.size)[:, None]
    return np.array_equal(program.service(size, rate[apart]), program.service(size, other[apart]))


def can_record(program: Program) -> bool:
    """Whether a tape can hold the program: servers and pools are all fifo, and nothing changes in time.

    Other disciplines depend on what waits when a server becomes free, which ordered arrival times do not show.
    """
    fifo = np.all(program.server_discipline == FIFO) and np.all(program.pool_discipline == FIFO)
    return bool(fifo) and program.is_healthy


def _hop_classes(program: Program) -> I64:
    """Hops of one rate column and latency are one class, but for those that deliver heads."""
    latency = 2 * unique_rows(program.hop_latency_ps)[1] + (program.hop_last == HEAD)
    rate = program.server_rate[program.hop_server].astype(np.int64)
    return unique_rows(rate * (int(latency.max(initial=0)) + 1) + latency)[1]


def _kinds(program: Program, row_task: I32, hops: I32, classes: I64) -> tuple[Kinds, I32]:
    """Distinct (size, class, next class) of the services, and which of them each row of the log is."""
    base = log_base(program)
    within = np.arange(row_task.size) - base[row_task]
    chunk, hop = np.divmod(within, hops[row_task])
    cut = program.task_cut[row_task]
    size = np.where(chunk < program.cut_first[cut], program.cut_size[cut, 0], program.cut_size[cut, 1]).astype(np.int64)
    at = program.route_ptr[program.task_route[row_task]] + hop
    own = classes[program.route_hop[at]]
    following = np.where(
        hop == hops[row_task] - 1, -1, classes[program.route_hop[np.minimum(at + 1, program.route_hop.size - 1)]]
    )
    span = int(classes.max(initial=0)) + 2
    distinct, kind = unique_rows((size * span + own) * span + following + 1)
    rest, after = np.divmod(distinct, span)
    return Kinds(rest // span, rest % span, after - 1), kind.astype(np.int32)


def _pool_waits(program: Program, uses: I32, kinds: Kinds) -> dict[str, npt.NDArray[np.signedinteger]]:
    """Grants and gives of each pool in their order, from rows of (pool or its complement, task, chunk, units)."""
    n_pools, chunks = program.pool_capacity.size, program.chunks()
    base = np.concatenate(([0], np.cumsum(chunks))) if n_pools else np.zeros(0, np.int64)
    grant_of = np.full(int(base[-1]) if n_pools else 0, -1, np.int32)
    grants, gives = [np.zeros((0, 3), np.int64)], [np.zeros((0, 2), np.int64)]
    for pool in range(n_pools):
        taken, given = uses[uses[:, 0] == pool].astype(np.int64), uses[uses[:, 0] == ~pool].astype(np.int64)
        short = np.cumsum(taken[:, 3]) - int(program.pool_capacity[pool])
        needed = np.searchsorted(np.concatenate(([0], np.cumsum(given[:, 3]))), short)
        needed[short <= 0] = 0
        grant_of[base[taken[:, 1]] + taken[:, 2]] = np.arange(len(taken)) + sum(map(len, grants))
        grants.append(np.column_stack([taken[:, 1:3], needed]))
        gives.append(given[:, 1:3])
    return {
        "chunk_base": base,
        "grant_of": grant_of,
        "grant_ptr": np.cumsum([len(part) for part in grants]).astype(np.int32),
        "grants": np.concatenate(grants).astype(np.int32),
        "give_ptr": np.cumsum([len(part) for part in gives]).astype(np.int32),
        "gives": np.concatenate(gives).astype(np.int32),
        "nothing": np.array([kinds.size.size]),
    }


def _waits(
    program: Program, order: I64, row_task: I32, row_kind: I32, hops: I32,
    pools: dict[str, npt.NDArray[np.signedinteger]],
) -> Waits:
    parent, child = program.whole_edges()
    by_child = np.argsort(child, kind="stable")
    ptr = np.zeros(program.n_tasks + 1, np.int32)
    np.cumsum(np.bincount(child, minlength=program.n_tasks), out=ptr[1:])
    empty = np.where(hops == 0, program.chunks(), 0)
    empty_base = np.where(hops == 0, np.cumsum(empty) - empty, -1).astype(np.int32)
    return Waits(order, row_task, row_kind, log_base(program), hops, ptr, parent[by_child], empty_base, **pools)


def _record(program: Program, waits: Waits) -> tuple[Ops, Scratch]:
    """Count the ops first, then write them."""
    ops = empty_ops(0)
    for _ in range(2):
        scratch = _scratch(program, waits, ops.server.size)
        kernel.record(program, ops, waits, scratch)
        ops = ops if ops.server.size else empty_ops(int(scratch.count[0]))
    return ops, scratch


def empty_ops(n: int) -> Ops:
    ops = Ops(*(np.zeros(n, np.int32) for _ in Ops._fields))
    ops.server[:1] = JOIN
    return ops


def _scratch(program: Program, waits: Waits, n_ops: int) -> Scratch:
    n_empty = int(program.chunks()[waits.hops == 0].sum())
    return Scratch(
        count=np.array([1, 0], np.int64),
        op_of=np.zeros(waits.row_task.size, np.int32),
        empty_op=np.zeros(n_empty, np.int32),
        stack_task=np.zeros(n_empty + 1, np.int32),
        stack_chunk=np.zeros(n_empty + 1, np.int32),
        last_row=np.full(program.n_servers, -1, np.int64),
        granted=np.zeros(program.pool_capacity.size, np.int64),
        given=np.zeros(program.pool_capacity.size, np.int64),
        grant_op=np.zeros(len(waits.grants), np.int32),
        give_op=np.zeros(len(waits.gives), np.int32),
        at_once=np.zeros(n_ops, np.int8),
    )


def _ends(program: Program, waits: Waits, scratch: Scratch) -> tuple[I32, I32]:
    """Op of the first service of each task, and of its last delivery."""
    first, last = np.zeros(program.n_tasks, np.int32), np.zeros(program.n_tasks, np.int32)
    served = np.flatnonzero(waits.hops > 0)
    first[served] = scratch.op_of[waits.log_base[served]]
    last[served] = scratch.op_of[waits.log_base[served + 1] - 1]
    empty = np.flatnonzero(waits.hops == 0)
    first[empty] = scratch.empty_op[waits.empty_base[empty]]
    last[empty] = scratch.empty_op[waits.empty_base[empty] + program.chunks()[empty] - 1]
    return first, last


def _room(ops: Ops) -> tuple[I64, I64]:
    return np.zeros(ops.server.size, np.int64), np.zeros(ops.server.size, np.int64)
