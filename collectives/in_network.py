"""In-network aggregation: switches reduce what passes through them and multicast the results.

Partial sums go up a tree chunk by chunk, as soon as all children of a node have delivered the chunk; the result comes
down with one copy on each link. A node with a reduction unit (`topologies.with_reduction_units`) routes arriving data
through the unit.
"""

from collections.abc import Sequence
from typing import Annotated

import numpy as np

from collectives.core.builders import by_wiring, of_kind
from collectives.core.collective import collective
from collectives.core.pattern import Pattern, Smaller
from collectives.core.schedule import ELEMENT_BYTES, Schedule, schedule
from collectives.trees.aggregation import AggregationTree, check_tree, minimum_depth_tree
from collectives.trees.edge_disjoint import edge_disjoint_trees
from collectives.trees.flows import MOST_TRANSFERS, Flows, small_network, small_rails
from collectives.trees.owned import has_units, is_plain, owned_pattern
from topologies import SWITCH, Topology, WeftError
from topologies.checks import Choice, Count, checked, integer
from topologies.core.reduction_units import unit_of
from topologies.units import Quantity

NAME = "in-network"
FORMS = ("push", "pull", "rail-wise")
MOST_WAITS = 5_000_000
"""Limit on waits of a schedule, each listed in Python: about twenty seconds."""

MOST_OWNED = 3_000_000, 40_000_000
"""The same limits, on transfers and on waits, of blocks that ranks own, as arrays: within a minute and 3 GiB."""

Trees = tuple[AggregationTree, ...]


@checked
def all_reduce(
    topology: Topology, size: Quantity, *, form: Annotated[str, Choice(FORMS)] = "push",
    trees: int | Sequence[AggregationTree] = 1, slots: Count | None = None, routers: bool = False,
    element_bytes: int = ELEMENT_BYTES,
) -> Schedule:
    """In-network all-reduce.

    Pull is what NVLink SHARP does with five or more GPUs. On two to four H100 it gains nothing over the ring: the
    measured bus bandwidth is 365 to 370 GB/s with either, where (1 + 1/n) m at 0.835 x 370 GB/s would be 206, 309 and
    371 GB/s; the library uses the ring there. From five GPUs on the model holds: 412 against 420 measured, and 481
    against 480 at eight. On `dgx-h100`, which says so (`Topology.aggregation`), every schedule that reduces in its
    switches, of whatever algorithm, runs at that share of the bandwidth of their links.

    `form`: "push" (SwitchML, SHARP): every rank sends the array up, the root sends the sum down; m in each direction.
        "pull" (NVLS): rank b loads the sum of block b from all ranks, then stores it to all; m + m/n in each direction.
        "rail-wise": reduce-scatter along dimension 0, the node; in-network all-reduce of each part along its rail, the
        other dimensions; all-gather along dimension 0; chunks of all three follow each other.
    `trees`: trees over which the array is striped: a number of edge-disjoint trees, or given ones. "rail-wise" has one
        per rail.
    `slots`: chunks a rank may have in flight per tree: it sends chunk j when it has the result of chunk j - slots, so a
        switch holds `slots` chunks for each tree it is part of, not in total. Only for "push"; default: unbounded.
    `routers`: whether the routers of NPUs reduce; required on a torus.
    WeftError: no tree, an inner tree node that does not reduce, or an option that the form does not take.
    """
    if slots is not None and form != "push":
        raise WeftError(f"in-network all-reduce ({form}) takes no slots: only push has a window")
    if form == "rail-wise" and trees != 1:
        raise WeftError(f"in-network all-reduce (rail-wise) has one tree per rail and takes no trees: {trees!r}")
    return _schedule("all-reduce", topology, size, element_bytes, trees, routers, form=form, slots=slots)


def _of_all(
    kind: str, topology: Topology, size: Quantity, *, trees: int | Sequence[AggregationTree] = 1, routers: bool = False,
    element_bytes: int = ELEMENT_BYTES,
) -> Schedule:
    return _schedule(kind, topology, size, element_bytes, trees, routers)


