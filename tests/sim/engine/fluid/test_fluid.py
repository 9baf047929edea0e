"""The fluid engine: against its oracle, against the chunk engine where both are the same, and its symmetries."""

from __future__ import annotations

import signal
from fractions import Fraction
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectives import Schedule, algorithms_for, build
from sim.certify.fluid import certify_flows
from sim.engine.fluid import run as fluid
from sim.engine.fluid.run import run_flows
from sim.engine.reference.fluid import max_min, run_reference_fluid
from sim.engine.run import run
from sim.faults.plan import Fault, FaultPlan, Jitter, LinkDown, Loss, Repair, SlowLink, Straggler
from sim.lower.job import lower
from sim.program import Program, ProgramBuilder, service_time_ps
from sim.program.flows import BITS, LEAST_RATE, Speeds, flows_of
from sim.program.model import Model
from sim.program.outcome import Deadlock, Outcome, Progress, Stopped
from sim.simulation import simulate
from tests.fault_strategies import faulty_flows
from tests.strategies import REALISTIC_RATES, flow_programs
from topologies import Topology, WeftError, from_spec
from topologies.core import extents
from topologies.units import PS_PER_S
from workloads.job import Communicate, Job, Operation, Send

WHOLE = Model(chunks=1)
KINDS = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "broadcast", "reduce")
FABRICS = ("torus:4x4", "ring:5", "hypercube:3", "switch:6", "RI(3)_FC(4)", "fat-tree:4")


def assert_same_times(one: Outcome, other: Outcome) -> None:
    np.testing.assert_array_equal(one.start_ps, other.start_ps)
    np.testing.assert_array_equal(one.finish_ps, other.finish_ps)
    assert (one.makespan_ps, one.events) == (other.makespan_ps, other.events)


def assert_as_exact(program: Program, speeds: Speeds) -> None:
    """The engine and its oracle say the same, be it a deadlock, and the certificate holds."""
    try:
        exact = run_reference_fluid(program, speeds)
    except Deadlock as stuck:
        with pytest.raises(Deadlock, match=rf"^{stuck.unfinished} of {program.n_tasks} tasks can never finish"):
            run_flows(program, speeds)
        return
    outcome = run_flows(program, speeds, log=True)
    assert_same_times(outcome, exact)
    certify_flows(flows_of(program, speeds), outcome)


@settings(max_examples=400, deadline=None)
@given(flow_programs())
def test_rounded_rates_give_the_times_of_exact_ones(drawn: tuple[Program, Speeds]) -> None:
    """Every task starts and ends in the same picosecond as with fractions, and the certificate holds."""
    assert_as_exact(*drawn)


@settings(max_examples=400, deadline=None)
@given(faulty_flows())
def test_what_changes_is_the_same_with_exact_rates(drawn: tuple[Program, Speeds]) -> None:
    """Slow links, links that go down and come back, detours, deadlines, computations, and pools."""
    assert_as_exact(*drawn)


@settings(max_examples=60, deadline=None)
@given(flow_programs(), st.randoms(use_true_random=False))
def test_the_order_of_links_is_nothing(drawn: tuple[Program, Speeds], random: Random) -> None:
    """Links with other numbers have the same times: nothing ties."""
    program, speeds = drawn
    servers = list(range(program.n_servers))
    random.shuffle(servers)  # server s becomes servers[s]
    order = np.argsort(servers)
    other = program._replace(
        server_rate=program.server_rate[order], hop_server=np.array(servers, np.int32)[program.hop_server],
        server_discipline=program.server_discipline[order],
    )
    moved = Speeds([speeds.rates[one] for one in order], alone=[servers[one] for one in speeds.alone])
    assert_same_end(program, speeds, other, moved)


@settings(max_examples=60, deadline=None)
@given(flow_programs(), st.sampled_from([2, 3, 7, 1000]))
def test_faster_links_and_larger_transfers_take_the_same_time(
    drawn: tuple[Program, Speeds], factor: int
) -> None:
    program, speeds = drawn
    larger = program._replace(chunk_work=program.chunk_work * factor)
    assert_same_end(program, speeds, larger, speeds._replace(rates=[rate * factor for rate in speeds.rates]))


