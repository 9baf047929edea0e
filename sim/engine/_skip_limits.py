"""Whether a part is as it was a period ago, shifted, and for how many periods more it can be."""

from __future__ import annotations

import numpy as np

from sim.engine._fifo_state import (
    BUSY_PS,
    CHUNK_BITS,
    CHUNKS,
    DELIVERED,
    EVENT_WORDS,
    FREE_PS,
    GATE,
    HOP_BITS,
    JOINED,
    KEY,
    MISSING,
    PLACE,
    RELEASED,
    SERVER_WORDS,
    TASK_BITS,
    TASK_WORDS,
    TIME,
)
from sim.engine._fifo_task import _needed, _of
from sim.engine._jit import count_leading_zeros, helper, section, u64
from sim.engine._skip_events import sort
from sim.engine._skip_parts import FAR_OFF, end_hop, end_of, first_hop, let_word, server_at, was_of, word_of
from sim.engine._skip_state import (
    COST,
    FIRST,
    LIVE,
    MEMBERS,
    N_AFTER,
    N_BEFORE,
    ORDERED_AFTER,
    ORDERED_BEFORE,
    PERIOD,
    TIMES,
    UNTIL,
    WAS_DELIVERED,
    WAS_JOINED,
    WAS_MISSING,
    WAS_RELEASED,
)
from sim.engine._state import FAR, NONE


@section
def recurs(program, state, skip, part, since, present):
    """Whether a part is as it was, shifted; sets the end of the time in which it stays so.

    A part without a period must not have changed: its tasks do not advance, and it ends with its first event.
    """
    most = (FAR_OFF - since) // max(present - since, 1) - 1
    alike = np.int64(NONE)
    for i in range(word_of(skip, part, FIRST), end_of(skip, part)):
        task = np.int64(skip.live[u64(i)])
        step = _of(state, task, DELIVERED) - was_of(skip, task, WAS_DELIVERED)
        skip.step[u64(task)] = step
        skip.release_step[u64(task)] = _of(state, task, RELEASED) - was_of(skip, task, WAS_RELEASED)
        if step > 0 and alike == NONE:
            alike = step
        if step > 0 and alike != step:
            alike = np.int64(-2)
    skip.register[COST] += 2 * word_of(skip, part, MEMBERS)
    advances = alike != NONE
    if advances != (word_of(skip, part, PERIOD) > 0):
        return False
    for i in range(word_of(skip, part, FIRST), end_of(skip, part)):
        task = np.int64(skip.live[u64(i)])
        most = min(most, _task_limit(program, state, skip, task, since, present))
        if most >= 0:
            most = min(most, _edge_limit(program, state, skip, task))
        if most < 0 or not _servers_recur(program, state, skip, task, since, present):
            return False
    if alike == -2:
        most = min(most, _tie_limit(program, state, skip, part))
    if most < 0:
        return False
    _put_in_order(state, skip)
    end = _events_recur(state, skip, part, since, present)
    if advances:
        end = min(end, since + (most + 1) * (present - since))
    if end < present:
        return False
    let_word(skip, part, UNTIL, end)
    _keep_busy(program, state, skip, part)
    return True


@helper
def _keep_busy(program, state, skip, part):
    """Keep what the servers of a part were busy in this period, in the place of what they were before it."""
    n_tasks = program.task_route.size
    for i in range(word_of(skip, part, FIRST), end_of(skip, part)):
        task = np.int64(skip.live[u64(i)])
        for at in range(first_hop(program, task), end_hop(program, task)):
            server = server_at(program, at)
            if skip.label[u64(n_tasks + server)] == NONE:
                skip.label[u64(n_tasks + server)] = part
                was = u64(2 * server + 1)
                skip.server_was[was] = state.server[u64(SERVER_WORDS * server + BUSY_PS)] - skip.server_was[was]


