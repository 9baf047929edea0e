"""Sweep files: lists are axes, and what is wrong is named before anything runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sim.study.file import make_sweep, read_sweep
from topologies import WeftError

BASE: dict[str, dict[str, Any]] = {
    "topology": {"spec": "ring:4"}, "collective": {"algorithms": ["ring"]}, "sweep": {"begin": "1K"},
}


def sweep_with(section: str, **keys: Any) -> Any:
    return make_sweep(BASE | {section: BASE.get(section, {}) | keys})


@pytest.mark.parametrize(
    ("section", "key", "values"),
    [
        ("topology", "spec", ["ring:4", "torus:4x4"]),
        ("topology", "link_bandwidth", ["100Gb/s", "400Gb/s", "1GB/s"]),
        ("model", "forwarding", ["cut-through", "store-and-forward"]),
        ("model", "chunks", [1, 2, 4, 8]),
        ("model", "seed", [5]),
        ("collective", "name", ["all-reduce", "all-gather"]),
        ("sweep", "begin", ["1K", "1M"]),
    ],
)
def test_a_list_is_an_axis(section: str, key: str, values: list[Any]) -> None:
    sweep = sweep_with(section, **{key: values})
    assert sweep.axes == {f"{section}.{key}": tuple(values)}
    assert [place[f"{section}.{key}"] for place in sweep.places] == values
    assert [getattr(getattr(task.spec, section), key) for task in sweep.points] == values


def test_axes_are_combined_with_fabrics_outermost_and_sizes_innermost() -> None:
    sweep = make_sweep({
        "model": {"chunks": [1, 2]}, "topology": {"spec": ["ring:4", "ring:5"]},
        "collective": {"algorithms": ["ring", "bucket"]}, "sweep": {"begin": "1K", "end": "2K"},
    })
    found = [(t.spec.topology.spec, t.spec.model.chunks, t.algorithm, t.size_bytes) for t in sweep.points]
    assert found == [
        (fabric, chunks, name, size)
        for fabric in ("ring:4", "ring:5") for chunks in (1, 2) for name in ("ring", "bucket") for size in (1024, 2048)
    ]


def test_options_are_one_value_and_lists_of_them_an_axis() -> None:
    one = sweep_with("collective", algorithms=["ring"], options=["directions=1"])
    several = sweep_with("collective", algorithms=["ring"], options=[["directions=1"], ["directions=2"]])
    assert (len(one.points), len(several.points)) == (1, 2)


def test_lists_of_algorithms_are_an_axis_too() -> None:
    sweep = sweep_with("collective", algorithms=[["ring"], ["ring", "bucket"]])
    assert [task.algorithm for task in sweep.points] == ["ring", "ring", "bucket"]


def test_without_axes_it_is_one_experiment() -> None:
    sweep = make_sweep(BASE)
    assert sweep.axes == {} and sweep.places == ({},) and len(sweep.points) == 1


@pytest.mark.parametrize(
    ("data", "why"),
    [
        ({"model": {"chunks": []}}, r"\[model\] chunks is an empty list"),
        ({"model": {"chunks": [1, 2, 1]}}, r"\[model\] chunks lists 1 twice"),
        ({"model": {"chunk_count": [1]}}, "unknown key 'chunk_count'"),
        ({"modell": {"chunks": [1]}}, "unknown section 'modell'"),
        ({"model": 3}, r"\[model\] is 3: give keys and values"),
        ({"model": {"chunks": [1, "two"]}}, r"\[model\] chunks is 'two': give an integer"),
        ({"model": {"chunks": [[1]]}}, r"\[model\] chunks is \[1\]"),
        ({"model": {"forwarding": ["cut-through", "teleport"]}}, "teleport"),
        ({"model": {"chunks": [1], "chunk": ["1K"]}}, "not both"),
        ({"topology": {"spec": ["ring:4", "moebius:4"]}}, "moebius"),
        ({"topology": {"spec": "ring:4", "link_bandwidth": ["1GB/s", "400"]}}, "400"),
        ({"collective": {"name": "all-reduce", "root": [0, 1]}}, "all-reduce has no root"),
        ({"collective": {"algorithms": ["rings"]}}, "rings"),
        ({"sweep": {"begin": "1K", "factor": 3}}, "give -e"),
        ({"model": {"seed": list(range(1001)), "chunks": list(range(1, 1002))}}, "at most 1,000,000"),
        ({"model": {"chunks": list(range(1, 1_000_002))}}, "has 1,000,001 points or more: at most 1,000,000"),
        ({"collective": {"algorithms": [["ring"], ["swing"], ["ring"]]}}, r"lists \['ring'\] twice"),
    ],
)
def test_what_is_wrong_is_named(data: dict[str, Any], why: str) -> None:
    with pytest.raises(WeftError, match=why):
        make_sweep(BASE | data)


@pytest.mark.parametrize(
    ("content", "why"),
    [(b"[topology", "is not TOML"), (b"\xff\xfe", "is not UTF-8 text"), (None, "cannot be read: No such file")],
)
def test_a_file_that_is_no_sweep_is_named(tmp_path: Path, content: bytes | None, why: str) -> None:
    file = tmp_path / "s.toml"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(WeftError, match=f"sweep file .*s.toml {why}"):
        read_sweep(file)


def test_a_fabric_that_cannot_be_built_is_named_among_many() -> None:
    data = {
        "topology": {"spec": ["torus:4x4", "ring:6"], "link_bandwidth": ["100Gb/s", "50Gb/s,100Gb/s"]},
        "collective": {"algorithms": ["ring"]}, "sweep": {"begin": "1K", "end": "1K"},
    }
    with pytest.raises(WeftError, match="topology ring:6: bandwidth has 2 values; give one for all dimensions or 1"):
        make_sweep(data)
