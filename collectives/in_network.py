"""Aggregation in the network: switches add up what passes through them, and send results to many.

A partial sum goes up a tree chunk by chunk, as soon as all children of a node have delivered the chunk; the result
comes down with one copy on each link. A node with a reduction unit (`topologies.with_reduction_units`) sends what
arrives through it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from collectives.aggregation_tree import AggregationTree, edge_disjoint_trees, minimum_depth_tree
from collectives.collective import collective
from collectives.families import ENOUGH_RANKS, shrink
from collectives.flows import Flows
from collectives.forms import check_form
from collectives.pattern import Pattern
from collectives.schedule import ELEMENT_BYTES, Schedule, schedule
from topologies import Topology, WeftError
from topologies.units import Quantity

NAME = "in-network"
FORMS = ("push", "pull", "rail-wise")
MOST_TRANSFERS = 4_000_000

Trees = tuple[AggregationTree, ...]


def all_reduce(
    topology: Topology,
    size: Quantity,
    *,
    form: str = "push",
    trees: int | Trees = 1,
    slots: int | None = None,
    routers: bool = False,
    element_bytes: int = ELEMENT_BYTES,
) -> Schedule:
    """All-reduce in the network.

    Parameters
    ----------
    topology : Topology
    size : quantity
        Bytes of the array.
    form : {"push", "pull", "rail-wise"}
        "push" (SwitchML, SHARP): every rank sends the array up, the root sends the sum down; m each way.
        "pull" (NVLS): rank b loads the sum of block b from all ranks, then stores it to all; m + m/n each way.
        "rail-wise": reduce-scatter along dimension 0, in-network all-reduce of each part along the rail of
        dimension 1, all-gather along dimension 0; chunks of all three follow each other.
    trees : int or tuple of AggregationTree
        Trees over which the array is striped: edge-disjoint ones are built. Not for "rail-wise".
    slots : int, optional
        Chunks that a rank may have in the tree: it sends chunk j when it has the result of chunk j - slots. For
        "push"; unbounded unless given.
    routers : bool
        Whether the routers of NPUs reduce, as a torus needs.
    element_bytes : int

    Raises
    ------
    WeftError
        No tree, or an option that the form does not take.
    """
    check_form(NAME, form, FORMS)
    if form != "push" and slots is not None:
        raise WeftError(f"in-network all-reduce ({form}) takes no slots: they are the window of push")
    if slots is not None and slots < 1:
        raise WeftError(f"{slots} slots: at least 1")
    return schedule(_pattern(topology, "all-reduce", form, _known(trees), slots, routers, 0), size, element_bytes)


def reduce_scatter(
    topology: Topology, size: Quantity, *, trees: int | Trees = 1, routers: bool = False,
    element_bytes: int = ELEMENT_BYTES,
) -> Schedule:
    """Every rank sends the array up, and each block of the sum goes down to its owner alone."""
    return schedule(_pattern(topology, "reduce-scatter", "push", _known(trees), None, routers, 0), size, element_bytes)


def all_gather(
    topology: Topology, size: Quantity, *, trees: int | Trees = 1, routers: bool = False,
    element_bytes: int = ELEMENT_BYTES,
) -> Schedule:
    """Every rank sends its block up once, and the root sends it to all others: multicast."""
    return schedule(_pattern(topology, "all-gather", "push", _known(trees), None, routers, 0), size, element_bytes)


def broadcast(
    topology: Topology, size: Quantity, *, root: int = 0, trees: int | Trees = 1, routers: bool = False,
    element_bytes: int = ELEMENT_BYTES,
) -> Schedule:
    """The root sends the array up once; switches copy it."""
    return schedule(_pattern(topology, "broadcast", "push", _known(trees), None, routers, root), size, element_bytes)


def reduce(
    topology: Topology, size: Quantity, *, root: int = 0, trees: int | Trees = 1, routers: bool = False,
    element_bytes: int = ELEMENT_BYTES,
) -> Schedule:
    """Every rank sends the array up, and the sum goes down to the root alone."""
    return schedule(_pattern(topology, "reduce", "push", _known(trees), None, routers, root), size, element_bytes)


def _known(trees: int | Sequence[AggregationTree]) -> int | Trees:
    return trees if isinstance(trees, int) else tuple(trees)


@lru_cache(maxsize=64)
def _pattern(
    topology: Topology, kind: str, form: str, trees: int | Trees, slots: int | None, routers: bool, root: int
) -> Pattern:
    p = topology.n_npus
    if not 0 <= root < p:
        raise WeftError(f"root {root} is not one of the {p} ranks of {topology.name}")
    flows = Flows(topology)
    if form == "rail-wise":
        n_blocks = _rail_wise(flows)
    else:
        built = _trees(topology, trees, routers)
        _refuse_too_many(topology, kind, form, len(built))
        if kind == "all-reduce" and form == "push":
            n_blocks = _push(flows, built, slots)
        elif kind == "all-reduce":
            n_blocks = _pull(flows, built)
        else:
            n_blocks = _one_way(flows, built, kind, root)

    def small() -> Pattern:
        fewer = shrink(topology)
        return _pattern(fewer, kind, form, 1, slots, True, root % fewer.n_npus)

    its_form = form if kind == "all-reduce" else ""
    return flows.pattern(kind, NAME, its_form, n_blocks, root, small if p > ENOUGH_RANKS else None)


def _refuse_too_many(topology: Topology, kind: str, form: str, n_trees: int) -> None:
    """Every block of these goes up and down a tree by itself, one row of Python a transfer."""
    by_rank = form == "pull" or kind in ("reduce-scatter", "all-gather")
    if by_rank and topology.n_npus * topology.n_nodes * n_trees > MOST_TRANSFERS:
        raise WeftError(
            f"in-network {kind} on {topology.name} would have more than {MOST_TRANSFERS:,} transfers, a tree for each "
            "of its blocks: take a smaller network"
        )


def _trees(topology: Topology, trees: int | Trees, routers: bool) -> Trees:
    if isinstance(trees, tuple):
        return trees
    if topology.n_npus == 1:
        return (AggregationTree(0, ()),) * max(trees, 1)
    return edge_disjoint_trees(topology, trees, routers=routers)


def _push(flows: Flows, trees: Trees, slots: int | None) -> int:
    everyone = range(flows.topology.n_npus)
    for block, tree in enumerate(trees):
        sent, at_root = flows.collect(tree, everyone, (block,))
        received = flows.spread(tree, everyone, (block,), at_root)
        for rank in everyone if slots is not None else ():
            if rank in sent and rank in received:
                flows.relays.window(sent[rank], received[rank], slots or 1)
    return len(trees)


def _pull(flows: Flows, trees: Trees) -> int:
    p = flows.topology.n_npus
    for block in range(p * len(trees)):
        tree, owner = trees[block // p], block % p
        _, at_root = flows.collect(tree, range(p), (block,))
        loaded = flows.spread(tree, (owner,), (block,), at_root)
        feed = {owner: [loaded[owner]]} if owner in loaded else {owner: at_root}
        _, stored = flows.collect(tree, (owner,), (block,), feed, again=True)
        flows.spread(tree, range(p), (block,), stored)
    return p * len(trees)


def _one_way(flows: Flows, trees: Trees, kind: str, root: int) -> int:
    what, p = collective(kind), flows.topology.n_npus
    n_blocks = what.blocks_multiple(p) * len(trees)
    for block in range(n_blocks):
        tree = trees[block * len(trees) // n_blocks]
        sources, wanted = what.sources(block, p, root), what.wanted_by(block, p, root)
        alone = len(sources) == 1  # nothing to add up: nodes keep what arrives
        _, at_root = flows.collect(tree, sources, (block,), again=alone)
        flows.spread(tree, set(wanted) - set(sources) if alone else wanted, (block,), at_root)
    return n_blocks


def _rail_wise(flows: Flows) -> int:
    """Block r is reduced at rank r of every node, over rail r, and gathered again."""
    topology = flows.topology
    if len(topology.shape) != 2:
        raise WeftError(
            f"rail-wise aggregation takes networks of two dimensions, the node and the rails: {topology.name} has "
            f"{len(topology.shape)}"
        )
    width, nodes = topology.shape
    for r in range(width):
        rail = [r + width * node for node in range(nodes)]
        inside = [range(width * node, width * (node + 1)) for node in range(nodes)]
        local = [minimum_depth_tree(topology, members=inside[i], root=rail[i], dimension=0) for i in range(nodes)]
        partial = {rail[node]: flows.collect(local[node], inside[node], (r,))[1] for node in range(nodes)}
        done = partial
        if nodes > 1:
            across = minimum_depth_tree(topology, members=rail, dimension=1)
            _, at_root = flows.collect(across, rail, (r,), partial)
            done = {rank: [row] for rank, row in flows.spread(across, rail, (r,), at_root).items()}
        for node in range(nodes):
            flows.spread(local[node], set(inside[node]) - {rail[node]}, (r,), done[rail[node]])
    return width
