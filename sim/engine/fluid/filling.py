"""The fluid engine: progressive filling whenever flows or links change, in integers; see sim/program/flows.py.

Only rates that can change are found anew. Rates that are lower than that of a flow which ends are the same without it:
filling has not reached a link of it by then. Those lower than the equal shares of the links of a flow that starts do
not know of it either. From the links of such flows, flows with other rates are found through the links that they share.
"""

from sim.engine.compile.door import entry, helper, section, u64
from sim.engine.fluid.state import (
    ALONE,
    ASKED,
    CHANGED,
    EVENTS,
    FINISHED,
    FLOWING,
    FLOWS,
    FROM_RATE,
    GRANTED,
    HIGH,
    LEAVING,
    LINKS,
    LOGGED,
    LOW,
    MAKESPAN,
    MARK,
    MARKS,
    NEEDS_LOG,
    NEVER,
    NEW_RATE,
    NONE,
    NOW,
    OFF,
    PAUSED,
    PENDING,
    POOL,
    RATE,
    SINCE_PS,
    STOPPED,
    TOO_LATE,
    TOP,
    WAITING,
)
from sim.program.contract import CLOCK_END_PS

HALF = (1 << 31) - 1
WORD = 1 << 62


@entry
def run_fluid(flows, state, budget):
    """Go on until nothing will happen, or until `budget` crossings of links were looked at; returns a status."""
    register = state.register
    while True:
        if budget <= 0:
            return PAUSED
        budget -= 1
        if state.log.shape[0] and register[LOGGED] + 2 * state.phase.size > state.log.shape[0]:
            return NEEDS_LOG
        register[FROM_RATE], register[LINKS] = WORD, 0
        register[MARKS] += 1
        if register[TOP] == NONE:
            now = state.due_ps[u64(state.pending[0])] if register[PENDING] else NEVER
            if register[CHANGED] < flows.change.shape[0]:
                now = min(now, flows.change[u64(register[CHANGED]), 0])
            if now >= CLOCK_END_PS:
                return FINISHED if now == NEVER else TOO_LATE
            register[NOW] = now
            while register[PENDING] and state.due_ps[u64(state.pending[0])] == now:
                _due(flows, state, state.pending[0])
        if register[CHANGED] < flows.change.shape[0] and flows.change[u64(register[CHANGED]), 0] == register[NOW]:
            _change(flows, state)
        while register[TOP] != NONE or _grant(flows, state, POOL):
            while register[TOP] != NONE:
                task = register[TOP]
                register[TOP] = state.below[u64(task)]
                _released(flows, state, task)
        _grant(flows, state, ALONE)
        if register[LINKS]:
            _lower_from_rate(state)
            budget -= _touched(flows, state)
            _fill(flows, state)
            _apply(flows, state)


@helper
def _due(flows, state, task):
    """A flow ends, or is delivered."""
    if state.phase[u64(task)] == LEAVING:
        _remove_first(state)
        _deliver(flows, state, task)
        return
    register = state.register
    state.phase[u64(task)] = LEAVING
    latency_ps = flows.latency_ps[u64(state.way[u64(task)])] + _leave(flows, state, task)
    state.due_ps[u64(task)] = min(register[NOW] + latency_ps, CLOCK_END_PS)
    _sink(state.pending, state.due_ps, state.place, 0, register[PENDING])
    register[EVENTS] += 1
    if flows.line[ALONE, u64(task)] != NONE:
        _give(state, ALONE, flows.line[ALONE, u64(task)], 1)


@helper
def _deliver(flows, state, task):
    """All bytes of a task are in: those that waited for it alone are released."""
    register = state.register
    state.finish_ps[u64(task)] = register[NOW]
    register[MAKESPAN] = register[NOW]
    for at in range(flows.child_ptr[u64(task)], flows.child_ptr[u64(task + 1)]):
        child = flows.child[u64(at)]
        state.missing[u64(child)] -= 1
        if state.missing[u64(child)] == 0:
            _push(state, child)
    for at in range(flows.give_ptr[u64(task)], flows.give_ptr[u64(task + 1)]):
        _give(state, POOL, flows.give_line[u64(at)], flows.give_units[u64(at)])


@helper
def _push(state, task):
    state.below[u64(task)] = state.register[TOP]
    state.register[TOP] = task


