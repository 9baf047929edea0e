"""What is lost, by the draws alone, is what a journal of every service says."""

from __future__ import annotations

import pytest

from collectives import build
from sim import FaultPlan, simulate
from sim.faults.lost import needs_journal
from sim.faults.plan import Jitter, LinkDown, Loss, Repair, SlowLink
from topologies import from_spec

LINK = "npu0->npu1"
DOWN, UP = LinkDown(link=LINK, at="1us"), Repair(link=LINK, at="9us")
PLANS = {
    "loss": FaultPlan(faults=[Loss(link=LINK, probability=0.2)]),
    "loss everywhere": FaultPlan(faults=[Loss(link="*", probability=0.05)], timeout="1us"),
    "loss and jitter": FaultPlan(faults=[Loss(link=LINK, probability=0.5), Jitter(link="*", mean="1us")], seed=7),
    "down and repaired": FaultPlan(faults=[DOWN, UP, Loss(link="*", probability=0.01)], in_flight="wait"),
    "slow, and late": FaultPlan(faults=[
        SlowLink(link=LINK, share=0.5), SlowLink(link=LINK, share=0.2, at="1s"),
        Loss(link="npu1->npu2", probability=0.1),
    ]),
}


@pytest.mark.table
@pytest.mark.parametrize("symmetry", ["auto", "off"])
@pytest.mark.parametrize("name", PLANS)
@pytest.mark.parametrize(("spec", "algorithm"), [("ring:4", "ring"), ("torus:3x4", "bucket"), ("torus:4x4", "swing")])
def test_a_journal_says_the_same(
    spec: str, algorithm: str, name: str, symmetry: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sim.faults.lost.PART", 100)
    work, plan = build(algorithm, "all-reduce", from_spec(spec), "64KiB"), PLANS[name]
    without, noted = (simulate(work, faults=plan, chunks=5, symmetry=symmetry, log=log) for log in (False, True))
    assert without.outcome is not None and without.outcome.journal is None
    assert noted.outcome is not None and noted.outcome.journal is not None
    assert without.row() | {"wall_s": 0} == noted.row() | {"wall_s": 0}
    assert without.notes() == noted.notes()
    assert without.row()["chunks_lost"] > 0


@pytest.mark.parametrize("plan", [
    FaultPlan(faults=[DOWN], reroute="1us", in_flight="wait"), FaultPlan(faults=[DOWN, UP]),
])
def test_what_depends_on_times_is_noted(plan: FaultPlan) -> None:
    result = simulate(build("ring", "all-reduce", from_spec("ring:4"), "64KiB"), faults=plan)
    assert needs_journal(result.program)
    assert result.outcome is not None and result.outcome.journal is not None
