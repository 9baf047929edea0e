"""ASTRA-sim's system files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sim.astra.system_file import ABSENT, Implementation, read_system
from tests.astra_inputs import DATA, SYSTEM
from topologies import WeftError
from topologies.text.schema import Absent


def write(folder: Path, **changes: Any) -> Path:
    path = folder / "system.json"
    data = SYSTEM | {key.replace("_", "-"): value for key, value in changes.items()}
    path.write_text(json.dumps({key: value for key, value in data.items() if value is not None}), encoding="utf-8")
    return path


def test_what_is_read(tmp_path: Path) -> None:
    """Memory in 10^9 B/s, operations in 10^12; algorithms by dimension."""
    names = ["ring", "oneDirect", "direct4", "halvingDoubling"]
    system = read_system(write(tmp_path, all_reduce_implementation=names, peak_perf=900, boost_mode=0), 4)
    assert (system.endpoint_delay_ns, system.splits, system.active_chunks, system.policy) == (10, 4, 1, "LIFO")
    assert (system.memory_Bps, system.peak_flops, system.roofline) == (1.6e12, 9e14, False)
    assert system.implementations("all-reduce", 4) == (
        Implementation("ring", 0), Implementation("direct", 0, spans=True),
    )  # after which no dimension is left
    several = read_system(write(tmp_path, all_reduce_implementation=["direct4", "halvingDoubling"]), 2)
    assert several.implementations("all-reduce", 2) == (
        Implementation("direct", 4), Implementation("halvingDoubling", 0),
    )
    assert several.in_group("all-reduce", 2) == Implementation("ring", 0)


@pytest.mark.parametrize("row", ABSENT, ids=lambda row: row.name)
def test_absent_equals_explicit(row: Absent, tmp_path: Path) -> None:
    value = int(row.value) if row.value.isdecimal() else row.value
    key = row.name.replace("-", "_")
    assert read_system(write(tmp_path, **{key: None}), 1) == read_system(write(tmp_path, **{key: value}), 1)


OLD = """scheduling-policy: LIFO
endpoint-delay: 10
active-chunks-per-dimension: 1
preferred-dataset-splits: 4
boost-mode: 1
all-reduce-implementation: ring_direct
local-mem-bw: 1600.5
collective-optimization: localBWAware
intra-dimension-scheduling: FIFO
inter-dimension-scheduling: baseline
"""


def test_the_lines_of_the_first_release(tmp_path: Path) -> None:
    """The same settings; its keys that have no effect any more are passed over."""
    path = tmp_path / "system.txt"
    path.write_text(OLD, encoding="utf-8")
    system = read_system(path, 2)
    assert (system.splits, system.memory_Bps, system.optimization) == (4, 1.6005e12, "localBWAware")
    assert system.implementations("all-reduce", 2) == (Implementation("ring", 0), Implementation("direct", 0))
    assert system.passed_over == ("boost-mode", "intra-dimension-scheduling", "inter-dimension-scheduling")
    path.write_text(OLD + "endpoint-delay: 5\n", encoding="utf-8")
    with pytest.raises(WeftError, match=r"system\.txt: key 'endpoint-delay' is given twice"):
        read_system(path, 2)


def test_published_files() -> None:
    """Those of ASTRA-sim's repository, where they are at hand."""
    for path in (DATA / "system").glob("*.json"):
        assert read_system(path, 1).splits == 4


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sheduling_policy": "FIFO"}, "'sheduling-policy' is not simulated (did you mean scheduling-policy?)"),
        ({"per_node_custom_implementation": "x.yml"}, "'per-node-custom-implementation' is not simulated"),
        ({"L": 3}, "L is 3: only 0 is simulated"),
        ({"model_shared_bus": 1}, "model-shared-bus is 1"),
        ({"preferred_dataset_splits": None}, "key 'preferred-dataset-splits' is missing"),
        ({"preferred_dataset_splits": 0}, "preferred-dataset-splits is 0: give an integer from 1"),
        ({"preferred_dataset_splits": 10**9}, "an integer from 1 to 100000"),
        ({"endpoint_delay": 1.5}, "endpoint-delay is 1.5"),
        ({"endpoint_delay": True}, "endpoint-delay is True"),
        ({"local_mem_bw": -1}, "local-mem-bw is -1: give a number from 0"),
        ({"local_mem_bw": "1600"}, "local-mem-bw is '1600'"),
        ({"scheduling_policy": "lifo"}, "scheduling-policy 'lifo' is unknown: choose one of LIFO, FIFO, EXPLICIT"),
        ({"scheduling_policy": ["LIFO"]}, "scheduling-policy ['LIFO'] is unknown"),
        ({"all_reduce_implementation": "ring"}, "all-reduce-implementation is 'ring': a list"),
        ({"all_reduce_implementation": ["doubleBinaryTree"]}, "'doubleBinaryTree' is not simulated"),
        ({"all_reduce_implementation": [3]}, "3 is not simulated"),
        ({"all_reduce_implementation": ["direct0"]}, "'direct0' has a window of zero messages"),
        ({"all_reduce_implementation_custom": "x"}, "custom is 'x': a list of one prefix"),
        ({"roofline_enabled": 1}, "key 'peak-perf' is missing, and roofline-enabled is 1"),
        ({"collective_optimization": None}, "key 'collective-optimization' is missing, and the network has 2"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(WeftError, match=r"system file .*system\.json") as wrong:
        read_system(write(tmp_path, **changes), 2)
    assert message in str(wrong.value)


def test_algorithms_that_are_missing(tmp_path: Path) -> None:
    system = read_system(write(tmp_path), 1)
    with pytest.raises(WeftError, match="key 'all-reduce-implementation' is missing"):
        system.implementations("all-reduce", 1)
