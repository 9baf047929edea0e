"""Validation of the arrays given to the codecs: one line for each that does not fit."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from topologies import WeftError

Values = npt.NDArray[Any]


def vector(x: object, what: str, size: int | None = None) -> Values:
    """A one-dimensional array of numbers in native byte order, of the given size if any.

    Compiled loops trust the type and size they are given.
    """
    if not isinstance(x, np.ndarray) or isinstance(x, np.ma.MaskedArray):
        raise WeftError(f"{what} is a {type(x).__name__}: give a numpy array")
    if x.ndim != 1 or (size is not None and x.size != size):
        raise WeftError(f"{what} has shape {x.shape}: give ({'n' if size is None else size},)")
    if (x.dtype.kind not in "iuf" and x.dtype.name != "bfloat16") or not x.dtype.isnative:
        raise WeftError(f"{what} is of {x.dtype!r}: give integers or floating point in native byte order")
    return np.asarray(x)


def same_size(arrays: Sequence[Any], what: str) -> Sequence[Values]:
    """At least one array, all of one size."""
    if not arrays:
        raise WeftError(f"{what} has no arrays: give at least one")
    first = vector(arrays[0], f"{what}, array 0")
    for at, x in enumerate(arrays):
        vector(x, f"{what}, array {at}", first.size)
    return arrays