def assert_same_end(program: Program, speeds: Speeds, other: Program, others: Speeds) -> None:
    """Both take the same time, or neither ever ends."""
    try:
        one = run_flows(program, speeds)
    except Deadlock:
        with pytest.raises(Deadlock):
            run_flows(other, others)
    else:
        assert_same_times(one, run_flows(other, others))


Routes = list[tuple[int, Fraction, int]]


@given(st.lists(st.tuples(st.integers(0, 10**7), st.sampled_from(REALISTIC_RATES), st.integers(1, 4)), max_size=5),
       st.booleans())
@settings(max_examples=60, deadline=None)
def test_flows_that_share_no_link_take_the_time_of_whole_chunks(routes: Routes, alike: bool) -> None:
    """Alone on equal links, transfers in one chunk and flows end in the same ps; else within a chunk at each hop."""
    builder, rates, most = ProgramBuilder(), list[Fraction](), list[int]()
    for work, fastest, hops in routes:
        own = [fastest if alike else fastest / (1 + hop % 2) for hop in range(hops)]
        rates += own
        builder.task(work, [(builder.server(rate), 1000 * hop + 1) for hop, rate in enumerate(own)])
        most.append(0 if alike else sum(service_time_ps(work, rate) for rate in own))
    program = builder.build()
    flows, chunks = run_flows(program, Speeds(rates)), run(program)
    more = chunks.finish_ps - flows.finish_ps
    assert np.all(more >= 0)
    assert np.all(more <= most)


@pytest.mark.parametrize("fabric", ["ring:8", "torus:4x4", "fc:6"])
@pytest.mark.parametrize("kind", ["all-reduce", "all-gather"])
def test_rings_are_the_same_in_both_engines(fabric: str, kind: str) -> None:
    """One transfer at a time on every link: a flow is a chunk."""
    schedule = build("ring", kind, from_spec(fabric), "1MiB")
    assert simulate(schedule, engine="fluid", check=True).time_ps == simulate(schedule, chunks=1).time_ps


def test_one_link_is_shared_evenly() -> None:
    """Three flows on 3 bytes per ps, of 3, 6 and 9 bytes: each end gives its share to the others."""
    builder = ProgramBuilder()
    link = builder.server(Fraction(3 * PS_PER_S))
    for work in (3, 6, 9):
        builder.task(work, [(link, 10)])
    found = run_flows(builder.build(), Speeds([Fraction(3 * PS_PER_S)]))
    assert (found.finish_ps - 10).tolist() == [3, 5, 6]


def test_a_flow_that_is_held_up_elsewhere_leaves_its_share_to_others() -> None:
    rates = max_min([Fraction(10), Fraction(2)], {0: [0], 1: [0, 1], 2: [1], 3: [0, 0]})
    assert rates == {1: 1, 2: 1, 0: 3, 3: 3}


@pytest.mark.compiled
@pytest.mark.table
@pytest.mark.parametrize("fabric", FABRICS)
@pytest.mark.parametrize("kind", KINDS)
def test_the_quotient_is_exact_and_every_certificate_holds(fabric: str, kind: str) -> None:
    """Representatives alone take the time of all ranks; bounds hold, and one certificate after the other."""
    topology = from_spec(fabric)
    for name in algorithms_for(kind):
        schedule = _built(name, kind, topology)
        if schedule is None:
            continue
        few, every = (simulate(schedule, engine="fluid", symmetry=how, check=True) for how in ("auto", "off"))
        assert few.time_ps == every.time_ps, name
        assert few.events <= every.events


def _built(name: str, kind: str, topology: Topology) -> Schedule | None:
    """The schedule, if the algorithm and the engine take the fabric."""
    try:
        schedule = build(name, kind, topology, "96KiB")
        flows_of(lower(schedule, WHOLE).program, lower(schedule, WHOLE).speeds())
    except WeftError:
        return None
    return schedule


def _busy() -> tuple[Program, Speeds]:
    """An all-to-all that keeps links busy, of transfers of many sizes."""
    lowered = lower(build("direct", "all-to-all", from_spec("random-regular:12x3"), "1MiB"), WHOLE)
    tasks = np.arange(lowered.program.n_tasks, dtype=np.int32)
    one = np.ones_like(tasks)
    program = lowered.program._replace(
        cut_chunks=one, cut_first=one, cut_size=np.stack([tasks, tasks], axis=1), task_cut=tasks,
        chunk_work=1 + np.random.default_rng(0).integers(0, 1 << 20, tasks.size),
    )
    return program, lowered.speeds()


