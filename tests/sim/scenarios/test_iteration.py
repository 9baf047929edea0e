"""Simulated iterations: LIBRA's loop with its fill and drain, the account of exposed time, bubbles, and pictures."""

from __future__ import annotations

from dataclasses import replace

import pytest

from collectives.hierarchical import blocks_of
from sim.plots.timeline import draw_timeline, timeline_rows
from sim.program.model import Model
from sim.simulation import simulate
from sim.why.spans import IDLE_ELSEWHERE, NO_DIMENSION, WAIT_ELSEWHERE
from topologies import Topology, WeftError, bytes_per_s, from_spec
from topologies.core.product import link_bandwidths
from topologies.products import multidim
from workloads.compute import Accelerator
from workloads.job import Job
from workloads.model_workload import training_workload
from workloads.models import model
from workloads.parallelism import parse_parallelism
from workloads.pipeline import PIPELINE_ORDERS, Pipeline, pipeline_job
from workloads.training import LOOPS, Training, layer_of, training_job
from workloads.workload import Call, Groups, Layer, Phase, Workload

ONE = Model(chunks=1)


def network(spec: str, npu_bandwidth: list[float]) -> Topology:
    links = link_bandwidths(npu_bandwidth, blocks_of(from_spec(spec)))
    return multidim(spec, bandwidth=[bytes_per_s(one) for one in links], latency=0, hop_latency=0)


def traffic(extents: tuple[int, ...], size: float, kind: str) -> float:
    """Bytes that an NPU sends in all dimensions."""
    sent = 0.0
    for extent in extents:
        sent += size * (extent - 1) / extent * (2 if kind == "all-reduce" else 1)
        size /= extent
    return sent


@pytest.mark.full
@pytest.mark.table
@pytest.mark.parametrize("chunks", [1, 8, 64])
def test_msft_1t_under_the_loop_of_libra(chunks):
    """Two layers of MSFT-1T on 4D-4K at LIBRA's split (209.686 ms there), as shipped, and fill and drain added.

    Inside each group the split makes all dimensions equal, so that every collective takes (1 + (D-1)/C) of its time.
    """
    tensor, data = (4, 8, 4), (32,)
    reduce, gather, gradients = 805_306_368, 6_291_456, 226_492_416
    compute_ms = 169.995114
    w_tensor = 8 * traffic(tensor, reduce, "all-reduce") + 2 * traffic(tensor, gather * 128, "all-gather")
    w_data = traffic(data, gradients, "all-reduce")
    roots = w_tensor**0.5, w_data**0.5
    ends = [500e9 * root / sum(roots) for root in roots]
    shares = zip(tensor, (1, 4, 32), strict=True)
    inner = [traffic((extent,), reduce / before, "all-reduce") for extent, before in shares]
    topology = network("RI(4)_FC(8)_RI(4)_SW(32)", [*(ends[0] * one / sum(inner) for one in inner), ends[1]])
    calls = Call("all-reduce", reduce, "forward"), Call("all-gather", gather, "forward")
    workload = Workload("msft-1t", (
        *(Layer(f"{i}", Phase(compute_ms * 1e6 / 4, calls[:1] * 4), Phase(0.0, calls[1:])) for i in (1, 2)),
        Layer("gradients", Phase(compute_ms * 1e6 / 2), Phase(), Phase(0.0, (Call("all-reduce", gradients, "data"),))),
    ))
    groups = {"forward": (4, 8, 4, 1), "data": (1, 1, 1, 32)}
    training = Training(loop="no-overlap", options={"pipeline_chunks": chunks, "element_bytes": 1})
    result = simulate(training_job(topology, workload, groups, training), model=ONE)
    assert "1 of 4096 ranks" in result.lowered.symmetry
    libra_ms = compute_ms + (w_tensor / ends[0] + w_data / ends[1]) * 1e3
    assert libra_ms == pytest.approx(209.686, abs=1e-3)
    expected_ms = compute_ms + (w_tensor / ends[0] * (1 + 2 / chunks) + w_data / ends[1]) * 1e3
    assert result.time_s * 1e3 == pytest.approx(expected_ms, rel=1e-6)
    exposed = result.exposed_ps(0)
    assert sum(exposed.values()) + result.compute_ps(0) == result.time_ps


