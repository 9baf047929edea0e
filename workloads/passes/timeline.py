"""When every pass begins and ends: the longest path through the orders of the ranks and the messages between them."""

from collections.abc import Callable
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


class Timeline(NamedTuple):
    """All slots by rank, and the messages between ranks."""

    ranks: list[list[Timed]]
    messages: list[Message]

    @property
    def end(self) -> int:
        return max(mine[-1].free for mine in self.ranks)

    def busy(self, rank: int) -> int:
        """Time in which a rank computes."""
        return sum(one.end - one.begin for one in self.ranks[rank])

    def shared(self) -> int:
        """Messages that begin while another one to the same rank is on its way.

        None certifies that every message has its ports alone, so that it takes what it takes alone: those of one
        source leave one after the other.
        """
        count, last = 0, dict[int, int]()
        for one in sorted(self.messages, key=lambda message: message.begin):
            count += one.begin < last.get(one.dst, -1)
            last[one.dst] = max(last.get(one.dst, 0), one.end)
        return count


def timeline(
    schedule: str, p: int, v: int, m: int, duration: Callable[[int, Slot], int], message_ps: Callable[[int, int], int],
    *, blocks: bool = False,
) -> Timeline:
    """Times of all slots of a schedule.

    `duration`: of a slot on a rank, in ps.
    `message_ps`: between two ranks.
    `blocks`: whether a rank goes on only when its message has been sent, as with blocking sends and receives.
    WeftError: an order in which the ranks wait for each other.
    """
    order = order_of(schedule)
    stages = order.stages(p, v)
    last = (p if order.ways == 2 else p * v) - 1
    left = slots_of(schedule, p, v, m)
    at, done, port, arrived = [0] * p, [0] * p, [0] * p, dict[tuple[str, int, int, int], int]()
    where = {(way, stage): r for r, mine in enumerate(stages) for chunk, stage in enumerate(mine)
             for way in [chunk if order.ways == 2 else 0]}
    found: list[list[Timed]] = [[] for _ in range(p)]
    messages: list[Message] = []

    def needs(one: Pass, way: int, stage: int) -> tuple[str, int, int, int] | None:
        if one.kind == "F":
            return ("F", way, stage - 1, one.batch) if stage else None
        if one.kind == "W":
            return ("end of B", way, stage, one.batch)
        return ("B", way, stage + 1, one.batch) if stage < last else ("F", way, stage, one.batch)

    waiting, ready = dict[tuple[str, int, int, int], int](), list(range(p))
    while ready:
        r = ready.pop()
        while at[r] < len(left[r]):
            slot, begin = left[r][at[r]], done[r]
            placed = [(one, one.chunk if order.ways == 2 else 0, stages[r][one.chunk]) for one in slot]
            for key in (needs(*one) for one in placed):
                if key is None:
                    continue
                if key not in arrived:
                    waiting[key] = r
                    break
                begin = max(begin, arrived[key])
            else:
                end = free = begin + duration(r, slot)
                for one, way, stage in placed:
                    if one.kind == "W":
                        continue
                    kind = one.kind[0]
                    to = where.get((way, stage + (1 if kind == "F" else -1)), r)
                    sent = end
                    if to != r:  # the port of a rank sends one message at a time
                        leaves = max(end, port[r])
                        sent = port[r] = leaves + message_ps(r, to)
                        messages.append(Message(r, to, leaves, sent))
                        free = max(free, sent) if blocks else free
                    arrived[kind, way, stage, one.batch] = sent
                    arrived["end of B", way, stage, one.batch] = end
                    if (other := waiting.pop((kind, way, stage, one.batch), None)) is not None:
                        ready.append(other)
                found[r].append(Timed(slot, begin, end, free))
                at[r], done[r] = at[r] + 1, free
                continue
            break
    for r, mine in enumerate(left):
        if at[r] < len(mine):
            raise WeftError(f"rank {r} of {p} waits for ever, for {mine[at[r]]}")
    return Timeline(found, messages)
