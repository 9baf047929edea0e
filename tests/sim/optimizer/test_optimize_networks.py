"""Any network with dimensions, tiers or link classes: fat-trees, leaf-spines, circulants by degree, boxes."""

from __future__ import annotations

import numpy as np
import pytest

from collectives import build
from collectives.registry import ALGORITHMS
from sim.analytic.constraints import Feasible, budget
from sim.optimizer.design import Design, design_simulated
from sim.optimizer.network import circulants, with_link_classes
from sim.optimizer.programs import collective_objective
from sim.optimizer.retime import links_per_npu, with_bandwidths
from sim.program.model import Model
from sim.simulation import simulate
from topologies import WeftError, from_links, from_spec


def design(spec: str, kind: str, algorithm: str, chunks: int = 64, **options: object) -> Design:
    topology = with_link_classes(from_spec(spec, None, 0, 0))
    model = Model(chunks=chunks)
    objective = collective_objective(topology, kind, algorithm, "4MiB", model=model, symmetry="auto", **options)
    return design_simulated(
        objective, Feasible([budget(200, objective.n_dims, spent=True)], objective.n_dims), max_evaluations=30
    )


@pytest.mark.parametrize(
    ("spec", "trees", "expected", "gain"),
    [
        ("fat-tree:4", 1, [1, 1, 1], 1.0),  # the only tree crosses a cable of each tier with all bytes
        ("fat-tree:4", 2, [2, 1, 1], 1.4),  # two trees, each with half of the bytes
        ("leaf-spine:4x4x4", 1, [1, 1], 1.0),
        ("leaf-spine:4x4x4", 4, [4, 1], 1.4),
        ("leaf-spine:8x4x2", 1, [4, 1], 1.4),  # a quarter of a cable for each NPU
    ],
)
def test_tiers_with_aggregation(spec: str, trees: int, expected: list[float], gain: float) -> None:
    """Bandwidth goes with the bytes on a cable, times the cables for each NPU."""
    found = design(spec, "all-reduce", "in-network", trees=trees)
    share = np.array(expected) / np.sum(expected)
    assert found.bandwidth_GBps == pytest.approx(200 * share, rel=0.03)
    assert found.equal_time_ns / found.time_ns >= gain
    assert found.lower_bound_ns <= found.time_ns


def test_a_tier_has_its_share_of_all_cables() -> None:
    """The sum of the bandwidths is what the network has for each NPU, whatever the oversubscription."""
    for spec in ("fat-tree:4x3", "leaf-spine:6x3x2", "leaf-spine:2x4x4"):
        topology = from_spec(spec)
        total = links_per_npu(topology).sum() * topology.n_npus
        assert 2 * total == pytest.approx(topology.n_links)


def test_degree_and_bandwidth_of_a_circulant() -> None:
    """More ports of less bandwidth each: all-to-all gains by shorter ways, and an uneven split by their loads."""
    specs = circulants("circulant:64", "2,4")
    assert specs == ["circulant:64x1", "circulant:64x1x7"]
    ring, both = (design(spec, "all-to-all", "direct", 1) for spec in specs)
    assert both.time_ns < 0.5 * ring.time_ns
    assert both.time_ns < 0.97 * both.equal_time_ns
    assert ring.time_ns == ring.equal_time_ns


def test_rings_that_share_the_array_evenly_want_the_equal_split() -> None:
    """Each ring of totient-rings has the same bytes: the equal split is the optimum of the bound itself."""
    found = design("circulant:16x1x3", "all-reduce", "totient-rings", 1)
    assert found.bandwidth_GBps == pytest.approx([100, 100], rel=1e-3)
    assert found.time_ns == pytest.approx(found.equal_time_ns, rel=1e-4)


@pytest.mark.parametrize(
    ("text", "degrees", "message"),
    [
        ("torus:4x4", "2", "--degrees is for circulants"),
        ("circulant:16x1", "2", "--degrees is for circulants"),
        ("circulant:16", "3", "must be even"),
        ("circulant:16", "two", "write even numbers"),
        ("circulant:16", "64", "has jumps for 8 ports at most, not for 64"),
    ],
)
def test_degrees_that_are_refused(text: str, degrees: str, message: str) -> None:
    with pytest.raises(WeftError, match=message):
        circulants(text, degrees)


def test_link_classes_of_a_network_without_dimensions() -> None:
    """By bandwidth, the fastest first; what has a dimension keeps it."""
    links = [(0, 1, "1GB/s", "1ns"), (1, 0, "1GB/s", "1ns"), (1, 2, "9GB/s", "1ns"), (2, 1, "9GB/s", "1ns")]
    topology = from_links(links, 3)
    assert with_link_classes(topology).dimension.tolist() == [1, 1, 0, 0]
    torus = from_spec("torus:4x2")
    assert with_link_classes(torus) is torus


FROM_RATES = [
    (name, kind) for name, one in ALGORITHMS.items() if one.built_from_rates
    for kind in ("all-reduce", "all-gather", "all-to-all") if kind in one.functions
]


@pytest.mark.table
@pytest.mark.parametrize(("name", "kind"), FROM_RATES)
def test_schedules_built_from_rates_are_built_anew_and_never_undercut_the_floor(name: str, kind: str) -> None:
    topology = from_spec("torus:4x2")
    objective = collective_objective(topology, kind, name, "64KiB", model=Model(chunks=2), most_GBps=90.0)
    for split in ([45.0, 45.0], [60.0, 30.0]):
        found = objective.evaluate(np.array(split))
        alone = simulate(build(name, kind, with_bandwidths(topology, split), "64KiB"), chunks=2)
        assert found.time_ns * 1e3 == pytest.approx(alone.time_ps, rel=1e-6)
        assert objective.floors[0].time_ns(np.array(split)) <= found.time_ns


def test_themis_does_not_gain_by_keeping_the_orders_of_another_split() -> None:
    """Its orders balance the loads wherever it is built: there is little left to gain."""
    topology = from_spec("RI(2)_FC(4)_SW(2)")
    feasible = Feasible([budget(300, 3, spent=True)], 3)
    objective = collective_objective(
        topology, "all-reduce", "themis", "16MiB", model=Model(chunks=1), most_GBps=feasible.most_GBps,
        pipeline_chunks=8,
    )
    found = design_simulated(objective, feasible, max_evaluations=8)
    assert found.lower_bound_ns <= found.time_ns <= found.equal_time_ns < 1.3 * found.time_ns
    anew = build("themis", "all-reduce", with_bandwidths(topology, found.bandwidth_GBps), "16MiB", pipeline_chunks=8)
    assert found.time_ns * 1e3 == pytest.approx(simulate(anew, chunks=1).time_ps, rel=1e-6)
