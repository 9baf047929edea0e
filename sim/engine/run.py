"""The chunk engine: casts a program at the door, runs the kernel in slices, returns an outcome."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic

import numpy as np

from sim.engine import loop, setup
from sim.engine.core.layouts import Service
from sim.engine.core.state import FifoState
from sim.engine.core.status import (
    FINISHED,
    LEAPT,
    NEEDS_TOKENS,
    OUT_OF_ORDER,
    PAUSED,
    STUCK,
    TIRED,
)
from sim.engine.skip import repeats
from sim.engine.skip import search as _skip
from sim.engine.skip import setup as skipping
from sim.engine.skip.state import SKIPPED, SkipState
from sim.engine.threads import parts
from sim.program import Program
from sim.program.checks import EVENT_BYTES, IN_FLIGHT, TASK_BYTES
from sim.program.contract import CLOCK_END_PS
from sim.program.outcome import (
    SERVICES,
    Journal,
    Log,
    Outcome,
    Progress,
    Stopped,
    Stretch,
    check_finished,
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
    `skip`: do not simulate stretches that repeat; see sim/engine/skip/search.py. A log has every service nevertheless.
    `threads`: that `spread` may go on with, of which no more are taken than there are cores, or two; None: as many as
    there are idle cores, where it pays.
    """

    program: Program
    log: bool = False
    skip: bool = True
    threads: int | None = 1

    def __post_init__(self) -> None:
        self.program = setup.simplified(self.program)
        setup.check_fits(self.program)
        self.state: FifoState = setup.initial_state(self.program, self.log)
        self._kernel: Callable[..., int] = setup.loop(self.program)
        self._skipping: SkipState | None = None
        self._tired = False
        self._stretches: list[Stretch] = []
        self._parts: parts.Parts | None = None
        self._watch: Watch | None = None
        self.alone = ""
        if self._kernel is loop.run_fifo and self.skip and skipping.worth_trying(self.program):
            self._skipping = skipping.initial_state(self.program)

    @property
    def events(self) -> int:
        """Services begun so far."""
        return int(self.state.run["events"])

    @property
    def skipped(self) -> int:
        """Of these services, those that were not simulated."""
        return 0 if self._skipping is None else int(self._skipping.register[SKIPPED])

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
        whole = self._kernel is loop.run_fifo and self.program.pool_capacity.size == 0
        if not whole:
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
        return self.state.tokens

    @property
    def nbytes(self) -> int:
        """Bytes of the state, chunks in flight included."""
        return sum({array.ctypes.data: array.nbytes for array in self.state if array.size}.values())

    @property
    def now_ps(self) -> int:
        """Picosecond reached."""
        return int(self.state.run["now_ps"])

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
            elif status == LEAPT and self._skipping is not None:
                self._stretches.append(repeats.log_stretch(self.program, self.state, self._skipping))
            elif status == NEEDS_TOKENS:
                self.state = skipping.with_more_room(self.state, self._skipping)
            else:
                break
        if status == OUT_OF_ORDER:
            raise AssertionError(f"an event before the present, {format_time(self.now_ps)}: the kernel is wrong")
        if status == STUCK:
            self._collect()
            held_up = setup.stranded(self.program, self.state), _holding(self.program, self.state)
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
        if self.log and not healthy:
            noted = state.journal[: state.run["journaled"]].view(np.int64)
            journal = Journal.of_rows(noted.reshape(-1, len(Service.words)))
        return Outcome(
            start_ps=state.start_ps,
            finish_ps=state.finish_ps,
            busy_ps=state.busy_ps,
            makespan_ps=int(state.run["makespan_ps"]),
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
    program: Program, *, log: bool = False, skip: bool = True, threads: int | None = 1
) -> Run:
    """A run that has not begun; see `Run`."""
    return Run(program, log, skip, threads)


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
    row_bytes = 16 if program.is_healthy else Service.words.itemsize
    logged = row_bytes * program.chunk_hops() if log else 0
    task_bytes = TASK_BYTES + SENT_BYTES * program.has_nics
    state = program.n_tasks * task_bytes + program.n_servers * SERVER_BYTES + in_flight * EVENT_BYTES
    return program.nbytes() + state + logged + setup.queue_bytes(program)


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


def _holding(program: Program, state: FifoState) -> set[tuple[int, int]]:
    """The buffer that each waiting chunk needs, and the one that it holds; nothing else happens any more."""
    if not program.has_credits:
        return set()
    at = setup.held_up(program, state)
    room = program.route_server if program.buffer_shared else program.route_line
    return set(zip(room[at].tolist(), room[at - 1].tolist(), strict=True))
