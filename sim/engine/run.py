"""The chunk engine: casts a program at the door, runs the kernel in slices, returns an outcome."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic
from typing import Any

import numpy as np

from sim.engine import loop as _fifo
from sim.engine import setup as fifo
from sim.engine.core.state import FifoState
from sim.engine.core.status import (
    FINISHED,
    LEAPT,
    NEEDS_JOURNAL,
    NEEDS_TOKENS,
    NONE,
    OUT_OF_ORDER,
    PAUSED,
    STUCK,
    TIRED,
)
from sim.engine.general import event as _event
from sim.engine.general import loop as _kernel
from sim.engine.general import nic as _nic
from sim.engine.general import state as _state
from sim.engine.general import turns as _turns
from sim.engine.general.state import State
from sim.engine.skip import repeats
from sim.engine.skip import search as _skip
from sim.engine.skip import setup as skipping
from sim.engine.skip import state as _skip_state
from sim.engine.skip.state import SkipState
from sim.engine.threads import parts
from sim.program import I32, I64, PER_CHUNK, Program
from sim.program.checks import EVENT_BYTES, IN_FLIGHT, TASK_BYTES
from sim.program.contract import ATTEMPTS, CLOCK_END_PS, NEVER_PS
from sim.program.outcome import (
    SERVICES,
    Journal,
    Log,
    Outcome,
    Progress,
    Stopped,
    Stranded,
    Stretch,
    check_finished,
    log_base,
    past_the_clock,
)
from topologies import WeftError
from topologies.core.extents import memory_limit, shown_limit
from topologies.cores import Watch
from topologies.stages import count, staged
from topologies.units import format_size, format_time

SLICE_EVENTS = 1_000_000
"""Services between two looks at the clock and at Ctrl-C: a fraction of a second."""

FOREVER_PS = CLOCK_END_PS

SERVER_BYTES, SENT_BYTES = 72, 56
"""State of a server; and of a task, beside that of every task, where there are NICs."""


def _what_is_ordered(program: Program) -> str:
    """What the loop for several threads does not have."""
    found = {
        "pools": program.pool_capacity.size, "faults": not program.is_healthy, "NICs": program.has_nics,
        "buffers": program.has_credits, "virtual channels": program.has_channels,
    }
    return ", ".join(name for name, is_there in found.items() if is_there) or "links that serve in another order"


@dataclass
class Run:
    """A run that can be paused: `advance` goes on from where the last call ended.

    `log`: keep every service, for `why` and for pictures.
    `general`: the loop that runs any program, also where that of fifo servers would do.
    `skip`: do not simulate stretches that repeat; see sim/engine/skip/search.py. A log has every service nevertheless.
    `threads`: that `spread` may go on with, of which no more are taken than there are cores, or two; None: as many as
    there are idle cores, where it pays.
    """

    program: Program
    log: bool = False
    general: bool = False
    skip: bool = True
    threads: int | None = 1

    def __post_init__(self) -> None:
        self.state: State | FifoState
        self._kernel: Callable[..., int]
        self._skipping: SkipState | None = None
        self._tired = False
        self._stretches: list[Stretch] = []
        self._parts: parts.Parts | None = None
        self._watch: Watch | None = None
        self.alone = ""
        limited = self.program if self.general else fifo.without_room_to_spare(self.program)
        loop = None if self.general else fifo.loop(limited)
        if loop is not None:
            self.program = limited
            self.state, self._kernel = fifo.initial_state(self.program, self.log), loop
            if loop is _fifo.run_fifo and self.skip and skipping.worth_trying(self.program):
                self._skipping = skipping.initial_state(self.program)
        else:
            self.state = _initial_state(self.program, self.log)
            self._kernel = _kernel.run_general if self.program.is_healthy else _kernel.run_faulty
            if self.program.has_nics:
                self._kernel = _kernel.run_nics
            if self.program.takes_turns or self.program.has_credits or self.program.has_channels:
                self._kernel = _kernel.run_routers
        if self._kernel in (_fifo.run_links, _kernel.run_routers) and not self.program.has_nics:
            self.program = self.program._replace(server_nic=np.full(self.program.n_servers, -1, np.int32))

    @property
    def events(self) -> int:
        """Services begun so far."""
        return int(self.state.register[_state.EVENTS])

    @property
    def skipped(self) -> int:
        """Of these services, those that were not simulated."""
        return 0 if self._skipping is None else int(self._skipping.register[_skip_state.SKIPPED])

    @property
    def skips(self) -> bool:
        """Whether stretches that repeat are looked for; several threads take over where none are left to be found."""
        return self._skipping is not None

    @property
    def several(self) -> int:
        """Threads that it may go on with."""
        return min(self.threads or parts.MOST, max(parts.cores(), 2 if self.threads else 1), parts.MOST)

    @property
    def running(self) -> int:
        """Threads that it runs on."""
        return 1 if self._parts is None else len(self._parts.states)

    def spread(self) -> None:
        """Go on with several threads from here, if that can be and, where their number is not given, pays.

        Such a run pauses after a window, not after the picosecond in which it comes to a limit of services.
        """
        if self.several < 2 or self._parts is not None or self.alone:
            return
        whole = self._kernel is _fifo.run_fifo and self.program.pool_capacity.size == 0
        if not isinstance(self.state, FifoState) or not whole:
            self.alone = f"{_what_is_ordered(self.program)}: they are simulated in one order"
        elif self.threads is None and self.program.chunk_hops() - self.events < parts.LEAST_SERVICES:
            self.alone = "it is short"
        elif self._skipping is None or self._tired:
            self._spread_over(self.state, self.several if self.threads else self._free())

    def _free(self) -> int:
        """Threads for which there are idle cores, of those that it may go on with; 0 until that is known."""
        self._watch = self._watch or Watch()
        if self._watch.seconds < parts.LEAST_WATCHED_S:
            return 0
        return min(self.several, 1 + parts.idle_cores(self._watch))

    def _spread_over(self, state: FifoState, count: int) -> None:
        if count < 2:
            self.alone = "no other core is idle" if count else ""
            return
        cut = parts.cut(self.program, count)
        self.alone = parts.obstacle(cut, state, count)
        if self.threads is None and not self.alone:
            self.alone = parts.loss(cut, state, count)
        if not self.alone:
            self._parts = parts.Parts(self.program, state, count, cut)

    @property
    def tokens(self) -> int:
        """Capacity for chunks in flight; grows by half each time."""
        if isinstance(self.state, FifoState):
            return self.state.tokens
        return self.state.event_ps.size // 4 - self.program.n_servers

    @property
    def nbytes(self) -> int:
        """Bytes of the state, chunks in flight included."""
        return sum({array.ctypes.data: array.nbytes for array in self.state if array.size}.values())

    @property
    def now_ps(self) -> int:
        """Picosecond reached."""
        return int(self.state.register[_state.NOW])

    def advance(
        self, max_events: int = FOREVER_PS, until_ps: int = FOREVER_PS, max_simulated: int = FOREVER_PS
    ) -> bool:
        """Go on until the end, or until a limit is reached between two picoseconds; returns whether it has ended.

        `max_events`: pause after the picosecond in which this many more services have begun.
        `until_ps`: pause before the first event later than this.
        `max_simulated`: pause when this many more have begun that are not skipped.
        Deadlock: nothing can move any more and tasks are left.
        WeftError: the run goes on beyond the end of the clock.
        """
        goal = min(self.events + max_events, FOREVER_PS)
        simulated = min(self.events - self.skipped + max_simulated, FOREVER_PS)
        while True:
            status = self._run_on(goal, simulated, min(until_ps, CLOCK_END_PS - 1))
            if status == TIRED:
                self._tired = True
            elif status == LEAPT and isinstance(self.state, FifoState) and self._skipping is not None:
                self._stretches.append(repeats.log_stretch(self.program, self.state, self._skipping))
            elif status == NEEDS_TOKENS:
                if isinstance(self.state, FifoState):
                    self.state = skipping.with_more_room(self.state, self._skipping)
                else:
                    self.state = _with_more_tokens(self.state, self.program.n_servers)
            elif status == NEEDS_JOURNAL and isinstance(self.state, State):
                longer = np.zeros(self.state.journal.size + _journal_size(self.program, self.tokens), np.int64)
                longer[: self.state.journal.size] = self.state.journal
                self.state = self.state._replace(journal=longer)
            else:
                break
        if status == OUT_OF_ORDER:
            raise AssertionError(f"an event before the present, {format_time(self.now_ps)}: the kernel is wrong")
        if status == STUCK:
            self._collect()
            held_up = _stranded(self.program, self.state), _holding(self.program, self.state)
            check_finished(self.program, self.state.delivered.astype(np.int64), *held_up)
        reached = self.events >= goal or self.events - self.skipped >= simulated
        if status == PAUSED and not reached and until_ps >= CLOCK_END_PS:
            raise past_the_clock()
        return bool(status == FINISHED)

    def _run_on(self, goal: int, simulated: int, until_ps: int) -> int:
        """Call the kernel once."""
        if self._parts is not None:
            return self._parts.advance(min(goal, self.skipped + simulated), until_ps)
        left = simulated - (self.events - self.skipped)
        if self._skipping is not None and not self._tired:
            return int(_skip.run_skipping(
                self.program, self.state, self._skipping, np.int64(goal), np.int64(left), np.int64(until_ps)
            ))
        return self._kernel(self.program, self.state, np.int64(min(goal - self.events, left)), np.int64(until_ps))

    def _collect(self) -> None:
        if self._parts is not None:
            self._parts.collect()

    def _why_alone(self) -> str:
        """Why it ran on fewer threads than were asked for."""
        if (self.threads or 1) <= self.running:
            return ""
        if self._parts is not None:
            return f"more than cores ({parts.cores()}) wait for each other"
        if self.events == 0:
            return "there is nothing to simulate"
        if self.alone or not self.skips:
            return self.alone or "it ends at once"
        return f"stretches that repeat are {'skipped' if self.skipped else 'looked for to its end'}"

    def outcome(self) -> Outcome:
        """Times so far; tasks that have not started or finished have -1."""
        self._collect()
        state, journal, healthy = self.state, None, self.program.is_healthy
        if self.log and isinstance(state, State) and not healthy:
            rows = state.journal.reshape(-1, _state.JOURNAL_COLUMNS)[: int(state.register[_state.JOURNALED])]
            journal = Journal.of_rows(rows)
        return Outcome(
            start_ps=state.start_ps,
            finish_ps=state.finish_ps,
            busy_ps=state.busy_ps,
            makespan_ps=int(state.register[_state.MAKESPAN]),
            events=self.events,
            skipped=self.skipped,
            threads=self.running,
            alone=self._why_alone(),
            log=Log(state.log_base, state.log_start_ps, state.log_before) if self.log and healthy else None,
            journal=journal,
            stretches=tuple(self._stretches),
        )


def run(
    program: Program,
    *,
    log: bool = False,
    max_events: int | None = None,
    progress: Callable[[Progress], None] | None = None,
    skip: bool = True,
    threads: int | None = 1,
) -> Outcome:
    """Run a program to its end.

    `log`: keep every service (16 bytes each).
    `skip`: do not simulate stretches that repeat, which changes nothing but the time it takes.
    `threads`: at most, which changes nothing but the time either; None: as many as there are idle cores, where it pays.
    `max_events`: give up after this many services, counted on one thread.
    `progress`: called a few times per second on long runs.
    Deadlock: tasks wait for each other.
    Stopped: the event limit was reached, or Ctrl-C.
    """
    return advance_to_end(start(program, log=log, skip=skip, threads=threads), max_events, progress)


@staged("engine")
def start(
    program: Program, *, log: bool = False, general: bool = False, skip: bool = True, threads: int | None = 1
) -> Run:
    """A run that has not begun; see `Run`."""
    return Run(program, log, general, skip, threads)


@staged("engine")
def advance_to_end(
    one: Run, max_events: int | None = None, progress: Callable[[Progress], None] | None = None
) -> Outcome:
    """Continue in slices, so that progress is reported and Ctrl-C is handled; parameters and errors as in `run`."""
    pace = _Pace()
    total = one.program.chunk_hops()
    budget = _most_services(one.program) + 1 if max_events is None else max_events
    one.alone = "" if max_events is None else "its services are counted up to a limit"
    simulated = 1 if (one.threads or 1) > 1 and not one.skips else SLICE_EVENTS  # the first picosecond, then threads
    try:
        while not one.advance(budget - one.events, max_simulated=simulated):
            if one.events >= budget:
                raise Stopped(f"stopped at the limit of {budget:,} services, at {_reached(one, total)}")
            if progress is None:
                count(SERVICES, one.events, total)
            elif simulated > 1 and (rate := pace(one.events)):
                progress(Progress(one.events, total, one.now_ps, rate))
            one.spread()
            simulated = SLICE_EVENTS * one.running
    except KeyboardInterrupt:
        raise Stopped(f"interrupted at {_reached(one, total)}") from None
    return one.outcome()


class _Pace:
    """Services a second, since the first slice, which may have loaded its kernel and has none."""

    def __init__(self) -> None:
        self._first: tuple[int, float] | None = None

    def __call__(self, events: int) -> float:
        now = monotonic()
        first, began = self._first = self._first or (events, now)
        return (events - first) / max(now - began, 1e-9)


def _most_services(program: Program) -> int:
    return program.chunk_hops() if program.is_healthy else FOREVER_PS


def memory_bytes(program: Program, log: bool = False) -> int:
    """Memory that a run takes, the program included, with up to `IN_FLIGHT` chunks of each task in flight."""
    in_flight = int(np.minimum(program.chunks(), IN_FLIGHT).sum())
    row_bytes = 16 if program.is_healthy else 8 * _state.JOURNAL_COLUMNS
    logged = row_bytes * program.chunk_hops() if log else 0
    task_bytes = TASK_BYTES + SENT_BYTES * program.has_nics
    state = program.n_tasks * task_bytes + program.n_servers * SERVER_BYTES + in_flight * EVENT_BYTES
    return program.nbytes() + state + logged + fifo.queue_bytes(program)


def check_memory(program: Program, log: bool) -> None:
    """Reject a run that would not fit, before it starts."""
    need = memory_bytes(program, log)
    if need > memory_limit():
        raise WeftError(
            f"the run needs about {format_size(need)} for {program.n_tasks:,} tasks and {program.chunk_hops():,} "
            f"services; {shown_limit()}: use fewer or larger chunks, or a smaller fabric"
        )


def _reached(one: Run, total: int) -> str:
    return f"{format_time(one.now_ps)} of simulated time, {one.events:,} of {total:,} services done"


def _initial_state(program: Program, log: bool) -> State:
    n_tasks, n_servers = program.n_tasks, program.n_servers
    healthy = program.is_healthy
    timers = np.flatnonzero(program.task_deadline_ps < NEVER_PS)
    n_special = program.nic_engines.size + int(program.nic_engines.sum())
    n_tokens = _first_tokens(program) + timers.size + n_special
    missing = program.waited_for()
    register = np.zeros(_state.REGISTERS, np.int64)
    register[_state.LEFT] = n_tasks
    register[_state.BATCH] = register[_state.ARRIVING] = register[_state.RETURNS] = NONE
    register[_state.FREE] = register[_state.TOKENS_FROM] = n_servers + n_special
    link, register[_state.TOP] = _stack_of(np.flatnonzero(missing == 0), n_tasks)
    base = log_base(program) if log and healthy else np.zeros(0, np.int64)
    n_logged = int(base[-1]) if base.size else 0
    events = np.zeros(4 * (n_servers + n_tokens), np.int64)
    _link_free(events, n_tokens - n_special, NONE)
    _set_timers(events, n_servers, timers, register)
    return State(
        register=register,
        released=np.zeros(n_tasks, np.int32),
        joined=np.zeros(n_tasks, np.int32),
        delivered=np.zeros(n_tasks, np.int32),
        missing=missing,
        link=link,
        gate_ps=np.zeros(n_tasks, np.int64),
        start_ps=np.full(n_tasks, -1, np.int64),
        finish_ps=np.full(n_tasks, -1, np.int64),
        free_ps=np.zeros(n_servers, np.int64),
        busy_ps=np.zeros(n_servers, np.int64),
        first_of=np.full(n_servers, NONE, np.int32),
        queue=np.full(n_servers * program.channels, NONE, np.int32),
        touched=np.zeros(n_servers, np.int32),
        touched_ps=np.full(n_servers, -1, np.int64),
        event_ps=events,
        event=events.view(np.int32),
        slot=np.full(_state.LEVELS * _state.SLOTS, NONE, np.int32),
        occupied=np.zeros(_state.LEVELS * _state.WORDS, np.int64),
        pool_free=program.pool_capacity.copy(),
        pool_queue=np.full(program.pool_capacity.size, NONE, np.int32),
        log_base=base,
        log_start_ps=np.full(n_logged, -1, np.int64),
        log_before=np.full(n_logged, -1, np.int64),
        last_row=np.full(n_servers if log and healthy else 0, -1, np.int64),
        pool_log=np.zeros(4 * _pool_uses(program) if log else 0, np.int32),
        place=(program.timetable_ptr[:-1] - 1).astype(np.int32),
        attempt=np.zeros(0 if healthy else n_servers + n_tokens, np.int32),
        held=np.full(0 if healthy else n_tasks, NONE, np.int32),
        journal=np.zeros(_journal_size(program, n_tokens) if log and not healthy else 0, np.int64),
        **_nics(program, events),
    )


def _nics(program: Program, events: I64) -> dict[str, Any]:
    """State of buffers, queues in turn and NICs, whose engines are events behind those of servers and alarms."""
    n_nics, engines = program.nic_engines.size, program.nic_engines.astype(np.int64)
    turns = np.full(int(program.hop_queue.max(initial=-1)) + 1 if program.takes_turns else 0, NONE, np.int64)
    turns = np.repeat(turns, _turns.QUEUE_WORDS)
    turns[_turns.IN_LINE :: _turns.QUEUE_WORDS] = 0
    in_lists = n_nics or turns.size or program.has_credits or program.has_channels
    line = np.full(2 * program.n_servers * program.channels if in_lists else 0, NONE, np.int32)
    rooms = np.tile([NONE, NONE, 0, 0], program.server_buffer.size)  # the words of sim/engine/general/credits.py
    of_routers = {
        "line": line, "turn": turns, "buffered": np.zeros(program.server_buffer.size, np.int64), "room": rooms,
        "channel": np.zeros(program.n_servers if program.has_channels else 0, np.int32),
    }
    if n_nics == 0:
        none = np.zeros(0, np.int32)
        return {
            "nic": np.zeros(0, np.int64), "flow": none, "port_left": none, "touched_nic": none, **of_routers,
        }
    first, ends = program.n_servers + n_nics, program.n_servers + n_nics + np.cumsum(engines)
    of_engines = events.view(np.int32).reshape(-1, 8)[first : ends[-1]]
    of_engines[:, _event.CHUNK] = np.repeat(np.arange(n_nics), engines)
    of_engines[:, _event.NEXT] = np.arange(first + 1, ends[-1] + 1)
    of_engines[ends - 1 - first, _event.NEXT] = NONE
    sent = np.flatnonzero(program.hops() > 0)
    nic = program.server_nic[program.route_server[program.route_ptr[program.task_route[sent]]]]
    left = np.zeros((n_nics, int(program.task_port.max(initial=0)) + 1), np.int32)
    np.add.at(left, (nic[nic >= 0], program.task_port[sent[nic >= 0]]), 1)
    words = np.full((n_nics, _nic.NIC_WORDS), NONE, np.int64)
    words[:, _nic.IDLE] = ends - engines
    words[:, [_nic.POST_PS, _nic.ALARM, _nic.SERVING]] = 0
    words[:, _nic.ROOM] = program.nic_queue
    n_flows = int(program.task_flow.max(initial=-1)) + 1
    return {
        "nic": words.reshape(-1), "flow": np.full(n_flows * _nic.FLOW_WORDS, NONE, np.int32),
        "port_left": left.reshape(-1), "touched_nic": np.zeros(n_nics, np.int32),
        **of_routers,
    }


def _journal_size(program: Program, n_tokens: int) -> int:
    """Room for all services if none is lost, and for one of every server and token besides."""
    return int(_state.JOURNAL_COLUMNS * (program.chunk_hops() + program.n_servers + 2 * n_tokens))


def _set_timers(events: I64, n_servers: int, timers: I64, register: I64) -> None:
    """Make the first tokens timers, in the batch of time 0, where they are set; one for each task with a deadline."""
    if timers.size == 0:
        return
    field = events.view(np.int32).reshape(-1, 8)
    tokens = slice(n_servers, n_servers + timers.size)
    field[tokens, _event.TASK] = timers
    field[tokens, _event.CHUNK] = _state.ARM
    field[tokens, _event.AT] = NONE
    field[tokens, _event.NEXT] = np.append(np.arange(n_servers + 1, n_servers + timers.size), NONE)
    register[_state.BATCH] = n_servers
    register[_state.FREE] = n_servers + timers.size


def _stranded(program: Program, state: State | FifoState) -> list[Stranded]:
    """Chunks that faults hold up for good."""
    if isinstance(state, FifoState) or state.attempt.size == 0:
        return []
    field = state.event.reshape(-1, 8)
    free = np.zeros(len(field), np.bool_)
    free[: program.n_servers] = True  # the ends of services are no chunks
    fifo.mark(free, field[:, [_event.NEXT]], int(state.register[_state.FREE]))
    held = ~free & (state.attempt >= ATTEMPTS)
    for server in np.flatnonzero(state.free_ps == _state.FAR).tolist():
        fifo.mark(held, field[:, [_event.NEXT, _event.CHILD]], int(state.queue[server]))
    found = []
    for token in np.flatnonzero(held).tolist():
        task, chunk, at = field[token, _event.TASK : _event.SIZE].tolist()
        found.append(Stranded(task, chunk, int(program.route_server[at]), int(state.attempt[token])))
    return found


def _holding(program: Program, state: State | FifoState) -> set[tuple[int, int]]:
    """The buffer that each waiting chunk needs, and the one that it holds; nothing else happens any more."""
    if not program.has_credits:
        return set()
    if isinstance(state, FifoState):
        at = fifo.held_up(state)
    else:
        field = state.event.reshape(-1, 8)
        free = np.zeros(len(field), np.bool_)
        free[: int(state.register[_state.TOKENS_FROM])] = True
        fifo.mark(free, field[:, [_event.NEXT]], int(state.register[_state.FREE]))
        at = field[~free & (field[:, _event.AT] != NONE) & (field[:, _event.SIZE] < _state.FIRST_HOP), _event.AT]
    room = program.route_server if program.buffer_shared else program.route_line
    return set(zip(room[at].tolist(), room[at - 1].tolist(), strict=True))


def _pool_uses(program: Program) -> int:
    """How often units are taken and given back in the whole run."""
    if program.pool_capacity.size == 0:
        return 0
    chunks = program.chunks()
    takes = np.where(program.task_per == PER_CHUNK, chunks, 1)[program.task_pool >= 0].sum()
    giver = np.repeat(np.arange(program.n_tasks), np.diff(program.give_ptr))
    return int(takes + np.where(program.give_per == PER_CHUNK, chunks[giver], 1).sum())


def _first_tokens(program: Program) -> int:
    return max(16, min(program.n_tasks, 2 * program.n_servers))


def _stack_of(tasks: I64, n_tasks: int) -> tuple[I32, int]:
    """The stack of some tasks, the first on top, and its top."""
    link = np.full(n_tasks, _state.UNSTACKED, np.int32)
    link[tasks] = np.append(tasks[1:], NONE)[: tasks.size]
    return link, int(tasks[0]) if tasks.size else NONE


def _link_free(events: I64, count: int, after: int) -> None:
    """Chain the last `count` tokens, the free ones; `after` follows the last."""
    field = events.view(np.int32).reshape(-1, 8)
    end = field.shape[0]
    field[end - count :, _event.NEXT] = np.arange(end - count + 1, end + 1)
    field[-1, _event.NEXT] = after


def _with_more_tokens(state: State, n_servers: int) -> State:
    """Half as many tokens again; the new ones are free."""
    old = state.event_ps.size // 4 - n_servers
    more = max(old // 2, 16)
    events = np.concatenate([state.event_ps, np.zeros(4 * more, np.int64)])
    _link_free(events, more, int(state.register[_state.FREE]))
    state.register[_state.FREE] = n_servers + old
    attempt = np.concatenate([state.attempt, np.zeros(more, np.int32)]) if state.attempt.size else state.attempt
    return state._replace(event_ps=events, event=events.view(np.int32), attempt=attempt)
