import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from topologies import WeftError
from topologies.core.extents import check_extents, check_memory, format_extents, parse_extents


@given(st.lists(st.integers(1, 10**6), min_size=1, max_size=4))
def test_text_and_back(extents):
    assert parse_extents(format_extents(extents), "torus") == tuple(extents)


def test_one_number_is_one_extent_and_numpy_numbers_count():
    assert check_extents(4, "ring") == (4,)
    assert check_extents(np.array([2, 3]), "torus") == (2, 3)
    assert all(type(extent) is int for extent in check_extents(np.array([2, 3]), "torus"))


@pytest.mark.parametrize("text", ["", "8x", "x8", "0", "-1", "2.5", "8 x8", "axb", "\u0664", "9" * 19, "9" * 5000])
def test_bad_text_is_refused_by_name(text):
    with pytest.raises(WeftError, match="torus:bad has the extent"):
        parse_extents(text, "torus:bad")


def test_more_links_than_are_built_in_seconds_are_refused_with_the_estimate():
    with pytest.raises(WeftError, match=r"x has 1 nodes and 4194305 links .* 1.016 GiB .* limit is 4,194,304 links$"):
        check_memory("x", 1, 2**22 + 1)
    check_memory("x", 1, 2**22)


def test_more_memory_than_the_machine_has_is_refused_with_both_numbers(monkeypatch):
    monkeypatch.setattr("topologies.core.extents.physical_memory", lambda: 2.0**20)
    check_memory("small", 100, 400)
    with pytest.raises(WeftError, match=r"big has 10000 nodes and 40000 links .* limit is 682.7 KiB"):
        check_memory("big", 10_000, 40_000)
