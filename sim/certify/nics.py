"""When each chunk is pushed into the queue of its NIC: the NICs of a run replayed, on what its log says of all else.

From the log are when chunks are released, by what was delivered, and when services of the NICs end. Post, engine and
push then follow from the contract alone; whether the servers serve what is pushed in order is for the other checks.
"""

from collections import defaultdict
from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from sim.program.contract import I64, NEVER_PS, Program

ENDS, ASKS, PUSHED, LOOK = range(4)
Want = tuple[int, int, int, int]
"""A chunk that waits: since when, class, chunk, task. The least is next."""


class Pushes(NamedTuple):
    """When each chunk that a NIC takes is pushed, NEVER_PS if never, and when the last one of each task has been."""

    chunk_ps: I64
    task_ps: I64


class _Nic:
    """A NIC and the NPU that posts: what waits in each stage."""

    def __init__(self, engines: int, room: int) -> None:
        self.idle, self.room, self.may_post_ps, self.last_port = engines, room, 0, -1
        self.unposted: list[Want] = []
        self.posted: list[Want] = []
        self.pushing: list[Want] = []
        self.holder: dict[int, int] = {}
        self.stopped: list[int] = []  # transfers that have pushed a chunk in this picosecond
        self.left: defaultdict[int, int] = defaultdict(int)  # transfers of each port that are not pushed in full

    def free_engines(self, flow: list[int]) -> None:
        going_on = {want[3] for want in self.pushing}
        for task in self.stopped:
            if task not in going_on:
                del self.holder[flow[task]]
                self.idle += 1
        self.stopped = []

    def post(self, now: int, post_ps: int, in_turn: int, port: list[int]) -> None:
        """Post what may be posted by now, the least first."""
        while self.unposted and self.may_post_ps <= now:
            aside = []
            while self.unposted and self._is_left_out(port[self.unposted[0][3]], in_turn):
                aside.append(heappop(self.unposted))
            chosen = heappop(self.unposted) if self.unposted else None
            for want in aside:
                heappush(self.unposted, want)
            if chosen is None:
                return
            self.last_port, self.may_post_ps = port[chosen[3]], now + post_ps
            heappush(self.posted, (now, *chosen[1:]))

    def _is_left_out(self, port: int, in_turn: int) -> bool:
        if not in_turn or port != self.last_port:
            return False
        first = port - port % in_turn
        return any(self.left[other] for other in range(first, first + in_turn) if other != port)

    def give_engines(self, now: int, flow: list[int]) -> None:
        """Posted transfers take engines, unless their flow has one."""
        waiting = []
        while self.posted and self.idle:
            want = heappop(self.posted)
            if flow[want[3]] in self.holder:
                waiting.append(want)
                continue
            self.idle -= 1
            self.holder[flow[want[3]]] = want[3]
            heappush(self.pushing, (now, *want[1:]))
        for want in waiting:
            heappush(self.posted, want)

    def push(self) -> Iterator[Want]:
        while self.pushing and self.room > 0:
            yield heappop(self.pushing)


def replay(
    program: Program, task: I64, chunk: I64, size: I64, release: I64, end: I64, nic: npt.NDArray[np.integer]
) -> Pushes:
    """Replay NICs; the rows are the chunks that they take, in the order of task and chunk.

    `release`: when each is released, but for tasks that it waits for until they are pushed; `end`: of its service.
    """
    rows, n_tasks = task.size, program.n_tasks
    first = np.searchsorted(task, np.arange(n_tasks + 1)).tolist()
    flow, port, kind = program.task_flow.tolist(), program.task_port.tolist(), program.task_class.tolist()
    released, work, lasts = release.tolist(), program.chunk_work[size].tolist(), program.push_ps[size].tolist()
    of_task = np.full(n_tasks, -1)
    of_task[task] = nic
    home = of_task.tolist()
    nics = [_Nic(int(engines), program.nic_queue) for engines in program.nic_engines]
    waits, children, next_row = program.pushed_waits.tolist(), defaultdict(list), list(first)
    for parent, child in zip(*(edge.tolist() for edge in program.pushed_edges()), strict=True):
        children[parent].append(child)
    sent = [one for one in range(n_tasks) if home[one] >= 0]
    for one in sent:
        nics[home[one]].left[port[one]] += 1
    pushed, done = np.full(rows, NEVER_PS), np.full(n_tasks, NEVER_PS)
    events = [(int(ps), ENDS, row) for row, ps in enumerate(end)]
    events += [(released[first[one]], ASKS, one) for one in sent if not waits[one]]
    heapify(events)

    def ask_for(one: int, now: int) -> None:
        heappush(events, (max(released[next_row[one]], now), ASKS, one))

    touched: set[int] = set()
    while events:
        now, what, which = heappop(events)
        where = which if what == LOOK else int(nic[which]) if what == ENDS else home[which]
        touched.add(where)
        here = nics[where]
        if what == ENDS:
            here.room += work[which]
        elif what == ASKS:
            want = (now, kind[which], next_row[which] - first[which], which)
            heappush(here.pushing if here.holder.get(flow[which]) == which else here.unposted, want)
        elif what == PUSHED:
            here.stopped.append(which)
            next_row[which] += 1
            if next_row[which] < first[which + 1]:
                ask_for(which, now)
            else:
                here.left[port[which]] -= 1
                done[which] = now
                for child in children[which]:
                    waits[child] -= 1
                    if not waits[child] and home[child] >= 0:
                        ask_for(child, now)
        if events and events[0][0] == now:
            continue
        for where in touched:
            here = nics[where]
            here.free_engines(flow)
            here.post(now, program.post_ps, program.ports_in_turn, port)
            if here.unposted and here.may_post_ps > now:
                heappush(events, (here.may_post_ps, LOOK, where))
            here.give_engines(now, flow)
            for _, _, number, one in here.push():
                row = first[one] + number
                pushed[row], here.room = now, here.room - work[row]
                heappush(events, (now + lasts[row], PUSHED, one))
        touched.clear()
    return Pushes(pushed, done)
