"""The report's page without a browser: whole, offline, with every result and nothing that was not said."""

from __future__ import annotations

import base64
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sim.cli import main
from sim.report import report_page
from sim.report.page import SCRIPTS, render
from sim.report.results import read_result, read_results
from sim.report.sections import bars, sections_of
from tests.places import ROOT
from topologies import WeftError

PLAIN = "--quiet --json"
ONE_WAY = ROOT / "examples" / "migrate" / "one-way-ring.xml"


class Page(HTMLParser):
    """Elements by name, and the text of scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, str] = {}
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        tag, attributes = self.elements[-1] if self.elements else ("", {})
        if data.strip():
            self.texts[attributes.get("id") or tag] = data

    @property
    def data(self) -> Any:
        return json.loads(self.texts["data"])


def write(folder: Path, name: str, rows: list[dict[str, Any]], **more: Any) -> None:
    (folder / name).write_text(json.dumps({"weft": "0", "spec": {}, "rows": rows, **more}))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results of several commands."""
    place = tmp_path_factory.mktemp("results")
    (place / "below").mkdir()
    for words in (
        f"compare --topology torus:4x4 --algorithms swing,ring -b 1K -e 64K -f 8 {PLAIN} {place}/a.json",
        f"validate --topology fat-tree:4 --collective all-gather --algorithms direct -b 4K {PLAIN} {place}/b.json",
        f"topology --topology mesh:3 {PLAIN} {place}/below/c.json",
        f"schedule --topology torus:4 --algorithm ring -b 1K {PLAIN} {place}/below/d.json",
        f"bound --topology torus:4x4 {PLAIN} {place}/below/e.json",
    ):
        assert main(words.split()) == 0
    (place / "other.json").write_text("[1]")
    return place


@pytest.fixture(scope="module")
def page(folder: Path) -> Page:
    return Page(report_page(folder, "Title & <b>more", frames=10)[0])


def test_it_needs_nothing_but_itself(page: Page, folder: Path) -> None:
    text, _ = report_page(folder, frames=3)
    fetching = [(tag, attributes) for tag, attributes in page.elements if attributes.keys() & {"src", "href", "srcset"}]
    assert [(tag, one.get("href")) for tag, one in fetching] == [("link", "data:,")]
    assert not re.search(r"@import|url\((?!#)|fetch\(|XMLHttpRequest|import\(", text)
    assert set(re.findall(r"https?://[^\"'\s]+", text)) == {"http://www.w3.org/2000/svg"}  # a name, not an address


def test_it_has_style_script_and_places_for_both(page: Page) -> None:
    tags = [tag for tag, _ in page.elements]
    assert [tags.count(tag) for tag in ("html", "title", "style", "main", "nav", "script")] == [1, 1, 1, 1, 1, 2]
    assert page.texts["title"] == "Title & <b>more"
    assert "class Chart" in page.texts["script"]
    assert "class Fabric" in page.texts["script"]


def test_every_result_has_its_parts_in_the_order_of_the_names(page: Page) -> None:
    shown = {one["file"]: [section["kind"] for section in one["sections"]] for one in page.data["results"]}
    assert shown == {
        "a.json": ["curves", "fabric", "table"], "b.json": ["curves", "bars", "fabric", "table"],
        "below/c.json": ["table"], "below/d.json": ["table"], "below/e.json": ["table"],
    }
    assert page.data["left_out"] == ["other.json is not a result: it is not a JSON object"]
    assert [one["title"] for one in page.data["results"]][:2] == [
        "all-reduce on torus:4x4 (a)", "all-gather on fat-tree:4"]


def test_curves_are_the_rows(page: Page, folder: Path) -> None:
    rows = json.loads((folder / "a.json").read_text())["rows"]
    series = page.data["results"][0]["sections"][0]["series"]
    drawn = {(one["name"], point["size_bytes"]): point["time_s"] for one in series for point in one["points"]}
    assert drawn == {(row["algorithm"], row["size_bytes"]): row["time_s"] for row in rows}
    assert len({one["color"] for one in series}) == 2


def test_bars_sum_to_the_time(page: Page, folder: Path) -> None:
    row = json.loads((folder / "b.json").read_text())["rows"][0]
    section = page.data["results"][1]["sections"][1]
    assert sum(section["rows"][0]["values"]) == pytest.approx(row["time_s"], rel=1e-12)


def test_the_fabric_plays_the_run_of_the_result(page: Page, folder: Path) -> None:
    rows = json.loads((folder / "a.json").read_text())["rows"]
    fabric = next(section for section in page.data["results"][0]["sections"] if section["kind"] == "fabric")
    assert len(fabric["links"]) == 64
    assert len(fabric["nodes"]) == 16
    for play in fabric["plays"]:
        row = next(row for row in rows if play["title"].startswith(row["algorithm"]) and row["size_bytes"] == 65536)
        assert play["time_s"] == row["time_s"]
        loads = np.frombuffer(base64.b64decode(play["loads"]), np.uint8).reshape(10, 64)
        rate, half_a_step = 50e9, 0.5 / 255
        assert loads.mean() / 255 == pytest.approx(_moved(row) / (64 * rate * row["time_s"]), abs=half_a_step)


