"""What faults make unlike on an otherwise symmetric fabric, and the part of a symmetry that keeps it.

A symmetry of the healthy program whose every element moves links and NPUs to such as have the same faults at the same
times is a symmetry of the faulty one. Of a group, that is the subgroup that stabilizes the marks: stragglers at NPUs 0
and 2 of a ring of four leave the rotation by two. One straggler leaves nothing, for only the identity fixes an NPU.
"""

import hashlib
import itertools
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from collectives.core.symmetry import Action, Group
from sim.program import I64

MOST_ELEMENTS = 4096
"""Limit on the elements of a group that are looked at one by one; of a larger one, powers of its generators."""

MOST_STEPS = 2**26
"""Links times powers of one generator: as many take a second."""


class Marks(NamedTuple):
    """Numbers that are equal for what has the same faults."""

    rank: I64  # (sources,): of NPUs, and of switches that send
    link: I64  # (n_links,)

    @property
    def digest(self) -> bytes:
        """For keys: equal for equal marks."""
        return hashlib.sha256(self.rank.tobytes() + b"/" + self.link.tobytes()).digest()

    def are_kept(self, action: Action) -> bool:
        """Whether an action moves nothing to what has other faults."""
        rank, link = self.rank[: action.ranks.shape[1]], self.link[action.links]
        return all(np.array_equal(rank[part], rank) for part in action.ranks) and np.array_equal(link, self.link)


def keeping(group: Group, marks: Marks) -> Group:
    """The subgroup that keeps the marks, by a few generators; of groups in which the order of moves does not matter."""
    kept: list[Action] = []
    if not group.generators:
        return group
    reached = np.arange(group.generators[0].ranks.shape[1])
    alike = np.unique(marks.rank[: reached.size], return_counts=True)[1]
    if np.gcd.reduce(alike) == 1 < reached.size:  # all orbits are as large as the group, and fill what is marked alike
        return group._replace(generators=())
    for action in _elements(group.generators):
        parts = action.ranks
        if all(np.array_equal(reached[part], reached) for part in parts) or not marks.are_kept(action):
            continue
        kept.append(action)
        for part in parts:
            reached = _joined(reached, part)
    return group._replace(generators=tuple(kept))


def _joined(label: I64, permutation: I64) -> I64:
    """Labels of orbits, once a permutation has joined some of them."""
    while True:
        least = np.minimum(label, label[permutation])
        least = least[least]
        if np.array_equal(least, label):
            return label
        label = least


def _elements(generators: tuple[Action, ...]) -> Iterator[Action]:
    """The generators first, so that a group that is kept whole stays as declared; then products of their powers."""
    yield from generators
    powers = [list(_powers(action)) for action in generators]
    if np.prod([len(some) + 1.0 for some in powers]) > MOST_ELEMENTS:
        for some in powers:
            yield from some
        return
    for chosen in itertools.product(*([None, *some] for some in powers)):
        product = None
        for action in chosen:
            if action is not None:
                product = action if product is None else _after(product, action)
        if product is not None:
            yield product


def _powers(action: Action) -> Iterator[Action]:
    """The powers of an action from the first to the last that is not the identity."""
    power = action
    for _ in range(max(1, min(MOST_ELEMENTS, MOST_STEPS // power.links.size))):
        if np.array_equal(power.links, np.arange(power.links.size)) and all(
            np.array_equal(part, np.arange(part.size)) for part in power.ranks
        ):
            return
        yield power
        power = _after(power, action)


def _after(one: Action, other: Action) -> Action:
    """One action and then the other."""
    parts = range(max(len(one.ranks), len(other.ranks)))
    ranks = [other.ranks[min(part, len(other.ranks) - 1)][one.ranks[min(part, len(one.ranks) - 1)]] for part in parts]
    return Action(np.stack(ranks), other.links[one.links])
