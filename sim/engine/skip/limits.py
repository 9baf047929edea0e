"""Whether the state of a part has recurred after a period, and for how many more periods it will."""

from __future__ import annotations

import numpy as np

from sim.engine.compile.door import helper, section, u64
from sim.engine.core.state import (
    BUSY_PS,
    CHUNKS,
    DELIVERED,
    FREE_PS,
    GATE,
    JOINED,
    MISSING,
    RELEASED,
    SERVER_WORDS,
    TASK_WORDS,
)
from sim.engine.core.status import FAR, NONE
from sim.engine.core.tasks import _needed, _of
from sim.engine.skip.parts import FAR_OFF, end_hop, end_of, first_hop, let_word, server_at, was_of, word_of
from sim.engine.skip.runs import of_run, run_chunks
from sim.engine.skip.stages import (
    coming,
    event_of,
    event_was,
    first_stage,
    last_stage,
    lay_out,
    let_stage,
    of_stage,
    run_of,
)
from sim.engine.skip.state import (
    BESIDE,
    CAME,
    COST,
    COUNT,
    COUNT_WAS,
    FIRST,
    FRONT,
    FRONT_WAS,
    MEMBERS,
    OF_TASK,
    OUT,
    PERIOD,
    RUN_FIRST,
    RUN_ROWS,
    RUN_SPACING_PS,
    SHIFTS,
    SUSPECT,
    UNTIL,
    WAS_DELIVERED,
    WAS_JOINED,
    WAS_MISSING,
    WAS_RELEASED,
)

STARTED = -2
"""In place of a number of periods."""


@section
def advances_alike(program, state, skip, part, since, present):
    """For how many more periods the tasks and servers of a part advance alike; less than 0 if they did not.

    Returns STARTED if a task that waited for them has started meanwhile. A part without a period must not have changed:
    none of its tasks advances, and its stretch ends with its first event.
    """
    period_ps = present - since
    most, first = (FAR_OFF - since) // max(period_ps, 1) - 1, word_of(skip, part, FIRST)
    suspect, advances = word_of(skip, part, SUSPECT), False
    for i in range(-1, word_of(skip, part, MEMBERS)):
        # The task that differed last time comes first.
        at = suspect if i < 0 else np.int64(i)
        most = min(most, _alike(program, state, skip, np.int64(skip.live[u64(first + at)]), since, present))
        if most < 0:
            let_word(skip, part, SUSPECT, at)
            return most
        advances = advances or skip.step[u64(skip.live[u64(first + at)])] > 0
    return most if advances == (word_of(skip, part, PERIOD) > 0) else np.int64(-1)


@section
def _alike(program, state, skip, task, since, present):
    """The same for one task and the servers of its route."""
    skip.step[u64(task)] = _of(state, task, DELIVERED) - was_of(skip, task, WAS_DELIVERED)
    skip.release_step[u64(task)] = _of(state, task, RELEASED) - was_of(skip, task, WAS_RELEASED)
    skip.register[COST] += 2
    most = _task_limit(program, state, skip, task, since, present)
    if most >= 0:
        most = min(most, _edge_limit(program, state, skip, task))
    for at in range(first_hop(program, task), end_hop(program, task)):
        if most >= 0:
            most = min(most, _server_limit(state, skip, server_at(program, at), since, present - since))
    return most


@section
def has_queue(program, state, skip, part, since, present):
    """Whether some server of a part was busy throughout and has fallen behind, or caught up."""
    for i in range(word_of(skip, part, FIRST), end_of(skip, part)):
        task = np.int64(skip.live[u64(i)])
        skip.register[COST] += 2
        for at in range(first_hop(program, task), end_hop(program, task)):
            server = server_at(program, at)
            growth = growth_ps(state, skip, server, since, present - since)
            if growth != 0 and skip.server_was[u64(2 * server)] >= present:
                return True
    return False


