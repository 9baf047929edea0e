"""What a judge says of one table, whatever it ran on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from sim.measured.evidence import Point
from sim.measured.fit import Interval
from topologies.text.brief import one_line
from topologies.text.notebook import Tabular

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
    notes: tuple[str, ...]
    expected: tuple[Mapping[str, Any], ...]  # one row per point; see `rows`

    @property
    def fine(self) -> bool:
        """Whether nothing is wrong."""
        return self.verdict in FINE

    def rows(self) -> list[dict[str, Any]]:
        """One row per point: measured and expected time, bus bandwidth, algorithm, protocol and limit."""
        return [dict(row) for row in self.expected]
