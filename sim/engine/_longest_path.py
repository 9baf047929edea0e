"""The longest path through the waits of a program, for the bounds."""

from __future__ import annotations

import numpy as np

from sim.engine._jit import entry, u64


@entry
def longest_path(program, first_ps, whole_ps, last_ps, waits, order, release, finish):
    """Earliest release and finish of every task if no task ever waited for another's service.

    Parameters
    ----------
    program : Program
    first_ps, whole_ps, last_ps : (T,) int64
        Least time from release to delivery of the first chunk, of the whole task, and of one more chunk at the end.
    waits : (T,) int32
        Parents of each task, windows left out; used up.
    order : (T,) int32
        Scratch.
    release, finish : (T,) int64
        Filled; zeros on entry.

    Returns
    -------
    int
        The latest finish.
    """
    n_tasks = waits.size
    head, tail = 0, 0
    for task in range(n_tasks):
        if waits[u64(task)] == 0:
            order[u64(tail)] = task
            tail += 1
    latest = np.int64(0)
    while head < tail:
        task = order[u64(head)]
        head += 1
        finish[u64(task)] = max(finish[u64(task)], release[u64(task)] + whole_ps[u64(task)])
        latest = max(latest, finish[u64(task)])
        first, last = 0, 0
        if program.whole_child.size:
            first, last = program.whole_ptr[u64(task)], program.whole_ptr[u64(task + 1)]
        for edge in range(first, last):
            child = program.whole_child[u64(edge)]
            release[u64(child)] = max(release[u64(child)], finish[u64(task)])
            waits[u64(child)] -= 1
            if waits[u64(child)] == 0:
                order[u64(tail)] = child
                tail += 1
        first, last = 0, 0
        if program.stream_child.size:
            first, last = program.stream_ptr[u64(task)], program.stream_ptr[u64(task + 1)]
        for edge in range(first, last):
            if program.stream_lag.size == 0 or program.stream_lag[u64(edge)] == 0:
                child = program.stream_child[u64(edge)]
                release[u64(child)] = max(release[u64(child)], release[u64(task)] + first_ps[u64(task)])
                finish[u64(child)] = max(finish[u64(child)], finish[u64(task)] + last_ps[u64(child)])
                waits[u64(child)] -= 1
                if waits[u64(child)] == 0:
                    order[u64(tail)] = child
                    tail += 1
    return latest
