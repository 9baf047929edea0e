"""Baselines that send only part of an array: the largest values, or the blocks that are not zero."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from topologies import WeftError

Values = npt.NDArray[Any]


class Coordinates(NamedTuple):
    """Positions and values: a list that all-gathers and does not add up on the way."""

    positions: npt.NDArray[np.int32]
    values: Values

    @property
    def n_bytes(self) -> int:
        return int(self.positions.nbytes + self.values.nbytes)


def top_k(x: Values, k: int) -> Coordinates:
    """The k values of largest magnitude; of equal ones the first.

    Raises
    ------
    WeftError
        More values than there are.
    """
    if not 0 <= k <= x.size:
        raise WeftError(f"top {k} of {x.size} values: give 0 to {x.size}")
    order = np.argsort(-np.abs(x), kind="stable")[:k]
    positions = np.sort(order).astype(np.int32)
    return Coordinates(positions, x[positions])


def add_coordinates(messages: list[Coordinates], n_elements: int) -> Values:
    """The dense sum of several lists."""
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
    """The blocks of an array that are not zero, as OmniReduce streams them (Fei et al., SIGCOMM 2021)."""
    if block < 1:
        raise WeftError(f"block of {block} elements: at least 1")
    padded = np.zeros(-(-x.size // block) * block, x.dtype)
    padded[: x.size] = x
    rows = padded.reshape(-1, block)
    numbers = np.flatnonzero(np.any(rows != 0, axis=1)).astype(np.int32)
    return Blocks(numbers, rows[numbers])


def add_blocks(messages: list[Blocks], n_elements: int) -> Values:
    """The dense sum: an aggregator adds the blocks of one number as they arrive."""
    block = messages[0].values.shape[1]
    total = np.zeros((-(-n_elements // block), block), messages[0].values.dtype)
    for message in messages:
        total[message.numbers] += message.values
    return total.reshape(-1)[:n_elements]


def block_density(density: float, block: int = BLOCK) -> float:
    """Share of blocks that are not zero where non-zeros fall independently."""
    return 1.0 - float((1.0 - density) ** block)
