"""`weft pool`: a slot pool of an aggregating switch, with what goes wrong in one."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from fractions import Fraction
from typing import TYPE_CHECKING, Any, TypeVar

from sim.cli.flags import add_outputs
from sim.cli.output import check_outputs, say, say_where, write_text, write_whole
from topologies import WeftError
from topologies.units import PS_PER_S, format_rate, format_size, format_time, parse_time

if TYPE_CHECKING:
    from sim.streaming.pool_streaming import PoolStreaming

NAME = "pool"
HELP = "stream an array through the slots of an aggregating switch: windows, stragglers, loss, shared slots"
EXAMPLES = (
    "weft pool --size 100MiB --slots 8,16,57,64",
    "weft pool --size 4MiB --late 3=5ms --slow 0=0.5",
    "weft pool --size 16MiB --slots 64,512 --loss 1e-4 --timeout 1ms --seeds 50 --json -",
    "weft pool --size 4MiB --slots 64 --jobs 4 --switch-slots 128 --rule static,hashed",
    "weft pool --slots 16,256 --late 0=1ms --partial-timeout 10us",
)

T = TypeVar("T")
Row = dict[str, Any]

FLAGS = {"jobs": "--jobs", "rule": "--rule", "switch_slots": "--switch-slots", "late": "--late", "slow": "--slow",
         "loss": "--loss", "timeout": "--timeout", "seeds": "--seeds", "partial_timeout": "--partial-timeout",
         "leaves": "--leaves"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of the command; what a number is out of range for, the models say."""
    job = parser.add_argument_group("job")
    job.add_argument("--size", default="1MiB", help="of the array that every worker has (1MiB)")
    job.add_argument("--slots", default="8,16,32,64,128", metavar="N,N", help="of the job, one row each (8 to 128)")
    job.add_argument("--workers", type=int, default=8, metavar="N", help="of the job (8)")
    job.add_argument("--payload", default="1KiB", metavar="SIZE", help="of a packet (1KiB)")
    job.add_argument("--header", default="66B", metavar="SIZE", help="of a packet (66B)")
    job.add_argument("--link-bandwidth", default="100Gb/s", metavar="RATE", help="of each link, each way (100Gb/s)")
    job.add_argument("--link-latency", default="2us", metavar="TIME", help="between worker and switch (2us)")
    job.add_argument("--hop-latency", default="0.8us", metavar="TIME", help="of the switch (0.8us)")
    wrong = parser.add_argument_group("what goes wrong")
    wrong.add_argument("--late", action="append", metavar="WORKER=TIME", help="a worker that begins later; repeatable")
    wrong.add_argument("--slow", action="append", metavar="WORKER=FACTOR",
                       help="a worker whose links have this share of the bandwidth, 0.5 or 1/2; repeatable")
    wrong.add_argument("--loss", type=float, metavar="P", help="of a packet, on each link and direction")
    wrong.add_argument("--timeout", metavar="TIME", help="after which what was lost is sent again; with --loss")
    wrong.add_argument("--seeds", type=int, metavar="N", help="of the loss: mean, 5th and 95th percentile (10)")
    sharing = parser.add_argument_group("several jobs on one switch")
    sharing.add_argument("--jobs", type=int, metavar="N", help="jobs alike, each with links of its own (1)")
    sharing.add_argument("--rule", metavar="RULE,RULE", help="static, shared, locked, port-locked, hashed (all)")
    sharing.add_argument("--switch-slots", type=int, metavar="N", help="slots of the switch (128)")
    partial = parser.add_argument_group("partial aggregates: two levels, leaves and a root")
    partial.add_argument("--partial-timeout", metavar="TIME", help="after which a leaf sends what it has; one --late")
    partial.add_argument("--leaves", type=int, metavar="N", help="that the workers are divided among (2)")
    add_outputs(parser, "json", "csv", "plot")


def run(arguments: argparse.Namespace) -> None:
    """Simulate, print and write."""
    from sim.streaming.pool_streaming import PoolStreaming
    from sim.study.tables import aligned, to_csv

    check_outputs(arguments)
    slots = [_whole(text, "--slots") for text in arguments.slots.split(",")]
    job = PoolStreaming(
        size_bytes=arguments.size, slots=slots[0], workers=arguments.workers, payload_bytes=arguments.payload,
        header_bytes=arguments.header, bandwidth_Bps=arguments.link_bandwidth, latency_ps=arguments.link_latency,
        switch_latency_ps=arguments.hop_latency,
    )
    if arguments.plot and (len(set(slots)) < 2 or job.size_bytes == 0):
        raise WeftError("--plot draws goodput by slots: give several numbers of --slots, and a --size above 0B")
    rows = _rows(arguments, job, slots)
    say(arguments, _title(job, rows[0]), *aligned(_lines(rows)).splitlines())
    if arguments.json:
        write_text(arguments.json, _to_json(arguments, rows))
    if arguments.csv:
        write_text(arguments.csv, to_csv(rows))
    if arguments.plot:
        from sim.plots.pool import draw_pool

        write_whole(arguments.plot, lambda path: draw_pool(rows, path))
    say_where(arguments)


