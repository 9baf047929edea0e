"""Where a walk is in the stretches of a run that were skipped: what it does in one period, it does in those before."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from sim.program.outcome import Stretch


class Place(NamedTuple):
    """A service of a stretch."""

    which: tuple[int, int, int, int]  # the stretch, task, hop, and which of its chunks in a period
    period: int  # 1 for the first that was skipped
    step: int  # chunks in a period
    period_ps: int


class Repeats:
    """The stretches of a run, by task and hop."""

    def __init__(self, stretches: Iterable[Stretch]) -> None:
        self._at: dict[tuple[int, int], list[tuple[int, ...]]] = {}
        for number, one in enumerate(stretches):
            for task, hop, *row in zip(*(column.tolist() for column in one), strict=True):
                self._at.setdefault((task, hop), []).append((number, *row))

    def find(self, task: int, chunk: int, hop: int) -> Place | None:
        """The place of a service, if it was skipped."""
        for number, first, step, times, period_ps in self._at.get((task, hop), ()):
            periods, within = divmod(chunk - first, step)
            if 0 <= periods < times:
                return Place((number, task, hop, within), periods + 1, step, period_ps)
        return None
