"""The log of a stretch that was skipped: the services of its last simulated period, once more for each period.

A service starts as much later as periods have passed, and its row is as many chunks further on. The service before it
on its server is that of the same period; of the first in a period it is the last one of the period before.
"""

from __future__ import annotations

import numpy as np

from sim.engine.core.state import FifoState
from sim.engine.skip import state as fields
from sim.engine.skip.log import repeat_rows
from sim.engine.skip.state import SkipState
from sim.program import Program
from sim.program.outcome import Stretch
from topologies.core.paths import ranges


def log_stretch(program: Program, state: FifoState, skip: SkipState) -> Stretch:
    """Log the stretch that has just been skipped."""
    stretch = _moved(program, skip)
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


def _moved(program: Program, skip: SkipState) -> Stretch:
    """Of each task that was moved, the hops that serve it: a server that gets further behind does so by its growth."""
    n_parts = int(skip.register[fields.N_PARTS])
    parts = skip.part.reshape(-1, fields.PART_WORDS)[:n_parts]
    live = skip.live[: int(parts[:, fields.MEMBERS].sum())].astype(np.int64)  # part by part
    part, hops = np.repeat(np.arange(n_parts), parts[:, fields.MEMBERS]), program.hops()[live].astype(np.int64)
    task, hop, part = np.repeat(live, hops), ranges(np.zeros_like(hops), hops), np.repeat(part, hops)
    stage = skip.stage.reshape(-1, fields.STAGE_WORDS)[skip.stage_of[task] + hop]
    moved = (parts[part, fields.SKIPS] > 0) & (stage[:, fields.OUT] > 0)
    task, hop, part, stage = task[moved], hop[moved], part[moved], stage[moved]
    server = program.route_server[program.route_ptr[program.task_route[task]] + hop]
    return Stretch(
        task=task, hop=hop, first=stage[:, fields.FRONT], step=stage[:, fields.OUT], times=parts[part, fields.SKIPS],
        period_ps=parts[part, fields.PERIOD] + skip.server_was[2 * server],
    )
