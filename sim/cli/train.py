"""`weft train`: one training iteration, computation, communication, and what of it nothing hides."""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sim.cli.flags import add_outputs, add_run, add_spec, spec_of
from sim.cli.output import check_outputs, say, say_where, write_text, write_whole
from topologies import WeftError

if TYPE_CHECKING:
    from sim.run.iteration import IterationResult
    from sim.study.spec import Spec
    from topologies import Topology
    from workloads.job import Job
    from workloads.workload import Groups, Workload

NAME = "train"
HELP = "simulate a training iteration: compute, total and exposed communication per kind and dimension"
EXAMPLES = (
    'weft train --topology "RI(16)_FC(8)_SW(32)" --workload gpt-3 --parallelism tp=16 --samples 32768 --peak 312 '
    "--efficiency 0.5",
    'weft train --topology "RI(4)_FC(8)_RI(4)_SW(32)" --workload GPT_3.txt --communicator GPT_3_4d.yml '
    "--npu-bandwidth 338GB/s,85GB/s,58GB/s,19GB/s",
    'weft train --topology "RI(4)_FC(4)_SW(8)" --workload bert-large --parallelism tp=4,pp=4 --microbatches 8 '
    "--samples 4096 --peak 312 --efficiency 0.5 --pipeline-chunks 2",
    'weft train --topology "SW(8)_SW(16)" --workload GPT_3.txt --loop dear --plot timeline.png '
    '--groups "forward=8,-1;input_grad=8,-1;weight_grad=-1,16"',
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of the command."""
    add_spec(parser, "topology", "model", leave_out=("model.deliver", "model.preset"))
    how = add_workload(parser)
    how.add_argument("--algorithm", default="hierarchical", metavar="NAME", help="of all collectives (hierarchical)")
    add_run(parser, workers=False, limit=False)
    add_outputs(parser, "json", "csv", "plot", "perfetto")


def add_workload(parser: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    """Add the flags of a workload and its iteration; returns the group of the latter."""
    work = parser.add_argument_group("workload")
    work.add_argument(
        "--workload", metavar="NAME|FILE", help="a model (gpt-3, ...), or layers as ASTRA-sim 1.0 and LIBRA write them"
    )
    work.add_argument("--parallelism", metavar="TEXT", help="of a model: tp=16,dp=256,pp=1,ep=1,zero=0")
    work.add_argument("--samples", type=float, metavar="N",
                      help="of a tensor-parallel group, in an iteration or a microbatch: tokens, images or rows")
    work.add_argument("--peak", type=float, metavar="TFLOPS", help="of an NPU, in 10^12 operations a second")
    work.add_argument("--efficiency", type=float, metavar="X", help="share of the peak that computations reach")
    work.add_argument("--communicator", metavar="FILE", help="process groups, as LIBRA writes them")
    work.add_argument(
        "--groups", metavar="TEXT", help="process groups by name: \"forward=16,-1;weight_grad=-1,32\", -1: not used"
    )
    work.add_argument("--repeat", type=int, default=1, metavar="N", help="the layers N times over (1)")
    work.add_argument("--compute-scale", type=float, default=1.0, metavar="X", help="multiply all computations (1)")
    work.add_argument(
        "--npu-bandwidth", metavar="RATE,RATE", help="of an NPU in each dimension altogether, instead of its links'"
    )
    how = parser.add_argument_group("iteration")
    how.add_argument("--loop", default="wfbp", metavar="NAME", help="no-overlap, wfbp or dear (wfbp)")
    how.add_argument("--bucket", metavar="SIZE|off", help="gradients are reduced together below this size (25MiB)")
    how.add_argument("--in-order", action="store_true", help="reduce gradients one after the other")
    how.add_argument("--first-layers-first", action="store_true", help="serve earlier layers first")
    how.add_argument("--updates", action="store_true", help="count the updates of the weights")
    how.add_argument("--pipeline-chunks", type=int, metavar="C", help="of a hierarchical collective (16)")
    how.add_argument("--active-chunks", metavar="N|off", help="at once in a dimension of an NPU (1)")
    how.add_argument("--microbatches", type=int, metavar="M", help="of a pipeline, whose stages are the group 'pp'")
    how.add_argument("--activation", metavar="SIZE", help="sent to the next stage for each (a model's; 0B for files)")
    how.add_argument("--pipeline-order", default="1f1b", metavar="NAME", help="1f1b or gpipe (1f1b)")
    return how


def run(arguments: argparse.Namespace) -> None:
    """Simulate, print and write."""
    from sim.study.tables import to_csv

    check_outputs(arguments)
    workload, result = simulate_iteration(arguments, spec_of(arguments))
    say(arguments, *_lines(arguments, workload, result), *_bubble(arguments, result))
    if arguments.json:
        write_text(arguments.json, _to_json(arguments, workload, result))
    if arguments.csv:
        rows = [{"npu": rank} | part for rank in result.ranks for part in parts(result, rank)]
        write_text(arguments.csv, to_csv(rows))
    if arguments.plot:
        from sim.plots.timeline import draw_timeline

        write_whole(arguments.plot, lambda path: draw_timeline(result, path))
    if arguments.perfetto:
        from sim.timeline.perfetto import write_perfetto
        from sim.timeline.timeline import iteration_timeline

        write_whole(arguments.perfetto, lambda path: write_perfetto(iteration_timeline(result), path))
    say_where(arguments)


def simulate_iteration(arguments: argparse.Namespace, spec: Spec) -> tuple[Workload, IterationResult]:
    """The workload that the flags describe, and one iteration of it."""
    from sim.run.iteration import simulate_job

    topology = _topology(arguments, spec.build_topology())
    workload, job = job_of(arguments, topology)
    model = spec.build_model()
    if spec.model.chunks is None and spec.model.chunk is None:
        model = replace(model, chunks=1)  # the chunks of a hierarchical collective are small already
    result = simulate_job(
        job, model, engine=spec.model.engine or "chunk", symmetry=spec.model.symmetry or "auto", check=arguments.check,
        faults=spec.build_faults(),
    )
    return workload, result


def job_of(arguments: argparse.Namespace, topology: Topology) -> tuple[Workload, Job]:
    """The workload that the flags of `add_workload` describe, and an iteration of it as a job."""
    workload, groups = _workload(arguments, topology)
    return workload, _job(arguments, topology, workload, groups)


def _topology(arguments: argparse.Namespace, topology: Topology) -> Topology:
    """The fabric with the bandwidths that each NPU has in its dimensions."""
    import numpy as np

    from collectives.hierarchical import blocks_of
    from topologies.core.product import link_bandwidths
    from topologies.core.topology import per_dimension
    from topologies.units import parse_bandwidth

    if arguments.npu_bandwidth is None:
        return topology
    blocks = blocks_of(topology)
    rates = per_dimension(arguments.npu_bandwidth, len(blocks), "NPU bandwidth")
    links = link_bandwidths([parse_bandwidth(rate, "NPU bandwidth") for rate in rates], blocks)
    return topology.with_links(bandwidth_Bps=np.array(links)[topology.dimension])


def _workload(arguments: argparse.Namespace, topology: Topology) -> tuple[Workload, Groups]:
    from workloads.models import MODELS

    if arguments.workload is None:
        raise WeftError(f"no workload is given: write --workload FILE, or one of {', '.join(MODELS)}")
    workload, groups = (_model if arguments.workload in MODELS else _file)(arguments, topology)
    if arguments.repeat < 1:
        raise WeftError(f"--repeat {arguments.repeat}: at least 1")
    workload = workload.scaled(arguments.compute_scale)
    return replace(workload, layers=workload.layers * arguments.repeat), groups


def _model(arguments: argparse.Namespace, topology: Topology) -> tuple[Workload, Groups]:
    """A model of ours; all its layers, whatever the pipeline."""
    from workloads.compute import TERA, Accelerator
    from workloads.models import model
    from workloads.parallelism import parse_parallelism
    from workloads.training_workload import training_workload

    for flag in ("samples", "peak", "efficiency"):
        if getattr(arguments, flag) is None:
            raise WeftError(f"--workload {arguments.workload} needs --{flag}")
    for flag in ("communicator", "groups"):
        if getattr(arguments, flag) is not None:
            raise WeftError(f"--{flag} is for workload files: the groups of a model are given by --parallelism")
    how = parse_parallelism(arguments.parallelism or "", topology.n_npus)
    if how.pp > 1 and arguments.microbatches is None:
        raise WeftError(f"--parallelism pp={how.pp} needs --microbatches")
    accelerator = Accelerator(arguments.peak * TERA, arguments.efficiency)
    workload = training_workload(model(arguments.workload), replace(how, pp=1), accelerator, arguments.samples)
    return workload, how.groups(topology.shape)


def _file(arguments: argparse.Namespace, topology: Topology) -> tuple[Workload, Groups]:
    from workloads import read_communicator, read_text_workload

    for flag in ("parallelism", "samples", "peak", "efficiency"):
        if getattr(arguments, flag) is not None:
            raise WeftError(f"--{flag} is for models: a workload file says its own computations")
    workload = read_text_workload(arguments.workload)
    if (arguments.communicator is None) == (arguments.groups is None):
        raise WeftError("give the process groups: either --communicator FILE or --groups TEXT")
    if arguments.communicator is not None:
        return workload, read_communicator(arguments.communicator, topology.shape)
    return workload, parse_groups(arguments.groups)


def parse_groups(text: str) -> Groups:
    """Process groups by name: "forward=16,-1;weight_grad=-1,32"; -1 or 1 where a dimension is not used.

    Raises
    ------
    WeftError
        Names the part that is no group.
    """
    groups = {}
    for part in filter(None, (one.strip() for one in text.split(";"))):
        name, equals, extents = part.partition("=")
        try:
            sizes = tuple(int(extent) for extent in extents.split(","))
        except ValueError:
            sizes = ()
        if not (name and equals and sizes):
            raise WeftError(f"--groups: {part!r} is no group, such as forward=16,-1,-1")
        groups[name.strip()] = tuple(1 if size < 0 else size for size in sizes)
    return groups


def _job(arguments: argparse.Namespace, topology: Topology, workload: Workload, groups: Groups) -> Job:
    from topologies.units import parse_size
    from workloads.pipeline import Pipeline, pipeline_job
    from workloads.training import Training, training_job

    changes: dict[str, Any] = {}
    if arguments.bucket is not None:
        changes["bucket_bytes"] = None if arguments.bucket == "off" else parse_size(arguments.bucket, "bucket")
    options: dict[str, object] = {}
    if arguments.pipeline_chunks is not None:
        options["pipeline_chunks"] = arguments.pipeline_chunks
    if arguments.active_chunks is not None:
        options["active_chunks"] = _count(arguments.active_chunks)
    training = Training(
        loop=arguments.loop, in_order=arguments.in_order, first_layers_first=arguments.first_layers_first,
        updates=arguments.updates, algorithm=arguments.algorithm, options=options, **changes,
    )
    if arguments.microbatches is None:
        return training_job(topology, workload, groups, training)
    pipeline = Pipeline(
        microbatches=arguments.microbatches, activation_bytes=_activation_bytes(arguments),
        order=arguments.pipeline_order,
    )
    return pipeline_job(topology, workload, groups, pipeline, training)


def _activation_bytes(arguments: argparse.Namespace) -> int:
    from topologies.units import parse_size
    from workloads.models import MODELS, model
    from workloads.pipeline import activation_bytes

    if arguments.activation is not None:
        return parse_size(arguments.activation, "activation")
    if arguments.workload not in MODELS:
        return 0
    return activation_bytes(model(arguments.workload), arguments.samples)


def _bubble(arguments: argparse.Namespace, result: IterationResult) -> list[str]:
    """What the first stage idles because others compute, beside what equal stages and free messages leave."""
    from sim.run.iteration import IDLE_ELSEWHERE, NO_DIMENSION
    from topologies.units import format_size, format_time
    from workloads.pipeline import ideal_bubble
    from workloads.training import FORWARD

    if arguments.microbatches is None:
        return []
    stages = len({operation.npus for operation in result.job.operations if operation.kind == FORWARD})
    idle = result.exposed_ps(result.ranks[0]).get((IDLE_ELSEWHERE, NO_DIMENSION), 0)
    share = ideal_bubble(stages, arguments.microbatches)
    return [
        f"pipeline of {stages} stages, {arguments.microbatches} microbatches, messages of "
        f"{format_size(_activation_bytes(arguments))}: NPU {result.ranks[0]} waits {format_time(idle)} for the "
        f"computation of others, {idle / result.time_ps:.1%} of the iteration; (S-1)/(M+S-1) is {share:.1%}"
    ]


def _count(text: str) -> int | None:
    if text == "off":
        return None
    if not text.isdecimal():
        raise WeftError(f"--active-chunks {text}: a number from 1, or off")
    return int(text)


def parts(result: IterationResult, rank: int) -> list[dict[str, Any]]:
    """Rows of one NPU: each kind of communication in each dimension, busy and exposed, in seconds."""
    busy, exposed = result.busy_ps(), result.exposed_ps(rank)
    keys = dict.fromkeys([*exposed, *busy])
    return [
        {"kind": kind, "dimension": dimension, "busy_s": busy.get((kind, dimension), 0) / 1e12,
         "exposed_s": exposed.get((kind, dimension), 0) / 1e12}
        for kind, dimension in keys
    ]


def _lines(arguments: argparse.Namespace, workload: Workload, result: IterationResult) -> list[str]:
    from topologies.units import format_time

    lines = [
        f"# weft {NAME}: {workload.name}, {len(workload.layers)} layers, loop {arguments.loop}, on "
        f"{result.job.topology.name}, {result.job.topology.n_npus} NPUs",
        f"# {result.lowered.model.describe()}; {result.symmetry}",
        *(f"# {note}" for note in result.notes()),
    ]
    for rank in result.ranks:
        compute = result.compute_ps(rank)
        lines += [
            f"NPU {rank}: iteration {format_time(result.time_ps)} = compute {format_time(compute)} + exposed "
            f"{format_time(result.time_ps - compute)}",
            f"  {'communication':<32}{'under way':>14}",
            *(f"  {kind:<32}{format_time(time):>14}" for kind, time in result.communication_ps(rank).items()),
            f"  {'kind':<32}{'dimension':<14}{'busiest link':>14}{'exposed':>14}",
            *(
                f"  {part['kind']:<32}{part['dimension']:<14}{format_time(part['busy_s'] * 1e12):>14}"
                f"{format_time(part['exposed_s'] * 1e12):>14}"
                for part in parts(result, rank)
            ),
        ]
    return lines


def _to_json(arguments: argparse.Namespace, workload: Workload, result: IterationResult) -> str:
    from dataclasses import asdict

    from sim.version import weft_version

    given: dict[str, Any] = {
        name: value for name, value in vars(arguments).items()
        if value is not None and isinstance(value, (str, int, float, bool))
        and name not in ("json", "csv", "plot", "perfetto")
    }
    if result.faults is not None:
        given["model.faults"] = result.faults.plan.to_dict()  # itself, for the file may change
    rows = [
        {
            "topology": result.job.topology.name, "workload": workload.name, "loop": arguments.loop, "npu": rank,
            "time_s": result.time_s, "compute_s": result.compute_ps(rank) / 1e12,
            "exposed_s": (result.time_ps - result.compute_ps(rank)) / 1e12,
            "communication_s": {kind: time / 1e12 for kind, time in result.communication_ps(rank).items()},
            "parts": parts(result, rank), "events": result.outcome.events, "symmetry": result.symmetry,
            "lower_bound_s": result.lower_bound_ps / 1e12, "wall_s": result.wall_s,
            **({} if result.faults is None else result.faults.row()),
        }
        for rank in result.ranks
    ]
    data = {"weft": weft_version(), "spec": given, "model": asdict(result.lowered.model), "rows": rows}
    return json.dumps(data, indent=1) + "\n"
