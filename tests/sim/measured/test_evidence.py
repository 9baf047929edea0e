"""What points say by themselves."""

from __future__ import annotations

import math

import numpy as np
import pytest

from sim.measured.diagnosis import (
    _line_error,
    best,
    breaks,
    by_size,
    collapse,
    contradictions,
    curved,
    outliers,
    repeats,
    spread,
    steadiest,
    unsteady,
)

SIZES = [2**power for power in range(10, 31)]


def pieces(*lines: tuple[int, float, float], noise: float = 0.0, seed: int = 0) -> list[tuple[int, float]]:
    """Up to each size, a latency and a rate."""
    rng = np.random.default_rng(seed)
    return [
        (size, next(a + size / rate for upto, a, rate in lines if size <= upto) * float(np.exp(rng.normal(0, noise))))
        for size in SIZES
    ]


def test_several_times_of_a_size_are_their_median_and_empty_ones_left_out() -> None:
    assert by_size([(2, 5.0), (1, 3.0), (1, 1.0), (1, 2.0), (0, 1.0), (4, 0.0)]) == ((1, 2.0), (2, 5.0))


@pytest.mark.parametrize("noise", [0.0, 0.02])
@pytest.mark.parametrize("lines", [
    ((2**30, 2e-5, 1e11),),
    ((2**17, 1e-5, 2e10), (2**30, 6e-5, 1e11)),
    ((2**14, 1e-5, 1e10), (2**22, 6e-5, 2e10), (2**30, 3e-4, 3e11)),
])
def test_breaks_are_where_the_line_changes(lines: tuple[tuple[int, float, float], ...], noise: float) -> None:
    for seed in range(5):
        assert breaks(pieces(*lines, noise=noise, seed=seed)) == tuple(size for size, _, _ in lines[:-1])


def test_too_few_points_have_no_break() -> None:
    assert breaks([(1, 1.0), (2, 9.0), (4, 1.0), (8, 9.0)]) == ()


def test_contradictions_collapse_and_outliers() -> None:
    points = [(1, 1.0), (2, 9.0), (4, 2.0), (8, 4.0)]
    assert contradictions(points) == (2,)
    assert collapse([(1, 1.0), (2, 2.0), (4, 10.0), (8, 21.0)]) == 2
    assert collapse([(1, 1.0), (2, 2.0), (4, 10.0), (8, 9.0)]) == 0
    assert collapse([*((2**n, 2.0**n) for n in range(6)), (64, 300.0)]) == 0  # one size of many may be an outlier
    assert collapse([(1, 1.0), (2, 2.0), (4, 4.0), (8, 30.0)]) == 4
    assert outliers([1, 2, 4, 8], [1.0, 0.1, 1.0, 1.0]) == (2,)
    assert outliers([1, 2, 4, 8], [1.0, 0.5, 0.5, 0.5]) == ()


def test_the_best_size_is_the_largest_near_the_best() -> None:
    assert best([(8, 1.0), (16, 1.0), (32, 2.05), (64, 4.1), (128, 9.0)]) == 64
    assert best([(8, 1.0)]) == 8


@pytest.mark.parametrize(("times", "odd"), [
    ((1, 2, 3, 4), ()), ((4, 1), (0,)), ((1, 2, 50, 3, 4, 5), (2,)), ((1, 2, 3, 0.1, 5, 6, 7), (3,)),
    ((10, 10, 10, 1, 1, 1, 1), (0, 1, 2)), ((16, 8, 4, 2, 1), (0, 1, 2, 3)), ((3, 2.9, 2.8, 2.7), ()),
])
def test_the_fewest_sizes_are_those_that_contradict(times: tuple[float, ...], odd: tuple[int, ...]) -> None:
    """One size that is too fast is wrong, and not all smaller ones that took longer."""
    points = [(2**at, time) for at, time in enumerate(times)]
    assert contradictions(points) == tuple(2**at for at in odd)
    assert contradictions([]) == ()


def test_the_steadiest_size_is_no_lucky_one() -> None:
    ratios = [1.0, 1.0, 1.4, 1.02, 1.0, 0.9, 1.2]
    assert steadiest([(2**at, 2**at / ratio) for at, ratio in enumerate(ratios)], ratios) in (1, 2, 16)
    assert steadiest([(8, 1.0)], [0.5]) == 8


def test_single_points_off_a_line_are_measured_in_deviations_of_one() -> None:
    """The middle of a triple that is e too high: e; of a constant and of a line: nothing."""
    assert curved([1.0, 2.0, 3.0, 4.0]) == [0.0, 0.0]
    assert curved([0.0, math.sqrt(1.5), 0.0]) == pytest.approx([1.0])
    assert spread([]) == 0.0
    assert spread([-2.0, 2.0, 100.0]) == pytest.approx(2 * 1.4826)


@pytest.mark.parametrize(("times", "odd"), [((1.0, 1.5), ()), ((1.0, 1.51), (8,)), ((0.0, 1.51), ()), ((2.0,), ())])
def test_repeats_differ_by_more_than_half(times: tuple[float, ...], odd: tuple[int, ...]) -> None:
    assert repeats([(8, time) for time in times]) == odd


