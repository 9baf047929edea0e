"""How figures look: sizes for a two-column page, and a line style for every algorithm, the same in all figures."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib.style
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

_HERE = Path(__file__).parent

NARROW, WIDE = "narrow", "wide"
"""3.3 in: one column of a two-column page; 7 in: both."""


class Line(NamedTuple):
    """Colour, marker and dashes: each alone tells lines apart, in grey print too."""

    color: str
    marker: str
    dashes: str | tuple[int, tuple[float, ...]]

    def style(self) -> dict[str, Any]:
        """Arguments for `Axes.plot`."""
        return {"color": self.color, "marker": self.marker, "linestyle": self.dashes,
                "markeredgecolor": "white", "markeredgewidth": 0.5}


CYCLE = (
    Line("#0072B2", "o", "-"),
    Line("#D55E00", "s", (0, (5, 1.5))),
    Line("#009E73", "^", (0, (3, 1, 1, 1))),
    Line("#CC79A7", "D", (0, (1.2, 1.2))),
    Line("#E69F00", "v", (0, (6, 1.2, 1.2, 1.2))),
    Line("#56B4E9", "P", (0, (4, 1, 1, 1, 1, 1))),
    Line("#7A5195", "X", (0, (2, 1))),
    Line("#333333", "h", (0, (7, 2))),
)
"""Colours that the colour-blind tell apart (Okabe and Ito, 2008), each with its own marker and dashes."""


_OWN = ("swing", "recursive-doubling", "bucket", "ring", "pipelined", "direct", "mirrored-recursive-doubling",
        "hierarchical")
"""Algorithms that have a line of their own, that of their place in the cycle."""


def lines_of(algorithms: Iterable[str]) -> dict[str, Line]:
    """A line for every algorithm of a figure, all different.

    The commonest keep theirs, so that figures can be laid side by side; the others take what they leave free.
    """
    names = list(dict.fromkeys(algorithms))
    places = {name: _OWN.index(name) for name in names if name in _OWN}
    free = (place for place in count() if place not in places.values())
    return {name: _line(places[name] if name in places else next(free)) for name in names}


def _line(place: int) -> Line:
    """Beyond the cycle, colours come again with other markers and dashes."""
    again, at = divmod(place, len(CYCLE))
    marker, dashes = (CYCLE[(at + shift * again) % len(CYCLE)] for shift in (3, 2))
    return Line(CYCLE[at].color, marker.marker, dashes.dashes)


@contextmanager
def figure(width: str = WIDE, height_in: float | None = None) -> Iterator[Figure]:
    """An empty figure in the style of the package, for use while drawing and saving.

    Parameters
    ----------
    width : {"narrow", "wide"}
    height_in : float, optional
        Instead of the style's own.
    """
    with matplotlib.style.context([str(_HERE / "paper.mplstyle"), str(_HERE / f"{width}.mplstyle")]):
        drawn = Figure()
        FigureCanvasAgg(drawn)
        if height_in is not None:
            drawn.set_figheight(height_in)
        yield drawn


def save(drawn: Figure, path: Path) -> None:
    """Write PNG, PDF or SVG, without a date, so that the same figure is the same file."""
    dated = {".png": {"Software": None}, ".pdf": {"CreationDate": None}, ".svg": {"Date": None}}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", category=UserWarning)  # a glyph that the font lacks
        drawn.savefig(path, metadata=dated.get(path.suffix, {}))


def size_label(size_bytes: float) -> str:
    """A size on an axis, base 2: 32 B, 8 KiB, 512 MiB."""
    for unit, power in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if size_bytes >= 2**power:
            return f"{size_bytes / 2**power:.3g} {unit}"
    return f"{size_bytes:.0f} B"


def sizes_axis(axes: Any, sizes_bytes: Iterable[int], most: int = 8) -> None:
    """A logarithmic axis, base 2, labelled at sizes of the sweep."""
    sizes = sorted({size for size in sizes_bytes if size > 0})
    axes.set_xscale("log", base=2)
    every = max(1, -(-len(sizes) // most))
    axes.set_xticks(sizes[::every], [size_label(size) for size in sizes[::every]], rotation=35, ha="right",
                    rotation_mode="anchor")
    axes.minorticks_off()
