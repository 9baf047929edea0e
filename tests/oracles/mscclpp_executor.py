"""An executor of MSCCL++ plans that takes every turn at random, written from the description of the format alone.

Chunks are cut into `cells` (and ranges of thread-block groups and pipelines accordingly). It finds what goes wrong in
some executions, and proves nothing; what is proved must go right in all of them.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from typing import Any

EMPTY = frozenset[Any]()


class Wrong(Exception):
    """An execution hangs, or gives wrong data."""


class Executor:
    def __init__(self, plan: dict[str, Any], rng: random.Random, cells: int, unit: int) -> None:
        self.plan, self.rng, self.cells, self.unit = plan, rng, cells, unit
        self.gpus = plan["gpus"]
        self.memory: dict[Any, Any] = {}
        self.packet: dict[Any, Any] = {}
        self.tokens: Counter[Any] = Counter()
        self.queues: dict[Any, list[Any]] = defaultdict(list)
        self.met: dict[Any, list[Any]] = defaultdict(list)
        self.launched: set[int] = set()
        self.ended: set[int] = set()
        for gpu in self.gpus:
            for at, semaphore in enumerate(gpu["semaphores"]):
                self.tokens["semaphore", gpu["id"], at] = semaphore["init_value"]
            for cell in range(gpu["input_chunks"] * cells):
                self.memory[self.place(gpu["id"], "i", cell)] = frozenset([(gpu["id"], cell)])
        self.started = self.tokens.copy()
        self.ends = [self.ends_of(gpu) for gpu in self.gpus]
        self.blocks = [[list(self.segments(block["ops"])) for block in gpu["threadblocks"]] for gpu in self.gpus]

    def place(self, gpu: int, buffer: str, cell: int) -> Any:
        one = self.gpus[gpu]
        if self.plan["inplace"] and buffer in "io":
            if self.plan["collective"] == "allgather" and buffer == "i":
                cell += gpu * one["input_chunks"] * self.cells
            if self.plan["collective"] == "reducescatter" and buffer == "o":
                cell += gpu * one["output_chunks"] * self.cells
            buffer = "io"
        return gpu, buffer, cell

    def ends_of(self, gpu: Any) -> dict[str, list[Any]]:
        found: dict[str, list[Any]] = {"memory": [], "port": [], "switch": []}
        for channel in gpu["channels"]:
            kind = channel["channel_type"]
            if kind == "switch":
                found[kind] += [(channel["buffer_type"], group["ranks"]) for group in channel["rank_groups"]]
            else:
                for peer in channel["connected_to"]:
                    found[kind].append((peer, sum(one[0] == peer for one in found[kind])))
        return found

    def segments(self, ops: list[Any]) -> Any:
        """Steps between the points where all threads of a block meet; a step is [operation, first cell, cells]."""
        steps: list[Any] = []
        for op in ops:
            times = 1
            if op["name"] == "pipeline":
                times = -(-op["iter_context"]["num_chunks"] * self.cells // self.unit)
            for turn in range(times):
                for one in op.get("ops", [op]):
                    if one["name"] in ("nop", "barrier"):
                        yield [steps, one]
                        steps = []
                    else:
                        start, most = (turn * self.unit, self.unit) if "ops" in op else (0, 2**40)
                        steps.append([one, start, most, {}])
        yield [steps, None]

    def run(self) -> None:
        """Execute in one random order; `Wrong` if it went wrong."""
        while True:
            moves = [("launch", gpu) for gpu in range(len(self.gpus)) if gpu not in self.launched]
            moves += [("send", queue) for queue, waiting in self.queues.items() if waiting]
            for gpu in self.launched:
                for number, segments in enumerate(self.blocks[gpu]):
                    if segments:
                        moves += [("step", gpu, number, *step) for step in self.ready(gpu, number, segments[0])]
            if not moves:
                break
            self.move(self.rng.choice(moves))
            for gpu in self.launched - self.ended:
                if not any(self.blocks[gpu]):
                    self.ended.add(gpu)
                    self.check(gpu)
        if len(self.ended) < len(self.gpus):
            raise Wrong("hangs")
        if +self.tokens != +self.started:
            raise Wrong("left over")

    def ready(self, gpu: int, number: int, segment: Any) -> Any:
        steps, fence = segment
        if not steps:
            if fence is None or fence["name"] == "nop":
                yield "fence", None, None
            elif (gpu, number) not in self.met[gpu, fence["barrier_id"]]:
                yield "arrive", fence, None
            elif len(self.met[gpu, fence["barrier_id"]]) >= fence["num_threadblocks"]:
                yield "leave", fence, None
            return
        lanes: set[int] = set()
        for at, (op, _, _, done) in enumerate(steps):
            threads = self.threads(op)
            if not threads:
                if self.packets_there(gpu, number, steps[at]):
                    yield "data", at, None
                continue
            for lane in range(threads):
                if lane not in lanes and done.get(lane) != "done" and self.may(gpu, number, op, lane, done):
                    yield "lane", at, lane
                if done.get(lane) != "done":
                    lanes.add(lane)

    def threads(self, op: Any) -> int:
        if op["name"].startswith("sem"):
            return len(op["semaphore_ids"])
        if op["name"] in ("signal", "rlxsignal", "wait", "rlxwait", "flush") or op.get("channel_type") == "port":
            return len(op["channel_ids"])
        return 0

    def object(self, gpu: int, number: int, op: Any, lane: int, waits: bool) -> Any:
        if op["name"].startswith("sem"):
            return "semaphore", gpu, op["semaphore_ids"][lane]
        kind = op["channel_type"]
        peer, nth = self.ends[gpu][kind][self.lists(gpu, number, kind)[op["channel_ids"][lane]]]
        return (kind, peer, gpu, nth) if waits else (kind, gpu, peer, nth)

    def lists(self, gpu: int, number: int, kind: str) -> list[int]:
        block = self.gpus[gpu]["threadblocks"][number]
        return [one for item in block["channels"] if item["channel_type"] == kind for one in item["channel_ids"]]

    def may(self, gpu: int, number: int, op: Any, lane: int, done: Any) -> bool:
        if op["name"] in ("wait", "rlxwait", "sem_acquire"):
            return self.tokens[self.object(gpu, number, op, lane, True)] > 0
        if op["name"] == "flush" or done.get(lane) == "queued":
            return not self.queues[self.object(gpu, number, op, lane, False)]
        return True

    def move(self, move: Any) -> None:
        if move[0] == "launch":
            self.launched.add(move[1])
        elif move[0] == "send":
            what, *rest = self.queues[move[1]].pop(0)
            if what == "token":
                self.tokens[move[1]] += 1
            else:
                self.data(*rest)
        else:
            self.step(*move[1:])

    def step(self, gpu: int, number: int, kind: str, at: Any, lane: Any) -> None:
        segments = self.blocks[gpu][number]
        if kind in ("fence", "leave"):
            segments.pop(0)
        elif kind == "arrive":
            self.met[gpu, at["barrier_id"]].append((gpu, number))
        elif kind == "data":
            op, start, most, _ = segments[0][0].pop(at)
            self.data(gpu, number, op, start, most)
        else:
            op, start, most, done = segments[0][0][at]
            self.lane(gpu, number, op, lane, start, most, done)
            if len(done) == self.threads(op) and set(done.values()) == {"done"}:
                segments[0][0].pop(at)

    def lane(self, gpu: int, number: int, op: Any, lane: int, start: int, most: int, done: Any) -> None:
        name = op["name"]
        if name in ("wait", "rlxwait", "sem_acquire"):
            self.tokens[self.object(gpu, number, op, lane, True)] -= 1
        elif name in ("signal", "rlxsignal", "sem_release"):
            key = self.object(gpu, number, op, lane, False)
            if key[0] == "port":
                self.queues[key].append(["token"])
            else:
                self.tokens[key] += 1
        elif name in ("put", "pws", "pwsf") and lane not in done:
            key = self.object(gpu, number, op, lane, False)
            one = {**op, "src_buff": [op["src_buff"][lane]], "dst_buff": [op["dst_buff"][lane]]}
            self.queues[key].append(["data", gpu, number, one, start, most])
            if name != "put":
                self.queues[key].append(["token"])
            if name == "pwsf":
                done[lane] = "queued"
                return
        done[lane] = "done"

    def cells_of(self, gpu: int, number: int, op: Any, start: int, most: int, side: str) -> list[Any]:
        """For each buffer of a side, for each of its GPUs, the places."""
        found = []
        for ref in op.get(side, []):
            part, parts = op.get("tbg_info", {"tb_id": 0, "tbg_size": 1}).values()
            size = ref["size"] * self.cells
            low, high = (one * (size // parts) + min(one, size % parts) for one in (part, part + 1))
            first = ref["index"] * self.cells
            inside = range(first + low + start, first + min(low + start + most, high))
            buffer, ranks = ref.get("type"), [gpu]
            if "switch_channel_id" in ref:
                buffer, ranks = self.ends[gpu]["switch"][self.lists(gpu, number, "switch")[ref["switch_channel_id"]]]
            elif "buffer_id" in ref:
                block = self.gpus[gpu]["threadblocks"][number]
                ids = [one for item in block["remote_buffer_refs"] for one in item["remote_buffer_ids"]
                       if item["access_channel_type"] == op["channel_type"]]
                remote = self.gpus[gpu]["remote_buffers"][ids[ref["buffer_id"]]]
                buffer, ranks = remote["type"], [remote["rank"]]
            found.append([[self.place(rank, buffer, cell) for cell in inside] for rank in ranks])
        return found

    def is_packet(self, name: str, side: str, at: int) -> bool:
        if side == "src_buff":
            return name in ("rppkt", "upkt", "gstorepkt") or (at > 0 and name.endswith("pkt") and name.startswith("re"))
        return name in ("ppkt", "rppkt", "cpkt", "gstorepkt") or (at > 0 and name.endswith("pkt"))

    def packets_there(self, gpu: int, number: int, step: Any) -> bool:
        op, start, most, _ = step
        src = self.cells_of(gpu, number, op, start, most, "src_buff")
        return all(place in self.packet for at, ranks in enumerate(src) if self.is_packet(op["name"], "src_buff", at)
                   for places in ranks for place in places)

    def data(self, gpu: int, number: int, op: Any, start: int, most: int) -> None:
        src = self.cells_of(gpu, number, op, start, most, "src_buff")
        dst = self.cells_of(gpu, number, op, start, most, "dst_buff")
        name = op["name"]
        paired = name in ("put", "pws", "pwsf", "get", "ppkt")
        for which in range(len(src)) if paired else [0]:
            these, those = ([src[which]], [dst[which]]) if paired else (src, dst)
            for cell in range(len(these[0][0])):
                total = EMPTY
                for at, ranks in enumerate(these):
                    packet = self.is_packet(name, "src_buff", at)
                    for places in ranks:
                        self.reach(gpu, places[cell], packet)
                        value = (self.packet if packet else self.memory).get(places[cell], frozenset(["nothing"]))
                        total = total | value if not total & value else frozenset(["twice"])
                for at, ranks in enumerate(those):
                    packet = self.is_packet(name, "dst_buff", at)
                    for places in ranks:
                        self.reach(gpu, places[cell], packet)
                        (self.packet if packet else self.memory)[places[cell]] = total

    def reach(self, gpu: int, place: Any, packet: bool) -> None:
        if place[0] != gpu and not packet and (place[0] not in self.launched or place[0] in self.ended):
            raise Wrong("outside of a kernel")

    def check(self, gpu: int) -> None:
        """What a GPU has when its kernel ends."""
        p, kind, one = len(self.gpus), self.plan["collective"], self.gpus[gpu]
        for cell in range(one["output_chunks"] * self.cells):
            part = one["output_chunks"] * self.cells
            sender, at = divmod(cell, max(part // p, 1))
            wanted = {
                "allgather": frozenset([(sender, at)]),
                "alltoall": frozenset([(sender, gpu * (part // p) + at)]),
                "allreduce": frozenset((rank, cell) for rank in range(p)),
                "reducescatter": frozenset((rank, gpu * part + cell) for rank in range(p)),
            }[kind]
            if self.memory.get(self.place(gpu, "o", cell)) != wanted:
                raise Wrong("data")


def goes_wrong(plan: dict[str, Any], runs: int, seed: int, cells: int = 2, unit: int = 2) -> str:
    """What went wrong in the first of some random executions that did; "" if none."""
    rng = random.Random(seed)
    for _ in range(runs):
        try:
            Executor(plan, rng, cells, unit).run()
        except Wrong as wrong:
            return str(wrong)
    return ""
