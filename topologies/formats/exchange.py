"""Topologies from and to networkx, GraphML and node-link JSON.

Accepted attributes (any other key is an error that names it):

- graph: `name`; directed, one edge per direction of a cable;
- node: `kind` (npu, switch or ocs), `rank` (NPUs only; 0 to n_npus-1), and optionally `coord` (a list, in GraphML
  text such as "1,0"; for all nodes or for none) and `hop_latency_s` (default: 0);
- edge: `bandwidth_Bps`, `latency_s`, and optionally `dimension` (default: -1) and `count` (identical cables in
  parallel; default: 1).

A network read from a file uses shortest-path routing. What a file gives twice is an error: a node, a key, an edge of
node-link JSON unless "multigraph" is true (then: an edge with its key), an edge of GraphML with its id.
"""

from __future__ import annotations

import io
import json
import math
import warnings
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from xml.etree.ElementTree import Element, ParseError, fromstring

import numpy as np
import numpy.typing as npt

from topologies.checks import Reads, WeftError, checked, integer, number, told
from topologies.core.links import rank_coordinates
from topologies.core.routing import ShortestPathRouter
from topologies.core.topology import KIND_NAMES, NPU, Topology
from topologies.formats.graph import foreign_graph, is_foreign
from topologies.text.input_text import read_input
from topologies.text.plain_data import parse_json
from topologies.units import PS_PER_S, from_bytes_per_s, from_seconds

if TYPE_CHECKING:
    import networkx as nx

_INSIDE = {
    "graphml": ("desc", "key", "graph"), "key": ("desc", "default"), "graph": ("desc", "data", "node", "edge"),
    "node": ("desc", "data"), "edge": ("desc", "data"),
}
"""Elements of GraphML that are read, in each of them that has some."""


def check_node_link(data: Mapping[str, Any], edges: str, where: str) -> None:
    """Reject node-link data with a node or an edge that is given twice; parallel edges need "multigraph".

    KeyError, TypeError: an edge without ends, an end that is no name.
    """
    _once(((_name(node.get("id", at)), f"node {told(node.get('id', at))}") for at, node in enumerate(data["nodes"])),
          where)
    several = data.get("multigraph", True)
    pairs = ((_name(edge["source"]), _name(edge["target"]), edge.get("key"), edge) for edge in data[edges])
    _once((((*pair, key if several else None), f"edge {edge['source']}->{edge['target']}")
           for *pair, key, edge in pairs if key is not None or not several), where)


def check_graphml(root: Element, where: str) -> None:
    """Reject GraphML with a key, node, edge (of one id), value or graph that is given twice, and elements not read."""
    _check_elements(root, where)
    found = _children(root)
    keys = [(one, one.get("for", "all")) for one in found["key"]]
    _once(((one.get("id"), f"the key with id {told(one.get('id'))}") for one, _ in keys), where)
    names = ((one.get("attr.name"), kind) for one, said in keys
             for kind in (("graph", "node", "edge") if said == "all" else (said,)))
    _once(((name, f"a key for {name[1]} {told(name[0])}") for name in names), where)
    if len(found["graph"]) != 1:
        raise WeftError(f"{where} has {len(found['graph'])} graphs: give one")
    graph = found["graph"][0]
    parts = _children(graph)
    _once(((node.get("id"), f"node {node.get('id')}") for node in parts["node"]), where)
    ends = (((edge.get("source"), edge.get("target"), edge.get("id")), edge) for edge in parts["edge"])
    _once(((end, f"edge {end[0]}->{end[1]} with id {told(end[2])}") for end, edge in ends if end[2] is not None), where)
    for one in (graph, *parts["node"], *parts["edge"]):
        what = f"node {one.get('id')}" if _tag(one) == "node" else f"edge {one.get('source')}->{one.get('target')}"
        within = f"{where}: {'the graph' if one is graph else what}"
        _once(((data.get("key"), f"the key {told(data.get('key'))}") for data in _children(one)["data"]), within)


def _check_elements(element: Element, where: str) -> None:
    for child in element:
        if _tag(child) not in _INSIDE.get(_tag(element), ()):
            within = f"{_tag(element)} {element.get('id') or ''}".strip()
            raise WeftError(f"{where}: <{_tag(child)}> in {within} is not read: omit it")
        if _tag(child) in _INSIDE:
            _check_elements(child, where)


