"""Lost chunks that the NPUs at the ends send again: the retry rule of slot pools, as a pass over a program.

`FaultPlan.retry` determines who resends what a link has lost, always the plan's timeout after it left its sender:

source
    Whoever sent it over that link. The engines do so, chunk by chunk, and what is sent again may be lost again.
npu
    The NPU that waits for it, for switches keep no timers. An NPU whose packet was lost sends it again. One that has
    no result sends its packet again, which the switch answers with the sum, or with a copy of it once the slot is
    finished. What is sent again arrives. NPUs whose packets were not lost but whose results are late do not send again:
    the switch would drop the duplicates.

Under "npu" every chunk becomes a separate task, since what happens to one does not happen to the next. Chunk i of
NPU w is lost on the path up or down by a hash of (seed, w, i, direction).
"""

from collections.abc import Mapping
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from sim.lower.credits import buffers_of
from sim.lower.lowered import Lowered
from sim.lower.nics import posting_of
from sim.lower.servers import bandwidths
from sim.program.builder import ProgramBuilder
from sim.program.contract import I32, I64, PRIORITY, UNBOUNDED, WEIGHTS, Program
from sim.program.cutting import service_time_ps
from sim.program.model_options import DISCIPLINES
from topologies import Topology, WeftError
from topologies.core.routing import hash64
from topologies.units import PS_PER_S, format_time

SOURCE, NPU = RETRIES = ("source", "npu")

MOST_PACKETS = 2**24
"""Of all workers together: a program of about 3 GB."""

SENT, LOST, AGAIN, RESULT, ASKED, ANSWER = range(6)
"""What is done for one chunk, in the order that decides where two meet on a link in one picosecond."""

KINDS = 6


class Retried(NamedTuple):
    """A program in which every chunk is a task.

    Attributes
    ----------
    program : Program
        Its first servers are those of the program that it was made from, then come timers.
    task_rank : (T,) int32
        The NPU that sends, of the first packets; -1 for all other tasks.
    task_source : (T,) int64
        The task that each task is a packet of; -1 for timers and sums.
    is_first : (T,) bool
        Whether it is a packet that is sent for the first time.
    lost : int
        Chunks that are sent again.
    """

    program: Program
    task_rank: I32
    task_source: I64
    is_first: npt.NDArray[np.bool_]
    lost: int


def check_packets(n_packets: int, workers: int) -> None:
    """Reject more packets than can be followed one by one, before anything is made of them.

    Raises
    ------
    WeftError
        More than `MOST_PACKETS`.
    """
    if n_packets * workers > MOST_PACKETS:
        raise WeftError(
            f"{n_packets:,} packets of each of {workers:,} workers are too many to follow one by one: at most "
            f"{MOST_PACKETS:,} of all workers; give a smaller array or larger packets"
        )


def packets_of(n_packets: int, workers: int) -> tuple[I64, I64]:
    """Number and worker of every packet, in the order of the numbers; rejects what `check_packets` does."""
    check_packets(n_packets, workers)
    packet, worker = np.indices((n_packets, workers))
    return packet.ravel(), worker.ravel()


def lost_packets(n_packets: int, loss: npt.ArrayLike, seed: int, direction: int) -> npt.NDArray[np.bool_]:
    """Whether each packet of each worker is lost, (packets, workers); `loss` is by worker, direction 0 up, 1 down."""
    share = np.asarray(loss, np.float64)
    packet, worker = packets_of(n_packets, share.size)
    drawn = hash64(seed, worker, packet, direction) >> np.uint64(11)
    return (drawn.astype(np.float64) / 2.0**53 < share[worker]).reshape(n_packets, share.size)


