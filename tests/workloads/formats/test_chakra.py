"""Chakra traces: read, written, and what is said about damaged ones."""

from __future__ import annotations

import gzip
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.astra_inputs import DATA, collective_node, compute_node
from topologies import WeftError
from workloads.formats import chakra
from workloads.formats.chakra import Trace, parse_trace, read_trace, write_trace
from workloads.formats.chakra_attributes import SCALARS, Attribute
from workloads.formats.chakra_schema import Node, TensorInfo
from workloads.formats.protobuf_wire import field, fields, varint

ALL_GATHER = bytes.fromhex(
    "070a05302e302e344b08011215616c6c5f6761746865725f31366e7075735f314d421807520e0a0969735f6370755f6f70d80100"
    "520d0a09636f6d6d5f747970654802520f0a09636f6d6d5f73697a6548808040"
)
"""One rank of ASTRA-sim's all-gather microbenchmark."""


def scalars(kind: str) -> st.SearchStrategy[Any]:
    bits = re.fullmatch(r"(s?int|sfixed|uint|fixed)(32|64)", kind)
    if bits:
        width, signed = int(bits[2]), bits[1] in ("int", "sint", "sfixed")
        return st.integers(-(2 ** (width - 1)), 2 ** (width - 1) - 1) if signed else st.integers(0, 2**width - 1)
    return {
        "double": st.floats(allow_nan=False), "float": st.floats(allow_nan=False, width=32), "bool": st.booleans(),
        "string": st.text(max_size=5), "bytes": st.binary(max_size=5),
    }[kind]


@st.composite
def attributes(draw: st.DrawFn) -> Attribute:
    kind = draw(st.sampled_from(SCALARS))
    one = scalars(kind)
    value = draw(one | st.lists(one, max_size=3).map(tuple))
    return Attribute(draw(st.text(max_size=4)), value, kind, draw(st.text(max_size=2)))


@st.composite
def traces(draw: st.DrawFn) -> Trace:
    ids = draw(st.lists(st.integers(0, 2**64 - 1), unique=True, max_size=5))
    info = st.none() | st.builds(TensorInfo, st.text(max_size=3), st.text(max_size=3))
    nodes = []
    for at, number in enumerate(ids):
        waits = st.lists(st.sampled_from(ids[:at]), max_size=3).map(tuple) if at else st.just(())
        nodes.append(Node(
            number, draw(st.text(max_size=4)), draw(st.sampled_from(chakra.NODE_KINDS)), draw(waits), draw(waits),
            draw(st.integers(0, 2**64 - 1)), draw(st.integers(0, 9)), draw(info), draw(info),
            tuple(draw(st.lists(attributes(), max_size=3))),
        ))
    return Trace(draw(st.sampled_from(chakra.VERSIONS)), tuple(draw(st.lists(attributes(), max_size=2))), tuple(nodes))


@settings(max_examples=30, deadline=None)
@given(traces())
def test_what_is_written_is_read(trace: Trace) -> None:
    assert parse_trace(write_trace(trace), "x.et") == trace


def test_a_published_node() -> None:
    """A file made by Chakra's own code, byte for byte."""
    (node,) = parse_trace(ALL_GATHER, "x.et").nodes
    assert node == collective_node("all-gather", 2**20, 1)._replace(name="all_gather_16npus_1MB")
    assert write_trace(parse_trace(ALL_GATHER, "x.et")) == ALL_GATHER


def test_published_files_come_back_byte_for_byte() -> None:
    """Those of ASTRA-sim's repository, where they are at hand."""
    for path in (DATA / "workload").glob("*/*.et"):
        assert write_trace(read_trace(path)) == path.read_bytes()


def test_gzip(tmp_path: Path) -> None:
    path = tmp_path / "x.et"
    path.write_bytes(gzip.compress(ALL_GATHER))
    assert read_trace(path) == parse_trace(ALL_GATHER, "x")
    path.write_bytes(gzip.compress(ALL_GATHER)[:-9])
    with pytest.raises(WeftError, match="gzip file that is cut off"):
        read_trace(path)
    path.write_bytes(b"\x1f\x8b" + ALL_GATHER)
    with pytest.raises(WeftError, match="damaged gzip"):
        read_trace(path)


