"""Jobs under every kind of fault: times that both engines agree on, accounts that sum, certificates that hold."""

from __future__ import annotations

import numpy as np
import pytest

from collectives import ring
from sim.analytic.bounds import program_bound_ps
from sim.certify.healthy import CertificateError
from sim.faults.plan import Fault, FaultPlan, Jitter, LinkDown, Loss, NodeDown, Repair, SlowLink, Straggler
from sim.program import Program
from sim.program.model import Model
from sim.program.outcome import Deadlock
from sim.simulation import simulate
from topologies import WeftError
from topologies import ring as ring_fabric
from workloads.job import CLOCK, Job

FABRIC = ring_fabric(4)
ONE = Model(chunks=1)


def job() -> Job:
    one = Job(FABRIC)
    first = one.compute("forward", 3_000_000)
    grads = one.collective("gradients", ring.all_reduce(FABRIC, "16KiB"), after=[first])
    one.compute("update", 1_000_000, after=[grads])
    return one


PLANS: dict[str, FaultPlan] = {
    "late": FaultPlan(faults=(Straggler(npu="npu1", delay="5us"),)),
    "two late": FaultPlan(faults=(Straggler(npu="npu1", delay="5us"), Straggler(npu="npu2", delay="7us"))),
    "slow": FaultPlan(faults=(Straggler(npu="npu1", speed=0.5),)),
    "late and slow": FaultPlan(faults=(Straggler(npu="npu1", delay="5us", speed=0.5),)),
    "jitter of an NPU": FaultPlan(faults=(Jitter(npu="npu1", mean="1us"),)),
    "jitter of links": FaultPlan(faults=(Jitter(link="*", mean="100ns"), Straggler(npu="npu0", delay="1us"))),
    "slow link": FaultPlan(faults=(SlowLink(link="npu0->npu1", at="3us", share=0.5, latency="1us"),)),
    "link down": FaultPlan(
        timeout="1us", faults=(LinkDown(link="npu0--npu1", at="3.5us"), Repair(link="npu0--npu1", at="9us"))
    ),
    "node down": FaultPlan(
        in_flight="wait", faults=(NodeDown(node="npu1", at="1us"), Repair(node="npu1", at="9us"))
    ),
    "detour": FaultPlan(timeout="1us", reroute="500ns", faults=(LinkDown(link="npu0->npu1", at="3us"),)),
    "loss": FaultPlan(timeout="1us", faults=(Loss(link="*", probability=0.05), Straggler(npu="npu3", delay="1us"))),
    "nothing": FaultPlan(),
}


@pytest.mark.parametrize("name", PLANS)
def test_every_kind_of_fault_on_a_job(name: str) -> None:
    """Compute and exposed time sum to the iteration on every NPU, whatever went wrong; both engines agree."""
    result = simulate(job(), model=ONE, faults=PLANS[name], check=True)
    assert result.time_ps == simulate(job(), model=ONE, faults=PLANS[name], engine="reference", check=True).time_ps
    assert result.faults is not None and result.time_ps >= result.faults.healthy_ps
    assert 0 < result.lower_bound_ps <= result.time_ps
    for rank in result.ranks:
        assert result.compute_ps(rank) + sum(result.exposed_ps(rank).values()) == result.time_ps
    assert set(result.busy_ps()) == {("all-reduce", "dimension 0")}
    assert len(result.spans()) == 3 * len(result.ranks) == 3 * (1 if name == "nothing" else 4)


def test_busy_time_leaves_late_starts_out() -> None:
    """A late start is no work of a link: what is busy is what was busy in health."""
    healthy = simulate(job(), model=ONE, symmetry="off")
    assert simulate(job(), model=ONE, faults=PLANS["late"]).busy_ps() == healthy.busy_ps()


