"""Simplex steps beside scipy's: the same points in the same order, wherever no two corners are worth the same."""

import numpy as np
import pytest
from scipy.optimize import minimize

from sim.optimizer.simplex import simplex_steps


@pytest.mark.table
@pytest.mark.parametrize("seed", range(32))
def test_the_points_are_those_of_scipy(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n, calls = int(rng.integers(1, 6)), int(rng.integers(1, 200))
    slopes, middle, corners = rng.normal(size=(n, n)), rng.normal(size=n), rng.normal(size=(n + 1, n))
    theirs: list[np.ndarray] = []
    ours: list[np.ndarray] = []

    def value(point: np.ndarray, seen: list[np.ndarray]) -> float:
        seen.append(point.copy())
        return float(np.abs(slopes @ (point - middle)).max() + 0.1 * np.sin(9 * point).sum())

    minimize(value, corners[0], (theirs,), "Nelder-Mead",
             options={"maxfev": calls, "initial_simplex": corners, "xatol": 1e-5, "fatol": 0.0})
    simplex_steps(lambda point: value(point, ours), corners, calls, 1e-5)
    assert np.array_equal(ours, theirs)


def test_it_ends_where_all_corners_are_one_point() -> None:
    seen: list[float] = []
    simplex_steps(lambda point: seen.append(point[0]) or 1.0, np.ones((3, 2)), 50, 1e-5)
    assert seen == [1.0] * 3


def test_no_call_is_left() -> None:
    seen: list[float] = []
    simplex_steps(lambda point: seen.append(point[0]) or 1.0, np.eye(3)[:, :2], 0, 1e-5)
    assert not seen
