"""Are figures drawn for every fabric and any rows, the same file for the same input, and without LaTeX or fonts?"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest

from collectives import ALGORITHMS, build
from sim import simulate
from sim.plots.compare import curves_of, draw_comparison, gains
from sim.plots.critical_path import draw_validation
from sim.plots.fabric import draw_heatmap, draw_topology
from sim.plots.layout import CLEARANCE, layout
from sim.plots.style import CYCLE, NARROW, WIDE, figure, line_of, lines_of, size_label
from sim.study.validation import validate
from tests.places import ROOT
from topologies import NPU, TOPOLOGIES, WeftError, from_spec

SAMPLES = [sample for family in TOPOLOGIES.values() for sample in family.samples]
SIGNATURES = {".png": b"\x89PNG", ".pdf": b"%PDF", ".svg": b"<?xml"}


def rows(*algorithms: str, sizes: tuple[int, ...] = (32, 8192, 2**21, 2**29)) -> list[dict[str, Any]]:
    fabric = from_spec("torus:4x4")
    return [simulate(build(name, "all-reduce", fabric, size)).row() for name in algorithms for size in sizes]


@pytest.mark.parametrize("suffix", SIGNATURES)
def test_a_comparison_is_drawn(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"figure{suffix}"
    draw_comparison(rows("swing", "ring"), path)
    assert path.read_bytes().startswith(SIGNATURES[suffix])


@pytest.mark.parametrize("suffix", SIGNATURES)
def test_the_same_figure_is_the_same_file(tmp_path: Path, suffix: str) -> None:
    some = rows("swing", "bucket")
    for name in ("one", "two"):
        draw_comparison(some, tmp_path / f"{name}{suffix}")
    assert (tmp_path / f"one{suffix}").read_bytes() == (tmp_path / f"two{suffix}").read_bytes()


@pytest.mark.table
@pytest.mark.parametrize("sizes", [(2**20,), (4,), (32, 64), (0, 1024)])
@pytest.mark.parametrize("algorithms", [("ring",), ("ring", "bucket")])
def test_few_points_are_drawn(tmp_path: Path, algorithms: tuple[str, ...], sizes: tuple[int, ...]) -> None:
    draw_comparison(rows(*algorithms, sizes=sizes), tmp_path / "figure.png")


def test_the_best_of_several_rows_is_the_curve() -> None:
    some = [{"algorithm": "a", "size_bytes": 8, "time_s": time_s} for time_s in (2.0, 1.0)]
    some += [{"algorithm": "b", "size_bytes": 8, "time_s": 1.5}, {"algorithm": "b", "size_bytes": 0, "time_s": 1.0}]
    curves = curves_of(some)
    assert curves == {"a": [(8, 1.0)], "b": [(8, 1.5)]}
    assert gains(curves) == [(8, 50.0, "a")]


def test_a_validation_is_drawn(tmp_path: Path) -> None:
    fabric = from_spec("torus:4x4")
    some = [validate(simulate(build(name, "all-reduce", fabric, size))).row() for name in ("swing", "bucket")
            for size in (32, 2**20)]
    del some[0]["estimate_s"]  # as of steps over planes
    draw_validation(some, tmp_path / "figure.png")
    assert (tmp_path / "figure.png").read_bytes().startswith(SIGNATURES[".png"])


@pytest.mark.table
@pytest.mark.parametrize("spec", SAMPLES)
def test_every_fabric_has_a_layout(spec: str) -> None:
    """Every NPU has its own place, and every link is a line that starts or ends near one of its nodes."""
    topology = from_spec(spec)
    placed = layout(topology)
    npus = placed.nodes[topology.kind == NPU]
    assert not np.any(np.isnan(npus))
    assert len({(round(x, 6), round(y, 6)) for x, y in npus.tolist()}) == topology.n_npus
    assert len(placed.links) == topology.n_links
    for link, line in enumerate(placed.links):
        ends = placed.nodes[[topology.src[link], topology.dst[link]]]
        gap = np.array([np.hypot(*(line[0] - ends[0])), np.hypot(*(line[-2] - ends[1]))])
        assert np.nanmin(gap) < 2 * CLEARANCE
    assert all(side >= 0 for side in placed.extent())


@pytest.mark.parametrize(
    "spec", ["torus:1", "torus:8x8", "switch:4", "RI(4)_FC(3)_SW(2)", "torus:32x16", "torus:8x8x8"]
)
def test_a_heatmap_is_drawn(tmp_path: Path, spec: str) -> None:
    topology = from_spec(spec)
    draw_heatmap(topology, np.linspace(0, 1, topology.n_links), tmp_path / "figure.png", "title")
    assert (tmp_path / "figure.png").stat().st_size > 1000


@pytest.mark.parametrize("spec", ["torus:1", "hx2mesh:2x2", "fat-tree:4", "torus:4x4x2"])
def test_a_fabric_is_drawn(tmp_path: Path, spec: str) -> None:
    draw_topology(from_spec(spec), tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 1000


def test_a_fabric_too_large_to_see_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WeftError, match="at most 300 can be distinguished"):
        draw_topology(from_spec("torus:32x32"), tmp_path / "figure.png")


@pytest.mark.parametrize(("width", "inches"), [(NARROW, 3.3), (WIDE, 7.0)])
def test_figures_have_the_widths_of_a_page(tmp_path: Path, width: str, inches: float) -> None:
    with figure(tmp_path / "page.png", width) as drawn:
        assert drawn.get_figwidth() == inches
        assert mpl.rcParams["pdf.fonttype"] == 42
        assert mpl.rcParams["text.usetex"] is False
    assert mpl.rcParams["pdf.fonttype"] == mpl.rcParamsDefault["pdf.fonttype"]


def test_unnamed_lines_have_the_colors_of_the_style(tmp_path: Path) -> None:
    with figure(tmp_path / "page.png"):
        colors = mpl.rcParams["axes.prop_cycle"].by_key()["color"]
    assert colors == [line.color for line in CYCLE]


def test_text_stays_text_and_fonts_are_embedded(tmp_path: Path) -> None:
    draw_comparison(rows("swing", sizes=(32, 8192)), tmp_path / "figure.svg")
    draw_comparison(rows("swing", sizes=(32, 8192)), tmp_path / "figure.pdf")
    assert ">swing</text>" in (tmp_path / "figure.svg").read_text(encoding="utf-8")
    pdf = (tmp_path / "figure.pdf").read_bytes()
    assert b"/FontFile2" in pdf
    assert b"/Type3" not in pdf


def test_lines_are_told_apart_without_color() -> None:
    assert len({line.marker for line in CYCLE}) == len({line.color for line in CYCLE}) == len(CYCLE)
    assert len({str(line.dashes) for line in CYCLE}) == len(CYCLE)


def test_an_algorithm_keeps_its_line() -> None:
    alone = {name: lines_of([name])[name] for name in ("swing", "ring", "bucket")}
    together = lines_of(ALGORITHMS)
    assert all(together[name] == line for name, line in alone.items())


def test_variants_of_an_algorithm_have_its_color_beside_others_and_their_own_alone() -> None:
    forms = ("swing (latency)", "swing (bandwidth)")
    beside = lines_of([*forms, "ring"])
    assert {beside[form].color for form in forms} == {line_of("swing").color}
    assert len(set(beside.values())) == 3
    assert len({line.color for line in lines_of(forms).values()}) == 2


def test_lines_of_one_figure_are_all_different() -> None:
    names = [*ALGORITHMS, *map(str, range(len(CYCLE)))]
    assert len(set(lines_of(names).values())) == len(names)


@pytest.mark.parametrize(("size", "label"), [(32, "32 B"), (8192, "8 KiB"), (2**29, "512 MiB"), (3 * 2**29, "1.5 GiB"),
                                             (2**30 - 64, "1 GiB")])
def test_sizes_are_labeled_base_2(size: int, label: str) -> None:
    assert size_label(size) == label


def test_only_the_plots_import_matplotlib() -> None:
    code = (
        "import sys, sim, sim.cli.compare, sim.cli.validate, sim.study.points, sim.study.tables, sim.study.validation;"
        "sys.exit('matplotlib' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0
