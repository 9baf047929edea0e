"""Pool streaming through one aggregating switch, packet by packet, with late and slow workers and lost packets.

A worker sends packet i + s when it has the result of packet i; the switch adds the packets of one number in a slot
and sends the sum to all. What a schedule cannot say is built here task by task: timers and resent packets.

Loss is sampled when the program is built: packet i of worker w is lost on the way up or down by a hash of (seed, w, i,
direction). A worker resends what has no result a timeout after it left, once; the switch adds it, or answers a
duplicate of a finished slot from its copy. Resent packets are not lost. Workers whose packets were not lost but whose
results are late do not resend: their duplicates would be dropped at the switch. Late workers, slow ones and loss
combine as one likes.

An array of no bytes has no packets and takes no time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from numbers import Real
from typing import TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from sim.analytic.streaming_form import turns_ps
from sim.engine.run import run
from sim.program import Cutting, Program, ProgramBuilder, service_time_ps
from sim.program.packets import TIMER_RATE, PacketTasks, packets_of
from sim.program.quantity_fields import Bytes, Count, Rate, Time, picoseconds, whole
from topologies import WeftError
from topologies.core.routing import hash64
from topologies.units import format_time

T = TypeVar("T")

Late: TypeAlias = Mapping[int, int | str]
"""By worker: picoseconds, or text with a unit."""

Slow: TypeAlias = Mapping[int, Fraction | float]
"""By worker: share of the bandwidth that its links have, above 0 and at most 1."""


@dataclass(frozen=True, kw_only=True)
class PoolStreaming:
    """One job on one switch; the defaults are those of a published table (reference: 100 Gb/s, 2 us, 0.8 us).

    Attributes
    ----------
    size_bytes : int, or text such as "1MiB"
    slots : int
        Packets that each worker may have on the way.
    workers : int
    payload_bytes, header_bytes : int, or text
    bandwidth_Bps : float, or text such as "100Gb/s"
    latency_ps : int, or text such as "2us"
        Between a worker and the switch, one way.
    switch_latency_ps : int, or text

    Raises
    ------
    WeftError
        Not a whole number, text without a unit, no slot, worker or byte in a packet, or no bandwidth.
    """

    size_bytes: Bytes = Bytes()
    slots: Count = Count()
    workers: Count = Count(8, most=2**16)
    payload_bytes: Bytes = Bytes(1024, least=1)
    header_bytes: Bytes = Bytes(66)
    bandwidth_Bps: Rate = Rate(12_500_000_000)
    latency_ps: Time = Time(2_000_000)
    switch_latency_ps: Time = Time(800_000)

    @property
    def n_packets(self) -> int:
        return -(-self.size_bytes // self.payload_bytes)

    @property
    def to_switch_ps(self) -> int:
        """From the end of a packet on the uplink until the switch has added it."""
        return self.latency_ps + self.switch_latency_ps

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

    def closed_form_ps(self) -> int:
        """Time of full packets, nobody late or slow, and nothing lost, exactly; see `sim.analytic.streaming_form`."""
        if self.n_packets == 0:
            return 0
        return self.round_trip_ps + turns_ps(self.n_packets - 1, self.slots, self.round_trip_ps, self.wire_ps)

    def published_form_ps(self) -> float:
        """RTT + (N - 1) max(wire, RTT / s): the same to one round trip, as it divides turns of the window."""
        if self.n_packets == 0:
            return 0.0
        return self.round_trip_ps + (self.n_packets - 1) * max(self.wire_ps, self.round_trip_ps / self.slots)


def streaming_program(job: PoolStreaming, *, late_ps: Late | None = None, rate_factor: Slow | None = None) -> Program:
    """The job without loss: two tasks a worker, the sum and a window between them.

    Parameters
    ----------
    job : PoolStreaming
    late_ps : mapping from worker to ps, or to text such as "5ms"
        Workers that begin later.
    rate_factor : mapping from worker to factor
        Workers whose links are slower, both ways.

    Raises
    ------
    WeftError
        No such worker, a time or a factor that is none.
    """
    late, rates = _late(job, late_ps), _rates(job, rate_factor)
    builder = ProgramBuilder(forwarding="store-and-forward")
    if job.n_packets == 0:
        return builder.build()
    cutting = Cutting(None, job.payload_bytes, 0, job.header_bytes)
    up, down = [], []
    for worker, rate in enumerate(rates):
        # a service takes 1 ps: the rest of the delay is latency
        delay = [builder.task(0, [(builder.server(TIMER_RATE), late[worker] - 1)])] if late.get(worker) else []
        up.append(builder.task(job.size_bytes, [(builder.server(rate), job.to_switch_ps)], cutting, after=delay))
    summed = builder.task(job.size_bytes, (), cutting, stream=up)
    for rate in rates:
        down.append(builder.task(job.size_bytes, [(builder.server(rate), job.latency_ps)], cutting, stream=[summed]))
    for sent, received in zip(up, down, strict=True):
        builder.window(sent, received, job.slots)
    return builder.build()


def lossy_program(
    job: PoolStreaming, loss: float, timeout_ps: int | str, seed: int = 0, *, late_ps: Late | None = None,
    rate_factor: Slow | None = None,
) -> Program:
    """The job with lost packets: every packet is a task, every resend a timer and one or two tasks more.

    Parameters
    ----------
    job : PoolStreaming
    loss : float
        Probability on each link and direction.
    timeout_ps : int, or text such as "1ms"
        From when a packet has left its worker; longer than a round trip, that of the slowest worker.
    seed : int
    late_ps, rate_factor : mapping
        As in `streaming_program`.

    Raises
    ------
    WeftError
        A probability out of range, a timeout that ends before a result can be there, or what `streaming_program`
        refuses.
    """
    late, rates, timeout_ps = _late(job, late_ps), _rates(job, rate_factor), picoseconds(timeout_ps, "timeout_ps")
    longest = service_time_ps(job.payload_bytes + job.header_bytes, min(rates))
    round_trip = job.round_trip_ps + 2 * (longest - job.wire_ps)
    if timeout_ps <= round_trip:
        known = f"the round trip of {format_time(round_trip)}"
        raise WeftError(f"timeout of {format_time(timeout_ps)} is not above {known}")
    lost_up, lost_down = (_lost(job, loss, seed, direction).ravel() for direction in (0, 1))
    tasks = PacketTasks(job.size_bytes, job.payload_bytes, job.header_bytes)
    uplink, downlink = tasks.links(rates), tasks.links(rates)
    packet, worker = packets_of(job.n_packets, job.workers)

    def up(which: npt.NDArray[np.int64], latency_ps: int, *after: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        return tasks.send(packet[which], uplink[worker[which]], latency_ps, after=after, tie=worker[which])

    arrives, gone = np.flatnonzero(~lost_up), np.flatnonzero(lost_up)
    first = np.empty(packet.size, np.int64)  # the task that puts each packet on its link
    first[arrives] = up(arrives, job.to_switch_ps)
    first[gone] = up(gone, timeout_ps)  # what is lost is over when its timer is
    added = first.copy()  # the task that brings it to the switch
    added[gone] = up(gone, job.to_switch_ps, first[gone])
    summed = tasks.join(np.arange(job.n_packets))
    tasks.order(added, summed[packet])
    received = tasks.send(packet, downlink[worker], job.latency_ps, after=[summed[packet]], tie=worker)
    # a result that is lost: resend what was sent, and have it answered; what was resent already has its answer lost
    again = np.flatnonzero(lost_down)
    timer = tasks.wait(packet[again], timeout_ps - job.to_switch_ps, after=[added[again]])
    asked = [up(again, job.to_switch_ps, timer), summed[packet[again]]]
    answer = tasks.send(packet[again], downlink[worker[again]], job.latency_ps, after=asked, tie=worker[again])
    received[again] = answer
    tasks.order(received[packet + job.slots < job.n_packets], first[job.slots * job.workers :])
    for one, time_ps in late.items() if job.n_packets else ():
        waiting = first[(worker == one) & (packet < job.slots)]
        delay = tasks.wait(np.zeros(1, np.int64), time_ps)
        tasks.order(np.repeat(delay, waiting.size), waiting)
    return tasks.build()[0]


def slow_down(
    job: PoolStreaming, loss: float, timeout_ps: int | str, seed: int, *, late_ps: Late | None = None,
    rate_factor: Slow | None = None,
) -> float:
    """Time with loss over time without, late and slow workers in both; 1 where nothing is sent."""
    clean = run(streaming_program(job, late_ps=late_ps, rate_factor=rate_factor)).makespan_ps
    lossy = run(lossy_program(job, loss, timeout_ps, seed, late_ps=late_ps, rate_factor=rate_factor)).makespan_ps
    return lossy / clean if clean else 1.0


def _lost(job: PoolStreaming, loss: float, seed: int, direction: int) -> npt.NDArray[np.bool_]:
    """Whether each packet of each worker is lost, (packets, workers)."""
    if not (isinstance(loss, Real) and 0 <= loss <= 1):
        raise WeftError(f"loss of {loss!r} is out of range: a number from 0 to 1")
    packet, worker = packets_of(job.n_packets, job.workers)
    drawn = hash64(whole(seed, "seed"), worker, packet, direction) >> np.uint64(11)
    return np.asarray(drawn.astype(np.float64) / 2.0**53 < loss).reshape(job.n_packets, job.workers)


def _late(job: PoolStreaming, late_ps: Late | None) -> dict[int, int]:
    late = _by_worker(late_ps or {}, "late_ps")
    return {_worker(job, one): picoseconds(by, f"lateness of worker {one}:") for one, by in late.items()}


def _rates(job: PoolStreaming, rate_factor: Slow | None) -> list[Fraction]:
    """Bandwidth of each worker's links."""
    rates = [Fraction(job.bandwidth_Bps)] * job.workers
    for one, factor in _by_worker(rate_factor or {}, "rate_factor").items():
        try:
            share = Fraction(factor)
        except (TypeError, ValueError, ArithmeticError):
            share = Fraction(0)
        if not 0 < share <= 1:
            raise WeftError(f"worker {one} at a rate of {factor}: give a share above 0 and at most 1")
        rates[_worker(job, one)] *= share
    return rates


def _by_worker(given: Mapping[int, T], what: str) -> Mapping[int, T]:
    if not isinstance(given, Mapping):
        raise WeftError(f"{what} {given!r} is not a mapping: give {{worker: value}}")
    return given


def _worker(job: PoolStreaming, worker: int) -> int:
    return whole(worker, "worker", 0, job.workers - 1)
