"""Things by what they have in common, and numbers by the ranges that they fill."""

from collections.abc import Hashable, Iterable
from itertools import groupby
from typing import TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


def grouped(pairs: Iterable[tuple[K, V]]) -> dict[K, list[V]]:
    """The second of each pair under its first, both in the order in which they come.

    Examples
    --------
    >>> grouped((len(word), word) for word in ("torus", "ring", "swing"))
    {5: ['torus', 'swing'], 4: ['ring']}
    """
    found: dict[K, list[V]] = {}
    for key, value in pairs:
        found.setdefault(key, []).append(value)
    return found


def in_ranges(numbers: Iterable[int]) -> str:
    """Distinct numbers as text: "0-3,8"."""
    runs = groupby(enumerate(sorted(numbers)), lambda one: one[1] - one[0])
    ends = ((run[0][1], run[-1][1]) for run in (list(some) for _, some in runs))
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ends)
