"""GPUs in PCIe slots, of which a table says how far each is from each: switches, host bridges and sockets."""

import re
from collections.abc import Callable, Sequence
from functools import partial

from topologies.core.links import Cable
from topologies.units import Quantities, Quantity

NAMES = ("switch", "bridges", "host", "numa")
"""What joins GPUs at each level: a PCIe switch, several, a host bridge, a NUMA node; above, every two of them meet."""

_ESCAPES = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_PREFIX = re.compile(r"^\s*(?:(?:\[[\d,]+\]<std\w+>:?|[\w.-]+:)\s*)+(?=GPU|NIC|mlx)")


def plain_lines(text: str) -> list[str]:
    """The lines of a table, without colors and what launchers put before them."""
    return [_PREFIX.sub("", line) for line in _ESCAPES.sub("", text).splitlines()]


def tree(npus: Sequence[str], level: Callable[[int, int], int], rate_Bps: float, latency_ps: int, tier: int
         ) -> tuple[list[str], list[Cable]]:
    """Switches and cables, all of one rate.

    `level`: of two GPUs, the place in `NAMES` of what joins them; above the last, sockets.
    """
    switches: list[str] = []
    cables: list[Cable] = []

    def cable(one: str, other: str) -> None:
        cables.append(Cable((one, other), rate_Bps, latency_ps, tier))

    tops = list(npus)
    of = dict(zip(range(len(npus)), npus, strict=True))  # the node that a GPU is under, so far
    for at, name in enumerate(NAMES):
        for group in _groups(len(npus), partial(_within, level, at)):
            below = list(dict.fromkeys(of[gpu] for gpu in group))
            if len(below) < 2:
                continue
            new = f"{name}{sum(one.startswith(name) for one in switches)}"
            switches.append(new)
            for one in below:
                cable(one, new)
            of |= dict.fromkeys(group, new)
    tops = list(dict.fromkeys(of.values()))
    if len(tops) > 1:
        for at, one in enumerate(tops):
            if one in npus:
                switches.append(f"socket-{one}")
                cable(one, f"socket-{one}")
                tops[at] = f"socket-{one}"
        for at, one in enumerate(tops):
            for other in tops[:at]:
                cable(other, one)
    return switches, cables


def _within(level: Callable[[int, int], int], most: int, a: int, b: int) -> bool:
    return level(a, b) <= most


def _groups(n: int, joined: Callable[[int, int], bool]) -> list[list[int]]:
    """Parts of 0 to n-1 that pairs connect."""
    found: list[list[int]] = []
    left = list(range(n))
    while left:
        group = [left.pop(0)]
        for one in group:
            near = [other for other in left if joined(one, other)]
            group += near
            left = [other for other in left if other not in near]
        found.append(sorted(group))
    return found


def listed(bandwidth: Quantities | None) -> list[Quantity]:
    """The bandwidths that are given, also as one text with commas."""
    if bandwidth is None:
        return []
    if isinstance(bandwidth, str):
        return list(bandwidth.split(","))
    return [bandwidth] if isinstance(bandwidth, (int, float)) else list(bandwidth)


def reached(joined: Sequence[Sequence[object]]) -> set[int]:
    """Which of several the first reaches, by who is joined to whom."""
    seen, open_ = {0}, [0]
    while open_:
        fresh = {other for other, link in enumerate(joined[open_.pop()]) if link} - seen
        seen |= fresh
        open_ += fresh
    return seen
