"""The chunk engine: casts a program at the door, runs the kernel in slices, returns an outcome."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic
from typing import NamedTuple

import numpy as np

from sim import _kernel as kernel
from sim._kernel import FAR, FINISHED, NEEDS_TOKENS, NONE, STUCK, State
from sim.outcome import Log, Outcome, check_finished, log_base
from sim.program import FIFO, Program, check_supported
from topologies import WeftError
from topologies.units import format_size, format_time

SLICE_EVENTS = 1_000_000
"""Services between two looks at the clock and at Ctrl-C: a fraction of a second."""

FOREVER_PS = 2**62

DEFAULT_MEMORY_BYTES = 16 * 2**30


class Progress(NamedTuple):
    """What a long run reports: services done and in all, picoseconds simulated, services a second."""

    events: int
    total_events: int
    now_ps: int
    events_per_s: float


class Stopped(WeftError):
    """A run that reached its limit or was interrupted; says how far it came."""


@dataclass
class Run:
    """A run that can be paused: `advance` goes on from where the last call ended.

    Parameters
    ----------
    program : Program
    log : bool
        Keep every service, for `why` and for pictures.
    """

    program: Program
    log: bool = False

    def __post_init__(self) -> None:
        check_supported(self.program)
        self.state = _initial_state(self.program, self.log)
        fifo = bool(np.all(self.program.server_discipline == FIFO)) and self.program.pool_capacity.size == 0
        self._kernel = kernel.run_fifo if fifo else kernel.run_general

    @property
    def events(self) -> int:
        """Services begun so far."""
        return int(self.state.register[kernel.EVENTS])

    @property
    def now_ps(self) -> int:
        """Picosecond reached."""
        return int(self.state.register[kernel.NOW])

    def advance(self, max_events: int = FOREVER_PS, until_ps: int = FOREVER_PS) -> bool:
        """Go on until the end, or until a limit is reached between two picoseconds; returns whether it has ended.

        Parameters
        ----------
        max_events : int
            Pause after the picosecond in which this many more services have begun.
        until_ps : int
            Pause before the first event later than this.

        Raises
        ------
        Deadlock
            Nothing can move any more and tasks are left.
        """
        goal = min(self.events + max_events, FOREVER_PS)
        while True:
            status = self._kernel(self.program, self.state, np.int64(goal - self.events), np.int64(until_ps))
            if status != NEEDS_TOKENS:
                break
            self.state = _with_more_tokens(self.state, self.program.n_servers)
        if status == STUCK:
            check_finished(self.program, self.state.delivered.astype(np.int64))
        return bool(status == FINISHED)

    def outcome(self) -> Outcome:
        """Times so far; tasks that have not started or finished have -1."""
        state = self.state
        log = Log(state.log_base, state.log_start_ps, state.log_before) if self.log else None
        return Outcome(
            start_ps=state.start_ps,
            finish_ps=state.finish_ps,
            busy_ps=state.busy_ps,
            makespan_ps=int(state.register[kernel.MAKESPAN]),
            events=self.events,
            log=log,
        )


def run(
    program: Program,
    *,
    log: bool = False,
    max_events: int | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> Outcome:
    """Run a program to its end.

    Parameters
    ----------
    program : Program
    log : bool
        Keep every service (16 bytes each).
    max_events : int, optional
        Give up after this many services.
    progress : callable, optional
        Called a few times a second on long runs.

    Raises
    ------
    Deadlock
        Tasks wait for each other.
    Stopped
        The event limit was reached, or Ctrl-C.
    """
    started = monotonic()
    total = program.chunk_hops()
    one = Run(program, log)
    budget = total + 1 if max_events is None else max_events
    try:
        while not one.advance(min(SLICE_EVENTS, budget - one.events)):
            if one.events >= budget:
                raise Stopped(f"stopped at the limit of {budget:,} services, at {_reached(one, total)}")
            if progress is not None:
                progress(Progress(one.events, total, one.now_ps, one.events / max(monotonic() - started, 1e-9)))
    except KeyboardInterrupt:
        raise Stopped(f"interrupted at {_reached(one, total)}") from None
    return one.outcome()


def memory_bytes(program: Program, log: bool = False) -> int:
    """Memory that a run takes, the program included and a token a task assumed."""
    arrays = sum(field.nbytes for field in program if isinstance(field, np.ndarray))
    per_task, per_server, per_token = 57, 52, 40
    logged = 16 * program.chunk_hops() if log else 0
    return arrays + program.n_tasks * (per_task + per_token) + program.n_servers * per_server + logged


def check_memory(program: Program, log: bool, limit_bytes: int = DEFAULT_MEMORY_BYTES) -> None:
    """Refuse a run that would not fit, before it starts."""
    need = memory_bytes(program, log)
    if need > limit_bytes:
        raise WeftError(
            f"the run needs about {format_size(need)} for {program.n_tasks:,} tasks and {program.chunk_hops():,} "
            f"services; the limit is {format_size(limit_bytes)}: use fewer or larger chunks, or a smaller fabric"
        )


def _reached(one: Run, total: int) -> str:
    return f"{format_time(one.now_ps)} of simulated time, {one.events:,} of {total:,} services done"


def _initial_state(program: Program, log: bool) -> State:
    n_tasks, n_servers = program.n_tasks, program.n_servers
    n_tokens = max(16, min(n_tasks, 2 * n_servers))
    streams = np.repeat(np.arange(n_tasks), np.diff(program.parent_ptr))[program.parent_lag == 0]
    missing = np.bincount(streams, minlength=n_tasks).astype(np.int32)
    ready = np.flatnonzero((missing == 0) & (program.task_waits == 0))
    stack = np.zeros(n_tasks, np.int32)
    stack[: ready.size] = ready[::-1]
    stacked = np.zeros(n_tasks, np.int8)
    stacked[ready] = 1
    register = np.zeros(kernel.REGISTERS, np.int64)
    register[kernel.LEFT] = n_tasks
    register[kernel.BATCH] = register[kernel.ARRIVING] = NONE
    register[kernel.HEIGHT] = ready.size
    base = log_base(program) if log else np.zeros(0, np.int64)
    n_logged = int(base[-1]) if log else 0
    event_next = np.full(n_servers + n_tokens, NONE, np.int32)
    event_next[n_servers : n_servers + n_tokens - 1] = np.arange(1, n_tokens)
    return State(
        register=register,
        released=np.zeros(n_tasks, np.int32),
        joined=np.zeros(n_tasks, np.int32),
        delivered=np.zeros(n_tasks, np.int32),
        missing=missing,
        waits=program.task_waits.copy(),
        gate_ps=np.zeros(n_tasks, np.int64),
        start_ps=np.full(n_tasks, -1, np.int64),
        finish_ps=np.full(n_tasks, -1, np.int64),
        stack=stack,
        stacked=stacked,
        free_ps=np.zeros(n_servers, np.int64),
        busy_ps=np.zeros(n_servers, np.int64),
        first_of=np.full(n_servers, NONE, np.int32),
        queue=np.full(n_servers, NONE, np.int32),
        tail=np.full(n_servers, NONE, np.int32),
        touched=np.zeros(n_servers, np.int32),
        touched_ps=np.full(n_servers, -1, np.int64),
        event_ps=np.zeros(n_servers + n_tokens, np.int64),
        event_next=event_next,
        token_task=np.zeros(n_tokens, np.int32),
        token_chunk=np.zeros(n_tokens, np.int32),
        token_at=np.zeros(n_tokens, np.int32),
        token_size=np.zeros(n_tokens, np.int32),
        token_child=np.full(n_tokens, NONE, np.int32),
        token_rank=np.zeros(n_tokens, np.int64),
        slot=np.full(kernel.LEVELS * kernel.SLOTS, NONE, np.int32),
        occupied=np.zeros(kernel.LEVELS, np.int64),
        pool_free=program.pool_capacity.copy(),
        pool_queue=np.full(program.pool_capacity.size, NONE, np.int32),
        log_base=base,
        log_start_ps=np.full(n_logged, -1, np.int64),
        log_before=np.full(n_logged, -1, np.int64),
        last_row=np.full(n_servers if log else 0, -1, np.int64),
    )


def _with_more_tokens(state: State, n_servers: int) -> State:
    """Twice the tokens; the new ones are free."""
    old = state.token_task.size
    new = 2 * old
    event_next = np.concatenate([state.event_next, np.arange(old + 1, new + 1, dtype=np.int32)])
    event_next[-1] = state.register[kernel.FREE]
    state.register[kernel.FREE] = old
    grown = {
        name: np.concatenate([getattr(state, name), np.zeros(old, getattr(state, name).dtype)])
        for name in ("event_ps", "token_task", "token_chunk", "token_at", "token_size", "token_child", "token_rank")
    }
    return state._replace(event_next=event_next, **grown)
