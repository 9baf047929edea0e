"""Baselines that send only part of an array: the largest values, or the nonzero blocks."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from topologies import WeftError
from topologies.checks import MOST_COUNT, integer
from workloads.compression.vectors import vector

Values = npt.NDArray[Any]

BLOCK = 256
"""Elements of a block, as in OmniReduce."""


class Part(NamedTuple):
    """Some elements, or some blocks of elements, and their places: a list that is all-gathered or added by place."""

    places: npt.NDArray[np.int32]
    values: Values  # (places,), or (places, block): the last block of an array is padded with zeros

    @property
    def n_bytes(self) -> int:
        return int(self.places.nbytes + self.values.nbytes)


def top_k(x: Values, k: int) -> Part:
    """The k values of largest magnitude; of equal ones the first.

    WeftError: more values than there are.
    """
    vector(x, "the array")
    integer(k, f"k of the top values of {x.size}", 0, x.size)
    if np.isnan(x).any():
        raise WeftError("the array holds a NaN, which is neither large nor small")
    small = -np.abs(x) if x.dtype.kind == "f" else np.minimum(x, -x)  # the least integer has no positive twin
    order = np.argsort(small, kind="stable")[:k]
    positions = np.sort(order).astype(np.int32)
    return Part(positions, x[positions])


def add_coordinates(messages: list[Part], n_elements: int) -> Values:
    """The dense sum of several lists; each holds a position once.

    WeftError: no lists, or a position that is not among the elements.
    """
    return _sum(messages, integer(n_elements, "number of elements", 0, MOST_COUNT), "position", "elements")


def non_zero_blocks(x: Values, block: int = BLOCK) -> Part:
    """The nonzero blocks of an array, as OmniReduce streams them (Fei et al., SIGCOMM 2021)."""
    vector(x, "the array")
    integer(block, "number of elements of a block", 1, MOST_COUNT)
    padded = np.zeros(-(-x.size // block) * block, x.dtype)
    padded[: x.size] = x
    rows = padded.reshape(-1, block)
    numbers = np.flatnonzero(np.any(rows != 0, axis=1)).astype(np.int32)
    return Part(numbers, rows[numbers])


def add_blocks(messages: list[Part], n_elements: int) -> Values:
    """The dense sum: an aggregator adds the blocks of one number as they arrive.

    WeftError: no messages, blocks of other sizes, or a block that is not among the elements.
    """
    integer(n_elements, "number of elements", 0, MOST_COUNT)
    block = messages[0].values.shape[1] if messages else BLOCK
    for message in messages:
        if message.values.shape[1] != block:
            raise WeftError(f"blocks of {message.values.shape[1]} elements do not add to blocks of {block}")
    return _sum(messages, -(-n_elements // block), "block", "blocks").reshape(-1)[:n_elements]


def _sum(messages: list[Part], n_places: int, what: str, of: str) -> Values:
    if not messages:
        raise WeftError("a sum needs at least one worker")
    total = np.zeros((n_places, *messages[0].values.shape[1:]), messages[0].values.dtype)
    for places, values in messages:
        outside = places[(places < 0) | (places >= n_places)]
        if outside.size:
            raise WeftError(f"{what} {outside[0]} is not among the {n_places} {of}")
        total[places] += values
    return total
