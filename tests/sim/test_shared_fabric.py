"""Several collectives and jobs at once."""

from __future__ import annotations

import pytest

from collectives import ring, swing
from sim import simulate
from sim.faults import FaultPlan, Straggler
from sim.model import Model
from sim.shared_fabric import Tenant, simulate_shared
from topologies import WeftError, torus
from topologies import ring as ring_fabric
from workloads.job import Job

FABRIC = torus((4, 4))
WORK = swing.all_reduce(FABRIC, "256KiB")
PRIORITY = Model(discipline="priority", chunks=4)
RING = ring_fabric(4)


def training() -> Job:
    job = Job(RING)
    first = job.compute("forward", 3_000_000)
    job.collective("gradients", ring.all_reduce(RING, "64KiB"), after=[first])
    return job


def test_alone_it_is_the_collective() -> None:
    """One tenant takes as long as `simulate` says, whenever it arrives."""
    for arrival in ("0s", "5us"):
        (share,) = simulate_shared([Tenant(name="a", work=WORK, arrival=arrival)], check=True).shares
        assert share.time_ps == share.alone_ps == simulate(WORK).time_ps
        assert share.slowdown == 1


def test_two_that_overlap_slow_each_other_and_two_that_do_not_do_not() -> None:
    """The same links, at the same time or one after the other."""
    both = simulate_shared([Tenant(name="a", work=WORK), Tenant(name="b", work=WORK)], check=True)
    assert all(share.slowdown > 1.3 for share in both.shares)
    apart = simulate_shared([Tenant(name="a", work=WORK), Tenant(name="b", work=WORK, arrival="1ms")], check=True)
    assert [share.slowdown for share in apart.shares] == [1, 1]


def test_a_better_priority_is_hurt_less() -> None:
    """The first of two gains from its priority, and the other pays."""
    def shares(priority: int) -> tuple[int, int]:
        tenants = [Tenant(name="a", work=WORK), Tenant(name="b", work=WORK, priority=priority)]
        first, second = simulate_shared(tenants, PRIORITY, check=True).shares
        return first.time_ps, second.time_ps

    equal, favoured = shares(0), shares(1)
    assert favoured[0] < equal[0] and favoured[0] < favoured[1]


@pytest.mark.parametrize("faults", [None, FaultPlan(faults=(Straggler(npu="npu3", delay="4us"),))])
def test_jobs_and_collectives_in_both_engines(faults: FaultPlan | None) -> None:
    """A training step beside an all-reduce, healthy or not: the same shares from both engines."""
    tenants = [Tenant(name="train", work=training()),
               Tenant(name="reduce", work=swing.all_reduce(RING, "64KiB"), arrival="1us", priority=1)]
    one, other = (simulate_shared(tenants, PRIORITY, engine=engine, check=True, faults=faults)
                  for engine in ("chunk", "reference"))
    assert one.shares == other.shares
    assert one.time_ps == max(one.shares[0].time_ps, one.shares[1].time_ps + 1_000_000)
    assert ("faults" in str(one)) == (faults is not None)


@pytest.mark.parametrize(
    ("tenants", "message"),
    [
        ([], "at least one tenant"),
        ([Tenant(name="a", work=WORK), Tenant(name="a", work=WORK)], "two tenants have the name 'a'"),
        ([Tenant(name="a", work=WORK), Tenant(name="b", work=ring.all_reduce(torus((4, 4)), 64))], "same topology"),
        ([Tenant(name="a", work=WORK), Tenant(name="b", work=WORK, priority=1)], "differ in priority"),
    ],
)
def test_what_is_refused(tenants: list[Tenant], message: str) -> None:
    """Bad input is named."""
    with pytest.raises(WeftError, match=message):
        simulate_shared(tenants)
