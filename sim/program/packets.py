"""Programs in which every packet is a task: for what happens to one packet and not to the next.

Tasks are added a kind at a time, one for each entry of an array of packet numbers. Where two packets reach a link in
the same picosecond, the lower number goes first, then the kind that was added first.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction

import numpy as np

from sim.program import FIFO, I64, WHOLE, Columns, Cutting, Program, assemble
from topologies import WeftError

TIMER_RATE = Fraction(10**12)
"""Work a second of servers that only pass time: work in ps."""

MOST_PACKETS = 2**24
"""Of all workers together: a program of about 3 GB."""


def packets_of(n_packets: int, workers: int) -> tuple[I64, I64]:
    """Number and worker of every packet, in the order of the numbers.

    Raises
    ------
    WeftError
        More than `MOST_PACKETS`.
    """
    if n_packets * workers > MOST_PACKETS:
        raise WeftError(
            f"{n_packets} packets of {workers} workers are too many to follow one by one: {MOST_PACKETS} at most; "
            f"give a smaller array or larger packets"
        )
    packet, worker = np.indices((n_packets, workers))
    return packet.ravel(), worker.ravel()


class PacketTasks:
    """Tasks of an array that is cut into packets.

    Parameters
    ----------
    size_bytes : int
        Of the array; its last packet may be shorter.
    payload_bytes, header_bytes : int
        Of a packet.
    """

    def __init__(self, size_bytes: int, payload_bytes: int, header_bytes: int) -> None:
        self._sizes = (size_bytes, payload_bytes, header_bytes)
        self._rates: list[Fraction] = []
        self._kinds: list[tuple[I64, I64, I64, I64, I64]] = []  # packet, tie, work, server (-1 none), latency
        self._edges: list[tuple[I64, I64]] = []
        self._count = 0

    def links(self, rates: Sequence[Fraction]) -> I64:
        """Add links of these rates; returns their numbers."""
        self._rates += rates
        return np.arange(len(self._rates) - len(rates), len(self._rates), dtype=np.int64)

    def send(
        self, packet: I64, link: I64 | int, latency_ps: int, *, after: Iterable[I64] = (), tie: I64 | int = 0
    ) -> I64:
        """Send packets, each over its link; returns the numbers of the tasks. `after` is waited for, entry by entry."""
        size_bytes, payload, header = self._sizes
        work = np.minimum(payload, size_bytes - packet * payload) + header
        return self._add(packet, tie, work, link, latency_ps, after)

    def wait(self, packet: I64, time_ps: int, *, after: Iterable[I64] = ()) -> I64:
        """Let time pass for each packet by itself."""
        if time_ps == 0:
            return self.join(packet, after=after)
        timers = self.links([TIMER_RATE] * packet.size)  # a service takes 1 ps at least: the rest is latency
        return self._add(packet, 0, 0, timers, time_ps - 1, after)

    def join(self, packet: I64, *, after: Iterable[I64] = ()) -> I64:
        """A task that takes no time, for others to wait for."""
        return self._add(packet, 0, 0, -1, 0, after)

    def order(self, parent: I64, child: I64) -> None:
        """Let each child wait for its parent."""
        self._edges.append((parent.copy(), child.copy()))  # who gave them may write on in them

    def build(self) -> tuple[Program, I64]:
        """The program, and the number in it of every task; there must be one kind at least."""
        packet, tie, work, server, latency = (np.concatenate(column) for column in zip(*self._kinds, strict=True))
        kind = np.repeat(np.arange(len(self._kinds)), [one[0].size for one in self._kinds])
        place = np.lexsort((tie, kind, packet))
        number = np.empty(place.size, np.int64)
        number[place] = np.arange(place.size)
        none = np.zeros(0, np.int64)
        parent, child = (np.concatenate([none, *(edge[side] for edge in self._edges)]) for side in (0, 1))
        latencies, column = np.unique(latency, return_inverse=True)
        routes, route = np.unique((server + 1) * latencies.size + column, return_inverse=True)
        over, hop = np.divmod(routes, latencies.size)
        rates = sorted(set(self._rates))
        row_of = {rate: row for row, rate in enumerate(rates)}
        columns = Columns(
            rates=rates,
            server_rate=np.array([row_of[rate] for rate in self._rates], np.int32),
            server_discipline=np.full(len(self._rates), FIFO, np.int8),
            route_ptr=np.concatenate(([0], np.cumsum(over > 0))).astype(np.int32),
            route_server=(over[over > 0] - 1).astype(np.int32),
            route_latency_ps=latencies[hop[over > 0]],
            task_work=work[place],
            task_cutting=None,
            task_route=route[place].astype(np.int32),
            task_class=tie[place].astype(np.int32),
            task_priority=np.zeros(place.size, np.int32),
            edge_parent=number[parent].astype(np.int32),
            edge_child=number[child].astype(np.int32),
            edge_lag=np.full(parent.size, WHOLE, np.int32),
        )
        return assemble(columns, [Cutting()], "store-and-forward"), number

    def _add(
        self, packet: I64, tie: I64 | int, work: I64 | int, server: I64 | int, latency_ps: int, after: Iterable[I64]
    ) -> I64:
        filled = [np.broadcast_to(np.asarray(one, np.int64), packet.shape) for one in (tie, work, server, latency_ps)]
        self._kinds.append((packet.astype(np.int64), filled[0], filled[1], filled[2], filled[3]))
        numbers = self._count + np.arange(packet.size, dtype=np.int64)
        self._count += packet.size
        for parent in after:
            self.order(parent, numbers)
        return numbers
