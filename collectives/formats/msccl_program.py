"""An MSCCL program: its thread blocks and their steps, parsed from XML and checked against the limits of its runtime.

The format is that of microsoft/msccl and of Azure/msccl-scheduler.
"""

from collections import Counter
from collections.abc import Mapping
from itertools import pairwise
from typing import NamedTuple

from topologies import WeftError
from topologies.text.plain_xml import Element, parse_xml
from topologies.text.schema import Known, pass_over
from topologies.units import format_size

KINDS = {
    "allreduce": "all-reduce", "allgather": "all-gather", "reduce_scatter": "reduce-scatter",
    "reducescatter": "reduce-scatter", "alltoall": "all-to-all", "broadcast": "broadcast", "reduce": "reduce",
}
SENDS = ("s", "rcs", "rrs", "rrcs")
RECEIVES = ("r", "rcs", "rrs", "rrc", "rrcs")
READS = ("s", "rrs", "rrc", "rrcs", "cpy", "re")
"""Steps that read their source; `re` reads its destination as well."""
WRITES = ("r", "rcs", "rrc", "rrcs", "cpy", "re")
STEPS = (*SENDS, "r", "rrc", "cpy", "re", "nop")
BUFFERS = ("i", "o", "s")
MOST_BLOCKS, MOST_CHANNELS, MOST_BLOCKS_OF_CHANNEL, MOST_COUNT, MOST_OFFSET, MOST_FUSED = 216, 32, 32, 71, 2**15 - 1, 16
"""Limits of every runtime: thread blocks of a GPU, channels, thread blocks of a channel in one direction, chunks of a
step, offsets (int16), and reductions in a row that are fused into one."""

MOST_PLACES = 2**20
"""Limit on chunks over all GPUs, since the proof tracks the contents of each."""

class Runtime(NamedTuple):
    """Limits of one runtime."""

    steps: int  # of a thread block
    blocks: int  # thread blocks of a GPU
    elements: int | None = None  # of the XML; None: no limit
    children: int | None = None  # of an element
    name_letters: int | None = None
    inclusive: bool = True  # whether maxBytes itself is in the range, and 0 is no limit
    most_bytes: int | None = None  # maxBytes where the file has none


RUNTIMES = {
    "msccl": Runtime(256, MOST_BLOCKS, inclusive=False, most_bytes=2**27),
    "msccl-executor-nccl": Runtime(64, 127, 4096, 1024, 254),  # a thread block waits for another by an int8
    "rccl": Runtime(64, 64, 4096, 1024, 254),  # up to ROCm 7.12; later ones execute no such file
}
"""Who executes these files: microsoft/msccl, Azure/msccl-executor-nccl, ROCm/rccl."""

_KNOWN: Known = {
    "algo": (("name", "proto", "nchannels", "nchunksperloop", "ngpus", "coll", "inplace", "outofplace", "minBytes",
              "maxBytes", "redop"), ("gpu",)),
    "gpu": (("id", "i_chunks", "o_chunks", "s_chunks"), ("tb", "copy")),
    "tb": (("id", "send", "recv", "chan"), ("step",)),
    "step": (("s", "type", "srcbuf", "srcoff", "dstbuf", "dstoff", "cnt", "depid", "deps", "hasdep"), ()),
    "copy": (("i_off", "o_off"), ()),
}
"""Attributes and children of each element that a runtime reads."""


class Protocol(NamedTuple):
    """How a connection carries a call."""

    # calls that a sender may be ahead of its receiver: 8 FIFO steps, of which a call takes 4 under Simple and 1 under
    # LL and LL128
    in_flight: int
    chunk_bytes: int  # bytes of every chunk that one turn of the runtime's loop moves


PROTOCOLS = {"Simple": Protocol(2, 2 * 2**20), "LL": Protocol(8, 32 * 2**10), "LL128": Protocol(8, 576_000)}


