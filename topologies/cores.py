"""Cores of this machine: how many this process may use, and how many of them nobody uses."""

from __future__ import annotations

import os
from pathlib import Path
from time import perf_counter

STAT = Path("/proc/stat")
"""Where Linux tells for how long each core has been idle."""
IDLE, WAITING = 4, 5
"""Columns of it: idle, and idle while a disk is waited for."""


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Watch:
    """How many cores are idle while this is looked at, beside what this process itself does."""

    def __init__(self) -> None:
        self._began, self._before_s = perf_counter(), _idle_s()

    @property
    def seconds(self) -> float:
        """For how long it has been looked at."""
        return perf_counter() - self._began

    def idle(self) -> float:
        """Cores that were idle, on average; by the load of the last minute where it is not told how long each was.

        Where there is no load either, all cores but one.
        """
        after_s = _idle_s()
        if after_s is not None and self._before_s is not None:
            return (after_s - self._before_s) / max(self.seconds, 1e-9)
        if hasattr(os, "getloadavg"):
            return cores() - max(os.getloadavg()[0], 1.0)
        return cores() - 1.0


def _idle_s() -> float | None:
    """Seconds for which the cores of this process have been idle, all together; None where that is not told."""
    try:
        lines = STAT.read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    own = {f"cpu{core}" for core in os.sched_getaffinity(0)}
    ticks = [int(words[IDLE]) + int(words[WAITING]) for words in map(str.split, lines) if words and words[0] in own]
    return sum(ticks) / os.sysconf("SC_CLK_TCK") if ticks else None
