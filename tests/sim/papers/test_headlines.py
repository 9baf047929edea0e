"""Are headlines computed, errors those of the two values, and conditions what they are said to be?"""

from __future__ import annotations

import re

import pytest

from sim.papers import dear, headlines, lhc, libra
from sim.papers.headlines import Headline
from workloads.compression.gains import Compression


def test_the_error_is_of_the_published_value_and_nothing_where_there_is_none() -> None:
    one = Headline("a", "b", 2.0, "abstract", 2.5, "c")
    assert one.row()["error"] == pytest.approx(0.25)
    assert one._replace(published=None).row()["error"] is None


def test_swing_gains_up_to_three_times() -> None:
    (one,) = headlines.of_swing()
    assert one.published == 3.0 and 3.0 < one.ours < 3.2
    assert one.conditions.startswith("8 MiB on torus:128x8")


def test_libra_is_measured_against_the_2d_network_with_equal_rates() -> None:
    found = {one.what: one for one in headlines.of_libra()}
    assert len(found) == 6 and all(one.published is None for one in found.values())
    assert all(found[f"best split of {dims}D, up to, over 2D split equally"].ours > 1 for dims in (2, 3, 4))
    assert f"{libra.A100_SCALE:.4g}" in next(iter(found.values())).conditions


def test_dear_is_at_its_largest_gain() -> None:
    slow, fast = headlines.of_dear()
    assert (slow.published, fast.published) == (1.83, 1.15)
    (wfbp, _), (own, _) = dear.best(dear.subjects()[1], dear.NETWORKS[2], "none")
    assert fast.ours == wfbp / own and "densenet-201, fusion none" in fast.conditions


def test_compression_reaches_its_headline_at_what_it_is_said_to_need() -> None:
    one_bit, four_bits, iteration = headlines.of_compression()
    for headline, bits in ((one_bit, 1), (four_bits, 4)):
        (most,) = re.findall(r"union of at most ([\d.]+)%", headline.conditions)
        assert Compression(1.23, bits).speed_up(float(most) / 100) == pytest.approx(lhc.HEADLINE_THROUGHPUT, rel=0.01)
        assert (headline.ours > lhc.HEADLINE_THROUGHPUT) == (float(most) / 100 > headlines.UNION)
    (rate,) = re.findall(r"codec at ([\d.]+) GB/s", one_bit.conditions)
    (share,) = re.findall(r"communication is (\d+)%", iteration.conditions)
    dense_s = lhc.all_reduce_s("ring", headlines.WORKERS, 4 * headlines.ELEMENTS)
    with_codec_s = dense_s / one_bit.ours + 4e-9 * headlines.ELEMENTS / float(rate)
    assert dense_s / with_codec_s == pytest.approx(lhc.HEADLINE_THROUGHPUT, rel=0.01)
    assert 1 / (1 - int(share) / 100 * (1 - 1 / lhc.HEADLINE_THROUGHPUT)) == pytest.approx(
        lhc.HEADLINE_ITERATION, rel=0.02
    )
