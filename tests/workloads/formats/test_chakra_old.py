"""Traces of Chakra's schemas 0.0.1 to 0.0.3."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from pathlib import Path

import pytest

from sim.cli import main
from topologies import WeftError
from topologies.text.schema import InputNote
from workloads.formats.chakra import Trace, parse_trace
from workloads.formats.chakra_schema import NODE_KINDS
from workloads.formats.protobuf_wire import FIXED32, field, varint

TYPES = {
    "0.0.2": ("float", "int", "string", "floats", "ints", "strings"),
    "0.0.3": ("bool", "float", "int", "string", "bools", "floats", "ints", "strings"),
    "0.0.3 with unsigned numbers": ("bool", "float", "uint", "int", "string", "bools", "floats", "uints", "ints",
                                    "strings"),
}
"""Kinds of attributes by their number; the value of each stands in the field of four more."""

METADATA = {"0.0.1": False, "0.0.2": False, "0.0.3": True, "0.0.3 with unsigned numbers": True}


def written(messages: Iterable[bytes]) -> bytes:
    return b"".join(varint(len(one)) + one for one in messages)


def attribute(schema: str, name: str, kind: str, *values: int | float | str) -> bytes:
    number = TYPES[schema].index(kind)
    body = field(1, name.encode()) + field(2, number)
    for value in values:
        if isinstance(value, float):
            body += field(number + 4, int.from_bytes(struct.pack("<f", value), "little"), FIXED32)
        else:
            body += field(number + 4, value.encode() if isinstance(value, str) else value)
    return field(11, body)


def kind_of(schema: str, kind: str) -> bytes:
    number = NODE_KINDS.index(kind)
    return field(3, number if METADATA[schema] or not number else number - 1)


def later(schema: str) -> bytes:
    """A computation of 5 us, and an all-gather of 1 KiB behind it."""
    dims = "bools" if METADATA[schema] else "ints"
    compute = field(1, 1) + field(2, b"gemm") + kind_of(schema, "compute") + attribute(schema, "runtime", "int", 5)
    gather = (
        field(1, 2) + field(2, b"gather") + kind_of(schema, "collective") + field(4, 1) + field(5, b"[x]")
        + attribute(schema, "comm_type", "int", 2) + attribute(schema, "comm_size", "int", 1024)
        + attribute(schema, "involved_dim", dims, 1, 1) + attribute(schema, "op_schema", "string", "a(b)")
        + attribute(schema, "x", "float", 1.5)
    )
    return written([compute, gather])


def first() -> bytes:
    """The same of 0.0.1, whose durations ASTRA-sim took as ns."""
    compute = field(1, 1) + field(2, b"gemm") + kind_of("0.0.1", "compute") + field(7, 5000)
    gather = (field(1, 2) + field(2, b"gather") + kind_of("0.0.1", "collective") + field(4, 1) + field(13, 3)
              + field(14, 1) + field(14, 1) + field(18, 1024))
    return written([compute, gather])


FILES = {"0.0.1": first()} | {schema: later(schema) for schema in TYPES}


def read(data: bytes) -> Trace:
    with pytest.warns(InputNote, match="schema 0.0"):
        return parse_trace(data, "w.0.et")


@pytest.mark.parametrize("schema", FILES)
def test_all_schemas_say_the_same(schema: str) -> None:
    trace = read(FILES[schema])
    compute, gather = trace.nodes
    assert (compute.kind, compute.duration_us, gather.kind, gather.after) == ("compute", 5, "collective", (1,))
    values = {one.name: one.value for one in gather.attributes}
    assert (values["comm_type"], values["comm_size"], values["involved_dim"]) == (2, 1024, (True, True))


def test_attributes_of_the_whole_trace_may_come_first() -> None:
    later_one = FILES["0.0.3 with unsigned numbers"]
    schema = "0.0.3 with unsigned numbers"
    head = field(1, attribute(schema, "schema", "string", "1.0")[2:])
    for begin in (head, b""):
        assert len(read(written([begin]) + later_one).nodes) == 2
    mark = written([field(1, 9) + kind_of(schema, "metadata") + attribute(schema, "b", "bool", 1)])
    assert read(mark).nodes[0].kind == "metadata"


@pytest.mark.parametrize(("schema", "ending"), [("0.0.1", "eg"), ("0.0.3", "et")])
def test_they_run(schema: str, ending: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for rank in range(2):
        (tmp_path / f"w.{rank}.{ending}").write_bytes(FILES[schema])
    assert main(["trace", "--topology", "ring:2", "--workload", str(tmp_path / "w")]) == 0
    said = capsys.readouterr()
    assert "Host 0: 5" in said.out and f"schema {schema}: durations are" in said.err and said.err.count("note") == 1


@pytest.mark.parametrize(("node", "why"), [
    (field(1, 1) + field(3, 9) + attribute("0.0.3", "runtime", "int", 5), "has the unknown type 9"),
    (field(1, 1) + field(3, 6) + field(13, 7) + field(18, 8), "comm_type is 7, which is no collective"),
    (field(1, 1) + field(3, 4) + attribute("0.0.3", "runtime", "string", "x"), "runtime is no integer"),
    (field(1, 1) + field(12, 8) + field(21, 1), "unknown field 21"),
    (field(1, 1) + field(4, 3) + field(12, 8), "waits for itself|waits for node 3"),
])
def test_what_is_wrong_is_one_line(node: bytes, why: str) -> None:
    with pytest.raises(WeftError, match=why), pytest.warns(InputNote):
        parse_trace(written([node]), "w.0.et")
