"""When the contract lets chunks be ready, delivered, released and join, by the services that a run reports.

Worked out from the program alone, with none of the engines' code: the certificates compare a run with it.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from sim.certify.nics import replay
from sim.program.contract import HEAD, I32, I64, NEVER_PS, PER_CHUNK, Program
from sim.program.outcome import CertificateError, Outcome
from topologies.core.paths import distinct_of


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
    before[_first_of(server[served])] = 0
    free = np.empty_like(before)
    free[served] = before
    return free


def _first_of(group: I32 | I64) -> npt.NDArray[np.bool_]:
    """Whether each is the first of its group; groups are contiguous."""
    return np.append(True, group[1:] != group[:-1])[: group.size]
