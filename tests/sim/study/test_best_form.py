"""Is the form that is kept the faster one, and is no form simulated that cannot win?"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectives import ALGORITHMS, Schedule, build, pipelined
from collectives.core.schedule import schedule
from collectives.trees.forest import forest_pattern
from sim import PRESETS, Model, Result, bounds, simulate
from sim.lower.job import lower
from sim.program.outcome import Deadlock
from sim.study.choice import best_form, ready_forms
from topologies import Topology, WeftError, from_spec
from topologies.units import format_time

FORMED = [(name, kind) for name, one in ALGORITHMS.items() for kind, forms in one.forms.items() if len(forms) > 1]


def forms_ready(name: str, kind: str, topology: Topology, size: int, model: Model) -> tuple[dict, dict]:  # type: ignore[type-arg]  # as `ready_forms` gives them
    def schedule_of(form: str) -> Schedule:
        return build(name, kind, topology, size, form)

    return ready_forms(ALGORITHMS[name].forms_of(kind), schedule_of, model)


@pytest.mark.table
@pytest.mark.parametrize(("name", "kind"), FORMED)
@settings(max_examples=15, deadline=None)
@given(spec=st.sampled_from(["torus:8", "torus:4x4", "torus:6", "switch:4"]), power=st.integers(2, 26),
       preset=st.booleans())
def test_the_kept_form_is_the_fastest_of_all(name: str, kind: str, spec: str, power: int, preset: bool) -> None:
    model = PRESETS["swing-paper"] if preset else Model()
    ready, refused = forms_ready(name, kind, from_spec(spec), 2**power, model)
    best = best_form(ready, lambda one: simulate(one, model=model), refused, floor=lambda one: floor(one, model))
    times = {form: simulate(schedule, model=model).time_ps for form, schedule in ready.items()}
    assert best.result.time_ps == min(times.values())
    assert best.result.schedule.pattern.form == next(form for form in times if times[form] == min(times.values()))
    assert set(best.others) == set(ALGORITHMS[name].forms_of(kind)) - {best.result.schedule.pattern.form}


def floor(schedule: Schedule, model: Model = Model()) -> int:
    return bounds(lower(schedule, model)).best_ps


def counted(schedules: list[str]):  # type: ignore[no-untyped-def]  # a closure
    def run(schedule: Schedule) -> Result:
        schedules.append(schedule.pattern.form)
        return simulate(schedule)

    return run


def test_a_form_whose_bound_is_above_the_other_time_is_not_simulated() -> None:
    ready, refused = forms_ready("swing", "all-reduce", from_spec("torus:8x8"), 2**29, Model())
    simulated: list[str] = []
    best = best_form(ready, counted(simulated), refused, floor=floor)
    assert simulated == ["bandwidth"]
    assert best.others["latency"].endswith("not simulated")


def test_without_a_bound_every_form_is_simulated() -> None:
    ready, refused = forms_ready("swing", "all-reduce", from_spec("torus:8x8"), 2**20, Model())
    simulated: list[str] = []
    best_form(ready, counted(simulated), refused)
    assert sorted(simulated) == ["bandwidth", "latency"]


@pytest.mark.parametrize(("spec", "same"), [("switch:8", True), ("fat-tree:4", True), ("mesh:3x3", False)])
def test_of_two_forms_with_the_same_transfers_the_first_is_simulated(spec: str, same: bool) -> None:
    topology = from_spec(spec)
    ready, refused = forms_ready("pipelined", "all-reduce", topology, 2**20, Model())
    simulated: list[str] = []
    best = best_form(ready, counted(simulated), refused)
    assert simulated == (["two-phase"] if same else list(pipelined.FORMS))
    trees_up, trees_down = pipelined.forests(topology, "all-reduce", form="best-roots")
    alone = simulate(schedule(forest_pattern(topology, "all-reduce", "pipelined", up=trees_up, down=trees_down), 2**20))
    others = set(pipelined.FORMS) - {best.name}
    times = {best.name: format_time(best.result.time_ps), **best.others}
    assert times["best-roots"] == format_time(alone.time_ps)
    assert best.result.schedule.pattern.form == best.name
    assert {ready[other].pattern.form for other in others} == others


def test_a_form_without_a_rival_needs_no_bound() -> None:
    ready, refused = forms_ready("swing", "all-reduce", from_spec("torus:3x4"), 2**20, Model())

    def never(schedule: Schedule) -> int:
        raise AssertionError(f"the bound of {schedule} was computed")

    assert best_form(ready, simulate, refused, floor=never).name == "latency"


def test_a_form_that_the_shape_refuses_is_told_with_its_reason() -> None:
    ready, refused = forms_ready("swing", "all-reduce", from_spec("torus:3x4"), 2**20, Model())
    assert list(ready) == ["latency"]
    assert "even extents" in best_form(ready, simulate, refused).others["bandwidth"]


def test_where_every_form_is_refused_the_first_reason_is_raised() -> None:
    def refuse(form: str) -> Schedule:
        raise WeftError(f"no {form}")

    with pytest.raises(WeftError, match="no first"):
        ready_forms(("first", "second"), refuse, Model())


def stuck_in(*forms: str):  # type: ignore[no-untyped-def]  # a closure
    def run(schedule: Schedule) -> Result:
        if schedule.pattern.form in forms:
            raise Deadlock(f"{schedule.pattern.form} cannot end")
        return simulate(schedule)

    return run


def test_a_form_that_cannot_end_does_not_hide_the_other() -> None:
    ready, refused = forms_ready("tree", "broadcast", from_spec("ring:4"), 2**16, Model())
    for stuck, lives in (("chain", "binomial"), ("binomial", "chain")):
        best = best_form(ready, stuck_in(stuck), refused)
        assert best.result.schedule.pattern.form == lives
        assert best.others[stuck] == f"{stuck} cannot end"


def test_where_no_form_ends_the_first_report_is_raised() -> None:
    ready, refused = forms_ready("tree", "broadcast", from_spec("ring:4"), 2**16, Model())
    with pytest.raises(Deadlock, match=f"{next(iter(ready))} cannot end"):
        best_form(ready, stuck_in(*ready), refused)
