"""Baselines that send only part of an array: the largest values, or the nonzero blocks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from topologies import WeftError
from topologies.checks import MOST_COUNT, integer
from workloads.compression.vectors import vector

Values = npt.NDArray[Any]


class Coordinates(NamedTuple):
    """Positions and values: a list that is all-gathered, not summed in transit."""

    positions: npt.NDArray[np.int32]
    values: Values

    @property
    def n_bytes(self) -> int:
        return int(self.positions.nbytes + self.values.nbytes)


def top_k(x: Values, k: int) -> Coordinates:
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
    return Coordinates(positions, x[positions])


def add_coordinates(messages: list[Coordinates], n_elements: int) -> Values:
    """The dense sum of several lists; each holds a position once.

    WeftError: no lists, or a position that is not among the elements.
    """
    _refuse_none(messages)
    integer(n_elements, "number of elements", 0, MOST_COUNT)
    for message in messages:
        _refuse_outside(message.positions, n_elements, "position", "elements")
    total = np.zeros(n_elements, messages[0].values.dtype)
    for message in messages:
        total[message.positions] += message.values
    return total


class Blocks(NamedTuple):
    """Numbers and values of the blocks that are not all zero; the last one is padded with zeros."""

    numbers: npt.NDArray[np.int32]
    values: Values

    @property
    def n_bytes(self) -> int:
        return int(self.numbers.nbytes + self.values.nbytes)


BLOCK = 256
"""Elements of a block, as in OmniReduce."""


def non_zero_blocks(x: Values, block: int = BLOCK) -> Blocks:
    """The nonzero blocks of an array, as OmniReduce streams them (Fei et al., SIGCOMM 2021)."""
    vector(x, "the array")
    integer(block, "number of elements of a block", 1, MOST_COUNT)
    padded = np.zeros(-(-x.size // block) * block, x.dtype)
    padded[: x.size] = x
    rows = padded.reshape(-1, block)
    numbers = np.flatnonzero(np.any(rows != 0, axis=1)).astype(np.int32)
    return Blocks(numbers, rows[numbers])


def add_blocks(messages: list[Blocks], n_elements: int) -> Values:
    """The dense sum: an aggregator adds the blocks of one number as they arrive.

    WeftError: no messages, blocks of other sizes, or a block that is not among the elements.
    """
    _refuse_none(messages)
    block = messages[0].values.shape[1]
    n_blocks = -(-integer(n_elements, "number of elements", 0, MOST_COUNT) // block)
    for message in messages:
        if message.values.shape[1] != block:
            raise WeftError(f"blocks of {message.values.shape[1]} elements do not add to blocks of {block}")
        _refuse_outside(message.numbers, n_blocks, "block", "blocks")
    total = np.zeros((n_blocks, block), messages[0].values.dtype)
    for message in messages:
        total[message.numbers] += message.values
    return total.reshape(-1)[:n_elements]


def _refuse_none(messages: Sequence[object]) -> None:
    if not messages:
        raise WeftError("a sum needs at least one worker")


def _refuse_outside(places: npt.NDArray[np.int32], limit: int, what: str, of: str) -> None:
    outside = places[(places < 0) | (places >= limit)]
    if outside.size:
        raise WeftError(f"{what} {outside[0]} is not among the {limit} {of}")
