"""The judge of a library on a machine: is a table of nccl-tests what the machine can do, and if not, what limits it?

Two verdicts: against what the library is expected to choose, and against the fastest of its algorithms. A shortfall is
told apart by what it looks like: which ceiling the numbers sit at instead, whether it is the same at all sizes, and
whether larger messages are slower than smaller ones. Bandwidth is judged at the best of the measured sizes, so that one
outlier decides nothing; points that no smooth curve explains are named.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from sim.library.expected import Expected, expected, timed
from sim.library.tuner import Setting, candidates
from topologies.checks import WeftError, checked
from topologies.text.brief import one_line
from topologies.text.notebook import Tabular
from topologies.units import format_size

CLASSES = ("good", "too-small", "tree-2n", "wrong-config", "slow-hw", "slow-unknown")
GOOD = 0.8
"""Share of the expected bandwidth from which a number is good: tables of healthy machines scatter by that much."""

PLATEAU = 0.93
"""Share of the bandwidth of the largest messages below which a message is too small to judge a link by."""

LARGEST = 2**34
SOCKETS = 0.3
"""Share of the NICs below which they are not used by RDMA: sockets and copies through the host reach 0.05 to 0.26."""

SHARED = 0.55
"""Share of the NICs up to which two flows share a link somewhere."""

DIP, COLLAPSE, SAME = 0.9, 0.5, 0.06
OUTLIER = 1.5
LARGE = 2**20

Point = tuple[int, float]
"""Size in bytes, and seconds."""


@checked
@one_line
@dataclass(frozen=True)
class Diagnosis(Tabular):
    """Verdict on a table.

    Attributes
    ----------
    setting : Setting
    points : tuple of (int, float)
        Size in bytes and seconds, by size.
    verdict : str
        Of `CLASSES`.
    limit : str
        What limits it, for people.
    share : float
        Best bandwidth over that expected of the library at the same size.
    share_of_any : float
        The same, of the fastest algorithm and protocol of the library.
    outliers : tuple of int
        Sizes that no smooth curve explains.
    contradictions : tuple of int
        Sizes that took longer than larger ones.
    """

    setting: Setting
    points: tuple[Point, ...]
    verdict: str
    limit: str
    share: float
    share_of_any: float
    outliers: tuple[int, ...]
    contradictions: tuple[int, ...]

    def rows(self) -> list[dict[str, Any]]:
        """One row per point: measured, expected and why."""
        return [_row(self.setting, size, time) for size, time in self.points]


def _row(setting: Setting, size: int, time_s: float) -> dict[str, Any]:
    one = expected(setting, size)
    return {
        "size_bytes": size, "measured_s": time_s, "expected_s": one.time_s, "ratio": one.time_s / time_s,
        "busbw_GBps": _busbw(setting, size, time_s), "algorithm": one.algorithm, "protocol": one.protocol,
        "limit": one.limit,
    }


def _busbw(setting: Setting, size: int, time_s: float) -> float:
    return size / time_s / 1e9 * setting.bus_factor


@checked
def diagnose(setting: Setting, points: Sequence[Point]) -> Diagnosis:
    """Judge a table.

    Parameters
    ----------
    setting : Setting
        What ran, on what.
    points : sequence of (int, float)
        Size in bytes and seconds; several of a size count by their median.

    Raises
    ------
    WeftError
        No point, or none above zero.
    """
    times: dict[int, list[float]] = {}
    for size, time in points:
        if size > 0 and time > 0:
            times.setdefault(size, []).append(time)
    if not times:
        raise WeftError("no measured time to judge")
    table = tuple((size, statistics.median(times[size])) for size in sorted(times))
    contradictions = tuple(
        size for at, (size, time) in enumerate(table) if any(later < 0.75 * time for _, later in table[at + 1:])
    )
    steady = [point for point in table if point[0] not in contradictions] or list(table)
    rows = [_row(setting, size, time) for size, time in steady]
    verdict, limit = _verdict(setting, rows, bool(contradictions))
    best = max(rows, key=lambda row: row["busbw_GBps"])
    fastest = _fastest(setting, best["size_bytes"])
    return Diagnosis(
        setting, table, verdict, limit, best["ratio"], fastest.time_s / best["measured_s"], _outliers(table, setting),
        contradictions,
    )


def _fastest(setting: Setting, size: int) -> Expected:
    free = replace(setting, algorithms=(), protocols=())
    return min((timed(free, one, size) for one in candidates(free)), key=lambda one: one.time_s)


def _outliers(table: Sequence[Point], setting: Setting) -> tuple[int, ...]:
    """Sizes whose ratio to the expected time is off that of both neighbors."""
    ratio = [expected(setting, size).time_s / time for size, time in table]
    return tuple(
        table[at][0] for at in range(1, len(ratio) - 1)
        if not 1 / OUTLIER <= ratio[at] / statistics.median(ratio[at - 1:at + 2]) <= OUTLIER
    )


def _ceiling(setting: Setting, *algorithms: str) -> float:
    """Bus bandwidth of the largest messages, free or by some algorithms."""
    asked = replace(setting, algorithms=algorithms or setting.algorithms)
    return _busbw(asked, LARGEST, expected(asked, LARGEST).time_s)


def _verdict(setting: Setting, rows: Sequence[dict[str, Any]], contradicted: bool) -> tuple[str, str]:
    best = max(rows, key=lambda row: row["busbw_GBps"])
    top, share = float(best["busbw_GBps"]), float(best["ratio"])
    large = [row for row in rows if row["size_bytes"] >= 0.99 * LARGE and row["limit"] not in ("launch", "latency")]
    if not large and best["limit"] in ("launch", "latency"):
        return _of_small(rows)
    if collapse := _collapse(large):
        return "slow-hw", f"beyond {format_size(collapse)} larger messages are slower: packets are lost under load"
    nic = setting.nics * setting.machine.nic.port / 1e9
    of_two = setting.nodes == 2 and setting.collective == "all-reduce" and "CollNet" not in setting.algorithms
    if of_two and top > 1.03 * nic:
        return "tree-2n", "busbw passes the NICs: on two nodes a tree sends half as much as a ring; force Ring to test"
    fallback = _fallback(setting, top, share)
    if fallback:
        return "wrong-config", fallback
    if dip := _dip(large, share):
        return "wrong-config", f"from {format_size(dip)} a slower algorithm or protocol is chosen"
    slow_protocol = setting.protocols and top < 0.7 * _ceiling(replace(setting, algorithms=(), protocols=()))
    if slow_protocol:
        return "wrong-config", f"{'/'.join(setting.protocols)} is forced or chosen where another protocol is faster"
    if share >= GOOD:
        if top / share < PLATEAU * _ceiling(setting) and top < PLATEAU * _ceiling(setting):
            return "too-small", f"as expected; {format_size(best['size_bytes'])} is too small to fill the links"
        return "good", {"inside": "the links inside a node", "between": "the NICs"}.get(best["limit"], best["limit"])
    if setting.nodes == 1:
        return "slow-unknown", "the links inside a node, below what they reach elsewhere"
    return _between(setting, large or rows, top, contradicted)


def _of_small(rows: Sequence[dict[str, Any]]) -> tuple[str, str]:
    ratio = statistics.median(row["ratio"] for row in rows)
    if ratio >= 0.5:
        return "too-small", "latency, as expected: these messages say nothing of the links"
    return "slow-unknown", f"latency, {1 / ratio:.1f} times the expected one"


def _collapse(large: Sequence[dict[str, Any]]) -> int:
    """The size after which bandwidth falls to less than half and stays there; 0 if none."""
    for at, row in enumerate(large[:-1]):
        if all(later["busbw_GBps"] < COLLAPSE * row["busbw_GBps"] for later in large[at + 1:]):
            return int(row["size_bytes"])
    return 0


def _dip(large: Sequence[dict[str, Any]], share: float) -> int:
    """The size at which bandwidth falls before it rises again, where it never gets good; 0 if none."""
    for before, row in pairwise(large):
        recovers = large[-1]["busbw_GBps"] > before["busbw_GBps"]
        if recovers and row["busbw_GBps"] < DIP * before["busbw_GBps"] and share < PLATEAU:
            return int(row["size_bytes"])
    return 0


def _fallback(setting: Setting, top: float, share: float) -> str:
    """Another ceiling at which the numbers stand instead of the expected one; "" if none."""
    ring = _ceiling(replace(setting, protocols=()), "Ring") if setting.collective == "all-reduce" else 0.0
    at_ring = ring and abs(top / ring - 1) <= SAME * 2 and ring < 0.85 * _ceiling(setting)
    if not at_ring or share >= GOOD + 0.05:
        return ""
    if "CollNet" in setting.algorithms:
        return "the rate of a ring: aggregation in the network (SHARP) is not in use"
    return "the rate of a ring: reducing switches (NVLS) are not in use"


def _between(setting: Setting, rows: Sequence[dict[str, Any]], top: float, contradicted: bool) -> tuple[str, str]:
    """A shortfall between nodes."""
    nic, ports = setting.machine.nic, setting.nics
    share = top / _ceiling(setting)
    one = nic.port * nic.reached / 1e9
    if ports > 1 and abs(top / one - 1) <= SAME:
        return "slow-hw", f"one NIC of {ports} is in use"
    if share < SOCKETS:
        return "wrong-config", "the NICs are not used by RDMA: sockets, or copies through the host (GPUDirect off, ACS)"
    if share <= SHARED:
        if "ib" in nic.name:
            return "slow-hw", "two flows share a link between the switches"
        return "wrong-config", "flows collide on links between the switches: adaptive routing, or more queue pairs"
    if not contradicted and len(rows) > 2 and rows[0]["ratio"] < 0.9 * rows[-1]["ratio"]:
        return "wrong-config", "algorithm, protocol or channels: smaller messages lose more than large ones"
    if abs(top / (one * ports * 0.65) - 1) <= 0.2:
        return "slow-hw", "each NIC below its rate: not near its GPU (through the CPU), or a slow link"
    return "slow-unknown", "the NICs, below what they reach elsewhere"
