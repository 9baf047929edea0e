import numpy as np
import pytest

from topologies import NPU, SWITCH, ShortestPathRouter, WeftError, from_links


def test_nodes_from_n_npus_on_are_switches():
    t = from_links([(0, 2, "400Gb/s", "5ns"), (2, 1, "100Gb/s", 0)], n_npus=2, hop_latency="1ns")
    assert t.kind.tolist() == [NPU, NPU, SWITCH]
    assert t.bandwidth_Bps.tolist() == [50e9, 12.5e9] and t.latency_ps.tolist() == [5_000, 0]
    assert t.hop_latency_ps.tolist() == [0, 0, 1_000], "NPUs that are never joined directly are endpoints"
    assert (t.shape, t.coords.ravel().tolist()) == ((2,), [0, 1, -1])
    assert isinstance(t.router, ShortestPathRouter)


def test_npus_joined_directly_charge_for_a_hop():
    t = from_links([(0, 1, "1GB/s", 0), (1, 2, "1GB/s", 0)], n_npus=2, hop_latency="1ns")
    assert t.hop_latency_ps.tolist() == [1_000, 1_000, 1_000]


def test_links_may_come_in_any_order():
    t = from_links([(1, 0, "2GB/s", 0), (0, 1, "1GB/s", 0)], n_npus=2)
    assert (t.src.tolist(), t.bandwidth_Bps.tolist()) == ([0, 1], [1e9, 2e9])


def test_no_links_at_all():
    t = from_links([], n_npus=2)
    assert t.n_links == 0
    with pytest.raises(WeftError, match="no route from npu0 to npu1"):
        t.paths(np.array([0]), np.array([1]))


@pytest.mark.parametrize(
    ("links", "n_npus", "message"),
    [
        ([(0, 1, "1GB/s", 0), (0, 1)], 2, r"link 1 is \(0, 1\): write \(src, dst, bandwidth, latency\)"),
        ([7], 2, "link 0 is 7"),
        ([(0, -1, "1GB/s", 0)], 2, "link 0 .* node is -1"),
        ([(0, 1.5, "1GB/s", 0)], 2, "node is 1.5"),
        ([(0, 1, "1", 0)], 2, r"link 0 \(0->1\) bandwidth '1' is not a rate"),
        ([(0, 1, "1GB/s", "1")], 2, r"link 0 \(0->1\) latency '1' is not a time"),
        ([(1, 1, "1GB/s", 0)], 2, "connects a node to itself"),
        ([], 0, "n_npus is 0"),
    ],
)
def test_bad_links_are_named(links, n_npus, message):
    with pytest.raises(WeftError, match=message):
        from_links(links, n_npus)


def test_a_mistyped_node_is_told_before_anything_is_built():
    with pytest.raises(WeftError, match="links name node 1000000000: 2 NPUs and 3 links have at most 8 nodes"):
        from_links([(0, 1, "1GB/s", 0), (1, 10**9, "1GB/s", 0), (10**9, 0, "1GB/s", 0)], n_npus=2)
