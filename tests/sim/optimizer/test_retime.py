"""A program at other bandwidths is the program that lowering would have made there."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectives import build
from sim import simulate
from sim.analytic.constraints import Feasible, parse_constraint
from sim.engine.run import run
from sim.lower.job import lower
from sim.optimizer.cuts import optimize
from sim.optimizer.objective import Simulated
from sim.optimizer.programs import collective_objective
from sim.optimizer.retime import links_per_npu, rates_of_links, retimed, with_bandwidths, with_base_rates
from sim.program.model import Model
from topologies import WeftError, from_links, from_spec
from workloads.training import Training, training_job
from workloads.workload import Call, Layer, Phase, Workload

COLLECTIVES = [
    ("torus:4x4", "swing", "all-reduce", (25.0, 70.0)),
    ("torus:8x2", "bucket", "all-reduce", (40.0, 10.0)),
    ("mesh:3x3", "direct", "all-to-all", (9.0, 30.0)),
    ("RI(4)_FC(4)_SW(4)", "hierarchical", "all-reduce", (100.0, 30.0, 7.0)),
    ("hx2mesh:2x2", "bucket", "reduce-scatter", (50.0, 20.0)),
]

SHARES: dict[str, list[float]] = {
    "fat-tree:4": [1, 1, 1], "fat-tree:4x4": [1, 0.5, 0.5], "leaf-spine:8x4x2": [1, 0.25], "circulant:16x1x5": [2, 2],
    "RI(4)_FC(8)_SW(2)": [2, 7, 1], "RI(2)": [1], "LI(3)": [4 / 3], "torus:8x2": [2, 1], "SW(4)_SW(4)": [1, 1],
}


@pytest.mark.parametrize("spec", SHARES)
def test_links_that_share_an_npus_bandwidth(spec: str) -> None:
    topology = from_spec(f"multidim:{spec}" if "(" in spec else spec)
    assert links_per_npu(topology) == pytest.approx(SHARES[spec])
    rates = with_bandwidths(topology, [60.0] * len(SHARES[spec])).bandwidth_Bps
    assert rates == pytest.approx((60e9 / np.array(SHARES[spec]))[topology.dimension])


@pytest.mark.parametrize(("spec", "algorithm", "kind", "bandwidth"), COLLECTIVES)
@pytest.mark.parametrize("chunks", [1, 5])
def test_the_same_as_lowered_anew(
    spec: str, algorithm: str, kind: str, bandwidth: tuple[float, ...], chunks: int
) -> None:
    """To the picosecond, with sizes that the chunks do not divide."""
    topology, model = from_spec(spec), Model(chunks=chunks)
    n_dims = int(topology.dimension.max()) + 1
    rates = np.resize(np.array(bandwidth), n_dims)
    ours = retimed(lower(build(algorithm, kind, with_base_rates(topology), 1_000_003), model)).at(rates)
    theirs = lower(build(algorithm, kind, with_bandwidths(topology, rates), 1_000_003), model).program
    assert run(ours).makespan_ps == run(theirs).makespan_ps


@pytest.mark.parametrize("loop", ["no-overlap", "wfbp", "dear"])
def test_a_job_the_same_as_lowered_anew(loop: str) -> None:
    """Computations keep their times."""
    call = Call("all-reduce", 3_000_000.0, "dp")
    layers = tuple(Layer(f"l{k}", Phase(2e4), Phase(1e4), Phase(3e4, (call,))) for k in range(3))
    workload, groups, training = Workload("w", layers), {"dp": (4, 4)}, Training(loop=loop, bucket_bytes=None)
    topology, rates = from_spec("RI(4)_SW(4)"), np.array([80.0, 15.0])
    base = retimed(lower(training_job(with_base_rates(topology), workload, groups, training), Model(chunks=1)))
    anew = lower(training_job(with_bandwidths(topology, rates), workload, groups, training), Model(chunks=1))
    assert run(base.at(rates)).makespan_ps == run(anew.program).makespan_ps
    assert base.least().floor().time_ns(rates) * 1e3 <= run(base.at(rates)).makespan_ps
    limited = retimed(lower(training_job(with_base_rates(topology), workload, groups, training), Model(chunks=1)), 95.0)
    compute_ns = 3 * 6e4
    assert compute_ns < base.least().floor().time_ns([1e9, 1e9]) < limited.least().floor().time_ns([1e9, 1e9])
    for split in ([80.0, 15.0], [15.0, 80.0], [95.0, 0.001], [47.5, 47.5]):
        assert limited.least().floor().time_ns(split) * 1e3 <= run(limited.at(np.array(split))).makespan_ps


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(COLLECTIVES), st.integers(0, 10**6), st.sampled_from(["tail", "head"]), st.sampled_from([1, 3, 8])
)
def test_no_run_is_faster_than_the_floor(
    case: tuple[str, str, str, object], seed: int, deliver: str, chunks: int
) -> None:
    """At any bandwidths, and with heads delivered too."""
    spec, algorithm, kind, _ = case
    topology = from_spec(spec, latency="0ns", hop_latency="0ns")
    if algorithm == "hierarchical":
        deliver = "tail"
    schedule = build(algorithm, kind, with_base_rates(topology), 100_000)
    found = retimed(lower(schedule, Model(chunks=chunks, deliver=deliver)))
    rates = 10 ** np.random.default_rng(seed).uniform(0, 3, found.n_dims)
    assert found.least().floor().time_ns(rates) * 1e3 <= run(found.at(rates)).makespan_ps


@pytest.mark.parametrize(("spec", "algorithm", "kind", "bandwidth"), COLLECTIVES)
def test_evaluations_are_runs(spec: str, algorithm: str, kind: str, bandwidth: tuple[float, ...]) -> None:
    """Time and critical path of every evaluation are those of a run, and each is run once."""
    topology = from_spec(spec)
    found = retimed(lower(build(algorithm, kind, with_base_rates(topology), 500_000), Model(chunks=2)))
    objective = Simulated([(1.0, found)])
    rates = np.resize(np.array(bandwidth), found.n_dims)
    for factor in (1.0, 1.001, 0.999, 1.3):
        point = rates * np.linspace(1, factor, rates.size)
        part = objective.evaluate(point).parts[0]
        program = found.at(point)
        outcome = run(program, log=True)
        assert part.time_ns * 1e3 == outcome.makespan_ps
        assert part.service_ns.sum() * 1e3 <= outcome.makespan_ps
    assert objective.runs == 4
    objective.evaluate(rates)
    assert objective.runs == 4


@pytest.mark.parametrize("options", [{}, {"service": "smallest-first"}], ids=["fifo", "smallest-first"])
def test_limits_on_active_chunks(options: dict[str, str]) -> None:
    """To the picosecond, whatever the pools serve first."""
    schedule = build(
        "hierarchical", "all-reduce", with_base_rates(from_spec("RI(4)_FC(4)_SW(4)")), "4MiB", None,
        pipeline_chunks=4, **options,
    )
    found = retimed(lower(schedule, Model(chunks=1)))
    assert found.program.pool_capacity.size == 3
    objective, rng = Simulated([(1.0, found)]), np.random.default_rng(0)
    for _ in range(20):
        point = np.array([120.0, 40.0, 20.0]) * np.exp(rng.normal(0, 0.1, 3))
        assert round(objective.evaluate(point).time_ns * 1e3) == run(found.at(point)).makespan_ps
    assert objective.runs == 20


def test_what_is_refused() -> None:
    with pytest.raises(WeftError, match="must have its base rates"):
        retimed(lower(build("ring", "all-reduce", from_spec("ring:4"), 64)))
    bare = from_links([(0, 1, "1GB/s", "1ns"), (1, 0, "1GB/s", "1ns")], n_npus=2)
    with pytest.raises(WeftError, match="links without a dimension"):
        retimed(lower(build("direct", "all-reduce", bare, 64)))
    schedule = build("ring", "all-reduce", with_base_rates(from_spec("ring:4")), 64)
    objective = Simulated([(1.0, retimed(lower(schedule)))])
    with pytest.raises(WeftError, match="must be above zero and finite"):
        objective.evaluate(np.array([0.0]))
    with pytest.raises(WeftError, match="nothing to simulate"):
        Simulated([])


@pytest.mark.parametrize("fixed", [(33.0, 5.0), (5.3, 7.9), (1.1, 0.7)])
def test_what_a_solver_ends_a_little_below_is_the_round_rate(fixed: tuple[float, float]) -> None:
    """To the picosecond, as on a fabric that is given the rates in text."""
    limits = [parse_constraint(f"B{dim} = {rate}", 2) for dim, rate in enumerate(fixed, start=1)]
    objective = collective_objective(from_spec("torus:4x4"), "all-reduce", "bucket", "1MiB", model=Model(chunks=4))
    found = optimize(objective, Feasible(limits, 2), max_evaluations=3).best
    assert found.bandwidth_GBps.tolist() == list(fixed)
    fabric = from_spec("torus:4x4", bandwidth=",".join(f"{rate / 2}GB/s" for rate in fixed))
    alone = simulate(build("bucket", "all-reduce", fabric, "1MiB"), chunks=4)
    assert round(found.time_ns * 1e3) == alone.time_ps


def test_a_rate_is_the_decimal_that_it_is_written_as() -> None:
    """The nearest number of bytes per second, which the nearest number of GB/s times a power of ten may miss."""
    rates = [digits / 1000 for digits in range(1, 3000)]
    assert rates_of_links(np.array(rates), np.ones(len(rates))) == [digits * 1e6 for digits in range(1, 3000)]
    assert any(rate * 1e9 != digits * 1e6 for digits, rate in enumerate(rates, start=1))
