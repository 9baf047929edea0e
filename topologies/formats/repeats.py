"""What a graph file gives twice, of which networkx keeps the last in silence."""

from collections.abc import Hashable, Iterable, Mapping
from typing import Any
from xml.etree.ElementTree import Element

from topologies.checks import WeftError, told

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
