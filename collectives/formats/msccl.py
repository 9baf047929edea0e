"""MSCCL XML, read: parsed, checked against the limits of its runtime, proved by running it, and turned into transfers.

The format is that of microsoft/msccl and of Azure/msccl-scheduler. A thread block runs its steps in order, slice by
slice; it waits for steps of other thread blocks of its GPU through `depid`; sends and receives pair first come, first
served on each (sender, receiver, channel). A transfer here waits, chunk by chunk, for whatever its step has to have
received before. Local copies and reductions take no time, and the loop over slices that are larger than a chunk of
the simulation is not held back by the thread block's other steps.
"""

from __future__ import annotations

import random
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple
from xml.etree.ElementTree import Element, ParseError, fromstring

import numpy as np

from collectives.core.collective import collective
from collectives.core.pattern import Pattern
from collectives.core.proof import ScheduleError
from collectives.core.schedule import ELEMENT_BYTES, Schedule, schedule
from collectives.core.sends import SendList
from collectives.core.transfers import WHOLE, take
from collectives.formats.msccl_memory import Memory
from topologies import Topology, WeftError
from topologies.text.input_text import read_input
from topologies.units import Quantity

KINDS = {
    "allreduce": "all-reduce", "allgather": "all-gather", "reduce_scatter": "reduce-scatter",
    "reducescatter": "reduce-scatter", "alltoall": "all-to-all", "broadcast": "broadcast", "reduce": "reduce",
}
SENDS = ("s", "rcs", "rrs", "rrcs")
RECEIVES = ("r", "rcs", "rrs", "rrc", "rrcs")
STEPS = (*SENDS, "r", "rrc", "cpy", "re", "nop")
MOST_STEPS, MOST_BLOCKS, MOST_CHANNELS, MOST_COUNT = 256, 216, 32, 71
"""Limits of the runtime: steps of a thread block, thread blocks of a GPU, channels, chunks of a step."""

_KNOWN: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "algo": (("name", "proto", "nchannels", "nchunksperloop", "ngpus", "coll", "inplace", "outofplace", "minBytes",
              "maxBytes", "redop"), ("gpu",)),
    "gpu": (("id", "i_chunks", "o_chunks", "s_chunks"), ("tb", "copy")),
    "tb": (("id", "send", "recv", "chan"), ("step",)),
    "step": (("s", "type", "srcbuf", "srcoff", "dstbuf", "dstoff", "cnt", "depid", "deps", "hasdep"), ()),
    "copy": (("i_off", "o_off"), ()),
}
"""Attributes and children of each element."""

MOST_PLACES = 2**20
"""Chunks of all GPUs together: the proof keeps what each of them holds."""

ORDERS = 3
"""Random orders of the thread blocks in which a program is run for its proof."""


class Step(NamedTuple):
    """One instruction; `depends` is (thread block, step) or None."""

    kind: str
    src: tuple[str, int]
    dst: tuple[str, int]
    chunks: int
    depends: tuple[int, int] | None


class Block(NamedTuple):
    """A thread block; a peer of -1 means none."""

    send: int
    receive: int
    channel: int
    steps: tuple[Step, ...]


class Algo(NamedTuple):
    """A program: the thread blocks of each GPU."""

    name: str
    kind: str
    chunks: int
    in_place: bool
    gpus: tuple[tuple[Block, ...], ...]


Place = tuple[int, int, int]
"""GPU, thread block, step."""


def read_msccl(path: str | Path, topology: Topology, size: Quantity, element_bytes: int = ELEMENT_BYTES) -> Schedule:
    """The schedule of an MSCCL file on a topology.

    Parameters
    ----------
    path : path
    topology : Topology
        With as many NPUs as the file has GPUs.
    size : quantity
        Bytes of the array.
    element_bytes : int

    Raises
    ------
    WeftError
        A file that is no such XML, breaks a limit, or does not do its collective.
    """
    text = read_input(path, "schedule file")
    return schedule(msccl_pattern(parse_msccl(text, str(path)), topology), size, element_bytes)


