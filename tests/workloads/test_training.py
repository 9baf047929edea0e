"""Training iterations as jobs: what waits for what, buckets, groups, pipelines."""

from __future__ import annotations

import numpy as np
import pytest

from collectives import build
from sim import simulate
from topologies import WeftError, from_spec, switch
from workloads.compute import Accelerator
from workloads.job import Communicate, Job
from workloads.model_workload import training_workload
from workloads.models import model
from workloads.parallelism import Parallelism
from workloads.pipeline import Pipeline, cut_into_stages, pipeline_job
from workloads.training import LOOPS, Training, gradient_buckets, layer_of, process_groups, training_job
from workloads.workload import Call, Layer, Phase, Workload

GROUPS = {"tp": (4, 2, 1), "dp": (1, 2, 2), "pp": (1, 1, 1)}


def transformer(n: int = 3) -> Workload:
    """Layers with tensor parallelism forward and backward, and data parallelism behind."""
    tensor = (Call("all-reduce", 4096, "tp"),)
    return Workload(
        "small",
        tuple(
            Layer(f"{i}", Phase(10.0, tensor), Phase(10.0, tensor), Phase(10.0, (Call("all-reduce", 1000, "dp"),)), 2.0)
            for i in range(n)
        ),
    )


def names(job) -> list[str]:
    return [operation.name for operation in job.operations]


def waits(job, name: str) -> set[str]:
    return {job.operations[other].name for other in job.operations[names(job).index(name)].after}


def test_wait_free_backpropagation():
    job = training_job(from_spec("RI(4)_FC(4)_SW(2)"), transformer(), GROUPS, Training(bucket_bytes=None))
    assert names(job)[0] == "forward 0"
    assert waits(job, "forward 1") == {"tp all-reduce 0"}
    assert waits(job, "input gradient 1") == {"tp all-reduce 2", "weight gradient 2"}
    assert waits(job, "weight gradient 1") == {"input gradient 1"}
    assert waits(job, "dp all-reduce 1") == {"weight gradient 1"}


def test_nothing_overlaps():
    job = training_job(from_spec("RI(4)_FC(4)_SW(2)"), transformer(), GROUPS, Training(loop="no-overlap"))
    for before, operation in enumerate(job.operations[1:]):
        assert operation.after == (before,)


def test_dear_gathers_before_the_forward_that_needs_it():
    training = Training(loop="dear", bucket_bytes=1500, updates=True)
    job = training_job(from_spec("RI(4)_FC(4)_SW(2)"), transformer(), GROUPS, training)
    assert names(job)[0] == "input gradient 2"
    scattered = {f"dp reduce-scatter {layer}" for layer in range(3)}
    assert scattered < waits(job, "dp all-gather 0")
    assert waits(job, "dp all-gather 1") - waits(job, "dp all-gather 0") == {"dp all-gather 0"}
    assert waits(job, "update 1") == {"dp all-gather 1"}
    assert waits(job, "forward 1") == {"tp all-reduce 0", "update 1"}


def sharded(n: int = 3) -> Workload:
    """Layers whose weights are shared out: gathered before each pass, their gradients scattered after."""
    gather = (Call("all-gather", 1000, "dp", before=True),)
    scatter = (Call("reduce-scatter", 4000, "dp"),)
    return Workload(
        "sharded",
        tuple(Layer(f"{i}", Phase(10.0, gather), Phase(10.0, gather), Phase(10.0, scatter)) for i in range(n)),
    )


