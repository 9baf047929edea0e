import numpy as np
import pytest

from collectives import build
from sim import simulate
from sim.faults.plan import FaultPlan, SlowLink, Straggler
from topologies import WeftError, from_spec
from workloads.circuits import OWN, SHARED, STATIC, least_ps, with_circuits
from workloads.group_collectives import among
from workloads.job import Job, Reconfigure


def phases(options, turns=4, compute_us=0):
    """Exchanges with one neighbor and with another in turns, on one port: each asks for circuits of its own."""
    job = Job(from_spec(f"ocs:8x1,{options}", "50GB/s", "100ns", 0))
    last: list[int] = []
    for turn in range(turns):
        other = [rank ^ (1 + turn % 2) for rank in range(8)]
        last = [job.send(f"exchange {turn}", 50_000, range(8), other, after=last)]
        if compute_us:
            last = [job.compute(f"compute {turn}", compute_us * 10**6, after=last)]
    return job


def own(job):
    """With circuits for each operation, whatever they cost."""
    plans = with_circuits(job)
    return plans.get(OWN, plans[SHARED])


@pytest.mark.parametrize("turns", [1, 2, 7])
@pytest.mark.parametrize("delay_us", [0, 3, 50])
def test_each_change_of_phase_costs_a_switching_time(turns, delay_us):
    """The law of Opus, of a job whose phases follow each other: N changes on demand take N times the delay."""
    result = simulate(own(phases(f"delay={delay_us}us,policy=demand", turns)), check=True)
    assert result.time_ps == turns * 1_100_000 + (turns - 1) * delay_us * 10**6
    assert sum(isinstance(one.work, Reconfigure) for one in result.job.operations) == turns - 1
    assert result.why().parts.get("reconfiguration", 0) == (turns - 1) * delay_us * 10**6


@pytest.mark.parametrize("delay_us", [1, 5, 9])
def test_provisioned_circuits_are_switched_in_idle_windows(delay_us):
    """T = T0 + the sum of max(0, delay - window)."""
    window_us, turns = 4, 5
    alone = turns * 1_100_000 + turns * window_us * 10**6
    demand = simulate(own(phases(f"delay={delay_us}us,policy=demand", turns, window_us)), check=True)
    ahead = simulate(own(phases(f"delay={delay_us}us,policy=provisioned", turns, window_us)), check=True)
    # a computation is delivered 1 ps after it ends
    assert demand.time_ps == alone + turns + (turns - 1) * delay_us * 10**6
    assert 0 <= ahead.time_ps - alone - (turns - 1) * max(0, delay_us - window_us) * 10**6 <= turns


def test_circuits_that_come_back_are_the_same_links():
    few, many = (own(phases("policy=demand", turns)).topology for turns in (2, 40))
    assert few.n_links == many.n_links
    assert with_circuits(job := phases("delay=1us")) == {STATIC: job}


def test_an_operation_whose_pairs_exceed_the_ports_stays_on_the_fabric():
    fabric = from_spec("ocs:8x2,policy=demand")
    job = Job(fabric)
    first = job.collective("gather", build("direct", "all-gather", fabric, "64KiB"))
    job.collective("ring", build("ring", "all-reduce", fabric, "64KiB"), after=[first])
    result = simulate(job, check=True)
    assert np.count_nonzero([isinstance(one.work, Reconfigure) for one in result.job.operations]) <= 1


@pytest.mark.parametrize("policy", ["demand", "provisioned"])
def test_a_collective_alone_is_no_job_of_several_operations(policy):
    schedule = build("recursive-doubling", "all-reduce", from_spec(f"ocs:8x2,policy={policy}"), "64KiB", "bandwidth")
    plain = build("recursive-doubling", "all-reduce", from_spec("ocs:8x2"), "64KiB", "bandwidth")
    assert with_circuits(job := Job.of(schedule)) == {STATIC: job}
    assert simulate(schedule).time_ps == simulate(plain).time_ps


