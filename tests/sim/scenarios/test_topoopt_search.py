import pytest

from sim.scenarios.topoopt_search import Settings, iteration_ps, optical_fabric, search
from topologies import WeftError, switch
from workloads.topoopt import Demand, Fabric, Operator, OperatorModel, Transport, data_parallel, iteration_of

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


def test_a_fixed_network_is_kept():
    fixed = Fabric(switch(8, bandwidth="100Gb/s", latency="1us", hop_latency=0), (1,), {}, 1, 0, ())
    found = search(lopsided(), lambda demand: fixed, Settings(budget=10))
    assert found.fabric is fixed and found.time_ps <= found.start_ps


def test_the_fabric_of_the_start_is_that_of_its_demand():
    job = iteration_of(lopsided(), data_parallel(lopsided()))
    fabric = optical_fabric(8, 4)(Demand.of(job))
    assert iteration_ps(lopsided(), data_parallel(lopsided()), fabric) == search(
        lopsided(), optical_fabric(8, 4), Settings(budget=0)).start_ps


def test_bad_input_is_named():
    with pytest.raises(WeftError, match="a search of -1 moves in 4 turns"):
        Settings(budget=-1)
