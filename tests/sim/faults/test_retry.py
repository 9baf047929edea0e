"""Losses that NPUs retry, on schedules and fault plans; the times are judged in the tests of the slot pool."""

import pytest

from collectives import build, in_network, ring
from sim import simulate
from sim.faults.plan import FaultPlan, Loss, NodeDown, SlowLink, Straggler
from sim.lower.lowered import task_names
from sim.program.outcome import Deadlock
from topologies import WeftError, from_spec, switch
from workloads.job import Job

HOW = {"chunk": 1024, "packet_header": 66, "forwarding": "store-and-forward"}


def plan(*faults, retry="npu", timeout="20us", seed=0):
    return FaultPlan(faults=faults, retry=retry, timeout=timeout, seed=seed)


def pushed(p=4, size=9 * 1024, **options):
    return in_network.all_reduce(switch(p, bandwidth="100Gb/s", latency="2us"), size, slots=3, **options)


@pytest.mark.parametrize("direction", ["npu1->switch0", "switch0->npu1"])
def test_a_packet_that_is_certainly_lost_costs_a_timeout_per_window(direction):
    """Every packet is lost once: three windows of three, each a timeout and a packet later than without loss."""
    schedule = pushed()
    clean = simulate(schedule, **HOW)
    lossy = simulate(schedule, faults=plan(Loss(link=direction, probability=1)), **HOW)
    assert lossy.faults.lost == 9
    assert any(note.endswith("9 chunks lost and sent again") for note in lossy.notes())
    wire_ps = 87_200
    assert 3 * 20_000_000 <= lossy.time_ps - clean.time_ps <= 3 * (20_000_000 + 9 * wire_ps)
    why = lossy.why()
    assert why.makespan_ps == lossy.time_ps == sum(piece.end_ps - piece.start_ps for piece in why.pieces)


@pytest.mark.parametrize("deliver", ["tail", "head"])
@pytest.mark.parametrize("forwarding", ["store-and-forward", "cut-through"])
def test_a_lost_packet_of_one_npu_costs_what_it_costs_by_hand(deliver: str, forwarding: str) -> None:
    """Through a NIC twice as fast as its link: up, a timeout after it left, up again, and down; lost again down."""
    wire_ps, nic_ps, hop_ps, timeout_ps = 87_200, 43_600, 2_000_000, 20_000_000
    how = HOW | {"nic": "shared", "injection_rate": "200Gb/s", "deliver": deliver, "forwarding": forwarding}
    schedule = in_network.all_reduce(switch(2, bandwidth="100Gb/s", latency="2us", hop_latency=0), 1024)
    up_ps = (nic_ps if forwarding == "store-and-forward" else 1) + wire_ps * (deliver == "tail")
    clean, lost_up, lost_down = (
        simulate(schedule, faults=None if link is None else plan(Loss(link=link, probability=1)), check=True, **how)
        for link in (None, "npu0->switch0", "switch0->npu0")
    )
    down_ps = wire_ps * (deliver == "tail") + hop_ps
    assert clean.time_ps == up_ps + hop_ps + down_ps
    assert lost_up.time_ps == 2 * up_ps + timeout_ps + hop_ps + down_ps
    assert lost_down.time_ps == 2 * up_ps + timeout_ps + hop_ps + down_ps


def test_any_order_of_service_and_buffers_go_with_retries_of_npus() -> None:
    """On a star every order is that of the packets; a buffer of one packet holds the others back."""
    faults = plan(Loss(link="*", probability=0.3))
    orders = "fifo", "priority", "smallest-first", "lowest-chunk-first", "round-robin-flow", "round-robin-port"
    times = {simulate(pushed(), faults=faults, discipline=one, check=True, **HOW).time_ps for one in orders}
    assert len(times) == 1
    held = simulate(pushed(), faults=faults, buffer="1100B", check=True, **HOW)
    again = simulate(pushed(), faults=faults, buffer="1100B", engine="reference", **HOW)
    assert times.pop() < held.time_ps == again.time_ps


def test_every_packet_has_its_name():
    """The legend covers what is sent again, the timers and the sums; bytes count once."""
    clean, lossy = (simulate(pushed(), faults=faults, log=True, **HOW)
                    for faults in (None, plan(Loss(link="*", probability=0.3))))
    lowered, name = lossy.lowered, task_names(lossy.lowered)
    assert lowered.task_operation.size == lowered.program.n_tasks > clean.lowered.program.n_tasks
    assert lossy.faults.lost and lossy.wire_bytes == clean.wire_bytes
    for task in range(lowered.program.n_tasks):
        server = lowered.program.route_server[lowered.program.route_ptr[lowered.program.task_route[task]]]
        link = lowered.server_link[server] if lowered.program.has_hops(task) else -1
        ends = [lowered.topology.node_name(int(end[link])) for end in (lowered.topology.src, lowered.topology.dst)]
        said = lossy.timeline().task_name(task) if task < 40 else name(task).partition(" (")[0]
        assert said == (" to ".join(ends) if link >= 0 else "a timeout" if lowered.program.has_hops(task) else
                        "a sum at the switch")
    assert set(lossy.why(by="operation").parts) == {"in-network (push)"}