@section
def recurs(program, state, skip, part, since, present, most):
    """Whether the events of a part recur; sets the time until which they do, at most `most` periods ahead."""
    period_ps = present - since
    if most < 0 or not lay_out(program, state, skip):
        return False
    end, alike = FAR_OFF, np.int64(NONE)
    for i in range(word_of(skip, part, FIRST), end_of(skip, part)):
        task = np.int64(skip.live[u64(i)])
        for stage in range(first_stage(skip, task), last_stage(program, skip, task) + 1):
            end = min(end, _stage_end(program, state, skip, task, stage, since, period_ps))
            out = of_stage(skip, stage, OUT)
            if out > 0:
                alike = out if alike in (NONE, out) else np.int64(-2)
        if end < present:
            return False
    if alike == -2:
        most = min(most, _tie_limit(program, skip, part))
        if most < 0:
            return False
    if word_of(skip, part, PERIOD) > 0:
        end = min(end, since + (most + 1) * period_ps)
    let_word(skip, part, UNTIL, end)
    _keep_servers(program, state, skip, part, since, period_ps)
    return True


@helper
def _keep_servers(program, state, skip, part, since, period_ps):
    """Replace the snapshot of the servers of a part by what they do in a period."""
    n_tasks = program.task_route.size
    for i in range(word_of(skip, part, FIRST), end_of(skip, part)):
        task = np.int64(skip.live[u64(i)])
        for at in range(first_hop(program, task), end_hop(program, task)):
            server = server_at(program, at)
            if skip.label[u64(n_tasks + server)] == NONE:
                skip.label[u64(n_tasks + server)] = part
                skip.server_was[u64(2 * server)] = growth_ps(state, skip, server, since, period_ps)
                skip.server_was[u64(2 * server + 1)] = _busy_since(state, skip, server)


@helper
def _busy_since(state, skip, server):
    return state.server[u64(SERVER_WORDS * server + BUSY_PS)] - skip.server_was[u64(2 * server + 1)]


@helper
def growth_ps(state, skip, server, since, period_ps):
    """By how much a server fell behind in a period; negative if it caught up, 0 if it served nothing."""
    free, was = state.server[u64(SERVER_WORDS * server + FREE_PS)], skip.server_was[u64(2 * server)]
    if _busy_since(state, skip, server) == 0 or max(free - since - period_ps, 0) == max(was - since, 0):
        return np.int64(0)
    return free - was - period_ps


@helper
def _server_limit(state, skip, server, since, period_ps):
    """For how many more periods a server goes on alike.

    A server whose backlog changes must have been busy throughout, and stay so: when a chunk starts there then does not
    depend on when it arrived.
    """
    growth = growth_ps(state, skip, server, since, period_ps)
    ahead = skip.server_was[u64(2 * server)] - since - period_ps
    if growth == 0:
        return FAR_OFF
    if ahead < 0 or growth <= -period_ps:
        return np.int64(-1)
    return ahead // -growth if growth < 0 else FAR_OFF


@section
def _stage_end(program, state, skip, task, stage, since, period_ps):
    """The last picosecond before the events of a stage no longer recur, or NONE; notes what came and left in a period.

    What leaves it in one period must do so again in the next: as many chunks further on, a period later. What comes to
    it is later by a period and by as much as the server before it falls behind in one.
    """
    was, front = of_stage(skip, stage, FRONT_WAS), of_stage(skip, stage, FRONT)
    end, first = front + of_stage(skip, stage, COUNT), first_stage(skip, task)
    out, came = front - was, end - was - of_stage(skip, stage, COUNT_WAS)
    let_stage(skip, stage, OUT, out)
    let_stage(skip, stage, CAME, came)
    let_stage(skip, stage, SHIFTS, 0)
    skip.register[COST] += 2
    if out == 0 and came == 0:
        return event_of(skip, stage, front)[0] - 1 if front < end else FAR_OFF
    spacing_ps = period_ps
    if end_hop(program, task) > first_hop(program, task):
        before = server_at(program, first_hop(program, task) + max(stage - 1 - first, 0))
        spacing_ps += growth_ps(state, skip, before, since, period_ps)
    steady = out == came and spacing_ps == period_ps
    if not steady and (stage == first or end - front < max(out, came)):
        return np.int64(NONE)
    if out == 0:
        return event_of(skip, stage, front)[0] - 1
    chunk, more = front, np.int64(0) if steady or came == 0 else out
    while chunk < end + more:
        time, place = event_of(skip, stage, chunk) if chunk < end else coming(skip, stage, chunk, spacing_ps)
        if chunk - out < front:
            before_ps, its_place = event_was(skip, stage, chunk - out)
        else:
            before_ps, its_place = event_of(skip, stage, chunk - out)  # under way, as `more` is at most `out`
        skip.register[COST] += chunk & 1
        if time != before_ps + period_ps or place != its_place:
            return np.int64(NONE) if steady else min(time, before_ps + period_ps) - 1
        chunk = _leap(skip, stage, chunk, out, period_ps)
    let_stage(skip, stage, SHIFTS, steady)
    return event_of(skip, stage, end - out)[0] + period_ps - 1 if came == 0 else FAR_OFF


