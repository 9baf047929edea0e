"""The array that a kernel takes out of a program or a state: an address and a size, where numba keeps seven numbers.

It is contiguous, of one dimension, and only read and written by index: much less code for the compiler.
"""

from __future__ import annotations

import operator
from typing import Any

from llvmlite import ir
from numba.core import types
from numba.core.datamodel import StructModel
from numba.core.typing.templates import AbstractTemplate, AttributeTemplate, infer_global, signature
from numba.extending import infer_getattr, lower_builtin, lower_getattr, register_model

DATA, SIZE = 0, 1


class Line(types.Type):
    """Type of such an array."""

    def __init__(self, dtype: types.Type) -> None:
        self.dtype = dtype
        super().__init__(name=f"Line({dtype})")


@register_model(Line)
class _Model(StructModel):
    def __init__(self, manager: Any, line: Line) -> None:
        super().__init__(manager, line, [("data", types.CPointer(line.dtype)), ("size", types.intp)])


@infer_getattr
class _Size(AttributeTemplate):
    key = Line

    def resolve_size(self, line: Line) -> types.Type:
        return types.intp


@lower_getattr(Line, "size")
def _load_size(context: Any, builder: Any, line: Line, value: Any) -> Any:
    return builder.extract_value(value, SIZE)


def _index(kind: Any) -> types.Type | None:
    if not isinstance(kind, types.Integer):
        return None
    return types.int64 if kind.signed else types.uint64


@infer_global(operator.getitem)
class _Get(AbstractTemplate):
    def generic(self, args: Any, kws: Any) -> Any:
        line, index = args[0], _index(args[1])
        return signature(line.dtype, line, index) if isinstance(line, Line) and index is not None else None


@infer_global(operator.setitem)
class _Set(AbstractTemplate):
    def generic(self, args: Any, kws: Any) -> Any:
        line, index = args[0], _index(args[1])
        return signature(types.none, line, index, line.dtype) if isinstance(line, Line) and index is not None else None


@lower_builtin(operator.getitem, Line, types.Integer)
def _read(context: Any, builder: Any, typed: Any, arguments: Any) -> Any:
    return context.unpack_value(builder, typed.return_type, _word(builder, typed, *arguments))


@lower_builtin(operator.setitem, Line, types.Integer, types.Any)
def _write(context: Any, builder: Any, typed: Any, arguments: Any) -> Any:
    line, index, value = arguments
    context.pack_value(builder, typed.args[2], value, _word(builder, typed, line, index))
    return context.get_dummy_value()


def _word(builder: Any, typed: Any, line: Any, index: Any) -> Any:
    """Address of an entry: as in Python, an index below zero counts from the end."""
    if typed.args[1].signed:
        behind = builder.add(index, builder.extract_value(line, SIZE))
        index = builder.select(builder.icmp_signed("<", index, ir.IntType(64)(0)), behind, index)
    return builder.gep(builder.extract_value(line, DATA), [index], inbounds=True)
