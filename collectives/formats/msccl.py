"""MSCCL XML, read: checked for correctness as its runtime would execute it, and turned into transfers.

A thread block runs its steps in order, slice by slice; it waits for steps of other thread blocks of its GPU through
`depid`; sends and receives pair first come, first served on each (sender, receiver, channel). A transfer here waits,
slice by slice, for whatever its step has to have received before. Local copies and reductions take no time, and the
loop over slices that are larger than a chunk of the simulation is not held back by the thread block's other steps.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Sequence

from collectives.core.by_slots import STREAM
from collectives.core.pattern import OwnProof, Pattern
from collectives.core.proof import ScheduleError
from collectives.core.sends import SendList
from collectives.formats.msccl_order import Cut, Order, check_races, order_of, where
from collectives.formats.msccl_program import RECEIVES, SENDS, Algo, Place, publisher, waits_of
from topologies import Topology, WeftError

Value = frozenset[tuple[int, int]]
"""Contributions (rank, chunk) summed in a place."""

Buffer = tuple[str, int]


class Memory:
    """Input, output and scratch buffers of every GPU.

    `kind`: the collective.
    `p`, `chunks`: GPUs, and chunks of the entire buffer (output of an all-gather, input of a reduce-scatter).
    `cells`: what each chunk is cut into; places are numbers of cells.
    `in_place`: whether input and output share memory.
    `name`: for messages.
    """

    def __init__(self, kind: str, p: int, chunks: int, in_place: bool, name: str, cells: int = 1) -> None:
        self.kind, self.p, self.in_place, self.name, self.cells = kind, p, in_place, name, cells
        self.chunks = chunks = chunks * cells
        self.per = chunks // p if kind in ("all-gather", "reduce-scatter", "all-to-all") else chunks
        self.values: dict[tuple[int, str, int], Value] = {}
        for gpu in range(p):
            own = self.per if kind == "all-gather" else chunks
            if kind == "broadcast" and gpu:
                continue
            for at in range(own):
                self.values[self.place(gpu, ("i", at))] = frozenset([(gpu, at)])

    def execute(self, gpu: int, kind: str, src: Buffer, dst: Buffer, count: int, arrived: list[Value]) -> list[Value]:
        """Execute a step; returns what it sends."""
        sent = []
        for at in range(count):
            here, there = ((buffer, offset + at) for buffer, offset in (src, dst))
            if kind == "s":
                sent.append(self.read(gpu, here))
            elif kind in ("r", "rcs"):
                self.values[self.place(gpu, there)] = arrived[at]
                sent.append(arrived[at])
            elif kind in ("rrs", "rrc", "rrcs"):
                total = self.add(gpu, self.read(gpu, here), arrived[at])
                if kind != "rrs":
                    self.values[self.place(gpu, there)] = total
                sent.append(total)
            elif kind == "cpy":
                self.values[self.place(gpu, there)] = self.read(gpu, here)
            elif kind == "re":
                total = self.add(gpu, self.read(gpu, there), self.read(gpu, here))
                self.values[self.place(gpu, there)] = total
        return sent

    def check(self) -> None:
        """Compare the contents with what the collective requires.

        ScheduleError: names the GPU and the chunk.
        """
        for gpu in range(self.p):
            for at, wanted in self._wanted(gpu):
                found = self.values.get(self.place(gpu, ("o", at)), frozenset())
                if found != wanted:
                    lacks = sorted(wanted - found)
                    what = f"lacks the contribution of rank {lacks[0][0]}" if lacks else "holds more than it should"
                    chunk = at // self.cells
                    raise ScheduleError(f"{self.name}: GPU {gpu} ends with an output whose chunk {chunk} {what}")

    def _wanted(self, gpu: int) -> list[tuple[int, Value]]:
        everyone = range(self.p)
        if self.kind == "all-gather":
            return [(at, frozenset([divmod(at, self.per)])) for at in range(self.chunks)]
        if self.kind == "reduce-scatter":
            return [(at, frozenset((r, gpu * self.per + at) for r in everyone)) for at in range(self.per)]
        if self.kind == "all-to-all":
            return [(at, frozenset([(at // self.per, gpu * self.per + at % self.per)])) for at in range(self.chunks)]
        if self.kind == "broadcast":
            return [(at, frozenset([(0, at)])) for at in range(self.chunks)]
        if self.kind == "reduce" and gpu:
            return []
        return [(at, frozenset((r, at) for r in everyone)) for at in range(self.chunks)]

    def place(self, gpu: int, place: Buffer) -> tuple[int, str, int]:
        """Location of a buffer place; input and output share theirs if in place."""
        buffer, at = place
        if self.in_place and buffer in "io":
            if self.kind == "all-gather" and buffer == "i":
                at += gpu * self.per
            if self.kind == "reduce-scatter" and buffer == "o":
                at += gpu * self.per
            buffer = "io"
        return gpu, buffer, at

    def read(self, gpu: int, place: Buffer) -> Value:
        """What a buffer of a GPU holds. ScheduleError: nothing yet."""
        found = self.values.get(self.place(gpu, place))
        if found is None:
            chunk = place[1] // self.cells
            raise ScheduleError(f"{self.name}: GPU {gpu} reads {place[0]}[{chunk}], which is still empty")
        return found

    def add(self, gpu: int, one: Value, other: Value) -> Value:
        """The sum of two values. ScheduleError: a contribution would count twice."""
        twice = one & other
        if twice:
            rank, chunk = min(twice)
            raise ScheduleError(f"{self.name}: GPU {gpu} adds chunk {chunk // self.cells} of rank {rank} twice")
        return one | other


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
    receiver = _receiver(algo, order)
    sends = SendList()
    number: dict[Place, int] = {}
    for at, (place, end) in enumerate(receiver.items()):
        step = algo.step(place)
        number[place] = sends.add(place[0], end[0], (), count=step.chunks, port=place[1], step=place[2])
        assert number[place] == at
    arrival = {end: number[place] for place, end in receiver.items()}
    for place, waited in _waits(algo, order, arrival):
        for one in sorted(waited):
            sends.wait(number[place], one, STREAM)
    n_blocks = algo.chunks * (p if algo.kind == "all-to-all" else 1)
    proof = OwnProof(lambda: PROOF, unnamed=True)
    return sends.pattern(
        topology, algo.kind, name, n_blocks, form=algo.name, blocks_of=unnamed, own_proof=proof, note=note
    )


def unnamed(source: int, slot: int) -> Sequence[int]:
    """The blocks of a transfer of a program, which have no names: always a WeftError."""
    raise WeftError("the chunks of an MSCCL program move between buffers: its transfers have no named blocks")


def _receiver(algo: Algo, order: Order) -> dict[Place, Place]:
    """The receiving step of each sending step; ScheduleError where cut steps make several of one, or one of several."""
    for ends in zip(*order.pairs, strict=True):
        place, count = Counter(ends).most_common(1)[0]
        if count > 1:
            raise ScheduleError(f"{algo.title}: {where(algo, place)} pairs with {count} steps: let it pair with one")
    return dict(order.pairs)


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
        before += [(gpu, block, publisher(algo.gpus[gpu][block], step)) for block, step in waits[gpu, number][at]]
        for one in before:
            for connection, found in known[one].items():
                last[connection] = max(last.get(connection, found), found)
        if step.kind in RECEIVES:
            last[block.receive, block.channel] = (at, arrival[place])
        known[place] = last
        if step.kind in SENDS:
            yield place, {transfer for _, transfer in last.values()}


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
