"""What narrows a range over perturbed runs: flags that are tried, one after the other, where a time is an accident."""

from collections.abc import Iterator, Sequence
from typing import Any

from collectives.formats.files import called
from sim.program.outcome import Deadlock
from sim.study.points import SPREAD_SERVICES, Task, compute
from sim.study.spec import Spec
from sim.study.tables import Row, range_words, tied_with, width_of
from sim.why.spread import RUNS
from topologies import WeftError
from topologies.units import format_size, format_time

TOO_WIDE = 0.05
"""Share of a time beyond which its range asks for a cure."""


def cures(spec: Spec, rows: Sequence[Row]) -> list[str]:
    """A line for each algorithm with a wider range than that, of its widest: the first flag that narrows it to that.

    Where it is the fastest, or tied. A flag that makes it slower than its range is none.
    """
    by_size: dict[int, list[Row]] = {}
    for row in sorted(rows, key=lambda row: float(row["time_s"])):
        by_size.setdefault(row["size_bytes"], []).append(row)
    first = [row for here in by_size.values() for row in here if row is here[0] or row["algorithm"] in tied_with(here)]
    widest = {row["algorithm"]: row for row in sorted(first, key=width_of) if width_of(row) > TOO_WIDE}
    return [_cure(spec, row) for row in widest.values()]


def _cure(spec: Spec, row: Row) -> str:
    where = f"{row['algorithm']} at {format_size(row['size_bytes'])} takes {_told(row)}"
    name = {called(one): one for one in spec.algorithms}[row["algorithm"]]
    left = SPREAD_SERVICES
    for flag, key, value in _candidates(row):
        if (left := left - (RUNS + 1) * row["events"]) < 0:
            return f"{where}, an accident; what narrows it was not tried, for it takes long ({flag})"
        try:
            other = compute(Task(spec.updated({"model": {key: value}}), name, row["size_bytes"], spread=RUNS))
        except (WeftError, Deadlock):  # it cannot run so
            continue
        if width_of(other) <= TOO_WIDE and other["time_s"] <= float(row["spread_high_s"] or row["time_s"]):
            return f"{where}, an accident; with {flag} {_told(other)}"
    return f"{where}, an accident that no flag tried narrows without more time: take the range for the answer"


def _candidates(row: Row) -> Iterator[tuple[str, str, Any]]:
    if row["rank_progress"] == "free":
        yield "--rank-progress all", "rank_progress", "all"
    for discipline in ("lowest-chunk-first", "round-robin-flow"):
        if row["discipline"] != discipline:
            yield f"--discipline {discipline}", "discipline", discipline
    yield "--tie split", "tie", "split"


def _told(row: Row) -> str:
    return f"{format_time(row['time_s'] * 1e12)}{range_words(row)}"
