import random

import pytest

from sim.scenarios.optical import ClusterJob, cluster_job, compute_ps, contended_ps, simulate_iteration
from topologies import WeftError, fat_tree, switch
from workloads.topoopt import ONE_RING, Iteration, Transport, data_parallel, iteration_of, model

MS = 10**9


def job(size=4_000_000):
    return Iteration(
        "job", 4, lambda to: to.gradients("b", size, to.compute("b", MS, after=[to.compute("a", MS)])))


def test_a_job_alone_takes_as_long_as_alone():
    fabric = switch(16, bandwidth="100Gb/s", latency="1us", hop_latency=0)
    alone = simulate_iteration(job(), switch(4, bandwidth="100Gb/s", latency="1us", hop_latency=0), ONE_RING)
    placed = ClusterJob(job(), (3, 9, 1, 12), 5 * MS)
    for iterations in (1, 3):  # the wait for the arrival is a task of its own, and each task costs at least 1 ps
        assert contended_ps([placed], fabric, iterations=iterations) == pytest.approx([alone.time_ps], abs=2)


def test_an_ideal_switch_isolates_and_a_thin_tree_does_not():
    seats = random.Random(3).sample(range(16), 16)
    jobs = [ClusterJob(job(40_000_000), tuple(seats[at : at + 4])) for at in range(0, 16, 4)]
    ideal = contended_ps(jobs, switch(16, bandwidth="100Gb/s", latency="1us", hop_latency=0))
    thin = contended_ps(jobs, fat_tree(4, bandwidth=["12.5GB/s", "3GB/s", "3GB/s"], latency="1us", hop_latency=0))
    assert len(set(ideal)) == 1 and min(thin) > ideal[0]


def test_placements_and_models_with_messages_can_be_moved():
    real = model("DLRM", 16)
    iteration = iteration_of(real, data_parallel(real))
    seats = random.Random(1).sample(range(54), 32)
    jobs = [ClusterJob(iteration, tuple(seats[16 * at : 16 * at + 16]), at * MS) for at in range(2)]
    fabric = fat_tree(6, bandwidth="400Gb/s", latency="1us", hop_latency=0)
    times = contended_ps(jobs, fabric, iterations=1, transport=Transport(most_rounds=4, message_chunks=1, tie="ecmp"))
    assert all(time >= compute_ps(iteration.job()) for time in times)


def test_bad_input_is_named():
    with pytest.raises(WeftError, match="server 1 is given to two jobs"):
        cluster_job([ClusterJob(job(), (0, 1, 2, 3)), ClusterJob(job(), (1, 4, 5, 6))], switch(8), 1)
