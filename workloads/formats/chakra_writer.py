"""Schedules as Chakra traces of sends and receives: ASTRA-sim's custom collectives.

A transfer is a send at its source and a receive at its destination, with a tag of its own between the two. What a
transfer waits for is a data dependency at its source. A trace has no chunks, no routes and no reductions: a transfer
is one message, and adding takes no time.
"""

from collections import defaultdict
from typing import Annotated

from collectives.core.schedule import Schedule
from collectives.core.transfers import parents_of
from topologies.checks import Choice, WeftError, checked
from workloads.formats.chakra import VERSIONS, Trace
from workloads.formats.chakra_attributes import Attribute
from workloads.formats.chakra_schema import Node
from workloads.formats.message_limit import check_messages

MOST_MESSAGES = 1_000_000

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
    check_messages(pattern, MOST_MESSAGES, "Chakra trace")
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
