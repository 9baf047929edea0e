"""The engine beside the library's formulas: every algorithm of the library has a schedule of ours."""

from __future__ import annotations

import math

import pytest

from sim.library.expected import expected
from sim.library.simulated import simulated
from sim.library.tuner import COLLECTIVES, SENDRECV, Setting, tables
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