@helper
def _released(flows, state, task):
    """A task takes its place in a line, or starts; one without a route is delivered."""
    if flows.line[POOL, u64(task)] != NONE and state.phase[u64(task)] == WAITING:
        _line_up(flows, state, POOL, task)
    elif flows.line[ALONE, u64(task)] != NONE:
        _line_up(flows, state, ALONE, task)
    elif flows.crossing_ptr[u64(task)] == flows.crossing_ptr[u64(task + 1)]:
        state.start_ps[u64(task)] = state.register[NOW]
        _deliver(flows, state, task)
    else:
        _start(flows, state, task)


@helper
def _start(flows, state, task):
    """A task becomes a flow, without a rate as yet."""
    register = state.register
    state.start_ps[u64(task)] = register[NOW]
    state.due_ps[u64(task)] = NEVER
    state.pending[u64(register[PENDING])], state.place[u64(task)] = task, register[PENDING]
    register[PENDING] += 1
    if not _enter(flows, state, task):
        _stop(state, task)


@helper
def _enter(flows, state, task):
    """A flow takes the way that holds, if no link of that is down."""
    register, way = state.register, task
    for row in range(flows.detour_ptr[u64(task)], flows.detour_ptr[u64(task + 1)]):
        if flows.detour_from_ps[u64(row)] <= register[NOW]:
            way = flows.waits.size + row
    state.way[u64(task)] = way
    first, end = flows.crossing_ptr[u64(way)], flows.crossing_ptr[u64(way + 1)]
    for at in range(first, end):
        if state.down[u64(flows.crossing_link[u64(at)])]:
            return False
    for at in range(first, end):
        link = flows.crossing_link[u64(at)]
        place = state.link_first[u64(link)] + state.link_flows[u64(link)]
        state.crossing[u64(place)], state.carrier[u64(place)], state.crossing_place[u64(at)] = at, task, place
        state.link_flows[u64(link)] += 1
        _look_at(state, link)
    state.phase[u64(task)] = FLOWING
    state.flow_word[u64(task), SINCE_PS] = register[NOW]
    state.flow_word[u64(task), RATE] = WORD  # it is found anew, whichever rates are
    return True


@helper
def _leave(flows, state, task):
    """A flow leaves its links, which others share; returns the latency that they add."""
    register, added_ps, way = state.register, 0, state.way[u64(task)]
    register[FROM_RATE] = min(register[FROM_RATE], state.flow_word[u64(task), RATE])
    for at in range(flows.crossing_ptr[u64(way)], flows.crossing_ptr[u64(way + 1)]):
        link = flows.crossing_link[u64(at)]
        added_ps += state.added_ps[u64(link)]
        state.link_flows[u64(link)] -= 1
        place, end = state.crossing_place[u64(at)], state.link_first[u64(link)] + state.link_flows[u64(link)]
        last = state.crossing[u64(end)]
        state.crossing[u64(place)], state.carrier[u64(place)] = last, state.carrier[u64(end)]
        state.crossing_place[u64(last)] = place
        _look_at(state, link)
    return added_ps


@helper
def _stop(state, task):
    """A flow has no way and no rate."""
    state.phase[u64(task)] = STOPPED
    state.flow_word[u64(task), RATE] = 0
    state.due_ps[u64(task)] = NEVER
    _log(state, task, 0)


@helper
def _log(state, task, rate):
    if state.log.shape[0]:
        row = u64(state.register[LOGGED])
        state.log[row, 0], state.log[row, 1] = state.register[NOW], task
        state.log[row, 2], state.log[row, 3] = rate, state.way[u64(task)]
        state.register[LOGGED] += 1


# --- what changes in time -----------------------------------------------------------------------------------------


