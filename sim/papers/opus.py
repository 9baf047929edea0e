"""An iteration of Opus's figure 14 from its released configuration: experts over boxes, by the rules of its simulator.

Read from opusfabric/Opus: sizes of a layer, circuits of a phase, and a controller that holds every request for 10 ms,
to serve several at once, and changes circuits where nothing is in flight anywhere. Of its network (ASTRA-sim's, times
in whole ns): a link is busy for two latencies after each message, and messages between boxes take one rail, so that the
all-to-all of groups over several boxes waits for messages on few links rather than for bytes.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from heapq import heappop, heappush
from itertools import count, permutations
from math import ceil
from typing import NamedTuple

import numpy as np

PP, DP, EP = 0, 1, 3
"""What the circuits of a stage serve."""

LATENCY_NS, ENDPOINT_NS, COLLECTED_NS, ASKED_NS = 1_000, 10, 10_000_000, 100_000
"""Of a link; before a message; for which a request is held; until a refused one asks again."""

SPLITS, MICROBATCHES, LAYERS = 4, 4, 2
"""Of a collective; of an iteration; of a stage."""

MODEL, EXPERT, EXPERTS, TOP, HEADS, SEQUENCE, TOKENS = 7168, 2048, 256, 8, 128, 4096, 64 * 4096
"""Width, of an expert; experts, those of a token; heads; tokens of a sequence, of a micro-batch."""

KV, Q, HEAD, ROPE = 512, 1536, 128, 64
"""Ranks of keys and queries, size of a head, of its rotary part."""

FLOPS_US, MEMORY = 989e6 * 0.8, 3350
"""Of a GPU: operations in a us; bytes/ns of its memory, which it reads and writes three times where it reduces."""


class Scale(NamedTuple):
    """Boxes of GPUs, in stages; rates as ASTRA-sim reads GB/s, in bytes/ns."""

    gpus: int
    each: int
    stages: int
    box: float
    rail: float

    @property
    def boxes(self) -> int:
        """Of a stage."""
        return self.gpus // self.stages // self.each


SCALES = {"512": Scale(512, 32, 2, 900 * 2**30 / 1e9, 100 * 2**30 / 1e9),
          "256": Scale(256, 8, 4, 450 * 2**30 / 1e9, 50 * 2**30 / 1e9)}


def ring_ns(kind: str, size: int, members: int, rate: float) -> int:
    """Of a collective around a ring, in four parts one after the other, until its last message has arrived.

    A reduce-scatter counts until its links are free, as another ring follows. An all-gather is of `size` each.
    """
    part = size // SPLITS // (1 if kind == "all-gather" else members)
    step_ns = int(part / rate) + 2 * LATENCY_NS
    reduced_ns = max(step_ns, step_ns - LATENCY_NS + ENDPOINT_NS + 3 * int(part / MEMORY))
    if kind == "reduce-scatter":
        return SPLITS * ((members - 1) * reduced_ns + ENDPOINT_NS * (reduced_ns > step_ns))
    steps_ns = step_ns + (reduced_ns if kind == "all-reduce" else 0)
    return SPLITS * (members - 1) * steps_ns - LATENCY_NS + 2 * ENDPOINT_NS


@lru_cache
def cycles(boxes: int, rails: int) -> tuple[tuple[int, ...], ...]:
    """Rings of a group's boxes, rail by rail: most pairs that have no link yet, then fewest links of a pair."""
    if boxes < 3:
        return rails * (tuple(range(boxes)),)
    rings = np.array([(0, *rest) for rest in permutations(range(1, boxes))])
    pairs = np.sort(np.stack([rings, np.roll(rings, -1, 1)]), 0)
    pair, links, chosen = pairs[0] * boxes + pairs[1], np.zeros(boxes**2, int), []
    for _ in range(rails):
        have = links[pair]
        best = np.lexsort((have.sum(1), have.max(1), -(have == 0).sum(1)))[0]  # of equals the first in order
        links[pair[best]] += 1
        chosen.append(tuple(rings[best]))
    return tuple(chosen)


