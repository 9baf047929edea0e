"""ForestColl tree XML, read: trees with their physical paths (liangyuRain/ForestColl)."""

from __future__ import annotations

import numpy as np

from collectives.core.pattern import Pattern
from collectives.trees.forest import Edge, Forest, Tree
from collectives.trees.pattern import forest_pattern
from topologies import Topology, WeftError
from topologies.text.plain_xml import Element, parse_xml


def parse_forestcoll(text: str, topology: Topology, name: str = "ForestColl XML") -> Forest:
    """The forest in a text; nodes are given by index or name.

    WeftError: not a ForestColl file, an unknown node, a path without a link, or trees that do not span all NPUs.
    """
    root = parse_xml(text, name)
    if root.tag.lower() != "algo" or not root.all("tree"):
        raise WeftError(f"{name} has the root <{root.tag}>: a ForestColl file is <Algo> with <tree>s")
    forest = Forest(topology, tuple(_tree(tree, topology, name) for tree in root.all("tree")))
    try:
        forest.check()
    except WeftError as wrong:
        raise WeftError(f"{name}: {wrong}") from None
    return forest


def all_gather_pattern(forest: Forest, name: str = "forestcoll") -> Pattern:
    """The all-gather along an imported forest, proved."""
    return forest_pattern(forest.topology, "all-gather", name, down=forest)


def _tree(element: Element, topology: Topology, name: str) -> Tree:
    what = f"{name}: tree of root {element.attributes.get('root')}"
    root = _node(element.attributes.get("root"), topology, what)
    edges = tuple(_edge(send, topology, what) for send in element.all("send"))
    return Tree(root, element.whole("nchunks", 1) if "nchunks" in element.attributes else 1, edges)


def _edge(element: Element, topology: Topology, what: str) -> Edge:
    parent, child = (_node(element.attributes.get(end), topology, what) for end in ("src", "dst"))
    path = element.attributes.get("path")
    if path is None:
        return Edge(parent, child)
    nodes = np.array([_node(part.strip(), topology, what) for part in path.split(",")])
    links = topology.link_ids(nodes[:-1], nodes[1:]).tolist()
    if -1 in links:
        at = links.index(-1)
        one, other = (topology.node_name(int(node)) for node in nodes[at : at + 2])
        raise WeftError(f"{what}: the path {path} needs a link {one}->{other}, which {topology.name} lacks")
    return Edge(parent, child, tuple(links))


def _node(text: str | None, topology: Topology, what: str) -> int:
    names = {topology.node_name(node): node for node in range(topology.n_nodes)}
    if text in names:
        return names[text]
    if text is None or not text.isdigit() or int(text) >= topology.n_nodes:
        raise WeftError(f"{what}: no node {text!r} in {topology.name}")
    return int(text)
