"""Accounts of all tenants at once: those of the oracle, one by one, with work that does not grow with their number."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from collectives import ring, swing
from sim.faults.plan import FaultPlan, LinkDown, Loss, Repair, Straggler
from sim.lower.tenants import Tenant
from sim.program.model import Model
from sim.scenarios.tenants import share_fabric
from sim.why.backward import MEETS
from sim.why.faulty_path import walk_of
from sim.why.path import LoggedWalk, Wait
from tests.oracles.tenant_accounts import account
from topologies import ring as ring_fabric
from workloads.job import Job

FABRIC = ring_fabric(4)
PLANS = {
    "healthy": None,
    "late": FaultPlan(faults=(Straggler(npu="npu3", delay="4us"),)),
    "lost": FaultPlan(timeout="1us", seed=3, faults=(
        Straggler(npu="npu3", delay="4us"), Loss(link="*", probability=0.05),
        LinkDown(link="npu0->npu1", at="6us"), Repair(link="npu0->npu1", at="9us"),
    )),
}


def tenants() -> list[Tenant]:
    job = Job(FABRIC)
    first = job.compute("forward", 3_000_000)
    job.collective("gradients", ring.all_reduce(FABRIC, "64KiB"), after=[first])
    sizes, times = ("16KiB", "64KiB"), ("0s", "2us", "2us", "30us")
    works = (ring.all_reduce(FABRIC, sizes[0]), swing.all_reduce(FABRIC, sizes[1]))
    return [Tenant(name="job", work=job, arrival="1us", priority=1)] + [
        Tenant(name=f"t{n}", work=works[n % 2], arrival=time, priority=n % 3) for n, time in enumerate(times)
    ]


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("forwarding", ["cut-through", "store-and-forward"])
def test_the_accounts_are_those_of_the_oracle(plan: str, forwarding: str) -> None:
    result = share_fabric(
        tenants(), Model(discipline="priority", chunks=2, forwarding=forwarding), faults=PLANS[plan]
    )
    for share in result.shares:
        assert result.why(share.name) == account(result, share.name)
        assert sum(result.why(share.name).values()) == share.time_ps
        assert list(result.why(share.name).values()) == sorted(result.why(share.name).values(), reverse=True)
    assert list(result.accounts) == [share.name for share in result.shares]


def test_what_tenants_have_in_common_is_walked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Alone, each of 12 tenants would walk over the services of most others."""
    walks: list[LoggedWalk] = []

    def walk_once(*of: Any) -> LoggedWalk:
        found = walk_of(*of)
        assert isinstance(found, LoggedWalk)
        walks.append(found)
        return found

    monkeypatch.setattr("sim.scenarios.tenants.walk_of", walk_once)
    work = ring.all_reduce(FABRIC, "16KiB")
    result = share_fabric([Tenant(name=f"t{n}", work=work) for n in range(12)], Model(chunks=2))
    assert len(result.accounts) == 12
    (walk,) = walks
    pieces = walk.back.pieces.view(np.ndarray)[: int(walk.back.walk["pieces"])]
    pieces = pieces[pieces["what"] != MEETS]
    assert np.unique(pieces).size == pieces.size
    alone = walk.trail([Wait(int(np.argmax(result.run.logged.finish_ps)), 0, delivered=True)])
    assert pieces.size < 12 * alone.name.size / 3


def test_each_run_is_told() -> None:
    told: list[tuple[str, int]] = []
    two = [Tenant(name=name, work=ring.all_reduce(FABRIC, "16KiB")) for name in "ab"]
    result = share_fabric(two, done=lambda what, time_ps: told.append((what, time_ps)))
    alone = [(f"{share.name} alone", share.alone_ps) for share in result.shares]
    assert told == [("all together", result.time_ps), *alone]
