"""Fault plans under models with NICs, buffers, virtual channels, bubbles and links that serve in turn."""

from __future__ import annotations

from typing import Any

import pytest

from collectives import build
from sim import simulate
from sim.faults.apply import add_faults
from sim.faults.cost import named_deadlock
from sim.faults.plan import Fault, FaultPlan, Jitter, LinkDown, Loss, NodeDown, Repair, SlowLink, Straggler
from sim.lower import shape
from sim.lower.job import lower
from sim.program.model import Model, make_model
from sim.program.outcome import Deadlock
from topologies import Topology, WeftError, from_spec
from workloads.job import Job

ROUTERS: dict[str, Any] = {"bandwidth": "400Gb/s", "latency": "100ns", "hop_latency": "300ns"}
RING, TORUS = from_spec("ring:4", **ROUTERS), from_spec("torus:2x3", **ROUTERS)
MODELS: dict[str, dict[str, Any]] = {
    "nic": {"nic": "shared"}, "ejection": {"nic": "shared", "ejection_rate": "800Gb/s", "endpoint_latency": "500ns"},
    "fifo nic": {"nic": "shared", "nic_order": "fifo", "send_complete": "pushed", "rank_progress": "any"},
    "buffer": {"buffer": "64KiB"}, "vcs": {"vcs": 2}, "vcs, buffer": {"vcs": 2, "buffer": "64KiB"},
    "bubble": {"buffer": "64KiB", "bubble": True}, "flows": {"discipline": "round-robin-flow"},
    "ports, buffer": {"discipline": "round-robin-port", "buffer": "64KiB"},
    "all": {"nic": "shared", "vcs": 2, "buffer": "64KiB"},
}
CABLE = "npu0--npu1"
PLANS: dict[str, tuple[tuple[Fault, ...], dict[str, Any]]] = {
    "slow": ((SlowLink(link=CABLE, at="3us", share=0.25), Straggler(npu="npu2", delay="1us", speed=0.5)), {}),
    "around": ((LinkDown(link=CABLE, at="3us"), Repair(link=CABLE, at="30us")), {"reroute": "1us", "timeout": "5us"}),
    "waits": ((NodeDown(node="npu1", at="3us"), Repair(node="npu1", at="9us")), {"in_flight": "wait"}),
    "drawn": ((Loss(link="*", probability=0.1), Jitter(link="*", mean="100ns")), {"timeout": "5us"}),
}


def plan_of(name: str) -> FaultPlan:
    faults, options = PLANS[name]
    return FaultPlan(faults=faults, **options)


@pytest.mark.table
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize(("algorithm", "fabric"), [("ring", RING), ("bucket", TORUS)], ids=["ring", "bucket"])
def test_every_model_has_every_fault(algorithm: str, fabric: Topology, plan: str, model: str) -> None:
    """Certified, and no faster than nothing that is in the way allows."""
    schedule = build(algorithm, "all-reduce", fabric, "64KiB")
    result = simulate(schedule, engine="reference", chunks=2, faults=plan_of(plan), check=True, **MODELS[model])
    assert result.faults is not None and result.time_ps >= result.lower_bound_ps
    assert sum(result.why().parts.values()) == result.time_ps


