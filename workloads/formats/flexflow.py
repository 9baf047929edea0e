"""Task graphs of FlexFlow's simulator, as released with TopoOpt, as a job: `.fbuf`, or the same tasks as CSV.

A server is the NPU of the same number. A forward or backward task computes on its server for some ms, one at a time in
the order in which they become ready; a message gates the tasks after it. An all-reduce gates nothing; one of a single
server is nothing. It starts on all servers of its group when the backward tasks before it have ended on all, and the
GPUs of each server have summed what they have, which takes the ms of the task. Unless an algorithm is named, it goes
around one ring in the order of its group, round by round with acknowledgments, and in a single round below 9,000 bytes
a server, as in the released packet simulator; on a circulant as TopoOpt's do, around a ring for each jump of the
fabric, and of a smaller group around one in both directions.

The layout of the file, a flat buffer: a table is its fields behind offsets that the table before it has; fields by
number are type, id, device, ms, bytes and successors of a task, and type, id, server and property of a device. The
device of a message has the property source * (servers + switches) + destination.
"""

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from collectives import ring_rounds, totient_rings
from topologies import Topology, WeftError
from topologies.circulants import CoinRouter
from topologies.text.brief import cut
from topologies.text.input_text import read_input, read_input_bytes
from topologies.units import counted
from workloads.formats.waits import smallest_first
from workloads.group_collectives import GroupCollectives, Named
from workloads.job import Job

ENDING = ".fbuf"
HEADER = "task,kind,server_or_src,dst,ms,bytes,next_or_group"

FORWARD, BACKWARD, MESSAGE, ALL_REDUCE = "forward", "backward", "message", "allreduce"
_KINDS = {0: FORWARD, 1: BACKWARD, 5: MESSAGE, 6: ALL_REDUCE}

LOCAL_SUM = "sum in servers"
"""The kind of what precedes an all-reduce among the GPUs of a server, several at once."""

ONE_ROUND_BELOW = 9_000
"""Bytes of a server: an all-reduce of fewer is one round (the payload of a packet)."""

_PS_PER_MS = 10**9
_LONGEST_MS = 10**9


class Task(NamedTuple):
    """A task of the graph."""

    number: int
    kind: str
    server: int  # where it computes, or the source of a message
    target: int  # of a message
    time_ms: float
    size_bytes: int
    following: tuple[int, ...]  # tasks; of an all-reduce the servers of its group


def open_flexflow(path: str | Path, topology: Topology, algorithms: Named = ()) -> tuple[Job, list[str]]:
    """The job of a task graph, and notes.

    `topology`: at least as many NPUs as the graph has servers.
    `algorithms`: of the all-reduces: the first that the network admits.
    WeftError: names the file and the task: not a task graph, a server that the topology does not have, a cycle.
    """
    name = str(path)
    tasks = _of_buffer(read_input_bytes(path, "task graph"), name) if name.endswith(ENDING) else _of_csv(
        read_input(path, "task graph"), name)
    return _job(tasks, topology, name, algorithms)


def _job(tasks: Sequence[Task], topology: Topology, name: str, algorithms: Named) -> tuple[Job, list[str]]:
    job = Job(topology)
    chosen = GroupCollectives(job.topology, algorithms)
    known = {task.number: task for task in tasks}
    if len(known) < len(tasks):
        raise WeftError(f"{name}: two tasks have one number")
    before: dict[int, list[int]] = {number: [] for number in known}
    for task in tasks:
        servers = task.following if task.kind == ALL_REDUCE else (task.server, task.target)
        if wrong := [one for one in servers if not 0 <= one < topology.n_npus]:
            raise WeftError(f"{name}: {task.kind} {task.number} names server {wrong[0]}; {topology.name} has "
                            f"{counted(topology.n_npus, 'NPU')}")
        for other in task.following if task.kind != ALL_REDUCE else ():
            if other not in known:
                raise WeftError(f"{name}: {task.kind} {task.number} is followed by task {other}, which is not there")
            before[other].append(task.number)
    numbers: dict[int, int] = {}
    for task in (known[number] for number in smallest_first(before, lambda number: f"{name}: task {number}")):
        label, after = f"{task.kind} {task.number}", [numbers[one] for one in before[task.number] if one in numbers]
        if task.kind == MESSAGE:
            numbers[task.number] = job.send(label, [task.size_bytes], [task.server], [task.target], kind=MESSAGE,
                                            after=after, laps=2, detached=task.server != task.target)
        elif task.kind != ALL_REDUCE:
            numbers[task.number] = job.compute(label, round(task.time_ms * _PS_PER_MS), kind=task.kind,
                                               npus=[task.server], after=after)
        elif len(task.following) > 1 and task.size_bytes:
            if task.time_ms:
                own = f"{LOCAL_SUM} {task.number}"
                after = [job.compute(own, round(task.time_ms * _PS_PER_MS), kind=LOCAL_SUM, stream=own,
                                     npus=task.following, after=after)]
            if algorithms:
                chosen.add(job, label, "all-reduce", task.size_bytes, task.following, after, together=True)
                continue
            rings = ring_rounds.all_reduce(
                topology, task.size_bytes, jumps=_jumps(topology, len(task.following)), group=task.following,
                one_round=task.size_bytes < ONE_ROUND_BELOW * len(task.following), acknowledged=True,
            )
            job.collective(label, rings, npus=task.following, after=after, turn=1, together=True)
    return job, chosen.notes


