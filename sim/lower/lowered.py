"""A program and its legend: what each of its servers and tasks represents, and the names of these in reports."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import cache
from operator import itemgetter
from typing import NamedTuple

import numpy as np

from collectives.core.schedule import Schedule
from collectives.core.transfers import Transfers
from sim.lower.marks import Marks
from sim.lower.nics import STREAMS, links_at_once
from sim.lower.quotient import Orbits
from sim.program.columns import blocks
from sim.program.contract import DOWN, I32, I64, Program
from sim.program.disrupt import Phase
from sim.program.flows import Speeds
from sim.program.model import Model
from topologies import Topology, WeftError
from topologies.core.paths import ranges
from topologies.text.brief import one_line
from topologies.units import PS_PER_S
from workloads.job import CLOCK, Job, Operation, Reconfigure

NO_TRANSFER = -1
"""Row of a task that is no transfer: a computation, or a join at the begin or the end of an operation."""


class Span(NamedTuple):
    """Consecutive tasks, one on each of some ranks, (n,), ascending; or one task for all of them (stride 0)."""

    ranks: I64
    first: int
    stride: int = 1

    @property
    def tasks(self) -> I64:
        """The task on each of the ranks."""
        return self.first + self.stride * np.arange(self.ranks.size)

    def of(self, ranks: I64) -> I64:
        """The task on each rank; -1 where there is none."""
        if not self.ranks.size:
            return np.full(ranks.size, -1, np.int64)
        at = np.minimum(np.searchsorted(self.ranks, ranks), self.ranks.size - 1)
        return np.where(self.ranks[at] == ranks, self.first + self.stride * at, -1)


class TaskTable(Mapping[tuple[int, int], int]):
    """Tasks by operation and rank, without an entry for each."""

    def __init__(self, spans: Mapping[int, Span] = {}) -> None:
        self.spans = spans

    def __getitem__(self, key: tuple[int, int]) -> int:
        number, rank = key
        task = int(self.spans[number].of(np.array([rank]))[0])
        if task < 0:
            raise KeyError(key)
        return task

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return ((number, rank) for number, span in self.spans.items() for rank in span.ranks.tolist())

    def rows(self) -> tuple[I64, I64, I64]:
        """How many ranks each operation has, and operation and rank of each entry, (n,), in their order."""
        ranks = [ranks for ranks, _, _ in self.spans.values()]
        n = np.fromiter(map(len, ranks), np.int64, len(ranks))
        operation = np.repeat(np.fromiter(self.spans, np.int64, n.size), n)
        return n, operation, np.concatenate([np.zeros(0, np.int64), *ranks])

    def tasks(self, n: I64) -> I64:
        """The task of each entry, where the number of ranks of each operation is known."""
        first, stride = (np.fromiter(map(itemgetter(of), self.spans.values()), np.int64, n.size) for of in (1, 2))
        if np.all(stride == 1):
            return ranges(first, n)
        return np.repeat(first, n) + np.repeat(stride, n) * ranges(np.zeros_like(n), n)

    def __len__(self) -> int:
        return sum(span.ranks.size for span in self.spans.values())


NO_TASKS = TaskTable()


@one_line
class Lowered(NamedTuple):
    """A program with its legend.

    S servers: links, compute streams and, under faults, one for each NPU that starts late. T tasks, operation by
    operation: of a collective in a job its joins at the begin, its transfers, its joins at the end. Tasks that faults
    add come after all of them and have no row in the legend.
    """

    program: Program
    job: Job
    model: Model
    orbits: Orbits  # NPUs and links that represent others
    symmetry: str  # for people: which NPUs were simulated, and why they represent all
    server_link: I32  # (S,): link of each server; -1 for others
    # server_rank, server_stream: (S,): NPU and number in `streams` of a compute stream; -1 for others
    server_rank: I32
    server_stream: I32
    streams: tuple[str, ...]
    task_operation: I32  # (T,): operation of each task
    # rank, row: `task_rank` and `task_row`; None where each task is the transfer of its number
    rank: I32 | None
    row: I32 | None
    task_bytes: I64  # (T,): bytes of each transfer, headers left out; 0 for others
    transfers: tuple[Transfers | None, ...]  # of each operation; None for a computation
    # begin_task, end_task: the task whose delivery begins an operation on an NPU (the task itself for a computation),
    # and the one whose delivery ends it; of representatives. Empty for a schedule alone, which nothing waits for.
    begin_task: TaskTable
    end_task: TaskTable
    phases: Mapping[int, Sequence[Phase]] = {}  # what faults do to servers, as timetables say in whole numbers
    late: Mapping[int, str] = {}  # servers whose only task is the late start of an NPU, by its name
    timers: range = range(0)  # servers that pass the time until an NPU sends again
    # chunks that NPUs send again, of a program that has the packets and timers of that; None of others
    resent: int | None = None
    marks: Marks | None = None  # what faults will make, or have made, unlike
    at_once: int | None = None  # `links_at_once`, if known: templates of messages have those of other jobs beside them

    @property
    def links_at_once(self) -> int:
        """Links that a rank may send on at once, for the defaults of NICs."""
        return links_at_once(self.topology, self.transfers, self.model) if self.at_once is None else self.at_once

    @property
    def topology(self) -> Topology:
        """The fabric of the job."""
        return self.job.topology

    @property
    def task_rank(self) -> I32:
        """The NPU (or other source) on which each task begins, (T,)."""
        if self.rank is not None:
            return self.rank
        assert self.transfers[0] is not None
        return self.transfers[0].src

    @property
    def task_row(self) -> I32:
        """Transfer of each task, (T,): its row in `transfers[operation]`, `NO_TRANSFER` for none."""
        return np.arange(self.task_operation.size, dtype=np.int32) if self.row is None else self.row

    def is_end(self, server: int) -> bool:
        """Whether a server is the NIC of an NPU, or what ejects there."""
        return self.model.nic is not None and 0 <= self.server_stream[server] < len(STREAMS)

    @property
    def schedule(self) -> Schedule:
        """The schedule, of a job that is nothing else but the changes of its circuits.

        WeftError: the job is of several operations, or of another kind.
        """
        found = self.job.of_schedule
        if found is None:
            raise WeftError(f"a job of {len(self.job.operations)} operations is not a schedule alone")
        return found

    @property
    def task_step(self) -> I32:
        """Step of each transfer of a schedule alone, (T,)."""
        if self.job.implements is not None:
            return self.task_operation
        transfers = self.transfers[0]
        assert transfers is not None
        return transfers.step if self.row is None else transfers.step[self.row]

    @property
    def changes(self) -> list[tuple[int, Reconfigure]]:
        """Changes of circuits, each with its task."""
        return [(self.end_task[number, 0], operation.work) for number, operation in enumerate(self.job.operations)
                if isinstance(operation.work, Reconfigure)]

    def ranks(self, operation: Operation) -> I64:
        """Representatives that an operation covers."""
        covered = self.job.ranks(operation)
        kept: I64 = covered[self.orbits.rank[0][covered] == covered]
        return kept

    def link_busy_ps(self, busy_ps: I64) -> I64:
        """Busy time of every link of the topology, (n_links,), from that of the servers."""
        per_link = np.zeros(self.topology.n_links, np.int64)
        is_link = self.server_link >= 0
        per_link[self.server_link[is_link]] = busy_ps[is_link]
        return per_link[self.orbits.link]

    def slow_links(self) -> I64:
        """Links that faults give another rate for a while."""
        program = self.program
        if program.is_healthy:
            return np.zeros(0, np.int64)
        server = np.repeat(np.arange(max(program.timetable_ptr.size - 1, 0)), np.diff(program.timetable_ptr))
        other = (program.timetable_rate != DOWN) & (program.timetable_rate != program.server_rate[server])
        return np.flatnonzero(np.isin(self.orbits.link, self.server_link[server[other]]))

    def speeds(self) -> Speeds:
        """Exact rates of the servers and their shares; those that are no links are alone."""
        rates = [Fraction(rate) for rate in np.append(self.topology.bandwidth_Bps, 1.0)[self.server_link].tolist()]
        alone = np.flatnonzero(self.server_link < 0).tolist()
        for server in alone:
            rank, stream = int(self.server_rank[server]), int(self.server_stream[server])
            speed = None if rank < 0 or self.streams[stream].startswith(CLOCK) else self.job.speed
            rates[server] = Fraction(1 if speed is None else float(speed[rank])) * PS_PER_S
        shares = [phase.factor for server in range(len(rates)) for phase in self.phases.get(server, ())]
        return Speeds(rates, shares, alone)

    @property
    def is_whole(self) -> bool:
        """Whether every NPU is simulated."""
        return self.orbits.is_whole

    def images(self) -> I64:
        """How many tasks of the full program each task represents, (T,)."""
        if self.is_whole:
            return np.broadcast_to(np.int64(1), self.task_operation.size)
        sizes = np.stack([np.bincount(part, minlength=part.size) for part in self.orbits.rank])
        if len(sizes) == 1:
            of_task: I64 = sizes[0][self.task_rank].astype(np.int64)
            return of_task
        transfers = self.transfers[0]  # only a schedule alone may divide each port by a group of its own
        assert transfers is not None
        rows = sizes[np.minimum(transfers.port, len(sizes) - 1), transfers.src]
        images: I64 = rows[self.task_row].astype(np.int64)
        return images

    def waits(self) -> tuple[int, int, int]:
        """How often transfers of the full program wait for transfers: whole or until pushed, by chunk, in windows."""
        count = np.zeros(self.program.n_tasks, np.int64)
        count[: self.task_row.size] = np.where(self.task_row >= 0, self.images(), 0)  # faults add tasks after them
        parent, child, lag = self.program.stream_edges()
        stream, window = lag == 0, lag > 0
        edges = (self.program.whole_edges(), self.program.pushed_edges(), (parent[stream], child[stream]),
                 (parent[window], child[window]))
        whole, pushed, by_chunk, windows = (int(count[after[count[before] > 0]].sum()) for before, after in edges)
        return whole + pushed, by_chunk, windows

    def wire_bytes(self) -> int:
        """Bytes that leave all ranks, padding included, headers not."""
        images = self.images()
        parts = [(self.task_bytes[some], images[some]) for some in blocks(images.size)]
        # Not `np.dot`: of floats it runs on threads, which go on spinning for longer than it took.
        if sum(np.multiply(*part, dtype=np.float64).sum() for part in parts) < 2.0**62:
            return sum(int((size * many).sum()) for size, many in parts)
        return int(np.dot(self.task_bytes.astype(object), images.astype(object)))


LATE_START, TIMEOUT, SUM = "a late start", "a timeout", "a sum at the switch"


def task_names(lowered: Lowered) -> Callable[[int], str]:
    """What a task is.

    Of a schedule alone "npu0 to npu1 (step 3)"; of a job "forward of npu0", "gradients from npu0 to npu1 (2 of 6)",
    "the end of gradients on npu0".
    """
    return _of_schedule(lowered) if lowered.job.alone is not None else _of_job(lowered)


def _of_schedule(lowered: Lowered) -> Callable[[int], str]:
    topology, transfers, rows = lowered.topology, lowered.transfers[0], lowered.task_row
    assert transfers is not None

    def name(task: int) -> str:
        if task >= rows.size:
            return LATE_START
        row = rows[task]
        if row == NO_TRANSFER:
            return TIMEOUT if lowered.program.has_hops(task) else SUM
        src, dst = (topology.node_name(int(end[row])) for end in (transfers.src, transfers.dst))
        return f"{src} to {dst} (step {transfers.step[row]})"

    return name


def _of_job(lowered: Lowered) -> Callable[[int], str]:
    topology, program = lowered.topology, lowered.program

    def ends(task: int) -> tuple[int, int, int]:
        """Operation, source and destination of a transfer."""
        number = int(lowered.task_operation[task])
        transfers = lowered.transfers[number]
        assert transfers is not None
        return number, int(lowered.task_rank[task]), int(transfers.dst[lowered.task_row[task]])

    @cache
    def alike(operation: int, src: int, dst: int) -> list[int]:
        """Transfers of one operation between the same two nodes, in their order."""
        crosses = program.hops()[: lowered.task_operation.size] > 0  # late starts come behind
        mine = (lowered.task_operation == operation) & (lowered.task_rank == src) & crosses
        return [task for task in np.flatnonzero(mine).tolist() if ends(task) == (operation, src, dst)]

    def name(task: int) -> str:
        if task >= lowered.task_operation.size:
            return LATE_START
        number, rank = int(lowered.task_operation[task]), int(lowered.task_rank[task])
        operation = lowered.job.operations[number].name
        if rank < 0:
            return operation  # a change of circuits
        here = topology.node_name(rank)
        if lowered.begin_task.get((number, rank)) == task == lowered.end_task.get((number, rank)):
            return f"{operation} of {here}"
        if program.hops()[task] == 0:
            which = "start" if lowered.begin_task.get((number, rank)) == task else "end"
            return f"the {which} of {operation} on {here}"
        group = alike(*ends(task))
        which = f" ({group.index(task) + 1} of {len(group)})" if len(group) > 1 else ""
        return f"{operation} from {here} to {topology.node_name(ends(task)[2])}{which}"

    return name
