"""Several collectives and jobs at once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from collectives import hierarchical, ring, swing
from sim import simulate
from sim.faults.plan import FaultPlan, Loss, Straggler
from sim.lower.tenants import Tenant
from sim.program.model import Model
from sim.scenarios.tenants import share_fabric
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
        (share,) = share_fabric([Tenant(name="a", work=WORK, arrival=arrival)], check=True).shares
        assert share.time_ps == share.alone_ps == simulate(WORK).time_ps
        assert share.slowdown == 1


def test_two_that_overlap_slow_each_other_and_two_that_do_not_do_not() -> None:
    """The same links, at the same time or one after the other."""
    both = share_fabric([Tenant(name="a", work=WORK), Tenant(name="b", work=WORK)], check=True)
    assert all(share.slowdown > 1.3 for share in both.shares)
    apart = share_fabric([Tenant(name="a", work=WORK), Tenant(name="b", work=WORK, arrival="1ms")], check=True)
    assert [share.slowdown for share in apart.shares] == [1, 1]


def test_a_better_priority_is_hurt_less() -> None:
    """The first of two gains from its priority, and the other pays."""
    def shares(priority: int) -> tuple[int, int]:
        tenants = [Tenant(name="a", work=WORK), Tenant(name="b", work=WORK, priority=priority)]
        first, second = share_fabric(tenants, PRIORITY, check=True).shares
        return first.time_ps, second.time_ps

    equal, favored = shares(0), shares(1)
    assert favored[0] < equal[0] and favored[0] < favored[1]


def test_options_of_the_model_are_given_as_to_simulate() -> None:
    tenants = [Tenant(name="a", work=WORK), Tenant(name="b", work=WORK, priority=1)]
    given = share_fabric(tenants, discipline="priority", chunks=4)
    assert given.run.time_ps == share_fabric(tenants, PRIORITY).run.time_ps


@pytest.mark.parametrize("faults", [None, FaultPlan(faults=(Straggler(npu="npu3", delay="4us"),))])
def test_jobs_and_collectives_in_both_engines(faults: FaultPlan | None) -> None:
    """A training step beside an all-reduce, healthy or not: the same shares from both engines."""
    tenants = [Tenant(name="train", work=training()),
               Tenant(name="reduce", work=swing.all_reduce(RING, "64KiB"), arrival="1us", priority=1)]
    one, other = (share_fabric(tenants, PRIORITY, engine=engine, check=True, faults=faults)
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
        ([Tenant(name="a", work=training()), Tenant(name="b", work=Job(RING, speed=np.array([0.5, 1, 1, 1])))],
         "jobs 'a' and 'b' give the NPUs different speeds"),
    ],
)
def test_what_is_refused(tenants: list[Tenant], message: str) -> None:
    """Bad input is named."""
    with pytest.raises(WeftError, match=message):
        share_fabric(tenants)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("all-reduce",), "tenants is 'all-reduce': give a sequence"),
        ((Tenant(name="a", work=WORK),), "give a sequence, each item a Tenant"),
        ((["a"],), "tenants, item 0, is 'a': give a Tenant"),
        (([Tenant(name="a", work=WORK)], None), "model is None: give a Model"),
    ],
)
def test_wrong_types_are_one_line(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(WeftError, match=message):
        share_fabric(*arguments)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"name": " "}, "a name is printable text, not empty"),
        ({"name": 3}, "name is 3: give text"),
        ({"name": "a\x1b[31m\n"}, r"tenant 'a\\x1b\[31m\\n': a name is printable text"),
        ({"name": "n" * 61}, "of at most 60 characters"),
        ({"work": "x"}, "work is 'x': give a Schedule, such as .* or a Job"),
        ({"arrival": "-1us"}, "arrival '-1us' is negative"),
        ({"arrival": True}, "arrival True has no unit"),
        ({"arrival": []}, r"arrival \[\] has no unit"),
        ({"arrival": "9" * 5000 + "s"}, "arrival '9{59}\\.\\.\\. is not a time"),
        ({"arrival": 10**5000}, "arrival of thousands of digits has no unit"),
        ({"arrival": float("nan")}, "arrival nan has no unit"),
        ({"priority": "hi"}, "priority is 'hi': give an integer"),
        ({"priority": 1.5}, "priority is 1.5: give an integer"),
        ({"priority": True}, "priority is True: give an integer"),
        ({"priority": 2**70}, f"priority is {2**70}: give an integer from -2147483647 to 2147483647"),
        ({"priority": 10**5000}, "priority is of thousands of digits"),
        ({"priority": -(2**31)}, "priority is -2147483648"),
        ({"npus": "0-3"}, "npus is '0-3': give a sequence, each item an integer"),
        ({"npus": ()}, "npus are empty: name some, or leave them out for all"),
        ({"npus": (0, 1, 2, 3, 0, 0)}, r"npus \(0, 1, 2, 3, 0, 0\) name an NPU twice"),
        ({"npus": (0, 16)}, r"npus \(0, 16\): the NPUs are 0 to 15"),
        ({"work": training(), "npus": (0, 1)}, "the operations of a job say themselves"),
    ],
)
def test_what_no_tenant_can_be(keys: dict[str, object], message: str) -> None:
    """Each value is looked at when the tenant is made."""
    with pytest.raises(WeftError, match=message):
        Tenant(**{"name": "a", "work": WORK, **keys})  # type: ignore[arg-type]  # wrong on purpose


def test_priorities_of_a_job_and_of_its_tenant_add_up_within_range() -> None:
    job = Job(RING)
    job.compute("forward", 1, priority=5)
    with pytest.raises(WeftError, match="tenant 'a': priority is 2147483652"):
        Tenant(name="a", work=job, priority=2**31 - 1)
    (share,) = share_fabric([Tenant(name="a", work=job, priority=2**31 - 6)], PRIORITY).shares
    assert share.time_ps == share.alone_ps


def test_who_is_behind_whom() -> None:
    """The time of each is accounted to the picosecond, and says what the other took of it."""
    tenants = [Tenant(name="a", work=WORK), Tenant(name="b", work=WORK, arrival="1us", priority=1)]
    result = share_fabric(tenants, PRIORITY, check=True)
    for share in result.shares:
        assert sum(result.why(share.name).values()) == share.time_ps
    assert any(name.startswith("behind a: queueing") for name in result.why("b"))
    (alone,) = [share_fabric(tenants[:1], PRIORITY).why("a")]
    assert alone == simulate(WORK, model=PRIORITY).why().parts
    with pytest.raises(WeftError, match="no tenant has the name 'c': they are a, b"):
        result.why("c")
    empty = share_fabric([Tenant(name="a", work=Job(RING))])
    assert empty.why("a") == {} and empty.shares[0].slowdown == 1


def test_what_was_late_or_lost_has_a_name() -> None:
    plan = FaultPlan(timeout="1us", faults=(Straggler(npu="npu3", delay="4us"), Loss(link="*", probability=0.02)))
    tenants = [Tenant(name="a", work=WORK), Tenant(name="b", work=WORK, arrival="1us")]
    result = share_fabric(tenants, check=True, faults=plan)
    assert all(sum(result.why(share.name).values()) == share.time_ps for share in result.shares)
    names = {name for share in result.shares for name in result.why(share.name)}
    assert any(name.endswith("lost and sent again") for name in names)
    assert not any("serialization, late" in name for name in names)


@pytest.mark.parametrize("fault", [Straggler(npu="npu1", delay="8us"), Straggler(npu="npu1", speed=0.5)])
def test_arrivals_are_neither_late_nor_slow(fault: Straggler) -> None:
    """An arrival at 20 us is one, whatever becomes of the NPUs before: the tenant takes what it takes from 0 on."""
    plan = FaultPlan(faults=(fault,))
    work = ring.all_reduce(RING, "64KiB")
    times = []
    for arrival in ("0s", "20us"):
        (share,) = share_fabric([Tenant(name="a", work=work, arrival=arrival)], check=True, faults=plan).shares
        times.append(share.time_ps)
    late = 8_000_000 if fault.speed == 1 else 0
    assert times[0] == times[1] + late


def test_an_operation_waits_for_the_arrival_on_every_npu() -> None:
    """Also where nothing that it waits for covers the NPU."""
    job = Job(RING)
    first = job.compute("on one", 1_000_000, npus=[0])
    job.compute("on all", 1_000_000, after=[first])
    result = share_fabric([Tenant(name="a", work=job, arrival="10us")], check=True)
    assert min(span.start_ps for span in result.run.spans() if span.operation) >= 10_000_000


def test_a_process_group_alone() -> None:
    """Half of the fabric reduces, and the other half is idle."""
    work = hierarchical.all_reduce(FABRIC, "16KiB", group="4,2", pipeline_chunks=1)
    both, half = (
        share_fabric([Tenant(name="a", work=work, npus=npus)], Model(chunks=1), symmetry="off").run.outcome.events
        for npus in (None, tuple(range(8)))
    )
    assert both == 2 * half
