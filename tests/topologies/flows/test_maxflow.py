"""The compiled maximum flow against scipy and networkx, in 64 bits and beyond."""

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import coo_array
from scipy.sparse.csgraph import maximum_flow

from tests import fabrics
from topologies import WeftError, from_spec
from topologies.flows import maxflow as flow_kernels
from topologies.flows import programs
from topologies.flows.maxflow import FlowNetwork
from topologies.flows.programs import all_to_all_rate_Bps, best_roots, concurrent_flow
from topologies.stages import hearing, under_way

ARCS = st.lists(
    st.tuples(st.integers(0, 7), st.integers(0, 7), st.integers(0, 50)).filter(lambda arc: arc[0] != arc[1]),
    max_size=40,
)


@settings(max_examples=100, deadline=None)
@given(ARCS, st.booleans())
def test_flow_and_cut(arcs, exact):
    network, graph = FlowNetwork(8, exact), nx.DiGraph()
    graph.add_nodes_from(range(8))
    matrix = np.zeros((8, 8), np.int32)
    for tail, head, capacity in arcs:
        network.add(tail, head, capacity * (10**20 if exact else 1))
        matrix[tail, head] += capacity
    for tail, head in np.argwhere(matrix).tolist():
        graph.add_edge(tail, head, capacity=int(matrix[tail, head]))
    unit = 10**20 if exact else 1
    flow = network.flow(0, 7, 10**6 * unit)
    assert flow == nx.maximum_flow_value(graph, 0, 7) * unit
    assert flow == int(maximum_flow(coo_array(matrix).tocsr(), 0, 7).flow_value) * unit
    side = network.source_side()
    assert side[0] and not side[7] and int(matrix[side][:, ~side].sum()) * unit == flow


@settings(max_examples=50, deadline=None)
@given(ARCS, st.integers(1, 60))
def test_a_limit_stops_the_flow(arcs, limit):
    network = FlowNetwork(8)
    for arc in arcs:
        network.add(*arc)
    whole = network.flow(0, 7, 10**6)
    assert network.flow(0, 7, limit) == min(whole, limit)


@settings(max_examples=100, deadline=None)
@given(ARCS, st.integers(1, 12))
def test_a_flow_that_is_interrupted_goes_on_where_it_was(arcs, patience):
    plain, interrupted = (FlowNetwork(8, True) for _ in range(2))  # exact: so the function itself, not compiled
    added = [(plain.add(*arc), interrupted.add(*arc)) for arc in arcs]
    whole = plain.flow(0, 7, 10**6)
    heard = []
    with hearing(lambda *told: heard.append(told)), pytest.MonkeyPatch.context() as patch:
        patch.setattr(flow_kernels, "PATIENCE", patience)
        assert interrupted.flow(0, 7, 10**6) == whole
    assert plain.used([one for one, _ in added]).tolist() == interrupted.used([one for _, one in added]).tolist()
    assert np.array_equal(plain.source_side(), interrupted.source_side())
    assert heard or not whole or patience > 1


def test_arcs_and_nodes_can_be_added_and_capacities_changed():
    network = FlowNetwork(2)
    arc = network.add(0, 1, 3)
    assert network.flow(0, 1, 100) == 3
    node = network.add_node()
    network.add(0, node, 4)
    network.add(node, 1, 9)
    network.capacity[arc] = 5
    assert network.flow(0, 1, 100) == 9 and network.used([arc]).tolist() == [5]


CHANGES = st.lists(st.tuples(st.lists(st.integers(0, 50), max_size=40), st.integers(1, 120)), max_size=5)


@settings(max_examples=100, deadline=None)
@given(ARCS, CHANGES, st.booleans())
def test_a_flow_repaired_is_one_from_nothing(arcs, changes, exact):
    network, unit = FlowNetwork(8, exact), 10**20 if exact else 1
    added = [network.add(tail, head, capacity * unit) for tail, head, capacity in arcs]
    for capacities, limit in [([], 10**6), *changes]:
        for arc, capacity in zip(added, capacities, strict=False):
            network.capacity[arc] = capacity * unit
        again, side = network.flow_again(3, 0, 7, limit * unit), network.source_side().tolist()
        assert again == network.flow(0, 7, limit * unit)
        assert again == limit * unit or side == network.source_side().tolist()
        added.append(network.add(network.add_node(), 7, 5 * unit))
        added.append(network.add(0, network.n_nodes - 1, 5 * unit))


@settings(max_examples=50, deadline=None)
@given(ARCS, st.lists(st.integers(0, 50), max_size=40), st.integers(1, 60))
def test_what_more_flows_where_an_arc_has_no_limit(arcs, capacities, limit):
    network = FlowNetwork(8)
    added = [network.add(*arc) for arc in arcs]
    wide = network.add(0, 1, 2)
    network.flow_again(3, 0, 7, 10**6)
    for arc, capacity in zip(added, capacities, strict=False):
        network.capacity[arc] = capacity
    arrives = network.flow_again(3, 0, 7, 10**6)
    more = network.further([wide], 0, 7, limit)
    network.capacity[wide] = 10**5
    assert arrives + more == network.flow(0, 7, arrives + limit)


OPENED = st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7)), min_size=6, max_size=6)


