import json
import re

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topologies import (
    TOPOLOGIES,
    ShortestPathRouter,
    WeftError,
    bytes_per_s,
    from_links,
    from_networkx,
    from_spec,
    read_topology,
    ring,
    switch,
    to_networkx,
    torus,
    write_topology,
)

SAMPLES = [sample for family in TOPOLOGIES.values() for sample in family.samples]
ARRAYS = ("kind", "src", "dst", "bandwidth_Bps", "latency_ps", "hop_latency_ps", "dimension", "coords")


def assert_same(ours, theirs):
    for name in ARRAYS:
        assert np.array_equal(getattr(ours, name), getattr(theirs, name)), name
        assert getattr(ours, name).dtype == getattr(theirs, name).dtype, name
    assert ours.shape == theirs.shape
    assert [ours.node_name(n) for n in range(ours.n_nodes)] == [theirs.node_name(n) for n in range(theirs.n_nodes)]


@pytest.mark.table
@pytest.mark.parametrize("suffix", [".graphml", ".json"])
@pytest.mark.parametrize("spec", SAMPLES)
def test_files_come_back_the_same(spec, suffix, tmp_path):
    t = from_spec(spec)
    write_topology(t, tmp_path / f"net{suffix}")
    back = read_topology(tmp_path / f"net{suffix}")
    assert_same(back, t)
    assert isinstance(back.router, ShortestPathRouter)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 3), st.integers(0, 5), st.floats(1e-3, 1e15), st.integers(0, 10**12)
        ).filter(lambda link: link[0] != link[1]),
        max_size=12,
    ),
    st.integers(0, 10**9),
)
def test_random_networks_come_back_exactly(tmp_path_factory, links, hop_ps):
    rows = [(src, dst, bytes_per_s(rate), f"{time_ps}ps") for src, dst, rate, time_ps in links]
    t = from_links(rows, n_npus=4, hop_latency=f"{hop_ps}ps")
    assert sorted(t.latency_ps.tolist()) == sorted(link[3] for link in links)
    assert_same(from_networkx(to_networkx(t)), t)
    for suffix in (".graphml", ".json"):
        path = tmp_path_factory.mktemp("net") / f"net{suffix}"
        write_topology(t, path)
        assert_same(read_topology(path), t)


def test_parallel_links_need_a_multigraph():
    assert not to_networkx(torus(4)).is_multigraph()
    double = from_links([(0, 1, "1GB/s", 0), (0, 1, "2GB/s", 0)], n_npus=2)
    graph = to_networkx(double)
    assert graph.is_multigraph() and graph.number_of_edges("npu0", "npu1") == 2


def test_what_is_written():
    graph = to_networkx(switch(2))
    assert graph.graph == {"name": "switch:2"}
    assert graph.nodes["npu1"] == {"kind": "npu", "rank": 1, "coord": (1,), "hop_latency_s": 0.0}
    assert graph.nodes["switch0"] == {"kind": "switch", "coord": (-1,), "hop_latency_s": 3e-7}
    assert graph.edges["npu0", "switch0"] == {"bandwidth_Bps": 5e10, "latency_s": 1e-7, "dimension": 0}


def small_graph():
    graph = nx.DiGraph(name="small")
    graph.add_node("s", kind="switch")
    graph.add_node("b", kind="npu", rank=1)
    graph.add_node("a", kind="npu", rank=0)
    graph.add_edge("a", "s", bandwidth_Bps=1e9, latency_s=1e-6)
    graph.add_edge("s", "b", bandwidth_Bps=2e9, latency_s=0)
    return graph


def test_defaults_of_a_foreign_graph():
    t = from_networkx(small_graph())
    assert (t.name, t.node_names, t.shape) == ("small", ("a", "b", "s"), (2,))
    assert t.coords.ravel().tolist() == [0, 1, -1]
    assert t.dimension.tolist() == [-1, -1] and t.hop_latency_ps.tolist() == [0, 0, 0]
    assert t.link_name(0) == "a->s" and t.latency_ps.tolist() == [1_000_000, 0]


