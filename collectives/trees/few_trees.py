"""How many trees per root: as many as the optimum takes if those are few, otherwise few that lose little.

The optimum of measured or derated rates, such as 1 and 1.2345678 GB/s, takes millions of trees. A smaller number k
loses bandwidth, since links then carry integer numbers of trees, rounded down; its loss is exact, against the bound of
the tightest cut. The smallest k within the accepted loss is taken, among those that pad the array by at most 1 %. The
trees of the optimum are left for fewer, too, where they pad a small array by more.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated

from collectives.core.collective import collective
from collectives.trees.pack import mirror_of
from collectives.trees.shares import (
    MOST_BLOCKS,
    broadcast_shares,
    gather_shares,
    least_s_per_block_byte,
    s_per_byte_of_root,
    trees_fit,
)
from topologies import Topology, WeftError
from topologies.checks import Count, Number, checked
from topologies.flows.tightest_cut import remembered

MOST_K = 128
"""Default limit on trees per root: above what any regular fabric takes (mi250:2, 83; its broadcast, 128)."""

LOSS = Fraction(1, 100)
"""Default loss that is accepted for fewer trees."""

PADDING = Fraction(1, 100)
"""Limit on what blocks of whole elements add to the array, if the number of trees is a choice."""


@checked
@dataclass(frozen=True)
class Limits:
    """What is accepted for fewer trees than the optimum takes."""

    most_k: Count | None = None  # most trees per root; None for `MOST_K`
    # accepted loss of bandwidth, below 1; more is an error. None for `LOSS`, or as little as `most_k` allows.
    loss: Annotated[float, Number(0, 1)] | None = None

    def __post_init__(self) -> None:
        if self.loss == 1:
            raise WeftError("loss is 1: it is a fraction of the bandwidth, from 0 to below 1")


@dataclass(frozen=True)
class FewTrees:
    """A number of trees per root, and its exact loss of bandwidth against the optimum."""

    k: int
    loss: Fraction

    def __str__(self) -> str:
        percent = math.ceil(self.loss * 10_000) / 100  # rounded up: a loss is not understated
        where = f"{percent:g} % below the optimum" if percent else "at the optimum"
        return f"{where}, {self.k} {'tree' if self.k == 1 else 'trees'} per root"


def exact_k(topology: Topology, kind: str, root: int = 0) -> int:
    """Trees per root that the optimum takes, of both directions in an all-reduce."""
    return math.lcm(*(
        (gather_shares(one) if at is None else broadcast_shares(one, at)).roots[at or 0]
        for one, at in _sides(topology, kind, root)
    ))


def fewer_trees(
    topology: Topology, kind: str, limits: Limits, size_bytes: int, element_bytes: int, root: int = 0
) -> Iterator[FewTrees]:
    """Numbers of trees to be tried, best first; nothing if the optimum is within the limit and pads the array little.

    `size_bytes`, `element_bytes`: of the array; with 0 bytes no number of trees is excluded by its padding.
    `root`: of a broadcast or reduce.
    WeftError: a loss that is asked for and cannot be reached, with what can be.
    """
    n = topology.n_npus
    most = limits.most_k or MOST_K
    exact = exact_k(topology, kind, root)
    owners = 1 if collective(kind).rooted else n
    if exact <= most and padded_little(size_bytes, element_bytes, owners, exact):
        return
    most = min(most, max(1, MOST_BLOCKS // (owners * n)))
    allowed = tuple(k for k in range(1, most + 1) if padded_little(size_bytes, element_bytes, owners, k))
    accepted = LOSS if limits.loss is None else Fraction(limits.loss)
    within = False
    for k in allowed:
        if _is_within(topology, kind, root, k, accepted):
            yield FewTrees(k, loss_of(topology, kind, root, k))
            within = True
    if within:
        return
    order = sorted((FewTrees(k, loss_of(topology, kind, root, k)) for k in allowed), key=lambda one: (one.loss, one.k))
    if limits.loss is not None:
        raise WeftError(
            f"{kind} on {topology.name}: the best of up to {most} trees per root is {order[0]}: more than the accepted "
            f"loss of {100 * float(accepted):g} %; raise most_k or loss"
        )
    yield from order


@remembered
def loss_of(topology: Topology, kind: str, root: int, k: int) -> Fraction:
    """Exact loss of bandwidth with k trees per root; the times of both directions of an all-reduce add up."""
    sides = _sides(topology, kind, root)
    least = sum((s_per_byte_of_root(one, at) for one, at in sides), Fraction(0))
    return 1 - k * least / sum((least_s_per_block_byte(one, k, at) for one, at in sides), Fraction(0))


def check_blocks(topology: Topology, k: int, owners: int) -> None:
    """Reject numbers of trees whose schedule could not be held.

    WeftError: the message says how many blocks there would be.
    """
    blocks = k * owners * topology.n_npus
    if blocks > MOST_BLOCKS:
        raise WeftError(
            f"{k:,} trees per root on {topology.name}: its {topology.n_npus} NPUs would receive {blocks:,} blocks "
            f"(limit: {MOST_BLOCKS:,}); choose a smaller k"
        )


@remembered
def _is_within(topology: Topology, kind: str, root: int, k: int, loss: Fraction) -> bool:
    return all(
        trees_fit(one, k, at, k * s_per_byte_of_root(one, at) / (1 - loss)) for one, at in _sides(topology, kind, root)
    )


def _sides(topology: Topology, kind: str, root: int) -> list[tuple[Topology, int | None]]:
    """The networks on which trees grow away from the roots, and the root if there is only one."""
    at = root if collective(kind).rooted else None
    sides = [(topology, at)] if kind not in ("reduce-scatter", "reduce") else []
    return sides + ([(mirror_of(topology), at)] if kind in ("reduce-scatter", "reduce", "all-reduce") else [])


def padded_little(size_bytes: int, element_bytes: int, owners: int, k: int) -> bool:
    """Whether k blocks per owner pad the array by at most `PADDING`, or no more than one block does."""
    padded, least = (
        many * owners * element_bytes * -(-size_bytes // (many * owners * element_bytes)) for many in (k, 1)
    )
    return padded <= max(least, math.floor((1 + PADDING) * size_bytes))
