"""The only access to numba: every kernel is compiled with the same flags, and its cache is never stale."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numba
import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from sim.engine.compile.line import item_address
from sim.engine.compile.one_module import PART, WHOLE
from sim.engine.compile.pointers import by_pointer
from sim.program.contract import I64, Program
from topologies.compiled import cached

_config: Any = numba.config
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

DISABLED = bool(_config.DISABLE_JIT)
"""NUMBA_DISABLE_JIT=1: everything is Python, for coverage."""

u64 = np.uint64
"""Wraps an index that is never negative: numba then leaves out the code that counts negative ones from the end, and
the loads of the sizes that it needs. 15.4 to 22.3 million chunk-hops per second on the ring of 256."""


by_pointer(Program)

_FLAGS: dict[str, Any] = {"nogil": True, "error_model": "numpy", "_nrt": False, "no_cfunc_wrapper": True}
"""Compiled without the interpreter and without reference counts (`_nrt`): a kernel allocates nothing.

Counting references to the arrays in a NamedTuple costs more than all else: 0.25 million chunk-hops per second with it,
2.6 without, 14 with the helpers inlined as well (ring of 256, 16 chunks). fastmath stays off, so that results repeat
everywhere.
"""


def entry(function: Function) -> Function:
    """A kernel that Python calls."""
    beside = Path(function.__code__.co_filename).parent.glob("*.py")
    return cached(function, sorted({*_SOURCES, *beside}), **_FLAGS, pipeline_class=WHOLE)


def helper(function: Function) -> Function:
    """A part of a kernel, inlined into its callers by LLVM; numba's own `inline` would type it anew in each."""
    return _part(function, forceinline=True)


def section(function: Function) -> Function:
    """A part of a kernel that is called, as it is long and seldom run.

    It is compiled once, and what calls it keeps its registers: with all inlined the fifo loop is slower by 4 %.
    """
    return _part(function)


def _part(function: Function, **flags: bool) -> Function:
    njit: Any = numba.njit  # its stubs lack flags
    compiled: Any = njit(**_FLAGS, **flags, no_cpython_wrapper=True, pipeline_class=PART)(function)
    if not DISABLED:
        typed = compiled.get_call_template
        compiled.get_call_template = lambda given, named: typed(tuple(map(_one_integer, given)), named)
    return cast("Function", compiled)


def _one_integer(kind: Any) -> Any:
    """Numba would type a helper anew for each constant and each width of its numbers."""
    return types.int64 if isinstance(kind, types.IntegerLiteral) or kind in types.signed_domain else kind


def _bit_count(name: str) -> Function:
    """The number of zero bits at one end of a word that is not zero, as the machine's own instruction."""

    def typed(context: Any, word: Any) -> Any:
        def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return getattr(builder, name)(arguments[0], context.get_constant(types.boolean, True))

        return types.int64(types.int64), emit

    counted: Function = intrinsic(typed)
    return counted


def _prefetch(typing: Any, array: Any, index: Any) -> Any:
    """Bring a word into the cache that will be read soon; nothing waits for it."""

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        word = builder.bitcast(item_address(builder, array, *arguments[:2]), ir.IntType(8).as_pointer())
        kind = ir.FunctionType(ir.VoidType(), [word.type, *[ir.IntType(32)] * 3])
        function = builder.module.declare_intrinsic("llvm.prefetch", (word.type,), kind)
        builder.call(function, [word, *(ir.Constant(ir.IntType(32), number) for number in (0, 3, 1))])
        return context.get_dummy_value()

    return types.void(array, types.int64), emit


def _leading_zeros(word: int) -> int:
    return 64 - (int(word) % 2**64).bit_length()


def _trailing_zeros(word: int) -> int:
    return (int(word) & -int(word)).bit_length() - 1


def _nothing(array: I64, index: int) -> None:
    """Python has no cache to bring a word into."""


if DISABLED:
    count_leading_zeros, count_trailing_zeros = _leading_zeros, _trailing_zeros
    prefetch: Function = _nothing
else:
    count_leading_zeros, count_trailing_zeros = _bit_count("ctlz"), _bit_count("cttz")
    prefetch = intrinsic(_prefetch)