def test_weights_are_gathered_before_the_layer_computes_and_one_layer_ahead():
    job = training_job(from_spec("SW(4)"), sharded(), {"dp": (4,)})
    assert names(job)[:2] == ["dp all-gather 0", "forward 0"]
    assert waits(job, "forward 1") == {"forward 0", "dp all-gather 1"}
    assert waits(job, "dp all-gather 1") == {"dp all-gather 0"}  # while layer 0 computes
    assert waits(job, "dp all-gather 2") == {"dp all-gather 1", "forward 0"}
    assert names(job).count("dp all-gather 2") == 1 and names(job).count("dp all-gather 0") == 2  # the last is kept
    assert waits(job, "input gradient 2") == {"forward 2"}
    again = len(names(job)) - 1 - names(job)[::-1].index("dp all-gather 1")
    assert {job.operations[other].name for other in job.operations[again].after} == {"forward 2"}
    serial = training_job(from_spec("SW(4)"), sharded(), {"dp": (4,)}, Training(loop="no-overlap"))
    for before, operation in enumerate(serial.operations[1:]):
        assert before in operation.after


def test_zero_gathers_what_is_updated_and_updates_once():
    calls = Call("reduce-scatter", 4000, "dp"), Call("all-gather", 1000, "dp")
    workload = Workload("zero", (Layer("a", Phase(10.0), Phase(10.0), Phase(10.0, calls), 5.0),))
    for loop in LOOPS:
        job = training_job(from_spec("SW(4)"), workload, {"dp": (4,)}, Training(loop=loop, updates=True))
        assert names(job).count("update a") == 1
    job = training_job(from_spec("SW(4)"), workload, {"dp": (4,)}, Training(updates=True))
    assert waits(job, "update a") == {"dp reduce-scatter a"}
    assert "update a" in waits(job, "dp all-gather a")


@pytest.mark.parametrize("bundled", [False, True])
def test_a_model_has_update_times(bundled):
    """34 B of memory traffic for each parameter that a rank updates; ZeRO shares them out."""
    kept = []
    for zero in (0, 1):
        how = Parallelism(tp=2, dp=4, zero=zero)
        accelerator = Accelerator(312e12, 0.5, memory_Bps=2e12)
        found = training_workload(model("bert-base"), how, accelerator, 512, bundled=bundled)
        kept.append(sum(layer.update_ns for layer in found.layers))
    parameters = sum(one.parameters / (2 if one.sharded else 1) for one in model("bert-base").operators)
    assert kept == pytest.approx([parameters * 34 / 2e12 * 1e9, parameters / 4 * 34 / 2e12 * 1e9])


def test_in_order_and_priorities():
    training = Training(bucket_bytes=None, in_order=True, first_layers_first=True)
    job = training_job(from_spec("RI(4)_FC(4)_SW(2)"), transformer(), GROUPS, training)
    assert waits(job, "dp all-reduce 0") == {"weight gradient 0", "dp all-reduce 1"}
    priorities = {operation.name: operation.priority for operation in job.operations}
    assert priorities["dp all-reduce 0"] < priorities["dp all-reduce 2"]


def test_buckets_keep_kinds_and_groups_apart():
    def layer(name: str, *calls: Call) -> Layer:
        return Layer(name, weight_grad=Phase(1.0, calls))

    reduce, other = Call("all-reduce", 10, "dp"), Call("all-reduce", 10, "edp")
    zero = Call("reduce-scatter", 10, "dp"), Call("all-gather", 5, "dp")
    workload = Workload("w", (layer("0", reduce), layer("1", reduce), layer("2", other), layer("3", *zero)))
    buckets = gradient_buckets(workload, 100)
    assert [bucket.layers for bucket in buckets] == [(0, 1), (2,), (3,), (3,)]
    assert buckets[0].call.size_bytes == 20
    job = training_job(from_spec("FC(4)"), workload, {"dp": (2,), "edp": (2,)})
    assert "dp reduce-scatter 3" in waits(job, "dp all-gather 3")


def test_groups_that_share_a_dimension_tile_it():
    groups = process_groups(transformer(), GROUPS, (4, 4, 2))
    assert str(groups["tp"]) == "4,2,-1"
    assert str(groups["dp"]) == "-1,2@2,2"
    libra = Workload("w", (layer_of("0", 1.0, 1.0, 1.0, "weight_grad"),))
    found = process_groups(libra, {"forward": (4, 1), "weight_grad": (2, 1)}, (8, 1))
    assert str(found["weight_grad"]) == "2@4,-1"


