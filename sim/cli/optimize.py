"""`weft optimize`: the bandwidth of every dimension, for a workload and a budget."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

from sim.cli.flags import add_outputs
from sim.cli.output import check_outputs, say, say_where, write_text, write_whole
from topologies import WeftError
from topologies.units import format_time

if TYPE_CHECKING:
    from sim.optimize.study import Study

NAME = "optimize"
HELP = "share a bandwidth budget out among the dimensions of a network"
EXAMPLES = (
    'weft optimize --network "RI(4)_FC(8)_RI(4)_SW(32)" --workload gpt-3 --budget 500GB/s --evaluator simulated',
    "weft optimize --network 4d_network.yml --workload GPT_3.txt --communicator GPT_3_4d.yml --cost 4d_cost_model.yml "
    "--budget 500GB/s --objective time-cost",
    "weft optimize --topology torus:64x16 --collective all-reduce --algorithms swing,bucket -b 64M --budget 200GB/s "
    "--chunks 4 --evaluator simulated",
    'weft optimize --topology leaf-spine:8x4x4 --collective all-reduce --algorithm in-network --option "trees=1;4" '
    "-b 64M --budget 200GB/s --evaluator simulated",
    "weft optimize --topology circulant:64 --degrees 2,4,8 --collective all-to-all --algorithms pairwise,direct -b 64M "
    "--budget 200GB/s --chunks 4 --evaluator simulated",
    'weft optimize --network "RI(4)_FC(8)_SW(4)" --collective all-reduce -b 64M --budget 300GB/s --orders all '
    "--evaluator simulated",
    'weft optimize --network "RI(4)_FC(4)_SW(8)" --workload bert-large --parallelism tp=4,pp=4 --microbatches 8 '
    "--budget 300GB/s --evaluator simulated --chunks 2 --evaluations 40",
    'weft optimize --network 3d_network.yml --workload llama-3-70b --budget 900GB/s --constraint "B1 >= B2"',
)

OBJECTIVES = ("time", "time-cost")
EVALUATORS = ("analytic", "simulated")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of the command."""
    _add_problem(parser)
    _add_limits(parser)
    _add_search(parser)
    add_outputs(parser, "json", "csv", "plot")


