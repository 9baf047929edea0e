"""Prices: the published totals, and rates that cost the same."""

from __future__ import annotations

import pytest

from topologies import WeftError
from topologies.core.prices import PRICES, tiers_for

TOPOOPT, MIXNET = PRICES["TopoOpt"], PRICES["MixNet"]


def test_the_formulas_of_topoopt() -> None:
    assert 128 * TOPOOPT.patched(4, 100) == 513_024 and 128 * TOPOOPT.patched(8, 200) == 1_267_712
    assert 128 * TOPOOPT.switched(100, 3) == 282_496 and 128 * TOPOOPT.switched(200, 3) == 495_744
    assert TOPOOPT.switched(200, 3, 2) < TOPOOPT.switched(200, 3)


@pytest.mark.parametrize(("rate", "published"), [(200, 1.803), (800, 2.3369)])
def test_a_fat_tree_over_mixnet(rate: float, published: float) -> None:
    """Six of eight interfaces are on circuits."""
    assert MIXNET.switched(rate, 3) / MIXNET.regional(rate, 0.25) == pytest.approx(published, abs=5e-5)


@pytest.mark.table
@pytest.mark.parametrize("prices", PRICES.values(), ids=list(PRICES))
@pytest.mark.parametrize("tiers", [1, 2, 3])
@pytest.mark.parametrize("oversubscription", [1, 2])
@pytest.mark.parametrize(("degree", "rate"), [(4, 100), (8, 100), (4, 145.5), (8, 200)])
def test_the_same_money(prices, tiers: int, oversubscription: int, degree: int, rate: float) -> None:
    price = prices.patched(degree, rate)
    found = prices.switched_rate(price, tiers, oversubscription)
    assert prices.switched(found, tiers, oversubscription) == pytest.approx(price, rel=1e-9)


def test_tiers() -> None:
    assert [tiers_for(n) for n in (2, 64, 65, 2048, 2049)] == [1, 1, 2, 2, 3]


@pytest.mark.parametrize(("call", "said"), [
    (lambda: MIXNET.at(50), "50 Gb/s: the prices of MixNet, table 4 begin at 100 Gb/s"),
    (lambda: TOPOOPT.switched(100, 0), "0 tiers"),
    (lambda: TOPOOPT.switched(100, 2, 0.5), "oversubscription 0.5"),
    (lambda: MIXNET.switched_rate(1, 3), "1 $ a server buy no switches"),
])
def test_bad_input_is_named(call, said: str) -> None:
    with pytest.raises(WeftError) as caught:
        call()
    assert said in str(caught.value)