@pytest.mark.parametrize(("reroute", "kept"), [(None, True), ("1us", False)])
def test_a_large_program_with_detours_is_there_once(
    reroute: str | None, kept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What detours are added to is not kept beside it for the next run, which finds the same again."""
    plan = FaultPlan(faults=(LinkDown(link=CABLE, at="1us"), Repair(link=CABLE, at="9us")), reroute=reroute)
    schedule = build("direct", "all-to-all", from_spec("torus:3x2"), "96KiB")
    small = simulate(schedule, faults=plan)
    assert schedule.pattern.emit in shape._shapes
    monkeypatch.setattr("sim.faults.apply.BLOCK", 4)
    for _ in range(2):
        large = simulate(schedule, faults=plan)
        assert (schedule.pattern.emit in shape._shapes) is kept
        assert large.row() | {"wall_s": 0} == small.row() | {"wall_s": 0}, "which lowers it again, for its bound"


@pytest.mark.table
@pytest.mark.parametrize("model", MODELS)
def test_what_goes_wrong_after_the_end_changes_nothing(model: str) -> None:
    """Neutral: with timetables and detours from a second on, whole, the run is the healthy one."""
    plan = FaultPlan(faults=(LinkDown(link=CABLE, at="1s"),), reroute="1us")
    schedule = build("bucket", "all-reduce", TORUS, "64KiB")
    healthy = simulate(schedule, engine="reference", chunks=2, symmetry="off", **MODELS[model])
    faulty = simulate(schedule, engine="reference", chunks=2, faults=plan, **MODELS[model])
    assert healthy.time_ps == faulty.time_ps
    assert healthy.outcome is not None and faulty.outcome is not None
    assert healthy.outcome.finish_ps.tolist() == faulty.outcome.finish_ps.tolist()


@pytest.mark.parametrize("model", ["ejection", "vcs, buffer", "flows"])
def test_the_symmetry_that_faults_keep_is_exact(model: str) -> None:
    """All links slow down at once: few ranks stand for all."""
    plan = FaultPlan(faults=(SlowLink(link="*", at="3us", share=0.25),))
    schedule = build("ring", "all-reduce", RING, "64KiB")
    few, every = (
        simulate(schedule, engine="reference", chunks=2, faults=plan, symmetry=one, **MODELS[model])
        for one in ("auto", "off")
    )
    assert few.time_ps == every.time_ps
    assert not few.lowered.is_whole


def detour_of(model: Model, link: str) -> list[tuple[str, int, int]]:
    """Server, latency and channel of each hop of the detour from npu0 to npu1 of a ring, once a link is down."""
    lowered = lower(job_of_ring(), model, "off")
    whole = add_faults(lowered, FaultPlan(faults=(LinkDown(link=link, at="1us"),), reroute="0s"))
    program, named = whole.program, {}
    for server, number in enumerate(whole.server_link.tolist()):
        named[server] = RING.link_name(number) if number >= 0 else f"end of {whole.server_rank[server]}"
    route = program.detour_route[0]
    hops = program.route_hop[program.route_ptr[route] : program.route_ptr[route + 1]]
    channel = program.hop_channel[hops].tolist() if program.has_channels else [0] * hops.size
    return [
        (named[server], latency, one) for server, latency, one in
        zip(program.hop_server[hops].tolist(), program.hop_latency_ps[hops].tolist(), channel, strict=True)
    ]


def job_of_ring(fabric: Topology = RING) -> Job:
    return Job.of(build("ring", "all-reduce", fabric, "64KiB"))


def test_a_detour_begins_at_its_nic_and_ends_at_one() -> None:
    """Up to a hop of the endpoint latency, 400 ns, lies behind the NIC, and the rest at the end."""
    assert detour_of(make_model(**MODELS["ejection"]), "npu0->npu1") == [
        ("end of 0", 400_000, 0), ("npu0->npu3", 400_000, 0), ("npu3->npu2", 400_000, 0), ("npu2->npu1", 400_000, 0),
        ("end of 1", 100_000, 0),
    ]


def test_a_detour_changes_channel_at_the_dateline() -> None:
    """From npu1 to npu2 the other way round: behind coordinate 0 it takes channel 1, which no own route does."""
    assert detour_of(make_model(vcs=2, endpoint_latency="5ns"), "npu1->npu2") == [
        ("npu1->npu0", 400_000, 0), ("npu0->npu3", 400_000, 1), ("npu3->npu2", 405_000, 1),
    ]


@pytest.mark.parametrize(("options", "rooms"), [({}, {2**16}), ({"bubble": True}, {2**16, 2**16 - 2**12})])
def test_links_that_only_detours_cross_have_buffers(options: dict[str, Any], rooms: set[int]) -> None:
    """A broadcast along a tree crosses 3 of 8 links, until one is down."""
    job = Job.of(build("tree", "broadcast", RING, "64KiB"))
    lowered = lower(job, make_model(chunk="4KiB", buffer="64KiB", **options), "off")
    faults = (LinkDown(link=RING.link_name(int(lowered.server_link[0])), at="1us"),)
    whole = add_faults(lowered, FaultPlan(faults=faults, reroute="0s"))
    assert (lowered.program.n_servers, whole.program.n_servers) == (3, 8)
    assert set(whole.program.server_buffer.tolist()) == rooms
    assert set(whole.program.server_credit_ps.tolist()) == {400_000}


def test_a_nic_that_sends_slowly_or_is_down_is_that_of_its_npu() -> None:
    """A straggler's NIC sends at its speed; a dead NPU's has a timetable in front of and behind its links."""
    plan = FaultPlan(faults=(Straggler(npu="npu2", speed=0.5), NodeDown(node="npu1", at="1us")))
    lowered = add_faults(lower(job_of_ring(), make_model(**MODELS["ejection"]), "off"), plan)
    program, changes = lowered.program, {}
    for server in range(program.n_servers):
        if lowered.server_link[server] < 0:
            rows = slice(*program.timetable_ptr[server : server + 2])
            name = lowered.streams[lowered.server_stream[server]], int(lowered.server_rank[server])
            changes[name] = list(zip(program.timetable_from_ps[rows].tolist(), program.timetable_rate[rows] < 0,
                                     program.timetable_rate[rows] == program.server_rate[server], strict=True))
    assert changes["injection", 2] == [(0, False, False)]
    assert changes["ejection", 2] == [(0, False, True)]
    assert changes["injection", 1] == changes["ejection", 1] == [(1_000_000, True, False)]
    assert changes["injection", 0] == []


def test_the_jitter_of_an_npu_is_not_of_its_nic() -> None:
    plan = FaultPlan(faults=(Jitter(npu="npu0", mean="1us"),))
    with pytest.raises(WeftError, match="npu0 computes nothing here"):
        add_faults(lower(job_of_ring(), make_model(nic="shared"), "off"), plan)


def test_a_circle_of_full_buffers_under_faults_has_its_links() -> None:
    lowered = lower(job_of_ring(), make_model(buffer="64KiB"), "off")
    stuck = named_deadlock(Deadlock("", unfinished=2, circle=(0, 1)), lowered, str, FaultPlan())
    names = [RING.link_name(int(lowered.server_link[server])) for server in (0, 1, 0)]
    assert str(stuck).endswith(f"buffers are full in a circle, each of chunks that wait for room behind the next link: "
                               f"{', '.join(names)}")
