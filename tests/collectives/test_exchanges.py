"""Direct and dimension-wise exchanges."""

from __future__ import annotations

import numpy as np
import pytest

from collectives import dimension_wise, direct
from topologies import switch, torus


def test_direct_all_to_all_sends_everything_at_once():
    t = direct.all_to_all(torus((3, 2)), "6KiB").pattern.emit(np.array([4]))
    assert sorted(t.dst.tolist()) == [0, 1, 2, 3, 5]
    assert t.dep_src.size == 0
    assert t.dst[0] == 5  # one further along dimension 0


def test_direct_order_is_by_displacement():
    t = direct.all_gather(switch(5), "5KiB").pattern.transfers()
    assert np.array_equal(t.dst, (t.src + t.slot) % 5)


def test_direct_all_reduce_joins_between_its_steps():
    pattern = direct.all_reduce(switch(300), "1MiB").pattern
    t = pattern.emit(np.array([7]))
    join = int(np.flatnonzero(t.dst == t.src)[0])
    assert t.blocks[join] == 0
    assert np.diff(t.dep_ptr).tolist() == [0] * 299 + [598] + [1] * 299


@pytest.mark.parametrize("shape", [(4, 4), (3, 5), (2, 3, 4), (1, 6)])
def test_dimension_wise_regroups(shape):
    pattern = dimension_wise.all_to_all(torus(shape), "1MiB").pattern
    t = pattern.emit(np.array([0]))
    real = t.dst != t.src
    for phase, extent in enumerate(extent for extent in shape if extent > 1):
        sent = t.blocks[real & (t.step == phase)]
        assert sent.tolist() == [pattern.p // extent] * (extent - 1)


def test_a_million_ranks_emit_one():
    t = dimension_wise.all_to_all(torus((1024, 1024)), "1GiB").pattern.emit(np.array([5]))
    assert t.src.size == 2 * 1023 + 1
