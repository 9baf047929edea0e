import numpy as np
import pytest

from topologies import WeftError, ring, torus


@pytest.mark.parametrize("n", [1, 2, 3, 8])
def test_a_ring_is_a_torus_of_one_dimension(n):
    ours, theirs = ring(n, bandwidth="1GB/s"), torus((n,), bandwidth="1GB/s")
    for name in ("src", "dst", "bandwidth_Bps", "latency_ps", "hop_latency_ps", "coords", "dimension"):
        assert np.array_equal(getattr(ours, name), getattr(theirs, name))
    assert ours.shape == (n,) and ours.name == f"ring:{n}"


def test_no_npu_is_refused():
    with pytest.raises(WeftError, match="an extent of ring is 0"):
        ring(0)
