"""When the contract lets chunks be pushed, ready, delivered, released and join, by the services that a run reports.

Worked out from the program alone, with none of the engines' code: the certificates compare a run with it. The NICs are
replayed on what the log says of all else: when chunks are released, by what was delivered, and when services of the
NICs end. Post, engine and push then follow from the contract; whether the servers serve what is pushed in order is for
the other checks.
"""

from collections import defaultdict
from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from sim.program.contract import HEAD, I32, I64, NEVER_PS, PER_CHUNK, Program
from sim.program.outcome import CertificateError, Outcome
from topologies.core.paths import distinct_of

ENDS, ASKS, PUSHED, LOOK = range(4)
Want = tuple[int, int, int, int]
"""A chunk that waits: since when, class, chunk, task. The least is next."""


class Pushes(NamedTuple):
    """When each chunk that a NIC takes is pushed, NEVER_PS if never, and when the last one of each task has been."""

    chunk_ps: I64
    task_ps: I64


class _Nic:
    """A NIC and the NPU that posts: what waits in each stage."""

    def __init__(self, engines: int, room: int) -> None:
        self.idle, self.room, self.may_post_ps, self.last_port = engines, room, 0, -1
        self.unposted: list[Want] = []
        self.posted: list[Want] = []
        self.pushing: list[Want] = []
        self.holder: dict[int, int] = {}
        self.stopped: list[int] = []  # transfers that have pushed a chunk in this picosecond
        self.left: defaultdict[int, int] = defaultdict(int)  # transfers of each port that are not pushed in full

    def free_engines(self, flow: list[int]) -> None:
        going_on = {want[3] for want in self.pushing}
        for task in self.stopped:
            if task not in going_on:
                del self.holder[flow[task]]
                self.idle += 1
        self.stopped = []

    def post(self, now: int, post_ps: int, in_turn: int, port: list[int]) -> None:
        """Post what may be posted by now, the least first."""
        while self.unposted and self.may_post_ps <= now:
            aside = []
            while self.unposted and self._is_left_out(port[self.unposted[0][3]], in_turn):
                aside.append(heappop(self.unposted))
            chosen = heappop(self.unposted) if self.unposted else None
            for want in aside:
                heappush(self.unposted, want)
            if chosen is None:
                return
            self.last_port, self.may_post_ps = port[chosen[3]], now + post_ps
            heappush(self.posted, (now, *chosen[1:]))

    def _is_left_out(self, port: int, in_turn: int) -> bool:
        if not in_turn or port != self.last_port:
            return False
        first = port - port % in_turn
        return any(self.left[other] for other in range(first, first + in_turn) if other != port)

    def give_engines(self, now: int, flow: list[int]) -> None:
        """Posted transfers take engines, unless their flow has one."""
        waiting = []
        while self.posted and self.idle:
            want = heappop(self.posted)
            if flow[want[3]] in self.holder:
                waiting.append(want)
                continue
            self.idle -= 1
            self.holder[flow[want[3]]] = want[3]
            heappush(self.pushing, (now, *want[1:]))
        for want in waiting:
            heappush(self.posted, want)

    def push(self) -> Iterator[Want]:
        while self.pushing and self.room > 0:
            yield heappop(self.pushing)


