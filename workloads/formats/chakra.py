"""Chakra execution traces (.et): the schemas of all versions are read, 0.0.4 to 1.0 written; plain or gzipped.

A file is a sequence of length-prefixed messages: metadata, then the nodes of one rank. What the metadata say of their
version is not looked at, as in Chakra's feeders: producers write "1.0.1" or "symbolic_tensor_network". Reading and
writing round-trips: attributes keep their type, empty fields are omitted.
"""

import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from topologies.checks import WeftError, checked, choice
from topologies.text.brief import one_line
from topologies.text.input_text import limit_text, read_input_bytes
from workloads.formats.chakra_attributes import (
    Attribute,
    attribute_bytes,
    message,
    packed,
    parse_attribute,
    text_field,
    utf8,
)
from workloads.formats.chakra_old import is_old, old_nodes
from workloads.formats.chakra_schema import NODE_KINDS, Node, TensorInfo
from workloads.formats.protobuf_wire import VARINT, field, fields, read_bytes, varint
from workloads.formats.waits import smallest_first

VERSIONS = ("0.0.4", "1.0.0")
"""That are written."""

MOST_BYTES = 256 * 2**20
MOST_NODES = 1_000_000

@checked
@one_line
class Trace(NamedTuple):
    """One file.

    Attributes
    ----------
    version : str
        As the producer calls it; often "", where the attribute `schema` says it.
    attributes : tuple of Attribute
    nodes : tuple of Node
    dropped : int
        Control dependencies that are left out: on nodes that the file does not have, or all of them where they
        contradict the data dependencies. Converters write both, and older feeders read no control dependencies at all.
    """

    version: str
    attributes: tuple[Attribute, ...]
    nodes: tuple[Node, ...]
    dropped: int = 0


@checked
def read_trace(path: str | Path) -> Trace:
    """Read a file.

    Raises
    ------
    WeftError
        Names the file, node and field: a file that cannot be read or is larger than `MOST_BYTES`, is truncated or is
        not a trace of this schema, an unknown field or type, a duplicate node, or a node that waits for itself or for a
        missing one.
    """
    data = read_input_bytes(path, "trace", MOST_BYTES)
    if data[:2] == b"\x1f\x8b":
        data = _unzipped(data, f"trace {path}")
    if len(data) > MOST_BYTES:
        raise WeftError(f"trace {path} is larger than the limit of {limit_text(MOST_BYTES)}")
    return parse_trace(data, str(path))


def parse_trace(data: bytes, name: str) -> Trace:
    """The trace in some bytes; `name` is that of the file, for messages. Raises as `read_trace`."""
    where = f"trace {name}"
    if not data:
        raise WeftError(f"{where} is empty")
    head, at = read_bytes(data, 0, f"{where}: its metadata")
    messages: list[bytes] = []
    while at < len(data):
        one, at = read_bytes(data, at, f"{where}: node {len(messages)} of the file")
        messages.append(one)
        if len(messages) > MOST_NODES:
            raise WeftError(f"{where}: more than {MOST_NODES:,} nodes")
    if is_old(head, messages[0] if messages else b"", f"{where}: its metadata"):
        return ordered("", (), old_nodes([head, *messages], where), where)
    version, attributes = _metadata(head, where)
    nodes = [_node(one, f"{where}: node {number} of the file") for number, one in enumerate(messages)]
    return ordered(version, attributes, nodes, where)


def ordered(version: str, attributes: tuple[Attribute, ...], nodes: Sequence[Node], where: str) -> Trace:
    """A trace whose nodes can be ordered, without control dependencies that keep them from it."""
    there = {node.id for node in nodes}
    kept = [node if there.issuperset(node.control_after) else node._replace(
        control_after=tuple(other for other in node.control_after if other in there)) for node in nodes
    ]
    try:
        in_order(kept, where)
    except WeftError:
        kept = [node._replace(control_after=()) for node in nodes]
        in_order(kept, where)
    dropped = sum(len(node.control_after) - len(some.control_after) for node, some in zip(nodes, kept, strict=True))
    return Trace(version, attributes, tuple(kept), dropped)


@checked
def write_trace(trace: Trace) -> bytes:
    """A trace as the bytes of a file.

    Raises
    ------
    WeftError
        A number that its type does not hold.
    """
    head = text_field(1, trace.version) + b"".join(field(2, attribute_bytes(one)) for one in trace.attributes)
    return b"".join(varint(len(one)) + one for one in (head, *map(_node_bytes, trace.nodes)))


