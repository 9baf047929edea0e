"""Butterflies: log p steps in which pairs of ranks exchange, shared by Swing and the recursive doublings.

A butterfly is defined by the pairs of each step. They determine the latency form, which exchanges the entire vector
in every step, and the bandwidth form, a reduce-scatter with shrinking messages and an all-gather that is its time
reversal (D. De Sensi, T. Bonato, D. Saam, T. Hoefler, "Swing: Short-cutting Rings for Higher Bandwidth Allreduce",
NSDI 2024, sections 3.1 and A.2).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, lru_cache, partial
from itertools import count
from typing import NamedTuple

import numpy as np

from collectives.core.grid import NOBODY, Grid, Ranks, ceil_log2, is_power_of_two
from collectives.core.rounds import RankMap, Round
from topologies.core.paths import distinct_of

Peer = Callable[[Ranks], Ranks]
"""The peer of each rank of the core; the relation is symmetric."""


def dimension_steps(extents: Sequence[int], port: int) -> list[tuple[int, int]]:
    """Dimension and relative step of each step: the dimensions in turn, skipping those that are complete.

    `port`: starts with dimension `port` mod D (Swing paper, sections 4.1 and 4.2).
    """
    n_dims = len(extents)
    turn = [(port + i) % n_dims for i in range(n_dims)]
    longest = max(map(ceil_log2, extents), default=0)
    return [(dim, step) for step in range(longest) for dim in turn if step < ceil_log2(extents[dim])]


def port_peers(grid: Grid, dims: tuple[int, ...], port: int, peer: Callable[..., Ranks]) -> tuple[Peer, ...]:
    """The peers of each step of a port; ports from the number of dimensions on are mirrored.

    `peer`: (grid, dimension, relative step, mirrored, ranks).
    """
    steps = dimension_steps([grid.shape[dim] for dim in dims], port)
    return tuple(partial(peer, grid, dims[at], step, port >= len(dims)) for at, step in steps)


@dataclass(frozen=True)
class Core:
    """The ranks that take part in a butterfly: the first coordinates of each dimension."""

    outer: Grid  # all ranks
    inner: Grid  # the participating ranks, renumbered

    def index(self, ranks: Ranks) -> Ranks:
        """Index of each rank in the core; NOBODY outside."""
        if self.inner == self.outer:
            return ranks
        index, inside = np.zeros_like(ranks), np.ones(ranks.shape, np.bool_)
        for dim, extent in enumerate(self.inner.shape):
            coordinate = self.outer.coordinate(ranks, dim)
            inside &= coordinate < extent
            index = index + coordinate * self.inner.strides[dim]
        return np.where(inside, index, NOBODY)

    def rank(self, index: Ranks) -> Ranks:
        """The rank of each index in the core."""
        if self.inner == self.outer:
            return index
        ranks = np.zeros_like(index)
        for dim, stride in enumerate(self.outer.strides):
            ranks += self.inner.coordinate(index, dim) * stride
        return ranks

    def lift(self, peer: Peer) -> RankMap:
        """Extend a map of the core to all ranks."""

        def lifted(ranks: Ranks) -> Ranks:
            index = self.index(ranks)
            return np.where(index == NOBODY, NOBODY, self.rank(peer(np.maximum(index, 0))))

        return lifted

    def folded(self, rounds: list[Round], n_ports: int, blocks: int) -> list[Round]:
        """The rounds, enclosed by those that fold the ranks outside the core onto it and return the result to them.

        `blocks`: of each port, which are carried whole.
        """
        folds = list(self._folds())
        last = max((r.step for r in rounds), default=-1) + 1
        before, after = [], []
        for port in range(n_ports):
            carried = always(range(port * blocks, (port + 1) * blocks))
            for step, (down, up) in enumerate(folds):
                before.append(Round(step - len(folds), port, down, up, blocks, carried, True))
            for step, (down, up) in enumerate(reversed(folds)):
                after.append(Round(last + step, port, up, down, blocks, carried, False))
        return [replace(r, step=r.step + len(folds)) for r in before + rounds + after]

    def _folds(self) -> Iterator[tuple[RankMap, RankMap]]:
        """Maps from the ranks outside the core to their partners and back, dimension by dimension."""
        for dim in range(len(self.outer.shape)):
            if self.inner.shape[dim] < self.outer.shape[dim]:
                extra = self.outer.shape[dim] - self.inner.shape[dim]
                outside = range(self.inner.shape[dim], self.outer.shape[dim])
                inside = range(self.inner.shape[dim] - extra, self.inner.shape[dim])
                yield self._moved(dim, outside, -extra), self._moved(dim, inside, extra)

    def _moved(self, dim: int, coordinates: range, by: int) -> RankMap:
        """Move the ranks at given coordinates, among those not folded away by an earlier dimension."""

        def moved(ranks: Ranks) -> Ranks:
            at = self.outer.coordinate(ranks, dim)
            here = (at >= coordinates.start) & (at < coordinates.stop)
            for earlier in range(dim):
                here &= self.outer.coordinate(ranks, earlier) < self.inner.shape[earlier]
            return np.where(here, self.outer.shift(ranks, dim, by), NOBODY)

        return moved


@dataclass(frozen=True)
class Butterfly:
    """The pairs of each step of each port."""

    core: Core
    ports: tuple[tuple[Peer, ...], ...]
    part: int  # blocks per port: block b of port k has index `k * part + b` and is owned by rank b of the core

    @property
    def progress(self) -> str:
        """Ranks wait for all of their ports, unless some fold: what waits for those would hold up all ports."""
        return "all" if self.core.inner == self.core.outer else "free"

    def regular_dims(self) -> tuple[int, ...]:
        """Dimensions in which all ranks participate."""
        outer, inner = self.core.outer, self.core.inner
        return tuple(dim for dim in outer.dims if inner.shape[dim] == outer.shape[dim])

    def latency(self) -> list[Round]:
        """Every step exchanges everything: one block per port."""
        rounds = []
        for port, peers in enumerate(self.ports):
            for step, peer in enumerate(map(self.core.lift, peers)):
                rounds.append(Round(step, port, peer, peer, 1, always(range(port, port + 1)), True))
        return self.core.folded(rounds, len(self.ports), 1)

    def scatter(self, first_step: int = 0) -> list[Round]:
        """Reduce-scatter: each step sends what the peer keeps or forwards later."""
        return [
            self._partial(first_step + s, port, s, reduces=True)
            for port, peers in enumerate(self.ports) for s in range(len(peers))
        ]

    def gather(self, first_step: int = 0) -> list[Round]:
        """All-gather: the time reversal of the reduce-scatter."""
        return [
            self._partial(first_step + t, port, len(peers) - 1 - t, reduces=False)
            for port, peers in enumerate(self.ports) for t in range(len(peers))
        ]

    def bandwidth(self) -> list[Round]:
        """All-reduce as a reduce-scatter followed by an all-gather."""
        steps = max(map(len, self.ports), default=0)
        return self.core.folded(self.scatter() + self.gather(steps), len(self.ports), self.part)

    @cached_property
    def _sets(self) -> "list[BlockSets]":
        return [block_sets(self.core.inner.p, peers) for peers in self.ports]

    @cached_property
    def _indices(self) -> list[int]:
        indices: list[int] = self.core.index(np.arange(self.core.outer.p)).tolist()
        return indices

    def _partial(self, step: int, port: int, s: int, *, reduces: bool) -> Round:
        sent, met, size = self._sets[port]
        first = port * self.part

        def blocks(rank: int) -> Sequence[int]:
            index = self._indices[rank]
            return [first + block for block in _members(sent(index if reduces else met(s, index))[s])]

        across = self.core.lift(self.ports[port][s])
        return Round(step, port, across, across, size(s), blocks, reduces)


class BlockSets(NamedTuple):
    """What each rank sends in each step of a reduce-scatter."""

    sent: Callable[[int], tuple[int, ...]]  # (rank): sets of blocks as bit masks, one per step
    met: Callable[[int, int], int]  # (step, rank): the peer
    size: Callable[[int], int]  # (step): number of blocks; the same for every rank


def block_sets(p: int, peers: Sequence[Peer]) -> BlockSets:
    """What each rank sends in each step of the reduce-scatter, and how much.

    In step s a rank sends its peer the block that the peer owns and those that the peer forwards later; a block
    that would be sent twice is sent only the last time (Swing paper, sections 3.1.1 and A.2).

    `p`: ranks.
    `peers`: of each step.
    """
    tables: list[list[int]] = []

    def met(step: int, rank: int) -> int:
        if not tables:
            tables.extend(peer(np.arange(p)).tolist() for peer in peers)
        return tables[step][rank]

    @cache
    def reach(step: int, rank: int) -> int:
        """Blocks whose partial sums end at a rank if it receives them before that step."""
        if step == len(peers):
            return 1 << rank
        return reach(step + 1, rank) | reach(step + 1, met(step, rank))

    @cache
    def sent(rank: int) -> tuple[int, ...]:
        sets: list[int] = []
        later = 1 << rank
        for step in reversed(range(len(peers))):
            sets.append(reach(step + 1, met(step, rank)) & ~later)
            later |= sets[-1]
        return tuple(reversed(sets))

    @cache
    def sizes() -> list[int]:
        """Sizes of the sets of rank 0, of members alone: as bit masks, a million ranks would take 100 GB."""
        found, later = [], np.arange(p) == 0
        for step in reversed(range(len(peers))):
            reached = peers[step](np.zeros(1, np.int64))
            for after in peers[step + 1:]:
                reached = _together(reached, after(reached), p)
            found.append(int(np.count_nonzero(~later[reached])))
            later[reached] = True
        return found[::-1]

    def size(step: int) -> int:
        return p >> (step + 1) if is_power_of_two(p) else sizes()[step]

    return BlockSets(sent, met, size)


def _together(one: Ranks, other: Ranks, p: int) -> Ranks:
    """The ranks in either of two sets, ascending; many are marked, for to sort millions hears no signal for seconds."""
    if 32 * (one.size + other.size) < p:
        return distinct_of(np.concatenate([one, other]))
    there = np.zeros(p, np.bool_)
    there[one] = there[other] = True
    return np.flatnonzero(there)


def always(blocks: range) -> Callable[[int], Sequence[int]]:
    """The same blocks from every rank."""
    return lambda rank: blocks


@lru_cache(maxsize=4096)
def _members(mask: int) -> list[int]:
    return [bit for bit, digit in zip(count(), reversed(bin(mask)), strict=False) if digit == "1"]
