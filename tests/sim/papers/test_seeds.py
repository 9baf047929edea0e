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


def test_one_rate_of_exchange_carries_over_between_graphs() -> None:
    """It is of a cell of Products on 64 sockets; epochs of Reddit that exchange everything are within 7 %."""
    for sockets, published in seeds.GRAPHS["Reddit"].published["cd-0"].items():
        assert seeds.epoch_s(seeds.GRAPHS["Reddit"], sockets, "cd-0") == pytest.approx(published, rel=0.07)


@pytest.mark.full
def test_the_page_is_the_committed_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_paper("seeds", tmp_path, quick=False)
    assert "distgnn" in capsys.readouterr().out
    assert (tmp_path / "seeds.md").read_text() == (ROOT / "docs/papers/seeds.md").read_text()
