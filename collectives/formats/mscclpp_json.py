"""MSCCL++ plan writer: any schedule among ranks as an execution plan (JSON) of v0.8.0 and later.

The thread blocks are those of `collectives.formats.played`. A send puts chunks into scratch of the receiver, which has
room for each, and signals; the receiver waits and copies them, or adds them. What nobody has touched there is put
where it belongs. Before the first put of a connection its receiver says that its kernel runs. What a thread block does
after another of its GPU, it does after a semaphore.
"""

import json
from collections import Counter, defaultdict
from math import gcd
from typing import Any

from collectives.core.pattern import Pattern
from collectives.core.schedule import Schedule
from collectives.formats.mscclpp import cut_of, prove_plan
from collectives.formats.mscclpp_plan import MOST_OF_BLOCK, MOST_OPS, parse_plan
from collectives.formats.played import Connection, Place, Played, Thread, Threads, play, threads_of
from topologies import WeftError

_COLL = {
    "all-gather": "allgather", "all-reduce": "allreduce", "reduce-scatter": "reducescatter", "all-to-all": "alltoall",
}

MOST_BLOCKS = 108
"""Thread blocks of a GPU: all must run at once, and an A100 has so many processors."""

LEAST_OPS = 2
"""Of a send or a receive: put, nop and signal, or wait and nop."""

SLICE_BYTES = 2**20
"""Of a piece that goes on while the next slice arrives."""

_NOP = {"name": "nop"}


