"""TopoOpt: the points with a published value, the cheap studies, and a figure of each."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from sim.papers import topoopt_figures
from sim.papers.topoopt import HEADLINES, findings
from sim.papers.topoopt_studies import (
    PACKET_LEVEL_MS,
    STUDIES,
    all_to_all_share,
    measured_iterations,
    shared_cluster,
    twisted,
)

pytestmark = pytest.mark.compiled


def test_every_study_has_a_headline_and_a_figure() -> None:
    assert STUDIES.keys() == HEADLINES.keys() == topoopt_figures._PANELS.keys()


def test_iterations_with_a_published_value_are_within_10_percent_or_between_bound_and_value(tmp_path: Path) -> None:
    rows = measured_iterations(quick=True)
    known = [row for row in rows if row["packet_level_ms"] is not None]
    assert len(known) == len(PACKET_LEVEL_MS)
    for row in known:
        assert row["lower_bound_ms"] <= row["time_ms"] <= row["packet_level_ms"]
        if (row["workload"], row["Gbps"]) != ("VGG16-16", 200):
            assert abs(row["difference"]) < 0.10
    topoopt_figures.draw("iterations", rows, HEADLINES["iterations"], tmp_path / "iterations.png")
    assert (tmp_path / "iterations.png").stat().st_size > 10_000


def test_the_twisted_torus_gains() -> None:
    rows = twisted(quick=True)
    assert "gain by link load 1.846" in findings("twisted", rows)[0]
    assert rows[1]["simulated_us"] < rows[0]["simulated_us"]


def test_the_bandwidth_tax_grows_with_the_share_of_all_to_all() -> None:
    rows = [row for row in all_to_all_share(quick=True) if row["fabric"] == "TopoOpt" and row["interfaces"] == 4]
    for small, large in pairwise(rows):
        assert small["all_to_all_share"] < large["all_to_all_share"]
        assert small["bandwidth_tax"] < large["bandwidth_tax"]


@pytest.mark.verify
def test_isolation_keeps_the_tail_where_a_fat_tree_does_not() -> None:
    rows = shared_cluster(quick=True)
    p99 = {(row["jobs"], row["fabric"]): row["p99_ms"] for row in rows}
    assert p99[8, "TopoOpt d=4 100 Gb/s"] < p99[8, "ideal switches 100 Gb/s"] < p99[8, "fat-tree 100 Gb/s"]