def replay(
    program: Program, task: I64, chunk: I64, size: I64, release: I64, end: I64, nic: npt.NDArray[np.integer]
) -> Pushes:
    """Replay NICs; the rows are the chunks that they take, in the order of task and chunk.

    `release`: when each is released, but for tasks that it waits for until they are pushed; `end`: of its service.
    """
    rows, n_tasks = task.size, program.n_tasks
    first = np.searchsorted(task, np.arange(n_tasks + 1)).tolist()
    flow, port, kind = program.task_flow.tolist(), program.task_port.tolist(), program.task_class.tolist()
    released, work, lasts = release.tolist(), program.chunk_work[size].tolist(), program.push_ps[size].tolist()
    of_task = np.full(n_tasks, -1)
    of_task[task] = nic
    home = of_task.tolist()
    nics = [_Nic(int(engines), program.nic_queue) for engines in program.nic_engines]
    waits, children, next_row = program.pushed_waits.tolist(), defaultdict(list), list(first)
    for parent, child in zip(*(edge.tolist() for edge in program.pushed_edges()), strict=True):
        children[parent].append(child)
    sent = [one for one in range(n_tasks) if home[one] >= 0]
    for one in sent:
        nics[home[one]].left[port[one]] += 1
    pushed, done = np.full(rows, NEVER_PS), np.full(n_tasks, NEVER_PS)
    events = [(int(ps), ENDS, row) for row, ps in enumerate(end)]
    events += [(released[first[one]], ASKS, one) for one in sent if not waits[one]]
    heapify(events)

    def ask_for(one: int, now: int) -> None:
        heappush(events, (max(released[next_row[one]], now), ASKS, one))

    touched: set[int] = set()
    while events:
        now, what, which = heappop(events)
        where = which if what == LOOK else int(nic[which]) if what == ENDS else home[which]
        touched.add(where)
        here = nics[where]
        if what == ENDS:
            here.room += work[which]
        elif what == ASKS:
            want = (now, kind[which], next_row[which] - first[which], which)
            heappush(here.pushing if here.holder.get(flow[which]) == which else here.unposted, want)
        elif what == PUSHED:
            here.stopped.append(which)
            next_row[which] += 1
            if next_row[which] < first[which + 1]:
                ask_for(which, now)
            else:
                here.left[port[which]] -= 1
                done[which] = now
                for child in children[which]:
                    waits[child] -= 1
                    if not waits[child] and home[child] >= 0:
                        ask_for(child, now)
        if events and events[0][0] == now:
            continue
        for where in touched:
            here = nics[where]
            here.free_engines(flow)
            here.post(now, program.post_ps, program.ports_in_turn, port)
            if here.unposted and here.may_post_ps > now:
                heappush(events, (here.may_post_ps, LOOK, where))
            here.give_engines(now, flow)
            for _, _, number, one in here.push():
                row = first[one] + number
                pushed[row], here.room = now, here.room - work[row]
                heappush(events, (now + lasts[row], PUSHED, one))
        touched.clear()
    return Pushes(pushed, done)


class TimeBounds(NamedTuple):
    """Earliest and latest time of each of some chunks, in the order of task and chunk.

    The two differ where a run keeps no trace: grants of pools, and the middle chunks of a task with an empty route.
    """

    earliest: I64
    latest: I64


def sizes(program: Program, task: I64, chunk: I64) -> I64:
    """Size of each chunk, as a number of the program."""
    cut = program.task_cut[task]
    size = np.where(chunk < program.cut_first[cut], program.cut_size[cut, 0], program.cut_size[cut, 1])
    return np.asarray(size, np.int64)


def ready_ps(program: Program, at: I32 | I64, size: I64, start: I64, end: I64, latency: I64) -> I64:
    """When the chunk of each service is ready for its next server or delivered."""
    ready = end + latency
    if program.cut_through and at.size:
        after = program.server_rate[program.route_server[np.minimum(at + 1, program.route_hop.size - 1)]]
        ready = np.maximum(start + latency, ready - program.service(size, after))
    last = program.hop_last[program.route_hop[at]]
    delivered = np.where(last == HEAD, start, end) + latency
    return np.where(last != 0, delivered, ready)


def _chunks(program: Program) -> tuple[I64, I64, I64]:
    """First chunk of each task, (T+1,); task and number of each chunk."""
    chunks = program.chunks()
    first = np.concatenate([[0], np.cumsum(chunks)])
    task = np.repeat(np.arange(program.n_tasks), chunks)
    return first, task, np.arange(task.size) - first[task]


def routed_chunks(program: Program) -> tuple[I64, I64]:
    """Task and number of each chunk that crosses servers."""
    _, task, chunk = _chunks(program)
    routed = program.hops()[task] > 0
    return task[routed], chunk[routed]