def test_late_and_slow_npus_beside_losses_and_nothing_lost():
    schedule, others = pushed(), (Straggler(npu="npu2", delay="7us"), SlowLink(link="npu0--switch0", share="1/3"))
    without = simulate(schedule, faults=plan(*others), **HOW)
    none = simulate(schedule, faults=plan(*others, Loss(link="*", probability=0.0)), **HOW)
    some = simulate(schedule, faults=plan(*others, Loss(link="*", probability=0.3)), **HOW)
    assert none.time_ps == without.time_ps < some.time_ps
    both = [simulate(schedule, faults=some.faults.plan, engine=engine, **HOW) for engine in ("chunk", "reference")]
    assert [one.time_ps for one in both] == [some.time_ps] * 2


def test_a_plan_says_who_retries():
    slow = SlowLink(link="*", share="2/6"), SlowLink(link="npu0->switch0", share="1/2")
    given = plan(Loss(link="*", probability=0.95), *slow)
    assert FaultPlan.from_dict(given.to_dict()) == given
    assert given.to_dict()["retry"] == "npu" and "retry" not in FaultPlan().to_dict()
    assert [fault.share for fault in given.faults if isinstance(fault, SlowLink)] == ["1/3", 0.5]


@pytest.mark.parametrize(("made", "message"), [
    (lambda: plan(retry="switch"), "retry 'switch' is unknown: choose one of source, npu"),
    (lambda: plan(Loss(link="*", probability=0.95), retry="source"), "probability 0.95 is out of range: from 0 to 0.9"),
    (lambda: plan(SlowLink(link="*", share="4/3")), "share '4/3' is out of range: above 0 and at most 1, a number"),
    (lambda: plan(SlowLink(link="*", share="a third")), "share 'a third' is out of range"),
])
def test_plans_that_are_rejected(made, message):
    with pytest.raises(WeftError, match=message):
        made()


@pytest.mark.parametrize("schedule", [
    ring.all_reduce(switch(4), "9KiB"), pushed(trees=2), in_network.all_reduce(switch(4), "9KiB", form="pull"),
    in_network.reduce(switch(4), "9KiB"),
], ids=["ring", "two trees", "pull", "reduce"])
def test_other_schedules_are_rejected(schedule):
    with pytest.raises(WeftError, match="retry 'npu' is that of aggregation through one switch"):
        simulate(schedule, faults=plan(Loss(link="*", probability=0.1)), **HOW)


def test_a_timeout_within_the_round_trip_is_rejected():
    with pytest.raises(WeftError, match="timeout of 1 us is not above the round trip of"):
        simulate(pushed(), faults=plan(Loss(link="*", probability=0.1), timeout="1us"), **HOW)


@pytest.mark.parametrize(("seed", "probability"), [(0, 0.01), (2, 0.1), (0, 0.1)])
def test_the_packets_of_a_retry_are_no_transfers_of_the_schedule(seed: int, probability: float) -> None:
    """With and without a loss the certificates hold: the program has packets, whatever is lost."""
    built = build("in-network", "all-reduce", from_spec("switch:2"), 1, "push")
    lossy = FaultPlan(retry="npu", timeout="3us", seed=seed, faults=(Loss(link="*", probability=probability),))
    assert simulate(built, chunks=1, check=True, faults=lossy).time_ps > 0


def test_chunks_that_are_lost_for_good_are_named_where_nothing_has_a_timetable() -> None:
    lossy = FaultPlan(faults=(Loss(link="*", probability=0.9),))
    with pytest.raises(Deadlock, match="link npu0->switch0 lost chunks 256 times each"):
        simulate(build("direct", "all-to-all", from_spec("switch:2"), 9), faults=lossy)


def test_a_job_with_a_late_start_names_what_is_down() -> None:
    job = Job(from_spec("ring:3"))
    job.send("s", "1000B", [1], [2])
    plan = FaultPlan(faults=(NodeDown(node="npu2"), Straggler(npu="npu1", delay="500ns")))
    with pytest.raises(Deadlock, match=r"node npu2 is down from 0 ps on, .*: s from npu1 to npu2"):
        simulate(job, chunks=1, faults=plan)