@pytest.mark.parametrize("loop", LOOPS)
def test_an_empty_workload(loop):
    assert training_job(from_spec("FC(2)"), Workload("empty", ()), {}, Training(loop=loop)).operations == []


def test_stages_are_cut_where_the_time_is():
    workload = Workload("w", tuple(layer_of(f"{i}", t, 0, 0, "dp") for i, t in enumerate((1, 1, 1, 3))))
    assert cut_into_stages(workload, 2) == [range(3), range(3, 4)]
    assert cut_into_stages(workload, 4) == [range(i, i + 1) for i in range(4)]
    with pytest.raises(WeftError, match="has 4 layers for 5 stages"):
        cut_into_stages(workload, 5)


def test_updates_without_times_are_refused():
    for make in (training_job, lambda *job: pipeline_job(*job[:3], Pipeline(microbatches=2, activation_bytes=1),
                                                         job[3])):
        with pytest.raises(WeftError, match="workload sharded has no update times"):
            make(from_spec("SW(4)"), sharded(), {"dp": (4,)}, Training(updates=True))
    with pytest.raises(WeftError, match="memory_Bps is 0"):
        Accelerator(1e12, 0.5, memory_Bps=0.0)


def test_what_is_refused():
    topology = from_spec("FC(4)")
    with pytest.raises(WeftError, match="loop 'ddp' is unknown: choose one of no-overlap, wfbp, dear"):
        Training(loop="ddp")
    with pytest.raises(WeftError, match="bucket_bytes is 0: give an integer from 1"):
        Training(bucket_bytes=0)
    with pytest.raises(WeftError, match="algorithm 'swnig' is unknown"):
        Training(algorithm="swnig")
    with pytest.raises(WeftError, match="group tp has 3 sizes"):
        training_job(topology, transformer(), GROUPS)
    with pytest.raises(WeftError, match="order 'x' is unknown"):
        Pipeline(microbatches=1, activation_bytes=0, order="x")
    with pytest.raises(WeftError, match="microbatches is 0: give an integer from 1"):
        Pipeline(microbatches=0, activation_bytes=0)
    pipeline = Pipeline(microbatches=1, activation_bytes=0)
    with pytest.raises(WeftError, match="the pipeline's group 'pp' is not given"):
        pipeline_job(topology, Workload("empty", ()), {}, pipeline)
    with pytest.raises(WeftError, match="'dear' has no pipelined form"):
        pipeline_job(topology, Workload("empty", ()), {"pp": (4,)}, pipeline, Training(loop="dear"))


@pytest.mark.parametrize(("limit", "buckets"), [(19, 2), (20, 2), (21, 1), (30, 1), (None, 2)])
def test_a_bucket_stays_below_its_limit(limit, buckets):
    """Two layers of 10 B: 20 B are not below 20 B."""
    reduce = Phase(1.0, (Call("all-reduce", 10, "dp"),))
    workload = Workload("w", (Layer("0", weight_grad=reduce), Layer("1", weight_grad=reduce)))
    assert len(gradient_buckets(workload, limit)) == buckets


def test_stages_of_a_model_have_whole_layers() -> None:
    workload = training_workload(model("bert-large"), Parallelism(), Accelerator(1e14, 0.5), 64)
    for repeat in (1, 2):
        whole = workload.repeated(repeat)
        for stages in (4, 7):
            cut = cut_into_stages(whole, stages)
            firsts = [whole.layers[one.start].name for one in cut[1:]]
            assert all(name.startswith("Q") or name == "embedding" for name in firsts)
            assert [at for one in cut for at in one] == list(range(len(whole.layers)))
    with pytest.raises(WeftError, match="has 24 layers for 25 stages"):
        cut_into_stages(workload, 25)


