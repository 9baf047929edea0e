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

from sim.program.builder import ProgramBuilder
from sim.program.contract import FIFO, I32, I64, Program
from sim.program.cutting import service_time_ps
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
    program: Program, topology: Topology, server_link: I32, losses: Mapping[int, float], timeout_ps: int, seed: int,
    shares: Mapping[int, Fraction],
) -> Retried:
    """The program with every loss, timer and second packet written into it.

    Parameters
    ----------
    program : Program
        Of aggregation through one switch: a task up and one down per NPU, every result waiting for all packets.
    topology : Topology
    server_link : (S,) int32
    losses : mapping of link to probability
    timeout_ps : int
        From when a packet has left its NPU; longer than a round trip, that of the slowest NPU.
    seed : int
    shares : mapping of link to the least share of its bandwidth
        Of links that are slow for a time; the whole of it unless given.

    Raises
    ------
    WeftError
        Another kind of program, more than `MOST_PACKETS` chunks, or a timeout that ends before a result can be there.
    """
    star = _star(program, topology, server_link)
    rates = [Fraction(float(topology.bandwidth_Bps[link])) for link in server_link.tolist()]
    n_packets, window = int(program.chunks()[star.up[0]]), star.window
    packet, npu = packets_of(n_packets, star.up.size)
    work = _works(program, int(star.up[0]), n_packets)[packet]
    route = program.route_ptr[program.task_route[[star.up, star.down]]]
    uplink, downlink = program.route_server[route].astype(np.int64)
    up_ps, down_ps = program.route_latency_ps[route]
    slowest = [rate * shares.get(link, 1) for rate, link in zip(rates, server_link.tolist(), strict=True)]
    trip_ps = max(
        service_time_ps(int(work[0]), slowest[up]) + service_time_ps(int(work[0]), slowest[down]) + latency
        for up, down, latency in zip(uplink, downlink, (up_ps + down_ps).tolist(), strict=True)
    )
    if timeout_ps <= trip_ps:
        raise WeftError(f"timeout of {format_time(timeout_ps)} is not above the round trip of {format_time(trip_ps)}")
    loss = [[losses.get(int(server_link[server]), 0.0) for server in side] for side in (uplink, downlink)]
    lost_up, lost_down = (lost_packets(n_packets, loss[side], seed, side).ravel() for side in (0, 1))
    arrives, gone, again = np.flatnonzero(~lost_up), np.flatnonzero(lost_up), np.flatnonzero(lost_down)
    builder = ProgramBuilder(forwarding="store-and-forward")
    builder.servers(rates)
    timers = builder.servers([Fraction(PS_PER_S)] * again.size)

    made: list[tuple[I64, I64, bool]] = []  # tasks, what they are packets of, and whether for the first time

    def up(which: I64, kind: int, latency_ps: I64 | int, *after: I64) -> I64:
        tie = packet[which] * KINDS + kind
        tasks = builder.tasks(work[which], uplink[npu[which]], latency_ps, after=after, tie_class=tie)
        made.append((tasks.copy(), star.up[npu[which]], kind in (SENT, LOST)))
        return tasks

    def down(which: I64, kind: int, *after: I64) -> I64:
        tie = packet[which] * KINDS + kind
        tasks = builder.tasks(work[which], downlink[npu[which]], down_ps[npu[which]], after=after, tie_class=tie)
        made.append((tasks.copy(), star.down[npu[which]], kind == RESULT))
        return tasks

    first = np.empty(packet.size, np.int64)  # the task that puts each packet on its link
    first[arrives] = up(arrives, SENT, up_ps[npu[arrives]])
    first[gone] = up(gone, LOST, timeout_ps)  # what is lost is over when its timer is
    added = first.copy()  # the task that brings it to the switch
    added[gone] = up(gone, AGAIN, up_ps[npu[gone]], first[gone])
    summed = builder.tasks(np.zeros(n_packets, np.int64))
    builder.order(added, summed[packet])
    received = down(np.arange(packet.size), RESULT, summed[packet])
    # a result that is lost: send again what was sent, to be answered; what was sent again already has its answer lost
    wait_ps = timeout_ps - up_ps[npu[again]] - 1  # a service takes 1 ps
    timer = builder.tasks(np.zeros(again.size, np.int64), timers, wait_ps, after=[added[again]])
    received[again] = down(again, ANSWER, up(again, ASKED, up_ps[npu[again]], timer), summed[packet[again]])
    if window:
        builder.order(received[packet + window < n_packets], first[window * star.up.size :])
    built = builder.build()
    task_rank = np.full(built.n_tasks, -1, np.int32)
    task_rank[first] = npu
    source, is_first = np.full(built.n_tasks, -1, np.int64), np.zeros(built.n_tasks, np.bool_)
    for tasks, of, first_time in made:
        source[tasks], is_first[tasks] = of, first_time
    return Retried(built, task_rank, source, is_first, gone.size + again.size)


class _Star(NamedTuple):
    """Tasks up and down of each NPU, (p,) each, and the packets that it may have in flight; 0: all."""

    up: I64
    down: I64
    window: int


def _star(program: Program, topology: Topology, server_link: I32) -> _Star:
    """What a program of aggregation through one switch consists of; others are rejected."""
    rank, plain = np.arange(topology.n_npus), program.is_healthy and not program.delivers_heads
    others = program.whole_child.size + program.pool_capacity.size + program.has_credits
    if plain and not others and np.all(program.server_discipline == FIFO) and np.all(program.hops() == 1):
        link = server_link[program.route_server[program.route_ptr[program.task_route]]]
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
        "retry 'npu' is that of aggregation through one switch: simulate an in-network all-reduce (push, one tree) of "
        "fifo links without buffers on a switch, or take retry 'source'"
    )


def _works(program: Program, task: int, n_packets: int) -> I64:
    """Bytes of each chunk of a task, headers included, (n_packets,)."""
    cut = program.task_cut[task]
    size = np.where(np.arange(n_packets) < program.cut_first[cut], *program.cut_size[cut])
    works: I64 = program.chunk_work[size]
    return works
