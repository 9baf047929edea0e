"""When operations run on each NPU, what its computations wait for, and what the pieces are called: by hand.

A ring of 1 byte a nanosecond, 1 ns of wire, 2 ns in each node and 7 ps at the end: a message of n bytes to the next
NPU takes n + 3 ns and 7 ps.
"""

from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import pytest

from collectives import build
from sim import FaultPlan, Jitter, LinkDown, Loss, NodeDown, Repair, SlowLink, Straggler, simulate
from sim.engine.run import run
from sim.lower.job import lower
from sim.lower.lowered import Lowered
from sim.lower.rotor import with_turns
from sim.program.model import Model
from sim.why.faulty_path import walk_of
from sim.why.path import Piece
from sim.why.spans import (
    IDLE_ELSEWHERE,
    LATE,
    NO_DIMENSION,
    RECONFIGURATION,
    WAIT_ELSEWHERE,
    Names,
    Span,
    Spans,
    explain_run,
    run_with_joins,
    run_with_log,
)
from tests.oracles.exposed import exposed_ps, under_way
from topologies import Topology, WeftError, from_links, from_spec, ring, torus
from workloads.job import Job

MODEL = Model(chunks=1, forwarding="store-and-forward", endpoint_latency_ps=7)


def fabric(n: int = 4) -> Topology:
    return ring(n, bandwidth="1GB/s", latency="1ns", hop_latency="2ns")


def round_trip() -> Job:
    """NPU 0 computes, and waits for 1, which computes behind its message, and for the message of 2 behind that of 1."""
    job = Job(fabric())
    first = job.compute("first", 1000, npus=[0])
    there = job.send("there", 10, [0], [1], kind="pipe", after=[first])
    between = job.compute("between", 500, npus=[1], after=[there])
    on = job.send("on", 20, [1], [2], kind="pipe", after=[between])
    back = job.send("back", 30, [2], [3], kind="tree", after=[on])
    home = job.send("home", 40, [3], [0], kind="pipe", after=[back])
    job.compute("copy", 900, npus=[0], stream="copy", after=[first])
    last = job.compute("last", 100, npus=[0], after=[home])
    job.compute("more", 50, npus=[0], after=[last])
    job.operations[1] = replace(job.operations[1], tenant="a")
    return job


def spans_of(job: Job) -> Spans:
    lowered = lower(job, MODEL, "off")
    return Spans(lowered, run_with_log(lowered))


def test_operations_of_each_npu_in_order() -> None:
    spans = spans_of(round_trip())
    there, on = 14_007, 14_507 + 23_007
    home = on + 33_007 + 43_007
    assert spans.of_rank(0) == [
        Span(0, 0, 0, 1000), Span(5, 0, 0, home), Span(1, 0, 1000, there), Span(6, 0, 1000, 1900),
        Span(7, 0, home, home + 100), Span(8, 0, home + 100, home + 150),
    ]
    assert spans.of_rank(1) == [Span(1, 1, 0, there), Span(2, 1, there, 14_507), Span(3, 1, 14_507, on)]
    assert [(one.start_ps, one.operation) for one in spans.all] == sorted(
        (one.start_ps, one.operation) for rank in range(4) for one in spans.of_rank(rank))


def test_what_an_npu_waits_for_is_its_own_or_others_communication_or_computation() -> None:
    spans = spans_of(round_trip())
    assert spans.compute_ps(0) == 1150 and spans.compute_ps(1) == 500 and spans.compute_ps(9) == 0
    assert spans.communication_ps(0) == {"pipe": 13_007 + 43_007}  # the last comes from afar, and begins there
    found = spans.exposed_ps(0)
    assert list(found.items()) == [
        (("pipe", "dimension 0"), 13_007 + 43_007), ((WAIT_ELSEWHERE, NO_DIMENSION), 23_007 + 33_007),
        ((IDLE_ELSEWHERE, NO_DIMENSION), 500),
    ]
    assert spans.exposed_ps(1) == {
        (IDLE_ELSEWHERE, NO_DIMENSION): 1000 + 150, ("pipe", "dimension 0"): 13_007 + 23_007,
        (WAIT_ELSEWHERE, NO_DIMENSION): 33_007 + 43_007,
    }
    assert spans.busy_ps == {("pipe", "dimension 0"): 40_000, ("tree", "dimension 0"): 30_000}
    again = pickle.loads(pickle.dumps(spans))
    assert again.exposed_ps(0) == found


