"""The only access to the compiler: every kernel is compiled with the same flags, and its cache is never stale.

Nothing here loads numba: what has to be compiled does (sim/engine/compile/one_module.py).
"""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from sim.program.contract import I64, Program
from topologies.compiled import cached, part

_ENGINE = Path(__file__).parents[1]
_SOURCES = (
    *sorted(
        path for path in _ENGINE.rglob("*.py")
        if path.parent.name == "compile" or "sim.engine.compile" in path.read_text(encoding="utf-8")
    ),
    _ENGINE / "core" / "status.py", _ENGINE.parent / "program" / "contract.py",
)
"""What the compiled code depends on: flags, code, and the constants compiled into it."""

Function = Callable[..., Any]
Class = TypeVar("Class", bound=type)

u64 = np.uint64
"""Wraps an index that is never negative: numba then leaves out the code that counts negative ones from the end, and
the loads of the sizes that it needs. 15.4 to 22.3 million chunk-hops per second on the ring of 256."""

POINTED: set[type] = {Program}
"""Named tuples that go to kernels by pointer."""


def by_pointer(named_tuple: Class) -> Class:
    """Hand the named tuples of a class, of arrays and numbers, to kernels by pointer."""
    POINTED.add(named_tuple)
    return named_tuple


def entry(function: Function) -> Function:
    """A kernel that Python calls."""
    beside = _sources(Path(function.__code__.co_filename).parent)
    kernel: Function = cached(function, beside, "sim.engine.compile.one_module:whole")
    return kernel


@cache
def _sources(folder: Path) -> tuple[Path, ...]:
    return tuple(sorted({*_SOURCES, *folder.glob("*.py")}))


def helper(function: Function) -> Function:
    """A part of a kernel, inlined into its callers by LLVM; numba's own `inline` would type it anew in each."""
    made: Function = part(function, "sim.engine.compile.one_module:part", forceinline=True)
    return made


def section(function: Function) -> Function:
    """A part of a kernel that is called, as it is long and seldom run.

    It is compiled once, and what calls it keeps its registers: with all inlined the fifo loop is slower by 4 %.
    """
    made: Function = part(function, "sim.engine.compile.one_module:part")
    return made


def _instruction(function: Function) -> Function:
    """What one instruction does, as Python does it."""
    made: Function = part(function, "sim.engine.compile.one_module:instruction")
    return made


@_instruction
def count_leading_zeros(word: int) -> int:
    """Zeros above the highest bit of a word of 64 bits."""
    return 64 - (int(word) % 2**64).bit_length()


@_instruction
def count_trailing_zeros(word: int) -> int:
    """Zeros below the lowest bit of a word."""
    return (int(word) & -int(word)).bit_length() - 1


@_instruction
def prefetch(array: I64, index: int) -> None:
    """Python has no cache to bring a word into."""
