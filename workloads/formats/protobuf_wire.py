"""The wire format of Protocol Buffers: fields of a message from and to bytes, without a schema.

A message is a sequence of fields, each a number, a wire type and a value: a varint (type 0), 8 bytes (1), a length and
that many bytes (2), or 4 bytes (5).
"""

from collections.abc import Iterator

from topologies import WeftError

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5

_FIXED = {FIXED64: 8, FIXED32: 4}


def read_varint(data: bytes, at: int, where: str) -> tuple[int, int]:
    """The number at a place, and the place after it.

    WeftError: the bytes end before it does, or it is longer than 64 bits.
    """
    value = shift = 0
    while shift < 70:
        if at >= len(data):
            raise WeftError(f"{where}: is cut off in the middle of a number")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            if value >> 64:
                break
            return value, at
    raise WeftError(f"{where}: a number has more than 64 bits")


def read_bytes(data: bytes, at: int, where: str) -> tuple[bytes, int]:
    """The bytes that a length at a place announces, and the place after them."""
    length, at = read_varint(data, at, where)
    if length > len(data) - at:
        raise WeftError(f"{where}: is cut off: {length} bytes are announced and {len(data) - at} are left")
    return data[at : at + length], at + length


def fields(data: bytes, where: str) -> Iterator[tuple[int, int, int | bytes]]:
    """The fields of a message as (number, wire type, value); numbers are unsigned, whatever they mean.

    WeftError: bytes that are no message.
    """
    at = 0
    while at < len(data):
        key, at = read_varint(data, at, where)
        number, wire = key >> 3, key & 7
        if not 0 < number < 2**29:
            raise WeftError(f"{where}: has a field numbered {number}")
        value: int | bytes
        if wire == VARINT:
            value, at = read_varint(data, at, where)
        elif wire == BYTES:
            value, at = read_bytes(data, at, where)
        elif wire in _FIXED:
            end = at + _FIXED[wire]
            if end > len(data):
                raise WeftError(f"{where}: is cut off in field {number}")
            value, at = int.from_bytes(data[at:end], "little"), end
        else:
            raise WeftError(f"{where}: field {number} has the wire type {wire}, which is not read")
        yield number, wire, value


def varint(value: int) -> bytes:
    """An unsigned number of at most 64 bits."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def field(number: int, value: int | bytes, wire: int = VARINT) -> bytes:
    """A field; `wire` is that of a number, bytes have their own."""
    if isinstance(value, bytes):
        return varint(number << 3 | BYTES) + varint(len(value)) + value
    tail = varint(value) if wire == VARINT else value.to_bytes(_FIXED[wire], "little")
    return varint(number << 3 | wire) + tail