@pytest.mark.parametrize("words", [
    "validate --topology fat-tree:4 --algorithms in-network,ring -b 1M",
    "compare --topology dgx-a100:1 --algorithms in-network,ring,direct -b 1M",
    f"compare --topology ring:4 --collective all-gather --algorithms {ONE_WAY},ring -b 1M --chunks 4",
])
def test_what_is_played_has_the_chunks_trees_and_discipline_of_its_row(words: str, tmp_path: Path) -> None:
    assert main([*words.split(), *PLAIN.split(), f"{tmp_path}/a.json"]) == 0
    rows = json.loads((tmp_path / "a.json").read_text())["rows"]
    (result,) = Page(report_page(tmp_path, frames=2)[0]).data["results"]
    (fabric,) = (section for section in result["sections"] if section["kind"] == "fabric")
    assert sorted(play["time_s"] for play in fabric["plays"]) == sorted(row["time_s"] for row in rows)


def test_a_row_whose_time_another_run_has_is_not_played(tmp_path: Path) -> None:
    words = "compare --topology ring:4 --algorithms ring -b 1K --chunks 1"
    assert main([*words.split(), *PLAIN.split(), f"{tmp_path}/a.json"]) == 0
    data = json.loads((tmp_path / "a.json").read_text())
    data["rows"][0]["time_s"] *= 2
    (tmp_path / "a.json").write_text(json.dumps(data))
    (result,) = Page(report_page(tmp_path, frames=2)[0]).data["results"]
    assert "fabric" not in [section["kind"] for section in result["sections"]]
    assert "run again by the chunk engine it takes" in result["notes"][0]


def test_names_are_the_same_in_bars_and_curves_heads_are_words_and_links_differ(tmp_path: Path) -> None:
    for name in ("a", "b"):
        words = f"validate --topology fat-tree:4 --algorithms in-network -b 1K -e 4K -f 4 {PLAIN} {tmp_path}/{name}"
        assert main(f"{words}.json".split()) == 0
    results = Page(report_page(tmp_path, frames=2)[0]).data["results"]
    assert [one["title"] for one in results] == ["all-reduce on fat-tree:4 (a)", "all-reduce on fat-tree:4 (b)"]
    curves, bars_of, *_, rows = results[0]["sections"]
    assert [one["name"] for one in curves["series"]] == ["in-network"]
    assert [one["name"] for one in bars_of["rows"]] == ["in-network, 1 KiB", "in-network, 4 KiB"]
    heads = dict(zip(rows["columns"], rows["heads"], strict=True))
    assert heads["size_bytes"] == "size (bytes)"
    assert heads["lower_bound_s"] == "lower bound (s)"
    assert not [head for head in heads.values() if "_" in head]


def _moved(row: dict[str, Any]) -> float:
    """Bytes over all links: those of a schedule whose transfers take one link each, more where they take several."""
    from collectives import build
    from sim.lower.job import lower
    from topologies import from_spec

    form = row["form"] or None
    lowered = lower(build(row["algorithm"], "all-reduce", from_spec("torus:4x4"), row["size_bytes"], form))
    return float((lowered.task_bytes * lowered.images() * lowered.program.hops()).sum())


