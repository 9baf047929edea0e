"""`weft train`: one training iteration: of a workload, or of a language model by its passes; and its exposed part."""

import argparse
from collections.abc import Sequence
from typing import Any

from sim import plots
from sim.cli.asked import check_looks_into, spec_of
from sim.cli.flags import how
from sim.cli.iteration import head, memory_lines, rates, run_model
from sim.cli.output import say, write_csv, write_json, write_whole
from sim.cli.progress import progress
from sim.result import Result
from sim.study.jobs import Opened, message_bytes
from sim.study.keys import filled
from sim.study.plans import looks, no_model
from sim.study.spec import Spec
from sim.study.tables import aligned, spent
from sim.study.workload_runs import simulate_workload
from sim.timeline.perfetto import write_perfetto
from sim.why.spans import IDLE_ELSEWHERE, NO_DIMENSION
from topologies.units import counted, format_size, format_time
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
        f"pipeline of {stages} stages, {microbatches} microbatches, messages of "
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
    classes: dict[str, list[int]] = {}
    for rank in result.ranks:
        classes.setdefault(f"{result.compute_ps(rank):.2g}", []).append(rank)
    return list(classes.values())


def _lines_of(result: Result, ranks: list[int]) -> list[str]:
    """An NPU, or several alike: from the least to the most of each time."""
    compute = [result.compute_ps(rank) for rank in ranks]
    kinds: dict[str, list[float]] = {}
    times: dict[tuple[str, str], tuple[list[float], list[float]]] = {}
    for rank in ranks:
        for kind, time in result.communication_ps(rank).items():
            kinds.setdefault(kind, []).append(time)
        for part in parts(result, rank):
            busy, exposed = times.setdefault((part["kind"], str(part["dimension"])), ([], []))
            busy.append(part["busy_s"] * 1e12)
            exposed.append(part["exposed_s"] * 1e12)
    of_all = [[*key, _span(busy), _span(exposed, len(ranks))] for key, (busy, exposed) in times.items()]
    return [
        f"{_names(ranks)}: iteration {format_time(result.time_ps)} = compute {_span(compute)} + exposed "
        f"{_span([result.time_ps - one for one in compute])}",
        aligned([["communication", "in progress"], *([kind, _span(some, len(ranks))] for kind, some in kinds.items())],
                left=1),
        aligned([["kind", "dimension", "busiest link", "exposed"], *of_all], left=2),
    ]


def _span(times: Sequence[float], of: int = 0) -> str:
    """From the least to the most, as they are shown; one that an NPU of `of` does not have is 0."""
    least, most = (format_time(one) for one in (min(times) if len(times) >= of else 0, max(times)))
    return most if least == most else f"{least} to {most}"


def _names(ranks: list[int]) -> str:
    """ "NPU 5", or "NPUs 0-4, 6"."""
    runs: list[list[int]] = []
    for rank in ranks:
        if runs and rank == runs[-1][-1] + 1:
            runs[-1].append(rank)
        else:
            runs.append([rank])
    said = ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)
    return f"NPU{'s' if len(ranks) > 1 else ''} {said}"


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
