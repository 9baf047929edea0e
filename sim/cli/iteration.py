"""`weft train --model`: one iteration of a language model by its passes: times, rates, memory, and what is exposed."""

import argparse
from collections.abc import Iterator
from typing import Any

from sim import plots
from sim.cli.flags import how, refuse_how
from sim.cli.library import check_no_engine
from sim.cli.output import say, write_csv, write_json, write_whole
from sim.cli.progress import progress
from sim.how import How
from sim.library.groups import fabric_times, library_times, torus_times
from sim.library.tuner import runs_on, version
from sim.study.keys import IterationKeys, LibraryKeys, TrainingKeys, WorkloadKeys
from sim.study.spec import Spec
from sim.study.tables import aligned
from topologies.checks import WeftError
from topologies.machines.profile import Machine
from topologies.units import counted, format_size, format_time
from workloads.models.language import language_model
from workloads.passes.device import device, devices, stack
from workloads.passes.iteration import Iteration, iterate
from workloads.passes.memory import check_fits, memory_of
from workloads.passes.orders import order_of
from workloads.passes.plan import Plan
from workloads.passes.tape import Times

ALGORITHM = "ring"
"""Of collectives where no library is named."""


def no_model(spec: Spec) -> None:
    """Reject keys of a plan without a model."""
    for name, default in vars(IterationKeys()).items():
        if (value := getattr(spec.iteration, name)) != default:
            raise WeftError(f"--{name.replace('_', '-')} {value} is of a plan: give --model")
    if spec.library != LibraryKeys():
        raise WeftError("--library times collectives of a plan: give --model")


def run(arguments: argparse.Namespace, spec: Spec) -> None:
    """Simulate, print and write."""
    if spec.library.name is not None:
        refuse_how(arguments, "omit --library")
    if arguments.perfetto:
        raise WeftError("--perfetto shows operations, which --model has not: --plot draws its passes")
    with progress("train", 1, arguments.quiet):
        plan, times, where = asked(spec, how(arguments))
        check_fits(plan)
        found = iterate(plan, times)
    say(arguments, *_lines(found, where))
    write_json(arguments, spec, [row_of(found, where)])
    write_csv(arguments, [{"rank": rank, "kind": kind, "time_s": time / 1e12}
                          for rank, parts in enumerate(found.parts) for kind, time in parts.items()])
    if arguments.plot:
        write_whole(arguments.plot, lambda path: plots.draw_passes(found, path))


def asked(spec: Spec, how: How) -> tuple[Plan, Times, str]:
    """The plan of a spec, the times of its collectives, and the name of the fabric.

    WeftError: keys that contradict each other, or a plan that cannot be.
    """
    for section, default in (("workload", WorkloadKeys(efficiency=spec.workload.efficiency)),
                             ("training", TrainingKeys())):
        for name, value in vars(getattr(spec, section)).items():
            if value != getattr(default, name):
                flag = name.replace("_", "-")
                raise WeftError(f"--{flag} {value} is of the layers of --workload: omit it beside --model")
    machine, topology = _machine(spec), spec.build_topology()
    plan = plan_of(spec, machine, topology.n_npus)
    if spec.library.name is not None:
        if machine is None:
            raise WeftError(f"--library {spec.library.name} runs on a machine: give --machine, such as dgx-h100:4")
        runs_on(spec.library.name, machine)
        check_no_engine(spec)
        return plan, library_times(machine, plan.groups, version(spec.library.name)), topology.name
    if machine is not None and machine.dimensions:
        check_no_engine(spec, machine.name)
        return plan, torus_times(machine, plan.groups, how), topology.name
    names = spec.collective.algorithms or (ALGORITHM,)
    if len(names) != 1:
        raise WeftError(f"--algorithm {','.join(names)}: an iteration has one algorithm for all its collectives")
    model, faults = spec.build_model(), spec.build_faults()
    return plan, fabric_times(topology, plan.groups, names[0], model, faults, how), topology.name


def _machine(spec: Spec) -> Machine | None:
    try:
        return spec.build_machine()[0]
    except WeftError:
        if spec.topology.machine is not None:
            raise
        return None


