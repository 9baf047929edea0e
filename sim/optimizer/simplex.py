"""Nelder and Mead's simplex steps: scipy has them too, in a package that is imported no faster than a search ends."""

from collections.abc import Callable
from contextlib import suppress

import numpy as np

from sim.analytic.traffic import F64


class _Spent(Exception):
    """No call is left."""


def simplex_steps(value: Callable[[F64], float], corners: F64, calls: int, width: float) -> None:
    """Look for a smaller value from the corners of a simplex, (n + 1, n); whoever is called keeps what was found.

    `calls`: of `value`, at most.
    `width`: it ends where all corners are worth the same and are no farther apart.
    """
    left = calls

    def look(point: F64) -> float:
        nonlocal left
        if left == 0:
            raise _Spent
        left -= 1
        return value(point)

    with suppress(_Spent):
        points, worth = np.array(corners), np.array([look(one) for one in corners])
        while left:
            order = np.argsort(worth, kind="stable")
            points, worth = points[order], worth[order]
            if worth[0] == worth[-1] and np.abs(points[1:] - points[0]).max() <= width:
                return
            middle, worst = points[:-1].sum(axis=0) / (len(points) - 1), points[-1]
            point = 2 * middle - worst
            found = look(point)
            if found < worth[0]:
                farther = 3 * middle - 2 * worst
                if (more := look(farther)) < found:
                    point, found = farther, more
            elif found >= worth[-2]:
                outside = found < worth[-1]
                nearer = 1.5 * middle - 0.5 * worst if outside else 0.5 * middle + 0.5 * worst
                less = look(nearer)
                if less > found or (not outside and less >= worth[-1]):
                    for at in range(1, len(points)):
                        points[at] = points[0] + 0.5 * (points[at] - points[0])
                        worth[at] = look(points[at])
                    continue
                point, found = nearer, less
            points[-1], worth[-1] = point, found