def parse_msccl(text: str, name: str = "MSCCL XML") -> Algo:
    """The program in a text.

    Raises
    ------
    WeftError
        As for `read_msccl`.
    """
    if "<!DOCTYPE" in text.upper() or "<!ENTITY" in text.upper():
        raise WeftError(f"{name} declares entities: only plain XML is read")
    try:
        root = fromstring(text)
    except ParseError as fault:
        raise WeftError(f"{name} is not XML: {fault}") from None
    if root.tag != "algo":
        raise WeftError(f"{name} has the root <{root.tag}>: an MSCCL file begins with <algo>")
    _check_known(root, name)
    coll = _text(root, "coll", name)
    if coll not in KINDS:
        raise WeftError(f"{name} has coll={coll!r}: known are {', '.join(KINDS)}")
    gpus = root.findall("gpu")
    count = _whole(root, "ngpus", name)
    if count != len(gpus) or [_whole(gpu, "id", name) for gpu in gpus] != list(range(count)):
        raise WeftError(f"{name} says ngpus={count} and has GPUs {[gpu.get('id') for gpu in gpus]}")
    if not 1 <= _whole(root, "nchunksperloop", name) * max(count, 1) <= MOST_PLACES:
        chunks = root.get("nchunksperloop")
        raise WeftError(f"{name} has nchunksperloop={chunks}: 1 to {MOST_PLACES // max(count, 1)} for {count} GPUs")
    algo = Algo(
        _text(root, "name", name), KINDS[coll], _whole(root, "nchunksperloop", name),
        _whole(root, "inplace", name) == 1, tuple(_gpu(gpu, name) for gpu in gpus),
    )
    _check(algo, name)
    return algo


def _check_known(element: Element, name: str) -> None:
    """Refuse elements and attributes that mean nothing here."""
    known, inside = _KNOWN[element.tag]
    for key in element.attrib:
        if key not in known:
            raise WeftError(f"{name}: <{element.tag}> has the unknown attribute {key!r}: known are {', '.join(known)}")
    for child in element:
        if child.tag not in inside:
            raise WeftError(f"{name}: <{child.tag}> is unknown inside <{element.tag}>")
        _check_known(child, name)


def _text(element: Element, key: str, name: str) -> str:
    value = element.get(key)
    if value is None:
        raise WeftError(f"{name}: <{element.tag}> lacks the attribute {key}")
    return value


def _whole(element: Element, key: str, name: str) -> int:
    value = _text(element, key, name)
    try:
        return int(value)
    except ValueError:
        raise WeftError(f"{name}: <{element.tag}> has {key}={value!r}: give a whole number") from None


def _gpu(element: Element, name: str) -> tuple[Block, ...]:
    what = f"{name}: GPU {element.get('id')}"
    blocks = element.findall("tb")
    if [_whole(block, "id", what) for block in blocks] != list(range(len(blocks))):
        raise WeftError(f"{what}: thread blocks must be numbered from 0")
    if len(blocks) > MOST_BLOCKS:
        raise WeftError(f"{what} has {len(blocks)} thread blocks: at most {MOST_BLOCKS}")
    before = tuple(
        Step("cpy", ("i", _whole(one, "i_off", what)), ("o", _whole(one, "o_off", what)), 1, None)
        for one in element.findall("copy")
    )
    first = (Block(-1, -1, -1, before),) if before else ()
    return tuple(_block(block, f"{what}, thread block {block.get('id')}") for block in blocks) + first


def _block(element: Element, what: str) -> Block:
    steps = element.findall("step")
    if len(steps) > MOST_STEPS:
        raise WeftError(f"{what} has {len(steps)} steps: at most {MOST_STEPS}")
    if [_whole(step, "s", what) for step in steps] != list(range(len(steps))):
        raise WeftError(f"{what}: steps must be numbered from 0 in their order")
    channel = _whole(element, "chan", what)
    if channel >= MOST_CHANNELS:
        raise WeftError(f"{what} has channel {channel}: at most {MOST_CHANNELS}")
    return Block(
        _whole(element, "send", what), _whole(element, "recv", what), channel,
        tuple(_step(step, f"{what}, step {step.get('s')}") for step in steps),
    )


