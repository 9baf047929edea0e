"""Programs and states go to kernels by pointer: numba hands a named tuple on as each of its several hundred numbers.

The pointer leads to what numba keeps of each array, and to a word for each number.
"""

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

from llvmlite import ir
from numba.core import types
from numba.core.datamodel import PrimitiveModel
from numba.core.typing.templates import AttributeTemplate
from numba.extending import infer_getattr, lower_getattr_generic, register_model, typeof_impl

from sim.engine.compile.line import DATA, SIZE, Line, RowAt

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

    def of_values(self, builder: Any, values: Sequence[Any]) -> Any:
        """Write the values down, for as long as the kernel runs."""
        address = builder.alloca(_WORD, self.words)
        for (place, _), value in zip(self.place.values(), values, strict=True):
            held = builder.zext(value, ir.IntType(8)) if value.type == ir.IntType(1) else value
            builder.store(held, _word(builder, address, place, held.type))
        return address


def go_by_pointer(named_tuples: Iterable[type]) -> None:
    """Tell the compiler that named tuples of these classes do."""
    for one in named_tuples:
        typeof_impl.register(one)(lambda value, purpose: Pointer(typeof_impl.dispatch(tuple)(value, purpose)))


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
