"""The page of the pipeline schedules: expected optima, the FIFO plateau, and every table and figure in its place."""

from __future__ import annotations

import pytest

from collectives.trees.pack import gather_forest
from sim.papers import pipeline
from sim.papers.tables import Left

SPECS = ("torus:4x4", "dgx1:1")


HEAVY = ("dgx-a100:4", "mi250:2", "random-regular:32x4x7", "dragonfly:9x4")
"""The linear program of an all-reduce takes seconds on each."""


@pytest.mark.table
@pytest.mark.parametrize(
    "spec", [pytest.param(spec, marks=pytest.mark.verify) if spec in HEAVY else spec for spec in pipeline.FABRICS]
)
def test_the_optimum_is_the_expected_one(spec):
    row = pipeline.optimum_row(spec)
    assert row["optimum_GBps"] == pytest.approx(row["expected_GBps"], rel=1e-12)
    assert row["two_phase_GBps"] == pytest.approx(row["optimum_GBps"] / 2)
    assert row["best_roots_GBps"] is None or row["best_roots_GBps"] == pytest.approx(row["optimum_GBps"] / 2)


@pytest.mark.full
def test_fifo_stays_on_a_plateau_where_roots_offer_all_chunks_at_once():
    """1.081 on torus:4x4 however many chunks; paced by their roots, as many chunks come within 0.2 %."""
    (paced,) = pipeline.service_rows("torus:4x4", [64])
    at_once = [row["fifo"] for row in pipeline.plateau_rows("torus:4x4", [16, 64])]
    assert paced["fifo"] < 1.002 and 1.07 < at_once[1] < at_once[0] < 1.11


def test_chunks_offered_at_once_carry_the_whole_array():
    forest = gather_forest(pipeline._fabric("torus:4x4"))
    schedule = pipeline.all_at_once(forest, 3)
    assert schedule.pattern.n_blocks == 3 * 16 * forest.blocks_of_root(0)
    assert schedule.proof.startswith("proved")


def test_a_quick_run_leaves_the_page_of_its_fabrics(tmp_path, monkeypatch):
    for name, value in {"QUICK": ("dgx1:1",), "PLATEAU": ("dgx1:1",), "QUICK_SIZES": (2**10, 2**20),
                        "CHUNKS": (2, 4, 64, 256), "ALGORITHMS": ("pipelined", "ring")}.items():
        monkeypatch.setattr(pipeline, name, value)
    pipeline.run(Left("pipeline", tmp_path), quick=True)
    assert "| dgx1:1 | all-gather | pipelined |" in (tmp_path / "pipeline.md").read_text()


def test_large_arrays_take_what_was_measured_on_two_boxes():
    """Nothing was fitted: the forest and the library within 13 %, and their ratio within 5 %."""
    for row in pipeline.ran_rows([2**30, 2**33]):
        for what in ("forest", "library"):
            assert row[f"{what}_GBps"] == pytest.approx(row[f"{what}_ran_GBps"], rel=0.13)
        gains = [row[f"forest{which}_GBps"] / row[f"library{which}_GBps"] for which in ("", "_ran")]
        assert gains[0] == pytest.approx(gains[1], rel=0.05)
        assert row["forest_GBps"] < row["optimum_GBps"]


@pytest.mark.full
def test_the_page_has_its_tables_and_figures(tmp_path):
    optimum = [pipeline.optimum_row(spec) for spec in SPECS]
    times = [row for spec in SPECS for row in pipeline.time_rows(spec, [2**10, 2**20])]
    service = [row for spec in SPECS for row in pipeline.service_rows(spec, [4, 64])]
    plateau = [row for spec in SPECS for row in pipeline.plateau_rows(spec, [4])]
    assert all(row["of_bound"] is None or row["of_bound"] <= 1 for row in times)
    ran = list(pipeline.ran_rows([2**30]))
    pipeline.leave_page(Left("pipeline", tmp_path), optimum, times, service, plateau, ran)
    text = (tmp_path / "pipeline.md").read_text()
    assert "| torus:4x4 | all-gather | pipelined |" in text and "Above 1.04 at 64 chunks: none." in text
    figures = {file.name for file in tmp_path.glob("*.png")}
    assert figures == {"pipeline-all-gather.png", "pipeline-all-reduce.png", "pipeline-service.png"}
    assert all(f"../images/{name}" in text for name in figures)
