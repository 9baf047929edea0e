"""The tuner's file: what it says is the fastest is, and its ranges leave no gap."""

from __future__ import annotations

import csv
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from sim.cli import main
from sim.library.expected import timed
from sim.library.tuner import Setting, candidates
from sim.library.tuner_csv import ranges, tuner_csv
from topologies import WeftError
from topologies.machines.profile import machine

SIZES = [2**power for power in range(10, 34)]


@pytest.mark.parametrize("collective", ["all-reduce", "all-gather", "reduce-scatter", "broadcast", "reduce"])
@pytest.mark.parametrize(("name", "nodes"), [
    ("dgx-h100", 1), ("dgx-h100", 3), ("dgx-a100", 16), ("mi300x", 2), ("polaris", 5),
])
def test_the_fastest_is_found_at_every_size_and_between(name: str, nodes: int, collective: str) -> None:
    box = machine(name)
    asked = Setting(machine=box, nodes=nodes, gpus=box.gpus, collective=collective)
    found = ranges(asked, SIZES)
    assert (found[0].first, found[-1].last) == (SIZES[0], SIZES[-1])
    assert all(after.first == before.last + 1 for before, after in pairwise(found))
    for size in np.random.default_rng(7).choice(SIZES, 12).tolist():
        its = next(one for one in found if one.first <= size <= one.last)
        times = {(one.algorithm, one.protocol): timed(asked, one, size).time_s for one in candidates(asked)}
        assert times[its.algorithm, its.protocol] == min(times.values())
    for before, after in pairwise(found):  # at the border each is the faster on its own side
        for size, better, other in ((before.last, before, after), (after.first, after, before)):
            times = {(one.algorithm, one.protocol): timed(asked, one, size).time_s for one in candidates(asked)}
            assert times[better[2:4]] <= times[other[2:4]]


def test_what_is_saved_is_against_the_library() -> None:
    """Broadcast counts one hop of a chain, and leaves LL too early."""
    box = machine("dgx-a100")
    found = ranges(Setting(machine=box, nodes=4, gpus=8, collective="broadcast"), SIZES)
    assert max(one.saves for one in found) > 0.05
    assert min(one.saves for one in found) >= 0


def test_the_file_has_the_fields_of_the_plugin() -> None:
    text = tuner_csv(asked := Setting(machine=machine("dgx-h100"), nodes=4, gpus=8, collective="all-reduce"),
                     ranges(asked, SIZES))
    rows = list(csv.reader(line for line in text.splitlines() if not line.startswith("#")))
    assert {tuple(row[:1] + row[5:]) for row in rows} == {("allreduce", "-1", "4", "32")}
    assert {row[3] for row in rows} <= {"ring", "tree", "nvls_tree"}
    assert {row[4] for row in rows} <= {"ll", "ll128", "simple"}
    assert all(len(line) < 256 for line in text.splitlines())


def test_messages_have_no_tuner() -> None:
    with pytest.raises(WeftError, match="all-to-all has no choice"):
        ranges(Setting(machine=machine("dgx-h100"), nodes=2, gpus=8, collective="all-to-all"), SIZES)


def test_the_command_writes_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["compare", "--machine", "dgx-a100:16", "-b", "1K", "-e", "1G", "-f", "32", "--quiet", "--tuner"]
    assert main([*words, str(tmp_path / "tuner.csv"), "--library", "nccl"]) == 0
    assert (tmp_path / "tuner.csv").read_text().startswith("# all-reduce on dgx-a100:16, 8 GPUs a node")
    assert main([*words, str(tmp_path / "other.csv")]) == 2
    assert "add --library nccl" in capsys.readouterr().err and not (tmp_path / "other.csv").exists()
