"""`weft train`: does it print, write and refuse what it should?"""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from sim.cli import main
from sim.program import Program
from sim.program.outcome import Outcome
from sim.study.jobs import parse_groups
from sim.why.faulty_path import walk_of
from sim.why.path import Alike, Labels, Walks
from topologies import WeftError

LAYERS = """\
one -1 1000 ALLREDUCE 65536 1000 ALLREDUCE 65536 1000 ALLREDUCE 32768 10
two -1 2000 NONE 0 2000 NONE 0 2000 ALLREDUCE 16384 10
"""

NETWORK = ["train", "--topology", "RI(4)_SW(4)", "--quiet"]


@pytest.fixture
def layers(tmp_path: Path) -> list[str]:
    file = tmp_path / "layers.txt"
    file.write_text(LAYERS)
    return [*NETWORK, "--workload", str(file), "--groups", "forward=4,-1;input_grad=4,-1;weight_grad=-1,4"]


def train(tmp_path: Path, words: list[str]) -> list[dict[str, Any]]:
    file = tmp_path / "out.json"
    assert main([*words, "--json", str(file)]) == 0
    rows: list[dict[str, Any]] = json.loads(file.read_text())["rows"]
    return rows


def test_compute_and_exposed_sum_to_the_iteration(tmp_path: Path, layers: list[str]) -> None:
    for loop in ("no-overlap", "wfbp", "dear"):
        (row,) = train(tmp_path, [*layers, "--loop", loop, "--check"])
        assert row["compute_s"] + row["exposed_s"] == pytest.approx(row["time_s"], rel=1e-12)
        assert sum(part["exposed_s"] for part in row["parts"]) == pytest.approx(row["exposed_s"], rel=1e-9)
        assert "1 of 16 ranks" in row["symmetry"]


def test_files_and_lines(tmp_path: Path, layers: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    table, picture = tmp_path / "parts.csv", tmp_path / "timeline.svg"
    assert main([*layers, "--csv", str(table), "--plot", str(picture)]) == 0
    out = capsys.readouterr().out
    assert "iteration" in out and "weight_grad all-reduce" in out
    rows = list(csv.DictReader(table.read_text().splitlines()))
    assert {row["dimension"] for row in rows} == {"dimension 0", "dimension 1"}
    assert picture.stat().st_size > 1000


def test_bandwidth_of_an_npu_is_split_over_its_links(tmp_path: Path, layers: list[str]) -> None:
    """A ring has two links out of an NPU, a switch one."""
    whole = train(tmp_path, [*layers, "--npu-bandwidth", "80GB/s,20GB/s"])
    links = train(tmp_path, [*layers, "--link-bandwidth", "40GB/s,20GB/s"])
    assert whole[0]["time_s"] == links[0]["time_s"]


def test_more_layers_and_slower_computations_take_longer(tmp_path: Path, layers: list[str]) -> None:
    (once,) = train(tmp_path, layers)
    (twice,) = train(tmp_path, [*layers, "--repeat", "2"])
    (slower,) = train(tmp_path, [*layers, "--compute-scale", "2"])
    assert twice["compute_s"] == pytest.approx(2 * once["compute_s"], rel=1e-9)
    assert slower["compute_s"] == pytest.approx(2 * once["compute_s"], rel=1e-5)


def test_a_model_with_a_pipeline(tmp_path: Path) -> None:
    words = [
        *NETWORK, "--workload", "bert-base", "--parallelism", "tp=4,pp=4", "--samples", "64", "--peak", "10",
        "--efficiency", "0.5", "--microbatches", "2", "--activation", "1KiB", "--pipeline-chunks", "2",
    ]
    rows = train(tmp_path, words)
    assert len(rows) == 4
    assert {kind for row in rows for kind in row["communication_s"]} == {
        "tp all-reduce", "activation send", "error send"
    }
    for row in rows:  # a send of 0.82 us is in progress from when it leaves, not from when its receiver waits
        assert all(time < 4.1 * 0.82e-6 for kind, time in row["communication_s"].items() if kind.endswith("send"))


def test_the_bubble_is_told_beside_the_ideal_one(capsys: pytest.CaptureFixture[str]) -> None:
    """Messages of nothing, equal stages but for the ends: a model's own activations cost more."""
    words = ["train", "--topology", "SW(4)", "--workload", "bert-base", "--parallelism", "pp=4", "--samples", "512",
             "--peak", "10", "--efficiency", "0.5", "--microbatches", "8"]
    assert main([*words, "--activation", "0B"]) == 0
    assert "messages of 0 B: NPU 0 waits" in (said := capsys.readouterr().out)
    assert "27.3% of the iteration; (S-1)/(M+S-1) is 27.3%" in said
    assert main(words) == 0
    assert "messages of 768 KiB" in capsys.readouterr().out


BERT = ("--workload", "bert-base", "--samples", "64", "--peak", "10", "--efficiency", "0.5")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "no workload is given"),
        (["--workload", "gone.txt", "--groups", "a=1,1"], "'gone.txt' is neither a file nor a model"),
        (["--workload", "gone", "--samples", "16"], "'gone' is neither a file nor a model"),
        (["--workload", "gpt-3"], "no samples, peak or efficiency is given"),
        (["--workload", "gpt-3", "--samples", "1", "--peak", "1", "--efficiency", "1", "--groups", "a=1"],
         "--groups is for workload files"),
        (["--workload", "gpt-3", "--samples", "1", "--peak", "1", "--efficiency", "1", "--parallelism", "pp=4"],
         "pp=4 needs --microbatches"),
        ([*BERT, "--parallelism", "tp=4,tp=2"], "tp is given twice"),
        ([*BERT, "--parallelism", "ep=2"], "ep=2: bert-base has no experts"),
        ([*BERT, "--activation", "5MB"], "--activation 5MB is of a pipeline: give --microbatches"),
        ([*BERT, "--pipeline-order", "gpipe"], "--pipeline-order gpipe is of a pipeline: give --microbatches"),
        ([*BERT, "--link-bandwidth", "1GB/s", "--npu-bandwidth", "9GB/s,5GB/s"], "omit --link-bandwidth 1GB/s"),
    ],
)
def test_bad_input_is_one_line(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*NETWORK, *words]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--loop", "ddp"], "loop 'ddp' is a scheme of sharding: wfbp is its loop"),
        (["--repeat", "0"], "--repeat 0: at least 1"),
        (["--active-chunks", "few"], "--active-chunks few: an integer from 1, or off"),
        (["--peak", "3"], "--peak is for models"),
        (["--communicator", "x.yml"], "either --communicator FILE or --groups TEXT"),
        (["--npu-bandwidth", "1GB/s,2GB/s,3GB/s"], "NPU bandwidth has 3 values"),
        (["--engine", "analytic"], "--engine analytic: the table says what time was spent on"),
        (["--engine", "fluid"], "choose chunk or reference"),
        (["--groups", "forward=4,-1;forward=-1,4"], "group 'forward' is given twice"),
        (["--groups", "forward=4,-1;input_grad=4,-1;weight_grad=-1,4;foo=4,-1"], "no collective runs in group 'foo'"),
    ],
)
def test_bad_flags_are_one_line(
    words: list[str], message: str, layers: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*layers, *words]) == 2
    assert message in capsys.readouterr().err


