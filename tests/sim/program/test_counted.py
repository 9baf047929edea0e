"""Values that are counted block by block, beside a counter of Python."""

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sim.program.columns import counted


@given(st.integers(0, 10**6), st.sampled_from((0, 1, 5, 65_537)), st.sampled_from((1, 7, 10**9)))
def test_each_value_is_counted_once_for_each_time_it_occurs(seed: int, n: int, span: int) -> None:
    """Of few and many values, in a short range and in one too long for a table."""
    values = np.random.default_rng(seed).integers(span, size=n)
    distinct, times = counted(n, span, values.__getitem__)
    assert list(zip(distinct.tolist(), times.tolist(), strict=True)) == sorted(Counter(values.tolist()).items())
