"""Measured times, whatever they were read from, units of their tables, and errors of simulated times against them."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from topologies.checks import WeftError, checked
from topologies.grouped import grouped
from topologies.text.brief import one_line

PLACEMENTS = ("out-of-place", "in-place")
MOST_BYTES, MOST_US = 2**50, 1e12
"""Of one array, and of one collective: eleven days."""


class Point(NamedTuple):
    """One measurement: bytes of the whole array, and seconds."""

    size_bytes: int
    time_s: float


@checked
@one_line
@dataclass(frozen=True)
class Measurements:
    """Points of one collective.

    Attributes
    ----------
    source : str
        The file.
    format : str
        For people: "nccl-tests JSON".
    points : tuple of Point
        By size; empty arrays and untimed rows are left out.
    left_out : int
        How many were.
    collective : str or None
        If the file states it.
    n_ranks : int or None
        Likewise.
    hosts : int or None
        Nodes that the header of nccl-tests lists.
    device : str
        GPU that it names first, such as "NVIDIA H100 80GB HBM3"; "" if none.
    version : str
        Of the library, such as "2.27"; "" if none.
    gpus_per_process : int or None
        As its header says.
    wrong : int
        Results that the program found wrong.
    notes : tuple of str
        What of the file was not as it should be, for people.
    others : tuple of Point
        Of the other placement, in place if the points are out of place.
    """

    source: str
    format: str
    points: tuple[Point, ...]
    left_out: int = 0
    collective: str | None = None
    n_ranks: int | None = None
    hosts: int | None = None
    device: str = ""
    version: str = ""
    gpus_per_process: int | None = None
    wrong: int = 0
    notes: tuple[str, ...] = ()
    others: tuple[Point, ...] = ()


def measured(
    source: str, format: str, rows: Sequence[tuple[str, Any, Any]], collective: str | None, n_ranks: int | None = None,
    others: Sequence[tuple[Any, Any]] = (), *, size_factor: int = 1,
) -> Measurements:
    """Points of (where, size in bytes, time in us); empty arrays and missing times are counted.

    `others`: size and time in the other placement; whatever is no time of it is left out.
    """
    points, left_out = [], 0
    for where, size, time_us in rows:
        try:
            number, time = int(size), float(time_us)
        except (TypeError, ValueError, OverflowError):
            raise WeftError(f"{source}, {where}: size {size!r} or time {time_us!r} is not a number") from None
        fraction = isinstance(size, float) and size != number
        if not 0 <= number <= MOST_BYTES or fraction or time < 0 or time > MOST_US:
            raise WeftError(f"{source}, {where}: size {size!r} or time {time_us!r} is out of range")
        if number == 0 or not time > 0:
            left_out += 1
        else:
            points.append(Point(number * size_factor, time / 1e6))
    beside = tuple(
        Point(size * size_factor, float(time) / 1e6) for size, time in others
        if isinstance(size, int) and isinstance(time, (int, float)) and 0 < time < float("inf") and size > 0
    )
    return Measurements(source, format, tuple(points), left_out, collective, n_ranks, others=beside)


def with_measured(rows: Sequence[Mapping[str, Any]], measured: Measurements) -> list[dict[str, Any]]:
    """Rows of simulated points with the mean of the measured times at their size, and the relative error.

    `rows`: with `size_bytes` and `time_s`, at sizes that were measured.
    """
    times = grouped((point.size_bytes, point.time_s) for point in measured.points)
    means = {size: math.fsum(found) / len(found) for size, found in times.items()}
    return [
        {**row, "measured_s": means[row["size_bytes"]], "error": row["time_s"] / means[row["size_bytes"]] - 1}
        for row in rows
    ]


def mean_error(rows: Iterable[Mapping[str, Any]]) -> float:
    """Mean of the absolute relative errors."""
    errors = [abs(row["error"]) for row in rows]
    return math.fsum(errors) / len(errors)


def geometric_error(rows: Iterable[Mapping[str, Any]]) -> float:
    """Geometric mean of the factor by which times are too slow or too fast; 1 is exact."""
    logs = [abs(math.log1p(row["error"])) for row in rows]
    return math.exp(math.fsum(logs) / len(logs))


TIMES = {
    "ns": 1e-3, "nsec": 1e-3, "us": 1.0, "usec": 1.0, "μs": 1.0, "µs": 1.0, "ms": 1e3, "msec": 1e3, "s": 1e6,
    "sec": 1e6, "seconds": 1e6, "milliseconds": 1e3, "microseconds": 1.0, "nanoseconds": 1e-3,
}
SIZES: dict[str, float] = {"b": 1, "bytes": 1, "byte": 1, "kib": 2**10, "mib": 2**20, "gib": 2**30}
_RATE = re.compile(r"([KMGT]?)(i?)(B|bits?|b)(?:/s(?:ec)?|ps)")
_POWER = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}


def scale(column: str, unit: str, where: str) -> float:
    """What a number of a column is multiplied by: 1 of bytes, of us, of GB/s.

    `column`: size, time, algbw or busbw.
    WeftError: a unit that is not known, or that may be of bits or bytes.
    """
    known: float | None
    if column == "size":
        known, accepted = SIZES.get(unit.lower()), "B, KiB, MiB, GiB (KB may be of 1000 or 1024)"
    elif column == "time":
        known, accepted = TIMES.get(unit.lower()), "ns, us, ms, s"
    else:
        known, accepted = _rate(unit), "GB/s and GiB/s of bytes, Gb/s and Gbps of bits, also with K, M, T"
    if known is None:
        raise WeftError(f"{where}: the unit {unit!r} of {column} is not known: {accepted} are")
    return known


def _rate(unit: str) -> float | None:
    found = _RATE.fullmatch(unit)
    if found is None:
        return None
    base = 1024 if found[2] else 1000
    return float(base ** _POWER[found[1]]) / 1e9 / (1 if found[3] == "B" else 8)
