"""The certificate of a fluid run: no link is exceeded, and every flow has a bottleneck, at every time."""

from heapq import heappop, heappush

import numpy as np
import numpy.typing as npt

from sim.program.contract import I32, I64
from sim.program.flows import ALONE, BITS, POOL, Flows
from sim.program.outcome import CertificateError, Outcome, Rates
from topologies.core.paths import distinct_of, ranges


def certify_flows(flows: Flows, outcome: Outcome, lower_bound_ps: int = 0) -> None:
    """Check a finished run with its log of rates: waits, bytes, links, bottlenecks, and the bound.

    A link is full if what is left of it is less than a unit of rate for each flow that crosses it.

    CertificateError: with the rule, and the task or link that broke it.
    """
    assert outcome.rates is not None
    end_ps = _conservation(flows, outcome, outcome.rates)
    _causality(flows, outcome, end_ps)
    _bottlenecks(flows, outcome, outcome.rates, end_ps)
    if outcome.makespan_ps < lower_bound_ps:
        raise CertificateError(
            f"bounds: the run took {outcome.makespan_ps} ps, below the lower bound {lower_bound_ps} ps"
        )


def _causality(flows: Flows, outcome: Outcome, end_ps: I64) -> None:
    """A task starts when the last of those that it waits for is delivered, or in its turn in a line; not before."""
    parent = np.repeat(np.arange(flows.n_tasks), np.diff(flows.child_ptr))
    due = np.zeros(flows.n_tasks, np.int64)
    np.maximum.at(due, flows.child, outcome.finish_ps[parent])
    late = flows.change[flows.change[:, 4] >= 0]
    due[late[:, 4]] = np.minimum(due[late[:, 4]], late[:, 0])
    lined = np.any(flows.line >= 0, axis=0)
    for wrong, what in (
        ((outcome.start_ps < due) | (~lined & (outcome.start_ps != due)), "does not start when it may"),
        (~flows.routed & (outcome.finish_ps != outcome.start_ps), "has no links and takes time"),
    ):
        if np.any(wrong):
            task = int(np.flatnonzero(wrong)[0])
            raise CertificateError(f"causality: task {task} {what}: {due[task]} ps, {outcome.start_ps[task]} ps")
    for line in np.flatnonzero(flows.line_link >= 0).tolist():
        tasks = np.flatnonzero(flows.line[ALONE] == line)
        if tasks.size and np.all(flows.line[POOL, tasks] < 0):  # else it is not known when they asked
            _turns(flows, outcome, tasks[np.argsort(outcome.start_ps[tasks])], due, end_ps)


def _turns(flows: Flows, outcome: Outcome, tasks: I64, due: I64, end_ps: I64) -> None:
    """One after the other on a server: when it is free and up, the first of those that wait."""
    free, link = 0, int(flows.line_link[flows.line[ALONE, tasks[0]]])
    rows = flows.change[flows.change[:, 1] == link]
    arrivals = tasks[np.argsort(due[tasks], kind="stable")].tolist()
    waiting: list[tuple[int, int, int, int]] = []
    for task in tasks.tolist():
        start = int(outcome.start_ps[task])
        while arrivals and due[arrivals[0]] <= start:
            one = arrivals.pop(0)
            heappush(waiting, (int(flows.rank[ALONE, one]), int(due[one]), int(flows.tie[one]), one))
        could = max(free, min(int(due[one[3]]) for one in waiting))
        state = rows[: np.searchsorted(rows[:, 0], could, "right"), 2]
        if state.size and state[-1] == 0:
            up = rows[(rows[:, 0] > could) & (rows[:, 2] > 0), 0]
            could = int(up[0])
        if could != start or heappop(waiting)[3] != task:
            raise CertificateError(f"order: task {task} starts at {start} ps on server {link}, and not in its turn")
        free = int(end_ps[task])


