"""TopoOpt: the points with a published value, the cheap studies, and a figure of each."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from sim.papers import topoopt
from sim.papers.topoopt import (
    CLUSTER,
    HEADLINES,
    PACKET_LEVEL_MS,
    STUDIES,
    _dedicated_point,
    all_to_all_share,
    best_all_reduce,
    findings,
    measured_iterations,
    money,
    shared_cluster,
    switches,
    twisted,
)
from topologies import NPU
from workloads.topoopt import model


def test_every_study_has_a_headline_and_a_figure() -> None:
    assert STUDIES.keys() == HEADLINES.keys()
    assert STUDIES.keys() - topoopt.DRAWN.keys() == {"search", "money"}


def test_iterations_with_a_published_value_are_within_10_percent_or_between_bound_and_value(tmp_path: Path) -> None:
    rows = list(measured_iterations(quick=True))
    known = [row for row in rows if row["packet_level_ms"] is not None]
    assert len(known) == len(PACKET_LEVEL_MS)
    for row in known:
        assert row["lower_bound_ms"] <= row["time_ms"] <= row["packet_level_ms"]
        if (row["workload"], row["Gbps"]) != ("VGG16-16", 200):
            assert abs(row["difference"]) < 0.10
    topoopt.draw("iterations", rows, tmp_path / "iterations.png")
    assert (tmp_path / "iterations.png").stat().st_size > 10_000


def test_the_twisted_torus_gains() -> None:
    rows = list(twisted(quick=True))
    assert "gain by link load 1.846" in findings("twisted", rows)[0]
    assert rows[1]["simulated_us"] < rows[0]["simulated_us"]


@pytest.mark.full
def test_the_bandwidth_tax_grows_with_the_share_of_all_to_all() -> None:
    rows = [row for row in all_to_all_share(quick=True) if row["fabric"] == "TopoOpt" and row["interfaces"] == 4]
    for small, large in pairwise(rows):
        assert small["all_to_all_share"] < large["all_to_all_share"]
        assert small["bandwidth_tax"] < large["bandwidth_tax"]


def test_oversubscribed_switches_have_half_the_links_up() -> None:
    fabric = switches(128, 2, 100, 2)
    up = (fabric.kind[fabric.src] != NPU) & (fabric.src < fabric.dst)
    assert set(fabric.bandwidth_Bps.tolist()) == {12.5e9} and 2 * up.sum() == 128


def test_at_equal_money_the_expander_keeps_up_and_tiers_decide() -> None:
    rows = {row["fabric"]: row for row in _dedicated_point(model("CANDLE", 16), 4, 200, 0)}
    for row in rows.values():
        assert row["price"] == pytest.approx(rows["TopoOpt"]["price"], rel=0.02)
    ring, best = rows["expander, ring"], rows["expander, synthesized"]
    assert ring["all_reduce"] == "rings" and best["all_reduce"] == best_all_reduce(16, 4) != "rings"
    assert ring["over_topoopt"] > 5 and best["over_topoopt"] == pytest.approx(1, abs=0.01)
    assert 2.5 < rows["fat-tree of 3 tiers"]["over_topoopt"] < 2.8 and 1.1 < rows["fat-tree"]["over_topoopt"] < 1.3


def test_money_buys_the_same_by_every_list() -> None:
    rows = list(money(quick=True))
    for row in rows:
        assert row["fat_tree_price"] == pytest.approx(row["price"], rel=0.02)
    assert findings("money", rows) == [
        "switches have, of the rate of all interfaces, 0.78 to 1.26 in 1 tier, 0.42 to 0.73 in 2 tiers, 0.29 to 0.52 "
        "in 3 tiers"]


@pytest.mark.verify
def test_isolation_keeps_the_tail_where_a_fat_tree_does_not() -> None:
    rows = [row for row in shared_cluster(quick=True) if row["jobs"] == 8]
    p99 = {row["fabric"]: row["p99_ms"] for row in rows}
    assert p99[CLUSTER] < p99["fat-tree, random, hashed per pair"]
    assert p99["fat-tree, random, sprayed"] <= p99["fat-tree, random, hashed per pair"]


@pytest.mark.parametrize(("other", "said"), [(1.001, True), (2.0, False)])
def test_a_panel_whose_curves_lie_on_one_another_says_so(other: float, said: bool, tmp_path: Path) -> None:
    rows = [{"workload": "VGG16", "interfaces": degree, "delay_us": delay, "time_ms": 2.0 if degree == 4 else other,
             "static_topoopt_ms": 1.0, "rings": "one ring", "fat_tree_ms": 1.0, "packet_level_ms": None}
            for degree in (4, 8) for delay in (10, 100)]
    topoopt.draw("following", rows, tmp_path / "following.svg")
    assert ("all within 0.1 %" in (tmp_path / "following.svg").read_text(encoding="utf-8")) is said