def test_an_iteration_below_its_bound_is_a_broken_certificate(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bounds are among the certificates of jobs, with faults and without."""
    time_ps = simulate(job(), model=ONE).time_ps
    monkeypatch.setattr("sim.analytic.bounds.program_bound_ps", lambda program: time_ps + 1)
    with pytest.raises(CertificateError, match="below the lower bound"):
        simulate(job(), model=ONE, check=True)
    def only_faulty(program: Program) -> int:
        return 2**60 if program.timetable_ptr.size else 0

    monkeypatch.setattr("sim.analytic.bounds.program_bound_ps", only_faulty)
    with pytest.raises(CertificateError, match="below the lower bound"):
        simulate(job(), model=ONE, faults=PLANS["slow link"], check=True)


def test_the_bound_is_the_work_of_a_stream_or_the_longest_chain() -> None:
    one = Job(FABRIC)
    for number in range(3):
        one.compute(f"part {number}", 2_000_000)
    result = simulate(one, model=ONE)
    assert 6_000_000 <= result.lower_bound_ps <= result.time_ps <= 6_000_003
    assert simulate(job(), model=ONE).lower_bound_ps > 4_000_000


def test_detours_are_not_counted_in_the_bound() -> None:
    """Chunks may leave a busy link for others: what may do so is taken out."""
    program = simulate(job(), model=ONE, faults=PLANS["detour"]).lowered.program
    fixed = np.diff(program.detour_ptr) == 0
    assert not fixed.all()
    kept = program._replace(detour_ptr=program.detour_ptr[:0], detour_from_ps=program.detour_from_ps[:0])
    assert 0 < program_bound_ps(program) <= program_bound_ps(kept)


@pytest.mark.parametrize("fault", [Straggler(npu="npu0", delay="3us", speed=0.5), Jitter(npu="npu0", mean="1us")])
def test_a_clock_is_of_no_npu(fault: Fault) -> None:
    """A wait for a time is neither late nor slow nor uncertain where its NPU is."""
    one = Job(FABRIC, speed=np.array([0.5, 1, 1, 1]))
    one.compute("wait", 9_999_999, stream=f"{CLOCK}wait")
    one.compute("work", 1_000_000)
    result = simulate(one, model=ONE, faults=FaultPlan(faults=(fault,)), check=True)
    ends = {span.rank: span.end_ps for span in result.spans() if span.operation == 0}
    assert set(ends.values()) == {10_000_000}


def test_what_is_no_plan_is_refused() -> None:
    with pytest.raises(WeftError, match=r"faults is .*: give a FaultPlan"):
        simulate(job(), model=ONE, faults={"timeout": "1us"})  # type: ignore[arg-type]  # what a caller may do


def stuck(one: Job, plan: FaultPlan) -> str:
    with pytest.raises(Deadlock) as found:
        simulate(one, model=ONE, faults=plan)
    return str(found.value)


def test_a_stuck_iteration_says_who_waits_for_whom() -> None:
    said = stuck(job(), FaultPlan(timeout="1us", faults=(LinkDown(link="npu0->npu1"),)))
    assert "link npu0->npu1 is down from 0 ps on, and nothing repairs it, which lost them 256 times" in said
    assert "gradients from npu0 to npu1 (1 of 6)" in said
    waits = [part.split(" waits for ") for part in said.split("; ") if " waits for " in part]
    assert waits and all(one != other for one, other in waits)


def test_a_dead_node_is_named_and_not_its_links() -> None:
    said = stuck(job(), FaultPlan(in_flight="wait", faults=(NodeDown(node="npu1", at="5us"),)))
    assert "node npu1 is down from 5 us on, and nothing repairs it: gradients from npu" in said
    assert "link npu" not in said
    before = stuck(job(), FaultPlan(faults=(NodeDown(node="npu1"),)))
    assert "forward of npu1" in before and "the end of gradients on npu0 waits for" not in before
    again = (Repair(node="npu1", at="1us"), LinkDown(link="npu0->npu1", at="2us"), LinkDown(link="npu1->npu0"))
    said = stuck(job(), FaultPlan(timeout="1us", faults=(NodeDown(node="npu1"), *again)))
    assert "node npu1 is down" not in said and "link npu0->npu1 is down from 2 us on" in said


def test_without_a_way_around_and_given_up_before_it() -> None:
    """With re-routing it is told what became of it."""
    gone = FaultPlan(timeout="1us", reroute="1us", faults=(NodeDown(node="npu1"),))
    one = Job(FABRIC)
    one.collective("gradients", ring.all_reduce(FABRIC, "16KiB"), after=[one.compute("forward", 10**6)])
    assert "which lost them 256 times, and no other route is left: gradients from npu" in stuck(one, gone)
    late = FaultPlan(timeout="1us", reroute="1ms", faults=(LinkDown(link="npu0->npu1"),))
    assert "and gave up before routes change at 1 ms: gradients from npu0 to npu1" in stuck(one, late)


def test_many_places_are_counted() -> None:
    down = tuple(LinkDown(link=f"npu{a}--npu{(a + 1) % 4}") for a in range(4))
    one = Job(FABRIC)
    one.collective("gradients", ring.all_reduce(FABRIC, "16KiB"))
    assert "; and 5 more places; " in stuck(one, FaultPlan(timeout="1us", faults=down)) + "; "