def _conservation(flows: Flows, outcome: Outcome, rates: Rates) -> I64:
    """Each flow carries its bytes until its end, and had not carried them a picosecond before; returns the ends."""
    order = np.lexsort((rates.time_ps, rates.task))
    task, time, rate = rates.task[order], rates.time_ps[order], rates.rate[order]
    last = np.append(task[1:] != task[:-1], True)[: task.size]
    span = np.append(time[1:], 0)[: time.size] - time
    left = [(int(high) << BITS) + int(low) for high, low in flows.work]
    end_ps = outcome.finish_ps.copy()
    for one, since, passed, carried, is_last in zip(*(
        column.tolist() for column in (task, time, span, rate, last)
    ), strict=True):
        if not is_last:
            left[one] -= carried * passed
        elif carried:
            end_ps[one] = since + max(-((carried // flows.tolerance - left[one]) // carried), 1)
    never = flows.routed.copy()
    never[task[last & (rate > 0)]] = False
    if np.any(never):
        raise CertificateError(f"conservation: task {int(np.flatnonzero(never)[0])} has never had a rate")
    way = np.arange(flows.n_tasks)
    way[task[last]] = rates.way[order][last]
    said = outcome.finish_ps - flows.latency_ps[way] - _added_ps(flows, way, end_ps)
    wrong = np.flatnonzero(flows.routed & (said != end_ps))
    if wrong.size:
        raise CertificateError(
            f"conservation: task {wrong[0]} ends at {said[wrong[0]]} ps, not when its bytes are through"
        )
    return end_ps


def _added_ps(flows: Flows, way: I64, end_ps: I64) -> I64:
    """Latency that the links of each flow add at its end, before the changes of that picosecond."""
    added = np.zeros(way.size, np.int64)
    first, hops = flows.crossing_ptr[way].astype(np.int64), np.diff(flows.crossing_ptr)[way]
    task, link = np.repeat(np.arange(way.size), hops), flows.crossing_link[ranges(first, hops)]
    for one in np.unique(flows.change[flows.change[:, 3] > 0, 1]).tolist():
        rows = flows.change[flows.change[:, 1] == one]
        crossing = task[link == one]
        at = np.searchsorted(rows[:, 0], end_ps[crossing])
        np.add.at(added, crossing, np.append(0, rows[:, 3])[at])
    return added


def _bottlenecks(flows: Flows, outcome: Outcome, rates: Rates, end_ps: I64) -> None:
    """Whenever rates change, all flows that cross a link of those that start, end or change are looked at.

    Whenever links or routes do, all flows are.
    """
    crossing = _by_link(flows)
    links = _Links(flows)
    rate = np.zeros(flows.latency_ps.size, np.int64)
    way = np.arange(flows.n_tasks)
    owner = np.append(way, np.repeat(way, np.diff(flows.detour_ptr)))
    ended = np.flatnonzero(flows.routed)
    ended = ended[np.argsort(end_ps[ended], kind="stable")]
    times = distinct_of(np.concatenate([rates.time_ps, end_ps[ended], flows.change[:, 0]]))
    rows = np.searchsorted(rates.time_ps, times, "right").tolist()
    ends = np.searchsorted(end_ps[ended], times, "right").tolist()
    row = end = 0
    for time, next_row, next_end in zip(times.tolist(), rows, ends, strict=True):
        now, gone = slice(row, next_row), ended[end:next_end]
        before = way[np.append(gone, rates.task[now])]
        rate[before] = 0
        way[rates.task[now]] = rates.way[now]
        rate[rates.way[now]] = rates.rate[now]
        changed = links.advance(time)
        touched = np.append(before, rates.way[now])
        touched = np.arange(rate.size) if changed else _ways(crossing, _crossed_links(flows, touched))
        task = owner[touched]
        mine = (way[task] == touched) & flows.routed[task]
        running = mine & (outcome.start_ps[task] <= time) & (end_ps[task] > time)
        stopped = running & (rate[touched] == 0)
        for one in np.flatnonzero(stopped).tolist():
            stopped[one] = links.down[flows.links(flows.way(int(task[one]), time))].any()
        running &= ~stopped
        _check(running != (rate[touched] > 0), task, "capacity: task {} at {} ps has a rate, or none", time)
        if links.cut.any():
            cut = np.isin(touched, _ways(crossing, np.flatnonzero(links.cut)))
            _check(running & cut, task, "capacity: task {} at {} ps crosses a link that is down", time)
        _check_rates(flows, crossing, links.rate, rate, touched[running], time)
        row, end = next_row, next_end


class _Links:
    """What holds for links, from one time to the next."""

    def __init__(self, flows: Flows) -> None:
        self.flows, self.row, self.rate = flows, 0, flows.link_rate.copy()
        self.down = np.zeros(self.rate.size, np.bool_)

    @property
    def cut(self) -> npt.NDArray[np.bool_]:
        """Links that are down and let nothing through."""
        return np.asarray(self.down & (self.flows.drains == 0))

    def advance(self, time_ps: int) -> bool:
        """Make the changes until a time; returns whether there were any."""
        before, change = self.row, self.flows.change
        while self.row < len(change) and change[self.row, 0] <= time_ps:
            link, rate = change[self.row, 1:3]
            if link >= 0:
                self.down[link] = rate == 0
                self.rate[link] = rate or self.rate[link]
            self.row += 1
        return self.row > before


def _check_rates(flows: Flows, crossing: tuple[I64, I64], link_rate: I64, rate: I64, ways: I64, time_ps: int) -> None:
    """No link of some flows is exceeded, and each of them has a bottleneck."""
    links = _crossed_links(flows, ways)
    first, count = crossing[0][links], crossing[0][links + 1] - crossing[0][links]
    rates = rate[crossing[1][ranges(first, count)]]
    where = np.cumsum(count) - count
    left = link_rate[links] - np.add.reduceat(rates, where) if links.size else links
    most = np.maximum.reduceat(rates, where) if links.size else links
    crossed = np.add.reduceat(rates > 0, where) if links.size else links
    _check(left < 0, links, "capacity: link {} carries more than its rate at {} ps", time_ps)
    own = np.diff(flows.crossing_ptr)[ways]
    at = np.searchsorted(links, _crossed(flows, ways))
    narrow = (left < crossed)[at] & (most[at] == np.repeat(rate[ways], own))
    with_one = np.bincount(np.repeat(np.arange(ways.size), own)[narrow], minlength=ways.size) > 0
    _check(~with_one, ways, "fairness: task {} has no bottleneck at {} ps", time_ps)


def _check(wrong: npt.NDArray[np.bool_], items: I64, words: str, time_ps: int) -> None:
    if np.any(wrong):
        raise CertificateError(words.format(items[np.flatnonzero(wrong)[0]], time_ps))


def _by_link(flows: Flows) -> tuple[I64, I64]:
    """Where the crossings of each link begin, (L+1,), and the way of each crossing."""
    count = np.bincount(flows.crossing_link, minlength=flows.link_rate.size)
    way = np.repeat(np.arange(flows.latency_ps.size), np.diff(flows.crossing_ptr))
    return np.concatenate([[0], np.cumsum(count)]), way[np.argsort(flows.crossing_link, kind="stable")]


def _crossed_links(flows: Flows, ways: I64) -> I64:
    """Links that some ways cross."""
    return distinct_of(_crossed(flows, ways))


def _crossed(flows: Flows, ways: I64) -> I32:
    """The links of some ways, one way after the other."""
    first = flows.crossing_ptr[ways].astype(np.int64)
    return flows.crossing_link[ranges(first, flows.crossing_ptr[ways + 1] - first)]


def _ways(crossing: tuple[I64, I64], links: I64) -> I64:
    """Ways that cross some links."""
    first, count = crossing[0][links], crossing[0][links + 1] - crossing[0][links]
    return np.unique(crossing[1][ranges(first, count)])
