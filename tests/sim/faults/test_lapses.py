"""What is lost, and what goes another way, is noted without a journal of every service."""

from __future__ import annotations

from dataclasses import replace

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


def test_of_a_detour_its_first_service_is_noted_and_not_each_hop() -> None:
    """A chunk that goes around a ring crosses all its other links: notes of them would be as many as all services."""
    plan = FaultPlan(faults=[LinkDown(link=LINK)], reroute="1us", timeout="1us", in_flight="wait")
    found = simulate(build("ring", "all-reduce", from_spec("ring:13"), "64KiB"), faults=plan, chunks=3, symmetry="off")
    assert found.outcome is not None and found.outcome.lapses is not None and found.faults is not None
    noted, begins = found.outcome.lapses, found.program.route_ptr
    assert np.isin(noted.at[~noted.lost], begins).all()
    assert found.faults.detours == np.count_nonzero(~noted.lost & ~noted.moved) > 0
    assert found.events > 5 * noted.at.size


@pytest.mark.table
@pytest.mark.parametrize("check", [False, True])
@pytest.mark.parametrize("spec", ["ring:5", "torus:3x3", "fat-tree:4", "random-regular:10x3"])
@pytest.mark.parametrize("name", ["loss", "around, and cut off"])
def test_the_healthy_time_beside_faults_is_that_of_all_ranks(name: str, spec: str, check: bool) -> None:
    fabric = from_spec(spec)
    faults = [replace(one, link=fabric.link_name(0)) for one in PLANS[name].faults]
    work, plan = build("ring", "all-reduce", fabric, "64KiB"), replace(PLANS[name], faults=faults)
    alone = simulate(work, chunks=3, symmetry="off").time_ps
    for symmetry in ("auto", "off"):
        found = simulate(work, faults=plan, chunks=3, symmetry=symmetry, check=check)
        assert found.faults is not None and found.faults.healthy_ps == alone
        assert found.symmetry.startswith("all ranks simulated (symmetry is off")