def loads(scale: Scale, ranks: np.ndarray, payload: int) -> np.ndarray:
    """Bytes between the members of a group: as tokens choose experts by their place in the sequence."""
    n, tokens = len(ranks), TOKENS // (scale.gpus // scale.stages)
    place = ((ranks[:, None] * tokens + np.arange(tokens)) % SEQUENCE + 0.5) / SEQUENCE
    chosen = ((place[..., None] + np.arange(TOP) / TOP) % 1) ** 1.5 * EXPERTS
    owner = np.minimum(np.minimum(EXPERTS - 1, chosen.astype(int)) // max(1, EXPERTS // n), n - 1).reshape(n, -1)
    counts = np.stack([np.bincount(row, minlength=n) for row in owner])
    np.fill_diagonal(counts, 0)
    remote = counts.sum(1, keepdims=True)
    found = np.where(remote, np.rint(counts * payload / np.maximum(remote, 1)), payload // (n - 1)).astype(int)
    np.fill_diagonal(found, 0)
    return found


@lru_cache
def all_to_all_ns(scale: Scale, ep: int, on_rail: bool, dense: bool) -> int:
    """The longest of the groups of some boxes: members of a box, of whole boxes, or of equal rank, `on_rail`.

    `dense`: every two GPUs have a link of their own.
    """
    boxes = ep if on_rail else max(1, ep // scale.each)
    places = np.arange(boxes * scale.each).reshape(boxes, scale.each)
    linked = np.zeros((boxes, boxes, scale.each), bool)
    for rail, ring in enumerate(cycles(boxes, scale.each)):
        for a, b in zip(ring, ring[1:] + ring[:1], strict=True):
            linked[a, b, rail] = linked[b, a, rail] = True

    def path(src: int, dst: int) -> list[int]:
        (a, at), (b, to) = divmod(src, scale.each), divmod(dst, scale.each)
        if a == b or dense:
            return [src, dst]
        rail = next(rail for rail in (to, at, *range(scale.each)) if linked[a, b, rail])
        return list(dict.fromkeys((src, a * scale.each + rail, b * scale.each + rail, dst)))

    payload = TOKENS // (scale.gpus // scale.stages) * MODEL * 2
    sends: dict[int, list[tuple[list[int], int]]] = {}
    parts = 0
    for ranks in (places.T if on_rail else places.ravel()[None, :ep]).tolist():
        n, sizes = len(ranks), loads(scale, np.array(ranks), payload)
        whole = ceil(max(sizes.sum(0).max(), sizes.sum(1).max()) / (n - 1)) * n
        part, sizes = whole // SPLITS, sizes.tolist()
        parts = -(-whole // part)
        for i, src in enumerate(ranks):
            to = [(i + step) % n for step in range(1, n)]
            sends[src] = [(path(src, ranks[j]), max(1, -(-sizes[i][j] * part // whole))) for j in to]
    return _exchanged_ns(scale, sends, parts)


def _exchanged_ns(scale: Scale, sends: dict[int, list[tuple[list[int], int]]], parts: int) -> int:
    """Each sends a part to all when it has all of the part before; messages queue at links, one after the other."""
    order, free, missing = count(), dict[tuple[int, int], int](), {(rank, 0): len(to) for rank, to in sends.items()}
    heap = [(ENDPOINT_NS, next(order), 0, path, 0, size) for to in sends.values() for path, size in to]
    end_ns = 0
    while heap:
        now, _, part, path, hop, size = heappop(heap)
        if hop < len(path) - 1:
            link = path[hop], path[hop + 1]
            start = max(now, free.get(link, 0))
            serial = size / (scale.box if link[0] // scale.each == link[1] // scale.each else scale.rail)
            free[link] = start + int(serial) + 2 * LATENCY_NS
            heappush(heap, (start + int(LATENCY_NS + serial), next(order), part, path, hop + 1, size))
            continue
        rank = path[-1]
        missing[rank, part] = missing.get((rank, part), len(sends[rank])) - 1
        if not missing[rank, part]:
            end_ns = max(end_ns, now + ENDPOINT_NS)
            if part + 1 < parts:
                for other, bytes_ in sends[rank]:
                    heappush(heap, (now + 2 * ENDPOINT_NS, next(order), part + 1, other, 0, bytes_))
    return end_ns


class Controller:
    """Circuits of all stages: a digit each, changed at once, where nothing is in flight and no change is under way."""

    def __init__(self, stages: int, switch_ns: int) -> None:
        self.state, self.switch_ns = stages * [DP], switch_ns
        self.now = self.flying = self.until = self.open = self.held_until = 0
        self.held: list[tuple[int, int, int]] = []

    def change(self, state: list[int]) -> bool:
        """Change to circuits, or have them."""
        if state == self.state:
            return self.now >= self.until
        if self.now < self.until or self.flying:
            return False
        self.state, self.open = state, self.now + self.switch_ns + 1
        self.until = self.now + self.switch_ns + (2 if self.switch_ns else 0)
        return True

    def _with(self, state: list[int], request: tuple[int, int, int]) -> list[int]:
        stage, digit, peer = request
        return [digit if one == stage or (digit == PP and one == peer) else old for one, old in enumerate(state)]

    def ask(self, stage: int, digit: int, peer: int = -1) -> bool:
        """Whether a stage has its circuits; a request is held, and granted with what others ask of other stages."""
        request = stage, digit, peer
        if request not in self.held:
            self.held.append(request)
        self._drop()
        if self._with(self.state, request) == self.state:
            return True
        if not self.held_until or self.now > self.held_until + COLLECTED_NS:
            self.held_until = self.now + COLLECTED_NS
        if self.now < self.held_until:
            return False
        state, touched = self.state, set[int]()
        for one in sorted(self.held, key=lambda one: (one[0], (EP, PP, DP).index(one[1]), one[2])):
            stages = {one[0], one[2]} - {-1}
            if not stages & touched and (changed := self._with(state, one)) != state:
                state, touched = changed, touched | stages
        if not self.change(state):
            return False
        self.held_until = self.now + COLLECTED_NS
        self._drop()
        return self._with(self.state, request) == self.state

    def _drop(self) -> None:
        self.held = [one for one in self.held if self._with(self.state, one) != self.state]
        self.held_until = self.held_until if self.held else 0


Wait = int | tuple[int, int, int] | Callable[[], bool]
"""Of a stage: for so many ns, for a message, or until a request is granted."""


def iteration_ns(scale: Scale, ep: int, on_rail: bool, switch_ns: int, dense: bool) -> int:
    """All forward passes, then all backward passes; groups of experts as in `all_to_all_ns`."""
    control, arrived = Controller(scale.stages, switch_ns), set[tuple[int, int, int]]()
    tokens = TOKENS * scale.stages // scale.gpus

    def us(flops: int) -> int:
        return max(1, int(flops / FLOPS_US)) * 1000

    mine, heads, low = max(1, EXPERTS // ep), HEADS // scale.each, Q // scale.each
    projected = MODEL * (KV + ROPE + low) + heads * (KV * (2 * HEAD + ROPE) + low * HEAD + HEAD * (MODEL // scale.each))
    attention_ns = us(2 * tokens * (projected + 2 * SEQUENCE * heads * HEAD))
    router_ns, expert_ns = us(2 * tokens * MODEL * mine), us(4 * (TOKENS * TOP // EXPERTS * mine) * MODEL * EXPERT)
    weights = 2 * ((MODEL * (KV + ROPE + Q) + HEADS * (KV * (2 * HEAD + ROPE) + Q * (HEAD + ROPE) + HEAD * MODEL))
                   // scale.each)
    experts, activations = 6 * mine * MODEL * EXPERT, 2 * tokens * MODEL
    tensor_ns = ring_ns("all-reduce", activations, scale.each, scale.box)
    home = scale.stages * [DP]
    digit = EP if ep > 1 and (on_rail or ep > 2 * scale.each) else DP if ep > scale.each else None
    exchange_ns = all_to_all_ns(scale, ep, on_rail, dense and digit == EP) if ep > 1 else 1

    def on_circuits(stage: int, digit: int | None, ns: int, peer: int = -1) -> Iterator[Wait]:
        if digit is None:
            yield ns
            return
        yield lambda: control.ask(stage, digit, peer)
        control.flying += 1
        yield max(control.open - control.now, 0) + ns
        control.flying -= 1

    def ring(stage: int, kind: str, size: int) -> Iterator[Wait]:
        return on_circuits(stage, DP, ring_ns(kind, size, scale.boxes, scale.rail))

    def passed(stage: int, peer: int, batch: int) -> Iterator[Wait]:
        yield from on_circuits(stage, PP, int(LATENCY_NS + activations / scale.rail), peer)
        arrived.add((stage, peer, batch))

    def program(stage: int) -> Iterator[Wait]:
        for batch in range(MICROBATCHES):
            if stage:
                yield stage - 1, stage, batch
            for _ in range(LAYERS):
                yield from ring(stage, "all-gather", weights)
                yield attention_ns + tensor_ns + router_ns
                yield from on_circuits(stage, digit, exchange_ns)
                yield expert_ns
                yield from on_circuits(stage, digit, exchange_ns)
            if stage < scale.stages - 1:
                yield from passed(stage, stage + 1, batch)
        for batch in reversed(range(MICROBATCHES)):
            if stage < scale.stages - 1:
                yield stage + 1, stage, batch
            for _ in range(LAYERS):
                yield from on_circuits(stage, digit, exchange_ns)
                yield 2 * expert_ns
                yield from on_circuits(stage, digit, exchange_ns)
                asked = control.change(home)  # without being held
                for ns in (router_ns, 2 * attention_ns, tensor_ns):
                    yield ns
                    asked = asked or control.change(home)
                if not asked:
                    yield lambda: control.change(home)
                yield from ring(stage, "reduce-scatter", weights)
                yield from ring(stage, "reduce-scatter", experts)
                yield from ring(stage, "all-gather", experts)
            if stage:
                yield from passed(stage, stage - 1, batch)

    return _run([program(stage) for stage in range(scale.stages)], control, arrived)


def _run(programs: Sequence[Iterator[Wait]], control: Controller, arrived: set[tuple[int, int, int]]) -> int:
    """Until all have ended; refused requests are asked again once nothing else is left to happen."""
    order, heap, waiting = count(), list[tuple[int, int, int]](), dict[int, Wait | None]()

    def proceed(stage: int) -> None:
        while True:
            what = waiting.pop(stage, None)
            what = next(programs[stage], None) if what is None else what
            if what is None:
                return
            if isinstance(what, int):
                heappush(heap, (control.now + what, next(order), stage))
                return
            if what in arrived if isinstance(what, tuple) else what():
                heappush(heap, (max(control.until, control.now), next(order), -1))
                continue
            waiting[stage] = what
            if not isinstance(what, tuple):
                heappush(heap, (control.now + ASKED_NS, next(order), -1))
            return

    for stage in range(len(programs)):
        proceed(stage)
    while heap or waiting:
        control.now, _, stage = heappop(heap)
        if stage >= 0:
            proceed(stage)
        for other in [one for one, what in waiting.items() if isinstance(what, tuple) and what in arrived]:
            proceed(other)
        if not heap:
            for other in 2 * sorted(waiting):  # each is asked twice, as what one is granted may serve another
                if other in waiting:
                    proceed(other)
    return control.now
