from collections import Counter

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.oracles.circuit_plans import graph_of
from topologies import WeftError
from workloads.topoopt import MODELS, Demand, Placement, data_parallel, find_topology, iteration_of, model
from workloads.topoopt.strategy import servers_of
from workloads.topoopt.topology_finder import matchings, split_degree


def flows(n, *pairs):
    demand = np.zeros((n, n))
    for a, b, size in pairs:
        demand[a, b] += size
    return demand


def test_the_degree_is_split_by_traffic():
    even = Demand({8: 100.0}, flows(8, (0, 1, 100.0)))
    assert split_degree(4, even, duplex=True) == 2 and split_degree(4, even, duplex=False) == 2
    assert split_degree(4, Demand({8: 100.0}, flows(8)), True) == 4
    assert split_degree(4, Demand({}, flows(8, (0, 1, 1.0))), False) == 1  # one ring joins all


def test_matchings_follow_the_demand_and_halve_it():
    demand = flows(4, (0, 1, 8), (2, 3, 1), (0, 2, 3), (1, 3, 3))
    assert matchings(demand, 3) == [(0, 1), (2, 3), (0, 2), (1, 3), (0, 1), (2, 3)]
    assert matchings(flows(4, (3, 2, 5)), 2) == [(2, 3), (2, 3)]  # demand from the higher to the lower counts
    assert matchings(flows(4), 2) == []


@given(st.integers(2, 7), st.data())
@settings(max_examples=40, deadline=None)
def test_the_first_matching_weighs_most(n, data):
    demand = np.zeros((n, n))
    for a in range(n):
        for b in range(n):
            demand[a, b] = data.draw(st.integers(0, 20)) if a != b else 0
    graph = nx.Graph()
    graph.add_weighted_edges_from(
        (a, b, demand[a, b] + demand[b, a]) for a in range(n) for b in range(a) if demand[a, b] + demand[b, a])
    best = nx.max_weight_matching(graph, maxcardinality=True)
    found = matchings(demand, 1)
    assert len(found) == len(best)
    assert sum(graph.edges[pair]["weight"] for pair in found) == sum(graph.edges[pair]["weight"] for pair in best)


@given(st.integers(2, 12), st.integers(1, 4), st.booleans(), st.sampled_from(["paper", "code"]), st.data())
@settings(max_examples=60, deadline=None)
def test_fabrics_are_connected_within_the_degree_and_have_their_rings(n, half, duplex, rule, data):
    degree = 2 * half if duplex else half
    sizes = [k for k in range(2, n + 1) if n % k == 0]
    reduce = {k: float(data.draw(st.integers(1, 9))) for k in data.draw(st.sets(st.sampled_from(sizes), max_size=2))}
    ends = st.tuples(st.integers(0, n - 1), st.integers(0, n - 1), st.integers(1, 9))
    demand = flows(n, *((a, b, c) for a, b, c in data.draw(st.lists(ends, max_size=6)) if a != b))
    fabric = find_topology(n, degree, Demand(reduce, demand), duplex=duplex, rule=rule, bandwidth="1GB/s")
    graph = graph_of(fabric.topology)
    assert nx.is_strongly_connected(graph)
    for ends_of in (fabric.topology.src, fabric.topology.dst):
        circuits = Counter()
        for node, rate in zip(ends_of.tolist(), fabric.topology.bandwidth_Bps.tolist(), strict=True):
            circuits[node] += round(rate / 1e9)
        assert max(circuits.values()) <= degree
    for jump in fabric.rings.jumps:
        assert all(graph.has_edge(v, (v + jump) % n) for v in range(n))
    for k, jumps in fabric.rings.groups.items():
        stride = n // k
        assert all(graph.has_edge(v, (v + jump * stride) % n) for jump in jumps for v in range(n))


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("n", [2, 16])
def test_models_become_iterations(name, n):
    one = model(name, n)
    demand = Demand.of(iteration_of(one, data_parallel(one)).job())
    replicated = sum(operator.parameter_bytes for operator in one.operators if not operator.table)
    assert sum(demand.all_reduce.values()) == 2 * (n - 1) * replicated
    tables = [operator for operator in one.operators if operator.table]
    moved = 2 * sum(-(-operator.output_bytes // n) * (n - 1) for operator in tables)
    assert demand.flows.sum() == moved and np.trace(demand.flows) == 0


def test_published_sizes():
    vgg = model("VGG16", 16)
    assert sum(operator.parameter_bytes for operator in vgg.operators) == 1_157_409_952
    assert model("NCF", 128).operators[0].forward_ms == pytest.approx(6.29)


@pytest.mark.parametrize(
    ("name", "n", "size"),
    [("DLRM", 16, 306_343_940), ("DLRM", 128, 1_225_056_260), ("CANDLE", 16, 4_752_687_108)],
)
def test_replicated_parameters_are_those_of_the_released_task_graphs(name, n, size):
    """CANDLE's graph has 8 B more: five towers with weights of their own; DLRM's to the byte."""
    assert sum(operator.parameter_bytes for operator in model(name, n).operators if not operator.table) == size


def test_a_placement_on_part_of_the_servers():
    assert servers_of(Placement(4, 1), 16) == (1, 5, 9, 13)
    one = model("BERT", 4)
    split = (Placement(2, 1), *data_parallel(one)[1:])
    demand = Demand.of(iteration_of(one, split).job())
    assert demand.all_reduce[2] == 2 * one.operators[0].parameter_bytes
    assert demand.flows[1, 0] == one.operators[0].output_bytes // 4


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: find_topology(8, 3, Demand({}, flows(8))), "3 duplex interfaces: .* an even degree from 2 on"),
        (lambda: find_topology(1, 2, Demand({}, flows(1))), "a topology for 1 server:"),
        (lambda: find_topology(8, 0, Demand({}, flows(8)), duplex=False), "0 interfaces: at least 1"),
        (lambda: model("GPT", 8), "model 'GPT' is unknown: choose one of DLRM, CANDLE"),
        (lambda: model("BERT", 1), "BERT on 1 server:"),
        (lambda: servers_of(Placement(3, 0), 16), "placement on 3 servers from 0"),
        (lambda: iteration_of(model("BERT", 4), ()), "the strategy places 0"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(WeftError, match=message):
        call()


@pytest.mark.table
@pytest.mark.parametrize("degree", [2, 4, 8])
@pytest.mark.parametrize("traffic", [0.1, 1.0, 10.0])
@pytest.mark.parametrize("flows", [0, 10**7])
def test_groups_of_two_use_all_interfaces(degree, traffic, flows):
    demand = Demand({2: 1e9 * traffic, 16: 1e9}, flows * (1 - np.eye(16)))
    fabric = find_topology(16, degree, demand, bandwidth="8Gb/s")
    out = np.bincount(fabric.topology.src, fabric.topology.bandwidth_Bps, 16)
    assert (out == degree * 1e9).all() and fabric.rate_Bps == degree * 1e9
