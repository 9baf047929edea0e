"""The page: style, script and data in one template, so that it needs neither a server nor the network."""

import json
from collections import Counter
from collections.abc import Callable
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

from sim.plots.lines import HEAT_ON_DARK, HEAT_STOPS, ON_DARK
from sim.report.results import ResultFile, read_results
from sim.report.sections import fabric_sections, sections_of, title_of
from sim.version import weft_version
from topologies import WeftError

FRAMES = 60
"""Default number of points in time of the slider."""

MOST_FRAMES = 1000

SCRIPTS = ("dom.js", "chart.js", "pareto.js", "bars.js", "fabric.js", "table.js", "page.js")
"""In the order in which they need each other."""


def report_page(
    folder: Path, title: str | None = None, frames: int = FRAMES, done: Callable[[str], None] = lambda name: None
) -> tuple[str, list[str]]:
    """The report of a folder of results.

    `folder`: its JSON files, including those in subfolders, are the results.
    `title`: default: "Results in FOLDER".
    `frames`: points in time that the slider shows of a run.
    `done`: called after each file.
    Returns HTML with style, script and data inside, and a line for each JSON file that is not shown.
    WeftError: no such folder, no results, or a number of frames out of range.
    """
    if not 1 <= frames <= MOST_FRAMES:
        raise WeftError(f"--frames {frames} is out of range: from 1 to {MOST_FRAMES}")
    results, left_out = read_results(folder)
    shown = []
    for result in results:
        shown.append(_part(result, frames))
        done(result.name)
    alike = Counter(one["title"] for one in shown)
    for one in shown:
        if alike[one["title"]] > 1:
            one["title"] += f" ({one['file'].removesuffix('.json')})"
    title = title or f"Results in {folder.resolve().name}"
    return render(title, {"results": shown, "left_out": left_out}), left_out


def _part(result: ResultFile, frames: int) -> dict[str, Any]:
    fabric, notes = fabric_sections(result, frames)
    sections = sections_of(result)
    return {
        "file": result.name, "title": title_of(result), "notes": notes,
        "sections": [*sections[:-1], *fabric, sections[-1]],
    }


def render(title: str, data: dict[str, Any]) -> str:
    """The page from plain data; no `<` in the data can end its script element."""
    here = files("sim.report")
    colors = {"heat": [HEAT_STOPS, HEAT_ON_DARK], "on_dark": ON_DARK}
    text = json.dumps(data | colors, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    return Template((here / "template.html").read_text(encoding="utf-8")).substitute(
        version=escape(weft_version()),
        title=escape(title),
        style=(here / "page.css").read_text(encoding="utf-8"),
        script="\n".join((here / name).read_text(encoding="utf-8") for name in SCRIPTS),
        data=text,
    )
