"""Two runs that must have found the same."""

from __future__ import annotations

import numpy as np

from sim.program.outcome import Outcome


def assert_same(one: Outcome, other: Outcome) -> None:
    for name in ("start_ps", "finish_ps", "busy_ps"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)
    assert (one.makespan_ps, one.events) == (other.makespan_ps, other.events)
    if one.log is not None and other.log is not None:
        for mine, theirs in zip(one.log, other.log, strict=True):
            np.testing.assert_array_equal(mine, theirs)
