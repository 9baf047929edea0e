"""The index: which elements are not zero in the union of all workers, and how it adds up on the way."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from topologies import WeftError
from workloads.compression import _kernels as kernels

Bytes = npt.NDArray[np.uint8]
Array = npt.NDArray[np.generic]


class Index(Protocol):
    """A set of positions in bytes that combine on the way.

    Attributes
    ----------
    max_workers : int or None
        Workers beyond which combining fails.
    """

    @property
    def n_bytes(self) -> int: ...

    @property
    def max_workers(self) -> int | None: ...

    def encode(self, x: Array) -> Bytes:
        """The positions of an array that are not zero."""

    def combine(self, one: Bytes, other: Bytes) -> Bytes:
        """The union, as the network forms it."""

    def bits(self, packed: Bytes) -> Bytes:
        """One bit an element, least significant first."""


@dataclass(frozen=True)
class Bitmap:
    """One bit an element, combined by OR: for transports that have it."""

    n_elements: int
    max_workers: None = None

    @property
    def n_bytes(self) -> int:
        return -(-self.n_elements // 8)

    def encode(self, x: Array) -> Bytes:
        packed = np.zeros(self.n_bytes, np.uint8)
        kernels.pack_bits(x, packed)
        return packed

    def combine(self, one: Bytes, other: Bytes) -> Bytes:
        return one | other

    def bits(self, packed: Bytes) -> Bytes:
        return packed


@dataclass(frozen=True)
class NibbleSum:
    """Four bits an element, combined by SUM: for transports without OR. A sixteenth worker would carry over."""

    n_elements: int
    max_workers: int = 15

    @property
    def n_bytes(self) -> int:
        return -(-self.n_elements // 2)

    def encode(self, x: Array) -> Bytes:
        packed = np.zeros(self.n_bytes, np.uint8)
        kernels.pack_nibbles(x, packed)
        return packed

    def combine(self, one: Bytes, other: Bytes) -> Bytes:
        return one + other

    def bits(self, packed: Bytes) -> Bytes:
        bits = np.zeros(-(-self.n_elements // 8), np.uint8)
        kernels.unpack_nibbles(packed, bits, self.n_elements)
        return bits


@dataclass(frozen=True)
class Bloom:
    """A Bloom filter, combined by OR; one size for all workers, made for their union.

    A position held by mistake is an item of value 0: it decodes to 0 and only fills the sketch.

    Attributes
    ----------
    n_elements, n_filter_bits, hashes : int
    """

    n_elements: int
    n_filter_bits: int
    hashes: int
    max_workers: None = None

    def __post_init__(self) -> None:
        if self.n_filter_bits < 1 or self.hashes < 1:
            raise WeftError(f"Bloom filter of {self.n_filter_bits} bits and {self.hashes} hashes: at least 1 each")

    @property
    def n_bytes(self) -> int:
        return -(-self.n_filter_bits // 8)

    def encode(self, x: Array) -> Bytes:
        packed = np.zeros(self.n_bytes, np.uint8)
        kernels.pack_bloom(x, packed, self.hashes, 0)
        return packed

    def combine(self, one: Bytes, other: Bytes) -> Bytes:
        return one | other

    def bits(self, packed: Bytes) -> Bytes:
        bits = np.zeros(-(-self.n_elements // 8), np.uint8)
        kernels.unpack_bloom(packed, bits, self.n_elements, self.hashes, 0)
        return bits


def bloom_for(n_elements: int, n_items: int, false_positive_rate: float) -> Bloom:
    """The smallest Bloom filter for `n_items` union non-zeros at a rate of false positives.

    Raises
    ------
    WeftError
        A rate that is not between 0 and 1.
    """
    if not 0 < false_positive_rate < 1:
        raise WeftError(f"false positive rate is {false_positive_rate}; it must be between 0 and 1")
    per_item = math.log2(1 / false_positive_rate)
    n_bits = max(8, math.ceil(per_item / math.log(2) * n_items))
    return Bloom(n_elements, n_bits, max(1, round(per_item)))
