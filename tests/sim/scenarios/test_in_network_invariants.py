"""What must hold of aggregation in the network on any fabric: hypothesis draws the fabric, the array and the slots."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectives import in_network
from sim import simulate
from sim.engine.run import run
from sim.lower.job import lower
from sim.program.model import Model
from topologies import fat_tree, leaf_spine, switch, with_reduction_units

CHUNK = 4096

fabrics = st.one_of(
    st.builds(switch, st.integers(2, 9)),
    st.builds(leaf_spine, st.integers(1, 5), st.integers(2, 4), st.integers(1, 3)),
    st.builds(fat_tree, st.just(4), st.integers(1, 3)),
)
sizes = st.integers(1, 40 * CHUNK)


def pushed(fabric, size, **options):
    return simulate(in_network.all_reduce(fabric, size, **options), chunk=CHUNK, check=True)


@settings(max_examples=20)
@given(fabrics, sizes)
def test_each_edge_of_the_tree_carries_the_array_once_each_way(fabric, size):
    schedule = in_network.all_reduce(fabric, size)
    carried = simulate(schedule, chunk=CHUNK, check=True).link_busy_ps / 1e12 * fabric.bandwidth_Bps
    used = np.flatnonzero(carried)
    assert carried[used] == pytest.approx(schedule.block_bytes, abs=len(range(0, size, CHUNK)) + 1)  # services round up
    ends = {(int(fabric.src[link]), int(fabric.dst[link])) for link in used}
    assert {(dst, src) for src, dst in ends} == ends
    assert {src for src, _ in ends} >= set(range(fabric.n_npus))


@settings(max_examples=15)
@given(st.integers(2, 5), st.integers(1, 6), st.integers(1, 3), sizes, st.integers(1, 12))
def test_the_fan_in_of_no_level_counts(leaves, hosts, spines, size, slots):
    one = pushed(leaf_spine(hosts, leaves, spines), size, slots=slots)
    other = pushed(leaf_spine(1, 2, 1), size, slots=slots)
    assert one.time_ps == other.time_ps


@settings(max_examples=15)
@given(fabrics, sizes, st.integers(1, 12))
def test_more_slots_are_never_slower(fabric, size, slots):
    free = pushed(fabric, size).time_ps
    assert free <= pushed(fabric, size, slots=slots + 1).time_ps <= pushed(fabric, size, slots=slots).time_ps


@settings(max_examples=15)
@given(fabrics, sizes, st.integers(1, 12), st.booleans())
def test_slots_in_use_never_exceed_the_window(fabric, size, slots, units):
    """A slot is taken when its first packet leaves a worker, and free when the last result is in."""
    if units:
        fabric = with_reduction_units(fabric, "200Gb/s", per="port", latency="1us")
    lowered = lower(in_network.all_reduce(fabric, size, slots=slots), Model(chunks=None, chunk_bytes=CHUNK))
    outcome, program = run(lowered.program, log=True), lowered.program
    chunks, hops = program.chunks(), program.hops()
    assert outcome.log is not None
    starts = [
        outcome.log.start_ps[outcome.log.base[task] : outcome.log.base[task + 1]].reshape(chunks[task], hops[task])
        for task in range(program.n_tasks)
    ]
    first = np.min([start[:, 0] for start in starts], axis=0)
    last = np.max([start[:, -1] for start in starts], axis=0)
    in_use = [int(np.count_nonzero((first <= at) & (last > at))) for at in np.concatenate([first, last])]
    assert 1 <= max(in_use) <= slots


@settings(max_examples=15)
@given(st.integers(2, 8), st.integers(1, 8), sizes)
def test_pull_sends_the_array_and_a_share_each_way(p, shares, size):
    fabric = switch(p)
    schedule = in_network.all_reduce(fabric, size * shares, form="pull")
    carried = simulate(schedule, chunk=CHUNK, check=True).link_busy_ps / 1e12 * fabric.bandwidth_Bps
    services = p * (schedule.block_bytes // CHUNK + 1) + 1
    assert carried == pytest.approx((p + 1) * schedule.block_bytes, abs=2 * services)
