"""`weft judge`: what measured times say about latency, bandwidth and algorithm, and whether they are good."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from sim.cli.flags import add_outputs, add_spec, healthy_spec_of
from sim.cli.output import check_outputs, say, say_where, to_json, write_text
from sim.cli.progress import progress
from topologies import WeftError
from topologies.units import format_rate, format_size, format_time

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sim.measured.judge import Fit, Interval, Judgement
    from sim.study.spec import Spec
    from topologies import Topology

NAME = "judge"
HELP = "fit latency and bandwidth to measured times, name the algorithm, and say whether the numbers are good"
_HEAD = ["algorithm", "residual", "latency", "bandwidth", "score"]

EXAMPLES = (
    "weft judge measured.json --topology dgx-a100:1",
    "weft judge osu.txt --topology switch:16 --link-bandwidth 200Gb/s --algorithms ring,direct,recursive-doubling",
    "weft judge nccl.txt --topology torus:8x8 --collective all-reduce --known latency --json -",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of the command."""
    add_measured(parser.add_argument_group("measurements"), "measured")
    parser.add_argument(
        "--known", default="", metavar="WORDS", help="latency, bandwidth or both: as the topology says, not fitted"
    )
    parser.add_argument("--reducing-switches", action="store_true", help="the bound counts on switches that add")
    add_spec(parser, "topology", "collective", "model", leave_out=("model.engine", "model.faults"))
    add_outputs(parser, "json", "csv")


def add_measured(group: argparse._ArgumentGroup, name: str) -> None:
    """Add the file and how to read it: `judge` takes it as an argument, others as a flag."""
    group.add_argument(
        name, metavar="FILE", help="nccl-tests text or JSON, OSU text, or the JSON of weft compare"
    )
    group.add_argument(
        "--placement", default="out-of-place", metavar="WORD", help="of nccl-tests: out-of-place or in-place"
    )


def run(arguments: argparse.Namespace) -> None:
    """Read, fit, print and write."""
    from sim.measured.curves import curves
    from sim.measured.judge import judge, unique_sizes
    from sim.measured.read import read_measurements
    from sim.study.points import check_joined

    check_outputs(arguments)
    spec = healthy_spec_of(arguments, NAME)
    topology = spec.build_topology()
    check_joined(topology)
    measured = read_measurements(
        arguments.measured, collective=spec.collective.name, n_ranks=topology.n_npus, placement=arguments.placement
    )
    spec = spec.updated({"collective": {"name": measured.collective}})
    known = tuple(word.strip() for word in arguments.known.split(",") if word.strip())
    candidates, refused = curves(spec, topology, spec.algorithms, unique_sizes(measured))
    if spec.collective.algorithms and refused:
        raise WeftError(next(iter(refused.values())))
    with progress(NAME, len(candidates), arguments.quiet) as steps:
        found = judge(
            measured, topology, candidates, known, reducing_switches=arguments.reducing_switches, done=steps.advance
        )
    say(arguments, *report(spec, found, refused))
    if arguments.json:
        write_text(arguments.json, to_json(spec, found.rows(), **facts(found), refused=refused))
    if arguments.csv:
        from sim.study.tables import to_csv

        write_text(arguments.csv, to_csv(found.rows()))
    say_where(arguments)


def facts(found: Judgement) -> dict[str, Any]:
    """The judgement as plain data, in SI units; an end of an interval is null where nothing determines it."""
    measured = found.measured
    return {
        "measured": {
            "file": measured.source, "format": measured.format, "points": len(measured.points),
            "left_out": measured.left_out, "collective": measured.collective, "ranks": found.topology.n_npus,
        },
        "algorithm": found.best.algorithm, "alike": list(found.alike), "grade": found.grade(),
        "bound_s_per_byte": found.bound_s_per_byte,
        "fits": [
            {
                "algorithm": fit.algorithm, "possible": fit.possible, "residual": fit.residual,
                "latency_s": _plain(fit.latency_s), "bandwidth_share": _plain(fit.share),
                "score": fit.score(len(measured.points)),
            }
            for fit in found.fits
        ],
    }


def _plain(interval: Interval) -> list[float | None]:
    return [None if abs(end) > 1e300 or end < 1e-300 < interval.value else end for end in interval]


