"""An execution plan of MSCCL++, parsed from JSON: the dialect of `mscclpp.language` from v0.8.0 on.

An operation names channels and remote buffers by their place in the lists of its thread block, whose entries are places
in the lists of the GPU; here both are resolved to GPUs. The n-th memory (or port) channel from a to b is the other end
of the n-th from b to a.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

from collectives.formats.msccl_program import KINDS, MOST_PLACES
from topologies import WeftError
from topologies.checks import choice, integer, told, truth
from topologies.text.plain_data import parse_json
from topologies.text.schema import tell_over
from topologies.units import format_size

BUFFERS = {"i": "input", "o": "output", "s": "scratch"}
CHANNELS = ("memory", "port")
SIGNALS, WAITS = ("signal", "rlxsignal", "sem_release"), ("wait", "rlxwait", "sem_acquire")
_SYNCS = ("nop", "barrier", "flush", *SIGNALS, *WAITS)
_PAIRED = ("put", "pws", "pwsf", "get", "ppkt")
"""Operations that copy each source to its destination; others write one sum, or one source, to every destination."""

_MOVES: Mapping[str, tuple[str, str]] = {
    "copy": ("L", "L"), "put": ("L+", "R+"), "pws": ("L+", "R+"), "pwsf": ("L+", "R+"), "get": ("R+", "L+"),
    "re": ("L+", "L"), "res": ("L+", "LR+"), "rre": ("LR+", "L"), "rres": ("LR+", "LR+"),
    "ppkt": ("L+", "Q+"), "rppkt": ("P", "Q+"), "cpkt": ("L", "P"), "upkt": ("P", "L"),
    "repkt": ("LP+", "L"), "respkt": ("LP+", "LQ+"), "recpkt": ("LP+", "LP"), "recspkt": ("LP+", "LPQ+"),
    "glres": ("S", "S"), "gstore": ("L", "S"), "gstorepkt": ("P", "T"),
}
"""Sources and destinations of each operation: local, remote, or those of a switch channel; P, Q and T are the same as
packets. The last one may be there several times where a plus follows."""
_PLACES = {"P": "L", "Q": "R", "T": "S"}
_THROUGH_PORTS = ("put", "pws", "pwsf", "ppkt", "rppkt")

MOST_OPS, MOST_OF_BLOCK, _MOST_OF_OP, _MOST_SEMAPHORES = 64, 16, 8, 16
"""Limits of the executor: operations of a thread block with those in pipelines, channels of a type or remote buffers of
a thread block, channels of an operation (and two buffers more on a side), and semaphores of one, which are the most
barriers too."""

_PASSED_OVER = {"num_threads_per_block", "reduce_op", "rank", "size", "access_channel_types", "channel_ids",
                "channel_type", "name"}
"""Keys that need no note: the executor does not look at them either, or they are of an operation that takes none."""


class Ref(NamedTuple):
    """Chunks of a buffer, on one GPU or on all of a switch channel."""

    gpus: tuple[int, ...]
    buffer: str  # key of `BUFFERS`
    first: int
    size: int
    place: str  # L, R or S: local, remote, or through a switch
    packet: bool


class End(NamedTuple):
    """The end of a channel: the n-th of a type to a peer, or a semaphore of the GPU."""

    kind: str
    peer: int
    number: int


class Op(NamedTuple):
    """One operation."""

    name: str
    src: tuple[Ref, ...] = ()
    dst: tuple[Ref, ...] = ()
    ends: tuple[End, ...] = ()  # thread i acts on the i-th
    channel: str = ""  # its type
    part: tuple[int, int] = (0, 1)  # number, and parts that the thread blocks of a group make of every range
    meets: tuple[int, int] = (0, 0)  # barrier, and thread blocks that meet there
    unit: int = 0  # bytes of every range that an iteration of a pipeline handles
    span: int = 0  # chunks that all iterations together handle
    body: tuple["Op", ...] = ()

    def pairs(self) -> list[tuple[tuple[Ref, ...], tuple[Ref, ...]]]:
        """Sources that are summed, and the destinations of the sum."""
        if self.name not in _PAIRED:
            return [(self.src, self.dst)]
        return [((one,), (other,)) for one, other in zip(self.src, self.dst, strict=True)]

    def has_packets(self) -> bool:
        """Whether it reads or writes packets."""
        return any(ref.packet for ref in (*self.src, *self.dst))


class Plan(NamedTuple):
    """A plan."""

    name: str
    kind: str  # a collective of weft
    chunks: int  # of the whole array
    in_place: bool
    gpus: tuple[tuple[tuple[Op, ...], ...], ...]  # operations of each thread block of each GPU
    init: tuple[tuple[int, ...], ...]  # values of the semaphores of each GPU
    scratch: int  # most chunks of a GPU
    reuses: bool  # whether scratch is of a fixed size that all plans share
    double: bool  # whether launches take turns between two scratch buffers
    alignment: int
    bytes_span: tuple[int, int]
    title: str

    def ops(self) -> Iterator[Op]:
        """All operations, those in pipelines too."""
        for op in (op for blocks in self.gpus for ops in blocks for op in ops):
            yield op
            yield from op.body

    def is_switched(self) -> bool:
        """Whether switches reduce or multicast."""
        return any(ref.place == "S" for op in self.ops() for ref in (*op.src, *op.dst))

    def told(self, size_bytes: int) -> str:
        """Why the executor does not take an array of this size, and where it departs from what is simulated."""
        low, high = self.bytes_span
        step = self.alignment * self.chunks
        said = [what for what, holds in (
            (f"the executor takes arrays of {format_size(low)} to {format_size(high)} here", low <= size_bytes <= high),
            (f"the executor takes multiples of {step} B here", size_bytes % step == 0),
            ("the executor's offsets end at 4 GiB", size_bytes <= 2**32)) if not holds]
        for op in self.ops():
            apart = any(src[0].first != dst[0].first for src, dst in op.pairs() if src)
            if op.name == "flush" or (op.name in ("get", "glres") and apart):
                said.append(f"{op.name} is simulated as it is meant; the executor " + (
                    "does nothing there" if op.name == "flush" else "mistakes its unequal offsets"))
        return "; ".join(dict.fromkeys(said))


class _Item:
    """An object of the file; `where` is the prefix of every message."""

    def __init__(self, data: Any, where: str, over: dict[str, set[str]]) -> None:
        if not isinstance(data, dict):
            raise WeftError(f"{where} is {told(data)}: an object of keys and values is expected")
        self.data, self.where, self.over = data, where, over
        self.unread = over.setdefault(where, set(data) - _PASSED_OVER)

    def get(self, key: str, absent: Any = None) -> Any:
        self.unread.discard(key)
        if key not in self.data and absent is None:
            raise WeftError(f"{self.where} lacks {key!r}")
        return self.data.get(key, absent)

    def whole(self, key: str, most: int, least: int = 0, absent: int | None = None) -> int:
        return integer(self.get(key, absent), f"{self.where}: {key}", least, most)

    def truth(self, key: str) -> bool:
        return truth(self.get(key, False), f"{self.where}: {key}")

    def word(self, key: str, accepted: Collection[str]) -> str:
        return choice(self.get(key), accepted, f"{self.where}: {key}")

    def items(self, key: str, absent: Any = None) -> list[Any]:
        value = self.get(key, absent)
        if not isinstance(value, list):
            raise WeftError(f"{self.where}: {key} is {told(value)}: give a list")
        return value

    def below(self, key: str, what: str, absent: Any = None) -> list["_Item"]:
        """The objects of a list."""
        return [_Item(one, f"{self.where}, {what} {at}", self.over) for at, one in enumerate(self.items(key, absent))]

    def places(self, key: str, of: list[Any], what: str) -> list[Any]:
        """The items of a list whose numbers are given."""
        for one in (found := self.items(key)):
            if type(one) is not int or not 0 <= one < len(of):
                raise WeftError(f"{self.where}: {key} has {told(one)}: there are {len(of)} {what}")
        return [of[one] for one in found]

    def limit(self, count: int, most: int, what: str) -> None:
        if count > most:
            raise WeftError(f"{self.where} has {count} {what}: the executor has room for {most}")


def parse_plan(text: str, file: str = "") -> Plan:
    """The plan in a text.

    `file`: that it came from, for messages.
    WeftError: no plan, one of an older dialect, or one that the executor would not load.
    """
    name, over = file or "MSCCL++ plan", dict[str, set[str]]()
    top = _Item(parse_json(text, name), name, over)
    gpus = top.below("gpus", "GPU")
    _refuse_older(name, gpus)
    if not gpus or [gpu.get("id") for gpu in gpus] != list(range(len(gpus))):
        raise WeftError(f"{name} has the GPUs {[gpu.get('id') for gpu in gpus]}: they are numbered from 0")
    kind = KINDS[top.word("collective", ("allgather", "allreduce", "reducescatter", "alltoall"))]
    most, packets = MOST_PLACES // len(gpus), top.word("protocol", ("Simple", "LL")) == "LL"
    chunks = [{key: gpu.whole(f"{word}_chunks", most) for key, word in BUFFERS.items()} for gpu in gpus]
    whole = _check_chunks(name, kind, chunks)
    blocks = tuple(_Gpu(at, gpu, chunks, packets).blocks for at, gpu in enumerate(gpus))
    init = tuple(tuple(one.whole("init_value", 2**31 - 1) for one in gpu.below("semaphores", "semaphore", []))
                 for gpu in gpus)
    span = top.whole("min_message_size", 2**64 - 1, 0, 0), top.whole("max_message_size", 2**64 - 1, 0, 2**64 - 1)
    plan = Plan(
        str(top.get("name")), kind, whole, top.truth("inplace"), blocks, init, max(one["s"] for one in chunks),
        top.truth("reuse_resources"), top.truth("use_double_scratch_buffer"),
        top.whole("buffer_alignment", 2**20, 1, 16), span, name,
    )
    tell_over(name, sorted({key for keys in over.values() for key in keys}), "the executor")
    return plan


def _refuse_older(name: str, gpus: list[_Item]) -> None:
    old = next((key for gpu in gpus for key in ("inputChunks", "chunkGroups") if key in gpu.data), "")
    channels = [one for gpu in gpus if not old for one in gpu.below("channels", "channel", [])]
    if any(one.data.get("channel_type") == "switch" and "buffer_type" not in one.data for one in channels):
        old = "a switch channel without buffer_type"
    if old:
        raise WeftError(f"{name} is a plan of an older dialect of MSCCL++ ({old}), which its executor of v0.8.0 and "
                        "later does not load: write it again with mscclpp.language")


def _check_chunks(name: str, kind: str, chunks: list[dict[str, int]]) -> int:
    """The chunks of the whole array, to which the buffers of all GPUs fit."""
    p, whole = len(chunks), max(chunks[0]["i"], chunks[0]["o"], 1)
    part = max(1, whole // p)
    wanted = {"all-gather": (part, part * p), "reduce-scatter": (part * p, part), "all-to-all": (part * p, part * p)}
    takes = wanted.get(kind, (whole, whole))
    for at, one in enumerate(chunks):
        if (one["i"], one["o"]) != takes:
            raise WeftError(f"{name}: GPU {at} has input_chunks={one['i']} and output_chunks={one['o']}: {kind} over "
                            f"{p} GPUs takes {takes[0]} and {takes[1]}, alike on all")
    return max(takes)


class _Gpu:
    """One GPU of the file, with its lists resolved."""

    def __init__(self, at: int, gpu: _Item, chunks: list[dict[str, int]], packets: bool) -> None:
        self.at, self.chunks, self.packets, everyone = at, chunks, packets, list(range(len(chunks)))
        self.channels: dict[str, list[Any]] = {**{kind: [] for kind in CHANNELS}, "switch": []}
        count: Counter[End] = Counter()
        for channel in gpu.below("channels", "channel", []):
            kind = channel.word("channel_type", self.channels)
            if kind == "switch":
                buffer = channel.word("buffer_type", BUFFERS)
                self.channels[kind] += [(tuple(group.places("ranks", everyone, "GPUs")), buffer)
                                        for group in channel.below("rank_groups", "group")]
                continue
            for peer in channel.places("connected_to", everyone, "GPUs"):
                if peer == at:
                    raise WeftError(f"{channel.where} is connected to its own GPU")
                self.channels[kind].append(End(kind, peer, count[End(kind, peer, 0)]))
                count[End(kind, peer, 0)] += 1
        self.remote = [
            ((one.whole("rank", everyone[-1]),), one.word("type", BUFFERS), one.items("access_channel_types"))
            for one in gpu.below("remote_buffers", "remote buffer", [])
        ]
        self.semaphores = [End("semaphore", at, one) for one in range(len(gpu.items("semaphores", [])))]
        blocks = gpu.below("threadblocks", "thread block")
        if [block.get("id") for block in blocks] != list(range(len(blocks))):
            raise WeftError(f"{gpu.where}: thread blocks are numbered from 0")
        self.blocks = tuple(map(self._block, blocks))

    def _block(self, block: _Item) -> tuple[Op, ...]:
        self.mine: dict[str, list[Any]] = {kind: [] for kind in self.channels}
        self.refs: dict[str, list[Any]] = {kind: [] for kind in ("", *self.channels)}
        for one in block.below("channels", "channels", []):
            kind = one.word("channel_type", self.channels)
            self.mine[kind] += one.places("channel_ids", self.channels[kind], f"{kind} channels")
        for one in block.below("remote_buffer_refs", "remote_buffer_refs", []):
            kind = one.word("access_channel_type", CHANNELS)
            for remote in one.places("remote_buffer_ids", self.remote, "remote buffers"):
                if kind not in remote[2]:
                    raise WeftError(f"{one.where}: a buffer of GPU {remote[0][0]} has no access by {kind} channels")
                self.refs[kind].append(remote)
        for what, lists in (("channels", self.mine), ("remote buffers", self.refs)):
            block.limit(max(map(len, lists.values())), MOST_OF_BLOCK, f"{what} of a type")
        ops = tuple(map(self._op, block.below("ops", "operation")))
        block.limit(sum(1 + len(op.body) for op in ops), MOST_OPS, "operations, those of pipelines too")
        return ops

    def _op(self, item: _Item, inner: bool = False) -> Op:
        if item.get("name") == "glre":
            raise WeftError(f"{item.where} is glre, which the executor does not know: fuse it with a store (glres)")
        name = item.word("name", (*_MOVES, *_SYNCS, *([] if inner else ["pipeline"])))
        item.where = f"{item.where} ({name})"
        if name == "pipeline":
            body = tuple(self._op(one, True) for one in item.below("ops", "operation"))
            if any(op.has_packets() for op in body):
                raise WeftError(f"{item.where} has an operation on packets, which handles its whole range each time")
            context = _Item(item.get("iter_context"), f"{item.where}: iter_context", item.over)
            unit, span = context.whole("unit_size", 2**32 - 1, 1), context.whole("num_chunks", MOST_PLACES, 1)
            return Op(name, unit=unit, span=span, body=body)
        if name == "barrier":
            barrier = item.whole("barrier_id", _MOST_SEMAPHORES - 1)
            return Op(name, meets=(barrier, item.whole("num_threadblocks", 2**16, 1)))
        if name.startswith("sem_"):
            semaphores = item.places("semaphore_ids", self.semaphores, "semaphores of the GPU")
            item.limit(len(semaphores), _MOST_SEMAPHORES, "semaphores")
            return Op(name, ends=tuple(semaphores))
        op, moves = Op(name), name in _MOVES
        if name != "nop" and (not moves or "channel_type" in item.data):
            types: Collection[str] = ("port",) if name == "flush" else self.channels if moves else CHANNELS
            kind = item.word("channel_type", types)
            op = op._replace(channel=kind)
            if kind == "port" or not moves:
                ends = item.places("channel_ids", self.mine[kind], f"{kind} channels of the thread block")
                item.limit(len(ends), _MOST_OF_OP, "channels")
                op = op._replace(ends=tuple(ends))
        return self._move(item, op) if moves else op

    def _move(self, item: _Item, op: Op) -> Op:
        group = _Item(item.get("tbg_info", {"tb_id": 0, "tbg_size": 1}), f"{item.where}: tbg_info", item.over)
        parts = group.whole("tbg_size", 64, 1)
        src, dst = (self._side(item, key, form, self.refs[op.channel])
                    for key, form in zip(("src_buff", "dst_buff"), _MOVES[op.name], strict=True))
        op = op._replace(src=src, dst=dst, part=(group.whole("tb_id", parts - 1), parts))
        if len({ref.size for ref in (*src, *dst)}) > 1 or (op.name in _PAIRED and len(src) != len(dst)):
            raise WeftError(f"{item.where} has {len(src)} sources and {len(dst)} destinations of "
                            f"{[ref.size for ref in (*src, *dst)]} chunks: they differ")
        if any(ref.packet and (ref.buffer != "s" or not self.packets) for ref in (*src, *dst)):
            raise WeftError(f"{item.where} handles packets, which are in scratch of plans of protocol LL")
        if op.channel == "port" and (op.name not in _THROUGH_PORTS or len(op.ends) != len(dst)):
            raise WeftError(f"{item.where} has {len(op.ends)} port channels for {len(dst)} destinations")
        if op.channel == "memory" and op.name in ("pws", "pwsf"):
            raise WeftError(f"{item.where} on a memory channel does not signal: use put, nop and signal")
        return op

    def _side(self, item: _Item, key: str, form: str, refs: list[Any]) -> tuple[Ref, ...]:
        """The sources or the destinations of an operation."""
        side = [self._ref(one, refs) for one in item.below(key, key)]
        letters = form.rstrip("+")
        letters += letters[-1] * (len(side) - len(letters)) * form.endswith("+")
        found = "".join(ref.place for ref in side)
        if found != "".join(_PLACES.get(one, one) for one in letters):
            raise WeftError(f"{item.where}: {key} has the buffers {found or 'none'}, and {form} is accepted "
                            "(local, remote, switch; P, Q, T: these as packets)")
        item.limit(len(side), _MOST_OF_OP + 2, f"buffers in {key}")
        return tuple(ref._replace(packet=one in _PLACES) for ref, one in zip(side, letters, strict=True))

    def _ref(self, item: _Item, refs: list[Any]) -> Ref:
        gpus: tuple[int, ...]
        if "switch_channel_id" in item.data:
            switches = self.mine["switch"]
            (gpus, buffer), place = switches[item.whole("switch_channel_id", len(switches) - 1)], "S"
        elif "buffer_id" in item.data:
            (gpus, buffer, _), place = refs[item.whole("buffer_id", len(refs) - 1)], "R"
        else:
            buffer, gpus, place = item.word("type", BUFFERS), (self.at,), "L"
        first, size = item.whole("index", MOST_PLACES), item.whole("size", MOST_PLACES, 1)
        for gpu in gpus:
            if first + size > self.chunks[gpu][buffer]:
                raise WeftError(f"{item.where}: chunks {first} to {first + size - 1} are beyond "
                                f"{BUFFERS[buffer]}_chunks={self.chunks[gpu][buffer]} of GPU {gpu}")
        return Ref(gpus, buffer, first, size, place, False)
