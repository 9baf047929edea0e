"""What more bandwidth is worth by formula: the difference of two optimizations, whatever the formula takes it from."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sim.cli import main

COLLECTIVE = ["--collective", "all-reduce", "-b", "1M"]
HIERARCHICAL = ["--algorithm", "hierarchical"]


def row_of(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert main(["optimize", *words, "--json", "-"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    return dict(row)


@pytest.mark.table
@pytest.mark.parametrize("budget_GBps", [300, 310, 20])
@pytest.mark.parametrize("words", [
    # the chain of latencies and services at the whole budget decides
    ["--network", "RI(4)_SW(8)", *COLLECTIVE, *HIERARCHICAL],
    ["--network", "RI(4)_FC(2)", *COLLECTIVE, "--algorithm", "themis"],  # built from the rates
    ["--network", "RI(4)_FC(2)", *COLLECTIVE, "--algorithms", "hierarchical,bucket", "--chunks", "1,4"],
    ["--network", "RI(4)_SW(4)", "--workload", "resnet-50"],  # LIBRA's formulas
    ["--network", "RI(4)_SW(8)", *COLLECTIVE, "--constraint", "B1 <= 3*B2"],
])
def test_the_price_of_a_budget(words: list[str], budget_GBps: int, capsys: pytest.CaptureFixture[str]) -> None:
    step = min(1, budget_GBps / 100)
    analytic = [*words, "--evaluator", "analytic", "--budget"]
    here = row_of(capsys, *analytic, f"{budget_GBps}GB/s")
    more = row_of(capsys, *analytic, f"{budget_GBps + step}GB/s")
    saved = (here["time_s"] - more["time_s"]) / step
    assert here["budget_saved_by_formula_s_per_GBps"] == pytest.approx(saved, rel=1e-3)
    assert saved > 0.01 * here["time_s"] / budget_GBps
    assert here["budget_saved_s_per_GBps"] is None  # nothing was simulated


def test_the_formula_beside_a_simulation_has_the_same_price(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--network", "RI(4)_SW(8)", *COLLECTIVE, "--budget", "300GB/s", "--evaluations", "3", *HIERARCHICAL]
    simulated, analytic = (row_of(capsys, *words, "--evaluator", one) for one in ("simulated", "analytic"))
    key = "budget_saved_by_formula_s_per_GBps"
    assert simulated[key] == pytest.approx(analytic[key], rel=1e-3) and analytic[key] > 1e-9
    assert simulated["budget_saved_s_per_GBps"] > 0


def test_the_price_of_a_lane(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--network", "RI(4)_SW(8)", *COLLECTIVE, "--evaluator", "analytic", "--lane", "50GB/s", "--budget"]
    here, more = (row_of(capsys, *words, budget) for budget in ("300GB/s", "350GB/s"))
    assert here["budget_saved_by_formula_s_per_GBps"] == pytest.approx((here["time_s"] - more["time_s"]) / 50)
    assert here["time_s"] > more["time_s"]


def test_one_more_in_a_dimension_is_more_budget(capsys: pytest.CaptureFixture[str]) -> None:
    """The chain, which decides here, is that of any split of the budget."""
    words = ["--network", "RI(4)_SW(8)", *COLLECTIVE, "--budget", "300GB/s", "--evaluator", "analytic", "--sensitivity"]
    assert min(row_of(capsys, *words)["saved_s_per_GBps"]) > 1e-9


def test_a_front_by_formula_has_the_answer_of_each_budget(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--network", "RI(4)_SW(8)", *COLLECTIVE, "--evaluator", "analytic", "--json", "-", "--budget"]
    assert main(["optimize", *words, "300GB/s"]) == 0
    for point in json.loads(capsys.readouterr().out)["front"][::4]:
        assert point["time_s"] == pytest.approx(row_of(capsys, *words, f"{point['total_GBps']}GB/s")["time_s"])


@pytest.mark.parametrize("budget", ["300GB/s", "320GB/s"])
def test_splits_that_lanes_do_not_allow_are_marked(budget: str, capsys: pytest.CaptureFixture[str]) -> None:
    """And what is certified is the split that was chosen; a rest of the budget that no lane takes breaks nothing."""
    words = ["--network", "RI(4)_SW(8)", *COLLECTIVE, "--lane", "50GB/s", "--budget", budget, "--evaluator", "analytic"]
    row = row_of(capsys, *words)
    assert [one["whole_lanes"] for one in row["splits"]] == [True, False, True]
    assert all(one["allowed"] for one in row["splits"])
    assert row["certified"].startswith("whole lanes of 50 GB/s: no other lanes are better by")
    assert main(["optimize", *words]) == 0
    marked = [line.split()[0] for line in capsys.readouterr().out.splitlines() if line.endswith("(not in whole lanes)")]
    assert marked == ["analytic"]
