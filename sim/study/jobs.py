"""Jobs of a spec: its sections `[workload]` and `[training]` on a fabric.

Workload files of every format as jobs: the one way in of all commands that take a workload.

What a file is shows in its first lines and in its name; `--workload` and `--job` mean the same. A key that the format
does not use is an error.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from collectives.core.process_groups import process_group
from collectives.hierarchical import blocks_of
from collectives.registry import algorithm as registered
from sim.optimizer.retime import dimensions, links_per_npu, switches, with_bandwidths
from sim.study.keys import TrainingKeys, WorkloadKeys, filled
from sim.study.workload_keys import OF_WORKLOADS, named, said
from topologies import Topology
from topologies.checks import WeftError, nearest, number
from topologies.core.epochs import packet_links
from topologies.core.links import per_dimension
from topologies.core.product import link_bandwidths
from topologies.lazy import later
from topologies.stages import staged
from topologies.units import counted, parse_bandwidth, parse_size
from workloads import read_text_workload, training_workload
from workloads.compute import TERA, Accelerator
from workloads.formats.astra_memory import Roofline, read_remote_memory
from workloads.formats.chakra_job import ACCESSES, BYTES, OPERATIONS, Hardware, open_chakra, open_dumps, open_profiles
from workloads.formats.comm_groups import Sets, read_extents, read_sets, tiles
from workloads.formats.flexflow import open_flexflow
from workloads.formats.goal import open_goal
from workloads.formats.htsim_cm import open_matrix
from workloads.formats.ocs_plan import open_ocs_plan
from workloads.formats.recognize import (
    CHAKRA,
    FLIGHT,
    GOAL,
    GRAPH,
    KINETO,
    LAYERS,
    MATRIX,
    PLAN,
    files_named,
    format_of,
)
from workloads.formats.simai import notes_of
from workloads.group_collectives import DEFAULTS
from workloads.job import Communicate, Job, check_room
from workloads.models import MODELS, model
from workloads.parallelism import HSDP, PIPELINE, SCHEMES, parse_parallelism, plain_scheme
from workloads.passes.device import device, devices
from workloads.passes.plan import Plan
from workloads.pipeline import Pipeline, activation_bytes, pipeline_job
from workloads.text_groups import own_groups
from workloads.training import LOOPS, Training, is_product, process_groups, training_job
from workloads.workload import PHASES, Groups, Workload


def with_npu_bandwidth(topology: Topology, work: WorkloadKeys, link_bandwidth: str | None = None) -> Topology:
    """The fabric with the bandwidths that each NPU has in its dimensions, or tiers, as `weft optimize` splits them.

    Circuits that a policy switches are one dimension. WeftError: its links have others as well.
    """
    if work.npu_bandwidth is None:
        return topology
    if link_bandwidth is not None:
        raise WeftError(f"--npu-bandwidth {work.npu_bandwidth} gives the links theirs: omit --link-bandwidth "
                        f"{link_bandwidth}")
    n_links = links_per_npu(topology).size
    if n_links and (switches(topology) or not is_product(topology)) and dimensions(topology).min(initial=0) >= 0:
        each = per_dimension(work.npu_bandwidth, n_links, "NPU bandwidth")
        found = with_bandwidths(topology, [parse_bandwidth(rate, "NPU bandwidth") / 1e9 for rate in each])
        circuits = np.flatnonzero(~packet_links(topology))
        if found.optics is None or switches(topology) or not circuits.size:
            return found
        share = found.bandwidth_Bps[circuits[0]] / topology.bandwidth_Bps[circuits[0]]
        return replace(found, optics=found.optics._replace(rate_Bps=found.optics.rate_Bps * float(share)))
    blocks = blocks_of(topology)
    rates = per_dimension(work.npu_bandwidth, len(blocks), "NPU bandwidth")
    links = np.array(link_bandwidths([parse_bandwidth(rate, "NPU bandwidth") for rate in rates], blocks))
    optics = topology.optics
    if optics is not None and optics.dwell_ps:
        links *= (topology.n_npus - 1) / optics.ports  # as many as are up at once
    found = topology.with_links(bandwidth_Bps=links[topology.dimension])
    if optics is None or not found.n_links:
        return found
    share = float(found.bandwidth_Bps[0] / topology.bandwidth_Bps[0])
    return replace(found, optics=optics._replace(rate_Bps=optics.rate_Bps * share))


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
    if not Path(str(work.name)).exists():
        raise WeftError(f"workload {work.name!r} is neither a file nor a model: models are {', '.join(MODELS)}"
                        f"{nearest(work.name, MODELS)}")
    for flag in ("parallelism", "samples", "peak", "efficiency", "memory_bandwidth"):
        if getattr(work, flag) is not None:
            raise WeftError(f"--{flag.replace('_', '-')} is for models: a workload file states its own compute times")
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


USED: Mapping[str, tuple[str, ...]] = {
    CHAKRA: (
        "communicator", "groups", "peak", "efficiency", "memory_bandwidth", "system", "remote_memory", "npu_bandwidth",
    ),
    FLIGHT: ("npu_bandwidth",), KINETO: ("npu_bandwidth",), GOAL: ("npu_bandwidth",), GRAPH: ("npu_bandwidth",),
    MATRIX: ("npu_bandwidth",), PLAN: ("npu_bandwidth",),
}
"""Keys of `[workload]` that the formats of operations use besides the file; none of `[training]`."""

TIMES = {"peak": OPERATIONS, "efficiency": OPERATIONS, "system": OPERATIONS, "memory_bandwidth": BYTES,
         "remote_memory": ACCESSES}
"""What the keys of the hardware of traces time, which these may not have."""


OPENERS = {FLIGHT: open_dumps, KINETO: open_profiles, GRAPH: open_flexflow, MATRIX: open_matrix}
"""What reads formats of collectives that bring their groups along."""


class Opened(NamedTuple):
    """A workload as a job."""

    job: Job
    name: str
    what: str  # "12 layers, loop wfbp"
    is_layers: bool
    notes: tuple[str, ...] = ()
    plan: Plan | None = None  # of a language model


def open_workload(
    work: WorkloadKeys, training: TrainingKeys, topology: Topology, algorithms: Sequence[str] = (), gpu: str = ""
) -> Opened:
    """The job of a model, layers, Chakra traces, GOAL, a task graph, a plan of circuits or the flight recorder.

    `algorithms`: each collective takes the first that implements it (default of layers: hierarchical); of GOAL none.
    `gpu`: of the machine, whose rates time operations of traces that nothing else times.
    WeftError: two files, a format that is not read, keys that the format or the file does not use, and errors in it.
    """
    opened = _open(work, training, topology, algorithms, gpu)
    if algorithms and not any(isinstance(one.work, Communicate) for one in opened.job.operations):
        raise WeftError(f"--algorithm {','.join(algorithms)} has no use: {opened.name} has no collectives; omit it")
    return opened


def _open(
    work: WorkloadKeys, training: TrainingKeys, topology: Topology, algorithms: Sequence[str], gpu: str
) -> Opened:
    name, source = named(work), source_of(work)
    if source == LAYERS:
        only = {key: getattr(work, key) for key in OF_WORKLOADS[WorkloadKeys] if key not in ("name", "job")}
        _check_used(work, training, LAYERS, (*only, *OF_WORKLOADS[TrainingKeys]), "remote_memory", "system")
        by = [",".join(algorithms)] if algorithms else []
        workload, job = build_job(WorkloadKeys(name=name, **only), training, topology, *by)
        what = f"{counted(len(workload.layers), 'layer')}, loop {filled(training).loop}"
        notes = notes_of(workload.header, workload.policy)
        if not algorithms and not is_product(topology):
            notes.append(f"{topology.name} is no product of dimensions: each group runs an algorithm among its NPUs, "
                         + ", ".join(f"{kind} by {' or '.join(names)}" for kind, names in DEFAULTS.items()))
        return Opened(job, workload.name, what, True, tuple(notes))
    _check_used(work, training, source, USED[source])
    if source in (GOAL, PLAN):
        if algorithms:
            raise WeftError(f"--algorithm {','.join(algorithms)}: {source} has messages, and no collectives")
        job, notes = open_goal(str(name), topology) if source == GOAL else (open_ocs_plan(str(name), topology), [])
    elif source in OPENERS:
        job, notes = OPENERS[source](str(name), topology, algorithms)
    else:
        hardware, used = _hardware(work, gpu), set[str]()
        job, notes = open_chakra(
            str(name), topology, algorithms, _sets(work, topology.shape), hardware._replace(used=used))
        for key, times in TIMES.items():
            if (value := getattr(work, key)) is not None and times not in used:
                raise WeftError(f"{said(key, value)} times {times}, and {name} has none: omit it")
    return Opened(job, str(name), f"{counted(len(job.operations), 'operation')} of {source}", False, tuple(notes))


def source_of(work: WorkloadKeys) -> str:
    """The format of a workload: one of `recognize`; `LAYERS` stands for models too."""
    name = named(work)
    return LAYERS if name is None or name in MODELS else format_of(name)


def files_of(work: WorkloadKeys) -> list[str]:
    """The files that a workload is read from: its own, those of all ranks, and what goes with it."""
    name = named(work)
    own = [] if name is None or name in MODELS else files_named(name)
    return [*own, *(one for one in (work.communicator, work.system, work.remote_memory) if one is not None)]


def _check_used(work: WorkloadKeys, training: TrainingKeys, source: str, used: Sequence[str], *not_used: str) -> None:
    """Reject keys that a format does not use."""
    for keys in (work, training):
        for name in OF_WORKLOADS[type(keys)]:
            value: Any = getattr(keys, name)
            given = name not in ("name", "job") and value != getattr(type(keys)(), name)
            if given and (name not in used or name in not_used):
                instead = _INSTEAD.get((source, name), "omit it")
                raise WeftError(f"{said(name, value)} has no use for {source}: {instead}")


_INSTEAD = {
    (GOAL, "communicator"): "its messages name their ranks; omit it",
}


def _sets(work: WorkloadKeys, shape: tuple[int, ...]) -> Sets:
    """Process groups of traces, from a file or from a text."""
    if work.communicator is None:
        return {name: tiles(process_group(shape, one)) for name, one in parse_groups(work.groups or "").items()}
    if work.groups is not None:
        raise WeftError(f"--groups {work.groups} beside --communicator {work.communicator}: give one of them")
    return read_sets(work.communicator, shape)


def _hardware(work: WorkloadKeys, gpu: str) -> Hardware:
    """What times operations and accesses that have no duration."""
    memory = None if work.remote_memory is None else read_remote_memory(work.remote_memory)
    if work.system is None and work.peak is None and gpu in devices():
        known = device(gpu)
        rate = None if work.memory_bandwidth is None else parse_bandwidth(work.memory_bandwidth, "memory bandwidth")
        return Hardware(Roofline(known.half * _share(work), rate or known.hbm), memory, gpu)
    return Hardware(_roofline(work), memory)


def _share(work: WorkloadKeys) -> float:
    return number(1 if work.efficiency is None else work.efficiency, "efficiency", 0, 1, above=True)


def _roofline(work: WorkloadKeys) -> Roofline | None:
    """Of the system file, or of the flags; None where neither is given."""
    if work.system is not None:
        for flag in ("peak", "efficiency", "memory_bandwidth"):
            if getattr(work, flag) is not None:
                raise WeftError(f"--system {work.system} has the rates of its NPUs: omit --{flag.replace('_', '-')}")
        system = later("sim.astra.system_file:read_system")(work.system, 1)
        if not system.peak_flops:
            raise WeftError(f"system file {work.system}: key 'peak-perf' is missing, the rate of operations")
        return Roofline(system.peak_flops, system.memory_Bps or None)
    if work.peak is None:
        for flag in ("efficiency", "memory_bandwidth"):
            if getattr(work, flag) is not None:
                raise WeftError(f"--{flag.replace('_', '-')} is of a roofline, which needs --peak TFLOPS")
        return None
    memory = None if work.memory_bandwidth is None else parse_bandwidth(work.memory_bandwidth, "memory bandwidth")
    return Roofline(number(work.peak, "peak", 0, above=True) * TERA * _share(work), memory)
