from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.engine.reference.engine import run_reference
from sim.engine.run import run
from sim.program import service_time_ps
from sim.scenarios.pool_streaming import PoolStreaming, time_ps
from sim.scenarios.slot_sharing import RULES, Sharing, collisions, fallback_share, finishes_ps, sharing_program
from tests.oracles import slot_sharing as oracle
from tests.oracles.slot_sharing import collision_probability
from topologies import WeftError
from topologies.core.routing import hash64

MIB = 2**20
BUT_HASHED = [rule for rule in RULES if rule != "hashed"]


def wires(job):
    payload = [min(job.payload_bytes, job.size_bytes - i * job.payload_bytes) for i in range(job.n_packets)]
    return [service_time_ps(size + job.header_bytes, Fraction(job.bandwidth_Bps)) for size in payload]


@pytest.mark.parametrize("rule", BUT_HASHED)
@pytest.mark.parametrize(("window", "slots"), [(64, 8), (8, 64), (8, 8), (64, 1), (1, 64)])
def test_a_job_by_itself_has_the_lesser_of_its_window_and_the_slots(rule, window, slots):
    job = PoolStreaming(size_bytes=90_000, slots=window, workers=2)
    expected = time_ps(replace(job, slots=min(window, slots)))
    assert finishes_ps(Sharing(job=job, jobs=1, slots=slots, rule=rule)) == [expected]


@pytest.mark.compiled
@pytest.mark.parametrize("rule", BUT_HASHED)
def test_eight_slots_bind_whoever_gives_them(rule):
    """4 MiB: 2.55 ms in eight slots of the switch or of the job's window, 0.362 ms in 64."""
    job = PoolStreaming(size_bytes=4 * MIB, slots=64)
    (few,) = finishes_ps(Sharing(job=job, jobs=1, slots=8, rule=rule))
    assert [few] == finishes_ps(Sharing(job=replace(job, slots=8), jobs=1, slots=1024, rule=rule))
    assert few / 1e9 == pytest.approx(2.5475, abs=5e-5)
    assert finishes_ps(Sharing(job=job, jobs=1, slots=128, rule=rule))[0] / 1e9 == pytest.approx(0.36206, abs=5e-6)


@pytest.mark.parametrize("rule", RULES)
def test_jobs_that_share_slots(rule):
    job = PoolStreaming(size_bytes=60_000, slots=32, workers=2)
    single = time_ps(job)
    several = finishes_ps(Sharing(job=job, jobs=4, slots=32, rule=rule))
    divided = time_ps(replace(job, slots=8))
    if rule == "static":
        assert several == [divided] * 4
    if rule == "locked":
        assert several == [single * (i + 1) for i in range(4)]
    if rule == "port-locked":
        assert several == [single] * 4
    if rule == "shared":
        assert max(several) <= divided
    assert max(several) >= single
    assert fallback_share(Sharing(job=job, jobs=4, slots=32, rule=rule)) > 0 or rule != "hashed"


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 20_000), st.integers(1, 6), st.integers(1, 12), st.integers(1, 3), st.integers(1, 3))
def test_shared_and_hashed_slots_event_by_event(size, window, slots, jobs, workers):
    job = PoolStreaming(size_bytes=size, slots=window, workers=workers)
    shared, hashed = (Sharing(job=job, jobs=jobs, slots=slots, rule=rule) for rule in ("shared", "hashed"))
    times = (job.latency_ps, job.switch_latency_ps)
    assert finishes_ps(shared) == oracle.shared_ps(wires(job), jobs, shared.window, slots, *times)
    slot = [(hash64(0, one, np.arange(job.n_packets)) % np.uint64(slots)).tolist() for one in range(jobs)]
    expected = []
    for one in range(jobs):
        taken = [oracle.collides(slot, one, packet, hashed.window) for packet in range(job.n_packets)]
        assert taken == np.logical_or(*collisions(hashed, one)).tolist()
        assert fallback_share(hashed, one) == pytest.approx(np.mean(taken or [0]))
        expected.append(oracle.hashed_ps(wires(job), taken.__getitem__, workers, hashed.window, *times))
    assert finishes_ps(hashed) == expected
    if slots >= jobs:
        static = replace(shared, rule="static")
        assert finishes_ps(static) == oracle.shared_ps(wires(job), 1, static.window, slots, *times) * jobs


