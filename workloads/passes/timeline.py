"""When every pass begins and ends: the longest path through the orders of the ranks and the messages between them."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from topologies.checks import WeftError
from workloads.passes.orders import Pass, Slot, order_of, slots_of


class Timed(NamedTuple):
    """A slot of a rank, in ps."""

    slot: Slot
    begin: int
    end: int  # of its computation
    free: int  # when the rank goes on: later where it waits until its message is sent


class Message(NamedTuple):
    """A message between two stages on different ranks, in ps."""

    src: int
    dst: int
    begin: int
    end: int
    arrived: int  # later where those that it was sent to gather its parts


class Timeline(NamedTuple):
    """All slots by rank, and the messages between ranks."""

    ranks: list[list[Timed]]
    messages: list[Message]

    @property
    def end(self) -> int:
        """When the last rank is free."""
        return max(mine[-1].free for mine in self.ranks)


Key = tuple[str, int, int, int]
"""What a pass leaves: F or B, direction, stage, microbatch."""


class Step(NamedTuple):
    """A slot in an order in which all that it waits for comes before it."""

    rank: int
    slot: Slot
    needs: tuple[Key, ...]
    gives: tuple[tuple[Key, int], ...]  # and the rank that it goes to


def walk(schedule: str, p: int, v: int, m: int) -> Iterator[Step]:
    """All slots of a schedule.

    WeftError: an order in which the ranks wait for each other.
    """
    order = order_of(schedule)
    stages = order.stages(p, v)
    last = (p if order.ways == 2 else p * v) - 1
    left = slots_of(schedule, p, v, m)
    at, done = [0] * p, set[Key]()
    where = {(way, stage): r for r, mine in enumerate(stages) for chunk, stage in enumerate(mine)
             for way in [chunk if order.ways == 2 else 0]}

    def needs(one: Pass, way: int, stage: int) -> Iterator[Key]:  # W follows its B on the same rank
        if one.kind == "F" and stage:
            yield "F", way, stage - 1, one.batch
        elif one.kind in ("B", "BW"):
            yield ("B", way, stage + 1, one.batch) if stage < last else ("F", way, stage, one.batch)

    waiting, ready = dict[Key, int](), list(range(p))
    while ready:
        r = ready.pop()
        while at[r] < len(left[r]):
            slot = left[r][at[r]]
            placed = [(one, one.chunk if order.ways == 2 else 0, stages[r][one.chunk]) for one in slot]
            needed = tuple(key for one in placed for key in needs(*one))
            if (missing := next((key for key in needed if key not in done), None)) is not None:
                waiting[missing] = r
                break
            gives = []
            for one, way, stage in placed:
                if one.kind != "W":
                    kind = one.kind[0]
                    key = kind, way, stage, one.batch
                    gives.append((key, where.get((way, stage + (1 if kind == "F" else -1)), r)))
            yield Step(r, slot, needed, tuple(gives))
            for key, _ in gives:
                done.add(key)
                if (other := waiting.pop(key, None)) is not None:
                    ready.append(other)
            at[r] += 1
    for r, mine in enumerate(left):
        if at[r] < len(mine):
            raise WeftError(f"rank {r} of {p} waits for ever, for {mine[at[r]]}")


def timeline(
    schedule: str, p: int, v: int, m: int, duration: Callable[[int, Slot], int], message_ps: Callable[[int, int], int],
    *, blocks: bool = False, gather_ps: int = 0,
) -> Timeline:
    """Times of all slots of a schedule.

    `duration`: of a slot on a rank, in ps.
    `message_ps`: between two ranks.
    `blocks`: whether a rank goes on only when its message has been sent, as with blocking sends and receives.
    `gather_ps`: what those that it was sent to do with it before it is used.
    WeftError: an order in which the ranks wait for each other.
    """
    done, port, arrived = [0] * p, [0] * p, dict[Key, int]()
    found: list[list[Timed]] = [[] for _ in range(p)]
    messages: list[Message] = []
    for r, slot, needs, gives in walk(schedule, p, v, m):
        begin = max(done[r], *(arrived[key] for key in needs)) if needs else done[r]
        end = free = begin + duration(r, slot)
        for key, to in gives:
            arrived[key] = end
            if to != r:  # the port of a rank sends one message at a time
                leaves = max(end, port[r])
                port[r] = leaves + message_ps(r, to)
                arrived[key] = port[r] + gather_ps
                messages.append(Message(r, to, leaves, port[r], arrived[key]))
                free = max(free, port[r]) if blocks else free
        found[r].append(Timed(slot, begin, end, free))
        done[r] = free
    return Timeline(found, messages)
