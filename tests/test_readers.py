"""Every reader of files against files that were made to hurt: one line says what is wrong, soon, in little memory."""

from __future__ import annotations

import ast
import copy
import gzip
import json
import math
import os
import pickle
import re
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from random import Random
from time import process_time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.astra_inputs import compute_node
from tests.places import ROOT
from tests.reader_table import Reader, readers
from topologies import WeftError
from workloads.formats.chakra import Trace, write_trace

ROOMS = ("topologies", "collectives", "workloads", "sim")

ENTITIES = (
    '<?xml version="1.0"?><!DOCTYPE l [<!ENTITY a "' + "x" * 1000 + '">'
    + "".join(f'<!ENTITY {b} "{f"&{a};" * 20}">' for a, b in zip("abcdefg", "bcdefgh", strict=True))
    + "]><algo>&h;</algo>"
)
ANCHORS = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{b}: &{b} [{','.join([f'*{a}'] * 9)}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True)
)
MERGED = "a: &a {x: 1}\nb:\n  <<: [*a, *a]\n"
DEEP = 20_000
CIRCLE = Trace("0.0.4", (), (compute_node(1, 1, after=(2,)), compute_node(1, 2, after=(1,))))
HOSTILE: dict[str, bytes] = {
    "nothing": b"",
    "white space": b" \n\t\n",
    "a byte-order mark alone": b"\xef\xbb\xbf",
    "Latin-1": "größe: 1".encode("latin-1"),
    "UTF-16": "num_ranks 2".encode("utf-16"),
    "lone surrogates": b"\xed\xa0\x80",
    "zero bytes": b"a: \0\n",
    "random bytes": bytes(range(256)) * 8,
    "entities that expand": ENTITIES.encode(),
    "an external entity": b'<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]><algo name="&x;"/>',
    "an encoding that is none": b'<?xml version="1.0" encoding="no-such"?><graphml/>',
    "a multi-byte encoding": b'<?xml version="1.0" encoding="utf-7"?><graphml/>',
    "XML, nested": b"<graphml>" * DEEP + b"</graphml>" * DEEP,
    "MSCCL, nested": b"<algo>" * DEEP,
    "JSON, nested": b'{"a":' * DEEP + b"1" + b"}" * DEEP,
    "JSON lists, nested": b"[" * 1000,
    "YAML, nested": b"a: " + b"[" * 1000,
    "YAML blocks, nested": b"".join(b" " * at + b"a:\n" for at in range(300)),
    "TOML, nested": b"a = " + b"[" * 5000,
    "TOML inline, nested": b"a = " + b"{a=" * 5000,
    "TOML key of many parts": b"a." * 50_000 + b"a = 1",
    "TOML key of many quoted parts": b'"a" . ' * 20_000 + b"a = 1",
    "a number of 5,000 digits": b'{"topology": ' + b"9" * 5000 + b"}",
    "a TOML number of 5,000 digits": b"a = " + b"9" * 5000,
    "a hexadecimal number of 8,000 digits": b"seed = 0x" + b"f" * 8000,
    "a sexagesimal number": b"NpusCount: " + b"1:" * 2000 + b"1",
    "numbers that are not finite": b'{"a": NaN, "b": Infinity, "c": 1e999}',
    "YAML anchors that expand": ANCHORS.encode(),
    "YAML merges": MERGED.encode(),
    "a YAML anchor within itself": b"a: &a [*a]\n",
    "a YAML tag that calls": b"!!python/object/apply:os.system [exit 3]\n",
    "a YAML tag in a list": b"Topology: [!!python/name:os.system x]\nNpusCount: [2]\nCostDimension: [a]\n",
    "a pickle": pickle.dumps({"a": [1, 2]}),
    "a gzip bomb": gzip.compress(gzip.compress(bytes(2**26), 9), 9),
    "a gzip bomb of one layer": gzip.compress(bytes(2**26), 9),
    "one line of 256 KiB": b"x" * 2**18,
    "operations that wait in a circle": (
        b"num_ranks 2\nrank 0 {\na: recv 8b from 1\nb: send 8b to 1\nb requires a\n}\n"
        b"rank 1 {\na: recv 8b from 0\nb: send 8b to 0\nb requires a\n}\n"
    ),
    "nodes that wait in a circle": gzip.compress(write_trace(CIRCLE)),
    "a program of a million million GPUs": (
        b'<algo name="a" coll="allreduce" nchunksperloop="1" inplace="1" ngpus="1000000000000"/>'
    ),
    "a program of as many chunks": (
        b'<algo name="a" coll="allgather" nchunksperloop="1000000000000" ngpus="2" inplace="1">'
        b'<gpu id="0" i_chunks="0" o_chunks="0" s_chunks="0"/><gpu id="1" i_chunks="0" o_chunks="0" s_chunks="0"/>'
        b"</algo>"
    ),
    "line breaks and escapes": b"\x1b[2J \r\n \x07 \x85 \n",
}


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Reader]:
    return readers(tmp_path_factory.mktemp("examples"))


