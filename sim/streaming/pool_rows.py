"""Rows of `weft pool`: one per number of slots and, where there are several, per rule or timeout."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from sim.how import AS_USUAL, How
from sim.streaming.partial_aggregates import LateWorker, late_worker_run
from sim.streaming.pool_streaming import Late, PoolStreaming, Slow, time_ps
from sim.streaming.slot_sharing import Sharing, fallback_share, finishes_ps
from topologies.checks import integer
from topologies.stages import count
from topologies.units import PS_PER_S

Row = dict[str, Any]

MOST_SEEDS = 1_000_000
"""Far more than a percentile needs."""


def streaming_rows(
    job: PoolStreaming, slots: Iterable[int], *, late_ps: Late | None = None, rate_factor: Slow | None = None,
    loss: float = 0.0, timeout_ps: int | str | None = None, seeds: int = 1,
    how: How = AS_USUAL,
) -> Iterator[Row]:
    """One job; with loss the mean time of some seeds, its 5th and 95th percentile, and the slow-down.

    `job`: its slots are those of the rows.
    `late_ps`, `rate_factor`, `loss`, `timeout_ps`: as in `sim.streaming.pool_streaming`; without a timeout nothing is
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
