"""The certificate of a fluid run: no link is exceeded, and every flow has a bottleneck, at every time."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from sim.program.contract import I32, I64
from sim.program.flows import BITS, Flows
from sim.program.outcome import CertificateError, Outcome, Rates
from topologies.core.paths import ranges


def certify_flows(flows: Flows, outcome: Outcome, lower_bound_ps: int = 0) -> None:
    """Check a finished run with its log of rates: waits, bytes, links, bottlenecks, and the bound.

    A link is full if what is left of it is less than a unit of rate for each flow that crosses it.

    CertificateError: with the rule, and the task or link that broke it.
    """
    assert outcome.rates is not None
    _causality(flows, outcome)
    _conservation(flows, outcome, outcome.rates)
    _bottlenecks(flows, outcome, outcome.rates)
    if outcome.makespan_ps < lower_bound_ps:
        raise CertificateError(
            f"bounds: the run took {outcome.makespan_ps} ps, below the lower bound {lower_bound_ps} ps"
        )


def _causality(flows: Flows, outcome: Outcome) -> None:
    """A task starts when the last of those that it waits for is delivered, and at once if there is none."""
    parent = np.repeat(np.arange(flows.n_tasks), np.diff(flows.child_ptr))
    due = np.zeros(flows.n_tasks, np.int64)
    np.maximum.at(due, flows.child, outcome.finish_ps[parent])
    for wrong, what in (
        (outcome.start_ps != due, "does not start when what it waits for is delivered"),
        (~flows.routed & (outcome.finish_ps != outcome.start_ps), "has no links and takes time"),
    ):
        if np.any(wrong):
            task = int(np.flatnonzero(wrong)[0])
            raise CertificateError(f"causality: task {task} {what}: {due[task]} ps, {outcome.start_ps[task]} ps")


def _conservation(flows: Flows, outcome: Outcome, rates: Rates) -> None:
    """Each flow carries its bytes until its end, and had not carried them a picosecond before."""
    end_ps = outcome.finish_ps - flows.latency_ps
    order = np.lexsort((rates.time_ps, rates.task))
    task, time, rate = rates.task[order], rates.time_ps[order], rates.rate[order]
    last = np.append(task[1:] != task[:-1], True)[: task.size]
    until = np.where(last, end_ps[task], np.append(time[1:], 0)[: time.size])
    left = [(int(high) << BITS) + int(low) for high, low in flows.work]
    for one, span, carried, is_last in zip(
        task.tolist(), (until - time).tolist(), rate.tolist(), last.tolist(), strict=True
    ):
        spare = carried // flows.tolerance
        if is_last and not left[one] - spare <= carried * span < max(left[one] - spare, 1) + carried:
            raise CertificateError(f"conservation: task {one} ends at {end_ps[one]} ps, not when its bytes are through")
        left[one] -= carried * span
    never = flows.routed.copy()
    never[task] = False
    if np.any(never):
        raise CertificateError(f"conservation: task {int(np.flatnonzero(never)[0])} has never had a rate")


def _bottlenecks(flows: Flows, outcome: Outcome, rates: Rates) -> None:
    """Whenever rates change, all flows that cross a link of those that start, end or change are looked at."""
    end_ps = outcome.finish_ps - flows.latency_ps
    crossing = _by_link(flows)
    rate = np.zeros(flows.n_tasks, np.int64)
    ended = np.flatnonzero(flows.routed)
    ended = ended[np.argsort(end_ps[ended], kind="stable")]
    times = np.unique(np.append(rates.time_ps, end_ps[ended]))
    rows = np.searchsorted(rates.time_ps, times, "right").tolist()
    ends = np.searchsorted(end_ps[ended], times, "right").tolist()
    row = end = 0
    for time, next_row, next_end in zip(times.tolist(), rows, ends, strict=True):
        now, gone = slice(row, next_row), ended[end:next_end]
        rate[gone] = 0
        rate[rates.task[now]] = rates.rate[now]
        touched = _tasks(flows, crossing, _links(flows, np.append(gone, rates.task[now])))
        running = (outcome.start_ps[touched] <= time) & (end_ps[touched] > time)
        _check(running != (rate[touched] > 0), touched, "capacity: task {} at {} ps has a rate, or none", time)
        _check_rates(flows, crossing, rate, touched[running], time)
        row, end = next_row, next_end


def _check_rates(flows: Flows, crossing: tuple[I64, I64], rate: I64, tasks: I64, time_ps: int) -> None:
    """No link of some flows is exceeded, and each of them has a bottleneck."""
    links = _links(flows, tasks)
    first, count = crossing[0][links], crossing[0][links + 1] - crossing[0][links]
    rates = rate[flows.crossing_task[crossing[1][ranges(first, count)]]]
    where = np.cumsum(count) - count
    left = flows.link_rate[links] - np.add.reduceat(rates, where) if links.size else links
    most = np.maximum.reduceat(rates, where) if links.size else links
    crossed = np.add.reduceat(rates > 0, where) if links.size else links
    _check(left < 0, links, "capacity: link {} carries more than its rate at {} ps", time_ps)
    own = np.diff(flows.crossing_ptr)[tasks]
    at = np.searchsorted(links, _crossed(flows, tasks))
    narrow = (left < crossed)[at] & (most[at] == np.repeat(rate[tasks], own))
    with_one = np.bincount(np.repeat(np.arange(tasks.size), own)[narrow], minlength=tasks.size) > 0
    _check(~with_one, tasks, "fairness: task {} has no bottleneck at {} ps", time_ps)


def _check(wrong: npt.NDArray[np.bool_], items: I64, words: str, time_ps: int) -> None:
    if np.any(wrong):
        raise CertificateError(words.format(items[np.flatnonzero(wrong)[0]], time_ps))


def _by_link(flows: Flows) -> tuple[I64, I64]:
    """Where the crossings of each link begin, (L+1,), and the crossings."""
    count = np.bincount(flows.crossing_link, minlength=flows.link_rate.size)
    return np.concatenate([[0], np.cumsum(count)]), np.argsort(flows.crossing_link, kind="stable")


def _links(flows: Flows, tasks: I64) -> I64:
    """Links that some tasks cross."""
    return np.unique(_crossed(flows, tasks)).astype(np.int64)


def _crossed(flows: Flows, tasks: I64) -> I32:
    """The links of some tasks, one task after the other."""
    first = flows.crossing_ptr[tasks].astype(np.int64)
    return flows.crossing_link[ranges(first, flows.crossing_ptr[tasks + 1] - first)]


def _tasks(flows: Flows, crossing: tuple[I64, I64], links: I64) -> I64:
    """Tasks that ever cross some links."""
    first, count = crossing[0][links], crossing[0][links + 1] - crossing[0][links]
    return np.unique(flows.crossing_task[crossing[1][ranges(first, count)]]).astype(np.int64)
