"""Graphs that networkx and the Internet Topology Zoo write: every node an NPU, every edge a cable."""

from __future__ import annotations

import json
from pathlib import Path

import networkx as nx
import pytest

from tests.topologies.formats.test_files import rates
from topologies import WeftError, from_spec, ring, write_topology
from topologies.text.schema import InputNote

ZOO = """<?xml version="1.0" encoding="utf-8"?><graphml xmlns="http://graphml.graphdrawing.org/xmlns">
 <key attr.name="LinkSpeedRaw" attr.type="double" for="edge" id="d1" />
 <key attr.name="label" attr.type="string" for="node" id="d2" />
 <key attr.name="Network" attr.type="string" for="graph" id="d3" />
 <graph edgedefault="undirected"><data key="d3">Lab</data>
  <node id="0"><data key="d2">New York</data></node><node id="1"><data key="d2">Chicago</data></node><node id="2"/>
  <edge source="0" target="1"><data key="d1">10000000000.0</data></edge>
  <edge source="1" target="2"/>
 </graph></graphml>"""


def saved(folder: Path, name: str, text: str) -> str:
    (folder / name).write_text(text, encoding="utf-8")
    return str(folder / name)


def test_cables_have_the_rate_of_the_file_or_the_one_given(tmp_path: Path) -> None:
    path = saved(tmp_path, "Lab.graphml", ZOO)
    with pytest.warns(InputNote, match="all 3 are NPUs, in the order of the file"):
        t = from_spec(path, bandwidth="5GB/s", latency="2us")
    assert (t.n_npus, t.n_nodes, t.n_links) == (3, 3, 4)
    assert (rates(t, "0", "1"), rates(t, "2", "1")) == (1.25e9, 5e9)
    assert set(t.latency_ps.tolist()) == {2_000_000}
    with pytest.raises(WeftError, match="edge 1->2 has no rate: give --link-bandwidth for edges without LinkSpeedRaw"):
        from_spec(path)


@pytest.mark.parametrize("suffix", [".graphml", ".json"])
def test_graphs_of_networkx(suffix: str, tmp_path: Path) -> None:
    graph, path = nx.circulant_graph(6, [1, 2]), tmp_path / f"graph{suffix}"
    if suffix == ".json":
        path.write_text(json.dumps(nx.node_link_data(graph, edges="edges")), encoding="utf-8")
    else:
        nx.write_graphml(graph, path)
    t = from_spec(str(path), bandwidth="50GB/s")
    assert (t.n_npus, t.n_links) == (6, 24)


def test_an_edge_of_a_directed_graph_is_one_direction(tmp_path: Path) -> None:
    path = tmp_path / "cycle.graphml"
    nx.write_graphml(nx.DiGraph([("a", "b"), ("b", "c"), ("c", "a"), ("c", "c")]), path)
    t = from_spec(str(path), bandwidth="50GB/s")
    assert (t.n_npus, t.n_links) == (3, 3)


def test_what_is_our_own_keeps_its_rates(tmp_path: Path) -> None:
    path = tmp_path / "ring.graphml"
    write_topology(ring(4), path)
    with pytest.raises(WeftError, match="specifies its own bandwidth: omit bandwidth '5GB/s'"):
        from_spec(str(path), bandwidth="5GB/s")


def test_a_rate_that_is_none_is_named(tmp_path: Path) -> None:
    path = saved(tmp_path, "Lab.graphml", ZOO.replace("10000000000.0", "-1"))
    with pytest.raises(WeftError, match="edge 0->1: LinkSpeedRaw"):
        from_spec(path, bandwidth="5GB/s")
