"""Programs and states go to helpers by pointer: numba hands a named tuple on as each of its several hundred numbers."""

from __future__ import annotations

from typing import Any

import numba
from numba.core import cgutils, types
from numba.core.datamodel import PrimitiveModel
from numba.core.typing.templates import AttributeTemplate
from numba.extending import infer_getattr, intrinsic, lower_getattr_generic, register_model


class Pointer(types.Type):
    """Address of a named tuple that does not change."""

    def __init__(self, to: types.NamedTuple) -> None:
        self.to = to
        super().__init__(name=f"Pointer({to})")


@register_model(Pointer)
class _Model(PrimitiveModel):
    def __init__(self, manager: Any, pointer: Pointer) -> None:
        super().__init__(manager, pointer, manager.lookup(pointer.to).get_value_type().as_pointer())


@infer_getattr
class _Fields(AttributeTemplate):
    key = Pointer

    def generic_resolve(self, pointer: Pointer, name: str) -> types.Type | None:
        return pointer.to.types[pointer.to.fields.index(name)] if name in pointer.to.fields else None


@lower_getattr_generic(Pointer)
def _load_field(context: Any, builder: Any, pointer: Pointer, address: Any, name: str) -> Any:
    index = pointer.to.fields.index(name)
    return _load(builder, cgutils.gep_inbounds(builder, address, 0, index))


def _load(builder: Any, address: Any) -> Any:
    """Load a value number by number, each marked as one that never changes."""
    kind = address.type.pointee
    if not hasattr(kind, "elements") and not hasattr(kind, "count"):
        value = builder.load(address)
        value.set_metadata("invariant.load", builder.module.add_metadata([]))
        return value
    whole = kind(None)
    for i in range(len(kind)):
        whole = builder.insert_value(whole, _load(builder, cgutils.gep_inbounds(builder, address, 0, i)), i)
    return whole


def _copy(typing: Any, one: Any) -> Any:
    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return cgutils.alloca_once_value(builder, arguments[0])

    return Pointer(one)(one), emit


def _itself(one: Any) -> Any:
    return one


by_pointer: Any = _itself if numba.config.DISABLE_JIT else intrinsic(_copy)
"""Address of a copy of a named tuple, which lives as long as the caller runs."""
