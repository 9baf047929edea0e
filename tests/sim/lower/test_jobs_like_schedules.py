"""What a model adds to a schedule alone, it adds to each operation of a job: NICs, waits, buffers, channels, turns."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from collectives import Schedule, algorithms_for, build
from collectives.registry import COLLECTIVES
from sim import simulate
from sim.engine.reference.engine import run_reference
from sim.engine.run import run
from sim.lower.job import lower
from sim.lower.lowered import task_names
from sim.lower.tenants import Tenant
from sim.program import Program
from sim.program.model import Model, make_model
from sim.program.outcome import Deadlock
from topologies import Topology, WeftError, from_spec
from workloads.job import Job

FEATURES: dict[str, dict[str, Any]] = {
    "a NIC": {"nic": "shared", "injection_rate": "37.3GB/s", "chunks": 16},
    "a NIC that ejects, and pushed sends": {
        "nic": "shared", "injection_rate": "60GB/s", "ejection_rate": "55.5GB/s", "nic_order": "fifo",
        "send_complete": "pushed", "rank_progress": "authors", "chunks": 5,
    },
    "ports in turn": {"nic": "shared", "rank_progress": "any", "chunks": 2},
    "waiting ranks": {"rank_progress": "all", "chunks": 3},
    "buffers": {"buffer": "64KiB", "chunks": 5},
    "channels": {"vcs": 2, "buffer": "64KiB", "chunks": 3},
    "bubbles": {"bubble": True, "buffer": "64KiB", "chunks": 3},
    "flows in turn": {"discipline": "round-robin-flow", "chunks": 3},
    "links in turn behind a NIC": {"discipline": "round-robin-port", "nic": "shared", "chunks": 3},
    "halves that wait": {"tie": "split", "nic": "shared", "rank_progress": "all", "chunks": 2},
    "halves that are pushed": {"tie": "split", "nic": "shared", "send_complete": "pushed", "chunks": 2},
    "heads behind a NIC": {"deliver": "head", "nic": "shared", "endpoint_latency": "300ns", "chunks": 2},
}
RATE = "33.3GB/s"


def unequal() -> Topology:
    """A torus of odd extents whose links differ."""
    topology = from_spec("torus:2x3", RATE)
    rates = topology.bandwidth_Bps * (1 + 0.37 * (np.arange(topology.n_links) % 3 == 0))
    return topology.with_links(bandwidth_Bps=rates)


FABRICS = [unequal(), *(from_spec(spec, RATE) for spec in ("ring:5", "torus:4x4", "switch:3", "ring:2"))]


def cases() -> list[tuple[str, str, str]]:
    return [(feature, kind, name) for feature in FEATURES for kind in COLLECTIVES for name in algorithms_for(kind)]


def some_schedule(kind: str, name: str, first: int) -> Schedule:
    """On one of the fabrics that the algorithm takes."""
    for topology in FABRICS[first:] + FABRICS[:first]:
        try:
            return build(name, kind, topology, 24_000)
        except WeftError:
            pass
    raise AssertionError(f"{name} has no {kind} on any fabric")


def how_long(program: Program, engine: Any) -> int | str:
    try:
        return int(engine(program).makespan_ps)
    except Deadlock:
        return "stuck"


@pytest.mark.table
@pytest.mark.parametrize(("feature", "kind", "name"), cases())
def test_an_operation_takes_as_long_as_its_schedule(feature: str, kind: str, name: str) -> None:
    """With the joins of an operation, by representatives and by all ranks, in both engines; or both are refused."""
    schedule = some_schedule(kind, name, len(feature + kind + name) % len(FABRICS))
    model = make_model(Model(), **FEATURES[feature])
    try:
        alone = how_long(lower(schedule, model).program, run)
    except WeftError:
        for symmetry in ("auto", "off"):
            with pytest.raises(WeftError):
                lower(schedule, model, symmetry, joins=True)
        return
    few, every = (lower(schedule, model, symmetry, joins=True).program for symmetry in ("auto", "off"))
    assert [how_long(few, run), how_long(every, run), how_long(few, run_reference)] == [alone] * 3


@pytest.mark.parametrize("spec", ["dragonfly:5x2", "dragonfly:3x2", "torus:3x5"])
def test_halves_of_transfers_whose_ports_take_turns(spec: str) -> None:
    """Two routes, and so two tasks, of some transfers are posted from one port."""
    schedule = build("bucket", "all-reduce", from_spec(spec, RATE), 24_001)
    model = make_model(Model(), tie="split", nic="shared", chunks=3)
    alone, joined = lower(schedule, model), lower(schedule, model, "off", joins=True)
    assert how_long(alone.program, run) == how_long(alone.program, run_reference) == how_long(joined.program, run)


# Several operations, and tenants.

SMALL = [fabric for fabric in FABRICS if fabric.n_npus < 16]
"""What SimPy runs in a fraction of a second."""

RATES = (None, "7.7GB/s", RATE, "250GB/s")
"""Of a NIC: without, and below, at and above that of the links."""


@st.composite
def models(draw: st.DrawFn) -> Model:
    """Any combination that is accepted."""
    def one(*values: Any) -> Any:
        return draw(st.sampled_from(values))

    options: dict[str, Any] = {
        "chunks": one(1, 2, 3, 16), "forwarding": one("cut-through", "store-and-forward"),
        "deliver": one("tail", "tail", "head"), "tie": one("first", "first", "alternating", "split", "ecmp"),
        "rank_progress": one("free", "all", "authors"), "endpoint_latency": one("0s", "300ns"),
    }
    if (rate := one(*RATES)) is not None:
        options |= {
            "nic": "shared", "injection_rate": rate, "ejection_rate": one("unlimited", RATE, "9.1GB/s"),
            "nic_order": one("rotate", "fifo"), "send_complete": one("delivered", "pushed"),
            "nic_engines": one(None, 1),
            "rank_progress": one("free", "any", "all", "authors"), "post_time": one("1ns", "0s", "70ns"),
        }
    links = one("fifo", "channels", "bubble", "round-robin-flow", "round-robin-port", "priority", "smallest-first")
    if links in ("channels", "bubble"):
        options |= {"vcs": 2} if links == "channels" else {"bubble": True}
    else:
        options["discipline"] = links
    if links == "bubble" or one(True, False):
        options["buffer"] = one("128KiB", "1MiB")
    return make_model(**options)


@st.composite
def several(draw: st.DrawFn) -> Job | list[Tenant]:
    """Two collectives of any two algorithms on a small fabric: around computations, among messages, or as tenants."""
    topology = draw(st.sampled_from([*SMALL, *SMALL, *FABRICS]))

    def schedule() -> Schedule:
        kind = draw(st.sampled_from(list(COLLECTIVES)))
        name = draw(st.sampled_from(list(algorithms_for(kind))))
        try:
            return build(name, kind, topology, draw(st.sampled_from((1, 7_777, 24_000))))
        except WeftError:
            return build("direct", "all-to-all", topology, 7_777)

    one, other, p = schedule(), schedule(), topology.n_npus
    if draw(st.booleans()):
        arrival = draw(st.sampled_from(("0s", "1ns", "1.7us")))
        return [Tenant(name="one", work=one), Tenant(name="other", work=other, arrival=arrival)]
    job = Job(topology)
    duration, many = draw(st.sampled_from((0, 1, 300_000))), draw(st.sampled_from((1, p)))
    computed = job.compute("computed", duration, npus=range(many))
    first = job.collective("first", one, after=[computed], priority=1)
    sent = job.send("sent", draw(st.sampled_from((0, 5_000))), range(p), [(npu + 1) % p for npu in range(p)],
                    after=draw(st.sampled_from(([], [computed], [first]))))
    after = draw(st.sampled_from(([], [computed], [first], [first, sent])))
    job.compute("last", 777, after=[job.collective("second", other, after=after)])
    return job


@settings(max_examples=50, deadline=None)
@given(several(), models())
def test_any_job_under_any_model_is_one_run(work: Job | list[Tenant], model: Model) -> None:
    """Of representatives and of all ranks, in both engines, certified; its path accounts for every picosecond."""
    times: set[int | str] = set()
    for symmetry, engine in (("auto", "chunk"), ("off", "chunk"), ("off", "reference")):
        try:
            result = simulate(work, model=model, symmetry=symmetry, engine=engine, check=True, log=True)
        except Deadlock:
            times.add("stuck")
            continue
        except WeftError as refused:
            assume(not str(refused))
            raise
        times.add(result.time_ps)
        assert sum(result.why().parts.values()) == result.time_ps
        assert result.timeline().outcome is result.logged
        for rank in result.ranks[:2]:
            assert sum(result.exposed_ps(rank).values()) + result.compute_ps(rank) == result.time_ps
    assert len(times) == 1


# What one operation does not show.


def test_operations_share_the_nic_of_an_npu() -> None:
    """Two messages of an NPU over two links: side by side, or one after the other behind a NIC as slow as a link."""
    job = Job(from_spec("ring:5", RATE))
    job.send("up", 333_000, [0], [1])
    job.send("down", 333_000, [0], [4])
    free = simulate(job, chunks=1).time_ps
    shared = simulate(job, chunks=1, nic="shared", injection_rate=RATE, post_time="0s", push_time="0s").time_ps
    assert free < 11_000_000 < 20_000_000 <= shared < 21_000_000


def test_an_operation_that_comes_late_is_as_if_it_were_alone() -> None:
    """Behind NICs and channels, with ranks that wait: the second tenant finds everything as the first did."""
    fabric = FABRICS[2]
    model = make_model(nic="shared", injection_rate="37.3GB/s", rank_progress="authors", vcs=2, buffer="64KiB")
    tenants = [
        Tenant(name="one", work=build("swing", "all-reduce", fabric, "64KiB")),
        Tenant(name="late", work=build("bucket", "all-reduce", fabric, "64KiB"), arrival="1ms"),
    ]
    alone = simulate(tenants[1].work, model=model).time_ps
    assert simulate(tenants, model=model).time_ps == 10**9 + alone


def test_what_takes_turns_is_told_apart_over_all_operations() -> None:
    """At the port of a switch each shift comes from one other port; two shifts from two, of one representative."""
    def shifts(*some: int) -> Job:
        job = Job(from_spec("switch:5"))
        for shift in some:
            job.send(f"by {shift}", 50_000, range(5), [(npu + shift) % 5 for npu in range(5)])
        job.compute("computed", 1)
        return job

    for discipline, few in (("round-robin-port", 5), ("round-robin-flow", 1), ("fifo", 1)):
        for job, ranks in ((shifts(1), 1), (shifts(2), 1), (shifts(1, 2), few)):
            lowered = lower(job, Model(discipline=discipline))
            assert np.unique(lowered.orbits.rank).size == ranks


def test_ports_of_operations_that_take_turns_are_phases_of_their_own() -> None:
    """Two phases of bucket each, with four ports; swing, whose authors let ports go on together, has one port."""
    fabric = FABRICS[2]
    job = Job(fabric)
    for name in ("bucket", "swing", "bucket"):
        job.collective(name, build(name, "all-reduce", fabric, "64KiB"))
    lowered = lower(job, make_model(nic="shared", rank_progress="authors"))
    ports = [set(lowered.program.task_port[(lowered.task_operation == number) & (lowered.task_row >= 0)].tolist())
             for number in range(3)]
    assert lowered.program.ports_in_turn == 4 and len(ports[1]) == 1
    phases = [{port // 4 for port in some} for some in ports]
    assert len(set.union(*phases)) == sum(map(len, phases)) and len(phases[0]) == len(phases[2]) > 1


def test_streams_may_be_called_like_the_servers_of_nics() -> None:
    job = Job(from_spec("ring:2", RATE))
    job.send("sent", 100, [0], [1], after=[job.compute("computed", 10, stream="injection")])
    lowered = lower(job, make_model(nic="shared", ejection_rate=RATE), "off")
    names = [lowered.streams[stream] for stream in lowered.server_stream if stream >= 0]
    ends = [lowered.is_end(server) for server in range(lowered.program.n_servers)]
    assert sorted(names) == ["ejection", "injection", "injection", "injection"] and sum(ends) == 2
    assert "sent from npu0 to npu1" in map(task_names(lowered), range(lowered.program.n_tasks))


@pytest.mark.parametrize("push_time", ["1ns", "40ns"])
def test_a_source_goes_on_when_its_message_is_pushed(push_time: str) -> None:
    """What it computes then is most of the path, which leads back over the push to the NIC."""
    job = Job(from_spec("ring:4"))
    sent = job.send("sent", 500_000, [0, 1], [1, 2])
    job.compute("computed", 100_000_000, npus=[0], after=[sent])
    options: dict[str, Any] = {"nic": "shared", "push_time": push_time, "chunks": 4, "check": True, "log": True}
    delivered = simulate(job, **options).time_ps
    one, other = (simulate(job, engine=engine, send_complete="pushed", **options) for engine in ("chunk", "reference"))
    assert one.time_ps == other.time_ps < delivered
    assert sum(one.why().parts.values()) == one.time_ps and "posting" in one.why().parts
    assert sum(one.exposed_ps(0).values()) == one.time_ps - one.compute_ps(0)


def test_computations_deliver_their_end_and_transfers_their_heads() -> None:
    """A head is as much earlier as its chunk takes; a computation ends as it does."""
    job = Job(from_spec("ring:4", RATE))
    job.compute("computed", 1_000_000)
    assert simulate(job, deliver="head").time_ps == simulate(job).time_ps == 1_000_001
    job.send("sent", 33_300, [0], [1], after=[0])
    times = [simulate(job, deliver=deliver, chunks=1, engine=engine, check=True).time_ps
             for deliver, engine in product(("tail", "head"), ("chunk", "reference"))]
    assert times[0] == times[1] and times[2] == times[3] == times[0] - 1_000_000
