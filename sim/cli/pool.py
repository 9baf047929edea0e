"""`weft pool`: a slot pool of an aggregating switch, with stragglers, loss and shared slots."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any, TypeVar

import numpy as np

from sim import plots
from sim.cli.asked import spec_of
from sim.cli.flags import how
from sim.cli.output import say, write_csv, write_json, write_whole
from sim.cli.progress import progress
from sim.how import AS_USUAL, How
from sim.scenarios.partial_aggregates import LateWorker, late_worker_run
from sim.scenarios.pool_streaming import Late, PoolStreaming, Slow, time_ps
from sim.scenarios.slot_sharing import RULES, Sharing, fallback_share, finishes_ps
from sim.study.keys import PoolKeys, flags_of, keys_of
from sim.study.tables import aligned, time_text
from topologies.checks import WeftError, integer
from topologies.stages import count
from topologies.units import PS_PER_S, counted, format_rate, format_size, parse_bandwidth, parse_size, parse_time

T = TypeVar("T")


def run(arguments: argparse.Namespace) -> None:
    """Simulate, print and write."""
    spec = spec_of(arguments)
    keys, links = spec.pool, spec.topology
    job = PoolStreaming(
        size_bytes=parse_size(keys.size), slots=keys.slots[0], workers=keys.workers,
        payload_bytes=parse_size(keys.payload, "payload", 1), header_bytes=parse_size(keys.header, "header"),
        bandwidth_Bps=parse_bandwidth(links.link_bandwidth or "", "--link-bandwidth"),
        latency_ps=parse_time(links.link_latency or "", "--link-latency"),
        switch_latency_ps=parse_time(links.hop_latency or "", "--hop-latency"),
    )
    if arguments.plot and (len(set(keys.slots)) < 2 or job.size_bytes == 0):
        raise WeftError("--plot draws goodput by slots: give several numbers of --slots, and a --size above 0B")
    with progress("pool", 1, arguments.quiet):
        rows = list(_rows(keys, job, how(arguments)))
    say(arguments, _title(job, rows[0]), *aligned(_lines(rows)).splitlines())
    write_json(arguments, spec, rows)
    write_csv(arguments, rows)
    if arguments.plot:
        write_whole(arguments.plot, lambda path: plots.draw_pool(rows, path))


def _rows(keys: PoolKeys, job: PoolStreaming, how: How) -> Iterator[Row]:
    """Rows of the one of three models that the keys select."""
    slots, late = keys.slots, _by_worker(keys.late, "--late", "3=5ms", parse_time)
    if _given(keys, "jobs", "rule", "switch_slots"):
        _refuse(keys, "jobs that share a switch", "late", "slow", "loss", "timeout", "seeds", "partial_timeout",
                "leaves")
        jobs, pool = 1 if keys.jobs is None else keys.jobs, 128 if keys.switch_slots is None else keys.switch_slots
        return sharing_rows(job, slots, jobs, keys.rule or RULES, pool, how)
    if _given(keys, "partial_timeout", "leaves"):
        _refuse(keys, "partial aggregates", "slow", "loss", "timeout", "seeds")
        if keys.partial_timeout is None or len(late) != 1 or not 0 <= next(iter(late)) < job.workers:
            raise WeftError(f"partial aggregates need --partial-timeout TIME and one late worker of {job.workers}: "
                            f"--late 0=1ms")
        timer_ps, leaves = parse_time(keys.partial_timeout, "--partial-timeout"), keys.leaves
        late_ps = next(iter(late.values()))
        return partial_rows(job, slots, 2 if leaves is None else leaves, late_ps, timer_ps, how)
    if (keys.loss is None) != (keys.timeout is None):
        raise WeftError("--loss P and --timeout TIME go together: lost packets are sent again after the timeout")
    if keys.loss is None:
        _refuse(keys, "a job without --loss", "seeds")
    slow = _by_worker(keys.slow, "--slow", "3=0.5", _share)
    timeout_ps = None if keys.timeout is None else parse_time(keys.timeout, "--timeout")
    return streaming_rows(
        job, slots, late_ps=late, rate_factor=slow, loss=keys.loss or 0.0, timeout_ps=timeout_ps,
        seeds=10 if keys.seeds is None else keys.seeds, how=how,
    )


def _given(keys: PoolKeys, *names: str) -> list[str]:
    return [flags_of(keys_of("pool")[name])[0] for name in names if getattr(keys, name) is not None]


def _refuse(keys: PoolKeys, what: str, *names: str) -> None:
    if refused := _given(keys, *names):
        raise WeftError(f"{what} cannot be simulated with {' and '.join(refused)}: leave it out")


def _by_worker(texts: Sequence[str] | None, flag: str, example: str, parse: Callable[[str, str], T]) -> dict[int, T]:
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
        raise WeftError(f"{flag} {text!r} is not an integer") from None


def _share(text: str, what: str) -> Fraction:
    try:
        return Fraction(text)
    except (ValueError, ZeroDivisionError):
        raise WeftError(f"{what} {text!r} is not a number, such as 0.5 or 1/2") from None


COLUMNS: dict[str, tuple[str, Callable[[Any], str]]] = {
    "rule": ("rule", str), "leaf": ("leaf", str), "slots": ("slots", str),
    "time_s": ("time", time_text), "goodput_Gbps": ("goodput Gb/s", "{:.4g}".format),
    "closed_form_s": ("closed form", time_text), "difference": ("difference", "{:+.2%}".format),
    "mean_s": ("mean of jobs", time_text), "fallback": ("to the server", "{:.1%}".format),
    "p5_s": ("5 %", time_text), "p95_s": ("95 %", time_text), "slow_down": ("slow-down", "{:.3f}".format),
    "held_mean_s": ("slot held", time_text), "held_most_s": ("at most", time_text),
    "packets_up": ("packets up", str), "partial_sums": ("partial sums", str),
}
"""Heading of each printed column, and how its values are written."""


def _lines(rows: list[Row]) -> list[list[str]]:
    shown = {key: column for key, column in COLUMNS.items() if key in rows[0]}
    return [[head for head, _ in shown.values()], *([write(row[key]) for key, (_, write) in shown.items()]
                                                    for row in rows)]


def _title(job: PoolStreaming, row: Row) -> str:
    several = f"{counted(row['jobs'], 'job')} on {counted(row['switch_slots'], 'slot')}, each " if "jobs" in row else ""
    mean = f", mean of {row['seeds']} seeds" if "seeds" in row else ""
    again = ", what is lost is sent again once and arrives" if "seeds" in row else ""
    alone = "" if "leaf" in row else "\n# closed form: one job alone, no worker late or slow, nothing lost"
    return (
        f"# weft pool: {several}{format_size(job.size_bytes)}, {counted(job.workers, 'worker')} at "
        f"{format_rate(job.bandwidth_Bps)}{mean}{again}; {counted(row['slots_needed'], 'slot')} keep the links busy"
        f"{alone}"
    )


Row = dict[str, Any]

MOST_SEEDS = 1_000_000
"""Far more than a percentile needs."""


def streaming_rows(
    job: PoolStreaming, slots: Iterable[int], *, late_ps: Late | None = None, rate_factor: Slow | None = None,
    loss: float = 0.0, timeout_ps: int | str | None = None, seeds: int = 1, how: How = AS_USUAL,
) -> Iterator[Row]:
    """One job; with loss the mean time of some seeds, its 5th and 95th percentile, and the slow-down.

    `job`: its slots are those of the rows.
    `late_ps`, `rate_factor`, `loss`, `timeout_ps`: as in `sim.scenarios.pool_streaming`; without a timeout nothing is
        lost.
    `seeds`: 0 to seeds - 1.
    """
    integer(seeds, "seeds", 1, MOST_SEEDS)
    every = list(slots)
    for number, slot in enumerate(every):
        one, times = replace(job, slots=slot), list[int]()
        for seed in range(0 if timeout_ps is None else seeds):
            count("runs with loss", number * seeds + seed, len(every) * seeds)
            times.append(time_ps(
                one, late_ps=late_ps, rate_factor=rate_factor, loss=loss, timeout_ps=timeout_ps, seed=seed, how=how,
            ))
        clean = time_ps(one, late_ps=late_ps, rate_factor=rate_factor, how=how)
        if not times:
            yield _row(one, clean)
            continue
        mean, low, high = float(np.mean(times)), *np.percentile(times, [5, 95])
        yield _row(one, mean) | {
            "p5_s": float(low) / PS_PER_S, "p95_s": float(high) / PS_PER_S,
            "slow_down": mean / clean if clean else 1.0, "seeds": seeds,
        }


def sharing_rows(
    job: PoolStreaming, slots: Iterable[int], jobs: int, rules: Sequence[str], pool: int, how: How = AS_USUAL
) -> Iterator[Row]:
    """Several jobs on one switch of `pool` slots; the time is that of the last, the closed form that of one job."""
    for given in slots:
        for rule in rules:
            sharing = Sharing(job=replace(job, slots=given), jobs=jobs, slots=pool, rule=rule)
            times = finishes_ps(sharing, how)
            alone = replace(job, slots=sharing.window)
            yield {"rule": rule, "jobs": jobs, "switch_slots": pool} | _row(alone, max(times), jobs) | {
                "slots": given, "mean_s": float(np.mean(times)) / PS_PER_S, "fallback": fallback_share(sharing),
            }


def partial_rows(
    job: PoolStreaming, slots: Iterable[int], leaves: int, late_ps: int, timeout_ps: int, how: How = AS_USUAL
) -> Iterator[Row]:
    """A late worker under leaves that wait, and under leaves with a timeout."""
    for given in slots:
        for timer in (None, timeout_ps):
            case = LateWorker(job=replace(job, slots=given), leaves=leaves, late_ps=late_ps, timeout_ps=timer)
            found = late_worker_run(case, how)
            row = _row(case.job, found.makespan_ps, closed_ps=case.closed_form_ps(), trip_ps=case.round_trip_ps)
            yield {"leaf": "waits" if timer is None else "partial"} | row | {
                "held_mean_s": found.mean_ps / PS_PER_S, "held_most_s": found.longest_ps / PS_PER_S,
                "packets_up": found.packets_up, "partial_sums": found.partial_sums,
            }


def _row(
    job: PoolStreaming, end_ps: float, jobs: int = 1, *, closed_ps: float | None = None, trip_ps: int | None = None
) -> Row:
    closed = job.closed_form_ps() if closed_ps is None else closed_ps
    trip = job.round_trip_ps if trip_ps is None else trip_ps
    return {
        "size_bytes": job.size_bytes, "workers": job.workers, "slots": job.slots,
        "slots_needed": -(-trip // job.wire_ps), "time_s": end_ps / PS_PER_S, "closed_form_s": closed / PS_PER_S,
        "difference": end_ps / closed - 1 if closed else 0.0,
        "goodput_Gbps": 8e3 * jobs * job.size_bytes / end_ps if end_ps else 0.0,
    }
