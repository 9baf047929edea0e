"""One run on several threads: each part owns some of the servers, and runs the fifo loop window by window.

This is conservative parallel simulation. Whatever a service in one part causes in another happens at least `AHEAD`
later, the lookahead. A window is half of it, and a part goes on to its next window when all others have finished the
one before the last:

    part 0   | window 1 .......... | window 2 ... | window 3 ........ |
    part 1   | window 1 .. | window 2 ..... | waits | window 3 .. |

Parts that are busy in alternate windows do not wait for each other. After a window each part shows its next event, also
among those that it sent and nobody has received. The next window but one ends at most `AHEAD` after the earliest of
these; all parts compute the same end, from the same numbers. Events of one picosecond are ordered by their keys, not by
when they were put into the calendar, so that results do not depend on the number of parts.
"""

from __future__ import annotations

import numpy as np

from sim.engine.compile.door import entry, helper, read_shared, section, u64, write_shared
from sim.engine.core.calendar import soonest
from sim.engine.core.mail import close, receive, turn_over
from sim.engine.core.state import (
    AHEAD,
    AT_WORK,
    BEFORE_PS,
    BOARD_WORDS,
    BOXES,
    DONE,
    END,
    EVENTS,
    FIRST_PS,
    FULL,
    NOW,
    OWN,
    PARTS,
)
from sim.engine.core.status import FAR, NEEDS_TOKENS, PAUSED, STUCK
from sim.engine.loop import fifo_loop

ALONE, GOES_ON, CROWDED = 10, 11, 12
"""Other parts have not finished their window; the next window begins; a box is full."""

NUMBER, NEXT, BEGUN, WAS_FULL, LINE = 0, 1, 2, 3, 8
"""What a part shows after a window, in a line of the cache: the number of the window, written last; its next event, the
services that it has begun, and whether a box was full."""


@helper
def _line(part, window):
    return BOARD_WORDS * part + LINE * (window & (BOXES - 1))


@helper
def _show(state, to_its_end):
    own, board = state.own, state.board
    own[AT_WORK] = 0
    own[DONE] += 1
    close(state)
    line = _line(own[OWN], own[DONE])
    following = soonest(state) if to_its_end else state.register[NOW]
    board[u64(line + NEXT)] = min(own[BEFORE_PS], own[FIRST_PS], following)
    board[u64(line + BEGUN)] = state.register[EVENTS]
    board[u64(line + WAS_FULL)] = own[FULL]
    write_shared(board, line + NUMBER, own[DONE])


@helper
def _all_there(state, patience):
    """Whether all parts have finished the window before the last, looking for them up to `patience` times more."""
    own = state.own
    part = np.int64(0)
    while part < own[PARTS]:
        if read_shared(state.board, _line(part, own[DONE] - 1) + NUMBER) >= own[DONE] - 1:
            part += 1
        elif patience > 0:
            patience -= 1
        else:
            return False
    return True


@helper
def _decide(state, most, until_ps):
    """Decide what to do next, the same in every part."""
    own, board = state.own, state.board
    first, begun, full = FAR, np.int64(0), np.int64(0)
    for part in range(own[PARTS]):
        line = _line(part, own[DONE] - 1)
        first = min(first, board[u64(line + NEXT)])
        begun += board[u64(line + BEGUN)]
        full |= board[u64(line + WAS_FULL)]
    if full != 0:
        return CROWDED
    if first == FAR:
        return STUCK
    if begun >= most or first > until_ps:
        return PAUSED
    turn_over(state)
    own[END] = min(first + own[AHEAD], max(first, own[END]) + ((own[AHEAD] + 1) >> 1), until_ps + 1)
    own[AT_WORK] = 1
    return GOES_ON


@entry
def run_part(program, state, most, until_ps, patience):
    """Run a part until all of them end or come to a limit; see `run_general`.

    `most`: services of all parts, at which they pause after a window.
    `patience`: how often to look for the others.
    Returns ALONE where others have not finished their window, and NEEDS_TOKENS where this part needs more room: it is
    to be called again. CROWDED where the boxes need more room. STUCK where no part has an event left, also if all tasks
    are done.
    """
    return _run(program, state, most, until_ps, patience)


@section
def _run(program, state, most, until_ps, patience):
    own = state.own
    while True:
        if own[AT_WORK] != 0:
            if not receive(program, state):
                return NEEDS_TOKENS
            status = fifo_loop(program, state, FAR >> 1, own[END] - 1, True, False, False, False, False)
            if status == NEEDS_TOKENS and own[FULL] == 0:
                return NEEDS_TOKENS
            # With a full box the window ends at once, in the midst of a picosecond, and the next one goes on there.
            _show(state, status != NEEDS_TOKENS)
        if not _all_there(state, patience):
            return ALONE
        status = _decide(state, most, until_ps)
        if status != GOES_ON:
            return status