@section
def _change(flows, state):
    """All changes of this picosecond; flows are stopped by them, and find ways."""
    register = state.register
    while register[CHANGED] < flows.change.shape[0]:
        row = u64(register[CHANGED])
        if flows.change[row, 0] > register[NOW]:
            break
        register[CHANGED] += 1
        link, rate, task = flows.change[row, 1], flows.change[row, 2], flows.change[row, 4]
        if link != NONE:
            state.added_ps[u64(link)] = flows.change[row, 3]
            state.down[u64(link)] = rate == 0
            if rate:
                _serve(flows, state, link, rate)
        if task != NONE and state.missing[u64(task)] > 0:
            state.missing[u64(task)] = 0
            _push(state, task)
    for place in range(register[PENDING]):
        task = state.pending[u64(place)]
        if state.phase[u64(task)] == FLOWING and _is_cut(flows, state, state.way[u64(task)]):
            passed = register[NOW] - state.flow_word[u64(task), SINCE_PS]
            _carry(state.work, task, state.flow_word[u64(task), RATE], passed)
            _leave(flows, state, task)
            _stop(state, task)
        if state.phase[u64(task)] == STOPPED:
            _enter(flows, state, task)
    _order_all(state)


@helper
def _serve(flows, state, link, rate):
    """A link has another rate, or is up again."""
    register = state.register
    if state.link_flows[u64(link)]:
        register[FROM_RATE] = min(register[FROM_RATE], state.link_rate[u64(link)] // state.link_flows[u64(link)])
        _look_at(state, link)
    state.link_rate[u64(link)] = rate
    if flows.link_line[u64(link)] != NONE:
        _give(state, ALONE, flows.link_line[u64(link)], 0)


@helper
def _is_cut(flows, state, way):
    for at in range(flows.crossing_ptr[u64(way)], flows.crossing_ptr[u64(way + 1)]):
        link = flows.crossing_link[u64(at)]
        if state.down[u64(link)] and not flows.drains[u64(link)]:
            return True
    return False


# --- lines --------------------------------------------------------------------------------------------------------


@section
def _line_up(flows, state, which, task):
    line = flows.line[which, u64(task)]
    state.start_ps[u64(task)] = state.register[NOW]
    before, behind = NONE, state.line_head[u64(line)]
    while behind != NONE and not _is_first(flows, state, which, task, behind):
        before, behind = behind, state.below[u64(behind)]
    state.below[u64(task)] = behind
    if before == NONE:
        state.line_head[u64(line)] = task
    else:
        state.below[u64(before)] = task
    _give(state, which, line, 0)


@helper
def _is_first(flows, state, which, task, other):
    """Whether a task goes before another; until they start, `start_ps` is when they asked."""
    rank, others = flows.rank[which, u64(task)], flows.rank[which, u64(other)]
    if rank != others:
        return rank < others
    if state.start_ps[u64(task)] != state.start_ps[u64(other)]:
        return False
    return flows.tie[u64(task)] < flows.tie[u64(other)]


@helper
def _give(state, which, line, units):
    """Units come back to a line; whoever is first there may be granted."""
    state.line_free[u64(line)] += units
    if state.line_next[u64(line)] == OFF:
        state.line_next[u64(line)] = state.register[u64(ASKED + which)]
        state.register[u64(ASKED + which)] = line


@section
def _grant(flows, state, which):
    """Grant what lines can; returns whether a task was. Those of pools are started later, those of servers at once."""
    register, granted = state.register, False
    while register[u64(ASKED + which)] != NONE:
        line = register[u64(ASKED + which)]
        register[u64(ASKED + which)], state.line_next[u64(line)] = state.line_next[u64(line)], OFF
        if which == ALONE and state.down[u64(flows.line_link[u64(line)])]:
            continue
        while state.line_head[u64(line)] != NONE:
            task = state.line_head[u64(line)]
            if flows.units[which, u64(task)] > state.line_free[u64(line)]:
                break
            state.line_free[u64(line)] -= flows.units[which, u64(task)]
            state.line_head[u64(line)] = state.below[u64(task)]
            state.phase[u64(task)], granted = GRANTED, True
            if which == ALONE:
                _start(flows, state, task)
            else:
                _push(state, task)
    return granted


@helper
def _look_at(state, link):
    """Look at a link, once."""
    register = state.register
    if state.link_mark[u64(link)] != register[MARKS]:
        state.link_mark[u64(link)] = register[MARKS]
        state.link[u64(register[LINKS])] = link
        register[LINKS] += 1


# --- which rates can change ---------------------------------------------------------------------------------------


@helper
def _lower_from_rate(state):
    """To the equal shares of the links that flows cross which start."""
    register = state.register
    for at in range(register[LINKS]):
        link = state.link[u64(at)]
        if state.link_flows[u64(link)]:
            share = state.link_rate[u64(link)] // state.link_flows[u64(link)]
            register[FROM_RATE] = min(register[FROM_RATE], share)


@helper
def _touched(flows, state):
    """Collect the flows whose rates can change, and their links with what other flows leave of them."""
    register = state.register
    register[FLOWS], looked, at = 0, 0, 0
    while at < register[LINKS]:
        link = state.link[u64(at)]
        at += 1
        first, end = state.link_first[u64(link)], state.link_first[u64(link)] + state.link_flows[u64(link)]
        free, unfrozen = state.link_rate[u64(link)], 0
        looked += end - first
        for place in range(first, end):
            task = state.carrier[u64(place)]
            if state.flow_word[u64(task), RATE] < register[FROM_RATE]:
                free -= state.flow_word[u64(task), RATE]
                continue
            unfrozen += 1
            if state.flow_word[u64(task), MARK] != register[MARKS]:
                state.flow_word[u64(task), MARK] = register[MARKS]
                state.flow_word[u64(task), NEW_RATE] = NONE
                state.flow[u64(register[FLOWS])] = task
                register[FLOWS] += 1
                if register[LINKS] == state.link.size:
                    continue
                way = state.way[u64(task)]
                for other in range(flows.crossing_ptr[u64(way)], flows.crossing_ptr[u64(way + 1)]):
                    _look_at(state, flows.crossing_link[u64(other)])
        state.free_rate[u64(link)], state.unfrozen[u64(link)] = free, unfrozen
    return looked


# --- progressive filling ------------------------------------------------------------------------------------------


@helper
def _fill(flows, state):
    """Find the rates of the flows that were collected.

    Links with the same least share are full in one round, so that their order decides nothing where it is rounded.
    """
    register = state.register
    size = 0
    for at in range(register[LINKS]):
        link = state.link[u64(at)]
        if state.unfrozen[u64(link)]:
            state.share[u64(link)] = state.free_rate[u64(link)] // state.unfrozen[u64(link)]
            state.filling[u64(size)] = link
            size += 1
    for at in range(size // 2 - 1, -1, -1):
        _sink_link(state, at, size)
    while size:
        level, n_full = state.share[u64(state.filling[0])], 0
        while size and state.share[u64(state.filling[0])] == level:
            link = state.filling[0]
            share = level
            if state.unfrozen[u64(link)]:
                share = state.free_rate[u64(link)] // state.unfrozen[u64(link)]
            if share > level:
                state.share[u64(link)] = share
            else:
                if state.unfrozen[u64(link)]:
                    state.full[u64(n_full)] = link
                    n_full += 1
                size -= 1
                state.filling[0] = state.filling[u64(size)]
            _sink_link(state, 0, size)
        for at in range(n_full):
            _freeze(flows, state, state.full[u64(at)], level)


@helper
def _freeze(flows, state, link, level):
    """The flows of a full link have their rate."""
    first = state.link_first[u64(link)]
    for place in range(first, first + state.link_flows[u64(link)]):
        if state.unfrozen[u64(link)] == 0:
            return
        task = state.carrier[u64(place)]
        if state.flow_word[u64(task), MARK] == state.register[MARKS] and state.flow_word[u64(task), NEW_RATE] == NONE:
            state.flow_word[u64(task), NEW_RATE] = level
            way = state.way[u64(task)]
            for at in range(flows.crossing_ptr[u64(way)], flows.crossing_ptr[u64(way + 1)]):
                other = flows.crossing_link[u64(at)]
                state.free_rate[u64(other)] -= level
                state.unfrozen[u64(other)] -= 1


@helper
def _sink_link(state, at, size):
    heap, link = state.filling, state.filling[u64(at)]
    share = state.share[u64(link)]
    while 2 * at + 1 < size:
        child = 2 * at + 1
        if child + 1 < size and state.share[u64(heap[u64(child + 1)])] < state.share[u64(heap[u64(child)])]:
            child += 1
        if state.share[u64(heap[u64(child)])] >= share:
            break
        heap[u64(at)] = heap[u64(child)]
        at = child
    heap[u64(at)] = link


# --- when flows end -----------------------------------------------------------------------------------------------


@helper
def _apply(flows, state):
    """Give the flows their new rates, with when they will end."""
    register = state.register
    now, size, changed = register[NOW], register[PENDING], 0
    for at in range(register[FLOWS]):
        task = state.flow[u64(at)]
        rate, before = state.flow_word[u64(task), NEW_RATE], state.flow_word[u64(task), RATE]
        if rate == before:
            continue
        passed = now - state.flow_word[u64(task), SINCE_PS]
        if passed:
            _carry(state.work, task, before, passed)
            state.flow_word[u64(task), SINCE_PS] = now
        state.flow_word[u64(task), RATE] = rate
        state.new_due_ps[u64(task)] = min(now + _lasts_ps(state.work, task, rate, flows.tolerance), CLOCK_END_PS)
        state.flow[u64(changed)] = task
        changed += 1
        _log(state, task, rate)
    many = 8 * changed > size
    for at in range(changed):
        task = state.flow[u64(at)]
        state.due_ps[u64(task)] = state.new_due_ps[u64(task)]
        if not many:
            _rise(state.pending, state.due_ps, state.place, state.place[u64(task)])
            _sink(state.pending, state.due_ps, state.place, state.place[u64(task)], size)
    if many:
        _order_all(state)


@helper
def _carry(work, task, rate, time_ps):
    """Take what a flow has carried from what is left of it; both factors have 62 bits, their product two words."""
    rate_high, rate_low, time_high, time_low = rate >> 31, rate & HALF, time_ps >> 31, time_ps & HALF
    low = rate_low * time_low
    middle = rate_high * time_low + rate_low * time_high + (low >> 31)
    high = rate_high * time_high + (middle >> 31)
    work[u64(task), HIGH] -= high
    work[u64(task), LOW] -= ((middle & HALF) << 31) | (low & HALF)
    if work[u64(task), LOW] < 0:
        work[u64(task), LOW] += WORD
        work[u64(task), HIGH] -= 1


@helper
def _lasts_ps(work, task, rate, tolerance):
    """The time until less is left than in 1/tolerance of a ps: in floats from below, until the rest is exact."""
    high, low = work[u64(task), HIGH], work[u64(task), LOW] - rate // tolerance
    if low < 0:
        low += WORD
        high -= 1
    if high < 0:
        return 1
    lasts = 0
    while high:
        guess = (high * 4611686018427387904.0 + low) / rate * 0.9999999999999
        if guess >= 4611686018427387904.0:
            return CLOCK_END_PS
        part = max(int(guess), 1)
        lasts += part
        rate_high, rate_low, part_high, part_low = rate >> 31, rate & HALF, part >> 31, part & HALF
        product = rate_low * part_low
        middle = rate_high * part_low + rate_low * part_high + (product >> 31)
        high -= rate_high * part_high + (middle >> 31)
        low -= ((middle & HALF) << 31) | (product & HALF)
        if low < 0:
            low += WORD
            high -= 1
    return max(lasts + (low + rate - 1) // rate, 1)


# --- the heap of times --------------------------------------------------------------------------------------------


@helper
def _order_all(state):
    for at in range(state.register[PENDING] // 2 - 1, -1, -1):
        _sink(state.pending, state.due_ps, state.place, at, state.register[PENDING])


@helper
def _remove_first(state):
    register = state.register
    register[PENDING] -= 1
    if register[PENDING]:
        state.pending[0] = state.pending[u64(register[PENDING])]
        _sink(state.pending, state.due_ps, state.place, 0, register[PENDING])


@helper
def _sink(heap, key, place, at, size):
    task = heap[u64(at)]
    due = key[u64(task)]
    while 2 * at + 1 < size:
        child = 2 * at + 1
        if child + 1 < size and key[u64(heap[u64(child + 1)])] < key[u64(heap[u64(child)])]:
            child += 1
        if key[u64(heap[u64(child)])] >= due:
            break
        heap[u64(at)] = heap[u64(child)]
        place[u64(heap[u64(at)])] = at
        at = child
    heap[u64(at)] = task
    place[u64(task)] = at


@helper
def _rise(heap, key, place, at):
    task = heap[u64(at)]
    due = key[u64(task)]
    while at:
        above = (at - 1) // 2
        if key[u64(heap[u64(above)])] <= due:
            break
        heap[u64(at)] = heap[u64(above)]
        place[u64(heap[u64(at)])] = at
        at = above
    heap[u64(at)] = task
    place[u64(task)] = at