def _rows(arguments: argparse.Namespace, job: PoolStreaming, slots: list[int]) -> list[Row]:
    """Rows of the one of three models that the flags ask for."""
    from sim.streaming import pool_rows
    from sim.streaming.slot_sharing import RULES

    late = _by_worker(arguments.late, "--late", "3=5ms", parse_time)
    if _given(arguments, "jobs", "rule", "switch_slots"):
        _refuse(arguments, "jobs that share a switch", "late", "slow", "loss", "timeout", "seeds", "partial_timeout",
                "leaves")
        rules = RULES if arguments.rule is None else arguments.rule.split(",")
        jobs, pool = (arguments.jobs if arguments.jobs is not None else 1,
                      arguments.switch_slots if arguments.switch_slots is not None else 128)
        return pool_rows.sharing_rows(job, slots, jobs, rules, pool)
    if _given(arguments, "partial_timeout", "leaves"):
        _refuse(arguments, "partial aggregates", "slow", "loss", "timeout", "seeds")
        if arguments.partial_timeout is None or len(late) != 1 or not 0 <= next(iter(late)) < job.workers:
            raise WeftError(f"partial aggregates need --partial-timeout TIME and one late worker of {job.workers}: "
                            f"--late 0=1ms")
        timer_ps, leaves = parse_time(arguments.partial_timeout, "--partial-timeout"), arguments.leaves
        return pool_rows.partial_rows(job, slots, 2 if leaves is None else leaves, next(iter(late.values())), timer_ps)
    if (arguments.loss is None) != (arguments.timeout is None):
        raise WeftError("--loss P and --timeout TIME go together: what is lost is sent again after the timeout")
    if arguments.loss is None:
        _refuse(arguments, "a job without --loss", "seeds")
    slow = _by_worker(arguments.slow, "--slow", "3=0.5", _share)
    timeout_ps = None if arguments.timeout is None else parse_time(arguments.timeout, "--timeout")
    return pool_rows.streaming_rows(
        job, slots, late_ps=late, rate_factor=slow, loss=arguments.loss or 0.0, timeout_ps=timeout_ps,
        seeds=10 if arguments.seeds is None else arguments.seeds,
    )


def _given(arguments: argparse.Namespace, *names: str) -> list[str]:
    return [FLAGS[name] for name in names if getattr(arguments, name) is not None]


def _refuse(arguments: argparse.Namespace, what: str, *names: str) -> None:
    if refused := _given(arguments, *names):
        raise WeftError(f"{what} cannot be simulated with {' and '.join(refused)}: leave it out")


def _by_worker(texts: list[str] | None, flag: str, example: str, parse: Callable[[str, str], T]) -> dict[int, T]:
    """WORKER=VALUE, each worker once."""
    values: dict[int, T] = {}
    for text in texts or []:
        worker, equals, value = text.partition("=")
        if not equals:
            raise WeftError(f"{flag} {text!r}: write WORKER=VALUE, such as {flag} {example}")
        number = _whole(worker, flag)
        if number in values:
            raise WeftError(f"{flag} {text!r}: worker {number} is given twice")
        values[number] = parse(value, f"{flag} {text}:")
    return values


def _whole(text: str, flag: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise WeftError(f"{flag} {text!r} is not a whole number") from None


def _share(text: str, what: str) -> Fraction:
    try:
        return Fraction(text)
    except (ValueError, ZeroDivisionError):
        raise WeftError(f"{what} {text!r} is not a number, such as 0.5 or 1/2") from None


COLUMNS: dict[str, tuple[str, Callable[[Any], str]]] = {
    "rule": ("rule", str), "leaf": ("leaf", str), "slots": ("slots", str),
    "time_s": ("time", lambda value: format_time(value * PS_PER_S)),
    "goodput_Gbps": ("goodput Gb/s", lambda value: f"{value:.4g}"),
    "closed_form_s": ("closed form", lambda value: format_time(value * PS_PER_S)),
    "difference": ("difference", lambda value: f"{value:+.2%}"),
    "mean_s": ("mean of jobs", lambda value: format_time(value * PS_PER_S)),
    "fallback": ("to the server", lambda value: f"{value:.1%}"),
    "p5_s": ("5 %", lambda value: format_time(value * PS_PER_S)),
    "p95_s": ("95 %", lambda value: format_time(value * PS_PER_S)),
    "slow_down": ("slow-down", lambda value: f"{value:.3f}"),
    "held_mean_s": ("slot held", lambda value: format_time(value * PS_PER_S)),
    "held_most_s": ("at most", lambda value: format_time(value * PS_PER_S)),
    "packets_up": ("packets up", str), "partial_sums": ("partial sums", str),
}
"""Heading of each column that people see, and how its values are written."""


def _lines(rows: list[Row]) -> list[list[str]]:
    shown = {key: column for key, column in COLUMNS.items() if key in rows[0]}
    return [[head for head, _ in shown.values()], *([write(row[key]) for key, (_, write) in shown.items()]
                                                    for row in rows)]


def _title(job: PoolStreaming, row: Row) -> str:
    several = f"{row['jobs']} jobs on {row['switch_slots']} slots, each " if "jobs" in row else ""
    mean = f", mean of {row['seeds']} seeds" if "seeds" in row else ""
    alone = "" if "leaf" in row else "\n# closed form: a job alone with these slots, nobody late or slow, nothing lost"
    return (
        f"# weft {NAME}: {several}{format_size(job.size_bytes)}, {job.workers} workers at "
        f"{format_rate(job.bandwidth_Bps)}{mean}; {row['slots_needed']} slots keep the links busy{alone}"
    )


def _to_json(arguments: argparse.Namespace, rows: list[Row]) -> str:
    from sim.version import weft_version

    names = ("size", "slots", "workers", "payload", "header", "link_bandwidth", "link_latency", "hop_latency", *FLAGS)
    spec = {name: getattr(arguments, name) for name in names if getattr(arguments, name) is not None}
    return json.dumps({"weft": weft_version(), "spec": {NAME: spec}, "rows": rows}, indent=1) + "\n"