@pytest.mark.compiled
@pytest.mark.full
def test_slices_give_the_same_arrays_and_tell_how_far_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    program, rates = _busy()
    whole, told = run_flows(program, rates, log=True), list[Progress]()
    monkeypatch.setattr(fluid, "SLICE_CROSSINGS", 1)
    slices = run_flows(program, rates, log=True, progress=told.append)
    assert_same_times(whole, slices)
    assert whole.rates is not None and slices.rates is not None
    np.testing.assert_array_equal(whole.rates, slices.rates)
    assert [one.events for one in told] == sorted(one.events for one in told)
    assert told[-1].total_events == program.n_tasks == whole.events
    assert_same_times(whole, run_reference_fluid(program, rates))


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_says_how_far_it_came(monkeypatch: pytest.MonkeyPatch) -> None:
    program, rates = _busy()
    monkeypatch.setattr(fluid, "SLICE_CROSSINGS", 1)
    with pytest.raises(Stopped, match=r"interrupted at .* of simulated time, \d+ of 132 flows ended"):
        run_flows(program, rates, progress=lambda one: signal.raise_signal(signal.SIGINT))


def test_a_run_too_large_is_rejected_before_it_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    program, rates = _busy()
    monkeypatch.setattr(extents, "physical_memory", lambda: 1536)
    with pytest.raises(WeftError, match="132 flows that cross 300 links; the limit is 1 KiB"):
        run_flows(program, rates)


def test_rates_too_far_apart_are_rejected() -> None:
    builder = ProgramBuilder()
    rates = [Fraction(10**9), Fraction(10**9) * 2**BITS / LEAST_RATE]
    builder.task(1, [(builder.server(rate), 1) for rate in rates])
    with pytest.raises(WeftError, match="within a factor of four million"):
        run_flows(builder.build(), Speeds(rates))


def test_a_flow_beyond_the_clock_is_rejected() -> None:
    builder = ProgramBuilder()
    link = builder.server(Fraction(1))
    for _ in range(2):
        builder.task(4_000_000, [(link, 1)])
    with pytest.raises(WeftError, match="the clock"):
        run_flows(builder.build(), Speeds([Fraction(1)]))


def test_messages_of_a_job_are_flows() -> None:
    """Messages of many sizes, and a collective after them, on the quotient and not."""
    fabric = from_spec("random-regular:8x3")
    src, dst = zip(*[(a, b) for a in range(8) for b in range(8) if a != b], strict=True)
    work = Send(tuple(1000 + 77 * at for at in range(len(src))), src, dst), Communicate(build(
        "direct", "all-reduce", fabric, "64KiB"))
    messages = Operation("messages", "send", work[0], None, (), 0)
    job = Job(fabric, [messages, Operation("sum", "all-reduce", work[1], None, (0,), 0)])
    few, every = (simulate(job, engine="fluid", symmetry=how, check=True) for how in ("auto", "off"))
    assert few.time_ps == every.time_ps > simulate(Job(fabric, [messages]), engine="fluid").time_ps


def test_computations_take_their_stream_one_by_one() -> None:
    """Without contention a job takes the time of the chunk engine, at other speeds of ranks and late ranks too."""
    fabric = from_spec("ring:4")
    job = Job(fabric, [], np.array([1.0, 0.5, 0.25, 1.0]))
    first = job.compute("first", 3_000_000)
    summed = job.collective("sum", build("ring", "all-reduce", fabric, "64KiB"), after=[first])
    job.compute("aside", 5_000_000, after=[first])
    job.compute("last", 2_000_000, after=[summed])
    late = FaultPlan(faults=(Straggler(npu="npu2", delay="4us"),))
    for faults in (None, late):
        flows, chunks = (simulate(job, engine=one, chunks=1, faults=faults, check=True) for one in ("fluid", "chunk"))
        assert flows.time_ps == chunks.time_ps
        assert flows.spans() == chunks.spans()
        assert [flows.compute_ps(rank) for rank in range(4)] == [chunks.compute_ps(rank) for rank in range(4)]