def test_count_is_that_many_parallel_links():
    graph = small_graph()
    graph.edges["a", "s"]["count"] = 3
    t = from_networkx(graph)
    assert t.src.tolist() == [0, 0, 0, 2]
    assert t.bandwidth_Bps.tolist() == [1e9, 1e9, 1e9, 2e9]


def change(graph, where, key, value):
    data = graph.nodes[where] if isinstance(where, str) else graph.edges[where]
    if value is None:
        del data[key]
    else:
        data[key] = value


@pytest.mark.parametrize(
    ("where", "key", "value", "message"),
    [
        ("a", "kind", None, "node a lacks the key 'kind'"),
        ("a", "kind", "gpu", "node a has the kind 'gpu': accepted are npu, switch, ocs"),
        ("a", "rank", None, "node a lacks the key 'rank'"),
        ("a", "rank", -1, "node a rank is -1: give an integer from 0"),
        ("a", "rank", "0", "node a rank is '0'"),
        ("a", "rank", 1, "has the rank 1, already taken by node"),
        ("a", "rank", 2, "no node has the rank 0; ranks are 0 to 1"),
        ("s", "rank", 2, "node s is a switch and has the rank 2"),
        ("a", "color", "red", "node a has the unknown key 'color': accepted are coord, hop_latency_s, kind, rank"),
        ("a", "coord", (0,), "node b lacks the key 'coord'"),
        ("a", "hop_latency_s", "1ns", "node a hop_latency_s is '1ns': give a number"),
        ("a", "hop_latency_s", -1.0, "node a hop_latency_s -1.0 is negative"),
        (("a", "s"), "bandwidth_Bps", None, "edge a->s lacks the key 'bandwidth_Bps'"),
        (("a", "s"), "latency_s", None, "edge a->s lacks the key 'latency_s'"),
        (("a", "s"), "bandwidth_Bps", 0, "edge a->s bandwidth_Bps 0 must be above zero"),
        (("a", "s"), "bandwidth_Bps", "1GB/s", "edge a->s bandwidth_Bps is '1GB/s': give a number"),
        (("a", "s"), "latency_s", float("nan"), "edge a->s latency_s is nan: give a number"),
        (("a", "s"), "bandwidth", 1, "edge a->s has the unknown key 'bandwidth': accepted are bandwidth_Bps, count"),
        (("a", "s"), "count", 0, "edge a->s count is 0"),
        (("a", "s"), "count", 10**9, "edge a->s count is 1000000000"),
        (("a", "s"), "dimension", 1.5, "edge a->s dimension is 1.5"),
    ],
)
def test_bad_attributes_name_the_item_and_the_key(where, key, value, message):
    graph = small_graph()
    change(graph, where, key, value)
    with pytest.raises(WeftError, match=message):
        from_networkx(graph)


def test_an_undirected_graph_is_refused():
    with pytest.raises(WeftError, match="the graph is undirected; give one edge per direction"):
        from_networkx(nx.Graph(small_graph()))


def test_an_unknown_key_of_the_graph_is_refused():
    graph = small_graph()
    graph.graph["owner"] = "me"
    with pytest.raises(WeftError, match="graph has the unknown key 'owner'"):
        from_networkx(graph)


@pytest.mark.parametrize(
    ("coords", "message"),
    [
        ({"a": [0], "b": [2], "s": [-1]}, "do not count through 3 in rank order"),
        ({"a": [1], "b": [0], "s": [-1]}, "do not count through 2"),
        ({"a": [0], "b": [1], "s": [1]}, "two nodes have the same coordinates"),
        ({"a": [0], "b": [1, 0], "s": [-1]}, "node b has 2 coordinates, others 1"),
        ({"a": [0], "b": ["x"], "s": [-1]}, "node b has the coord"),
        ({"a": [0], "b": "1;0", "s": [-1]}, "node b has the coord '1;0'"),
        ({"a": [], "b": [], "s": []}, "node a has the coord"),
        ({"a": [2**40], "b": [1], "s": [-1]}, "node a has the coord"),
    ],
)
def test_bad_coordinates_are_refused(coords, message):
    graph = small_graph()
    nx.set_node_attributes(graph, coords, "coord")
    with pytest.raises(WeftError, match=message):
        from_networkx(graph)


