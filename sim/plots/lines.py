"""A line for every algorithm, the same in all figures and in the report; and the colors of load."""

from collections.abc import Iterable
from itertools import count
from typing import Any, NamedTuple
from zlib import crc32

from collectives.formats.names import SUFFIX
from collectives.registry import ALGORITHMS


class Line(NamedTuple):
    """Color, marker and dashes: each alone distinguishes lines, in gray print too."""

    color: str
    marker: str
    dashes: str | tuple[int, tuple[float, ...]]
    hollow: bool = False

    def style(self) -> dict[str, Any]:
        """Arguments for `Axes.plot`: a line with markers."""
        face = {"markerfacecolor": "white", "markeredgecolor": self.color, "markeredgewidth": 0.8}
        return {"marker": self.marker, **self.curve(),
                **(face if self.hollow else {"markeredgecolor": "white", "markeredgewidth": 0.5})}

    def curve(self) -> dict[str, Any]:
        """Arguments for `Axes.plot`: the line alone, for what is simulated where `points` are published or measured."""
        dashes = (1.0, 0.0) if isinstance(self.dashes, str) else self.dashes[1]
        # The more gaps, the higher: where lines coincide, the lower one shows through.
        return {"color": self.color, "linestyle": self.dashes, "zorder": 2 + sum(dashes[1::2]) / sum(dashes)}

    def points(self) -> dict[str, Any]:
        """Arguments for `Axes.plot`: hollow markers alone, for what was published or measured."""
        return self._replace(hollow=True).style() | {"linestyle": "none", "zorder": 3}


CYCLE = (
    Line("#0072B2", "o", "-"),
    Line("#D55E00", "s", (0, (5, 1.5))),
    Line("#009E73", "^", (0, (3, 1, 1, 1))),
    Line("#CC79A7", "D", (0, (1.2, 1.2))),
    Line("#E69F00", "v", (0, (7, 1.2, 1.2, 1.2))),
    Line("#56B4E9", "P", (0, (4, 1, 1, 1, 1, 1))),
    Line("#8C2D6B", "X", (0, (2, 1))),
    Line("#333333", "h", (0, (10, 2.5))),
)
"""Colors that the color-blind can distinguish (six of Okabe and Ito, 2008), each with its own marker and dashes."""

OTHERS = (
    Line("#4B0082", "p", "-", hollow=True),
    Line("#999933", "*", (0, (6, 2)), hollow=True),
    Line("#7B68EE", "<", (0, (2, 2)), hollow=True),
    Line("#117733", ">", (0, (8, 1.5, 2, 1.5)), hollow=True),
    Line("#58508D", "d", (0, (4, 1.5, 1.5, 1.5)), hollow=True),
    Line("#00441B", "8", (0, (3, 3)), hollow=True),
)
"""Lines of what is no algorithm, such as a layout or a fabric: no color of an algorithm."""

_DARK = ("#4DA3DB", "#FF8A4C", "#43D6A8", "#FF9ED2", "#FFD24A", "#A8E4FF", "#8E6FE0", "#F2F4F7",
         "#B9A7FF", "#FFE8A8", "#6FB0A0", "#8FBF5F", "#B5835A", "#A0FFD0")
ON_DARK = dict(zip((line.color for line in (*CYCLE, *OTHERS)), _DARK, strict=True))
"""The colors of lines on dark paper."""

HEAT_ON_DARK = ("#3b4656", "#3468a0", "#4b93d8", "#c48ae0", "#ffc9cf")
"""From idle to busy, monotonically lighter."""

HEAT_STOPS = ("#dbe4ee", "#93bfe8", "#4f8fd0", "#8e4fa5", "#800026")
"""From idle to busy, monotonically darker for every eye. Idle links are pale, not white: they exist."""

_OTHER_MARKERS, _HOLLOW_MARKERS = "H.*dp<>8", "H.1234+x"
"""Beyond two rounds of the cycle; the latter, by turns, are none of `OTHERS`."""

_PLACES = (
    "swing", "recursive-doubling", "bucket", "ring", "pipelined", "direct", "mirrored-recursive-doubling",
    "hierarchical",
    "dimension-wise", "bfb", "tacos", "parameter-server", "totient-rings", "nccl-rings", "double-binary-tree",
    "in-network",
    "themis", "concurrent-flow", "tree", "pairwise", "nccl-trees", "nvls-trees", "pat", "trivance",
    "bine", "bruck", "recursive-multiplying",
)
"""Algorithms by place, a row of colors each: what is often compared differs in color; others of the registry follow."""

_FILE_PLACES = 24
"""Lines that files share."""


def line_of(algorithm: str) -> Line:
    """The line of an algorithm of the registry, the same in every figure."""
    others = (name for name in ALGORITHMS if name not in _PLACES)
    return _line([*_PLACES, *others].index(algorithm))


def lines_of(names: Iterable[str]) -> dict[str, Line]:
    """A line for every series of a figure, all different.

    An algorithm has its own, and so has a file, as long as no other of the figure takes it first. Variants,
    "swing (latency)" or "swing, chunks 4", have its color, with other markers and dashes, if the figure is of several
    algorithms; otherwise the first has its line. Everything else has lines of `OTHERS`.
    """
    names = list(dict.fromkeys(names))
    bases = {name: _algorithm(name) for name in names}
    found = {name: line_of(name) for name in names if name in ALGORITHMS}
    for name in names:
        if name.endswith(SUFFIX):
            found[name] = next(line for line in _of_files(name) if line not in found.values())
        elif name not in found and bases[name] and (len(set(bases.values())) > 1 or name == names[0]):
            found[name] = next(line for line in _variants(line_of(bases[name])) if line not in found.values())
    free = (_line(place, OTHERS) for place in count())
    return {name: found.get(name) or next(free) for name in names}


def _of_files(name: str) -> Iterable[Line]:
    """Lines for a file, by its name, which no algorithm has: a line of places beyond them."""
    others = len({*_PLACES, *ALGORITHMS})
    first = crc32(name.encode()) % _FILE_PLACES
    return (_line(others + (first + at) % _FILE_PLACES) for at in range(_FILE_PLACES))


def _algorithm(series: str) -> str:
    """The algorithm that the name of a series begins with, or ""."""
    first = series.partition(",")[0].partition(" ")[0]
    return first if first in ALGORITHMS else ""


def _variants(line: Line) -> Iterable[Line]:
    yield line
    yield from (place for place in map(_line, count()) if place.color == line.color)


def _line(place: int, cycle: tuple[Line, ...] = CYCLE) -> Line:
    """Beyond the cycle, colors repeat with other dashes: first hollow markers, then other shapes and longer dashes."""
    again, at = divmod(place, len(cycle))
    shifted = cycle[(at + 3 * again) % len(cycle)]
    hollow = shifted.hollow != (again % 2 == 1)
    markers = _HOLLOW_MARKERS if hollow and cycle is CYCLE else _OTHER_MARKERS
    marker = shifted.marker if again < 2 else markers[(at + again) % len(markers)]
    dashes = shifted.dashes
    if again > 1 and not isinstance(dashes, str):
        dashes = (0, tuple(1.8 * length for length in dashes[1]))
    return Line(cycle[at].color, marker, dashes, hollow)
