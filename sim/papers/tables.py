"""What papers leave: tables as files, on the screen and in Markdown, a page, and figures.

The words of a page are in `pages/NAME.md`; "{name}" stands there for a number or for the lines of a table.
"""

import csv
import re
import tomllib
from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from sim.study.tables import aligned, to_csv
from sim.whole_file import write_text_whole
from topologies.checks import WeftError
from topologies.text.input_text import read_input
from topologies.text.kinds import refuse_other

Row = dict[str, Any]

PAGES = Path(__file__).parent / "pages"


def read_published(name: str) -> dict[str, Any]:
    """What others have published, as `data/NAME.toml` has it."""
    return tomllib.loads((PAGES.parent / "data" / f"{name}.toml").read_text(encoding="utf-8"))


class Left:
    """The folder of a paper.

    Attributes
    ----------
    out : Path
        Where its figures go.
    tables : dict of str to str
        Its tables as CSV, by name.
    """

    def __init__(self, name: str, out: Path) -> None:
        self.name, self.out = name, out
        self.tables: dict[str, str] = {}

    def table(self, name: str, rows: Iterable[Row]) -> None:
        """Write rows as CSV, with the columns of the first."""
        self.tables[name] = to_csv(list(rows))
        write_text_whole(self.out / f"{name}.csv", self.tables[name])

    def page(self, **parts: Any) -> str:
        """Write the page of docs/papers, and return it.

        `parts`: by the names in its words: a number, text, or lines; None leaves out the section that it stands in.
        """
        words = (PAGES / f"{self.name}.md").read_text(encoding="utf-8")
        kept = (one for one in re.split("^(?=## )", words, flags=re.MULTILINE)
                if all(part is not None for name, part in parts.items() if f"{{{name}}}" in one))
        plain = (str, int, float)
        filled = {name: one if isinstance(one, plain) else "\n".join(one or ()) for name, one in parts.items()}
        text = "".join(kept).format_map(filled)
        write_text_whole(self.out / f"{self.name}.md", text)
        return text


def run_paper(name: str, out: Path, quick: bool, **more: Any) -> Left:
    """Compute a paper, print what it finds, and leave tables, page and figures in a folder.

    `name`: of `sim.papers.PAPERS`.
    `quick`: a part that takes less than a minute.
    `**more`: what the paper takes besides.
    WeftError: the folder cannot be made.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as fault:
        raise WeftError(f"--out {out}: {fault.strerror}") from None
    left = Left(name, out)
    import_module(f"sim.papers.{name}").run(left, quick, **more)
    return left


def read_rows(path: str, what: str, columns: Sequence[str]) -> list[dict[str, str]]:
    """Rows of measurements of others, in the columns of our own.

    WeftError: the file cannot be read, lacks a column, or has a line of another length.
    """
    name = f"{what} {path}"
    try:
        rows = list(csv.DictReader((text := read_input(path, what)).splitlines()))
    except csv.Error as wrong:
        raise WeftError(f"{name} are not CSV: {wrong}") from None
    for column in columns:
        if not rows or column not in rows[0]:
            refuse_other(text, path, what)
            raise WeftError(f"{name} lack the column {column!r}: expected are {', '.join(columns)}")
    for number, row in enumerate(rows, start=2):
        if None in row.values() or None in row:
            raise WeftError(f"{name}, line {number} has not as many cells as the head")
    return rows


def cell(value: Any, digits: int = 4) -> str:
    """A value as text: numbers of some digits, "-" where there is none."""
    if value is None:
        return "-"
    return f"{value:.{digits}g}" if isinstance(value, float) else str(value)


PAGE = 10_000
"""Characters of a line that is not broken."""


def as_text(rows: Sequence[Row], width: int = PAGE, shown: Callable[[Any], str] = cell) -> str:
    """Rows in columns, right-justified under their names; what is wider than `width` goes on below."""
    table = aligned([list(rows[0]), *([shown(row.get(column)) for column in rows[0]] for row in rows)], width=width + 2)
    return "\n".join(line[2:] for line in table.splitlines())


def picture(name: str, what: str, paper: str) -> list[str]:
    """A figure of a page, and the command that draws it."""
    return [f"![{what}](../images/{name}.png)", "", f"*{what[0].upper()}{what[1:]}: `weft paper {paper}`.*", ""]


def md_table(names: Sequence[str], rows: Iterable[Sequence[Any]], numbers: int = 0) -> list[str]:
    """A table in Markdown, whose last columns are numbers."""
    rule = "|" + "---|" * (len(names) - numbers) + "--:|" * numbers
    head, *lines = (f"| {' | '.join(cell(one, 5) for one in row)} |" for row in (names, *rows))
    return [head, rule, *lines]
