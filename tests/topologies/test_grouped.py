"""Things by what they have in common: nothing is lost, and orders are kept."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from topologies.grouped import grouped, in_ranges

PAIRS = st.lists(st.tuples(st.integers(0, 3), st.integers()))


@given(PAIRS)
def test_each_group_has_its_values_in_their_order(pairs: list[tuple[int, int]]) -> None:
    found = grouped(pairs)
    assert list(found) == list(dict.fromkeys(key for key, _ in pairs))
    assert all(values == [value for key, value in pairs if key == own] for own, values in found.items())


def test_of_nothing_there_are_no_groups() -> None:
    assert grouped(iter([])) == {}


@given(st.sets(st.integers(0, 40)))
def test_ranges_name_each_number_once(numbers: set[int]) -> None:
    parts = [part.split("-") for part in in_ranges(numbers).split(",")] if numbers else []
    named = Counter(number for part in parts for number in range(int(part[0]), int(part[-1]) + 1))
    assert named == Counter(numbers)
    assert all(int(later[0]) > int(before[-1]) + 1 for before, later in pairwise(parts))


def test_ranges_of_few() -> None:
    assert (in_ranges([]), in_ranges([5]), in_ranges([8, 0, 2, 1]), in_ranges(range(3))) == ("", "5", "0-2,8", "0-2")
