"""How the kernels of schedules are compiled: all with the same flags, and never from stale code."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba

from topologies.compiled import cached

Function = Callable[..., Any]

_HERE = Path(__file__).parent
_SOURCES = sorted(_HERE.glob("_[a-z]*.py"))
"""What compiled code depends on: code and flags."""

_FLAGS: dict[str, Any] = {"nogil": True, "error_model": "numpy", "_nrt": False, "no_cfunc_wrapper": True}


def entry(function: Function) -> Any:
    """A kernel that Python calls."""
    return cached(function, _SOURCES, **_FLAGS)


def helper(function: Function) -> Any:
    """A part of a kernel, inlined into its callers."""
    njit: Any = numba.njit  # its stubs lack flags
    return njit(**_FLAGS, forceinline=True, no_cpython_wrapper=True)(function)