def test_jitter_of_computations_is_more_to_compute() -> None:
    """The draws of the chunk engine, at the same speeds; with what is slow meanwhile, as in fractions."""
    job = Job(from_spec("ring:4"))
    first = job.compute("first", 3_000_000)
    job.compute("second", 5_000_001, after=[first])
    drawn = Jitter(npu="npu1", mean="2us"), Jitter(npu="npu3", mean="1us", distribution="uniform")
    plain, late = (FaultPlan(faults=(*drawn, *more), seed=5) for more in ((), (Straggler(npu="npu3", speed=0.3),)))
    flows, chunks = (simulate(job, engine=one, chunks=1, faults=plain, check=True) for one in ("fluid", "chunk"))
    assert flows.time_ps == chunks.time_ps > simulate(job, chunks=1).time_ps
    assert flows.spans() == chunks.spans()
    assert [flows.compute_ps(rank) for rank in range(4)] == [chunks.compute_ps(rank) for rank in range(4)]
    slowed = simulate(job, engine="fluid", chunks=1, faults=late, check=True)
    exact = run_reference_fluid(slowed.lowered.program, slowed.lowered.speeds())
    assert slowed.outcome is not None and exact.finish_ps.tolist() == slowed.outcome.finish_ps.tolist()


def one_flow(*faults: Fault, **how: Any) -> int:
    """When a flow of 1000 ns between neighbors of a ring has ended."""
    fabric = from_spec("ring:4", latency="0s")
    job = Job(fabric, [])
    job.send("one", int(fabric.bandwidth_Bps[0]) // 10**6, [0], [1])
    return simulate(job, engine="fluid", faults=FaultPlan(faults=faults, **how) if faults else None, check=True).time_ps


DOWN, UP = LinkDown(link="npu0->npu1", at="400ns"), Repair(link="npu0->npu1", at="2us")


def test_faults_of_one_flow() -> None:
    """Half of the rate from 400 ns on; stopped from then to 2 us; drained; or all that is left goes the long way."""
    alone, rest, hop = one_flow(), 600_000, 300_000
    assert alone == 400_000 + rest + hop
    assert one_flow(SlowLink(link="npu0->npu1", at="400ns", share=0.5)) == alone + rest
    assert one_flow(SlowLink(link="npu0->npu1", at="400ns", latency="3us")) == alone + 3_000_000
    assert one_flow(DOWN, UP, in_flight="wait") == 2_000_000 + rest + hop
    assert one_flow(DOWN, in_flight="complete") == alone
    assert one_flow(DOWN, in_flight="wait", reroute="100ns") == 500_000 + rest + 3 * hop
    assert one_flow(Straggler(npu="npu0", speed=0.5)) == alone + 1_000_000
    with pytest.raises(Deadlock, match=r"npu0->npu1 is down from 400.*ns on, and nothing repairs it"):
        one_flow(DOWN, in_flight="wait")


@pytest.mark.parametrize(("faults", "said"), [
    ((Loss(link="*", probability=0.1),), "no chunks to lose"),
    ((Jitter(link="*", mean="1us"),), "no chunks that jitter could delay"),
    ((DOWN,), "links that go down need in-flight wait or complete"),
])
def test_what_faults_do_to_chunks_is_rejected(faults: tuple[Fault, ...], said: str) -> None:
    with pytest.raises(WeftError, match=said):
        one_flow(*faults)


def test_a_fluid_run_has_no_services_to_look_into() -> None:
    result = simulate(build("ring", "all-reduce", from_spec("ring:4"), "1MiB"), engine="fluid")
    for ask in (result.why, result.timeline, result.spread, result.spans, lambda: result.exposed_ps(0)):
        with pytest.raises(WeftError, match="a fluid run has rates and no services"):
            ask()
    assert result.row()["engine"] == "fluid"
    assert result.link_busy_ps.tolist() == [15_728_640] * 8  # 2 x 3/4 x 1/2 MiB at 50 GB/s


@pytest.mark.parametrize("model", [
    {"chunks": 4}, {"chunk": "8KiB"}, {"packet_header": 8}, {"discipline": "priority"}, {"nic": "shared"},
    {"buffer": "1MiB"}, {"deliver": "head"}, {"forwarding": "store-and-forward"},
])
def test_what_flows_do_not_have_is_rejected(model: dict[str, Any]) -> None:
    name = next(iter(model))
    with pytest.raises(WeftError, match=rf"^{name.replace('_', ' ')}.*: not with the fluid engine"):
        simulate(build("ring", "all-reduce", from_spec("ring:4"), 64), engine="fluid", **model)