@helper
def _root(owner, node):
    while owner[u64(node)] != node:
        owner[u64(node)] = owner[u64(owner[u64(node)])]
        node = np.int64(owner[u64(node)])
    return node


@helper
def _unite(owner, one, other):
    """Merge two groups; the root is the first node of both."""
    one, other = _root(owner, one), _root(owner, other)
    owner[u64(max(one, other))] = min(one, other)


@helper
def _crosses(program, task):
    route = program.task_route[u64(task)]
    return program.route_ptr[u64(route)] < program.route_ptr[u64(route + 1)]


@helper
def _begin(program, task):
    """The first server of a task; a node of its own, behind the servers, for one that crosses none."""
    if not _crosses(program, task):
        return program.server_rate.size + task
    hop = program.route_hop[u64(program.route_ptr[u64(program.task_route[u64(task)])])]
    return np.int64(program.hop_server[u64(hop)])


@entry
def find_groups(program, owner, work):
    """Find the servers and tasks that must be in one part, and how much every server does.

    `owner`: of each server, and of each task that crosses none, itself; becomes the first of its group.
    `work`: (S, bins), zero; becomes the services of each server in tasks of the first classes, the next, ...
    """
    _find_groups(program, owner, work)


@section
def _find_groups(program, owner, work):
    most = np.int64(1)
    for task in range(program.task_route.size):
        most = max(most, np.int64(program.task_class[u64(task)]) + 1)
    for task in range(program.task_route.size):
        chunks = np.int64(program.cut_chunks[u64(program.task_cut[u64(task)])])
        rank = np.int64(program.task_class[u64(task)]) * work.shape[1] // most
        route = program.task_route[u64(task)]
        for at in range(program.route_ptr[u64(route)], program.route_ptr[u64(route + 1)]):
            work[u64(program.hop_server[u64(program.route_hop[u64(at)])]), u64(rank)] += chunks
        if not _crosses(program, task):
            # It is delivered when it is released: what waits for it begins in the same picosecond.
            _unite_children(program, owner, task)
    for node in range(owner.size):
        owner[u64(node)] = _root(owner, node)


@helper
def _unite_children(program, owner, task):
    begin = _begin(program, task)
    if program.whole_child.size:
        for edge in range(program.whole_ptr[u64(task)], program.whole_ptr[u64(task + 1)]):
            _unite(owner, begin, _begin(program, np.int64(program.whole_child[u64(edge)])))
    if program.stream_child.size:
        for edge in range(program.stream_ptr[u64(task)], program.stream_ptr[u64(task + 1)]):
            _unite(owner, begin, _begin(program, np.int64(program.stream_child[u64(edge)])))


@entry
def find_deliveries(program, part_of, begin_part, delivery_parts, chunks):
    """Find where tasks begin, and which parts are told of a delivery: at least one.

    `part_of`: of each server, and of each task that crosses none.
    `chunks`: (routes, 2), zero; becomes those that cross each route, and how often one is told to another part than
    that of its last server.
    """
    _find_deliveries(program, part_of, begin_part, delivery_parts, chunks)


@section
def _find_deliveries(program, part_of, begin_part, delivery_parts, chunks):
    for task in range(program.task_route.size):
        begin_part[u64(task)] = part_of[u64(_begin(program, task))]
    for task in range(program.task_route.size):
        told = np.int64(0)
        if program.whole_child.size:
            for edge in range(program.whole_ptr[u64(task)], program.whole_ptr[u64(task + 1)]):
                told |= np.int64(1) << np.int64(begin_part[u64(program.whole_child[u64(edge)])])
        if program.stream_child.size:
            for edge in range(program.stream_ptr[u64(task)], program.stream_ptr[u64(task + 1)]):
                told |= np.int64(1) << np.int64(begin_part[u64(program.stream_child[u64(edge)])])
        if _crosses(program, task):
            route = program.task_route[u64(task)]
            hop = program.route_hop[u64(program.route_ptr[u64(route + 1)] - 1)]
            last = np.int64(1) << np.int64(part_of[u64(program.hop_server[u64(hop)])])
            if told == 0:
                told = last
            count = np.int64(program.cut_chunks[u64(program.task_cut[u64(task)])])
            chunks[u64(route), 0] += count
            elsewhere = told & ~last
            while elsewhere != 0:
                elsewhere &= elsewhere - 1
                chunks[u64(route), 1] += count
        else:
            told = np.int64(1) << np.int64(begin_part[u64(task)])
        delivery_parts[u64(task)] = told