COMPILED = pytest.mark.compiled  # half a minute without the compiler, whose lines smaller ones show


@pytest.mark.parametrize("spec", ["ring:2", "ring:5", "torus:3x2", pytest.param("torus:2x3x2", marks=COMPILED)])
@pytest.mark.parametrize("forwarding", ["cut-through", "store-and-forward"])
def test_stretches_of_paths_come_to_what_their_pieces_do(spec: str, forwarding: str) -> None:
    """Piece by piece, and in pieces of one kind and dimension that are written as one."""
    topology, draw = from_spec(spec), np.random.default_rng(7)
    model = Model(chunks=3, forwarding=forwarding)
    for _ in range(8):
        job, n = Job(topology), topology.n_npus
        for number in range(12):
            after = [one for one in range(number) if draw.integers(3) == 0]
            what, there = draw.integers(4), draw.permutation(n)[:2].tolist()
            if what == 0:
                schedule = build("bucket", "all-reduce", topology, f"{draw.integers(100, 9000)}B")
                job.collective(f"r{number}", schedule, kind=f"kind {draw.integers(2)}", after=after)
            elif what == 1:
                job.send(f"s{number}", int(draw.integers(1, 5000)), there[:1], there[1:], after=after)
            else:
                job.compute(f"c{number}", int(draw.integers(1, 10**8)), npus=there[: 3 - what], after=after)
        lowered = lower(job, model, "off")
        outcome = run_with_log(lowered)
        spans, fine = Spans(lowered, outcome), Spans(lowered, outcome)
        vars(fine)["_walk"] = walk_of(lowered.program, outcome, fine.names.labels)
        for rank in draw.permutation(n).tolist():
            found = spans.exposed_ps(rank)
            assert list(found.items()) == list(fine.exposed_ps(rank).items())
            assert sum(found.values()) + spans.compute_ps(rank) == outcome.makespan_ps
        pieces, wholes = (int(walk.back.walk["pieces"]) for walk in (fine._walk, spans._walk))
        assert wholes <= pieces


def test_only_dimensions_that_a_kind_crosses_are_busy() -> None:
    job = Job(torus((2, 2), bandwidth="1GB/s"))
    job.send("first", 10, [0], [1], kind="one")
    job.send("second", 5, [1, 0], [3, 2], kind="two")
    job.send("third", 5, [1], [3], kind="two")
    assert spans_of(job).busy_ps == {("one", "dimension 0"): 10_000, ("two", "dimension 1"): 10_000}


def test_busy_time_under_faults_is_what_the_journal_says() -> None:
    result = simulate(round_trip(), model=MODEL, log=True, symmetry="off", faults=FaultPlan(faults=(
        SlowLink(link="npu0->npu1", share=0.1), Straggler(npu="npu2", delay="9ns"))))
    assert result.busy_ps()["pipe", "dimension 0"] == 100_000


def test_gaps_end_where_the_next_computation_begins_late() -> None:
    """Computations of two priorities that touch leave no gap; what is at the end is explained by the last delivery."""
    job = Job(fabric(2))
    job.compute("a", 100)
    job.compute("b", 100)
    job.send("tail", 10, [0], [1])
    spans = spans_of(job)
    assert spans.exposed_ps(0) == {("send", "dimension 0"): 13_007 - 200}
    assert spans.compute_ps(0) == 200


@pytest.mark.parametrize("spec", ["ring:1", "ring:2", "ring:5", "torus:3x2"])
@pytest.mark.parametrize("forwarding", ["cut-through", "store-and-forward"])
def test_what_npus_wait_for_is_what_each_of_their_gaps_says(spec: str, forwarding: str) -> None:
    """Against the oracle, which looks at one NPU, gap and piece at a time."""
    topology, draw = from_spec(spec), np.random.default_rng(11)
    for _ in range(6):
        job, n = Job(topology), topology.n_npus
        for number in range(14):
            after = [one for one in range(number) if draw.integers(3) == 0]
            src, dst = int(draw.integers(n)), int(draw.integers(n))
            if draw.integers(2) and src != dst:
                size, kind = int(draw.integers(1, 5000)), f"kind {draw.integers(2)}"
                job.send(f"s{number}", size, [src], [dst], kind=kind, after=after)
            elif draw.integers(3) == 0:
                schedule = build("bucket", "all-reduce", topology, "999B")
                job.collective(f"r{number}", schedule, kind="kind 0", after=after)
            else:
                job.compute(f"c{number}", int(draw.integers(1, 10**6)), npus=[src], after=after)
        lowered = lower(job, Model(chunks=3, forwarding=forwarding), "off")
        spans = Spans(lowered, run_with_log(lowered))
        for rank in [*range(n), n]:
            assert spans.exposed_ps(rank) == exposed_ps(spans, rank)
            union = {kind: sum(end - start for start, end in joined(under_way(spans, rank, kind)))
                     for kind in spans.communication_ps(rank)}
            assert spans.communication_ps(rank) == union


