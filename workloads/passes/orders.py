"""Orders of passes through a pipeline: for each rank, what it computes one after the other.

A slot is what a rank computes at one time: one pass, or the two that DualPipe overlaps. A pass is (kind, chunk,
microbatch): "F" is the forward pass, "BW" the backward pass, which "B" (gradient of the input) and "W" (of the
weights) take apart. A chunk is a stage on a rank that has several of them.

References
----------
.. [1] D. Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM", SC 2021.
.. [2] P. Qi, X. Wan, G. Huang, M. Lin, "Zero Bubble Pipeline Parallelism", ICLR 2024 (arXiv 2401.10241).
.. [3] DeepSeek-AI, "DeepSeek-V3 Technical Report", arXiv 2412.19437; deepseek-ai/DualPipe.
"""

from collections import deque
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import NamedTuple

from topologies.checks import WeftError, choice


class Pass(NamedTuple):
    """One pass of a rank."""

    kind: str  # F, BW, B or W
    chunk: int
    batch: int


Slot = tuple[Pass, ...]


class Order(NamedTuple):
    """A schedule of p ranks, v chunks a rank and m microbatches."""

    slots: Callable[[int, int, int], list[list[Slot]]]  # (p, v, m) -> of each rank
    stages: Callable[[int, int], list[list[int]]]  # (p, v) -> stage of each rank and chunk
    chunks: int = 1  # that it needs; 0: any
    ways: int = 1  # directions in which microbatches travel
    splits: bool = False  # whether B and W are apart


def _one(kind: str, batch: int, chunk: int = 0) -> Slot:
    return (Pass(kind, chunk, batch),)


def _alternating(p: int, m: int, warm: Callable[[int], int], late: Callable[[int], int] | None) -> list[list[Slot]]:
    """Forward passes ahead, then one forward and one backward; `late`: B that W waits for, None where they are one."""
    def rank(r: int) -> Iterator[Slot]:
        ahead, behind = min(warm(r), m), 0 if late is None else late(r)
        yield from (_one("F", batch) for batch in range(ahead))
        for batch in range(m + behind):
            if batch + ahead < m:
                yield _one("F", batch + ahead)
            if batch < m:
                yield _one("BW" if late is None else "B", batch)
            if late is not None and 0 <= batch - behind < m:
                yield _one("W", batch - behind)

    return [list(rank(r)) for r in range(p)]


def _interleaved(p: int, v: int, m: int) -> list[list[Slot]]:
    """[1], section 2.2: groups of p microbatches, or of a few more so that none is smaller, go through all chunks."""
    size = next((n for n in range(p, m) if m % n == 0 or m % n >= p), m)
    groups = [range(first, min(first + size, m)) for first in range(0, m, size)]
    every = [(chunk, batch) for group in groups for chunk in range(v) for batch in group]

    def rank(r: int) -> Iterator[Slot]:
        ahead = min(2 * (p - r - 1) + (v - 1) * size, m * v)
        yield from (_one("F", batch, chunk) for chunk, batch in every[:ahead])
        for x, (chunk, batch) in enumerate(every):
            if x + ahead < m * v:
                yield _one("F", every[x + ahead][1], every[x + ahead][0])
            yield _one("BW", batch, v - 1 - chunk)

    return [list(rank(r)) for r in range(p)]


def _v_shape(p: int, v: int, m: int) -> list[list[Slot]]:
    """[2], section 6: rank r holds stages r and 2p - 1 - r; F, B and W of both by turns."""
    if m < 2 * p - 1:
        raise WeftError(f"zb-v: {p} ranks need at least {2 * p - 1} microbatches; there are {m}")

    def rank(r: int) -> Iterator[Slot]:
        counts = [dict.fromkeys("FBW", 0), dict.fromkeys("FBW", 0)]

        def some(kinds: str, chunk: int) -> Iterator[Slot]:
            for kind in kinds:
                yield _one(kind, counts[chunk][kind], chunk)
                counts[chunk][kind] += 1

        yield from some("F" * (2 * (p - r) - 1), 0)
        for _ in range(r):
            yield from (*some("F", 1), *some("F", 0))
        for _ in range(p - r):
            yield from some("FBW", 1)
        while counts[1]["F"] < m:
            yield from some("FBW" if counts[0]["F"] < m else "BW", 0)
            yield from some("FBW", 1)
        for _ in range(r):
            yield from (*some("B", 0), *some("B", 1))
        for _ in range(p - r):
            yield from some("BW", 0)
        for chunk in (1, 0):
            yield from some("W" * (m - counts[chunk]["W"]), chunk)

    return [list(rank(r)) for r in range(p)]


