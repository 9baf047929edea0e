"""The index: which elements are nonzero in the union of all workers, and how indexes combine in transit."""

import math
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import numpy.typing as npt

from topologies.checks import MOST_COUNT, Integer, WeftError, checked, integer, number
from workloads.compression import _kernels as kernels
from workloads.compression.vectors import vector

Bytes = npt.NDArray[np.uint8]
Array = npt.NDArray[np.generic]
Elements = Annotated[int, Integer(0, MOST_COUNT)]


@checked
@dataclass(frozen=True)
class Bitmap:
    """One bit per element, combined by OR: for transports that have it."""

    n_elements: Elements
    max_workers: None = None  # beyond which combining fails

    @property
    def n_bytes(self) -> int:
        """Size of the index."""
        return -(-self.n_elements // 8)

    def encode(self, x: Array) -> Bytes:
        """The positions of an array that are not zero."""
        packed = np.zeros(self.n_bytes, np.uint8)
        kernels.pack_bits(_plain(x, self), packed)
        return packed

    def combine(self, one: Bytes, other: Bytes) -> Bytes:
        """The union, as the network forms it."""
        return _packed(one, self) | _packed(other, self)

    def bits(self, packed: Bytes) -> Bytes:
        """One bit per element, least significant first."""
        return _packed(packed, self)


@checked
@dataclass(frozen=True)
class NibbleSum:
    """Four bits per element, combined by SUM: for transports without OR. A sixteenth worker would carry over."""

    n_elements: Elements
    max_workers: Annotated[int, Integer(1, 15)] = 15  # what a field of 4 bits counts

    @property
    def n_bytes(self) -> int:
        """Size of the index."""
        return -(-self.n_elements // 2)

    def encode(self, x: Array) -> Bytes:
        """See `Bitmap`, as of what follows."""
        packed = np.zeros(self.n_bytes, np.uint8)
        kernels.pack_nibbles(_plain(x, self), packed)
        return packed

    def combine(self, one: Bytes, other: Bytes) -> Bytes:
        """The index of the sum of two arrays."""
        return _packed(one, self) + _packed(other, self)

    def bits(self, packed: Bytes) -> Bytes:
        """A bit for each element that may not be zero."""
        bits = np.zeros(-(-self.n_elements // 8), np.uint8)
        kernels.unpack_nibbles(_packed(packed, self), bits, self.n_elements)
        return bits


@checked
@dataclass(frozen=True)
class Bloom:
    """A Bloom filter, combined by OR; one size for all workers, made for their union.

    A position held by mistake is an item of value 0: it decodes to 0 and only fills the sketch.
    """

    n_elements: Elements
    n_filter_bits: Annotated[int, Integer(1, 2**40)]
    hashes: Annotated[int, Integer(1, 64)]
    max_workers: None = None

    @property
    def n_bytes(self) -> int:
        """Size of the filter."""
        return -(-self.n_filter_bits // 8)

    def encode(self, x: Array) -> Bytes:
        """The filter of the elements that are not zero."""
        packed = np.zeros(self.n_bytes, np.uint8)
        kernels.pack_bloom(_plain(x, self), packed, self.hashes, 0)
        return packed

    def combine(self, one: Bytes, other: Bytes) -> Bytes:
        """The filter of the sum of two arrays."""
        return _packed(one, self) | _packed(other, self)

    def bits(self, packed: Bytes) -> Bytes:
        """A bit for each element that may not be zero: all that are not, and some that are."""
        bits = np.zeros(-(-self.n_elements // 8), np.uint8)
        kernels.unpack_bloom(_packed(packed, self), bits, self.n_elements, self.hashes, 0)
        return bits


Index = Bitmap | NibbleSum | Bloom
"""A set of positions, in bytes that can be combined in transit."""


def _plain(x: Array, index: Index) -> Array:
    """The array, or where it is not zero if compiled loops do not know its type."""
    checked = vector(x, "the array that is indexed", index.n_elements)
    return checked if checked.dtype.itemsize in (4, 8) else (checked != 0).view(np.uint8)


def _packed(packed: Bytes, index: Index) -> Bytes:
    if not isinstance(packed, np.ndarray) or packed.dtype != np.uint8 or packed.shape != (index.n_bytes,):
        what = f"{packed.dtype} of shape {packed.shape}" if isinstance(packed, np.ndarray) else type(packed).__name__
        raise WeftError(f"packed index is {what}: {type(index).__name__} has {index.n_bytes} B")
    return np.ascontiguousarray(packed)


def bloom_for(n_elements: int, n_items: int, false_positive_rate: float) -> Bloom:
    """The smallest Bloom filter for `n_items` union nonzeros at a rate of false positives between 0 and 1."""
    integer(n_elements, "number of elements", 0, MOST_COUNT)
    integer(n_items, f"number of nonzeros among {n_elements} elements", 0, n_elements)
    if number(false_positive_rate, "false positive rate", 0, 1, above=True) == 1:
        raise WeftError("false positive rate is 1; it must be between 0 and 1")
    per_item = math.log2(1 / false_positive_rate)
    n_bits = max(8, math.ceil(per_item / math.log(2) * n_items))
    return Bloom(n_elements, n_bits, max(1, round(per_item)))
