"""Can the color-blind and readers of gray print tell the lines of a figure apart, and does heat keep its order?

Color vision deficiency as in Machado, Oliveira and Fernandes (2009), severity 1; differences in CIE L*a*b*.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np
import numpy.typing as npt
import pytest

from collectives import ALGORITHMS
from collectives.core.collective import COLLECTIVES
from collectives.registry import algorithms_for
from sim.plots.fabric import HEAT
from sim.plots.lines import CYCLE, HEAT_ON_DARK, ON_DARK, OTHERS, Line, line_of, lines_of
from sim.plots.trees import ADDS, SPREADS

Floats = npt.NDArray[np.float64]

SIGHT = {
    "full": np.eye(3),
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}
TO_XYZ = [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
WHITE = np.array([0.95047, 1.0, 1.08883])


def lab(rgb: Floats, sight: str = "full") -> Floats:
    """L*a*b* of colors (n, 3) from 0 to 1, as an eye sees them."""
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    seen = np.clip(linear @ np.array(SIGHT[sight]).T, 0, 1)
    ratio = seen @ np.array(TO_XYZ).T / WHITE
    f = np.where(ratio > 0.008856, np.cbrt(ratio), 7.787 * ratio + 16 / 116)
    return np.stack([116 * f[:, 1] - 16, 500 * (f[:, 0] - f[:, 1]), 200 * (f[:, 1] - f[:, 2])], axis=1)


def rgb_of(color: str) -> list[float]:
    return [int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)]


@pytest.mark.parametrize("sight", SIGHT)
def test_lines_are_told_apart(sight: str) -> None:
    """A difference of 10 is plain to see side by side; markers and dashes differ besides."""
    seen = lab(np.array([rgb_of(line.color) for line in (*CYCLE, *OTHERS)]), sight)
    least = min(float(np.hypot.reduce(one - other)) for one, other in combinations(seen, 2))
    assert least > 10


def apart(one: Line, other: Line, difference: float) -> bool:
    """Whether two lines of one figure differ: in marker always, and in dashes unless the tones are far apart."""
    return (one.marker, one.hollow) != (other.marker, other.hollow) and (one.dashes != other.dashes or difference > 10)


@pytest.mark.parametrize("kind", COLLECTIVES)
@pytest.mark.parametrize("sight", [*SIGHT, "gray"])
def test_no_two_algorithms_of_a_default_comparison_look_alike(kind: str, sight: str) -> None:
    lines = {name: line_of(name) for name in algorithms_for(kind)}
    seen = dict(zip(lines, lab(np.array([rgb_of(line.color) for line in lines.values()]),
                               "full" if sight == "gray" else sight), strict=True))
    channels = slice(0, 1) if sight == "gray" else slice(None)
    alike = [(a, b) for a, b in combinations(lines, 2)
             if not apart(lines[a], lines[b], float(np.hypot.reduce((seen[a] - seen[b])[channels])))]
    assert not alike


def test_every_algorithm_has_its_own_line_at_once_with_all_others_and_some_to_come() -> None:
    lines = lines_of([*ALGORITHMS, "one more", "and one", "and another"])
    tones = lab(np.array([rgb_of(line.color) for line in lines.values()]))[:, 0]
    alike = [(a, b) for (a, light), (b, dark) in combinations(zip(lines, tones, strict=True), 2)
             if not apart(lines[a], lines[b], abs(float(light - dark)))]
    assert not alike


@pytest.mark.parametrize("names", [["expander", "ideal switch"], ["2 workers", "4 workers", "ring"], list("abcdefgh")])
def test_what_is_no_algorithm_has_no_color_of_one(names: list[str]) -> None:
    lines = lines_of(names)
    others = {line.color for name, line in lines.items() if name not in ALGORITHMS}
    assert not others & {line_of(name).color for name in ALGORITHMS}
    assert len(set(lines.values())) == len(names)


def test_a_file_has_one_line_in_every_figure_which_no_algorithm_has() -> None:
    files = [f"program-{number}.xml" for number in range(8)]
    alone = {name: lines_of([name])[name] for name in files}
    for name, line in alone.items():
        assert lines_of(["ring", "swing (latency)", "swing (bandwidth)", name])[name] == line
    assert not {line_of(name) for name in ALGORITHMS} & {*alone.values()}
    assert len({*lines_of([*ALGORITHMS, *files]).values()}) == len(ALGORITHMS) + len(files)


@pytest.mark.parametrize("sight", SIGHT)
def test_lines_are_told_apart_on_dark_paper_and_stand_out_from_it(sight: str) -> None:
    seen = lab(np.array([rgb_of(color) for color in ON_DARK.values()]), sight)
    assert min(float(np.hypot.reduce(one - other)) for one, other in combinations(seen, 2)) > 10
    assert seen[:, 0].min() > 50  # three times as light as the paper and more
    heat = lab(np.array([rgb_of(color) for color in HEAT_ON_DARK]), sight)[:, 0]
    assert np.all(np.diff(heat) > 0)


@pytest.mark.parametrize("sight", SIGHT)
def test_the_heat_grows_darker_for_every_eye(sight: str) -> None:
    lightness = lab(HEAT(np.linspace(0, 1, 33))[:, :3], sight)[:, 0]
    assert np.all(np.diff(lightness) < 0)


@pytest.mark.parametrize(("palette", "darker"), [(ADDS, True), (SPREADS, False)])
def test_steps_of_trees_change_in_lightness(palette: object, darker: bool) -> None:
    lightness = lab(palette(np.linspace(0, 1, 17))[:, :3])[:, 0]  # type: ignore[operator]  # a color map
    assert np.all(np.diff(lightness) < 0) == darker
    assert np.all(np.diff(lightness) > 0) != darker
