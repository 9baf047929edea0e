"""What the codec does to an all-reduce: encode, sum index and sketch, decode, and fall back where it must."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from workloads.compression.rates import INSTANT, Rates
from workloads.compression.sizing import Compression, cells_required

WORD_BYTES = 4

AllReduceTime = Callable[[int], float]
"""Seconds that a fabric takes to all-reduce so many bytes."""


@dataclass(frozen=True)
class Timeline:
    """Seconds of each part, one after the other.

    Attributes
    ----------
    encode_s, index_s, sketch_s, decode_s, fallback_s : float
        The last is a dense all-reduce where the sketch is too small to decode.
    dense_s : float
        What the same array takes without the codec.
    wire_bytes : int
        Bytes that are all-reduced.
    """

    encode_s: float
    index_s: float
    sketch_s: float
    decode_s: float
    fallback_s: float
    dense_s: float
    wire_bytes: int

    @property
    def total_s(self) -> float:
        return self.encode_s + self.index_s + self.sketch_s + self.decode_s + self.fallback_s

    @property
    def speed_up(self) -> float:
        """Time without the codec over time with it."""
        return self.dense_s / self.total_s


def compressed_all_reduce(
    all_reduce: AllReduceTime,
    n_elements: int,
    union: float,
    compression: Compression = Compression(),
    rates: Rates = INSTANT,
    required: float | None = None,
) -> Timeline:
    """The parts of one all-reduce through the codec.

    Parameters
    ----------
    all_reduce : callable (bytes) -> seconds
        Of any collective on any fabric.
    n_elements : int
        Words of 32 bits.
    union : float
        Share of non-zeros in the union of all workers.
    compression : Compression
    rates : Rates
        Of the device that encodes and decodes.
    required : float, optional
        Cells an item below which decoding fails; that of the element and rotated layouts unless given.
    """
    n_items = round(union * n_elements)
    least = cells_required(n_items) if required is None else required
    index, sketch = compression.index_bytes(n_elements), compression.sketch_bytes(n_elements, union)
    dense_s = all_reduce(WORD_BYTES * n_elements)
    fails = n_items > 0 and compression.cells_per_item < least
    return Timeline(
        encode_s=rates.encode_s(n_elements),
        index_s=all_reduce(index),
        sketch_s=all_reduce(sketch),
        decode_s=rates.decode_s(n_elements, n_items),
        fallback_s=dense_s if fails else 0.0,
        dense_s=dense_s,
        wire_bytes=index + sketch + (WORD_BYTES * n_elements if fails else 0),
    )
