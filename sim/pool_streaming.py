"""Pool streaming through one aggregating switch, packet by packet, with late and slow workers and lost packets.

A worker sends packet i + s when it has the result of packet i; the switch adds the packets of one number in a slot
and sends the sum to all. What a schedule cannot say is built here task by task: timers and resent packets.

Loss is sampled when the program is built: packet i of worker w is lost on the way up or down by a hash of (seed, w, i,
direction). A worker resends what has no result a timeout after it left, once; the switch adds it, or answers a
duplicate of a finished slot from its copy. Resent packets are not lost. Workers whose packets were not lost but whose
results are late do not resend: their duplicates would be dropped at the switch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from sim.engine import run
from sim.program import FIFO, I64, WHOLE, Columns, Cutting, Program, ProgramBuilder, assemble, service_time_ps
from topologies import WeftError
from topologies.routing import hash64

TIMER_RATE = 10**12
"""Work a second of servers that only pass time: work in ps."""


@dataclass(frozen=True, kw_only=True)
class PoolStreaming:
    """One job on one switch; the defaults are those of a published table (reference: 100 Gb/s, 2 us, 0.8 us).

    Attributes
    ----------
    size_bytes : int
    slots : int
        Packets that each worker may have on the way.
    workers : int
    payload_bytes, header_bytes : int
    bandwidth_Bps : int
    latency_ps : int
        Between a worker and the switch, one way.
    switch_latency_ps : int
    """

    size_bytes: int
    slots: int
    workers: int = 8
    payload_bytes: int = 1024
    header_bytes: int = 66
    bandwidth_Bps: int = 12_500_000_000
    latency_ps: int = 2_000_000
    switch_latency_ps: int = 800_000

    def __post_init__(self) -> None:
        if min(self.slots, self.workers, self.payload_bytes) < 1 or self.size_bytes < 0:
            raise WeftError(
                f"pool streaming of {self.size_bytes} B by {self.workers} workers in {self.slots} slots of "
                f"{self.payload_bytes} B: at least one worker, slot and byte a slot"
            )

    @property
    def n_packets(self) -> int:
        return max(1, -(-self.size_bytes // self.payload_bytes))

    @property
    def wire_ps(self) -> int:
        """Time of a full packet on a link."""
        return service_time_ps(self.payload_bytes + self.header_bytes, Fraction(self.bandwidth_Bps))

    @property
    def round_trip_ps(self) -> int:
        """From the start of a full packet to its result, with nothing in the way."""
        return 2 * (self.latency_ps + self.wire_ps) + self.switch_latency_ps

    @property
    def slots_needed(self) -> int:
        """Slots that keep the links busy: the packets of one round trip."""
        return -(-self.round_trip_ps // self.wire_ps)

    def closed_form_ps(self) -> float:
        """RTT + (N - 1) max(wire, RTT / s), for full packets."""
        return self.round_trip_ps + (self.n_packets - 1) * max(self.wire_ps, self.round_trip_ps / self.slots)


def streaming_program(
    job: PoolStreaming, *, late_ps: Mapping[int, int] | None = None, rate_factor: Mapping[int, Fraction] | None = None
) -> Program:
    """The job without loss: two tasks a worker, a window between them.

    Parameters
    ----------
    job : PoolStreaming
    late_ps : mapping from worker to ps
        Workers that begin later.
    rate_factor : mapping from worker to factor
        Workers whose links are slower, both ways.
    """
    late, factor = late_ps or {}, rate_factor or {}
    _check_workers(job, (*late, *factor))
    builder = ProgramBuilder(forwarding="store-and-forward")
    cutting = Cutting(None, job.payload_bytes, 0, job.header_bytes)
    up, down = [], []
    for worker in range(job.workers):
        rate = Fraction(job.bandwidth_Bps) * factor.get(worker, Fraction(1))
        delay = [builder.task(late[worker], [(builder.server(TIMER_RATE), 0)])] if late.get(worker) else []
        path = [(builder.server(rate), job.latency_ps + job.switch_latency_ps)]
        up.append(builder.task(job.size_bytes, path, cutting, after=delay))
    for worker in range(job.workers):
        rate = Fraction(job.bandwidth_Bps) * factor.get(worker, Fraction(1))
        path = [(builder.server(rate), job.latency_ps)]
        down.append(builder.task(job.size_bytes, path, cutting, stream=up))
    for sent, received in zip(up, down, strict=True):
        builder.window(sent, received, job.slots)
    return builder.build()


def lossy_program(job: PoolStreaming, loss: float, timeout_ps: int, seed: int = 0) -> Program:
    """The job with lost packets: every packet is a task, every resend a timer and one or two tasks more.

    Parameters
    ----------
    job : PoolStreaming
    loss : float
        Probability on each link and direction.
    timeout_ps : int
        From when a packet has left its worker; longer than a round trip.
    seed : int

    Raises
    ------
    WeftError
        A probability out of range, or a timeout that ends before a result can be there.
    """
    if not 0 <= loss <= 1:
        raise WeftError(f"loss of {loss} is out of range: 0 to 1")
    if timeout_ps <= job.round_trip_ps:
        raise WeftError(f"timeout of {timeout_ps} ps is not above the round trip of {job.round_trip_ps} ps")
    lost_up, lost_down = (_lost(job, loss, seed, direction) for direction in (0, 1))
    return _Packets(job, timeout_ps, lost_up, lost_down).build()


def slow_down(job: PoolStreaming, loss: float, timeout_ps: int, seed: int) -> float:
    """Time with loss over time without."""
    clean = run(streaming_program(job)).makespan_ps
    return run(lossy_program(job, loss, timeout_ps, seed)).makespan_ps / clean


def _lost(job: PoolStreaming, loss: float, seed: int, direction: int) -> npt.NDArray[np.bool_]:
    """Whether each packet of each worker is lost, (packets, workers)."""
    packet, worker = np.indices((job.n_packets, job.workers))
    drawn = hash64(seed, worker.ravel(), packet.ravel(), direction) >> np.uint64(11)
    return np.asarray(drawn.astype(np.float64) / 2.0**53 < loss).reshape(packet.shape)


def _check_workers(job: PoolStreaming, named: tuple[int, ...]) -> None:
    for worker in named:
        if not 0 <= worker < job.workers:
            raise WeftError(f"no worker {worker}: workers are 0 to {job.workers - 1}")


# Kinds of task. On routes: an upload reaches the switch; a lost one ends where it leaves; timers only pass time.
_UP, _LOST_UP, _TIMER, _TIMER_FROM_SWITCH, _JOIN, _DOWN = range(6)


@dataclass
class _Packets:
    """Columns of a lossy job. Each kind of task is a block of columns; all are sorted by packet at the end."""

    job: PoolStreaming
    timeout_ps: int
    lost_up: npt.NDArray[np.bool_]
    lost_down: npt.NDArray[np.bool_]
    _tasks: list[tuple[I64, I64, int, int]] = field(default_factory=list)
    _edges: list[tuple[I64, I64]] = field(default_factory=list)
    _count: int = 0

    def build(self) -> Program:
        packets, workers = self.lost_up.shape
        packet, worker = (place.ravel() for place in np.indices((packets, workers)))
        lost_up, lost_down = self.lost_up.ravel(), self.lost_down.ravel()
        sent = self._add(packet[~lost_up], worker[~lost_up], _UP, 0)
        gone = self._add(packet[lost_up], worker[lost_up], _LOST_UP, 0)
        first = np.empty(packet.size, np.int64)  # the task that puts each packet on its link
        first[~lost_up], first[lost_up] = sent, gone
        added = first.copy()  # the task that brings it to the switch
        added[lost_up] = self._after(self._after(gone, packet[lost_up], worker[lost_up], _TIMER, 1),
                                     packet[lost_up], worker[lost_up], _UP, 2)
        join = self._add(np.arange(packets), np.zeros(packets, np.int64), _JOIN, 3)
        self._edges.append((added, join[packet]))
        down = self._after(join[packet], packet, worker, _DOWN, 4)
        received = down.copy()
        # a result that is lost: resend what was sent, and have it answered; what was resent already has its answer lost
        again = np.flatnonzero(lost_down)
        timer = self._after(added[again], packet[again], worker[again], _TIMER_FROM_SWITCH, 5)
        resent = self._after(timer, packet[again], worker[again], _UP, 6)
        received[again] = self._after(resent, packet[again], worker[again], _DOWN, 7)
        self._edges.append((join[packet[again]], received[again]))
        following = (packet + self.job.slots < packets)
        behind = first[np.flatnonzero(following) + self.job.slots * workers]
        self._edges.append((received[following], behind))
        return self._assemble()

    def _add(self, packet: I64, worker: I64, kind: int, order: int) -> I64:
        """Tasks of one kind; returns their numbers."""
        self._tasks.append((packet.astype(np.int64), worker.astype(np.int64), kind, order))
        numbers = self._count + np.arange(packet.size)
        self._count += packet.size
        return numbers

    def _after(self, parent: I64, packet: I64, worker: I64, kind: int, order: int) -> I64:
        child = self._add(packet, worker, kind, order)
        self._edges.append((parent, child))
        return child

    def _assemble(self) -> Program:
        job, workers = self.job, self.job.workers
        packet, worker = (np.concatenate([task[i] for task in self._tasks]) for i in (0, 1))
        sizes = [task[0].size for task in self._tasks]
        kind, order = (np.repeat([task[i] for task in self._tasks], sizes) for i in (2, 3))
        place = np.lexsort((worker, order, packet))
        number = np.empty(place.size, np.int64)
        number[place] = np.arange(place.size)
        packet, worker, kind = packet[place], worker[place], kind[place]
        on_wire = np.isin(kind, (_UP, _LOST_UP, _DOWN))
        payload = np.minimum(job.payload_bytes, job.size_bytes - packet * job.payload_bytes)
        parent, child = (np.concatenate([edge[i] for edge in self._edges]) for i in (0, 1))
        rates = [Fraction(job.bandwidth_Bps), Fraction(TIMER_RATE)]
        route_ptr, route_server, route_latency = self._routes()
        columns = Columns(
            rates=rates,
            server_rate=np.repeat(np.array([0, 1], np.int32), [2 * workers, workers]),
            server_discipline=np.full(3 * workers, FIFO, np.int8),
            route_ptr=route_ptr,
            route_server=route_server,
            route_latency_ps=route_latency,
            task_work=np.where(on_wire, payload + job.header_bytes, 0),
            task_cutting=None,
            task_route=(kind * workers + worker).astype(np.int32),
            task_class=worker.astype(np.int32),
            task_priority=np.zeros(packet.size, np.int32),
            edge_parent=number[parent].astype(np.int32),
            edge_child=number[child].astype(np.int32),
            edge_lag=np.full(parent.size, WHOLE, np.int32),
        )
        return assemble(columns, [Cutting()], "store-and-forward")

    def _routes(self) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32], I64]:
        """Routes of each kind and worker: servers are uplinks, downlinks, timers; joins have none."""
        job, workers = self.job, self.job.workers
        to_switch = job.latency_ps + job.switch_latency_ps
        hop = {
            _UP: (0, to_switch), _LOST_UP: (0, 0), _TIMER: (2, self.timeout_ps),
            _TIMER_FROM_SWITCH: (2, self.timeout_ps - to_switch), _DOWN: (1, job.latency_ps),
        }
        kinds = [kind for kind in range(6) for _ in range(workers)]
        ptr = np.concatenate(([0], np.cumsum([kind != _JOIN for kind in kinds])))
        named = [(hop[kind], at % workers) for at, kind in enumerate(kinds) if kind != _JOIN]
        server = np.array([group * workers + worker for (group, _), worker in named], np.int32)
        return ptr.astype(np.int32), server, np.array([latency for (_, latency), _ in named], np.int64)
