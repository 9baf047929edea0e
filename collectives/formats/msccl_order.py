"""What of an MSCCL program happens before what: the proof that it neither hangs nor races.

A step is executed as one or several calls (a large step is cut), and the whole list of steps once in each turn of the
runtime's loop. Four rules order the calls:

    block      a thread block executes its calls one after the other
    flag       a step that names (depid, deps) starts after thread block `depid` has published `deps`
    message    the k-th receive of a connection ends after its k-th send
    slot       the k-th send of a connection waits for receive k - S: the FIFO holds S calls

         GPU 0, block 0          GPU 1, block 0
           send 0  ---message-->  receive 0
             |block        ___slot___/ |block       (S = 1)
           send 1  <------/       receive 1

A cycle is a deadlock. Two calls of different thread blocks of one GPU that touch the same chunk of a buffer, one of
them writing, race unless a path leads from one to the other. Where nothing races, every execution ends with the same
memory, so that one symbolic execution in any order that respects the rules is a proof.

Only the first turn of the loop is searched for races: different turns touch different bytes, and a later turn has all
the order of the first and the slots on top. A thread block is a chain for the clocks of `happens_before`.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from collectives.core.proof import ScheduleError, by_key
from collectives.formats import msccl_program
from collectives.formats.happens_before import I64, Events, conflicts, unordered
from topologies import WeftError

MOST_CALLS = 2**20
"""Calls of all turns together: as many take some seconds to order."""

class Cut(NamedTuple):
    """How the runtime executes a program on an array."""

    most: int = msccl_program.MOST_COUNT  # chunks of one call
    turns: int = 1  # of the loop


def cut_of(algo: msccl_program.Algo, size_bytes: int) -> Cut:
    """How the runtime cuts an array of this size.

    `size_bytes`: of the whole array, as nccl-tests counts it.
    """
    chunk = max(1, -(-size_bytes // algo.chunks))
    moved = msccl_program.PROTOCOLS[algo.protocol].chunk_bytes
    return Cut(min(msccl_program.MOST_COUNT, max(1, moved // chunk)), -(-chunk // moved))


class Calls(NamedTuple):
    """The calls of one turn, thread block by thread block, each in its order."""

    gpu: I64  # (n,)
    block: I64  # (n,)
    step: I64  # (n,)
    part: I64  # (n,): first chunk of the step that the call handles
    chunks: I64  # (n,)
    chain: I64  # (n,): number of the thread block among those of all GPUs
    first: dict[msccl_program.Place, int]  # first call of each step

    def place(self, call: int) -> msccl_program.Place:
        """The step of a call."""
        return int(self.gpu[call]), int(self.block[call]), int(self.step[call])

    def last(self, place: msccl_program.Place) -> int:
        """Last call of a step."""
        first = self.first[place]
        call = first
        while call + 1 < self.gpu.size and self.place(call + 1) == place:
            call += 1
        return call


def calls_of(algo: msccl_program.Algo, most: int = msccl_program.MOST_COUNT) -> Calls:
    """The calls of one turn when a call handles `most` chunks."""
    rows: list[tuple[int, int, int, int, int, int]] = []
    first: dict[msccl_program.Place, int] = {}
    chain = 0
    for gpu, blocks in enumerate(algo.gpus):
        for number, block in enumerate(blocks):
            for at, step in enumerate(block.steps):
                first[gpu, number, at] = len(rows)
                for part in range(0, max(step.chunks, 1), most):
                    rows.append((gpu, number, at, part, min(most, step.chunks - part), chain))
                if len(rows) > MOST_CALLS:
                    raise WeftError(f"{algo.title}: more than {MOST_CALLS} calls are too many to order")
            chain += 1
    columns = np.array(rows, np.int64).reshape(-1, 6).T
    return Calls(columns[0], columns[1], columns[2], columns[3], columns[4], columns[5], first)


class Order(NamedTuple):
    """The relation, and an order of all calls that respects it."""

    calls: Calls
    pairs: list[tuple[msccl_program.Place, msccl_program.Place]]  # sending and receiving steps
    parent: I64  # (e,): rules between calls of the first turn
    child: I64  # (e,)
    sequence: list[int]  # calls of the first turn


def order_of(algo: msccl_program.Algo, cut: Cut = Cut()) -> Order:
    """What happens before what.

    ScheduleError: sends and receives that do not pair, or a deadlock: its cycle is named.
    WeftError: too many calls to look at.
    """
    calls = calls_of(algo, cut.most)
    send, receive, connection = _messages(algo, calls)
    pairs = zip(map(calls.place, send.tolist()), map(calls.place, receive.tolist()), strict=True)
    slots = msccl_program.PROTOCOLS[algo.protocol].in_flight
    fewest = int(np.bincount(connection).min()) if connection.size else 1
    turns = min(cut.turns, -(-slots // fewest) + 1)
    n = calls.gpu.size
    if n * turns > MOST_CALLS:
        raise WeftError(f"{algo.title}: {n} calls in {turns} turns are more than {MOST_CALLS}, too many to order")
    rules = [_blocks(calls, turns), _flags(algo, calls, turns), _repeated(send, receive, n, turns),
             _slots(send, receive, connection, n, turns, slots)]
    parent, child = (np.concatenate([rule[end] for rule in rules]) for end in (0, 1))
    sequence = _sequence(algo, calls, parent, child, n * turns)
    inside = (parent < n) & (child < n)
    first_turn = [call for call in sequence if call < n]
    return Order(calls, list(dict.fromkeys(pairs)), parent[inside], child[inside], first_turn)


def _messages(algo: msccl_program.Algo, calls: Calls) -> tuple[I64, I64, I64]:
    """Sending and receiving call of every message of a turn, and the number of its connection; k-th by k-th."""
    ends: dict[tuple[int, int, int], tuple[list[int], list[int]]] = {}
    for call in range(calls.gpu.size):
        gpu, number, _ = place = calls.place(call)
        block, kind = algo.gpus[gpu][number], algo.step(place).kind
        if kind in msccl_program.SENDS:
            ends.setdefault((gpu, block.send, block.channel), ([], []))[0].append(call)
        if kind in msccl_program.RECEIVES:
            ends.setdefault((block.receive, gpu, block.channel), ([], []))[1].append(call)
    send: list[int] = []
    receive: list[int] = []
    connection: list[int] = []
    for number, ((src, dst, channel), (out, into)) in enumerate(ends.items()):
        where = f"{algo.title}: GPU {src} sends"
        counts = calls.chunks[out].tolist(), calls.chunks[into].tolist()
        for at, (sent, received) in enumerate(zip(*counts, strict=False)):
            if sent != received:
                raise ScheduleError(
                    f"{where} {sent} chunks to GPU {dst} on channel {channel} in call {at}, which receives {received}"
                )
        if len(out) != len(into):
            raise ScheduleError(
                f"{where} {len(out)} times to GPU {dst} on channel {channel}, which receives {len(into)} times"
            )
        send += out
        receive += into
        connection += [number] * len(out)
    return np.array(send, np.int64), np.array(receive, np.int64), np.array(connection, np.int64)


def _repeated(parent: I64, child: I64, n: int, turns: int) -> tuple[I64, I64]:
    """The same rule in every turn."""
    turn = np.repeat(np.arange(turns, dtype=np.int64) * n, parent.size)
    return np.tile(parent, turns) + turn, np.tile(child, turns) + turn


def _blocks(calls: Calls, turns: int) -> tuple[I64, I64]:
    """A thread block executes its calls one after the other, turn by turn."""
    n = calls.gpu.size
    same = np.flatnonzero(calls.chain[1:] == calls.chain[:-1])
    parent, child = _repeated(same, same + 1, n, turns)
    begins = np.flatnonzero(np.diff(calls.chain, prepend=-1) != 0)
    ends = np.append(begins[1:], n) - 1 if n else begins
    again = _repeated(ends, begins + n, n, turns - 1)
    return np.concatenate([parent, again[0]]), np.concatenate([child, again[1]])


def _flags(algo: msccl_program.Algo, calls: Calls, turns: int) -> tuple[I64, I64]:
    """A step that waits starts after the step that releases it."""
    pairs = []
    for gpu, blocks in enumerate(algo.gpus):
        for number, waiting in enumerate(blocks):
            every = enumerate(msccl_program.waits_of(waiting))
            for at, (block, step) in ((at, one) for at, waits in every for one in waits):
                released = msccl_program.publisher(blocks[block], step)
                if released < 0:
                    what = f"{algo.title} hangs: {where(algo, (gpu, number, at))} waits for ever"
                    raise ScheduleError(f"{what}: no step of thread block {block} from {step} on has hasdep=1")
                pairs.append((calls.last((gpu, block, released)), calls.first[gpu, number, at]))
    found = np.array(pairs, np.int64).reshape(-1, 2).T
    return _repeated(found[0], found[1], calls.gpu.size, turns)


def _slots(send: I64, receive: I64, connection: I64, n: int, turns: int, slots: int) -> tuple[I64, I64]:
    """A send waits until the receiver has taken the message that is `slots` calls back, turns counted on."""
    if not send.size:
        return send, receive
    size = np.bincount(connection)
    at = np.arange(send.size) - (np.cumsum(size) - size)[connection]
    number = at[None, :] + np.arange(turns)[:, None] * size[connection][None, :] - slots
    turn, message = np.nonzero(number >= 0)
    back = number[turn, message]
    of = connection[message]
    start = (np.cumsum(size) - size)[of]
    parent = receive[start + back % size[of]] + back // size[of] * n
    return parent, send[message] + turn * n


def _sequence(algo: msccl_program.Algo, calls: Calls, parent: I64, child: I64, n: int) -> list[int]:
    """A topological order.

    ScheduleError: there is none: names the calls of a cycle.
    """
    ptr, followers = by_key(parent, child, n)
    open_rules = np.bincount(child, minlength=n)
    ready = np.flatnonzero(open_rules == 0).tolist()
    left = open_rules.tolist()
    for call in ready:  # grows as it is walked
        for other in followers[ptr[call] : ptr[call + 1]]:
            left[other] -= 1
            if not left[other]:
                ready.append(other)
    if len(ready) < n:
        raise ScheduleError(f"{algo.title} hangs: {_cycle(algo, calls, parent, child, np.array(left) > 0)}")
    return ready


def _cycle(algo: msccl_program.Algo, calls: Calls, parent: I64, child: I64, stuck: npt.NDArray[np.bool_]) -> str:
    """The calls of a cycle, each waiting for the next one."""
    both = stuck[parent] & stuck[child]
    waits_for = dict(zip(child[both].tolist(), parent[both].tolist(), strict=True))
    call = next(iter(waits_for))
    seen: dict[int, int] = {}
    path: list[int] = []
    while call not in seen:
        seen[call] = len(path)
        path.append(call)
        call = waits_for[call]
    n = calls.gpu.size
    named = []
    for one in path[seen[call] :]:
        turn, at = divmod(one, n)
        text = where(algo, calls.place(at))
        named.append(text if not turn else f"{text} in turn {turn}")
    steps = list(dict.fromkeys(named))
    shown = steps if len(steps) <= 6 else [*steps[:5], f"{len(steps) - 5} more"]
    return " waits for ".join([*shown, "the first of them"]) if len(steps) > 1 else f"{steps[0]} waits for itself"


def where(algo: msccl_program.Algo, place: msccl_program.Place) -> str:
    """A step, for messages."""
    return f"GPU {place[0]}, thread block {place[1]}, step {place[2]} ({algo.step(place).kind})"


def check_races(algo: msccl_program.Algo, order: Order, aliased: bool) -> None:
    """Every two conflicting accesses are ordered.

    `aliased`: whether input and output share memory.
    ScheduleError: names two steps that may run in either order, and what they touch.
    """
    calls = order.calls
    call, gpu, key, writes = _accesses(algo, calls, aliased)
    one, other, key = conflicts(call, key + gpu * _KEYS, writes)
    apart = calls.chain[one] != calls.chain[other]
    one, other, key = one[apart], other[apart], key[apart] % _KEYS
    events = Events(calls.chain, _number(calls), order.parent, order.child, order.sequence)
    racing = np.flatnonzero(unordered(events, one, other))
    if racing.size:
        pair = racing[0]
        first, second = (where(algo, calls.place(int(of[pair]))) for of in (one, other))
        buffer, at = _name_of(int(key[pair]))
        raise ScheduleError(
            f"{algo.title} races: {first} and {second} both touch {buffer}[{at}], one of them writes, and nothing "
            f"orders them"
        )


def _number(calls: Calls) -> I64:
    """Number of each call in its thread block, from 0."""
    begins = np.flatnonzero(np.diff(calls.chain, prepend=-1) != 0)
    return np.arange(calls.chain.size) - np.repeat(begins, np.diff(np.append(begins, calls.chain.size)))


_KEYS = 4 * 2**20
"""Keys of the places of a GPU: buffer times 2^20 and chunk; 3 is the memory that input and output share."""


def _name_of(key: int) -> tuple[str, int]:
    buffer, at = divmod(key, 2**20)
    return (*msccl_program.BUFFERS, "i/o")[buffer], at


def _accesses(algo: msccl_program.Algo, calls: Calls, aliased: bool) -> tuple[I64, I64, I64, npt.NDArray[np.bool_]]:
    """Call, GPU, key of the place, and whether it is written, of every access."""
    rows: list[tuple[int, int, int, int, bool]] = []  # call, GPU, key of the first chunk, chunks, writes
    part = algo.chunks // len(algo.gpus)
    for call in range(calls.gpu.size):
        place = calls.place(call)
        step, gpu = algo.step(place), place[0]
        touched = [(step.src, False)] if step.kind in msccl_program.READS else []
        touched += [(step.dst, True)] if step.kind in msccl_program.WRITES else []
        for (buffer, offset), writes in touched:
            number, at = msccl_program.BUFFERS.index(buffer), offset + int(calls.part[call])
            if aliased and buffer in "io":
                shifted = (buffer, algo.kind) in (("i", "all-gather"), ("o", "reduce-scatter"))
                number, at = len(msccl_program.BUFFERS), at + gpu * part * shifted
            rows.append((call, gpu, number * 2**20 + at, int(calls.chunks[call]), writes))
    columns = np.array(rows, np.int64).reshape(-1, 5).T
    count = columns[3]
    whole = np.repeat(np.arange(count.size), count)
    key = columns[2][whole] + np.arange(whole.size) - (np.cumsum(count) - count)[whole]
    return columns[0][whole], columns[1][whole], key, columns[4][whole].astype(np.bool_)
