"""Rounds: tasks whose chunks wait for the one before, and for those of a task behind them, are delivered ahead.

When a chunk is delivered is known as it is served, and so is when the chunks may begin that wait for it: what a task
has that is not delivered is one chunk. At most two chunks wait for one, for which there is room.
"""

import numpy as np

from sim.engine.compile.door import entry, helper
from sim.engine.core.calendar import put
from sim.engine.core.status import NONE
from sim.engine.core.tasks import size_of_chunk


@entry
def find_rings(program, state):
    """Fill in the rings of a state; returns whether all tasks of several chunks are such, and no others."""
    for task in range(program.task_cut.size):
        state.rings[task].ahead = NONE
    for task in range(program.task_cut.size):
        first, last = np.int64(program.parent_ptr[task]), np.int64(program.parent_ptr[task + 1])
        cut, at = np.int64(program.task_cut[task]), np.int64(program.route_ptr[program.task_route[task]])
        chunks = program.cut_chunks[cut]
        if chunks == 1 and first == last:
            continue
        if chunks == 1 or not 1 <= last - first <= 2 or at == program.route_ptr[program.task_route[task] + 1]:
            return False
        behind, other = np.int64(program.parent[first]), np.int64(program.parent[last - 1])
        if behind == task:
            behind, other = other, behind
        if other != task or program.cut_chunks[program.task_cut[behind]] != chunks:
            return False
        its = state.rings[task]
        its.behind, its.at, its.cut, its.tie = behind, at, cut, program.task_class[task]
        if behind != task:
            if state.rings[behind].ahead != NONE:
                return False
            state.rings[behind].ahead = task
    return True


@helper
def begin_rounds(program, state, task, ready, event):
    """Deliver a chunk ahead of its time, `ready`: let those begin then, or later, that waited for it alone.

    A task that is further has delivered what is waited for by now: its next chunk was not served before.
    """
    its, ring = state.tasks[task], state.rings[task]
    chunk = its.delivered + 1
    its.delivered, its.gate_ps = chunk, ready
    behind, ahead = state.tasks[ring.behind], ring.ahead
    if behind.delivered >= chunk:
        gate = max(ready, behind.gate_ps) if behind.delivered == chunk else ready
        _begin(program, state, task, chunk, gate, event)
        event = np.int64(NONE)
    if ahead != NONE and state.tasks[ahead].delivered == chunk:
        _begin(program, state, ahead, chunk, max(ready, state.tasks[ahead].gate_ps), event)


@helper
def _begin(program, state, task, chunk, gate, event):
    """Let a chunk of a task begin."""
    its, ring = state.tasks[task], state.rings[task]
    its.released = its.joined = chunk + 1
    bits = state.run.task_bits + state.run.hop_bits
    key = ((ring.tie << state.run.chunk_bits | chunk) << bits) | task
    put(program, state, gate, key, (ring.at << 32) | size_of_chunk(program, ring.cut, chunk), event)


@helper
def deliver_ahead(state, task, ready):
    """Deliver the last chunk of a task for which nothing waits."""
    run, its = state.run, state.tasks[task]
    its.delivered, its.gate_ps = its.chunks, ready
    run.makespan_ps = max(run.makespan_ps, ready)
    run.left -= 1
