import random

import pytest

from sim.scenarios.optical import (
    ClusterJob,
    cluster_job,
    compute_ps,
    contended_ps,
    isolated_ps,
    place_randomly,
    simulate_iteration,
)
from topologies import WeftError, fat_tree, switch
from workloads.topoopt import ONE_RING, Demand, Iteration, Transport, data_parallel, find_topology, iteration_of, model

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
    rng = random.Random(3)
    jobs = [ClusterJob(job(40_000_000), place) for place in place_randomly([4] * 4, 16, rng)]
    ideal = contended_ps(jobs, switch(16, bandwidth="100Gb/s", latency="1us", hop_latency=0))
    thin = contended_ps(jobs, fat_tree(4, bandwidth=["12.5GB/s", "3GB/s", "3GB/s"], latency="1us", hop_latency=0))
    assert len(set(ideal)) == 1 and min(thin) > ideal[0]
    fabric = find_topology(4, 2, Demand.of(job().job()))
    assert len(set(isolated_ps(jobs, [fabric] * 4))) == 1


def test_placements_and_models_with_messages_can_be_moved():
    real = model("DLRM", 16)
    iteration = iteration_of(real, data_parallel(real))
    places = place_randomly([16, 16], 54, random.Random(1))
    assert len({server for place in places for server in place}) == 32
    jobs = [ClusterJob(iteration, place, at * MS) for at, place in enumerate(places)]
    fabric = fat_tree(6, bandwidth="400Gb/s", latency="1us", hop_latency=0)
    times = contended_ps(jobs, fabric, iterations=1, transport=Transport(most_rounds=4, message_chunks=1, tie="ecmp"))
    assert all(time >= compute_ps(iteration.job()) for time in times)


def test_bad_input_is_named():
    with pytest.raises(WeftError, match="jobs of 20 servers in a cluster of 16"):
        place_randomly([10, 10], 16, random.Random(1))
    with pytest.raises(WeftError, match="server 1 is given to two jobs"):
        cluster_job([ClusterJob(job(), (0, 1, 2, 3)), ClusterJob(job(), (1, 4, 5, 6))], switch(8), 1)
