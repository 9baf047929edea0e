"""What is lost, and what goes another way, is noted without a journal of every service."""

from __future__ import annotations

import numpy as np
import pytest

from collectives import build
from sim import FaultPlan, simulate
from sim.faults.plan import Jitter, LinkDown, Loss, NodeDown, Repair, SlowLink
from topologies import from_spec

LINK = "npu0->npu1"
DOWN, UP = LinkDown(link=LINK, at="1us"), Repair(link=LINK, at="9us")
PLANS = {
    "loss": FaultPlan(faults=[Loss(link=LINK, probability=0.2)]),
    "loss everywhere": FaultPlan(faults=[Loss(link="*", probability=0.05)], timeout="1us"),
    "loss and jitter": FaultPlan(faults=[Loss(link=LINK, probability=0.5), Jitter(link="*", mean="1us")], seed=7),
    "down and repaired": FaultPlan(faults=[DOWN, UP, Loss(link="*", probability=0.01)], in_flight="wait"),
    "cut off": FaultPlan(faults=[DOWN, UP]),
    "around": FaultPlan(faults=[DOWN], reroute="1us", in_flight="wait"),
    "around, and cut off": FaultPlan(faults=[DOWN, UP], reroute="500ns"),
    "a node": FaultPlan(faults=[NodeDown(node="npu1", at="1us"), Repair(node="npu1", at="9us")], reroute="1us"),
    "slow, and late": FaultPlan(faults=[
        SlowLink(link=LINK, share=0.5), SlowLink(link=LINK, share=0.2, at="1s"),
        Loss(link="npu1->npu2", probability=0.1),
    ]),
}


@pytest.mark.table
@pytest.mark.parametrize("symmetry", ["auto", "off"])
@pytest.mark.parametrize("name", PLANS)
@pytest.mark.parametrize(("spec", "algorithm"), [("ring:4", "ring"), ("torus:3x4", "bucket"), ("torus:4x4", "swing")])
def test_a_journal_says_the_same(spec: str, algorithm: str, name: str, symmetry: str) -> None:
    work, plan = build(algorithm, "all-reduce", from_spec(spec), "64KiB"), PLANS[name]
    without, noted = (simulate(work, faults=plan, chunks=5, symmetry=symmetry, log=log) for log in (False, True))
    assert without.outcome is not None and without.outcome.journal is None and without.outcome.lapses is not None
    assert noted.outcome is not None and noted.outcome.journal is not None
    for mine, theirs in zip(without.outcome.lapses, noted.outcome.journal.lapses(noted.program), strict=True):
        np.testing.assert_array_equal(mine, theirs)
    assert without.row() | {"wall_s": 0} == noted.row() | {"wall_s": 0}
    assert without.notes() == noted.notes()
    assert without.row()["chunks_lost"] + without.row()["chunks_detoured"] > 0
