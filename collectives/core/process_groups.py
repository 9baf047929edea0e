"""Process groups over a product of dimensions: some dimensions entirely, part of one, the rest unused.

In each dimension a group has `extent` NPUs that are `stride` apart; unused dimensions have extent 1. The groups tile
the network, and all of them run the collective at once.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import numpy as np
import numpy.typing as npt

from collectives.core.collective import Collective, collective, reserved, uneven
from collectives.core.grid import Grid, RankOrRanks
from topologies import WeftError
from topologies.units import counted

GroupSpec = str | Sequence[int | str]
"""Extents, one per dimension; "2@4" for two NPUs 4 apart; -1 or 1 for an unused dimension: "16,-1,-1"."""


MOST_KNOWN = 65_536
"""Limit on the members of a group that are remembered."""


@dataclass(frozen=True)
class ProcessGroup:
    """Groups of equal shape that tile a grid."""

    shape: tuple[int, ...]  # extents of the network
    extents: tuple[int, ...]  # NPUs per group along each dimension
    strides: tuple[int, ...]  # the distance between them

    @property
    def size(self) -> int:
        """Ranks of one group."""
        return math.prod(self.extents)

    @property
    def is_whole(self) -> bool:
        """Whether one group contains all ranks."""
        return self.extents == self.shape

    @property
    def dims(self) -> tuple[int, ...]:
        """Dimensions in which a group has more than one rank."""
        return tuple(dim for dim, extent in enumerate(self.extents) if extent > 1)

    @cached_property
    def grid(self) -> Grid:
        """Coordinates of the ranks."""
        return Grid(self.shape)

    def position(self, ranks: RankOrRanks, dim: int) -> RankOrRanks:
        """Position of each rank inside its group along a dimension."""
        return self.grid.coordinate(ranks, dim) // self.strides[dim] % self.extents[dim]

    def move(self, ranks: RankOrRanks, dim: int, by: RankOrRanks | int) -> RankOrRanks:
        """The ranks `by` positions further inside their groups, wrapping around; the arguments broadcast."""
        here = self.position(ranks, dim)
        return ranks + ((here + by) % self.extents[dim] - here) * self.strides[dim] * self.grid.strides[dim]

    def flip(self, ranks: RankOrRanks, dim: int, bit: int) -> RankOrRanks:
        """The ranks whose position differs in one bit."""
        here = self.position(ranks, dim)
        return ranks + ((here ^ bit) - here) * self.strides[dim] * self.grid.strides[dim]

    @cached_property
    def known_members(self) -> dict[tuple[int, tuple[int, ...]], tuple[int, ...]]:
        """Of `members` below."""
        return {}

    def members(self, rank: int, alike: tuple[int, ...] = ()) -> tuple[int, ...]:
        """Members of a rank's group that share its positions in the dimensions `alike`, by position."""
        free = [dim for dim in self.dims if dim not in alike]
        strides = [self.strides[dim] * self.grid.strides[dim] for dim in free]
        first = rank - sum(self.position(rank, dim) * stride for dim, stride in zip(free, strides, strict=True))
        group = [first]
        for dim, stride in zip(free, strides, strict=True):
            group = [rank + place * stride for place in range(self.extents[dim]) for rank in group]
        return tuple(group)

    def __str__(self) -> str:
        return ",".join(
            f"{extent}@{stride}" if extent > 1 and stride > 1 else str(extent if extent > 1 else -1)
            for extent, stride in zip(self.extents, self.strides, strict=True)
        )


def process_group(shape: tuple[int, ...], spec: GroupSpec | ProcessGroup | None = None) -> ProcessGroup:
    """The groups described by a spec; a single group of all ranks if there is none.

    `shape`: extents of the network.
    `spec`: see `GroupSpec`. Strides default to 1.
    WeftError: a number of dimensions that differs from the network's, or an extent and stride that do not tile one.
    """
    if isinstance(spec, ProcessGroup):
        if spec.shape != shape:
            raise WeftError(f"group {spec} belongs to a network of shape {spec.shape}, not {shape}")
        return spec
    if spec is None:
        return ProcessGroup(shape, shape, (1,) * len(shape))
    parts = spec.split(",") if isinstance(spec, str) else list(spec)
    if len(parts) != len(shape):
        raise WeftError(f"group {spec!r} has {counted(len(parts), 'dimension')}; the network {shape} has {len(shape)}")
    pairs = [_parse(part, spec) for part in parts]
    for dim, ((extent, stride), whole) in enumerate(zip(pairs, shape, strict=True)):
        if whole % (extent * stride):
            raise WeftError(
                f"group {spec!r}: {extent} NPUs {stride} apart do not tile dimension {dim}, which has {whole}"
            )
    return ProcessGroup(shape, tuple(extent for extent, _ in pairs), tuple(stride for _, stride in pairs))