def _rooted(
    kind: str, topology: Topology, size: Quantity, *, root: int = 0, trees: int | Sequence[AggregationTree] = 1,
    routers: bool = False, element_bytes: int = ELEMENT_BYTES,
) -> Schedule:
    return _schedule(kind, topology, size, element_bytes, trees, routers, integer(root, "root", 0, topology.n_npus - 1))


reduce_scatter = of_kind("reduce-scatter", _of_all, """
    Every rank sends the array up, and each block of the sum goes down to its owner only.""")
all_gather = of_kind("all-gather", _of_all, """
    Every rank sends its block up once, and the root multicasts it to all others.""")
broadcast = of_kind("broadcast", _rooted, "The root sends the array up once; switches copy it.")
reduce = of_kind("reduce", _rooted, "Every rank sends the array up, and the sum goes down to the root only.")


def _schedule(
    kind: str, topology: Topology, size: Quantity, element_bytes: int, trees: int | Sequence[AggregationTree],
    routers: bool, root: int = 0, *, form: str = "push", slots: int | None = None,
) -> Schedule:
    topology = topology.as_it_reduces()
    pattern = _pattern(topology, kind, form, _known(topology, trees, routers), slots, routers, root)
    return schedule(pattern, size, element_bytes)


def _known(topology: Topology, trees: int | Sequence[AggregationTree], routers: bool) -> int | Trees:
    """A number of trees, or given trees, validated against the network."""
    if isinstance(trees, int):
        return integer(trees, "trees", 1)
    if not trees:
        raise WeftError(f"trees is {trees!r}: give at least one AggregationTree")
    for tree in trees:
        check_tree(topology, tree, routers=routers)
    return tuple(trees)


@by_wiring
def _pattern(
    topology: Topology, kind: str, form: str, trees: int | Trees, slots: int | None, routers: bool, root: int
) -> Pattern:
    n_trees, own = trees if isinstance(trees, int) else len(trees), _is_owned(kind, form) and not has_units(topology)
    _refuse_too_many(topology, kind, form, n_trees, own)
    built = () if form == "rail-wise" else _trees(topology, trees, routers)

    def small() -> Pattern:
        if form == "rail-wise":
            return _pattern(small_rails(topology), kind, form, 1, None, True, 0)
        fewer = small_network(topology, built)
        count = min(len(built), 2)
        return _pattern(fewer, kind, form, count, slots, routers, min(root, fewer.n_npus - 1))

    its_form = form if kind == "all-reduce" else ""
    if own and is_plain(topology, built):
        rows = 2 * topology.n_npus * sum(len(tree.parent) for tree in built)  # up and down
        if rows > MOST_OWNED[0]:
            what = f"in-network {kind}{f' ({form})' if its_form else ''} on {topology.name}"
            raise WeftError(f"{what} would take {rows:,} transfers, more than {MOST_OWNED[0]:,}: use fewer ranks")
        return owned_pattern(topology, built, kind, NAME, its_form, Smaller(small))
    _refuse_too_many(topology, kind, form, n_trees)
    flows = Flows(topology)
    if form == "rail-wise":
        n_blocks = _rail_wise(flows, routers)
    elif kind == "all-reduce" and form == "push":
        n_blocks = _push(flows, built, slots)
    elif kind == "all-reduce":
        n_blocks = _pull(flows, built)
    else:
        n_blocks = _one_way(flows, built, kind, root)
    return flows.pattern(kind, NAME, its_form, n_blocks, root, Smaller(small))


def _is_owned(kind: str, form: str) -> bool:
    """Whether each block has an owner."""
    return form == "pull" or kind in ("reduce-scatter", "all-gather")


