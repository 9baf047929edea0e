"""What a judge says of one table, and what points say by themselves: contradictions, outliers, breaks."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise, takewhile
from typing import Any, NamedTuple

import numpy as np

from sim.analytic.traffic import F64
from sim.measured.fit import Interval
from topologies.grouped import grouped
from topologies.text.brief import Tabular, one_line
from topologies.units import format_size

Point = tuple[int, float]
"""Size in bytes, and seconds."""

FALLS = 0.75
"""A time of which a larger size takes less than this contradicts it."""

OUTLIER = 1.5
COLLAPSE = 0.5
PICKED = 5
DELAYED, LARGE = 2.0, 2**20
LEAST_SEGMENT = 3
UNSTEADY, LEAST_UNSTEADY, HOPELESS = 1 / 3, 3, 1 / 2
"""Share of the sizes, and number, that contradict others from which a table is not good: public tables of healthy
machines have up to a quarter; share from which it says nothing at all."""

CONSISTENT = 1.4826
"""Standard deviation over the median of distances, of normal deviations."""

MOST_SIZES = 1000
"""Of a table that is judged."""

NEAR = 0.95
"""Share of the best bandwidth that is as good: on a plateau noise picks the best size, and the largest says most."""

BREAK = 0.03
"""Root mean square of relative errors up to which pieces are good enough: tables repeat to that."""

WORTH = 12.0
"""What a break must save of n ln(error^2): two more parameters and the place of the break, with some certainty."""


def by_size(points: Sequence[Point]) -> tuple[Point, ...]:
    """The points by size, several of a size by their median; empty ones are left out."""
    times = grouped((size, time) for size, time in points if size > 0 and time > 0)
    return tuple((size, statistics.median(times[size])) for size in sorted(times))


def curved(logs: Sequence[float]) -> list[float]:
    """How far each is from the middle of its neighbors, as deviations of one: a slope or a step says nothing."""
    steps = [other - one for one, other in pairwise(logs)]
    return [(one - other) / 2 / math.sqrt(1.5) for one, other in pairwise(steps)]


def spread(deviations: Sequence[float]) -> float:
    """Their standard deviation, but for outliers."""
    return CONSISTENT * statistics.median(map(abs, deviations)) if deviations else 0.0


def repeats(points: Sequence[Point]) -> tuple[int, ...]:
    """Sizes that were measured several times and differ as no healthy machine does."""
    times = grouped(points)
    return tuple(size for size in sorted(times) if max(times[size]) > OUTLIER * min(times[size]) > 0)


def unsteady(points: Sequence[Point], fine: bool, against: Sequence[int], *odd: Sequence[int]) -> str:
    """Why the points say nothing together, for people; "" if they do.

    `fine`: whether nothing else is wrong; `against`: sizes that contradict others; `odd`: further ones.
    """
    few = set(against).union(*odd) if fine else set(against)
    if len(few) < LEAST_UNSTEADY or len(few) <= (UNSTEADY if fine else HOPELESS) * len(points):
        return ""
    return (f"nothing that can be told: {len(few)} of {len(points)} sizes contradict others, or themselves when "
            "repeated: measure again, with more iterations")


def contradictions(points: Sequence[Point]) -> tuple[int, ...]:
    """The fewest sizes without which no size takes much less than a smaller one; of as few, the smaller ones."""
    chains: list[tuple[int, float, tuple[int, ...]]] = []  # number of points, the longest time, the sizes
    for size, time in points:
        longer = max((one for one in chains if one[1] < time), default=(0, time, ()))
        chains = [
            (number + 1, most, (*sizes, size)) if FALLS * most <= time <= most else (number, most, sizes)
            for number, most, sizes in chains
        ]
        chains.append((longer[0] + 1, time, (*longer[2], size)))
    kept_sizes = set(max(chains, key=lambda one: (one[0], one[2][-1]), default=(0, 0.0, ()))[2])
    return tuple(size for size, _ in points if size not in kept_sizes)


def outliers(sizes: Sequence[int], ratios: Sequence[float]) -> tuple[int, ...]:
    """Sizes whose ratio to the expected time is off those of both neighbors."""
    return tuple(
        sizes[at] for at in range(1, len(ratios) - 1)
        if not 1 / OUTLIER <= ratios[at] / statistics.median(ratios[at - 1:at + 2]) <= OUTLIER
    )


def best(points: Sequence[Point]) -> int:
    """The largest size with a bandwidth near the best."""
    most = max(size / time for size, time in points)
    return max(size for size, time in points if size / time >= NEAR * most)


def steadiest(points: Sequence[Point], ratios: Sequence[float]) -> int:
    """The best size where single ones are luck: of those near the best of the curve that medians of five ratios make,
    the one nearest to it."""
    last = len(ratios) - 5
    usual = [statistics.median(ratios[max(0, min(at - 2, last)):][:5]) for at in range(len(ratios))]
    smooth = [size / time * middle / ratio for (size, time), middle, ratio in zip(points, usual, ratios, strict=True)]
    near = [at for at, rate in enumerate(smooth) if rate >= NEAR * max(smooth)]
    return points[min(near, key=lambda at: abs(np.log(ratios[at] / usual[at])))][0]


def collapse(points: Sequence[Point]) -> int:
    """The size after which bandwidth falls to less than half and stays there; 0 if none.

    For two sizes or more, since one may be an outlier; but of a few points that somebody picked none is.
    """
    rates = [size / time for size, time in points]
    for at, (size, _) in enumerate(points[:-2] if len(points) > PICKED else points[:-1]):
        if max(rates[at + 1:]) < COLLAPSE * rates[at]:
            return size
    return 0


def slow_at_first(rows: Sequence[Mapping[str, Any]], than: str = "the expected time") -> str:
    """The small sizes that are slow, for people, where there are several, or no others of them."""
    small = [row for row in rows if row["size_bytes"] < LARGE]
    slow = list(takewhile(lambda row: row["ratio"] < 1 / DELAYED, small))
    if len(slow) < min(2, max(1, len(small))):
        return ""
    sizes = " to ".join(dict.fromkeys(format_size(row["size_bytes"]) for row in (slow[0], slow[-1])))
    return f"small messages are slow: {sizes}, {1 / statistics.median(row['ratio'] for row in slow):.1f} times {than}"


def breaks(points: Sequence[Point]) -> tuple[int, ...]:
    """Sizes after which another latency and rate hold: where a protocol or an algorithm ends.

    The curve is cut into lines time = a + b size with the fewest cuts that relative errors justify; the best cuts of
    each number by dynamic programming.
    """
    n = len(points)
    most = min(5, n // LEAST_SEGMENT)
    if most < 2:
        return ()
    table = np.array(points, np.float64)

    @cache
    def error(first: int, last: int) -> float:
        return _line_error(table[first:last])

    @cache
    def best(last: int, pieces: int) -> tuple[float, tuple[int, ...]]:
        if pieces == 1:
            return error(0, last), ()
        return min(
            (best(at, pieces - 1)[0] + error(at, last), (*best(at, pieces - 1)[1], at))
            for at in range(LEAST_SEGMENT * (pieces - 1), last - LEAST_SEGMENT + 1)
        )

    found: tuple[int, ...] = ()
    score = _score(best(n, 1)[0], n)
    for pieces in range(2, most + 1):
        if best(n, pieces - 1)[0] / n < BREAK**2:
            break
        total, cuts = best(n, pieces)
        if _score(total, n) < score - WORTH:
            found, score = cuts, _score(total, n)
    return tuple(points[at - 1][0] for at in found)


def _score(total: float, n: int) -> float:
    return n * float(np.log(max(total / n, 1e-4)))


def _line_error(table: F64) -> float:
    """Sum of squared relative errors of the best line with no negative latency or rate."""
    sizes, times = table.T
    rows = np.stack([1 / times, sizes / times], axis=1)
    scale = np.linalg.norm(rows, axis=0)
    solved = np.linalg.lstsq(rows / scale, np.ones(len(times)), rcond=None)[0] / scale
    if solved.min() < 0:  # one of the two alone
        alone = [rows[:, at] @ np.ones(len(times)) / (rows[:, at] @ rows[:, at]) for at in (0, 1)]
        return float(min(np.sum((rows[:, at] * alone[at] - 1) ** 2) for at in (0, 1)))
    return float(np.sum((rows @ solved - 1) ** 2))


CLASSES = (
    "good", "too-small", "tree-2n", "wrong-config", "slow-hw", "slow-unknown", "cannot-say", "impossible", "corrupt",
)
FINE, SAYS_NOTHING = CLASSES[:3], CLASSES[6:]
"""Classes in which nothing is wrong, and those of tables that say nothing of a machine."""

GOOD = 0.8
"""Share of the expected bandwidth from which a number is good: tables of healthy machines scatter by that much."""

PLATEAU = 0.93
"""Share of the bandwidth of the largest messages below which a message is too small to judge a link by."""


class Rate(NamedTuple):
    """What the links of a class, or latencies, reach: a share or factor, and whether the points determine it."""

    name: str
    share: Interval
    determined: bool
    nominal: str
    apart: bool = False  # whether tables disagree, so that one rate for all means nothing


def corrupted(wrong: int) -> tuple[str, str, str]:
    """Verdict, cause and words where results are wrong: no time matters then."""
    return "corrupt", "data-corruption", (f"nothing: the results are wrong (#wrong, or out of bounds: {wrong:,}): data "
                                          "is corrupted, by memory, links, driver or library")


@one_line
@dataclass(frozen=True, kw_only=True)
class Diagnosis(Tabular):
    """Verdict on a table."""

    source: str  # the file, or another name of the table
    ran: str  # what ran on what, for people
    collective: str
    # nics: ports in use of a node; 0 where none is, or nobody knows
    nodes: int
    n_ranks: int
    nics: int
    points: tuple[Point, ...]  # size in bytes and seconds, by size
    verdict: str  # of `CLASSES`
    cause: str  # in a word, such as "one-nic"; "healthy" where nothing is wrong
    limit: str  # what limits it, for people
    algorithm: str  # that of the best size
    best_bytes: int  # the largest size near the best bandwidth
    # share, share_of_any: its bandwidth over what this algorithm should reach at the same size on this machine,
    # and over what the fastest algorithm does
    share: float
    share_of_any: float
    # its bandwidth over that of the raw links, whatever the algorithm; None where that is expensive to compute
    share_of_bound: float | None
    bound_reduces: bool  # whether switches reduce in that bound
    rates: tuple[Rate, ...]
    # switches, breaks: sizes after which another protocol or algorithm is expected, and at which the measured
    # curve breaks
    switches: tuple[int, ...]
    breaks: tuple[int, ...]
    outliers: tuple[int, ...]  # sizes that no smooth curve explains
    contradictions: tuple[int, ...]  # sizes without which no time falls much with size
    repeats: tuple[int, ...]  # sizes that were measured several times, and differ by half and more
    condition: str  # what was assumed and the verdict rests on; "" if nothing
    but: str  # what is slow though the verdict is fine; "" if nothing
    notes: tuple[str, ...]
    expected: tuple[Mapping[str, Any], ...]  # one row per point; see `rows`

    @property
    def fine(self) -> bool:
        """Whether nothing is wrong."""
        return self.verdict in FINE

    def rows(self) -> list[dict[str, Any]]:
        """One row per point: measured and expected time, bus bandwidth, algorithm, protocol and limit."""
        return [dict(row) for row in self.expected]
