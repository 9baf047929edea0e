"""Messages of errors."""

from __future__ import annotations

import numpy as np
import pytest

from topologies import WeftError, ring, torus
from topologies.checks import checked
from topologies.flows.load import link_loads


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


def test_arrays_are_checked_whatever_numpy_calls_them() -> None:
    """NDArray is an alias by `type` from Python 3.12 on, and in 3.11 not."""
    ends = np.array([0.5, 1])
    with pytest.raises(WeftError, match=r"src is .*: give an array of integers"):
        link_loads(torus((2, 3)), ends, ends, 1.0)
    with pytest.raises(WeftError, match="size_bytes is 'x': give a number or a sequence"):
        link_loads(torus((2, 3)), np.array([0]), np.array([1]), "x")  # type: ignore[arg-type]  # what is rejected


def test_an_item_of_an_item_is_named_by_both_places() -> None:
    @checked
    def table(rows: list[list[int]]) -> int:
        return len(rows)

    assert table([[1], [2]]) == 2
    with pytest.raises(WeftError, match=r"^rows, item 1, item 0, is 0\.5: give an integer below 2\^63$"):
        table([[1], [0.5]])  # type: ignore[list-item]  # what is rejected


@checked
class Cut:
    def __init__(self, size: int, chunks: int = 1, *, header: int = 0) -> None:
        self.parts = size, chunks, header


@pytest.mark.parametrize(("given", "named", "message"), [
    ((1,), {"chunk": 2}, "Cut has no argument 'chunk': it takes size, chunks, header (did you mean chunks?)"),
    ((), {"chunks": 2}, "Cut needs size: it takes size, chunks, header"),
    ((1, 2, 3), {}, "Cut takes at most 2 without a name, and 3 are given; by name: header"),
])
def test_calls_that_a_signature_does_not_accept(given: tuple[int, ...], named: dict[str, int], message: str) -> None:
    with pytest.raises(WeftError) as wrong:
        Cut(*given, **named)
    assert str(wrong.value) == message


def test_an_argument_given_twice_is_an_error_of_the_call() -> None:
    with pytest.raises(WeftError, match="multiple values for argument 'size'"):
        Cut(1, size=2)  # type: ignore[misc]  # what is rejected


def test_errors_within_a_call_are_its_own_but_for_memory() -> None:
    @checked
    def fail(how: type) -> None:
        raise how("of a million arrays")

    with pytest.raises(TypeError, match=r"^of a million arrays$"):
        fail(TypeError)
    with pytest.raises(WeftError, match=r"^out of memory: of a million arrays: give a smaller fabric or fewer chunks$"):
        fail(MemoryError)
