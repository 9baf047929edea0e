"""Messages of errors."""

from __future__ import annotations

import pytest

from topologies import WeftError, ring


def test_messages_are_one_line_of_bounded_length() -> None:
    """Line breaks and escape sequences of the input do not reach the terminal."""
    assert str(WeftError("a\nb \x1b[2J\u2028c")) == "a b \\x1b[2J c"
    long = str(WeftError(f"begin {'x' * 10**6} end"))
    assert len(long) < 1600
    assert long.startswith("begin")
    assert long.endswith("end")


def test_links_are_changed_by_arrays_of_numbers() -> None:
    with pytest.raises(WeftError, match="bandwidth_Bps is '400Gb/s': give an array of numbers"):
        ring(4).with_links(bandwidth_Bps="400Gb/s")  # type: ignore[arg-type]
