"""The lossless homomorphic codec: messages of workers are summed in transit and decode to the sum.

A worker sends a signed count sketch of its array and an index of its nonzeros. Sketches add and indexes combine, in any
order, anywhere in the network. The sum is recovered from the summed sketch and the union by peeling.

In integers, wrapping around at the width of the cells, the result is the exact sum or marked incomplete. In floating
point the peeled values are sums in another order, and errors are relative to the values that shared a cell; fixed point
(`baselines.to_fixed`) is the way to a sum without them, its own error stated.

A message carries the fold of its cells and its index, an integer. Whoever adds two messages adds up how far each is
from its fold, and notes that in the fold of the sum, so that what is damaged once anywhere is known at the end.

References
----------
.. [1] H. Li et al., "Lossless homomorphic compression", arXiv:2402.07529.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from topologies import WeftError
from workloads.compression import _kernels as kernels
from workloads.compression.index import Bitmap, Bytes, Index
from workloads.compression.layout import Layout
from workloads.compression.vectors import vector

Values = npt.NDArray[Any]

DTYPES = ("int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64")
_WIDE = {"float16": "float32", "bfloat16": "float32"}
"""What loops compute in where it is not the type of the cells, to which sketches, sums and values are rounded."""
_FOLDED = 2**64
_EXPONENT = {"float32": (np.uint32, 0x7F800000), "float64": (np.uint64, 0x7FF0000000000000)}
_FEW_LANES = 32
"""Number of lanes below which elements are added one by one."""

CHECK_BYTES = 8
"""Of the fold in a message."""


def fold_of(cells: Values, support: Bytes) -> int:
    """Fold of the bytes of cells and of an index, eight at a time, below 2^64."""
    total, first = 0, 0
    for part in (cells.view(np.uint8), support):
        whole = part.size // 8 * 8
        for words in (part[:whole].view(np.uint64), part[whole:]):
            with np.errstate(over="ignore"):  # where the loops run uncompiled
                total += int(kernels.fold(words, first))
            first += words.size
    return total % _FOLDED


class Message(NamedTuple):
    """A message on the wire, of one worker or summed, with what both ends know about it.

    Messages of another codec are rejected by their layout and index, since sizes alone do not identify it.
    """

    cells: Values  # (M,)
    support: Bytes  # (n_bytes,): the packed index
    check: int  # fold of cells and index, plus how far the messages that were summed are from theirs
    workers: int  # summed
    layout: Layout
    made_by: Index

    @property
    def n_bytes(self) -> int:
        """Size on the wire, with the check."""
        return int(self.cells.nbytes + self.support.nbytes) + CHECK_BYTES

    @property
    def damage(self) -> int:
        """How far the message is from its fold, modulo 2^64: 0 of one that nothing was changed in."""
        return (self.check - fold_of(self.cells, self.support)) % _FOLDED


class Opened(NamedTuple):
    """A message prepared for peeling: each cell with the tally of its items, and the total number of items."""

    state: Values
    bits: Bytes
    n_items: int
    layout: Layout


class Decoded(NamedTuple):
    """The sum, and its status."""

    values: Values  # (n_elements,); 0 at items that were not recovered
    n_items: int  # positions in the union
    n_recovered: int  # those that were peeled
    rounds: int  # that a parallel peel would take
    residual_cells: int  # not exactly zero after the peel
    exact: bool  # whether cells are integers
    intact: bool  # whether nothing was changed on the way

    @property
    def overloaded(self) -> bool:
        """Whether the sketch was too small, so that some items remain."""
        return self.n_recovered < self.n_items

    @property
    def index_incomplete(self) -> bool:
        """Whether values remain that are missing from the index; integers only."""
        return self.exact and not self.overloaded and self.residual_cells > 0

    @property
    def complete(self) -> bool:
        """Whether nothing was damaged, every item was recovered, all values are finite, and integers left nothing."""
        finite = self.exact or bool(np.isfinite(self.values).all())
        return self.intact and not self.overloaded and not self.index_incomplete and finite


@dataclass(frozen=True)
class Codec:
    """Encoder, adder and decoder of one layout.

    Examples
    --------
    >>> codec = Codec(Layout(6, rows=6, lanes=1), dtype="int32")
    >>> one, other = ([5, 0, 0, -7, 0, 0], [-5, 0, 3, 1, 0, 0])
    >>> messages = [codec.encode(np.array(x, np.int32)) for x in (one, other)]
    >>> codec.decode(codec.add(*messages)).values.tolist()
    [0, 0, 3, -6, 0, 0]
    """

    layout: Layout
    index: Index = field(default=None)  # type: ignore[assignment]  # set below: one bit per element
    dtype: str = "int32"  # of the cells; arrays must have it too

    def __post_init__(self) -> None:
        if self.dtype not in DTYPES:
            raise WeftError(f"codec has cells of {self.dtype!r}: choose one of {', '.join(DTYPES)}")
        try:
            np.dtype(self.dtype)
        except TypeError:
            raise WeftError("codec has cells of 'bfloat16', which NumPy has with: import ml_dtypes") from None
        if self.index is None:
            object.__setattr__(self, "index", Bitmap(self.layout.n_elements))
        if self.index.n_elements != self.layout.n_elements:
            raise WeftError(
                f"the index is of {self.index.n_elements} elements and the layout of {self.layout.n_elements}: "
                "the numbers must match"
            )

    @property
    def _computed(self) -> str:
        return _WIDE.get(self.dtype, self.dtype)

    def encode(self, x: Values) -> Message:
        """The message of one worker.

        Minus zero counts as zero and is returned as zero; denormals are values like any other.

        WeftError: another shape or type, or a value that is not finite: infinities and NaN would spread to other
            elements.
        """
        x = vector(x, "the array of a worker")
        if x.shape != (self.layout.n_elements,) or x.dtype != np.dtype(self.dtype):
            raise WeftError(
                f"codec takes {self.layout.n_elements} values of {self.dtype}; the array has shape {x.shape} "
                f"of {x.dtype.name}"
            )
        x = np.ascontiguousarray(x, self._computed)
        self._refuse_not_finite(x)
        cells, support = self._sketch(x), self.index.encode(x)
        return Message(cells, support, fold_of(cells, support), 1, self.layout, self.index)

    def add(self, one: Message, other: Message) -> Message:
        """The operation of a switch or ring step: sum the sketches, unite the indexes.

        WeftError: more workers than the index can count, or a message from another codec.
        """
        self._refuse_others(one, other)
        workers = one.workers + other.workers
        if self.index.max_workers is not None and workers > self.index.max_workers:
            raise WeftError(
                f"the index counts up to {self.index.max_workers} workers and would carry over at {workers}: "
                "use a bitmap with OR"
            )
        with np.errstate(over="ignore", invalid="ignore"):  # what overflows shows as values that are not finite
            cells, support = one.cells + other.cells, self.index.combine(one.support, other.support)
        check = (fold_of(cells, support) + one.damage + other.damage) % _FOLDED
        return Message(cells, support, check, workers, self.layout, self.index)

    def sum(self, arrays: Iterable[Values]) -> Message:
        """The summed message of several workers, in their order; WeftError: there is none."""
        messages = map(self.encode, arrays)
        first = next(messages, None)
        if first is None:
            raise WeftError("a sum needs at least one worker")
        return reduce(self.add, messages, first)

    def decode(self, message: Message, median: bool = False) -> Decoded:
        """Recover the sum; one that was damaged in transit is not `complete`.

        `median`: guess unrecovered items from the median of three cells, as the public code does; of no use, since the
            error is as large as the values.
        WeftError: a message from another codec.
        """
        opened = self.open(message)
        values, recovered, rounds = self.peel(opened)
        residual = int(np.count_nonzero(opened.state["value"]))
        if median and recovered < opened.n_items:
            kernels.median_of_three(opened.state, opened.bits, values.size, values, self.layout.hashing())
        with np.errstate(over="ignore", invalid="ignore"):
            values = values.astype(self.dtype, copy=False)
        exact = values.dtype.kind == "i"
        return Decoded(values, opened.n_items, recovered, rounds, residual, exact, message.damage == 0)

    def open(self, message: Message) -> Opened:
        """Go through the index and count the items of each cell (`kernels.count_items`)."""
        self._refuse_others(message)
        bits = self.index.bits(message.support)
        if bits.dtype != np.uint8 or bits.shape != (-(-self.layout.n_elements // 8),):
            raise WeftError(f"the index gives {bits.size} B of bits, not those of {self.layout.n_elements} elements")
        state = np.zeros(message.cells.size, np.dtype([("tally", np.int64), ("value", self._computed)], align=True))
        state["value"] = message.cells
        n_items = kernels.count_items(state, bits, self.layout.n_elements, self.layout.hashing())
        return Opened(state, bits, int(n_items), self.layout)

    def peel(self, opened: Opened) -> tuple[Values, int, int]:
        """Empty what `open` made ready, once: the values, how many were recovered, and rounds of a parallel peel."""
        if opened.layout != self.layout or opened.state.shape != (self.layout.n_cells,):
            raise WeftError(f"what was opened is of {opened.layout}; this codec has {self.layout}")
        values = np.zeros(self.layout.n_elements, opened.state["value"].dtype)
        queue = np.empty(opened.state.size + 1, np.int32)
        with np.errstate(over="ignore", invalid="ignore"):  # where the loops run uncompiled
            recovered, rounds, _ = kernels.peel(opened.state, values, self.layout.hashing(), queue)
        return values, int(recovered), int(rounds)

    def _sketch(self, x: Values) -> Values:
        cells = np.zeros(self.layout.n_cells, x.dtype)
        adder = kernels.add_items
        if self.layout.lanes >= _FEW_LANES:
            adder = kernels.add_spread if self.layout.spread else kernels.add_rows
        with np.errstate(over="ignore"):
            adder(cells, x, self.layout.hashing())
            return cells.astype(self.dtype, copy=False)

    def _refuse_others(self, *messages: Message) -> None:
        for message in messages:
            if (message.layout, message.made_by) != (self.layout, self.index):
                raise WeftError(
                    f"the message is of {message.layout} and {message.made_by}; this codec has {self.layout} and "
                    f"{self.index}"
                )
            cells, support = message.cells, message.support
            if (cells.dtype.name, cells.shape, support.dtype.name, support.shape) != (
                self.dtype, (self.layout.n_cells,), "uint8", (self.index.n_bytes,)
            ):
                raise WeftError(
                    f"the message has {cells.size} cells of {cells.dtype.name} and an index of {support.size} B; this "
                    f"codec has {self.layout.n_cells} of {self.dtype} and {self.index.n_bytes} B"
                )

    def _refuse_not_finite(self, x: Values) -> None:
        if self._computed not in _EXPONENT:
            return
        word, mask = _EXPONENT[self._computed]
        if kernels.largest_exponent(x.view(word), word(mask)) == mask:
            at = int(np.flatnonzero(~np.isfinite(x))[0])
            raise WeftError(f"element {at} is {x[at]}: the codec takes finite values only")


class Aggregate(NamedTuple):
    """A sum computed through the codec: (n_elements,) values, whether it fell back, and the bytes one worker sent."""

    values: Values
    fell_back: bool
    wire_bytes: int
    decoded: Decoded


def lossless_sum(codec: Codec, arrays: Iterable[Values]) -> Aggregate:
    """Sum arrays through the codec, falling back to a dense sum if its checks fail.

    In integers the result is the exact sum (modulo the width) of whatever was given. The fall-back sends the dense
    arrays as well, which `wire_bytes` counts.
    """
    arrays = list(arrays)
    message = codec.sum(arrays)
    decoded = codec.decode(message)
    if decoded.complete:
        return Aggregate(decoded.values, False, message.n_bytes, decoded)
    with np.errstate(over="ignore"):  # as in `Codec.add`
        dense = reduce(np.add, arrays)
    return Aggregate(dense, True, message.n_bytes + int(arrays[0].nbytes), decoded)
