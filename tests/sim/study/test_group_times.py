"""Collectives of groups of ranks: by the library, on a torus, and on any fabric by the engine."""

from __future__ import annotations

import pytest

from collectives import build
from sim.library.expected import expected
from sim.library.tuner import Setting
from sim.simulation import simulate
from sim.study.group_times import fabric_times, library_times, torus_times
from topologies import ring, torus
from topologies.machines.profile import machine, machine_and_nodes
from workloads.job import Job
from workloads.passes.plan import Group

SIZE = 64 * 2**20


def time_ps(job: Job) -> int:
    return simulate(job, chunks=1).time_ps


def test_a_group_has_the_ports_of_its_ranks() -> None:
    """Of 8 GPUs a node: tensor ranks fill one; data ranks 8 apart have one a node, those 2 apart four."""
    box = machine("dgx-a100")
    groups = {"tp": Group(8, 1), "dp": Group(16, 8), "wide": Group(16, 2), "pp": Group(2, 64)}
    times = library_times(box, groups)
    for group, nodes, gpus in (("tp", 1, 8), ("dp", 16, 1), ("wide", 4, 4)):
        setting = Setting(machine=box, nodes=nodes, gpus=gpus, collective="all-gather")
        assert times("all-gather", SIZE, group) == round(expected(setting, SIZE).time_s * 1e12)
    between = Setting(machine=box, nodes=2, gpus=1, collective="send/recv")
    assert times("send", SIZE, "pp") == round(expected(between, SIZE).time_s * 1e12)


def test_groups_of_a_torus_have_dimensions_of_their_own() -> None:
    box, nodes = machine_and_nodes("tpu-v5p:4x4x4")
    times = torus_times(box, {"tp": Group(4, 1), "dp": Group(16, 4), "all": Group(nodes, 1), "pp": Group(2, 32)})
    rate = box.gpu.link / 6
    assert times("all-gather", SIZE, "tp") == pytest.approx(SIZE * 3 / 4 / (2 * rate) * 1e12, rel=0.1)
    assert times("all-gather", SIZE, "dp") == pytest.approx(SIZE * 15 / 16 / (4 * rate) * 1e12, rel=0.2)
    assert times("send", SIZE, "pp") == pytest.approx(SIZE / rate * 1e12, rel=0.1)


def test_slices_meet_in_the_network_between_them() -> None:
    box = machine("tpu-v5p")
    groups = {"all": Group(128, 1), "dp": Group(64, 1), "rep": Group(2, 64)}
    times = torus_times(box, groups, between_Bps=5e9)
    assert times("all-reduce", 10**9, "rep") == pytest.approx(10**9 / 5e9 * 1e12)
    alone = torus_times(box, {"all": Group(64, 1), "dp": Group(64, 1)})
    assert times("all-gather", SIZE, "dp") == alone("all-gather", SIZE, "dp")
    assert times("all-reduce", 8, "all") == alone("all-reduce", 8, "all") + times("all-reduce", 8, "rep")


@pytest.mark.parametrize("kind", ["all-reduce", "all-gather", "reduce-scatter", "all-to-all"])
def test_a_group_in_a_row_of_a_torus_is_the_ring_alone(kind: str) -> None:
    """The rows of a torus are rings without each other's links."""
    fabric, alone = torus((4, 4), bandwidth="100GB/s"), ring(4, bandwidth="100GB/s")
    algorithm = "pairwise" if kind == "all-to-all" else "ring"
    schedule = build(algorithm, kind, alone, SIZE)
    found = fabric_times(fabric, {"tp": Group(4, 1), "dp": Group(4, 4)}, "ring", time_ps)
    alone_ps = simulate(schedule, chunks=1).time_ps
    assert found(kind, SIZE, "tp") == found(kind, SIZE, "dp")
    assert found(kind, SIZE, "tp") == pytest.approx(alone_ps, abs=2)


def test_groups_that_share_links_wait_for_each_other() -> None:
    """Four groups whose ranks are 4 apart on one ring of 16: each link carries all of them."""
    fabric = ring(16, bandwidth="100GB/s")
    times = fabric_times(fabric, {"near": Group(4, 1), "far": Group(4, 4)}, "ring", time_ps)
    assert times("all-gather", SIZE, "far") > 1.9 * times("all-gather", SIZE, "near")


def test_a_group_that_is_a_product_runs_the_hierarchical_algorithm_in_its_dimensions() -> None:
    """Eight ranks of a torus of 4 x 4 are two rows of four: hierarchical takes the dimensions one after the other."""
    fabric = torus((4, 4), bandwidth="100GB/s")
    groups = {"tp": Group(8, 1), "dp": Group(4, 4)}
    apart, rows = (fabric_times(fabric, groups, name, time_ps) for name in ("hierarchical", "ring"))
    assert apart("all-gather", SIZE, "dp") == pytest.approx(rows("all-gather", SIZE, "dp"), rel=0.1)
    alone = build("hierarchical", "all-gather", fabric, SIZE, group="4@1,2@1")
    assert apart("all-gather", SIZE, "tp") == simulate(alone, chunks=1).time_ps


def test_a_message_goes_to_the_rank_that_far_behind() -> None:
    fabric = ring(8, bandwidth="100GB/s", latency="1us")
    times = fabric_times(fabric, {"pp": Group(2, 1)}, "ring", time_ps)
    assert times("send", 10**6, "pp") == pytest.approx(11e6, rel=0.05)
