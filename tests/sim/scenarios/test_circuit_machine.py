import random
from collections import Counter

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.scenarios.circuit_machine import CircuitMachine, greedy_circuits
from topologies import Circuits, WeftError
from workloads.topoopt import AllReduce, Iteration, Op, vgg16
from workloads.topoopt.iteration import Flows


@given(st.integers(2, 9), st.integers(2, 5), st.data())
@settings(max_examples=80, deadline=None)
def test_greedy_circuits_fit_the_interfaces_and_join_all(n, degree, data):
    wishes = data.draw(st.lists(st.integers(0, 5), min_size=n * n, max_size=n * n))
    demand = np.array(wishes, float).reshape(n, n)
    np.fill_diagonal(demand, 0)
    pairs = greedy_circuits(demand, degree, random.Random(1))
    Circuits(n, degree, tuple(pairs))
    assert nx.is_connected(nx.Graph(pairs)) and len(nx.Graph(pairs)) == n
    alone = greedy_circuits(demand, degree, random.Random(1), connect=False)
    wanted = {tuple(sorted(pair)) for pair in np.argwhere(demand + demand.T > 0).tolist()}
    assert set(alone) <= wanted


def test_greedy_gives_the_most_to_the_most_wanted():
    demand = np.zeros((4, 4))
    demand[0, 1], demand[2, 3], demand[0, 2] = 8, 1, 3
    assert Counter(greedy_circuits(demand, 3, random.Random(1), connect=False)) == {(0, 1): 2, (0, 2): 1, (2, 3): 2}


def job(size=4_000_000):
    return Iteration("job", 8, (Op("a", 1_000_000_000, all_reduces=(AllReduce(size),)), Op("b", 10**9, None, (0,))))


@pytest.mark.parametrize("rings", [(1,), (1, 7)])
@pytest.mark.parametrize("forwarding", [True, False])
def test_everything_is_delivered_and_dark_time_adds_up(rings, forwarding):
    machine = CircuitMachine(job(), 4, "100us", rings, forwarding=forwarding)
    found = machine.run()
    assert found.delivered_bytes == 8 * len(rings) * 14 * (500_000 // len(rings))
    assert found.dark_ps == found.reconfigurations * 100_000_000
    assert found.time_ps >= job().compute_ps() and found == machine.run()  # the same again


def test_it_never_beats_the_bytes_over_all_interfaces():
    found = CircuitMachine(job(40_000_000), 4, "1ms", (1, 7, 3, 5)).run()
    assert found.time_ps >= 10**9 + 2 * 7 / 8 * 40_000_000 / (4 * 12.5e9) * 1e12


def test_one_ring_loses_to_static_rings_on_vgg():
    slow = CircuitMachine(vgg16(), 4, "10ms").run().time_ps
    assert slow > 1.2 * 100_480_326_542


def test_bad_input_is_named():
    with pytest.raises(WeftError, match="need a reconfiguration delay above zero"):
        CircuitMachine(job(), 4, "0s")
    with pytest.raises(WeftError, match="reconfiguration delay '10' is not a time"):
        CircuitMachine(job(), 4, "10")
    with pytest.raises(WeftError, match="1 interface per server cannot connect 8 servers"):
        CircuitMachine(job(), 1, "1ms").run()
    ends = np.array([0]), np.array([1]), np.array([5])
    some = Iteration("some", 8, (Op("a", 1), Op("b", 1, None, (0,), (Flows(0, *ends),))))
    with pytest.raises(WeftError, match="following demand is simulated for data parallelism"):
        CircuitMachine(some, 4, "1ms")
