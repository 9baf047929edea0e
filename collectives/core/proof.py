"""The proof that a schedule implements its collective: contributions are followed through every transfer.

A transfer carries only what its dependencies guarantee to be at its source: the source's own contribution, and what
was delivered to the source by transfers that precede it through dependencies. Data that merely happens to arrive in
time does not count, so a proof holds for every timing. Received data that a transfer does not wait for is assumed to
be staged: it does not interfere with what is being sent.

Of a transfer that is followed chunk by chunk, directly or through others of any size, the same share has been delivered
as has left: only a block at the same place of as many has arrived in time. What was waited for entirely is all there.

What is known of one block at one rank is the list of its writes, each with the ranks whose contributions it brings as
bits of an integer. For rank 2 in an all-reduce of four, of which transfers 5 (adds) and 9 (overwrites) arrive:

    writes[2, block] = [ (row 5, 0b0010, adds), (row 9, 0b1111, overwrites) ]
    before row 9 is known to be done:  own 0b0100 + 0b0010 = 0b0110        after it:  0b1111

Invariant, held by `_refuse_race`: every addition to a block has ended before any copy overwrites it, so the value after
a set of writes depends on the set alone and not on the order in which they arrive. `precedes` asks whether a write is
known to be done: rows are numbered within the part of the dependency graph that they belong to, and the predecessors of
a row are one integer, so that a union of sets is one `|`; the set is dropped when nobody waits for the row any more.

Large tables are followed by `follow`, the same in compiled code, which says only that they hold; what it does not show
is followed here, which decides and says what is wrong.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from collectives.core._follow import POOLS
from collectives.core.by_slots import STREAM, WHOLE
from collectives.core.carried import BlocksOf, Carried
from collectives.core.collective import Collective, Ends
from collectives.core.follow import holds, pays
from collectives.core.transfers import Transfers
from topologies.checks import Count, WeftError, checked
from topologies.core.components import components


class Units:
    """Matches what is given back to a pool with what was taken from it: each give with a take of its own before it.

    By Hall's theorem there is such a matching where, and only where, no gives can be done before as many takes are.
    Transfers are bits of integers, in an order that keeps their dependencies. Give 3 waits for takes 0 and 1, and has
    take 1 until give 4 comes, which waits for take 1 alone: from then on, give 3 has take 0.
    """

    def __init__(self) -> None:
        self._takes = 0
        self._before: dict[int, int] = {}  # of each give, the takes that precede it
        self._take_of: dict[int, int] = {}
        self._give_of: dict[int, int] = {}

    def take(self, one: int) -> None:
        """A transfer takes a unit."""
        self._takes |= 1 << one

    def give(self, one: int, before: int) -> bool:
        """Whether another transfer can give a unit back as well; `before`: itself and all that precede it."""
        self._before[one] = before & self._takes
        wanted_by: dict[int, int] = {}
        looking, seen = [one], 0
        for give in looking:
            new = self._before[give] & ~seen
            seen |= new
            while new:
                take = new.bit_length() - 1
                new ^= 1 << take
                wanted_by[take] = give
                if take not in self._give_of:
                    self._hand_on(take, wanted_by)
                    return True
                looking.append(self._give_of[take])
        return False

    def _hand_on(self, free: int, wanted_by: dict[int, int]) -> None:
        """Along the path to a free take: each give gets the take it wants, and leaves the one it had."""
        take: int | None = free
        while take is not None:
            give = self._give_of[take] = wanted_by[take]
            had = self._take_of.get(give)
            self._take_of[give], take = take, had


MOST_IN_PYTHON = 200_000
"""Limit on transfers and blocks that are followed here, where compiled code does not show that they hold."""

Ints = npt.NDArray[np.int64]

class ScheduleError(WeftError):
    """A schedule that does not implement its collective; the message names the rank, the block and the step."""


class _Write(NamedTuple):
    """Arrival of a block at a rank: the transfer, and the contributions (a bit mask)."""

    row: int
    contributions: int
    reduces: bool


@checked
def prove(kind: Collective, p: Count, n_blocks: Count, root: int, transfers: Transfers, blocks_of: BlocksOf) -> None:
    """Check that the transfers of all ranks implement the collective.

    Parameters
    ----------
    kind : Collective
    p : int
        Ranks.
    n_blocks : int
    root : int
    transfers : Transfers
        Those of every rank.
    blocks_of : callable
        Blocks of each transfer.

    Raises
    ------
    ScheduleError
        A contribution is missing or counted twice, dependencies are missing or circular, a transfer does not carry the
        number of blocks it declares, or a unit is given back to a pool before it is sure to be taken.
    """
    pairs = zip(transfers.src.tolist(), transfers.slot.tolist(), strict=True)
    carried = Carried([blocks_of(source, slot) for source, slot in pairs])
    prove_carried(Ends.of(kind, p, n_blocks, root), p, transfers, carried)


def prove_carried(ends: Ends, p: int, transfers: Transfers, carried: Carried) -> None:
    """The same as `prove`, with the blocks of each row of the table."""
    _Proof(ends, p, transfers, carried).run()


class _Proof:
    def __init__(self, ends: Ends, p: int, transfers: Transfers, carried: Carried) -> None:
        self.ends, self.p, self.t, self.blocks = ends, p, transfers, carried
        self.writes: dict[tuple[int, int], list[_Write]] = {}
        self.pool = [] if transfers.pool is None else transfers.pool[:, :2].tolist()
        self.units: dict[tuple[int, int, int], Units] = {}  # by source, pool and part of the dependency graph
        masks = {ranks: sum(1 << one for one in ranks) for ranks, _ in ends.pairs}
        of_pair = [masks[ranks] for ranks, _ in ends.pairs]
        self.sources = [of_pair[pair] for pair in ends.of_block]

    def run(self) -> None:
        waits = self._dependencies()
        moves = int(self.blocks.counts.sum()) + self.t.src.size
        compiled = pays(moves)
        shown = holds(self.ends, self.p, self.t, self.blocks, waits) if compiled else 0
        if compiled and not shown and moves > MOST_IN_PYTHON:
            raise ScheduleError(
                f"{moves:,} transfers and blocks do not bring every contribution where it is wanted, or wait for more "
                "others than can be followed: on fewer ranks the proof says what is wrong"
            )
        if not shown or (self.pool and shown < POOLS):
            self._follow(*waits, sends=not shown)
        if not shown:
            for block, pair in enumerate(self.ends.of_block):
                for rank in self.ends.pairs[pair][1]:
                    self._check_arrived(rank, block)

    def _follow(self, child: Ints, parent: Ints, entirely: npt.NDArray[np.bool_], *, sends: bool) -> None:
        """Follow what precedes each row, its units, and its blocks unless compiled code did."""
        self.src, self.dst = self.t.src.tolist(), self.t.dst.tolist()
        self.reduces, self.counts = self.t.reduces.tolist(), self.t.blocks.tolist()
        ptr, parents = by_key(child, parent, len(self.src))
        streams = not entirely.all()
        whole = by_key(child, entirely.astype(np.int64), len(self.src))[1]
        order = self._order(child, parent)
        takes = [one >= 0 for one, _ in self.pool]
        if sends:
            self.bit, self.part = _number(child, parent, order)
        else:  # what takes units is all that has to be remembered: its sets are short
            self.bit, self.part = np.cumsum([0, *takes]).tolist(), [0] * len(order)
        held = [max(of) >= 0 for of in self.pool]
        waiting = np.bincount(parent, minlength=len(self.src)).tolist()
        until: dict[int, tuple[int, int]] = {}  # rows `before` and `begun` of a row, as long as some row waits for it
        for row in order:
            before = begun = 0
            for at in range(ptr[row], ptr[row + 1]):
                one = parents[at]
                past, at_start = until[one]
                before |= past
                if streams:
                    begun |= past if whole[at] else at_start
                waiting[one] -= 1
                if waiting[one] == 0:
                    del until[one]
            if not streams:
                begun = before
            done = before | 1 << self.bit[row] if sends or takes[row] else before
            if waiting[row]:
                until[row] = done, begun
            if sends:
                self._send(row, before, begun)
            if self.pool and held[row]:
                self._hold(row, done, *self.pool[row])

    def _dependencies(self) -> tuple[Ints, Ints, npt.NDArray[np.bool_]]:
        """Waiting rows, in order, what each waits for, and whether entirely; windows only delay, and are omitted."""
        t = self.t
        stride = int(max(t.src.max(initial=0), t.dep_src.max(initial=0))) + 1
        key = t.slot.astype(np.int64) * stride + t.src
        order = np.argsort(key, kind="stable")
        twice = np.flatnonzero(np.diff(key[order]) == 0)
        if twice.size:
            row = order[twice[0] + 1]
            raise ScheduleError(f"{self._name(row)}, with {self._carried(row)}, appears twice: slot {t.slot[row]}")
        want = t.dep_slot.astype(np.int64) * stride + t.dep_src
        found = order[np.minimum(np.searchsorted(key[order], want), max(key.size - 1, 0))]
        child = np.repeat(np.arange(key.size), np.diff(t.dep_ptr))
        absent = np.flatnonzero(key[found] != want)
        if absent.size:
            at = absent[0]
            raise ScheduleError(
                f"{self._name(child[at])}, with {self._carried(child[at])}, waits for slot {t.dep_slot[at]} of rank "
                f"{t.dep_src[at]}, which does not exist"
            )
        waits = (t.dep_lag == WHOLE) | (t.dep_lag == STREAM)  # no other wait guarantees that anything has come
        return child[waits], found[waits], t.dep_lag[waits] == WHOLE

    def _order(self, child: Ints, parent: Ints) -> list[int]:
        """Rows in topological order, breadth first."""
        n = len(self.src)
        ptr, children = by_key(parent, child, n)
        waits = np.bincount(child, minlength=n).tolist()
        order = [row for row, count in enumerate(waits) if count == 0]
        for row in order:
            for one in children[ptr[row] : ptr[row + 1]]:
                waits[one] -= 1
                if waits[one] == 0:
                    order.append(one)
        if len(order) < n:
            stuck = next(row for row, count in enumerate(waits) if count)
            raise ScheduleError(f"{self._name(stuck)}, with {self._carried(stuck)}, waits for itself in a cycle")
        return order

    def _send(self, row: int, before: int, begun: int) -> None:
        """Deliver what the source is guaranteed to have when each block leaves.

        `before`: the rows that the transfer waits for, through others too; `begun`: those done before it begins. The
        rest it follows chunk by chunk.
        """
        src, dst, reduces, part = self.src[row], self.dst[row], self.reduces[row], self.part[row]
        blocks = self.carried[row]
        if len(blocks) != self.counts[row]:
            raise ScheduleError(f"{self._name(row)} declares {self.counts[row]} blocks and has {self._carried(row)}")
        # A bit of bytes is found in constant time; shifting an integer of n bits would copy all of them.
        done = before.to_bytes(before.bit_length() // 8 + 1, "little")
        last = 8 * len(done)
        followed = before & ~begun
        bits, parts, writes = self.bit, self.part, self.writes

        def precedes(one: int) -> int:
            bit = bits[one]
            return bit < last and parts[one] == part and done[bit >> 3] >> (bit & 7) & 1

        for place, block in enumerate(blocks):
            here = writes.get((src, block))
            seen = [write for write in here if precedes(write[0])] if here else ()
            if followed:
                for write in seen:
                    if not self._arrives(write.row, row, place, followed):
                        raise ScheduleError(
                            f"{self._name(row)}, with {self._carried(row)}, follows {self._name(write.row)}, with "
                            f"{self._carried(write.row)}, chunk by chunk"
                        )
            contributions = self._value(src, block, seen) if seen else self.sources[block] & 1 << src
            if contributions == 0:
                raise ScheduleError(f"{self._name(row)} sends block {block}, of which rank {src} has nothing yet")
            there = writes.setdefault((dst, block), [])
            for write in there:
                # An addition after a copy is a race even where it is ordered: the copy already holds the whole sum.
                if reduces != write.reduces and (
                    reduces or not precedes(write.row) or not self._arrives(write.row, row, place, followed)
                ):
                    self._refuse_race(write.row, row, dst, block)
            there.append(_Write(row, contributions, reduces))

    def _hold(self, row: int, done: int, takes: int, gives: int) -> None:
        """Take a unit of a pool of the source, and give one back that was taken: by the same transfer or before it."""
        src, part = self.src[row], self.part[row]
        if takes >= 0:
            self.units.setdefault((src, takes, part), Units()).take(self.bit[row])
        if gives >= 0 and not self.units.setdefault((src, gives, part), Units()).give(row, done):
            raise ScheduleError(
                f"{self._name(row)}, with {self._carried(row)}, gives a unit back to pool {gives} of rank {src} that "
                "may not be taken by then: let it wait for a transfer that takes one, each for its own"
            )

    def _arrives(self, one: int, row: int, place: int, followed: int) -> bool:
        """Whether a row that is waited for has brought a block before the one at this place leaves."""
        if not followed or not followed >> self.bit[one] & 1:
            return True
        its, mine = self.carried[one], self.carried[row]
        return len(its) == len(mine) and its[place] == mine[place]

    def _refuse_race(self, one: int, other: int, rank: int, block: int) -> None:
        adds, overwrites = (one, other) if self.reduces[one] else (other, one)
        raise ScheduleError(
            f"{self._name(adds)} adds to block {block} of rank {rank} and is not guaranteed to finish before "
            f"{self._name(overwrites)} overwrites it"
        )

    def _value(self, rank: int, block: int, seen: Sequence[_Write]) -> int:
        """Contributions to a block that a rank holds after the writes `seen`, as a bit mask of ranks.

        A copy replaces what was there; all additions come before it, so only copies have to agree.
        """
        value = self.sources[block] & 1 << rank
        copies = [write for write in seen if not write.reduces]
        for write in copies:
            if write.contributions != copies[0].contributions:
                raise ScheduleError(
                    f"{self._name(write.row)} delivers block {block} to rank {rank} with contributions different from "
                    f"{self._name(copies[0].row)}"
                )
        if copies:
            return copies[0].contributions
        for write in seen:
            twice = value & write.contributions
            if twice:
                raise ScheduleError(
                    f"{self._name(write.row)} delivers block {block} to rank {rank}, where the contribution of rank "
                    f"{twice.bit_length() - 1} is already counted"
                )
            value |= write.contributions
        return value

    def _check_arrived(self, rank: int, block: int) -> None:
        writes = self.writes.get((rank, block), [])
        value = self._value(rank, block, writes)
        wanted = self.sources[block]
        if value != wanted:
            missing = wanted & ~value
            step = max((int(self.t.step[write.row]) for write in writes), default=int(self.t.step.max(initial=0)))
            raise ScheduleError(
                f"rank {rank} ends without the contribution of rank {missing.bit_length() - 1} to block {block} "
                f"({f'step {step} wrote it last' if writes else f'nothing wrote it up to step {step}'})"
            )

    @cached_property
    def carried(self) -> Sequence[Sequence[int]]:
        """Blocks of each row, one by one."""
        return self.blocks.rows

    def _carried(self, row: int) -> str:
        blocks = self.carried[row]
        return f"block {', '.join(map(str, blocks[:8]))}{' ...' if len(blocks) > 8 else ''}" if blocks else "no block"

    def _name(self, row: int) -> str:
        t = self.t
        return f"the transfer of rank {t.src[row]} to rank {t.dst[row]} in step {t.step[row]} (port {t.port[row]})"


def by_key(key: Ints, value: Ints, n: int) -> tuple[list[int], list[int]]:
    """Values grouped by their keys 0 to n - 1: the offset of each key, and the values in that order."""
    order = np.argsort(key, kind="stable")
    ptr = np.concatenate(([0], np.cumsum(np.bincount(key, minlength=n))))
    return ptr.tolist(), value[order].tolist()


def _number(child: Ints, parent: Ints, order: list[int]) -> tuple[list[int], list[int]]:
    """Give each row a bit within its connected component of the dependency graph, and the index of that component.

    The ports of an algorithm are independent and bits follow the order, so sets of predecessors stay short.
    """
    n = len(order)
    part = components(n, child, parent)
    rows = np.array(order, np.int64)
    by_part = rows[np.argsort(part[rows], kind="stable")]
    first = np.searchsorted(part[by_part], part[by_part])
    bit = np.empty(n, np.int64)
    bit[by_part] = np.arange(n) - first
    return bit.tolist(), part.tolist()
