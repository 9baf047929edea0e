"""`weft train`: one training iteration: of a workload, or of a language model by its passes; and its exposed part."""

import argparse
from collections.abc import Iterator, Sequence
from typing import Any

from sim import plots
from sim.cli.asked import check_looks_into, spec_of
from sim.cli.flags import how, refuse_how
from sim.cli.output import say, write_csv, write_json, write_whole
from sim.cli.progress import progress
from sim.result import Result
from sim.study.jobs import Opened, message_bytes
from sim.study.keys import filled
from sim.study.plans import check_composed, composed, fitting, looks, no_model
from sim.study.spec import Spec
from sim.study.tables import aligned, spent, time_text
from sim.study.workload_runs import simulate_workload
from sim.timeline.perfetto import write_passes, write_perfetto
from sim.why.spans import IDLE_ELSEWHERE, NO_DIMENSION
from topologies.grouped import grouped, in_ranges
from topologies.units import counted, format_size, format_time
from workloads.passes.iteration import Iteration
from workloads.passes.memory import memory_of
from workloads.passes.plan import Plan
from workloads.pipeline import ideal_bubble
from workloads.training import FORWARD


def run(arguments: argparse.Namespace) -> None:
    """Simulate, print and write."""
    spec = spec_of(arguments)
    if spec.iteration.model is None:
        no_model(spec)
    elif not spec.iteration.inline:
        run_model(arguments, spec)
        return
    check_looks_into(spec)
    with progress("train", 1, arguments.quiet):
        opened, result = simulate_workload(spec, drawn=bool(arguments.perfetto), how=how(arguments))
        lines = [*_lines(spec, opened, result), *_bubble(spec, result)]
        spread = result.spread(spec.account.spread) if spec.account.spread else None
        account = result.why("kind") if spec.account.why else None
    lines += [f"iteration {spread}"] if spread else []
    lines += [f"critical path: {spent(account.makespan_ps, account.parts)}"] if account else []
    say(arguments, *lines)
    seen = looks(spread, account) if spread or account else {}
    write_json(arguments, spec, [row | seen for row in rows_of(spec, opened, result)], model=result.model)
    write_csv(arguments, [{"npu": rank} | part for rank in result.ranks for part in parts(result, rank)])
    if arguments.plot:
        write_whole(arguments.plot, lambda path: plots.draw_timeline(result, path))
    if arguments.perfetto:
        write_whole(arguments.perfetto, lambda path: write_perfetto(result.timeline(), path))


def _bubble(spec: Spec, result: Result) -> list[str]:
    """Idle time of the first stage while others compute, and the share with equal stages and free messages."""
    microbatches = spec.training.microbatches
    if microbatches is None:
        return []
    stages = len({operation.npus for operation in result.job.operations if operation.kind == FORWARD})
    idle = result.exposed_ps(result.ranks[0]).get((IDLE_ELSEWHERE, NO_DIMENSION), 0)
    share = ideal_bubble(stages, microbatches)
    size = message_bytes(spec.workload, spec.training, result.job.topology.n_npus)
    return [
        f"pipeline of {counted(stages, 'stage')}, {counted(microbatches, 'microbatch', 'es')}, messages of "
        f"{format_size(size)}: NPU {result.ranks[0]} waits {format_time(idle)} "
        f"for the computation of others, {idle / result.time_ps:.1%} of the iteration; (S-1)/(M+S-1) is {share:.1%}"
    ]


def parts(result: Result, rank: int) -> list[dict[str, Any]]:
    """Rows of one NPU: each kind of communication in each dimension, busy and exposed, in seconds."""
    busy, exposed = result.busy_ps(), result.exposed_ps(rank)
    keys = dict.fromkeys([*exposed, *busy])
    return [
        {"kind": kind, "dimension": dimension, "busy_s": busy.get((kind, dimension), 0) / 1e12,
         "exposed_s": exposed.get((kind, dimension), 0) / 1e12}
        for kind, dimension in keys
    ]


