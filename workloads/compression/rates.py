"""How fast the codec runs on this machine, and how long a device of given rates takes for an array."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from time import process_time
from typing import NamedTuple

import numpy as np

from topologies import WeftError
from workloads.compression.codec import Codec
from workloads.compression.layout import layout_for


@dataclass(frozen=True)
class Rates:
    """Speed of a device.

    Attributes
    ----------
    encode_Bps : float
        Bytes of the dense array a second, index included.
    scan_Bps : float
        Bytes of the dense array a second, for going through the index before the peel.
    peel_s_per_item : float
        Seconds for each union non-zero.
    launch_s : float
        Seconds for each round of a parallel peel; 0 where it is sequential.
    """

    encode_Bps: float
    scan_Bps: float
    peel_s_per_item: float
    launch_s: float = 0.0

    def encode_s(self, n_elements: int, word_bytes: int = 4) -> float:
        """Time to make a message."""
        return word_bytes * n_elements / self.encode_Bps

    def decode_s(self, n_elements: int, n_items: int, rounds: int = 0, word_bytes: int = 4) -> float:
        """Time to recover a sum."""
        return word_bytes * n_elements / self.scan_Bps + n_items * self.peel_s_per_item + rounds * self.launch_s


INSTANT = Rates(float("inf"), float("inf"), 0.0)
"""A device that takes no time: what is left is the network."""


class Measured(NamedTuple):
    """One measurement; times are the best of several, in seconds of this process's own, whatever else runs.

    Attributes
    ----------
    density, cells_per_item : float
    n_elements, n_items : int
    index_Bps, sketch_Bps, encode_Bps, scan_Bps : float
        Bytes of the dense array a second: index alone, sketch alone, both, and counting the items of each cell.
    peel_s_per_item : float
    rounds : int
    complete : bool
    add_Bps : float
        Bytes a second at which `numpy.add` adds two dense arrays of that size: what to compare with, as both
        depend on the machine and on what else it does.
    """

    density: float
    cells_per_item: float
    n_elements: int
    n_items: int
    index_Bps: float
    sketch_Bps: float
    encode_Bps: float
    scan_Bps: float
    peel_s_per_item: float
    rounds: int
    complete: bool
    add_Bps: float

    def rates(self) -> Rates:
        """The rates to simulate with."""
        return Rates(self.encode_Bps, self.scan_Bps, self.peel_s_per_item)


def measure(
    n_elements: int, density: float, cells_per_item: float = 1.23, lanes: int = 1024, *, dtype: str = "int32",
    repeats: int = 5, seed: int = 0,
) -> Measured:
    """Time every part of the codec on one random array on one core.

    Parameters
    ----------
    n_elements : int
    density : float
        Share of non-zeros, of the union.
    cells_per_item, lanes, dtype
        See `workloads.compression.layout`; 1,024 lanes are turned, 1 is the element layout.
    repeats : int
    seed : int

    Raises
    ------
    WeftError
        No elements, a density that is not between 0 and 1, or no repeats.
    """
    if n_elements < 1 or not 0 < density <= 1 or repeats < 1:
        raise WeftError(
            f"cannot measure {n_elements} elements of density {density}, {repeats} times: give at least one element, "
            "a density above 0 and up to 1, and at least one repeat"
        )
    rng = np.random.default_rng(seed)
    x = np.where(rng.random(n_elements) < density, rng.integers(1, 2**20, n_elements), 0).astype(dtype)
    n_items = int(np.count_nonzero(x))
    codec = Codec(layout_for(n_elements, n_items, cells_per_item, lanes=lanes), dtype=dtype)
    message = codec.encode(x)  # compiled, and rows placed, before the clock starts
    decoded = codec.decode(message)
    total = x.copy()
    add = _best(lambda: np.add(total, x, out=total), repeats)
    encode, index = _best(lambda: codec.encode(x), repeats), _best(lambda: codec.index.encode(x), repeats)
    scan = _best(lambda: codec.open_cells(message.cells, codec.index.bits(message.support)), repeats)
    peel = min(
        _best(partial(codec.peel, codec.open_cells(message.cells, codec.index.bits(message.support))[0]), 1)
        for _ in range(repeats)
    )
    size = x.nbytes
    return Measured(
        density, cells_per_item, n_elements, n_items, size / index, size / max(encode - index, 1e-9),
        size / encode, size / scan, peel / max(n_items, 1), decoded.rounds, decoded.complete, size / add,
    )


def _best(action: Callable[[], object], repeats: int) -> float:
    """The shortest of several times, one right after the other, in seconds of this process."""
    best_s = float("inf")
    for _ in range(repeats):
        started = process_time()
        action()
        best_s = min(best_s, process_time() - started)
    return max(best_s, 1e-9)
