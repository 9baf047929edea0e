"""Bucket: rings along every dimension, all ports at once."""

from __future__ import annotations

import math

import numpy as np
import pytest

from collectives import bucket
from topologies import torus
from topologies.flows.load import link_loads


@pytest.mark.parametrize("shape", [(4,), (4, 4), (8, 4), (3, 5), (2, 3, 4), (1, 4), (8, 8, 8)])
def test_steps_and_hops(shape):
    pattern = bucket.all_reduce(torus(shape), "1MiB").pattern
    t = pattern.emit(np.array([0]))
    long = [extent for extent in shape if extent > 1]
    assert int(t.step.max()) + 1 == 2 * len(long) * (max(long) - 1)
    assert int(t.port.max()) + 1 == 2 * len(long)
    assert set(np.diff(pattern.topology.paths(t.src, t.dst).ptr)) == {1}


def test_blocks_of_the_phases():
    t = bucket.all_reduce(torus((8, 4)), "1MiB").pattern.emit(np.array([5]))
    port_0, port_1 = t.blocks[t.port == 0].tolist(), t.blocks[t.port == 1].tolist()
    assert port_0 == [4] * 7 + [1] * 3 + [1] * 3 + [4] * 7
    assert port_1 == [8] * 3 + [1] * 7 + [1] * 7 + [8] * 3


def test_every_link_of_a_square_torus_carries_the_same():
    pattern = bucket.all_reduce(torus((4, 4, 4)), "1MiB").pattern
    t = pattern.transfers()
    for step in range(int(t.step.max()) + 1):
        now = t.step == step
        assert len(set(link_loads(pattern.topology, t.src[now], t.dst[now], t.blocks[now]))) == 1
    total = link_loads(pattern.topology, t.src, t.dst, t.blocks)
    assert total[0] == 2 * (pattern.p - 1)


def waits(t, port: int, step: int) -> set[tuple[int, int]]:
    """Port and step of what one transfer waits for."""
    row = int(np.flatnonzero((t.port == port) & (t.step == step))[0])
    span = slice(t.dep_ptr[row], t.dep_ptr[row + 1])
    named = {slot: (p, s) for slot, p, s in zip(t.slot.tolist(), t.port.tolist(), t.step.tolist(), strict=True)}
    return {named[slot] for slot in t.dep_slot[span].tolist()}


def test_copies_on_a_square_torus_do_not_wait_for_each_other():
    t = bucket.reduce_scatter(torus((4, 4)), "1MiB").pattern.emit(np.array([0]))
    assert waits(t, 0, 3) == {(0, 2)}


def test_copies_on_a_rectangle_move_on_together():
    t = bucket.reduce_scatter(torus((8, 4)), "1MiB").pattern.emit(np.array([0]))
    assert waits(t, 1, 7) == {(0, 6), (2, 6), (1, 2), (3, 2)}
    assert waits(t, 1, 8) == {(1, 7)}


@pytest.mark.parametrize("shape", [(4, 4), (5, 3), (2, 2, 2)])
def test_a_phase_sends_p_minus_1_blocks(shape):
    for function in (bucket.reduce_scatter, bucket.all_gather):
        t = function(torus(shape), "1MiB").pattern.emit(np.array([1]))
        assert np.bincount(t.port, t.blocks).tolist() == [math.prod(shape) - 1] * (2 * len(shape))
