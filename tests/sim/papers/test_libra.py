"""LIBRA's page: two dimensions of it computed small, and the table and figures made of what was found."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from sim.papers import libra
from sim.papers.libra import GainPoint, compute_points
from sim.papers.tables import run_paper


@pytest.fixture(scope="module")
def points() -> list[GainPoint]:
    """ResNet-50 on the smallest network, at two budgets, a few choices of bandwidths each."""
    return list(compute_points(["2D-1K"], ["ResNet-50"], [100, 1000], chunks=4, evaluations=6))


def test_a_design_gains_and_the_simulated_one_no_less_than_the_replayed(points: list[GainPoint]) -> None:
    assert [(point.budget_GBps, point.goal) for point in points] == [
        (budget, goal) for budget in (100, 1000) for goal in ("time", "time-cost")
    ]
    for point in points:
        if point.goal == "time":
            assert point.analytic_speedup > 1
            assert point.simulated_speedup >= point.replayed_speedup
        else:
            assert point.simulated_gain >= point.replayed_gain
        assert sum(map(float, point.analytic_split.split(" / "))) == pytest.approx(point.budget_GBps, abs=0.02)


def test_the_page_has_its_tables_and_figures(
    points: list[GainPoint], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(libra, "compute_points", lambda *words: iter(points))
    monkeypatch.setattr(libra, "PUBLISHED", libra.PUBLISHED[:1])
    run_paper("libra", tmp_path, quick=True)
    page = (tmp_path / "libra.md").read_text()
    assert page.count("| 2D-1K | ResNet-50 |") == len(points)
    assert "| 2D-1K | T-NLG | time | 87.58 / 12.42 |" in page
    with (tmp_path / "points.csv").open() as file:
        assert [float(row["simulated_speedup"]) for row in csv.DictReader(file)] == pytest.approx(
            [point.simulated_speedup for point in points]
        )
    figures = {path.name for path in tmp_path.glob("*.png")}
    assert figures == {"libra-speedup.png", "libra-perf-per-cost.png"}
    assert all(f"../images/{name}" in page for name in figures)
    assert "tables and figures are in" in capsys.readouterr().err
