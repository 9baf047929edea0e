"""The hole that is left where LL128 is off: sizes between those of LL and those of Simple take longer.

Other machines are slower there too: between nodes medium sizes scatter most. So the measured curve must follow what
LL128 off predicts size by size, better than it follows a healthy machine and by more than such machines scatter.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sim.analytic.traffic import F64
from sim.library.expected import expected, timed
from sim.library.tuner import Setting, candidates
from topologies.text.brief import one_line

TOUCHED, DEEP = 1.1, 1.35
"""Factors by which a size is slower without LL128: from which it is of the hole, and from which it names the hole."""

SCATTER, FREEDOM = 0.14, 3
"""Scale and degrees of freedom of Student's distribution of the logarithm of a time at medium sizes between nodes:
public tables are off by 10.7 % in the median and 15.5 % in the mean from 1 to 64 MiB; no normal distribution is."""

SAME = 4
"""Independent points that the sizes of a hole count for: what is off at one is off at its neighbors."""

LEAST = 3


@one_line
@dataclass(frozen=True, eq=False)
class Hole:
    """Sizes that LL128 off slows down."""

    sizes: tuple[int, ...]
    # (n_sizes,): logarithms of measured over expected times, beyond those of the nearest sizes on both sides of
    # the hole
    slower: F64
    # least, most: (n_sizes,): what LL128 off predicts of them: by the fastest choice that is left, and by the
    # library's
    least: F64
    most: F64

    @property
    def deep(self) -> tuple[int, int]:
        """The first and the last size that LL128 off slows down much; of all, if none is."""
        deep = [size for size, most in zip(self.sizes, self.most, strict=True) if most >= np.log(DEEP)] or self.sizes
        return deep[0], deep[-1]

    @property
    def usual(self) -> float:
        """Median of `slower`."""
        return float(np.median(self.slower))

    @property
    def likelier(self) -> tuple[float, float]:
        """Twice the logarithm of how much likelier the hole is with LL128 off than on a healthy machine; and the least
        of it without one of the sizes, which may be an outlier."""
        off = self.slower - np.clip(self.slower, self.least, self.most)
        each = (_unlikely(self.slower) - _unlikely(off)) * min(1.0, SAME / len(self.sizes))
        return float(each.sum()), float(each.sum() - each.max())


def _unlikely(off: F64) -> F64:
    """Twice the negative logarithm of how likely it is to be so far off."""
    found: F64 = (FREEDOM + 1) * np.log1p((off / SCATTER) ** 2 / FREEDOM)
    return found


def hole(setting: Setting, off: Setting, rows: Sequence[Mapping[str, Any]], odd: Collection[int]) -> Hole | None:
    """The hole of a table; None where too few sizes are of it, or it has no two ends.

    `off`: the setting without LL128; `rows`: with `size_bytes`, `measured_s` and `expected_s`, by size; `odd`: sizes
    that are no neighbors to go by.
    """
    without = {row["size_bytes"]: float(np.log(expected(off, row["size_bytes"]).time_s / row["expected_s"]))
               for row in rows}
    few = [row for row in rows if without[row["size_bytes"]] >= np.log(TOUCHED)]
    slower = {row["size_bytes"]: float(np.log(row["measured_s"] / row["expected_s"])) for row in rows}
    if len(few) < LEAST:
        return None
    sizes = tuple(row["size_bytes"] for row in few)
    beside = [size for size in without if size not in sizes and size not in odd]
    around = [*[size for size in beside if size < sizes[0]][-1:], *[size for size in beside if size > sizes[-1]][:1]]
    if len(around) < 2:
        return None
    usual = np.interp(np.log(sizes), np.log(around), [slower[size] for size in around])
    least = [min(timed(off, one, row["size_bytes"]).time_s for one in candidates(off)) / row["expected_s"]
             for row in few]
    most = np.array([without[size] for size in sizes])
    return Hole(sizes, np.array([slower[size] for size in sizes]) - usual, np.minimum(np.log(least), most), most)
