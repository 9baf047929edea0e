"""No run undercuts a lower bound; where nothing queues the bound is the time."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings

from collectives import ALGORITHMS, build
from sim import simulate
from sim.analytic.bounds import Moved, bounds, busy_and_path_ps, load_ps
from sim.engine.run import run
from sim.lower.job import lower
from sim.program import Cutting, Program, ProgramBuilder
from sim.program.columns import BLOCK
from sim.program.model import Model
from sim.program.outcome import Deadlock
from tests.fabrics import random_fabric
from tests.oracles import lone_route
from tests.strategies import programs
from topologies import Topology, WeftError, from_links, from_spec

MODELS = [
    Model(),
    Model(forwarding="store-and-forward"),
    Model(deliver="head", chunks=None, chunk_bytes=512, header_bytes=8, endpoint_latency_ps=520_000),
    Model(forwarding="store-and-forward", deliver="head", chunks=3),
]


@settings(max_examples=200, deadline=None)
@given(programs())
@pytest.mark.parametrize("block", [1, BLOCK])
def test_bounds_of_random_programs(block: int, program: Program) -> None:
    """The busiest server and the longest path are never longer than the run, and those of the oracle, in blocks too."""
    try:
        makespan = run(program).makespan_ps
    except Deadlock:
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sim.analytic.bounds.BLOCK", block)
        assert busy_and_path_ps(program)[0] == lone_route.busiest(program) <= makespan
        assert busy_and_path_ps(program)[1] == lone_route.longest_chain(program) <= makespan


@settings(max_examples=200, deadline=None)
@given(programs())
def test_the_load_of_a_server_has_latencies_around_it(program: Program) -> None:
    """They are those of the oracle, whatever waits for what, and no run is shorter; where heads count nothing is."""
    try:
        makespan = run(program).makespan_ps
    except Deadlock:
        return
    found = lone_route.load_and_latencies(program)
    assert load_ps(program) == (0 if program.delivers_heads else found)
    assert load_ps(program) <= makespan
    assert load_ps(program, latencies=False) == (0 if program.delivers_heads else lone_route.busiest(program))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sim.analytic.bounds.BLOCK", 0)  # as of many tasks
        assert load_ps(program) == (0 if program.delivers_heads else lone_route.busiest(program)) <= makespan


@pytest.mark.table
@pytest.mark.parametrize("name", ALGORITHMS)
@pytest.mark.parametrize("spec", ["torus:4x4", "torus:3x5", "switch:6", "mesh:3x3", "hx2mesh:2x2"])
def test_bounds_of_every_algorithm(name: str, spec: str) -> None:
    """No algorithm on any topology beats its bounds, under any model; the certificates hold as well."""
    topology = from_spec(spec)
    for collective in ALGORITHMS[name].functions:
        for size in ("0B", "1KiB", "300KiB"):
            try:
                schedule = build(name, collective, topology, size)
            except WeftError:
                continue  # what it cannot do is the subject of the registry's own tests
            for model in MODELS:
                result = simulate(schedule, model=model, check=True)
                assert result.lower_bound_ps <= result.time_ps


def lopsided(seed: int) -> Topology:
    """A fabric of 2 to 7 NPUs whose links have a rate of their own in each direction, some far below the others."""
    rng, plain = random.Random(seed), random_fabric(seed, 9)
    rates = {npu: (rng.choice((1, 10, 33)), rng.choice((1, 10, 33))) for npu in range(plain.n_nodes)}
    links = [
        (a, b, f"{min(rates[a][0], rates[b][1]) * rng.choice((1, 3))}GB/s", "100ns")
        for a, b in zip(plain.src.tolist(), plain.dst.tolist(), strict=True)
    ]
    return from_links(links, plain.n_npus, name=f"lopsided{seed}")


@pytest.mark.table
@pytest.mark.parametrize("seed", range(32))
def test_bounds_hold_where_npus_receive_at_another_rate_than_they_send(seed: int) -> None:
    """Of every algorithm that runs there; what enters and leaves single NPUs is a cut, so the exact one is no less."""
    topology = lopsided(seed)
    for name, algorithm in ALGORITHMS.items():
        for collective in algorithm.functions:
            try:
                schedule = build(name, collective, topology, "30MB")
            except WeftError:
                continue  # what it cannot do is the subject of the registry's own tests
            result = simulate(schedule, chunks=32, check=True)
            found = bounds(result.lowered)
            assert found.best_ps <= result.time_ps
            if collective in ("all-gather", "reduce-scatter", "broadcast", "reduce"):
                assert found.wire_ps <= found.cut_ps


def test_a_reduced_shard_may_enter_as_one() -> None:
    """Links into rank 0 alone are slow: each rank sends two shards of three, and receives one."""
    links = [(a, b, "10GB/s" if b else "5GB/s", "1us") for a in range(3) for b in range(3) if a != b]
    schedule = build("pipelined", "reduce-scatter", from_links(links, 3, name="thin"), "300MB")
    result = simulate(schedule, chunks=64, check=True)
    assert bounds(result.lowered).wire_ps <= bounds(result.lowered).cut_ps <= result.time_ps < 14e9


def test_a_lone_path_meets_its_bound() -> None:
    """Transfers that never meet take exactly the time of the longest path."""
    builder = ProgramBuilder(forwarding="store-and-forward")
    wires = [builder.server(rate) for rate in (1e9, 2e9, 5e8)]
    first = builder.task(10_000, [(wire, 700) for wire in wires], Cutting(chunks=4))
    builder.task(6_000, [(wires[0], 300)], Cutting(chunks=2), after=[first])
    program = builder.build()
    assert busy_and_path_ps(program)[1] == run(program).makespan_ps


def test_a_busy_server_meets_its_bound() -> None:
    """Many transfers over one wire without latency take exactly its work."""
    builder = ProgramBuilder(forwarding="store-and-forward")
    wire = builder.server(1e9)
    for index in range(5):
        builder.task(1000 + index, [(wire, 0)], tie_class=index)
    program = builder.build()
    assert busy_and_path_ps(program)[0] == run(program).makespan_ps == 5_010_000


def test_the_wire_bound_is_tight_for_a_large_ring() -> None:
    """A ring all-reduce of a large array comes within a tenth of a per cent of what any algorithm must move."""
    lowered = lower(build("ring", "all-reduce", from_spec("ring:8"), "1GiB"), Model(chunks=64))
    outcome = run(lowered.program)
    wire = bounds(lowered).wire_ps
    assert wire <= outcome.makespan_ps <= 1.001 * wire


@pytest.mark.parametrize("kind", ["all-reduce", "all-gather", "reduce-scatter", "all-to-all", "broadcast", "gather"])
@pytest.mark.parametrize("fabric", ["ring:2", "ring:7", "mesh:3x2", "torus:3x5", "fat-tree:4", "dgx-h100:1"])
def test_what_must_be_moved_at_other_rates_is_that_of_the_fabric_that_has_them(fabric: str, kind: str) -> None:
    """In proportion or not, one rate after the other; links that are alike stay so."""
    topology = from_spec(fabric)
    name = next(name for name, one in ALGORITHMS.items() if kind in one.functions and not one.built_from_rates
                and not _refuses(name, kind, topology))
    moved = Moved(lower(build(name, kind, topology, "1001KiB")))
    rates, which = np.unique(topology.bandwidth_Bps, return_inverse=True)
    dimension = np.maximum(topology.dimension, 0)
    asymmetric = topology.with_links(1e9 * (1 + dimension))
    by_dimension = Moved(lower(build(name, kind, asymmetric, "1001KiB")))
    for rate in (3.3e9, 6.6e9, 1e10 / 3, 7e3):
        slower = topology.with_links((rate * (1 + np.arange(rates.size)))[which])
        assert moved(slower.bandwidth_Bps, lambda one=slower: one) == _moved(name, kind, slower)
        for steps in (1, 2, 0.7):
            other = topology.with_links(rate + steps * rate * dimension)
            assert by_dimension(other.bandwidth_Bps, lambda one=other: one) == _moved(name, kind, other)


def _refuses(name: str, kind: str, topology: Topology) -> bool:
    try:
        build(name, kind, topology, "1001KiB")
    except WeftError:
        return True
    return False


def _moved(name: str, kind: str, topology: Topology) -> tuple[int, int]:
    found = bounds(lower(build(name, kind, topology, "1001KiB")))
    return found.wire_ps, found.cut_ps
