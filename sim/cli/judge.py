"""`weft judge`: what measured times imply about latency, bandwidth and algorithm, and how good they are."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from sim.cli import judge_library
from sim.cli.asked import spec_of
from sim.cli.compare import missing
from sim.cli.library import no_library
from sim.cli.output import say, write_csv, write_json
from sim.cli.progress import progress
from sim.measured.curves import curves
from sim.measured.judge import Fit, Interval, Judgment, judge, unique_sizes
from sim.measured.read import read_measurements
from sim.study.points import check_joined
from sim.study.spec import Spec
from sim.study.tables import aligned
from topologies import Topology
from topologies.checks import WeftError
from topologies.units import counted, format_rate, format_size, format_time

_HEAD = ["algorithm", "residual", "latency", "bandwidth", "score"]


def run(arguments: argparse.Namespace) -> None:
    """Read, fit, print and write."""
    asked = spec = spec_of(arguments)
    if spec.library.name is not None:
        judge_library.run(arguments, spec)
        return
    no_library(spec)
    topology = spec.build_topology()
    check_joined(topology)
    measured = read_measurements(
        spec.measured.file or "", collective=spec.collective.name, n_ranks=topology.n_npus,
        placement=spec.measured.placement,
    )
    spec = spec.updated({"collective": {"name": measured.collective}})
    candidates, refused = curves(spec, topology, spec.algorithms, unique_sizes(measured))
    if spec.collective.algorithms and refused:
        raise WeftError(next(iter(refused.values())))
    with progress("judge", len(candidates), arguments.quiet) as steps:
        found = judge(
            measured, topology, candidates, spec.measured.known or (),
            reducing_switches=spec.bound.reducing_switches, done=steps.advance,
        )
    say(arguments, *report(spec, found, refused))
    rows = found.rows()
    write_json(arguments, asked, rows, model=spec.build_model(), **facts(found), refused=refused)
    write_csv(arguments, rows)


def facts(found: Judgment) -> dict[str, Any]:
    """The judgment as plain data, in SI units; an end of an interval is null if nothing determines it."""
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


def report(spec: Spec, found: Judgment, refused: Mapping[str, str]) -> list[str]:
    """The verdict, then the tables that support it."""
    measured, topology, best = found.measured, found.topology, found.best
    left_out = f", {measured.left_out} left out (empty or not timed)" if measured.left_out else ""
    lines = [
        f"# weft judge: {measured.collective} on {topology.name}, {counted(topology.n_npus, 'NPU')}; "
        f"{counted(len(measured.points), 'point')} of {measured.source} ({measured.format}){left_out}",
        f"# model: {spec.build_model().describe()}",
        f"looks like  {best.algorithm}, within {best.residual:.1%} (root mean square of the relative errors)",
        f"latency     {_time(best.latency_s)} per transfer, on top of the network's",
        f"bandwidth   {_share(best.share)} of the links' {rates(topology)}",
        *_alike(found),
        *_good(found),
        "#",
        aligned([_HEAD, *(_line(found, fit) for fit in found.fits)], left=1),
        "#",
        aligned([["size", "measured", "simulated", "error", "busbw", "bound", "of the bound"], *_sizes(found)]),
    ]
    return [
        *lines,
        *missing(refused, {}),
        "# intervals of 95 %; score: -2 log-likelihood plus a penalty for bandwidth off nominal, the lowest is the "
        "most likely, a difference of 6 is 20 to 1",
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


def _alike(found: Judgment) -> list[str]:
    alike = f"or          {', '.join(found.alike)}: these points do not distinguish them"
    wrong = "but         no candidate fits links as slow as in the topology: it, or the sizes, may be wrong"
    return [alike] * bool(found.alike) + [wrong] * (not found.best.possible)


def _good(found: Judgment) -> list[str]:
    last = found.rows()[-1]
    if last["bound_s"] is None:
        return ["bound       not computed: the exact cut of this network is too expensive"]
    size, grade = format_size(last["size_bytes"]), found.grade()
    said = f"{grade}: {size} at {last['share_of_bound']:.1%} of the bound; from 80 % good, from 50 % fair"
    if grade == "impossible":
        few = ", ".join(format_size(size) for size in found.too_fast()[:4])
        said = f"impossible: {few} measured faster than any algorithm on these links without switches that reduce"
    return [
        f"bound       {format_time(last['bound_s'] * 1e12)} for {size}, the exact cut, whatever the algorithm",
        f"verdict     {said}",
    ]


def _line(found: Judgment, fit: Fit) -> list[str]:
    note = "" if fit.possible else " (too fast for the links)"
    score = f"{fit.score(len(found.measured.points)):.1f}"
    return [fit.algorithm, f"{fit.residual:.1%}", _time(fit.latency_s), _share(fit.share) + note, score]


def _sizes(found: Judgment) -> list[list[str]]:
    return [
        [
            format_size(row["size_bytes"]), format_time(row["measured_s"] * 1e12),
            format_time(row["simulated_s"] * 1e12), f"{row['error']:+.1%}", f"{row['busbw_GBps']:.4g} GB/s",
            "-" if row["bound_s"] is None else format_time(row["bound_s"] * 1e12),
            "-" if row["share_of_bound"] is None else f"{row['share_of_bound']:.1%}",
        ]
        for row in found.rows()
    ]

