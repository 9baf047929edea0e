"""BFB, the double binary tree, NCCL rings and the greedy synthesizer: what their sources say of them."""

from __future__ import annotations

from fractions import Fraction

import pytest

from collectives import bfb, double_binary_tree, nccl_rings, synthesis
from sim import simulate
from tests.oracles.bfb import step_loads
from topologies import WeftError, from_links, from_spec
from topologies.flows.tightest_cut import gather_cut


@pytest.mark.parametrize(
    ("spec", "loads"),
    [("torus:4x4", "1 3/2 1 1/4"), ("torus:8x8", "1 2 3 7/2 3 2 1 1/4"), ("ring:8", "1 1 1 1/2"), ("fc:8", "1")],
)
def test_loads_of_the_steps(spec, loads):
    assert step_loads(from_spec(spec)) == [Fraction(load) for load in loads.split()]


@pytest.mark.parametrize(
    "spec",
    ["ring:7", "ring:8", "torus:4x4", "torus:5x5", "torus:4x8", "torus:8x8", "torus:3x3x3", "torus:4x4x4",
     "torus:4x2x3", "torus:3x4x5", "mesh:4x4", "hypercube:3", "hypercube:5", "fc:8"],
)
def test_bfb_is_optimal_on_regular_networks(spec):
    t = from_spec(spec, bandwidth="1GB/s")
    assert sum(step_loads(t)) == gather_cut(t).s_per_byte * 10**9


@pytest.mark.parametrize(
    ("spec", "total"), [("random-regular:16x4x1", 5.25), ("random-regular:32x4x7", 11), ("mi250:1", 2.418 * 7 / 3)]
)
def test_bfb_costs_bandwidth_elsewhere(spec, total):
    assert float(sum(step_loads(from_spec(spec)))) == pytest.approx(total, rel=1e-3)


def test_bfb_refuses_switches():
    with pytest.raises(WeftError, match="bfb on switch:4: only direct networks are supported"):
        bfb.all_gather(from_spec("switch:4"), "1MiB")


@pytest.mark.parametrize("p", range(1, 40))
def test_inner_nodes_of_one_tree_are_leaves_of_the_other(p):
    trees = double_binary_tree.double_tree(p)
    inner = [{edge.parent for edge in tree.edges} - {tree.root} for tree in trees]
    for tree in trees:
        assert {tree.root, *(edge.child for edge in tree.edges)} == set(range(p))
        assert tree.height <= max(1, p.bit_length()) and len(tree.edges) == p - 1
        parents = [edge.parent for edge in tree.edges]
        assert max(map(parents.count, parents), default=0) <= 2
    if p > 2:
        assert not inner[0] & inner[1]


@pytest.mark.parametrize(
    ("spec", "count"), [("dgx-a100:1", 1), ("dgx-a100:2", 8), ("dgx-a100:3", 8), ("dgx1:1", 6), ("mi250:2", 16)]
)
def test_rings_pass_every_npu_and_use_every_nic_alike(spec, count):
    t = from_spec(spec)
    rings = nccl_rings.rings(t)
    assert len(rings) == count
    size = t.shape[0]
    leaves = []
    for ring in rings:
        assert sorted(ring) == list(range(t.n_npus))
        leaves += [a for a, b in zip(ring, ring[1:] + ring[:1], strict=True) if a // size != b // size]
    if t.shape[1] > 1:
        assert sorted(leaves) == list(range(t.n_npus))


def test_no_ring_on_an_odd_mesh():
    with pytest.raises(WeftError, match="nccl-rings on mesh:3x3: no cycle"):
        nccl_rings.all_gather(from_spec("mesh:3x3"), "1MiB")


TACOS = [
    ("torus:3x3x3", 1, 1, 3706.20), ("torus:3x4x5", 2, 2, 6676.67), ("torus:4x2x3", 3, 3, 11673.67),
    ("mesh:3x3x3", 1, 1, 6671.17), ("mesh:3x4x5", 2, 2, 13353.33), ("mesh:4x2x3", 3, 3, 19178.17),
]


@pytest.mark.parametrize(("spec", "gib", "parts", "expected_us"), TACOS)
def test_regression_times_of_tacos(spec, gib, parts, expected_us):
    """Tolerance 1 %, as in its own tests."""
    t = from_spec(spec, bandwidth="50GiB/s", latency="500ns", hop_latency="0s")
    result = simulate(synthesis.all_gather(t, f"{gib}GiB", parts=parts), chunks=1)
    assert result.time_s * 1e6 == pytest.approx(expected_us, rel=0.01)


def test_the_same_seed_gives_the_same_schedule():
    t = from_spec("random-regular:12x3")
    one, two, other = ([column.tolist() for column in synthesis.search(t, 2, seed, 1, 10**6)] for seed in (4, 4, 5))
    assert one == two != other


@pytest.mark.parametrize("spec", ["torus:4x4", "mesh:3x2", "dgx-a100:1", "dgx1:2", "random-regular:12x3"])
def test_synthesised_schedules_are_proved(spec):
    t = from_spec(spec)
    for function in (synthesis.all_gather, synthesis.reduce_scatter, synthesis.all_reduce):
        assert function(t, "16MiB", parts=2, runs=1).proof == "proved"


@pytest.mark.parametrize(("spec", "parts", "kind", "transfers"), [
    ("switch:600", 1, "all_gather", "359,400"), ("switch:549", 1, "reduce_scatter", "300,852"),
    ("fat-tree:16", 1, "all_reduce", "2,095,104"), ("torus:40x40", 1, "all_gather", "2,558,400"),
    ("torus:34x34", 1, "all_reduce", "2,670,360"), ("ring:4", 10**9, "all_gather", "12,000,000,000"),
    ("ring:1", 10**9, "all_gather", "1,000,000,000"),
])
def test_what_could_not_be_proved_is_refused_before_the_search(spec, parts, kind, transfers, monkeypatch):
    monkeypatch.setattr(synthesis, "search", None)
    limit = "2,500,000" if spec[0] in "tr" else "300,000"
    said = rf"tacos on {spec}: .* takes {transfers} transfers, too many to find and prove.* .limit: {limit}"
    with pytest.raises(WeftError, match=said):
        getattr(synthesis, kind)(from_spec(spec), "1MiB", parts=parts)


@pytest.mark.parametrize(("spec", "parts"), [("torus:39x39", 1), ("ring:4", 208_333), ("switch:5", 15_000)])
def test_as_many_transfers_as_can_be_proved_are_searched(spec, parts, monkeypatch):
    searched = []
    monkeypatch.setattr(synthesis, "_pattern", lambda t, *given: searched.append(t.name))
    with pytest.raises(WeftError):  # there is no pattern to make a schedule of
        synthesis.all_gather(from_spec(spec), "1MiB", parts=parts)
    assert searched == [spec]


@pytest.mark.parametrize("slow", ["1B/s", "1e-308GB/s"])
def test_one_slow_link_does_not_make_rings_of_all_others(slow):
    """A link counts as several beside the slowest: as billions, it once did."""
    links = [(a, b, slow if (a, b) == (0, 1) else "50GB/s", "1ns") for a in range(4) for b in range(4) if a != b]
    assert 1 <= len(nccl_rings.rings(from_links(links, 4))) <= 2 * 3 * nccl_rings.MOST_LANES
