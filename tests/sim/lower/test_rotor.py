"""Circuits that take turns: each circuit carries what fits its dwell, whatever runs."""

import pytest

from collectives import build
from sim import FaultPlan, simulate
from sim.faults.plan import Jitter, LinkDown, Loss, NodeDown, Repair, SlowLink, Straggler
from sim.optimizer.programs import collective_objective
from sim.program.model import make_model
from sim.study.choice import least_chunks
from topologies import WeftError, from_spec
from workloads.job import Job

CHUNK = 16_384


def rotor(n, ports, dwell_us=10, delay_us=2):
    return from_spec(f"rotor:{n}x{ports},dwell={dwell_us}us,delay={delay_us}us", "50GB/s", "100ns", 0)


@pytest.mark.table
@pytest.mark.parametrize("engine", ["chunk", "reference"])
@pytest.mark.parametrize("symmetry", ["auto", "off"])
@pytest.mark.parametrize(("n", "ports"), [(2, 1), (5, 1), (5, 2), (8, 3)])
@pytest.mark.parametrize("chunks", [1, 30, 61, 200])
def test_an_all_to_all_takes_as_many_turns_as_its_chunks_need(n, ports, chunks, symmetry, engine):
    """Of the last circuit of a cycle: its slot in the last cycle, and the chunks that are left for it."""
    fabric = rotor(n, ports)
    schedule = build("direct", "all-to-all", fabric, n * chunks * CHUNK)
    result = simulate(schedule, chunk=CHUNK, symmetry=symmetry, engine=engine, check=engine == "chunk")
    chunk_ps, slots = CHUNK * 20, -(-(n - 1) // ports)
    each = 10_000_000 // chunk_ps
    cycle, (turns, left) = slots * 12_000_000, divmod(chunks - 1, each)
    assert result.time_ps == turns * cycle + (slots - 1) * 12_000_000 + (left + 1) * chunk_ps + 100_000


@pytest.mark.parametrize("symmetry", ["auto", "off"])
@pytest.mark.parametrize(("n", "ports"), [(4, 1), (5, 2), (7, 2), (8, 2)])
def test_circuits_that_turn_in_no_time_leave_no_gap(n, ports, symmetry):
    schedule = build("direct", "all-to-all", rotor(n, ports, delay_us=0), n * 61 * CHUNK)
    found = simulate(schedule, chunk=CHUNK, symmetry=symmetry, check=True)
    slots = -(-(n - 1) // ports)
    turns, left = divmod(61 - 1, 10_000_000 // (CHUNK * 20))
    assert found.time_ps == (turns * slots + slots - 1) * 10_000_000 + (left + 1) * CHUNK * 20 + 100_000


def test_duty_is_the_dwell_over_the_slot():
    """Of many turns: 10 of 12 us, and 30 of the 30.5 chunks that fit a dwell."""
    n, ports = 9, 2
    schedule = build("direct", "all-to-all", rotor(n, ports), n * 3000 * CHUNK)
    result = simulate(schedule, chunk=CHUNK)
    alone_ps = (n - 1) * 3000 * CHUNK * 20 / ports
    assert alone_ps / result.time_ps == pytest.approx(10 / 12 * 30 * CHUNK * 20 / 10_000_000, rel=1e-3)


@pytest.mark.parametrize("algorithm", ["ring", "swing", "recursive-doubling", "pipelined"])
def test_whatever_runs_waits_for_its_circuits(algorithm):
    fabric = rotor(8, 2)
    schedule = build(algorithm, "all-reduce", fabric, "64KiB", *["bandwidth"] * (algorithm == "swing"))
    found = simulate(schedule, chunks=2, check=True)
    assert found.time_ps == simulate(schedule, chunks=2, engine="reference", symmetry="off").time_ps
    parts = found.why().parts
    assert parts["waiting for the turn of a circuit, dimension 0"] > 0 and sum(parts.values()) == found.time_ps
    assert max(span.end_ps for span in found.spans()) == found.time_ps
    low, high = found.spread(4).low_ps, found.spread(4).high_ps
    assert low <= found.time_ps <= high and low > found.time_ps / 2


def test_a_job_goes_on_a_rotor():
    job = Job(rotor(4, 1))
    first = job.send("there", 50_000, [0], [3])  # the last of three slots
    job.send("back", 50_000, [3], [0], after=[job.compute("work", 1_000_000, npus=[3], after=[first])])
    # arrives at 25.1 us, and works until 26.1; the circuit back is up from 36 us on
    assert simulate(job, check=True).time_ps == 36_000_000 + 1_100_000


def test_chunks_are_chosen_that_fit_the_turns():
    schedule = build("direct", "all-to-all", rotor(8, 2), "64MiB")
    least = least_chunks(schedule, make_model())
    assert simulate(schedule, chunks=least, check=True).spread(4).high_ps
    with pytest.raises(WeftError, match="a chunk takes 10"):
        simulate(schedule, chunks=least - 1)


@pytest.mark.parametrize(("options", "message"), [
    ({"chunk": "1MiB"}, "a chunk takes 20.97 us, and circuits of rotor:8x2.* are up for 10 us: give a longer dwell"),
    ({"engine": "analytic"}, "the analytic engine on rotor:8x2.*: it knows no turns"),
    ({"chunks": 80, "faults": FaultPlan(faults=(LinkDown(link="npu0->npu1", at="1us"),))}, "give in-flight = .wait"),
    ({"chunks": 80, "faults": FaultPlan(faults=(NodeDown(node="npu1", at="1us"),), in_flight="wait", reroute="1us")},
     "waits for its repair as well"),
    ({"chunks": 80, "faults": FaultPlan(faults=(SlowLink(link="*", at="1us", share=0.1),))}, "a chunk takes 20.97 us"),
])
def test_what_a_rotor_does_not_do_is_said(options, message):
    with pytest.raises(WeftError, match=message):
        simulate(build("direct", "all-to-all", rotor(8, 2), "64MiB"), **options)


LINK = "npu0->npu1"
FAULTS = {
    "slow": [SlowLink(link=LINK, at="900ns", share=0.3, latency="77ns")],
    "slow, all": [SlowLink(link="*", at="9us", share=0.5)],
    "late": [Straggler(npu="npu1", delay="17us", speed=0.7)], "loss": [Loss(link="*", probability=0.03)],
    "jitter": [Jitter(link="*", mean="77ns")],
    "down": [LinkDown(link=LINK, at="1.123us"), Repair(link=LINK, at="19us")],
    "node": [NodeDown(node="npu2", at="3us"), Repair(node="npu2", at="29us")],
}


@pytest.mark.table
@pytest.mark.parametrize("faults", FAULTS)
@pytest.mark.parametrize(("n", "ports"), [(5, 2), (7, 3), (4, 3)])
@pytest.mark.parametrize(("kind", "algorithm"), [("all-reduce", "ring"), ("all-to-all", "direct")])
def test_faults_and_turns_hold_together(n, ports, kind, algorithm, faults):
    schedule = build(algorithm, kind, rotor(n, ports), "64KiB")
    options = {"chunks": 3, "faults": FaultPlan(faults=tuple(FAULTS[faults]), in_flight="wait", timeout="3us", seed=3)}
    found = simulate(schedule, check=True, **options)
    assert found.time_ps == simulate(schedule, engine="reference", symmetry="off", **options).time_ps
    assert found.time_ps >= simulate(schedule, chunks=3).time_ps
    assert sum(found.why().parts.values()) == found.time_ps


def test_a_link_that_comes_back_waits_for_its_turn():
    """npu0 to npu3 has the last of three slots, from 24 to 34 us, and then from 60 us on."""
    job = Job(rotor(4, 1))
    job.send("there", 50_000, [0], [3])
    link = "npu0->npu3"

    def time_ps(*faults):
        return simulate(job, chunks=1, check=True, faults=FaultPlan(faults=faults, in_flight="wait")).time_ps

    assert time_ps(LinkDown(link=link, at="0s"), Repair(link=link, at="25us")) == 25_000_000 + 1_100_000
    assert time_ps(LinkDown(link=link, at="24.5us"), Repair(link=link, at="40us")) == 60_000_000 + 1_100_000
    assert time_ps(SlowLink(link=link, at="0s", share=0.125)) == 24_000_000 + 8_100_000
    assert time_ps(SlowLink(link=link, at="0s", share=0.125), SlowLink(link=link, at="30us")) == 24_000_000 + 8_100_000


@pytest.mark.parametrize(("n", "ports"), [(8, 2), (5, 3), (2, 1)])
def test_a_budget_on_a_rotor_is_that_of_its_ports(n, ports):
    fabric = rotor(n, ports, 90, 10)
    objective = collective_objective(fabric, "all-reduce", "ring", "1MiB", model=make_model(chunks=16))
    found = objective.evaluate([50.0 * ports])
    assert round(found.time_ns * 1e3) == simulate(build("ring", "all-reduce", fabric, "1MiB"), chunks=16).time_ps
    assert objective.time_ns([50.0 * ports]) == found.time_ns
    assert 0 <= found.parts[0].service_ns[0] <= found.time_ns
    assert objective.spread([50.0 * ports]).low_ps <= found.time_ns * 1e3
