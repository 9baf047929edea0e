"""Messages of errors."""

from __future__ import annotations

import pytest

from topologies import WeftError, ring
from topologies.checks import checked


def test_messages_are_one_line_of_bounded_length() -> None:
    """Line breaks and escape sequences of the input do not reach the terminal."""
    assert str(WeftError("a\nb \x1b[2J\u2028c")) == "a b \\x1b[2J c"
    long = str(WeftError(f"begin {'x' * 10**6} end"))
    assert len(long) < 1600
    assert long.startswith("begin")
    assert long.endswith("end")


def test_links_are_changed_by_arrays_of_numbers() -> None:
    with pytest.raises(WeftError, match="bandwidth_Bps is '400Gb/s': give an array of numbers"):
        ring(4).with_links(bandwidth_Bps="400Gb/s")  # type: ignore[arg-type]  # what is rejected


def test_an_item_of_an_item_is_named_by_both_places() -> None:
    @checked
    def table(rows: list[list[int]]) -> int:
        return len(rows)

    assert table([[1], [2]]) == 2
    with pytest.raises(WeftError, match=r"^rows, item 1, item 0, is 0\.5: give an integer below 2\^63$"):
        table([[1], [0.5]])  # type: ignore[list-item]  # what is rejected