def to_mscclpp(schedule: Schedule) -> str:
    """A schedule as a plan, in place but for an all-to-all; proved.

    WeftError: as for `collectives.formats.played.play`; a broadcast or a reduce; more thread blocks or operations than
        the executor has room for.
    """
    pattern = schedule.pattern
    what = f"MSCCL++ plan of {pattern.name} on {pattern.topology.name}"
    if pattern.kind.name not in _COLL:
        raise WeftError(f"{what}: no plan is a {pattern.kind.name}: choose one of {', '.join(_COLL)}")
    played, why = play(schedule, what, MOST_BLOCKS), ""
    run = gcd(*(len(piece.blocks) for piece in played.pieces)) or 1
    if any(len(piece.blocks) > run for piece in played.pieces):
        played = play(schedule, what, MOST_BLOCKS, run)
    ends = Counter(rank for piece in played.pieces for rank in (piece.src, piece.dst))
    if (least := -(-max(ends.values(), default=0) * LEAST_OPS // MOST_OPS)) > MOST_BLOCKS:
        raise WeftError(f"{what}: at least {least} thread blocks of a GPU, more than {MOST_BLOCKS}; use fewer ranks")
    for cut in (16, 12, 11, 10, 9, 8, 6, 4, 3, 2, 1):
        try:
            threads = threads_of(played, MOST_BLOCKS - 1, cut)
            if _least(threads) > MOST_OPS:
                continue
            document = _plan(pattern, played, threads, run)
            blocks = (block for gpu in document["gpus"] for block in gpu["threadblocks"])
            most = max((sum(1 + len(op.get("ops", ())) for op in block["ops"]) for block in blocks), default=0)
            if most > MOST_OPS:  # before it is written, which takes the longest
                why = f"{most} operations of a thread block, more than {MOST_OPS}"
                continue
            text = json.dumps(document, indent=1)
            plan = parse_plan(text, what)
        except WeftError as wrong:
            why = str(wrong)
            continue
        prove_plan(plan, cut_of(plan, schedule.size_bytes))
        return text
    raise WeftError(f"{what}: {why.removeprefix(f'{what}, ')}; use fewer trees, blocks or ranks")


def _least(threads: Threads) -> int:
    """Operations of the longest thread block, at least."""
    of_block = ([2 + (op % 2 == 0) + 2 * bool(threads.waits[op]) for op in one.ops]
                for its in threads.ranks for one in its)
    return max(map(sum, of_block), default=0)


class _Gpu:
    """One GPU of the plan."""

    def __init__(self, rank: int, connections: list[Connection]) -> None:
        mine = [one for one in connections if rank in (one.src, one.dst)]
        self.channel = {one: at for at, one in enumerate(mine)}
        self.peers = [one.dst if one.src == rank else one.src for one in mine]
        self.remote: dict[tuple[int, str], int] = {}
        self.semaphores = 0


def _plan(pattern: Pattern, played: Played, threads: Threads, run: int) -> dict[str, Any]:
    kind, p = pattern.kind.name, pattern.p
    connections = sorted({one for its in threads.ranks for thread in its for one in (thread.sends,) if one is not None})
    gpus = [_Gpu(rank, connections) for rank in range(p)]
    landing, scratch = _landing(played)
    chunks, part = pattern.n_blocks, pattern.n_blocks // p
    if kind == "all-to-all":
        chunks, part = part, part // p
    inputs = {"all-gather": part}.get(kind, chunks)
    outputs = {"reduce-scatter": part}.get(kind, chunks)
    released: dict[int, list[tuple[int, int]]] = defaultdict(list)  # waiting operation and semaphore, by operation
    for op in played.order:
        for other in threads.waits[op]:
            gpu = gpus[threads.at[op][0]]
            released[other].append((op, gpu.semaphores))
            gpu.semaphores += 1
    acquired = {op: [one for other in threads.waits[op] for op_, one in released[other] if op_ == op]
                for op in played.order}
    documents = []
    for rank, its in enumerate(threads.ranks):
        blocks = [_Block(gpus[rank], thread) for thread in its]
        for block, thread in zip(blocks, its, strict=True):
            for op in thread.ops:
                block.do(played, op, landing[op // 2], acquired[op], [one for _, one in released[op]])
        whole = [block.document(run) for block in blocks]
        if kind == "all-to-all":
            own = _Block(gpus[rank], Thread(-1))
            own.ops = [_move("copy", [_local("i", rank * part, part)], [_local("o", rank * part, part)])]
            whole.append(own.document(part))
        documents.append({
            "id": rank, "input_chunks": inputs, "output_chunks": outputs, "scratch_chunks": scratch[rank],
            "threadblocks": [{"id": number, **block} for number, block in enumerate(whole)],
            "channels": [{"channel_type": "memory", "connected_to": gpus[rank].peers}],
            "remote_buffers": [{"rank": peer, "type": buffer, "access_channel_types": ["memory"]}
                               for peer, buffer in gpus[rank].remote],
            "semaphores": [{"init_value": 0}] * gpus[rank].semaphores,
        })
    return {
        "name": f"weft {pattern.name} {pattern.topology.name}", "collective": _COLL[kind], "protocol": "Simple",
        "inplace": kind != "all-to-all", "reuse_resources": False, "gpus": documents, "num_threads_per_block": 1024,
        "use_double_scratch_buffer": False, "buffer_alignment": 16, "min_message_size": 0,
        "max_message_size": 2**64 - 1,
    }


def _landing(played: Played) -> tuple[list[Place], list[int]]:
    """Where each piece is put, and the scratch of each rank: behind what the schedule itself has there."""
    touched: set[tuple[int, str, int]] = set()
    direct = []
    scratch = Counter[int]()
    for op in played.order:
        piece, sends = played.pieces[op // 2], op % 2 == 0
        places = piece.touches(sends)
        if not sends and not piece.reduces and touched.isdisjoint(places):
            direct.append(op // 2)
        touched.update(places)
        for rank, buffer, chunk in places:
            if buffer == "s":
                scratch[rank] = max(scratch[rank], chunk + 1)
    landing = [piece.write for piece in played.pieces]
    for at in sorted({*range(len(landing))} - {*direct}):
        piece = played.pieces[at]
        landing[at] = "s", scratch[piece.dst]
        scratch[piece.dst] += len(piece.blocks)
    return landing, [scratch[rank] for rank in range(played.p)]


class _Block:
    """A thread block of the plan."""

    def __init__(self, gpu: _Gpu, thread: Thread) -> None:
        self.gpu, self.refs = gpu, dict[int, int]()
        self.channels = [gpu.channel[one] for one in (thread.sends, thread.receives) if one is not None]
        self.to, self.of = 0, len(self.channels) - 1  # places of the channels by which it sends and receives
        self.ops: list[dict[str, Any]] = []
        self._sync("signal", self.of if thread.receives is not None else -1)
        self._sync("wait", self.to if thread.sends is not None else -1)
        self.hello = [*self.ops, *([_NOP] if thread.sends is not None else [])]
        self.ops = []

    def do(self, played: Played, op: int, landing: Place, acquired: list[int], released: list[int]) -> None:
        """A send or a receive, after what is acquired and before what is released."""
        piece, sends = played.pieces[op // 2], op % 2 == 0
        count, (buffer, chunk) = len(piece.blocks), landing
        self._semaphores("sem_acquire", acquired)
        if sends:
            remote = self.gpu.remote.setdefault((piece.dst, buffer), len(self.gpu.remote))
            there = self.refs.setdefault(remote, len(self.refs))
            into = {"buffer_id": there, "index": chunk, "size": count}
            put = _move("put", [_local(*piece.read, count)], [into])
            self.ops += [{**put, "channel_type": "memory", "channel_ids": [self.to]}, _NOP]
            self._sync("signal", self.to)
        else:
            self._sync("wait", self.of)
            self.ops.append(_NOP)
        if not sends and landing != piece.write:
            here, new = _local(*piece.write, count), _local(*landing, count)
            self.ops += [_move("re", [here, new], [here]) if piece.reduces else _move("copy", [new], [here]), _NOP]
        self._semaphores("sem_release", released)

    def _sync(self, name: str, channel: int) -> None:
        if channel >= 0:
            self.ops.append({"name": name, "channel_type": "memory", "channel_ids": [channel]})

    def _semaphores(self, name: str, which: list[int]) -> None:
        for first in range(0, len(which), MOST_OF_BLOCK):
            self.ops.append({"name": name, "semaphore_ids": which[first : first + MOST_OF_BLOCK]})
        if which and name == "sem_acquire":
            self.ops.append(_NOP)

    def document(self, chunks: int) -> dict[str, Any]:
        """As in the file, slice by slice; every piece has as many chunks."""
        ops = self.ops
        if ops:
            context = {"unit_size": SLICE_BYTES, "num_chunks": chunks}
            ops = [{"name": "pipeline", "iter_context": context, "ops": ops}]
        return {
            "ops": [*self.hello, *ops], "channels": [{"channel_type": "memory", "channel_ids": self.channels}],
            "remote_buffer_refs": [{"access_channel_type": "memory", "remote_buffer_ids": [*self.refs]}],
        }


def _local(buffer: str, chunk: int, count: int) -> dict[str, Any]:
    return {"type": buffer, "index": chunk, "size": count}


def _move(name: str, src: list[dict[str, Any]], dst: list[dict[str, Any]]) -> dict[str, Any]:
    return {"name": name, "src_buff": src, "dst_buff": dst}
