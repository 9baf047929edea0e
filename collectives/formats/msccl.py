"""MSCCL XML, read: checked for correctness as its runtime would execute it, and turned into transfers.

A thread block runs its steps in order, slice by slice; it waits for steps of other thread blocks of its GPU through
`depid`; sends and receives pair first come, first served on each (sender, receiver, channel). A transfer here waits,
chunk by chunk, for whatever its step has to have received before. Local copies and reductions take no time, and the
loop over slices that are larger than a chunk of the simulation is not held back by the thread block's other steps.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator, Sequence

from collectives.core.pattern import OwnProof, Pattern
from collectives.core.sends import SendList
from collectives.core.transfers import WHOLE
from collectives.formats.msccl_memory import Memory, Value
from collectives.formats.msccl_order import Cut, Order, check_races, order_of
from collectives.formats.msccl_program import RECEIVES, SENDS, Algo, Place, publisher, waits_of
from topologies import Topology, WeftError

PROOF = "proved: all conflicting steps are ordered, and one symbolic run does the collective"


def msccl_pattern(algo: Algo, topology: Topology, cut: Cut = Cut(), note: str = "", name: str = "msccl") -> Pattern:
    """The pattern of a program, checked as it would be executed.

    `cut`: how the runtime executes it on the array; whole steps in one turn unless given.
    WeftError: another number of NPUs.
    ScheduleError: sends and receives that do not pair, a deadlock, a race, or a program that does not do its
        collective.
    """
    p = len(algo.gpus)
    if topology.n_npus != p:
        raise WeftError(f"{algo.title} is for {p} GPUs, and {topology.name} has {topology.n_npus} NPUs")
    order = prove_msccl(algo, cut)
    pairs = _pairs(algo)
    sends = SendList()
    number: dict[Place, int] = {}
    for at, (place, receiver) in enumerate(pairs.items()):
        step = algo.step(place)
        number[place] = sends.add(place[0], receiver[0], (), count=step.chunks, port=place[1], step=place[2])
        assert number[place] == at
    counts = [algo.step(place).chunks for place in pairs]
    arrival = {receiver: number[place] for place, receiver in pairs.items()}
    for place, waited in _waits(algo, order, arrival):
        count = algo.step(place).chunks
        for one in sorted(waited):
            sends.wait(number[place], one, 0 if counts[one] == count else WHOLE)
    n_blocks = algo.chunks * (p if algo.kind == "all-to-all" else 1)
    proof = OwnProof(lambda: PROOF, unnamed=True)
    return sends.pattern(
        topology, algo.kind, name, n_blocks, form=algo.name, blocks_of=_unnamed, own_proof=proof, note=note
    )


def _unnamed(source: int, slot: int) -> Sequence[int]:
    raise WeftError("the chunks of an MSCCL program move between buffers: its transfers have no named blocks")


def _pairs(algo: Algo) -> dict[Place, Place]:
    """The receiving step of each sending step."""
    ends: dict[tuple[int, int, int], tuple[list[Place], list[Place]]] = defaultdict(lambda: ([], []))
    for gpu, blocks in enumerate(algo.gpus):
        for number, block in enumerate(blocks):
            for at, step in enumerate(block.steps):
                if step.kind in SENDS:
                    ends[gpu, block.send, block.channel][0].append((gpu, number, at))
                if step.kind in RECEIVES:
                    ends[block.receive, gpu, block.channel][1].append((gpu, number, at))
    return {one: other for out, into in ends.values() for one, other in zip(out, into, strict=True)}


def _waits(algo: Algo, order: Order, arrival: dict[Place, int]) -> Iterator[tuple[Place, set[int]]]:
    """For each sending step, the transfers that must have arrived: the last one of every connection."""
    known: dict[Place, dict[tuple[int, int], tuple[int, int]]] = {}
    waits: dict[tuple[int, int], list[list[tuple[int, int]]]] = {}
    for place in dict.fromkeys(order.calls.place(call) for call in order.sequence):
        gpu, number, at = place
        block = algo.gpus[gpu][number]
        step = block.steps[at]
        last: dict[tuple[int, int], tuple[int, int]] = {}
        before = [(gpu, number, at - 1)] if at else []
        if (gpu, number) not in waits:
            waits[gpu, number] = waits_of(block)
        before += [_released_by(algo, gpu, *one) for one in waits[gpu, number][at]]
        for one in before:
            for connection, found in known[one].items():
                last[connection] = max(last.get(connection, found), found)
        if step.kind in RECEIVES:
            last[block.receive, block.channel] = (at, arrival[place])
        known[place] = last
        if step.kind in SENDS:
            yield place, {transfer for _, transfer in last.values()}


def _released_by(algo: Algo, gpu: int, block: int, step: int) -> Place:
    """The step that ends a wait."""
    return gpu, block, publisher(algo.gpus[gpu][block], step)


def prove_msccl(algo: Algo, cut: Cut = Cut()) -> Order:
    """Check a program as the runtime executes it: see `collectives.formats.msccl_order`.

    ScheduleError: it hangs, races, reads what is not there, adds a contribution twice, or ends without the collective
        done.
    """
    order = order_of(algo, cut)
    for aliased in algo.aliased:
        check_races(algo, order, aliased)
        _run(algo, order, aliased)
    return order


def _run(algo: Algo, order: Order, aliased: bool) -> None:
    """Execute the program on sets of contributions, in an order that the rules allow."""
    memory = Memory(algo.kind, len(algo.gpus), algo.chunks, aliased, algo.title)
    for gpu, copies in enumerate(algo.copies):
        for source, target in copies:
            memory.execute(gpu, "cpy", ("i", source), ("o", target), 1, [])
    wires: dict[tuple[int, int, int], deque[list[Value]]] = defaultdict(deque)
    for call in order.sequence:
        gpu, number, at = order.calls.place(call)
        block = algo.gpus[gpu][number]
        step, part = block.steps[at], int(order.calls.part[call])
        arrived = wires[block.receive, gpu, block.channel].popleft() if step.kind in RECEIVES else []
        src, dst = ((buffer, offset + part) for buffer, offset in (step.src, step.dst))
        sent = memory.execute(gpu, step.kind, src, dst, int(order.calls.chunks[call]), arrived)
        if step.kind in SENDS:
            wires[gpu, block.send, block.channel].append(sent)
    memory.check()
