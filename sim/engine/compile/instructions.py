"""Instructions of the machine that kernels use, by the names of the functions that do the same in Python."""

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from sim.engine.compile.line import item_address

Function = Callable[..., Any]


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


INSTRUCTIONS: dict[str, Function] = {
    "count_leading_zeros": _bit_count("ctlz"), "count_trailing_zeros": _bit_count("cttz"),
    "prefetch": intrinsic(_prefetch),
}
