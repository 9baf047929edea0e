"""GOAL text writer: a schedule or a job for LogGOPSim and ATLAHS.

Every transfer is a send and a receive with a tag of its own; what it waits for is a `requires` at its source. GOAL has
no chunks: a transfer is one message, or `chunks` of them, each of which waits for those of other transfers that the
chunks of the schedule wait for.
Routes are not part of the format.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from collectives.core.schedule import Schedule
from collectives.core.transfers import WHOLE, Transfers
from topologies.checks import Count, WeftError, checked
from topologies.stages import counting
from workloads.formats.message_limit import check_messages
from workloads.job import COMPUTE_STREAM, Communicate, Compute, Job, Operation, Reconfigure, Send

PS_PER_NS = 1000
MOST_MESSAGES = 2_000_000


@checked
def schedule_to_goal(schedule: Schedule, chunks: Count = 1) -> str:
    """A schedule as GOAL text.

    Parameters
    ----------
    schedule : Schedule
    chunks : int
        Messages that each transfer is cut into, their sizes equal but for a byte.

    Raises
    ------
    WeftError
        Switches that send or pools, which GOAL does not know; a wait for a transfer of two other ranks; too many
        messages.
    """
    pattern = schedule.pattern
    if not pattern.is_of_ranks:
        raise WeftError(f"GOAL of {pattern.name}: its switches add or its ranks have slots, and GOAL knows only ranks")
    check_messages(pattern, MOST_MESSAGES, "GOAL", chunks)
    writer = _Writer(pattern.p)
    writer.transfers(pattern.transfers(), schedule.block_bytes, chunks, {})
    head = f"{pattern.name} {schedule.kind.name} of {schedule.size_bytes} B on {schedule.topology.name}"
    return writer.text(head)


@checked
def job_to_goal(job: Job, chunks: Count = 1) -> str:
    """A job as GOAL text; computations are whole ns, rounded up.

    Parameters
    ----------
    job : Job
    chunks : int
        Messages that each transfer is cut into.

    Raises
    ------
    WeftError
        As for `schedule_to_goal`; NPUs of unequal speed.
    """
    if job.speed is not None:
        raise WeftError("GOAL of a job whose NPUs have speeds of their own: give each its own computations instead")
    writer = _Writer(job.topology.n_npus)
    ends: list[dict[int, str]] = []
    streams: dict[str, int] = {COMPUTE_STREAM: 0}
    rounded = 0
    for operation in job.operations:
        if isinstance(operation.work, Reconfigure):
            raise WeftError(f"GOAL of operation {operation.name!r}: it knows no circuits that change")
        ranks = job.ranks(operation).tolist()
        before = {rank: [ends[one][rank] for one in operation.after if rank in ends[one]] for rank in ranks}
        if isinstance(operation.work, Compute):
            time_ns, cpu = -(-operation.work.duration_ps // PS_PER_NS), streams.setdefault(
                operation.work.stream, len(streams)
            )
            rounded += time_ns * PS_PER_NS != operation.work.duration_ps
            ends.append({rank: writer.calc(rank, time_ns, cpu, before[rank]) for rank in ranks})
        else:
            ends.append(_transfers(writer, operation, ranks, before, chunks))
    note = f"; {rounded} computations rounded up to whole ns" if rounded else ""
    return writer.text(f"{len(job.operations)} operations on {job.topology.name}{note}")


def _transfers(
    writer: "_Writer", operation: Operation, ranks: Sequence[int], before: Mapping[int, Sequence[str]], chunks: int
) -> dict[int, str]:
    """A collective or messages between a join that begins it on each rank and one that ends it."""
    begin = {rank: writer.calc(rank, 0, 0, before[rank]) for rank in ranks}
    if isinstance(operation.work, Communicate):
        schedule = operation.work.schedule
        if not schedule.pattern.is_of_ranks:
            raise WeftError(f"GOAL of operation {operation.name!r}: its switches add or its ranks have slots")
        transfers = schedule.pattern.emit(np.array(ranks, np.int64))
        if transfers.rounds is not None:
            raise WeftError(f"GOAL of operation {operation.name!r}: its transfers stand for several rounds")
        touched = writer.transfers(transfers, schedule.block_bytes, chunks, begin)
    else:
        assert isinstance(operation.work, Send)
        touched = defaultdict(list)
        for at, (src, dst) in enumerate(zip(operation.work.src, operation.work.dst, strict=True)):
            if src != dst:
                size = operation.work.size_bytes
                sent, received = writer.message(src, dst, size[at] if isinstance(size, tuple) else size)
                writer.require(src, sent, [begin[src]])
                if not operation.work.detached:
                    touched[src].append(sent)
                touched[dst].append(received)
    return {rank: writer.calc(rank, 0, 0, [begin[rank], *touched[rank]]) for rank in ranks}


class _Writer:
    """Lines of every rank: operations first, then what waits for what."""

    def __init__(self, n_ranks: int) -> None:
        self.lines: list[list[str]] = [[] for _ in range(n_ranks)]
        self.waits: list[list[str]] = [[] for _ in range(n_ranks)]
        self.tags: dict[tuple[int, int], int] = defaultdict(int)
        self.n_messages = 0

    def text(self, head: str) -> str:
        """The file; the block of the last rank is the last."""
        text = [f"// weft: {head}", f"num_ranks {len(self.lines)}"]
        for rank, (lines, waits) in enumerate(zip(self.lines, self.waits, strict=True)):
            text += ["", f"rank {rank} {{", *lines, *waits, "}"]
        return "\n".join(text) + "\n"

    def calc(self, rank: int, time_ns: int, cpu: int, after: Iterable[str]) -> str:
        """Add a computation; returns its label."""
        label = self._label(rank, f"calc {time_ns}" + (f" cpu {cpu}" if cpu else ""))
        self.require(rank, label, after)
        return label

    def message(self, src: int, dst: int, size_bytes: int) -> tuple[str, str]:
        """Add a send and its receive; returns their labels."""
        tag = self.tags[src, dst]
        self.tags[src, dst] += 1
        self.n_messages += 1
        self._check_room(self.n_messages)
        send = self._label(src, f"send {size_bytes}b to {dst} tag {tag}")
        return send, self._label(dst, f"recv {size_bytes}b from {src} tag {tag}")

    def _check_room(self, n_messages: int) -> None:
        if n_messages > MOST_MESSAGES:
            raise WeftError(
                f"GOAL of {n_messages:,} messages or more: at most {MOST_MESSAGES:,} are written; take fewer ranks or "
                "chunks"
            )

    def require(self, rank: int, label: str, after: Iterable[str]) -> None:
        """Let an operation wait for others of its rank."""
        self.waits[rank] += [f"{label} requires {other}" for other in dict.fromkeys(after)]

    def _label(self, rank: int, what: str) -> str:
        label = f"l{len(self.lines[rank]) + 1}"
        self.lines[rank].append(f"{label}: {what}")
        return label

    def transfers(
        self, t: Transfers, block_bytes: int, chunks: int, begin: Mapping[int, str]
    ) -> defaultdict[int, list[str]]:
        """Add transfers and their waits; returns the labels on each rank.

        `begin`: label on each rank for which transfers that wait for nothing else of theirs wait.
        """
        src, dst = t.src.tolist(), t.dst.tolist()
        self._check_room(self.n_messages + int(np.count_nonzero(t.src != t.dst)) * chunks)
        row_of = {pair: row for row, pair in enumerate(zip(src, t.slot.tolist(), strict=True))}
        sizes = (t.blocks * block_bytes).tolist()
        ends: list[dict[int, list[str]]] = []
        touched: defaultdict[int, list[str]] = defaultdict(list)
        for row in counting("transfers as sends and receives", range(len(src))):
            if src[row] == dst[row]:
                ends.append({src[row]: [self._label(src[row], "calc 0")] * chunks})
            else:
                pairs = [self.message(src[row], dst[row], size) for size in _cut(sizes[row], chunks)]
                ends.append({src[row]: [one for one, _ in pairs], dst[row]: [one for _, one in pairs]})
            for rank, labels in ends[-1].items():
                touched[rank] += labels
        for row in counting("transfers whose waits are written", range(len(src))):
            rank, own = src[row], False
            for at in range(int(t.dep_ptr[row]), int(t.dep_ptr[row + 1])):
                parent = row_of[int(t.dep_src[at]), int(t.dep_slot[at])]
                if rank not in ends[parent]:
                    raise WeftError(
                        f"GOAL: a transfer of rank {rank} waits for one from rank {src[parent]} to rank {dst[parent]}, "
                        "and GOAL knows waits inside a rank only"
                    )
                own = own or int(t.dep_src[at]) == rank
                self._wait(rank, ends[row][rank], ends[parent][rank], int(t.dep_lag[at]))
            if rank in begin and not own:
                for label in dict.fromkeys(ends[row][rank]):
                    self.require(rank, label, [begin[rank]])
        return touched

    def _wait(self, rank: int, labels: Sequence[str], parents: Sequence[str], lag: int) -> None:
        """Whole: every chunk waits for the last one; otherwise chunk j for chunk j - lag."""
        if lag == WHOLE:
            for label in dict.fromkeys(labels):
                self.require(rank, label, [parents[-1]])
            return
        for at in range(lag, len(labels)):
            self.require(rank, labels[at], [parents[at - lag]])


def _cut(size_bytes: int, chunks: int) -> list[int]:
    small, larger = divmod(size_bytes, chunks)
    return [small + 1] * larger + [small] * (chunks - larger)
