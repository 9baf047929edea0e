"""Pool streaming through one switch, event by event on a heap: no program, no engine, only packets."""

from __future__ import annotations

import heapq
from collections.abc import Mapping

import numpy as np


def makespan_ps(
    wire_ps: int | np.ndarray, latency_ps: int, switch_ps: int, slots: int, lost_up: np.ndarray, lost_down: np.ndarray,
    timeout_ps: int, forgets: bool = False, late_ps: Mapping[int, int] | None = None,
) -> int:
    """When the last worker has the last result; `lost_*` and, if not one number, `wire_ps` are (packets, workers).

    A switch that `forgets` drops a duplicate that comes before the sum is complete, as SwitchML does, and the worker
    asks again after another timeout; one that does not answers it when the sum is complete.
    """
    packets, workers = lost_up.shape
    wire = np.broadcast_to(wire_ps, lost_up.shape).tolist()
    late = late_ps or {}
    up_free, down_free = [0] * workers, [0] * workers
    missing = [workers] * packets
    done: dict[int, int] = {}
    waiting: dict[tuple[int, int], bool] = {}
    events: list[tuple[int, int, int, str]] = [(late.get(worker, 0), packet, worker, "send")
                                              for packet in range(min(slots, packets)) for worker in range(workers)]
    heapq.heapify(events)
    last = 0

    def put(time: int, packet: int, worker: int, what: str) -> None:
        heapq.heappush(events, (time, packet, worker, what))

    while events:
        now, packet, worker, what = heapq.heappop(events)
        if what in ("send", "resend", "resend for the result"):
            left = up_free[worker] = max(now, up_free[worker]) + wire[packet][worker]
            if what == "send" and lost_up[packet, worker]:
                put(left + timeout_ps, packet, worker, "resend")
                continue
            put(left + latency_ps + switch_ps, packet, worker, "add" if what != "resend for the result" else "answer")
            if what != "resend for the result" and lost_down[packet, worker]:
                put(left + timeout_ps, packet, worker, "resend for the result")
        elif what == "add":
            missing[packet] -= 1
            if missing[packet] == 0:
                done[packet] = now
                for one in range(workers):
                    put(now, packet, one, "lost result" if lost_down[packet, one] else "result")
                    if waiting.pop((packet, one), False):
                        put(now, packet, one, "result")
        elif what == "answer":
            if packet in done:
                put(now, packet, worker, "result")
            elif forgets:
                put(now - latency_ps - switch_ps + timeout_ps, packet, worker, "resend for the result")
            else:
                waiting[packet, worker] = True
        elif what in ("result", "lost result"):
            left = down_free[worker] = max(now, down_free[worker]) + wire[packet][worker]
            if what == "result":
                put(left + latency_ps, packet, worker, "received")
        else:
            last = max(last, now)
            if packet + slots < packets:
                put(now, packet + slots, worker, "send")
    return last
