"""Nodes of Chakra's schemas 0.0.1 to 0.0.3 (2023) as those of the later ones.

Their files begin with a node, or with attributes of the whole trace. 0.0.1 has a field for everything; 0.0.2 and 0.0.3
have attributes whose value stands in a field of its kind, and what is read here does not depend on which. Only 0.0.2
has integers in field 5 or text in field 6 of them, and like 0.0.1 no nodes of metadata, so that its other types have
smaller numbers.
"""

from collections.abc import Iterable, Sequence

from topologies.checks import WeftError
from topologies.text.schema import note
from workloads.formats.chakra_attributes import Attribute, Value, message, packed, utf8
from workloads.formats.chakra_schema import COLLECTIVES, NODE_KINDS, Node
from workloads.formats.protobuf_wire import BYTES, VARINT, fields

NAMES = {6: "tensor_size", 12: "num_ops", 13: "comm_type", 14: "involved_dim", 15: "pg_name", 16: "comm_src",
         17: "comm_dst", 18: "comm_size", 19: "comm_tag", 20: "comm_priority"}
"""Fields of a node of 0.0.1 that later are attributes."""

LAST_FIELD = 20

KINDS = ("all-reduce", "all-to-all", "all-gather", "reduce-scatter", "broadcast")
"""Collectives by their number; in 0.0.1 one more."""

UNITS = {True: "nanoseconds, as ASTRA-sim of 2023 took them", False: "microseconds"}

Raw = list[tuple[int, int, int | bytes]]
"""Fields of a message."""


def is_old(head: bytes, following: bytes, where: str) -> bool:
    """Whether a file begins as those schemas have it; `following`: its second message."""
    first = next(iter(fields(head, where)), None)
    if first is None:  # attributes of the whole trace, of which there are none
        return any(number == 11 for number, _, _ in fields(following, where))
    number, wire, value = first
    return number == 1 and (wire == VARINT or (isinstance(value, bytes) and value[:1] == b"\x0a"))


def old_nodes(messages: Sequence[bytes], where: str) -> list[Node]:
    """The nodes of a file; WeftError: names the node and the field."""
    raw = [list(fields(one, f"{where}: node {at} of the file")) for at, one in enumerate(messages)]
    if raw and all(wire == BYTES and number == 1 for number, wire, _ in raw[0]):
        raw = raw[1:]
    plain = any(number > 11 or (number > 4 and wire == VARINT) for one in raw for number, wire, _ in one)
    attributes = [[] if plain else _attributes(one, f"{where}: node {at} of the file") for at, one in enumerate(raw)]
    early = plain or any((number, wire) in ((5, VARINT), (6, BYTES))
                         for some in attributes for one in some for number, wire, _ in one)
    note(f"traces of Chakra's schema 0.0.{1 if plain else 2 if early else 3}: durations are {UNITS[plain]}")
    return [_node(one, some, plain, early, f"{where}: node {at} of the file")
            for at, (one, some) in enumerate(zip(raw, attributes, strict=True))]


def _attributes(node: Raw, where: str) -> list[Raw]:
    return [list(fields(message(value, where), where)) for number, _, value in node if number == 11]


def _node(one: Raw, attributes: Iterable[Raw], plain: bool, early: bool, where: str) -> Node:
    found = {number: value for number, _, value in one}
    if (most := max(found, default=0)) > LAST_FIELD:
        raise WeftError(f"{where}: unknown field {most}")
    kind = _whole(found.get(3, 0), f"{where}: type")
    kind += early and kind > 0
    if kind >= len(NODE_KINDS):
        raise WeftError(f"{where}: has the unknown type {kind - early}")
    parents = [parent for number, wire, value in one if number == 4 for parent in packed(value, wire, VARINT, where)]
    values: dict[str, Value] = {}
    if plain:
        values = {NAMES[number]: _whole(value, f"{where}: {NAMES[number]}") for number, value in found.items()
                  if number in NAMES and number != 14}
        values["involved_dim"] = tuple(
            part > 0 for number, wire, value in one if number == 14 for part in packed(value, wire, VARINT, where))
        duration = _whole(found.get(7, 0), f"{where}: simulated_run_time") / 1000
    else:
        values = dict(_value(attribute, where) for attribute in attributes)
        duration = _whole(values.pop("runtime", 0), f"{where}: runtime")
    if "comm_type" in values:
        number = _whole(values["comm_type"], f"{where}: comm_type") - plain
        if not 0 <= number < len(KINDS):
            raise WeftError(f"{where}: comm_type is {number + plain}, which is no collective of the schema")
        values["comm_type"] = COLLECTIVES.index(KINDS[number])
    return Node(
        _whole(found.get(1, 0), f"{where}: id"), utf8(found.get(2, b""), BYTES, f"{where}: name"), NODE_KINDS[kind],
        data_after=tuple(parents), duration_us=duration,
        attributes=tuple(Attribute(name, value, _kind_of(value)) for name, value in values.items() if value != ()),
    )


def _value(attribute: Raw, where: str) -> tuple[str, Value]:
    """Name and value of an attribute: a number, text, or a list of truth values."""
    found = [(wire, value) for number, wire, value in attribute if number > 3]
    name = utf8(next((value for number, _, value in attribute if number == 1), b""), BYTES, where)
    if name == "involved_dim":
        return name, tuple(part > 0 for wire, value in found for part in packed(value, wire, VARINT, where))
    last = found[-1][1] if found else 0
    return name, last if isinstance(last, int) else last.decode("utf-8", "replace")


def _kind_of(value: Value) -> str:
    return "bool" if isinstance(value, tuple) else "int64" if isinstance(value, int) else "string"


def _whole(value: object, what: str) -> int:
    if not isinstance(value, int):
        raise WeftError(f"{what} is no integer")
    return value
