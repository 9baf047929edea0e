"""Plans of MSCCL++ of our own: every operation and every way of ordering it, as the JSON that its executor loads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

HELLO = ("rlxsignal", "rlxwait")
BYE = ("signal", "wait")


def at(buffer: str, index: int = 0, size: int = 1) -> dict[str, Any]:
    """A local buffer."""
    return {"type": buffer, "index": index, "size": size}


class Block:
    """A thread block."""

    def __init__(self, gpu: Gpu) -> None:
        self.gpu, self.ops = gpu, list[Any]()
        self.channels: dict[str, list[int]] = {"memory": [], "port": [], "switch": []}
        self.refs: dict[str, list[int]] = {"memory": [], "port": []}

    def channel(self, kind: str, peer: int) -> int:
        """A new channel; its place in the thread block's list."""
        self.gpu.peers[kind].append(peer)
        self.channels[kind].append(len(self.gpu.peers[kind]) - 1)
        return len(self.channels[kind]) - 1

    def switch(self, buffer: str, ranks: list[int]) -> None:
        self.gpu.switches.append((buffer, ranks))
        self.channels["switch"].append(len(self.gpu.switches) - 1)

    def far(self, peer: int, buffer: str, index: int = 0, size: int = 1, kind: str = "memory") -> dict[str, Any]:
        """A buffer of another GPU."""
        self.gpu.remote.append({"rank": peer, "type": buffer, "access_channel_types": [kind]})
        self.refs[kind].append(len(self.gpu.remote) - 1)
        return {"buffer_id": len(self.refs[kind]) - 1, "index": index, "size": size}

    def do(self, name: str, src: Sequence[Any] = (), dst: Sequence[Any] = (), **more: Any) -> Block:
        """One operation; a nop after everything but a nop, unless `nop` says otherwise."""
        nop = more.pop("nop", True)
        kind = {"channel_type": more.pop("kind", "memory")} if name not in ("nop", "barrier", "pipeline") else {}
        buffers = {"src_buff": list(src), "dst_buff": list(dst)} if src else {}
        self.ops.append({"name": name, **buffers, **({} if name.startswith("sem") else kind), **more})
        if nop:
            self.ops.append({"name": "nop"})
        return self

    def sync(self, names: tuple[str, ...], ids: list[int], kind: str = "memory") -> Block:
        for name in names:
            self.do(name, channel_ids=ids, kind=kind)
        return self

    def pipeline(self, unit: int, chunks: int = 1) -> Block:
        """All operations so far as the iterations of a pipeline."""
        context = {"unit_size": unit, "num_chunks": chunks}
        self.ops = [{"name": "pipeline", "iter_context": context, "ops": self.ops}]
        return self


class Gpu:
    """A GPU."""

    def __init__(self, number: int, i: int, o: int, s: int = 0) -> None:
        self.number, self.chunks, self.semaphores = number, (i, o, s), list[int]()
        self.peers: dict[str, list[int]] = {"memory": [], "port": []}
        self.switches: list[tuple[str, list[int]]] = []
        self.remote: list[Any] = []
        self.blocks: list[Block] = []

    def block(self) -> Block:
        self.blocks.append(Block(self))
        return self.blocks[-1]

    def document(self) -> dict[str, Any]:
        channels: list[Any] = [{"channel_type": kind, "connected_to": peers} for kind, peers in self.peers.items()]
        channels += [{"channel_type": "switch", "buffer_type": buffer, "rank_groups": [{"size": len(of), "ranks": of}]}
                     for buffer, of in self.switches]
        blocks = [{
            "id": number, "ops": block.ops,
            "channels": [{"channel_type": kind, "channel_ids": ids} for kind, ids in block.channels.items()],
            "remote_buffer_refs": [{"access_channel_type": kind, "remote_buffer_ids": ids}
                                   for kind, ids in block.refs.items()],
        } for number, block in enumerate(self.blocks)]
        i, o, s = self.chunks
        return {"id": self.number, "input_chunks": i, "output_chunks": o, "scratch_chunks": s, "threadblocks": blocks,
                "channels": channels, "remote_buffers": self.remote,
                "semaphores": [{"init_value": one} for one in self.semaphores]}


