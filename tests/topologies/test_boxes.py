"""Boxes, dragonflies, hypercubes, HyperX and random regular networks: what is joined to what."""

import networkx as nx
import numpy as np
import pytest

from topologies import (
    WeftError,
    dgx1,
    dgx_a100,
    dgx_h100,
    dragonfly,
    from_spec,
    hypercube,
    hyperx,
    mi250,
    random_regular,
)
from topologies.flows.cuts import egress_Bps, ingress_Bps


def undirected(t):
    return nx.Graph(zip(t.src.tolist(), t.dst.tolist(), strict=True))


@pytest.mark.parametrize(
    ("fabric", "npus", "links", "out"),
    [
        (dgx_a100(1), 8, 16, 300), (dgx_a100(2), 16, 96, 325), (dgx_h100(1), 8, 16, 450), (dgx_h100(2), 16, 96, 500),
        (dgx1(1), 8, 32, 150), (mi250(1), 16, 56, None), (mi250(2), 32, 176, None),
    ],
    ids=lambda one: getattr(one, "name", None),
)
def test_boxes(fabric, npus, links, out):
    assert (fabric.n_npus, fabric.n_links) == (npus, links)
    if out:
        assert set(egress_Bps(fabric).tolist()) == set(ingress_Bps(fabric).tolist()) == {out * 1e9}
    assert nx.is_connected(undirected(fabric))


def test_gpus_of_one_parity_share_an_infiniband_switch_and_rails_are_apart():
    for t, rails in ((dgx_a100(2), 2), (dgx_h100(2), 8)):
        number = {t.node_name(node): node for node in range(t.n_nodes)}
        for gpu in range(16):
            assert t.link_ids(np.array([number[f"nic{gpu}"]]), np.array([number[f"ib{gpu % rails}"]]))[0] >= 0


def test_an_ndv2_pair_has_one_way_links():
    t = dgx1(2)
    assert t.link_ids(np.array([1, 9, 8, 0]), np.array([8, 0, 1, 9])).tolist()[2:] == [-1, -1]
    assert t.bandwidth_Bps[t.link_ids(np.array([1]), np.array([8]))[0]] == 12.5e9


def test_bandwidths_of_tiers():
    t = dgx_a100(2, bandwidth=["100GB/s", "10GB/s"])
    assert set(egress_Bps(t).tolist()) == {110e9}
    with pytest.raises(WeftError, match="bandwidth has 3 values"):
        dgx_a100(2, bandwidth=["1GB/s"] * 3)


@pytest.mark.parametrize(("groups", "routers"), [(9, 4), (5, 2), (5, 4), (3, 1), (1, 1)])
def test_every_two_groups_of_a_dragonfly_share_a_cable(groups, routers):
    t = dragonfly(groups, routers)
    pairs = {(a // routers, b // routers) for a, b in zip(t.src.tolist(), t.dst.tolist(), strict=True)}
    assert {(a, b) for a in range(groups) for b in range(groups) if a != b} <= pairs
    degree = np.bincount(t.src, minlength=t.n_nodes)
    assert set(degree.tolist()) == {routers - 1 + (groups - 1) // routers}
    assert {(b, a) for a, b in pairs} == pairs


def test_hosts_make_routers_switches():
    t = dragonfly(5, 2, 3)
    assert (t.n_npus, t.n_nodes, t.shape) == (30, 40, (3, 2, 5))
    assert nx.diameter(undirected(t)) == 5


def test_a_dragonfly_needs_cables_to_share():
    with pytest.raises(WeftError, match="dragonfly:9x3: 8 global cables per group cannot be split"):
        dragonfly(9, 3)


def test_hypercube_and_hyperx():
    assert nx.is_isomorphic(undirected(hypercube(4)), nx.hypercube_graph(4))
    t = hyperx((3, 4))
    assert set(np.bincount(t.src).tolist()) == {5} and nx.diameter(undirected(t)) == 2


def test_random_regular_is_the_draw_of_networkx():
    """The vectors of the field name this draw."""
    t = random_regular(16, 4, 1)
    text = "0-4 0-7 0-8 0-15 1-9 1-10 1-11 1-14 2-3 2-4 2-6 2-8 3-7 3-9 3-12 4-7 4-14 5-10 5-11 5-12 5-15"
    assert {tuple(map(int, word.split("-"))) for word in text.split()} <= set(
        zip(t.src.tolist(), t.dst.tolist(), strict=True)
    )
    assert set(np.bincount(t.src).tolist()) == {4}


@pytest.mark.parametrize(
    ("n", "degree"), [(2, 1), (5, 2), (6, 3), (7, 4), (8, 3), (9, 4), (10, 7), (12, 5), (13, 12), (31, 6)]
)
def test_random_regular_draws_as_networkx_does(n, degree):
    """Where a draw fails, too, and is done again; dense ones are what sparse ones leave out."""
    for seed in range(25):
        drawn = nx.random_regular_graph(min(degree, n - 1 - degree), n, seed=seed)
        drawn = nx.complement(drawn) if degree > n - 1 - degree else drawn
        if not nx.is_connected(drawn):
            with pytest.raises(WeftError, match="not connected"):
                random_regular(n, degree, seed)
            continue
        t = random_regular(n, degree, seed)
        links = set(zip(t.src.tolist(), t.dst.tolist(), strict=True))
        assert links == set(drawn.to_directed().edges) and len(links) == t.n_links


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("random-regular:5x3", "5 NPUs cannot have 3 cables each"), ("random-regular:4x4", "4 NPUs cannot have 4"),
        ("random-regular:8x1", "is not connected"), ("random-regular:8", "has 1 extents"),
        ("dragonfly:9", "has 1 extents"),
        ("dgx-a100:0", "extent '0'"), ("mi250:1x2", "takes one number"),
    ],
)
def test_bad_specs(spec, message):
    with pytest.raises(WeftError, match=message):
        from_spec(spec)
