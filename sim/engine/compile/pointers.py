"""Programs and states go to kernels by pointer: numba hands a named tuple on as each of its several hundred numbers.

The pointer leads to what numba keeps of each array, and to a word for each number.
"""

import hashlib
from typing import Any, TypeVar

import numba
from llvmlite import ir
from numba.core import types
from numba.core.datamodel import PrimitiveModel
from numba.core.typing.templates import AttributeTemplate
from numba.extending import NativeValue, infer_getattr, lower_getattr_generic, register_model, typeof_impl, unbox

from sim.engine.compile.line import DATA, SIZE, Line, RowAt

Class = TypeVar("Class", bound=type)

_WORD = ir.IntType(64)
_N_ITEMS, _DATA, _SHAPE = 2, 4, 5
"""Words of an array; its strides follow its shape."""


class Pointer(types.Type):
    """Address of what a named tuple has; its own name, of which those of all helpers are made, is short."""

    def __init__(self, to: types.NamedTuple) -> None:
        self.place: dict[str, tuple[int, Any]] = {}
        self.words = 0
        for name, kind in zip(to.fields, to.types, strict=True):
            self.place[name] = self.words, kind
            self.words += _SHAPE + 2 * kind.ndim if isinstance(kind, types.Array) else 1
        super().__init__(name=f"{to.instance_class.__name__}_{hashlib.sha256(str(to).encode()).hexdigest()[:8]}")


def by_pointer(named_tuple: Class) -> Class:
    """Hand the named tuples of a class, of arrays and numbers, to kernels by pointer."""
    if not numba.config.DISABLE_JIT:
        typeof_impl.register(named_tuple)(lambda value, purpose: Pointer(typeof_impl.dispatch(tuple)(value, purpose)))
    return named_tuple


@register_model(Pointer)
class _Model(PrimitiveModel):
    def __init__(self, manager: Any, pointer: Pointer) -> None:
        super().__init__(manager, pointer, _WORD.as_pointer())


@infer_getattr
class _Fields(AttributeTemplate):
    key = Pointer

    def generic_resolve(self, pointer: Pointer, name: str) -> types.Type | None:
        kind = pointer.place[name][1] if name in pointer.place else None
        if _is_row(kind):
            return RowAt(kind.dtype)
        return Line(kind.dtype) if _is_plain(kind) else kind


def _is_plain(kind: Any) -> bool:
    return isinstance(kind, types.Array) and kind.ndim == 1 and kind.layout == "C" and kind.aligned


def _is_row(kind: Any) -> bool:
    return isinstance(kind, types.Array) and kind.ndim == 0 and isinstance(kind.dtype, types.Record)


@unbox(Pointer)
def _take(pointer: Pointer, named_tuple: Any, python: Any) -> NativeValue:
    """Write down what Python has, for as long as the kernel runs."""
    builder = python.builder
    with builder.goto_entry_block():
        address = builder.alloca(_WORD, pointer.words)
    failed = ir.Constant(ir.IntType(1), 0)
    for i, (place, kind) in enumerate(pointer.place.values()):
        item = python.pyapi.tuple_getitem(named_tuple, i)
        if isinstance(kind, types.Array):
            whole = builder.bitcast(_word(builder, address, place, _WORD), python.pyapi.voidptr)
            status = python.pyapi.numba_array_adaptor(item, whole)
            failed = builder.or_(failed, builder.icmp_unsigned("!=", status, status.type(0)))
        else:
            native, model = python.unbox(kind, item), python.context.data_model_manager[kind]
            value = model.as_data(builder, native.value)
            builder.store(value, _word(builder, address, place, value.type))
            failed = builder.or_(failed, native.is_error)
    return NativeValue(address, is_error=failed)


@lower_getattr_generic(Pointer)
def _load_field(context: Any, builder: Any, pointer: Pointer, address: Any, name: str) -> Any:
    place, kind = pointer.place[name]
    model = context.data_model_manager[kind]
    if not isinstance(kind, types.Array):
        return model.from_data(builder, _load(builder, address, place, model.get_data_type()))
    if _is_row(kind):
        return _load(builder, address, place + _DATA, context.get_value_type(RowAt(kind.dtype)))
    if _is_plain(kind):
        whole = context.get_value_type(Line(kind.dtype))
        data = _load(builder, address, place + _DATA, whole.elements[DATA])
        value = builder.insert_value(ir.Constant(whole, ir.Undefined), data, DATA)
        return builder.insert_value(value, _load(builder, address, place + _SHAPE, _WORD), SIZE)
    value = ir.Constant(model.get_value_type(), None)  # what keeps it alive is the caller's
    for i in range(_N_ITEMS, _SHAPE + 2 * kind.ndim):
        path = [i] if i < _SHAPE else [_SHAPE + (i - _SHAPE) // kind.ndim, (i - _SHAPE) % kind.ndim]
        value = builder.insert_value(value, _load(builder, address, place + i, _part(value.type, path)), path)
    return value


def _part(kind: Any, path: list[int]) -> Any:
    for i in path:
        kind = kind.elements[i] if hasattr(kind, "elements") else kind.element
    return kind


def _load(builder: Any, address: Any, place: int, kind: Any) -> Any:
    """Load a word, marked as one that never changes."""
    value = builder.load(_word(builder, address, place, kind))
    value.set_metadata("invariant.load", builder.module.add_metadata([]))
    return value


def _word(builder: Any, address: Any, place: int, kind: Any) -> Any:
    word = builder.gep(address, [ir.IntType(32)(place)], inbounds=True)
    return word if kind == _WORD else builder.bitcast(word, kind.as_pointer())
