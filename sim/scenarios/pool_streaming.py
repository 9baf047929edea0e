"""Pool streaming through one aggregating switch, packet by packet, with late and slow workers and lost packets.

A worker sends packet i + s when it has the result of packet i; the switch adds the packets of one number in a slot
and sends the sum to all. That is the in-network all-reduce with s slots. Late and slow workers and loss are a fault
plan, in which NPUs retransmit what was lost (`sim.faults.retry`); they can be combined freely.

Workers that are neither late nor slow do the same at the same time: unless packets are lost, one represents all that
are alike. A switch that aggregates has at least two workers, so a single representative gets an identical twin.

An array of no bytes has no packets and takes no time.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache, partial
from typing import Annotated, TypeAlias

import numpy as np

from collectives import Schedule, in_network
from sim.analytic.closed_form import turns_ps
from sim.faults.plan import Fault, FaultPlan, Loss, SlowLink, Straggler
from sim.faults.retry import NPU, check_packets
from sim.how import AS_USUAL, How
from sim.program import I64, service_time_ps
from sim.program.cutting import MOST_WORK
from sim.simulation import simulate
from topologies import Topology, WeftError, switch
from topologies.checks import UNCHECKED, Count, Integer, Natural, Number, Reads, checked, integer
from topologies.units import MOST_PS, from_bytes_per_s, parse_bandwidth, parse_size, parse_time

MOST_APART = 2**12
"""Workers that lose packets, or are late or slow individually: the sum waits for each of them."""

Late: TypeAlias = Mapping[int, int | str]
"""By worker: picoseconds, or text with a unit."""

Slow: TypeAlias = Mapping[int, Annotated[Fraction | float, UNCHECKED]]
"""By worker: share of the bandwidth that its links have, above 0 and at most 1."""


def picoseconds(value: int | str, what: str) -> int:
    """A time in integer picoseconds: as it is, or from text with a unit."""
    return parse_time(value, what) if isinstance(value, str) else integer(value, what, 0, MOST_PS)


def _bytes(value: int | str, what: str, least: int = 0) -> int:
    return integer(parse_size(value, what) if isinstance(value, str) else value, what, least, MOST_WORK - 1)


def _rate(value: float | str, what: str) -> float:
    return parse_bandwidth(value, what) if isinstance(value, str) else from_bytes_per_s(value, what)


Bytes = Annotated[int, Reads(_bytes)]
Time = Annotated[int, Reads(picoseconds)]
"""Fields that take an integer in the unit of their name, or text with a unit."""


@checked
@dataclass(frozen=True, kw_only=True)
class PoolStreaming:
    """One job on one switch; the defaults are those of a published table (reference: 100 Gb/s, 2 us, 0.8 us).

    Attributes
    ----------
    size_bytes : int, or text such as "1MiB"
    slots : int
        Packets that each worker may have in flight.
    workers : int
    payload_bytes, header_bytes : int, or text
    bandwidth_Bps : float, or text such as "100Gb/s"
    latency_ps : int, or text such as "2us"
        One-way latency between a worker and the switch.
    switch_latency_ps : int, or text

    Raises
    ------
    WeftError
        Not an integer, text without a unit, no slot, worker or byte in a packet, or no bandwidth.
    """

    size_bytes: Bytes
    slots: Count
    workers: Annotated[int, Integer(1, 2**16)] = 8
    payload_bytes: Annotated[int, Reads(partial(_bytes, least=1))] = 1024
    header_bytes: Bytes = 66
    bandwidth_Bps: Annotated[float, Reads(_rate)] = 12_500_000_000
    latency_ps: Time = 2_000_000
    switch_latency_ps: Time = 800_000

    @property
    def n_packets(self) -> int:
        """Packets of each worker."""
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
        """From the start of a full packet to its result, without queueing."""
        return 2 * (self.latency_ps + self.wire_ps) + self.switch_latency_ps

    @property
    def slots_needed(self) -> int:
        """Slots that keep the links busy: the packets of one round trip."""
        return -(-self.round_trip_ps // self.wire_ps)

    def packet_bytes(self, packet: I64) -> I64:
        """Bytes of packets on a link: the last one may be shorter."""
        bytes_: I64 = np.minimum(self.payload_bytes, self.size_bytes - packet * self.payload_bytes) + self.header_bytes
        return bytes_

    def schedule(self, workers: int | None = None) -> Schedule:
        """The in-network all-reduce of this job, or of as many workers (two at least), on a switch of its links."""
        npus = max(2, self.workers if workers is None else workers)
        if npus > MOST_APART:
            raise WeftError(f"{npus} workers that all behave differently: at most {MOST_APART} are simulated")
        fabric = _star(npus, self.bandwidth_Bps, self.latency_ps, self.switch_latency_ps)
        return in_network.all_reduce(fabric, self.size_bytes, slots=self.slots, element_bytes=1)

    def closed_form_ps(self) -> int:
        """Exact time of full packets, no worker late or slow and nothing lost; see `sim.analytic.streaming_form`."""
        if self.n_packets == 0:
            return 0
        return self.round_trip_ps + turns_ps(self.n_packets - 1, self.slots, self.round_trip_ps, self.wire_ps)

    def published_form_ps(self) -> float:
        """RTT + (N - 1) max(wire, RTT / s): the same to one round trip, as it divides turns of the window."""
        if self.n_packets == 0:
            return 0.0
        return self.round_trip_ps + (self.n_packets - 1) * max(self.wire_ps, self.round_trip_ps / self.slots)


@checked
def time_ps(
    job: PoolStreaming, *, late_ps: Late | None = None, rate_factor: Slow | None = None,
    loss: Annotated[float, Number(0, 1)] = 0.0, timeout_ps: int | str | None = None, seed: Natural = 0,
    engine: str = "chunk", how: How = AS_USUAL,
) -> int:
    """When the last worker has the last result.

    Parameters
    ----------
    job : PoolStreaming
    late_ps : mapping from worker to ps, or to text such as "5ms"
        Workers that begin later.
    rate_factor : mapping from worker to factor
        Workers whose links are slower, in both directions.
    loss : float
        Probability of every packet on each link and direction.
    timeout_ps : int, or text such as "1ms"
        Counted from when a packet has left its worker; longer than the round trip of the slowest worker. Required if
        packets are lost.
    seed : int
    engine : {"chunk", "reference"}
    how : How

    Raises
    ------
    WeftError
        No such worker, a time, factor or probability out of range, or a timeout that ends before a result can arrive.
    """
    late, slow = _late(job, late_ps), _slow(job, rate_factor)
    lossy = timeout_ps is not None
    each = [(late.get(worker, 0), slow.get(worker, "1")) for worker in range(job.workers)]
    if not lossy:
        each = list(dict.fromkeys(each))
    faults: list[Fault] = []
    for npu, (delay_ps, share) in enumerate(each):
        faults += [Straggler(npu=f"npu{npu}", delay=f"{delay_ps}ps")] if delay_ps else []
        faults += [SlowLink(link=f"npu{npu}--switch0", share=share)] if share != "1" else []
        faults += [Loss(link=f"npu{npu}--switch0", probability=float(loss))] if lossy else []
    timeout = {} if timeout_ps is None else {"timeout": f"{picoseconds(timeout_ps, 'timeout_ps')}ps", "retry": NPU}
    plan = FaultPlan(faults=tuple(faults), seed=seed, **timeout)
    if job.n_packets == 0:
        return 0
    if lossy:
        check_packets(job.n_packets, job.workers)
    return simulate(
        job.schedule(len(each)), chunk=job.payload_bytes, packet_header=job.header_bytes,
        forwarding="store-and-forward", faults=plan if faults else None, engine=engine,
        **how.arguments(),
    ).time_ps


def slow_down(job: PoolStreaming, loss: float, timeout_ps: int | str, seed: int) -> float:
    """Time with loss divided by time without; 1 if nothing is sent."""
    clean = time_ps(job)
    return time_ps(job, loss=loss, timeout_ps=timeout_ps, seed=seed) / clean if clean else 1.0


@lru_cache(maxsize=64)
def _star(npus: int, bandwidth_Bps: float, latency_ps: int, switch_latency_ps: int) -> Topology:
    return switch(
        npus, bandwidth=f"{bandwidth_Bps!r}B/s", latency=f"{latency_ps}ps", hop_latency=f"{switch_latency_ps}ps"
    )


def _late(job: PoolStreaming, late_ps: Late | None) -> dict[int, int]:
    return {_worker(job, one): picoseconds(by, f"lateness of worker {one}") for one, by in (late_ps or {}).items()}


def _slow(job: PoolStreaming, rate_factor: Slow | None) -> dict[int, str]:
    """Share of its links' bandwidth that each slow worker has, as an exact fraction."""
    shares = {}
    for one, factor in (rate_factor or {}).items():
        try:
            share = Fraction(factor)
        except (TypeError, ValueError, ArithmeticError):
            share = Fraction(0)
        if not 0 < share <= 1:
            raise WeftError(f"worker {one} at a rate of {factor}: give a share above 0 and at most 1")
        shares[_worker(job, one)] = str(share)
    return shares


def _worker(job: PoolStreaming, worker: int) -> int:
    return integer(worker, "worker", 0, job.workers - 1)