def plan_of(spec: Spec, machine: Machine | None, n_ranks: int) -> Plan:
    """The plan of the section `[iteration]` on so many ranks.

    WeftError: a key that is missing, or does not fit the ranks or the others.
    """
    keys = spec.iteration
    model = language_model(str(keys.model))
    name = keys.device or (machine.gpu.name if machine else None)
    if name is None:
        raise WeftError(f"--model {keys.model} needs --device, one of {', '.join(devices())}, or --machine")
    on, of = device(name), stack(keys.stack or ("maxtext" if name.startswith("tpu") else "megatron"))
    inner = keys.tp * keys.pp * keys.cp
    if inner < 1 or n_ranks % inner:
        raise WeftError(f"tp={keys.tp} x pp={keys.pp} x cp={keys.cp} do not divide the {counted(n_ranks, 'NPU')}")
    dp = n_ranks // inner
    if keys.global_batch is None:
        raise WeftError(f"--model {keys.model} needs --global-batch: sequences of an iteration, a multiple of "
                        f"{dp * keys.micro_batch}")
    batches, left = divmod(keys.global_batch, dp * keys.micro_batch)
    if left or not batches:
        raise WeftError(f"--global-batch {keys.global_batch} is no multiple of dp={dp} x --micro-batch "
                        f"{keys.micro_batch}")
    schedule = keys.schedule or ("interleaved" if (keys.vp or 1) > 1 else "1f1b")
    if keys.attention == "flash3" and not on.flash3:
        raise WeftError(f"--attention flash3 is not known on {on.name}: flash2 or unfused")
    given = spec.workload.efficiency
    if given is not None and not 0 < given <= 1:
        raise WeftError(f"--efficiency {given:g}: a share of the peak, above 0 and at most 1")
    return Plan(
        model=model, device=on, stack=of, precision=keys.precision,
        efficiency=of.constant(on.name, keys.precision)[0] if given is None else given,
        half_efficiency=of.constant(on.name, "half")[0] if given is None else given,
        tp=keys.tp, pp=keys.pp, vp=keys.vp or order_of(schedule).chunks or 1, dp=dp, cp=keys.cp, ep=keys.ep,
        zero=keys.zero, schedule=schedule, micro_batch=keys.micro_batch, microbatches=batches,
        sequence=model.sequence if keys.sequence is None else keys.sequence,
        sequence_parallel=keys.tp > 1 and keys.sequence_parallel, recompute=keys.recompute,
        attention=keys.attention or ("flash3" if on.flash3 else "flash2"), data_overlap=keys.overlap,
        send_overlap=keys.overlap, tensor_overlap="pipelined" if keys.overlap_tp else "none",
        node=machine.gpus if machine and not machine.dimensions else n_ranks,
    )


def _lines(found: Iteration, where: str) -> Iterator[str]:
    plan, model = found.plan, found.plan.model
    groups = " ".join(f"{name}={getattr(plan, name)}" for name in ("tp", "pp", "vp", "cp", "dp", "ep")
                      if getattr(plan, name) > 1 or name == "dp")
    yield (f"# weft train: {model.name}, {model.parameters / 1e9:.4g} G parameters, on {where}, "
           f"{counted(plan.n_ranks, 'NPU')}: {groups}, {plan.schedule}, ZeRO {plan.zero}")
    yield (f"# {plan.device.name}, {plan.precision} precision at {plan.efficiency:.3g} of the peak "
           f"({plan.stack.name}), {plan.attention}, recomputation {plan.recompute}")
    yield f"# {found.certificate}"
    yield from (
        f"iteration {format_time(found.time_ps)}, {plan.global_batch} sequences of {plan.sequence} tokens: "
        f"{found.tokens_per_s:,.0f} tokens/s, {found.tokens_per_s / plan.n_ranks:,.0f} an NPU",
        f"MFU {found.model_flops_share():.1%}, HFU {found.hardware_flops_share():.1%} (of 3 passes, half of attention, "
        f"of the peak in half precision; MFU with all of it {found.model_flops_share(causal=False):.1%}); "
        f"bubble {found.bubble:.1%}",
    )
    kinds = dict.fromkeys(kind for one in found.parts for kind in one)
    rows = [[kind, *(format_time(one([part.get(kind, 0) for part in found.parts])) for one in (min, max))]
            for kind in kinds]
    yield aligned([["of an iteration", "least of a rank", "most"], *rows], left=1)
    memory = [memory_of(plan, rank) for rank in range(plan.pp)]
    fullest = max(memory, key=lambda one: sum(one.values()))
    sizes = {**fullest, "of the device": plan.device.memory_bytes}
    yield aligned([["memory of the fullest rank", ""],
                   *([name, format_size(round(size))] for name, size in sizes.items())], left=1)


def row_of(found: Iteration, where: str) -> dict[str, Any]:
    """All figures of an iteration, in SI units."""
    plan = found.plan
    return {
        "topology": where, "model": plan.model.name, "parameters": plan.model.parameters, "npus": plan.n_ranks,
        "tp": plan.tp, "pp": plan.pp, "vp": plan.vp, "cp": plan.cp, "dp": plan.dp, "ep": plan.ep, "zero": plan.zero,
        "schedule": plan.schedule, "global_batch": plan.global_batch, "sequence": plan.sequence, "time_s": found.time_s,
        "tokens_per_s": found.tokens_per_s, "tokens_per_s_per_npu": found.tokens_per_s / plan.n_ranks,
        "mfu": found.model_flops_share(), "mfu_full_attention": found.model_flops_share(causal=False),
        "hfu": found.hardware_flops_share(), "bubble": found.bubble,
        "parts_s": [{kind: time / 1e12 for kind, time in one.items()} for one in found.parts],
        "memory_bytes": [{name: round(size) for name, size in memory_of(plan, rank).items()}
                         for rank in range(plan.pp)],
    }