def said_by(reader: Reader, path: Path, data: bytes) -> str:
    """What the reader says of some bytes; "" where it reads them."""
    path = path.with_suffix(reader.suffix)
    path.write_bytes(data)
    try:
        reader.read(path)
    except WeftError as wrong:
        said = str(wrong)
        assert said.isprintable()
        assert 0 < len(said) < 2000
        return said
    return ""


def test_the_examples_are_read(table: dict[str, Reader], tmp_path: Path) -> None:
    assert {name: said_by(one, tmp_path / "x", one.good) for name, one in table.items()} == dict.fromkeys(table, "")


@pytest.mark.parametrize("what", HOSTILE)
def test_hostile_files_are_refused(what: str, table: dict[str, Reader], tmp_path: Path) -> None:
    """By every reader, whatever its format; none takes them for its own."""
    for name, one in table.items():
        assert said_by(one, tmp_path / "x", HOSTILE[what]), f"{name} reads {what}"


def test_pipes_and_devices_are_refused(table: dict[str, Reader], tmp_path: Path) -> None:
    """Not waited for: nobody writes into this pipe."""
    for one in table.values():
        path = (tmp_path / "x").with_suffix(one.suffix)
        os.mkfifo(path)
        with pytest.raises(WeftError, match="a pipe or a device"):
            one.read(path)
        path.unlink()


@pytest.mark.full
def test_files_over_the_limit_are_refused(table: dict[str, Reader], tmp_path: Path) -> None:
    """Before they are parsed; the file is sparse. One reader of each module."""
    for one in {one.module: one for one in table.values()}.values():
        path = (tmp_path / "x").with_suffix(one.suffix)
        with path.open("wb") as file:
            file.truncate(2**28 + 1)
        with pytest.raises(WeftError, match="larger than"):
            one.read(path)


@pytest.mark.parametrize("what", ["a gzip bomb", "entities that expand", "YAML anchors that expand"])
def test_bombs_take_little_memory(what: str, table: dict[str, Reader], tmp_path: Path) -> None:
    tracemalloc.start()
    for one in table.values():
        said_by(one, tmp_path / "x", HOSTILE[what])
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2**28 + 2**26  # the buffer for the largest file that is read, 256 MiB for traces, and 1/4 of it


