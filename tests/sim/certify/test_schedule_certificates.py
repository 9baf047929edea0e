"""A program that was cut wrongly is caught by `check`: its work is compared with that of the schedule."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from collectives import build, ring_rounds
from sim import simulate
from sim.certify.healthy import CertificateError
from sim.certify.schedule import _sum
from sim.faults.plan import FaultPlan, SlowLink
from sim.lower.job import lower
from sim.lower.lowered import Lowered
from sim.program import Program
from sim.program.model import Model, make_model
from topologies import Topology, from_spec
from workloads.job import Job

Change = Callable[[Lowered], Lowered]


def program(change: Callable[[Program], dict[str, Any]]) -> Change:
    return lambda lowered: lowered._replace(program=lowered.program._replace(**change(lowered.program)))


def without_a_chunk(p: Program) -> dict[str, Any]:
    """The last cut loses a chunk of those that lead, or of the rest."""
    chunks, first = p.cut_chunks.copy(), p.cut_first.copy()
    chunks[-1] -= 1
    first[-1] = min(first[-1], chunks[-1])
    return {"cut_chunks": chunks, "cut_first": first}


def shorter(lowered: Lowered) -> Lowered:
    """The program of half the array."""
    whole = lowered.schedule
    half = replace(whole, size_bytes=whole.size_bytes // 2)
    return lower(Job.of(half), lowered.model)._replace(job=lowered.job)


def bytes_of_the_legend(lowered: Lowered) -> Lowered:
    fewer = lowered.task_bytes.copy()
    fewer[0] -= 4
    return lowered._replace(task_bytes=fewer)


def other_weights(lowered: Lowered) -> Lowered:
    """One rank too many stands for itself, which no transfer of the program does."""
    rank = lowered.orbits.rank.copy()
    rank[:, -1] = rank.shape[1] - 1
    return lowered._replace(orbits=lowered.orbits._replace(rank=rank))


def other_links(lowered: Lowered) -> Lowered:
    """A link stands for one of the other dimension."""
    link = lowered.orbits.link.copy()
    dimension = lowered.topology.dimension
    link[-1] = next(one for one in np.unique(link).tolist() if dimension[one] != dimension[-1])
    return lowered._replace(orbits=lowered.orbits._replace(link=link))


def on_the_next_server(p: Program) -> dict[str, Any]:
    server = p.hop_server.copy()
    server[server == 0] = 1
    return {"hop_server": server}


def at_another_rate(p: Program) -> dict[str, Any]:
    return {"service_ps": p.service_ps - (p.service_ps == p.service_ps.max())}


def without(*columns: str) -> Change:
    """A program whose tasks wait for each other no more: each of them is where it was, and nobody is told."""

    def change(p: Program) -> dict[str, Any]:
        lists = {one: getattr(p, one)[:0] for one in columns if not one.endswith("_ptr")}
        return lists | {one: np.zeros_like(getattr(p, one)) for one in columns if one.endswith("_ptr")}

    return program(change)


MUTANTS: dict[str, Change] = {
    "a chunk less": program(without_a_chunk),
    "half the bytes": shorter,
    "fewer bytes in the legend": bytes_of_the_legend,
    "other weights of ranks": other_weights,
    "other weights of links": other_links,
    "another server": program(on_the_next_server),
    "a picosecond less": program(at_another_rate),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_program_that_is_cut_wrongly_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its run obeys every rule: only the schedule tells."""
    schedule = build("swing", "all-reduce", from_spec("torus:4x2", ("400Gb/s", "200Gb/s")), 100_000, "bandwidth")
    assert " of 8 ranks simulated" in simulate(schedule, check=True).symmetry
    monkeypatch.setattr("sim.simulation.lower", lambda *given, **how: MUTANTS[name](lower(*given, **how)))
    with pytest.raises(CertificateError, match="conservation: "):
        simulate(schedule, check=True)
    simulate(schedule)


STREAMS = ("stream_ptr", "stream_child", "stream_lag", "parent_ptr", "parent", "parent_lag")


