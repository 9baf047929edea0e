"""In-network aggregation and homomorphic compression: the tables that the paper command prints, and their claims."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from sim.papers import lhc
from sim.papers.tables import Left, run_paper
from tests.places import ROOT
from workloads.compression.rates import INSTANT, Rates

FIGURES = ("cliff", "throughput", "models", "sizes")


def rows_where(rows, **wanted):
    return [row for row in rows if all(row[key] == value for key, value in wanted.items())]


@pytest.mark.full
def test_published_slots_stragglers_and_nvls():
    for row in lhc.slot_rows():
        assert abs(row["difference"]) < 1e-3
        if row["published_ms"]:
            assert row["simulated_ms"] == pytest.approx(row["published_ms"], abs=6e-4)
    for row in lhc.straggler_rows():
        assert row["simulated"] == pytest.approx(row["published"], rel=1e-3)
    for row in lhc.nvls_rows():
        assert abs(row["difference"]) < 0.03


@pytest.mark.full
def test_the_cliff_of_a_small_array_is_no_farther():
    rows = list(lhc.cliff_rows(20_000, 1))
    for layout in ("spread", "element"):
        assert rows_where(rows, layout=layout, cells=1.0)[0]["full"] == 0
        assert rows_where(rows, layout=layout, cells=2.0)[0]["full"] == 1
    assert all(row["cells"] <= row["effective"] for row in rows)


@pytest.mark.full  # light: test_the_cliff_of_a_small_array_is_no_farther
def test_the_cliff_stands_between_1_20_and_1_23():
    rows = list(lhc.cliff_rows(1_000_000, 1))
    for layout in ("spread", "element"):
        assert rows_where(rows, layout=layout, cells=1.2)[0]["full"] == 0
        assert rows_where(rows, layout=layout, cells=1.23)[0]["full"] == 1
    assert rows_where(rows, layout="published", cells=1.5)[0]["full"] == 0
    assert all(row["cells"] <= row["effective"] < row["cells"] + 1024 / 70_000 for row in rows)


def test_the_headline_needs_one_bit_or_a_very_sparse_union():
    reached = {row["assumption"]: row for row in lhc.headline_rows()}
    assert reached["spread layout, OR on the way"]["demo_5%_reaches"] == "yes"
    assert reached["spread layout, 4-bit sums (NCCL)"]["demo_5%_reaches"] == "no"
    assert all(row["independent_5%_x8"] < 6.33 for row in reached.values())
    shares = {row["communication_share"]: row["6.33x_reaches_3.74x"] for row in lhc.iteration_rows()}
    assert shares[0.87] == "no" and shares[0.9] == "yes"


def test_simulated_gains_follow_the_closed_form():
    """Within 2 % in the network; over a ring too, with the latency of its steps, which two messages pay twice."""
    n = 100_000_000
    for row in lhc.throughput_rows():
        if row["over"] == "in-network":
            assert row["speed_up"] == pytest.approx(row["closed_form"], rel=0.02)
            continue
        steps = 2 * (row["workers"] - 1)
        dense_s = steps / row["workers"] * 4 * n / 12.5e9
        with_latency = (dense_s + steps * 4e-6) / (dense_s / row["closed_form"] + 2 * steps * 4e-6)
        assert row["speed_up"] == pytest.approx(with_latency, rel=2e-3)


def test_dense_models_gain_nothing_without_sparsification():
    rows = list(lhc.model_rows(INSTANT))
    for row in rows_where(rows, model="bert-base"):
        assert (row["speed_up"] > 1) == (row["support"] == "top 1 % identical")
    assert min(row["speed_up"] for row in rows_where(rows, support="top 1 % identical")) > 20


@pytest.mark.parametrize("n", [2**14, pytest.param(2**17, marks=pytest.mark.full)])
def test_fixed_point_loses_only_its_rounding(n):
    for row in lhc.baseline_rows(n):
        if row["codec"] == "lossless, fixed point":
            assert row["nmse"] < 1e-15
        if row["codec"] == "lossless, fp32":
            assert row["nmse"] < 1e-11  # near the threshold a peel is deep; at 1.5 cells an item it is below 1e-13
        if row["codec"] == "THC, 4 bits":
            assert 1e-3 < row["nmse"] < 0.1


def test_tables_and_figures_are_left(tmp_path):
    tiny = [{"topology": "switch:2", "algorithm": "ring", "size_bytes": 32, "goodput_Gbps": 1.0}]
    Left("lhc", tmp_path).table("tiny", tiny)
    assert (tmp_path / "tiny.csv").read_text().splitlines()[1] == "switch:2,ring,32,1.0"
    lhc.draw_sizes(tmp_path / "sizes.png", tiny * 2)
    lhc.draw_cliff(tmp_path / "cliff.png", [{"layout": "element", "effective": 1.2, "full": 0.0, "lost": 0.5}])
    line = {"density": 0.1, "workers": 2, "support": "identical", "over": "ring", "index_bits": 4, "speed_up": 2.0}
    lhc.draw_throughput(tmp_path / "throughput.png", [line, line | {"support": "independent"}])
    far = [line | {"support": "independent", "workers": count, "speed_up": count} for count in (2, 4)]
    lhc.draw_throughput(tmp_path / "alike.svg", [line, line | {"workers": 4}, *far])
    text = (tmp_path / "alike.svg").read_text(encoding="utf-8")
    assert "identical supports: workers agree to 1 %" in text
    assert "independent supports<" in text
    bar = {"model": "ncf", "support": "identical", "over": "ring", "iteration_dense_s": 2.0, "iteration_s": 1.0}
    lhc.draw_models(tmp_path / "models.png", [bar, bar | {"over": "in-network"}])
    assert sorted(file.stem for file in tmp_path.glob("*.png")) == ["cliff", "models", "sizes", "throughput"]


def test_tables_of_the_page():
    rows = [{"size": "32 B", "algorithm": name, "time_us": time} for name, time in (("ring", 2.5), ("tree", 123456.7))]
    lines = lhc.table(lhc.pivot(rows, "size", "algorithm", "time_us"), "size")
    assert lines == ["| size | ring | tree |", "|---|--:|--:|", "| 32 B | 2.5 | 123457 |"]


def test_the_page_has_every_table(tmp_path, monkeypatch, capsys):
    """Of arrays of some KiB, and of all-reduces that take what the wire takes: gains are those of the closed form."""
    monkeypatch.setattr(lhc, "MIB", 64)
    monkeypatch.setattr(lhc, "all_reduce_s", lambda fabric, p, size: size / 12.5e9)
    monkeypatch.setattr(lhc, "measure", lambda n, density: SimpleNamespace(rates=lambda: INSTANT))
    cliff = [{"layout": layout, "cells": 1.23, "effective": 1.23, "full": 1.0, "lost": 0.0} for layout in lhc.FORMS]
    monkeypatch.setattr(lhc, "cliff_rows", lambda *words: cliff)
    small = list(lhc.baseline_rows(2**10))
    monkeypatch.setattr(lhc, "baseline_rows", lambda: small)
    nvls = [{"gpus": n, "difference": 0.0} for n in lhc.PUBLISHED_NVLS]
    monkeypatch.setattr(lhc, "nvls_rows", lambda: nvls)
    sizes = [{"topology": "torus:8x8", "algorithm": "ring", "size_bytes": size, "size": f"{size} B", "time_us": 1.0,
              "goodput_Gbps": 8e-3 * size} for size in (32, 1024)]
    monkeypatch.setattr(lhc, "size_rows", lambda quick: sizes)
    run_paper("lhc", tmp_path, quick=True)
    page = (tmp_path / "lhc.md").read_text()
    tables = {file.stem for file in tmp_path.glob("*.csv")}
    assert len(tables) == 13
    assert page.count("\n## ") == 10 and page.count("\n|--") == 13 - 2 + 8 + 3  # gains are eight, the cliff three
    assert {file.stem for file in tmp_path.glob("*.png")} == {f"lhc-{name}" for name in FIGURES}
    assert all(f"../images/lhc-{name}.png" in page for name in FIGURES)
    for row in lhc.throughput_rows():
        assert row["speed_up"] == pytest.approx(row["closed_form"], rel=1e-3)  # sketches are whole rows of lanes
    for row in lhc.model_rows(INSTANT):
        assert row["with_codec_s"] == pytest.approx(row["codec_free_s"])
    slow = next(iter(lhc.model_rows(Rates(1e9, 1e9, 1e-7))))
    assert slow["iteration_with_codec_s"] > slow["iteration_dense_s"] > slow["iteration_s"]
    assert (4, 16) not in {(row["index_bits"], row["workers"]) for row in lhc.throughput_rows()}
    wide = rows_where(lhc.format_rows(), value_bits=16, union=0.1)
    assert [row["dense_expansion"] for row in wide] == [1, 2] and wide[1]["dense_s"] == 2 * wide[0]["dense_s"]
    assert "What reaches the published 6.33x" in capsys.readouterr().out


def test_numbers_in_the_background_are_those_of_the_page():
    """The table of losses stands in two places: the one written by hand must not drift from the one made."""
    docs = ROOT / "docs"
    page = (docs / "papers" / "lhc.md").read_text().split("## Loss")[1].split("##")[0]
    made = {}
    for line in page.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) > 8 and cells[0][0].isdigit():
            made[float(cells[0]), float(cells[1]), int(cells[2])] = float(cells[4])
    background = (docs / "background" / "in_network.md").read_text()
    assert len(made) == 16
    for mean in made.values():
        assert f"{mean:.4g}" in background or f"{mean:.3f}" in background


@pytest.mark.verify
def test_the_whole_quick_run(tmp_path):
    run_paper("lhc", tmp_path, quick=True)
    assert len(list(tmp_path.glob("*.csv"))) == 13
    assert {file.stem for file in tmp_path.glob("*.png")} == {f"lhc-{name}" for name in FIGURES}
    page = (tmp_path / "lhc.md").read_text()
    assert all(f"../images/{file.name}" in page for file in tmp_path.glob("*.png"))