def _dualpipe(p: int, v: int, m: int) -> list[list[Slot]]:
    """[3], figure 5: the eight phases of each rank; chunk 0 and 1 are the directions, the nearer end's first."""
    if p % 2 or m % 2 or m < 2 * p:
        raise WeftError(f"dualpipe: needs even numbers of stages and microbatches, of these at least twice as many; "
                        f"there are {p} and {m}")

    def rank(r: int) -> Iterator[Slot]:
        half, n = p // 2, m // 2
        u, near = (r, 0) if r < half else (p - 1 - r, 1)
        left = {(kind, way): 0 for kind in ("F", "B", "W") for way in (0, 1)}
        split: deque[Pass] = deque()

        def one(kind: str, way: int) -> Pass:
            key = ("B" if kind == "BW" else kind), way ^ near
            left[key] += 1
            return Pass(kind, way ^ near, left[key] - 1)

        def half_of(way: int) -> Pass:
            found = one("B", way)
            split.append(found._replace(kind="W"))
            return found

        for _ in range(2 * (half - u - 1)):
            yield (one("F", 0),)
        for _ in range(u + 1):
            yield (one("F", 0),)
            yield (one("F", 1),)
        for _ in range(half - u - 1):
            yield (half_of(1),)
            yield (split.popleft(),)
            yield (one("F", 1),)
        for _ in range(n - p + u + 1):
            yield one("F", 0), one("BW", 1)
            yield one("F", 1), one("BW", 0)
        for _ in range(half - u - 1):
            yield (one("BW", 1),)
            yield one("F", 1), one("BW", 0)
        for number in range(u + 1):
            middle = (u + 1) // 2
            yield (half_of(1) if number > middle or (number == middle and u % 2) else one("BW", 1),)
            yield (half_of(0) if number >= middle else one("BW", 0),)
        for _ in range(half - u - 1):
            yield (split.popleft(),)
            yield (half_of(0),)
        while split:
            yield (split.popleft(),)

    return [list(rank(r)) for r in range(p)]


def _straight(p: int, v: int) -> list[list[int]]:
    return [[chunk * p + r for chunk in range(v)] for r in range(p)]


ORDERS = {
    "gpipe": Order(lambda p, v, m: [[_one(kind, batch) for kind in ("F", "BW") for batch in range(m)]
                                    for _ in range(p)], _straight),
    "1f1b": Order(lambda p, v, m: _alternating(p, m, lambda r: p - r - 1, None), _straight),
    "interleaved": Order(_interleaved, _straight, chunks=0),
    "zb-h1": Order(lambda p, v, m: _alternating(p, m, lambda r: p - r - 1, lambda r: r), _straight, splits=True),
    "zb-h2": Order(lambda p, v, m: _alternating(p, m, lambda r: 2 * (p - r - 1), lambda r: 2 * r), _straight,
                   splits=True),
    "zb-v": Order(_v_shape, lambda p, v: [[r, 2 * p - 1 - r] for r in range(p)], chunks=2, splits=True),
    "dualpipe": Order(_dualpipe, lambda p, v: [[r, p - 1 - r] for r in range(p)], chunks=2, ways=2, splits=True),
}


@lru_cache(maxsize=4)
def slots_of(name: str, p: int, v: int, m: int) -> list[list[Slot]]:
    """The slots of all ranks, made once."""
    return ORDERS[name].slots(p, v, m)


def order_of(name: str) -> Order:
    """The order of that name; WeftError: there is none."""
    return ORDERS[choice(name, ORDERS, "schedule")]
