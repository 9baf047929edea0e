"""The exact optimum: vectors of the field, brute force over all cuts, networkx, and bad input."""

from dataclasses import replace
from fractions import Fraction

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectives.core.collective import COLLECTIVES
from sim.analytic.cut_bound import cut_bound
from tests import fabrics
from tests.oracles import all_cuts
from topologies import TOPOLOGIES, WeftError, bytes_per_s, from_links, from_spec, mesh, switch, torus
from topologies.flows import tightest_cut
from topologies.flows.partitions import least_crossing
from topologies.flows.tightest_cut import (
    broadcast_cut,
    gather_cut,
    gather_to_cut,
    is_cut_at_one_npu,
    is_transitive,
    reduce_cut,
    remembered,
    scatter_cut,
    separating_cut,
)

GB = 10**9
UNIT = {"bandwidth": "1GB/s"}

VECTORS = {
    "ring:8": "7/2", "torus:4x4": "15/4", "torus:8x8": "63/4", "torus:4x4x4": "21/2", "torus:4x2x3": "23/5",
    "torus:3x4x5": "59/6", "mesh:4x4": "15/2", "hypercube:3": "7/3", "hypercube:4": "15/4", "fc:8": "1",
    "switch:8": "7", "random-regular:16x4x1": "15/4", "random-regular:32x4x7": "31/4", "dragonfly:9x4": "7",
}
MACHINES = {
    "dgx-a100:1": "7/300", "dgx-a100:2": "3/65", "mi250:1": "7/150", "dgx1:2": "16/25",
}
WRITTEN = [
    (fabrics.one_way_ring(8), "7"), (fabrics.hub(8), "7"), (fabrics.boxes_of(2, 4, 10, 1), "1"),
    (fabrics.boxes_of(2, 4, 2, 1), "7/3"), (fabrics.boxes_of(3, 4, 10, 1), "2"),
    (fabrics.written(fabrics.EULERIAN, 10), "9/10"), (fabrics.written(fabrics.SWITCHED, 12), "11/2"),
    (fabrics.leaf_spine(2), "15"), (fabrics.leaf_spine(4), "15"),
]


@pytest.mark.parametrize(
    ("fabric", "expected"),
    [*((from_spec(spec, **UNIT), value) for spec, value in VECTORS.items()),
     *((from_spec(spec), value) for spec, value in MACHINES.items()), *WRITTEN],
    ids=lambda one: getattr(one, "name", one),
)
def test_vectors(fabric, expected):
    assert gather_cut(fabric).s_per_byte * GB == Fraction(expected)
    if fabric.name not in ("written10",):
        assert scatter_cut(fabric).s_per_byte * GB == Fraction(expected)


def test_the_bottleneck_of_slow_boxes_is_a_box_and_of_two_a100_a_gpu():
    t = fabrics.boxes_of(3, 4, 10, 1)
    cut = gather_cut(t)
    assert cut.shards == 8 and cut.rate_Bps == 4 * GB
    cut = gather_cut(from_spec("dgx-a100:2"))
    assert cut.shards == 15 and cut.rate_Bps == 325 * GB


def test_what_leaves_every_set_enters_it_where_nodes_are_balanced():
    """The cut that separates two NPUs is then that of a broadcast; it is that of both ways anywhere."""
    for t in (from_spec("torus:4x3"), from_spec("dgx-a100:2"), *map(fabrics.random_fabric, range(30))):
        both = [cut for cut in (broadcast_cut(t, 0), reduce_cut(t, 0)) if cut is not None]
        assert separating_cut(t) == min(both, key=lambda cut: cut.rate_Bps)


@pytest.mark.parametrize("spec", ["torus:3x3", "dgx-a100:2", "multidim:RI(4)_SW(2)"])
def test_bounds_of_topologies_in_proportion_are_those_of_each_alone(spec):
    """What is remembered of one topology serves those that are as much faster on every link, and no others."""
    rates = from_spec(spec).bandwidth_Bps
    uneven = rates * (1 + np.arange(rates.size) % 3)
    for number, mine in enumerate((rates, 3 * rates, uneven, uneven / 7, rates * (1 + np.arange(rates.size) % 2))):
        shared = from_spec(spec).with_links(bandwidth_Bps=mine)
        alone = replace(shared, name=f"{shared.name} {number}")  # nobody's wiring
        for kind in COLLECTIVES:
            assert cut_bound(shared, kind) == cut_bound(alone, kind)


