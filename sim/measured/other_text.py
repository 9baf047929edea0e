"""Text of the OSU micro-benchmarks and of hccl_test, the tests of Huawei's HCCL.

OSU's all-gather and all-to-all report the bytes of one pair of ranks, which is 1/p of the whole array; hccl_test
reports the whole array, and not which collective it was.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sim.measured.points import Measurements, measured
from topologies.checks import WeftError

OSU_TESTS = {
    "allreduce": "all-reduce", "reduce_scatter": "reduce-scatter", "allgather": "all-gather",
    "all-to-all personalized exchange": "all-to-all", "broadcast": "broadcast", "reduce": "reduce",
}
"""Titles of OSU tests, between "OSU MPI" (or NCCL) and "Latency Test", which not all versions print."""

_PER_PAIR = ("all-gather", "all-to-all")
"""Collectives for which OSU counts the bytes of one pair of ranks."""

_OSU_TITLE = re.compile(
    r"^#\s*OSU (?:MPI|NCCL|RCCL|XCCL)(?:-\w+)? (.+?)(?: Latency)?(?: Test)?(?:\s+v[\d.]+)?$", re.IGNORECASE
)

_HCCL_HEAD = ("data_size(Bytes):", "alg_bandwidth(GB/s):")
_HCCL_TIMES = ("aveg_time(us):", "avg_time(us):")
"""As the program prints it, and as its manual spells it."""


def is_osu(lines: Sequence[str]) -> bool:
    """Whether a title of OSU is there."""
    return any(_OSU_TITLE.match(line) for line in lines)


def is_hccl(lines: Sequence[str]) -> bool:
    """Whether the head of a table of hccl_test is there."""
    return any(all(word in line for word in _HCCL_HEAD) for line in lines)


def hccl_text(lines: Sequence[str], name: str, collective: str | None) -> Measurements:
    """Columns are found by their names."""
    columns: list[str] = []
    rows: list[tuple[str, Any, Any]] = []
    for number, line in enumerate(lines, start=1):
        cells = [cell.strip() for cell in line.split("|")]
        if all(word in cells for word in _HCCL_HEAD):
            columns = cells
        elif columns and cells[0][:1].isdecimal():
            if len(cells) != len(columns):
                raise WeftError(f"{name}, line {number}: {len(cells)} of {len(columns)} columns: is the file cut off?")
            row = dict(zip(columns, cells, strict=True))
            if row.get("check_result:") == "failed":
                raise WeftError(f"{name}, line {number}: the result was wrong (check_result failed)")
            time = next((row[word] for word in _HCCL_TIMES if word in row), None)
            if time is None:
                raise WeftError(f"{name}, line {number}: the table has no column {' or '.join(_HCCL_TIMES)}")
            rows.append((f"line {number}", row["data_size(Bytes):"], time))
    return measured(name, "HCCL text", rows, collective)


def osu_text(lines: Sequence[str], name: str, n_ranks: int | None) -> Measurements:
    kind, columns = None, 0
    notes: tuple[str, ...] = ()
    last = max(number for number, line in enumerate(lines, start=1) if line.strip())
    rows: list[tuple[str, Any, Any]] = []
    for number, line in enumerate(lines, start=1):
        if title := _OSU_TITLE.match(line):
            test = title[1].lower()
            if test not in OSU_TESTS:
                raise WeftError(f"{name}, line {number}: the test {title[1]!r} is not one of {', '.join(OSU_TESTS)}")
            kind = OSU_TESTS[test]
        elif line.startswith("# Size"):
            heads = re.split(r"\s{2,}", line.lstrip("# ").rstrip())
            if heads[1:2] != ["Avg Latency(us)"]:
                raise WeftError(f"{name}, line {number}: the second column is {heads[1:2]}, not Avg Latency(us)")
            columns = len(heads)
        elif line[:1].isdecimal():
            words = line.split()
            if len(words) < max(columns, 2):
                if number == last:
                    notes = (f"the last row ({words[0]} B) is cut off, and left out",)
                    continue
                raise WeftError(f"{name}, line {number}: {len(words)} of {columns} columns: is the file cut off?")
            rows.append((f"line {number}", words[0], words[1]))
    if not columns:
        raise WeftError(f"{name} has no line '# Size  Avg Latency(us)'")
    assert kind is not None
    if kind in _PER_PAIR and n_ranks is None:
        raise WeftError(f"{name} counts the bytes of a pair of ranks: the number of ranks is needed")
    found = measured(name, "OSU text", rows, kind, size_factor=n_ranks if kind in _PER_PAIR and n_ranks else 1)
    return replace(found, left_out=found.left_out + len(notes), notes=notes)
