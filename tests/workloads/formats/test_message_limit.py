"""A schedule of too many messages is refused from the transfers of its first ranks."""

from __future__ import annotations

import numpy as np
import pytest

from collectives import build
from tests.collectives.cases import CASES, Case, torus_for
from topologies import WeftError, torus
from workloads.formats.schedule_writers import check_messages


@pytest.mark.table
@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_limit_is_the_number_of_messages(case: Case) -> None:
    pattern = case.build(torus_for(case, (8,), (2, 4))).pattern
    t = pattern.transfers()
    n = int(np.sum(t.src != t.dst))
    check_messages(pattern, n, "a file")
    check_messages(pattern, 3 * n, "a file", 3)
    for most, chunks in ((n - 1, 1), (3 * n - 1, 3)):
        with pytest.raises(WeftError, match=rf"^a file of {chunks * n:,} messages or more: at most {most:,} are"):
            check_messages(pattern, most, "a file", chunks)


def test_the_first_ranks_are_enough() -> None:
    """16 of 1,024 ranks have 4 * 2046 messages each."""
    pattern = build("ring", "all-reduce", torus((32, 32)), "1MiB").pattern
    with pytest.raises(WeftError, match=r"of 130,944 messages or more: at most 1,000 are written"):
        check_messages(pattern, 1000, "a file")
