"""FusionLLM, DEFER and DistGNN: are the studies the formulas where these are known, and the page the committed one?"""

from pathlib import Path

import pytest

from sim.papers import seeds
from sim.papers.tables import run_paper
from tests.places import ROOT


def test_a_chain_with_free_messages_is_gpipes() -> None:
    """(m + p - 1) (F + B)."""
    found = seeds.chain_s("gpipe", 4, 6, lambda kind, stage: 1e-3 if kind == "F" else 2e-3, [1.0] * 3, [1e15] * 3)
    assert found == pytest.approx((6 + 3) * 3e-3, rel=1e-4)


def test_a_slow_link_is_worth_compressing() -> None:
    rows = list(seeds.fusion())
    assert max(row["gain"] for row in rows) > 9.39 and min(row["gain"] for row in rows) < 1.45
    slowest = [row["gain"] for row in rows if row["slow_link"] == rows[0]["slow_link"]]
    assert slowest == sorted(slowest)


def test_parts_alone_gain_what_their_multiply_adds_allow() -> None:
    two, _, eight = seeds.defer()
    assert eight["compute_alone"] == pytest.approx(sum(seeds.MACS) / max(seeds.MACS), rel=1e-6)
    assert eight["with_overhead"] == pytest.approx(seeds.DEFER_PUBLISHED, rel=1e-6)
    assert two["with_overhead"] < two["compute_alone"] < 2


@pytest.mark.parametrize(("graph", "algorithm", "within"), [
    ("Reddit", "cd-0", 0.07), ("Products", "cd-0", 0.28), ("Proteins", "cd-0", 0.3), ("Proteins", "cd-5", 0.13),
    ("Proteins", "0c", 0.27), ("Papers", "0c", 0.15),
])
def test_rates_of_one_cell_carry_over_between_graphs(graph: str, algorithm: str, within: float) -> None:
    """They are of Products on 64 sockets, and the epoch of one socket is given; all else is published to compare."""
    one = seeds.GRAPHS[graph]
    for sockets, published in one.published[algorithm].items():
        assert seeds.epoch_s(one, sockets, algorithm) == pytest.approx(published, rel=within)


def test_parts_and_messages_of_products_are_the_published_ones() -> None:
    """Table 8: vertices of a part of 16. 28.6 GB to the roots from 64 sockets, of widths 100, 256 and 256."""
    one = seeds.GRAPHS["Products"]
    assert one.replication[16] * one.vertices_M * 1e6 / 16 == pytest.approx(596_499, rel=1e-3)
    assert 64 * sum(seeds.sent_bytes(one, 64, width) for width in one.widths) == pytest.approx(28.6e9, rel=2e-3)


@pytest.mark.full
def test_the_page_is_the_committed_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_paper("seeds", tmp_path, quick=False)
    assert "distgnn" in capsys.readouterr().out
    assert (tmp_path / "seeds.md").read_text() == (ROOT / "docs/papers/seeds.md").read_text()