def _children(element: Element) -> dict[str, list[Element]]:
    """Those of each kind that there may be."""
    return {tag: [child for child in element if _tag(child) == tag] for tag in _INSIDE[_tag(element)]}


def _tag(element: Element) -> str:
    return element.tag.rpartition("}")[2]


def _once(items: Iterable[tuple[Hashable, str]], where: str) -> None:
    seen: set[Hashable] = set()
    for key, what in items:
        if key in seen:
            raise WeftError(f"{where}: {what} is given twice")
        seen.add(key)


def _name(value: Any) -> Any:
    """A name of a node as networkx takes it: a list becomes a tuple."""
    return tuple(map(_name, value)) if isinstance(value, list) else value


SUFFIXES = (".graphml", ".json")
"""File suffixes that are read as a topology."""

MOST_SMALL = 2**15 - 1
"""Of dimensions, which are 16 bits wide, and of cables in parallel."""

_GRAPH_KEYS = {"name"}
_NODE_KEYS = {"kind", "rank", "coord", "hop_latency_s"}
_EDGE_KEYS = {"bandwidth_Bps", "latency_s", "dimension", "count"}
_JSON_KEYS = {"directed", "multigraph", "graph", "nodes"}
_READER_KEYS = {"node_default", "edge_default"}  # networkx leaves the defaults of a GraphML file here


@checked
def to_networkx(topology: Topology) -> nx.DiGraph:
    """The topology as a networkx graph whose nodes are the node names.

    Returns
    -------
    networkx.DiGraph
        A MultiDiGraph if any links are parallel.
    """
    import networkx as nx  # heavy: loaded where it is used

    t = topology
    names = [t.node_name(node) for node in range(t.n_nodes)]
    parallel = np.any((np.diff(t.src) == 0) & (np.diff(t.dst) == 0))
    graph = (nx.MultiDiGraph if parallel else nx.DiGraph)(name=t.name)
    for node, name in enumerate(names):
        rank = {"rank": node} if t.kind[node] == NPU else {}
        coord = tuple(t.coords[node].tolist())
        hop_latency_s = int(t.hop_latency_ps[node]) / PS_PER_S
        graph.add_node(name, kind=KIND_NAMES[t.kind[node]], **rank, coord=coord, hop_latency_s=hop_latency_s)
    columns = (t.src, t.dst, t.bandwidth_Bps, t.latency_ps, t.dimension)
    for src, dst, rate, time, dimension in zip(*(column.tolist() for column in columns), strict=True):
        link = {"bandwidth_Bps": rate, "latency_s": time / PS_PER_S, "dimension": dimension}
        graph.add_edge(names[src], names[dst], **link)
    return graph


def _graph(value: object, what: str) -> object:
    import networkx as nx  # heavy: loaded where it is used

    if not isinstance(value, nx.Graph):
        raise WeftError(f"{what} is {told(value)}: give a networkx.DiGraph")
    return value


@checked
def from_networkx(graph: Annotated[Any, Reads(_graph)], name: str | None = None) -> Topology:
    """The topology described by a networkx graph; the module docstring lists the attributes.

    Parameters
    ----------
    graph : networkx.DiGraph or networkx.MultiDiGraph
        Switches keep their order; NPUs are ordered by rank.
    name : str, optional
        Overrides the graph's own name.

    Raises
    ------
    WeftError
        An undirected graph, an unknown or missing attribute, a bad value, or ranks that are not 0 to n_npus-1.
    """
    name = name or str(graph.graph.get("name") or "graph")
    if not graph.is_directed():
        raise WeftError(f"topology {name}: the graph is undirected; give one edge per direction of a cable")
    _check_keys(graph.graph, _GRAPH_KEYS | _READER_KEYS, f"topology {name}: graph")
    nodes = _node_order(graph, name)
    index = {node: number for number, node in enumerate(nodes)}
    kind = [_kind(graph.nodes[node], f"topology {name}: node {node}") for node in nodes]
    links = [
        (index[src], index[dst], *link)
        for src, dst, data in graph.edges(data=True)
        for link in _links(data, f"topology {name}: edge {src}->{dst}")
    ]
    src, dst, rate, time, dimension = zip(*links, strict=True) if links else ((),) * 5
    shape, coords = _coordinates(graph, nodes, kind.count(NPU), name)
    return Topology(
        name=name, kind=np.array(kind, np.int8), src=np.array(src, np.int32), dst=np.array(dst, np.int32),
        bandwidth_Bps=np.array(rate, np.float64), latency_ps=np.array(time, np.int64),
        hop_latency_ps=np.array([_hop_latency(graph.nodes[node], name, node) for node in nodes], np.int64),
        dimension=np.array(dimension, np.int16), shape=shape, coords=coords, router=ShortestPathRouter(),
        node_names=tuple(map(str, nodes)),
    )


