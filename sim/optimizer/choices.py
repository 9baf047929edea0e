"""The best of several choices of the discrete knobs: each has a certified bound, and the most promising are solved."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from sim.analytic.constraints import Feasible
from sim.analytic.cost import Cost, worth
from sim.analytic.traffic import F64
from sim.optimizer.cuts import floor_optimum
from sim.optimizer.design import Design
from sim.optimizer.knobs import Knobs
from sim.optimizer.model import positive
from sim.optimizer.objective import Objective

MOST_SOLVED = 12
"""Choices whose bandwidths are optimized; the others are only evaluated at the starting points of such a search."""

SOLVED, EXCLUDED, LOOKED_AT = "optimized", "excluded by its bound", "looked at, not optimized"


class Tried(NamedTuple):
    """A choice and how far it was pursued."""

    knobs: Knobs
    value: float  # least seen, ns or ns x $
    time_ns: float  # the time there
    bound: float  # no bandwidths are better with this choice; nan if unknown
    how: str  # SOLVED, EXCLUDED or LOOKED_AT

    def row(self) -> dict[str, object]:
        return {"knobs": self.knobs.words, "time_s": self.time_ns * 1e-9, "how": self.how}


class Best(NamedTuple):
    """The best choice, its design and objective, and all that were tried, best first."""

    knobs: Knobs
    design: Design
    objective: Objective
    tried: tuple[Tried, ...]


def best_choice(
    choices: Sequence[Knobs],
    objective_of: Callable[[Knobs], Objective],
    solve: Callable[[Objective], Design],
    feasible: Feasible,
    cost: Cost | None = None,
    starts: Sequence[F64] = (),
) -> Best:
    """Evaluate every choice at a few bandwidths, then optimize the bandwidths of the most promising, best first.

    A choice whose certified bound is not below the best value so far is skipped without loss. At most MOST_SOLVED
    are optimized; the result reports which others were only evaluated.

    `cost`: minimize time x cost instead of time.
    `starts`: (D,) each, where to evaluate, in addition to the middle of the feasible set and the optimum of the
        load bound.
    """
    if len(choices) == 1:
        objective = objective_of(choices[0])
        design = solve(objective)
        return Best(choices[0], design, objective, (_solved(choices[0], design),))
    looked = [_look(knobs, objective_of(knobs), feasible, cost, starts) for knobs in choices]
    looked.sort(key=lambda pair: pair[0].value)
    best: Best | None = None
    tried: list[Tried] = []
    for number, (first, objective) in enumerate(looked):
        excluded = best is not None and first.bound >= best.design.value
        if excluded or number >= MOST_SOLVED:
            tried.append(first._replace(how=EXCLUDED if excluded else LOOKED_AT))
            continue
        design = solve(objective)
        tried.append(_solved(first.knobs, design))
        if best is None or design.value < best.design.value:
            best = Best(first.knobs, design, objective, ())
    assert best is not None
    spent = ((one.evaluations, one.runs, one.replays) for _, one in looked)
    evaluations, runs, replays = (sum(counts) for counts in zip(*spent, strict=True))
    design = replace(best.design, evaluations=evaluations, runs=runs, replays=replays)
    return best._replace(design=design, tried=tuple(sorted(tried, key=lambda one: one.value)))


def _solved(knobs: Knobs, design: Design) -> Tried:
    return Tried(knobs, design.value, design.time_ns, design.bound, SOLVED)


def _look(
    knobs: Knobs, objective: Objective, feasible: Feasible, cost: Cost | None, starts: Sequence[F64]
) -> tuple[Tried, Objective]:
    """A choice at the bandwidths where a search begins."""
    floor = floor_optimum(objective, feasible, cost)
    points = [positive(feasible.middle_GBps), *([] if floor is None else [floor.bandwidth_GBps]), *starts]
    found = [objective.evaluate(point) for point in points]
    value, best = min(((worth(one.time_ns, one.bandwidth_GBps, cost), one) for one in found), key=lambda pair: pair[0])
    bound = float("nan") if floor is None else floor.bound
    return Tried(knobs, value, best.time_ns, bound, LOOKED_AT), objective