def _refuse_too_many(topology: Topology, kind: str, form: str, n_trees: int, own: bool = False) -> None:
    """Estimated from the fact that each block goes up and down its tree separately. `own`: its rows are arrays."""
    blocks = n_trees
    if _is_owned(kind, form):
        blocks = topology.n_npus * n_trees
    elif form == "rail-wise":
        blocks = topology.shape[0]
    most_transfers, most_waits = MOST_OWNED if own else (MOST_TRANSFERS, MOST_WAITS)
    what = f"in-network {kind}{'' if form == 'push' else f' ({form})'} on {topology.name}"
    if blocks * topology.n_nodes > most_transfers:
        raise WeftError(
            f"{what} would send {blocks:,} blocks "
            f"one by one over {topology.n_nodes:,} nodes, more than {most_transfers:,} transfers: use fewer ranks"
        )
    fan_in = np.bincount(topology.dst[topology.src < topology.n_npus], minlength=topology.n_nodes)
    fan_in = fan_in[:topology.n_npus] if own else fan_in[topology.kind == SWITCH]  # an owner is the root of its blocks
    waits = blocks * int(fan_in.max(initial=0)) ** 2
    if waits > most_waits:
        raise WeftError(
            f"{what}: every copy that a node sends waits for all {fan_in.max():,} that arrive there, up to "
            f"{waits:,} waits, more than {most_waits:,}: use nodes of fewer ports"
        )


def _trees(topology: Topology, trees: int | Trees, routers: bool) -> Trees:
    if isinstance(trees, tuple):
        return trees
    if topology.n_npus == 1:
        return (AggregationTree(0, ()),) * trees
    return edge_disjoint_trees(topology, trees, routers=routers)


def _push(flows: Flows, trees: Trees, slots: int | None) -> int:
    everyone = range(flows.topology.n_npus)
    for block, tree in enumerate(trees):
        sent, at_root = flows.collect(tree, everyone, (block,))
        received = flows.spread(tree, everyone, (block,), at_root)
        for rank in everyone if slots is not None else ():
            if rank in sent and rank in received:
                flows.relays.wait(sent[rank], received[rank], slots or 1)
    return len(trees)


def _pull(flows: Flows, trees: Trees) -> int:
    p = flows.topology.n_npus
    for block in range(p * len(trees)):
        owner = block % p
        tree = flows.near(trees[block // p], owner)
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
        alone = len(sources) == 1  # nothing to reduce: nodes store what arrives
        if len(wanted) == 1 or alone:
            tree = flows.near(tree, next(iter(sources if alone else wanted)))
        _, at_root = flows.collect(tree, sources, (block,), again=alone)
        flows.spread(tree, set(wanted) - set(sources) if alone else wanted, (block,), at_root)
    return n_blocks


def _rail_wise(flows: Flows, routers: bool) -> int:
    """Block r is reduced at rank r of every node, then over rail r, and gathered again."""
    topology = flows.topology
    if len(topology.shape) < 2:
        raise WeftError(
            f"rail-wise aggregation needs at least two dimensions, the node and the rails: {topology.name} "
            f"has {len(topology.shape)}"
        )
    units = np.flatnonzero(unit_of(topology)[: topology.n_npus] != np.arange(topology.n_npus))
    if units.size:
        raise WeftError(
            f"rail-wise aggregation reduces twice at an NPU, for its node and for its rail, but a reduction unit "
            f"holds one sum per block: {topology.name} has a unit behind {topology.node_name(int(units[0]))}"
        )
    width, nodes = topology.shape[0], topology.n_npus // topology.shape[0]
    outside = range(1, int(topology.dimension.max(initial=0)) + 1)
    for r in range(width):
        rail = [r + width * node for node in range(nodes)]
        inside = [range(width * node, width * (node + 1)) for node in range(nodes)]
        across = minimum_depth_tree(topology, members=rail, routers=routers, dimensions=outside)
        local = [
            minimum_depth_tree(topology, members=inside[i], root=rail[i], routers=routers, dimensions=(0,))
            for i in range(nodes)
        ]
        partial = {rail[node]: flows.collect(local[node], inside[node], (r,))[1] for node in range(nodes)}
        _, at_root = flows.collect(across, rail, (r,), partial)
        received = flows.spread(across, rail, (r,), at_root)
        for node in range(nodes):
            done = [received[rail[node]]] if rail[node] in received else at_root
            flows.spread(local[node], set(inside[node]) - {rail[node]}, (r,), done)
    return width
