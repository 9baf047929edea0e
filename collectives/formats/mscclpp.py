"""MSCCL++ plans, proved as the executor runs them, and turned into transfers.

A thread block is a set of threads. Operations on data are done by all of them, thread i signals or waits on the i-th
channel, and only `nop` and `barrier` order one thread after another:

    GPU 0, block 0     begin --- put --- nop --- signal (thread 0) ... end
                                                    |token
    GPU 1, block 0     begin ------------- wait (thread 0) --- nop --- copy ... end

A signal of a channel, or a release of a semaphore, is a token that a wait or an acquire takes. Where several thread
blocks release one, only those releases are in order before an acquire without which there would be too few. A put
through a port happens later, in the order of its channel. A packet is written once, and its reader waits for it. The
begin and the end of a GPU's kernel bound what others may do in its memory, packets aside if two scratch buffers take
turns.

The proof is made on a small array that is cut alike: `Cut` has the cells of a chunk and of an iteration of a pipeline.
"""

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from math import lcm
from typing import NamedTuple

import numpy as np

from collectives.core.by_slots import WHOLE
from collectives.core.pattern import OwnProof, Pattern
from collectives.core.proof import ScheduleError
from collectives.formats.happens_before import Events, conflicts, unordered
from collectives.formats.msccl import Memory, unnamed
from collectives.formats.mscclpp_plan import SIGNALS, WAITS, End, Op, Plan, Ref
from collectives.trees.aggregation import AggregationTree, minimum_depth_tree
from collectives.trees.flows import Flows
from topologies import Topology, WeftError

RACES = ("practical", "strict", "told")
"""What orders data: every signal; those that are not relaxed; or a plan that races is simulated, with a note."""

SCRATCH_BYTES = 2**26
"""Of a plan that shares its scratch with others."""

MOST_NODES, MOST_CELLS = 2**18, 2**18
"""Of a proof: operations, by thread and cell where these matter, and cells, as they are touched by all operations."""


class Cut(NamedTuple):
    """What a chunk is cut into."""

    cells: int
    unit: int  # cells that an iteration handles of the pipelines with the smallest unit; 0: one iteration handles all
    wrap: int = 0  # cells of a chunk of shared scratch, if smaller than a chunk of the array


def cut_of(plan: Plan, size_bytes: int) -> Cut:
    """A small array that the executor cuts like one of this size.

    WeftError: its iterations or parts are too many to prove.
    """
    cut = _cut_of(plan, size_bytes)
    if (cells := cut.cells * plan.chunks * len(plan.gpus)) > MOST_CELLS:
        raise WeftError(f"{plan.title} has {cells} parts of chunks that differ by their iterations or thread blocks: "
                        f"at most {MOST_CELLS} are proved")
    return cut


