"""Prices of links bound an all-to-all: never above the optimum, and at it wherever the program is small."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from collectives import build
from sim import cut_bound, simulate
from tests.fabrics import random_fabric
from topologies import TOPOLOGIES, Topology, WeftError, from_links, from_spec
from topologies.flows.prices import TOLERANCE, _candidates, _even_rate_Bps, best_prices
from topologies.flows.programs import concurrent_flow

SPECS = ("torus:5x3", "torus:3x2", "mesh:4x3", "mesh:5", "ring:7", "switch:5", "dgx-a100:2", "leaf-spine:4x4x1",
         "leaf-spine:3x2x2", "hyperx:4x3", "random-regular:11x4", "fat-tree:4", "RI(4)_FC(2)_SW(2)")
FEWEST = sorted({min(family.samples, key=lambda spec: from_spec(spec).n_links) for family in TOPOLOGIES.values()})
SMALL = [spec for spec in FEWEST if from_spec(spec).n_npus <= 32]  # a pod has 64 NPUs


def unequal(topology: Topology) -> Topology:
    rates = topology.bandwidth_Bps * np.array([1, 0.37, 1.21])[np.arange(topology.n_links) % 3]
    return topology.with_links(bandwidth_Bps=rates)


@pytest.mark.table
@pytest.mark.parametrize("change", [lambda topology: topology, unequal], ids=["equal", "unequal"])
@pytest.mark.parametrize("spec", [*SPECS, *SMALL])
def test_the_bound_is_the_optimum_where_the_program_is_small(
    spec: str, change: Callable[[Topology], Topology]
) -> None:
    topology = change(from_spec(spec))
    if topology.n_npus == 1:
        return
    best, rate = best_prices(topology), concurrent_flow(topology).rate_Bps
    assert best.reached
    assert 1 - TOLERANCE <= float(best.s_per_block_byte) * rate <= 1 + TOLERANCE
    assert all(float(one.s_per_block_byte) * rate <= 1 + TOLERANCE for one in _candidates(topology))


@pytest.mark.parametrize(("spec", "algbw"), [
    ("dgx-a100:2", 50), ("dgx-h100:2", 100), ("leaf-spine:4x4x1", 50 / 3), ("leaf-spine:8x4x2", 50 / 3),
    ("switch:5", 62.5),
])
def test_known_rates(spec: str, algbw: float) -> None:
    """Half of an array leaves each box; a quarter of it stays below each leaf."""
    bound = cut_bound(from_spec(spec), "all-to-all")
    assert float(1 / bound.s_per_byte) / 1e9 == pytest.approx(algbw)
    assert bound.reason.endswith("a concurrent flow is as fast")


def test_a_schedule_reaches_it() -> None:
    """All-to-all on a switch, within its latencies, and never below."""
    topology = from_spec("switch:5", latency="0s")
    result = simulate(build("direct", "all-to-all", topology, "64MiB"))
    assert 1 <= result.time_s / (float(cut_bound(topology, "all-to-all").s_per_byte) * 2**26) < 1.001


@pytest.mark.parametrize("seed", range(12))
def test_random_networks(seed: int) -> None:
    """With switches, of one or two directions, of unequal links."""
    topology = random_fabric(seed)
    best = best_prices(topology)
    assert best.reached
    assert float(best.s_per_block_byte) * concurrent_flow(topology).rate_Bps <= 1 + TOLERANCE


def test_an_npu_out_of_reach_is_named() -> None:
    one_way = from_links([(0, 1, "1GB/s", "1ns"), (1, 0, "1GB/s", "1ns"), (2, 0, "1GB/s", "1ns")], 3)
    with pytest.raises(WeftError, match="cannot be reached"):
        best_prices(one_way)


@pytest.mark.parametrize("spec", ["torus:5x3", "torus:4x6", "ring:8", "hypercube:3", "circulant:9x1x2",
                                  "RI(4)_FC(3)_SW(2)"])
def test_an_even_flow_is_a_flow(spec: str) -> None:
    """It never exceeds the maximum that the linear program finds, and reaches it on these."""
    topology = from_spec(spec)
    even, most = _even_rate_Bps(topology), concurrent_flow(topology).rate_Bps
    assert even <= most * (1 + TOLERANCE)
    assert even >= most * (1 - TOLERANCE) or not spec.startswith(("torus", "ring", "hypercube"))
