from math import gcd

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topologies import WeftError, circulant, select_permutations, totient_perms
from topologies.flows.load import average_path, diameter


def test_candidates():
    assert totient_perms(12) == [1, 5, 7, 11]
    assert totient_perms(16) == [1, 3, 5, 7, 9, 11, 13, 15]
    assert totient_perms(16, 4) == [4, 12]
    assert totient_perms(16, 8) == [2, 6, 10, 14]
    assert totient_perms(2) == [1] and totient_perms(1) == []


@pytest.mark.parametrize(
    ("n", "duplex", "rule", "degree", "jumps", "coins", "longest", "mean"),
    [
        (12, False, "paper", 2, [1, 5], (1, 5), 5, 2.7273),
        (12, False, "paper", 3, [1, 5, 11], (1, 5, 11), 4, 2.1818),
        (12, False, "paper", 4, [1, 5, 11, 7], (1, 5, 7, 11), 3, 1.8182),
        (12, True, "paper", 2, [1], (1, 11), 6, 3.2727),
        (12, True, "code", 2, [1], (1, 11), 6, 3.2727),
        (12, True, "paper", 4, [1, 5], (1, 5, 7, 11), 3, 1.8182),
        (12, True, "code", 4, [1, 5], (1, 5, 7, 11), 3, 1.8182),
        (16, False, "paper", 2, [1, 3], (1, 3), 6, 3.3333),
        (16, False, "paper", 3, [1, 3, 7], (1, 3, 7), 4, 2.2667),
        (16, False, "paper", 4, [1, 3, 5, 9], (1, 3, 5, 9), 3, 2.0),
        (16, True, "code", 4, [1, 5], (1, 5, 11, 15), 4, 2.1333),
        (16, True, "paper", 4, [1, 3], (1, 3, 13, 15), 4, 2.1333),
        (16, True, "paper", 2, [1], (1, 15), 8, 4.2667),
        (16, True, "code", 2, [1], (1, 15), 8, 4.2667),
        (16, True, "paper", 6, [1, 3, 7], (1, 3, 7, 9, 13, 15), 3, 1.7333),
        (16, True, "code", 6, [1, 3, 7], (1, 3, 7, 9, 13, 15), 3, 1.7333),
        (16, True, "paper", 8, [1, 3, 5, 9], tuple(range(1, 16, 2)), 2, 1.4667),
        (16, True, "code", 8, [1, 3, 5, 9], tuple(range(1, 16, 2)), 2, 1.4667),
    ],
)
def test_published_selections(n, duplex, rule, degree, jumps, coins, longest, mean):
    chosen = select_permutations(n, degree, totient_perms(n), rule=rule, duplex=duplex)
    fabric = circulant(n, chosen, duplex=duplex)
    assert chosen == jumps and fabric.router.coins == coins
    assert diameter(fabric) == longest and average_path(fabric) == pytest.approx(mean, abs=5e-5)


def test_a_jump_and_its_way_back_are_one_duplex_ring():
    candidates = totient_perms(12)
    assert select_permutations(12, 6, candidates, rule="code", duplex=True) == [1, 5, 7]  # as the released code
    assert select_permutations(12, 6, candidates, rule="code", duplex=True, dedupe=True) == [1, 5]


@given(st.integers(2, 200), st.integers(1, 8), st.sampled_from(["paper", "code"]), st.booleans())
@settings(max_examples=80, deadline=None)
def test_selections_are_distinct_candidates_and_as_many_as_there_are(n, degree, rule, duplex):
    degree *= 2 if duplex else 1
    candidates = totient_perms(n)
    chosen = select_permutations(n, degree, candidates, rule=rule, duplex=duplex)
    wanted = degree // 2 if duplex else degree
    assert len(set(chosen)) == len(chosen) == min(wanted, len(candidates))
    assert all(gcd(jump, n) == 1 for jump in chosen) and chosen[0] == 1


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: totient_perms(12, 5), "groups of 5 among 12 servers: the group size must divide"),
        (lambda: select_permutations(16, 3, [1], duplex=True), "duplex rings over 3 interfaces: .* must be even"),
        (lambda: select_permutations(16, 0, [1]), "degree is 0: give an integer from 1"),
        (lambda: select_permutations(16, 2, [1], rule="best"), "rule 'best'"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(WeftError, match=message):
        call()
