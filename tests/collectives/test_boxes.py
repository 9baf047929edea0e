"""What NCCL builds on boxes: chains and trees, reducing switches, rings that share links, PAT."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise

import pytest

from collectives import nccl_rings, nccl_trees, nvls_trees, pat
from collectives.core.boxes import boxes_of, zigzag
from collectives.core.schedule import Schedule
from sim import simulate
from topologies import WeftError, from_spec, fully_connected
from topologies.machines.profile import machine

GIB = 2**30


def busbw(schedule: Schedule, chunks: int = 64) -> float:
    return float(simulate(schedule, chunks=chunks, check=True).busbw)


@pytest.mark.parametrize("n", range(2, 13))
def test_zigzags_use_every_step_alike(n: int) -> None:
    steps = Counter((b - a) % n for a, b in pairwise(zigzag(n)))
    assert sorted(x % n for x in zigzag(n)) == list(range(n))
    assert set(steps.values()) == ({1} if n % 2 == 0 else {2})


def test_boxes_are_what_fast_links_join() -> None:
    assert boxes_of(from_spec("dgx-h100:2")) == [list(range(8)), list(range(8, 16))]
    assert boxes_of(machine("dgx-spark").topology(3)) == [[0], [1], [2]]


@pytest.mark.parametrize(("nodes", "tree", "switched"), [(2, 1.9, 1.9), (3, 1.3, 1.3), (4, 1.0, 1.0), (8, 1.0, 1.0)])
def test_two_nodes_pass_the_rate_of_the_nics_and_more_do_not(nodes: int, tree: float, switched: float) -> None:
    """A tree over two nodes sends half of what a ring does: nccl-tests 160, 196, 309."""
    fabric = machine("dgx-h100").topology(nodes, bandwidth=("2000GB/s", "50GB/s"))
    nics = 400.0
    assert busbw(nccl_trees.all_reduce(fabric, GIB)) / nics == pytest.approx(tree, rel=0.08)
    assert busbw(nvls_trees.all_reduce(fabric, GIB)) / nics == pytest.approx(switched, rel=0.08)


def test_reducing_switches_save_the_links_inside() -> None:
    """Chains carry 2 x 7/8 of the array through every GPU, with the switch its links carry it once."""
    fabric = machine("dgx-h100").topology(2, bandwidth=("450GB/s", "2000GB/s"))
    chains, switch = busbw(nccl_trees.all_reduce(fabric, GIB)), busbw(nvls_trees.all_reduce(fabric, GIB))
    assert chains == pytest.approx(450 / (2 * 7 / 8) * 15 / 8, rel=0.05)
    assert switch == pytest.approx(450 * 15 / 8, rel=0.05)


@pytest.mark.parametrize("n", [4, 6, 8])
def test_rings_that_share_links_fill_a_mesh(n: int) -> None:
    """Two cycles in each direction use every link; rings with links of their own leave one in n - 1 idle."""
    fabric = fully_connected(n, bandwidth="100GB/s")
    assert busbw(nccl_rings.all_reduce(fabric, GIB, share_links=True), 1) == pytest.approx(100 * (n - 1), rel=0.01)
    assert busbw(nccl_rings.all_reduce(fabric, GIB), 1) == pytest.approx(100 * (n - 2), rel=0.01)


@pytest.mark.parametrize("nodes", [2, 4])
def test_rings_over_meshed_boxes_are_limited_by_the_nics(nodes: int) -> None:
    """MI300X, 8 NICs of 400 Gb/s: 358 GB/s measured on two nodes, which one shared link inside would halve."""
    fabric = machine("mi300x").topology(nodes)
    assert busbw(nccl_rings.all_reduce(fabric, GIB, share_links=True), 1) == pytest.approx(400, rel=0.02)


@pytest.mark.parametrize("nodes", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("gpus", [3, 4, 5, 6, 7, 8, 9, 12])
def test_rings_that_share_links_use_all_of_them_alike(gpus: int, nodes: int) -> None:
    """Every direction of every link inside boxes, and every GPU to enter and to leave by; rings keep to their rails."""
    fabric = replace(machine("mi300x"), name="box", gpus=gpus, nics=gpus).topology(nodes)
    rings = nccl_rings.shared_rings(fabric)
    inside, between = Counter[tuple[int, int]](), Counter[tuple[int, int]]()
    for ring in rings:
        assert sorted(ring) == list(range(gpus * nodes))
        for pair in pairwise([*ring, ring[0]]):
            (inside if pair[0] // gpus == pair[1] // gpus else between)[pair] += 1
    assert len(inside) == nodes * gpus * (gpus - 1) and len(set(inside.values())) == 1
    assert all(a % gpus == b % gpus for a, b in between)
    assert len(between) == (nodes > 1) * nodes * gpus and len(set(between.values())) < 2


def test_long_rings_through_one_fabric_are_proved_on_short_ones() -> None:
    """1,056 ranks all at once are more than a proof follows."""
    large = nccl_rings.all_gather(from_spec("dragonfly:33x32"), "1MiB")
    assert large.proof == "proved on torus:32"
    assert nccl_rings.all_gather(from_spec("dragonfly:9x8"), "1MiB").proof == "proved"


def test_posted_rings_do_not_wait_for_their_slow_sends() -> None:
    """The last block has crossed each slow hop once in two rounds, not once a step."""
    fabric = machine("dgx-h100").topology(2, latency=("1us", "20us"))
    waits, posts = (
        simulate(nccl_rings.all_gather(fabric, "16KiB", posted=posted), chunks=1).time_s for posted in (False, True)
    )
    assert posts < 0.5 * waits
    assert posts > 80e-6  # four links of 20 us


@pytest.mark.parametrize("root", [0, 5, 15])
def test_broadcast_and_reduce_go_once_around(root: int) -> None:
    fabric = machine("dgx-h100").topology(2)
    for build in (nccl_rings.broadcast, nccl_rings.reduce):
        schedule = build(fabric, GIB, root=root)
        assert schedule.proof == "proved"
        assert busbw(schedule) == pytest.approx(400, rel=0.25)  # less the way around, of 64 chunks


@pytest.mark.parametrize("p", [2, 3, 5, 8, 11, 16, 33])
def test_pat_takes_as_many_steps_as_doubling(p: int) -> None:
    for build in (pat.all_gather, pat.reduce_scatter):
        schedule = build(from_spec(f"switch:{p}"), "1MiB")
        transfers = schedule.pattern.transfers()
        assert schedule.proof == "proved"
        assert transfers.step.max() + 1 == (p - 1).bit_length()
        assert transfers.blocks.sum() == p * (p - 1)  # every block reaches every rank once


def test_what_cannot_be_built_is_named() -> None:
    with pytest.raises(WeftError, match="no tree of reducing switches"):
        nvls_trees.all_reduce(from_spec("mi250:2"), "1MiB")
    with pytest.raises(WeftError, match="more than 200,000"):
        nccl_trees.all_reduce(from_spec("switch:512"), "1MiB")
    with pytest.raises(WeftError, match="3 boxes of 10 NPUs cannot share links evenly"):
        nccl_rings.shared_rings(replace(machine("mi300x"), name="box", gpus=10, nics=10).topology(3))
    with pytest.raises(WeftError, match="share_links takes links between every two"):
        nccl_rings.all_reduce(from_spec("ring:8"), "1MiB", share_links=True)
