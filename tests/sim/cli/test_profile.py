"""`--profile`: what a command does is in the row of its stage, by the names that `topologies.stages` lists."""

from __future__ import annotations

import argparse
import json
import re

import pytest

from sim.cli import EXIT_INTERRUPTED, main
from sim.cli.output import say_stages
from tests.places import ROOT
from topologies import stages

COMMANDS = {
    "compare": ("--topology ring:4 --algorithms ring -b 1K --check", "pattern, lowering, bounds, engine, check"),
    "bound": ("--topology ring:4 --collective all-to-all --program", "bounds"),
    "train": ("--topology RI(4) --workload bert-large --parallelism tp=4 --samples 64 --peak 312 --efficiency 0.5",
              "pattern, lowering, engine, critical path"),
    "optimize": ("--network RI(2)_SW(2) --collective all-reduce -b 1M --budget 200GB/s --evaluations 4",
                 "search, lowering, engine, critical path"),
    "judge": ("{examples}/nccl.txt", "parse, fit"),
    "calibrate": ("{examples}/p4de.json --machine p4de:2 --library nccl:2.18 --gpus-per-process 8", "parse, fit"),
    "astra": ("--workload {examples}/astra/gather --system {examples}/astra/system.json "
              "--network {examples}/astra/ring_16.yml", "parse, engine"),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_what_a_command_does_has_a_row(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    words, wanted = COMMANDS[command]
    words = words.format(examples=ROOT / "examples")
    assert main([command, *words.split(), "--quiet", "--profile", "--json", "-"]) == 0
    rows = {row["stage"]: row["calls"] for row in json.loads(capsys.readouterr().out)["stages"]}
    assert all(rows[name] >= 1 for name in wanted.split(", "))
    listed = re.findall(r'"([a-z ]+)"', (stages.__doc__ or "").partition("They are")[2])
    assert set(rows) <= {*listed, stages.OTHER}


def test_what_is_rejected_has_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "--topology", "ring:4", "--algorithms", "swing,nosuch", "--profile"]) == 2
    first, head, *rows = capsys.readouterr().err.splitlines()
    assert first.startswith("weft compare: algorithm 'nosuch'") and head.startswith("# stage")
    assert any(row.split()[0] == "parse" for row in rows)


def test_what_is_interrupted_has_a_table(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    @stages.staged("topology")
    def interrupted(arguments: argparse.Namespace) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("sim.cli.topology.run", interrupted)
    assert main(["topology", "--topology", "ring:4", "--profile"]) == EXIT_INTERRUPTED
    first, head, *rows = capsys.readouterr().err.splitlines()
    assert "interrupted" in first and head.startswith("# stage")
    assert any(row.split()[0] == "topology" for row in rows)
    assert stages.profiled() is None


def test_what_workers_do_has_rows_of_its_own(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sim.study.points.FEWEST_OF_WORKERS", 0)
    words = "--topology ring:4 --algorithms ring -b 1K -e 2K --workers 2 --quiet --profile --json -"
    assert main(["compare", *words.split()]) == 0
    said = capsys.readouterr()
    rows = {row["stage"]: row for row in json.loads(said.out)["stages"] if "workers" in row}
    assert {"imports", "lowering", "engine"} <= set(rows)
    assert all(row["workers"] == 2 for row in rows.values()) and rows["engine"]["calls"] >= 2
    assert "engine, 2 workers" in said.err and "# rows of workers: the sum" in said.err


def test_workers_that_told_nothing_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    profile = stages.Profile(unmeasured=2)
    say_stages(profile)
    assert capsys.readouterr().err.splitlines()[-1].startswith("# not in the table: what 2 workers did")
