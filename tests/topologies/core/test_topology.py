from dataclasses import FrozenInstanceError, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topologies import TOPOLOGIES, WeftError, from_links, from_spec, ring, switch, torus
from topologies.core.links import parse_link, per_dimension
from topologies.core.product import DimensionOrderRouter

SAMPLES = [sample for family in TOPOLOGIES.values() for sample in family.samples]
PRODUCTS = [sample for sample in SAMPLES if isinstance(from_spec(sample).router, DimensionOrderRouter)]
ONE_WAY = ("dgx1:2", "ocs:4x1", "ocs:8x2,circuits=kautz", "hybrid:5x2,per-port", "rails:3x1")


@pytest.mark.table
@pytest.mark.parametrize("spec", SAMPLES)
def test_links_are_sorted_and_indexed_by_source(spec):
    t = from_spec(spec)
    assert np.array_equal(np.lexsort((t.dst, t.src)), np.arange(t.n_links))
    assert t.link_ptr[0] == 0 and t.link_ptr[-1] == t.n_links
    for node in range(t.n_nodes):
        assert np.all(t.src[t.link_ptr[node] : t.link_ptr[node + 1]] == node)


@pytest.mark.table
@pytest.mark.parametrize("spec", SAMPLES)
def test_no_sample_has_parallel_or_self_links(spec):
    t = from_spec(spec)
    ends = list(zip(t.src.tolist(), t.dst.tolist(), strict=True))
    assert len(set(ends)) == len(ends)
    assert all(src != dst for src, dst in ends)


@pytest.mark.table
@pytest.mark.parametrize("spec", [sample for sample in SAMPLES if sample not in ONE_WAY])
def test_every_link_has_a_way_back(spec):
    t = from_spec(spec)
    ends = set(zip(t.src.tolist(), t.dst.tolist(), strict=True))
    assert ends == {(dst, src) for src, dst in ends}


@pytest.mark.table
@pytest.mark.parametrize("spec", SAMPLES)
def test_coordinates_name_nodes_and_count_ranks_dimension_zero_fastest(spec):
    t = from_spec(spec)
    assert np.unique(t.coords, axis=0).shape[0] == t.n_nodes
    assert np.prod(t.shape) == t.n_npus
    weights = np.cumprod((1, *t.shape[:-1]))
    assert np.array_equal(t.coords[: t.n_npus] @ weights, np.arange(t.n_npus))
    assert np.all(np.any(t.coords[t.n_npus :] < 0, axis=1))
    if spec in PRODUCTS:
        assert np.all((t.coords[t.n_npus :] == -1).sum(axis=1) == 1)


@pytest.mark.table
@pytest.mark.parametrize("spec", PRODUCTS)
def test_links_of_a_dimension_move_along_it_only(spec):
    t = from_spec(spec)
    moved = t.coords[t.src] != t.coords[t.dst]
    assert np.array_equal(moved, t.dimension[:, None] == np.arange(len(t.shape)))


@pytest.mark.table
@pytest.mark.parametrize("spec", SAMPLES)
def test_link_ids_find_every_link_and_nothing_else(spec):
    t = from_spec(spec)
    assert np.array_equal(t.link_ids(t.src, t.dst), np.arange(t.n_links))
    src, dst = (ends.ravel() for ends in np.indices((t.n_nodes, t.n_nodes)))
    known = {(int(a), int(b)): link for link, (a, b) in enumerate(zip(t.src, t.dst, strict=True))}
    assert t.link_ids(src, dst).tolist() == [known.get((int(a), int(b)), -1) for a, b in zip(src, dst, strict=True)]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)).filter(lambda ends: ends[0] != ends[1]), max_size=30))
def test_of_parallel_links_the_first_is_meant(ends):
    t = from_links([(src, dst, "1GB/s", "1ns") for src, dst in ends], n_npus=6)
    for src in range(6):
        for dst in range(6):
            links = np.flatnonzero((t.src == src) & (t.dst == dst))
            expected = links[0] if links.size else -1
            assert t.link_ids(np.array([src]), np.array([dst])).tolist() == [expected]


def test_a_topology_is_frozen_with_its_arrays():
    t = torus(4)
    with pytest.raises(FrozenInstanceError):
        t.name = "other"  # type: ignore[misc]  # what is rejected
    with pytest.raises(ValueError, match="read-only"):
        t.bandwidth_Bps[0] = 1.0


