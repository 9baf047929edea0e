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


def test_an_algorithm_for_each_collective(words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Joined by + in compare and in a sweep, with commas in train: each collective takes the first that has it."""
    out, times = tmp_path / "out.json", {}
    names = "ring+pairwise,recursive-doubling+pairwise,ring"
    assert main(["compare", *words, "--algorithms", names, "--json", str(out)]) == 0
    rows = {row["algorithm"]: row["time_s"] for row in json.loads(out.read_text(encoding="utf-8"))["rows"]}
    assert set(rows) == {"ring,pairwise", "recursive-doubling,pairwise", "ring"} and len(set(rows.values())) == 3
    spec = tmp_path / "sweep.toml"
    listed = ", ".join(f'"{name}"' for name in names.split(","))
    spec.write_text(f'[topology]\nspec = "ring:8"\n[workload]\nname = "{words[3]}"\n'
                    f"[collective]\nalgorithms = [{listed}]\n", encoding="utf-8")
    assert main(["sweep", str(spec), "--json", str(out)]) == 0
    assert {row["algorithm"]: row["time_s"] for row in json.loads(out.read_text(encoding="utf-8"))["rows"]} == rows
    for name in rows:
        assert main(["train", *words, "--algorithm", name, "--json", str(out)]) == 0
        times[name] = json.loads(out.read_text(encoding="utf-8"))["rows"][0]["time_s"]
    assert times == rows
    capsys.readouterr()
    for more in ("ring,ring", "ring+nix", "ring --chunks auto"):
        assert main(["compare", *words, "--algorithms", *more.split()]) == 2
        assert capsys.readouterr().err.count("\n") == 1


def test_layers_and_plans_take_an_algorithm_for_each_collective(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As if each had its own: alone, an all-to-all takes what pairwise takes, an all-reduce what swing takes."""
    layer = "l -1 0 {} 1048576 0 NONE 0 0 {} 4194304 0"
    out, times = tmp_path / "out.json", {}
    for first, second in (("ALLTOALL", "NONE"), ("NONE", "ALLREDUCE"), ("ALLTOALL", "ALLREDUCE")):
        path = tmp_path / "layers.txt"
        path.write_text(f"MODEL\n1\n{layer.format(first, second)}\n", encoding="utf-8")
        for names in ("swing,pairwise", "swing", "pairwise"):
            words = ["train", "--topology", "ring:8", "--workload", str(path), "--algorithm", names]
            groups = "forward=8;weight_grad=8;input_grad=8"
            assert main([*words, "--groups", groups, "--loop", "no-overlap", "--json", str(out)]) == 0
            times[first, second, names] = json.loads(out.read_text(encoding="utf-8"))["rows"][0]["time_s"]
    both = times["ALLTOALL", "ALLREDUCE", "swing,pairwise"]
    assert times["ALLTOALL", "NONE", "swing,pairwise"] == times["ALLTOALL", "NONE", "pairwise"]
    assert times["NONE", "ALLREDUCE", "swing,pairwise"] == times["NONE", "ALLREDUCE", "swing"]
    alone = times["ALLTOALL", "NONE", "pairwise"] + times["NONE", "ALLREDUCE", "swing"]
    assert both == pytest.approx(alone, rel=1e-9, abs=1e-11)
    plan = "train --topology torus:4x4 --model mixtral-8x7b --device h100 --tp 4 --ep 4 --zero fsdp --global-batch 16"
    found = []
    for names in ("ring,direct", "ring"):
        assert main([*plan.split(), "--recompute", "full", "--algorithm", names, "--json", str(out)]) == 0
        found.append(json.loads(out.read_text(encoding="utf-8"))["rows"][0])
    assert found[0]["algorithm"] == "ring,direct" and found[0]["time_s"] < found[1]["time_s"]
    assert "ZeRO 3 (FSDP)" in capsys.readouterr().out
