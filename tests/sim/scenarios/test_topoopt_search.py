import random
from itertools import product

import pytest

from sim import simulate
from sim.scenarios.topoopt_search import Settings, iteration_ps, optical_fabric, search
from topologies import WeftError, fat_tree, switch
from workloads.topoopt import (
    Demand,
    Fabric,
    Load,
    Operator,
    OperatorModel,
    Placement,
    Transport,
    data_parallel,
    iteration_of,
    model,
)

QUICK = Transport(most_rounds=4, message_chunks=1)


def lopsided():
    """A heavy layer of few activations after two tables: data parallelism pays for its gradients."""
    return OperatorModel("lopsided", 8, (
        Operator("table0", 1.0, 2.0, 10**9, 8 * 10**5, (), True),
        Operator("table1", 1.0, 2.0, 10**9, 8 * 10**5, (), True),
        Operator("wide", 0.8, 1.6, 4 * 10**8, 8 * 10**4, (0, 1)),
        Operator("last", 0.8, 1.6, 10**4, 8 * 10**3, (2,)),
    ))


def test_never_worse_than_the_start_and_the_same_for_the_same_seed():
    fabric_for = optical_fabric(8, 4)
    settings = Settings(budget=60, outer=3, seed=5)
    one, two = (search(lopsided(), fabric_for, settings) for _ in range(2))
    assert one.strategy == two.strategy and one.time_ps == two.time_ps and one.history == two.history
    assert one.time_ps < one.start_ps  # the wide layer goes to one server
    assert 1 <= one.evaluations_to_best <= one.evaluations <= 60 + 2 * 3 + 1
    times = [time for _, time in one.history]
    assert times == sorted(times, reverse=True)
    assert iteration_ps(lopsided(), one.strategy, one.fabric) == one.time_ps


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("budget", [0, 7])
def test_small_budgets(seed, budget):
    found = search(lopsided(), optical_fabric(8, 2), Settings(budget=budget, seed=seed, transport=QUICK))
    assert found.time_ps <= found.start_ps
    if budget == 0:
        assert found.strategy == data_parallel(lopsided())


@pytest.mark.table
@pytest.mark.parametrize("degree", [2, 4])
@pytest.mark.parametrize("megabytes", [1, 40, 400])
@pytest.mark.parametrize("wide", [0, 1])
def test_small_joint_problems_are_solved(degree, megabytes, wide):
    """No strategy is faster on the fabric that is made for it."""
    small = OperatorModel("small", 4, (
        Operator("one", 0.4, 0.8, megabytes * 10**6, 4 * 10**6), Operator("two", 0.4, 0.8, 10**6, 10**6, (0,)),
    )[: 1 + wide])
    fabric_for = optical_fabric(4, degree)
    found = search(small, fabric_for, Settings(budget=7**2, transport=QUICK))
    choices = [Placement(k, first) for k in (4, 2, 1) for first in range(4 // k)]
    for strategy in product(choices, repeat=1 + wide):
        made = fabric_for(Demand.of(iteration_of(small, strategy).job()))
        assert found.time_ps <= iteration_ps(small, strategy, made, QUICK)


@pytest.mark.table
@pytest.mark.parametrize("seed", range(8))
def test_no_run_is_faster_than_its_load(seed):
    job, draw = lopsided(), random.Random(seed)
    choices = [Placement(k, first) for k in (8, 4, 2, 1) for first in range(8 // k)]
    strategy = tuple(draw.choice(choices) for _ in job.operators)
    fabric = optical_fabric(8, 2)(Demand.of(iteration_of(job, strategy).job()))
    least = Load(job).least_ps(strategy, fabric.rate_Bps)
    assert 0 < least <= iteration_ps(job, strategy, fabric, QUICK)


@pytest.mark.full
@pytest.mark.parametrize(("rate", "released_ms"), [(25, 2187), (100, 544), (200, 315)])
def test_strategies_of_candle_are_no_worse_than_the_released_ones(rate, released_ms):
    network = fat_tree(4, bandwidth=f"{rate}Gb/s", latency="1us", hop_latency=0)
    fixed = Fabric(network)
    settings = Settings(budget=100, transport=Transport(tie="ecmp", most_rounds=16, message_chunks=2))
    assert search(model("CANDLE", 16), lambda demand: fixed, settings).time_ps <= released_ms * 1e9


def test_a_fixed_network_is_kept():
    fixed = Fabric(switch(8, bandwidth="100Gb/s", latency="1us", hop_latency=0))
    found = search(lopsided(), lambda demand: fixed, Settings(budget=10))
    assert found.fabric is fixed and found.time_ps <= found.start_ps


def test_the_fabric_of_the_start_is_that_of_its_demand():
    job = iteration_of(lopsided(), data_parallel(lopsided())).job()
    fabric = optical_fabric(8, 4)(Demand.of(job))
    assert iteration_ps(lopsided(), data_parallel(lopsided()), fabric) == search(
        lopsided(), optical_fabric(8, 4), Settings(budget=0)).start_ps


def test_bad_input_is_named():
    with pytest.raises(WeftError, match="budget of moves is -1: give an integer from 0 to"):
        Settings(budget=-1)


@pytest.mark.table
@pytest.mark.parametrize("degree", [2, 4])
@pytest.mark.parametrize(("k", "first", "kept"), [(8, 0, 1), (4, 1, 2), (2, 3, 4), (1, 5, 8)])
def test_every_so_many_servers_stand_for_the_others(k, first, kept, degree):
    """An operator on every other server leaves a symmetry, with which the iteration takes the same."""
    small = OperatorModel("small", 8, tuple(
        Operator(f"dense{at}", 0.4, 0.8, 10**6 + at, 8 * 10**5, (at - 1,) if at else ()) for at in range(3)
    ))
    strategy = Placement(8, 0), Placement(k, first), Placement(8, 0)
    fabric = optical_fabric(8, degree)(Demand.of(iteration_of(small, strategy).job()))
    job = iteration_of(small, strategy).job(fabric.topology, fabric.rings, QUICK)
    one, whole = (simulate(job, chunks=1, symmetry=symmetry) for symmetry in ("auto", "off"))
    assert one.time_ps == whole.time_ps
    assert one.lowered.orbits.sources.size == kept or fabric.matched