def _add_problem(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("problem")
    group.add_argument("--network", "--topology", action="append", required=True, metavar="SPEC|FILE",
                       help="RI(4)_FC(8)_SW(32), torus:64x16, ..., or a LIBRA network file (.yml); repeat for several")
    group.add_argument("--degrees", metavar="N[,N]", help="ports of an NPU of circulant:64; the best is told")
    group.add_argument("--link-latency", metavar="TIME[,TIME]", help="of every cable, or one a dimension (100ns)")
    group.add_argument("--hop-latency", metavar="TIME", help="of every switch or router passed (300ns)")
    group.add_argument("--workload", action="append", metavar="NAME|FILE",
                       help="a model (gpt-3, resnet-50, ...) or a text workload file; repeat for several at once")
    group.add_argument("--communicator", action="append", metavar="FILE", help="groups of a text workload; one each")
    group.add_argument("--weight", action="append", type=float, metavar="W", help="worth of a workload's time (1)")
    group.add_argument("--parallelism", action="append", metavar="tp=N,...",
                       help="of a model: tp, dp, pp, ep, zero (LIBRA's tp, and dp for the rest)")
    group.add_argument("--samples", type=float, metavar="N",
                       help="of a tensor-parallel group in an iteration, or in a microbatch")
    group.add_argument("--microbatches", type=int, metavar="M", help="of a pipeline, whose stages are pp of a model")
    group.add_argument("--activation", metavar="SIZE", help="sent to the next stage for each (the model's own)")
    group.add_argument("--pipeline-order", default="1f1b", metavar="NAME", help="1f1b or gpipe (1f1b)")
    group.add_argument("--peak-flops", type=float, default=312e12, metavar="N", help="of an NPU, for models (312e12)")
    group.add_argument("--efficiency", type=float, default=0.75, metavar="SHARE", help="of the peak, for models (0.75)")
    group.add_argument("--compute-scale", type=float, default=1.0, metavar="X", help="multiplies compute times (1)")
    group.add_argument("--collective", metavar="NAME", help="instead of a workload: one collective")
    group.add_argument("-b", "--size", metavar="SIZE", help="of the collective, as nccl-tests counts it (32M)")
    group.add_argument("--loop", default="no-overlap", metavar="NAME",
                       help="no-overlap; analytic: overlap; simulated: wfbp, dear (no-overlap)")
    group.add_argument("--checkpointed", action="store_true", help="forward collectives run twice")


def _add_limits(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("limits and cost")
    group.add_argument("--budget", metavar="RATE", help="of an NPU over all dimensions: 500GB/s")
    group.add_argument("--budget-rule", default="spent", metavar="RULE",
                       help="spent: all of it, as LIBRA; at-most: less if that is better (spent)")
    group.add_argument("--budget-cost", type=float, metavar="$", help="the most that the network may cost")
    group.add_argument("--constraint", action="append", default=[], metavar="TEXT",
                       help='"B1 >= B2", "B3 + B4 = 200GB/s": B1 is the innermost dimension; repeat for several')
    group.add_argument("--cost", metavar="FILE", help="a LIBRA cost file (published prices)")
    group.add_argument("--counting", default="2024", metavar="YEAR",
                       help="2024: both directions of a direct link are charged; 2022: once (2024)")
    group.add_argument("--fixed-cost", type=float, default=0.0, metavar="$", help="of what has no bandwidth (0)")


def _add_search(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("search")
    group.add_argument("--objective", default="time", choices=OBJECTIVES, help="time, or time x cost (time)")
    group.add_argument("--evaluator", default="analytic", choices=EVALUATORS,
                       help="LIBRA's formulas, or the chunk simulation (analytic)")
    group.add_argument("--algorithms", "--algorithm", default=None, metavar="NAME[,NAME]",
                       help="of the collectives (hierarchical); of several the best is found")
    group.add_argument("--chunks", default="16", metavar="N[,N]", help="in the pipeline; of several the best (16)")
    group.add_argument("--orders", metavar="all|ORDER[;ORDER]",
                       help='of the dimensions in hierarchical collectives, 0 the innermost: "0,1,2;2,1,0"; all: every '
                       "order, for every collective of a workload by itself")
    group.add_argument("--dimension-algorithms", metavar="all|NAMES[;NAMES]",
                       help='of hierarchical collectives: "ring,direct,direct;direct,direct,halving-doubling"')
    group.add_argument("--option", action="append", default=[], metavar="NAME=V[;V]",
                       help='of the algorithms: "trees=1;2;4", "service=fifo"; of several values the best')
    group.add_argument("--lane", metavar="RATE", help="bandwidths are whole multiples of this")
    group.add_argument("--evaluations", type=int, default=150, metavar="N", help="at most, for each choice (150)")
    group.add_argument("--sensitivity", action="store_true", help="what one more GB/s in each dimension buys")
    group.add_argument("--symmetry", default="auto", choices=("auto", "off"),
                       help="simulate representatives, or all ranks (auto)")


def run(arguments: argparse.Namespace) -> None:
    """Optimise, print, write the files."""
    check_outputs(arguments)
    from sim.cli.optimize_flags import make_studies

    studies = make_studies(arguments)
    if arguments.plot and len(studies) > 1:
        raise WeftError(f"--plot draws one network, and {len(studies)} are given")
    rows = []
    for study in studies:
        found = study.rows()
        say(arguments, *report(study, found))
        rows += found
    if len(rows) > 1:
        say(arguments, *_compared(arguments, rows))
    study = studies[0]
    if arguments.json:
        write_text(arguments.json, _to_json(study, rows))
    if arguments.csv:
        from sim.study.tables import to_csv

        write_text(arguments.csv, to_csv([_flat(row) for row in rows]))
    if arguments.plot:
        from sim.plots.pareto import draw_pareto

        if study.cost is None:
            raise WeftError("--plot draws time over cost: the network needs prices (--cost FILE)")
        front = study.front()
        write_whole(arguments.plot, lambda path: draw_pareto(front, path))
    say_where(arguments)


def report(study: Study, rows: list[dict[str, Any]]) -> list[str]:
    """Lines for people."""
    lines = [f"{study.title}: {', '.join(study.settings())}"]
    for row in rows:
        shares = " / ".join(f"{value:.2f}" for value in row["bandwidth_GBps"])
        lines.append(f"{row['evaluator']}{_choice(row)}: {shares} GB/s")
        lines.append(
            f"  time {format_time(row['time_s'] * 1e12)}, equal split {format_time(row['equal_time_s'] * 1e12)} "
            f"({row['speedup']:.3f}x){_cost_words(row)}"
        )
        bound = "no bound known" if row["lower_bound_s"] is None else (
            f"lower bound {format_time(row['lower_bound_s'] * 1e12)}, gap of the objective {row['gap']:.2g}"
        )
        counts = f"; {row['evaluations']} evaluations: {row['simulations']} engine runs, {row['replays']} replays"
        lines.append(f"  {bound}{counts if row['evaluations'] else ''}; {row['ended']}")
        if row.get("analytic_time_s") is not None:
            shares = " / ".join(f"{value:.2f}" for value in row["analytic_bandwidth_GBps"])
            lines.append(
                f"  analytic optimum {shares} GB/s: {format_time(row['analytic_time_s'] * 1e12)} by formula, "
                f"{format_time(row['analytic_simulated_s'] * 1e12)} simulated"
            )
        lines += _choices(row.get("choices", []))
        for dim, saved in enumerate(row.get("saved_s_per_GBps") or (), start=1):
            lines.append(f"  one more GB/s in dimension {dim} saves {format_time(saved * 1e12)}")
    return lines


MOST_SHOWN = 12


def _choices(choices: list[dict[str, Any]]) -> list[str]:
    """The choices of the discrete knobs, best first."""
    lines = [f"  {len(choices)} choices, best first:"] if choices else []
    for one in choices[:MOST_SHOWN]:
        lines.append(f"    {format_time(one['time_s'] * 1e12):>10}  {one['knobs']} ({one['how']})")
    if len(choices) > MOST_SHOWN:
        lines.append(f"    and {len(choices) - MOST_SHOWN} more (--json FILE has all)")
    return lines


def _compared(arguments: argparse.Namespace, rows: list[dict[str, Any]]) -> list[str]:
    """The networks beside each other, and the best."""
    def value(row: dict[str, Any]) -> float:
        return float(row["time_s"] * (row["cost"] if arguments.objective == "time-cost" else 1.0))

    best = min(rows, key=value)
    lines = [f"{'network':<40}{'time':>12}{'equal split':>14}"]
    for row in rows:
        times = f"{format_time(row['time_s'] * 1e12):>12}{format_time(row['equal_time_s'] * 1e12):>14}"
        lines.append(f"{row['network']:<40}{times}{'  best' if row is best else ''}")
    return lines


def _choice(row: dict[str, Any]) -> str:
    return f" ({row['knobs']})" if row.get("knobs") else ""


def _cost_words(row: dict[str, Any]) -> str:
    if row["cost"] is None:
        return ""
    return (f", cost {row['cost'] / 1e6:.3f} M$ (equal split {row['equal_cost'] / 1e6:.3f} M$), "
            f"perf per cost {row['perf_per_cost_gain']:.3f}x")


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    """Lists as one cell each; the choices are in the JSON."""
    return {
        key: " ".join(map(str, value)) if isinstance(value, list) else value
        for key, value in row.items() if key != "choices"
    }


def _to_json(study: Study, rows: list[dict[str, Any]]) -> str:
    from sim.version import weft_version

    return json.dumps({"weft": weft_version(), "spec": study.spec, "rows": rows}, indent=1) + "\n"
