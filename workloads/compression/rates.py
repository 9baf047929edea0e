"""Speed of the codec on this machine, and time of a device with given rates."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from time import process_time
from typing import NamedTuple

import numpy as np

from topologies.checks import MOST_COUNT, WeftError, integer, number
from workloads.compression.codec import Codec
from workloads.compression.layout import CELLS_PER_ITEM, layout_for


@dataclass(frozen=True)
class Rates:
    """Speed of a device."""

    encode_Bps: float  # bytes of the dense array per second, index included
    scan_Bps: float  # bytes of the dense array per second, for going through the index before the peel
    peel_s_per_item: float  # seconds per union nonzero
    launch_s: float = 0.0  # seconds for each round of a parallel peel; 0 where it is sequential

    def __post_init__(self) -> None:
        for name in ("encode_Bps", "scan_Bps"):
            if getattr(self, name) != math.inf:
                number(getattr(self, name), name, 0, above=True)
        number(self.peel_s_per_item, "peel_s_per_item", 0)
        number(self.launch_s, "launch_s", 0)

    def encode_s(self, n_elements: int, word_bytes: float = 4) -> float:
        """Time to make a message."""
        return word_bytes * n_elements / self.encode_Bps

    def decode_s(self, n_elements: int, n_items: int, rounds: int = 0, word_bytes: float = 4) -> float:
        """Time to recover a sum."""
        return word_bytes * n_elements / self.scan_Bps + n_items * self.peel_s_per_item + rounds * self.launch_s


INSTANT = Rates(float("inf"), float("inf"), 0.0)
"""A device that takes no time, which leaves only the network."""


class Measured(NamedTuple):
    """One measurement; times are the best of several, in seconds of this process's own, whatever else runs."""

    density: float
    cells_per_item: float  # with whole rows, somewhat more than asked for
    n_elements: int
    n_items: int
    index_Bps: float  # bytes of the dense array per second: index alone
    sketch_Bps: float  # sketch alone
    encode_Bps: float  # both
    scan_Bps: float  # counting the items of each cell
    peel_s_per_item: float
    rounds: int
    complete: bool
    # bytes a second at which `numpy.add` adds two dense arrays of that size: what to compare with, as both depend on
    # the machine and on what else it does
    add_Bps: float

    def rates(self) -> Rates:
        """The rates to simulate with."""
        return Rates(self.encode_Bps, self.scan_Bps, self.peel_s_per_item)


MOST_ELEMENTS = 2**28
"""Elements that `measure` takes at most: 1 GiB of 32 bits, and several times that in memory."""


def measure(
    n_elements: int, density: float, cells_per_item: float = CELLS_PER_ITEM, form: str = "spread", *,
    dtype: str = "int32", repeats: int = 5, seed: int = 0,
) -> Measured:
    """Time every part of the codec on one random array on one core.

    `density`: share of nonzeros, of the union.
    `cells_per_item`, `form`, `dtype`: see `workloads.compression.layout`.
    WeftError: a number out of range, or a density at which no element is an item.
    """
    integer(n_elements, "number of elements to measure", 1, MOST_ELEMENTS)
    number(density, "density", 0, 1, above=True)
    integer(repeats, "number of repeats", 1, MOST_COUNT)
    if round(density * n_elements) < 1:
        raise WeftError(f"density {density:g} of {n_elements} elements leaves no item: give {1 / n_elements:g} or more")
    rng = np.random.default_rng(seed)
    x = np.where(rng.random(n_elements) < density, rng.integers(1, 2**20, n_elements), 0).astype(dtype)
    x[int(rng.integers(n_elements))] = 1  # one item at least, however few are drawn
    n_items = int(np.count_nonzero(x))
    codec = Codec(layout_for(n_elements, n_items, cells_per_item, form), dtype=dtype)
    message = codec.encode(x)  # compiled, and rows placed, before the clock starts
    decoded = codec.decode(message)
    total = x.copy()
    add = _best(lambda: np.add(total, x, out=total), repeats)
    encode, index = _best(lambda: codec.encode(x), repeats), _best(lambda: codec.index.encode(x), repeats)
    scan = _best(lambda: codec.open(message), repeats)
    peel = min(_best(partial(codec.peel, codec.open(message)), 1) for _ in range(repeats))
    size = x.nbytes
    return Measured(
        density, codec.layout.n_cells / n_items, n_elements, n_items, size / index, size / max(encode - index, 1e-9),
        size / encode, size / scan, peel / n_items, decoded.rounds, decoded.complete, size / add,
    )


def _best(action: Callable[[], object], repeats: int) -> float:
    """The shortest of several times, one right after the other, in seconds of this process."""
    best_s = float("inf")
    for _ in range(repeats):
        started = process_time()
        action()
        best_s = min(best_s, process_time() - started)
    return max(best_s, 1e-9)