def report(spec: Spec, found: Judgement, refused: dict[str, str] | Any) -> list[str]:
    """Verdict first, then the tables it rests on."""
    from sim.study.tables import aligned

    measured, topology, best = found.measured, found.topology, found.best
    left_out = f", {measured.left_out} left out (empty or not timed)" if measured.left_out else ""
    lines = [
        f"# weft {NAME}: {measured.collective} on {topology.name}, {topology.n_npus} NPUs; {len(measured.points)} "
        f"points of {measured.source} ({measured.format}){left_out}",
        f"# model: {spec.build_model().describe()}",
        f"looks like  {best.algorithm}, within {best.residual:.1%} (root mean square of the relative errors)",
        f"latency     {_time(best.latency_s)} a transfer, beyond the network's own",
        f"bandwidth   {_share(best.share)} of the links' {rates(topology)}",
        *_alike(found),
        *_good(found),
        "#",
        aligned([_HEAD, *(_line(found, fit) for fit in found.fits)], left=1),
        "#",
        aligned([["size", "measured", "simulated", "error", "busbw", "bound", "of the bound"], *_sizes(found)]),
    ]
    lines += [f"# {', '.join(names)} cannot run: {why}" for why, names in _reasons(refused)]
    return [
        *lines,
        "# intervals of 95 %; score: -2 log-likelihood and the distance of the bandwidth from nominal, the least is "
        "likeliest, 6 apart is 20 to 1",
    ]


def rates(topology: Topology) -> str:
    """Bandwidth of the links, one or a range."""
    low, high = float(topology.bandwidth_Bps.min()), float(topology.bandwidth_Bps.max())
    return format_rate(low) if low == high else f"{format_rate(low)} to {format_rate(high)}"


def _time(interval: Interval) -> str:
    low, high = format_time(interval.low * 1e12), format_time(interval.high * 1e12)
    value = format_time(interval.value * 1e12)
    return f"{value} [{low}, {high}]" if interval.high < 1e3 else f"{value} (these sizes do not determine it)"


def _share(interval: Interval) -> str:
    if interval.high > 1e3:
        return f"{interval.value:.1%} (these sizes do not determine it)"
    return f"{interval.value:.1%} [{interval.low:.1%}, {interval.high:.1%}]"


def _alike(found: Judgement) -> list[str]:
    lines = []
    if found.alike:
        lines.append(f"or          {', '.join(found.alike)}: these points do not tell them from it")
    if not found.best.possible:
        lines.append("but         no candidate fits links as slow as the topology says: it, or the sizes, may be wrong")
    return lines


def _good(found: Judgement) -> list[str]:
    last = found.rows()[-1]
    if last["bound_s"] is None:
        return ["bound       not computed: the exact cut of this network is too dear"]
    size, grade = format_size(last["size_bytes"]), found.grade()
    said = f"{grade}: {size} at {last['share_of_bound']:.1%} of the bound; from 80 % good, from 50 % fair"
    if grade == "impossible":
        few = ", ".join(format_size(size) for size in found.too_fast()[:4])
        said = f"impossible: {few} measured faster than any algorithm on these links without switches that add"
    return [
        f"bound       {format_time(last['bound_s'] * 1e12)} for {size}, the exact cut, whatever the algorithm",
        f"verdict     {said}",
    ]


def _line(found: Judgement, fit: Fit) -> list[str]:
    note = "" if fit.possible else " (too fast for the links)"
    score = f"{fit.score(len(found.measured.points)):.1f}"
    return [fit.algorithm, f"{fit.residual:.1%}", _time(fit.latency_s), _share(fit.share) + note, score]


def _sizes(found: Judgement) -> list[list[str]]:
    return [
        [
            format_size(row["size_bytes"]), format_time(row["measured_s"] * 1e12),
            format_time(row["simulated_s"] * 1e12), f"{row['error']:+.1%}", f"{row['busbw_GBps']:.4g} GB/s",
            "-" if row["bound_s"] is None else format_time(row["bound_s"] * 1e12),
            "-" if row["share_of_bound"] is None else f"{row['share_of_bound']:.1%}",
        ]
        for row in found.rows()
    ]


def _reasons(refused: dict[str, str]) -> Sequence[tuple[str, list[str]]]:
    from sim.cli.compare import reasons

    return reasons(refused)
