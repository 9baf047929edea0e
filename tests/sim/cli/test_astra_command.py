"""`weft astra`: what it prints, where, and its exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sim.cli import main
from tests.astra_inputs import collective_node, write_inputs

LINE = "sys[{}] finished, 64744 cycles, exposed communication 64744 cycles."


@pytest.fixture
def words(tmp_path: Path) -> list[str]:
    nodes = [[collective_node("all-gather", 2**20)]] * 4
    inputs = write_inputs(tmp_path, [("Ring", 4)], nodes, **{"all-gather-implementation": ["ring"]})
    return ["astra", *(word for name, path in inputs.items() for word in (f"--{name}", str(path)))]


def test_the_summary_lines(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """One line an NPU and nothing else on standard output; remarks on standard error."""
    assert main(words) == 0
    said = capsys.readouterr()
    assert sorted(said.out.splitlines()) == [LINE.format(npu) for npu in range(4)]
    assert said.err.startswith("# 1 cycle is 1 ns") and "clockwise only" in said.err
    assert main([*words, "--quiet"]) == 0
    assert capsys.readouterr().err == ""


def test_json(words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*words, "--json", "-", "--quiet"]) == 0
    said = capsys.readouterr()
    data = json.loads(said.out)
    assert data["cycles"] == 64_744 and data["topology"] == "RI(4)" and len(data["rows"]) == 4
    assert data["rows"][0]["time_s"] == 64_744e-9 and LINE.format(0) in said.err
    path = tmp_path / "out.json"
    assert main([*words, "--json", str(path)]) == 0
    assert json.loads(path.read_text(encoding="utf-8")) == data


def test_groups_from_a_file(words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "groups.json"
    path.write_text('{"1": [0, 9]}', encoding="utf-8")
    assert main([*words, "--comm-group", str(path)]) == 2
    assert "NPU is 9: give an integer from 0 to 3" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (["--backend", "fast"], "backend 'fast' is unknown: choose one of aware, unaware"),
        (["--num-queues-per-dim", "2"], "2 queues per dimension need collective-optimization baseline"),
        (["--max-events", "5"], "more than 5 events"),
        (["--workload", "gone"], "there is no gone.0.et in .: give what comes before .<rank>.et"),
        (["--system", "gone"], "system file gone cannot be read: No such file or directory"),
        (["--network", "gone"], "network gone cannot be read: No such file or directory"),
        (["--json", "gone/x.json"], "there is no folder gone"),
    ],
)
def test_bad_input_is_one_line(
    words: list[str], change: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*words, *change]) == 2
    said = capsys.readouterr()
    assert message in said.err and said.err.startswith("weft astra: ") and said.err.count("\n") == 1 and not said.out


def test_a_schedule_as_traces(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`weft schedule --chakra` writes one for each rank, and `weft trace --job` runs them in the same time."""
    prefix = str(tmp_path / "swing")
    words = ["--topology", "torus:2x4", "--chunks", "1", "--rank-progress", "free"]  # traces have dependencies alone
    algorithm = ["--algorithm", "swing", "--form", "latency", "-b", "64K"]
    assert main(["schedule", *words[:2], *algorithm, "--chakra", prefix]) == 0
    assert len(list(tmp_path.glob("swing.*.et"))) == 8
    capsys.readouterr()
    assert main(["trace", *words, "--job", prefix]) == 0
    ran = capsys.readouterr().out.splitlines()[0].rpartition(": ")[2]
    assert main(["trace", *words, *algorithm]) == 0
    assert capsys.readouterr().out.splitlines()[0].rpartition(": ")[2].startswith(f"{ran} ")  # with its range
    assert main(["schedule", *words[:2], *algorithm, "--chakra", "-"]) == 2
    assert "--chakra - is standard output, which takes text: give a file name" in capsys.readouterr().err