def small_case() -> tuple[Topology, Workload, Groups]:
    topology = from_spec("RI(4)_FC(4)_SW(2)")
    tensor, data = (Call("all-reduce", 65_536, "tp"),), (Call("all-reduce", 9_600, "dp"),)
    layers = tuple(
        Layer(f"{i}", Phase(2000.0, tensor), Phase(2000.0, tensor), Phase(2000.0, data), 50.0) for i in range(4)
    )
    return topology, Workload("small", layers), {"tp": (4, 2, 1), "dp": (1, 2, 2)}


@pytest.mark.table
@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("first_layers_first", [False, pytest.param(True, marks=pytest.mark.full)])
def test_representatives_and_reference_agree_on_an_iteration(loop, first_layers_first):
    topology, workload, groups = small_case()
    training = Training(
        loop=loop, bucket_bytes=20_000, first_layers_first=first_layers_first, updates=True,
        options={"pipeline_chunks": 2},
    )
    job = training_job(topology, workload, groups, training)
    few = simulate(job, model=ONE, check=True)
    every = simulate(job, model=ONE, symmetry="off", engine="reference")
    assert few.ranks == [0]
    assert few.time_ps == every.time_ps
    mine = {(span.operation, span.start_ps, span.end_ps) for span in few.spans()}
    assert mine == {(span.operation, span.start_ps, span.end_ps) for span in every.spans()}
    assert few.exposed_ps(0) and sum(few.exposed_ps(0).values()) == few.time_ps - few.compute_ps(0)


def test_overlap_hides_what_no_overlap_exposes():
    topology, workload, groups = small_case()
    times = {
        loop: simulate(training_job(topology, workload, groups, Training(loop=loop)), model=ONE).time_ps
        for loop in LOOPS
    }
    assert times["wfbp"] < times["no-overlap"]
    assert times["dear"] < times["no-overlap"]


def test_total_busy_and_exposed():
    """One all-reduce behind one computation: all of it is exposed, and its links are busy as long as its bytes say."""
    topology = network("RI(4)_FC(2)", [80e9, 20e9])
    workload = Workload("one", (layer_of("0", 1e-6, 2e-6, 640_000, "dp"),))
    job = training_job(topology, workload, {"dp": (4, 2)}, Training(options={"pipeline_chunks": 1}))
    result = simulate(job, model=ONE)
    assert result.compute_ps(0) == 3_000_000 + 3
    assert set(result.communication_ps(0)) == {"dp all-reduce"}
    busy = result.busy_ps()
    assert busy["dp all-reduce", "dimension 0"] == 2 * 12_000_000 // 2
    assert busy["dp all-reduce", "dimension 1"] == 2 * 8_000_000 // 2
    exposed = result.exposed_ps(0)
    for key, time in busy.items():
        assert exposed[key] == pytest.approx(time, abs=100)


@pytest.mark.parametrize("order", PIPELINE_ORDERS)
@pytest.mark.parametrize("microbatches", [1, 2, 6])
def test_bubbles_of_a_pipeline(order, microbatches):
    """(M + S - 1) (f + b) with messages of nothing, and the account calls the bubbles so."""
    topology = network("RI(2)_SW(4)", [50e9, 50e9])
    workload = Workload("w", tuple(layer_of(f"{i}", 1e-3, 2e-3, 0, "dp") for i in range(8)))
    groups = {"dp": (2, 1), "pp": (1, 4)}
    job = pipeline_job(topology, workload, groups, Pipeline(microbatches=microbatches, activation_bytes=0, order=order))
    result = simulate(job, model=ONE, check=True)
    assert len(result.ranks) == 4
    assert result.time_s == pytest.approx((microbatches + 3) * 6e-3, rel=1e-7)
    for rank in result.ranks:
        exposed = result.exposed_ps(rank)
        assert sum(exposed.values()) == result.time_ps - result.compute_ps(rank)
        assert exposed[IDLE_ELSEWHERE, ""] == pytest.approx(18_000_000_000, abs=10**4)
    every = simulate(job, model=ONE, symmetry="off", engine="reference")
    assert every.time_ps == result.time_ps


