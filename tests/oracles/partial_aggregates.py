"""Leaves with a timeout for a late worker, event by event on a heap: no program, no engine, only packets."""

from __future__ import annotations

import heapq
from collections.abc import Sequence


def late_worker(
    wire_ps: Sequence[int], workers: int, leaves: int, slots: int, latency_ps: int, switch_ps: int, late_ps: int,
    timeout_ps: int | None,
) -> tuple[int, int, int, list[int]]:
    """Time, packets from leaf 0 to the root, partial sums among them, and how long leaf 0 held each packet's slot.

    `wire_ps` is by packet. Worker 0, on leaf 0, begins late. Where two packets meet, the lower number goes first, and a
    sum before what came too late for it.
    """
    packets, per_leaf = len(wire_ps), workers // leaves
    free: dict[tuple[str, int], int] = {}
    here = [[0] * packets for _ in range(leaves)]  # packets in a slot of each leaf
    opened: dict[int, int] = {}
    partial: set[int] = set()
    closed: dict[int, int] = {}
    count = [0] * packets
    last = sent_up = 0
    order = ("send", "at the leaf", "deadline", "sum up", "single up", "at the root", "down", "at the leaf again",
             "received")
    events: list[tuple[int, int, int, int, int]] = []

    def put(time: int, packet: int, what: str, who: int, weight: int = 0) -> None:
        heapq.heappush(events, (time, packet, order.index(what), who, weight))

    def cross(link: str, who: int, now: int, packet: int) -> tuple[int, int]:
        start = max(now, free.get((link, who), 0))
        free[link, who] = start + wire_ps[packet]
        return start, start + wire_ps[packet] + latency_ps

    for packet in range(min(slots, packets)):
        for worker in range(workers):
            put(late_ps if worker == 0 else 0, packet, "send", worker)
    while events:
        now, packet, kind, who, weight = heapq.heappop(events)
        what = order[kind]
        if what == "send":
            put(cross("up", who, now, packet)[1] + switch_ps, packet, "at the leaf", who)
        elif what == "at the leaf":
            leaf = who // per_leaf
            if leaf == 0 and packet in partial:
                put(now, packet, "single up", leaf, 1)
                continue
            here[leaf][packet] += 1
            if leaf == 0 and packet not in opened:
                opened[packet] = now
                if timeout_ps is not None:
                    put(now + timeout_ps, packet, "deadline", leaf)
            if here[leaf][packet] == per_leaf:
                put(now, packet, "sum up", leaf, per_leaf)
        elif what == "deadline":
            if here[0][packet] < per_leaf:
                partial.add(packet)
                put(now, packet, "sum up", 0, here[0][packet])
        elif what in ("sum up", "single up"):
            start, there = cross("leaf up", who, now, packet)
            put(there + switch_ps, packet, "at the root", who, weight)
            if who == 0:
                sent_up += 1
                if what == "sum up":
                    closed[packet] = start
        elif what == "at the root":
            count[packet] += weight
            if count[packet] == workers:
                for leaf in range(leaves):
                    put(now, packet, "down", leaf)
        elif what == "down":
            there = cross("leaf down", who, now, packet)[1] + switch_ps
            for worker in range(who * per_leaf, (who + 1) * per_leaf):
                put(there, packet, "at the leaf again", worker)
        elif what == "at the leaf again":
            put(cross("down", who, now, packet)[1], packet, "received", who)
        else:
            last = max(last, now)
            if packet + slots < packets:
                put(now, packet + slots, "send", who)
    return last, sent_up, len(partial), [closed[packet] - opened[packet] for packet in range(packets)]
