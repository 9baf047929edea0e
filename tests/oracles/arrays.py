"""Collectives on real arrays: the transfers move numbers between buffers, in any order their dependencies allow.

It shares the table of transfers with the proof, and no code. Time is random: of the transfers that may start and
those in flight, any is next. A rank adds or copies what has arrived when a transfer of its own that waits for it
starts, or in the end, so that a missing dependency shows as a wrong number.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from collectives.core.pattern import Pattern
from collectives.core.transfers import Transfers


def run(pattern: Pattern, seed: int) -> None:
    """Execute a pattern on random numbers and compare with numpy; AssertionError where they differ."""
    rng = np.random.default_rng(seed)
    p, n = pattern.p, pattern.n_blocks
    given = rng.integers(-(2**40), 2**40, (p, n))
    buffers = given.copy()
    _execute(pattern, pattern.transfers(), buffers, rng)
    expected_of = _expected(pattern.kind.name, given, p, n, pattern.root)
    if pattern.kind.weights is not None:  # those with an element
        there = [b for b, weight in enumerate(pattern.kind.weights) if weight]
        expected_of = [([b], [b % p], given[b // p % p, b]) for b in there]
    for blocks, ranks, expected in expected_of:
        found = buffers[np.ix_(ranks, blocks)]
        np.testing.assert_array_equal(found, np.broadcast_to(expected, found.shape))


def _expected(name: str, given: np.ndarray, p: int, n: int, root: int) -> list[tuple[Any, Any, Any]]:
    """Blocks, the ranks that want them, and what they are to be. A block without a contribution starts as noise."""
    everyone, all_blocks = np.arange(p), np.arange(n)
    if name == "all-reduce":
        return [(all_blocks, everyone, given.sum(axis=0))]
    if name == "reduce":
        return [(all_blocks, [root], given.sum(axis=0))]
    if name == "broadcast":
        return [(all_blocks, everyone, given[root])]
    if name == "reduce-scatter":
        return [(all_blocks[r::p], [r], given.sum(axis=0)[r::p]) for r in range(p)]
    if name == "all-gather":
        return [(all_blocks[r::p], everyone, given[r, r::p]) for r in range(p)]
    if name == "gather":
        return [(all_blocks[r::p], [root], given[r, r::p]) for r in range(p)]
    if name == "scatter":
        return [(all_blocks[r::p], [r], given[root, r::p]) for r in range(p)]
    assert name == "all-to-all"
    return [(np.arange(p) * p + r, [r], [given[s, s * p + r] for s in range(p)]) for r in range(p)]


def _execute(pattern: Pattern, t: Transfers, buffers: np.ndarray, rng: np.random.Generator) -> None:
    row_of = {key: row for row, key in enumerate(zip(t.src.tolist(), t.slot.tolist(), strict=True))}
    waits = [_rows_waited_for(t, row, row_of) for row in range(t.src.size)]
    children: dict[int, list[int]] = {}
    for row, parents in enumerate(waits):
        for parent in parents:
            children.setdefault(parent, []).append(row)
    missing = [len(parents) for parents in waits]
    ready = [row for row, count in enumerate(missing) if count == 0]
    flying: list[tuple[int, np.ndarray]] = []
    staged: dict[int, np.ndarray] = {}
    picks = iter(rng.random(2 * t.src.size))
    while ready or flying:
        pick = int(next(picks) * (len(ready) + len(flying)))
        if pick < len(ready):
            row = ready.pop(pick)
            mine = [one for one in waits[row] if one in staged and t.dst[one] == t.src[row]]
            _commit(t, mine, staged, buffers, pattern)
            blocks = list(pattern.blocks_of(int(t.src[row]), int(t.slot[row])))
            flying.append((row, buffers[t.src[row], blocks].copy()))
        else:
            row, data = flying.pop(pick - len(ready))
            staged[row] = data
            for child in children.get(row, ()):
                missing[child] -= 1
                if missing[child] == 0:
                    ready.append(child)
    assert not any(missing), "transfers wait for each other in a circle"
    _commit(t, list(staged), staged, buffers, pattern)


def _rows_waited_for(t: Transfers, row: int, row_of: dict[tuple[int, int], int]) -> list[int]:
    span = range(t.dep_ptr[row], t.dep_ptr[row + 1])
    return [row_of[int(t.dep_src[at]), int(t.dep_slot[at])] for at in span if t.dep_lag[at] <= 0]


def _commit(
    t: Transfers, rows: list[int], staged: dict[int, np.ndarray], buffers: np.ndarray, pattern: Pattern
) -> None:
    for row in sorted(rows):
        blocks = list(pattern.blocks_of(int(t.src[row]), int(t.slot[row])))
        if t.reduces[row]:
            buffers[t.dst[row], blocks] += staged.pop(row)
        else:
            buffers[t.dst[row], blocks] = staged.pop(row)