def test_no_npu_is_refused():
    graph = nx.DiGraph()
    graph.add_node("s", kind="switch")
    with pytest.raises(WeftError, match="first node must be an NPU"):
        from_networkx(graph)


@pytest.mark.parametrize(
    "text",
    [
        '<?xml version="1.0"?><!DOCTYPE graphml [<!ENTITY a "b">]><graphml/>',
        '<?xml version="1.0"?><!doctype graphml><graphml/>',
        '<?xml version="1.0"?><graphml><!ENTITY a "b"></graphml>',
    ],
)
def test_declarations_of_entities_are_refused(text, tmp_path):
    path = tmp_path / "net.graphml"
    path.write_text(text)
    with pytest.raises(WeftError, match="only plain GraphML is read"):
        read_topology(path)


@pytest.mark.parametrize("content", ["<graphml>", "plain text", "<graphml/>"])
def test_what_is_not_graphml_is_refused(content, tmp_path):
    path = tmp_path / "net.graphml"
    path.write_text(content)
    with pytest.raises(WeftError, match=r"net\.graphml"):
        read_topology(path)


def test_an_encoding_other_than_utf8_is_refused(tmp_path):
    path = tmp_path / "net.graphml"
    path.write_bytes("<graphml/>".encode("utf-16"))
    with pytest.raises(WeftError, match="is not UTF-8 text"):
        read_topology(path)


def node_link(**changes):
    return {**nx.node_link_data(to_networkx(ring(3)), edges="edges"), **changes}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("{", "is not JSON"),
        ("[]", "is not a node-link graph"),
        ("7", "is not a node-link graph"),
        (json.dumps({"nodes": []}), "is not a node-link graph"),
        (json.dumps(node_link(directed=False)), "the graph is undirected"),
        (json.dumps(node_link(version=2)), "has the unknown key 'version'"),
        (json.dumps(node_link(nodes=[{"kind": "npu"}])), "lacks the key|is not a node-link graph"),
        (json.dumps(node_link(nodes=["a"])), "is not a node-link graph"),
        (json.dumps(node_link(edges=[{"source": "npu0"}])), "is not a node-link graph"),
        (json.dumps(node_link(edges=[{"source": "npu0", "target": "npu9"}])), "node npu9 lacks the key 'kind'"),
        (json.dumps(node_link(graph=[])), "is not a node-link graph"),
    ],
)
def test_bad_json_is_refused_with_the_file(data, message, tmp_path):
    path = tmp_path / "net.json"
    path.write_text(data)
    with pytest.raises(WeftError, match=message) as caught:
        read_topology(path)
    assert "net.json" in str(caught.value)


def test_the_older_key_of_node_link_json_is_read(tmp_path):
    data = nx.node_link_data(to_networkx(ring(3)), edges="links")
    (tmp_path / "net.json").write_text(json.dumps(data))
    assert_same(read_topology(tmp_path / "net.json"), ring(3))


def test_another_suffix_is_refused(tmp_path):
    with pytest.raises(WeftError, match=r"suffix '\.xml': write \.graphml or \.json"):
        write_topology(ring(3), tmp_path / "net.xml")
    assert not (tmp_path / "net.xml").exists()


def test_a_key_without_a_type_is_refused(tmp_path):
    path = tmp_path / "ring.graphml"
    write_topology(ring(3), path)
    text = path.read_text()
    path.write_text(re.sub(r' attr\.type="\w+"', "", text, count=1))
    with pytest.raises(WeftError, match="is not GraphML: No key type for id"):
        read_topology(path)
