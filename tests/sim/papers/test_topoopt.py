"""TopoOpt: the points with a published value, the cheap studies, and a figure of each."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from sim.cli import main
from sim.papers import topoopt
from sim.papers.topoopt import (
    CLUSTER,
    DRAWN_JOBS,
    HEADLINES,
    JOB_MIX,
    OF_GRAPHS,
    PACKET_LEVEL_MS,
    RELEASED_MS,
    STUDIES,
    _dedicated_point,
    all_to_all_share,
    best_all_reduce,
    findings,
    graphs_in,
    measured_iterations,
    money,
    released,
    shared_cluster,
    strategies,
    switches,
    twisted,
)
from tests.workloads.formats.test_flexflow import TASKS, buffer
from topologies import NPU
from workloads.topoopt import model


def test_every_study_has_a_headline_and_a_figure() -> None:
    assert STUDIES.keys() | OF_GRAPHS.keys() == HEADLINES.keys()
    assert STUDIES.keys() - topoopt.DRAWN.keys() == {"search", "money"}


def test_iterations_with_a_published_value_are_between_the_bound_and_it_and_within_3_percent(tmp_path: Path) -> None:
    rows = list(measured_iterations(quick=True))
    known = [row for row in rows if row["packet_level_ms"] is not None]
    assert len(known) == len(PACKET_LEVEL_MS)
    for row in known:
        assert row["lower_bound_ms"] <= row["time_ms"] <= row["packet_level_ms"]
        assert abs(row["difference"]) < 0.03
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


@pytest.fixture
def graphs(tmp_path: Path) -> topoopt.Graphs:
    """Small graphs under the names of released ones, and files that are none of them."""
    folder = tmp_path / "fattree" / "tgs"
    folder.mkdir(parents=True)
    for name in ("100candle_16", "400candle_16", "100dlrm_16", "25dlrm_32"):
        (folder / f"{name}.fbuf").write_bytes(buffer(TASKS))
    for name in ("100vgg_16.fbuf100vgg_16.fbuf", "100ncf_16.fbuf", "100vgg_16.csv"):
        (folder / name).touch()
    return graphs_in(str(tmp_path))


def test_released_graphs_are_found_below_and_run_beside_what_is_published(graphs: topoopt.Graphs) -> None:
    assert {key: [*rates] for key, rates in graphs.items()} == {
        ("CANDLE", 16): [100, 400], ("DLRM", 16): [100], ("DLRM", 32): [25]}
    rows = list(released(graphs, quick=False))
    assert len(rows) == 3 * 4 + 1
    for row in rows:
        known = RELEASED_MS.get((row["model"], row["fabric"]), {}) if row["servers"] == 16 else {}
        assert row["published_ms"] == known.get(row["graph_Gbps"]) and row["time_ms"] > 6  # of computation
    (ideal,) = [row for row in rows if (row["model"], row["graph_Gbps"], row["fabric"]) == (
        "DLRM", 100, "ideal switch")]
    # A message of 10 MB at 12.5 GB/s between 1 and 2 ms, beside 4 ms of server 1; a sum of 0.5 ms; four rounds of 1 MB.
    assert ideal["time_ms"] == pytest.approx(6 + 0.5 + 4 * (0.08 + 0.004), rel=1e-3)
    assert ideal["difference"] == pytest.approx(ideal["time_ms"] / 61.155 - 1)
    assert [row["graph_Gbps"] for row in released(graphs, quick=True)] == [100] * 8


def test_the_faster_strategy_beside_the_rate_is_taken(graphs: topoopt.Graphs) -> None:
    rows = list(strategies(graphs, quick=True))
    assert [row["graph_Gbps"] for row in rows] == [400, 100, 100, 100]  # 505.7 Gb/s has none above; else they are alike
    for row in rows:
        assert row["over_topoopt"] == row["time_ms"] / 225.222 == row["fastest_over_topoopt"]
    assert [line.split(",")[0] for line in findings("strategies", rows)] == [
        "fat-tree of 1 tier", "fat-tree of 2 tiers", "fat-tree of 3 tiers", "fat-tree of 3 tiers"]


def test_figure_16_is_the_mean_of_its_draws() -> None:
    """Means of the released times of 135 jobs, in its notebook."""
    rows = [{"model": name, "servers": 16, "graph_Gbps": rate, "fabric": fabric, "time_ms": 2 * known,
             "published_ms": known, "difference": 1.0}
            for (name, fabric), values in RELEASED_MS.items() for rate, known in values.items()]
    means = [155.83805813763703, 74.978766332, 66.77789445310371, 62.65122195414074]
    assert [*DRAWN_JOBS] == [100, 200, 400, 800] and all(sum(counts) == 135 for counts in DRAWN_JOBS.values())
    assert findings("released", rows) == ["graphs of 100 Gb/s: +100.0% to +100.0%", "all: +100.0% to +100.0%", *(
        f"figure 16, 27 jobs, ideal switch of {rate} Gb/s: mean {mean:.1f} ms, ours {2 * mean:.1f} ms"
        for rate, mean in zip(DRAWN_JOBS, means, strict=True))]
    few = [row for row in rows if row["graph_Gbps"] == 100 and row["model"] != JOB_MIX[0][0]]
    assert len(findings("released", few)) == 2  # no figure without its models


@pytest.mark.parametrize(("paper", "said"), [
    ("topoopt", "no task graphs of TopoOpt, such as 100candle_16.fbuf, are in it or below"),
    ("swing", "is for weft paper hardware, training, topoopt: swing takes no files"),
])
def test_a_folder_of_no_use_is_refused(paper: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
                                       ) -> None:
    assert main(["paper", paper, "--data", str(tmp_path), "--out", str(tmp_path / "out"), "--quiet"]) == 2
    assert said in capsys.readouterr().err
