"""State of a fluid run, and where its fields lie."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from sim.engine.compile.door import by_pointer
from sim.program.contract import CLOCK_END_PS, I32, I64

# Registers, kept between calls: present, flows ended, last delivery, top of the stack of released tasks, tasks in the
# heap of times, changes of rates in the log, marks so far, changes of links that are made; and of one picosecond: lines
# of pools and of servers in which somebody may be granted, links that are looked at, flows whose rates are found anew,
# the least rate that may change.
NOW, EVENTS, MAKESPAN, TOP, PENDING, LOGGED, MARKS, CHANGED, ASKED, _, LINKS, FLOWS, FROM_RATE, REGISTERS = range(14)

FINISHED, PAUSED, TOO_LATE, NEEDS_LOG = range(4)
"""Statuses."""

HIGH, LOW, WORK_WORDS = 0, 1, 2
RATE, SINCE_PS, MARK, NEW_RATE, FLOW_WORDS = 0, 1, 2, 3, 4
LOG_WORDS = 4

NONE, OFF = -1, -2
"""Nothing follows; not in a list at all."""

WAITING, GRANTED, STOPPED, FLOWING, LEAVING = range(5)
"""A task before it has its pool, and with it; a flow without a way, with one, and one whose last byte has left."""

POOL, ALONE = range(2)
"""Lines of a task."""

NEVER = CLOCK_END_PS + 1


@by_pointer
class FluidState(NamedTuple):
    """State of a run; L links, T tasks, X crossings."""

    register: I64  # (REGISTERS,)
    missing: I32  # (T,): tasks that each still waits for
    below: I32  # (T,): stack of the tasks that are released in this picosecond; and who is next in the line of each
    phase: I32
    way: I32
    # start_ps, finish_ps: (T,)
    start_ps: I64
    finish_ps: I64
    # (T, FLOW_WORDS): rate of a flow, since when `work` is what is left of it, a mark if its rate is found anew, and
    # what was found
    flow_word: I64
    work: I64  # (T, 2)
    due_ps: I64  # (T,): when a flow ends, or is delivered; NEVER before it has a rate
    # pending, place: (T,): heap of the tasks in the order of `due_ps`, and where each is in it
    pending: I32
    place: I32
    link_rate: I64
    added_ps: I64
    down: npt.NDArray[np.int8]
    # line_head, line_free, line_next: (Q,): who is first in each line, units that it has, and the next of the lines in
    # which somebody may be granted
    line_head: I32
    line_free: I32
    line_next: I32
    # (L+1,): the crossings of link l by flows are the first `link_flows[l]` of
    # `crossing[link_first[l]:link_first[l+1]]`
    link_first: I32
    link_flows: I32  # (L,)
    # crossing, carrier, crossing_place: (X,): crossings by link, the task of each, and where each is
    crossing: I32
    carrier: I32
    crossing_place: I32
    # flow, new_due_ps: the flows whose rates are found anew, and when each will end
    flow: I32
    new_due_ps: I64
    # link_mark, link: the same of links, without a result
    link_mark: I64
    link: I32
    # free_rate, share, unfrozen: what frozen flows leave of a link, its equal share at some time, and crossings that
    # are not frozen
    free_rate: I64
    share: I64
    unfrozen: I32
    filling: I32  # (L,): heap of links in the order of `share`
    full: I32  # (L,): links of one round of filling
    log: I64  # (N, 3): changes of rates: time, task, rate, way; (0, 4) without a log
