"""Runs the fluid engine in slices, so that progress is reported and Ctrl-C is handled."""

from collections.abc import Callable
from time import monotonic

import numpy as np

from sim.engine.fluid import state as fields
from sim.engine.fluid.filling import run_fluid
from sim.engine.fluid.state import FluidState
from sim.program import I64, Program
from sim.program.flows import Flows, Speeds, flows_of, jitter_ps, task_bytes
from sim.program.outcome import Outcome, Progress, Rates, Stopped, Stranded, check_finished, past_the_clock
from topologies import WeftError
from topologies.core.extents import memory_limit, shown_limit
from topologies.core.paths import ranges
from topologies.stages import staged
from topologies.units import PS_PER_S, format_size, format_time

SLICE_CROSSINGS = 20_000_000
"""Crossings that are looked at between two looks at the clock and at Ctrl-C: a fraction of a second."""

TASK_BYTES, CROSSING_BYTES, ROW_BYTES = 210, 40, 32
"""Memory of a task, of a link that it crosses, and of a change of a rate in the log."""


@staged("engine")
def run_flows(
    program: Program, speeds: Speeds, *, log: bool = False, progress: Callable[[Progress], None] | None = None
) -> Outcome:
    """Run a program as flows; see sim/program/flows.py.

    `log`: keep every change of a rate.
    `progress`: called a few times per second on long runs, with the flows that have ended.
    WeftError: something that flows do not have, a run too large for memory, or one beyond the end of the clock.
    Deadlock: links that stay down hold up tasks for good.
    Stopped: by Ctrl-C.
    """
    _check_memory(program, log)
    flows = flows_of(program, speeds)
    state, total, started = _initial_state(flows, log), int(np.count_nonzero(flows.routed)), monotonic()
    try:
        while True:
            status = run_fluid(flows, state, np.int64(SLICE_CROSSINGS))
            if status == fields.NEEDS_LOG:
                more = np.zeros((len(state.log) // 2 + flows.n_tasks, fields.LOG_WORDS), np.int64)
                state = state._replace(log=np.concatenate([state.log, more]))
            elif status != fields.PAUSED:
                break
            elif progress is not None:
                events, now_ps = _reached(state)
                progress(Progress(events, total, now_ps, events / max(monotonic() - started, 1e-9), "flows"))
    except KeyboardInterrupt:
        events, now_ps = _reached(state)
        raise Stopped(
            f"interrupted at {format_time(now_ps)} of simulated time, {events:,} of {total:,} flows ended"
        ) from None
    if status == fields.TOO_LATE:
        raise past_the_clock()
    check_finished(program, np.where(state.finish_ps < 0, 0, program.chunks()), _stranded(flows, state))
    logged = state.log[: state.register[fields.LOGGED]].T.copy()
    return Outcome(
        start_ps=state.start_ps, finish_ps=state.finish_ps, busy_ps=_busy_ps(program, flows, state, speeds),
        makespan_ps=int(state.register[fields.MAKESPAN]), events=_reached(state)[0],
        rates=Rates(*logged) if log else None,
    )


def _reached(state: FluidState) -> tuple[int, int]:
    return int(state.register[fields.EVENTS]), int(state.register[fields.NOW])


def _check_memory(program: Program, log: bool) -> None:
    """Reject a run that would not fit, before it starts; a log of rates grows as they change."""
    n_crossings = int(program.hops().sum())
    per_task = TASK_BYTES + (3 * ROW_BYTES if log else 0)
    need = program.nbytes() + per_task * program.n_tasks + CROSSING_BYTES * n_crossings
    if need > memory_limit():
        raise WeftError(
            f"the run needs about {format_size(need)} for {program.n_tasks:,} flows that cross {n_crossings:,} links; "
            f"{shown_limit()}: use a smaller fabric"
        )


def _stranded(flows: Flows, state: FluidState) -> list[Stranded]:
    """Tasks that a server which is down holds up: flows on their way, and those in its line."""
    waits = (state.finish_ps < 0) & (state.start_ps >= 0)
    return [
        Stranded(task, 0, link, 0)
        for task in np.flatnonzero(waits).tolist()
        for link in flows.links(int(state.way[task])).tolist() if state.down[link]
    ]


def _busy_ps(program: Program, flows: Flows, state: FluidState, speeds: Speeds) -> I64:
    """Time that all bytes of each server would take at its rate, and jitter; those of a flow count for its last way."""
    first = flows.crossing_ptr[state.way].astype(np.int64)
    hops = flows.crossing_ptr[state.way + 1] - first
    crossed = np.repeat(task_bytes(program), hops)
    n_bytes = np.bincount(flows.crossing_link[ranges(first, hops)], crossed, program.n_servers)
    busy: I64 = (n_bytes / np.array([float(rate) for rate in speeds.rates]) * PS_PER_S).astype(np.int64)
    np.add.at(busy, flows.crossing_link[first[hops > 0]], jitter_ps(program)[hops > 0])
    return busy


def _initial_state(flows: Flows, log: bool) -> FluidState:
    n_tasks, n_links, n_crossings = flows.n_tasks, flows.link_rate.size, flows.crossing_link.size
    n_lines = flows.line_free.size
    register = np.zeros(fields.REGISTERS, np.int64)
    register[fields.TOP] = fields.NONE
    register[fields.ASKED : fields.ASKED + 2] = fields.NONE
    below = np.full(n_tasks, fields.NONE, np.int32)
    ready = np.flatnonzero(flows.waits == 0)
    if ready.size:
        below[ready[:-1]], register[fields.TOP] = ready[1:], ready[0]
    first = np.concatenate([[0], np.cumsum(np.bincount(flows.crossing_link, minlength=n_links))])

    def zeros(count: int, dtype: type = np.int64) -> np.ndarray:
        return np.zeros(count, dtype)

    return FluidState(
        register=register, missing=flows.waits.copy(), below=below, phase=zeros(n_tasks, np.int8),
        way=np.arange(n_tasks, dtype=np.int32),
        start_ps=np.full(n_tasks, -1, np.int64), finish_ps=np.full(n_tasks, -1, np.int64),
        flow_word=np.zeros((n_tasks, fields.FLOW_WORDS), np.int64), work=flows.work.copy(), due_ps=zeros(n_tasks),
        pending=zeros(n_tasks, np.int32), place=zeros(n_tasks, np.int32),
        link_rate=flows.link_rate.copy(), added_ps=zeros(n_links), down=zeros(n_links, np.int8),
        line_head=np.full(n_lines, fields.NONE, np.int32), line_free=flows.line_free.copy(),
        line_next=np.full(n_lines, fields.OFF, np.int32),
        link_first=first.astype(np.int32), link_flows=zeros(n_links, np.int32),
        crossing=zeros(n_crossings, np.int32), carrier=zeros(n_crossings, np.int32),
        crossing_place=zeros(n_crossings, np.int32),
        flow=zeros(n_tasks, np.int32), new_due_ps=zeros(n_tasks),
        link_mark=zeros(n_links), link=zeros(n_links, np.int32), free_rate=zeros(n_links), share=zeros(n_links),
        unfrozen=zeros(n_links, np.int32), filling=zeros(n_links, np.int32), full=zeros(n_links, np.int32),
        log=np.zeros((2 * n_tasks if log else 0, fields.LOG_WORDS), np.int64),
    )