def _step(element: Element, what: str) -> Step:
    kind, count = _text(element, "type", what), _whole(element, "cnt", what)
    if kind not in STEPS:
        raise WeftError(f"{what} has type={kind!r}: known are {', '.join(STEPS)}")
    if not 0 <= count <= MOST_COUNT:
        raise WeftError(f"{what} has cnt={count}: 0 to {MOST_COUNT}")
    places = []
    for buffer, offset in (("srcbuf", "srcoff"), ("dstbuf", "dstoff")):
        name = _text(element, buffer, what)
        if name not in ("i", "o", "s"):
            raise WeftError(f"{what} has {buffer}={name!r}: i, o or s")
        places.append((name, _whole(element, offset, what)))
    block = _whole(element, "depid", what)
    depends = (block, _whole(element, "deps", what)) if block >= 0 else None
    return Step(kind, places[0], places[1], count, depends)


def _check(algo: Algo, name: str) -> None:
    """Peers, and what waits for what."""
    seen = set()
    for gpu, blocks in enumerate(algo.gpus):
        for number, block in enumerate(blocks):
            what = f"{name}: GPU {gpu}, thread block {number}"
            for peer, way in ((block.send, "send"), (block.receive, "recv")):
                if peer == gpu or not -1 <= peer < len(algo.gpus):
                    raise WeftError(f"{what} has {way}={peer}: another GPU, or -1 for none")
                if peer >= 0 and (gpu, peer, block.channel, way) in seen:
                    raise WeftError(f"{what}: a second thread block for {way}={peer} on channel {block.channel}")
                seen.add((gpu, peer, block.channel, way))
            for at, step in enumerate(block.steps):
                if (step.kind in SENDS and block.send < 0) or (step.kind in RECEIVES and block.receive < 0):
                    raise WeftError(f"{what}, step {at} is {step.kind!r} without a peer")
                if step.depends and not _there(blocks, *step.depends):
                    other, which = step.depends
                    raise WeftError(f"{what}, step {at} waits for step {which} of thread block {other}: there is none")


def _there(blocks: tuple[Block, ...], block: int, step: int) -> bool:
    return 0 <= block < len(blocks) and 0 <= step < len(blocks[block].steps)


def msccl_pattern(algo: Algo, topology: Topology) -> Pattern:
    """The pattern of a program, proved by running it.

    Raises
    ------
    WeftError
        Another number of NPUs, sends and receives that do not pair, or a program that does not do its collective.
    """
    p = len(algo.gpus)
    if topology.n_npus != p:
        raise WeftError(f"{algo.name} is for {p} GPUs, and {topology.name} has {topology.n_npus} NPUs")
    run_msccl(algo)
    pairs = _pairs(algo)
    sends = SendList()
    number: dict[Place, int] = {}
    for at, (place, receiver) in enumerate(pairs.items()):
        step = _step_at(algo, place)
        number[place] = sends.add(place[0], receiver[0], (), count=step.chunks, port=place[1], step=place[2])
        assert number[place] == at
    counts = [_step_at(algo, place).chunks for place in pairs]
    arrival = {receiver: number[place] for place, receiver in pairs.items()}
    for place, waited in _waits(algo, arrival):
        count = _step_at(algo, place).chunks
        for one in sorted(waited):
            sends.wait(number[place], one, 0 if counts[one] == count else WHOLE)
    transfers, _ = sends.build()
    kind = collective(algo.kind)
    return Pattern(
        topology=topology, kind=kind, algorithm="msccl", form=algo.name,
        n_blocks=algo.chunks * (p if algo.kind == "all-to-all" else 1),
        emit=lambda ranks: take(transfers, np.flatnonzero(np.isin(transfers.src, ranks))),
        blocks_of=_unnamed, own_proof=lambda: f"proved by {ORDERS} runs of its steps", only_own_proof=True,
    )


def _unnamed(source: int, slot: int) -> Sequence[int]:
    raise WeftError("the chunks of an MSCCL program move between buffers: its transfers have no named blocks")


def _step_at(algo: Algo, place: Place) -> Step:
    gpu, block, step = place
    return algo.gpus[gpu][block].steps[step]


