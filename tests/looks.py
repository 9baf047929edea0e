"""What is wrong with a figure to the eye: a legend over data, data beyond its axes, text cut off or over other text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import combinations, pairwise

import numpy as np
import numpy.typing as npt
import pytest
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.legend import Legend
from matplotlib.text import Text
from matplotlib.transforms import Bbox

SLACK = 1.5
"""Pixels, of 100 an inch."""


def faults_of(drawn: Figure) -> list[str]:
    """One line for each fault."""
    drawn.draw_without_rendering()
    return [*_covered(drawn), *_cut_off(drawn), *_crowded(drawn), *_outside(drawn)]


def data_of(axes: Axes) -> npt.NDArray[np.float64]:
    """What is drawn in axes, (n, 2) in axes coordinates: lines, also between their points, bars, marks."""
    found = [np.zeros((0, 2))]
    for line in axes.lines:
        if line.get_transform() == axes.transData and line.get_visible():
            places = axes.transData.transform(line.get_xydata())
            between = np.linspace(0, 1, 50)[:, None]
            found += [places, *(one + (other - one) * between for one, other in pairwise(places))]
    for patch in axes.patches:
        box = patch.get_window_extent()
        inside = np.meshgrid(np.linspace(box.x0, box.x1, 20), np.linspace(box.y0, box.y1, 20))
        found.append(np.stack(inside, -1).reshape(-1, 2))
    for collection in axes.collections:
        offsets = np.ma.filled(collection.get_offsets(), np.nan)
        if len(offsets) and collection.get_offset_transform() == axes.transData:
            found.append(axes.transData.transform(offsets))
    places = np.concatenate(found)
    return axes.transAxes.inverted().transform(places[np.isfinite(places).all(axis=1)])


def covers(box: Bbox, axes: Axes) -> bool:
    """Whether something in pixels covers data of the axes."""
    (left, low), (right, high) = axes.transAxes.inverted().transform(box.get_points())
    x, y = data_of(axes).T
    return bool(np.any((left < x) & (x < right) & (low < y) & (y < high) & (x >= 0) & (x <= 1) & (y >= 0) & (y <= 1)))


def _covered(drawn: Figure) -> Iterator[str]:
    legends = [*drawn.legends, *(one for axes in drawn.axes if isinstance(one := axes.get_legend(), Legend))]
    for legend in legends:
        for axes in drawn.axes:
            if covers(legend.get_window_extent(), axes):
                yield f"the legend {[text.get_text() for text in legend.get_texts()]} is over data"


def _texts(drawn: Figure) -> list[Text]:
    """Everything that can be read, which ticks beyond the ends of an axis cannot."""
    found = [*drawn.texts, *_names(drawn), *(text for legend in drawn.legends for text in legend.get_texts())]
    for axes in drawn.axes:
        found += [*axes.texts, *(_tick_labels(axes.xaxis) + _tick_labels(axes.yaxis) if axes.axison else [])]
    return [text for text in found if text.get_visible() and text.get_text().strip()]


def _names(drawn: Figure) -> list[Text]:
    """Titles and labels of axes."""
    found = [text for text in (drawn._suptitle, drawn._supylabel) if text is not None]
    for axes in drawn.axes:
        found += [axes.title, axes._left_title, *((axes.xaxis.label, axes.yaxis.label) if axes.axison else ())]
    return [text for text in found if text.get_visible() and text.get_text().strip()]


def _cut_off(drawn: Figure) -> Iterator[str]:
    for text in _texts(drawn):
        box = text.get_window_extent()
        if max(-box.x0, -box.y0, box.x1 - drawn.bbox.x1, box.y1 - drawn.bbox.y1) > SLACK:
            yield f"{text.get_text()!r} is cut off"


def _outside(drawn: Figure) -> Iterator[str]:
    """Curves that go on beyond their axes, where nobody sees them."""
    for axes in drawn.axes:
        for line in axes.lines:
            x, y = axes.transAxes.inverted().transform(line.get_transform().transform(line.get_xydata())).T
            if np.any((x < -0.001) | (x > 1.001) | (y < -0.001) | (y > 1.001)):
                yield f"{line.get_label()!r} goes beyond the axes of {axes.get_title(loc='left')!r}"


def _tick_labels(axis: Axis) -> list[Text]:
    low, high = sorted(axis.get_view_interval())
    return [tick.label1 for tick in axis.get_major_ticks()
            if low <= tick.get_loc() <= high and tick.label1.get_visible() and tick.label1.get_text()]


def _crowded(drawn: Figure) -> Iterator[str]:
    """Labels of one axis that overlap, slanted ones by their height; titles and labels of axes that do."""
    for axes in drawn.axes:
        for axis in (axes.xaxis, axes.yaxis):
            labels = _tick_labels(axis)
            for one, other in pairwise(labels):
                if one.get_rotation() == 0 and _overlap(one, other):
                    yield f"{one.get_text()!r} is over {other.get_text()!r}"
    for one, other in combinations(_names(drawn), 2):
        if _overlap(one, other):
            yield f"{one.get_text()!r} is over {other.get_text()!r}"


def _overlap(one: Text, other: Text) -> bool:
    shared = Bbox.intersection(one.get_window_extent(), other.get_window_extent())
    return shared is not None and min(shared.width, shared.height) > SLACK


@pytest.fixture(autouse=True)
def inspected(monkeypatch: pytest.MonkeyPatch) -> Iterable[list[Figure]]:
    """Every figure that a test saves is looked at before."""
    saved: list[Figure] = []
    save = Figure.savefig

    def looked_at(self: Figure, *arguments: object, **options: object) -> None:
        faults = faults_of(self)
        assert not faults, "\n".join(faults)
        saved.append(self)
        save(self, *arguments, **options)

    monkeypatch.setattr(Figure, "savefig", looked_at)
    return saved