def test_groups_as_text() -> None:
    assert parse_groups("a=4,-1; b=-1,2") == {"a": (4, 1), "b": (1, 2)}
    for text in ("a", "a=", "a=x", "=1"):
        with pytest.raises(WeftError, match="is not a group, such as"):
            parse_groups(text)


def test_with_faults_the_rows_say_the_plan_what_it_cost_and_a_bound(tmp_path: Path, layers: list[str]) -> None:
    """The plan itself, not the name of a file that may change."""
    plan = tmp_path / "late.toml"
    plan.write_text('[[straggler]]\nnpu = "npu0"\ndelay = "5us"\n', encoding="utf-8")
    healthy = train(tmp_path, [*layers, "--symmetry", "off"])[0]
    rows = train(tmp_path, [*layers, "--faults", str(plan), "--check"])
    assert len(rows) == 16
    for row in rows:
        assert row["faults"]["straggler"] == [{"npu": "npu0", "delay": "5us", "speed": 1.0}]
        assert row["healthy_time_s"] == healthy["time_s"] < row["time_s"]
        assert 0 < row["lower_bound_s"] <= row["time_s"]
        assert row["compute_s"] + row["exposed_s"] == pytest.approx(row["time_s"], rel=1e-12)
        assert sum(part["exposed_s"] for part in row["parts"]) == pytest.approx(row["exposed_s"], rel=1e-9)
    spec = json.loads((tmp_path / "out.json").read_text())["spec"]
    assert spec["model"]["faults"] == rows[0]["faults"]


def test_npus_are_told_by_classes_and_walked_once(
    tmp_path: Path, layers: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a straggler and jitter all 16 NPUs are simulated: one walk of the journal serves them all."""
    plan = tmp_path / "plan.toml"
    plan.write_text('[[straggler]]\nnpu = "npu5"\nspeed = 0.5\n[[jitter]]\nlink = "*"\nmean = "1us"\n')
    walks: list[Walks] = []

    def walk_once(program: Program, outcome: Outcome, labels: Labels, alike: Alike) -> Walks:
        walks.append(walk_of(program, outcome, labels, alike))
        return walks[-1]

    monkeypatch.setattr("sim.why.spans.walk_of", walk_once)
    rows = train(tmp_path, [*layers, "--faults", str(plan), "--csv", str(tmp_path / "parts.csv")])
    assert len(rows) == 16 and len(walks) == 1
    for row in rows:
        assert sum(part["exposed_s"] for part in row["parts"]) == pytest.approx(row["exposed_s"], rel=1e-9)
    told = [line.partition(":")[0] for line in capsys.readouterr().out.splitlines() if line.startswith("NPU")]
    assert told == ["NPUs 0-4, 6-15", "NPU 5"]


def test_updates_of_a_model_take_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [*NETWORK, "--workload", "bert-base", "--samples", "64", "--peak", "312", "--efficiency", "0.5"]
    (without,) = train(tmp_path, words)
    (updated,) = train(tmp_path, [*words, "--updates", "--memory-bandwidth", "2TB/s"])
    assert updated["compute_s"] - without["compute_s"] == pytest.approx(109e6 * 34 / 2e12, rel=0.02)
    for wrong in (["--updates"], ["--memory-bandwidth", "2TB/s"]):
        assert main([*words, *wrong]) == 2
        assert "--updates needs --memory-bandwidth" in capsys.readouterr().err


def test_a_pipeline_does_not_gather_weights_for_each_microbatch(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*NETWORK, "--workload", "bert-base", "--parallelism", "pp=4,zero=3", "--microbatches", "2",
                 "--samples", "8", "--peak", "10", "--efficiency", "0.5"]) == 2
    assert "zero=3 (FSDP) gathers every layer for each microbatch of pp=4: choose zero=1" in capsys.readouterr().err
