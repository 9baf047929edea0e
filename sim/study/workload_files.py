"""Workload files of every format as jobs: the one way in of all commands that take a workload.

What a file is shows in its first lines and in its name; `--workload` and `--job` mean the same. A key that the format
does not use is an error.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from collectives.core.process_groups import process_group
from sim.astra.system_file import read_system
from sim.study.jobs import build_job, parse_groups
from sim.study.keys import TrainingKeys, WorkloadKeys, filled
from sim.study.workload_keys import OF_WORKLOADS, named, said
from topologies import Topology
from topologies.checks import WeftError, number
from topologies.units import counted, parse_bandwidth
from workloads.compute import TERA
from workloads.formats.astra_memory import Roofline, read_remote_memory
from workloads.formats.chakra_job import ACCESSES, BYTES, OPERATIONS, Hardware, open_chakra, open_dumps, open_profiles
from workloads.formats.comm_groups import Sets, read_sets, tiles
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
from workloads.job import Communicate, Job
from workloads.models import MODELS
from workloads.passes.device import device, devices
from workloads.passes.plan import Plan
from workloads.training import is_product

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
        system = read_system(work.system, 1)
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
