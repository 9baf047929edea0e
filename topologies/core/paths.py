"""Routes as arrays."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from topologies.checks import checked
from topologies.text.brief import one_line

Ints = npt.NDArray[np.int64]


@checked
@one_line
class Paths(NamedTuple):
    """Routes in CSR form.

    Route i serves pair `pair[i]` and crosses `links[ptr[i]:ptr[i+1]]`, in order; it is empty if both ends of the pair
    are the same node. There is one route per pair, in the order of the pairs, except under `split`, where a pair with
    a tie has two adjacent routes.
    """

    ptr: npt.NDArray[np.int64]
    links: npt.NDArray[np.int32]
    pair: npt.NDArray[np.int64]


def ranges(start: Ints, length: Ints) -> Ints:
    """The ranges `start[i] .. start[i]+length[i]-1`, concatenated."""
    found: Ints = np.repeat(start - (np.cumsum(length) - length), length)
    for first in range(0, found.size, BATCH):
        part = found[first : first + BATCH]
        part += np.arange(first, first + part.size)
    return found


def distinct_of(values: npt.NDArray[np.integer]) -> npt.NDArray[np.int64]:
    """Distinct values, sorted.

    `np.unique` hashes, which takes 50 times as long for a million that all differ, and loads masked arrays, 30 ms.
    """
    order = np.sort(values, axis=None).astype(np.int64)
    found: npt.NDArray[np.int64] = order[np.append(np.ones(min(order.size, 1), np.bool_), order[1:] != order[:-1])]
    return found


def evenly(n: int, most: int) -> npt.NDArray[np.int64]:
    """At most so many of the numbers from 0 to n - 1, evenly spread, with both ends."""
    return distinct_of(np.linspace(0, n - 1, most).astype(np.int64))


BATCH = 2**16
"""Pairs routed at a time: temporaries stay bounded, and in cache."""


def routed(route: Callable[[Ints, Ints], Paths], src: Ints, dst: Ints) -> Paths:
    """What routes of single batches of pairs are together."""
    return join_paths(
        [route(src[at : at + BATCH], dst[at : at + BATCH]) for at in range(0, max(src.size, 1), BATCH)]
    )


def join_paths(parts: Sequence[Paths]) -> Paths:
    """Concatenate the routes of consecutive batches of pairs; each batch numbers its pairs from 0, without gaps."""
    if len(parts) == 1:
        return parts[0]
    links = np.array([part.links.size for part in parts])
    pairs = np.array([int(part.pair[-1]) + 1 for part in parts])
    return Paths(
        np.concatenate([[0], *_shifted([part.ptr[1:] for part in parts], links)]),
        np.concatenate([part.links for part in parts]),
        np.concatenate(_shifted([part.pair for part in parts], pairs)),
    )


def _shifted(arrays: Sequence[Ints], counts: Ints) -> list[Ints]:
    """Each array, shifted by the total count before it."""
    return [array + before for array, before in zip(arrays, np.cumsum(counts) - counts, strict=True)]