def test_pipeline_sends_and_gradients():
    topology = from_spec("RI(2)_SW(4)")
    workload = Workload("w", tuple(layer_of(f"{i}", 1e-5, 2e-5, 100_000, "dp") for i in range(4)))
    job = pipeline_job(
        topology, workload, {"dp": (2, 1), "pp": (1, 4)}, Pipeline(microbatches=3, activation_bytes=50_000)
    )
    few, every = simulate(job, model=ONE, check=True), simulate(job, model=ONE, symmetry="off", engine="reference")
    assert few.time_ps == every.time_ps
    assert set(few.communication_ps(0)) == {"activation send", "error send", "dp all-reduce"}


@pytest.mark.parametrize("suffix", [".png", ".pdf", ".svg"])
def test_timeline(tmp_path, suffix):
    topology, workload, groups = small_case()
    result = simulate(training_job(topology, workload, groups), model=ONE)
    rows = timeline_rows(result)
    assert next(iter(rows)) == (0, "compute")
    assert {name for _, name in rows} == {"compute", "tp all-reduce", "dp all-reduce"}
    draw_timeline(result, tmp_path / f"timeline{suffix}")
    assert (tmp_path / f"timeline{suffix}").stat().st_size > 1000


def test_an_empty_iteration(tmp_path):
    result = simulate(Job(from_spec("FC(2)")))
    assert (result.time_ps, result.ranks, result.spans(), result.busy_ps()) == (0, [], [], {})
    draw_timeline(result, tmp_path / "empty.png")


def test_engines_of_a_job():
    with pytest.raises(WeftError, match="engine of a job 'analytic' is unknown: choose one of chunk, reference"):
        simulate(Job(from_spec("FC(2)")), engine="analytic")


def sharded(layers: int, compute_ns: float, size: int) -> Workload:
    """Weights that are gathered before a layer computes, gradients that are scattered after."""
    gather, scatter = (Call("all-gather", size / 4, "dp", before=True),), (Call("reduce-scatter", size, "dp"),)
    phases = Phase(compute_ns, gather), Phase(compute_ns, gather), Phase(compute_ns, scatter)
    return Workload("sharded", tuple(Layer(f"{i}", *phases) for i in range(layers)))


def sharded_ps(bandwidth: str, layers: int = 6, compute_ns: float = 100_000.0) -> int:
    fabric = from_spec("SW(4)", bandwidth, 0, 0)
    training = Training(options={"pipeline_chunks": 1})
    return simulate(training_job(fabric, sharded(layers, compute_ns, 1_000_000), {"dp": (4,)}, training)).time_ps


def test_sharded_weights_expose_the_first_gather_and_the_last_scatter_only() -> None:
    """Training.md, section 12, claim 4."""
    pure = 18 * 100_000_000
    assert sharded_ps("100TB/s") == pytest.approx(pure, rel=1e-3)
    one_ps = 750_000 / 25e9 * 1e12  # 3/4 of 1 MB, by a gather and by a scatter
    assert sharded_ps("25GB/s") - pure == pytest.approx(2 * one_ps, rel=1e-3)
    assert sharded_ps("2GB/s") > pure + 6 * one_ps  # slower than the computation: every layer waits


@pytest.mark.parametrize("how", ["tp=2,pp=4", "tp=4,pp=2"])
def test_no_communication_is_exposed_for_longer_than_it_is_under_way(how: str) -> None:
    fabric = from_spec("SW(2)_SW(4)")
    parallelism = parse_parallelism(how, 8)
    workload = training_workload(
        model("bert-base"), replace(parallelism, pp=1), Accelerator(312e12, 0.5), 512
    )
    pipeline = Pipeline(microbatches=4, activation_bytes=786_432)
    job = pipeline_job(fabric, workload, parallelism.groups(fabric.shape), pipeline)
    result = simulate(job, chunks=1, log=True)
    for rank in result.ranks:
        under_way, exposed = result.communication_ps(rank), result.exposed_ps(rank)
        assert sum(exposed.values()) + result.compute_ps(rank) == result.time_ps
        for kind, time_ps in under_way.items():
            assert sum(part for (name, _), part in exposed.items() if name == kind) <= time_ps
    assert any(exposed[WAIT_ELSEWHERE, NO_DIMENSION] for exposed in map(result.exposed_ps, result.ranks))