def test_a_sweep_has_curves_and_a_fabric_for_each_place_on_its_axes(tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text(
        '[topology]\nspec = ["torus:3x3", "ring:4"]\n[collective]\nalgorithms = ["ring"]\n'
        '[model]\nchunks = [1, 4]\n[sweep]\nbegin = "1K"\nend = "4K"\n'
    )
    assert main(["sweep", str(tmp_path / "s.toml"), "--json", str(tmp_path / "s.json"), "--quiet"]) == 0
    (result,) = Page(report_page(tmp_path, frames=4)[0]).data["results"]
    curves = [one for one in result["sections"] if one["kind"] == "curves"]
    assert [one["title"] for one in curves] == ["all-reduce on torus:3x3, by size", "all-reduce on ring:4, by size"]
    assert all({one["name"] for one in two["series"]} == {"ring, chunks 1", "ring, chunks 4"} for two in curves)
    played = [one["title"].partition(" on ")[2] for one in result["sections"] if one["kind"] == "fabric"]
    assert sorted(played) == ["ring:4, chunks 1", "ring:4, chunks 4", "torus:3x3, chunks 1", "torus:3x3, chunks 4"]


def test_what_is_too_large_is_said(tmp_path: Path) -> None:
    row = {"topology": "torus:32x32", "collective": "all-reduce", "algorithm": "swing", "form": "", "size_bytes": 1,
           "time_s": 1.0}
    write(tmp_path, "a.json", [row], spec={"topology": {"spec": "torus:32x32"}})
    write(tmp_path, "b.json", [row | {"topology": "nowhere"}], spec={"topology": {"spec": "nowhere"}})
    many = {"topology": {"spec": "torus:4x4"}, "model": {"chunks": 1_000_000}}
    write(tmp_path, "c.json", [row | {"topology": "torus:4x4", "size_bytes": 2**30}], spec=many)
    notes = [one["notes"] for one in Page(report_page(tmp_path)[0]).data["results"]]
    assert "1,024 nodes and 4,096 links" in notes[0][0]
    assert notes[1][0].startswith("the fabric is not drawn: ")
    assert "services, more than 400,000" in notes[2][0]


def test_text_cannot_leave_its_place() -> None:
    evil = "</script><script>alert(1)</script><!-- &"
    text = render(evil, {"results": [], "left_out": [evil]})
    assert text.count("<script") == 2
    assert "alert(1)</script>" not in text
    assert Page(text).data["left_out"] == [evil]


def test_many_parts_are_put_together_by_kind() -> None:
    parts = {f"{kind}, dimension {dim}": 1.0 for kind in ("queueing", "serialization") for dim in range(5)}
    (section,) = bars("t", ["one"], [parts], "s")
    assert [part["name"] for part in section["parts"]] == ["queueing", "serialization"]
    assert section["rows"][0]["values"] == [5.0, 5.0]
    assert bars("t", [], [], "s") == []


def test_training_and_optimization_have_bars(tmp_path: Path) -> None:
    write(tmp_path, "t.json", [{"topology": "x", "workload": "gpt-3", "loop": "wfbp", "npu": 0, "time_s": 3.0,
                                "compute_s": 2.0, "exposed_s": 1.0,
                                "parts": [{"kind": "dp", "dimension": "0", "exposed_s": 0.4},
                                          {"kind": "dp", "dimension": "1", "exposed_s": 0.6}]}])
    write(tmp_path, "u.json", [{"bandwidth_GBps": [300.0, 200.0], "time_s": 1.0, "objective": "time"}])
    (trained, designed), _ = read_results(tmp_path)
    section = sections_of(trained)[0]
    assert [part["name"] for part in section["parts"]] == ["computation", "exposed dp"]
    assert section["rows"][0]["values"] == [2.0, 1.0]
    assert sections_of(designed)[0]["rows"] == [{"name": "time", "values": [300.0, 200.0]}]


@pytest.mark.parametrize(
    ("content", "said"),
    [("{", "is not JSON"), ("[]", "is not a JSON object"), ("{}", "has no rows"), ('{"rows": ["x"]}', "has no rows"),
     ("\udcff", "is not UTF-8 text")],
)
def test_a_folder_without_results_is_refused(tmp_path: Path, content: str, said: str) -> None:
    (tmp_path / "a.json").write_bytes(content.encode("utf-8", "surrogateescape"))
    with pytest.raises(WeftError, match=f"has no results.*{said}"):
        read_results(tmp_path)


@pytest.mark.parametrize("value", ["x", True])
def test_a_column_with_a_unit_holds_numbers(value: object, tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps({"rows": [{"algorithm": "ring", "size_bytes": 4, "time_s": value}]}))
    with pytest.raises(WeftError, match=f"a.json, row 0: time_s is {value!r}: give a number"):
        read_result(path, "a.json")


def test_bad_input_takes_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, "a.json", [{"x": 1}])
    for words, said in (
        ([str(tmp_path / "none")], "is not a folder"), ([str(tmp_path), "--frames", "0"], "--frames 0 is out of range"),
        ([str(tmp_path), "--page", str(tmp_path / "a.pdf")], "has the suffix '.pdf'"),
    ):
        assert main(["report", *words]) == 2
        heard = capsys.readouterr().err
        assert said in heard
        assert heard.count("\n") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.json"]


def test_the_page_goes_to_standard_output(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, "a.json", [{"x": 1}])
    assert main(["report", str(tmp_path), "--page", "-", "--quiet"]) == 0
    said = capsys.readouterr()
    assert said.out.startswith("<!doctype html>")
    assert said.err == ""


def test_every_script_is_in_the_page(page: Page) -> None:
    assert len(SCRIPTS) == 7
    assert page.texts["script"].count("{") == page.texts["script"].count("}")


def test_the_trade_offs_of_an_optimization_are_its_front(tmp_path: Path) -> None:
    words = "optimize --network RI(4)_SW(8) --workload resnet-50 --budget 100GB/s --evaluator analytic"
    assert main([*words.split(), *PLAIN.split(), f"{tmp_path}/a.json"]) == 0
    front = json.loads((tmp_path / "a.json").read_text())["front"]
    (result,), _ = read_results(tmp_path)
    section = next(one for one in sections_of(result) if one["kind"] == "pareto")
    assert section["points"] == sorted(front, key=lambda point: point["cost"])
    assert any(point["total_GBps"] == pytest.approx(100, rel=1e-9) for point in front)  # the budget that was asked for
    assert all(sum(point["bandwidth_GBps"]) == pytest.approx(point["total_GBps"]) for point in front)
    damaged = result._replace(data={**result.data, "front": [{"cost": 1}, 2]})
    assert "pareto" not in [one["kind"] for one in sections_of(damaged)]
