import pytest

from sim.partial_aggregates import LateWorker, late_worker_run
from sim.pool_streaming import PoolStreaming
from topologies import WeftError

JOB = PoolStreaming(size_bytes=2**20, slots=256)
LATE = 10**9


def test_a_timeout_frees_slots_and_makes_no_result_earlier():
    punctual = late_worker_run(LateWorker(job=JOB))
    static = late_worker_run(LateWorker(job=JOB, late_ps=LATE))
    partial = late_worker_run(LateWorker(job=JOB, late_ps=LATE, timeout_ps=10**8))
    assert static.makespan_ps == punctual.makespan_ps + LATE
    assert partial.makespan_ps >= punctual.makespan_ps + LATE
    assert static.longest_ps == pytest.approx(LATE, rel=0.01)
    assert static.packets_up == 1024 and partial.packets_up == 2 * 1024
    assert partial.longest_ps < 2 * 10**8 < static.longest_ps


def test_a_worker_within_the_timeout_makes_no_partial_sums():
    one = LateWorker(job=JOB, late_ps=10**7, timeout_ps=10**8)
    assert not one.sends_partial_sums
    assert late_worker_run(one) == late_worker_run(LateWorker(job=JOB, late_ps=10**7))


@pytest.mark.parametrize("bad", [{"leaves": 3}, {"leaves": 8}, {"late_ps": -1}, {"timeout_ps": 0}])
def test_what_is_refused(bad):
    with pytest.raises(WeftError):
        LateWorker(job=JOB, **bad)
