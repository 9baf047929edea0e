"""What points say by themselves."""

from __future__ import annotations

import numpy as np
import pytest

from sim.measured.diagnosis import best, breaks, by_size, collapse, contradictions, outliers, steadiest

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
