"""What became slower since an earlier run, by size: robust, because single sizes jump."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sim.measured.evidence import Point, by_size
from topologies.checks import WeftError, checked
from topologies.text.brief import one_line
from topologies.text.notebook import Tabular

LEAST = 0.03
"""Least change that is reported: the same run twice differs by that much."""

MANY = 3.0
CONSISTENT = 1.4826
LARGE = 2**24
SETTLED = 0.02
"""How close the ratio of large messages is to that of a machine without one of its rails."""


@checked
@one_line
@dataclass(frozen=True)
class Changes(Tabular):
    """An earlier run and this one, at the sizes of both.

    Attributes
    ----------
    source, before : str
        The two files.
    sizes : tuple of int
    factors : tuple of float
        Time now over time before.
    noise : float
        Standard deviation of the logarithm of a factor around the median of three neighbors.
    """

    source: str
    before: str
    sizes: tuple[int, ...]
    factors: tuple[float, ...]
    noise: float

    @property
    def threshold(self) -> float:
        """Factor beyond which a size has changed."""
        return 1 + max(LEAST, MANY * self.noise)

    def _beyond(self, sign: int) -> list[bool]:
        return [sign * math.log(one) > math.log(self.threshold) for one in self.factors]

    def _with_neighbors(self, sign: int) -> tuple[int, ...]:
        beyond = [False, *self._beyond(sign), False]
        return tuple(
            size for at, size in enumerate(self.sizes, start=1) if beyond[at] and (beyond[at - 1] or beyond[at + 1])
        )

    @property
    def slower(self) -> tuple[int, ...]:
        """Sizes that became slower, as a neighbor did."""
        return self._with_neighbors(1)

    @property
    def faster(self) -> tuple[int, ...]:
        """Sizes that became faster, as a neighbor did."""
        return self._with_neighbors(-1)

    @property
    def outliers(self) -> tuple[int, ...]:
        """Sizes that changed alone, and decide nothing."""
        few = {*self.slower, *self.faster}
        return tuple(
            size for size, up, down in zip(self.sizes, self._beyond(1), self._beyond(-1), strict=True)
            if (up or down) and size not in few
        )

    @property
    def of_large(self) -> float | None:
        """Median factor of the messages that fill links; None if there are none."""
        large = [one for size, one in zip(self.sizes, self.factors, strict=True) if size >= LARGE]
        return statistics.median(large) if large else None

    def lost_rail(self, nics: int) -> bool:
        """Whether large messages take as much longer as they would without one of the rails."""
        factor = self.of_large
        return nics > 1 and factor is not None and abs(factor * (nics - 1) / nics - 1) < SETTLED

    def rows(self) -> list[dict[str, Any]]:
        """One row per size."""
        slower, faster = set(self.slower), set(self.faster)
        return [
            {"size_bytes": size, "factor": one,
             "change": "slower" if size in slower else "faster" if size in faster else ""}
            for size, one in zip(self.sizes, self.factors, strict=True)
        ]


@checked
def changes(source: str, points: Sequence[Point], before: str, earlier: Sequence[Point]) -> Changes:
    """What changed since an earlier run of the same collective.

    Raises
    ------
    WeftError
        No size was measured both times.

    Examples
    --------
    >>> sizes = [2**power for power in range(20, 30)]
    >>> found = changes("now", [(n, n / 7e9) for n in sizes], "before", [(n, n / 8e9) for n in sizes])
    >>> found.lost_rail(8)
    True
    """
    old = dict(by_size(earlier))
    both = [(size, time / old[size]) for size, time in by_size(points) if size in old]
    if not both:
        raise WeftError(f"{source} and {before} have no size in common")
    sizes, factors = zip(*both, strict=True)
    off = [
        abs(math.log(one / statistics.median(factors[at:at + 3]))) for at, one in enumerate(factors[1:-1])
    ]
    return Changes(source, before, sizes, factors, CONSISTENT * statistics.median(off or [0.0]))
