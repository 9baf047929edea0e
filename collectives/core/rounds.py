"""Algorithms in rounds: in each round a rank exchanges with a few others, and the next round waits for it.

A transfer waits for everything its rank sent and received in the last step in which the rank sent, and for whatever
the rank has received since: a rank never runs ahead of its own data. Ports are independent.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from collectives.core.collective import collective
from collectives.core.grid import NOBODY, Ranks
from collectives.core.pattern import Pattern, Smaller
from collectives.core.symmetry import Group
from collectives.core.transfers import Ref, Transfers, TransferTable
from topologies import Topology

RankMap = Callable[[Ranks], Ranks]
"""From ranks (n,) to ranks (n,); NOBODY for none."""


@dataclass(frozen=True)
class Round:
    """Transfers of one port that start together, at most one from and one to each rank."""

    step: int  # rounds of the same step and port are concurrent
    port: int
    receiver: RankMap  # destination of each rank
    sender: RankMap  # source of each rank
    count: int  # blocks per transfer
    blocks: Callable[[int], Sequence[int]]  # (rank): blocks that a rank sends
    reduces: bool  # whether receivers add

    @property
    def slots(self) -> int:
        """Transfers of one rank."""
        return 1

    def receivers(self, ranks: Ranks) -> Ranks:
        """Destination of each rank in each slot, (slots, n)."""
        return self.receiver(ranks)[None]

    def arrivals(self, ranks: Ranks) -> list[tuple[int, Ranks]]:
        """Slots and senders (n,) from which each rank may receive."""
        return [(0, self.sender(ranks))]

    def carried(self, rank: int, slot: int) -> Sequence[int]:
        """Blocks of one transfer."""
        return self.blocks(rank)


@dataclass(frozen=True)
class Fan:
    """Transfers of one block each between a hub and the ranks of its rim.

    If receivers add, the block is the receiver's, otherwise the sender's.
    """

    step: int
    port: int
    hub: int
    rim: range
    outward: bool  # whether the hub sends
    first_block: int  # block of rank 0
    reduces: bool
    count: int = 1

    @property
    def slots(self) -> int:
        """Transfers of one rank: one per rank of the rim for the hub, otherwise one."""
        return len(self.rim) if self.outward else 1

    def receivers(self, ranks: Ranks) -> Ranks:
        """Destination of each rank in each slot, (slots, n)."""
        if self.outward:
            return np.where(ranks == self.hub, np.array(self.rim)[:, None], NOBODY)
        return np.where(self._on_rim(ranks), self.hub, NOBODY)[None]

    def arrivals(self, ranks: Ranks) -> list[tuple[int, Ranks]]:
        """Slots and senders (n,) from which each rank may receive."""
        if self.outward:
            return [(slot, np.where(ranks == rank, self.hub, NOBODY)) for slot, rank in enumerate(self.rim)]
        return [(0, np.where(ranks == self.hub, rank, NOBODY)) for rank in self.rim]

    def carried(self, rank: int, slot: int) -> Sequence[int]:
        """Blocks of one transfer."""
        receiver = self.rim[slot] if self.outward else self.hub
        return [self.first_block + (receiver if self.reduces else rank)]

    def _on_rim(self, ranks: Ranks) -> npt.NDArray[np.bool_]:
        return np.asarray((ranks >= self.rim.start) & (ranks < self.rim.stop))


def backwards(rounds: Sequence[Round], p: int) -> list[Round]:
    """A reduction as the time reversal of a distribution: receivers send back what they got, and it is added up.

    `p`: ranks.
    """
    last = max((one.step for one in rounds), default=0)
    return [
        replace(
            one, step=last - one.step, receiver=one.sender, sender=one.receiver, reduces=True,
            blocks=partial(_returned, one, one.sender(np.arange(p)).tolist()),
        )
        for one in rounds
    ]


def _returned(one: Round, senders: Sequence[int], rank: int) -> Sequence[int]:
    return one.blocks(senders[rank])


def in_turn(parts: Iterable[Sequence[Round]]) -> Iterator[Round]:
    """The rounds of some parts, each of which begins where the one before has ended."""
    first = 0
    for part in parts:
        yield from (replace(one, step=first + one.step) for one in part)
        first += max((one.step + 1 for one in part), default=0)


class _Placed(NamedTuple):
    """A round and its first slot."""

    slot: int
    round: Round | Fan


class _Sent(NamedTuple):
    """A round in the table: its first slot, the destinations of each rank, and its sources."""

    slot: int
    receivers: Ranks
    arrivals: list[tuple[int, Ranks]]


def rounds_pattern(
    topology: Topology, kind: str, algorithm: str, form: str, rounds: Sequence[Round | Fan], *, n_blocks: int,
    groups: Sequence[Group] = (), smaller: Smaller | None = None, root: int = 0, progress: str = "free",
) -> Pattern:
    """The pattern of an algorithm in rounds.

    `topology`, `kind`, `algorithm`, `form`, `n_blocks`, `groups`, `smaller`, `root`, `progress`: as in `Pattern`.
    `rounds`: slots are ordered by step, then port; rounds of the same step and port keep their order.
    """
    placed = _place(rounds)
    firsts = [slot for slot, _ in placed]

    def emit(ranks: npt.NDArray[np.integer]) -> Transfers:
        return _emit(placed, ranks)

    def blocks_of(source: int, slot: int) -> Sequence[int]:
        first, its_round = placed[bisect_right(firsts, slot) - 1]
        return its_round.carried(source, slot - first)

    return Pattern(
        topology=topology, kind=collective(kind), algorithm=algorithm, form=form, n_blocks=n_blocks, emit=emit,
        blocks_of=blocks_of, groups=groups, smaller=smaller, root=root, progress=progress,
    )


def _place(rounds: Sequence[Round | Fan]) -> list[_Placed]:
    placed, slot = [], 0
    for one in sorted(rounds, key=lambda r: (r.step, r.port)):
        placed.append(_Placed(slot, one))
        slot += one.slots
    return placed


def _emit(placed: Sequence[_Placed], ranks: npt.NDArray[np.integer]) -> Transfers:
    table = TransferTable(ranks)
    past: dict[int, list[list[_Sent]]] = {}
    for (step, port), group in groupby(placed, key=lambda one: (one.round.step, one.round.port)):
        after = _waits(past.setdefault(port, []), table.ranks)
        together = []
        for first, r in group:
            sent = _Sent(first, r.receivers(table.ranks), r.arrivals(table.ranks))
            slots = first + np.arange(r.slots)[:, None]
            table.add(slots, sent.receivers, r.count, step=step, port=port, reduces=r.reduces, after=after)
            together.append(sent)
        past[port].append(together)
    return table.build()


def _waits(past: Sequence[Sequence[_Sent]], ranks: Ranks) -> list[Ref]:
    """Dependencies of each rank's next transfer: back to the last step in which the rank sent."""
    refs: list[Ref] = []
    searching = np.ones(ranks.size, np.bool_)
    for together in reversed(past):
        sent = np.zeros(ranks.size, np.bool_)
        for first, receivers, arrivals in together:
            for slot, sender in arrivals:
                refs.append((sender, np.where(searching & (sender != NOBODY), first + slot, NOBODY)))
            for slot, receiver in enumerate(receivers):
                refs.append((ranks, np.where(searching & (receiver != NOBODY), first + slot, NOBODY)))
                sent |= receiver != NOBODY
        searching &= ~sent
        if not np.any(searching):
            break
    return refs