@checked
def write_topology(topology: Topology, path: str | Path) -> None:
    """Write a topology as GraphML or node-link JSON, by the suffix of the file name.

    Raises
    ------
    WeftError
        Unknown suffix.
    """
    import networkx as nx  # heavy: loaded where it is used

    path, graph = Path(path), to_networkx(topology)
    if _suffix(path) == ".json":
        path.write_text(json.dumps(nx.node_link_data(graph, edges="edges"), indent=1) + "\n", encoding="utf-8")
        return
    for _, data in graph.nodes(data=True):
        data["coord"] = ",".join(map(str, data["coord"]))
    nx.write_graphml(graph, path)


@checked
def read_topology(path: str | Path) -> Topology:
    """Read a topology from GraphML or node-link JSON, by the suffix of the file name.

    Raises
    ------
    WeftError
        No such file, an unknown suffix, malformed text, or a bad attribute.
    """
    path = Path(path)
    _suffix(path)
    return parse_topology(read_input(path, "topology file"), path)


def parse_topology(text: str, path: str | Path, **given: Any) -> Topology:
    """The network described by a text, GraphML or node-link JSON according to the suffix of its file.

    `given`: bandwidth, latency and hop_latency, of a graph of another tool.
    WeftError: as for `read_topology`, or a quantity that the file itself specifies.
    """
    path = Path(path)
    read: Callable[[str, Path], nx.DiGraph] = _read_json if _suffix(path) == ".json" else _read_graphml
    graph = read(text, path)
    if is_foreign(graph):
        return foreign_graph(graph, str(path), **given)
    for field, value in given.items():
        raise WeftError(f"topology file {str(path)!r} specifies its own {field}: omit {field} {value!r}")
    return replace(from_networkx(graph, name=str(path)), name=path.name)  # messages have the whole path


def _suffix(path: Path) -> str:
    if path.suffix not in SUFFIXES:
        raise WeftError(f"topology file {path} has the suffix {path.suffix!r}: write {' or '.join(SUFFIXES)}")
    return path.suffix


def _read_graphml(text: str, path: Path) -> nx.DiGraph:
    import networkx as nx  # heavy: loaded where it is used

    for declaration in ("<!DOCTYPE", "<!ENTITY", "\0"):
        if declaration in text.upper():
            raise WeftError(f"topology file {path} has a {declaration!r}: only plain GraphML is read")
    try:
        check_graphml(fromstring(text), f"topology file {path}")
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # networkx reads a key without a type as text, with only a warning
            return nx.read_graphml(io.BytesIO(text.encode()))
    except WeftError:
        raise
    except (ParseError, nx.NetworkXException, LookupError, ValueError, AttributeError, TypeError, UserWarning) as error:
        raise WeftError(f"topology file {path} is not GraphML: {error}") from None


def _read_json(text: str, path: Path) -> nx.DiGraph:
    import networkx as nx  # heavy: loaded where it is used

    data = parse_json(text, f"topology file {path}")
    if not isinstance(data, dict) or not isinstance(data.get("nodes"), list):
        raise WeftError(f"topology file {path} is not a node-link graph: it needs the keys nodes and edges")
    if not isinstance(data.get("graph", {}), dict):
        raise WeftError(f"topology file {path} is not a node-link graph: the key graph must hold names and values")
    edges = "links" if "links" in data and "edges" not in data else "edges"
    _check_keys(data, _JSON_KEYS | {edges}, f"topology file {path}")
    try:
        check_node_link(data, edges, f"topology file {path}")
        return nx.node_link_graph(data, directed=False, edges=edges)
    except (KeyError, TypeError, ValueError, AttributeError, nx.NetworkXError) as error:
        raise WeftError(f"topology file {path} is not a node-link graph: {type(error).__name__} {error}") from None


def _check_keys(data: Mapping[str, Any], accepted: set[str], what: str) -> None:
    for key in data:
        if key not in accepted:
            known = ", ".join(sorted(accepted - _READER_KEYS))
            raise WeftError(f"{what} has the unknown key {key!r}: accepted are {known}")


