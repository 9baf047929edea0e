"""Blocks matched with lanes over time: the arrays around `_matches`. Importing it loads the compiler."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from collectives.core._matches import DRAWN, MATCHES, READY, REGISTERS, Heap, Lanes, Search, search

Ints = npt.NDArray[np.int64]

DRAWS = 1 << 15
"""Random numbers drawn at a time, or twice as many as one choice takes; progress is reported between two draws."""


class Matches(NamedTuple):
    """Blocks on lanes, in the order of their start; all arrays are (n_matches,) int64."""

    lane: Ints
    block: Ints
    start_ps: Ints
    end_ps: Ints


def match(
    n: int, n_blocks: int, ends: Sequence[tuple[int, int]], costs_ps: Sequence[int], rng: np.random.Generator,
    tell: Callable[[int], None],
) -> Matches:
    """Send every block to all NPUs: whenever a lane is free, the rarest block that its end lacks.

    Block b starts at NPU b modulo n. Where an NPU cannot be reached, there are fewer than n_blocks * (n - 1) matches.

    `ends`, `costs_ps`: of each lane its source and destination, and the time that a block takes, at least 1.
    `tell`: called with the number of matches, from time to time.
    """
    lanes, s = _lanes(n, ends, costs_ps), _nothing_sent(n, n_blocks, len(ends))
    left, done = s.draws[:0], False
    while not done:
        s.draws[: left.size] = left
        s.draws[left.size :] = rng.random(s.draws.size - left.size)
        s.at[DRAWN] = 0
        done = search(lanes, s)
        left = s.draws[s.at[DRAWN] :].copy()
        tell(int(s.at[MATCHES]))
    lane, block, start = (found[: s.at[MATCHES]] for found in (s.found_lane, s.found_block, s.found_ps))
    return Matches(lane, block, start, start + lanes.cost_ps[lane])


def _lanes(n: int, ends: Sequence[tuple[int, int]], costs_ps: Sequence[int]) -> Lanes:
    src, dst = np.array(ends, np.int64).reshape(-1, 2).T.copy()
    ptr = np.concatenate((np.zeros(1, np.int64), np.cumsum(np.bincount(src, minlength=n))))
    return Lanes(src, dst, np.array(costs_ps, np.int64), ptr, np.argsort(src, kind="stable"))


def _nothing_sent(n: int, n_blocks: int, n_lanes: int) -> Search:
    """The state before the search."""
    holds = np.zeros((n, n_blocks), np.bool_)
    holds[np.arange(n_blocks) % n, np.arange(n_blocks)] = True
    lane, block, start = (np.empty(n_blocks * (n - 1), np.int64) for _ in range(3))
    able, flying = (Heap(np.empty(n_lanes, np.int64), np.empty(n_lanes), np.empty(n_lanes, np.int64)) for _ in range(2))
    at = np.zeros(REGISTERS, np.int64)
    at[READY] = n_lanes
    return Search(
        held=_bits(holds),
        missing=_bits(~holds),
        holders=np.ones(n_blocks, np.int64),
        free=np.ones(n_lanes, np.bool_),
        is_ready=np.ones(n_lanes, np.bool_),
        block=np.empty(n_lanes, np.int64),
        ready=np.arange(n_lanes),
        able=able,
        flying=flying,
        draws=np.empty(max(DRAWS, 2 * n_lanes, 2 * n_blocks)),
        found_lane=lane,
        found_block=block,
        found_ps=start,
        at=at,
    )


def _bits(rows: npt.NDArray[np.bool_]) -> Ints:
    """Rows of words: block b is bit b % 64 of word b // 64."""
    padded = np.zeros((len(rows), -(-rows.shape[1] // 64) * 64), np.bool_)
    padded[:, : rows.shape[1]] = rows
    return np.packbits(padded, axis=1, bitorder="little").view("<i8").astype(np.int64)
