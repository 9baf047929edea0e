"""Schedule files in place of an algorithm name, proved when read: of MSCCL, MSCCL++, ForestColl and TE-CCL.

A ForestColl file has trees with their physical paths (liangyuRain/ForestColl).
"""

import hashlib
import os
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from functools import lru_cache, partial

import numpy as np

from collectives.core.builders import by_wiring
from collectives.core.pattern import Pattern
from collectives.core.routes import paths_of
from collectives.core.schedule import ELEMENT_BYTES, Schedule, schedule
from collectives.formats.msccl import msccl_pattern
from collectives.formats.msccl_order import Cut, cut_of
from collectives.formats.msccl_program import RUNTIMES, Algo, not_run, parse_msccl, told_limits
from collectives.formats.mscclpp import RACES, plan_pattern
from collectives.formats.mscclpp import Cut as PlanCut
from collectives.formats.mscclpp import cut_of as plan_cut_of
from collectives.formats.mscclpp_plan import Plan, parse_plan
from collectives.formats.names import called
from collectives.formats.teccl import is_teccl, read_teccl, teccl_schedule
from collectives.trees.forest import Edge, Forest, Tree, forest_pattern
from topologies import Topology, WeftError
from topologies.checks import choice
from topologies.text.input_text import read_input, stamp_of
from topologies.text.plain_xml import Element, parse_xml
from topologies.units import Quantity, parse_size

_FORESTCOLL = re.compile(r"<tree[\s>]")


def functions_of(path: str) -> Mapping[str, Callable[..., Schedule]]:
    """What a file implements, as in the registry: a function (topology, size, *, element_bytes) for each collective.

    WeftError: a file that cannot be read or is of no format that is known.
    """
    text = _text(path)
    if is_teccl(text):
        return {read_teccl(text, path)[0]: partial(_build_teccl, path)}
    if path.endswith(".json"):
        return {_plan(text, path).kind: partial(_build_plan, path)}
    if _FORESTCOLL.search(text):
        return {"all-gather": partial(_build_forestcoll, path)}
    return {_parsed(text, path).kind: partial(_build_msccl, path)}


def check_is_no_file(name: str) -> None:
    """WeftError: a name is that of a file of another suffix, and what the file is is known."""
    if "\0" not in name and os.path.isfile(name):
        read_input(name, "schedule file")


def _build_forestcoll(path: str, topology: Topology, size: Quantity, *, element_bytes: int = ELEMENT_BYTES) -> Schedule:
    return schedule(_forestcoll(topology, path, _text(path)), size, element_bytes)


def _build_teccl(path: str, topology: Topology, size: Quantity, *, element_bytes: int = ELEMENT_BYTES) -> Schedule:
    return teccl_schedule(_text(path), called(path), topology, size, element_bytes)


def _build_msccl(
    path: str, topology: Topology, size: Quantity, *, runtime: str = "", element_bytes: int = ELEMENT_BYTES
) -> Schedule:
    """The schedule of a program; of a runtime that is named, all limits hold, and others are noted."""
    text, size_bytes = _text(path), parse_size(size, "size")
    algo = _parsed(text, path)
    if runtime and (why := not_run(algo, choice(runtime, RUNTIMES, "runtime"), size_bytes)):
        raise WeftError(f"{runtime} does not run {path}: {why}")
    note = "" if runtime else told_limits(algo, size_bytes)
    return schedule(_msccl(topology, path, text, cut_of(algo, size_bytes), note), size, element_bytes)


def _build_plan(
    path: str, topology: Topology, size: Quantity, *, races: str = "practical", element_bytes: int = ELEMENT_BYTES
) -> Schedule:
    text, size_bytes = _text(path), parse_size(size, "size")
    plan = _plan(text, path)
    cut, note = plan_cut_of(plan, size_bytes), plan.told(size_bytes)
    topology = topology.as_it_reduces() if plan.is_switched() else topology
    return schedule(_planned(topology, path, text, cut, choice(races, RACES, "races"), note), size, element_bytes)


def options_of(path: str) -> Mapping[str, str]:
    """The options of a file, described."""
    if is_teccl(_text(path)):
        return {}
    if path.endswith(".json"):
        return {"races": f"of MSCCL++, {', '.join(RACES)}: whether relaxed signals order data (default) or not, or "
                         "a plan that races is simulated with a note"}
    return {"runtime": f"of MSCCL, whose limits hold: {', '.join(RUNTIMES)} (default: the widest; others are noted)"}