def _jumps(topology: Topology, k: int) -> tuple[int, ...]:
    """The rings of a group of servers: how many places of it each goes on at a time."""
    if not isinstance(topology.router, CoinRouter):
        return (1,)
    return totient_rings.ring_jumps(topology) if k == topology.n_npus else tuple(dict.fromkeys((1, k - 1)))


def _of_csv(text: str, name: str) -> list[Task]:
    tasks = []
    first, *rows = text.splitlines() or [""]
    if first.strip() != HEADER:
        raise WeftError(f"{name} is no task graph: its first line is {cut(first)!r}, that of a task graph is {HEADER}")
    for line, row in enumerate(rows, 2):
        try:
            number, kind, server, target, time_ms, size, following = row.split(",")
            task = Task(int(number), kind, int(server or 0), int(target or server or 0), float(time_ms or 0),
                        int(size or 0), tuple(map(int, following.split())))
        except ValueError:
            raise WeftError(f"{name}, line {line}: {cut(row)!r} is no task: {HEADER}") from None
        tasks.append(_checked(task, f"{name}, line {line}"))
    if not tasks:
        raise WeftError(f"{name} is a task graph without tasks")
    return tasks


def _checked(task: Task, where: str) -> Task:
    if task.kind not in _KINDS.values():
        raise WeftError(f"{where}: a task of the kind {task.kind!r}; known: {', '.join(_KINDS.values())}")
    if not 0 <= task.time_ms < _LONGEST_MS or not 0 <= task.size_bytes < 2**62:
        raise WeftError(f"{where}: {task.kind} {task.number} takes {task.time_ms} ms and moves {task.size_bytes} bytes")
    following = tuple(dict.fromkeys(task.following))  # released graphs name some successors twice
    if task.kind == ALL_REDUCE and following != task.following:
        raise WeftError(f"{where}: {task.kind} {task.number} names a server twice")
    return task._replace(following=following)


class _Table(NamedTuple):
    """A table of a flat buffer."""

    data: bytes
    at: int

    def place(self, field: int) -> int:
        """Where a field is; 0 for one that is left out, which has its default."""
        layout = self.at - _number(self.data, "i", self.at)
        offset = 4 + 2 * field
        if offset >= _number(self.data, "H", layout):
            return 0
        found = _number(self.data, "H", layout + offset)
        return self.at + found if found else 0

    def number(self, field: int, kind: str) -> int:
        place = self.place(field)
        return _number(self.data, kind, place) if place else 0

    def numbers(self, field: int, kind: str) -> tuple[int, ...]:
        """A list of numbers."""
        if not (place := self.place(field)):
            return ()
        place += _number(self.data, "I", place)
        return struct.unpack_from(f"<{_number(self.data, 'I', place)}{kind}", self.data, place + 4)

    def tables(self, field: int) -> "list[_Table]":
        """A list of tables."""
        offsets, place = self.numbers(field, "I"), self.place(field)
        first = place + _number(self.data, "I", place) + 4 if place else 0
        return [_Table(self.data, first + 4 * at + offset) for at, offset in enumerate(offsets)]


def _number(data: bytes, kind: str, at: int) -> int:
    if at < 0:
        raise struct.error
    (value,) = struct.unpack_from("<" + kind, data, at)
    return int(value) if kind != "f" else value


_N_SERVERS, _N_SWITCHES, _TASKS, _DEVICES = 1, 2, 8, 9
"""Fields of the graph."""


def _of_buffer(data: bytes, name: str) -> list[Task]:
    """The tasks of a flat buffer, numbered in their order."""
    try:
        graph = _Table(data, _number(data, "I", 0))
        nodes = graph.number(_N_SERVERS, "I") + graph.number(_N_SWITCHES, "I")
        devices = {one.number(1, "Q"): one for one in graph.tables(_DEVICES)}
        tables = graph.tables(_TASKS)
        numbers = {one.number(1, "Q"): at for at, one in enumerate(tables)}
        tasks = [_task(at, one, devices, nodes, numbers, name) for at, one in enumerate(tables)]
    except (struct.error, MemoryError):
        raise WeftError(f"{name} is no task graph of FlexFlow, or is cut off") from None
    if not tasks:
        raise WeftError(f"{name} is no task graph of FlexFlow: it has no tasks")
    return tasks


def _task(at: int, table: _Table, devices: dict[int, _Table], nodes: int, numbers: dict[int, int], name: str) -> Task:
    kind, following = _KINDS.get(table.number(0, "h"), str(table.number(0, "h"))), table.numbers(5, "Q")
    server = target = 0
    if kind != ALL_REDUCE:
        if (device := devices.get(table.number(2, "Q"))) is None or nodes == 0:
            raise WeftError(f"{name}: task {at} runs on a device that is not there")
        server = target = device.number(2, "Q")
        if kind == MESSAGE:
            server, target = divmod(device.number(3, "Q"), nodes)
        if lost := [one for one in following if one not in numbers]:
            raise WeftError(f"{name}: task {at} is followed by task {lost[0]}, which is not there")
        following = tuple(numbers[one] for one in following)
    return _checked(Task(at, kind, server, target, table.number(3, "f"), table.number(4, "Q"), following),
                    f"{name}, task {at}")
