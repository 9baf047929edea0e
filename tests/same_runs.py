"""Two runs that must have found the same."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from sim.program.outcome import Outcome
from topologies.compiled import DISABLED

MOST_CALLS = 50_000
"""Of functions by the kernel as plain Python: the largest of the programs it is for takes a fifth."""


@contextmanager
def few_calls() -> Iterator[None]:
    """A loop that never ends is an error; compiled, it is the time limit of the test that ends it.

    The compiler's own calls are not the kernel's: it may be at work here where a kernel has just been changed.
    """
    if not DISABLED:
        yield
        return
    made = 0

    def count(frame: Any, event: str, argument: object) -> None:
        nonlocal made
        made += event == "call"
        assert made < MOST_CALLS, "the run does not end"

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        yield
    finally:
        sys.setprofile(before)


def assert_same(one: Outcome, other: Outcome) -> None:
    for name in ("start_ps", "finish_ps", "busy_ps"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)
    assert (one.makespan_ps, one.events) == (other.makespan_ps, other.events)
    if one.log is not None and other.log is not None:
        for mine, theirs in zip(one.log, other.log, strict=True):
            np.testing.assert_array_equal(mine, theirs)
