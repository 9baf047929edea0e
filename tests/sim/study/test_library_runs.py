"""The engine beside the library's formulas: every algorithm of the library has a schedule of ours."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from sim.library.expected import REPEATS, expected, fill_us, passed_on_bytes
from sim.library.tuner import COLLECTIVES, SENDRECV, Setting, candidates, tables
from sim.measured.library_run import LibraryRun
from sim.study.library_runs import simulated
from topologies.machines.profile import machine, profiles

MIB = 2**20
MODELED = [name for name in profiles("boxes") if machine(name).gpu.architecture in tables()["architecture"]]


def setting(name: str, nodes: int, collective: str, *algorithms: str) -> Setting:
    found = machine(name)
    return Setting(machine=found, nodes=nodes, gpus=found.gpus, collective=collective, algorithms=algorithms)


@pytest.mark.parametrize(("name", "nodes", "algorithm", "low", "high"), [
    ("dgx-h100", 2, "Ring", 0.85, 1.1), ("polaris", 2, "Ring", 0.8, 1.3), ("mi300x", 2, "Ring", 0.9, 1.1),
    ("dgx-h100", 2, "Tree", 0.7, 1.1), ("dgx-h100", 8, "Tree", 0.7, 1.2), ("dgx-h100", 2, "NVLSTree", 0.8, 1.1),
    ("dgx-h100", 8, "NVLSTree", 0.8, 1.1), ("dgx-h100", 4, "CollNet", 0.5, 1.1), ("dgx-h100", 1, "NVLS", 0.8, 1.1),
    ("dgx-spark", 3, "Ring", 0.99, 1.01),
])
def test_the_engine_is_near_the_formula(name: str, nodes: int, algorithm: str, low: float, high: float) -> None:
    """Apart by what the formulas add for real machines (dips, ramps) or leave out (pipelines): small, middle, large."""
    asked = setting(name, nodes, "all-reduce", algorithm)
    for size in (8192, 512 * MIB, 4096 * MIB):
        row = expected(asked, size)
        found = simulated(asked, row)
        assert not found.reason
        assert found.time_s is not None
        assert low <= found.time_s / row.time_s <= high, (size, row)


@pytest.mark.parametrize("nodes", [2, 4])
@pytest.mark.parametrize("gpus", [2, 3])
@pytest.mark.parametrize("collective", ["all-reduce", "all-gather", "reduce-scatter", "broadcast"])
def test_rings_use_every_rail_of_boxes_of_few_gpus(collective: str, gpus: int, nodes: int) -> None:
    """Two GPUs with two NICs: each ring leaves a box over a NIC of its own."""
    box = replace(machine("dgx-a100"), gpus=gpus, nics=gpus)
    asked = Setting(machine=box, nodes=nodes, gpus=gpus, collective=collective, algorithms=("Ring",),
                    protocols=("Simple",))
    row = expected(asked, 1024 * MIB)
    assert simulated(asked, row).time_s == pytest.approx(row.time_s, rel=0.05)


@pytest.mark.parametrize(("algorithm", "collective"), [("PAT", "all-gather"), ("PAT", "reduce-scatter")])
def test_pat_is_simulated_where_every_node_has_one_gpu(algorithm: str, collective: str) -> None:
    asked = setting("dgx-spark", 8, collective, algorithm)
    row = expected(asked, 8192)
    assert simulated(asked, row).time_s == pytest.approx(row.time_s, rel=0.02)


@pytest.mark.table
@pytest.mark.parametrize("nodes", [1, 2, 3])
@pytest.mark.parametrize("collective", [one for one in COLLECTIVES if one != SENDRECV])
@pytest.mark.parametrize("name", MODELED)
def test_every_machine_is_simulated_or_says_why_not(name: str, collective: str, nodes: int) -> None:
    if machine(name).gpus * nodes == 1:
        return
    asked = setting(name, nodes, collective)
    for size in (4096, 256 * MIB):
        row = expected(asked, size)
        found = simulated(asked, row)
        assert (found.time_s is None) == bool(found.reason)
        if found.time_s is None:
            assert "more than" in found.reason, (row, found)
        else:
            assert found.time_s >= asked.launch_s
            assert math.isfinite(found.time_s)


def test_two_nodes_send_each_other_half_by_a_tree() -> None:
    """What formulas state by a factor of two, the schedule does."""
    asked = setting("p4de", 2, "all-reduce", "Tree")  # four NICs of 100 Gb/s
    found = simulated(asked, expected(asked, 4096 * MIB))
    assert found.time_s is not None
    assert 4096 * MIB / found.time_s / 1e9 * asked.bus_factor > 1.8 * asked.between_GBps


@pytest.mark.parametrize("collective", ["broadcast", "reduce"])
def test_a_broadcast_comes_back_to_the_node_of_its_root(collective: str) -> None:
    """Over EFA a hop of 73 us is seen: two of two nodes."""
    asked = setting("p5", 2, collective, "Ring")
    row = expected(asked, 1024)
    assert row.time_s > 2 * 72e-6
    assert simulated(asked, row).time_s == pytest.approx(row.time_s, rel=0.2)


@pytest.mark.parametrize("collective", ["broadcast", "reduce"])
@pytest.mark.parametrize(("name", "nodes"), [("dgx-a100", 2), ("dgx-a100", 4), ("perlmutter", 3), ("dgx-h100", 2)])
def test_only_hops_between_nodes_of_a_chain_post_to_a_nic(name: str, nodes: int, collective: str) -> None:
    asked = setting(name, nodes, collective)
    row = expected(asked, 1024)
    assert simulated(asked, row).time_s == pytest.approx(row.time_s, rel=0.05)


@pytest.mark.parametrize("collective", ["broadcast", "reduce"])
def test_a_chain_fills_once_and_nccl_tests_repeats_it(collective: str) -> None:
    """What a chunk of 512 KiB a channel takes rank by rank is a twentieth of that in each of 20 back to back."""
    asked = setting("p4de", 1, collective, "Ring")
    size = 4 * passed_on_bytes(asked)
    row = expected(asked, size)
    assert simulated(asked, row).time_s == pytest.approx(row.time_s, rel=0.02)
    fill = fill_us(asked, candidates(asked)[-1], size) / 1e6
    assert fill == pytest.approx(6 * 24 * 512 * 1024 / 240e9)
    assert row.time_s < size / 240e9 + candidates(asked)[-1].latency_us / 1e6 + 1.001 * fill / REPEATS
    lines = replace(asked, protocols=("LL",))  # passed on as they come
    few = expected(lines, size)
    assert simulated(lines, few).time_s == pytest.approx(few.time_s, rel=0.1)


@pytest.mark.parametrize("collective", ["broadcast", "reduce"])
@pytest.mark.parametrize(("name", "nodes"), [("dgx-h200", 8), ("dgx-h100", 1), ("dgx-a100", 4)])
def test_a_healthy_chain_of_the_engine_is_good(name: str, nodes: int, collective: str) -> None:
    asked = setting(name, nodes, collective)
    rows = [expected(asked, 4096 * 16**power) for power in range(6)]
    points = [(row.size_bytes, simulated(asked, row).time_s or 0.0) for row in rows]
    assert LibraryRun("engine", asked, points).diagnosis().verdict == "good"


@pytest.mark.parametrize("nodes", [9, 12, 14, 16])
def test_the_engine_has_trees_of_as_many_levels(nodes: int) -> None:
    asked = setting("dgx-h100", nodes, "all-reduce", "Tree")
    row = expected(asked, 8192)
    assert simulated(asked, row).time_s == pytest.approx(row.time_s, rel=0.05)