def joined(intervals: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The union of intervals, as intervals that are apart."""
    found: list[tuple[int, int]] = []
    for start, end in sorted(intervals):
        if found and found[-1][1] >= start:
            before = found.pop()
            start, end = before[0], max(before[1], end)
        found.append((start, end))
    return found


def parts(job: Job, by: str = "dimension", *faults: object, **plan: object) -> dict[str, int]:
    if not faults:
        lowered = lower(job, MODEL, "off")
        return explain_run(lowered, run_with_log(lowered), by).parts
    result = simulate(job, model=MODEL, log=True, symmetry="off", faults=FaultPlan(faults=faults, **plan))
    return result.why(by=by).parts


def test_pieces_by_place_by_operation_by_kind_and_by_tenant() -> None:
    job = round_trip()
    assert parts(job) == {
        "serialization, dimension 0": 100_000, "hop processing": 8000, "propagation": 4000,
        "serialization, compute": 1650, "endpoint": 28,
    }
    by_operation = {"home": 43_007, "back": 33_007, "on": 23_007, "there": 13_007, "first": 1000, "between": 500,
                    "last": 100, "more": 50}
    assert parts(job, "operation") == by_operation
    by_kind = {"pipe": 79_021, "tree": 33_007, "first": 1000, "between": 500, "last": 100, "more": 50}
    assert parts(job, "kind") == by_kind
    by_operation["a"] = by_operation.pop("there")  # of the others, none has a tenant
    assert parts(job, "tenant") == by_operation
    with pytest.raises(WeftError, match="by"):
        parts(job, "rank")


def test_a_log_is_kept_where_a_run_is_to_be_explained() -> None:
    lowered = lower(round_trip(), MODEL)
    assert run_with_log(lowered).log is not None
    with pytest.raises(WeftError, match="log=True"):
        explain_run(lowered, run(lowered.program))


def test_a_change_of_circuits_is_called_so() -> None:
    job = Job(fabric(2))
    first = job.compute("first", 1000)
    change = job.reconfigure("swap", "5ns", [0], [1], kind="switching", after=[first])
    job.compute("last", 10, after=[change])
    assert parts(job) == {RECONFIGURATION: 5000, "serialization, compute": 1010}
    spans = spans_of(job)
    assert spans.exposed_ps(0) == {("switching", NO_DIMENSION): 5000}
    under_cut_through = lower(job, Model(chunks=1))
    names = explain_run(under_cut_through, run_with_log(under_cut_through)).parts
    assert names == {RECONFIGURATION: 5000, "serialization, compute": 1010, "compute": 2}


def test_links_without_a_dimension_are_called_links() -> None:
    job = Job(from_links([(0, 1, "1GB/s", 0), (1, 0, "1GB/s", 0)], 2, hop_latency=0))
    job.send("sent", 10, [0], [1])
    assert parts(job) == {"serialization, links": 10_000, "endpoint": 7}


def test_faults_have_names_of_their_own() -> None:
    """A late start, half the rate and more latency, a repair."""
    job = Job(fabric(2))
    job.send("sent", 10, [0], [1])
    slow = SlowLink(link="npu0->npu1", share=0.5, latency="4ns")
    assert parts(job, "dimension", Straggler(npu="npu0", delay="6ns"), slow) == {
        "serialization, dimension 0": 10_000, "slowed, dimension 0": 10_000, "late worker npu0": 6000,
        "added latency": 4000, "hop processing": 2000, "propagation": 1000, "endpoint": 7,
    }
    assert parts(job, "operation", Straggler(npu="npu0", delay="6ns")) == {"sent": 13_007, "late worker npu0": 6000}
    down = LinkDown(link="npu0--npu1", at="0s"), Repair(link="npu0--npu1", at="50ns")
    assert parts(job, "dimension", *down, in_flight="wait")["waiting for repair, dimension 0"] == 50_000


def test_waiting_under_faults_is_exposed_by_what_was_waited_for() -> None:
    job = Job(fabric(2))
    sent = job.send("sent", 10, [0], [1], kind="pipe")
    job.compute("last", 100, npus=[1], after=[sent])
    down = LinkDown(link="npu0--npu1", at="0s"), Repair(link="npu0--npu1", at="50ns")
    result = simulate(job, model=MODEL, log=True, symmetry="off", faults=FaultPlan(
        faults=(*down, Straggler(npu="npu0", delay="60ns")), in_flight="wait"))
    assert result.exposed_ps(1) == {(LATE, NO_DIMENSION): 60_000, ("pipe", "dimension 0"): 13_007}
    result = simulate(job, model=MODEL, log=True, symmetry="off", faults=FaultPlan(faults=down, in_flight="wait"))
    assert result.exposed_ps(1) == {("pipe", "waiting for repair"): 50_000, ("pipe", "dimension 0"): 13_007}


def test_a_computation_whose_npu_is_down_waits_for_its_repair() -> None:
    """Released at 13 ns and 7 ps, it begins at 50 ns, when its NPU is up again."""
    job = Job(fabric(2))
    sent = job.send("sent", 10, [0], [1], kind="pipe")
    job.compute("last", 100, npus=[1], after=[sent])
    down = NodeDown(node="npu1", at="13ns"), Repair(node="npu1", at="50ns")
    result = simulate(job, model=MODEL, log=True, symmetry="off", faults=FaultPlan(faults=down, in_flight="complete"))
    assert result.why().parts["waiting for repair, compute"] == 50_000 - 13_007
    assert result.exposed_ps(1) == {("last", "waiting for repair"): 50_000 - 13_007, ("pipe", "dimension 0"): 13_007}


@pytest.mark.parametrize(("symmetry", "whole"), [("auto", False), ("off", True)])
def test_a_schedule_with_joins_has_the_symmetry_that_it_had(symmetry: str, whole: bool) -> None:
    lowered = lower(build("ring", "all-reduce", fabric(), "1KiB"), MODEL, symmetry)
    joined, outcome = run_with_joins(lowered, with_turns)
    assert joined.is_whole == whole and len(joined.end_task) == (4 if whole else 1)
    assert outcome.log is not None and outcome.makespan_ps == run(lowered.program).makespan_ps


@pytest.mark.parametrize(("spec", "name"), [
    ("ring:5", "ring"), ("torus:3x2", "swing"), pytest.param("switch:7", "direct", marks=COMPILED),
    ("fat-tree:4", "in-network"), pytest.param("torus:4x3", "bucket", marks=COMPILED), ("ring:2", "ring"),
])
def test_spans_of_a_schedule_have_the_draws_of_its_run(spec: str, name: str) -> None:
    """What is drawn for a transfer is drawn by its number, which is the same with joins and without."""
    schedule = build(name, "all-reduce", from_spec(spec), "4099B")
    plans = FaultPlan(faults=(Jitter(link="*", mean="3us"),), seed=3), FaultPlan(
        faults=(Loss(link="*", probability=0.1),), timeout="5us", seed=5)
    for plan in plans:
        result = simulate(schedule, faults=plan)
        assert max(span.end_ps for span in result.spans()) == result.time_ps


def test_time_until_an_npu_sends_again_is_a_timeout() -> None:
    """From when the message is in the switch (1,024 bytes at 50 GB/s, 400 ns and 7 ps) until 100 us are over."""
    schedule = build("in-network", "all-reduce", from_spec("switch:3"), "1KiB")
    plan = FaultPlan(faults=(Loss(link="switch0->npu1", probability=0.5),), retry="npu", timeout="100us", seed=1)
    found = simulate(schedule, model=MODEL, log=True, symmetry="off", faults=plan).why().parts
    assert found["timeout"] + found["serialization, timeout"] == 100_000_000 - 400_007


def legend(**changes: object) -> Lowered:
    return lower(round_trip(), MODEL, "off")._replace(**changes)


def test_a_task_that_faults_add_is_of_no_operation() -> None:
    lowered = legend()
    names, n = Names(lowered), lowered.task_operation.size
    first, added = Piece(0, 1, "x", 0, 0), Piece(0, 1, "x", n, 0)
    assert names.operation(first) is lowered.job.operations[0] and names.operation(added) is None
    assert names.name(added, "kind") == "x" and names.exposed(added) == (LATE, NO_DIMENSION)
