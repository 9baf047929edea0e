"""Certificates from the schedule: what crosses each link by the transfers of all ranks, how often they wait, and that
nothing crosses a circuit that is not up.

Worked out from the transfers, their routes and the rules for chunks alone, with none of the code that lowers: a program
that lost a chunk or a byte, or whose representatives stand for other ranks than it claims, does other work; one that
lost a dependency waits for less, which the certificate of its run cannot see: it knows the program alone.
"""

from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction

import numpy as np

from collectives.core.routes import paths_of
from collectives.core.transfers import Transfers
from sim.program import I32, I64, Program
from sim.program.columns import crossings, unique_rows
from sim.program.model import Model
from sim.program.outcome import CertificateError, Outcome
from topologies import Topology
from topologies.units import PS_PER_S, format_time
from workloads.job import Communicate, Job, Operation, Reconfigure, Send

MOST_TRANSFERS = 10_000_000
"""Of all ranks; the work of a larger schedule is not worked out, for that takes longer than its symmetric run."""

TRANSFERS_AT_ONCE = 2**17

NEVER = np.iinfo(np.int64).max


def certify_schedule(
    job: Job, model: Model, link_ps: I64, wire_bytes: int, n_transfers: int, waits: tuple[int, int, int]
) -> None:
    """Check that a program does the work of its job.

    `link_ps` (n_links,): what the program serves on every link of the fabric, those that a representative stands for
        included.
    `wire_bytes`: what leaves all ranks by the program.
    `n_transfers`: transfers of all ranks by the program; one that is split counts twice.
    `waits`: of transfers for transfers, of all ranks by the program: whole, chunk by chunk, and windows. A model may
        add some, so that there may be more than in the schedule; of windows, those count that can hold a chunk back.
    CertificateError: names a link on which the program does more or less than the schedule, or the sums that differ.
    """
    if n_transfers > MOST_TRANSFERS:
        return
    topology, due, size_bytes, count, waiting = job.topology, np.zeros_like(link_ps), 0, 0, np.zeros(3, np.int64)
    for operation in job.operations:
        for transfers, each in _sent(job, operation, n_transfers):
            size_bytes += _sum(each)
            n_paths, chunks = _add_work(due, topology, model, transfers, each)
            count += n_paths
            waiting += _waits(transfers, chunks)
    if count != n_transfers:
        raise CertificateError(f"conservation: {n_transfers} transfers in the program, {count} in the schedule")
    if size_bytes != wire_bytes:
        raise CertificateError(f"conservation: {wire_bytes} B leave all ranks in the program, {size_bytes} B in the "
                               "schedule")
    for what, mine, theirs in zip(("whole", "chunk by chunk", "in windows"), waits, waiting.tolist(), strict=True):
        if mine < theirs:
            raise CertificateError(f"causality: transfers wait {mine} times {what} in the program, {theirs} in the "
                                   "schedule")
    if np.any(due != link_ps):
        link = int(np.flatnonzero(due != link_ps)[0])
        raise CertificateError(
            f"conservation: the program serves {topology.link_name(link)} for {format_time(int(link_ps[link]))}, "
            f"{link_ps[link]} ps, and the schedule for {due[link]} ps"
        )


def _waits(t: Transfers, chunks: I64) -> I64:
    """How often some transfers wait, each time counted once: whole, chunk by chunk, windows; (3,).

    `chunks` (transfers,): of each; a window as wide as that holds none back.
    """
    row = np.repeat(np.arange(t.src.size), np.diff(t.dep_ptr))
    order = np.lexsort((t.dep_lag, t.dep_slot, t.dep_src, row))
    columns = np.stack([row, t.dep_src, t.dep_slot, t.dep_lag])[:, order]
    distinct = np.ones(order.size, np.bool_)
    distinct[1:] = np.any(columns[:, 1:] != columns[:, :-1], axis=0)
    row, _, _, lag = columns[:, distinct]
    return np.bincount(np.sign(lag[lag < chunks[row]]) + 1, minlength=3)


def _sum(values: I64) -> int:
    """Exactly, also beyond 64 bits."""
    return (int((values >> 32).sum()) << 32) + int((values & 0xFFFFFFFF).sum())