@helper
def _task_limit(program, state, skip, task, since, present):
    """For how many periods more a task goes on alike: less than 0 if not even for the one that has passed."""
    chunks, step = _of(state, task, CHUNKS), np.int64(skip.step[u64(task)])
    released, joined = _of(state, task, RELEASED), _of(state, task, JOINED)
    release_step = np.int64(skip.release_step[u64(task)])
    was_released = was_of(skip, task, WAS_RELEASED)
    gate, was_gate = state.gate_ps[u64((TASK_WORDS // 2) * task + GATE)], skip.was_gate_ps[u64(task)]
    never = np.int64(-1)
    if joined - was_of(skip, task, WAS_JOINED) != step or _of(state, task, MISSING) != was_of(skip, task, WAS_MISSING):
        return never
    if step == 0:
        return FAR_OFF if release_step == 0 and gate == was_gate else never
    same = gate == was_gate == FAR or (gate <= present and was_gate <= since)
    if not same and (gate == FAR or was_gate == FAR or gate - present != was_gate - since):
        return never
    limit = (chunks - 1 - joined) // step
    if release_step > 0:
        limit = min(limit, (chunks - 1 - released) // release_step)
    if was_released < chunks and release_step != step:
        # Released ahead of what is sent: it must never have to wait for a release.
        if joined >= was_released:
            return never
        if release_step < step:
            limit = min(limit, (was_released - joined - 1) // (step - release_step))
    cut = u64(program.task_cut[u64(task)])
    first = np.int64(program.cut_first[cut])
    if program.cut_size[cut, 0] != program.cut_size[cut, 1] and was_of(skip, task, WAS_JOINED) < first:
        limit = min(limit, (first - joined) // step if joined <= first else never)
    return limit


@helper
def _edge_limit(program, state, skip, task):
    """For how many periods more what a task waits for, and what waits for it, is released alike."""
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
    """For how many periods more a parent holds a child back just as it has."""
    chunks, parent_chunks = _of(state, child, CHUNKS), _of(state, parent, CHUNKS)
    parent_live = skip.part_of[u64(parent)] != NONE
    step = np.int64(skip.step[u64(parent)]) if parent_live else np.int64(0)
    child_live = skip.part_of[u64(child)] != NONE
    child_step = np.int64(skip.release_step[u64(child)]) if child_live else np.int64(0)
    delivered, released = _of(state, parent, DELIVERED), _of(state, child, RELEASED)
    if released == chunks:
        return FAR_OFF
    if not child_live and released > 0:
        return np.int64(-1)  # it has started since
    needed = _needed(released, parent_chunks, chunks, lag)
    if child_step == 0 and needed > delivered:
        # It is held back, and stays so.
        return (needed - 1 - delivered) // step if step > 0 else FAR_OFF
    if child_step > 0 and step == child_step and (lag > 0 or parent_chunks == chunks):
        return FAR_OFF
    if child_step > 0 and lag == 0 and step * chunks == child_step * parent_chunks:
        return FAR_OFF
    # It was not held back in the period, and is not as long as the parent stays ahead.
    was_delivered = delivered - step
    if needed > was_delivered:
        return np.int64(-1)
    low, high = np.int64(0), (chunks - 1 - released) // child_step + 1 if child_step > 0 else np.int64(0)
    if child_step == 0:
        return FAR_OFF
    while high - low > 1:
        middle = (low + high) >> 1
        if _needed(released + middle * child_step, parent_chunks, chunks, lag) <= was_delivered + middle * step:
            low = middle
        else:
            high = middle
    return low


@helper
def _servers_recur(program, state, skip, task, since, present):
    """Whether the servers of a task's route are as far behind as they were."""
    for at in range(first_hop(program, task), end_hop(program, task)):
        server = server_at(program, at)
        free, was = state.server[u64(SERVER_WORDS * server + FREE_PS)], skip.server_was[u64(2 * server)]
        if state.server[u64(SERVER_WORDS * server + BUSY_PS)] == skip.server_was[u64(2 * server + 1)]:
            if was > since:
                return False
        elif max(free - present, 0) != max(was - since, 0):
            return False
    return True


@section
def _tie_limit(program, state, skip, part):
    """For how many periods more chunks of tasks that advance differently stay in one order.

    Where two of one class meet at a server in one picosecond, the lower chunk goes first: all chunks under way of one
    task must be lower than those of the other.
    """
    if word_of(skip, part, MEMBERS) > TIMES:
        return np.int64(-1)
    limit = FAR_OFF
    for i in range(word_of(skip, part, FIRST), end_of(skip, part)):
        slow = np.int64(skip.live[u64(i)])
        for j in range(word_of(skip, part, FIRST), end_of(skip, part)):
            fast = np.int64(skip.live[u64(j)])
            faster = np.int64(skip.step[u64(fast)] - skip.step[u64(slow)])
            if (
                faster <= 0 or skip.step[u64(slow)] == 0
                or program.task_class[u64(slow)] != program.task_class[u64(fast)]
                or not _meet(program, skip, slow, fast)
            ):
                continue
            if was_of(skip, fast, WAS_DELIVERED) >= _of(state, slow, JOINED):
                continue
            ahead = was_of(skip, slow, WAS_DELIVERED) - _of(state, fast, JOINED)
            if ahead < 0:
                return np.int64(-1)
            limit = min(limit, ahead // faster)
    return limit


@helper
def _meet(program, skip, one, other):
    """Whether two tasks cross a server both."""
    for at in range(first_hop(program, one), end_hop(program, one)):
        for there in range(first_hop(program, other), end_hop(program, other)):
            skip.register[COST] += 1
            if server_at(program, at) == server_at(program, there):
                return True
    return False


@section
def _put_in_order(state, skip):
    """Put both lists of events in order, where they are not: only what has recurred in all else is worth it."""
    own = skip.register
    if own[ORDERED_BEFORE] == 0:
        own[ORDERED_BEFORE] = 1
        _order(state, skip, skip.before, skip.sorted_before, own[N_BEFORE])
    if own[ORDERED_AFTER] == 0:
        own[ORDERED_AFTER] = 1
        _order(state, skip, skip.after, skip.sorted_after, own[N_AFTER])


@helper
def _order(state, skip, events, order, count):
    """Sort events by task, hop and chunk: by task in one pass, each task's by heap."""
    register = state.register
    bits, mask = register[TASK_BITS], (np.int64(1) << register[TASK_BITS]) - 1
    chunk_bits, chunk_mask = register[CHUNK_BITS], (np.int64(1) << register[CHUNK_BITS]) - 1
    hop_bits, hop_mask = register[HOP_BITS], (np.int64(1) << register[HOP_BITS]) - 1
    n_live, end = skip.register[LIVE], skip.grouped  # the end of each task's events, which begin where the last ended
    skip.register[COST] += 25 + 2 * count + (count >> 6) * (count >> 6) + n_live // 4
    for place in range(n_live):
        end[u64(place)] = 0
    for i in range(count):
        end[u64(skip.place_of[u64(events[u64(EVENT_WORDS * i + KEY)] & mask)])] += 1
    first = np.int64(0)
    for place in range(n_live):
        own = np.int64(end[u64(place)])
        end[u64(place)] = first
        first += own
    for i in range(count):
        key = events[u64(EVENT_WORDS * i + KEY)]
        hop, chunk = (key >> bits) & hop_mask, (key >> (bits + hop_bits)) & chunk_mask
        skip.word[u64(i)] = hop << chunk_bits | chunk
        place = np.int64(skip.place_of[u64(key & mask)])
        order[u64(end[u64(place)])] = i
        end[u64(place)] += 1
    first = np.int64(0)
    for place in range(n_live):
        own = end[u64(place)] - first
        if own > 1:
            sort(order, skip.word, first, own)
            skip.register[COST] += own * (64 - count_leading_zeros(own)) // 8
        first += own


@helper
def _events_recur(state, skip, part, since, present):
    """Whether the events of a part recur; returns the last picosecond before those that do not, or NONE."""
    bits, hop_bits = state.register[TASK_BITS], state.register[HOP_BITS]
    mask = (np.int64(1) << bits) - 1
    n_before, n_after = skip.register[N_BEFORE], skip.register[N_AFTER]
    end = FAR_OFF
    i = _first_event(state, skip, skip.before, skip.sorted_before, n_before, word_of(skip, part, FIRST))
    j = _first_event(state, skip, skip.after, skip.sorted_after, n_after, word_of(skip, part, FIRST))
    last = _first_event(state, skip, skip.before, skip.sorted_before, n_before, end_of(skip, part))
    if _first_event(state, skip, skip.after, skip.sorted_after, n_after, end_of(skip, part)) - j != last - i:
        return np.int64(NONE)
    while i < last:
        before = EVENT_WORDS * np.int64(skip.sorted_before[u64(i)])
        after = EVENT_WORDS * np.int64(skip.sorted_after[u64(j)])
        key = skip.after[u64(after + KEY)]
        step = np.int64(skip.step[u64(key & mask)])
        if key - skip.before[u64(before + KEY)] != step << (bits + hop_bits):
            return np.int64(NONE)
        skip.register[COST] += 1
        if skip.after[u64(after + PLACE)] != skip.before[u64(before + PLACE)]:
            return np.int64(NONE)
        passed = skip.after[u64(after + TIME)] - skip.before[u64(before + TIME)]
        if step == 0 and passed == 0:
            end = min(end, skip.after[u64(after + TIME)] - 1)
        elif step == 0 or passed != present - since:
            return np.int64(NONE)
        i += 1
        j += 1
    return end


@helper
def _first_event(state, skip, events, order, count, place):
    """The first event in order whose task has at least this place among the live ones."""
    mask = (np.int64(1) << state.register[TASK_BITS]) - 1
    low, high = np.int64(0), count
    while low < high:
        middle = (low + high) >> 1
        if skip.place_of[u64(events[u64(EVENT_WORDS * order[u64(middle)] + KEY)] & mask)] < place:
            low = middle + 1
        else:
            high = middle
    return low
