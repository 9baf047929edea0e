import numpy as np
import pytest

from tests.oracles.circuit_plans import betweenness
from topologies import WeftError, torus, twisted_torus
from topologies.flows.load import average_path, diameter, spread_loads


def uniform(n):
    return np.ones((n, n)) - np.eye(n)


def test_the_published_gain_of_4x4x8():
    regular, twisted = torus((4, 4, 8)), twisted_torus((4, 4, 8))
    assert (diameter(regular), diameter(twisted)) == (8, 6)
    assert average_path(regular) == pytest.approx(4.0315, abs=5e-5)
    assert average_path(twisted) == pytest.approx(3.4646, abs=5e-5)
    loads = [spread_loads(one, uniform(128)).max() for one in (regular, twisted)]
    assert loads == pytest.approx([128, 73.3333], abs=1e-3)
    assert loads[0] / loads[1] == pytest.approx(1.745, abs=5e-4)


@pytest.mark.parametrize("fabric", [torus((3, 4)), twisted_torus((2, 2, 4)), twisted_torus((2, 4, 4))],
                         ids=lambda one: one.name)
def test_spread_loads_are_betweenness(fabric):
    expected = betweenness(fabric)
    loads = spread_loads(fabric, uniform(fabric.n_npus))
    found: dict[tuple[int, int], float] = {}
    for a, b, load in zip(fabric.src.tolist(), fabric.dst.tolist(), loads.tolist(), strict=True):
        found[a, b] = found.get((a, b), 0.0) + load
    assert found == pytest.approx(expected)


def test_every_npu_has_six_cables_and_the_wraps_shift():
    fabric = twisted_torus((4, 8, 8))
    assert set(np.bincount(fabric.src).tolist()) == {6}
    coords = fabric.coords
    wrap = (coords[fabric.src, 0] == 3) & (coords[fabric.dst, 0] == 0) & (fabric.dimension == 0)
    assert np.all((coords[fabric.dst[wrap]] - coords[fabric.src[wrap]])[:, 1:] % 8 == 4)


@pytest.mark.parametrize("shape", [(4, 4, 8), (3, 3, 6), (4, 8, 8)])
def test_the_routes_by_default_carry_an_all_to_all_faster_than_those_of_the_regular_torus(shape):
    """As many links on each route as there have to be, and no link as busy as the busiest of the regular torus."""
    n = int(np.prod(shape))
    src, dst = np.divmod(np.arange(n * n), n)
    twisted, regular = (fabric.paths(src, dst) for fabric in (twisted_torus(shape), torus(shape)))
    assert np.array_equal(np.diff(twisted.ptr), np.diff(twisted_torus(shape).paths(src, dst, "alternating").ptr))
    assert np.bincount(twisted.links).max() < np.bincount(regular.links).max()


@pytest.mark.parametrize("shape", [(4, 4), (4, 4, 4), (1, 1, 2), (4, 8, 4)])
def test_other_shapes_are_refused(shape):
    with pytest.raises(WeftError, match="a twisted torus is K x K x 2K or K x 2K x 2K"):
        twisted_torus(shape)