@helper
def _leap(skip, stage, chunk, out, period_ps):
    """The chunk to look at after another.

    In a run whose chunks are spaced like those that leave, comparing each row with another of the same run is enough:
    the rest follows.
    """
    run = run_of(skip, stage, chunk)
    if run != NONE:
        first, rows = of_run(skip, run, RUN_FIRST), of_run(skip, run, RUN_ROWS)
        if chunk == first + out + rows - 1 and rows * period_ps == out * of_run(skip, run, RUN_SPACING_PS):
            return first + run_chunks(skip, run)
    return chunk + 1


@helper
def _task_limit(program, state, skip, task, since, present):
    """For how many more periods a task goes on alike; less than 0 if it did not in the one that has passed."""
    chunks, delivers = _of(state, task, CHUNKS), np.int64(skip.step[u64(task)])
    released, joined = _of(state, task, RELEASED), _of(state, task, JOINED)
    step, release_step = joined - was_of(skip, task, WAS_JOINED), np.int64(skip.release_step[u64(task)])
    was_released = was_of(skip, task, WAS_RELEASED)
    gate, was_gate = state.gate_ps[u64((TASK_WORDS // 2) * task + GATE)], skip.was_gate_ps[u64(task)]
    never, limit = np.int64(-1), FAR_OFF
    if _of(state, task, MISSING) != was_of(skip, task, WAS_MISSING):
        return never
    same = gate == was_gate if step == 0 else gate == was_gate == FAR or (gate <= present and was_gate <= since)
    if not same and (step == 0 or gate - present != was_gate - since):
        return never
    if step > 0:
        limit = (chunks - 1 - joined) // step
    if delivers > 0:
        limit = min(limit, (chunks - 1 - _of(state, task, DELIVERED)) // delivers)
    if release_step > 0:
        limit = min(limit, (chunks - 1 - released) // release_step)
    if was_released < chunks and release_step != step:
        # Its releases are ahead of what it sends: it must never come to wait for one.
        if joined >= was_released:
            return never
        if release_step < step:
            limit = min(limit, (was_released - joined - 1) // (step - release_step))
    cut = u64(program.task_cut[u64(task)])
    first = np.int64(program.cut_first[cut])
    if step > 0 and program.cut_size[cut, 0] != program.cut_size[cut, 1] and was_of(skip, task, WAS_JOINED) < first:
        limit = min(limit, (first - joined) // step if joined <= first else never)
    return limit


@helper
def _edge_limit(program, state, skip, task):
    """For how many more periods releases recur on the edges to and from a task."""
    limit = FAR_OFF
    if program.parent.size:
        for edge in range(program.parent_ptr[u64(task)], program.parent_ptr[u64(task + 1)]):
            lag = np.int64(program.parent_lag[u64(edge)]) if program.parent_lag.size else np.int64(0)
            limit = min(limit, _release_limit(state, skip, np.int64(program.parent[u64(edge)]), task, lag))
            skip.register[COST] += 1
    if program.stream_child.size:
        for edge in range(program.stream_ptr[u64(task)], program.stream_ptr[u64(task + 1)]):
            child = np.int64(program.stream_child[u64(edge)])
            if skip.part_of[u64(child)] == NONE:
                lag = np.int64(program.stream_lag[u64(edge)]) if program.stream_lag.size else np.int64(0)
                limit = min(limit, _release_limit(state, skip, task, child, lag))
                skip.register[COST] += 1
    return limit


@section
def _release_limit(state, skip, parent, child, lag):
    """For how many more periods a parent holds a child back as it has so far."""
    chunks, parent_chunks = _of(state, child, CHUNKS), _of(state, parent, CHUNKS)
    parent_live = skip.part_of[u64(parent)] != NONE
    step = _of(state, parent, DELIVERED) - was_of(skip, parent, WAS_DELIVERED) if parent_live else np.int64(0)
    child_live = skip.part_of[u64(child)] != NONE
    child_step = _of(state, child, RELEASED) - was_of(skip, child, WAS_RELEASED) if child_live else np.int64(0)
    delivered, released = _of(state, parent, DELIVERED), _of(state, child, RELEASED)
    if released == chunks:
        return FAR_OFF
    if not child_live and released > 0:
        return np.int64(STARTED)
    needed, was_delivered = _needed(released, parent_chunks, chunks, lag), delivered - step
    if child_step == 0:
        if needed > delivered:
            # It is held back, and stays so.
            return (needed - 1 - delivered) // step if step > 0 else FAR_OFF
        return FAR_OFF if needed <= was_delivered else np.int64(-1)
    if step == child_step if lag > 0 else step * chunks == child_step * parent_chunks:
        return FAR_OFF
    # It must not have been held back in the period, and will not be as long as the parent stays ahead.
    if needed > was_delivered:
        return np.int64(-1)
    low, high = np.int64(0), (chunks - 1 - released) // child_step + 1
    while high - low > 1:
        middle = (low + high) >> 1
        if _needed(released + middle * child_step, parent_chunks, chunks, lag) <= was_delivered + middle * step:
            low = middle
        else:
            high = middle
    return low


@section
def _tie_limit(program, skip, part):
    """For how many more periods ties fall as they have, between tasks that advance by different numbers of chunks.

    Where two chunks of one class arrive in one picosecond, the lower goes first: all chunks that one stage sends in a
    period must be lower than those of the other.
    """
    n_tasks, limit, last = program.task_route.size, FAR_OFF, skip.owner  # the last stage met at a server
    for i in range(word_of(skip, part, FIRST), end_of(skip, part)):
        task = np.int64(skip.live[u64(i)])
        for at in range(first_hop(program, task), end_hop(program, task)):
            last[u64(n_tasks + server_at(program, at))] = NONE
    for i in range(word_of(skip, part, FIRST), end_of(skip, part)):
        task = np.int64(skip.live[u64(i)])
        for at in range(first_hop(program, task), end_hop(program, task)):
            stage = first_stage(skip, task) + at - first_hop(program, task)
            server = u64(n_tasks + server_at(program, at))
            if of_stage(skip, stage, OUT) == 0:
                continue
            other = np.int64(last[server])
            while other != NONE:
                skip.register[COST] += 1
                if program.task_class[u64(task)] == program.task_class[u64(of_stage(skip, other, OF_TASK))]:
                    limit = min(limit, _order_limit(skip, stage, other))
                other = of_stage(skip, other, BESIDE)
            let_stage(skip, stage, BESIDE, last[server])
            last[server] = stage
    return limit


@helper
def _order_limit(skip, one, other):
    """For how many more periods the chunks that leave two stages stay in the same order."""
    faster = of_stage(skip, one, OUT) - of_stage(skip, other, OUT)
    slow, fast = (other, one) if faster > 0 else (one, other)
    if faster == 0 or of_stage(skip, fast, FRONT_WAS) >= of_stage(skip, slow, FRONT):
        return FAR_OFF
    ahead = of_stage(skip, slow, FRONT_WAS) - of_stage(skip, fast, FRONT)
    return ahead // abs(faster) if ahead >= 0 else np.int64(-1)
