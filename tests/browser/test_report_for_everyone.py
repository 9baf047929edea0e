"""The report on a phone, in the dark, in print, by keyboard and read aloud: every kind of result on one page."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from docs import gallery
from sim.cli import main
from tests.browser.chromium import Chromium, find

pytestmark = pytest.mark.browser

PHONE, DESK = 390, 1000

RESULTS = (
    "compare --topology torus:4x4 --algorithms swing,ring,recursive-doubling -b 1K -e 1M -f 32",
    "validate --topology fat-tree:4 --algorithms in-network,double-binary-tree -b 1K -e 1M -f 1024",
    "train --topology torus:4x4 --workload resnet-50 --samples 32 --peak 312 --efficiency 0.5",
    "optimize --network RI(4)_SW(8) --workload resnet-50 --budget 100GB/s --evaluator analytic",
    "topology --topology mesh:3",
    "schedule --topology torus:4 --algorithm ring -b 1K",
    "bound --topology torus:4x4",
)

WIDE_ELEMENTS = """[...document.querySelectorAll('body *')]
  .filter((e) => !e.closest('svg') && !e.closest('.scroll > *') && e.getBoundingClientRect().right > innerWidth + 1)
  .map((e) => e.outerHTML.slice(0, 90))"""

PALE_TEXTS = """(() => {
  const channels = (color) => color.match(/[0-9.]+/g).map(Number);
  const linear = (c) => (c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
  const luminance = (color) => {
    const [r, g, b] = channels(color).map(linear);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const paper = (e) => { for (; e; e = e.parentElement) {
    const found = getComputedStyle(e).backgroundColor;
    if ((channels(found)[3] ?? 1) > 0) return found;
  } return 'rgb(255, 255, 255)'; };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), pale = new Set();
  let read = 0;
  while (walker.nextNode()) {
    const text = walker.currentNode, e = text.parentElement;
    if (!text.data.trim() || !e.checkVisibility() || e.closest('script, style, noscript, option, title')) continue;
    const style = getComputedStyle(e), ink = e.closest('svg') ? style.fill : style.color;
    const [high, low] = [luminance(ink), luminance(paper(e))].sort((a, b) => b - a);
    read += 1;
    if ((high + 0.05) / (low + 0.05) < 4.5) pale.add(`${text.data.slice(0, 40)}: ${ink} on ${paper(e)}`);
  }
  return [read, [...pale]];
})()"""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    assert find(), "there is no Chromium on this machine: make test-browser installs one"
    folder = tmp_path_factory.mktemp("results")
    for words in RESULTS:
        assert main([*words.split(), "--quiet", "--json", f"{folder}/{words.split()[0]}.json"]) == 0
    assert main(["report", str(folder), "--quiet", "--title", "A-long-title-of-one-word-" * 5]) == 0
    with Chromium(tmp_path_factory.mktemp("profile")) as chromium:
        chromium.look()
        chromium.open(folder / "report.html")
        chromium.run("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
        yield chromium
        assert chromium.complaints == []


def test_every_kind_of_figure_is_there(page: Chromium) -> None:
    for selector in (".chart", ".pareto", ".bars", ".fabric", "table"):
        assert page.run(f"document.querySelectorAll('{selector}').length") > 0


@pytest.mark.parametrize("width", [PHONE, 600, DESK])
def test_nothing_is_wider_than_the_window(page: Chromium, width: int) -> None:
    page.look(width)
    assert page.run("innerWidth") == width
    assert page.run("document.documentElement.scrollWidth") <= width
    assert page.run(WIDE_ELEMENTS) == []


def test_text_in_charts_keeps_its_size_on_a_phone(page: Chromium) -> None:
    page.look(PHONE)
    for selector in (".chart text", ".pareto text", ".curve text"):
        page.wait(f"document.querySelector('{selector}').getBoundingClientRect().height > 9")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [PHONE, DESK])
def test_text_can_be_read(page: Chromium, width: int, scheme: str) -> None:
    page.look(width, scheme)
    read, pale = page.run(PALE_TEXTS)
    assert read > 100
    assert pale == []


def test_paper_is_dark_where_the_reader_wants_it_and_lines_are_lighter(page: Chromium) -> None:
    stroke = "getComputedStyle(document.querySelector('.chart .series')).stroke"
    found: dict[str, Any] = {}
    for scheme in ("light", "dark"):
        page.look(DESK, scheme)
        found[scheme] = page.run("getComputedStyle(document.body).backgroundColor"), page.run(stroke)
    assert _sum(found["dark"][0]) < 100 < 600 < _sum(found["light"][0])
    assert _sum(found["dark"][1]) > _sum(found["light"][1])


def _sum(color: str) -> int:
    return sum(int(part) for part in color.removeprefix("rgb(").removesuffix(")").split(","))


def test_print_is_on_white_paper_without_controls(page: Chromium) -> None:
    page.look(DESK, "dark", "print")
    assert page.run("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    controls = "[...document.querySelectorAll('.controls button, .controls input, nav')]"
    assert page.run(f"{controls}.filter((e) => e.checkVisibility()).length") == 0
    assert page.run(PALE_TEXTS)[1] == []
    page.look()


def test_everything_that_can_be_used_has_a_name(page: Chromium) -> None:
    used = {"button", "combobox", "slider", "link", "region", "application", "image", "table", "columnheader", "main",
            "navigation"}
    named = page.named()
    assert {"button", "combobox", "slider", "application", "image", "region"} <= {role for role, _ in named}
    assert [role for role, name in named if role in used - {"main", "table"} and not name.strip()] == []


def test_every_control_is_reached_by_tab(page: Chromium) -> None:
    controls = "document.querySelectorAll('a[href], button, select, input, summary, [tabindex]')"
    page.run("document.activeElement.blur()")
    reached = set()
    for _ in range(page.run(f"{controls}.length") + 5):
        page.press("Tab", 9)
        reached.add(page.run(f"[...{controls}].indexOf(document.activeElement)"))
    assert reached - {-1} == set(range(page.run(f"{controls}.length")))


def test_arrows_walk_along_the_points_of_a_chart(page: Chromium) -> None:
    said = "document.querySelector('.tooltip').innerText"
    page.run("document.querySelector('.chart').focus()")
    told = []
    for key, code in (("ArrowRight", 39), ("ArrowRight", 39), ("ArrowDown", 40), ("ArrowLeft", 37)):
        page.press(key, code)
        told.append(page.run(said).partition("\n")[0])
    assert told == ["swing (latency form), 1 KiB", "swing (latency form), 32 KiB", "ring, 32 KiB", "ring, 1 KiB"]
    ends = "document.querySelector('.chart').dataset.x"
    whole = page.run(ends)
    page.press("+", 187)
    assert page.run(ends) != whole
    page.press("0", 48)
    assert page.run(ends) == whole
    page.press("Escape", 27)
    assert page.run("document.querySelector('.tooltip').hidden") is True


def test_the_slider_walks_along_the_trade_offs(page: Chromium) -> None:
    page.run("document.querySelector('.design').focus()")
    words = "document.querySelector('.traded').innerText"
    first = page.run(words)
    assert first.startswith("100 GB/s per NPU")  # the answer's own budget is a point of its front
    page.press("ArrowRight", 39)
    dearer = page.run(words)
    assert dearer != first
    assert "The next cheaper one costs" in dearer
    page.click(".pareto .dot:nth-of-type(1)")
    assert "25 GB/s per NPU" in page.run(words)
    assert page.run("document.querySelector('.design').value") == "0"


def test_trade_offs_are_those_of_the_result(page: Chromium) -> None:
    data = json.loads(page.run("document.getElementById('data').textContent"))
    section = next(one for part in data["results"] for one in part["sections"] if one["kind"] == "pareto")
    costs = [point["cost"] for point in section["points"]]
    assert costs == sorted(costs)
    assert section["points"][section["chosen"]]["total_GBps"] == pytest.approx(100, rel=1e-12)
    assert all(point["time_s"] <= point["equal_time_s"] for point in section["points"])


def test_the_gallery_is_made_by_its_commands_and_fits_a_phone(
    page: Chromium, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    gallery.run(gallery.DOCS / "gallery.md")
    kept = {report.name for report in (gallery.DOCS / "gallery").glob("*.html")}
    assert {report.name for report in tmp_path.glob("*.html")} == kept
    page.look(PHONE, "dark")
    for name in sorted(kept):
        page.open(gallery.DOCS / "gallery" / name)
        assert page.run("document.documentElement.scrollWidth") <= PHONE
        assert page.run(WIDE_ELEMENTS) == []