def in_order(nodes: Sequence[Node], where: str) -> list[int]:
    """Positions of the nodes in topological order, smallest id first.

    WeftError: a duplicate node, a dependency on a missing node, or a dependency cycle.
    """
    place: dict[int, int] = {}
    for at, node in enumerate(nodes):
        if place.setdefault(node.id, at) != at:
            raise WeftError(f"{where}: node {node.id} is given twice")
    for node in nodes:
        for other in node.after:
            if other not in place:
                raise WeftError(f"{where}: node {node.id} waits for node {other}, which does not exist")
    order = smallest_first({node.id: node.after for node in nodes}, lambda number: f"{where}: node {number}")
    return [place[one] for one in order]


def _unzipped(data: bytes, where: str) -> bytes:
    unzip = zlib.decompressobj(wbits=31)
    try:
        out = unzip.decompress(data, MOST_BYTES + 1)
    except zlib.error as fault:
        raise WeftError(f"{where}: is a damaged gzip file: {fault}") from None
    if len(out) <= MOST_BYTES and not unzip.eof:
        raise WeftError(f"{where}: is a gzip file that is cut off")
    return out


def _metadata(data: bytes, where: str) -> tuple[str, tuple[Attribute, ...]]:
    version, attributes = "", []
    for number, wire, value in fields(data, f"{where}: its metadata"):
        if number == 1:
            version = utf8(value, wire, f"{where}: version")
        elif number == 2:
            attributes.append(parse_attribute(message(value, f"{where}: metadata"), f"{where}: metadata"))
        else:
            raise WeftError(f"{where}: unknown field {number} of its metadata")
    return version, tuple(attributes)


def _node(data: bytes, where: str) -> Node:
    found: dict[str, int | str] = {}
    waits: dict[int, list[int]] = {4: [], 5: []}
    info: dict[int, TensorInfo] = {}
    attributes = []
    kind = 0
    for number, wire, value in fields(data, where):
        if number in _NODE_NUMBERS:
            found[_NODE_NUMBERS[number]] = _whole(value, wire, where, number)
        elif number == 2:
            found["name"] = utf8(value, wire, f"{where}: name")
        elif number == 3:
            kind = _whole(value, wire, where, number)
        elif number in waits:
            waits[number] += packed(value, wire, VARINT, where)
        elif number in (8, 9):
            info[number] = _tensor_info(message(value, where), where)
        elif number == 10:
            attributes.append(parse_attribute(message(value, where), where))
        else:
            raise WeftError(f"{where}: unknown field {number}")
    if kind >= len(NODE_KINDS):
        raise WeftError(f"{where}: has the unknown type {kind}")
    return Node(
        int(found.get("id", 0)), str(found.get("name", "")), NODE_KINDS[kind], tuple(waits[4]), tuple(waits[5]),
        int(found.get("start_us", 0)), int(found.get("duration_us", 0)), info.get(8), info.get(9), tuple(attributes),
    )


_NODE_NUMBERS = {1: "id", 6: "start_us", 7: "duration_us"}


def _tensor_info(data: bytes, where: str) -> TensorInfo:
    texts = {1: "", 2: "", 3: ""}
    for number, wire, value in fields(data, where):
        if number not in texts:
            raise WeftError(f"{where}: unknown field {number} of its inputs or outputs")
        texts[number] = utf8(value, wire, where)
    return TensorInfo(*texts.values())


def _whole(value: int | bytes, wire: int, where: str, number: int) -> int:
    if wire != VARINT or not isinstance(value, int):
        raise WeftError(f"{where}: field {number} has the wire type {wire}; {VARINT} is expected")
    return value


def _node_bytes(node: Node) -> bytes:
    kind = choice(node.kind, NODE_KINDS, f"node {node.id}: kind")
    numbers = {1: node.id, 3: NODE_KINDS.index(kind), 6: node.start_us, 7: int(node.duration_us)}
    parts = {number: field(number, value) for number, value in numbers.items() if value}
    parts[2] = text_field(2, node.name)
    for number, waits in ((4, node.control_after), (5, node.data_after)):
        if waits:
            parts[number] = field(number, b"".join(map(varint, waits)))
    for number, info in ((8, node.inputs), (9, node.outputs)):
        if info is not None:
            parts[number] = field(number, b"".join(text_field(k, text) for k, text in enumerate(info, start=1)))
    parts[10] = b"".join(field(10, attribute_bytes(one)) for one in node.attributes)
    return b"".join(parts[number] for number in sorted(parts))
