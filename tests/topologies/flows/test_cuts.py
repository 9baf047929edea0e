import math

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topologies import bisection_Bps, bytes_per_s, egress_Bps, from_links, from_spec, ingress_Bps, mesh, torus
from topologies.flows.cuts import flow_Bps


@pytest.mark.parametrize(
    ("spec", "cables"),
    [("torus:4x4", 4), ("torus:2", 1), ("ring:1", 0), ("fc:5", 4), ("switch:4", 1), ("hx2mesh:2x2", 4)],
)
def test_what_enters_and_leaves_an_npu(spec, cables):
    t = from_spec(spec, bandwidth="1GB/s")
    assert ingress_Bps(t).tolist() == [cables * 1e9] * t.n_npus
    assert egress_Bps(t).tolist() == [cables * 1e9] * t.n_npus


def test_ingress_and_egress_differ_on_one_way_links():
    t = from_links([(0, 1, "3GB/s", 0), (2, 1, "4GB/s", 0)], n_npus=3)
    assert ingress_Bps(t).tolist() == [0, 7e9, 0]
    assert egress_Bps(t).tolist() == [3e9, 0, 4e9]


@pytest.mark.parametrize(
    ("spec", "cables"),
    [("torus:8x8", 16), ("torus:8x4", 8), ("mesh:4x4", 4), ("ring:6", 2), ("torus:2x2", 2), ("fc:6", 9),
     ("switch:6", 3)],
)
def test_bisection(spec, cables):
    assert bisection_Bps(from_spec(spec, bandwidth="1GB/s")) == cables * 1e9


def test_one_npu_has_no_bisection():
    assert bisection_Bps(torus((1, 1))) == math.inf


def test_flow_goes_through_other_nodes():
    t = mesh((3, 3), bandwidth="1GB/s")
    assert flow_Bps(t, np.array([0]), np.array([8])) == 2e9
    assert flow_Bps(t, np.array([1]), np.array([7])) == 3e9
    assert flow_Bps(t, np.array([0, 1, 2]), np.array([6, 7, 8])) == 3e9


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 5), st.integers(0, 5), st.floats(0.1, 1e12)).filter(lambda link: link[0] != link[1]),
        max_size=20,
    )
)
def test_flow_equals_that_of_networkx(links):
    t = from_links([(src, dst, bytes_per_s(rate), 0) for src, dst, rate in links], n_npus=6)
    graph = nx.DiGraph()
    graph.add_nodes_from(range(6))
    for src, dst, rate in links:
        before = graph.get_edge_data(src, dst, {"capacity": 0.0})["capacity"]
        graph.add_edge(src, dst, capacity=before + rate)
    assert flow_Bps(t, np.array([0]), np.array([5])) == pytest.approx(nx.maximum_flow_value(graph, 0, 5))


def test_flow_is_exact_for_rates_that_do_not_fit_an_int32():
    rate = float(2**52 + 1)
    t = from_links([(0, 1, bytes_per_s(rate), 0), (0, 1, "2B/s", 0), (1, 2, bytes_per_s(2 * rate), 0)], n_npus=3)
    assert flow_Bps(t, np.array([0]), np.array([2])) == rate + 2.0