def with_retries(
    lowered: Lowered, losses: Mapping[int, float], timeout_ps: int, seed: int, shares: Mapping[int, Fraction]
) -> Retried:
    """The program with every loss, timer and second packet written into it.

    Parameters
    ----------
    lowered : Lowered
        Of aggregation through one switch: a task up and one down per NPU, every result waiting for all packets.
    losses : mapping of link to probability
    timeout_ps : int
        From when a packet has left its NPU; longer than a round trip, that of the slowest NPU.
    seed : int
    shares : mapping of server to the least share of its bandwidth
        Of those that are slow for a time; the whole of it unless given.

    Raises
    ------
    WeftError
        Another kind of program, more than `MOST_PACKETS` chunks, or a timeout that ends before a result can be there.
    """
    program, server_link = lowered.program, lowered.server_link
    star, builder, rates = _star(program, lowered.topology, server_link), _builder(lowered), _rates(lowered)
    n_packets, window, workers = int(program.chunks()[star.up[0]]), star.window, star.up.size
    packet, npu = packets_of(n_packets, workers)
    work = _works(program, int(star.up[0]), n_packets)[packet]
    (up_server, up_ps), (down_server, down_ps) = (_routes(program, tasks) for tasks in (star.up, star.down))
    crossed, latency_ps = np.hstack([up_server, down_server]), np.hstack([up_ps, down_ps]).sum(axis=1)
    served_ps = {
        server: service_time_ps(int(work[0]), rates[server] * shares.get(server, 1))
        for server in np.unique(crossed).tolist()
    }
    trip_ps = max(sum(served_ps[one] for one in row) + rest_ps for row, rest_ps in zip(
        crossed.tolist(), latency_ps.tolist(), strict=True
    ))
    if timeout_ps <= trip_ps:
        raise WeftError(f"timeout of {format_time(timeout_ps)} is not above the round trip of {format_time(trip_ps)}")
    links = server_link[up_server[:, -1]], server_link[down_server[:, 0]]
    lost_up, lost_down = (
        lost_packets(n_packets, [losses.get(link, 0.0) for link in side.tolist()], seed, direction).ravel()
        for direction, side in enumerate(links)
    )
    arrives, gone, again = np.flatnonzero(~lost_up), np.flatnonzero(lost_up), np.flatnonzero(lost_down)
    held = gone.size * program.has_credits  # what is lost leaves its buffer at once; else it is over when its timer is
    timers = builder.servers([Fraction(PS_PER_S)] * (held + again.size))
    lost_ps = up_ps if held else np.hstack([up_ps[:, :-1], np.full((workers, 1), timeout_ps)])
    made: list[tuple[I64, I64, bool]] = []  # tasks, what they are packets of, and whether for the first time

    def send(is_up: bool, which: I64, kind: int, *after: I64) -> I64:
        server, ps = (up_server, lost_ps if kind == LOST else up_ps) if is_up else (down_server, down_ps)
        tasks = builder.tasks(
            work[which], server[npu[which]], ps[npu[which]], after=after, tie_class=packet[which] * KINDS + kind,
            priority=packet[which], flow=npu[which] + workers * (not is_up),
        )
        made.append((tasks.copy(), (star.up if is_up else star.down)[npu[which]], kind in (SENT, LOST, RESULT)))
        return tasks

    def expire(on: I64, after: I64, passed_ps: I64 | int) -> I64:
        """Timers, begun when packets are in, `passed_ps` after they left; their own service is a ps of tails."""
        wait_ps = timeout_ps - passed_ps - (lowered.model.deliver == "tail")
        return builder.tasks(np.zeros(on.size, np.int64), on, wait_ps, after=[after])

    first = np.empty(packet.size, np.int64)  # the task that puts each packet on its link
    first[arrives] = send(True, arrives, SENT)
    first[gone] = send(True, gone, LOST)
    added = first.copy()  # the task that brings it to the switch
    over = expire(timers[:held], first[gone], up_ps[npu[gone], -1]) if held else first[gone]
    added[gone] = send(True, gone, AGAIN, over)
    summed = builder.tasks(np.zeros(n_packets, np.int64))
    builder.order(added, summed[packet])
    received = send(False, np.arange(packet.size), RESULT, summed[packet])
    # a result that is lost: send again what was sent, to be answered; what was sent again already has its answer lost
    timer = expire(timers[held:], added[again], up_ps[npu[again], -1])
    received[again] = send(False, again, ANSWER, send(True, again, ASKED, timer), summed[packet[again]])
    if window:
        builder.order(received[packet + window < n_packets], first[window * workers :])
    built = builder.build()
    task_rank = np.full(built.n_tasks, -1, np.int32)
    task_rank[first] = npu
    source, is_first = np.full(built.n_tasks, -1, np.int64), np.zeros(built.n_tasks, np.bool_)
    for tasks, of, first_time in made:
        source[tasks], is_first[tasks] = of, first_time
    return Retried(built, task_rank, source, is_first, gone.size + again.size)


