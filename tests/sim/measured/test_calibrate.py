"""`weft calibrate`: does it find the constants that a table was made with, and say what it cannot know?"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from sim.cli import main
from sim.library.expected import expected
from sim.library.tuner import Setting
from sim.measured.calibrate import CONSTANTS, Table, calibrate
from topologies import WeftError
from topologies.machines.profile import Machine, machine

SIZES = [2**power for power in range(10, 34)]


def table(true: Machine, said: Machine, nodes: int, collective: str = "all-reduce", noise: float = 0.02) -> Table:
    """Times of a machine with other constants than its profile says."""
    rng = np.random.default_rng(1)
    setting = Setting(machine=said, nodes=nodes, gpus=said.gpus, collective=collective)
    truth = replace(setting, machine=true)
    return setting, [(size, expected(truth, size).time_s * float(np.exp(rng.normal(0, noise)))) for size in SIZES]


def test_rates_and_launch_are_found_again() -> None:
    said = machine("dgx-h100")
    true = replace(said, gpu=replace(said.gpu, ring=330e9, launch=25e-6), nic=replace(said.nic, reached=0.8))
    found = calibrate([
        table(true, said, 1, "all-gather"), table(true, said, 4, "all-gather"), table(true, said, 4, "reduce-scatter")
    ])
    assert found.machine.gpu.ring == pytest.approx(330e9, rel=0.04)
    assert found.machine.gpu.launch == pytest.approx(25e-6, rel=0.04)
    assert found.error < 0.03 < found.error_before
    assert all(low <= high for low, high in found.intervals.values())
    low, high = found.intervals["gpu.launch"]
    assert low <= 25e-6 <= high


def test_what_a_table_does_not_depend_on_keeps_its_value() -> None:
    said = machine("dgx-h100")
    found = calibrate([table(said, said, 1, "all-gather")])
    assert {"nic.reached", "nic.latency", "gpu.multicast"} <= set(found.undetermined)
    assert found.machine.nic == said.nic
    assert not set(found.undetermined) & set(found.intervals)
    assert set(found.undetermined) | set(found.intervals) == {f"{one.part}.{one.key}" for one in CONSTANTS}


def test_constants_that_a_few_sizes_cannot_tell_apart_are_named() -> None:
    setting = Setting(machine=machine("dgx-h100"), nodes=1, gpus=8, collective="all-gather")
    sizes = [2**30 + step * 2**26 for step in range(8)]
    found = calibrate([(setting, [(size, expected(setting, size).time_s) for size in sizes])])
    assert ("gpu.ring", "gpu.ramp") in found.together


def test_one_outlier_changes_little() -> None:
    said = machine("dgx-h100")
    setting, points = table(said, said, 1, "all-gather")
    spoiled = [(size, 10 * time if size == 2**28 else time) for size, time in points]
    assert calibrate([(setting, spoiled)]).machine.gpu.ring == pytest.approx(said.gpu.ring, rel=0.05)


def test_what_messages_cost_that_ask_first_is_found_again() -> None:
    """Slingshot: from 2 KiB on a hop takes longer, by protocol."""
    said = machine("perlmutter")
    true = replace(said, nic=replace(said.nic, handshake=20e-6, handshake_simple=60e-6))
    found = calibrate([
        table(true, said, 2, kind) for kind in ("all-reduce", "all-gather")
    ]).machine.nic
    assert found.handshake == pytest.approx(20e-6, rel=0.1)
    assert found.handshake_simple == pytest.approx(60e-6, rel=0.1)


def test_a_constant_that_small_messages_hardly_depend_on_stays_near_its_profile() -> None:
    """Without a belief about it, noise at 64 KiB to 1 MiB would decide on the rate of 4 GiB."""
    said = machine("dgx-h100")
    setting, points = table(said, said, 4, "all-gather", noise=0.3)
    found = calibrate([(setting, [point for point in points if point[0] <= 2**20])])
    assert found.machine.nic.reached == pytest.approx(said.nic.reached, rel=0.3)


def test_points_that_no_constants_explain_are_named() -> None:
    said = machine("dgx-h100")
    setting, points = table(said, said, 1, "all-gather")
    spoiled = [(size, 10 * time if size == 2**28 else time) for size, time in points]
    ((kind, size, ratio),) = calibrate([(setting, spoiled)]).unexplained
    assert (kind, size) == ("all-gather", 2**28)
    assert ratio == pytest.approx(10, rel=0.1)


def test_too_few_points_are_named() -> None:
    said = machine("dgx-h100")
    with pytest.raises(WeftError, match="too few"):
        calibrate([(Setting(machine=said, nodes=1, gpus=8, collective="all-reduce"), [(2**30, 1.0)])])
    with pytest.raises(WeftError, match="no table"):
        calibrate([])


def test_the_command_prints_a_profile_that_is_read_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "nccl.json"
    words = ["compare", "--machine", "dgx-h100:2", "--collective", "all-gather", "-b", "1K", "-e", "4G", "-f", "4"]
    assert main([*words, "--library", "nccl", "--nccl-json", str(file), "--quiet"]) == 0
    capsys.readouterr()
    assert main(["calibrate", str(file), "--machine", "a3-ultra:2", "--library", "nccl", "--quiet"]) == 0
    printed = capsys.readouterr().out
    assert "median error" in printed
    (tmp_path / "mine.toml").write_text(printed)
    assert machine(str(tmp_path / "mine.toml")).nic.name == "gcp-roce-400"
    assert main(["calibrate", str(file), "--machine", "a3-ultra:4", "--library", "nccl"]) == 2
    assert "measured ranks 16" in capsys.readouterr().err
    assert main(["calibrate", str(file), "--machine", "a3-ultra:2"]) == 2
    assert main(["calibrate", "--machine", "a3-ultra:2", "--library", "nccl"]) == 2
