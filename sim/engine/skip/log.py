"""Rows of the log of a stretch that was skipped."""

from __future__ import annotations

import numpy as np

from sim.engine.compile.door import entry, u64

PERIODS = 64
"""Periods at a time: the rows of one task lie close together, and stay in the caches until all of its hops are done."""


@entry
def repeat_rows(row, shift, start_ps, ahead, ahead_shift, times, period_ps, log_start_ps, log_before):
    """Log rows of a period once more for each of the periods after it.

    `shift`: by how many rows each is further on in the next period; `ahead`, `ahead_shift`: of the service before it.
    """
    most = np.int64(0)
    for i in range(times.size):
        most = max(most, times[u64(i)])
    for since in range(0, most, PERIODS):
        for i in range(row.size):
            at = u64(i)
            for period in range(since + 1, min(since + PERIODS, times[at]) + 1):
                here = u64(row[at] + period * shift[at])
                log_start_ps[here] = start_ps[at] + period * period_ps[at]
                log_before[here] = ahead[at] + period * ahead_shift[at]