def _lines(spec: Spec, opened: Opened, result: Result) -> list[str]:
    plan, topology = opened.plan, result.job.topology
    what = f"{head(plan, topology.name)}, inlined" if plan else (
        f"{opened.name}, {opened.what}, on {topology.name}, {counted(topology.n_npus, 'NPU')}")
    about = (f"{result.assumptions}; {result.symmetry}", *spec.preset_notes, *result.notes(), *opened.notes)
    lines = [f"# weft train: {what}", *(f"# {one}" for one in about)]
    lines += rates(plan, result.time_ps) if plan else ()
    lines += [line for ranks in _alike(result) for line in _lines_of(result, ranks)]
    return [*lines, memory_lines(plan)] if plan else lines


def _alike(result: Result) -> list[list[int]]:
    """NPUs by what they compute: the same time, to two digits."""
    return list(grouped((f"{result.compute_ps(rank):.2g}", rank) for rank in result.ranks).values())


def _lines_of(result: Result, ranks: list[int]) -> list[str]:
    """An NPU, or several alike: from the least to the most of each time."""
    compute = [result.compute_ps(rank) for rank in ranks]
    kinds = grouped(one for rank in ranks for one in result.communication_ps(rank).items())
    times: dict[tuple[str, str], tuple[list[float], list[float]]] = {}
    for rank in ranks:
        for part in parts(result, rank):
            busy, exposed = times.setdefault((part["kind"], str(part["dimension"])), ([], []))
            busy.append(part["busy_s"] * 1e12)
            exposed.append(part["exposed_s"] * 1e12)
    of_all = [[*key, _span(busy), _span(exposed, len(ranks))] for key, (busy, exposed) in times.items()]
    named = f"NPU{'s' * (len(ranks) > 1)} {in_ranges(ranks).replace(',', ', ')}"
    return [
        f"{named}: iteration {format_time(result.time_ps)} = compute {_span(compute)} + exposed "
        f"{_span([result.time_ps - one for one in compute])}",
        aligned([["communication", "in progress"], *([kind, _span(some, len(ranks))] for kind, some in kinds.items())],
                left=1),
        aligned([["kind", "dimension", "busiest link", "exposed"], *of_all], left=2),
    ]


def _span(times: Sequence[float], of: int = 0) -> str:
    """From the least to the most, as they are shown; one that an NPU of `of` does not have is 0."""
    least, most = (format_time(one) for one in (min(times) if len(times) >= of else 0, max(times)))
    return most if least == most else f"{least} to {most}"


def rows_of(spec: Spec, opened: Opened, result: Result) -> list[dict[str, Any]]:
    """One row per distinct NPU."""
    return [
        {
            "topology": result.job.topology.name, "workload": opened.name,
            "loop": filled(spec.training).loop if opened.is_layers and opened.plan is None else None, "npu": rank,
            **(opened.plan.figures(result.time_s) if opened.plan else {}),
            "time_s": result.time_s, "compute_s": result.compute_ps(rank) / 1e12,
            "exposed_s": (result.time_ps - result.compute_ps(rank)) / 1e12,
            "communication_s": {kind: time / 1e12 for kind, time in result.communication_ps(rank).items()},
            "parts": parts(result, rank), "events": result.events, "symmetry": result.symmetry,
            "lower_bound_s": result.lower_bound_ps / 1e12, "wall_s": result.wall_s,
            **({} if result.faults is None else result.faults.row()),
        }
        for rank in result.ranks
    ]


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
    runs = counted(spec.account.spread or 0, "perturbed run")
    told = [f"iteration {' to '.join(ends)} in {runs} of each collective"] * bool(ends)
    say(arguments, *_summary(found, one.where), *told, *switched * bool(optics and optics.policy))
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


def _summary(found: Iteration, where: str) -> Iterator[str]:
    yield f"# weft train: {head(found.plan, where)}"
    yield from (f"# {one}" for one in (found.plan.assumptions, found.certificate))
    time, flops = rates(found.plan, found.time_ps)
    yield from (time, f"{flops}; bubble {found.bubble:.1%}")
    kinds = dict.fromkeys(kind for one in found.parts for kind in one)
    rows = [[kind, *(format_time(one([part.get(kind, 0) for part in found.parts])) for one in (min, max))]
            for kind in kinds]
    yield aligned([["of an iteration", "least of a rank", "most"], *rows], left=1)
    yield memory_lines(found.plan)