class Step(NamedTuple):
    """One instruction."""

    kind: str  # one of `STEPS`
    src: tuple[str, int]  # buffer, and offset in chunks
    dst: tuple[str, int]
    chunks: int
    depends: tuple[int, int] | None  # thread block of the same GPU, and step of it, to wait for
    flagged: bool = True  # whether the runtime publishes that the step is done; nobody can wait for another one


class Block(NamedTuple):
    """A thread block; a peer of -1 means none."""

    send: int
    receive: int
    channel: int
    steps: tuple[Step, ...]


class Algo(NamedTuple):
    """A program."""

    name: str
    kind: str  # a collective of weft
    chunks: int  # chunks of the whole array
    # whether input and output are one memory, for each way in which the program may be called
    aliased: tuple[bool, ...]
    gpus: tuple[tuple[Block, ...], ...]  # thread blocks of each GPU
    protocol: str  # key of `PROTOCOLS`
    buffers: tuple[Mapping[str, int], ...]  # declared chunks of the buffers i, o and s of each GPU
    # chunks copied from input to output on each GPU before the thread blocks start
    copies: tuple[tuple[tuple[int, int], ...], ...]
    refused: Mapping[str, str]  # runtimes that do not load it, and why
    bytes_span: tuple[int, int | None]  # minBytes and maxBytes, which may be missing
    title: str  # in messages: its file, or else its name

    def step(self, place: "Place") -> Step:
        """The step at a place."""
        gpu, block, at = place
        return self.gpus[gpu][block].steps[at]


Place = tuple[int, int, int]
"""GPU, thread block, step."""


