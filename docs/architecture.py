"""Draws docs/images/architecture.png, the packages and the direction of imports: `python -m docs.architecture`."""

from __future__ import annotations

import tomllib
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

ROOT = Path(__file__).parents[1]
ROOMS = {
    "sim": ("when it arrives", "#dce6f5", "#2f5d9b"),
    "workloads": ("why it moves", "#e0f0e3", "#2f7a45"),
    "collectives": ("what must move", "#fbecd6", "#a8641b"),
    "topologies": ("what the network is", "#f3e0ec", "#8c3a73"),
}
"""Top-level packages, top to bottom: the question each answers, its light color and its dark one."""

SIM = {
    "cli": "commands", "papers": "published results", "report": "offline HTML", "measured": "real machines",
    "study": "specs, sweeps", "scenarios": "tenants, optics, pools", "library": "what NCCL does",
    "plots": "figures",
    "simulation": "front door", "optimizer": "best design", "result": "times, provenance", "why": "critical path",
    "analytic": "bounds", "faults": "what goes wrong", "timeline": "every chunk", "lower": "job to program",
    "engine": "kernel, oracle", "certify": "is it right", "astra": "ASTRA-sim",
    "program": "servers, tasks, dependencies",
}
"""What the packages of `sim` hold."""


def floors() -> list[dict[str, str]]:
    """The packages of `sim` as the contract of imports orders them."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = settings["tool"]["importlinter"]["contracts"]
    layers = next(one["layers"] for one in contracts if one.get("containers") == ["sim"])
    rows = [[name.strip() for name in layer.split("|")] for layer in layers]
    return [{name: SIM[name] for name in row if name in SIM} for row in rows]


ROWS: dict[str, list[dict[str, str]]] = {
    "sim": floors(),
    "workloads": [{"job": "operations", "training": "iterations", "models": "GPT to DLRM", "compression": "codec",
                   "topoopt": "co-design", "formats": "Chakra, GOAL"}],
    "collectives": [{"each algorithm": "one file", "trees": "packed trees", "formats": "MSCCL, ForestColl",
                     "core": "schedule, proof"}],
    "topologies": [{"each family": "one file", "flows": "cuts, bounds", "formats": "NCCL, GraphML",
                    "machines": "GPUs, NICs", "text": "strict readers", "core": "links, routes"}],
}
"""Packages of each room and what they hold, from importers to imported."""


def rows_of(room: str) -> list[list[tuple[str, str]]]:
    """The rows of a room without packages that do not exist; raises if a package of the room is in no row."""
    found = {path.parent.name for path in (ROOT / room).glob("*/__init__.py")}
    files = {path.stem for path in (ROOT / room).glob("*.py")}
    missing = found - {name for row in ROWS[room] for name in row}
    if missing:
        raise SystemExit(f"docs/architecture.py: no row for {', '.join(sorted(missing))} of {room}")
    kept = [[(name, what) for name, what in row.items() if name in found | files or " " in name] for row in ROWS[room]]
    return [row for row in kept if row]


def draw(path: Path) -> None:
    """Draw the packages, one row per floor."""
    height, gap, left, right = 0.62, 0.13, 2.85, 12.6
    rooms = {room: rows_of(room) for room in ROOMS}
    total = sum(len(rows) * (height + gap) + 0.36 for rows in rooms.values())
    figure, axes = plt.subplots(figsize=(10.5, 10.5 * total / 12.9))
    top = total
    for room, rows in rooms.items():
        question, light, dark = ROOMS[room]
        size = len(rows) * (height + gap) + gap
        axes.add_patch(FancyBboxPatch((0.45, top - size), right - 0.3, size, boxstyle="round,pad=0,rounding_size=0.12",
                                      facecolor=light, edgecolor="none"))
        axes.text(0.65, top - size / 2 + 0.12, f"{room}/", color=dark, fontsize=12.5, fontweight="bold", va="center")
        axes.text(0.65, top - size / 2 - 0.2, question, color=dark, fontsize=9, va="center", style="italic")
        for floor, row in enumerate(rows):
            width = (right - left - gap * (len(row) - 1)) / len(row)
            for place, (name, what) in enumerate(row):
                x, y = left + place * (width + gap), top - gap - (floor + 1) * height - floor * gap
                axes.add_patch(FancyBboxPatch((x, y), width, height, boxstyle="round,pad=0,rounding_size=0.08",
                                              facecolor="white", edgecolor=dark, linewidth=0.8))
                axes.text(x + width / 2, y + height * 0.66, name, ha="center", va="center", fontsize=9.5)
                axes.text(x + width / 2, y + height * 0.29, what, ha="center", va="center", fontsize=7.6, color="#555")
        top -= size + 0.23
    axes.add_patch(FancyArrowPatch((0.2, total - 0.1), (0.2, top + 0.35), arrowstyle="-|>", mutation_scale=14,
                                   color="#555555", linewidth=1.2))
    axes.text(0.02, (total + top) / 2, "imports", rotation=90, va="center", ha="center", fontsize=9, color="#555555")
    axes.set_xlim(-0.15, right + 0.25)
    axes.set_ylim(top + 0.1, total + 0.08)
    axes.axis("off")
    figure.savefig(path, dpi=150, bbox_inches="tight", metadata={"Software": None})
    plt.close(figure)


if __name__ == "__main__":
    draw(ROOT / "docs" / "images" / "architecture.png")
