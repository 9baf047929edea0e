"""What lowering must come to: the tasks of a job, NPU by NPU and transfer by transfer, in plain loops.

A task is known by its operation, its rank and what it is, so that neither order nor numbers of tasks matter. It shares
with `sim.lower` the transfers, the routes and the exact service time, and nothing of how it puts them together.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from collectives.core.pattern import Pattern
from collectives.core.routes import paths_of
from collectives.core.transfers import Transfers
from sim.lower.lowered import Lowered
from sim.lower.messages import Messages
from sim.lower.progress import waiting_of
from sim.lower.quotient import Orbits
from sim.program import PER_TASK, PRIORITY, WHOLE, Cutting, service_time_ps
from sim.program.model import Model
from topologies.units import PS_PER_S
from workloads.job import CLOCK, Communicate, Compute, Job, Operation, Reconfigure, Send

BEGIN, END = "begin", "end"

Key = tuple[int, int, Hashable, int]
"""Operation, rank, BEGIN or END or slot, and half (-1: all of it)."""

Pooled = tuple[int, str] | None
"""NPU and name of a pool."""


class Task(NamedTuple):
    size_bytes: int
    cut: tuple[int, int, int, int]
    hops: tuple[tuple[Hashable, int, int, int], ...]  # server, service of first and of last chunk, latency
    waits: tuple[tuple[Key, int], ...]
    tie: Any  # compared between tasks that cross a server
    priority: Any  # compared between tasks of one server, or one pool
    asks: Pooled = None
    gives: Pooled = None


Tasks = dict[Key, Task]


class Plain:
    """The tasks of a job without symmetry.

    `joins`: whether a schedule alone has those of an operation.
    """

    def __init__(self, job: Job, model: Model, joins: bool = True) -> None:
        self.job, self.model = job, model
        self.steps, self.joins = job.alone is not None, joins or job.alone is None
        self.tasks: Tasks = {}
        self.waits: dict[Key, list[tuple[Key, int]]] = defaultdict(list)
        self.ends: list[dict[int, Key]] = []
        for number, operation in enumerate(job.operations):
            self.ends.append({})
            if isinstance(operation.work, Compute):
                self._compute(number, operation, operation.work)
            elif isinstance(operation.work, Reconfigure):
                self._change(number, operation, operation.work)
            else:
                self._communicate(number, operation)
        self._circuits()
        self.tasks = {key: task._replace(waits=tuple(sorted(self.waits[key], key=repr)))
                      for key, task in self.tasks.items()}

    def _add(
        self, key: Key, work: int, cutting: Cutting, hops: list[tuple[Hashable, Fraction, int]], **more: Any
    ) -> Key:
        cut = cutting.cut(work)
        least = int(self.model.forwarding == "cut-through" or self.model.deliver == "head")
        self.tasks[key] = Task(
            work if isinstance(key[2], int) else 0, cut,
            tuple((server, *(service_time_ps(size, rate) for size in cut[2:]), max(latency, least))
                  for server, rate, latency in hops), (), **more)
        return key

    def _after(self, key: Key, operation: Operation, rank: int) -> None:
        self.waits[key] += [(self.ends[one][rank], WHOLE) for one in operation.after if rank in self.ends[one]]

    def _compute(self, number: int, operation: Operation, work: Compute) -> None:
        for rank in self.job.ranks(operation).tolist():
            own = self.job.speed is not None and not work.stream.startswith(CLOCK)
            speed = Fraction(float(self.job.speed[rank])) if own and self.job.speed is not None else Fraction(1)
            key = self._add((number, rank, BEGIN, -1), work.duration_ps, Cutting(chunks=1),
                            [((rank, work.stream), speed * PS_PER_S, 0)], tie=(0, number),
                            priority=(operation.priority, 0))
            self._after(key, operation, rank)
            self.ends[number][rank] = key

    def _change(self, number: int, operation: Operation, work: Reconfigure) -> None:
        hops = [((-1, work.controller), Fraction(PS_PER_S), 1)] if work.delay_ps else []
        key = self._add((number, -1, BEGIN, -1), max(work.delay_ps - 1, 0), Cutting(chunks=1), hops, tie=(0, number),
                        priority=(0, 0))
        ranks = self.job.ranks(operation).tolist()
        waits = {self.ends[one][rank] for one in operation.after for rank in ranks if rank in self.ends[one]}
        self.waits[key] += [(one, WHOLE) for one in waits]
        self.ends[number] = dict.fromkeys(ranks, key)

    def _circuits(self) -> None:
        """What drains before a change of circuits, and what waits for it."""
        changes = [((number, -1, BEGIN, -1), one.work) for number, one in enumerate(self.job.operations)
                   if isinstance(one.work, Reconfigure)]
        came_up = {link: key for key, work in changes for link in work.up}
        for key, work in changes:
            for other, task in self.tasks.items():
                links = {server for server, *_ in task.hops}
                if links & set(work.up):
                    self.waits[other].append((key, WHOLE))
                if work.drain and links & set(work.down):
                    self.waits[key].append((other, WHOLE))
            if work.drain:
                self.waits[key] += [(one, WHOLE) for one in {came_up[link] for link in work.down if link in came_up}]

    def _communicate(self, number: int, operation: Operation) -> None:
        work, ranks = operation.work, set(self.job.ranks(operation).tolist())
        assert isinstance(work, Communicate | Send)
        emitter = work.schedule.pattern if isinstance(work, Communicate) else Messages(self.job.topology, (work,))
        n_npus = self.job.topology.n_npus
        switches = np.arange(n_npus, emitter.n_sources or n_npus)
        t = emitter.emit(np.append(np.array(sorted(ranks), np.int64), switches))
        for rank in sorted(ranks) if self.joins else ():
            begin, end = (self._add((number, rank, what, -1), 0, self.model.cutting, [], tie=0, priority=(0, 0))
                          for what in (BEGIN, END))
            self._after(begin, operation, rank)
            self.waits[end].append((begin, WHOLE))
            self.ends[number][rank] = end
        keys = self._transfers(number, operation, t, emitter)
        if self.joins:
            self._join(number, t, keys, ranks, detached=isinstance(work, Send) and work.detached)

    def _transfers(
        self, number: int, operation: Operation, t: Transfers, emitter: Pattern | Messages
    ) -> list[list[Key]]:
        """The tasks of each transfer: two halves where it is split."""
        topology, model, work = self.job.topology, self.model, operation.work
        paths = paths_of(t, topology, model.tie, model.seed if model.tie == "ecmp" else 0)
        count = Counter(paths.pair.tolist())
        keys: list[list[Key]] = [[] for _ in range(t.src.size)]
        for at, row in enumerate(paths.pair.tolist()):
            half = len(keys[row]) if count[row] == 2 else -1
            key = number, int(t.src[row]), int(t.slot[row]), half
            whole = int(t.blocks[row])
            if isinstance(work, Communicate):
                whole *= work.schedule.block_bytes
            elif isinstance(work, Send):
                whole *= work.size_bytes[int(t.slot[row])] if isinstance(work.size_bytes, tuple) else work.size_bytes
            own, laps = (0, 1) if t.rounds is None else t.rounds[row].tolist()
            links = paths.links[paths.ptr[at] : paths.ptr[at + 1]].tolist()
            latency = [int(topology.latency_ps[link] + topology.hop_latency_ps[topology.dst[link]]) for link in links]
            if links:
                latency[-1] += sum(latency) * (laps - 1) + model.endpoint_latency_ps
            place = 0
            asks: Pooled = None
            gives: Pooled = None
            if t.pool is not None and isinstance(emitter, Pattern):
                takes, returns, line = t.pool[row].tolist()
                asks, gives = (None if one < 0 else (key[1], emitter.pools[one].name) for one in (takes, returns))
                if asks is not None and (self.steps or emitter.pools[takes].discipline == "priority"):
                    place = line
            cutting = model.cutting if own == 0 else Cutting(own, None, model.header_bytes, model.packet_header_bytes)
            first = int(t.step[row]) if self.steps else operation.priority
            keys[row].append(self._add(
                key, {-1: whole, 0: whole - whole // 2, 1: whole // 2}[half], cutting,
                [(link, Fraction(topology.bandwidth_Bps[link]), one) for link, one in zip(links, latency, strict=True)],
                tie=(operation.turn, number, int(t.tie_class[row]), max(half, 0)),
                priority=(place, 0) if self.steps and asks is not None else (first, place), asks=asks, gives=gives,
            ))
        row_of = {(int(src), int(slot)): row for row, (src, slot) in enumerate(zip(t.src, t.slot, strict=True))}
        named = list(zip(t.dep_src.tolist(), t.dep_slot.tolist(), t.dep_lag.tolist(), strict=True))
        own = [named[int(t.dep_ptr[row]) : int(t.dep_ptr[row + 1])] for row in range(t.src.size)]
        steps = waiting_of(emitter, model).steps if isinstance(emitter, Pattern) else None
        for row, mine in enumerate(keys):
            waited = set(own[row])
            if t.src[row] != t.dst[row] and steps is not None and (steps == () or t.step[row] in steps):
                ports = np.flatnonzero((t.src == t.src[row]) & (t.step == t.step[row]) & (t.src != t.dst))
                waited |= {one for port in ports for one in own[port] if one[2] == WHOLE}
            for src, slot, lag in sorted(waited):
                for key in mine:
                    self.waits[key] += [(one, lag) for one in keys[row_of[src, slot]]]
        return keys

    def _join(self, number: int, t: Transfers, keys: list[list[Key]], ranks: set[int], detached: bool) -> None:
        """A transfer begins behind the join of its source where it follows none of the same source, and so on."""
        named = list(zip(t.dep_src.tolist(), t.dep_slot.tolist(), strict=True))
        waits = [set(named[int(t.dep_ptr[row]) : int(t.dep_ptr[row + 1])]) for row in range(t.src.size)]
        needed: set[tuple[int, int, int]] = set()  # source and slot of a transfer, and the rank that waits for it
        for row, waited in enumerate(waits):
            needed |= {(*one, int(t.src[row])) for one in waited if one != (int(t.src[row]), int(t.slot[row]))}
        for row, mine in enumerate(keys):
            src, dst, slot = int(t.src[row]), int(t.dst[row]), int(t.slot[row])
            for key in mine:
                if src in ranks and not any(rank == src and other != slot for rank, other in waits[row]):
                    self.waits[key].append(((number, src, BEGIN, -1), WHOLE))
                if src in ranks and (src, slot, src) not in needed and not (detached and src != dst):
                    self.waits[number, src, END, -1].append((key, WHOLE))
                if dst in ranks and dst != src and (src, slot, dst) not in needed:
                    self.waits[number, dst, END, -1].append((key, WHOLE))


def tasks_of(lowered: Lowered) -> Tasks:
    """The same of a program and its legend."""
    p = lowered.program
    names = [int(link) if link >= 0 else (int(rank), lowered.streams[stream]) for link, rank, stream in zip(
        lowered.server_link, lowered.server_rank, lowered.server_stream, strict=True)]
    keys = _keys(lowered)
    waits: dict[int, list[tuple[Key, int]]] = defaultdict(list)
    for parent, child in zip(*p.whole_edges(), strict=True):
        waits[int(child)].append((keys[parent], WHOLE))
    for parent, child, lag in zip(*p.stream_edges(), strict=True):
        waits[int(child)].append((keys[parent], int(lag)))
    ptr, found = p.route_ptr, {}
    for task, key in enumerate(keys):
        cut = int(p.task_cut[task])
        sizes = p.cut_size[cut]
        at = slice(ptr[p.task_route[task]], ptr[p.task_route[task] + 1])
        hops = tuple(
            (names[server], *(int(p.service(size, p.server_rate[server])) for size in sizes), int(latency))
            for server, latency in zip(p.route_server[at], p.route_latency_ps[at], strict=True)
        )
        found[key] = Task(
            int(lowered.task_bytes[task]),
            (int(p.cut_chunks[cut]), int(p.cut_first[cut]), *(int(size) for size in p.chunk_work[sizes])), hops,
            tuple(sorted(waits[task], key=repr)), int(p.task_class[task]),
            int(p.task_priority[task]) if p.task_priority.size else 0, *_pools(lowered, task),
        )
    return found


def _keys(lowered: Lowered) -> list[Key]:
    keys: dict[int, Key] = {}
    for what, table in ((END, lowered.end_task), (BEGIN, lowered.begin_task)):
        for (operation, rank), task in table.items():
            change = isinstance(lowered.job.operations[operation].work, Reconfigure)
            keys[task] = operation, -1 if change else rank, what, -1
    rows = list(zip(lowered.task_operation.tolist(), lowered.task_row.tolist(), strict=True))
    count = Counter(rows)
    for task, (operation, row) in enumerate(rows):
        if row >= 0:
            t = lowered.transfers[operation]
            assert t is not None and int(t.src[row]) == lowered.task_rank[task]
            half = int(task > 0 and rows[task - 1] == rows[task]) if count[operation, row] > 1 else -1
            keys[task] = operation, int(t.src[row]), int(t.slot[row]), half
        assert keys[task][:2] == (operation, lowered.task_rank[task])
    assert len(set(keys.values())) == len(rows)
    return [keys[task] for task in range(len(rows))]


def _pools(lowered: Lowered, task: int) -> tuple[Pooled, Pooled]:
    """Pools of a task, called by what the transfers that ask for them say; capacities are checked."""
    p, row = lowered.program, int(lowered.task_row[task])
    if not p.pool_capacity.size:
        return None, None
    asked = int(p.task_pool[task])
    given = p.give_pool[p.give_ptr[task] : p.give_ptr[task + 1]].tolist()
    if asked < 0 and not given:
        return None, None
    operation = lowered.job.operations[lowered.task_operation[task]].work
    t = lowered.transfers[lowered.task_operation[task]]
    assert isinstance(operation, Communicate) and t is not None and t.pool is not None and len(given) <= 1
    found: list[Pooled] = [None, None]
    for column, pool in ((0, asked), (1, given[0] if given else -1)):
        if pool >= 0:
            one = operation.schedule.pattern.pools[t.pool[row, column]]
            assert p.pool_capacity[pool] == one.capacity
            found[column] = int(t.src[row]), one.name
    assert asked < 0 or (p.task_units[task], p.task_per[task]) == (1, PER_TASK)
    return found[0], found[1]


def comparable(tasks: Tasks) -> dict[Key, tuple[object, ...]]:
    """Tasks with ties and priorities by their order alone: what equals at one place, equals everywhere."""
    served = [task for task in tasks.values() if task.hops]
    ties = {tie: at for at, tie in enumerate(sorted({task.tie for task in served}))}
    return {key: (*task[:4], ties[task.tie] if task.hops else 0, *task[6:]) for key, task in tasks.items()}


def lines(tasks: Tasks, places: set[Hashable]) -> dict[Hashable, dict[Key, int]]:
    """Of each server and pool that serves by priority, the order of its tasks."""
    found: dict[Hashable, dict[Key, Any]] = defaultdict(dict)
    for key, task in tasks.items():
        for place in {*(server for server, *_ in task.hops), task.asks} & places:
            found[place][key] = task.priority
    order = {place: sorted(set(some.values())) for place, some in found.items()}
    return {place: {key: order[place].index(one) for key, one in some.items()} for place, some in found.items()}


def by_priority(lowered: Lowered) -> set[Hashable]:
    """Servers and pools that serve by priority."""
    p, tasks = lowered.program, tasks_of(lowered)
    servers = [int(link) if link >= 0 else (int(rank), lowered.streams[stream]) for link, rank, stream in zip(
        lowered.server_link, lowered.server_rank, lowered.server_stream, strict=True)]
    found: set[Hashable] = {name for name, how in zip(servers, p.server_discipline, strict=True) if how == PRIORITY}
    for key, pool in zip(_keys(lowered), p.task_pool.tolist(), strict=False):
        if pool >= 0 and p.pool_discipline[pool] == PRIORITY:
            found.add(tasks[key].asks)
    return found


def folded(tasks: Tasks, orbits: Orbits) -> dict[Key, set[tuple[object, ...]]]:
    """Tasks of all ranks with representatives in place of NPUs, links and what is waited for."""
    def key_of(key: Key) -> Key:
        return (key[0], int(orbits.rank[0][key[1]]) if key[1] >= 0 else -1, *key[2:])

    def server(name: Any) -> Hashable:
        return (int(orbits.rank[0][name[0]]), name[1]) if isinstance(name, tuple) else int(orbits.link[name])

    found: dict[Key, set[tuple[object, ...]]] = defaultdict(set)
    for key, (size, cut, hops, waits, *rest) in comparable(tasks).items():
        named = tuple((server(name), *more) for name, *more in hops)
        pools = tuple(None if one is None else (int(orbits.rank[0][one[0]]), one[1]) for one in rest[1:])
        after = tuple(sorted(((key_of(one), lag) for one, lag in waits), key=repr))
        found[key_of(key)].add((size, cut, named, after, rest[0], *pools))
    return found
