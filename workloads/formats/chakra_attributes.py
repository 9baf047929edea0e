"""Attributes of Chakra traces: named values of fifteen types or lists of them, from and to bytes."""

import struct
from collections.abc import Iterator
from typing import NamedTuple

from topologies import WeftError
from workloads.formats.protobuf_wire import BYTES, FIXED32, FIXED64, VARINT, field, fields, read_varint, varint

SCALARS = (
    "double", "float", "int32", "int64", "uint32", "uint64", "sint32", "sint64", "fixed32", "fixed64", "sfixed32",
    "sfixed64", "bool", "string", "bytes",
)
"""Types of attributes; the k-th is field 3 + 2k, and a list of it the field after that."""

Scalar = float | int | bool | str | bytes
Value = Scalar | tuple[Scalar, ...]


class Attribute(NamedTuple):
    """A named value of a node or of the file."""

    name: str
    value: Value  # number, bool, str, bytes, or a tuple of them
    kind: str  # one of `SCALARS`, of each item where the value is a tuple; "" of an attribute without a value
    note: str = ""  # the schema's `doc_string`


def parse_attribute(data: bytes, where: str) -> Attribute:
    """The attribute in some bytes; `where` begins every complaint."""
    name = note = ""
    kind = ""
    value: Value = ()  # as protobuf writes an empty list
    for number, wire, raw in fields(data, where):
        if number == 1:
            name = utf8(raw, wire, where)
            where = f"{where}: attribute {name!r}"
        elif number == 2:
            note = utf8(raw, wire, where)
        elif 3 <= number < 3 + 2 * len(SCALARS):
            kind = SCALARS[(number - 3) // 2]
            value = _scalar(kind, raw, wire, where) if number % 2 else _list(kind, message(raw, where), where)
        else:
            raise WeftError(f"{where}: unknown field {number} of an attribute")
    return Attribute(name, value, kind, note)


def _list(kind: str, data: bytes, where: str) -> tuple[Scalar, ...]:
    found: list[Scalar] = []
    for number, wire, value in fields(data, where):
        if number != 1:
            raise WeftError(f"{where}: unknown field {number} of a list")
        if kind in ("string", "bytes"):
            found.append(_scalar(kind, value, wire, where))
        else:
            found += [_scalar(kind, one, _WIRES[kind], where) for one in packed(value, wire, _WIRES[kind], where)]
    return tuple(found)


def packed(value: int | bytes, wire: int, item: int, where: str) -> list[int]:
    """Numbers of a repeated field: one, or many packed into bytes."""
    if isinstance(value, int):
        if wire != item:
            raise WeftError(f"{where}: a number has the wire type {wire}; {item} is expected")
        return [value]
    if item == VARINT:
        return list(_varints(value, where))
    width = 8 if item == FIXED64 else 4
    if len(value) % width:
        raise WeftError(f"{where}: a list of numbers of {width} bytes has {len(value)} bytes")
    return [int.from_bytes(value[at : at + width], "little") for at in range(0, len(value), width)]


def _varints(data: bytes, where: str) -> Iterator[int]:
    at = 0
    while at < len(data):
        value, at = read_varint(data, at, where)
        yield value


_FIXED = {"double": "<d", "float": "<f", "fixed32": "<I", "fixed64": "<Q", "sfixed32": "<i", "sfixed64": "<q"}
"""Kinds of 4 or 8 bytes, as `struct` knows them."""

_WIRES = {
    kind: {4: FIXED32, 8: FIXED64}[struct.calcsize(_FIXED[kind])] if kind in _FIXED
    else BYTES if kind in ("string", "bytes") else VARINT
    for kind in SCALARS
}

_RANGES = {"bool": (0, 1)} | {
    kind: (0, 2**bits - 1) if kind.startswith("u") else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    for bits in (32, 64) for kind in (f"int{bits}", f"uint{bits}", f"sint{bits}")
}


def _scalar(kind: str, raw: int | bytes, wire: int, where: str) -> Scalar:
    if wire != _WIRES[kind]:
        raise WeftError(f"{where}: a {kind} has the wire type {wire}; {_WIRES[kind]} is expected")
    if isinstance(raw, bytes):
        return utf8(raw, wire, where) if kind == "string" else raw
    if kind in _FIXED:
        code = _FIXED[kind]
        found: Scalar = struct.unpack(code, raw.to_bytes(struct.calcsize(code), "little"))[0]
        return found
    if kind == "bool":
        return bool(raw)
    value = raw
    if kind.startswith("sint"):
        value = raw >> 1 ^ -(raw & 1)  # zigzag
    elif kind.startswith("int") and raw >> 63:
        value = raw - 2**64
    if not _RANGES[kind][0] <= value <= _RANGES[kind][1]:
        raise WeftError(f"{where}: {value} is no {kind}")
    return value


def message(value: int | bytes, where: str) -> bytes:
    """The bytes of a message inside another."""
    if not isinstance(value, bytes):
        raise WeftError(f"{where}: a number stands where a message is expected")
    return value


def utf8(value: int | bytes, wire: int, where: str) -> str:
    """The text of a field."""
    if not isinstance(value, bytes):
        raise WeftError(f"{where}: has the wire type {wire} where text is expected")
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        raise WeftError(f"{where}: is not UTF-8 text") from None


def text_field(number: int, text: str) -> bytes:
    """A field of text, left out where there is none."""
    return field(number, text.encode("utf-8")) if text else b""


def attribute_bytes(one: Attribute) -> bytes:
    """An attribute as bytes; raises WeftError for a number that its type does not hold."""
    head = text_field(1, one.name) + text_field(2, one.note)
    if not one.kind:
        return head
    number = 3 + 2 * SCALARS.index(one.kind)
    if not isinstance(one.value, tuple):
        raw = _raw(one, one.value)
        return head + field(number, raw, _WIRES[one.kind])
    raws = [_raw(one, value) for value in one.value]
    if one.kind in ("string", "bytes"):
        return head + field(number + 1, b"".join(field(1, raw) for raw in raws))
    items = b"".join(_item_bytes(raw, _WIRES[one.kind]) for raw in raws if isinstance(raw, int))
    return head + field(number + 1, field(1, items) if items else b"")


def _item_bytes(raw: int, wire: int) -> bytes:
    return varint(raw) if wire == VARINT else raw.to_bytes(8 if wire == FIXED64 else 4, "little")


def _raw(one: Attribute, value: Scalar) -> int | bytes:
    """A value as it stands on the wire."""
    try:
        if isinstance(value, (str, bytes)) or one.kind in ("string", "bytes"):
            assert isinstance(value, str if one.kind == "string" else bytes)
            return value.encode("utf-8") if isinstance(value, str) else value
        if one.kind in _FIXED:
            return int.from_bytes(struct.pack(_FIXED[one.kind], value), "little")
        low, high = _RANGES[one.kind]
        assert isinstance(value, int) and low <= value <= high
        if one.kind.startswith("sint"):
            return value * 2 if value >= 0 else -2 * value - 1
        return value & 0xFFFFFFFFFFFFFFFF
    except (AssertionError, OverflowError, struct.error):
        raise WeftError(f"attribute {one.name!r}: {value!r} is no {one.kind}") from None
