"""`weft sweep`: run, status, export, and what it says."""

from __future__ import annotations

import csv
import json
import re
import resource
from pathlib import Path

import pytest
from pyarrow import parquet

from sim.cli import EXIT_INTERRUPTED, EXIT_NOT_WRITTEN, main
from sim.cli.flags import EXIT_BAD_INPUT

SWEEP = """
[topology]
spec = ["ring:3", "ring:4"]
[collective]
algorithms = ["ring", "pairwise"]
[model]
chunks = [1, 2]
[sweep]
begin = "1K"
end = "2K"
"""
"""16 points, half of which cannot run: pairwise does no all-reduce."""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "s.toml"
    file.write_text(SWEEP)
    return file


def test_a_sweep_is_run_told_and_exported(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = file.with_suffix(".csv")
    assert main(["sweep", str(file), "--progress", "--export", str(table)]) == 0
    said = capsys.readouterr()
    assert said.out.splitlines()[:2] == [
        f"# weft sweep: {file}, 16 points, topology.spec x 2, model.chunks x 2; store {file.with_suffix('.db')}",
        "# 16 finished, 0 left; 0 were stored before, 16 computed now",
    ]
    assert "# pairwise on ring:3, pairwise on ring:4 cannot run: " in said.out
    assert said.err.splitlines()[-2:] == ["sweep: 16/16 done, ring:4 pairwise 2 KiB: cannot run", f"wrote {table}"]
    with table.open(newline="") as text:
        rows = list(csv.DictReader(text))
    assert [row["topology.spec"] for row in rows] == 8 * ["ring:3"] + 8 * ["ring:4"]
    assert [row["model.chunks"] for row in rows] == 2 * (4 * ["1"] + 4 * ["2"])
    ran = 4 * [True, True, False, False]
    assert [bool(row["time_s"]) for row in rows] == [not row["refused"] for row in rows] == ran
    assert "wall_s" not in rows[0]


def test_status_computes_nothing_and_needs_a_store(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sweep", str(file), "--status"]) == EXIT_BAD_INPUT
    store = file.with_suffix(".db")
    assert capsys.readouterr().err == f"weft sweep: store {store} does not exist: run the sweep first\n"
    main(["sweep", str(file), "--quiet"])
    file.write_text(SWEEP.replace('"2K"', '"4K"'))
    capsys.readouterr()
    assert main(["sweep", str(file), "--status"]) == 0
    said = capsys.readouterr()
    assert said.out.splitlines()[1] == "# 16 finished, 8 left" and said.err == ""


def test_every_output_has_the_same_rows(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table, columns = file.with_suffix(".csv"), file.with_suffix(".parquet")
    assert main(["sweep", str(file), "--quiet", "--export", str(table)]) == 0
    assert main(["sweep", str(file), "--quiet", "--export", str(columns)]) == 0
    capsys.readouterr()
    assert main(["sweep", str(file), "--quiet", "--export", "-"]) == 0
    said = capsys.readouterr()
    assert said.out == table.read_text() and said.err.startswith("# weft sweep")
    assert main(["sweep", str(file), "--quiet", "--json", "-"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["spec"]["model"] == {"chunks": [1, 2]} and len(found["rows"]) == 16
    times = [row["time_s"] for row in found["rows"]]
    assert times == parquet.read_table(columns)["time_s"].to_pylist()
    assert times == [float(row["time_s"]) if row["time_s"] else None for row in csv.DictReader(said.out.splitlines())]


def test_what_cannot_run_can_be_tried_again(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["sweep", str(file), "--quiet"])
    capsys.readouterr()
    assert main(["sweep", str(file), "--quiet", "--retry"]) == 0
    assert capsys.readouterr().out.splitlines()[1] == "# 16 finished, 0 left; 8 were stored before, 8 computed now"


@pytest.mark.parametrize(("where", "kept"), [
    ("points_of", "no point was computed, {} is as it was"), ("report", "what is finished is in {}"),
])
def test_interrupted_before_and_after_its_points_it_says_so_too(
    where: str, kept: str, file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def ctrl_c(*given: object, **named: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(f"sim.cli.sweep.{where}", ctrl_c)
    assert main(["sweep", str(file)]) == EXIT_INTERRUPTED
    said = kept.format(file.with_suffix(".db"))
    assert capsys.readouterr().err == f"weft sweep: interrupted: {said}; run it again to go on\n"


def test_interrupted_it_says_how_to_go_on(
    file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sim.study.sweep.STORE_SECONDS", 0)  # each at once

    def ctrl_c(self: object, what: str) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("sim.cli.progress.Steps.advance", ctrl_c)
        assert main(["sweep", str(file)]) == EXIT_INTERRUPTED
    store = file.with_suffix(".db")
    assert capsys.readouterr().err == (
        f"weft sweep: interrupted: 1 of 16 points are in {store}; run it again to go on\n"
    )
    assert main(["sweep", str(file), "--quiet"]) == 0
    assert capsys.readouterr().out.splitlines()[1] == "# 16 finished, 0 left; 1 were stored before, 15 computed now"


def test_points_that_do_not_end_are_an_error(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    export = file.with_suffix(".csv")
    words = ["sweep", str(file), "--quiet", "--max-events", "6", "--export", str(export)]
    assert main(words) == EXIT_BAD_INPUT
    said = capsys.readouterr().err
    assert said.startswith("weft sweep: ") and said.count("\n") == 1 and len(said) < 250
    assert re.search(r"\d+ points did not end and are not stored; the first is \S+ \S+ \S+ \S+: stopped at the ", said)
    assert not export.exists()


def test_what_is_done_is_exported_beside_points_that_do_not_end(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    export = file.with_suffix(".csv")
    assert main(["sweep", str(file), "--max-events", "14", "--quiet", "--export", str(export)]) == EXIT_BAD_INPUT
    told = capsys.readouterr()
    finished, left = map(int, re.findall(r"(\d+) finished, (\d+) left", told.out)[0])
    assert finished and left and len(export.read_text().splitlines()) == 1 + finished
    few = "1 point did not end and is" if left == 1 else f"{left} points did not end and are"
    assert told.err.startswith(f"weft sweep: {few} not stored; ")


@pytest.mark.parametrize(("fault", "wrong"), [
    ('[[straggler]]\nnpu = "npu7"\ndelay = "10us"', "topology ring:5 has no NPU 'npu7': they are npu0 to npu4"),
    ('[[link-down]]\nlink = "npu3--npu7"\nat = "1us"', "topology ring:8 has no link 'npu3--npu7': its links are "),
])
def test_a_fault_plan_that_does_not_fit_each_fabric_is_refused_before_any_point_runs(
    fault: str, wrong: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan, file = tmp_path / "plan.toml", tmp_path / "sweep.toml"
    plan.write_text(fault)
    file.write_text('topology = {spec = ["torus:4x4", "ring:8", "ring:5"]}\nmodel = {faults = "plan.toml"}\n'
                    'collective = {algorithms = ["ring"]}\nsweep = {begin = "1K", end = "1K"}\n')
    assert main(["sweep", str(file), "--quiet"]) == EXIT_BAD_INPUT
    said = capsys.readouterr()
    assert said.err.startswith(f"weft sweep: sweep file {file}: faults of [model] do not fit each fabric: {wrong}")
    assert not said.out and not file.with_suffix(".db").exists()


def test_a_full_disk_keeps_what_is_finished(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sim.study.sweep.STORE_SECONDS", 0)  # each at once
    file.write_text(SWEEP.replace('"2K"', '"64K"'))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
    try:
        assert main(["sweep", str(file)]) == EXIT_NOT_WRITTEN
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    said = capsys.readouterr().err
    assert said.startswith(f"weft sweep: {file.with_suffix('.db')}: ") and said.count("\n") == 1
    assert main(["sweep", str(file), "--status"]) == 0
    kept = int(capsys.readouterr().out.splitlines()[1].split()[1])
    assert 0 < kept < 56
    assert main(["sweep", str(file)]) == 0
    told = capsys.readouterr().out.splitlines()[1]
    assert told == f"# 56 finished, 0 left; {kept} were stored before, {56 - kept} computed now"


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["none.toml"], "sweep file none.toml cannot be read: No such file or directory"),
        (["{}", "--export", "a.xlsx"], "suffix '.xlsx': write .csv or .parquet"),
        (["{}", "--export", "nowhere/a.csv"], "there is no folder nowhere"),
        (["{}", "--workers", "2", "--dask", "tcp://a"], "give --workers or --dask, not both"),
        (["{}", "--workers", "0"], "--workers 0 is out of range"),
        (["{}", "--store", "{}"], "would be written over what is read, FILE "),
        (["{}", "--store", "nowhere/s.db"], "store nowhere/s.db: unable to open database file"),
    ],
)
def test_bad_input_is_one_line(words: list[str], why: str, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sweep", *(word.format(file) for word in words)]) == EXIT_BAD_INPUT
    said = capsys.readouterr()
    assert said.out == "" and said.err.startswith("weft sweep: ") and said.err.count("\n") == 1 and why in said.err


def test_a_sweep_of_nothing_that_runs_is_an_error(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(SWEEP.replace('"ring", ', ""))
    assert main(["sweep", str(file), "--quiet"]) == EXIT_BAD_INPUT
    assert capsys.readouterr().err == "weft sweep: no point can run\n"


@pytest.mark.parametrize(("model", "refused"), [
    ({"engine": ["chunk", "fluid"], "chunks": [1, 16]}, 1),
    ({"engine": ["chunk", "fluid"], "nic": ["none", "shared"]}, 1),
    ({"vcs": [1, 2], "bubble": [False, True], "buffer": "64KiB"}, 1), ({"engine": ["chunk", "fluid"], "seed": 3}, 0),
    ({"bubble": [True, False]}, 1), ({"chunk": "1KiB", "engine": ["fluid", "chunk"]}, 1),
])
def test_values_that_do_not_go_together_are_points_that_cannot_run(
    model: dict[str, object], refused: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = "\n".join(f"{name} = {json.dumps(value)}" for name, value in model.items())
    file = tmp_path / "s.toml"
    file.write_text(SWEEP.partition("[model]")[0].replace(', "pairwise"', "").replace('"ring:3", ', "")
                    + f'[model]\n{lines}\n[sweep]\nbegin = "1K"\n')
    for _ in range(2):  # the second time, points are read
        assert main(["sweep", str(file), "--quiet", "--json", str(tmp_path / "a.json")]) == 0
    rows = json.loads((tmp_path / "a.json").read_text())["rows"]
    assert sum(row.get("refused") is not None for row in rows) == refused < len(rows)
    assert ("cannot run: " in capsys.readouterr().out) == bool(refused)


DESIGNS = """
[optimize]
network = ["RI(3)_FC(2)", "RI(2)_SW(2)"]
workload = [["turing-nlg"], ["turing-nlg", "resnet-50"]]
budget = ["90GB/s", "200GB/s"]
evaluations = 3
"""


@pytest.mark.full
def test_points_of_designs_are_what_optimize_answers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each network for each workload or several together: the row of `weft optimize` alone."""
    file, table, alone = tmp_path / "d.toml", tmp_path / "d.csv", tmp_path / "alone.json"
    file.write_text(DESIGNS)
    assert main(["sweep", str(file), "--quiet", "--export", str(table)]) == 0
    rows = list(csv.DictReader(table.read_text().splitlines()))
    assert len(rows) == 8 and not any(row["refused"] for row in rows)
    for row in rows:
        words = [word for one in row["optimize.workload"].split(",") for word in ("--workload", one)]
        words += ["--network", row["network"], "--budget", row["optimize.budget"], "--evaluations", "3"]
        assert main(["optimize", *words, "--json", str(alone), "--quiet"]) == 0
        (found,) = json.loads(alone.read_text())["rows"]
        assert [float(row[key]) for key in ("time_s", "equal_time_s")] == [found["time_s"], found["equal_time_s"]]
        assert json.loads(row["bandwidth_GBps"]) == found["bandwidth_GBps"] and row["topology"] == found["network"]
    capsys.readouterr()
    assert main(["sweep", str(file)]) == 0
    assert "8 were stored before, 0 computed now" in capsys.readouterr().out
    file.write_text(file.read_text().replace("evaluations = 3", "evaluations = 4"))
    assert main(["sweep", str(file), "--status"]) == 0
    assert "0 finished, 8 left" in capsys.readouterr().out


@pytest.mark.parametrize(("text", "why"), [
    ('[topology]\nspec = "ring:4"\n' + DESIGNS, "weft optimize does not use 'spec' of [topology]"),
    (DESIGNS.replace("network", "#"), "[optimize] has no network"),
    (DESIGNS.replace("RI(3)", "XX(3)"), "'XX(3)' is not a block"),
])
def test_designs_that_are_wrong_are_one_line(
    text: str, why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "d.toml").write_text(text)
    assert main(["sweep", str(tmp_path / "d.toml"), "--quiet"]) == EXIT_BAD_INPUT
    error = capsys.readouterr().err.strip().splitlines()
    assert why in error[-1]
