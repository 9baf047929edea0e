"""What the commands say of faults beside the tables: entries without effect, and who ends at some sizes only."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from sim.cli import main
from sim.cli.flags import EXIT_BAD_INPUT
from sim.study.sweep import _at

LAYERS = "one -1 1000 NONE 0 1000 NONE 0 1000 ALLREDUCE 65536 10\n"
AFTER = '[[slow-link]]\nlink = "npu0->npu1"\nshare = 0.5\nat = "1s"\n'
"""An entry that comes when everything is over."""

CUT = 'timeout = "1us"\n[[link-down]]\nlink = "npu0->npu1"\nat = "4us"\n'
"""For good, after the small sizes have ended."""


@pytest.mark.parametrize(
    "words",
    [
        ["share", "--tenant", "all-reduce ring 1KiB", "--tenant", "all-gather ring 1KiB"],
        ["train", "--workload", "layers.txt", "--groups", "forward=4;input_grad=4;weight_grad=4"],
        ["trace", "--workload", "layers.txt", "--groups", "forward=4;input_grad=4;weight_grad=4"],
        ["trace", "--algorithms", "ring", "-b", "1K"],
    ],
)
def test_entries_without_effect_are_told(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("layers.txt").write_text(LAYERS, encoding="utf-8")
    Path("late.toml").write_text(AFTER + '[[straggler]]\nnpu = "npu0"\ndelay = "5us"\n', encoding="utf-8")
    assert main([*words, "--topology", "RI(4)", "--faults", "late.toml"]) == 0
    said = capsys.readouterr().out
    assert "# faults: +" in said and " on the healthy " in said
    assert "# no effect: SlowLink of npu0->npu1 at 1s: the run was over at " in said
    assert "no effect: Straggler" not in said
    assert main([*words, "--topology", "RI(4)"]) == 0
    assert "faults" not in capsys.readouterr().out


@pytest.mark.parametrize("command", ["compare", "validate"])
def test_a_deadlock_at_some_sizes_can_never_end(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "cut.toml").write_text(CUT, encoding="utf-8")
    words = [command, "--topology", "ring:4", "--algorithms", "ring", "-b", "1K", "-e", "256K", "-f", "16", "--quiet"]
    assert main([*words, "--faults", str(tmp_path / "cut.toml")]) == 0
    said = capsys.readouterr().out
    assert "# ring can never end: at 256 KiB: " in said and "cannot run" not in said


def test_a_sweep_names_the_sizes_that_cannot_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "cut.toml").write_text(CUT, encoding="utf-8")
    file = tmp_path / "s.toml"
    file.write_text(
        '[topology]\nspec = "ring:4"\n[collective]\nalgorithms = ["ring", "pairwise"]\n[model]\nchunks = [1, 2]\n'
        f'faults = "{tmp_path / "cut.toml"}"\n[sweep]\nbegin = "1K"\nend = "256K"\nfactor = 16\n', encoding="utf-8",
    )
    assert main(["sweep", str(file), "--quiet"]) == 0
    said = capsys.readouterr().out
    assert "\n# ring on ring:4 at 256 KiB cannot run: 3 of 48 transfers can never finish" in said
    assert "\n# pairwise on ring:4 cannot run: " in said
    assert _at("ring", Counter({2048: 2, 1024: 1}), Counter({1024: 2, 2048: 2})) == (
        "ring at 1 KiB (1 of 2 points), 2 KiB"
    )


def test_tenants_are_told_one_by_one(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["share", "--topology", "ring:4", "--tenant", "all-reduce ring 1KiB"]
    assert main([*words, "--progress"]) == 0
    assert capsys.readouterr().err.splitlines()[-1] == "share: 3/3 done, where the time went"
    assert main([*words, "--tenant", "all-reduce nothing 1KiB"]) == EXIT_BAD_INPUT
