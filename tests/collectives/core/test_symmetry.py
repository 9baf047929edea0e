"""Groups that a caller declares: whatever is no group of permutations is refused when the pattern is built."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from collectives import Action, Group, Pattern, TransferTable, schedule
from collectives.core.collective import collective
from collectives.core.symmetry import Groups
from sim import simulate
from topologies import WeftError, ring
from topologies.core.symmetry import link_permutation

P, FABRIC = 4, ring(4)
NEXT = np.array([[1, 2, 3, 0]], np.int32)
LINKS = link_permutation(FABRIC, NEXT[0])
assert LINKS is not None
GOOD = Action(NEXT, LINKS)


def ring_of_a_caller(groups: Any) -> Pattern:
    def emit(ranks: np.ndarray) -> Any:
        table = TransferTable(ranks)
        for step in range(P - 1):
            table.add(step, (ranks + 1) % P, step=step, after=[((ranks - 1) % P, step - 1)] if step else ())
        return table.build()

    return Pattern(
        topology=FABRIC, kind=collective("all-gather"), algorithm="mine", n_blocks=P, emit=emit,
        blocks_of=lambda source, slot: [(source - slot) % P], groups=groups,
    )  # fmt: skip


def refusal(groups: Any) -> str:
    with pytest.raises(WeftError) as refused:
        ring_of_a_caller(groups)
    return str(refused.value)


def of(ranks: Any = NEXT, links: Any = LINKS) -> Sequence[Group]:
    return [Group("shift", ()), Group("mine", (GOOD, Action(ranks, links)))]


@pytest.mark.parametrize(
    "ranks", [[[1, 1, 3, 0]], [[2, 2, 2, 2]], [[1, 2, 3, 4]], [[1, 2, 3, -1]], [[1, 2, 3]], [[1, 2, 3, 4, 0]],
              [[1, 2, 3, 0], [1, 2, 2, 0]], [[2**40, 1, 2, 3]], [[]]]
)  # fmt: skip
def test_ranks_are_permuted(ranks: list[list[int]]) -> None:
    assert re.fullmatch(
        r"groups, item 1, generators, item 1, has ranks \[.*\]: give a permutation of 0 to 3",
        refusal(of(ranks=np.array(ranks, np.int64))),
    )


@pytest.mark.parametrize("links", [LINKS[:-1], [*LINKS, 8], LINKS + 1, LINKS - 1, LINKS * 0, LINKS[:0]])
def test_links_are_permuted(links: Any) -> None:
    assert re.fullmatch(
        r"groups, item 1, generators, item 1, has links \[.*\]: give a permutation of 0 to 7",
        refusal(of(links=np.array(links, np.int64))),
    )


@pytest.mark.parametrize(
    ("ranks", "links"), [(NEXT[0], LINKS), (NEXT[:0], LINKS), (NEXT[None], LINKS), (np.int32(3), LINKS[:1]),
                         (NEXT, LINKS[None]), (NEXT, LINKS[0])]
)  # fmt: skip
def test_both_have_their_shape(ranks: Any, links: Any) -> None:
    ranks, links = np.asarray(ranks), np.asarray(links)
    assert refusal(of(ranks, links)) == (
        f"groups, item 1, generators, item 1, has ranks of shape {ranks.shape} and links of shape {links.shape}: give "
        "(1, 4) or (ports, 4), and (8,)"
    )


@pytest.mark.parametrize("column", ["ranks", "links"])
@pytest.mark.parametrize("value", [None, 3, "x", [[1, 2, 3, 0]], NEXT.astype(float), NEXT > 0, NEXT.astype(object)])
def test_both_are_arrays_of_integers(column: str, value: Any) -> None:
    """Also where `_replace` put them, which checks nothing."""
    assert f"{column} is " in refusal([Group("mine", (GOOD._replace(**{column: value}),))])
    with pytest.raises(WeftError, match=f"^{column} is .*: give an array of integers"):
        of(**{column: value})


@pytest.mark.parametrize(
    "groups", [None, 5, "x", GOOD, [GOOD], [[Group("mine", (GOOD,))]], [None], Group("mine", (GOOD,)),
               [Group("mine", ())._replace(generators=3)], [Group("mine", ())._replace(generators=(NEXT,))],
               [Group("mine", ())._replace(name=3)], [Group("mine", ())._replace(dropped="x")],
               [Group("mine", ())._replace(generators=((NEXT, LINKS),))]]
)  # fmt: skip
def test_groups_are_groups_of_actions(groups: Any) -> None:
    assert re.search(r"(groups|generators|name|dropped).* is .*: give", refusal(groups))


@pytest.mark.parametrize("kind", [np.int8, np.uint16, np.int64, np.uint64])
def test_any_integers_and_any_sequence_are_read(kind: type) -> None:
    """Arrays that the caller changes later are his own."""
    ranks, links = NEXT.astype(kind), LINKS.astype(kind)
    generators: Any = [Action(ranks, links)]
    mine = ring_of_a_caller([Group("mine", generators)])
    ranks[:], links[:] = 99, 99
    made = simulate(schedule(mine, "1MiB"), check=True)
    assert made.symmetry == "1 of 4 ranks simulated by mine, checked in full"
    assert made.time_ps == simulate(schedule(ring_of_a_caller(()), "1MiB"), symmetry="off").time_ps


def test_groups_on_demand_are_not_walked() -> None:
    looked: list[Group] = []

    def declared(_: Any) -> Group:
        looked.append(Group("shift", (GOOD,)))
        return looked[-1]

    mine = ring_of_a_caller(Groups(FABRIC, declared))
    assert not looked
    assert "by shift" in simulate(schedule(mine, "1MiB")).symmetry