def _needed(data: Mapping[str, Any], key: str, what: str) -> Any:
    if key not in data:
        raise WeftError(f"{what} lacks the key {key!r}")
    return data[key]


def _number(data: Mapping[str, Any], key: str, what: str) -> float:
    return number(_needed(data, key, what), f"{what} {key}")


def _kind(data: Mapping[str, Any], what: str) -> int:
    _check_keys(data, _NODE_KEYS, what)
    kind = _needed(data, "kind", what)
    if kind not in KIND_NAMES:
        raise WeftError(f"{what} has the kind {kind!r}: accepted are {', '.join(KIND_NAMES)}")
    if kind != KIND_NAMES[NPU] and "rank" in data:
        raise WeftError(f"{what} is a {kind} and has the rank {data['rank']!r}: only an NPU has one")
    return KIND_NAMES.index(kind)


def _node_order(graph: nx.DiGraph, name: str) -> list[Any]:
    """NPUs by rank, then the others in file order."""
    npus: dict[Any, Any] = {}
    others = []
    for node, data in graph.nodes(data=True):
        what = f"topology {name}: node {node}"
        if _kind(data, what) != NPU:
            others.append(node)
            continue
        rank = integer(_needed(data, "rank", what), f"{what} rank", 0)
        if rank in npus:
            raise WeftError(f"{what} has the rank {rank}, already taken by node {npus[rank]}")
        npus[rank] = node
    for rank in range(len(npus)):
        if rank not in npus:
            raise WeftError(f"topology {name}: no node has the rank {rank}; ranks are 0 to {len(npus) - 1}")
    return [npus[rank] for rank in range(len(npus))] + others


def _links(data: Mapping[str, Any], what: str) -> list[tuple[float, int, int]]:
    """Bandwidth, latency and dimension of each parallel link that an edge represents."""
    _check_keys(data, _EDGE_KEYS, what)
    rate = from_bytes_per_s(_number(data, "bandwidth_Bps", what), f"{what} bandwidth_Bps")
    time = from_seconds(_number(data, "latency_s", what), f"{what} latency_s")
    dimension = integer(data.get("dimension", -1), f"{what} dimension", -1, MOST_SMALL)
    return [(rate, time, dimension)] * integer(data.get("count", 1), f"{what} count", 1, MOST_SMALL)


def _hop_latency(data: Mapping[str, Any], name: str, node: Any) -> int:
    if "hop_latency_s" not in data:
        return 0
    what = f"topology {name}: node {node}"
    return from_seconds(_number(data, "hop_latency_s", what), f"{what} hop_latency_s")


def _coordinates(
    graph: nx.DiGraph, nodes: list[Any], n_npus: int, name: str
) -> tuple[tuple[int, ...], npt.NDArray[np.int32]]:
    given = [node for node in nodes if "coord" in graph.nodes[node]]
    if not given:
        return (n_npus,), rank_coordinates(n_npus, len(nodes))
    coords = [_coordinate(graph.nodes[node], f"topology {name}: node {node}") for node in nodes]
    for node, coord in zip(nodes, coords, strict=True):
        if len(coord) != len(coords[0]):
            raise WeftError(f"topology {name}: node {node} has {len(coord)} coordinates, others {len(coords[0])}")
    table = np.array(coords, np.int32)
    shape = tuple(int(last) + 1 for last in table[:n_npus].max(axis=0, initial=-1))
    digits = np.indices(shape[::-1]).reshape(len(shape), -1)[::-1].T if math.prod(shape) == n_npus else None
    if digits is None or not np.array_equal(table[:n_npus], digits):
        raise WeftError(
            f"topology {name}: the coordinates of the NPUs do not count through {'x'.join(map(str, shape))} in rank "
            "order, first dimension fastest; correct them, or omit all coordinates"
        )
    if len(set(map(tuple, coords))) != len(coords):
        raise WeftError(f"topology {name}: two nodes have the same coordinates; each node needs its own")
    return shape, table


def _coordinate(data: Mapping[str, Any], what: str) -> list[int]:
    coord = _needed(data, "coord", what)
    try:
        numbers = [int(part) for part in (coord.split(",") if isinstance(coord, str) else coord)]
    except (TypeError, ValueError):
        raise WeftError(f"{what} has the coord {coord!r}: give integers, such as [1, 0] or \"1,0\"") from None
    if not numbers or any(not -(2**31) <= number < 2**31 for number in numbers):
        raise WeftError(f"{what} has the coord {coord!r}: give at least one integer")
    return numbers