def _running_maximum(group: I64, value: I64) -> I64:
    """Largest value so far in each group; groups are contiguous and rise."""
    ordered = distinct_of(value)
    rank = np.searchsorted(ordered, value) + group * ordered.size
    return ordered[np.maximum.accumulate(rank) - group * ordered.size]


def deliveries(program: Program, outcome: Outcome, ready: I64) -> TimeBounds:
    """When each chunk of the program is delivered, by when the routed ones are in; in order within a task.

    CertificateError: a task that finished at another time.
    """
    first, task, _ = _chunks(program)
    routed = program.hops() > 0
    earliest, latest = outcome.start_ps[task], outcome.finish_ps[task]
    earliest[first[1:][~routed] - 1] = outcome.finish_ps[~routed]
    latest[first[:-1][~routed]] = outcome.start_ps[~routed]
    here = routed[task]
    earliest[here] = latest[here] = _running_maximum(task[here], ready)
    wrong = outcome.finish_ps != earliest[first[1:] - 1]
    if np.any(wrong):
        one = int(np.flatnonzero(wrong)[0])
        raise CertificateError(
            f"causality: task {one} finished at {outcome.finish_ps[one]} ps and its chunks were not in then"
        )
    return TimeBounds(earliest, latest)


def _needed(program: Program, chunk: I64, parent: I64, child: I64, lag: I64) -> I64:
    """Chunks of a stream parent that a chunk of its child waits for."""
    chunks = program.chunks()
    return np.where(
        lag > 0, np.maximum(chunk - lag + 1, 0), -((-(chunk + 1) * chunks[parent]) // np.maximum(chunks[child], 1))
    )


def releases(program: Program, outcome: Outcome, delivered: TimeBounds) -> TimeBounds:
    """When each chunk is released: whole parents, stream parents and windows, until the deadline of its task."""
    first, task, _ = _chunks(program)
    chunks = program.chunks()
    whole = np.zeros(program.n_tasks, np.int64)
    of_whole, waiting = program.whole_edges()
    np.maximum.at(whole, waiting, outcome.finish_ps[of_whole])
    parent, child, lag = (np.asarray(column, np.int64) for column in program.stream_edges())
    edge = np.repeat(np.arange(parent.size), chunks[child])
    chunk = np.arange(edge.size) - np.repeat(np.cumsum(chunks[child]) - chunks[child], chunks[child])
    parent, child, lag = parent[edge], child[edge], lag[edge]
    needed = _needed(program, chunk, parent, child, lag)
    place = first[parent] + np.clip(needed, 1, chunks[parent]) - 1
    found = []
    for times in delivered:
        due = np.where(needed > chunks[parent], NEVER_PS, np.where(needed < 1, 0, times[place]))
        release = whole[task]
        np.maximum.at(release, first[child] + chunk, due)
        if program.task_deadline_ps.size:
            release = np.minimum(release, program.task_deadline_ps[task])
        found.append(release)
    return TimeBounds(*found)


def joins(
    program: Program, outcome: Outcome, delivered: TimeBounds, first_end: I64, pushed_ps: I64 | None = None
) -> TimeBounds:
    """When each routed chunk arrives at its first server, by the ends of the first services of all of them.

    `pushed_ps`: when it did where a journal says so, of programs with NICs.
    CertificateError: a task with an empty route that was delivered before its release, or later than then without a
        pool to ask.
    """
    _, task, chunk = _chunks(program)
    release = releases(program, outcome, delivered)
    if program.has_nics:
        if pushed_ps is None:
            pushed, ends = _replayed(program, release, first_end)
        else:
            pushed, ends = _noted(program, release, pushed_ps)
        release = _after_pushes(program, release, ends)
    latest = release.latest.copy()
    if program.task_pool.size:
        latest[(program.task_pool[task] >= 0) & ((chunk == 0) | (program.task_per[task] == PER_CHUNK))] = NEVER_PS
    routed = program.hops()[task] > 0
    _check_empty(program, outcome, TimeBounds(release.earliest, latest))
    gate = np.where(chunk[routed] > 0, np.roll(first_end, 1), 0)
    found = TimeBounds(np.maximum(release.earliest[routed], gate), np.maximum(latest[routed], gate))
    if not program.has_nics:
        return found
    has_nic = _nic_of(program, task[routed]) >= 0
    return TimeBounds(*(np.where(has_nic, *both) for both in zip(pushed, found, strict=True)))


def _nic_of(program: Program, task: I64) -> I32:
    """The NIC that takes each of some tasks with a route, -1 for none."""
    return program.server_nic[program.route_server[program.route_ptr[program.task_route[task]]]]


def _replayed(program: Program, release: TimeBounds, first_end: I64) -> tuple[TimeBounds, TimeBounds]:
    """When each routed chunk is pushed, if a NIC takes it, and each task in full.

    Not known where the release of any chunk is not that a NIC takes.
    """
    task, chunk = routed_chunks(program)
    nic = _nic_of(program, task)
    here = nic >= 0
    earliest, latest = (times[program.hops()[_chunks(program)[1]] > 0] for times in release)
    if not np.array_equal(earliest[here], latest[here]):
        never = np.full(program.n_tasks, NEVER_PS)
        return TimeBounds(earliest, np.full(task.size, NEVER_PS)), TimeBounds(0 * never, never)
    found = replay(
        program, task[here], chunk[here], sizes(program, task[here], chunk[here]), earliest[here], first_end[here],
        nic[here],
    )
    exact = np.zeros(task.size, np.int64)
    exact[here] = found.chunk_ps
    return TimeBounds(exact, exact), TimeBounds(found.task_ps, found.task_ps)


def _noted(program: Program, release: TimeBounds, pushed_ps: I64) -> tuple[TimeBounds, TimeBounds]:
    """The same where it is known when chunks were pushed: not before their release."""
    task, chunk = routed_chunks(program)
    ends = np.zeros(program.n_tasks, np.int64)
    np.maximum.at(ends, task, pushed_ps + program.push_ps[sizes(program, task, chunk)])
    earliest = release.earliest[program.hops()[_chunks(program)[1]] > 0]
    return TimeBounds(earliest, np.full(task.size, NEVER_PS)), TimeBounds(ends, ends)


def _after_pushes(program: Program, release: TimeBounds, ends: TimeBounds) -> TimeBounds:
    """The releases of tasks that also wait for others until these are pushed, by when that was."""
    (parent, child), of = program.pushed_edges(), _chunks(program)[1]
    times = []
    for one, end in zip(release, ends, strict=True):
        due = np.zeros(program.n_tasks, np.int64)
        np.maximum.at(due, child, end[parent])
        if program.task_deadline_ps.size:
            due = np.minimum(due, program.task_deadline_ps)
        times.append(np.maximum(one, due[of]))
    return TimeBounds(*times)


def _check_empty(program: Program, outcome: Outcome, release: TimeBounds) -> None:
    """A task with an empty route delivers each chunk when it is released, and granted."""
    first, empty = _chunks(program)[0], program.hops() == 0
    free = program.task_pool < 0 if program.task_pool.size else np.ones(program.n_tasks, np.bool_)
    for times, place, what in ((outcome.start_ps, first[:-1], "started"), (outcome.finish_ps, first[1:] - 1, "ended")):
        early, late = times < release.earliest[place], free & (times > release.latest[place])
        for wrong, how in ((early, "before it was released"), (late, "later than its release")):
            if np.any(empty & wrong):
                task = int(np.flatnonzero(empty & wrong)[0])
                raise CertificateError(f"causality: task {task}, without servers, {what} at {times[task]} ps, {how}")


def free_ps(served: I64, server: I32 | I64, end: I64) -> I64:
    """When the service before each, on the same server, had ended; 0 before the first.

    `served`: the services in the order of server and start.
    """
    before = np.concatenate([[0], end[served][:-1]])[: served.size]
    group = server[served]
    before[np.append(True, group[1:] != group[:-1])[: group.size]] = 0
    free = np.empty_like(before)
    free[served] = before
    return free
