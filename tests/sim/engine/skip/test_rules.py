"""Three rules without which skipping is wrong, each with a program in which it decides, with the rule and without."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from sim.engine.skip import limits as _skip_limits
from sim.engine.skip import search as _skip
from sim.program import Cutting, Program, ProgramBuilder
from tests.eager_runs import check, on_programs_of_any_size
from tests.plain_kernels import SKIPPING, as_python, change

MODULES = (*SKIPPING, _skip)


@pytest.fixture(autouse=True)
def _plain(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    as_python(monkeypatch, MODULES)
    with on_programs_of_any_size():
        yield


def a_parent_falls_behind() -> Program:
    """A task waits for two chunk by chunk, and always for the second, until that overtakes the first after 1 ns."""
    builder = ProgramBuilder("store-and-forward", "tail")
    late = builder.task(500, [(builder.server(10**12), 0)])
    slow = builder.task(2000, [(builder.server(10**12), 0)], Cutting(200))
    fast = builder.task(1000, [(builder.server(10**12), 0)], Cutting(200), after=[late])
    builder.task(200, [(builder.server(10**12), 0)], Cutting(200), stream=[slow, fast])
    return builder.build()


def a_part_ends_in_another() -> Program:
    """A task that starts in the middle of a stretch of others, when a third is delivered."""
    builder = ProgramBuilder("store-and-forward", "tail")
    first = builder.task(1000, [(builder.server(10**12), 0)], Cutting(100))
    shared = builder.server(10**12)
    builder.task(3000, [(shared, 0)], Cutting(300))
    builder.task(7, [(shared, 0)], after=[first])
    return builder.build()


def a_chunk_number_overtakes() -> Program:
    """Two tasks meet every 10 ps; the second, of twice as many chunks in a time, has the higher number from then on."""
    builder = ProgramBuilder("store-and-forward", "tail")
    shared = builder.server(10**12)
    late = builder.task(500, [(builder.server(10**12), 0)])
    builder.task(2000, [(builder.server(10**12), 0), (shared, 0)], Cutting(200))
    builder.task(1500, [(builder.server(10**12), 0), (shared, 0)], Cutting(300), after=[late])
    return builder.build()


RULES: dict[str, tuple[Callable[[], Program], Callable[..., object], str, str]] = {
    "a parent must not come to hold back a child": (
        a_parent_falls_behind, _skip_limits._alike, "_edge_limit(program, state, skip, task)", "FAR_OFF",
    ),
    "no part may go beyond the boundary of another": (
        a_part_ends_in_another, _skip._gain, "max(end - ", "max(word_of(skip, part, UNTIL) - ",
    ),
    "ties must fall as they have": (
        a_chunk_number_overtakes, _skip_limits.recurs, "_tie_limit(program, skip, part)", "FAR_OFF",
    ),
}


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_is_kept(rule: str) -> None:
    program = RULES[rule][0]()
    assert check(program) > program.chunk_hops() // 3


@pytest.mark.parametrize("rule", RULES)
def test_without_the_rule_the_run_is_wrong(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make, function, before, after = RULES[rule]
    change(monkeypatch, MODULES, getattr(function, "py_func", function), before, after)
    with pytest.raises(AssertionError, match="Arrays are not equal"):
        check(make())