@pytest.mark.parametrize("loop", ["no-overlap", "wfbp"])
def test_no_weight_is_gathered_before_all_gradients_are_reduced(loop: str) -> None:
    """ZeRO-1: the norm of all gradients comes before any update is spread."""
    how = Parallelism(dp=4, zero=1)
    workload = training_workload(model("bert-base"), how, Accelerator(1e14, 0.5, 1e12), 64)
    job = training_job(switch(4), workload, how.groups((4,)), Training(loop=loop, updates=True, bucket_bytes=None))
    scatters = {at for at, one in enumerate(job.operations) if one.kind == "dp reduce-scatter"}
    gathers = [one for one in job.operations if one.kind == "dp all-gather"]
    assert len(gathers) == len(scatters) > 80
    assert all(scatters <= set(one.after) for one in gathers)


def test_the_core_of_attention_has_no_gradient_of_weights() -> None:
    """Its two factors are activations: what it computes backward is twice the forward pass, before any reduction."""
    workload = training_workload(model("bert-base"), Parallelism(), Accelerator(1e12, 1.0), 512)
    core = [layer for layer in workload.layers if layer.name.startswith(("QK", "softmax"))]
    assert len(core) == 24
    for layer in core:
        assert layer.weight_grad.compute_ns == 0 and layer.input_grad.compute_ns == 2 * layer.forward.compute_ns > 0


def test_groups_on_a_fabric_that_is_no_product() -> None:
    """Each group runs a ring among its NPUs, and the next computation waits for that of its own NPU alone."""
    topology = from_spec("dgx-h100:2")
    reduced, gathered = Call("all-reduce", 2**20, "tp"), Call("all-gather", 64, "dp")
    layer = Layer("a", Phase(1e6, (reduced,)), Phase(1e6), Phase(1e6, (gathered,)))
    groups = {"tp": (8, 1), "dp": (1, 2)}
    job = training_job(topology, Workload("w", (layer,)), groups, Training())
    made = [(one.kind, one.npus) for one in job.operations if isinstance(one.work, Communicate)]
    assert made[:2] == [("tp all-reduce", tuple(range(8))), ("tp all-reduce", tuple(range(8, 16)))]
    assert made[2:] == [("dp all-gather", (rank, rank + 8)) for rank in range(8)]
    assert {one.work.schedule.size_bytes for one in job.operations if isinstance(one.work, Communicate)} == {2**20, 128}
    alone = simulate(Job.of(build("ring", "all-reduce", switch(8), "1MiB"))).time_ps
    slow = Job(topology, job.operations, np.where(np.arange(16) < 8, 1.0, 0.1))
    ends = {rank: max(span.end_ps for span in simulate(slow, log=True).spans() if span.rank == rank) for rank in (0, 8)}
    assert alone > 0 and ends[0] < ends[8]


def test_a_product_keeps_its_collectives_and_others_take_the_named_algorithm() -> None:
    layer = Layer("a", Phase(1.0), Phase(1.0), Phase(1.0, (Call("all-reduce", 2**20, "dp"),)))
    for spec, groups, algorithm, called in (
        ("SW(8)_SW(2)", (8, 2), "hierarchical", "hierarchical"), ("dgx-h100:2", (8, 2), "hierarchical", "bucket"),
        ("dgx-h100:2", (8, 2), "recursive-doubling", "recursive-doubling"),
    ):
        job = training_job(from_spec(spec), Workload("w", (layer,)), {"dp": groups}, Training(algorithm=algorithm))
        work = [one.work for one in job.operations if isinstance(one.work, Communicate)]
        assert [one.schedule.pattern.algorithm for one in work] == [called]


