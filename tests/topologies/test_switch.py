import numpy as np
import pytest

from topologies import NPU, SWITCH, WeftError, switch


@pytest.mark.parametrize("n", [2, 3, 64])
def test_npus_around_one_switch(n):
    t = switch(n)
    assert t.kind.tolist() == [NPU] * n + [SWITCH]
    assert t.n_links == 2 * n
    assert t.coords.ravel().tolist() == [*range(n), -1]
    paths = t.paths(np.array([0]), np.array([n - 1]))
    assert t.dst[paths.links].tolist() == [n, n - 1]


def test_one_npu_has_neither_cable_nor_switch():
    t = switch(1)
    assert (t.n_nodes, t.n_links) == (1, 0)


def test_only_the_switch_charges_for_a_hop():
    assert switch(3, hop_latency="5ns").hop_latency_ps.tolist() == [0, 0, 0, 5_000]


def test_an_end_may_be_the_switch():
    t = switch(3)
    paths = t.paths(np.array([1, 3, 3]), np.array([3, 2, 3]))
    assert [t.link_name(int(link)) for link in paths.links] == ["npu1->switch0", "switch0->npu2"]
    assert paths.ptr.tolist() == [0, 1, 2, 2]


def test_no_npu_is_refused():
    with pytest.raises(WeftError, match="an extent of switch is -1"):
        switch(-1)
