import numpy as np
import pytest

from topologies import SWITCH, WeftError, fully_connected, multidim, switch, torus
from topologies.core.blocks import Ring, Switched


def test_switches_follow_the_npus_dimension_by_dimension():
    t = multidim("SW(2)_SW(3)")
    assert t.n_npus == 6
    assert t.coords[6:].tolist() == [[-1, 0], [-1, 1], [-1, 2], [0, -1], [1, -1]]
    assert np.all(t.kind[6:] == SWITCH)


def test_each_npu_meets_the_switch_of_its_own_line():
    t = multidim("RI(4)_SW(2)")
    up = (t.src < t.n_npus) & (t.dst >= t.n_npus)
    assert np.array_equal(t.coords[t.src[up], 0], t.coords[t.dst[up], 0])
    assert np.bincount(t.dst[up])[t.n_npus :].tolist() == [2, 2, 2, 2]


@pytest.mark.parametrize(
    ("spec", "same"),
    [("RI(4)_RI(3)", torus((4, 3))), ("FC(5)", fully_connected(5)), ("SW(5)", switch(5)), ("SW(5)_RI(1)", switch(5))],
)
def test_products_of_one_kind_are_the_known_families(spec, same):
    t = multidim(spec)
    for name in ("kind", "src", "dst", "bandwidth_Bps", "latency_ps", "hop_latency_ps"):
        assert np.array_equal(getattr(t, name), getattr(same, name)), name


def test_the_number_of_links_of_a_libra_network():
    t = multidim("RI(4)_FC(8)_SW(32)")
    assert t.n_npus == 1024
    assert np.bincount(t.dimension).tolist() == [1024 * 2, 1024 * 7, 1024 * 2]
    assert t.n_nodes == 1024 + 32


@pytest.mark.parametrize(
    ("spec", "npu_ps"), [("SW(2)_SW(2)", 0), ("RI(2)_SW(2)", 300_000), ("RI(1)_SW(2)", 0), ("LI(2)", 300_000)]
)
def test_npus_charge_for_a_hop_where_they_carry_a_router(spec, npu_ps):
    t = multidim(spec)
    assert set(t.hop_latency_ps[: t.n_npus].tolist()) == {npu_ps}
    assert np.all(t.hop_latency_ps[t.n_npus :] == 300_000)


def test_routes_correct_dimension_zero_first():
    t = multidim("RI(4)_SW(2)_FC(3)")
    src, dst = np.array([0]), np.array([2 + 4 * 1 + 8 * 2])
    links = t.paths(src, dst).links
    assert t.dimension[links].tolist() == [0, 0, 1, 1, 2]


def test_routes_between_switches_are_shortest(graph_of, all_pairs, check_routes):
    import networkx as nx

    t = multidim("SW(2)_RI(4)_SW(3)")
    src, dst = all_pairs(t.n_nodes)
    hops = check_routes(t, src, dst, t.paths(src, dst))
    distance = dict(nx.all_pairs_shortest_path_length(graph_of(t)))
    assert hops == [distance[a][b] for a, b in zip(src.tolist(), dst.tolist(), strict=True)]


def test_blocks_may_be_given_as_objects():
    t = multidim([Ring(4), Switched(2)])
    assert t.name == "RI(4)_SW(2)" and t.shape == (4, 2)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("RI(4)_XX(2)", r"'XX\(2\)' is not a block; join blocks with _, such as RI\(n\), FC\(n\), SW\(n\), LI\(n\)"),
        ("RI(0)", r"block RI\(0\) has the extent '0'"),
        ("RI(-3)", r"block RI\(-3\) has the extent '-3'"),
        ("RI(2.5)", "extent '2.5'"),
        ("RI(9)RI(9)", "is not a block"),
        ("", "'' is not a block"),
    ],
)
def test_bad_specs_are_named(spec, message):
    with pytest.raises(WeftError, match=message):
        multidim(spec)


def test_no_blocks_are_refused():
    with pytest.raises(WeftError, match="multidim has no extents"):
        multidim([])
