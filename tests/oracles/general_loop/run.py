"""The loop that ran any program until the fifo loop had learned it all, frozen: a fast second oracle beside SimPy.

It has a heap, a wheel, NICs, credits and turns of its own, and shares no code with the loop but the compiler, the draws
and the words of turns. It does not know faults together with NICs, buffers, channels or turns.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sim.engine.core.status import FINISHED, NEEDS_TOKENS, NONE, STUCK
from sim.engine.setup import mark
from sim.program import FIFO, I32, I64, Program
from sim.program.contract import ATTEMPTS, CLOCK_END_PS, NEVER_PS
from sim.program.outcome import Journal, Log, Outcome, Stranded, check_finished, log_base
from tests.oracles.general_loop import event as _event
from tests.oracles.general_loop import loop as _kernel
from tests.oracles.general_loop import nic as _nic
from tests.oracles.general_loop import state as _state
from tests.oracles.general_loop import turns as _turns
from tests.oracles.general_loop.state import NEEDS_JOURNAL, State


def knows(program: Program) -> bool:
    """Whether the loop runs a program: channels of fifo servers alone, and faults without NICs or waits of links."""
    of_links = program.has_credits or program.has_channels or program.takes_turns
    if program.has_channels and np.any(program.server_discipline[program.hop_server[program.hop_channel > 0]] != FIFO):
        return False
    return program.is_healthy or not (program.has_nics or of_links)


def run_general_loop(program: Program, log: bool = False) -> Outcome:
    """Run a program to its end; `Deadlock` as in `sim.engine.run.run`."""
    state = _initial_state(program, log)
    if program.takes_turns or program.has_credits or program.has_channels:
        kernel = _kernel.run_routers
        if not program.has_nics:
            program = program._replace(server_nic=np.full(program.n_servers, -1, np.int32))
    elif program.has_nics:
        kernel = _kernel.run_nics
    else:
        kernel = _kernel.run_general if program.is_healthy else _kernel.run_faulty
    status = NEEDS_TOKENS
    while status in (NEEDS_TOKENS, NEEDS_JOURNAL):
        status = kernel(program, state, np.int64(CLOCK_END_PS), np.int64(CLOCK_END_PS - 1))
        if status == NEEDS_TOKENS:
            state = _with_more_tokens(state, program.n_servers)
        elif status == NEEDS_JOURNAL:
            more = _journal_size(program, state.event_ps.size // 4 - program.n_servers)
            state = state._replace(journal=np.concatenate([state.journal, np.zeros(more, np.int64)]))
    if status == STUCK:
        held_up = _stranded(program, state), _holding(program, state)
        check_finished(program, state.delivered.astype(np.int64), *held_up)
    assert status == FINISHED
    return _outcome(program, state, log)


def _outcome(program: Program, state: State, log: bool) -> Outcome:
    journal = None
    if log and not program.is_healthy:
        rows = state.journal.reshape(-1, _state.JOURNAL_COLUMNS)[: int(state.register[_state.JOURNALED])]
        journal = Journal.of_rows(rows)
    return Outcome(
        start_ps=state.start_ps, finish_ps=state.finish_ps, busy_ps=state.busy_ps,
        makespan_ps=int(state.register[_state.MAKESPAN]), events=int(state.register[_state.EVENTS]),
        log=Log(state.log_base, state.log_start_ps, state.log_before) if log and program.is_healthy else None,
        journal=journal,
    )


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
    rooms = np.tile([NONE, NONE, 0, 0], program.server_buffer.size)  # the words of credits.py
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


def _stranded(program: Program, state: State) -> list[Stranded]:
    """Chunks that faults hold up for good."""
    if state.attempt.size == 0:
        return []
    field = state.event.reshape(-1, 8)
    free = np.zeros(len(field), np.bool_)
    free[: program.n_servers] = True  # the ends of services are no chunks
    mark(free, field[:, [_event.NEXT]], int(state.register[_state.FREE]))
    held = ~free & (state.attempt >= ATTEMPTS)
    for server in np.flatnonzero(state.free_ps == _state.FAR).tolist():
        mark(held, field[:, [_event.NEXT, _event.CHILD]], int(state.queue[server]))
    found = []
    for token in np.flatnonzero(held).tolist():
        task, chunk, at = field[token, _event.TASK : _event.SIZE].tolist()
        found.append(Stranded(task, chunk, int(program.route_server[at]), int(state.attempt[token])))
    return found


def _holding(program: Program, state: State) -> set[tuple[int, int]]:
    """The buffer that each waiting chunk needs, and the one that it holds; nothing else happens any more."""
    if not program.has_credits:
        return set()
    field = state.event.reshape(-1, 8)
    free = np.zeros(len(field), np.bool_)
    free[: int(state.register[_state.TOKENS_FROM])] = True
    mark(free, field[:, [_event.NEXT]], int(state.register[_state.FREE]))
    at = field[~free & (field[:, _event.AT] != NONE) & (field[:, _event.SIZE] < _state.FIRST_HOP), _event.AT]
    room = program.route_server if program.buffer_shared else program.route_line
    return set(zip(room[at].tolist(), room[at - 1].tolist(), strict=True))


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
