"""A stored point is never stale: whatever file or function it was computed from has changed, it is computed again."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from collectives import ALGORITHMS, from_steps
from collectives.registry import Algorithm
from sim.faults.plan import FaultPlan
from sim.study import spec as specs
from sim.study import sweep as sweeps
from sim.study.file import make_sweep
from sim.study.key import DIGEST_LETTERS, meaning
from sim.study.keys import EXPERIMENT, keys_of
from sim.study.store import Finished, Store
from sim.study.sweep import Tally, run_sweep, sweep_rows
from tests.astra_inputs import network_text
from tests.reader_table import FORESTCOLL
from tests.sim.timeline.test_perfetto import ALL_GATHER_OF_TWO
from tests.topologies.formats.test_files import BOX, all_to_all, infra, table
from tests.topologies.formats.test_other_simulators import NS3, TOPO, cluster
from tests.topologies.formats.test_smi import showtopo, square
from topologies import Topology, ring, write_topology
from topologies.formats.files import FORMATS
from topologies.text import input_text

Keys = dict[str, dict[str, Any]]

MACHINE = 'gpu = "a100"\ngpus = 4\ninside = "switch"\nnic = "ib-hdr"\nnics = 4\ncpu = "amd"\n'
PLAN = '[[straggler]]\nnpu = "npu1"\nspeed = 0.5\n'


def fabric(text: str, changed: str, suffix: str, **keys: Any) -> tuple[str, str, str, Callable[[str], Keys]]:
    assert text != changed
    return suffix, text, changed, lambda path: {"topology": {"spec": path, **keys}}


def written(folder: Path, suffix: str, rate: str) -> str:
    path = folder / f"ring{suffix}"
    write_topology(ring(4, bandwidth=rate), path)
    return path.read_text()


def schedule_file(text: str, changed: str) -> tuple[str, str, str, Callable[[str], Keys]]:
    assert text != changed
    return (
        ".xml",
        text,
        changed,
        lambda path: {
            "topology": {"spec": "ring:2"},
            "collective": {"algorithms": [path], "name": "all-gather"},
        },
    )


def kinds(folder: Path) -> dict[str, tuple[str, str, str, Callable[[str], Keys]]]:
    """Every kind of file that the spec of a sweep may name: suffix, content, another content, keys."""
    two_trees = FORESTCOLL.replace('nchunkspernode="1"', 'nchunkspernode="2"').replace('nchunks="1"', 'nchunks="2"')
    infra_text = json.dumps(infra())
    torus_of_four = cluster("TORUS", "2,2", 4)
    rocm = [showtopo(square(n, "XGMI"), square(n, 15)) for n in (4, 3)]
    return {
        "GraphML": fabric(written(folder, ".graphml", "1GB/s"), written(folder, ".graphml", "2GB/s"), ".graphml"),
        "node-link JSON": fabric(written(folder, ".json", "1GB/s"), written(folder, ".json", "2GB/s"), ".json"),
        "InfraGraph": fabric(
            infra_text, infra_text.replace('"gigabits_per_second": 100', '"gigabits_per_second": 50'), ".json"
        ),
        "ASTRA-sim network": fabric(network_text(("Ring", 4)), network_text(("Ring", 5)), ".yml"),
        "NCCL topology XML": fabric(BOX, BOX.replace('count="12"', 'count="6"'), ".xml"),
        "SimGrid platform XML": fabric(torus_of_four, torus_of_four.replace("125MBps", "250MBps"), ".xml"),
        "ns-3 topology text": fabric(NS3, NS3.replace("400Gbps", "200Gbps"), ".txt"),
        "htsim topology": fabric(TOPO, TOPO.replace("Gbps 200", "Gbps 100"), ".topo"),
        "rocm-smi --showtopo": fabric(*rocm, ".txt", link_bandwidth="48GB/s"),
        "nvidia-smi topo -m": fabric(table(all_to_all(4, 4)), table(all_to_all(4, 2)), ".txt", nvlink="3"),
        "machine": (
            ".toml", MACHINE, MACHINE.replace('"a100"', '"h100"'), lambda path: {"topology": {"machine": f"{path}:1"}},
        ),
        "MSCCL XML": schedule_file(ALL_GATHER_OF_TWO, ALL_GATHER_OF_TWO.replace('proto="Simple"', 'proto="LL"')),
        "ForestColl XML": schedule_file(FORESTCOLL, two_trees),
        "sizes per pair": (
            ".csv", "0,3,1\n1,0,2\n5,1,0\n", "0,3,1\n1,0,2\n5,2,0\n",
            lambda path: {"topology": {"spec": "switch:3"}, "collective": {"name": "all-to-all", "pairs": path}},
        ),
        "fault plan": (
            ".toml",
            PLAN,
            PLAN.replace("0.5", "0.25"),
            lambda path: {
                "topology": {"spec": "ring:4"},
                "model": {"faults": path},
            },
        ),
    }


KINDS = (*(one.name for one in FORMATS), "machine", "MSCCL XML", "ForestColl XML", "sizes per pair", "fault plan")


def run(keys: Keys, store: Path) -> tuple[Tally, list[dict[str, Any]]]:
    merged: Keys = {"sweep": {"begin": "1M"}} | keys
    merged["collective"] = {"algorithms": ["direct"]} | keys.get("collective", {})
    sweep = make_sweep(merged)
    with Store(store) as opened:
        return run_sweep(sweep.points, opened), sweep_rows(sweep, opened)


@pytest.mark.table
@pytest.mark.parametrize("kind", KINDS)
def test_an_edited_file_is_another_point_and_a_renamed_one_only_if_rows_name_it(kind: str, tmp_path: Path) -> None:
    """A schedule is named by its file in every row; rows of other files do not say where they came from."""
    again = Tally(computed=1) if kind in ("MSCCL XML", "ForestColl XML") else Tally(stored=1)
    suffix, text, changed, keys = kinds(tmp_path)[kind]
    file, other, store = tmp_path / f"a{suffix}", tmp_path / f"b{suffix}", tmp_path / "s.db"
    file.write_text(text)
    assert run(keys(str(file)), store)[0] == Tally(computed=1), "the example can run"
    at = file.stat()
    file.write_text(changed)
    os.utime(file, ns=(at.st_atime_ns, at.st_mtime_ns))  # as `cp -p` and `rsync -t` leave it
    tally, edited = run(keys(str(file)), store)
    assert tally == Tally(computed=1)
    assert edited == run(keys(str(file)), tmp_path / "fresh.db")[1]
    file.rename(other)
    tally, renamed = run(keys(str(other)), store)
    assert tally == again
    assert renamed == run(keys(str(other)), tmp_path / "fresh-2.db")[1]
    other.write_text(text)
    assert run(keys(str(other)), store)[0] == again
    assert run(keys(str(other)), store)[0] == Tally(stored=1)


def test_every_key_of_a_sweep_that_may_name_a_file_is_tried() -> None:
    """A new key that names a file is to be tried above."""
    named = {
        f"{section}.{name}"
        for section in EXPERIMENT
        for name, key in keys_of(section).items()
        if "FILE" in key.metadata["metavar"] or "file" in key.metadata["help"]
    }
    assert named == {
        "topology.spec", "topology.boxes", "topology.machine", "collective.algorithms", "collective.pairs",
        "model.faults",
    }


def own(fabric: Topology, steps: list[list[tuple[int, int, list[int]]]]) -> Algorithm:
    def build(topology: Topology, size: Any, *, element_bytes: int = 4) -> Any:
        return from_steps(topology, "all-gather", steps, size, name="own")

    return Algorithm("own", "for a test", "rings", {"all-gather": build})


@pytest.fixture
def registered() -> Iterator[dict[str, Algorithm]]:
    yield ALGORITHMS
    ALGORITHMS.pop("own", None)


def test_an_own_algorithm_is_known_by_what_it_emits(registered: dict[str, Algorithm], tmp_path: Path) -> None:
    keys = {"topology": {"spec": "ring:4"}, "collective": {"name": "all-gather", "algorithms": ["own"]}}
    right = [[(r, (r + 1) % 4, [(r - s) % 4]) for r in range(4)] for s in range(3)]
    left = [[(r, (r - 1) % 4, [(r + s) % 4]) for r in range(4)] for s in range(3)]
    both = [[*right[0], *left[0]], right[1]]
    times = []
    for steps, expected in ((right, Tally(computed=1)), (both, Tally(computed=1)), (right, Tally(stored=1))):
        registered["own"] = own(ring(4), steps)
        tally, (row,) = run(keys, tmp_path / "s.db")
        assert tally == expected
        times.append(row["time_s"])
    assert times[0] == times[2] > times[1]


def test_a_point_whose_file_changes_while_it_is_computed_is_not_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = tmp_path / "plan.toml"
    plan.write_text(PLAN)
    ready = sweeps.ready_point

    def edit(task: sweeps.Task) -> Any:
        plan.write_text(PLAN.replace("0.5", "0.25"))
        return ready(task)

    monkeypatch.setattr(sweeps, "ready_point", edit)
    tally, rows = run({"topology": {"spec": "ring:4"}, "model": {"faults": str(plan)}}, tmp_path / "s.db")
    assert list(tally.failed.values()) == [
        "a file that it reads has changed while it was computed: run the sweep again"
    ]
    assert not rows


def test_a_file_is_read_once_for_a_sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a file that was not changed a moment ago; one that was is digested at each look."""
    file, plan = tmp_path / "a.xml", tmp_path / "plan.toml"
    file.write_text(ALL_GATHER_OF_TWO)
    plan.write_text(PLAN)
    monkeypatch.setattr(input_text, "SETTLED_NS", -(10**18))
    read: list[str] = []
    plain, of_plan = specs.FaultPlan.read, input_text.read_input
    monkeypatch.setattr(FaultPlan, "read", lambda path: read.append(str(path)) or plain(path))
    monkeypatch.setattr(
        "collectives.formats.files.read_input", lambda path, what: read.append(str(path)) or of_plan(path, what)
    )
    sizes = {"begin": "1K", "end": "64K"}
    collective = {"algorithms": [str(file)], "name": "all-gather"}
    keys = {"topology": {"spec": "ring:2"}, "collective": collective, "model": {"faults": str(plan)}, "sweep": sizes}
    assert run(keys, tmp_path / "s.db")[0] == Tally(computed=7)
    assert sorted(read) == sorted([str(file), str(plan)])


def test_the_point_of_a_file_in_an_old_store_is_not_read(tmp_path: Path) -> None:
    """Its key held the name of the file."""
    file = tmp_path / "a.xml"
    file.write_text(ALL_GATHER_OF_TWO)
    keys = {"topology": {"spec": "ring:2"}, "collective": {"algorithms": [str(file), "ring"], "name": "all-gather"}}
    sweep = make_sweep(keys)
    with Store(tmp_path / "s.db") as store:
        for task in sweep.points:
            text = json.dumps(meaning(task) | {"algorithm": task.algorithm}, sort_keys=True, separators=(",", ":"))
            key = hashlib.sha256(text.encode()).hexdigest()[:DIGEST_LETTERS]
            store.add(Finished(key, {}, {"time_s": 1.0}, None, 0.0, "0"))
        assert run_sweep(sweep.points, store) == Tally(stored=1, computed=1)
        of_file, of_ring = sweep_rows(sweep, store)
    assert of_file["time_s"] != 1.0 == of_ring["time_s"]