def test_the_size_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before and after unzipping."""
    monkeypatch.setattr(chakra, "MOST_BYTES", 2**16)
    path = tmp_path / "x.et"
    for data in (bytes(2**16 + 1), gzip.compress(bytes(2**20))):
        path.write_bytes(data)
        with pytest.raises(WeftError, match=r"x\.et is larger than the limit of 65536 B"):
            read_trace(path)


def test_packed_and_single_numbers_are_one_list() -> None:
    """A repeated field may come one number at a time."""
    head = field(1, b"1.0.0")
    loose = field(1, 2) + field(4, 0) + field(4, 1) + field(5, varint(0) + varint(1))
    data = b"".join(varint(len(one)) + one for one in (head, b"", field(1, 1), loose))
    assert parse_trace(data, "x").nodes[2].after == (0, 1)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "is empty"),
        (ALL_GATHER[:-1], "node 0 of the file: is cut off"),
        (ALL_GATHER[:5], "its metadata: is cut off"),
        (b"\x80", "in the middle of a number"),
        (b"\xff" * 11, "more than 64 bits"),
        (b"\x07\x0a\x05\xff.0.1", "version: is not UTF-8 text"),
        (b"\x02\x18\x01", "unknown field 3 of its metadata"),
    ],
)
def test_damaged_files(data: bytes, message: str) -> None:
    with pytest.raises(WeftError, match=r"trace x\.et") as wrong:
        parse_trace(data, "x.et")
    assert message in str(wrong.value)


@pytest.mark.parametrize(
    ("node", "message"),
    [
        (field(11, 1), "unknown field 11"),
        (field(3, 8), "unknown type 8"),
        (field(1, b"a"), "field 1 has the wire type 2; 0 is expected"),
        (field(2, b"\xff"), "name: is not UTF-8 text"),
        (field(10, field(1, b"a") + field(33, 1)), "attribute 'a': unknown field 33"),
        (field(10, field(1, b"a") + field(7, 2**40)), "attribute 'a': 1099511627776 is no int32"),
        (field(10, field(1, b"a") + field(9, b"x")), "a int64 has the wire type 2"),
        (field(10, field(1, b"a") + field(4, b"\x0a\x03abc")), "has 3 bytes"),
        (field(8, 1), "a number stands where a message is expected"),
        (b"\x0b", "field 1 has the wire type 3"),
        (b"\x00\x00", "a field numbered 0"),
        (field(5, varint(0)), "node 0 waits for itself in a cycle"),
        (field(5, varint(7)), "node 0 waits for node 7, which does not exist"),
    ],
)
def test_damaged_nodes(node: bytes, message: str) -> None:
    head = field(1, b"0.0.4")
    with pytest.raises(WeftError, match=r"trace x\.et") as wrong:
        parse_trace(b"".join(varint(len(one)) + one for one in (head, node)), "x.et")
    assert message in str(wrong.value)


def test_nodes_given_twice_and_long_circles() -> None:
    twice = Trace("0.0.4", (), (compute_node(1, 3), compute_node(1, 3)))
    with pytest.raises(WeftError, match="node 3 is given twice"):
        parse_trace(write_trace(twice), "x")
    ring = tuple(compute_node(1, at, after=[(at + 1) % 5000]) for at in range(5000))
    with pytest.raises(WeftError, match="node 0 waits for itself in a cycle"):
        parse_trace(write_trace(Trace("0.0.4", (), ring)), "x")


@settings(max_examples=100, deadline=None)
@given(st.integers(0, len(ALL_GATHER) - 1), st.binary(max_size=4))
def test_any_bytes_are_refused_or_read(at: int, put: bytes) -> None:
    """One clear line, or a trace that is written again as another that says the same."""
    said = ""
    try:
        trace = parse_trace(ALL_GATHER[:at] + put + ALL_GATHER[at + 1 :], "x.et")
        assert repr(parse_trace(write_trace(trace), "x.et")) == repr(trace)
    except WeftError as wrong:
        said = str(wrong)
    assert not said or ("x.et" in said and "\n" not in said)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 2**29 - 1), st.integers(0, 2**64 - 1) | st.binary(max_size=300))
def test_the_wire_format(number: int, value: int | bytes) -> None:
    ((found, _, back),) = fields(field(number, value), "x")
    assert (found, back) == (number, value)


def test_a_value_that_its_type_does_not_hold() -> None:
    for kind, value in (("int32", 2**31), ("uint64", -1), ("string", 3), ("bool", 2)):
        node = compute_node(1, 0)._replace(attributes=(Attribute("a", value, kind),))
        with pytest.raises(WeftError, match=f"attribute 'a': .* is no {kind}"):
            write_trace(Trace("0.0.4", (), (node,)))
