"""The greedy search of `tacos` in Python, event by event, and its transfers one by one."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from collectives.core.sends import SendList
from collectives.synthesis import Lane


class Match(NamedTuple):
    """A block on a lane, with start and end time."""

    lane: int
    block: int
    start_ps: int
    end_ps: int


def search(
    n: int, n_blocks: int, ends: Sequence[tuple[int, int]], costs: Sequence[int], rng: np.random.Generator
) -> list[Match]:
    """All matches by start; where an NPU cannot be reached, not all blocks are there."""
    holds = np.zeros((n, n_blocks), np.bool_)
    holds[np.arange(n_blocks) % n, np.arange(n_blocks)] = True
    lacks = ~holds  # neither present nor in flight
    holders = np.ones(n_blocks)
    free = [True] * len(ends)
    matches: list[Match] = []
    arrivals: list[tuple[int, int, int]] = []
    now, ready = 0, list(range(len(ends)))
    while True:
        drawn = zip(ready, rng.random(len(ready)).tolist(), strict=True)
        able = [(costs[lane], draw, lane) for lane, draw in drawn
                if free[lane] and np.any(holds[ends[lane][0]] & lacks[ends[lane][1]])]
        for _, _, lane in sorted(able):
            src, dst = ends[lane]
            (wanted,) = (holds[src] & lacks[dst]).nonzero()
            if not wanted.size:
                continue
            block = int(wanted[(holders[wanted] + rng.random(wanted.size)).argmin()])
            lacks[dst, block], free[lane] = False, False
            holders[block] += 1
            matches.append(Match(lane, block, now, now + costs[lane]))
            heapq.heappush(arrivals, (now + costs[lane], lane, block))
        if not arrivals:
            return matches
        now, ready = arrivals[0][0], []
        while arrivals and arrivals[0][0] == now:
            _, lane, block = heapq.heappop(arrivals)
            dst = ends[lane][1]
            holds[dst, block], free[lane] = True, True
            ready += [lane, *(one for one, (src, _) in enumerate(ends) if src == dst)]
        ready = list(dict.fromkeys(ready))


def add_down(sends: SendList, lanes: list[Lane], matches: list[Match], roots: dict[int, list[int]]) -> None:
    """Transfers in order: each waits for its block, and for the previous transfer on its lane."""
    brings: dict[tuple[int, int], int] = {}
    last: dict[int, int] = {}
    for match in sorted(matches, key=lambda one: (one.start_ps, one.lane)):
        lane = lanes[match.lane]
        held = brings.get((lane.src, match.block))
        after = {one for one in (held, last.get(match.lane)) if one is not None}
        after |= set(roots.get(match.block, ())) if held is None else set()
        number = sends.add(lane.src, lane.dst, [match.block], after=sorted(after), links=lane.links)
        brings[lane.dst, match.block] = last[match.lane] = number


def add_up(sends: SendList, lanes: list[Lane], matches: list[Match], n: int) -> dict[int, list[int]]:
    """The same in reverse, with receivers adding; returns the transfers that bring each block to its root."""
    into: dict[tuple[int, int], list[int]] = {}
    last: dict[int, int] = {}
    for match in sorted(matches, key=lambda one: (-one.end_ps, one.lane)):
        lane = lanes[match.lane]
        after = set(into.get((lane.src, match.block), ())) | ({last[match.lane]} if match.lane in last else set())
        number = sends.add(lane.src, lane.dst, [match.block], after=sorted(after), links=lane.links, reduces=True)
        into.setdefault((lane.dst, match.block), []).append(number)
        last[match.lane] = number
    return {block: numbers for (rank, block), numbers in into.items() if rank == block % n}
