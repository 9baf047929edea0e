"""Attributes of Chakra traces: named values of fifteen types or lists of them, from and to bytes."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping
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
    kind: str  # one of `SCALARS`, of each item where the value is a tuple
    note: str = ""  # the schema's `doc_string`


def parse_attribute(data: bytes, where: str) -> Attribute:
    """The attribute in some bytes; `where` begins every complaint."""
    name = note = ""
    kind: str | None = None
    value: Value = 0
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
    if kind is None:
        raise WeftError(f"{where}: has no value")
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


_WIRES = {
    kind: FIXED64 if kind in ("double", "fixed64", "sfixed64") else FIXED32 if kind in ("float", "fixed32", "sfixed32")
    else BYTES if kind in ("string", "bytes") else VARINT
    for kind in SCALARS
}


def _scalar(kind: str, raw: int | bytes, wire: int, where: str) -> Scalar:
    if wire != _WIRES[kind]:
        raise WeftError(f"{where}: a {kind} has the wire type {wire}; {_WIRES[kind]} is expected")
    if isinstance(raw, bytes):
        return utf8(raw, wire, where) if kind == "string" else raw
    value: Scalar = _FROM_RAW[kind](raw)
    if isinstance(value, int) and kind in _RANGES and not _RANGES[kind][0] <= value <= _RANGES[kind][1]:
        raise WeftError(f"{where}: {value} is no {kind}")
    return value


def _signed(bits: int) -> Callable[[int], int]:
    return lambda raw: raw - (1 << bits) if raw >> (bits - 1) else raw


def _zigzag(raw: int) -> int:
    return raw >> 1 ^ -(raw & 1)


_FROM_RAW: Mapping[str, Callable[[int], Scalar]] = {
    "double": lambda raw: float(struct.unpack("<d", raw.to_bytes(8, "little"))[0]),
    "float": lambda raw: float(struct.unpack("<f", raw.to_bytes(4, "little"))[0]),
    "int32": _signed(64), "int64": _signed(64), "uint32": int, "uint64": int, "sint32": _zigzag, "sint64": _zigzag,
    "fixed32": int, "fixed64": int, "sfixed32": _signed(32), "sfixed64": _signed(64), "bool": bool,
}

_UNSIGNED = {kind: (0, 2 ** int(kind[-2:]) - 1) for kind in ("uint32", "uint64", "fixed32", "fixed64")}
_SIGNED = {
    kind: (-(2 ** (int(kind[-2:]) - 1)), 2 ** (int(kind[-2:]) - 1) - 1)
    for kind in ("int32", "int64", "sint32", "sint64", "sfixed32", "sfixed64")
}
_RANGES = _UNSIGNED | _SIGNED


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
        if one.kind in ("double", "float"):
            return int.from_bytes(struct.pack("<d" if one.kind == "double" else "<f", value), "little")
        assert isinstance(value, int)
        low, high = _RANGES.get(one.kind, (0, 1))
        assert low <= value <= high
        if one.kind.startswith("sint"):
            return value * 2 if value >= 0 else -2 * value - 1
        return value & (0xFFFFFFFF if _WIRES[one.kind] == FIXED32 else 0xFFFFFFFFFFFFFFFF)
    except (AssertionError, OverflowError, struct.error):
        raise WeftError(f"attribute {one.name!r}: {value!r} is no {one.kind}") from None
