"""The one door to numba: every kernel is compiled with the same flags, and its cache is never stale."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba

_HERE = Path(__file__).parent
_SOURCES = ("_jit.py", "_kernel.py", "program.py")
"""What the compiled code depends on: flags, code, and the constants compiled into it."""

Function = Callable[..., Any]


def _cache_folder() -> str:
    """A folder named after the sources, so that no change of them can meet code compiled before it.

    Numba itself looks at the time stamp of the file a function stands in and would miss a changed constant.
    """
    digest = hashlib.sha256(b"".join((_HERE / name).read_bytes() for name in _SOURCES)).hexdigest()[:16]
    for parent in (_HERE / "__pycache__", Path(tempfile.gettempdir()) / f"weft-{os.getuid()}"):
        folder = parent / f"kernel-{digest}"
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError:
            continue
        if os.access(folder, os.W_OK):
            return str(folder)
    return ""


def _compile(function: Function, inline: str) -> Function:
    """Compile without the interpreter and without reference counts (`_nrt`): a kernel allocates nothing.

    Counting references to the arrays in a NamedTuple costs more than all else: 0.25 million chunk-hops a second with
    it, 2.6 without, 14 with the helpers inlined as well (ring of 256, 16 chunks). fastmath stays off, so that
    results repeat everywhere.
    """
    before = numba.config.CACHE_DIR
    numba.config.CACHE_DIR = _cache_folder()
    try:
        compiled: Function = numba.njit(cache=True, nogil=True, error_model="numpy", _nrt=False, inline=inline)(function)
    finally:
        numba.config.CACHE_DIR = before
    return compiled


def entry(function: Function) -> Function:
    """A kernel that Python calls."""
    return _compile(function, "never")


def helper(function: Function) -> Function:
    """A part of a kernel, written into its callers before they are compiled."""
    return _compile(function, "always")


def shared(function: Function) -> Function:
    """A part of a kernel that is called rarely enough to stay a function, which keeps compilation short."""
    return _compile(function, "never")
