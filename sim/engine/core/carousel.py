"""Chunks that cross one server again and again, as in an all-to-all on a ring of which one link stands for all others.

Nothing waits for anything but a time, and what a server has served comes back in the order in which it was served: a
queue in place of the calendar. Another one has the chunks that begin.

    begins  | first chunks of tasks | the chunk behind one that has begun, once that is served | ->  whichever
    returns | chunks with hops left, a latency after their services                            | ->  is earlier

A first chunk is put into its queue before what is later, and where that is empty.
"""

from typing import NamedTuple

import numpy as np

from sim.engine.compile.door import by_pointer, entry, helper
from sim.engine.compile.rows import Row, Rows, Word
from sim.engine.core.status import FINISHED, PAUSED

BITS = 21
"""Of a chunk, a hop and a task in the word by which chunks of one class are ordered."""

_LOW = (1 << BITS) - 1


class Lane(Row):
    """A server, and how far it is; places in the queues are counted on, and wrap."""

    onward_ps: Word  # from the start of a service, or its end, to the next arrival
    stored: Word  # whether from its end
    released: Word  # first chunks that have been put into their queue
    begun: Word
    to_begin: Word
    returned: Word
    to_return: Word
    events: Word  # services done
    now_ps: Word  # the last arrival
    free_ps: Word  # end of the last service
    busy_ps: Word


class Rider(Row):
    """A task; tasks are in the order of class and number."""

    tie_class: Word
    hops: Word
    chunks: Word
    leading: Word  # chunks of the first size
    first_ps: Word  # service of one of these, and of another
    rest_ps: Word
    out_ps: Word  # from the start of the last service, or its end, to delivery
    whole: Word  # whether from its end
    start_ps: Word
    finish_ps: Word


class Arrival(Row):
    """When a chunk arrives; chunk, hop and task."""

    at_ps: Word
    word: Word


@by_pointer
class Queues(NamedTuple):
    """The state of a server. Both queues have room for all that is ever in them, and a power of two of rows."""

    lane: Rows[Lane]  # one row
    riders: Rows[Rider]
    firsts: Rows[Arrival]  # of each task, in the order in which they arrive
    begins: Rows[Arrival]
    returns: Rows[Arrival]


@helper
def _comes_first(state, one, at_ps, word):
    """Whether a chunk is served before another: what arrives at once is ordered by class, chunk, hop and task."""
    if one.at_ps != at_ps:
        return one.at_ps < at_ps
    mine, its = state.riders[one.word & _LOW].tie_class, state.riders[word & _LOW].tie_class
    return mine < its or (mine == its and one.word < word)


@helper
def _put(queue, place, at_ps, word):
    """Put an arrival into a queue."""
    one = queue[place & np.int64(queue.size - 1)]
    one.at_ps, one.word = at_ps, word


@helper
def _release(state, released, to_begin):
    """Put the next first chunk into its queue; returns how many are there, and what is in the queue."""
    _put(state.begins, to_begin, state.firsts[released].at_ps, state.firsts[released].word)
    return released + 1, to_begin + 1


@entry
def go_round(state, most):
    """Serve what arrives at a server, until nothing does or so many more services are done.

    Returns FINISHED or PAUSED.
    """
    lane = state.lane
    beginning, returning = np.int64(state.begins.size - 1), np.int64(state.returns.size - 1)
    begun, to_begin, returned, to_return = lane.begun, lane.to_begin, lane.returned, lane.to_return
    released, to_release = lane.released, state.firsts.size
    onward_ps, stored, now, free, busy = lane.onward_ps, lane.stored, lane.now_ps, lane.free_ps, lane.busy_ps
    done = np.int64(0)
    while done < most and (begun < to_begin or returned < to_return):
        first, back = state.begins[begun & beginning], state.returns[returned & returning]
        if begun < to_begin and (returned == to_return or _comes_first(state, first, back.at_ps, back.word)):
            now, word = first.at_ps, first.word
            begun += 1
        else:
            now, word = back.at_ps, back.word
            returned += 1
        rider, chunk, hop = state.riders[word & _LOW], word >> 2 * BITS, word >> BITS & _LOW
        start = max(now, free)
        service = rider.first_ps if chunk < rider.leading else rider.rest_ps
        free = start + service
        busy += service
        done += 1
        if hop == 0:
            if chunk == 0:
                rider.start_ps = start
            if chunk + 1 < rider.chunks:
                behind = word + (np.int64(1) << 2 * BITS)
                while released < to_release and _comes_first(state, state.firsts[released], free, behind):
                    released, to_begin = _release(state, released, to_begin)
                _put(state.begins, to_begin, free, behind)
                to_begin += 1
            elif begun == to_begin and released < to_release:
                released, to_begin = _release(state, released, to_begin)
        if hop + 1 < rider.hops:
            again = state.returns[to_return & returning]
            again.at_ps, again.word = (free if stored else start) + onward_ps, word + (np.int64(1) << BITS)
            to_return += 1
        else:
            rider.finish_ps = (free if rider.whole else start) + rider.out_ps
    lane.released, lane.begun, lane.to_begin = released, begun, to_begin
    lane.returned, lane.to_return = returned, to_return
    lane.now_ps, lane.free_ps, lane.busy_ps, lane.events = now, free, busy, lane.events + done
    return PAUSED if begun < to_begin or returned < to_return else FINISHED
