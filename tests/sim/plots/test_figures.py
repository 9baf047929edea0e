"""Every figure by name, in both widths; the trees on the fabric are trees; the roof is above every run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

from collectives import algorithms_for, build
from sim import simulate
from sim.analytic.cut_bound import roof
from sim.cli import main
from sim.plots.compare import assumptions, by_npus, common_size
from sim.plots.critical_path import draw_critical_path, kind_of, row_names
from sim.plots.figures import FIGURES, Drawing, draw
from sim.plots.style import NARROW, WIDE, line_of, log_ticks, number, size_label, time_label, time_unit
from sim.plots.timeline import draw_link_timeline
from sim.plots.trees import draw_steps, draw_trees, step_loads, ways_of
from sim.study.spec import Spec
from sim.study.validation import validate
from topologies import NPU, WeftError, from_links, from_spec

FABRICS = ("torus:4x4", "mesh:4")


def spec_of(fabric: str) -> Spec:
    return Spec.from_dict({"topology": {"spec": fabric}, "collective": {"algorithms": ["swing", "bucket"]},
                           "sweep": {"begin": "1K", "end": "1M", "factor": 32}})


@pytest.fixture(scope="module")
def rows() -> list[dict[str, Any]]:
    """Rows of two algorithms and three sizes on a torus, with their critical paths."""
    return [validate(simulate(one)).row() for one in spec_of("torus:4x4").schedules()]


@pytest.mark.parametrize(
    ("name", "columns"), [("comparison", 1), ("comparison", 2), ("speed-up", 1), ("roofline", 2), ("account", 1)]
)
def test_every_figure_is_drawn(name: str, columns: int, rows: list[dict[str, Any]], tmp_path: Path) -> None:
    path = tmp_path / "figure.svg"
    draw(name, Drawing(rows, path, columns, [spec_of("torus:4x4")], baseline="bucket"))
    text = path.read_text()
    assert text.startswith("<?xml")
    inches = float(text.partition('width="')[2].partition("pt")[0]) / 72
    assert inches == pytest.approx({1: 3.3, 2: 7.0}[columns])


@pytest.mark.parametrize("columns", [2])
def test_a_scaling_is_drawn(columns: int, rows: list[dict[str, Any]], tmp_path: Path) -> None:
    larger = [simulate(build("ring", "all-reduce", from_spec("ring:8"), size)).row() for size in (1024, 2**15)]
    both = [*rows, *larger]
    assert common_size(both) == 2**15
    assert {npus for own in by_npus(both).values() for npus in own} == {8, 16}
    draw("scaling", Drawing(both, tmp_path / "figure.svg", columns))
    old = [{key: value for key, value in row.items() if key != "npus"} for row in both]
    assert by_npus(old).keys() == by_npus(both).keys()  # rows of before, that did not say how many


def test_every_figure_has_a_help() -> None:
    assert FIGURES.keys() == {"comparison", "speed-up", "roofline", "account", "scaling"}


@pytest.mark.parametrize(
    ("name", "changes", "said"),
    [
        ("pie", {}, "figure 'pie' is unknown: choose one of comparison"),
        ("comparison", {"columns": 3}, "--columns 3"),
        ("comparison", {"rows": []}, "nothing to draw"),
        ("speed-up", {"baseline": "tree"}, "baseline 'tree' is not among the algorithms: swing, bucket"),
        ("scaling", {}, "scaling needs fabrics of several sizes"),
        ("scaling", {"size_bytes": 7}, "at 7 B there is 0"),
        ("roofline", {"specs": []}, "a roofline needs the fabric"),
    ],
)
def test_what_cannot_be_drawn_is_refused(
    name: str, changes: dict[str, Any], said: str, rows: list[dict[str, Any]], tmp_path: Path
) -> None:
    given: dict[str, Any] = {"rows": rows, "path": tmp_path / "figure.svg", "specs": [spec_of("torus:4x4")]} | changes
    with pytest.raises(WeftError, match=said):
        draw(name, Drawing(**given))
    assert list(tmp_path.iterdir()) == []


def rows_of(fabric: str, *algorithms: str, sizes: tuple[int, ...] = (64, 1024, 2**15, 2**20, 2**25)) -> list[Any]:
    topology = from_spec(fabric)
    return [simulate(build(name, "all-reduce", topology, size)).row() for name in algorithms for size in sizes]


@pytest.mark.table
@pytest.mark.parametrize("columns", [1, 2])
@pytest.mark.parametrize("name", ["comparison", "speed-up", "roofline"])
@pytest.mark.parametrize("fabrics", [FABRICS, (*FABRICS, "fat-tree:4", "ring:8", "ring:4")])
def test_fabrics_are_drawn_side_by_side_on_one_scale(
    fabrics: tuple[str, ...], name: str, columns: int, tmp_path: Path, inspected: list[Figure]
) -> None:
    mixed = [row for fabric in fabrics for row in rows_of(fabric, "ring", "direct", sizes=(64, 2**15, 2**25))]
    draw(name, Drawing(mixed, tmp_path / "figure.svg", columns, [spec_of(fabric) for fabric in fabrics]))
    (drawn,) = inspected
    panels = [axes for axes in drawn.axes if axes.get_title(loc="left") in fabrics]
    assert [axes.get_title(loc="left") for axes in panels] == list(fabrics)
    assert len({axes.get_ylim() for axes in panels}) == 1
    assert len({axes.get_yscale() for axes in panels}) == 1
    colors = [{line.get_label(): line.get_color() for line in axes.lines} for axes in panels]
    assert all(own["direct"] == line_of("direct").color for own in colors)


@pytest.mark.full
@pytest.mark.table
@pytest.mark.parametrize("name", ["comparison", "speed-up", "roofline"])
@pytest.mark.parametrize("gain", [0.5, 2.0])
def test_a_range_covers_all_panels_in_any_order(
    name: str, gain: float, tmp_path: Path, inspected: list[Figure]
) -> None:
    """`inspected` refuses curves beyond their axes; the fifth panel is in a second row."""
    here = rows_of("ring:4", "ring", "direct", sizes=(64, 2**25))
    mixed = [
        row | {"topology": f"ring:{place + 4}",
               "time_s": row["time_s"] / gain ** (place * (2 if row["algorithm"] == "direct" else 1))}
        for place in range(5) for row in here
    ]
    draw(name, Drawing(mixed, tmp_path / "figure.png", 2, [spec_of(f"ring:{place + 4}") for place in range(5)]))
    panels = [axes for axes in inspected[0].axes if axes.get_title(loc="left").startswith("ring:")]
    assert len(panels) == 5
    assert len({axes.get_ylim() for axes in panels}) == 1


@pytest.mark.full
@pytest.mark.table
@pytest.mark.parametrize("columns", [1, 2])
@pytest.mark.parametrize("some", [("swing",), ("swing", "ring"), algorithms_for("all-reduce")])
def test_the_runtime_of_small_arrays_is_on_a_logarithmic_axis(
    some: tuple[str, ...], columns: int, tmp_path: Path, inspected: list[Figure]
) -> None:
    here = rows_of("torus:4x4", "swing", "ring")
    every = [row | {"algorithm": name} for name in some for row in here if row["algorithm"] == "swing"]
    draw("comparison", Drawing([*here, *every], tmp_path / "figure.pdf", columns))
    scales = {axes.get_ylabel(): axes.get_yscale() for axes in inspected[0].axes}
    assert scales["goodput (Gb/s)"] == "linear"
    assert scales["time (µs)"] == "log"


def test_rows_of_several_collectives_make_no_comparison(rows: list[dict[str, Any]], tmp_path: Path) -> None:
    mixed = [*rows, rows[0] | {"collective": "broadcast"}]
    with pytest.raises(WeftError, match="a comparison is of one collective: here are all-reduce, broadcast"):
        draw("comparison", Drawing(mixed, tmp_path / "figure.svg"))
    with pytest.raises(WeftError, match="needs rows with their critical path"):
        draw("account", Drawing([row | {"why": {}} for row in rows], tmp_path / "figure.svg"))
    alone = [row for row in rows if row["algorithm"] == "swing"]
    with pytest.raises(WeftError, match="another algorithm beside swing"):
        draw("speed-up", Drawing(alone, tmp_path / "figure.svg"))


TREES = [
    ("torus:4x4", "pipelined", "all-gather"), ("leaf-spine:2x2x2", "pipelined", "all-gather"),
    ("switch:4", "pipelined", "reduce-scatter"), ("mesh:3x3", "pipelined", "all-reduce"),
    ("torus:4x4", "swing", "all-reduce"), ("torus:4x4", "pipelined", "broadcast"), ("ring:5", "ring", "reduce-scatter"),
]


@pytest.mark.parametrize(("fabric", "algorithm", "kind"), TREES)
def test_the_way_of_a_block_spans_all_npus(fabric: str, algorithm: str, kind: str) -> None:
    """What adds leads every NPU to the root, what spreads leads the root to every NPU, in the order of the steps."""
    schedule = build(algorithm, kind, from_spec(fabric), "1MiB")
    topology, ways = schedule.topology, ways_of(schedule, 2)
    assert ways
    everyone = set(range(topology.n_npus))
    for way in ways:
        assert np.all(np.diff(way.step) >= 0)
        ends = {adds: set(_npus(topology, way.link[way.adds == adds], starts=adds)) for adds in (True, False)}
        if kind not in ("all-gather", "broadcast"):
            assert ends[True] >= everyone - {way.root}
        if kind not in ("reduce-scatter", "reduce"):
            assert ends[False] >= everyone - {way.root}
    owners = {"all-gather": 2, "reduce-scatter": 2, "broadcast": 0}
    if kind in owners:
        assert {way.root for way in ways} == {owners[kind]}


def _npus(topology: Any, links: Any, starts: bool) -> list[int]:
    nodes = (topology.src if starts else topology.dst)[links]
    return [int(node) for node in nodes if topology.kind[node] == NPU]


@pytest.mark.parametrize(("fabric", "algorithm", "kind"), TREES)
def test_steps_load_links_with_all_bytes(fabric: str, algorithm: str, kind: str) -> None:
    from sim.lower.job import lower

    schedule = build(algorithm, kind, from_spec(fabric), "1MiB")
    lowered = lower(schedule, symmetry="off")
    crossed = int((lowered.task_bytes * lowered.program.hops()).sum())
    assert sum(int(load.sum()) for _, load in step_loads(schedule)) == crossed


def test_trees_and_steps_are_drawn(tmp_path: Path) -> None:
    schedule = build("pipelined", "all-reduce", from_spec("mesh:3x2"), "1MiB")
    draw_trees(schedule, tmp_path / "trees.svg", 1, WIDE)
    draw_steps(schedule, tmp_path / "steps.svg", NARROW)
    assert all("xml" in path.read_text()[:10] for path in tmp_path.iterdir())


def test_trees_that_cannot_be_told_apart_are_refused(tmp_path: Path) -> None:
    with pytest.raises(WeftError, match="at most 300 can be distinguished"):
        draw_trees(build("ring", "all-reduce", from_spec("ring:400"), "1MiB"), tmp_path / "a.svg")


@pytest.mark.parametrize(("algorithm", "symmetry", "width"), [("bucket", "auto", NARROW), ("ring", "off", WIDE)])
def test_a_run_is_drawn(algorithm: str, symmetry: str, width: str, tmp_path: Path) -> None:
    """Of few links as bars, of many as an image; the path by links, or by classes where it is long."""
    schedule = build(algorithm, "all-reduce", from_spec("torus:4x4"), "64KiB")
    result = simulate(schedule, symmetry=symmetry, chunks=4)
    draw_link_timeline(result, tmp_path / "timeline.svg", width=width)
    draw_critical_path(result, tmp_path / "path.svg", width=width)
    for name in ("timeline", "path"):
        text = (tmp_path / f"{name}.svg").read_text(encoding="utf-8")
        assert re.search(r"\d µs<", text)
        assert not re.search(r"\d us\b", text)
    why = result.why()
    assert len(row_names(result, why)) == len(why.pieces)
    assert {kind_of(name) for name in why.parts} <= {"serialization", "queueing", "propagation", "hop processing"}


def test_a_run_that_takes_no_time_has_no_picture(tmp_path: Path) -> None:
    result = simulate(build("ring", "all-reduce", from_spec("torus:1"), "64KiB"))
    for drawn in (draw_link_timeline, draw_critical_path):
        with pytest.raises(WeftError, match="takes no time"):
            drawn(result, tmp_path / "a.svg")


@pytest.mark.parametrize(("seconds", "unit"), [(2, "s"), (0.5, "ms"), (2e-6, "µs"), (3e-9, "ns"), (1e-12, "ns")])
def test_time_has_a_unit_that_suits(seconds: float, unit: str) -> None:
    assert time_unit(seconds)[1] == unit


def test_labels_of_axes_are_all_different_and_in_usual_units() -> None:
    assert [size_label(2**20 * mib) for mib in (1, 1.5, 1000, 1022, 2**10, 2**21)] == [
        "1 MiB", "1.5 MiB", "1000 MiB", "1022 MiB", "1 GiB", "2 TiB"]
    assert [number(value) for value in (2e4, 1e5, 2e5, 1e-5)] == ["20000", "$10^{5}$", r"$2\cdot10^{5}$", "$10^{-5}$"]
    assert [time_label(1e-6 * us) for us in (0.5, 10, 1e3, 1e5, 2e6)] == ["500 ns", "10 µs", "1 ms", "100 ms", "2 s"]


def test_a_comparison_says_that_chunks_were_chosen(rows: list[dict[str, Any]]) -> None:
    fixed = [row | {"chunks_chosen": None} for row in rows[:1]]
    assert "chunks per transfer" in assumptions(fixed)
    chosen = [row | {"chunks": 64, "chunks_chosen": 64} for row in fixed]
    assert "chunks as chosen for each point" in assumptions(chosen)
    assert "chunks as each row says" in assumptions([*fixed, fixed[0] | {"chunks": 99}])


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [(1, 12, [1, 2, 5, 10]), (25, 31, [26, 28, 30]), (0.4, 900, [1, 10, 100]), (1e-4, 1e5, [1e-4, 1e-2, 1, 1e2, 1e4])],
)
def test_logarithmic_axes_have_round_labels(low: float, high: float, ticks: list[float]) -> None:
    assert log_ticks(low, high, 5) == pytest.approx(ticks)


@pytest.mark.table
@pytest.mark.parametrize("kind", ["all-reduce", "all-gather", "reduce-scatter", "all-to-all", "broadcast", "reduce"])
@pytest.mark.parametrize("fabric", ["torus:3x2", "switch:3"])
def test_no_run_is_above_the_roof(fabric: str, kind: str) -> None:
    topology = from_spec(fabric)
    top = roof(topology, kind, reducing_switches=True)
    for name in algorithms_for(kind):
        for size in (64, 2**20):
            try:
                schedule = build(name, kind, topology, size)
            except WeftError:
                break  # it does not run here
            assert simulate(schedule, chunks=4).time_s >= top.time_s(size) * (1 - 1e-12)


def test_the_roof_of_a_lopsided_line() -> None:
    """There and back differ, parallel links count by the quickest, and at the ridge both limits are equal."""
    fabric = from_links([(0, 1, "1GB/s", "1us"), (0, 1, "1GB/s", "2us"), (1, 0, "1GB/s", "5us")], 2, hop_latency="0ns")
    assert roof(fabric, "broadcast").latency_s == 1e-6
    assert roof(fabric, "reduce").latency_s == 5e-6
    top = roof(fabric, "all-gather", endpoint_latency_ps=1_000_000)
    assert top.latency_s == 6e-6
    assert top.time_s(top.ridge_bytes) == top.latency_s
    assert roof(from_spec("torus:1"), "all-gather").time_s(2**20) == 0
    assert roof(from_spec("torus:1"), "all-gather").ridge_bytes == 0


def test_figures_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = f"compare --topology torus:4x4 --algorithms swing,ring -b 1K -e 32K -f 32 --json {tmp_path}/a.json"
    assert main([*words.split(), "--figure", "speed-up", "--plot", str(tmp_path / "a.svg")]) == 0
    roofline = f"plot {tmp_path}/a.json --figure roofline --columns 1 --plot {tmp_path}/b.svg"
    assert main(roofline.split()) == 0
    assert main(["plot", f"{tmp_path}/a.json", "--algorithms", "ring", "--plot", f"{tmp_path}/c.svg"]) == 0
    assert main(["plot", f"{tmp_path}/a.json", "--algorithms", "ring", "--json", "-"]) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.json", "a.svg", "b.svg", "c.svg"]
    capsys.readouterr()
    (tmp_path / "other.json").write_text('{"rows": [{"x": 1}]}')
    for more, said in (
        ([f"{tmp_path}/none.json"], "cannot be read"), ([f"{tmp_path}/other.json"], "its rows have no topology"),
        ([f"{tmp_path}/a.json", "--algorithms", "tree"], "--algorithms tree: the results have swing, ring"),
        ([f"{tmp_path}/a.json", "--figure", "scaling", "--size", "x"], "--size"),
    ):
        assert main(["plot", *more, "--plot", f"{tmp_path}/d.svg"]) == 2
        heard = capsys.readouterr().err
        assert said in heard
        assert heard.count("\n") == 1
    assert main(["plot", f"{tmp_path}/a.json"]) == 2
    assert "write --plot FILE (or --json)" in capsys.readouterr().err


def test_a_schedule_is_drawn_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = f"schedule --topology torus:2x2 --collective all-gather --algorithm pipelined --plot {tmp_path}/a.svg"
    assert main(words.split()) == 0
    assert main(["schedule", "--topology", "torus:4x4", "--algorithm", "swing", "--plot", f"{tmp_path}/b.svg"]) == 2
    assert "--plot draws one schedule" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["a.svg"]
