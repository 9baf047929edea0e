"""Schedules as text of GOAL, for LogGOPSim and ATLAHS, and as Chakra traces: ASTRA-sim's custom collectives.

Every transfer is a send at its source and a receive at its destination, with a tag of its own between the two. What it
waits for is a `requires`, or a data dependency, at its source. Neither format has chunks, routes or reductions: a
transfer is one message, and adding takes no time; in GOAL it may be `chunks` of them, each of which waits for those of
other transfers that the chunks of the schedule wait for.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import Annotated

import numpy as np

from collectives.core.by_slots import WHOLE
from collectives.core.pattern import Pattern
from collectives.core.schedule import Schedule
from collectives.core.transfers import Transfers, parents_of
from topologies.checks import Choice, Count, WeftError, checked
from topologies.stages import counting
from workloads.formats.chakra import VERSIONS, Trace
from workloads.formats.chakra_attributes import Attribute
from workloads.formats.chakra_schema import Node

PARTS = 64
"""In which ranks are looked at: of a schedule that is much too large the first is enough."""


def check_messages(pattern: Pattern, most: int, what: str, chunks: int = 1) -> None:
    """Refuse a schedule of more messages than are written.

    `what`: such as "GOAL".
    `chunks`: messages of a transfer between two ranks.
    WeftError: there are more than `most`.
    """
    n_sources, found = pattern.n_sources or pattern.p, 0
    for ranks in np.array_split(np.arange(n_sources), min(n_sources, PARTS)):
        t = pattern.emit(ranks)
        found += chunks * int(np.count_nonzero(t.src != t.dst))
        if found > most:
            raise WeftError(
                f"{what} of {found:,} messages or more: at most {most:,} are written; take fewer ranks or chunks"
            )


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
    writer.transfers(pattern.transfers(), schedule.block_bytes, chunks)
    head = f"{pattern.name} {schedule.kind.name} of {schedule.size_bytes} B on {schedule.topology.name}"
    return writer.text(head)


class _Writer:
    """Lines of every rank: operations first, then what waits for what."""

    def __init__(self, n_ranks: int) -> None:
        self.lines: list[list[str]] = [[] for _ in range(n_ranks)]
        self.waits: list[list[str]] = [[] for _ in range(n_ranks)]
        self.tags: dict[tuple[int, int], int] = defaultdict(int)

    def text(self, head: str) -> str:
        """The file; the block of the last rank is the last."""
        text = [f"// weft: {head}", f"num_ranks {len(self.lines)}"]
        for rank, (lines, waits) in enumerate(zip(self.lines, self.waits, strict=True)):
            text += ["", f"rank {rank} {{", *lines, *waits, "}"]
        return "\n".join(text) + "\n"

    def transfers(self, t: Transfers, block_bytes: int, chunks: int) -> None:
        """Add transfers and their waits."""
        src, dst = t.src.tolist(), t.dst.tolist()
        row_of = {pair: row for row, pair in enumerate(zip(src, t.slot.tolist(), strict=True))}
        sizes = (t.blocks * block_bytes).tolist()
        ends: list[dict[int, list[str]]] = []
        for row in counting("transfers as sends and receives", range(len(src))):
            if src[row] == dst[row]:
                ends.append({src[row]: [self._label(src[row], "calc 0")] * chunks})
            else:
                pairs = [self._message(src[row], dst[row], size) for size in _cut(sizes[row], chunks)]
                ends.append({src[row]: [one for one, _ in pairs], dst[row]: [one for _, one in pairs]})
        for row in counting("transfers whose waits are written", range(len(src))):
            rank = src[row]
            for at in range(int(t.dep_ptr[row]), int(t.dep_ptr[row + 1])):
                parent = row_of[int(t.dep_src[at]), int(t.dep_slot[at])]
                if rank not in ends[parent]:
                    raise WeftError(
                        f"GOAL: a transfer of rank {rank} waits for one from rank {src[parent]} to rank {dst[parent]}, "
                        "and GOAL knows waits inside a rank only"
                    )
                self._wait(rank, ends[row][rank], ends[parent][rank], int(t.dep_lag[at]))

    def _message(self, src: int, dst: int, size_bytes: int) -> tuple[str, str]:
        """Add a send and its receive; returns their labels."""
        tag = self.tags[src, dst]
        self.tags[src, dst] += 1
        send = self._label(src, f"send {size_bytes}b to {dst} tag {tag}")
        return send, self._label(dst, f"recv {size_bytes}b from {src} tag {tag}")

    def _label(self, rank: int, what: str) -> str:
        label = f"l{len(self.lines[rank]) + 1}"
        self.lines[rank].append(f"{label}: {what}")
        return label

    def _wait(self, rank: int, labels: Sequence[str], parents: Sequence[str], lag: int) -> None:
        """Whole: every chunk waits for the last one; otherwise chunk j for chunk j - lag."""
        if lag == WHOLE:
            pairs = [(label, parents[-1]) for label in dict.fromkeys(labels)]
        else:
            pairs = [(labels[at], parents[at - lag]) for at in range(lag, len(labels))]
        self.waits[rank] += [f"{label} requires {other}" for label, other in pairs]


def _cut(size_bytes: int, chunks: int) -> list[int]:
    small, larger = divmod(size_bytes, chunks)
    return [small + 1] * larger + [small] * (chunks - larger)


MOST_OF_TRACES = 1_000_000

VERSION = "0.0.4"


@checked
def schedule_to_chakra(schedule: Schedule, version: Annotated[str, Choice(VERSIONS)] = VERSION) -> tuple[Trace, ...]:
    """One trace for each rank.

    Parameters
    ----------
    schedule : Schedule
    version : str
        Of the schema: "0.0.4" or "1.0.0".

    Raises
    ------
    WeftError
        Switches that send or pools, which a trace does not know; a wait for a transfer of two other ranks; too many
        messages.
    """
    pattern = schedule.pattern
    if not pattern.is_of_ranks:
        raise WeftError(f"Chakra trace of {pattern.name}: a trace has no switches that add, and no slots")
    check_messages(pattern, MOST_OF_TRACES, "Chakra trace")
    t = pattern.transfers()
    src, dst, sizes = t.src.tolist(), t.dst.tolist(), (t.blocks * schedule.block_bytes).tolist()
    nodes: list[list[Node]] = [[] for _ in range(pattern.p)]
    place: list[dict[int, int]] = []
    tags: dict[tuple[int, int], int] = defaultdict(int)
    for row, (a, b) in enumerate(zip(src, dst, strict=True)):
        place.append({rank: len(nodes[rank]) for rank in (a, b)} if a != b else {})
        if a == b:
            continue  # a join: what waits for it waits for what it waits for
        tag = tags[a, b]
        tags[a, b] += 1
        for rank, kind, peer in ((a, "send", b), (b, "receive", a)):
            nodes[rank].append(_message(len(nodes[rank]), f"{kind} {row}", kind, sizes[row], peer, tag))
    parents = parents_of(t)
    for row, rank in enumerate(src):
        if not place[row]:
            continue
        waits = []
        for parent in sorted(parents[row]):
            if rank not in place[parent]:
                raise WeftError(
                    f"Chakra trace of {pattern.name}: a transfer of rank {rank} waits for one from rank {src[parent]} "
                    f"to rank {dst[parent]}, and a trace waits inside its rank only"
                )
            waits.append(place[parent][rank])
        own = place[row][rank]
        nodes[rank][own] = nodes[rank][own]._replace(data_after=tuple(dict.fromkeys(waits)))
    facts = (
        Attribute("schema", f"1.0.2-chakra.{version}", "string"),
        Attribute("collective", schedule.kind.name.replace("-", ""), "string"),
        Attribute("source", f"weft: {pattern.name} {schedule.kind.name} of {schedule.size_bytes} B", "string"),
    )
    return tuple(Trace(version, facts, tuple(line)) for line in nodes)


def _message(number: int, name: str, kind: str, size: int, peer: int, tag: int) -> Node:
    attributes = (
        Attribute("is_cpu_op", False, "bool"),
        Attribute("comm_size", size, "int64"),
        Attribute("comm_dst" if kind == "send" else "comm_src", peer, "int32"),
        Attribute("comm_tag", tag, "int32"),
    )
    return Node(number, name, kind, attributes=attributes)
