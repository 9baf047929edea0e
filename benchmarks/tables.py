"""Tables of docs/performance_tables.md: measured one by one, each kept at once; what is not measured anew stays."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

FILE = Path(__file__).parents[1] / "docs" / "performance_tables.md"


class Table(NamedTuple):
    """What one table is: its rows are measured as they are asked for."""

    title: str
    head: Sequence[str]
    rows: Callable[[], Iterable[Sequence[str]]]
    note: str = ""


def show(table: Table) -> str:
    """Measure a table, printing row by row; returns it as markdown."""
    load = f"Load {os.getloadavg()[0]:.1f} when it began. {table.note}".strip()
    lines = [load, "", "| " + " | ".join(table.head) + " |", "|" + "---|" * len(table.head)]
    print("\n".join(["", f"## {table.title}", "", *lines]), flush=True)
    for row in table.rows():
        lines.append("| " + " | ".join(row) + " |")
        print(lines[-1], flush=True)
    return "\n".join(lines)


def kept() -> dict[str, str]:
    """The tables of the file, by title."""
    sections = FILE.read_text(encoding="utf-8").split("\n## ")[1:]
    return {title: text.strip() for title, _, text in (section.partition("\n") for section in sections)}


def keep(texts: Mapping[str, str]) -> None:
    """Write the file."""
    parts = [f"# Performance: all tables\n\nMeasured on {machine()}.", *(f"## {t}\n\n{x}" for t, x in texts.items())]
    FILE.write_text("\n\n".join(parts) + "\n", encoding="utf-8")


def cell(texts: Mapping[str, str], title: str, row: str | tuple[str, ...], column: str) -> str:
    """What stands in a table; `row`: its first cell, or its first cells."""
    head, *lines = rows_of(texts, title)
    first = (row,) if isinstance(row, str) else row
    found = [line for line in lines if tuple(line[: len(first)]) == first]
    assert len(found) == 1, f"{title}: {len(found)} rows {first}"
    return found[0][head.index(column)]


def rows_of(texts: Mapping[str, str], title: str) -> list[list[str]]:
    """The cells of a table, its head first."""
    return [line.strip("| ").split(" | ") for line in texts[title].splitlines() if line.startswith("| ")]


def machine() -> str:
    """What the numbers were measured on."""
    return f"{processor()}, Python {platform.python_version()}, numba {version('numba')}, numpy {version('numpy')}"


def processor() -> str:
    """Its name, where the system tells it."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return f"{len(names)} cores of {names[0]}" if names else platform.machine()