def _cut_of(plan: Plan, size_bytes: int) -> Cut:
    parts = lcm(*(op.part[1] for op in plan.ops()))
    chunk = max(1, -(-size_bytes // plan.chunks))
    units = [op.unit for op in plan.ops() if op.unit]
    if not units:
        elements = chunk // plan.alignment
        return Cut(parts + elements % parts if elements >= parts else max(elements, 1), 0)
    unit = min(units)
    shared = SCRATCH_BYTES // max(1, plan.scratch) if plan.reuses else chunk
    turns = max(1, shared // unit) if shared < chunk else 0
    if chunk < unit:
        return Cut(parts, unit // chunk * parts)
    most = 4 + 2 * turns + max((one for values in plan.init for one in values), default=0)
    whole, rest = divmod(chunk, unit)
    wide = 2 * parts if rest else parts
    return Cut(min(whole, most) * wide + (parts if rest else 0), wide, turns * wide)


@dataclass
class _Object:
    """What counts: the signals from one end of a channel to the other, or a semaphore."""

    name: str
    init: int = 0
    is_port: bool = False
    releases: dict[tuple[int, int], list[int]] = field(default_factory=lambda: defaultdict(list))  # by thread block
    acquires: dict[tuple[int, int], list[int]] = field(default_factory=lambda: defaultdict(list))

    def left(self) -> int:
        """Tokens above the initial value when all is done."""
        return sum(map(len, self.releases.values())) - sum(map(len, self.acquires.values()))

    def certain(self) -> Iterator[tuple[int, int]]:
        """Releases that happen before an acquire, whatever the order of the thread blocks."""
        total = sum(map(len, self.releases.values()))
        for taken in self.acquires.values():
            for needed, acquire in enumerate(taken, 1 - self.init):
                for given in self.releases.values():
                    if needed > total - len(given):
                        yield given[min(needed - total + len(given), len(given)) - 1], acquire


class Execution:
    """The operations of a plan, unrolled, and what orders them: nodes, and edges between them.

    `by_cell`: whether an operation on packets has a node for each cell.
    """

    def __init__(self, plan: Plan, cut: Cut, by_cell: bool = True) -> None:
        self.plan, self.cut, self.by_cell = plan, cut, by_cell
        self.memory = Memory(plan.kind, len(plan.gpus), plan.chunks, plan.in_place, plan.title, cut.cells)
        self.place: list[tuple[int, int, int]] = []  # GPU, thread block, operation of each node; -1: of the GPU
        self.work: list[tuple[Op, range] | None] = []  # operation on data, and its cells counted from its first
        self.edges: list[tuple[int, int]] = []
        self.tokens: list[tuple[int, int]] = []  # edges from releases to acquires
        self.packets: list[tuple[int, int]] = []  # edges from writers of packets to readers
        self.relaxed: set[int] = set()
        self.flushes: set[int] = set()
        self.objects: dict[object, _Object] = {}
        self.acquired: dict[int, _Object] = {}
        self.released: dict[int, _Object] = {}
        self._touched = 0
        self._meet: dict[tuple[int, int, int], list[tuple[int, int, int]]] = defaultdict(list)
        self._sent: dict[tuple[int, End], int] = {}  # last node of each port channel
        gpus = range(len(plan.gpus))
        self.begin, self.end = ([self._node((gpu, -1, at)) for gpu in gpus] for at in (0, 1))
        for gpu in gpus:
            for number in range(len(plan.gpus[gpu])):
                self._block(gpu, number)
        for (gpu, barrier, _), meeting in self._meet.items():
            meet = self._node((gpu, -1, 2))
            self.edges += [edge for before, behind, _ in meeting for edge in ((before, meet), (meet, behind))]
            for before, _, wanted in meeting:
                if wanted != len(meeting):
                    raise ScheduleError(f"{plan.title} hangs: {len(meeting)} thread blocks of GPU {gpu} meet at "
                                        f"barrier {barrier}, and {self.where(before)} waits for {wanted}")
        self.tokens = [pair for one in self.objects.values() for pair in one.certain()]
        self._read_packets()
        self.sequence = self._sequence()

    def _node(self, place: tuple[int, int, int], *parents: int, work: tuple[Op, range] | None = None) -> int:
        if len(self.place) >= MOST_NODES:
            raise WeftError(f"{self.plan.title}: more than {MOST_NODES} operations are too many to order")
        self.place.append(place)
        self.work.append(work)
        self.edges += [(one, len(self.place) - 1) for one in parents]
        return len(self.place) - 1

    def where(self, node: int) -> str:
        """A node, for messages."""
        gpu, block, at = self.place[node]
        if block < 0:
            return f"the {('begin', 'end', 'barrier')[at]} of GPU {gpu}"
        return f"GPU {gpu}, thread block {block}, operation {at} ({self._of(node).name})"

    def _of(self, node: int) -> Op:
        gpu, block, at = self.place[node]
        op, found = self.plan.gpus[gpu][block][at], self.work[node]
        return found[0] if found is not None else op

    def _unrolled(self, ops: Iterable[Op]) -> Iterator[tuple[int, Op, int, int]]:
        """Place, operation, first cell of each of its ranges, and the most cells from there on."""
        smallest = min((op.unit for op in self.plan.ops() if op.unit), default=1)
        for at, op in enumerate(ops):
            if not op.body:
                yield at, op, 0, 2**62
                continue
            unit = self.cut.unit * op.unit // smallest or 2**62
            for turn in range(-(-op.span * self.cut.cells // unit)):
                for inner in op.body:
                    yield at, inner, turn * unit, unit

    def _block(self, gpu: int, number: int) -> None:
        fence = self._node((gpu, number, 0), self.begin[gpu])
        since: list[int] = []  # nodes that the next fence waits for
        thread: dict[int, int] = {}  # last node of each thread since the fence
        met: dict[int, int] = defaultdict(int)
        for at, op, start, most in self._unrolled(self.plan.gpus[gpu][number]):
            place = gpu, number, at
            if op.name in ("nop", "barrier"):
                fence, since, thread = self._node(place, fence, *since), [], {}
                if op.name == "barrier":
                    arrived, fence = fence, self._node(place, fence)
                    self._meet[gpu, op.meets[0], met[op.meets[0]]].append((arrived, fence, op.meets[1]))
                    met[op.meets[0]] += 1
            elif op.src and op.channel != "port":
                since += self._data(place, op, start, most, fence)
            else:
                for i, end in enumerate(op.ends):
                    thread[i] = self._thread(place, op, i, end, thread.get(i, fence), start, most)
                    since.append(thread[i])
        self.edges += [(one, self.end[gpu]) for one in (fence, *since)]

    def _thread(self, place: tuple[int, int, int], op: Op, i: int, end: End, after: int, start: int, most: int) -> int:
        """What thread i does; returns the node after which it goes on."""
        gpu = place[0]
        if op.name in WAITS:
            return self._count(self._node(place, after), op, end, (end.peer, gpu))
        if op.name in SIGNALS and end.kind != "port":
            return self._count(self._node(place, after), op, end, (gpu, end.peer))
        # what a port channel has queued happens later, one after the other
        issued, queue = self._node(place, after), [self._sent[gpu, end]] if (gpu, end) in self._sent else []
        if op.name == "flush":
            return self._flush(self._node(place, issued, *queue))
        sent = issued
        if op.src:
            alone = op._replace(src=op.src[i : i + 1] or op.src, dst=op.dst[i : i + 1])
            for sent in self._data(place, alone, start, most, issued):
                self.edges += [(one, sent) for one in queue]
                queue = [sent]
        if op.name in ("signal", "rlxsignal", "pws", "pwsf"):
            sent = self._count(self._node(place, sent, *queue), op, end, (gpu, end.peer))
        self._sent[gpu, end] = sent
        return self._flush(self._node(place, issued, sent)) if op.name == "pwsf" else issued

    def _flush(self, node: int) -> int:
        self.flushes.add(node)
        return node

    def _count(self, node: int, op: Op, end: End, way: tuple[int, int]) -> int:
        gpu, block, _ = self.place[node]
        is_semaphore = end.kind == "semaphore"
        name = f"semaphore {end.number} of GPU {gpu}" if is_semaphore else (
            f"{end.kind} channel {end.number} from GPU {way[0]} to GPU {way[1]}")
        init = self.plan.init[gpu][end.number] if is_semaphore else 0
        one = self.objects.setdefault(name, _Object(name, init, end.kind == "port"))
        (one.acquires if op.name in WAITS else one.releases)[gpu, block].append(node)
        (self.acquired if op.name in WAITS else self.released)[node] = one
        if op.name.startswith("rlx") and end.kind == "memory":
            self.relaxed.add(node)
        return node

    def _data(self, place: tuple[int, int, int], op: Op, start: int, most: int, after: int) -> list[int]:
        size, (part, parts) = op.src[0].size * self.cut.cells, op.part
        low, high = (at * (size // parts) + min(at, size % parts) for at in (part, part + 1))
        if low + start > high:
            raise ScheduleError(f"{self.plan.title}: GPU {place[0]}, thread block {place[1]}, operation {place[2]} "
                                f"({op.name}) has iterations of its pipeline beyond its range")
        cells = range(low + start, min(low + start + most, high))
        self._touched += len(cells) * sum(len(ref.gpus) for ref in (*op.src, *op.dst))
        if self._touched > 16 * MOST_CELLS:
            raise WeftError(f"{self.plan.title} touches more than {16 * MOST_CELLS} parts of chunks, too many to order")
        split = self.by_cell and op.has_packets()
        ranges = [range(cell, cell + 1) for cell in cells] if split else [cells] * (len(cells) > 0)
        return [self._node(place, after, work=(op, one)) for one in ranges]

    def cells(self, ref: Ref, inside: range) -> range:
        """Cells of the buffer of a reference."""
        cut = self.cut
        if ref.buffer == "s" and cut.wrap:
            first = ref.first * cut.wrap + inside.start % cut.wrap
        else:
            first = ref.first * cut.cells + inside.start
        return range(first, first + len(inside))

    def _read_packets(self) -> None:
        written: dict[tuple[int, int], int] = {}
        for node, ref, gpu, inside in self.touched(writes=True):
            for cell in self.cells(ref, inside) if ref.packet else ():
                if written.setdefault((gpu, cell), node) != node:
                    raise ScheduleError(f"{self.plan.title} races: {self.where(written[gpu, cell])} and "
                                        f"{self.where(node)} write one packet of s[{cell // self.cut.cells}]")
        for node, ref, gpu, inside in self.touched(writes=False):
            for cell in self.cells(ref, inside) if ref.packet else ():
                if (gpu, cell) not in written:
                    raise ScheduleError(f"{self.plan.title} hangs: {self.where(node)} reads a packet in "
                                        f"s[{cell // self.cut.cells}] of GPU {gpu}, which nobody writes")
                self.packets.append((written[gpu, cell], node))
        self.packets = list(dict.fromkeys(self.packets))

    def touched(self, writes: bool) -> Iterator[tuple[int, Ref, int, range]]:
        """Node, reference, GPU and cells of every access; a packet that is stored where it is read is none."""
        for node, work in enumerate(self.work):
            if work is not None:
                for ref in work[0].dst if writes else work[0].src:
                    same = writes and work[0].name == "gstorepkt" and ref.first == work[0].src[0].first
                    for gpu in ref.gpus:
                        if not (same and gpu == self.place[node][0]):
                            yield node, ref, gpu, work[1]

    def _sequence(self) -> list[int]:
        """An order in which the executor may run all, token by token."""
        after: dict[int, list[int]] = defaultdict(list)
        left = [0] * len(self.place)
        for parent, child in (*self.edges, *self.packets):
            after[parent].append(child)
            left[child] += 1
        value = {id(one): one.init for one in self.objects.values()}
        queue: dict[int, deque[int]] = defaultdict(deque)
        ready = [node for node, count in enumerate(left) if not count and node not in self.acquired]
        for node in ready:  # grows as it is walked
            if node in self.released:
                value[id(self.released[node])] += 1
            waiting = []
            for child in after[node]:
                left[child] -= 1
                if not left[child] and child in self.acquired:
                    queue[id(self.acquired[child])].append(child)
                    waiting.append(self.acquired[child])
                elif not left[child]:
                    ready.append(child)
            for one in (*waiting, *([self.released[node]] if node in self.released else [])):
                while value[id(one)] and queue[id(one)]:
                    value[id(one)] -= 1
                    ready.append(queue[id(one)].popleft())
        if len(ready) < len(self.place):
            still = {*range(len(left))} - {*ready}
            stuck = min([node for waiting in queue.values() for node in waiting] or
                        [node for node in still if self.work[node] is not None] or still)
            what = f": nothing comes through {self.acquired[stuck].name}" if stuck in self.acquired else ""
            raise ScheduleError(f"{self.plan.title} hangs: {self.where(stuck)} waits for ever{what}")
        return ready

    def races(self, strict: bool) -> list[str]:
        """Pairs of operations that touch one place in either order, one of them writing, in words."""
        tokens = [(a, b) for a, b in self.tokens if not strict or not {a, b} & self.relaxed]
        parent, child = np.array([*self.edges, *tokens, *self.packets], np.int64).reshape(-1, 2).T
        chain, number = _chains(len(self.place), parent.tolist(), child.tolist(), self.sequence)
        events = Events(chain, number, parent, child, self.sequence)
        keys: dict[tuple[int, str, int], int] = {}
        rows: list[tuple[int, int, bool]] = []
        bounds: dict[tuple[int, int], tuple[int, str, int]] = {}
        for writes in (False, True):
            for node, ref, gpu, inside in self.touched(writes):
                for cell in self.cells(ref, inside):
                    place = self.memory.place(gpu, (ref.buffer, cell))
                    rows.append((node, keys.setdefault(place, len(keys)), writes))
                    if not (ref.packet and self.plan.double) and (strict or gpu != self.place[node][0]):
                        bounds.setdefault((node, gpu), place)
        event, key, written = np.array(rows, np.int64).reshape(-1, 3).T
        one, other, key = conflicts(event, key, written.astype(np.bool_))
        names = [*keys]
        places = [names[at] for at in key.tolist()]
        for end in (self.begin, self.end):
            one = np.append(one, [node for node, _ in bounds]).astype(np.int64)
            other = np.append(other, [end[gpu] for _, gpu in bounds]).astype(np.int64)
            places += bounds.values()
        found: dict[frozenset[tuple[int, int, int]], str] = {}
        for at in np.flatnonzero(unordered(events, one, other)).tolist():
            pair, (gpu, buffer, cell) = (int(one[at]), int(other[at])), places[at]
            first, second = (self.where(node) for node in pair)
            found.setdefault(frozenset(self.place[node] for node in pair), (
                f"{first} and {second} both touch {'/'.join(buffer)}[{cell // self.cut.cells}] of GPU {gpu}, one of "
                "them writes, and nothing orders them"))
        return list(found.values())

    def run(self) -> None:
        """Execute the plan on sets of contributions; ScheduleError: the collective is not done, or tokens are left."""
        memory = self.memory
        for node in self.sequence:
            if (work := self.work[node]) is None:
                continue
            op, inside = work
            for src, dst in op.pairs():
                for at in range(len(inside)):
                    (first, *others), into = (
                        [(gpu, (ref.buffer, self.cells(ref, inside)[at])) for ref in side for gpu in ref.gpus]
                        for side in (src, dst)
                    )
                    total = memory.read(*first)
                    for gpu, place in others:
                        total = memory.add(gpu, total, memory.read(gpu, place))
                    for gpu, place in into:
                        memory.values[memory.place(gpu, place)] = total
        memory.check()
        for one in self.objects.values():
            if one.left():
                raise ScheduleError(f"{self.plan.title}: {one.name} ends {one.left()} above where it began: the next "
                                    "launch would not wait")


def _chains(n: int, parent: list[int], child: list[int], sequence: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """Chain of each node, and its number there: each follows a parent that is the last of its chain so far."""
    above: dict[int, list[int]] = defaultdict(list)
    for one, other in zip(parent, child, strict=True):
        above[other].append(one)
    chain, number = np.zeros((2, n), np.int64)
    last: list[int] = []
    for node in sequence:
        free = next((one for one in above[node] if last[chain[one]] == one), -1)
        if free < 0:
            chain[node] = len(last)
            last.append(node)
        else:
            chain[node], number[node] = chain[free], number[free] + 1
            last[chain[free]] = node
    return chain, number


def prove_plan(plan: Plan, cut: Cut, races: str = "practical") -> list[str]:
    """Check a plan as the executor runs it; returns its races, which is none unless they are only to be told.

    ScheduleError: it hangs, races, reads what is not there, adds a contribution twice, ends without the collective
        done, or with signals left over.
    """
    execution = Execution(plan, cut)
    found = execution.races(races == "strict")
    if found and races != "told":
        again = "; scratch of 64 MiB is used again by later iterations" if cut.wrap else (
            "; packets need use_double_scratch_buffer" if not plan.double and any(op.has_packets() for op in plan.ops())
            else "")
        raise ScheduleError(f"{plan.title} races: {found[0]} ({len(found)} such pairs{again}; --option races=told "
                            "simulates it nevertheless)")
    execution.run()
    return found


def plan_pattern(
    plan: Plan, topology: Topology, cut: Cut, races: str = "practical", note: str = "", name: str = "mscclpp"
) -> Pattern:
    """The pattern of a plan, checked as it would be executed.

    A signal through memory, and the request of a load, are messages without bytes; a signal through a port comes with
    the put before it. Packets are twice their data. What a switch reduces or multicasts takes a tree of `topology`.
    Iterations of a pipeline follow each other chunk by chunk, and their signals take no time of their own.

    WeftError: another number of NPUs, or a switch channel where no switch reduces.
    ScheduleError: as for `prove_plan`.
    """
    p = len(plan.gpus)
    if topology.n_npus != p:
        raise WeftError(f"{plan.title} is for {p} GPUs, and {topology.name} has {topology.n_npus} NPUs")
    found = prove_plan(plan, cut, races)
    if found:
        note = "; ".join([*([note] if note else []), f"{len(found)} pairs of operations race: {found[0]}"])
    cells = lcm(*(op.part[1] for op in plan.ops()))
    sends = _Timing(Execution(plan, Cut(cells, 0), by_cell=False), topology).sends
    proved = "proved: one symbolic run does the collective" + ("" if found else ", and nothing races")
    return sends.pattern(
        topology, plan.kind, name, plan.chunks * cells * (p if plan.kind == "all-to-all" else 1), form=plan.name,
        blocks_of=unnamed, own_proof=OwnProof(lambda: proved, unnamed=True), note=note,
        n_sources=topology.n_nodes if plan.is_switched() else None,
    )


class _Timing:
    """The transfers of an execution: of each node, those known to have arrived, and what was stored elsewhere."""

    def __init__(self, execution: Execution, topology: Topology) -> None:
        self.run, n = execution, len(execution.place)
        self.flows = Flows(topology)
        self.sends = self.flows.relays
        self.trees: dict[tuple[int, ...], AggregationTree] = {}
        self.size: dict[int, tuple[int, bool]] = {}  # blocks of each transfer, and whether others follow piece by piece
        self.arrived: list[set[int]] = [set() for _ in range(n)]
        self.stored: list[set[int]] = [set() for _ in range(n)]
        self.told: dict[int, set[int]] = {}  # what the receiver of a signal knows to have arrived
        before: dict[int, list[int]] = defaultdict(list)
        for rules in (execution.edges, execution.tokens, execution.packets):
            for parent, child in rules:
                before[child].append(parent if rules is execution.edges else ~parent)
        for node in execution.sequence:
            for parent in before[node]:
                self.arrived[node] |= self.arrived[parent] if parent >= 0 else self._signaled(~parent, node)
                self.stored[node] |= self.stored[parent] if parent >= 0 else set()
            if node in execution.flushes:
                self.arrived[node] |= self.stored[node]
            if execution.work[node] is not None:
                self._move(node)

    def _streams(self, node: int) -> bool:
        gpu, block, at = self.run.place[node]
        op = self.run.plan.gpus[gpu][block][at]
        return bool(op.body) or op.has_packets()

    def _signaled(self, node: int, receiver: int) -> set[int]:
        """What is known to have arrived where a token or a packet of a node is taken."""
        source, target = self.run.place[node][0], self.run.place[receiver][0]
        known = self.arrived[node] | self.stored[node]
        if source == target or self._streams(node):
            return known if self.run.work[node] is None else self._to(target, self.stored[node]) or known
        if node not in self.told:
            put = self._to(target, self.stored[node]) if self.run.released[node].is_port else set()
            self.told[node] = put or {self._send(source, target, 0, node, known)}
        return self.told[node]

    def _to(self, gpu: int, transfers: set[int]) -> set[int]:
        return {one for one in transfers if self.sends.receiver(one) == gpu}

    def _send(self, src: int, dst: int, count: int, node: int, after: set[int], stream: Iterable[int] = ()) -> int:
        _, block, at = self.run.place[node]
        number = self.sends.add(src, dst, (), count=count, port=block, step=at, stream=stream)
        return self._follow(number, count, node, after)

    def _follow(self, number: int, count: int, node: int, after: set[int]) -> int:
        """Let a transfer wait for others: piece by piece where both are as long and of a pipeline or packets."""
        mine = self.size[number] = count, bool(count) and self._streams(node)
        for one in sorted(after):
            self.sends.wait(number, one, 0 if mine[1] and self.size[one] == mine else WHOLE)
        return number

    def _move(self, node: int) -> None:
        work, gpu = self.run.work[node], self.run.place[node][0]
        assert work is not None
        op, n = work[0], len(work[1])
        for src, dst in op.pairs():
            base, loaded = self.arrived[node], set[int]()
            for ref in src:
                if ref.place == "R":
                    asked = self._send(gpu, ref.gpus[0], 0, node, base)
                    loaded.add(self._send(ref.gpus[0], gpu, n, node, {asked}))
                elif ref.place == "S":
                    loaded |= self._switched(node, n, ref.gpus, ref.gpus, (gpu,), base)
            for ref in dst:
                count = 2 * n if ref.packet else n
                if ref.place == "R":
                    self.stored[node].add(self._send(gpu, ref.gpus[0], count, node, base - loaded, loaded))
                elif ref.place == "S":
                    others = tuple(one for one in ref.gpus if one != gpu)
                    self.stored[node] |= self._switched(node, count, ref.gpus, (gpu,), others, base, loaded)
            self.arrived[node] = loaded or base

    def _switched(
        self, node: int, count: int, group: tuple[int, ...], sources: tuple[int, ...], targets: tuple[int, ...],
        after: set[int], stream: Iterable[int] = (),
    ) -> set[int]:
        """Send through switches that reduce what several send, and multicast it; returns what arrives."""
        if group not in self.trees:
            self.trees[group] = minimum_depth_tree(self.flows.topology, members=group)
        tree, feed = self.trees[group], {one: list(stream) for one in sources}
        sent, at_root = self.flows.collect(tree, sources, range(count), feed, again=len(sources) == 1)
        for row in sent.values():
            self._follow(row, count, node, after)
        rows = {*self.flows.spread(tree, targets, range(count), at_root).values()}
        self.size |= dict.fromkeys(rows, (count, self._streams(node)))
        return rows