def parse_msccl(text: str, file: str = "") -> Algo:
    """The program in a text.

    `file`: that it came from, for messages.
    WeftError: a text that is no such XML, or a program that the runtime would not load.
    """
    name = file or "MSCCL XML"
    root = parse_xml(text, name)
    if root.tag != "algo":
        raise WeftError(f"{name} has the root <{root.tag}>: an MSCCL file begins with <algo>")
    pass_over(root, _KNOWN, "the runtime", name)
    gpus, count = root.children, root.whole("ngpus", 1)
    if count != len(gpus) or [gpu.whole("id") for gpu in gpus] != list(range(count)):
        raise WeftError(f"{name} has ngpus={count} but the GPUs {[gpu.text('id') for gpu in gpus]}")
    channels = root.whole("nchannels", 1, MOST_CHANNELS)
    algo = Algo(
        name=root.text("name"), kind=KINDS[root.choice("coll", KINDS)],
        chunks=root.whole("nchunksperloop", 1, MOST_PLACES // count), aliased=_aliased(root),
        gpus=tuple(_gpu(gpu, channels) for gpu in gpus), protocol=root.choice("proto", PROTOCOLS),
        buffers=tuple({one: gpu.whole(f"{one}_chunks", 0, MOST_PLACES) for one in BUFFERS} for gpu in gpus),
        copies=tuple(tuple((one.whole("i_off"), one.whole("o_off")) for one in gpu.all("copy")) for gpu in gpus),
        refused={key: why for key, one in RUNTIMES.items() if (why := _beyond(root, one))},
        bytes_span=_bytes_span(root), title=file or root.text("name"),
    )
    if len(algo.refused) == len(RUNTIMES):
        raise WeftError(f"{name} has {next(iter(algo.refused.values()))}")
    _check(algo, name)
    return algo


def _beyond(root: Element, runtime: Runtime) -> str:
    """What is beyond the limits of a runtime; "" if nothing is."""
    for number, gpu in enumerate(root.children):
        blocks = gpu.all("tb")
        if len(blocks) > runtime.blocks:
            return f"{len(blocks)} thread blocks on GPU {number}: at most {runtime.blocks}"
        for at, block in enumerate(blocks):
            if len(block.children) > runtime.steps:
                return f"{len(block.children)} steps in thread block {at} of GPU {number}: at most {runtime.steps}"
    parents = [root, *root.children, *(block for gpu in root.children for block in gpu.children)]
    counts = [len(one.children) for one in parents]
    found = {"elements": 1 + sum(counts), "children of one element": max(counts), "letters": len(root.text("name"))}
    limits = runtime.elements, runtime.children, runtime.name_letters
    for (what, count), most in zip(found.items(), limits, strict=True):
        if most is not None and count > most:
            return f"{count} {what}{' in its name' * (what == 'letters')}: at most {most}"
    return ""


def _bytes_span(root: Element) -> tuple[int, int | None]:
    least, most = (root.whole(key) if key in root.attributes else None for key in ("minBytes", "maxBytes"))
    if least and most and least > most:
        raise WeftError(f"{root.where} has minBytes={least} and maxBytes={most}: no array is as large and as small")
    return least or 0, most


def not_run(algo: Algo, runtime: str, size_bytes: int) -> str:
    """Why a runtime does not run a program on an array of this size; "" if it does."""
    if runtime in algo.refused:
        return f"it has {algo.refused[runtime]}"
    limits, (least, most) = RUNTIMES[runtime], algo.bytes_span
    if most is None:
        most = limits.most_bytes
    if most is not None and limits.inclusive:
        most = most + 1 if most else None
    if size_bytes < least or (most is not None and size_bytes >= most):
        return f"its minBytes and maxBytes leave out {format_size(size_bytes)}"
    return ""


def told_limits(algo: Algo, size_bytes: int) -> str:
    """Which runtimes do not load a program, and whether all others leave it aside at this size; "" if none."""
    said = [f"{runtime} does not load it: {why}" for runtime, why in algo.refused.items()]
    others = [not_run(algo, runtime, size_bytes) for runtime in RUNTIMES if runtime not in algo.refused]
    return "; ".join(said + [f"no runtime uses it here: {others[0]}"] * all(others))


def _aliased(root: Element) -> tuple[bool, ...]:
    """Whether the program may be called in place, out of place, or both."""
    inside = root.whole("inplace", 0, 1)
    outside = root.whole("outofplace", 0, 1) if "outofplace" in root.attributes else 1 - inside
    if not inside and not outside:
        raise WeftError(f"{root.where} has inplace=0 and outofplace=0: nobody could call it")
    return (*([True] if inside else []), *([False] if outside else []))


def _gpu(element: Element, channels: int) -> tuple[Block, ...]:
    blocks = element.all("tb")
    if [block.whole("id") for block in blocks] != list(range(len(blocks))):
        raise WeftError(f"{element.where}: thread blocks must be numbered from 0")
    return tuple(_block(block, channels) for block in blocks)


def _block(element: Element, channels: int) -> Block:
    steps = element.children
    if [step.whole("s") for step in steps] != list(range(len(steps))):
        raise WeftError(f"{element.where}: steps must be numbered from 0 in their order")
    send, receive = element.whole("send", -1), element.whole("recv", -1)
    channel = element.whole("chan", 0 if max(send, receive) >= 0 else -1, channels - 1)
    return Block(send, receive, channel, tuple(map(_step, steps)))


def _step(element: Element) -> Step:
    kind = element.choice("type", STEPS)
    src, dst = (
        (element.choice(f"{end}buf", BUFFERS), element.whole(f"{end}off", -1, MOST_OFFSET)) for end in ("src", "dst")
    )
    count = element.whole("cnt", 0 if kind == "nop" else 1, MOST_COUNT)
    block, deps = element.whole("depid", -1), element.whole("deps", -1)
    return Step(kind, src, dst, count, (block, deps) if block >= 0 else None, element.whole("hasdep", 0, 1) == 1)


def _check(algo: Algo, name: str) -> None:
    """Peers, buffers, and what waits for what."""
    for gpu, blocks in enumerate(algo.gpus):
        seen: set[tuple[int, int, str]] = set()
        used: Counter[tuple[int, str]] = Counter()
        _check_declared(algo, gpu, f"{name}: GPU {gpu}")
        for number, block in enumerate(blocks):
            what = f"{name}: GPU {gpu}, thread block {number}"
            for peer, end in ((block.send, "send"), (block.receive, "recv")):
                if peer == gpu or peer >= len(algo.gpus):
                    raise WeftError(f"{what} has {end}={peer}: give another GPU, or -1 for none")
                if peer < 0:
                    continue
                if (peer, block.channel, end) in seen:
                    raise WeftError(f"{what}: a second thread block for {end}={peer} on channel {block.channel}")
                seen.add((peer, block.channel, end))
                used[block.channel, end] += 1
                if used[block.channel, end] > MOST_BLOCKS_OF_CHANNEL:
                    raise WeftError(f"{what}: more than {MOST_BLOCKS_OF_CHANNEL} thread blocks {end} on one channel")
            _check_fused(block, what)
            for at, step in enumerate(block.steps):
                if (step.kind in SENDS and block.send < 0) or (step.kind in RECEIVES and block.receive < 0):
                    raise WeftError(f"{what}, step {at} is {step.kind!r} without a peer")
                _check_step(algo, gpu, step, f"{what}, step {at}")


def _check_fused(block: Block, what: str) -> None:
    """Reductions in a row into one place, from one buffer, become one as long as nothing waits in between."""
    row = 1
    for at, (before, step) in enumerate(pairwise(block.steps), 1):
        follows = before.kind == step.kind == "re" and before.dst == step.dst and before.src[0] == step.src[0]
        row = row + 1 if follows and step.depends is None and not before.flagged else 1
        if row > MOST_FUSED:
            raise WeftError(f"{what}, step {at} is reduction {row} in a row into one place: at most {MOST_FUSED}")


def _check_declared(algo: Algo, gpu: int, what: str) -> None:
    """No buffer is larger than the array that the caller passes; copies are inside them."""
    part = algo.chunks // len(algo.gpus)
    scattered = algo.kind in ("all-gather", "reduce-scatter", "all-to-all")
    if scattered and part * len(algo.gpus) != algo.chunks:
        raise WeftError(f"{what}: the {algo.chunks} chunks of {algo.kind} do not divide by {len(algo.gpus)} GPUs")
    most = {"i": part if algo.kind == "all-gather" else algo.chunks,
            "o": part if algo.kind == "reduce-scatter" else algo.chunks}
    for buffer, there in most.items():
        if algo.buffers[gpu][buffer] > there:
            declared = algo.buffers[gpu][buffer]
            raise WeftError(f"{what} declares {buffer}_chunks={declared}: the array has {there} in {algo.kind}")
    for src, dst in algo.copies[gpu]:
        if src >= algo.buffers[gpu]["i"] or dst >= algo.buffers[gpu]["o"]:
            raise WeftError(f"{what} copies i[{src}] to o[{dst}], beyond its declared buffers")


def _check_step(algo: Algo, gpu: int, step: Step, what: str) -> None:
    touched = ([step.src] if step.kind in READS else []) + ([step.dst] if step.kind in WRITES else [])
    for buffer, offset in touched:
        there = algo.buffers[gpu][buffer]
        if offset < 0 or offset + step.chunks > there:
            last = offset + step.chunks - 1
            raise WeftError(f"{what} touches {buffer}[{offset}] to [{last}]: {buffer}_chunks={there} are declared")
    if step.depends is None:
        return
    block, which = step.depends
    blocks = algo.gpus[gpu]
    if block >= len(blocks) or not 0 <= which < len(blocks[block].steps):
        raise WeftError(f"{what} waits for step {which} of thread block {block}: there is none")


def waits_of(block: Block) -> list[list[tuple[int, int]]]:
    """What each step of a thread block waits for: thread blocks and steps.

    The runtime does not execute a `nop`: what it waits for holds the next other step that waits for something itself.
    """
    found: list[list[tuple[int, int]]] = []
    pending: list[tuple[int, int]] = []
    for step in block.steps:
        pending += [] if step.depends is None else [step.depends]
        waits = step.depends is not None and step.kind != "nop"
        found.append(pending if waits else [])
        pending = [] if waits else pending
    return found


def publisher(block: Block, step: int) -> int:
    """The first step from `step` on that publishes its end, which is the one that a wait really waits for; -1: none."""
    return next((at for at in range(step, len(block.steps)) if block.steps[at].flagged), -1)