def test_every_cut_is_read_or_refused(table: dict[str, Reader], tmp_path: Path) -> None:
    for one in table.values():
        for part in range(1, 12):
            said_by(one, tmp_path / "x", one.good[: len(one.good) * part // 12])


def check_damage(table: dict[str, Reader], folder: Path, wounds: list[tuple[int, int, bytes]]) -> None:
    for one in table.values():
        data = one.good
        for at, length, new in wounds:
            place = at % (len(data) + 1)
            data = data[:place] + new + data[place + length :]
        said_by(one, folder / "x", data)


WORDS = (
    b"", b"0", b"-1", b"9" * 19, b"9" * 400, b"1e308", b"nan", b'"', b"<", b"{", b"[", b"\n", b"\xff", b"\0", b"&a ",
    b"*a", b"!!int ", b"null", b"true", b"&#0;", b"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01", b"\xe2\x80\xa8",
)
damage = st.lists(
    st.tuples(st.integers(0, 10**6), st.integers(0, 40), st.sampled_from(WORDS)), min_size=1, max_size=3
)


@settings(max_examples=8, deadline=None)
@given(wounds=damage)
def test_damage_is_read_or_refused(
    wounds: list[tuple[int, int, bytes]], table: dict[str, Reader], tmp_path_factory: pytest.TempPathFactory
) -> None:
    check_damage(table, tmp_path_factory.getbasetemp(), wounds)


@pytest.mark.verify
@settings(max_examples=2000, deadline=None)
@given(wounds=damage)
def test_much_damage_is_read_or_refused(
    wounds: list[tuple[int, int, bytes]], table: dict[str, Reader], tmp_path_factory: pytest.TempPathFactory
) -> None:
    check_damage(table, tmp_path_factory.getbasetemp(), wounds)


MUTANTS = 40


def mutated(data: bytes, random: Random) -> bytes:
    """A file in which a word, a number, a line or a piece is another, twice or gone."""
    words = [found.span() for found in re.finditer(rb"[\w.#-]+", data)] or [(0, len(data))]
    (first, last), (other, end) = sorted(random.sample(words * 2, 2))
    lines = data.splitlines(keepends=True)
    at = random.randrange(len(lines)) if lines else 0
    number = random.choice((b"0", b"-1", b"1", b"3", b"7", b"64", b"1000000", b"1e9", b"0.5", b"x"))
    return random.choice((
        data[:first] + number + data[last:],
        data[:first] + data[other:end] + data[last:],
        data[:first] + data[last:],
        data[:first] + data[other:],
        b"".join([*lines[:at], *lines[at + 1:]]),
        b"".join([*lines[:at + 1], *lines[at:]]),
        b"".join([*lines[:at], *lines[at + 1:at + 2], *lines[at:at + 1], *lines[at + 2:]]),
        data[:last],
    ))


ODD: tuple[Any, ...] = (
    None, True, 0, -1, 1.5, 1e308, math.nan, math.inf, 10**30, 2**63, "", "x", "é\u202e", "٣", [], {}, [[]], "9" * 5000)


def mutated_json(data: bytes, random: Random) -> bytes:
    """A document of which one to three values are gone, twice, under another key, of another kind or size."""
    whole = json.loads(data)
    for _ in range(random.choice((1, 1, 2, 3))):
        places = list(_places(whole))
        if not places:
            break
        at, key = random.choice(places)
        value = at[key]
        change = random.randrange(5)
        if change == 0:
            del at[key]
        elif change == 1 and isinstance(at, list):
            at.insert(key, copy.deepcopy(value))
        elif change == 1:
            at[f"{key}é"] = at.pop(key)
        elif change == 2 and isinstance(value, (int, float)):
            at[key] = random.choice((-value, value * 10**6, value + 0.5, value * 10**18, str(value)))
        else:
            at[key] = random.choice(ODD)
    return json.dumps(whole).encode()


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every entry of every list and mapping of a document: where it stands, and its key."""
    listed = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, one in list(listed):
        yield value, key
        yield from _places(one)


@pytest.mark.parametrize("seed", ["", *(pytest.param(one, marks=pytest.mark.full) for one in ("3", "8", "21", "33"))])
def test_forty_documents_of_every_format_in_json_give_one_line_each(
    seed: str, table: dict[str, Reader], tmp_path: Path
) -> None:
    """As above, by what a document says instead of how it is written; none takes long."""
    for name, one in table.items():
        random = Random(f"{name}{seed}")
        for _ in range(MUTANTS if one.good.lstrip()[:1] in b"{[" and one.suffix == ".json" else 0):
            began = process_time()
            said_by(one, tmp_path / "x", mutated_json(one.good, random))
            assert process_time() - began < 5


@pytest.mark.parametrize("seed", ["", *(pytest.param(seed, marks=pytest.mark.full) for seed in ("2", "5", "17", "30"))])
def test_forty_mutants_of_every_format_give_one_line_each(
    seed: str, table: dict[str, Reader], tmp_path: Path
) -> None:
    """They are read, or refused in one line; nothing else is raised."""
    for name, one in table.items():
        random = Random(f"{name}{seed}")
        for _ in range(MUTANTS):
            said_by(one, tmp_path / "x", mutated(one.good, random))


PARSERS = ("json.loads", "tomllib.loads", "yaml.load", "yaml.compose", "fromstring", "read_graphml", "ParserCreate")
ONLY_OWN_FILES = {
    "sim/papers/swing.py", "sim/papers/topoopt.py", "sim/version.py", "sim/study/store.py", "sim/study/processes.py",
    "sim/study/key.py", "sim/cli/sweep.py",
    "topologies/compiled.py", "topologies/formats/nccl_schema.py", "topologies/text/kinds.py",
    "topologies/text/plain_data.py", "topologies/text/plain_xml.py",
    "topologies/text/strict_yaml.py",
}
"""They parse what weft wrote or has read before, or are what the readers parse with."""


def modules() -> list[tuple[str, str]]:
    paths = [path for room in ROOMS for path in sorted((ROOT / room).rglob("*.py"))]
    return [(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")) for path in paths]


def test_every_module_that_parses_is_in_the_table(table: dict[str, Reader]) -> None:
    """Whoever opens a format enters a reader in `tests.reader_table`."""
    known = {one.module.replace(".", "/") + ".py" for one in table.values()} | ONLY_OWN_FILES
    ways = (*PARSERS, "read_input(", "read_yaml(", "parse_yaml(", "read_json_object(", "parse_xml(", "read_toml(")
    missing = {
        name for name, text in modules()
        if any(way in text for way in ways) and name not in known
    }
    assert missing <= {"topologies/formats/files.py", "topologies/text/input_text.py"}


def test_nothing_unpickles_or_evaluates() -> None:
    """No pickle, marshal or shelve; no eval or exec; no arrays with objects; no YAML but the safe loader's.

    One module may pickle: it gives a schedule its form inside a pickle that the user makes and loads.
    """
    for name, text in modules():
        if name == "collectives/core/by_value.py":
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                found = {alias.name.split(".")[0] for alias in node.names} | {getattr(node, "module", "") or ""}
                assert not found & {"pickle", "marshal", "shelve", "dill", "cloudpickle"}, name
            if isinstance(node, ast.Call):
                called = ast.unparse(node.func)
                assert called not in ("eval", "exec", "yaml.unsafe_load", "yaml.full_load"), name
                if called in ("yaml.load", "yaml.compose"):
                    assert any(ast.unparse(key.value) == "loader()" for key in node.keywords), name
                assert not any(key.arg == "allow_pickle" for key in node.keywords), name
