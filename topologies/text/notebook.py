"""Objects in notebooks: a small table of HTML, and rows as a data frame."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from topologies.checks import WeftError, checked
from topologies.text.brief import WIDTH, cut

if TYPE_CHECKING:
    import pandas

CELL_WIDTH = 80
"""Characters of a cell."""


def html_table(title: str, cells: Mapping[str, object]) -> str:
    """A table with a row per cell, complete in itself: no style sheet, no script; all text is escaped.

    `title`: the caption.
    `cells`: what a row is called, and what it holds; None is left out.

    Examples
    --------
    >>> html_table("fabric", {"NPUs": 16, "name": "<a>"})
    '<table><caption>fabric</caption><tr><th>NPUs</th><td>16</td></tr><tr><th>name</th><td>&lt;a&gt;</td></tr></table>'
    """
    rows = (
        f"<tr><th>{escape(name)}</th><td>{escape(_cell(value))}</td></tr>"
        for name, value in cells.items() if value is not None
    )
    return f"<table><caption>{escape(cut(title))}</caption>{''.join(rows)}</table>"


def _cell(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else cut(str(value), CELL_WIDTH)


@checked
def to_frame(rows: Iterable[Mapping[str, Any]]) -> pandas.DataFrame:
    """Rows as a data frame of pandas, with a column for every key in the order in which they first appear.

    Always of pandas; `pyarrow.Table.from_pandas(to_frame(rows))` is a table of Arrow.

    Parameters
    ----------
    rows : iterable of mapping
        Of `Result.row`, `sweep_rows`, or the JSON of any command; a key that a row lacks is missing there.

    Raises
    ------
    WeftError
        pandas is not installed.

    Examples
    --------
    >>> to_frame([{"size_bytes": 1024, "time_s": 1e-6}, {"size_bytes": 2048}]).shape
    (2, 2)
    """
    try:
        import pandas  # an extra: loaded by those who ask for a frame
    except ImportError:
        raise WeftError("a data frame needs pandas: pip install 'weft[frame]', or take the rows as they are") from None

    table = [dict(row) for row in rows]
    return pandas.DataFrame(table, columns=list(dict.fromkeys(name for row in table for name in row)))


class Tabular:
    """What has rows gives them as a data frame."""

    def rows(self) -> Sequence[Mapping[str, Any]]:
        """Rows of a table: one dictionary each."""
        raise NotImplementedError

    def to_frame(self) -> pandas.DataFrame:
        """`rows()` as a data frame of pandas; WeftError: it is not installed."""
        return to_frame(self.rows())


class Rows(list[dict[str, Any]], Tabular):
    """A list of rows; `repr` has its size and its columns.

    Examples
    --------
    >>> Rows([{"size_bytes": 1024, "time_s": 1e-6}])
    <1 x 2: size_bytes, time_s>
    """

    def __repr__(self) -> str:
        columns = dict.fromkeys(name for row in self for name in row)
        return f"<{cut(f'{len(self)} x {len(columns)}: ' + ', '.join(columns), WIDTH - 2)}>"

    def rows(self) -> Rows:
        """The rows themselves: what `rows()` of any result gives."""
        return self
