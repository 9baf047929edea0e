"""What papers leave: tables as files, on the screen and in Markdown, a page, and figures."""

from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from sim.study.tables import aligned, to_csv
from sim.whole_file import write_text_whole
from topologies.checks import WeftError

Row = dict[str, Any]


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

    def page(self, text: str) -> None:
        """Write the page of docs/papers."""
        write_text_whole(self.out / f"{self.name}.md", text)


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


def md_head(*names: str, numbers: int = 0) -> list[str]:
    """The first two lines of a table in Markdown, whose last columns are numbers."""
    return [md_line(*names), "|" + "---|" * (len(names) - numbers) + "--:|" * numbers]


def md_line(*cells: Any) -> str:
    """A line of it."""
    return f"| {' | '.join(cell(one, 5) for one in cells)} |"
