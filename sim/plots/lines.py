"""A line style for every algorithm, the same in all figures and in the report; and the colors of load."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count
from typing import Any, NamedTuple


class Line(NamedTuple):
    """Color, marker and dashes: each alone distinguishes lines, in gray print too."""

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
    Line("#8C2D6B", "X", (0, (2, 1))),
    Line("#333333", "h", (0, (7, 2))),
)
"""Colors that the color-blind can distinguish (six of Okabe and Ito, 2008), each with its own marker and dashes."""

HEAT_STOPS = ("#dbe4ee", "#93bfe8", "#4f8fd0", "#8e4fa5", "#800026")
"""From idle to busy, monotonically darker for every eye. Idle links are pale, not white: they exist."""

_OWN = ("swing", "recursive-doubling", "bucket", "ring", "pipelined", "direct", "mirrored-recursive-doubling",
        "hierarchical")
"""Algorithms with a reserved line, given by their place in the cycle."""


def lines_of(algorithms: Iterable[str]) -> dict[str, Line]:
    """A line for every algorithm of a figure, all different.

    The most common ones keep theirs, so that figures can be compared; the others take the remaining lines.
    """
    names = list(dict.fromkeys(algorithms))
    places = {name: _OWN.index(name) for name in names if name in _OWN}
    free = (place for place in count() if place not in places.values())
    return {name: _line(places[name] if name in places else next(free)) for name in names}


def _line(place: int) -> Line:
    """Beyond the cycle, colors repeat with other markers and dashes."""
    again, at = divmod(place, len(CYCLE))
    marker, dashes = (CYCLE[(at + shift * again) % len(CYCLE)] for shift in (3, 2))
    return Line(CYCLE[at].color, marker.marker, dashes.dashes)
