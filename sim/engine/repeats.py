"""The log of a stretch that was skipped: the services of its last simulated period, once more for each period.

A service starts as much later as periods have passed, and its row is as many chunks further on. The service before it
on its server is that of the same period; of the first in a period it is the last one of the period before.
"""

from __future__ import annotations

import numpy as np

from sim.engine import _skip_state as fields
from sim.engine._fifo_state import FifoState
from sim.engine._skip_log import repeat_rows
from sim.engine._skip_state import SkipState
from sim.program import I64, Program
from sim.program.outcome import Stretch
from topologies.core.paths import ranges


def log_stretch(program: Program, state: FifoState, skip: SkipState) -> Stretch:
    """Log the stretch that has just been skipped."""
    period_ps, times, task, step = _moved(skip)
    hops = program.hops()[task].astype(np.int64)
    stretch = Stretch(
        task=np.repeat(task, hops), hop=ranges(np.zeros_like(hops), hops), first=np.zeros(0, np.int64),
        step=np.repeat(step, hops), times=np.repeat(times, hops), period_ps=np.repeat(period_ps, hops),
    )
    stretch = stretch._replace(first=_served(program, state, stretch))
    of = np.repeat(np.arange(stretch.step.size), stretch.step)
    hops = program.hops()[stretch.task[of]].astype(np.int64)
    chunk = ranges(stretch.first - stretch.step, stretch.step)
    row = state.log_base[stretch.task[of]] + chunk * hops + stretch.hop[of]
    order = np.argsort(row)
    row, of = row[order], of[order]
    shift = (stretch.step[of] * hops[order]).astype(np.int64)
    server = program.route_server[program.route_ptr[program.task_route[stretch.task[of]]] + stretch.hop[of]]
    before = state.log_before[row]
    at = np.minimum(np.searchsorted(row, before), max(row.size - 1, 0))
    comes_first = row[at] != before
    last = np.searchsorted(row, state.last_row[server])
    at = np.where(comes_first, last, at)
    ahead = row[at] - np.where(comes_first, shift[at], 0)
    repeat_rows(
        row, shift, state.log_start_ps[row], ahead, shift[at], stretch.times[of], stretch.period_ps[of],
        state.log_start_ps, state.log_before,
    )
    state.last_row[server] = row[last] + stretch.times[of] * shift[last]
    return stretch


def _moved(skip: SkipState) -> tuple[I64, I64, I64, I64]:
    """Of each task that was moved: its part's period, how many of them, the task, and its chunks in a period."""
    n_parts = int(skip.register[fields.N_PARTS])
    parts = skip.part.reshape(-1, fields.PART_WORDS)[:n_parts]
    live = skip.live[: int(parts[:, fields.MEMBERS].sum())]  # part by part
    part = np.repeat(np.arange(n_parts), parts[:, fields.MEMBERS])
    moved = (parts[part, fields.SKIPS] > 0) & (skip.step[live] > 0)
    part, live = part[moved], live[moved]
    step = skip.step[live].astype(np.int64)
    return parts[part, fields.PERIOD], parts[part, fields.SKIPS], live.astype(np.int64), step


def _served(program: Program, state: FifoState, stretch: Stretch) -> I64:
    """Chunks of each task that each hop had served when the stretch began: of those under way, the ones in the log."""
    task = stretch.task
    delivered = state.delivered[task] - stretch.step * stretch.times
    under_way = (state.joined[task] - state.delivered[task]).astype(np.int64)
    of = np.repeat(np.arange(task.size), under_way)
    chunk = ranges(delivered, under_way)
    row = state.log_base[task[of]] + chunk * program.hops()[task[of]] + stretch.hop[of]
    there = np.bincount(of[state.log_start_ps[row] >= 0], minlength=task.size)
    found: I64 = delivered + there
    return found

