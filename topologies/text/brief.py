"""How objects show: on one line, whatever they hold; in notebooks a table of HTML, and rows as a data frame."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from typing import TYPE_CHECKING, Any, TypeGuard, TypeVar

import numpy as np

from topologies.checks import WeftError, checked, nearest, told
from topologies.lazy import later

if TYPE_CHECKING:
    import pandas

WIDTH = 120
"""Characters of a `repr`."""

VALUE_WIDTH = 40
"""Characters of one value within it."""

T = TypeVar("T")

escape = later("html:escape")


def one_line(cls: type[T]) -> type[T]:
    """Class decorator: `repr` names the fields that differ from their defaults, long values by their size alone.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> @one_line
    ... @dataclass
    ... class Rates:
    ...     name: str
    ...     rate_Bps: np.ndarray
    ...     seed: int = 0
    >>> Rates("links", np.zeros((64, 2)))
    Rates(name='links', rate_Bps=<(64, 2) float64>)
    """
    cls.__repr__ = _brief  # type: ignore[method-assign]  # one for all classes
    return cls


class UnknownName(WeftError, KeyError):
    """A registry has no such name."""

    __str__ = ValueError.__str__  # that of KeyError has quotes around it


class Registry(dict[str, T]):
    """Things by name; `repr` is one line, and a name that is not there is answered with the nearest.

    Examples
    --------
    >>> Registry("colors", {"red": 1, "blue": 2})
    <2 colors: red, blue>
    """

    def __init__(self, what: str, things: Mapping[str, T]) -> None:
        super().__init__(things)
        self.what = what

    def __missing__(self, name: object) -> T:
        raise UnknownName(f"no such name among {self.what}: {told(name)}{nearest(name, self)}")

    def __repr__(self) -> str:
        return f"<{cut(f'{len(self)} {self.what}: ' + ', '.join(self), WIDTH - 20)}>"


def cut(text: str, width: int = WIDTH) -> str:
    """Text on one line; what is too long loses its middle."""
    text = " ".join(text.split())
    keep = (width - 3) // 2
    return text if len(text) <= width else f"{text[:width - 3 - keep]}...{text[-keep:]}"


def _brief(self: object) -> str:
    name, shown, dots = type(self).__name__, "", "..."
    for field, value in _told(self):
        part = f"{', ' if shown else ''}{field}={_value(value)}"
        if len(name) + len(shown) + len(part) + len(dots) + 4 > WIDTH:
            return f"{name}({shown}{', ' if shown else ''}{dots})"
        shown += part
    return f"{name}({shown})"


def _told(thing: object) -> Iterator[tuple[str, object]]:
    """Fields and values that are not plain defaults."""
    if is_dataclass(thing):
        for field in fields(thing):
            if field.repr and field.init:
                value = getattr(thing, field.name)
                default = field.default_factory() if field.default_factory is not MISSING else field.default
                if not _same(value, default):
                    yield field.name, value
        return
    defaults = getattr(thing, "_field_defaults", {})
    for name in getattr(thing, "_fields", ()):
        value = getattr(thing, name)
        if not _same(value, defaults.get(name, MISSING)):
            yield name, value


def _same(value: object, default: object) -> bool:
    if isinstance(value, np.ndarray):
        return False
    return value is default or (type(value) is type(default) and bool(value == default))


def _is_collection(value: object) -> TypeGuard[Collection[object]]:
    """Whether its length says how much is in it: a NamedTuple's is only its number of fields."""
    return isinstance(value, (tuple, list, dict, set, frozenset)) and not hasattr(value, "_fields")


def _value(value: object) -> str:
    if isinstance(value, np.ndarray):
        return f"<{value.shape if value.ndim != 1 else value.size} {value.dtype}>"
    if _is_collection(value) and len(value) > VALUE_WIDTH // 3:
        return f"<{type(value).__name__} of {len(value)}>"  # at least three characters an item
    if callable(value):
        return f"<{getattr(value, '__name__', type(value).__name__)}>"
    text = repr(value)
    if len(text) <= VALUE_WIDTH and text.isprintable():
        return text
    if _is_collection(value):
        return f"<{type(value).__name__} of {len(value)}>"
    return cut(text, VALUE_WIDTH) if isinstance(value, (str, int, float)) else f"{type(value).__name__}(...)"


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