@pytest.mark.parametrize("symmetry", ["auto", "off"])
@pytest.mark.parametrize(
    ("algorithm", "columns", "words"),
    [
        ("swing", ("whole_ptr", "whole_child"), r"transfers wait 0 times whole in the program, \d+ in the schedule"),
        ("pipelined", STREAMS, r"transfers wait 0 times chunk by chunk in the program, \d+ in the schedule"),
        ("ring rounds", STREAMS, r"transfers wait 0 times in windows in the program, 12 in the schedule"),
    ],
)
def test_a_program_that_lost_its_waits_is_caught(
    algorithm: str, columns: tuple[str, ...], words: str, symmetry: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its run obeys all that the program says."""
    fabric = from_spec("ring:6")
    schedule = (
        ring_rounds.all_reduce(fabric, 600, jumps=(1,)) if algorithm == "ring rounds"
        else build(algorithm, "all-reduce", fabric, 6000)
    )
    simulate(schedule, check=True, symmetry=symmetry)
    monkeypatch.setattr("sim.simulation.lower", lambda *given, **how: without(*columns)(lower(*given, **how)))
    with pytest.raises(CertificateError, match=words):
        simulate(schedule, check=True, symmetry=symmetry)


@pytest.mark.parametrize("faults", [None, FaultPlan(faults=(SlowLink(link="*", share=0.5),))])
def test_jobs_are_checked_operation_by_operation(faults: FaultPlan | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A message that is left out of the program of a job, healthy or not, is missed."""

    def job_of(*senders: int) -> Job:
        job = Job(fabric)
        gather = job.collective("gather", build("ring", "all-gather", fabric, 1000))
        job.send("send", 500, senders, [one + 2 for one in senders], after=[gather])
        return job

    fabric: Topology = from_spec("ring:4")
    job = job_of(0, 1)
    simulate(job, faults=faults, check=True)
    monkeypatch.setattr(
        "sim.simulation.lower", lambda work, *given, **how: lower(job_of(0), *given, **how)._replace(job=work)
    )
    with pytest.raises(CertificateError, match="conservation: "):
        simulate(job, faults=faults, check=True)


@pytest.mark.parametrize(
    "model",
    [
        Model(chunks=None, chunk_bytes=1000),
        Model(chunks=None, chunk_bytes=1024, header_bytes=7),
        Model(chunks=7, packet_header_bytes=3),
        Model(chunks=100_000),
        Model(tie="split"),
    ],
)
@pytest.mark.parametrize("size", [0, 4, 1000, 99_999])
def test_every_way_to_cut_is_worked_out_alike(model: Model, size: int) -> None:
    for fabric in ("torus:4x4", "switch:4"):
        simulate(build("direct", "all-reduce", from_spec(fabric), size), model=model, check=True)


@pytest.mark.parametrize(
    ("spec", "algorithm", "kind", "size", "model"),
    [
        ("ring:6", "direct", "all-to-all", 30, {"tie": "split"}),
        ("ring:4", "ring", "all-gather", 800, {"chunk": "100B"}),
        ("ring:4", "ring", "all-gather", 840, {"chunk": "100B"}),
        ("ring:4", "ring", "all-gather", 5, {"chunks": 3}),
        ("switch:4", "in-network", "all-reduce", 1000, {"chunks": 3}),
    ],
    ids=["halves of odd bytes", "full chunks", "a remainder", "chunks of a byte or none", "switches that send"],
)
def test_runs_that_are_right_pass(spec: str, algorithm: str, kind: str, size: int, model: dict[str, Any]) -> None:
    """Elements of one byte."""
    whole = build(algorithm, kind, from_spec(spec), size)
    for symmetry in ("auto", "off"):
        simulate(replace(whole, element_bytes=1), model=make_model(**model), symmetry=symmetry, check=True)


def test_messages_by_named_links_pass() -> None:
    """One of two links, then of three, so that the links of the second are those behind the first's."""
    fabric = from_spec("ring:6")
    job = Job(fabric)
    links = {(int(a), int(b)): at for at, (a, b) in enumerate(zip(fabric.src, fabric.dst, strict=True))}
    routes = [[links[0, 1], links[1, 2]], [links[3, 2], links[2, 1], links[1, 0]]]
    job.send("send", [1000, 500], [0, 3], [2, 0], via=routes)
    result = simulate(job, check=True)
    busy = np.zeros(fabric.n_links, np.int64)
    for route, size in zip(routes, (1000, 500), strict=True):
        busy[route] += size
    assert (result.link_busy_ps > 0).tolist() == (busy > 0).tolist()


def test_rounds_with_chunks_of_their_own_pass() -> None:
    """At a rate at which the service of every chunk is rounded up, so that their number shows."""
    fabric = from_spec("switch:6", "7GB/s")
    simulate(ring_rounds.all_reduce(fabric, 30_000, jumps=(1, 5)), chunks=7, check=True)


def test_bytes_are_added_up_exactly() -> None:
    for values in ([2**32], [2**32 - 1, 1], [2**62] * 5, [2**62 - 1] * 7, []):
        assert _sum(np.array(values, np.int64)) == sum(values)
