"""Validation of integers, numbers and arrays given to the codecs: one line for each that does not fit."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from topologies import WeftError

Values = npt.NDArray[Any]


def whole(value: object, what: str, least: int, most: int = 2**31 - 1) -> int:
    """An integer in its range; booleans and floats are rejected."""
    accepted = f"give an integer, {least} to {most}"
    if isinstance(value, bool | np.bool_):
        raise WeftError(f"{what} is {value}: {accepted}")
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise WeftError(f"{what} is {value!r}: {accepted}") from None
    if not least <= number <= most:
        raise WeftError(f"{what} is {number}: {accepted}")
    return number


def number(value: object, what: str, least: float, most: float = math.inf, *, above: bool = False) -> float:
    """A number in its closed range (`above`: open at the start) that is not NaN."""
    accepted = f"give a number {'above' if above else 'from'} {least:g}" + (f" to {most:g}" if most < math.inf else "")
    if isinstance(value, bool | np.bool_ | str) or not isinstance(value, int | float | np.integer | np.floating):
        raise WeftError(f"{what} is {value!r}: {accepted}")
    if not (least < value if above else least <= value) or not value <= most:
        raise WeftError(f"{what} is {value}: {accepted}")
    return float(value)


def finite(value: object, what: str, least: float, *, above: bool = False) -> float:
    """The same without infinity."""
    checked = number(value, what, least, above=above)
    if math.isinf(checked):
        raise WeftError(f"{what} is {value}: give a finite number")
    return checked


def vector(x: object, what: str, size: int | None = None) -> Values:
    """A one-dimensional array of numbers in native byte order, of the given size if any.

    Compiled loops trust the type and size they are given.
    """
    if not isinstance(x, np.ndarray) or isinstance(x, np.ma.MaskedArray):
        raise WeftError(f"{what} is a {type(x).__name__}: give a numpy array")
    if x.ndim != 1 or (size is not None and x.size != size):
        raise WeftError(f"{what} has shape {x.shape}: give ({'n' if size is None else size},)")
    if x.dtype.kind not in "iuf" or not x.dtype.isnative:
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