def _sent(job: Job, operation: Operation, n_transfers: int) -> Iterator[tuple[Transfers, I64]]:
    """The transfers of an operation, some ranks at a time, and the bytes of each."""
    work = operation.work
    if isinstance(work, Communicate):
        pattern = work.schedule.pattern
        sources = np.append(job.ranks(operation), np.arange(pattern.p, pattern.n_sources or pattern.p))
        for some in np.array_split(sources, n_transfers // TRANSFERS_AT_ONCE + 1):
            transfers = pattern.emit(some)
            yield transfers, transfers.blocks * work.schedule.block_bytes
    elif isinstance(work, Send):
        yield _messages(work), np.broadcast_to(np.array(work.size_bytes, np.int64), len(work.src))


def _messages(send: Send) -> Transfers:
    src, dst = np.array(send.src, np.int32), np.array(send.dst, np.int32)
    zero, none = np.zeros(src.size, np.int32), np.zeros(0, np.int32)
    ptr = np.concatenate(([0], np.cumsum([len(links) for links in send.via], dtype=np.int64))) if send.via else None
    return Transfers(
        src, dst, zero, zero, zero, zero.astype(np.int64), zero.astype(np.bool_), zero.astype(np.int64),
        np.zeros(src.size + 1, np.int64), none, none, none, ptr,
        np.array([link for links in send.via for link in links], np.int32) if send.via else None,
    )


def _add_work(due: I64, topology: Topology, model: Model, t: Transfers, size_bytes: I64) -> tuple[int, I64]:
    """Add the time for which some transfers are served on each link.

    Returns their number, halves of a split one, and the chunks of each, (transfers,), of its smaller half.
    """
    paths = paths_of(t, topology, model.tie, model.seed)
    routes = np.bincount(paths.pair, minlength=t.src.size)
    second = np.zeros(paths.pair.size, np.bool_)
    second[1:] = paths.pair[1:] == paths.pair[:-1]
    carried = size_bytes[paths.pair]
    carried = np.where(routes[paths.pair] == 1, carried, np.where(second, carried // 2, carried - carried // 2))
    own = np.zeros(paths.pair.size, np.int64) if t.rounds is None else t.rounds[paths.pair, 0].astype(np.int64)
    (sizes, size), most = unique_rows(carried), int(own.max(initial=0)) + 1
    kinds, kind = unique_rows(size * most + own)
    kinds = np.stack([sizes[kinds // most], kinds % most])
    rates, rate = np.unique(topology.bandwidth_Bps, return_inverse=True)
    speeds = [Fraction(float(one)) for one in rates]
    times = [_service_ps(model, size, chunks, speed) for size, chunks in kinds.T.tolist() for speed in speeds]
    time = np.array(times, np.int64).reshape(kinds.shape[1], rates.size)
    of_route = np.repeat(kind, np.diff(paths.ptr))
    np.add.at(due, paths.links, time[of_route, rate[paths.links]])
    cut = np.array([sum(count for count, _ in _parts(model, size, chunks)) for size, chunks in kinds.T.tolist()])
    least = np.full(t.src.size, NEVER)
    np.minimum.at(least, paths.pair, cut[kind])
    return int(paths.pair.size), least


def _service_ps(model: Model, size_bytes: int, chunks: int, rate: Fraction) -> int:
    """Time of all chunks of a transfer on a link: `chunks` of them, or (0) as many as the model cuts."""
    return sum(
        count * max(1, -((-(size + model.packet_header_bytes) * PS_PER_S) // rate))
        for count, size in _parts(model, size_bytes, chunks)
    )


def _parts(model: Model, size_bytes: int, chunks: int) -> list[tuple[int, int]]:
    """Chunks of one size, and the size, of a transfer."""
    work = size_bytes + model.header_bytes
    if chunks or model.chunk_bytes is None:
        count = min(chunks or int(model.chunks or 1), max(work, 1))
        parts = [(work % count, work // count + 1), (count - work % count, work // count)]
    else:
        parts = [(work // model.chunk_bytes, model.chunk_bytes), (1, work % model.chunk_bytes)]
        parts = parts[: 2 if work % model.chunk_bytes or not work else 1]
    return [(count, size) for count, size in parts if count]


def certify_circuits(
    program: Program, outcome: Outcome, topology: Topology, server_link: I32,
    changes: Sequence[tuple[int, Reconfigure]], name: Callable[[int], str] = "task {}".format,
) -> None:
    """Reject a run in which a transfer crossed a circuit before it was up, or after it began to go down.

    `server_link` (S,): link of each server, -1 for others.
    `changes`: with the task of each.
    `name`: what a task is.
    CertificateError: names the circuit, the task and both times.
    """
    if not changes:
        return
    task, server = crossings(program)
    link = server_link[server]
    ups: dict[int, list[int]] = {}
    downs: dict[int, list[int]] = {}
    for change, work in changes:
        for one in work.down:
            ups.setdefault(one, [0])  # up in the beginning, for it goes down before it comes up
            downs.setdefault(one, []).append(int(outcome.start_ps[change]))
        for one in work.up:
            ups.setdefault(one, []).append(int(outcome.finish_ps[change]))
    task, link = task[link >= 0], link[link >= 0]
    start, finish = outcome.start_ps[task], outcome.finish_ps[task]
    up_ps, down_ps = np.zeros(link.size, np.int64), np.full(link.size, NEVER)
    for one in np.unique(link).tolist():
        rows, gone, came = np.flatnonzero(link == one), sorted(downs.get(one, ())), sorted(ups.get(one, (0,)))
        era = np.maximum(np.searchsorted(came, start[rows], "right") - 1, 0)  # it goes down as often as it comes up
        up_ps[rows], down_ps[rows] = np.array(came)[era], np.array([*gone, *[NEVER] * len(came)])[era]
    for bad, words, moment, limit in (
        (start < up_ps, ("starts", "up"), start, up_ps),
        (finish > down_ps, ("ends", "down"), finish, down_ps),
    ):
        if np.any(bad):
            at = int(np.flatnonzero(bad)[0])
            circuit = topology.link_name(int(link[at]))
            raise CertificateError(
                f"{name(int(task[at]))} {words[0]} at {format_time(moment[at])}; circuit {circuit} is {words[1]} from "
                f"{format_time(limit[at])}"
            )
