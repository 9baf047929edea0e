"""Fixed point: floating-point gradients as integers that many workers can add without overflow.

The largest exponent of all workers sets one scale (SwitchML lets the switch take the maximum, block by block); the
only loss is the rounding of each worker's values to that scale.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from topologies import WeftError
from topologies.checks import integer, number
from workloads.compression.vectors import vector

Floats = npt.NDArray[np.floating[Any]]


def shared_scale(arrays: Sequence[Floats], bits: int = 32) -> float:
    """The power of two by which values are multiplied so that no sum of the arrays overflows a signed integer.

    `arrays`: (n,) of each worker.
    `bits`: of the integer.
    WeftError: a value that is not finite, or more workers than the integer can sum.
    """
    integer(bits, "bits of an integer", 4, 64)
    for worker, x in enumerate(arrays):
        vector(x, f"worker {worker}'s array")
    headroom = math.ceil(math.log2(max(len(arrays), 1)))
    if headroom > bits - 3:
        raise WeftError(f"{len(arrays)} workers leave no bits of a {bits}-bit integer")
    largest = max((float(np.max(np.abs(x), initial=0.0)) for x in arrays), default=0.0)
    if not math.isfinite(largest):
        raise WeftError("fixed point takes finite values only")
    if largest == 0.0:
        return 1.0
    exponent = math.frexp(largest)[1]  # largest < 2**exponent
    return math.ldexp(1.0, min(bits - 2 - headroom - exponent, 1023))


def to_fixed(x: Floats, scale: float, dtype: str = "int32") -> npt.NDArray[np.signedinteger[Any]]:
    """Values times the scale, rounded to the nearest integer.

    WeftError: a value that is not finite or does not fit the integer; `shared_scale` leaves headroom for all workers.
    """
    vector(x, "the array")
    number(scale, "scale", 0, above=True)
    if dtype not in ("int8", "int16", "int32", "int64"):
        raise WeftError(f"fixed point of {dtype!r}: choose int8, int16, int32 or int64")
    with np.errstate(over="ignore"):  # shows as infinite
        scaled = np.rint(x.astype(np.float64) * scale)
    limit = float(2 ** (np.dtype(dtype).itemsize * 8 - 1))
    bad = np.flatnonzero(~((scaled >= -limit) & (scaled < limit)))
    if bad.size:
        raise WeftError(f"element {bad[0]} is {x[bad[0]]}: times the scale {scale:g} it does not fit {dtype}")
    return scaled.astype(dtype)


def from_fixed(values: npt.NDArray[np.signedinteger[Any]], scale: float) -> npt.NDArray[np.float64]:
    """Integers back to values."""
    vector(values, "the sum")
    number(scale, "scale", 0, above=True)
    return values.astype(np.float64) / scale
