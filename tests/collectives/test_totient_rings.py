from fractions import Fraction

import pytest

from collectives import totient_rings
from collectives.totient_rings import ring_jumps
from sim import simulate
from topologies import WeftError, circulant, torus


@pytest.mark.parametrize(("n", "jumps"), [(16, (1, 3)), (12, (1, 5)), (5, (1, 2)), (2, (1,))])
def test_time_is_the_closed_form(n, jumps):
    fabric = circulant(n, jumps, bandwidth="1GB/s", latency="2us", hop_latency=0)
    rings = len(ring_jumps(fabric))
    size = 4 * n * rings * 250
    result = simulate(totient_rings.all_reduce(fabric, size), chunks=1, check=True)
    block_ps = Fraction(size, n * rings) * 1000
    assert result.time_ps == 2 * (n - 1) * (2_000_000 + block_ps)
    assert result.outcome.events == 2 * (n - 1) * rings  # one representative, one link a round


def test_jumps_can_be_given_on_any_shape():
    schedule = totient_rings.all_reduce(torus((3, 3)), "1MiB", jumps="1,2,4")
    assert schedule.proof == "proved" and set(schedule.pattern.transfers().port.tolist()) == {0, 1, 2}


@pytest.mark.parametrize(("jumps", "message"), [("3", "the jump 3 does not visit all 9 ranks"),
                                                ("one", "jumps 'one': write integers")])
def test_bad_input_is_named(jumps, message):
    with pytest.raises(WeftError, match=message):
        totient_rings.all_reduce(torus((9,)), "1MiB", jumps=jumps)