def test_with_links_changes_rates_and_nothing_else():
    t = torus((4, 4))
    slow = t.with_links(bandwidth_Bps=t.bandwidth_Bps / 2)
    assert np.all(slow.bandwidth_Bps == 25e9)
    assert np.array_equal(slow.latency_ps, t.latency_ps) and np.array_equal(slow.dst, t.dst)
    assert slow.router == t.router
    late = t.with_links(latency_ps=t.latency_ps + 1)
    assert np.all(late.latency_ps == 100_001)


def test_names_of_nodes_and_links():
    t = switch(3)
    assert [t.node_name(node) for node in range(4)] == ["npu0", "npu1", "npu2", "switch0"]
    assert t.link_name(0) == "npu0->switch0"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"bandwidth_Bps": np.array([1.0, 0.0])}, r"link 1 \(1->0, 0 B/s, 100000 ps\) must have a positive"),
        ({"bandwidth_Bps": np.array([np.nan, 1.0])}, "link 0 .* must have a positive, finite bandwidth"),
        ({"latency_ps": np.array([-1, 0])}, "link 0 .* negative latency"),
        ({"dst": np.array([0, 0], np.int32)}, "link 0 .* connects a node to itself"),
        ({"dst": np.array([7, 0], np.int32)}, "link 0 .* has a node that does not exist"),
        ({"dst": np.array([7, 9], np.int32)}, "and 1 more"),
        ({"latency_ps": np.array([1])}, "latency_ps has 1 entries, expected 2"),
        ({"hop_latency_ps": np.array([0, -5])}, "node 1 has a negative hop latency"),
        ({"kind": np.array([1, 0], np.int8)}, "first node must be an NPU"),
        ({"node_names": ("a", "a")}, "give 2 distinct node names"),
    ],
)
def test_a_bad_topology_is_refused_with_the_item(change, message):
    with pytest.raises(WeftError, match=message):
        replace(torus(2), **change)


def test_npus_must_come_before_switches():
    with pytest.raises(WeftError, match="NPUs must come before switches"):
        replace(torus(3), kind=np.array([0, 1, 0], np.int8))


@pytest.mark.parametrize(
    ("src", "dst", "message"),
    [([0], [9], "no node 9; nodes are 0 to 3"), ([-1], [0], "no node -1"), ([0, 1], [2], "sources and destinations")],
)
def test_routes_of_strange_nodes_are_refused(src, dst, message):
    with pytest.raises(WeftError, match=message):
        torus(4).paths(np.array(src), np.array(dst))


def test_an_unknown_tie_rule_lists_the_known_ones():
    with pytest.raises(WeftError, match="'random' is unknown: choose one of first, split, alternating, ecmp"):
        torus(4).paths(np.array([0]), np.array([1]), tie="random")


def test_one_value_or_one_for_each_dimension():
    assert per_dimension("1GB/s", 3, "bandwidth") == ["1GB/s"] * 3
    assert per_dimension(["1GB/s", 5.0], 2, "bandwidth") == ["1GB/s", 5.0]
    assert per_dimension("1GB/s,2GB/s", 2, "bandwidth") == ["1GB/s", "2GB/s"]
    with pytest.raises(WeftError, match="latency has 2 values; give one for all dimensions or 3"):
        per_dimension(["1ns", "2ns"], 3, "latency")


def test_parse_link():
    assert parse_link("400Gb/s", "100ns") == (50e9, 100_000)


@pytest.mark.parametrize("nodes", [[0.5], ["a"], [None], [float("nan")], [2**70], [-1], [4], None, "npu1", [True]])
def test_what_is_no_node_is_named(nodes: Any) -> None:
    """Not cut to an integer, nor counted from the end."""
    t = ring(4)
    for ask in (t.paths, t.link_ids):
        for ends in ((nodes, [0]), ([0], nodes)):
            with pytest.raises(WeftError, match=r"^topology ring:4: (nodes are .*: give integers|no node )"):
                ask(*ends)


@pytest.mark.parametrize("number", [-1, 8, 10**30])
def test_what_does_not_exist_has_no_name(number: int) -> None:
    with pytest.raises(WeftError, match=f"^topology ring:4: no node {number}; nodes are 0 to 3$"):
        ring(4).node_name(number)
    with pytest.raises(WeftError, match=f"^topology ring:4: no link {number}; links are 0 to 7$"):
        ring(4).link_name(number)
