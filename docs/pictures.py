"""Draws the figures of the papers again from the tables of their pages, computing nothing: `python -m docs.pictures`.

Pages show long tables in part; what they leave out is not drawn. `pipeline` and `hardware` draw from what they compute.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from sim.papers import lhc, libra, swing, topoopt
from sim.papers.libra import GainPoint
from sim.papers.swing import Comparison, published
from topologies.units import parse_size

DOCS = Path(__file__).parent
IMAGES = DOCS / "images"
Row = dict[str, Any]


def value(text: str) -> Any:
    """A cell: a number, None for "-" or nothing, or text."""
    if text in ("-", ""):
        return None
    if text == "inf" or not re.fullmatch(r"[-+]?[0-9.]+(e[-+]?[0-9]+)?", text):
        return text
    return float(text) if re.search("[.e]", text) else int(text)


def tables(page: str) -> list[tuple[str, list[str], list[list[Any]]]]:
    """Each table of a page in Markdown: the last line of text before it, its columns and its rows."""
    found: list[tuple[str, list[str], list[list[Any]]]] = []
    before, inside = "", False
    for line in (DOCS / "papers" / page).read_text(encoding="utf-8").splitlines():
        if not line.startswith("|"):
            before, inside = line or before, False
            continue
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not inside:
            found.append((before, cells, []))
        elif not line.startswith("|--"):
            found[-1][2].append([value(cell) for cell in cells])
        inside = True
    return found


def columns(page: str) -> dict[str, list[Row]]:
    """The tables of a page in columns of text, by the word before their first colon."""
    found: dict[str, list[Row]] = {}
    for block in (DOCS / "papers" / page).read_text(encoding="utf-8").split("```")[1::2]:
        title, head, *lines = block.strip("\n").split("\n")
        ends = [match.end() for match in re.finditer(r"\S+", head)]
        starts = [0, *ends[:-1]]
        names = head.split()
        found[title.partition(":")[0]] = [
            {name: value(line[start:end].strip()) for name, start, end in zip(names, starts, ends, strict=True)}
            for line in lines if len(line) == len(head)
        ]
    return found


def draw_swing() -> None:
    """Simulated times are published ones and their errors, to a twentieth of a percent."""
    sizes = published()["sizes"]
    points: dict[str, list[Comparison]] = {}
    for _, head, rows in tables("swing.md")[:1]:
        for topology, algorithm, *errors in rows:
            plotted = published()["topologies"][topology]
            small = plotted["runtime_us_32B_to_32KiB"].get(algorithm, [])
            for at, (size, cell) in enumerate(zip(head[2:], errors, strict=True)):
                if cell is None or size not in sizes:
                    continue
                error, Gbps = float(cell.split()[0]) / 100, plotted["goodput_Gbps"][algorithm][at]
                published_us = small[at] if at < len(small) else 8e-3 * parse_size(size) / Gbps
                simulated_us = published_us * (1 + error)
                points.setdefault(topology, []).append(Comparison(
                    topology, algorithm, "", parse_size(size), published_us, simulated_us, Gbps,
                    8e-3 * parse_size(size) / simulated_us, error, None))
    for topology, own in points.items():
        swing.draw(IMAGES / f"swing-{topology}", topology, own)
        (IMAGES / f"swing-{topology}.pdf").unlink()


def draw_libra() -> None:
    rows = next(rows for _, head, rows in tables("libra.md") if head[3] == "GB/s")
    libra.draw(IMAGES, [
        GainPoint(network, workload, goal, budget, time, cost, time_too, cost_too, best, best_cost, "", "", 0)
        for network, workload, goal, budget, time, time_too, best, cost, cost_too, best_cost in rows
    ])


def draw_topoopt() -> None:
    """Of `all_to_all`, `cluster` and `switching` the page has too few rows."""
    found = columns("topoopt.md")
    for name in ("iterations", "twisted", "following", "dedicated"):
        topoopt.draw(name, found[name], IMAGES / f"topoopt-{name}.png")


def draw_lhc() -> None:
    found = {before: (head, rows) for before, head, rows in tables("lhc.md")}
    layouts = found["Arrays decoded in full:"][0][1:]
    cliff = [
        {"layout": layout, "effective": cells[1 + at], "full": full[1 + at], "lost": lost[1 + at]}
        for at, layout in enumerate(layouts)
        for cells, full, lost in zip(*(found[title][1] for title in (
            "Cells per item in complete rows:", "Arrays decoded in full:", "Items lost:")), strict=True)
    ]
    lhc.draw_cliff(IMAGES / "lhc-cliff.png", cliff)
    speed_up = [
        {"support": match[1], "over": match[2], "index_bits": int(match[3]), "workers": int(workers),
         "density": row[0], "speed_up": row[1 + at]}
        for before, (head, rows) in found.items()
        if (match := re.match(r"Speed-up, (\w+) supports, ([\w-]+), (\d)-bit", before))
        for row in rows for at, workers in enumerate(head[1:])
    ]
    lhc.draw_throughput(IMAGES / "lhc-throughput.png", speed_up)
    models = next([dict(zip(head, row, strict=True)) for row in rows] for head, rows in found.values()
                  if head[0] == "model")
    lhc.draw_models(IMAGES / "lhc-models.png", models)
    sizes = [
        {"topology": before.strip("`:"), "algorithm": algorithm, "size_bytes": parse_size(row[0].replace(" ", "")),
         "goodput_Gbps": 8e-3 * parse_size(row[0].replace(" ", "")) / row[1 + at]}
        for before, (head, rows) in found.items() if before.startswith("`") and head[0] == "size"
        for at, algorithm in enumerate(head[1:]) for row in rows
    ]
    lhc.draw_sizes(IMAGES / "lhc-sizes.png", sizes)


DRAWN = {"swing": draw_swing, "libra": draw_libra, "topoopt": draw_topoopt, "lhc": draw_lhc}


if __name__ == "__main__":
    for name in sys.argv[1:] or DRAWN:
        DRAWN[name]()
