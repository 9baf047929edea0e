"""A kernel sees in a named tuple that it is handed by pointer what Python sees."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

from sim.engine.compile.door import by_pointer, entry
from sim.program import I64


@by_pointer
class Given(NamedTuple):
    flag: bool
    number: int
    line: I64
    table: I64


def look(given: Any, more: int) -> tuple[int, ...]:
    given.line[0] += more
    total, plain = 0, 0
    for row in range(given.table.shape[0]):
        for column in range(given.table.shape[1]):
            total = (31 * total + int(given.table[row, column])) % 997
    for i in range(given.line.size):
        plain = (31 * plain + int(given.line[i])) % 997
    flag = 1 if given.flag else 0
    return flag, given.number, plain, total, given.line.size, given.table.size, *given.table.strides


def givens() -> list[Given]:
    table = np.arange(24, dtype=np.int64).reshape(4, 6)
    few = np.arange(5, dtype=np.int32)
    return [
        Given(True, -7, np.arange(3), table),
        Given(False, 2**62, few, table.T),
        Given(True, 0, np.arange(10)[::-3], table[::2, 1:]),
        Given(False, 1, few[:1], table[:0].astype(np.int8)),
        Given(False, 1, np.arange(4).astype(np.int16), np.asfortranarray(table)),
    ]


@pytest.mark.parametrize("which", range(len(givens())))
def test_a_kernel_sees_what_python_sees(which: int) -> None:
    """Of arrays in order, in columns, backward, in part and empty; and what it writes is in the caller's array."""
    kernel: Any = entry(look)
    one, other = givens()[which], givens()[which]
    assert kernel(one, 5) == look(other, 5)
    assert np.array_equal(one.line, other.line)


@pytest.mark.compiled
def test_what_is_no_number_is_refused() -> None:
    """Another type of a field is another kernel, so that nothing is read as what it is not."""
    kernel: Any = entry(look)
    given = givens()[0]
    kernel(given, 0)
    with pytest.raises(TypeError):
        kernel(given._replace(line=None), 0)
