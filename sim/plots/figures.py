"""Every figure of results by name, for commands that take the name of a figure."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from collectives.core.collective import Collective
from collectives.registry import REDUCES, REDUCING
from sim.analytic.cut_bound import roof
from sim.plots.compare import draw_comparison, draw_roofline, draw_scaling, draw_speedup
from sim.plots.critical_path import draw_validation
from sim.plots.style import NARROW, WIDE, Row, by_fabric
from sim.program.model import Model
from topologies import Topology
from topologies.checks import WeftError, choice

COLUMNS = {1: NARROW, 2: WIDE}
"""Widths of a figure by the columns of the page that it takes."""


class Rooted(Protocol):
    """A collective's keys, of which a figure reads the root."""

    @property
    def root(self) -> int | None:
        """The root of the collective; None where it has none."""


class FigureSpec(Protocol):
    """What a figure needs to know of a spec: its fabric, its model and its collective."""

    def build_topology(self) -> Topology:
        """The fabric."""

    def build_model(self) -> Model:
        """The model of its links."""

    @property
    def kind(self) -> Collective:
        """The collective."""

    @property
    def collective(self) -> Rooted:
        """The collective and its root."""


@dataclass(frozen=True)
class Drawing:
    """What a figure of rows is drawn from, and how."""

    rows: Sequence[Row]  # sizes above zero
    path: Path
    columns: int = 2
    specs: Sequence[FigureSpec] = ()  # of the rows; a roofline needs them for the fabrics
    baseline: str | None = None  # of a speed-up
    size_bytes: int | None = None  # of a scaling

    @property
    def width(self) -> str:
        """Width of the drawing, by its columns."""
        return COLUMNS[self.columns]


def _roofline(wanted: Drawing) -> None:
    roofs = {}
    for spec in wanted.specs:
        model, topology = spec.build_model(), spec.build_topology()
        if model.deliver == "head":
            raise WeftError("a roofline is of chunks delivered with their tail: --deliver head has no cut bound")
        rows = [row for row in wanted.rows if row["topology"] == topology.name]
        reduces = any(row["algorithm"] in REDUCING or REDUCES in (row.get("notes") or ()) for row in rows)
        roofs[topology.name] = roof(
            topology, spec.kind.name, spec.collective.root or 0, endpoint_latency_ps=model.endpoint_latency_ps,
            reducing_switches=reduces,
        )
    bare = [name for name in by_fabric(wanted.rows) if name not in roofs]
    if bare:
        raise WeftError(f"a roofline needs the fabric: results that carry their spec; not so {bare[0]}")
    draw_roofline(wanted.rows, wanted.path, roofs, width=wanted.width)


def _account(wanted: Drawing) -> None:
    if not all(row.get("why") for row in wanted.rows):
        raise WeftError("this figure needs rows with their critical path: from weft validate, or compare --why")
    draw_validation(wanted.rows, wanted.path, width=wanted.width)


FIGURES: dict[str, Callable[[Drawing], None]] = {
    "comparison": lambda one: draw_comparison(one.rows, one.path, width=one.width),
    "speed-up": lambda one: draw_speedup(one.rows, one.path, baseline=one.baseline, width=one.width),
    "scaling": lambda one: draw_scaling(one.rows, one.path, size_bytes=one.size_bytes, width=one.width),
    "roofline": _roofline, "account": _account,
}
"""Figures drawn from rows of results."""

BY_SIZE = ("comparison", "speed-up", "roofline")
"""Those of a single collective, with a panel for each fabric."""


def draw(name: str, wanted: Drawing) -> None:
    """Draw a figure by its name.

    WeftError: an unknown figure, nothing to draw, or rows that lack what the figure needs.
    """
    drawing = FIGURES[choice(name, FIGURES, "figure")]
    if wanted.columns not in COLUMNS:
        raise WeftError(f"--columns {wanted.columns}: a figure takes 1 or 2 columns of a page")
    if not any(row.get("size_bytes") and row.get("time_s") for row in wanted.rows):
        raise WeftError("there is nothing to draw: no row has a size and a time above zero")
    found = list(dict.fromkeys(str(row.get("collective")) for row in wanted.rows))
    if name in BY_SIZE and len(found) > 1:
        raise WeftError(f"a {name} is of one collective: here are {', '.join(found[:4])}")
    drawing(wanted)