@pytest.mark.parametrize(("n", "fine", "against", "odd", "says"), [
    (6, True, 2, 0, False), (6, True, 3, 0, True), (9, True, 3, 0, False), (8, True, 3, 0, True), (8, True, 2, 1, True),
    (6, False, 3, 0, False), (5, False, 3, 0, True), (5, False, 2, 1, False),
])
def test_a_third_of_the_sizes_of_a_good_table_and_half_of_another(
    n: int, fine: bool, against: int, odd: int, says: bool
) -> None:
    told = unsteady([(size, 1.0) for size in range(n)], fine, range(against), range(against, against + odd))
    assert told.startswith(f"nothing that can be told: {against + odd if fine else against} of {n} sizes") is says


@pytest.mark.parametrize(("ratios", "odd"), [
    ((1.0, 1.5, 1.0), ()), ((1.0, 1.51, 1.0), (1,)), ((1.5, 1.0, 1.5), ()), ((1.51, 1.0, 1.51), (1,)),
    ((9.0, 1.0, 1.0), ()), ((1.0, 1.0, 9.0), ()), ((1.0, 9.0, 9.0, 9.0), ()),
])
def test_outliers_are_off_both_neighbors_by_half(ratios: tuple[float, ...], odd: tuple[int, ...]) -> None:
    assert outliers(range(len(ratios)), ratios) == odd


@pytest.mark.parametrize(("times", "odd"), [
    ((4.0, 3.0), ()), ((4.0, 2.9), (1,)), ((4.0, 2.9, 2.8), (1,)), ((1.0, 9.0, 2.0, 3.0), (2,)), ((), ()),
    ((1.0, 2.0, 9.0, 8.0, 3.0), (5,)), ((1.0, 2.0, 9.0, 3.0, 4.0), (3,)),
])
def test_of_contradictions_the_fewest_go_and_of_as_few_the_smaller(
    times: tuple[float, ...], odd: tuple[int, ...]
) -> None:
    assert contradictions(list(enumerate(times, 1))) == odd


def test_collapses_need_two_sizes_and_of_few_points_one() -> None:
    fast, slow = [(size, size / 10) for size in range(1, 9)], [(9, 9 / 4.9), (10, 10 / 4.9)]
    assert collapse(fast + slow) == 8
    assert collapse([*fast, *slow[:1]]) == 0
    assert collapse([*fast[:3], (4, 4 / 4.9)]) == 3
    assert collapse([*fast[:4], (5, 5 / 4.9)]) == 4
    assert collapse([*fast[:5], (6, 6 / 4.9)]) == 0
    assert collapse([*fast, (9, 9 / 5), (10, 10 / 5)]) == 0


def test_a_line_has_no_negative_latency_or_rate() -> None:
    """Six points are enough for two lines, and five are not; a time that falls with size is a constant."""
    two = [(1, 1.0), (2, 1.0), (3, 1.0), (4, 40.0), (5, 50.0), (6, 60.0)]
    assert breaks(two) == (3,)
    assert breaks(two[1:]) == ()
    assert breaks([(1, 10.0), (2, 10.0), (3, 10.0), (4, 1.0), (5, 1.0), (6, 1.0)]) == (3,)


def test_a_chain_of_equal_times_counts_as_one_that_rises() -> None:
    """Three sizes that take as long, and two that take much less: the two are wrong."""
    assert contradictions([(1, 9.0), (2, 9.0), (4, 9.0), (8, 1.0), (16, 2.0)]) == (8, 16)
    assert contradictions([(1, 9.0), (2, 9.0), (8, 1.0), (16, 2.0), (32, 3.0)]) == (1, 2)
    assert contradictions([(1, 9.0), (2, 9.0), (8, 1.0), (16, 2.0)]) == (1, 2)  # of as few, the smaller ones


@pytest.mark.parametrize(("ratios", "size"), [
    ([0.8, 0.9, 0.7, 1.0, 0.8, 1.0], 8), ([0.7, 0.7, 0.8, 0.7, 0.9, 0.7, 1.0], 16),
    ([1.0, 0.7, 0.7, 0.9, 0.9, 0.8, 0.7, 0.9], 128),
])
def test_the_steadiest_size_is_by_medians_of_the_five_around(ratios: list[float], size: int) -> None:
    """The first and the last five where there are no two on one side."""
    assert steadiest([(2**at, 2.0**at / ratio) for at, ratio in enumerate(ratios)], ratios) == size


@pytest.mark.parametrize("lines", range(1, 7))
def test_a_curve_has_five_lines_at_most(lines: int) -> None:
    """Each of three sizes and a latency of its own; a sixth line is not looked for."""
    points = [(2**at, 5.0 ** min(at // 3, lines - 1) + 2.0**at / 1e12) for at in range(21)]
    assert len(breaks(points)) == min(lines, 5) - 1


@pytest.mark.parametrize(("times", "latency", "rate"), [
    ((1.0, 3.0, 6.0), 0, None), ((6.0, 3.0, 1.0), None, 0), ((2.0, 3.0, 4.0), 1.0, 1.0),
])
def test_the_error_of_a_line_is_the_least_of_all_on_a_grid(
    times: tuple[float, ...], latency: float | None, rate: float | None
) -> None:
    """The error is that of the best of all lines on a grid that keep to that."""
    table = np.array([*zip((1.0, 2.0, 3.0), times, strict=True)])
    every = np.linspace(0, 8, 801)
    grid = [every if one is None else np.array([one]) for one in (latency, rate)]
    least = min(sum(((a + b * size) / time - 1) ** 2 for size, time in table) for a in grid[0] for b in grid[1])
    assert _line_error(table) == pytest.approx(least, abs=1e-4)