def test_both_engines_share_slots_alike():
    """Under the rules by which jobs meet, for one job and for two, whole packets and a part of one."""
    for rule in ("shared", "hashed"):
        for jobs in (1, 2):
            job = PoolStreaming(size_bytes=9 * 1024 + 77, slots=4, workers=3)
            program, ends = sharing_program(Sharing(job=job, jobs=jobs, slots=6, rule=rule))
            outcome, expected = run(program), run_reference(program)
            assert outcome.finish_ps.tolist() == list(expected.finish_ps)
            assert outcome.finish_ps[ends].max() == outcome.makespan_ps


@pytest.mark.parametrize("rule", RULES)
def test_no_bytes_take_no_time(rule):
    nothing = Sharing(job=PoolStreaming(size_bytes=0, slots=4), jobs=3, slots=8, rule=rule)
    assert finishes_ps(nothing) == [0, 0, 0]
    assert fallback_share(nothing) == 0


@pytest.mark.parametrize(("jobs", "slots"), [(2, 128), (4, 128), (4, 4096), (1, 128)])
def test_hashed_slots_collide_as_often_as_they_should(jobs, slots):
    """Within four standard deviations of a sample of N packets and N / w windows; 1 - exp(-(J - 1) w / A) of others."""
    window = 64
    job = PoolStreaming(size_bytes=16 * MIB, slots=window)
    sharing = Sharing(job=job, jobs=jobs, slots=slots, rule="hashed")
    found = collisions(sharing)
    packets = np.arange(job.n_packets)
    for hits, on_the_way in (
        (found.others, (jobs - 1) * np.minimum(packets + 1, window)),
        (found.others | found.own, (jobs - 1) * np.minimum(packets + 1, window) + np.minimum(packets, window - 1)),
    ):
        free = (1 - 1 / slots) ** on_the_way  # a slot that none of so many has
        share = 1 - free.mean()
        occupied = window * free.mean() * share / slots  # at most that of independent slots, a window a sample
        tolerance = 4 * np.sqrt((share * (1 - share) + occupied) / job.n_packets)
        assert hits.mean() == pytest.approx(share, abs=tolerance)
        assert tolerance < 0.02
    published = collision_probability(jobs, window, slots)
    first_window, exponential = window / 2 / job.n_packets, (jobs - 1) * window / 2 / slots**2
    assert found.others.mean() == pytest.approx(published, abs=tolerance + first_window + exponential)
    assert fallback_share(sharing) == (found.others | found.own).mean() > found.others.mean()


@pytest.mark.parametrize(("bad", "message"), [
    ({"rule": "fair"}, "rule 'fair' is unknown"), ({"slots": 1}, "2 jobs on 1 slots"),
    ({"jobs": 0}, "jobs is 0: give a"), ({"slots": 2.5}, r"slots is 2\.5: give a"),
    ({"jobs": 2**18, "slots": 2**20}, "262144 jobs of 8 workers: at most 1048576 workers in total"),
    ({"slots": 10**30}, "an integer from 1 to 2147483647"),
    ({"seed": -1}, "seed is -1: give a"), ({"slots": "8"}, "slots is '8': give a"),
])
def test_what_is_refused(bad, message):
    job = PoolStreaming(size_bytes=4096, slots=64)
    with pytest.raises(WeftError, match=message):
        Sharing(**({"job": job, "jobs": 2, "slots": 8, "rule": "static"} | bad))


def test_an_array_of_too_many_packets_is_refused():
    huge = PoolStreaming(size_bytes="1PiB", slots=4)
    with pytest.raises(WeftError, match="too many to follow one by one"):
        sharing_program(Sharing(job=huge, jobs=1, slots=4, rule="hashed"))
    with pytest.raises(WeftError, match="too many to follow one by one"):
        time_ps(huge, loss=0.1, timeout_ps=10**9)