def plan(collective: str, gpus: list[Gpu], **more: Any) -> dict[str, Any]:
    top = {"name": "ours", "collective": collective, "protocol": "Simple", "inplace": False, "reuse_resources": False,
           "num_threads_per_block": 256, "use_double_scratch_buffer": False, "buffer_alignment": 16}
    return {**top, **more, "gpus": [gpu.document() for gpu in gpus]}


def direct(p: int = 3, name: str = "put") -> dict[str, Any]:
    """All-gather: every GPU puts its chunk into all others, or gets theirs; a thread block for each peer."""
    gpus = [Gpu(me, 1, p) for me in range(p)]
    for me, gpu in enumerate(gpus):
        for peer in range(p):
            block = gpu.block()
            if peer == me:
                block.do("copy", [at("i")], [at("o", me)])
                continue
            channel = block.channel("memory", peer)
            block.sync(HELLO, [channel])
            if name == "put":
                block.do("put", [at("i")], [block.far(peer, "o", me)])
            else:
                block.do("get", [block.far(peer, "i")], [at("o", peer)])
            block.sync(BYE, [channel])
    return plan("allgather", gpus)


def port(p: int = 2, name: str = "pwsf") -> dict[str, Any]:
    """All-gather in place through ports."""
    gpus = [Gpu(me, 1, p) for me in range(p)]
    for me, gpu in enumerate(gpus):
        for peer in (one for one in range(p) if one != me):
            block = gpu.block()
            channel = block.channel("port", peer)
            block.sync(BYE, [channel], "port")
            more: dict[str, Any] = {"channel_ids": [channel], "kind": "port"}
            block.do(name, [at("o", me)], [block.far(peer, "o", me, kind="port")], nop=False, **more)
            if name == "put":
                block.do("signal", nop=False, **more)
            if name != "pwsf":
                block.do("flush", nop=False, **more)
            block.sync(("wait",), [channel], "port")
    return plan("allgather", gpus, inplace=True)


def exchange(name: str = "rres", parts: int = 1) -> dict[str, Any]:
    """All-reduce of two GPUs in place, each adding up one chunk; `parts` thread blocks for each."""
    gpus = [Gpu(me, 2, 2, 2) for me in (0, 1)]
    for me, gpu in enumerate(gpus):
        for part in range(parts):
            block, peer, more = gpu.block(), 1 - me, {"tbg_info": {"tb_id": part, "tbg_size": parts}}
            channel = [block.channel("memory", peer)]
            block.sync(HELLO, channel)
            into = block.far(peer, "i", me)
            if name == "rres":
                block.do("rres", [at("i", me), into], [at("i", me), into], **more)
            elif name == "rre":
                block.do("rre", [at("i", me), into], [at("i", me)], **more)
                block.do("put", [at("i", me)], [into], **more)
            else:
                block.do("put", [at("i", peer)], [block.far(peer, "s", peer)], **more)
                block.sync(BYE, channel)
                if name == "res":
                    block.do("res", [at("i", me), at("s", me)], [at("i", me), into], **more)
                else:
                    block.do("re", [at("i", me), at("s", me)], [at("i", me)], **more)
                    block.do("put", [at("i", me)], [into], **more)
            block.sync(BYE, channel)
    return plan("allreduce", gpus, inplace=True)


def packets(name: str = "respkt") -> dict[str, Any]:
    """All-reduce of two GPUs by packets."""
    gpus = [Gpu(me, 2, 2, 4) for me in (0, 1)]
    for me, gpu in enumerate(gpus):
        block, other, peer = gpu.block(), gpu.block(), 1 - me
        block.channel("memory", peer)
        block.do("ppkt", [at("i", peer)], [block.far(peer, "s", peer)], nop=False)
        src = [at("i", me), at("s", me)]
        if name == "respkt":
            other.do("respkt", src, [at("o", me), other.far(peer, "s", 2 + me)], nop=False)
        elif name == "recspkt":
            other.do("recspkt", src, [at("o", me), at("s", 2 + me), other.far(peer, "s", 2 + me)], nop=False)
        elif name == "repkt":
            other.do("repkt", src, [at("o", me)]).do("ppkt", [at("o", me)], [other.far(peer, "s", 2 + me)], nop=False)
        else:
            other.do("recpkt", src, [at("o", me), at("s", 2 + me)], nop=False)
            other.do("rppkt", [at("s", 2 + me)], [other.far(peer, "s", 2 + me)], nop=False)
        gpu.block().do("upkt", [at("s", 2 + peer)], [at("o", peer)], nop=False)
    return plan("allreduce", gpus, protocol="LL", use_double_scratch_buffer=True)


