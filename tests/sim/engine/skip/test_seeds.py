"""Small programs, each kept for what it alone notices: of each change of skipping, one of them fails at least.

They are quick without the compiler, so that `make mutants` runs them thousands of times. How much is skipped is frozen
as well: a change that lets less be skipped changes no result, and would go unnoticed.
"""

from __future__ import annotations

from random import Random

import pytest

from sim.engine.run import Run
from sim.engine.skip.state import MADE, STRETCHES
from sim.engine.skip.state import SKIPPED as SO_FAR
from sim.program.outcome import Outcome
from tests.eager_runs import assert_same, assert_same_so_far, eager, on_programs_of_any_size
from tests.repeating_programs import repeating_program

SKIPPED = {
    9: 236, 20: 135, 21: 0, 23: 26, 25: 35, 39: 138, 51: 44, 55: 96, 62: 152, 91: 70, 92: 390, 93: 104, 158: 0, 212:
    37, 239: 0, 255: 0, 270: 0, 290: 0, 293: 174, 314: 0, 352: 0, 382: 42, 390: 32,
}
"""Services that are skipped of each, by the seed of the program."""


SEARCHED = {
    (20, 150): (0, 0, 0), (20, 400): (90, 1, 0), (20, 1000): (135, 2, 0),
    (25, 150): (0, 0, 0), (25, 400): (0, 0, 0), (25, 1000): (0, 0, 0),
    (92, 150): (0, 0, 0), (92, 400): (0, 0, 0), (92, 1000): (382, 3, 6),
    (293, 150): (0, 0, 0), (293, 400): (0, 0, 0), (293, 1000): (102, 1, 0),
    (390, 150): (43, 1, 0), (390, 400): (43, 1, 0), (390, 1000): (43, 1, 0),
    (32, 150): (0, 0, 0), (32, 400): (0, 0, 0), (32, 1000): (245, 1, 0),
}
"""Of some, by seed and budget: services that are skipped, stretches, and runs made of queues that grew."""


def runs(seed: int) -> tuple[int, Outcome, Outcome]:
    """Run the program of a seed with a pause, with stretches and without; returns what was skipped, and the results."""
    rng = Random(seed)
    program, share = repeating_program(rng, 1), rng.random()
    whole = Run(program, log=True, skip=False)
    whole.advance()
    with on_programs_of_any_size(first_wait=(1, 8, 8, 64)[seed % 4]):
        one, other = eager(program, log=True), Run(program, skip=False)
    until_ps = int(whole.outcome().makespan_ps * share)
    assert one.advance(until_ps=until_ps) == other.advance(until_ps=until_ps)
    assert_same_so_far(one, other)
    one.advance()
    return one.skipped, one.outcome(), whole.outcome()


@pytest.mark.parametrize("seed", SKIPPED)
def test_kept_programs(seed: int) -> None:
    skipped, one, whole = runs(seed)
    assert_same(one, whole)
    assert skipped == SKIPPED[seed]


def searched(seed: int, allowed: int) -> tuple[int, int, int]:
    """What a run of the program of a seed finds at some budget."""
    program = repeating_program(Random(seed), 1)
    with on_programs_of_any_size(first_wait=8):
        one = eager(program, allowed=allowed)
    one.advance()
    whole = Run(program, skip=False)
    whole.advance()
    assert_same(one.outcome(), whole.outcome())
    assert one._skipping is not None
    register = one._skipping.register
    return int(register[SO_FAR]), int(register[STRETCHES]), int(register[MADE])


@pytest.mark.parametrize(("seed", "allowed"), SEARCHED)
def test_what_is_found_at_a_budget(seed: int, allowed: int) -> None:
    assert searched(seed, allowed) == SEARCHED[seed, allowed]


@pytest.mark.parametrize("seed", [20, 92, 293, 390])
@pytest.mark.parametrize("most", [1, 7, 100])
def test_slices_of_kept_programs(seed: int, most: int) -> None:
    """In slices of services, of simulated ones, and of time, a run stands where it should, and ends alike."""
    program = repeating_program(Random(seed), 1)
    whole = Run(program, log=True, skip=False)
    whole.advance()
    with on_programs_of_any_size():
        by_events, by_work, by_time = (eager(program, log=True) for _ in range(3))
    other = Run(program, skip=False)
    while not by_events.advance(max_events=most):
        assert not other.advance(max_events=most)
        assert by_events.events == other.events
    pauses = 0
    while not by_work.advance(max_simulated=most):
        assert (pauses := pauses + 1) <= 2 * whole.events
    other = Run(program, skip=False)
    step, now = -(-whole.outcome().makespan_ps * most // 1000), 0
    while not by_time.advance(until_ps=now):
        other.advance(until_ps=now)
        assert_same_so_far(by_time, other)
        now += step
    for one in (by_events, by_work, by_time):
        assert_same(one.outcome(), whole.outcome())
