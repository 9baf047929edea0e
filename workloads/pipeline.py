"""Pipeline parallelism: stages of layers on different NPUs, microbatches that pass through them, and their bubbles.

With S stages and M microbatches both orders below leave (S-1)/(M+S-1) of the time idle if all stages take the
same time and messages take none; they differ in the number of activations a stage holds.

References
----------
.. [1] Y. Huang et al., "GPipe: Efficient Training of Giant Neural Networks using Pipeline Parallelism", NeurIPS 2019.
.. [2] D. Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM", SC 2021.
"""

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from collectives.core.process_groups import ProcessGroup
from topologies import Topology, WeftError
from topologies.checks import Choice, Count, checked
from topologies.stages import count
from topologies.text.brief import one_line
from topologies.units import Bytes, counted
from workloads.job import Job, check_room
from workloads.model_workload import BYTES
from workloads.models.model import NeuralNetwork
from workloads.parallelism import PIPELINE
from workloads.passes.timeline import Key, walk
from workloads.training import Collectives, Layers, Training, check_updates, process_groups
from workloads.workload import Groups, Workload, check_groups

PIPELINE_ORDERS = ("gpipe", "1f1b")
SEND_FORWARD, SEND_BACKWARD = "activation send", "error send"


@checked
@one_line
@dataclass(frozen=True, kw_only=True)
class Pipeline:
    """Schedule of microbatches through the stages.

    Attributes
    ----------
    group : str
        Key of the groups whose NPUs are the stages, in the order of their positions (dimension 0 first).
    microbatches : int
        The workload's times and sizes are per microbatch.
    activation_bytes : int
        Sent by each NPU to the next stage per microbatch, and the same back.
    order : {"gpipe", "1f1b"}
        All forward passes first, or backward as soon as possible.
    """

    group: str = PIPELINE
    microbatches: Count
    activation_bytes: Bytes
    order: Annotated[str, Choice(PIPELINE_ORDERS)] = "1f1b"


@checked
def pipeline_job(
    topology: Topology, workload: Workload, groups: Groups, pipeline: Pipeline, training: Training = Training()
) -> Job:
    """The operations of one iteration; the NPUs of a stage behave identically.

    Parameters
    ----------
    topology : Topology
    workload : Workload
        Of one microbatch; its layers are cut into stages of about the same compute time.
    groups : mapping from name to extents
    pipeline : Pipeline
    training : Training
        DeAR has no pipelined form.

    Raises
    ------
    WeftError
        No such group, fewer layers than stages, or groups that do not fit the network.
    """
    check_groups(workload, groups, topology.shape)
    check_updates(workload, training)
    if pipeline.group not in groups:
        raise WeftError(f"the pipeline's group {pipeline.group!r} is not given; groups are {', '.join(groups)}")
    if training.loop == "dear":
        raise WeftError("the loop 'dear' has no pipelined form: choose wfbp or no-overlap")
    check_room(3 * len(workload.layers) * pipeline.microbatches, f"{pipeline.microbatches:,} microbatches")
    found = process_groups(workload, groups, topology.shape)
    ranks = _stage_ranks(found[pipeline.group])
    collectives, job = Collectives(topology, found, training), Job(topology)
    stages = [
        Layers(job, workload, collectives, training, layers, npus)
        for layers, npus in zip(cut_into_stages(workload, len(ranks)), ranks, strict=True)
    ]
    _add_microbatches(job, stages, pipeline)
    return job


@checked
def ideal_bubble(n_stages: Count, microbatches: Count) -> float:
    """Share of an iteration in which a stage idles, (S-1)/(M+S-1): equal stages, messages of no time ([1], 2.3)."""
    return (n_stages - 1) / (microbatches + n_stages - 1)


def activation_bytes(model: NeuralNetwork, samples: float, tp: int = 1) -> int:
    """What an NPU sends to the next stage for each microbatch: its share of the activations between layers ([2], 4.1).

    `samples`: of a tensor-parallel group in a microbatch.
    `tp`: NPUs of that group, which all have the activations; each sends a part of them.
    WeftError: the model has no equal layers, and activations of different sizes between them.
    """
    first = model.operators[0]
    if model.layers == 1 or first.name != "embedding":
        raise WeftError(f"model {model.name} has no equal layers between pipeline stages: give the size of activations")
    return round(samples * first.out_elements * BYTES / tp)


def cut_into_stages(workload: Workload, n_stages: int) -> list[range]:
    """Consecutive layers for each stage, cut where the compute time comes nearest to equal shares.

    WeftError: fewer layers than stages.
    """
    n_layers = len(workload.layers)
    places = range(1, n_layers) if workload.cuts is None else workload.cuts
    if len(places) + 1 < n_stages:
        layers = counted(len(places) + 1, "layer")
        raise WeftError(f"workload {workload.name} has {layers} for {counted(n_stages, 'stage')}")
    times = [sum(phase.compute_ns for phase in layer.phases) for layer in workload.layers]
    before = np.concatenate(([0.0], np.cumsum(times)))
    cuts = [0]
    for stage in range(1, n_stages):
        share = before[-1] * stage / n_stages
        room = [at for at in places[:len(places) - n_stages + stage + 1] if at > cuts[-1]]
        cuts.append(min(room, key=lambda at: abs(before[at] - share)))
    return [range(first, last) for first, last in zip(cuts, [*cuts[1:], n_layers], strict=True)]


def _stage_ranks(group: ProcessGroup) -> list[list[int]]:
    """The ranks of each stage; those in the same place of two stages talk to each other."""
    first = [rank for rank in range(group.grid.p) if all(group.position(rank, dim) == 0 for dim in group.dims)]
    offsets = group.members(0)
    return [[rank + offset for rank in first] for offset in offsets]


def _add_microbatches(job: Job, stages: list[Layers], pipeline: Pipeline) -> None:
    """The work of all stages in an order in which everything waited for is there already."""
    n, total = len(stages), 2 * len(stages) * pipeline.microbatches
    at, arrived = [list[int]() for _ in stages], dict[Key, list[int]]()
    for done, step in enumerate(walk(pipeline.order, n, 1, pipeline.microbatches), start=1):
        (one,), stage = step.slot, step.rank
        after = [*at[stage], *(number for key in step.needs for number in arrived[key])]
        tag = f" of microbatch {one.batch}"
        if one.kind == "F":
            at[stage] = stages[stage].forward(after, tag=tag)
        else:
            at[stage] = stages[stage].backward(after, tag=tag, last=one.batch == pipeline.microbatches - 1)
        for key, to in step.gives:
            arrived[key] = []
            if to != stage:
                src, dst = (list(stages[end].npus or ()) for end in (stage, to))
                kind = SEND_FORWARD if to > stage else SEND_BACKWARD
                arrived[key] = [job.send(f"{kind} {stage}{tag}", pipeline.activation_bytes, src, dst, kind=kind,
                                         after=at[stage])]
        count("passes of microbatches through stages", done, total)