def _parse(part: int | str, spec: GroupSpec) -> tuple[int, int]:
    extent, _, stride = str(part).strip().partition("@")
    try:
        pair = int(extent), int(stride or 1)
    except ValueError:
        raise WeftError(f"group {spec!r}: {part!r} is not an extent: write 4, -1 or 2@4") from None
    if pair[0] < 0:
        return 1, 1
    if min(pair) < 1:
        raise WeftError(f"group {spec!r}: {part!r} is below 1; write -1 for an unused dimension")
    return pair


def members(group: ProcessGroup, rank: int, alike: tuple[int, ...] = ()) -> tuple[int, ...]:
    """`ProcessGroup.members`, remembered: the blocks of many transfers are those of the same few groups."""
    known = group.known_members
    if (rank, alike) not in known:
        if len(known) >= MOST_KNOWN:
            known.clear()
        known[rank, alike] = group.members(rank, alike)
    return known[rank, alike]


@dataclass(frozen=True)
class _Within:
    """A function of a collective within each group; those of the same collective and group are equal."""

    whole: Collective
    group: ProcessGroup


class _Sources(_Within):
    def __call__(self, block: int, p: int, root: int) -> Sequence[int]:
        if self.whole.name in ("all-reduce", "reduce-scatter"):
            return members(self.group, block % p)
        return self.whole.sources(block, p, root)


class _WantedBy(_Within):
    def __call__(self, block: int, p: int, root: int) -> Sequence[int]:
        if self.whole.name in ("all-reduce", "all-gather"):
            return members(self.group, block % p)
        if self.whole.name == "all-to-all" and block // p % p not in members(self.group, block % p):
            return ()
        return self.whole.wanted_by(block, p, root)


class _BlocksPerRank(_Within):
    def __call__(self, n_blocks: int, p: int) -> int:
        return self.whole.blocks_per_rank(n_blocks, p) * self.group.size // p


class _BusFactor(_Within):
    def __call__(self, p: int) -> float:
        return self.whole.bus_factor(self.group.size)


@lru_cache(maxsize=256)
def grouped(kind: str, group: ProcessGroup) -> Collective:
    """A collective within each group; the size is that of one group's array.

    Blocks keep their owners: block b belongs to rank b mod p of the entire network. In an all-to-all, blocks between
    two groups are wanted by no rank.
    """
    whole = collective(kind)
    if group.is_whole:
        return whole

    return replace(
        whole, sources=_Sources(whole, group), wanted_by=_WantedBy(whole, group),
        blocks_per_rank=_BlocksPerRank(whole, group), bus_factor=_BusFactor(whole, group), group_size=group.size,
    )


def check_reserved(kind: Collective) -> None:
    """The names of weft's collectives belong to them, within groups too: WeftError on another under one of them."""
    own = reserved(kind.name)
    of = kind.sources.group if isinstance(kind.sources, _Sources) else None
    if own is not None and kind.weights is not None:
        own = uneven(kind.weights)
    if own is not None and kind != (own if of is None else grouped(own.name, of)):
        raise WeftError(
            f"collective {kind.name!r} is not weft's own {own.name}, to which the name belongs: give collective("
            f"{own.name!r}) or another name"
        )


def automorphisms(group: ProcessGroup, dim: int, flips: bool) -> list[tuple[str, npt.NDArray[np.int64]]]:
    """Maps of the coordinates of a dimension that preserve the groups and act alike on every member.

    A coordinate has three digits: below the stride, the position in the group, and above. The outer ones rotate; the
    position rotates, or flips bit by bit for algorithms that distinguish ranks by their bits.
    """
    extent, stride, whole = group.extents[dim], group.strides[dim], group.shape[dim]
    every = np.arange(whole)
    low, position, high = every % stride, every // stride % extent, every // (stride * extent)

    def place(low_: npt.NDArray[np.int64], position_: npt.NDArray[np.int64], high_: npt.NDArray[np.int64]) -> (
        npt.NDArray[np.int64]
    ):
        return low_ + stride * (position_ + extent * high_)

    moves = []
    if stride > 1:
        moves.append((f"rotation inside strides of dimension {dim}", place((low + 1) % stride, position, high)))
    if extent > 1 and flips:
        moves += [
            (f"flip of bit {bit} in dimension {dim}", place(low, position ^ bit, high))
            for bit in (1 << s for s in range((extent - 1).bit_length()))
        ]
    elif extent > 1:
        moves.append((f"rotation of the groups' dimension {dim}", place(low, (position + 1) % extent, high)))
    if whole > stride * extent:
        moves.append((f"rotation among groups of dimension {dim}", place(low, position, (high + 1) % (high.max() + 1))))
    return moves