@pytest.mark.parametrize("name", ["ring", "swing", "direct", "bucket"])
def test_groups_that_are_a_part_of_a_product_run_any_algorithm(name: str) -> None:
    """Each among its NPUs, where the algorithm has no groups of its own."""
    layer = Layer("a", Phase(1.0), Phase(1.0), Phase(1.0, (Call("all-reduce", 2**20, "dp"),)))
    job = training_job(from_spec("SW(4)_SW(3)"), Workload("w", (layer,)), {"dp": (1, 3)}, Training(algorithm=name))
    made = [(one.work.schedule.pattern.algorithm, one.npus) for one in job.operations
            if isinstance(one.work, Communicate)]
    assert made == [(name, (rank, rank + 4, rank + 8)) for rank in range(4)]
    assert simulate(job).time_ps > 0


@pytest.mark.parametrize(("forward_s", "backward_s", "size", "calls"), [(1.5, 3.0, 0, 0), (1e-9, 2e-9, 1, 1)])
def test_a_layer_takes_what_is_given_to_the_nanosecond(
    forward_s: float, backward_s: float, size: int, calls: int
) -> None:
    layer = layer_of("x", forward_s, backward_s, size)
    assert layer.forward == Phase(forward_s * 1e9)
    assert layer.input_grad.compute_ns == layer.weight_grad.compute_ns == backward_s * 5e8
    assert len(layer.weight_grad.calls) == calls and not layer.input_grad.calls


@pytest.mark.parametrize("microbatches", [1, 2, 3])
def test_what_is_updated_is_gathered_once_behind_the_last_microbatch(microbatches: int) -> None:
    calls = Call("reduce-scatter", 4000, "dp"), Call("all-gather", 1000, "dp")
    layers = tuple(Layer(f"{at}", Phase(10.0), Phase(10.0), Phase(10.0, calls)) for at in range(2))
    pipeline = Pipeline(microbatches=microbatches, activation_bytes=8)
    job = pipeline_job(from_spec("FC(2)_FC(2)"), Workload("w", layers), {"dp": (2, 1), "pp": (1, 2)}, pipeline)
    kinds = [one.kind for one in job.operations]
    assert kinds.count("dp reduce-scatter") == kinds.count("dp all-gather") == 2
    assert kinds.count("forward") == 2 * microbatches


def test_a_layer_of_the_next_iteration_waits_for_its_own_weights() -> None:
    layers = tuple(layer_of(f"{at}", 1.0, 1.0, 100.0) for at in range(2))
    training = Training(loop="dear", bucket_bytes=None)
    job = training_job(from_spec("FC(2)"), Workload("w", layers), {"weight_grad": (2,)}, training)
    for at in range(2):
        assert f"weight_grad all-gather {at}" in waits(job, f"forward {at}")


@pytest.mark.parametrize("exposed", [False, True])
def test_the_next_computation_waits_for_both_gradients(exposed: bool) -> None:
    """Of the input, reduced among tensor ranks, and of the weights, which the last computation made."""
    training = Training(loop="no-overlap" if exposed else "wfbp", bucket_bytes=None)
    job = training_job(from_spec("FC(2)_FC(2)"), transformer(2), {"tp": (2, 1), "dp": (1, 2)}, training)
    after = waits(job, "input gradient 0")
    assert after == ({"dp all-reduce 1"} if exposed else {"tp all-reduce 1", "weight gradient 1"})


def test_the_algorithm_of_a_fabric_that_is_no_product_takes_its_options() -> None:
    layer = Layer("a", Phase(1.0), Phase(1.0), Phase(1.0, (Call("all-reduce", 2**20, "dp"),)))
    found = []
    for trees in (1, 2):
        training = Training(algorithm="in-network", options={"trees": trees, "pipeline_chunks": 4})
        job = training_job(from_spec("fat-tree:4"), Workload("w", (layer,)), {"dp": (2, 2, 4)}, training)
        (work,) = (one.work for one in job.operations if isinstance(one.work, Communicate))
        found.append(work.schedule.pattern.n_blocks)
    assert found[0] != found[1]


def test_an_option_that_no_algorithm_takes_is_an_error() -> None:
    with pytest.raises(WeftError, match="option 'chunk' is of none of ring, direct: they take active_chunks, "):
        Training(algorithm="ring,direct", options={"chunk": 1})