@settings(max_examples=100, deadline=None)
@given(ARCS, CHANGES, OPENED, st.integers(1, 60), st.booleans())
def test_the_least_slack_is_that_of_two_other_networks(arcs, changes, ends, amount, exact):
    network, unit = FlowNetwork(8, exact), 10**20 if exact else 1
    added = [network.add(tail, head, capacity * unit) for tail, head, capacity in arcs]
    opened = [network.add(*pair) for pair in ends]
    network.asks_of((opened[:3], opened[3:]))
    for capacities, limit in [([], 40), *changes]:
        for arc, capacity in zip(added, capacities, strict=False):
            network.capacity[arc] = capacity * unit
        found = [network.least_slack(3, 0, 7, limit * unit, amount * unit, second=one) for one in (False, True)]
        slacks = []
        for three in (opened[:3], opened[3:]):
            network.capacity[three] = 10**4 * unit
            slacks.append(min(amount, network.flow(0, 7, 10**6 * unit) // unit - limit) * unit)
            network.capacity[three] = 0
        if network.flow(0, 7, limit * unit) == limit * unit:
            assert found == [min(slacks), slacks[1]]
        added.append(network.add(0, 7, 5 * unit))


@settings(max_examples=50, deadline=None)
@given(ARCS, st.integers(1, 60))
def test_what_flows_from_elsewhere_takes_what_the_last_flow_left(arcs, limit):
    network, graph = FlowNetwork(8), nx.DiGraph()
    graph.add_nodes_from(range(8))
    added = [network.add(*arc) for arc in arcs]
    network.flow(0, 7, 10**6)
    for (tail, head, capacity), used in zip(arcs, network.used(added).tolist(), strict=True):
        for one, other, more in ((tail, head, capacity - used), (head, tail, used)):
            before = graph.get_edge_data(one, other, {"capacity": 0})["capacity"]
            graph.add_edge(one, other, capacity=before + more)
    assert network.onward(1, 7, limit) == min(nx.maximum_flow_value(graph, 1, 7), limit)


@pytest.mark.parametrize(
    ("fabric", "rate"),
    [(from_spec("ring:8", "1GB/s"), 1), (fabrics.one_way_ring(8), 2 / 7), (from_spec("torus:4x4", "1GB/s"), 2),
     (from_spec("mesh:4x4", "1GB/s"), 1), (from_spec("hypercube:4", "1GB/s"), 2), (from_spec("fc:8", "1GB/s"), 8),
     (from_spec("switch:8", "1GB/s"), 8 / 7), (fabrics.hub(8), 8 / 7), (fabrics.boxes_of(3, 4, 10, 1), 1.5),
     (from_spec("dgx-a100:2"), 50), (from_spec("mi250:1"), 75), (from_spec("random-regular:16x4x1", "1GB/s"), 1.7455),
     (fabrics.written(fabrics.EULERIAN, 10), 3.714), (fabrics.written(fabrics.SWITCHED, 12), 24 / 11),
     (fabrics.leaf_spine(2), 2 / 3), (fabrics.leaf_spine(4), 16 / 15), (from_spec("dgx1:2"), 3.125)],
    ids=lambda one: getattr(one, "name", None),
)  # fmt: skip
def test_all_to_all_rates(fabric, rate):
    assert all_to_all_rate_Bps(fabric) * fabric.n_npus / 1e9 == pytest.approx(rate, rel=1e-4)


@pytest.mark.parametrize(
    ("fabric", "rate"),
    [(from_spec("switch:8", "1GB/s"), 1), (fabrics.leaf_spine(2), 1), (fabrics.boxes_of(2, 4, 2, 1), 2.5),
     (fabrics.boxes_of(3, 4, 10, 1), 4), (from_spec("dgx-a100:1"), 300), (from_spec("dgx-a100:2"), 200)],
    ids=lambda one: getattr(one, "name", None),
)
def test_all_reduce_with_switches_that_reduce(fabric, rate):
    reducing = tuple(range(fabric.n_npus, fabric.n_nodes))
    assert best_roots(fabric, reducing).rate_Bps / 1e9 == pytest.approx(rate, rel=1e-6)


@pytest.mark.parametrize("spec", ["random-regular:12x4x1", "mesh:4x3", "leaf-spine:2x3x2", "dgx-a100:1", "ring:2"])
def test_both_methods_find_the_same_optimum(spec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    flows = []
    for most in (10**9, 0):
        monkeypatch.setattr(programs, "FOR_SIMPLEX", most)
        fabric = from_spec(spec)  # anew: what is found is remembered
        flows.append((concurrent_flow(fabric), best_roots(fabric).rate_Bps))
        flow = flows[-1][0].flow_Bps  # of one source, if all are alike
        assert len(flow) == 1 or np.all(flow.sum(axis=0) <= fabric.bandwidth_Bps * (1 + 1e-9))
    (simplex, roots), (interior, other_roots) = flows
    assert interior.rate_Bps == pytest.approx(simplex.rate_Bps, rel=1e-9)
    assert other_roots == pytest.approx(roots, rel=1e-9)


def test_a_linear_program_says_how_large_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    said = []
    monkeypatch.setattr("topologies.flows.programs.heard", lambda solve: (said.append(under_way()), solve())[1])
    all_to_all_rate_Bps(from_spec("mesh:2x3", "1GB/s"))
    assert said == ["a linear program of 85 variables"]


def test_a_linear_program_too_large_is_rejected_before_it_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "incidence", None)
    fabric = from_spec("random-regular:2000x4")
    with pytest.raises(WeftError, match="has 16,000,001 variables, one for each NPU and link; the limit is 1,000,000"):
        concurrent_flow(fabric)
    with pytest.raises(WeftError, match="has 32,010,000 variables"):
        best_roots(fabric)
