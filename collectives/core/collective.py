"""Collectives as pre- and postconditions on blocks.

An array is cut into equal blocks. Before, each block exists as one contribution at each of its sources; after,
every rank that wants the block holds all of its contributions, each exactly once. If blocks have owners,
block b belongs to rank b mod p, so that a schedule may cut the array into several parts of p blocks each.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

from topologies.checks import checked, choice
from topologies.text.brief import Registry, one_line


@checked
@one_line
@dataclass(frozen=True)
class Collective:
    """A collective operation.

    Attributes
    ----------
    name : str
        A pattern may have one of weft's names only with weft's own collective.
    sources : callable (block, p, root) -> range or tuple of int
        Ranks that initially hold a contribution to the block.
    wanted_by : callable (block, p, root) -> range or tuple of int
        Ranks that finally hold all contributions.
    blocks_multiple : callable (p) -> int
        The number of blocks must be a multiple of this.
    blocks_per_rank : callable (n_blocks, p) -> int
        Blocks that make up `size`, as nccl-tests counts it.
    bus_factor : callable (p) -> float
        busbw = algbw x this factor (nccl-tests).
    rooted : bool
        Whether the root matters.
    group_size : int or None
        Ranks per process group if groups run the collective independently; None if all ranks form one group.
    weights : tuple of int or None
        Elements of each block, where blocks are unequal; `collectives.core.pairs` makes them.
    """

    name: str
    sources: Callable[[int, int, int], Sequence[int]]
    wanted_by: Callable[[int, int, int], Sequence[int]]
    blocks_multiple: Callable[[int], int]
    blocks_per_rank: Callable[[int, int], int]
    bus_factor: Callable[[int], float]
    rooted: bool = False
    group_size: int | None = None
    weights: tuple[int, ...] | None = None


def _everyone(block: int, p: int, root: int) -> range:
    return range(p)


def _owner(block: int, p: int, root: int) -> range:
    return range(block % p, block % p + 1)


def _root(block: int, p: int, root: int) -> range:
    return range(root, root + 1)


def _sender(block: int, p: int, root: int) -> range:
    return range(block // p % p, block // p % p + 1)


def _any(p: int) -> int:
    return 1


def _one_each(p: int) -> int:
    return p


def _all(n_blocks: int, p: int) -> int:
    return n_blocks


def _squared(p: int) -> int:
    return p * p


def _of_one_rank(n_blocks: int, p: int) -> int:
    return n_blocks // p


def _once(p: int) -> float:
    return (p - 1) / p


def _twice(p: int) -> float:
    return 2 * (p - 1) / p


def _whole(p: int) -> float:
    return 1.0


COLLECTIVES = Registry("collectives", {
    c.name: c
    for c in (
        Collective("all-reduce", _everyone, _everyone, _any, _all, _twice),
        Collective("reduce-scatter", _everyone, _owner, _one_each, _all, _once),
        Collective("all-gather", _owner, _everyone, _one_each, _all, _once),
        Collective("all-to-all", _sender, _owner, _squared, _of_one_rank, _once),
        Collective("broadcast", _root, _everyone, _any, _all, _whole, rooted=True),
        Collective("reduce", _everyone, _root, _any, _all, _whole, rooted=True),
        Collective("gather", _owner, _root, _one_each, _all, _once, rooted=True),
        Collective("scatter", _root, _owner, _one_each, _all, _once, rooted=True),
    )
})


class Ends(NamedTuple):
    """What is asked of blocks: ranks that have and that want one, each pair of them once, and which every block has."""

    pairs: tuple[tuple[Sequence[int], Sequence[int]], ...]
    of_block: Sequence[int]

    @classmethod
    def of(cls, kind: Collective, p: int, n_blocks: int, root: int) -> "Ends":
        """Those of a collective; both of its functions are asked once a block, which takes as long as a proof."""
        numbers: dict[tuple[Sequence[int], Sequence[int]], int] = {}
        ends = ((kind.sources(block, p, root), kind.wanted_by(block, p, root)) for block in range(n_blocks))
        of_block = [numbers.setdefault(one, len(numbers)) for one in ends]
        return cls(tuple(numbers), of_block)


@dataclass(frozen=True)
class _WantedBy:
    weights: tuple[int, ...]

    def __call__(self, block: int, p: int, root: int) -> range:
        """The owner of a block; nobody, where it has no element."""
        return range(block % p, block % p + (self.weights[block] > 0))


@dataclass(frozen=True)
class _Mean:
    weights: tuple[int, ...]

    def __call__(self, n_blocks: int, p: int) -> int:
        """Elements that a rank sends on average, its own included."""
        return max(1, -(-sum(self.weights) // p))


@lru_cache(maxsize=16)
def uneven(weights: tuple[int, ...]) -> Collective:
    """An all-to-all whose block b, from rank b // p mod p to rank b mod p, has `weights[b]` elements."""
    whole = COLLECTIVES["all-to-all"]
    return replace(whole, wanted_by=_WantedBy(weights), blocks_per_rank=_Mean(weights), weights=weights)


def collective(name: str) -> Collective:
    """Look up a collective by name: "all-reduce", "all_reduce" and "allreduce" are the same.

    WeftError: no such collective.
    """
    found = reserved(name) if isinstance(name, str) else None
    return found or COLLECTIVES[choice(name, COLLECTIVES, "collective")]


def reserved(name: str) -> Collective | None:
    """The collective to which a name belongs, however it is spelled; None if it is free."""
    plain = _PLAIN_NAMES.get(plain_name(name))
    return COLLECTIVES[plain] if plain else None


def plain_name(name: str) -> str:
    """A name without what may be spelled in several ways: dashes, underscores and capitals."""
    return name.replace("-", "").replace("_", "").lower()


_PLAIN_NAMES = {plain_name(name): name for name in COLLECTIVES}
