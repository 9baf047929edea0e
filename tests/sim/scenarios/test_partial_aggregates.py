from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sim.program import service_time_ps
from sim.scenarios.partial_aggregates import Held, LateWorker, late_worker_run
from sim.scenarios.pool_streaming import PoolStreaming
from tests.oracles.partial_aggregates import late_worker
from topologies import WeftError

JOB = PoolStreaming(size_bytes=2**16, slots=16, workers=4)
LATE = 10**9


def test_a_timeout_frees_slots_and_makes_no_result_earlier():
    punctual = late_worker_run(LateWorker(job=JOB))
    static = late_worker_run(LateWorker(job=JOB, late_ps=LATE))
    partial = late_worker_run(LateWorker(job=JOB, late_ps="1ms", timeout_ps="10us"))
    assert static.makespan_ps == partial.makespan_ps == punctual.makespan_ps + LATE
    assert (static.longest_ps, partial.longest_ps) == (LATE, 10**7)
    assert (static.packets_up, partial.packets_up) == (64, 64 + 16)
    assert (static.partial_sums, partial.partial_sums) == (0, 16)


@pytest.mark.compiled
def test_only_the_first_window_of_a_mebibyte_is_late():
    job = PoolStreaming(size_bytes="1MiB", slots=16)
    static, partial = (late_worker_run(LateWorker(job=job, late_ps=LATE, timeout_ps=to)) for to in (None, 10**7))
    assert static.makespan_ps == partial.makespan_ps == 1_689_231_200
    assert (partial.packets_up, partial.partial_sums) == (1040, 16)


def test_the_closed_form_of_leaves_that_wait():
    for packets, slots in ((33, 4), (34, 4), (7, 8), (1, 1), (200, 120)):
        case = LateWorker(job=PoolStreaming(size_bytes=packets * 1024, slots=slots, workers=4), late_ps=LATE)
        assert late_worker_run(case).makespan_ps == case.closed_form_ps()
    assert LateWorker(job=PoolStreaming(size_bytes=0, slots=4), late_ps=LATE).closed_form_ps() == 0


@settings(max_examples=30, deadline=None)
@given(
    st.integers(0, 30_000), st.integers(1, 30), st.integers(2, 3), st.integers(1, 3), st.sampled_from([0, 2_000_000]),
    st.sampled_from([0, 700_000, 10**7, 10**8]), st.none() | st.integers(1, 10**7),
)
@example(size=60 * 1024 + 1, slots=40, per_leaf=2, leaves=2, latency_ps=0, late_ps=10**8, timeout_ps=300_000)
@example(size=10_000, slots=4, per_leaf=2, leaves=1, latency_ps=0, late_ps=10**7, timeout_ps=10**7)
def test_who_misses_the_timeout_event_by_event(size, slots, per_leaf, leaves, latency_ps, late_ps, timeout_ps):
    """To the picosecond: time, packets, partial sums and how long each slot is held."""
    workers = per_leaf * leaves
    job = PoolStreaming(size_bytes=size, slots=slots, workers=workers, latency_ps=latency_ps)
    found = late_worker_run(LateWorker(job=job, leaves=leaves, late_ps=late_ps, timeout_ps=timeout_ps))
    payload = [min(1024, size - 1024 * packet) for packet in range(job.n_packets)]
    wire = [service_time_ps(one + job.header_bytes, Fraction(job.bandwidth_Bps)) for one in payload]
    time_ps, packets_up, partial_sums, held = late_worker(
        wire, workers, leaves, slots, latency_ps, job.switch_latency_ps, late_ps, timeout_ps
    )
    longest, mean = (max(held), np.mean(held)) if held else (0, 0)
    assert found == Held(time_ps, longest, pytest.approx(mean), packets_up, partial_sums)


@pytest.mark.compiled
def test_a_deep_window_misses_it_again():
    """Its own link keeps the late worker behind the others by more than the timeout, window after window."""
    job = PoolStreaming(size_bytes=2**19, slots=256, workers=4)
    found = late_worker_run(LateWorker(job=job, late_ps=LATE, timeout_ps=10**7))
    assert (found.packets_up, found.partial_sums) == (1024, 512)


def test_a_worker_within_the_timeout_makes_no_partial_sums():
    one = late_worker_run(LateWorker(job=JOB, late_ps=10**7, timeout_ps=10**7))
    assert one.partial_sums == 0
    assert one == late_worker_run(LateWorker(job=JOB, late_ps=10**7))


@pytest.mark.parametrize(("bad", "message"), [
    ({"leaves": 3}, "4 workers on 3 leaves"), ({"leaves": 4}, "4 workers on 4 leaves"),
    ({"leaves": 0}, "leaves is 0: give a"), ({"late_ps": -1}, "late_ps is -1: give a"),
    ({"timeout_ps": 0}, "a timeout of 0 ps"), ({"timeout_ps": 1.5}, "timeout_ps is 1.5: give a"),
    ({"timeout_ps": "soon"}, "timeout_ps 'soon' is not a time"),
])
def test_what_is_refused(bad, message):
    with pytest.raises(WeftError, match=message):
        LateWorker(job=JOB, **bad)
