"""The proof that a schedule does its collective: contributions are followed through every transfer.

A transfer carries what its dependencies guarantee to be at its source, and nothing else: the source's own
contribution, and what was delivered to the source by transfers that come before it through dependencies.
What merely happens to arrive in time does not count, so a proof holds for every timing. Received data that a
transfer does not wait for is thought of as staged: it does not disturb what is being sent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from collectives.collective import Collective
from collectives.transfers import Transfers
from topologies import WeftError

BlocksOf = Callable[[int, int], Sequence[int]]
"""Blocks carried by transfer (source, slot), in the order they travel."""


class ScheduleError(WeftError):
    """A schedule that does not do its collective: names the rank, the block and the step."""


class _Write(NamedTuple):
    """A block that arrives at a rank: by which transfer, with whose contributions (a bit mask)."""

    row: int
    contributions: int
    reduces: bool


def prove(
    kind: Collective, p: int, n_blocks: int, root: int, transfers: Transfers, blocks_of: BlocksOf
) -> None:
    """Check that the transfers of all ranks do the collective.

    Parameters
    ----------
    kind : Collective
    p : int
        Ranks.
    n_blocks : int
    root : int
    transfers : Transfers
        Of every rank.
    blocks_of : callable
        Blocks of each transfer.

    Raises
    ------
    ScheduleError
        A contribution is missing or counted twice, dependencies are missing or circular, or a transfer carries
        another number of blocks than it says.
    """
    _Proof(kind, p, n_blocks, root, transfers, blocks_of).run()


class _Proof:
    def __init__(
        self, kind: Collective, p: int, n_blocks: int, root: int, transfers: Transfers, blocks_of: BlocksOf
    ) -> None:
        self.kind, self.p, self.n_blocks, self.root = kind, p, n_blocks, root
        self.t = transfers
        self.blocks_of = blocks_of
        self.writes: dict[tuple[int, int], list[_Write]] = {}
        self.before: list[int] = [0] * transfers.src.size

    def run(self) -> None:
        parents = self._parents()
        self._number(parents)
        for row in self._order(parents):
            for parent in parents[row]:
                self.before[row] |= self.before[parent] | 1 << self.bit[parent]
            self._send(row)
        for block in range(self.n_blocks):
            for rank in self.kind.wanted_by(block, self.p, self.root):
                self._check_arrived(rank, block)

    def _parents(self) -> list[list[int]]:
        """Rows that each row waits for, without windows (they only delay)."""
        t = self.t
        row_of = {(int(s), int(k)): row for row, (s, k) in enumerate(zip(t.src, t.slot, strict=True))}
        parents: list[list[int]] = []
        for row in range(t.src.size):
            mine = []
            for at in range(t.dep_ptr[row], t.dep_ptr[row + 1]):
                if t.dep_lag[at] > 0:
                    continue
                ref = (int(t.dep_src[at]), int(t.dep_slot[at]))
                if ref not in row_of:
                    raise ScheduleError(f"{self._name(row)} waits for slot {ref[1]} of rank {ref[0]}, which is not there")
                mine.append(row_of[ref])
                if t.dep_lag[at] == 0:
                    self._check_stream(row_of[ref], row)
            parents.append(mine)
        return parents

    def _number(self, parents: list[list[int]]) -> None:
        """Give each row a bit of its own among the rows that dependencies connect it to: the ports of an algorithm
        do not meet, and sets of predecessors stay short."""
        child = np.repeat(np.arange(len(parents)), [len(mine) for mine in parents])
        parent = np.array([one for mine in parents for one in mine], np.int64)
        edges = coo_array((np.ones(child.size, np.int8), (child, parent)), shape=(len(parents),) * 2)
        _, self.part = connected_components(edges, directed=False)
        order = np.argsort(self.part, kind="stable")
        first = np.searchsorted(self.part[order], self.part[order])
        bit = np.empty(len(parents), np.int64)
        bit[order] = np.arange(len(parents)) - first
        self.bit = bit.tolist()

    def _precedes(self, earlier: int, later: int) -> bool:
        """Whether dependencies guarantee that one row is delivered before another starts."""
        return bool(self.part[earlier] == self.part[later] and self.before[later] >> self.bit[earlier] & 1)

    def _check_stream(self, parent: int, row: int) -> None:
        """A transfer that follows another chunk by chunk must send the same blocks in the same order."""
        t = self.t
        if t.dst[parent] != t.src[row]:
            return
        arriving = list(self.blocks_of(int(t.src[parent]), int(t.slot[parent])))
        leaving = list(self.blocks_of(int(t.src[row]), int(t.slot[row])))
        if set(arriving) & set(leaving) and arriving != leaving:
            raise ScheduleError(f"{self._name(row)} follows {self._name(parent)} chunk by chunk with other blocks")

    def _order(self, parents: list[list[int]]) -> list[int]:
        """Rows in an order that respects the dependencies."""
        children: list[list[int]] = [[] for _ in parents]
        waits = np.array([len(mine) for mine in parents], np.int64)
        for row, mine in enumerate(parents):
            for parent in mine:
                children[parent].append(row)
        ready = [int(row) for row in np.flatnonzero(waits == 0)]
        order: list[int] = []
        while ready:
            row = ready.pop()
            order.append(row)
            for child in children[row]:
                waits[child] -= 1
                if waits[child] == 0:
                    ready.append(child)
        if len(order) < len(parents):
            stuck = int(np.flatnonzero(waits > 0)[0])
            raise ScheduleError(f"{self._name(stuck)} waits for itself in a circle")
        return order

    def _send(self, row: int) -> None:
        src, dst, slot = int(self.t.src[row]), int(self.t.dst[row]), int(self.t.slot[row])
        blocks = self.blocks_of(src, slot)
        if len(blocks) != self.t.blocks[row]:
            raise ScheduleError(f"{self._name(row)} carries {len(blocks)} blocks and says {self.t.blocks[row]}")
        for block in blocks:
            seen = [w for w in self.writes.get((src, block), ()) if self._precedes(w.row, row)]
            contributions = self._value(src, block, seen)
            if contributions == 0:
                raise ScheduleError(f"{self._name(row)} sends block {block}, of which rank {src} has nothing yet")
            write = _Write(row, contributions, bool(self.t.reduces[row]))
            self.writes.setdefault((dst, block), []).append(write)

    def _value(self, rank: int, block: int, seen: Sequence[_Write]) -> int:
        """Contributions that a rank holds of a block after the writes `seen`, as a bit mask of ranks."""
        sources = self.kind.sources(block, self.p, self.root)
        value = 1 << rank if rank in sources else 0
        copies = [w for w in seen if not w.reduces]
        if copies:
            return self._copied(rank, block, seen, copies)
        for write in seen:
            twice = value & write.contributions
            if twice:
                raise ScheduleError(
                    f"{self._name(write.row)} delivers block {block} to rank {rank}, where the contribution of rank "
                    f"{twice.bit_length() - 1} is counted already"
                )
            value |= write.contributions
        return value

    def _copied(self, rank: int, block: int, seen: Sequence[_Write], copies: Sequence[_Write]) -> int:
        """A copy replaces what was there: all copies must agree, and no addition may race with one."""
        for write in seen:
            for copy in copies:
                if write.reduces and not self._precedes(write.row, copy.row):
                    raise ScheduleError(
                        f"{self._name(write.row)} adds to block {block} of rank {rank} while {self._name(copy.row)} "
                        "overwrites it"
                    )
                if not write.reduces and write.contributions != copy.contributions:
                    raise ScheduleError(f"rank {rank} receives different copies of block {block}: {self._name(copy.row)}")
        return copies[0].contributions

    def _check_arrived(self, rank: int, block: int) -> None:
        writes = self.writes.get((rank, block), [])
        value = self._value(rank, block, writes)
        wanted = sum(1 << source for source in self.kind.sources(block, self.p, self.root))
        if value != wanted:
            missing = wanted & ~value
            last = f"step {max(int(self.t.step[w.row]) for w in writes)}" if writes else "no step"
            raise ScheduleError(
                f"rank {rank} ends without the contribution of rank {missing.bit_length() - 1} to block {block} "
                f"({last} wrote it last)"
            )

    def _name(self, row: int) -> str:
        t = self.t
        return f"the transfer of rank {t.src[row]} to rank {t.dst[row]} in step {t.step[row]} (port {t.port[row]})"