def _rates(lowered: Lowered) -> list[Fraction]:
    """Of each server, exactly."""
    topology, model, link = lowered.topology, lowered.model, lowered.server_link
    every = bandwidths(topology, model, lowered.links_at_once)
    end = topology.n_links + lowered.server_stream * topology.n_npus + lowered.server_rank
    return [Fraction(rate) for rate in every[np.where(link >= 0, link, end)].tolist()]


def _builder(lowered: Lowered) -> ProgramBuilder:
    """A builder with the servers of a program; the lowest chunk is the packet with the least number."""
    program, model = lowered.program, lowered.model
    builder = ProgramBuilder(model.forwarding, model.deliver, posting_of(model))
    n = program.n_servers
    buffers = buffers_of(lowered.topology, lowered.server_link, model) or (np.full(n, UNBOUNDED), np.ones(n, np.int64))
    rows = zip(_rates(lowered), program.server_discipline.tolist(), *(one.tolist() for one in buffers), strict=True)
    for server, (rate, number, room, credit_ps) in enumerate(rows):
        discipline = DISCIPLINES[PRIORITY if WEIGHTS[number, 2] else number]
        if program.has_nics and program.server_nic[server] >= 0:
            builder.nic(rate, int(program.nic_engines[program.server_nic[server]]), discipline)
        else:
            builder.server(rate, discipline, buffer=room, credit_ps=credit_ps)
    return builder


def _routes(program: Program, tasks: I64) -> tuple[I64, I64]:
    """Servers of the equally long routes of some tasks, and latencies behind them, (n, hops) each."""
    at = program.route_ptr[program.task_route[tasks]][:, np.newaxis] + np.arange(program.hops()[tasks[0]])
    return program.route_server[at].astype(np.int64), program.route_latency_ps[at]


class _Star(NamedTuple):
    """Tasks up and down of each NPU, (p,) each, and the packets that it may have in flight; 0: all."""

    up: I64
    down: I64
    window: int


def _star(program: Program, topology: Topology, server_link: I32) -> _Star:
    """What a program of aggregation through one switch consists of; others are rejected."""
    rank, hops = np.arange(topology.n_npus), server_link[program.route_server]
    n_links = np.bincount(np.repeat(np.arange(program.route_ptr.size - 1), np.diff(program.route_ptr)), hops >= 0)
    if program.is_healthy and not program.whole_child.size + program.pool_capacity.size and np.all(
        n_links[program.task_route] == 1
    ):
        link = hops[hops >= 0][(np.cumsum(n_links) - 1).astype(np.int64)[program.task_route]]
        up, down = (np.argsort(end[link], kind="stable")[: rank.size] for end in (topology.src, topology.dst))
        parent, child, lag = program.stream_edges()
        n_windows, windows = np.count_nonzero(lag), np.unique(lag[lag > 0])
        ends = topology.src[link[up]], topology.dst[link[down]]
        waits = np.isin(parent, up) & np.isin(child, down)
        if (
            program.n_tasks == 2 * rank.size and all(np.array_equal(end, rank) for end in ends)
            and np.count_nonzero(waits) == rank.size**2 == parent.size - n_windows
            and (n_windows == 0 or (n_windows == rank.size and windows.size == 1))
        ):
            return _Star(up, down, int(windows[0]) if windows.size else 0)
    raise WeftError(
        "retry 'npu' is that of aggregation through one switch: simulate an in-network all-reduce (push, one tree) on "
        "a switch, or take retry 'source'"
    )


def _works(program: Program, task: int, n_packets: int) -> I64:
    """Bytes of each chunk of a task, headers included, (n_packets,)."""
    cut = program.task_cut[task]
    size = np.where(np.arange(n_packets) < program.cut_first[cut], *program.cut_size[cut])
    works: I64 = program.chunk_work[size]
    return works
