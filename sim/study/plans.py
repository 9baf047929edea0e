"""Plans of a spec: its section `[iteration]` on a machine or a fabric, and what takes the time of its collectives."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from time import perf_counter
from typing import Any, NamedTuple

from sim.how import AS_USUAL, How
from sim.library.tuner import runs_on, version
from sim.program.model import Model
from sim.result import Result
from sim.simulation import simulate
from sim.study.group_times import fabric_times, library_times, torus_times
from sim.study.jobs import with_npu_bandwidth
from sim.study.keys import (
    AUTO,
    AccountKeys,
    CollectiveKeys,
    IterationKeys,
    LibraryKeys,
    ModelKeys,
    SweepKeys,
    TopologyKeys,
    TrainingKeys,
    WorkloadKeys,
    filled,
)
from sim.study.spec import Spec
from sim.why.path import Why
from sim.why.spread import Spread
from topologies import Topology, WeftError
from topologies.lazy import later
from topologies.machines.profile import Machine
from topologies.units import counted
from workloads.job import Job
from workloads.models import JOB_FILES
from workloads.models.language import LanguageModel, language_model
from workloads.parallelism import HSDP, SCHEMES, plain_scheme, zero_stage
from workloads.passes.device import Device, device, devices, stack
from workloads.passes.iteration import Iteration, iterate
from workloads.passes.job import iteration_job
from workloads.passes.kernels import kernels
from workloads.passes.memory import check_fits, memory_of
from workloads.passes.orders import order_of
from workloads.passes.plan import Plan
from workloads.passes.tape import Times

ALGORITHM = "ring"
"""Of collectives where no library is named."""

_USED = {"topology": ("spec", "machine"), "collective": ("name", "element_bytes", "root"), "model": (), "account": ()}
"""Keys that mean something to a library; of others, none may be given."""

_DEFAULTS = {"topology": TopologyKeys(), "collective": CollectiveKeys(), "model": ModelKeys(), "account": AccountKeys()}


def check_no_engine(spec: Spec, who: str = "--library") -> None:
    """Reject keys of what is simulated, which a model of a machine's own collectives does not know; `who` has it.

    WeftError: the first such key.
    """
    if (rates := spec.workload.npu_bandwidth) is not None:
        raise WeftError(f"{who} has its own: omit --npu-bandwidth {rates}; rates are those of the machine")
    for section, used in _USED.items():
        keys = getattr(spec, section)
        for name, default in vars(_DEFAULTS[section]).items():
            value = getattr(keys, name)
            if (section, name) == ("collective", "algorithms") and value is not None:
                more = "; --library-algorithms Ring leaves it Ring alone, and without --library they are simulated"
                raise WeftError(f"{who} chooses by itself: omit --algorithms{more if who == '--library' else ''}")
            if name not in used and value != default and (section, name, value) != ("model", "chunks", AUTO):
                raise WeftError(f"{who} has its own: omit {name} of [{section}]; rates are those of the machine")


def model_of_jobs(spec: Spec) -> Model:
    """The model of a spec; chunks of a hierarchical collective are small, and a message is one chunk."""
    model, keys = spec.build_model(), spec.model
    given = keys.chunks is not None or keys.chunk is not None or keys.preset is not None
    return model if given else replace(model, chunks=1)


def runner(spec: Spec, how: How = AS_USUAL) -> Callable[..., Result]:
    """`simulate` with what a spec says of runs of jobs."""
    return partial(simulate, model=model_of_jobs(spec), engine=spec.engine, symmetry=spec.symmetry,
                   faults=spec.build_faults(), **how.arguments())


class Asked(NamedTuple):
    """A plan, and where it runs."""

    plan: Plan
    times: Times  # of its collectives
    where: str
    topology: Topology
    algorithm: str  # of collectives on the topology; "": another model times them


def asked(spec: Spec, how: How = AS_USUAL) -> Asked:
    """What a spec asks with its section `[iteration]`.

    WeftError: keys that contradict each other, or a plan that cannot be.
    """
    _check_beside(spec)
    machine = machine_of(spec)
    launched = _launched(spec.iteration)[0]
    _device(launched, machine)  # before the fabric, which may be large
    topology = with_npu_bandwidth(spec.build_topology(), spec.workload, spec.topology.link_bandwidth)
    slices = launched.replicas if machine is not None and machine.dimensions else 1
    plan = plan_of(spec, machine, topology.n_npus * slices)
    if spec.library.name is not None:
        if machine is None:
            raise WeftError(f"--library {spec.library.name} runs on a machine: give --machine, such as dgx-h100:4")
        runs_on(spec.library.name, machine)
        check_no_engine(spec)
        times = library_times(machine, plan.groups, version(spec.library.name))
        return Asked(plan, times, topology.name, topology, "")
    if machine is not None and machine.dimensions:
        check_no_engine(spec, machine.name)
        return Asked(plan, torus_of(machine, plan, how), topology.name, topology, "")
    names, run = ",".join(spec.collective.algorithms or (ALGORITHM,)), runner(spec, how)
    times = fabric_times(topology, plan.groups, names, lambda job: run(job).time_ps)
    return Asked(plan, times, topology.name, topology, names)


def _check_beside(spec: Spec) -> None:
    """Reject keys of layers and of collectives beside a model."""
    own = {name: getattr(spec.workload, name) for name in ("efficiency", "npu_bandwidth")}
    for section, default in (("workload", WorkloadKeys(**own)), ("training", TrainingKeys())):
        for name, value in vars(getattr(spec, section)).items():
            if value != getattr(default, name):
                flag, scheme = (section if name == "name" else name.replace("_", "-")), plain_scheme(str(value))
                instead = f"which has --zero {scheme}" if name == "loop" and scheme in SCHEMES else ""
                raise WeftError(f"--{flag} {value} is of the layers of --workload: omit it beside --model"
                                + (instead and f", {instead}"))
    of_collectives = replace(spec.collective, algorithms=None) != CollectiveKeys() or spec.sweep != SweepKeys()
    if of_collectives:
        raise WeftError("a plan has collectives and sizes of its own: of [collective] only algorithms, and no [sweep], "
                        "may stand beside its model")


def plan_on(spec: Spec, network: str, n_npus: int) -> Plan:
    """The plan of a spec on a network whose bandwidths are chosen.

    WeftError: as `asked`; or it is inlined, or does not fit.
    """
    _check_beside(spec)
    if spec.iteration.inline:
        raise WeftError("--inline: how long kernels beside collectives are slowed changes with every split, and in one "
                        "job it is fixed: omit it, and run the answer with weft train --inline --npu-bandwidth B1,B2")
    machine = machine_of(replace(spec, topology=replace(spec.topology, spec=network)))
    plan = plan_of(spec, machine, n_npus)
    check_fits(plan)
    return plan


def torus_of(machine: Machine, plan: Plan, how: How = AS_USUAL) -> Times:
    """Times on a torus of accelerators, or on one for each copy of the job.

    WeftError: it is not known what joins them.
    """
    if plan.replicas > 1 and not plan.device.between:
        raise WeftError(f"replicas={plan.replicas}: it is not known what joins slices of {plan.device.name}")
    return torus_times(machine, plan.groups, how, plan.device.between)


def fitting(spec: Spec, how: How = AS_USUAL) -> Asked:
    """See `asked`; WeftError: it does not fit in memory."""
    one = asked(spec, how)
    check_fits(one.plan)
    return one


def label_of(spec: Spec) -> str:
    """The plan of a spec in a few words: "llama-3-8b tp=2 pp=4", and the algorithm that is named."""
    given = {name: value for name, value in vars(spec.iteration).items() if value != getattr(IterationKeys(), name)}
    name = given.pop("model")
    by = [f"by {','.join(spec.collective.algorithms)}"] if spec.collective.algorithms else []
    return " ".join([name, *(f"{key}={value}" for key, value in given.items()), *by])


def check_composed(one: Asked, spread: int | None, why: bool) -> None:
    """Reject looks into an iteration that is composed of passes which it does not allow."""
    if why:
        raise WeftError("--why accounts for a run of the whole iteration: give --inline (inline = true)")
    if spread and not one.algorithm:
        raise WeftError(f"--spread {spread} perturbs simulated collectives: a library, or a torus of accelerators, has "
                        "a model of their times; omit it, or --library")


def composed(spec: Spec, one: Asked, how: How = AS_USUAL, spread: int | None = 0) -> tuple[Iteration, dict[str, Any]]:
    """The iteration by its passes, and its row; with a range where each collective has that of its perturbed runs."""
    found = iterate(one.plan, one.times)
    row = row_of(found, one)
    if not spread:
        return found, row
    run = runner(spec, how)
    ranges = fabric_times(one.topology, one.plan.groups, one.algorithm, lambda job: run(job).spread(spread))
    low, high = (iterate(one.plan, lambda *key, end=end: getattr(ranges(*key), end)).time_s
                 for end in ("low_ps", "high_ps"))
    return found, row | {"spread_low_s": low, "spread_high_s": high}


def run_plan(
    spec: Spec, one: Asked, how: How = AS_USUAL, spread: int | None = 0, why: bool = False
) -> dict[str, Any]:
    """The row of a plan, composed or inlined."""
    begun = perf_counter()
    if not spec.iteration.inline:
        return composed(spec, one, how, spread)[1] | {"wall_s": perf_counter() - begun}
    result = runner(spec, how)(inlined(one), log=True)
    exposed_ps = result.time_ps - min(map(result.compute_ps, result.ranks))
    row = facts_of(one) | {"time_s": result.time_s, **one.plan.figures(result.time_s), "exposed_s": exposed_ps / 1e12}
    seen = looks(result.spread(spread) if spread else None, result.why() if why else None)
    return row | seen | {"wall_s": perf_counter() - begun}


def looks(ends: Spread | None, account: Why | None) -> dict[str, Any]:
    """What a row says of a job besides its time: the ends of its range, and its critical path."""
    return {
        "spread_low_s": ends and ends.low_s, "spread_high_s": ends and ends.high_s,
        "why": {} if account is None else {"makespan_ps": account.makespan_ps, "parts_ps": account.parts},
    }


def inlined(one: Asked) -> Job:
    """The iteration as one job.

    WeftError: its collectives do not run on links.
    """
    if not one.algorithm:
        raise WeftError(f"{one.where}: collectives that a library or a torus of accelerators times alone have no "
                        "operations on links: omit --library, or give a --topology")
    return iteration_job(one.plan, one.topology, one.times, one.algorithm)


def plan_job(keys: IterationKeys, efficiency: float | None, topology: Topology, algorithm: str,
             npus: Sequence[int] | None = None, machine: Machine | None = None) -> tuple[Plan, Job]:
    """A plan on some NPUs of a fabric, as a job.

    `npus`: where its ranks are; default: everywhere, in order.
    `machine`: which the fabric is, if it is one.
    """
    spec = Spec(iteration=keys, workload=WorkloadKeys(efficiency=efficiency))
    plan = plan_of(spec, machine, topology.n_npus if npus is None else len(npus))
    times = fabric_times(topology, plan.groups, algorithm, lambda job: simulate(job, chunks=1).time_ps, npus)
    return plan, iteration_job(plan, topology, times, algorithm, npus)


def no_model(spec: Spec) -> None:
    """Reject keys of a plan without a model."""
    for name, default in vars(IterationKeys()).items():
        if (value := getattr(spec.iteration, name)) != default:
            given = "" if value is True else f" {value}"
            raise WeftError(f"--{name.replace('_', '-')}{given} is of a plan: give --model")
    if spec.library != LibraryKeys():
        raise WeftError("--library times collectives of a plan: give --model")


def machine_of(spec: Spec) -> Machine | None:
    """The machine of a spec; None of any other fabric."""
    try:
        return spec.build_machine()[0]
    except WeftError:
        if spec.topology.machine is not None:
            raise
        return None


def gpu_of(spec: Spec) -> str:
    """The GPU of the machine of a spec; "" of any other fabric."""
    machine = machine_of(spec)
    return machine.gpu.name if machine is not None else ""


def _device(keys: IterationKeys, machine: Machine | None) -> Device:
    """The device that is named, or that of the machine."""
    name = keys.device or (machine.gpu.name if machine else None)
    if name is None:
        raise WeftError(f"--model {keys.model} needs --device, one of {', '.join(devices())}, or a machine")
    return device(name)


def plan_of(spec: Spec, machine: Machine | None, n_ranks: int) -> Plan:
    """The plan of the section `[iteration]` on so many ranks.

    WeftError: a key that is missing, or does not fit the ranks or the others.
    """
    keys, model, local = _launched(spec.iteration)
    on = _device(keys, machine)
    if keys.attention == "flash3" and not on.flash3:
        raise WeftError(f"--attention flash3 is not known on {on.name}: flash2 or unfused")
    if local and keys.global_batch is None:
        keys = replace(keys, global_batch=n_ranks // max(1, keys.tp * keys.pp * keys.cp) * local)
    node = machine.gpus if machine and not machine.dimensions else n_ranks
    return plan_by(keys, model, on, n_ranks, node, spec.workload.efficiency)


def plan_by(
    keys: Any, model: LanguageModel, on: Device, n_ranks: int, node: int, given: float | None = None
) -> Plan:
    """The plan of keys of `[iteration]` that are all there (`filled`).

    `node`: ranks of a node.
    `given`: share of the peak that products sustain; default: as fitted.
    WeftError: a key that does not fit the ranks or the others.
    """
    of = stack(keys.stack or ("maxtext" if on.name.startswith("tpu") else "megatron"))
    inner = keys.tp * keys.pp * keys.cp
    if inner < 1 or n_ranks % inner:
        raise WeftError(f"tp={keys.tp} x pp={keys.pp} x cp={keys.cp} do not divide the {counted(n_ranks, 'NPU')}")
    dp = n_ranks // inner
    for name in ("global_batch", "micro_batch"):
        if (value := getattr(keys, name)) is not None and value < 1:
            raise WeftError(f"--{name.replace('_', '-')} {value}: at least 1")
    if keys.global_batch is None:
        raise WeftError(f"--model {keys.model} needs --global-batch: sequences of an iteration, a multiple of "
                        f"{dp * keys.micro_batch}")
    batches, left = divmod(keys.global_batch, dp * keys.micro_batch)
    if left or not batches:
        raise WeftError(f"--global-batch {keys.global_batch} is no multiple of dp={dp} x --micro-batch "
                        f"{keys.micro_batch}")
    schedule = keys.schedule or ("interleaved" if (keys.vp or 1) > 1 else "1f1b")
    if given is not None and not 0 < given <= 1:
        raise WeftError(f"--efficiency {given:g}: a share of the peak, above 0 and at most 1")
    return Plan(
        model=model, device=on, stack=of, precision=keys.precision,
        efficiency=given or of.constant(on.name, keys.precision)[0],
        half_efficiency=given or of.head or of.constant(on.name, "half")[0],
        context=keys.context or of.context, tp=keys.tp, pp=keys.pp, vp=keys.vp or order_of(schedule).chunks or 1, dp=dp,
        cp=keys.cp, ep=keys.ep,
        etp=keys.etp, replicas=keys.replicas, zero=_stage(keys), schedule=schedule, micro_batch=keys.micro_batch,
        microbatches=batches, sequence=model.sequence if keys.sequence is None else keys.sequence,
        sequence_parallel=keys.tp > 1 and keys.sequence_parallel, recompute=keys.recompute,
        gradient_bytes=keys.gradient_bytes, optimizer_bytes=keys.optimizer_bytes,
        attention=keys.attention or ("flash3" if on.flash3 else "flash2"), data_overlap=keys.overlap,
        send_overlap=keys.overlap, tensor_overlap="pipelined" if keys.overlap_tp else "none", node=node,
        kernels=kernels(keys.kernels) if keys.kernels else None,
    )


def _launched(keys: IterationKeys) -> tuple[Any, LanguageModel, int | None]:
    """Keys with what a job file says, where they say nothing; the model, and sequences of a rank if a file has them."""
    if not str(keys.model).endswith(JOB_FILES):
        return filled(keys), language_model(str(keys.model)), None
    job = later("workloads.models.job_files:read_job")(str(keys.model))
    said = {name: value for name, value in job.keys.items() if name != "local_batch" and value is not None}
    return filled(keys, said), job.model, job.keys.get("local_batch")


def _stage(keys: Any) -> int:
    if plain_scheme(str(keys.zero)) == HSDP and keys.replicas < 2:
        raise WeftError("--zero hsdp has copies of its shards: give --replicas N, their number; in one copy it is fsdp")
    return zero_stage(keys.zero)


def facts_of(one: Asked) -> dict[str, Any]:
    """What a row says of a plan."""
    plan = one.plan
    return {
        "topology": one.where, "algorithm": one.algorithm, "device": plan.device.name, "stack": plan.stack.name,
        "efficiency": None if plan.kernels else plan.efficiency,
        "efficiency_of": f"kernels {plan.kernels.name}" if plan.kernels else plan.constant, "model": plan.model.name,
        "parameters": plan.model.parameters, "npus": plan.n_ranks, **{
            name: getattr(plan, name)
            for name in ("tp", "pp", "vp", "cp", "dp", "ep", "etp", "zero", "schedule", "global_batch", "sequence")},
        "memory_bytes": [{name: round(size) for name, size in memory_of(plan, rank).items()}
                         for rank in range(plan.pp)],
    }


def row_of(found: Iteration, one: Asked) -> dict[str, Any]:
    """All figures of an iteration, in SI units."""
    exposed = [sum(time for kind, time in part.items() if kind not in found.compute) for part in found.parts]
    return facts_of(one) | {
        "time_s": found.time_s, **found.figures, "bubble": found.bubble, "exposed_s": max(exposed) / 1e12,
        "parts_s": [{kind: time / 1e12 for kind, time in part.items()} for part in found.parts],
    }