def file_digest(path: str) -> str:
    """A digest of the content of a schedule file.

    WeftError: it cannot be read.
    """
    return _read(path, stamp_of(path))[1]


def _text(path: str) -> str:
    return _read(path, stamp_of(path))[0]


@lru_cache(maxsize=64)
def _read(path: str, stamp: tuple[int | bytes, ...]) -> tuple[str, str]:
    """The text and its digest; read again if the file has changed."""
    text = read_input(path, "schedule file")
    return text, hashlib.sha256(text.encode()).hexdigest()


@lru_cache(maxsize=8)
def _parsed(text: str, path: str) -> Algo:
    return parse_msccl(text, path)


@lru_cache(maxsize=8)
def _plan(text: str, path: str) -> Plan:
    return parse_plan(text, path)


@by_wiring
def _planned(topology: Topology, path: str, text: str, cut: PlanCut, races: str, note: str) -> Pattern:
    return plan_pattern(_plan(text, path), topology, cut, races, note, called(path))


@by_wiring
def _forestcoll(topology: Topology, path: str, text: str) -> Pattern:
    return all_gather_pattern(parse_forestcoll(text, topology, path), called(path))


@by_wiring
def _msccl(topology: Topology, path: str, text: str, cut: Cut, note: str) -> Pattern:
    return msccl_pattern(_parsed(text, path), topology, cut, note, called(path))


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
    said, counts = root.attributes.get("nchunkspernode"), Counter[int]()
    for tree in forest.trees:
        counts[tree.root] += tree.multiplicity
    if said is not None and {root.whole("nchunkspernode", 1)} != set(counts.values()):
        raise WeftError(f"{name}: nchunkspernode is {said}, and trees of a root have {min(counts.values())} chunks")
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


Way = tuple[int, ...]


def to_forestcoll(schedule: Schedule) -> str:
    """An all-gather along any trees as XML, by the nodes that its transfers cross; blocks of the same tree are chunks.

    WeftError: another collective, blocks without names or unequal, or a block that reaches a rank twice.
    """
    pattern, topology, p = schedule.pattern, schedule.topology, schedule.pattern.p
    if pattern.kind.name != "all-gather" or pattern.is_unnamed or not pattern.is_of_ranks:
        raise WeftError(f"ForestColl XML of {pattern.name} {pattern.kind.name}: it has the trees of an all-gather")
    t = pattern.transfers()
    paths, sends = paths_of(t, topology), defaultdict[int, dict[int, Way]](dict)
    for row, (source, slot, to) in enumerate(zip(t.src.tolist(), t.slot.tolist(), t.dst.tolist(), strict=True)):
        ends = topology.dst[paths.links[paths.ptr[row] : paths.ptr[row + 1]]].tolist()
        for block in pattern.blocks_of(source, slot):
            if to in sends[block]:
                raise WeftError(f"ForestColl XML of {pattern.name}: block {block} reaches {to} twice: no tree")
            sends[block][to] = (source, *ends)
    trees: dict[tuple[int, tuple[Way, ...]], int] = defaultdict(int)
    for block in range(pattern.n_blocks):
        trees[block % p, _breadth_first(block % p, sends[block])] += 1
    lines, index = [f'<Algo nchunkspernode="{pattern.n_blocks // p}">'], np.zeros(p, np.int64)
    for (root, edges), many in trees.items():
        depth = {root: 0}
        for edge in edges:
            depth[edge[-1]] = depth[edge[0]] + 1
        lines.append(f'  <tree root="{root}" index="{index[root]}" nchunks="{many}" height="{max(depth.values())}">')
        lines += [f'    <send src="{edge[0]}" dst="{edge[-1]}" path="{",".join(map(str, edge))}"/>' for edge in edges]
        lines.append("  </tree>")
        index[root] += many
    return "\n".join([*lines, "</Algo>"]) + "\n"


def _breadth_first(root: int, sends: dict[int, Way]) -> tuple[Way, ...]:
    """The edges of a tree, those of a parent before those of its children."""
    children = defaultdict[int, list[Way]](list)
    for way in sends.values():
        children[way[0]].append(way)
    found = list(children[root])
    for way in found:
        found += children[way[-1]]
    return tuple(found)
