"""`--profile`: what a command does is in the row of its stage, by the names that `topologies.stages` lists."""

from __future__ import annotations

import json
import re

import pytest

from sim.cli import main
from tests.places import ROOT
from topologies import stages

COMMANDS = {
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
