"""The compiler, numba, and the door through which words come into what it compiles: imported to compile alone."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from importlib.util import find_spec
from itertools import count
from typing import Any

import numba
from llvmlite import ir
from numba.core import types
from numba.core.registry import cpu_target
from numba.core.runtime.nrt import rtsys
from numba.extending import typeof_impl

from topologies.compiled import Kernel, Part, packed

_WORD, _HALF = ir.IntType(64), ir.IntType(32)

DATA, SHAPE, STRIDES = 0, 2, 3
"""Words of an array as an object of Python, behind what every object has: the structure that numpy lays open in C."""


def plain(function: Callable[..., Any], **flags: Any) -> Any:
    """A function as numba has it."""
    njit: Any = numba.njit  # its stubs lack flags
    return njit(**flags, no_cpython_wrapper=True)(function)


@typeof_impl.register(Part)
def _typed(one: Part, purpose: Any) -> Any:
    return cpu_target.typing_context.resolve_value_type(one.made)


def compiled(kernel: Kernel, given: tuple[Any, ...]) -> bytes:
    """The code of a kernel for arguments like these, as it is kept."""
    load_runtime()
    function, doors = kernel.made, list[str]()
    kinds = tuple(map(numba.typeof, given))
    with _with_door(kernel.py_func, doors):
        function.compile(kinds)
    found = function.overloads[kinds]
    returned, library = found.signature.return_type, found.library
    many = isinstance(returned, types.UniTuple | types.Tuple)
    names = [] if returned == types.none else list(map(str, returned.types)) if many else [str(returned)]
    outside = [one.name for one in library._final_module.functions if one.is_declaration]
    runtime = any(name.startswith(("NRT_", "numba_", "Py")) for name in outside)
    return packed(library._get_compiled_object(), doors[-1], names, many=many, runtime=runtime)


@contextmanager
def _with_door(function: Callable[..., Any], names: list[str]) -> Iterator[None]:
    """Give the function a door where numba would make a wrapper for C; `names` gets its name."""
    context: Any = cpu_target.target_context
    context.create_cfunc_wrapper = partial(_door, context, function.__qualname__, names)
    try:
        yield
    finally:
        del context.create_cfunc_wrapper


def _door(context: Any, whose: str, names: list[str], library: Any, described: Any, *_: Any) -> None:
    if described.qualname != whose:
        return  # a function of numba's, or another kernel, which nobody calls from outside
    module, calls = context.create_module("door"), context.call_conv
    kind = calls.get_function_type(described.restype, described.argtypes)
    kernel = ir.Function(module, kind, described.llvm_func_name)
    door = ir.Function(module, ir.FunctionType(_HALF, [_WORD.as_pointer()]), described.llvm_cfunc_wrapper_name)
    builder = ir.IRBuilder(door.append_basic_block("entry"))
    places = count()

    def word() -> Any:
        return builder.load(builder.gep(door.args[0], [_HALF(next(places))]))

    values = [_value(context, builder, one, word) for one in described.argtypes]
    status, out = calls.call_function(
        builder, kernel, described.restype, described.argtypes, values, attrs=("noinline",)
    )
    for place, one in enumerate(_words(builder, described.restype, out)):
        builder.store(one, builder.gep(door.args[0], [_HALF(place)]))
    builder.ret(builder.select(status.is_error, status.code, _HALF(0)))
    library.add_ir_module(module)
    names.append(door.name)


def _value(context: Any, builder: Any, kind: Any, word: Callable[[], Any]) -> Any:
    """An argument made of its words; a type that says how has `of_values`."""
    if isinstance(kind, types.Array):
        return _array(context, builder, kind, word())
    if hasattr(kind, "of_values"):
        return kind.of_values(builder, [_value(context, builder, one, word) for _, one in kind.place.values()])
    if hasattr(kind, "types"):
        return context.make_tuple(builder, kind, [_value(context, builder, one, word) for one in kind.types])
    if isinstance(kind, types.Float):
        return context.cast(builder, builder.bitcast(word(), ir.DoubleType()), types.float64, kind)
    return context.cast(builder, word(), types.int64, kind)


def _array(context: Any, builder: Any, kind: Any, address: Any) -> Any:
    from numba.np.arrayobj import populate_array  # loads what `load_runtime` loads, which has to come first

    behind = builder.inttoptr(builder.add(address, _WORD(object.__basicsize__)), _WORD.as_pointer())

    def at(words: Any, place: int) -> Any:
        return builder.load(builder.gep(words, [_HALF(place)]))

    shape, strides = (builder.inttoptr(at(behind, one), _WORD.as_pointer()) for one in (SHAPE, STRIDES))
    array = context.make_array(kind)(context, builder)
    bytes_each = context.get_abi_sizeof(context.get_data_type(kind.dtype))
    populate_array(  # type: ignore[no-untyped-call]  # numba has no types
        array, builder.inttoptr(at(behind, DATA), array.data.type), [at(shape, i) for i in range(kind.ndim)],
        [at(strides, i) for i in range(kind.ndim)], _WORD(bytes_each), None,
    )
    return array._getvalue()


def _words(builder: Any, kind: Any, value: Any) -> list[Any]:
    if kind == types.none:
        return []
    if hasattr(kind, "types"):
        return [_words(builder, one, builder.extract_value(value, i))[0] for i, one in enumerate(kind.types)]
    if kind == types.float64:
        return [builder.bitcast(value, _WORD)]
    if value.type == _WORD:
        return [value]
    return [builder.sext(value, _WORD) if getattr(kind, "signed", False) else builder.zext(value, _WORD)]


@cache
def load_runtime() -> None:
    """Load what numba loads before its first kernel, without SciPy's linear algebra: half a second of a command.

    Numba asks there whether SciPy has a BLAS; kernels that use one import it when they are compiled.
    """
    from numba.np import linalg

    checks: Any = linalg
    asks = checks.ensure_blas
    if find_spec("scipy") is not None:
        checks.ensure_blas = lambda: None
    from numba.np import arraymath

    found: Any = arraymath
    checks.ensure_blas = found.ensure_blas = asks
    rtsys.initialize(cpu_target.target_context)
