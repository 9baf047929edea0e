"""`weft compare --workload`: a workload by several algorithms."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sim.cli import main
from tests.astra_inputs import collective_node, write_ranks

MIB = 2**20


@pytest.fixture
def words(tmp_path: Path) -> list[str]:
    nodes = [collective_node("all-reduce", 4 * MIB), collective_node("all-to-all", MIB, 1, after=[0])]
    prefix = str(write_ranks(tmp_path, [nodes] * 8))
    return ["--topology", "ring:8", "--workload", prefix]


def test_the_fastest_first_and_the_time_of_train(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.json"
    assert main(["compare", *words, "--algorithms", "recursive-doubling,ring,in-network", "--json", str(out)]) == 0
    said = capsys.readouterr().out
    rows = json.loads(out.read_text(encoding="utf-8"))["rows"]
    assert [row["time_s"] for row in rows] == sorted(row["time_s"] for row in rows) and len(rows) == 3
    assert rows[0]["algorithm"] == "ring" and "# ring: by default" in said
    times = {}
    for row in rows:
        assert main(["train", *words, "--algorithm", row["algorithm"], "--json", str(out)]) == 0
        times[row["algorithm"]] = json.loads(out.read_text(encoding="utf-8"))["rows"][0]["time_s"]
    assert times == {row["algorithm"]: row["time_s"] for row in rows}


def test_an_algorithm_that_does_not_fit_is_told(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "--topology", "torus:2x4", *words[2:], "--algorithms", "ring,bucket"]) == 0
    said = capsys.readouterr().out
    assert "# ring: among the ranks in their order, as on a switch: ring on torus:2x4" in said
    assert main(["compare", "--topology", "torus:2x4", *words[2:], "--algorithms", "hierarchical,in-network"]) == 0
    assert "cannot run" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ([], "by the algorithms of its collectives: --algorithms ring,swing"),
        (["--algorithms", "ring", "-b", "1M"], "-b is of a collective: a workload says what it moves"),
        (["--algorithms", "ring", "--collective", "all-gather"], "--collective is of a collective"),
        (["--algorithms", "ring", "--all"], "--all is of the comparison of a collective over sizes"),
        (["--algorithms", "nccl"], "algorithm 'nccl' is unknown"),
    ],
)
def test_what_is_of_collectives_is_an_error(
    more: list[str], message: str, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", *words, *more]) == 2
    said = capsys.readouterr()
    assert message in said.err and said.err.count("\n") == 1 and not said.out
