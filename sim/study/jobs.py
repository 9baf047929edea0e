"""Jobs of a spec: its sections `[workload]` and `[training]` on a fabric."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from collectives.hierarchical import blocks_of
from collectives.registry import algorithm as registered
from sim.study.keys import TrainingKeys, WorkloadKeys, filled
from topologies import Topology
from topologies.checks import WeftError, nearest, number
from topologies.core.links import per_dimension
from topologies.core.product import link_bandwidths
from topologies.stages import staged
from topologies.units import parse_bandwidth, parse_size
from workloads import read_text_workload, training_workload
from workloads.compute import TERA, Accelerator
from workloads.formats.comm_groups import read_extents
from workloads.job import Job, check_room
from workloads.models import MODELS, model
from workloads.parallelism import HSDP, PIPELINE, SCHEMES, parse_parallelism, plain_scheme
from workloads.pipeline import Pipeline, activation_bytes, pipeline_job
from workloads.text_groups import own_groups
from workloads.training import LOOPS, Training, is_product, process_groups, training_job
from workloads.workload import PHASES, Groups, Workload


def with_npu_bandwidth(topology: Topology, work: WorkloadKeys, link_bandwidth: str | None = None) -> Topology:
    """The fabric with the bandwidths that each NPU has in its dimensions; WeftError: its links have others as well."""
    if work.npu_bandwidth is None:
        return topology
    if link_bandwidth is not None:
        raise WeftError(f"--npu-bandwidth {work.npu_bandwidth} gives the links theirs: omit --link-bandwidth "
                        f"{link_bandwidth}")
    blocks = blocks_of(topology)
    rates = per_dimension(work.npu_bandwidth, len(blocks), "NPU bandwidth")
    links = link_bandwidths([parse_bandwidth(rate, "NPU bandwidth") for rate in rates], blocks)
    return topology.with_links(bandwidth_Bps=np.array(links)[topology.dimension])


@staged("pattern")
def build_job(
    work: WorkloadKeys, training: TrainingKeys, topology: Topology, algorithm: str = "hierarchical"
) -> tuple[Workload, Job]:
    """A workload, and an iteration of it as a job.

    `algorithm`: as of `Training`.
    WeftError: keys that are missing or contradict each other, and errors in the files.
    """
    workload, groups = build_workload(work, training, topology)
    return workload, _iteration(work, training, topology, algorithm, workload, groups)


def build_workload(work: WorkloadKeys, training: TrainingKeys, topology: Topology) -> tuple[Workload, Groups]:
    """A workload and its process groups; see `build_job`."""
    if work.name is None:
        raise WeftError(f"no workload is given: write --workload FILE, or one of {', '.join(MODELS)}")
    if training.microbatches is None:
        for flag in ("activation", "pipeline_order"):
            if (value := getattr(training, flag)) is not None:
                raise WeftError(f"--{flag.replace('_', '-')} {value} is of a pipeline: give --microbatches, or omit it")
    workload, groups = (_of_model if work.name in MODELS else _of_file)(work, training, topology)
    repeat: int = filled(work).repeat
    if repeat < 1:
        raise WeftError(f"--repeat {repeat}: at least 1")
    check_room(3 * len(workload.layers) * repeat, f"--repeat {repeat:,}")
    return workload.scaled(filled(work).compute_scale).repeated(repeat), groups


def _of_model(work: WorkloadKeys, training: TrainingKeys, topology: Topology) -> tuple[Workload, Groups]:
    """A built-in model; all its layers, whatever the pipeline."""
    if work.samples is None or work.peak is None or work.efficiency is None:
        missing = [f"--{name}" for name in ("samples", "peak", "efficiency") if getattr(work, name) is None]
        raise WeftError(f"--workload {work.name} needs {', '.join(missing)}")
    for flag in ("communicator", "groups"):
        if getattr(work, flag) is not None:
            raise WeftError(f"--{flag} is for workload files: the groups of a model are given by --parallelism")
    how = parse_parallelism(work.parallelism or "", topology.n_npus)
    operators = model(str(work.name)).operators
    if how.ep > 1 and not any(one.experts > 1 or one.sends_tokens for one in operators):
        raise WeftError(f"--parallelism ep={how.ep}: {work.name} has no experts: omit ep")
    if how.pp > 1 and training.microbatches is None:
        raise WeftError(f"--parallelism pp={how.pp} needs --microbatches")
    if how.pp > 1 and how.zero == 3:
        raise WeftError(f"--parallelism zero=3 (FSDP) gathers every layer for each microbatch of pp={how.pp}: choose "
                        "zero=1")
    if training.updates != (work.memory_bandwidth is not None):
        raise WeftError(f"--workload {work.name}: --updates needs --memory-bandwidth, which has no other use")
    memory_Bps = None if work.memory_bandwidth is None else parse_bandwidth(work.memory_bandwidth, "memory bandwidth")
    accelerator = Accelerator(number(work.peak, "peak", 0, above=True) * TERA, work.efficiency, memory_Bps)
    workload = training_workload(model(str(work.name)), replace(how, pp=1), accelerator, work.samples)
    return workload, how.groups(topology.shape)


def _of_file(work: WorkloadKeys, training: TrainingKeys, topology: Topology) -> tuple[Workload, Groups]:
    for flag in ("parallelism", "samples", "peak", "efficiency", "memory_bandwidth"):
        if getattr(work, flag) is not None:
            raise WeftError(f"--{flag.replace('_', '-')} is for models: a workload file states its own compute times")
    if not Path(str(work.name)).exists():
        raise WeftError(f"workload {work.name!r} is neither a file nor a model: models are {', '.join(MODELS)}"
                        f"{nearest(work.name, MODELS)}")
    workload = read_text_workload(str(work.name), topology.n_npus)
    if work.communicator is None and work.groups is None and (found := own_groups(workload, topology.shape)):
        return found
    if (work.communicator is None) == (work.groups is None):
        raise WeftError("give the process groups: either --communicator FILE or --groups TEXT")
    if work.communicator is not None:
        place = partial(process_groups, workload, shape=topology.shape)
        return workload, read_extents(work.communicator, topology.shape, place)
    groups = parse_groups(work.groups or "")
    known = {*PHASES, *(call.group for call in workload.calls()), *([PIPELINE] if training.microbatches else [])}
    for name in groups:
        if name not in known:  # a phase may be without collectives
            raise WeftError(f"--groups: no collective runs in group {name!r}: choose of {', '.join(sorted(known))}")
    return workload, groups


def parse_groups(text: str) -> Groups:
    """Process groups by name: "forward=16,-1;weight_grad=-1,32"; -1 or 1 where a dimension is not used.

    WeftError: names the part that is not a group.
    """
    groups: dict[str, tuple[int, ...]] = {}
    for part in filter(None, (one.strip() for one in text.split(";"))):
        name, equals, extents = part.partition("=")
        try:
            sizes = tuple(int(extent) for extent in extents.split(","))
        except ValueError:
            sizes = ()
        if not (name and equals and sizes) or min(sizes) < -1:
            raise WeftError(f"--groups: {part!r} is not a group, such as forward=16,-1,-1")
        if name.strip() in groups:
            raise WeftError(f"--groups: group {name.strip()!r} is given twice")
        groups[name.strip()] = tuple(1 if size < 0 else size for size in sizes)
    return groups


def _iteration(
    work: WorkloadKeys, given: TrainingKeys, topology: Topology, algorithm: str, workload: Workload, groups: Groups
) -> Job:
    changes: dict[str, Any] = {}
    keys: Any = filled(given)
    if (scheme := plain_scheme(keys.loop)) in SCHEMES:
        shards = "fsdp" if scheme == HSDP else scheme
        how = "wfbp is its loop" if scheme == "ddp" else f"the loop is wfbp, and a model has --parallelism {shards}"
        raise WeftError(f"loop {keys.loop!r} is a scheme of sharding: {how}; loops are {', '.join(LOOPS)}")
    if keys.bucket is not None:
        changes["bucket_bytes"] = None if keys.bucket == "off" else parse_size(keys.bucket, "bucket")
    options: dict[str, object] = {}
    if keys.pipeline_chunks is not None:
        options["pipeline_chunks"] = keys.pipeline_chunks
    if keys.active_chunks is not None:
        options["active_chunks"] = _count(keys.active_chunks)
    if options and not is_product(topology):
        flag = f"--{next(iter(options)).replace('_', '-')}"
        raise WeftError(f"{flag} is of hierarchical collectives, which need a product of dimensions: {topology.name} "
                        "is none, and groups run an algorithm among their NPUs")
    for name in options:
        if not any(name in registered(one).options for one in algorithm.split(",")):
            raise WeftError(f"--{name.replace('_', '-')} is of hierarchical collectives, and {algorithm} has no such "
                            "option: omit it")
    training = Training(
        loop=keys.loop, in_order=keys.in_order, first_layers_first=keys.first_layers_first, updates=keys.updates,
        algorithm=algorithm, options=options, **changes,
    )
    if keys.microbatches is None:
        return training_job(topology, workload, groups, training)
    pipeline = Pipeline(
        microbatches=keys.microbatches, activation_bytes=message_bytes(work, keys, topology.n_npus),
        order=keys.pipeline_order,
    )
    return pipeline_job(topology, workload, groups, pipeline, training)


def message_bytes(work: WorkloadKeys, training: TrainingKeys, n_npus: int) -> int:
    """Bytes that an NPU of a pipeline stage sends to the next for each microbatch."""
    if training.activation is not None:
        return parse_size(training.activation, "activation")
    if work.name is None or work.name not in MODELS or work.samples is None:
        return 0
    return activation_bytes(model(work.name), work.samples, parse_parallelism(work.parallelism or "", n_npus).tp)


def _count(text: str) -> int | None:
    if text == "off":
        return None
    if not text.isdecimal():
        raise WeftError(f"--active-chunks {text}: an integer from 1, or off")
    return int(text)