@pytest.mark.parametrize("policy", ["demand", "provisioned"])
@pytest.mark.parametrize("delay_us", [0, 1, 20, 1000])
def test_a_policy_is_the_best_of_its_plans_and_says_so(policy, delay_us):
    """Never slower than circuits that stay."""
    job = phases(f"delay={delay_us}us,policy={policy}", 5)
    plans = with_circuits(job)
    static = simulate(phases(f"delay={delay_us}us", 5))
    found = simulate(job, check=True)
    times = [simulate(plan).time_ps for name, plan in plans.items() if name != STATIC]
    assert found.time_ps == min(static.time_ps, *times)
    assert found.notes()[0] == found.circuits
    assert ("circuits stay as they are;" in found.circuits) == (found.time_ps == static.time_ps)


BOTH = FaultPlan(faults=(SlowLink(link="*", share=0.5, at="1us"), Straggler(npu="npu1", delay="1us")))


@pytest.mark.parametrize("faults", [BOTH, FaultPlan(faults=BOTH.faults[:1]), FaultPlan(faults=BOTH.faults[1:])])
def test_a_policy_is_the_best_of_its_plans_with_faults_too(faults):
    def time_ps(policy):
        job = Job(from_spec(f"ocs:8x3,delay=1us{policy}"))
        job.collective("x", build("direct", "all-gather", job.topology, "256KiB"))
        job.compute("c", 2_648_275)
        return simulate(job, faults=faults, chunks=2, tie="ecmp", check=True).time_ps

    assert time_ps(",policy=demand") <= time_ps("")


def test_a_plan_that_never_ends_is_left_out():
    """Small buffers are full in a circle where circuits are switched, and not where they stay."""
    job = Job(from_spec("ocs:6x2,delay=300ns,policy=demand"))
    for name, algorithm, kind in (("ring", "ring", "all-reduce"), ("direct", "direct", "all-to-all")):
        job.collective(name, build(algorithm, kind, job.topology, "60KiB"))
    narrow = {"chunks": 64, "buffer": "17KiB", "tie": "split", "nic": "shared", "send_complete": "pushed"}
    found = simulate(job, check=True, **narrow)
    assert "never ends" in found.circuits and "circuits stay as they are" in found.circuits


def test_groups_side_by_side_have_their_circuits_at_once():
    """Two groups of four, one after the other in the job: no change, and each as fast as alone."""
    fabric = from_spec("ocs:8x2,delay=1ms,policy=demand")
    job, alone = Job(fabric), Job(fabric)
    schedules = [among("ring", "all-reduce", 1 << 20, fabric, range(first, first + 4)) for first in (0, 4)]
    for _ in range(3):
        for first, schedule in zip((0, 4), schedules, strict=True):
            job.collective("ring", schedule, npus=range(first, first + 4))
    alone.collective("ring", schedules[0], npus=range(4))
    found = simulate(job, check=True)
    assert not any(isinstance(one.work, Reconfigure) for one in found.job.operations)
    assert found.time_ps <= 3 * simulate(alone).time_ps and "together" in found.circuits


@pytest.mark.parametrize("policy", ["", ",policy=demand"])
def test_a_part_of_a_group_is_refused_with_and_without_a_policy(policy):
    fabric = from_spec(f"ocs:8x2{policy}")
    job = Job(fabric)
    job.collective("part", build("ring", "all-reduce", fabric, "64KiB"), npus=range(4))
    with pytest.raises(WeftError, match="operation 'part' covers a part of a process group"):
        simulate(job)


def test_first_circuits_that_are_paid_or_named_are_switched_first():
    free, paid, named = (phases(f"delay=7us,policy=demand{more}", 1) for more in ("", ",paid", ",circuits=rings"))
    assert [least_ps(own(job)) for job in (free, paid, named)] == [0, 7_000_000, 7_000_000]


def test_what_faults_cost_is_beside_the_quickest_plan_without_them():
    """A late NPU makes all plans alike, and one with few changes is taken; without it, another may be quicker."""
    job = phases("delay=3us,policy=demand", 1)
    usual = simulate(job).time_ps
    for delay in ("1ns", "10us", "1s"):
        late = simulate(job, faults=FaultPlan(faults=(Straggler(npu="npu5", delay=delay),)))
        assert late.faults.healthy_ps == usual
