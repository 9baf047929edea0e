"""The chunk engine: casts a program at the door, runs the kernel in slices, returns an outcome."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cached_property
from time import monotonic
from typing import NamedTuple

import numpy as np

from sim.engine import setup
from sim.engine.carousel import FEWEST_SERVICES, Carousel
from sim.engine.core.state import FifoState, Service
from sim.engine.core.status import FINISHED, NEEDS_TOKENS, OUT_OF_ORDER, PAUSED, STUCK
from sim.program.checks import EVENT_BYTES, IN_FLIGHT, TASK_BYTES
from sim.program.columns import work_ps
from sim.program.contract import CLOCK_END_PS, I64, Program
from sim.program.outcome import (
    SERVICES,
    Journal,
    Log,
    Outcome,
    Outrun,
    Progress,
    Stopped,
    check_finished,
    past_the_clock,
)
from topologies import WeftError
from topologies.core.extents import memory_limit, shown_limit
from topologies.stages import count, staged
from topologies.units import format_size, format_time

SLICE_EVENTS = 1_000_000
"""Services between two looks at the clock and at Ctrl-C: a fraction of a second."""

LIMITED_EVENTS = 2**17
"""The same of a run with a limit of time, after which what its servers still have to do is added up."""

FOREVER_PS = CLOCK_END_PS

MOST_SERVICES = 2 * 10**10
"""Of a run without a limit of its own: a quarter of an hour at 20 million a second."""

SERVER_BYTES, SENT_BYTES = 72, 56
"""State of a server; and of a task, beside that of every task, where there are NICs."""


@dataclass
class Run:
    """A run that can be paused: `advance` goes on from where the last call ended.

    `log`: keep every service, for `why` and for pictures.
    `times`: keep when each task started; else the outcome has neither starts nor ends of tasks.
    """

    program: Program
    log: bool = False
    times: bool = True

    def __post_init__(self) -> None:
        self.program = setup.simplified(self.program)
        setup.check_fits(self.program)
        self.state: FifoState = setup.initial_state(self.program, self.log, self.times)
        self._kernel: Callable[..., int] = setup.loop(self.program, self.state.rings.size)

    @property
    def events(self) -> int:
        """Services begun so far."""
        return int(self.state.run["events"])

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

    def advance(self, max_events: int = FOREVER_PS, until_ps: int = FOREVER_PS) -> bool:
        """Go on until the end, or until a limit is reached between two picoseconds; returns whether it has ended.

        `max_events`: pause after the picosecond in which this many more services have begun.
        `until_ps`: pause before the first event later than this.
        Deadlock: nothing can move any more and tasks are left.
        WeftError: the run goes on beyond the end of the clock.
        """
        goal, last_ps = min(self.events + max_events, FOREVER_PS), min(until_ps, CLOCK_END_PS - 1)
        status = NEEDS_TOKENS
        while status == NEEDS_TOKENS:
            status = self._kernel(self.program, self.state, np.int64(goal - self.events), np.int64(last_ps))
            if status == NEEDS_TOKENS:
                self.state = setup.with_more_room(self.state)
        if status == OUT_OF_ORDER:
            raise AssertionError(f"an event before the present, {format_time(self.now_ps)}: the kernel is wrong")
        if status == STUCK:
            held_up = setup.stranded(self.program, self.state), _holding(self.program, self.state)
            check_finished(self.program, self.state.delivered.astype(np.int64), *held_up)
        if status == PAUSED and self.events < goal and until_ps >= CLOCK_END_PS:
            raise past_the_clock()
        return bool(status == FINISHED)

    @cached_property
    def _work_ps(self) -> I64:
        return work_ps(self.program)

    def least_ps(self) -> int:
        """Lower bound on the end, for each server has the rest of its work ahead; 0 with NICs, or with faults."""
        if self.program.has_nics or not self.program.is_healthy:
            return 0
        left_ps, free_ps = self._work_ps - self.state.busy_ps, self.state.servers["free_ps"]
        return int(((np.maximum(free_ps, self.now_ps) + left_ps) * (left_ps > 0)).max(initial=0))

    def outcome(self) -> Outcome:
        """Times so far; tasks that have not started or finished have -1."""
        state, noted, healthy = self.state, None, self.program.is_healthy
        if not healthy:
            rows = state.journal[: state.run["journaled"]].view(np.int64)
            noted = Journal.of_rows(rows.reshape(-1, Service.words.itemsize // 8))
        return Outcome(
            start_ps=state.start_ps,
            finish_ps=state.finish_ps if self.times else state.start_ps,
            busy_ps=state.busy_ps,
            makespan_ps=int(state.run["makespan_ps"]),
            events=self.events,
            log=Log(state.log_base, state.log_start_ps, state.log_before) if self.log and healthy else None,
            journal=noted if self.log else None,
            lapses=None if noted is None else noted.lapses(self.program),
        )


def run(
    program: Program, *, log: bool = False, max_events: int | None = None,
    progress: Callable[[Progress], None] | None = None, times: bool = True, limit_ps: int = FOREVER_PS,
) -> Outcome:
    """Run a program to its end.

    `log`: keep every service (16 bytes each); `times`: of each task (16 bytes).
    `max_events`: give up after this many services.
    `progress`: called a few times per second on long runs.
    `limit_ps`: give up where it takes longer than this.
    Deadlock: tasks wait for each other.
    Stopped: the event limit was reached, or Ctrl-C.
    Outrun: the time limit was reached.
    """
    known = None if log or max_events is not None else _KNOWN.get()
    if known is None or program.most_chunk_hops() < FEWEST_KNOWN:
        return advance_to_end(_start(program, log, times, max_events is None), max_events, progress, limit_ps)
    same = next((one for one in known if one.times == times and _are_equal(one.program, program)), None)
    found = None if same is None else same.found
    if found is None or (isinstance(found, Outrun) and found.limit_ps < limit_ps):
        try:
            found = advance_to_end(_start(program, log, times, True), None, progress, limit_ps)
        except Outrun as outrun:
            found = outrun
        others = [one for one in known if one is not same]
        known[:] = [*others[1 - MOST_KNOWN :], Ran(program, times, found)]
    if isinstance(found, Outrun):
        raise found
    return found


def _are_equal(one: Program, other: Program) -> bool:
    """Whether two programs have the same columns; of most pairs a short one differs, or all long ones are shared."""
    pairs = zip(one, other, strict=True)
    return all(mine is its or np.array_equal(np.asarray(mine), np.asarray(its)) for mine, its in pairs)


FEWEST_KNOWN, MOST_KNOWN = 2**16, 8
"""Services of a run that is worth knowing again, and how many are known."""


class Ran(NamedTuple):
    """A run, and what came out."""

    program: Program
    times: bool
    found: Outcome | Outrun


Known = list[Ran]
_KNOWN: ContextVar[Known | None] = ContextVar("known", default=None)


@contextmanager
def known_again(runs: Known) -> Iterator[None]:
    """Within, a program that equals one of the last `runs` is not run once more: its outcome is known."""
    token = _KNOWN.set(runs)
    try:
        yield
    finally:
        _KNOWN.reset(token)


@staged("engine")
def _start(program: Program, log: bool, times: bool, whole: bool) -> Run | Carousel:
    """A run that has not begun; see `Run`. `whole`: whether it goes on to its end."""
    whole = whole and not log and program.chunk_hops() >= FEWEST_SERVICES
    return Carousel(program, times) if whole and Carousel.accepts(program) else Run(program, log, times)


@staged("engine")
def advance_to_end(
    one: Run | Carousel, max_events: int | None = None, progress: Callable[[Progress], None] | None = None,
    limit_ps: int = FOREVER_PS,
) -> Outcome:
    """Continue in slices, so that progress is reported and Ctrl-C is handled; parameters and errors as in `run`."""
    pace = _Pace()
    total = one.program.chunk_hops()
    most = total if one.program.is_healthy else FOREVER_PS
    budget = most + 1 if max_events is None else max_events
    until_ps = FOREVER_PS if one.program.delivers_heads else limit_ps  # heads are there before the run has ended
    limited = one if isinstance(one, Run) and until_ps < FOREVER_PS else None
    most_events = LIMITED_EVENTS if limited else SLICE_EVENTS
    if progress is None:
        count(SERVICES, 0, total)  # a run begins, which may be no longer than the last one was when it was heard
    try:
        while not one.advance(some := min(budget - (before := one.events), most_events), until_ps):
            if one.events >= budget:
                raise Stopped(f"stopped at the limit of {budget:,} services, at {_reached(one, total)}")
            if one.events < before + some or (limited and limited.least_ps() > until_ps):
                raise Outrun(limit_ps)
            if progress is None:
                count(SERVICES, one.events, total)
            elif rate := pace(one.events):
                progress(Progress(one.events, total, one.now_ps, rate))
    except KeyboardInterrupt:
        raise Stopped(f"interrupted at {_reached(one, total)}") from None
    outcome = one.outcome()
    if outcome.makespan_ps > limit_ps:
        raise Outrun(limit_ps)
    return outcome


class _Pace:
    """Services a second, since the first slice, which may have loaded its kernel and has none."""

    def __init__(self) -> None:
        self._first: tuple[int, float] | None = None

    def __call__(self, events: int) -> float:
        now = monotonic()
        first, began = self._first = self._first or (events, now)
        return (events - first) / max(now - began, 1e-9)


def memory_bytes(program: Program, log: bool = False) -> int:
    """Memory that a run takes, the program included, with up to `IN_FLIGHT` chunks of each task in flight."""
    in_flight = program.over_tasks(np.minimum(program.cut_chunks, IN_FLIGHT))
    row_bytes = 16 if program.is_healthy else Service.words.itemsize
    logged = row_bytes * program.chunk_hops() if log else 0
    task_bytes = TASK_BYTES + SENT_BYTES * program.has_nics
    state = program.n_tasks * task_bytes + program.n_servers * SERVER_BYTES + in_flight * EVENT_BYTES
    return program.nbytes() + state + logged + setup.queue_bytes(program)


def check_size(program: Program, log: bool, asked: bool = False) -> None:
    """Reject, before it starts, a run that does not fit, and one of more services than anybody waits for unasked."""
    need, services = memory_bytes(program, log), program.most_chunk_hops()
    if need > memory_limit() or services > MOST_SERVICES:
        services = program.chunk_hops()
    if not asked and services > MOST_SERVICES:
        raise WeftError(
            f"the run has {services:,} services; more than {MOST_SERVICES:,}, which take a core many minutes, must be "
            f"asked for: use fewer or larger chunks, or --max-events {services}"
        )
    if need > memory_limit():
        raise WeftError(
            f"the run needs about {format_size(need)} for {program.n_tasks:,} tasks and {services:,} "
            f"services; {shown_limit()}: use fewer or larger chunks, or a smaller fabric"
        )


def _reached(one: Run | Carousel, total: int) -> str:
    return f"{format_time(one.now_ps)} of simulated time, {one.events:,} of {total:,} services done"


def _holding(program: Program, state: FifoState) -> set[tuple[int, int]]:
    """The buffer that each waiting chunk needs, and the one that it holds; nothing else happens any more."""
    if not program.has_credits:
        return set()
    at = setup.held_up(program, state)
    room = program.route_server if program.buffer_shared else program.route_line
    return set(zip(room[at].tolist(), room[at - 1].tolist(), strict=True))
