"""`weft train --model`: one iteration of a language model by its passes: times, rates, memory, and what is exposed."""

import argparse
from collections.abc import Iterator

from sim import plots
from sim.cli.flags import how, refuse_how
from sim.cli.output import say, write_csv, write_json, write_whole
from sim.cli.progress import progress
from sim.study.plans import check_composed, composed, fitting
from sim.study.spec import Spec
from sim.study.tables import aligned, time_text
from sim.timeline.perfetto import write_passes
from topologies.units import counted, format_size, format_time
from workloads.passes.iteration import Iteration
from workloads.passes.memory import memory_of
from workloads.passes.plan import Plan


def run_model(arguments: argparse.Namespace, spec: Spec) -> None:
    """Compose, print and write."""
    if spec.library.name is not None:
        refuse_how(arguments, "omit --library")
    with progress("train", 1, arguments.quiet):
        one = fitting(spec, how(arguments))
        check_composed(one, spec.account.spread, spec.account.why)
        found, row = composed(spec, one, how(arguments), spec.account.spread)
    optics = one.topology.optics
    switched = ["# note: each collective begins with its circuits up; --inline counts the changes between them"]
    ends = [time_text(row[key]) for key in ("spread_low_s", "spread_high_s") if key in row]
    told = [f"iteration {' to '.join(ends)} in {spec.account.spread} perturbed runs of each collective"] * bool(ends)
    say(arguments, *_lines_of(found, one.where), *told, *switched * bool(optics and optics.policy))
    write_json(arguments, spec, [row])
    write_csv(arguments, [{"rank": rank, "kind": kind, "time_s": time / 1e12}
                          for rank, parts in enumerate(found.parts) for kind, time in parts.items()])
    if arguments.plot:
        write_whole(arguments.plot, lambda path: plots.draw_passes(found, path))
    if arguments.perfetto:
        write_whole(arguments.perfetto, lambda path: write_passes(found, path))


def head(plan: Plan, where: str) -> str:
    """What is run."""
    name, _, groups = plan.words.partition(" ")
    scheme = " (HSDP)" if plan.replicas > 1 else {0: " (DDP)", 3: " (FSDP)"}.get(plan.zero, "")
    return (f"{name}, {plan.model.parameters / 1e9:.4g} G parameters, on {where}, "
            f"{counted(plan.n_ranks, 'NPU')}: {groups}, {plan.schedule}, ZeRO {plan.zero}{scheme}")


def rates(plan: Plan, time_ps: int) -> Iterator[str]:
    """What people read of an iteration."""
    of = plan.figures(time_ps / 1e12)
    yield (f"iteration {format_time(time_ps)}, {plan.global_batch} sequences of {plan.sequence} tokens: "
           f"{of['tokens_per_s']:,.0f} tokens/s, {of['tokens_per_s_per_npu']:,.0f} an NPU")
    yield (f"MFU {of['mfu']:.1%}, HFU {of['hfu']:.1%} (of 3 passes, half of attention, of the peak in half precision; "
           f"MFU with all of it {of['mfu_full_attention']:.1%})")


def memory_lines(plan: Plan) -> str:
    """Memory of the fullest rank by part."""
    memory = [memory_of(plan, rank) for rank in range(plan.pp)]
    fullest = max(memory, key=lambda one: sum(one.values()))
    sizes = {**fullest, "of the device": plan.device.memory_bytes}
    return aligned([["memory of the fullest rank", ""],
                    *([name, format_size(round(size))] for name, size in sizes.items())], left=1)


def _lines_of(found: Iteration, where: str) -> Iterator[str]:
    yield f"# weft train: {head(found.plan, where)}"
    yield from (f"# {one}" for one in (found.plan.assumptions, found.certificate))
    time, flops = rates(found.plan, found.time_ps)
    yield from (time, f"{flops}; bubble {found.bubble:.1%}")
    kinds = dict.fromkeys(kind for one in found.parts for kind in one)
    rows = [[kind, *(format_time(one([part.get(kind, 0) for part in found.parts])) for one in (min, max))]
            for kind in kinds]
    yield aligned([["of an iteration", "least of a rank", "most"], *rows], left=1)
    yield memory_lines(found.plan)
