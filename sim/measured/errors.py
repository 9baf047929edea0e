"""Simulated against measured times, size by size."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sim.measured.points import Measurements


def with_measured(rows: Sequence[Mapping[str, Any]], measured: Measurements) -> list[dict[str, Any]]:
    """Rows of simulated points with the mean of the measured times at their size, and the relative error.

    `rows`: with `size_bytes` and `time_s`, at sizes that were measured.
    """
    times: dict[int, list[float]] = {}
    for point in measured.points:
        times.setdefault(point.size_bytes, []).append(point.time_s)
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
