"""The judge of a library on a machine: are public threads judged as their maintainers did, and healthy tables good?"""

from __future__ import annotations

import csv
import json
import re
from itertools import groupby
from pathlib import Path

import pytest

from sim.cli import main
from sim.library.described import asked_of, machine_of
from sim.library.expected import expected
from sim.library.tuner import Setting
from sim.measured.machine import CLASSES, Diagnosis, diagnose
from sim.papers.hardware import LEFT_OUT, setting_of, shipped
from tests.places import DATA
from topologies import WeftError
from topologies.machines.profile import machine
from topologies.units import parse_sweep_size

CASES = list(csv.DictReader((DATA / "diagnosed.csv").read_text(encoding="utf-8").splitlines()))
"""Public threads in which a run was diagnosed: points as size=us or size@busbw, evidence M (a maintainer), U
(confirmed by the asker), D (documentation) or N (a cause was not read)."""


def judged(case: dict[str, str]) -> Diagnosis:
    algorithms, protocols = asked_of(case["algorithm"])
    found = machine_of(case["system"], case["gpu"], int(case["each"]), case["inside"], case["nic"])
    setting = Setting(
        machine=found, nodes=int(case["nodes"]), gpus=int(case["each"]), collective=case["collective"],
        algorithms=algorithms, protocols=protocols,
    )
    points = []
    for word in case["points"].split():
        by_rate = "@" in word
        text, value = word.split("@" if by_rate else "=")
        size = parse_sweep_size(text)
        points.append((size, size * setting.bus_factor / float(value) / 1e9 if by_rate else float(value) / 1e6))
    return diagnose(setting, points)


def test_confirmed_cases_are_judged_to_their_class() -> None:
    confirmed = [case for case in CASES if case["evidence"] in "MUD"]
    right = [case["id"] for case in confirmed if judged(case).verdict == case["verdict"]]
    assert len(confirmed) == 27
    assert len(right) >= 0.8 * len(confirmed), sorted({case["id"] for case in confirmed} - set(right))


@pytest.mark.parametrize("case", [case for case in CASES if case["verdict"] == "good"], ids=lambda case: case["id"])
def test_no_good_case_is_called_bad(case: dict[str, str]) -> None:
    assert judged(case).verdict in ("good", "too-small", "tree-2n")


NOT_REACHED = ("slinky-[0-9]+n-sr", "b200-2g-ar-ll128", "h100-4g-ata-2169", "aicad-4n-ar-t1am4")
"""Public tables with a known shortfall: send/recv beyond eight nodes, LL128 on two B200, 4 H100 whose thread is about a
drop, four Sparks with few channels."""


def test_healthy_public_tables_are_good_and_broken_ones_are_not() -> None:
    for name, group in groupby(shipped(), key=lambda row: row["id"]):
        rows = list(group)
        if "ag-collnet" in name or any(re.match(pattern, name) for pattern in NOT_REACHED):
            continue
        found = diagnose(setting_of(rows[0]), [(int(r["size_bytes"]), float(r["time_us"]) / 1e6) for r in rows])
        broken = any(re.search(pattern, name) for pattern, _ in LEFT_OUT)
        if not broken:
            assert found.verdict in ("good", "too-small", "tree-2n"), name
        elif "tcp" in name:
            assert found.verdict == "wrong-config", name


SETTING = Setting(machine=machine("dgx-h100"), nodes=4, gpus=8, collective="all-reduce")
SIZES = [2**power for power in range(10, 34)]


def times(factor: float = 1.0) -> list[tuple[int, float]]:
    return [(size, factor * expected(SETTING, size).time_s) for size in SIZES]


def test_one_outlier_decides_nothing_and_is_named() -> None:
    points = [(size, time * (40 if size == 2**24 else 1)) for size, time in times()]
    found = diagnose(SETTING, points)
    assert (found.verdict, found.contradictions) == ("good", (2**24,))
    assert 2**24 in found.outliers


def test_one_nic_of_eight_is_named() -> None:
    one = [(size, size * SETTING.bus_factor / 48.75e9 + 1e-4) for size in SIZES]
    found = diagnose(SETTING, one)
    assert found.verdict == "slow-hw"
    assert "one NIC of 8" in found.limit


@pytest.mark.parametrize(("factor", "verdict"), [(1.0, "good"), (1.2, "good"), (2.2, "slow-hw"), (12, "wrong-config")])
def test_a_shortfall_is_of_its_class(factor: float, verdict: str) -> None:
    found = diagnose(SETTING, times(factor))
    assert found.verdict == verdict
    assert found.verdict in CLASSES
    assert found.share == pytest.approx(1 / factor, rel=0.02)


def test_nvls_off_is_named() -> None:
    alone = Setting(machine=machine("dgx-h100"), nodes=1, gpus=8, collective="all-reduce")
    off = Setting(machine=machine("dgx-h100"), nodes=1, gpus=8, collective="all-reduce", algorithms=("Ring",))
    found = diagnose(alone, [(size, expected(off, size).time_s) for size in SIZES])
    assert "NVLS" in found.limit
    assert found.verdict == "wrong-config"


def test_nothing_to_judge_is_named() -> None:
    with pytest.raises(WeftError, match="no measured time"):
        diagnose(SETTING, [(0, 1.0)])


def text(nodes: int) -> str:
    """What all_reduce_perf prints on two nodes of 8, with the prefixes of mpirun --tag-output."""
    head = "".join(
        f"#  Rank {rank:>2} Group  0 Pid  11 on  node{rank // 8} device  {rank % 8} [0x18] NVIDIA H100 80GB HBM3\n"
        for rank in range(8 * nodes)
    )
    setting = Setting(machine=machine("dgx-h100"), nodes=nodes, gpus=8, collective="all-reduce")
    body = ""
    for size in SIZES[10:]:
        us = expected(setting, size).time_s * 1e6
        cells = f"{us:.2f}  {size / us / 1e3:.2f}  {size / us / 1e3 * setting.bus_factor:.2f}  0"
        body += f"  {size}  {size // 4}  float  sum  -1  {cells}  {cells}\n"
    table = "#  size  count  type  redop  root  time  algbw  busbw  #wrong  time  algbw  busbw  #wrong\n"
    lines = f"# Collective test starting: all_reduce_perf\n{head}{table}{body}".splitlines()
    return "".join(f"[1,0]<stdout>: {line}\n" for line in lines)


def test_the_command_takes_gpus_and_nodes_from_the_header(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "nccl.txt").write_text(text(4))
    words = ["judge", str(tmp_path / "nccl.txt"), "--library", "nccl", "--quiet"]
    assert main([*words, "--json", str(tmp_path / "out.json")]) == 0
    assert "4 nodes of 8 GPUs (h100)" in capsys.readouterr().out
    data = json.loads((tmp_path / "out.json").read_text())
    assert (data["verdict"], len(data["rows"])) == ("good", len(SIZES[10:]))
    assert main([*words, "--machine", "dgx-h100:2"]) == 2
    assert "measured ranks 32" in capsys.readouterr().err
    assert main([*words, "--known", "latency"]) == 2
    assert main(["judge", str(tmp_path / "nccl.txt"), "--library-protocols", "LL", "--machine", "dgx-h100:4"]) == 2
