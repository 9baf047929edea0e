"""The codec in an all-reduce: encode, sum index and sketch, decode, and fall back if necessary."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sim.papers.compression_sizes import Bits, Compression, Density, Elements, peel_rounds
from topologies.checks import NotNegative, checked
from workloads.compression.layout import form_of
from workloads.compression.rates import INSTANT, Rates

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
        Time of the same array without the codec.
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
        """Time without the codec over time with it; 1 if there is nothing to send."""
        return self.dense_s / self.total_s if self.total_s else 1.0


@checked
def compressed_all_reduce(
    all_reduce: AllReduceTime,
    n_elements: Elements,
    union: Density,
    compression: Compression = Compression(),
    rates: Rates = INSTANT,
    required: NotNegative | None = None,
    *,
    form: str = "spread",
    dense_bits: Bits | None = None,
) -> Timeline:
    """The parts of one all-reduce through the codec.

    Parameters
    ----------
    all_reduce : callable (bytes) -> seconds
        Of any collective on any fabric.
    n_elements : int
    union : float
        Share of nonzeros in the union of all workers.
    compression : Compression
    rates : Rates
        Of the device that encodes and decodes.
    required : float, optional
        Cells per item below which decoding fails; default: the requirement of the form for this number of items.
    form : str
        Of the layout, by its name in `layout.FORMS`.
    dense_bits : int, optional
        Of an element where the array is added densely: 32 for values of 16 bits that a switch adds as integers of 32.

    Raises
    ------
    WeftError
        A number out of range.
    """
    n_items = round(union * n_elements)
    shape = form_of(form)
    least = shape.cells_required(n_items, n_elements) if required is None else required
    index, sketch = compression.index_bytes(n_elements), compression.sketch_bytes(n_elements, union)
    wide = compression.value_bits if dense_bits is None else dense_bits
    dense_bytes = -(-n_elements * wide // 8)
    dense_s = all_reduce(dense_bytes)
    fails = n_items > 0 and compression.cells_per_item < least
    rounds = peel_rounds(n_items, compression.cells_per_item)
    word_bytes = compression.value_bits / 8
    return Timeline(
        encode_s=rates.encode_s(n_elements, word_bytes),
        index_s=all_reduce(index),
        sketch_s=all_reduce(sketch),
        decode_s=rates.decode_s(n_elements, n_items, rounds, word_bytes),
        fallback_s=dense_s if fails else 0.0,
        dense_s=dense_s,
        wire_bytes=index + sketch + (dense_bytes if fails else 0),
    )
