"""Sweeps over workloads: rows, reasons, keys."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sim.cli import main
from sim.study.file import make_sweep
from sim.study.key import keyed_sweep, point_key, point_spec
from sim.study.spec import Spec
from sim.study.store import Store
from sim.study.sweep import run_sweep, status_of, sweep_rows
from sim.study.workload_runs import open_of, run_opened
from tests.astra_inputs import collective_node, write_ranks
from tests.workloads.formats.test_goal import GOOD
from topologies.checks import WeftError

LAYERS: dict[str, dict[str, Any]] = {
    "topology": {"spec": ["ring:4", "torus:2x2"]}, "training": {"loop": ["wfbp", "no-overlap"]},
    "workload": {"name": "resnet-50", "samples": 16, "peak": 312, "efficiency": 0.5},
}


def traces(folder: Path, size: int = 2**20) -> dict[str, dict[str, Any]]:
    nodes = [collective_node("all-reduce", size), collective_node("all-to-all", 2**16, 1, after=[0])]
    return {"topology": {"spec": "ring:4"}, "workload": {"name": str(write_ranks(folder, [nodes] * 4))},
            "collective": {"algorithms": ["ring", "swing", "pat"]}}


def test_layers_and_loops_have_the_times_of_train(tmp_path: Path) -> None:
    sweep = make_sweep(LAYERS)
    assert sweep.axes == {"topology.spec": ("ring:4", "torus:2x2"), "training.loop": ("wfbp", "no-overlap")}
    assert run_sweep(sweep.points, tmp_path / "s.db").computed == 4
    for row in sweep_rows(sweep, Store(tmp_path / "s.db")):
        spec = Spec.from_dict({**LAYERS, "topology": {"spec": row["topology.spec"]},
                               "training": {"loop": row["training.loop"]}})
        assert run_opened(spec, open_of(spec)).time_s == row["time_s"]


def test_traces_by_each_algorithm_and_what_cannot_run(tmp_path: Path) -> None:
    sweep = make_sweep(traces(tmp_path))
    assert run_sweep(sweep.points, tmp_path / "s.db").refused == 0
    rows = sweep_rows(sweep, Store(tmp_path / "s.db"))
    assert [row["algorithm"] for row in rows] == ["ring", "swing", "pat"] and len({row["time_s"] for row in rows}) > 1
    assert all("all-to-all by direct" in row["notes"][0] for row in rows)
    goal = tmp_path / "g.goal"
    goal.write_text(GOOD)
    other = make_sweep({"topology": {"spec": ["switch:2", "switch:1"]}, "workload": {"job": str(goal)}})
    run_sweep(other.points, tmp_path / "s.db")
    ran, refused = sweep_rows(other, Store(tmp_path / "s.db"))
    assert ran["refused"] is None and refused["time_s"] is None and refused["workload"] == str(goal)
    assert list(status_of(keyed_sweep(other), Store(tmp_path / "s.db")).refused.values()) == [["g.goal on switch:1"]]


def test_keys_know_the_files_of_all_ranks_and_each_key(tmp_path: Path) -> None:
    first = make_sweep(traces(tmp_path)).points
    before = [point_key(point) for point in first]
    assert len(set(before)) == 3 and point_spec(first[0]).collective.algorithms == ("ring",)
    (tmp_path / "trace.db").write_text("is none of the traces")
    assert [point_key(point) for point in make_sweep(traces(tmp_path)).points] == before
    after = [point_key(point) for point in make_sweep(traces(tmp_path, 2**19)).points]
    assert not set(after) & set(before)


@pytest.mark.parametrize(("sections", "why"), [
    ({"sweep": {"begin": "1K"}}, "-b is of a collective: a workload says what it moves"),
    ({"collective": {"name": "all-gather"}}, "--collective is of a collective"),
    ({"library": {"name": "nccl"}}, "--library times collectives of a plan"),
    ({"model": {"chunks": "auto"}}, "chunks auto is for collectives"),
    ({"workload": {"name": "resnet-50", "job": "x.goal"}}, "--workload and --job are two jobs"),
])
def test_what_is_of_a_collective_is_an_error(sections: dict[str, Any], why: str) -> None:
    with pytest.raises(WeftError, match=why):
        make_sweep({**LAYERS, **sections})


def test_the_command_and_its_json_run_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, out = tmp_path / "s.toml", tmp_path / "out.json"
    file.write_text('[topology]\nspec = "ring:4"\n[workload]\nname = "resnet-50"\nsamples = 16\npeak = 312\n'
                    'efficiency = 0.5\n[training]\nloop = ["wfbp", "dear"]\n[account]\nwhy = true\n')
    assert main(["sweep", str(file), "--json", str(out)]) == 0
    assert "2 finished, 0 left" in capsys.readouterr().out
    assert main(["sweep", "--spec", str(out), "--store", str(file.with_suffix(".db")), "--export", "-"]) == 0
    said = capsys.readouterr()
    assert "2 were stored before, 0 computed now" in said.err and "makespan_ps" in said.out
