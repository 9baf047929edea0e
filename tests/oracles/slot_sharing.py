"""Jobs that share slots, event by event on a heap: no program, no engine, no arrays."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence


def shared_ps(wire_ps: Sequence[int], jobs: int, window: int, slots: int, latency_ps: int, switch_ps: int) -> list[int]:
    """Finish of each job; a packet takes a slot before it is sent, in the order of asking, until its result is in.

    Workers of a job do all the same at the same time: one stands for them. Asking at one time, lower packets go first.
    """
    packets, free, ends = len(wire_ps), slots, [0] * jobs
    up, down = [0] * jobs, [0] * jobs
    asked = [(0, packet, job) for packet in range(min(window, packets)) for job in range(jobs)]
    heapq.heapify(asked)
    results: list[tuple[int, int, int]] = []
    now = 0
    while asked or results:
        while results and results[0][0] == now:
            _, packet, job = heapq.heappop(results)
            ends[job], free = now, free + 1
            if packet + window < packets:
                heapq.heappush(asked, (now, packet + window, job))
        while asked and free:
            _, packet, job = heapq.heappop(asked)
            free -= 1
            up[job] = max(now, up[job]) + wire_ps[packet]
            down[job] = max(up[job] + latency_ps + switch_ps, down[job]) + wire_ps[packet]
            heapq.heappush(results, (down[job] + latency_ps, packet, job))
        now = results[0][0] if results else now
    return ends


def hashed_ps(
    wire_ps: Sequence[int], collides: Callable[[int], bool], workers: int, window: int, latency_ps: int, switch_ps: int
) -> int:
    """Finish of one job with its server: a packet that collides takes a place on the server's link for each worker."""
    packets, last = len(wire_ps), 0
    free: dict[tuple[str, int], int] = {}
    here, there = [0] * packets, [0] * packets
    order = ("sent", "at the switch", "sum", "single", "at the server", "back", "received")
    events = [(0, packet, 0, worker) for packet in range(min(window, packets)) for worker in range(workers)]
    heapq.heapify(events)

    def cross(link: str, who: int, now: int, packet: int, then: str, worker: int, more_ps: int = 0) -> None:
        free[link, who] = max(now, free.get((link, who), 0)) + wire_ps[packet]
        heapq.heappush(events, (free[link, who] + latency_ps + more_ps, packet, order.index(then), worker))

    while events:
        now, packet, kind, worker = heapq.heappop(events)
        what = order[kind]
        if what == "sent":
            cross("up", worker, now, packet, "at the switch", worker, switch_ps)
        elif what == "at the switch":
            here[packet] += 1
            if collides(packet):
                heapq.heappush(events, (now, packet, order.index("single"), worker))
            elif here[packet] == workers:
                heapq.heappush(events, (now, packet, order.index("sum"), 0))
        elif what in ("sum", "single"):
            cross("into", 0, now, packet, "at the server", worker)
        elif what == "at the server":
            there[packet] += 1
            if there[packet] == (workers if collides(packet) else 1):
                cross("out of", 0, now, packet, "back", 0, switch_ps)
        elif what == "back":
            for one in range(workers):
                cross("down", one, now, packet, "received", one)
        else:
            last = max(last, now)
            if packet + window < packets:
                heapq.heappush(events, (now, packet + window, 0, worker))
    return last


def collides(slot: Sequence[Sequence[int]], job: int, packet: int, window: int) -> bool:
    """Whether a packet's slot is that of another on the way, `slot` being (jobs, packets)."""
    for other in range(len(slot)):
        for one in range(max(0, packet - window + 1), packet + 1):
            if (other, one) != (job, packet) and slot[other][one] == slot[job][packet]:
                return True
    return False


def collision_probability(jobs: int, window: int, slots: int) -> float:
    """Share of packets that find their slot taken where jobs hash into one pool: 1 - exp(-(J - 1) w / A)."""
    return -math.expm1(-(jobs - 1) * window / slots)
