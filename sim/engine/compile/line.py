"""The array that a kernel takes out of a program or a state: an address and a size, where numba keeps seven numbers.

It is contiguous, of one dimension, and only read and written by index: much less code for the compiler. An index is
never negative: the code that would count negative ones from the end, and the loads of the sizes that it needs, are left
out (15.4 to 22.3 million chunk-hops per second on the ring of 256). What is read of a narrower word is an int64.

An item of an array of rows (sim/engine/compile/rows.py) is the address of the row; its words are attributes.
"""

import hashlib
import operator
from typing import Any

from llvmlite import ir
from numba import extending
from numba.core import types
from numba.core.datamodel import PrimitiveModel, StructModel
from numba.core.typing.templates import AbstractTemplate, AttributeTemplate, infer_global, signature

DATA, SIZE = 0, 1
_BYTE = ir.IntType(8)


class RowAt(types.Type):
    """Type of the address of a row."""

    def __init__(self, record: types.Record) -> None:
        self.bytes = record.size
        self.place = {word: (record.offset(word), record.typeof(word)) for word in record.fields}
        super().__init__(name=f"Row_{hashlib.sha256(str(record).encode()).hexdigest()[:8]}")


class Line(types.Type):
    """Type of such an array."""

    def __init__(self, dtype: types.Type) -> None:
        self.dtype = RowAt(dtype) if isinstance(dtype, types.Record) else dtype
        super().__init__(name=f"Line({self.dtype})")


@extending.register_model(RowAt)
class _Address(PrimitiveModel):
    def __init__(self, manager: Any, row: RowAt) -> None:
        super().__init__(manager, row, _BYTE.as_pointer())


@extending.register_model(Line)
class _Model(StructModel):
    def __init__(self, manager: Any, line: Line) -> None:
        data = types.voidptr if isinstance(line.dtype, RowAt) else types.CPointer(line.dtype)
        super().__init__(manager, line, [("data", data), ("size", types.intp)])


@extending.infer_getattr
class _Size(AttributeTemplate):
    key = Line

    def resolve_size(self, line: Line) -> types.Type:
        return types.intp


@extending.lower_getattr(Line, "size")
def _load_size(context: Any, builder: Any, line: Line, value: Any) -> Any:
    return builder.extract_value(value, SIZE)


def item_address(builder: Any, line: Line, value: Any, index: Any) -> Any:
    """Address of an item of an array."""
    if isinstance(line.dtype, RowAt):
        index = builder.mul(index, ir.Constant(index.type, line.dtype.bytes), flags=("nuw", "nsw"))
    return builder.gep(builder.extract_value(value, DATA), [index], inbounds=True)


def _wide(kind: types.Type) -> types.Type:
    return types.int64 if kind in types.signed_domain else kind


def _index(kind: Any) -> types.Type | None:
    if not isinstance(kind, types.Integer):
        return None
    return types.int64 if kind.signed else types.uint64


@infer_global(operator.getitem)
class _Get(AbstractTemplate):
    def generic(self, args: Any, kws: Any) -> Any:
        line, index = args[0], _index(args[1])
        return signature(_wide(line.dtype), line, index) if isinstance(line, Line) and index is not None else None


@infer_global(operator.setitem)
class _Set(AbstractTemplate):
    def generic(self, args: Any, kws: Any) -> Any:
        line, index = args[0], _index(args[1])
        if not isinstance(line, Line) or isinstance(line.dtype, RowAt) or index is None:
            return None
        return signature(types.none, line, index, line.dtype)


@extending.lower_builtin(operator.getitem, Line, types.Integer)
def _read(context: Any, builder: Any, typed: Any, arguments: Any) -> Any:
    line, address = typed.args[0], item_address(builder, typed.args[0], *arguments)
    if isinstance(line.dtype, RowAt):
        return address
    return _read_word(context, builder, line.dtype, address, str(line.dtype))


def _read_word(context: Any, builder: Any, kind: types.Type, address: Any, where: str) -> Any:
    value = _apart(builder, builder.load(address), where)
    return context.cast(builder, context.data_model_manager[kind].from_data(builder, value), kind, _wide(kind))


def _write_word(context: Any, builder: Any, kind: types.Type, address: Any, value: Any, where: str) -> Any:
    value = context.data_model_manager[kind].as_data(builder, value)
    _apart(builder, builder.store(value, address), where)
    return context.get_dummy_value()


def _apart(builder: Any, access: Any, where: str) -> Any:
    """Tell the optimizer that words of different places are never the same memory: a store to one leaves all others.

    So it keeps the present, say, in a register while events are written: 5 to 9 % of a run.
    """
    zero = ir.Constant(ir.IntType(64), 0)
    kind = builder.module.add_metadata([where, builder.module.add_metadata(["weft"]), zero])
    access.set_metadata("tbaa", builder.module.add_metadata([kind, kind, zero]))
    return access


@extending.lower_builtin(operator.setitem, Line, types.Integer, types.Any)
def _write(context: Any, builder: Any, typed: Any, arguments: Any) -> Any:
    line, index, value = arguments
    kind = typed.args[2]
    return _write_word(context, builder, kind, item_address(builder, typed.args[0], line, index), value, str(kind))


@extending.infer_getattr
class _Words(AttributeTemplate):
    key = RowAt

    def generic_resolve(self, row: RowAt, word: str) -> types.Type | None:
        return _wide(row.place[word][1]) if word in row.place else None


def _word(context: Any, builder: Any, row: RowAt, address: Any, word: str) -> Any:
    offset, kind = row.place[word]
    at = builder.gep(address, [ir.IntType(32)(offset)], inbounds=True)
    return builder.bitcast(at, context.get_data_type(kind).as_pointer())


def _of(row: RowAt, word: str) -> str:
    """Memory that two layouts share has rows of one size, and words at the same places."""
    return f"{row.place[word][0]} of {row.bytes}"


@extending.lower_getattr_generic(RowAt)
def _read_named(context: Any, builder: Any, row: RowAt, address: Any, word: str) -> Any:
    at = _word(context, builder, row, address, word)
    return _read_word(context, builder, row.place[word][1], at, _of(row, word))


@extending.lower_setattr_generic(RowAt)
def _write_named(context: Any, builder: Any, typed: Any, arguments: Any, word: str) -> Any:
    row, kind = typed.args[0], typed.args[0].place[word][1]
    value = context.cast(builder, arguments[1], typed.args[1], kind)
    return _write_word(context, builder, kind, _word(context, builder, row, arguments[0], word), value, _of(row, word))
