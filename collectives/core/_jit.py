"""How the kernels of schedules are compiled: all with the same flags, and never from stale code."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from topologies.compiled import cached, part

Function = Callable[..., Any]

ONE = np.int64(1)
"""A bit to be shifted: that of Python does not fit a word at place 63, where kernels run without the compiler."""

_HERE = Path(__file__).parent
_SOURCES = sorted(_HERE.glob("_[a-z]*.py"))
"""What compiled code depends on: code and flags."""

_FLAGS: dict[str, Any] = {"nogil": True, "error_model": "numpy", "_nrt": False}


def entry(function: Function) -> Any:
    """A kernel that Python calls."""
    return cached(function, _SOURCES, **_FLAGS)


def helper(function: Function) -> Any:
    """A part of a kernel, inlined into its callers."""
    return part(function, **_FLAGS, forceinline=True, no_cfunc_wrapper=True)
