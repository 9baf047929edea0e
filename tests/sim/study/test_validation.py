"""Does the residual add up, to the picosecond, and is agreement said plainly?"""

from __future__ import annotations

from typing import Any

import pytest

from collectives import ALGORITHMS, Schedule, build
from sim import PRESETS, Model, simulate
from sim.faults.plan import FaultPlan, SlowLink
from sim.study import validation
from sim.study.validation import validate
from topologies import WeftError, from_spec

MODELS = {
    "cut-through": Model(),
    "store-and-forward": Model(forwarding="store-and-forward", chunks=4),
    "swing-paper": PRESETS["swing-paper"],
}
KINDS = [(name, kind) for name, one in ALGORITHMS.items() for kind in one.functions]


def built(name: str, kind: str, spec: str) -> Schedule | None:
    """The schedule, or None where the algorithm rejects the fabric."""
    try:
        return build(name, kind, from_spec(spec), "64KiB")
    except WeftError:
        return None


@pytest.mark.table
@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
@pytest.mark.parametrize("spec", ["torus:4x4", "switch:4", "torus:1"])
@pytest.mark.parametrize(("name", "kind"), KINDS)
def test_parts_of_the_residual_sum_to_it(name: str, kind: str, spec: str, model: Model) -> None:
    schedule = built(name, kind, spec)
    if schedule is None:
        return  # a refusal is an answer
    one = validate(simulate(schedule, model=model))
    assert sum(one.path_ps.values()) == one.result.time_ps
    assert sum(one.residual_parts_ps.values()) == one.residual_ps == one.result.time_ps - sum(one.estimate)
    assert (one.verdict() == "simulated = estimate") == (one.residual_ps == 0)
    assert all(name in one.verdict() or name == "other" for name in one.residual_parts_ps)


def test_a_ring_takes_what_is_predicted() -> None:
    one = validate(simulate(build("ring", "all-reduce", from_spec("torus:4x4"), "1MiB")))
    assert one.closed_form_ps == one.result.time_ps == sum(one.estimate)
    assert one.verdict() == "simulated = estimate"


@pytest.mark.parametrize(("how", "fluid"), [
    ({}, True), ({"chunks": 64, "discipline": "priority"}, True), ({"chunk": "8KiB"}, True),
    ({"packet_header": 8}, False), ({"forwarding": "store-and-forward"}, False), ({"deliver": "head"}, False),
])
def test_the_fluid_time_is_that_of_whole_transfers(how: dict[str, Any], fluid: bool) -> None:
    """Chunks and the order of service are what it leaves out; where a model has more, there is none."""
    schedule = build("ring", "all-reduce", from_spec("torus:4x4"), "1MiB")
    one = validate(simulate(schedule, **how))
    assert one.fluid_ps == (simulate(schedule, chunks=1).time_ps if fluid else None)
    assert one.row()["fluid_s"] == (simulate(schedule, engine="fluid").time_s if fluid else None)


def test_no_fluid_time_of_faults_or_many_flows(monkeypatch: pytest.MonkeyPatch) -> None:
    schedule = build("ring", "all-reduce", from_spec("torus:4x4"), "1MiB")
    slow = FaultPlan(faults=(SlowLink(link="*", at="1us", share=0.5),))
    assert validate(simulate(schedule, faults=slow)).fluid_ps is None
    monkeypatch.setattr(validation, "MOST_FLOWS", 10)
    assert validate(simulate(schedule)).fluid_ps is None


def test_rows_hold_plain_data() -> None:
    row = validate(simulate(build("swing", "all-reduce", from_spec("torus:4x4"), "1MiB"))).row()
    assert row["why"]["makespan_ps"] == sum(row["why"]["parts_ps"].values())
    assert row["residual_s"] == pytest.approx(row["time_s"] - row["estimate_s"], abs=1e-15)
    assert row["estimate_s"] == pytest.approx(row["estimate_latency_s"] + row["estimate_load_s"], abs=1e-15)
