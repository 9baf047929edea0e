"""Pipelined trees: bandwidth-optimal collectives on any network, chunk by chunk along packed spanning trees.

Every root has k trees, each with its share of the root's data; together they saturate the tightest cut of the network
("Bandwidth Optimal Pipeline Schedule for Collective Communication", arXiv 2305.18461; ForestColl, arXiv 2402.06787).
The optimum is that of a fluid: a run approaches it with many chunks, shallow trees and links that serve the lowest
chunk first (`discipline="lowest-chunk-first"`). If all chunks of a root are queued from the start, FIFO stays up to
1.46 times above the bound; here a transfer has at most one chunk at its first link, which paces the roots, and FIFO
needs up to twice as many chunks (1.049 against 1.026 at 64 chunks, MI250 reduce-scatter).
"""

from __future__ import annotations

import math

from collectives.core.forms import check_form
from collectives.core.pattern import Pattern
from collectives.core.schedule import ELEMENT_BYTES, Schedule, schedule
from collectives.trees.forest import Forest, reversed_forest
from collectives.trees.pack import broadcast_forest, gather_forest, reduce_forest, scatter_forest
from collectives.trees.pattern import forest_pattern
from collectives.trees.rooted_forest import all_reduce_forests
from collectives.trees.transitive import moved_around, root_trees, transitive_pattern
from topologies import Topology, WeftError
from topologies.flows.tightest_cut import remembered
from topologies.units import Quantity

NAME = "pipelined"
PACK_NPUS = 256
"""Limit on NPUs for packing trees if NPUs differ: two minutes. There is no limit if all NPUs are alike."""

FORMS = ("two-phase", "best-roots")


def all_gather(
    topology: Topology, size: Quantity, *, k: int | None = None, element_bytes: int = ELEMENT_BYTES
) -> Schedule:
    """All-gather along k trees from every root.

    Parameters
    ----------
    topology : Topology
        Any whose NPUs reach each other; switches must send as much as they receive.
    size : quantity
        Bytes of the array.
    k : int, optional
        Trees per root. Default: as many as the optimum takes, or a multiple if that makes them shallower; fewer cost
        bandwidth.
    element_bytes : int

    Raises
    ------
    WeftError
        Unreachable NPUs, or a k that does not fit past the switches.
    """
    return schedule(_pattern(topology, "all-gather", k, ""), size, element_bytes)


def reduce_scatter(
    topology: Topology, size: Quantity, *, k: int | None = None, element_bytes: int = ELEMENT_BYTES
) -> Schedule:
    """Reduce-scatter along k trees toward every root; parameters as for `all_gather`."""
    return schedule(_pattern(topology, "reduce-scatter", k, ""), size, element_bytes)


def all_reduce(
    topology: Topology, size: Quantity, *, k: int | None = None, form: str = "two-phase",
    element_bytes: int = ELEMENT_BYTES,
) -> Schedule:
    """All-reduce: every block is reduced along one tree and broadcast along another, with the same root.

    Parameters
    ----------
    topology : Topology
    size : quantity
        Bytes of the array.
    k : int, optional
        Trees per root in each direction; only for the form "two-phase".
    form : {"two-phase", "best-roots"}
        "two-phase": reduce-scatter and all-gather, with every rank the root of an equal part. "best-roots": the
        roots, and the bandwidth of either direction, come from a linear program: better if the nodes of the network are
        not alike, such as on a mesh.
    element_bytes : int

    Raises
    ------
    WeftError
        As for `all_gather`; an unknown form.
    """
    check_form(NAME, form, FORMS)
    return schedule(_pattern(topology, "all-reduce", k, form), size, element_bytes)


def broadcast(topology: Topology, size: Quantity, *, root: int = 0, element_bytes: int = ELEMENT_BYTES) -> Schedule:
    """Broadcast along trees from one root, at the rate of the minimum cut between it and any NPU."""
    return schedule(_rooted(topology, "broadcast", root), size, element_bytes)


def reduce(topology: Topology, size: Quantity, *, root: int = 0, element_bytes: int = ELEMENT_BYTES) -> Schedule:
    """Reduce along trees toward one root; the reverse of `broadcast`."""
    return schedule(_rooted(topology, "reduce", root), size, element_bytes)


@remembered
def _pattern(topology: Topology, kind: str, k: int | None, form: str) -> Pattern:
    trees = root_trees(topology) if k is None and form != "best-roots" else None
    if trees is not None:
        return transitive_pattern(topology, trees, kind, NAME, form)
    up, down = forests(topology, kind, k, form)
    return forest_pattern(topology, kind, NAME, up=up, down=down, form=form)


@remembered
def forests(
    topology: Topology, kind: str, k: int | None = None, form: str = "two-phase"
) -> tuple[Forest | None, Forest | None]:
    """The trees toward and away from the roots, as required by the collective.

    Parameters
    ----------
    topology : Topology
    kind : str
        "all-gather", "reduce-scatter" or "all-reduce".
    k, form
        As for `all_reduce`.

    Raises
    ------
    WeftError
        As for `all_gather`.
    """
    if form == "best-roots":
        return all_reduce_forests(topology)
    trees = root_trees(topology) if k is None else None
    if trees is not None:
        down_trees = moved_around(topology, trees)
        up_trees = reversed_forest(down_trees)
        return (None if kind == "all-gather" else up_trees), (None if kind == "reduce-scatter" else down_trees)
    if topology.n_npus > PACK_NPUS:
        raise WeftError(
            f"{NAME} on {topology.name}: packing trees for {topology.n_npus} NPUs that are not alike would take many "
            f"minutes (limit: {PACK_NPUS})"
        )
    up = None if kind == "all-gather" else scatter_forest(topology, k)
    down = None if kind == "reduce-scatter" else gather_forest(topology, k)
    if up and down:
        both = math.lcm(up.blocks_of_root(0), down.blocks_of_root(0))
        return up.times(both // up.blocks_of_root(0)), down.times(both // down.blocks_of_root(0))
    return up, down


@remembered
def _rooted(topology: Topology, kind: str, root: int) -> Pattern:
    if kind == "broadcast":
        return forest_pattern(topology, kind, NAME, down=broadcast_forest(topology, root), root=root)
    return forest_pattern(topology, kind, NAME, up=reduce_forest(topology, root), root=root)
