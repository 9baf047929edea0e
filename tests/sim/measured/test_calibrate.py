"""`weft calibrate`: does it find the constants that a table was made with, and say what it cannot know?"""

from __future__ import annotations

import json
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


def test_an_interval_is_never_empty() -> None:
    """Also of a table without scatter, of constants at the edge of what they can be, and of two that are one."""
    said = machine("dgx-h100")
    exact = table(said, said, 2, "all-gather", noise=0.0)
    driven = (replace(exact[0], nodes=1, gpus_per_process=8), exact[1])
    for tables in ([exact], [driven]):
        found = calibrate(tables)
        for name, (low, high) in found.intervals.items():
            value = float(getattr(getattr(found.machine, name[:3]), name[4:]))
            assert 0 <= low <= value <= high
            assert low < high
    assert ("gpu.launch", "gpu.launch_per_gpu") in found.together


def test_no_rate_is_fitted_beyond_its_link() -> None:
    said = machine("dgx-h100")
    fast = replace(said, gpu=replace(said.gpu, link=900e9, ring=700e9))
    found = calibrate([table(fast, said, 1, "all-gather")]).machine
    assert found.gpu.ring == said.gpu.link


def test_launches_of_processes_with_several_gpus_are_told_apart_by_two_tables() -> None:
    said = machine("dgx-h100")
    true = replace(said, gpu=replace(said.gpu, launch=14e-6, launch_per_gpu=4e-6))
    one = table(true, said, 1, "all-gather")
    eight = replace(one[0], gpus_per_process=8)
    truth = replace(eight, machine=true)
    found = calibrate([one, (eight, [(size, expected(truth, size).time_s) for size in SIZES])])
    assert found.machine.gpu.launch == pytest.approx(14e-6, rel=0.05)
    assert found.machine.gpu.launch_per_gpu == pytest.approx(4e-6, rel=0.05)
    assert ("gpu.launch", "gpu.launch_per_gpu") not in found.together


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
    assert main(["calibrate", str(file), "--machine", "p5:2", "--library", "nccl", "--quiet"]) == 0
    printed = capsys.readouterr().out
    assert "median error" in printed
    (tmp_path / "mine.toml").write_text(printed)
    assert machine(str(tmp_path / "mine.toml")).nic.name == machine("p5").nic.name
    assert main(["calibrate", str(file), "--machine", "p5:1", "--library", "nccl"]) == 2
    assert "measured ranks 16" in capsys.readouterr().err
    assert main(["calibrate", str(file), "--machine", "p5:2", "--quiet"]) == 0
    assert capsys.readouterr().out == printed
    assert main(["calibrate", "--machine", "a3-ultra:2", "--library", "nccl"]) == 2


def test_tables_of_several_numbers_of_nodes_are_one_machine(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Their headers say how many ranks ran; links inside and between are found together."""
    true = tmp_path / "true.toml"
    true.write_text('''gpu = { like = "h100", ring = "330GB/s" }
gpus = 8
inside = "switch"
nic = { like = "ib-ndr", reached = 0.6 }
nics = 8
cpu = "intel"
''')
    files = []
    for nodes in (1, 2, 4):
        files.append(str(tmp_path / f"{nodes}.json"))
        words = ["compare", "--machine", f"{true}:{nodes}", "--collective", "all-gather", "-b", "4K", "-e", "8G"]
        assert main([*words, "-f", "4", "--library", "nccl", "--nccl-json", files[-1], "--quiet"]) == 0
    out = tmp_path / "out.json"
    words = ["calibrate", *files, "--machine", "dgx-h100", "--library", "nccl", "--quiet", "--json", str(out)]
    assert main(words) == 0
    values = {row["constant"]: row["value"] for row in json.loads(out.read_text())["rows"]}
    assert values["gpu.ring"] == pytest.approx(330e9, rel=0.02)
    assert values["nic.reached"] == pytest.approx(0.6, rel=0.02)  # 240 GB/s; as it was, the ring alone was felt
    assert "33 points of 3 tables" in capsys.readouterr().out


def test_constants_that_stop_at_their_limit_and_poor_fits_are_named() -> None:
    """Times of an H100 are not those of an A100, whatever its constants."""
    said = machine("dgx-a100")
    setting, points = table(machine("dgx-h100"), said, 4)
    other = calibrate([(setting, [point for point in points if point[0] >= 2**20])])
    assert other.poor and "nic.reached" in other.limited
    own = calibrate([table(said, said, 1)])
    assert not own.poor and not own.limited


def written(path: Path, device: str, hosts: int, slower: float = 1.0) -> str:
    """A log of an all-reduce on hosts of eight GPUs; without a header if they are none."""
    setting = Setting(machine=machine("dgx-h100"), nodes=max(hosts, 1), gpus=8, collective="all-reduce")
    ranks = "".join(f"#  Rank {rank} Group 0 Pid 1 on node{rank // 8} device {rank % 8} [0x18] {device}\n"
                    for rank in range(8 * hosts))
    rows = "".join(f"{size} {size // 4} float sum -1 {expected(setting, size).time_s * slower * 1e6:.2f}\n"
                   for size in SIZES)
    path.write_text(f"# Collective test starting: all_reduce_perf\n{ranks}# size count type redop root time\n{rows}")
    return str(path)


def test_tables_of_another_gpu_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own = written(tmp_path / "own.txt", "NVIDIA H100 80GB HBM3", 1)
    other = written(tmp_path / "other.txt", "AMD Instinct MI300X", 1)
    for files, box, named in (([own, other], "dgx-h100", "other.txt is of AMD Instinct MI300X, and dgx-h100 has h100"),
                              ([own], "mi300x", "own.txt is of NVIDIA H100 80GB HBM3, and mi300x has mi300x")):
        assert main(["calibrate", *files, "--machine", box]) == 2
        printed = capsys.readouterr()
        assert named in printed.err and printed.err.count("\n") == 1 and not printed.out


def test_what_a_table_was_taken_to_be_of_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    listed = written(tmp_path / "listed.txt", "NVIDIA H100 80GB HBM3", 2)
    bare = written(tmp_path / "bare.txt", "", 0)
    assert main(["calibrate", listed, bare, "--machine", "dgx-h100", "--quiet"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert f"# {listed}: all-reduce on 2 nodes of 8 GPUs" in lines
    assert f"# {bare}: all-reduce on 1 node of 8 GPUs, as nobody says otherwise: dgx-h100:NODES does" in lines
    assert not any("note: " in line for line in lines)
    slow = written(tmp_path / "slow.txt", "", 0, slower=0.1)
    assert main(["calibrate", slow, "--machine", "dgx-h100:1", "--quiet"]) == 0
    printed = capsys.readouterr().out
    assert "# note: a poor fit, its median error is above 25%" in printed
    assert "# note: at the least or most that it can be: gpu." in printed
