"""What became slower since an earlier run, by size: beyond the noise of the two runs, because single sizes jump.

The noise of small messages is not that of large ones. It is that of repeated rows, of the two columns of nccl-tests
(in place and out of place, but for what they always differ by), and of the changes themselves between neighbors.
"""

import math
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sim.measured.diagnosis import Point, by_size, curved, spread
from topologies.checks import WeftError, checked
from topologies.text.brief import Tabular, one_line

LEAST, LEAST_ALONE = 0.01, 0.03
"""Least change that is reported: of runs whose noise is known from themselves, and of others."""

MANY = 3.0
MEDIAN = 1.2533
"""Standard deviation of a median over that of a mean."""

ENOUGH = 4
SMALL, LARGE = 2**20, 2**24
"""Bytes: below the first, latency makes most of the noise; from the second, links are full."""

SETTLED = 0.02
"""How close the ratio of large messages is to that of a machine without one of its rails."""


@checked
@one_line
@dataclass(frozen=True)
class Table:
    """A table as it was measured."""

    source: str
    points: Sequence[Point]  # size in bytes and seconds; a size may be there several times
    others: Sequence[Point] = ()  # of the other placement
    # verdict, cause: class of it, and what limits it in a word, where it was judged
    verdict: str = ""
    cause: str = ""

    def deviations(self, small: bool) -> list[float]:
        """Deviations of logarithms of times, by repeated rows and by the two placements."""
        usual = dict(by_size(self.points))
        several = Counter(size for size, _ in self.points)
        found = [
            math.log(time / usual[size]) * math.sqrt(many / (many - 1)) for size, time in self.points
            if size in usual and time > 0 and (size < SMALL) == small and (many := several[size]) > 1
        ]
        beside = dict(by_size(self.others))
        apart = [math.log(time / beside[size]) for size, time in usual.items()
                 if size in beside and (size < SMALL) == small]
        return [*found, *(one / math.sqrt(2) for one in curved(apart))]


@checked
@one_line
@dataclass(frozen=True)
class Changes(Tabular):
    """An earlier run and this one, at the sizes of both.

    WeftError: no size was measured both times.

    Examples
    --------
    >>> sizes = [2**power for power in range(20, 30)]
    >>> old, new = (Table(name, [(n, n / rate) for n in sizes]) for name, rate in (("old", 8e9), ("new", 7e9)))
    >>> Changes(new, old).lost_rail(8)
    True
    """

    now: Table
    before: Table
    sizes: tuple[int, ...] = field(init=False)
    factors: tuple[float, ...] = field(init=False)  # time now over time before
    # standard deviation of the logarithm of a factor, of small and of large messages
    noise: tuple[float, float] = field(init=False)
    measured: tuple[bool, bool] = field(init=False)  # whether repeated rows or two placements say so

    def __post_init__(self) -> None:
        old = dict(by_size(self.before.points))
        both = [(size, time / old[size]) for size, time in by_size(self.now.points) if size in old]
        if not both:
            raise WeftError(f"{self.now.source} and {self.before.source} have no size in common")
        sizes, factors = zip(*both, strict=True)
        every = spread(curved([math.log(factor) for factor in factors]))
        noise, measured = [], []
        for small in (True, False):
            here = [math.log(factor) for size, factor in both if (size < SMALL) == small]
            own = [spread(run.deviations(small)) for run in (self.now, self.before)
                   if len(run.deviations(small)) >= ENOUGH]
            single = math.sqrt(sum(one**2 for one in own) * 2 / len(own)) if own else 0.0
            between = spread(curved(here)) if len(here) >= ENOUGH + 2 else every
            noise.append(max(single, between))
            measured.append(bool(own))
        for name, value in (("sizes", sizes), ("factors", factors), ("noise", tuple(noise)),
                            ("measured", tuple(measured))):
            object.__setattr__(self, name, value)

    def _least(self, size: int) -> float:
        return LEAST if self.measured[size >= SMALL] else LEAST_ALONE

    def threshold(self, size: int) -> float:
        """Factor beyond which a size has changed."""
        return 1 + max(self._least(size), math.expm1(MANY * self.noise[size >= SMALL]))

    def _shift(self, small: bool) -> int:
        """Whether all small, or all large, messages together became slower (1) or faster (-1) by more than noise."""
        here = [(size, math.log(one)) for size, one in zip(self.sizes, self.factors, strict=True)
                if (size < SMALL) == small]
        if len(here) < ENOUGH:
            return 0
        usual = statistics.median(one for _, one in here)
        sure = MANY * MEDIAN * self.noise[not small] / math.sqrt(len(here))
        return int(math.copysign(abs(usual) > max(self._least(here[0][0]), sure), usual))

    def _with_neighbors(self, sign: int) -> tuple[int, ...]:
        shifts = {small: self._shift(small) for small in (True, False)}
        beyond = [False, *(sign * math.log(one) > math.log(self.threshold(size))
                           for size, one in zip(self.sizes, self.factors, strict=True)), False]
        return tuple(
            size for at, (size, one) in enumerate(zip(self.sizes, self.factors, strict=True), start=1)
            if (beyond[at] and (beyond[at - 1] or beyond[at + 1])) or (
                shifts[size < SMALL] == sign and sign * math.log(one) > 0)
        )

    @property
    def slower(self) -> tuple[int, ...]:
        """Sizes that became slower, as a neighbor or all of them did."""
        return self._with_neighbors(1)

    @property
    def faster(self) -> tuple[int, ...]:
        """Sizes that became faster, as a neighbor or all of them did."""
        return self._with_neighbors(-1)

    @property
    def outliers(self) -> tuple[int, ...]:
        """Sizes that changed alone, and decide nothing."""
        few = {*self.slower, *self.faster}
        return tuple(
            size for size, one in zip(self.sizes, self.factors, strict=True)
            if abs(math.log(one)) > math.log(self.threshold(size)) and size not in few
        )

    def of(self, few: Sequence[int]) -> list[float]:
        """The factors of some sizes."""
        return [one for size, one in zip(self.sizes, self.factors, strict=True) if size in few]

    def lost_rail(self, nics: int) -> bool:
        """Whether large messages take as much longer as they would without one of the rails."""
        large = self.of([size for size in self.sizes if size >= LARGE])
        return nics > 1 and bool(large) and abs(statistics.median(large) * (nics - 1) / nics - 1) < SETTLED

    def rows(self) -> list[dict[str, Any]]:
        """One row per size."""
        said: Mapping[int, str] = dict.fromkeys(self.faster, "faster") | dict.fromkeys(self.slower, "slower")
        return [
            {"size_bytes": size, "factor": one, "threshold": self.threshold(size), "change": said.get(size, "")}
            for size, one in zip(self.sizes, self.factors, strict=True)
        ]