def test_unequal_shards():
    cut = gather_cut(torus((3, 3), **UNIT), tuple(range(1, 10)))
    assert cut.s_per_byte * GB == 11


@pytest.mark.table
@pytest.mark.parametrize("first", range(0, 1000, 100))
def test_random_networks_against_all_cuts(first):
    """1,000 networks of up to 10 nodes, with and without switches, asymmetric and heterogeneous."""
    for seed in range(first, first + 100):
        t = fabrics.random_fabric(seed)
        cut = gather_cut(t)
        assert cut.s_per_byte == all_cuts.gather_s_per_byte(t), seed
        inside = np.zeros(t.n_nodes, bool)
        inside[list(cut.nodes)] = True
        assert cut.rate_Bps == all_cuts.rate_out(t, inside[None])[0]
        assert broadcast_cut(t, 0).rate_Bps == all_cuts.least_rate(t, 0), seed
        root = seed % t.n_npus
        assert gather_to_cut(t, root).s_per_byte == all_cuts.gather_to_s_per_byte(t, root), seed
        ends = zip(t.src.tolist(), t.dst.tolist(), t.bandwidth_Bps.tolist(), strict=True)
        back = from_links([(b, a, bytes_per_s(rate), 0) for a, b, rate in ends], t.n_npus)
        assert gather_to_cut(t, root, True).s_per_byte == all_cuts.gather_to_s_per_byte(back, root), seed


@pytest.mark.parametrize("seed", range(5))
def test_thirteen_nodes_against_all_cuts(seed):
    t = fabrics.random_fabric(10_000 + seed, most=13)
    weights = tuple(1 + (seed * npu) % 4 for npu in range(t.n_npus))
    assert gather_cut(t).s_per_byte == all_cuts.gather_s_per_byte(t)
    assert gather_cut(t, weights).s_per_byte == all_cuts.gather_s_per_byte(t, list(weights))
    assert separating_cut(t).rate_Bps == all_cuts.least_rate(t)


@pytest.mark.parametrize("spec", ["torus:4x8", "mesh:5x5", "dgx-a100:2", "random-regular:20x3", "dragonfly:5x2x2"])
def test_rates_against_networkx(spec):
    t = from_spec(spec)
    graph = nx.DiGraph()
    for a, b, rate in zip(t.src.tolist(), t.dst.tolist(), t.bandwidth_Bps.tolist(), strict=True):
        graph.add_edge(a, b, capacity=int(rate))
    flows = [nx.maximum_flow_value(graph, 1, npu) for npu in range(t.n_npus) if npu != 1]
    assert broadcast_cut(t, 1).rate_Bps == min(flows)
    assert reduce_cut(t, 1).rate_Bps == min(nx.maximum_flow_value(graph, npu, 1) for npu in range(t.n_npus) if npu != 1)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(0.5, 3e12), min_size=6, max_size=6))
def test_bandwidths_beyond_64_bits_stay_exact(rates):
    """Floating-point bandwidths have a tiny common unit: Python's integers take over, and nothing is rounded."""
    links = [(a, b, rate, 0) for (a, b), rate in
             zip([(0, 1), (1, 2), (2, 0), (1, 0), (2, 1), (0, 2)], rates, strict=True)]
    t = from_links([(a, b, bytes_per_s(rate), 0) for a, b, rate, _ in links], 3)
    into = [sum(Fraction(rate) for (_, b, rate, _) in links if b == npu) for npu in range(3)]
    out = [sum(Fraction(rate) for (a, _, rate, _) in links if a == npu) for npu in range(3)]
    assert gather_cut(t).s_per_byte == max(2 / min(into), 1 / min(out))


@pytest.mark.parametrize(
    ("spec", "expected"),
    [("mesh:4x4", "5/8"), ("torus:4x4", "15/32"), ("switch:8", "7/4"), ("fc:8", "1/4")],
)
def test_partitions(spec, expected):
    """The total that an all-reduce must move: 8/5 on a 4x4 mesh, twice the optimum of an all-gather elsewhere."""
    assert least_crossing(from_spec(spec, **UNIT)).s_per_byte * GB == Fraction(expected)