def _pairs(algo: Algo) -> dict[Place, Place]:
    """The receiving step of each sending one."""
    ends: dict[tuple[int, int, int], list[list[Place]]] = defaultdict(lambda: [[], []])
    for gpu, blocks in enumerate(algo.gpus):
        for number, block in enumerate(blocks):
            for at, step in enumerate(block.steps):
                if step.kind in SENDS:
                    ends[gpu, block.send, block.channel][0].append((gpu, number, at))
                if step.kind in RECEIVES:
                    ends[block.receive, gpu, block.channel][1].append((gpu, number, at))
    pairs = {}
    for (src, dst, channel), (out, into) in ends.items():
        if len(out) != len(into):
            raise WeftError(
                f"{algo.name}: GPU {src} sends {len(out)} times to GPU {dst} on channel {channel}, which receives "
                f"{len(into)} times"
            )
        for one, other in zip(out, into, strict=True):
            if _step_at(algo, one).chunks != _step_at(algo, other).chunks:
                raise WeftError(f"{algo.name}: step {one} sends another number of chunks than {other} receives")
            pairs[one] = other
    return pairs


def _waits(algo: Algo, arrival: dict[Place, int]) -> Iterator[tuple[Place, set[int]]]:
    """For each sending step the transfers that must have arrived: the last one of every connection."""
    known: dict[Place, dict[tuple[int, int], tuple[int, int]]] = {}
    for place in _in_order(algo):
        gpu, number, at = place
        block = algo.gpus[gpu][number]
        step = block.steps[at]
        last: dict[tuple[int, int], tuple[int, int]] = {}
        before = ([(gpu, number, at - 1)] if at else []) + ([(gpu, *step.depends)] if step.depends else [])
        for one in before:
            for connection, found in known[one].items():
                last[connection] = max(last.get(connection, found), found)
        if step.kind in RECEIVES:
            last[block.receive, block.channel] = (at, arrival[place])
        known[place] = last
        if step.kind in SENDS:
            yield place, {transfer for _, transfer in last.values()}


def _in_order(algo: Algo) -> list[Place]:
    """Steps of every GPU, each after the one before it and the one it waits for."""
    order: list[Place] = []
    for gpu, blocks in enumerate(algo.gpus):
        done = [0] * len(blocks)
        moved = True
        while moved:
            moved = False
            for number, block in enumerate(blocks):
                while done[number] < len(block.steps):
                    depends = block.steps[done[number]].depends
                    if depends and done[depends[0]] <= depends[1]:
                        break
                    order.append((gpu, number, done[number]))
                    done[number] += 1
                    moved = True
        for number, block in enumerate(blocks):
            if done[number] < len(block.steps):
                what = f"{algo.name}: GPU {gpu}, thread block {number}, step {done[number]}"
                raise ScheduleError(f"{what} waits in a circle")
    return order


def run_msccl(algo: Algo) -> None:
    """Run a program on sets of contributions, in several random orders.

    Raises
    ------
    ScheduleError
        It stops before its end, adds a contribution twice, or ends without the collective done.
    """
    for seed in range(ORDERS):
        memory = Memory(algo.kind, len(algo.gpus), algo.chunks, algo.in_place, algo.name)
        _run(algo, memory, random.Random(seed))
        memory.check()


def _run(algo: Algo, memory: Memory, rng: random.Random) -> None:
    done = {(gpu, number): 0 for gpu, blocks in enumerate(algo.gpus) for number in range(len(blocks))}
    wires: dict[tuple[int, int, int], deque[list[frozenset[tuple[int, int]]]]] = defaultdict(deque)
    live = [key for key in done if algo.gpus[key[0]][key[1]].steps]
    while live:
        rng.shuffle(live)
        moved = False
        for gpu, number in list(live):
            block = algo.gpus[gpu][number]
            while done[gpu, number] < len(block.steps):
                step = block.steps[done[gpu, number]]
                waits = step.depends and done[gpu, step.depends[0]] <= step.depends[1]
                wire = wires[block.receive, gpu, block.channel]
                if waits or (step.kind in RECEIVES and not wire):
                    break
                arrived = wire.popleft() if step.kind in RECEIVES else []
                sent = memory.execute(gpu, step.kind, step.src, step.dst, step.chunks, arrived)
                if step.kind in SENDS:
                    wires[gpu, block.send, block.channel].append(sent)
                done[gpu, number] += 1
                moved = True
                if rng.random() < 0.3:
                    break
        live = [key for key in live if done[key] < len(algo.gpus[key[0]][key[1]].steps)]
        if not moved and live:
            gpu, number = live[0]
            raise ScheduleError(f"{algo.name}: GPU {gpu}, thread block {number} stops before step {done[gpu, number]}")