def multicast(p: int = 3) -> dict[str, Any]:
    """All-gather in place through a switch, and again by packets."""
    gpus = [Gpu(me, 1, p, p) for me in range(p)]
    for me, gpu in enumerate(gpus):
        block = gpu.block()
        block.switch("s", list(range(p)))
        block.do("cpkt", [at("o", me)], [at("s", me)])
        block.do("gstorepkt", [at("s", me)], [{"switch_channel_id": 0, "index": me, "size": 1}], kind="switch")
        for peer in (one for one in range(p) if one != me):
            block.do("upkt", [at("s", peer)], [at("o", peer)], nop=False)
    return plan("allgather", gpus, inplace=True, protocol="LL", use_double_scratch_buffer=True)


def stages(p: int = 2, unit: int = 64, init: int | None = None, **more: Any) -> dict[str, Any]:
    """All-reduce by a switch, from scratch: copies, sums and copies back, each a pipeline of its thread block.

    `init`: units of scratch that may be in use; None: as many as there are.
    """
    gpus, everyone = [Gpu(me, p, p, p) for me in range(p)], list(range(p))
    for me, gpu in enumerate(gpus):
        gpu.semaphores = [0, 0, *([] if init is None else [init])]
        first, second, third = gpu.block(), gpu.block(), gpu.block()
        others = [one for one in everyone if one != me]
        ids = [first.channel("memory", one) for one in others]
        if init is not None:
            first.do("sem_acquire", semaphore_ids=[2])
        for chunk in everyone:
            first.do("copy", [at("i", chunk)], [at("s", chunk)], nop=chunk == p - 1)
        first.sync(BYE, ids).do("sem_release", semaphore_ids=[0])
        second.switch("s", everyone)
        there = {"switch_channel_id": 0, "index": me, "size": 1}
        second.do("sem_acquire", semaphore_ids=[0]).do("glres", [there], [there], kind="switch")
        second.do("sem_release", semaphore_ids=[1])
        ids = [third.channel("memory", one) for one in others]
        third.do("sem_acquire", semaphore_ids=[1]).sync(BYE, ids)
        for chunk in everyone:
            third.do("copy", [at("s", chunk)], [at("o", chunk)], nop=chunk == p - 1)
        if init is not None:
            third.sync(BYE, ids).do("sem_release", semaphore_ids=[2])
        for block in (first, second, third):
            block.pipeline(unit)
    return plan("allreduce", gpus, reuse_resources=True, **more)


def barrier() -> dict[str, Any]:
    """Reduce-scatter of two GPUs: one thread block brings the chunk, both add up half of it behind a barrier."""
    gpus = [Gpu(me, 2, 1, 1) for me in (0, 1)]
    for me, gpu in enumerate(gpus):
        for part in (0, 1):
            block, peer = gpu.block(), 1 - me
            if not part:
                channel = [block.channel("memory", peer)]
                block.sync(HELLO, channel).do("put", [at("i", peer)], [block.far(peer, "s")]).sync(BYE, channel)
            block.do("barrier", barrier_id=0, num_threadblocks=2, nop=False)
            block.do("re", [at("i", me), at("s")], [at("o")], tbg_info={"tb_id": part, "tbg_size": 2})
    return plan("reducescatter", gpus)


GOOD = {
    "put": direct(), "get": direct(2, "get"), **{f"port, {one}": port(2, one) for one in ("put", "pws", "pwsf")},
    **{name: exchange(name) for name in ("rres", "rre", "res", "re")}, "parts": exchange("rres", 2),
    **{name: packets(name) for name in ("respkt", "recspkt", "repkt", "recpkt")}, "multicast": multicast(),
    "stages": stages(), "stages, held": stages(3, init=2), "barrier": barrier(),
}
