"""Which programs skipping is tried on, and its state at the start."""

from __future__ import annotations

import numpy as np

from sim.engine import setup as fifo
from sim.engine.core.state import FifoState
from sim.engine.core.status import NONE
from sim.engine.skip import state as fields
from sim.engine.skip.parts import FAR_OFF
from sim.engine.skip.state import SkipState
from sim.program import Program

LEAST_CHUNKS, LEAST_SERVICES = 64, 1 << 17
"""Finding a stretch takes five to ten chunks: with few of them there is nothing to gain, nor in milliseconds."""
FEWEST_EVENTS, MOST_EVENTS = 1 << 13, 1 << 15
"""The most events that are compared, in small programs and in large ones; with more it costs too much."""
ALLOWED = 32
"""The budget of the search: one unit of cost, a quarter of a service, for so many services of the run, beside what it
gains; once more where a queue is found. In all 0.1 to 1.8 % of the time of runs in which nothing repeats."""
FIRST_WAIT = 64


def worth_trying(program: Program) -> bool:
    """Whether a program of the fifo loop may have stretches that are worth finding."""
    return int(program.cut_chunks.max(initial=0)) >= LEAST_CHUNKS and program.chunk_hops() >= LEAST_SERVICES


def initial_state(program: Program) -> SkipState:
    """The state before anything was skipped."""
    n_tasks, n_servers = program.n_tasks, program.n_servers
    n_events = min(MOST_EVENTS, 16 * (n_tasks + n_servers) + FEWEST_EVENTS)
    n_stages = min(fields.STAGES, int(program.hops().sum()) + n_tasks)
    register = np.zeros(fields.REGISTERS, np.int64)
    register[[fields.ALLOWED, fields.QUEUES]] = max(program.chunk_hops() // ALLOWED, 1000)
    register[fields.WAIT] = FIRST_WAIT
    register[fields.PATIENCE] = fields.MULTIPLES
    register[fields.HORIZON_PS], register[fields.SPAN_PS] = FAR_OFF, 1
    return SkipState(
        register=register,
        owner=np.empty(n_tasks + n_servers, np.int32),
        label=np.empty(n_tasks + n_servers, np.int32),
        part_of=np.full(n_tasks, NONE, np.int32),
        live=np.empty(n_tasks, np.int32),
        grouped=np.empty(n_tasks, np.int32),
        part=np.empty(fields.PARTS * fields.PART_WORDS, np.int64),
        noted_ps=np.empty(fields.PARTS * fields.TIMES, np.int64),
        was=np.empty(n_tasks * fields.WAS_WORDS, np.int32),
        was_gate_ps=np.empty(n_tasks, np.int64),
        server_was=np.empty(2 * n_servers, np.int64),
        step=np.empty(n_tasks, np.int32),
        release_step=np.empty(n_tasks, np.int32),
        before=np.empty(3 * n_events, np.int64),
        after=np.empty(3 * n_events, np.int64),
        laid_before=np.empty(n_events, np.int32),
        laid_after=np.empty(n_events, np.int32),
        stage_of=np.empty(n_tasks, np.int32),
        stage=np.empty(n_stages * fields.STAGE_WORDS, np.int64),
        run=np.empty(fields.RUNS * fields.RUN_WORDS, np.int64),
        row_ps=np.empty(fields.ROWS, np.int64),
        row_place=np.empty(fields.ROWS, np.int64),
    )


def with_more_room(state: FifoState, skip: SkipState | None) -> FifoState:
    """More room for events, and a block for each of those that are to be put back into the calendar."""
    if skip is None:
        return fifo.with_more_room(state)
    more = int(skip.register[fields.TO_PUT]) - state.next_block.size
    return fifo.with_blocks(state, 2 * more) if more > 0 else fifo.with_more_room(state)