def test_partition_into_boxes():
    """Three boxes joined slowly: 2 (3 - 1) arrays over 3 x 4 GB/s."""
    s_per_byte, parts, _ = least_crossing(fabrics.boxes_of(3, 4, 10, 1))
    assert s_per_byte * GB == Fraction(1, 3)
    assert np.unique(parts[:12]).size == 3


@pytest.mark.parametrize("cut_of", [gather_cut, scatter_cut, separating_cut])
def test_one_npu_has_no_cut(cut_of):
    assert cut_of(torus(1)) is None


def test_what_is_alike():
    assert is_transitive(torus((4, 6))) and is_transitive(switch(5)) and not is_transitive(mesh((3, 3)))


def test_functions_of_one_name_are_remembered_apart():
    def make(value):
        def answer(topology):
            return value

        answer.__qualname__ = f"answer{value}"
        return remembered(answer)

    t = torus(2)
    assert make(1)(t) == 1 and make(2)(t) == 2


@pytest.mark.parametrize(
    ("links", "n", "message"),
    [
        ([(0, 1, "1GB/s", 0)], 2, "npu0 cannot be reached by any other NPU"),
        (
            [(0, 1, "1GB/s", 0), (1, 0, "1GB/s", 0), (2, 3, "1GB/s", 0), (3, 2, "1GB/s", 0)],
            4,
            "no route leads from npu., npu. to npu., npu.",
        ),
        ([(0, 1, "1GB/s", 0), (1, 0, "1GB/s", 0), (0, 2, "1GB/s", 0)], 3, "no route leads from npu2 to npu0, npu1"),
    ],
)
def test_what_cannot_be_reached_is_named(links, n, message):
    with pytest.raises(WeftError, match=message):
        gather_cut(from_links(links, n, name="split"))


def test_a_link_without_bandwidth_is_named():
    with pytest.raises(WeftError, match=r"link 0 \(0->1\) bandwidth '0B/s' must be above zero"):
        from_links([(0, 1, "0B/s", 0)], 2)


ALIKE = [
    spec for family in TOPOLOGIES.values() for spec in family.samples
    if from_spec(spec).n_npus > 1 and is_cut_at_one_npu(from_spec(spec))
]
"""Samples of all families whose cuts are known without a flow."""


def test_which_cuts_are_known_without_a_flow():
    assert ALIKE
    for spec, rates in (("torus:4x4", {"bandwidth": ("1GB/s", "3GB/s")}), ("mesh:4x4", {}), ("switch:4", {})):
        assert not is_cut_at_one_npu(from_spec(spec, **rates))
    apart = from_links([(0, 1, "1GB/s", 0), (1, 0, "1GB/s", 0), (2, 3, "1GB/s", 0), (3, 2, "1GB/s", 0)], 4)
    assert not is_cut_at_one_npu(apart)


@pytest.mark.parametrize("spec", [*ALIKE, "ring:2", "ring:3", "ring:7", "torus:2x2x3", "torus:3x5"])
def test_they_are_those_of_flows_and_of_all_sets(spec, monkeypatch):
    t = from_spec(spec)
    assert is_cut_at_one_npu(t)

    def cuts():
        for tails, heads, inward in ((t.src, t.dst, False), (t.dst, t.src, True)):
            yield tightest_cut._tightest(t, tails, heads, None, inward=inward)
            for root in {0, t.n_npus - 1}:
                others = [npu for npu in range(t.n_npus) if npu != root]
                yield tightest_cut._least_flow(t, tails, heads, root, others, inward=inward)

    known = list(cuts())
    monkeypatch.setattr(tightest_cut, "is_cut_at_one_npu", lambda topology: False)
    assert known == list(cuts())
    if t.n_nodes <= 13:
        assert known[0].s_per_byte == all_cuts.gather_s_per_byte(t)


def test_the_cut_of_a_million_npus_takes_no_flow(monkeypatch):
    monkeypatch.setattr(tightest_cut, "FlowNetwork", None)
    t = from_spec("ring:1000000", **UNIT)
    assert gather_cut(t).s_per_byte == Fraction(999_999, 2 * 10**9)
    assert broadcast_cut(t, 7).nodes == (7,)
