"""Pipelined trees: bandwidth-optimal collectives on any network, chunk by chunk along packed spanning trees.

Every root has k trees, each with its share of the root's data; together they saturate the tightest cut of the network
("Bandwidth Optimal Pipeline Schedule for Collective Communication", arXiv 2305.18461; ForestColl, arXiv 2402.06787).
The optimum is that of a fluid: a run approaches it with many chunks, shallow trees and links that serve the lowest
chunk first (`discipline="lowest-chunk-first"`). If all chunks of a root are queued from the start, FIFO stays up to
1.46 times above the bound; here a transfer has at most one chunk at its first link, which paces the roots, and FIFO
needs up to twice as many chunks (1.049 against 1.026 at 64 chunks, MI250 reduce-scatter).

If the optimum takes more than `most_k` trees per root (128 by default), as unround rates do, fewer are used: the fewest
within a loss of 1 % that pad the array by at most 1 %, or those that lose least. The result says how many, and their
exact loss.
"""

import math
from collections.abc import Callable
from contextlib import suppress
from fractions import Fraction
from functools import lru_cache, partial
from itertools import islice
from typing import Annotated

from collectives.core.builders import by_wiring, of_kind
from collectives.core.collective import collective
from collectives.core.pattern import Pattern
from collectives.core.schedule import ELEMENT_BYTES, Schedule, schedule
from collectives.trees import pack
from collectives.trees.forest import Forest, Routes, forest_pattern, reversed_forest, routes_of
from collectives.trees.pack import capable_forests
from collectives.trees.shares import FewTrees, Limits, Sides, check_blocks, fewer_trees, padded_little
from collectives.trees.shortest import is_direct, shortest_pattern
from collectives.trees.transitive import has_free_translations, moved_around, root_trees, transitive_pattern
from topologies import Topology, WeftError
from topologies.checks import Choice, checked
from topologies.flows.programs import best_roots
from topologies.flows.tightest_cut import remembered
from topologies.units import PS_PER_S, Quantity, parse_size

NAME = "pipelined"
PACK_NPUS = 256
"""Limit on NPUs for packing trees if NPUs differ: two minutes. There is no limit if all NPUs are alike."""
ROOTED_NPUS = 1024
"""The same of trees of one root, past switches: up to a few minutes. There is no limit without switches."""

FORMS = ("two-phase", "best-roots")
Form = Annotated[str, Choice(FORMS)]
Switches = Annotated[str, Choice(("forward", "reduce"))]
Paths = Annotated[str, Choice(("any", "routes"))]

LEAST_GAIN = 1e-3
"""Of chosen roots over two phases, for which few trees are looked for: they lose more."""

TRIES = 8
"""Numbers of trees tried if trees do not fit past switches, whose links are rounded down one by one."""


def _of_all(
    kind: str, topology: Topology, size: Quantity, *, k: int | None = None, most_k: int | None = None,
    loss: float | None = None, paths: Paths = "any", element_bytes: int = ELEMENT_BYTES,
) -> Schedule:
    return _schedule(topology, kind, "", size, element_bytes, k, Limits(most_k, loss), paths)


def _rooted(
    kind: str, topology: Topology, size: Quantity, *, root: int = 0, most_k: int | None = None,
    loss: float | None = None, paths: Paths = "any", element_bytes: int = ELEMENT_BYTES,
) -> Schedule:
    return _schedule(topology, kind, "", size, element_bytes, None, Limits(most_k, loss), paths, root)


all_gather = of_kind("all-gather", _of_all, """
    All-gather along k trees from every root.

    `topology`: any whose NPUs reach each other. Where a switch receives less than it sends, links stay partly idle: the
        optimum is that of switches which copy nothing.
    `k`: trees per root. Default: as many as the optimum takes, or a multiple if that makes them shallower; fewer cost
        bandwidth.
    `most_k`: limit on the default for `k`: if the optimum takes more, fewer are used at a loss. Default: 128.
    `loss`: loss of bandwidth accepted with fewer trees, from 0 to below 1; it is an error if `most_k` trees lose more.
        Default: 0.01, or the smallest that `most_k` trees reach.
    `paths`: past switches "any", or "routes": those of the fabric, which programs take that name ranks and no links.
    WeftError: unreachable NPUs, a k that does not fit past the switches or whose blocks could not be held, or a loss
        that cannot be reached.
    """)
reduce_scatter = of_kind("reduce-scatter", _of_all, """
    Reduce-scatter along k trees toward every root; parameters as for `all_gather`.""")
broadcast = of_kind("broadcast", _rooted, """
    Broadcast along trees from one root, at the rate of the minimum cut between it and any NPU.

    Where that is earlier, as of small arrays, along a single lower tree, whose loss is stated.""")
reduce = of_kind("reduce", _rooted, "Reduce along trees toward one root; the reverse of `broadcast`.")


@checked
def all_reduce(
    topology: Topology, size: Quantity, *, k: int | None = None, most_k: int | None = None, loss: float | None = None,
    form: Form | None = None, switches: Switches = "forward", paths: Paths = "any",
    element_bytes: int = ELEMENT_BYTES,
) -> Schedule:
    """All-reduce: every block is reduced along one tree and broadcast along another, with the same root.

    `k`: trees per root in each direction.
    `most_k`, `loss`, `paths`: as for `all_gather`. Like `k` they are for equal roots: an error where "best-roots" has
        others.
    `form`: "two-phase": reduce-scatter and all-gather, with every rank the root of an equal part. "best-roots": the
        roots, and the bandwidth of either direction, come from a linear program: better if the nodes of the network are
        not alike, such as on a mesh; where its fractions are fine, with few trees and a stated loss. Where it is no
        better than two phases, all have the trees of those. Default: best-roots; two-phase with `k`, `most_k`,
        `loss` or `paths`, where the program is too large, or where blocks would pad the array by more than 1 %.
    `switches`: "forward", or "reduce": they also multicast, are nodes of the trees, and roots are chosen with them
        (`best-roots`), at the rate that the fabric says, else that of their links. Those that it says reduce, or all;
        of several tiers the lower, where that is faster. The other collectives gain nothing: every shard crosses a cut
        once.
    WeftError: as for `all_gather`; an unknown form; of switches that reduce, none, units behind them, more than
        `MOST_VARIABLES` of a linear program, or another form.
    """
    limits = Limits(most_k, loss)
    if switches == "reduce":
        few = partial(capable_forests, topology)
        best = _of_few(few, parse_size(size), max(1, element_bytes))
        if form == "two-phase" or k is not None or limits != Limits() or paths != "any":
            raise WeftError(
                f"{NAME}: trees through switches that reduce choose roots: omit k, most_k, loss, paths, form"
            )
        return schedule(_reducing_pattern(topology.as_it_reduces(), best), size, element_bytes)
    if form is None and k is None and limits == Limits() and paths == "any" and topology.n_npus <= PACK_NPUS:
        with suppress(WeftError):  # the program is too large, or its trees do not fit past the switches
            if _roots_pay(topology, parse_size(size), max(1, element_bytes)):
                form = "best-roots"
    return _schedule(topology, "all-reduce", form or "two-phase", size, element_bytes, k, limits, paths)


def _roots_pay(topology: Topology, size_bytes: int, element_bytes: int) -> bool:
    """Whether few trees of chosen roots are faster than two phases, and pad the array little."""
    simple = pack.two_phase_rate_Bps(topology)
    if simple is None or pack.equal_roots_are_best(topology):
        return False
    rate_Bps = best_roots(topology).rate_Bps
    if rate_Bps * (1 - LEAST_GAIN) <= float(simple):
        return False
    best = _best_roots(topology, size_bytes, element_bytes)
    faster = rate_Bps * (1 - best.loss) > float(simple)
    return faster and padded_little(size_bytes, element_bytes, 1, best.n_trees)


def chooses_roots(topology: Topology, form: str) -> bool:
    """Whether a form has other trees than two phases."""
    return form == "best-roots" and not pack.equal_roots_are_best(topology)


def _schedule(
    topology: Topology, kind: str, form: str, size: Quantity, element_bytes: int, k: int | None, limits: Limits,
    paths: str, root: int = 0,
) -> Schedule:
    """The schedule with as many trees as the optimum takes, or with fewer if those are too many."""
    is_large, limited = _is_large(topology, kind), limits != Limits() or paths != "any"
    if is_large and (collective(kind).rooted or k is not None or limited or not is_direct(topology)):
        raise _too_many(topology, kind)
    if k is not None:
        if limits != Limits():
            raise WeftError(f"{NAME}: k fixes the number of trees; most_k and loss choose it: give one or the other")
        if chooses_roots(topology, form):
            raise WeftError(f"{NAME}: k is for equal roots, and best-roots chooses others here")
        check_blocks(topology, k, topology.n_npus)
        return schedule(_pattern(topology, kind, k, form, root, "", paths), size, element_bytes)
    if chooses_roots(topology, form):
        if limited:
            raise WeftError(f"{NAME}: most_k, loss and paths are for equal roots, and best-roots chooses others here")
        best = _best_roots(topology, parse_size(size), max(1, element_bytes))
        return schedule(_pattern(topology, kind, best.n_trees, form, root, best.note, paths), size, element_bytes)
    if is_large:
        return schedule(_shortest(topology, kind, form), size, element_bytes)
    refused, of = None, " of two phases in turn" if kind == "all-reduce" else ""
    sides = Sides.of(topology, kind, root)
    for few in islice(fewer_trees(sides, limits, parse_size(size), max(1, element_bytes)), TRIES):
        try:
            built = schedule(_pattern(topology, kind, few.k, form, root, few.told(of), paths), size, element_bytes)
            return built if limited or sides.root is None else _or_one_tree(built, sides, few.k, few.loss)
        except WeftError as error:  # rounded down, a switch may receive less than it sends
            refused = error
            if paths == "routes":  # of another number of trees neither
                break
    if refused is not None:
        raise refused
    built = schedule(_pattern(topology, kind, None, form, root, "", paths), size, element_bytes)
    return built if limited or sides.root is None else _or_one_tree(built, sides)


def _or_one_tree(many: Schedule, sides: Sides, k: int | None = None, loss: Fraction = Fraction(0)) -> Schedule:
    """A broadcast or reduce along one tree, where it is so much lower than k that a small array arrives earlier."""
    topology, kind, root = sides.topology, sides.kind, many.pattern.root
    least_s = many.size_bytes * sides.least_s_per_byte()
    trees = pack.broadcast_forest if kind == "broadcast" else pack.reduce_forest
    wait_s = Fraction(trees(topology, root, k).latency_ps, PS_PER_S)
    if least_s >= wait_s:
        return many
    with suppress(WeftError):  # one does not fit past the switches
        one, sooner_s = FewTrees(1, sides.loss(1)), wait_s - Fraction(trees(topology, root, 1).latency_ps, PS_PER_S)
        if least_s / (1 - one.loss) - least_s / (1 - loss) < sooner_s:
            pattern = _pattern(topology, kind, 1, "", root, one.told(), "any")
            return schedule(pattern, many.size_bytes, many.element_bytes)
    return many


def _best_roots(topology: Topology, size_bytes: int, element_bytes: int) -> pack.BestRoots:
    return _of_few(partial(pack.best_root_forests, topology), size_bytes, element_bytes)


def _of_few(trees: Callable[[int], pack.BestRoots], size_bytes: int, element_bytes: int) -> pack.BestRoots:
    """Trees of chosen roots, and fewer of them where they would pad a small array."""
    for most in (pack.EXACT_TREES, *reversed(pack.FEW_TREES)):
        best = trees(most)
        if padded_little(size_bytes, element_bytes, 1, best.n_trees):
            break
    return best


def is_long(topology: Topology) -> bool:
    """Whether its trees take more than a few seconds to find."""
    return _is_large(topology, "all-gather")


def _is_large(topology: Topology, kind: str) -> bool:
    """Whether packing would take many minutes; no flow is computed to tell."""
    if collective(kind).rooted:
        return topology.n_npus > ROOTED_NPUS and topology.n_nodes > topology.n_npus
    return topology.n_npus > PACK_NPUS and not has_free_translations(topology)


@lru_cache(maxsize=16)
def _reducing_pattern(topology: Topology, best: pack.BestRoots) -> Pattern:
    return forest_pattern(
        topology, "all-reduce", NAME, up=best.up, down=best.down, form="best-roots", note=best.note, reduces=True
    )


@by_wiring
def _shortest(topology: Topology, kind: str, form: str) -> Pattern:
    return shortest_pattern(topology, kind, NAME, form)


def _too_many(topology: Topology, kind: str) -> WeftError:
    which, most = ("past switches", ROOTED_NPUS) if collective(kind).rooted else ("that are not alike", PACK_NPUS)
    return WeftError(
        f"{NAME} on {topology.name}: packing trees for {topology.n_npus:,} NPUs {which} would take many minutes "
        f"(limit: {most:,})"
    )


@by_wiring
def _pattern(topology: Topology, kind: str, k: int | None, form: str, root: int, note: str, paths: str) -> Pattern:
    """The pattern of k trees per root, or in all of chosen roots; a note: they are fewer than the optimum takes."""
    if collective(kind).rooted:
        routes = _routes(topology, paths, mirrored=kind == "reduce")
        down = pack.broadcast_forest(topology, root, k, routes) if kind == "broadcast" else None
        up = pack.reduce_forest(topology, root, k, routes) if kind == "reduce" else None
        return forest_pattern(topology, kind, NAME, up=up, down=down, root=root, note=note)
    chooses = chooses_roots(topology, form)
    if form == "best-roots" and not chooses:
        return _pattern(topology, kind, k, "two-phase", root, note, paths).named(form)
    trees = root_trees(topology, k) if (k is None or note) and not chooses and paths == "any" else None
    if trees is not None:
        return transitive_pattern(topology, trees, kind, NAME, form, note=note)
    up, down = forests(topology, kind, k, form, paths)
    return forest_pattern(topology, kind, NAME, up=up, down=down, form=form, note=note)


@remembered
def forests(
    topology: Topology, kind: str, k: int | None = None, form: str = "two-phase", paths: str = "any"
) -> tuple[Forest | None, Forest | None]:
    """The trees toward and away from the roots, as required by the collective.

    `kind`: "all-gather", "reduce-scatter" or "all-reduce".
    `k`, `form`, `paths`: as for `all_reduce`; of chosen roots `k` is the most trees in all.
    WeftError: as for `all_gather`.
    """
    if chooses_roots(topology, form):
        best = pack.best_root_forests(topology, k or pack.EXACT_TREES)
        return best.up, best.down
    trees = root_trees(topology) if k is None and paths == "any" else None
    if trees is not None:
        down_trees = moved_around(topology, trees)
        up_trees = reversed_forest(down_trees)
        return (None if kind == "all-gather" else up_trees), (None if kind == "reduce-scatter" else down_trees)
    if topology.n_npus > PACK_NPUS:
        raise _too_many(topology, kind)
    up = None if kind == "all-gather" else pack.scatter_forest(topology, k, _routes(topology, paths, mirrored=True))
    down = None if kind == "reduce-scatter" else pack.gather_forest(topology, k, None, _routes(topology, paths))
    return _in_step(up, down) if up and down else (up, down)


def _routes(topology: Topology, paths: str, *, mirrored: bool = False) -> Routes | None:
    """Where trees may go past switches; None: anywhere."""
    return routes_of(topology, mirrored) if paths == "routes" and topology.n_nodes > topology.n_npus else None


def _in_step(up: Forest, down: Forest) -> tuple[Forest, Forest]:
    """Both with as many blocks of each root."""
    both = math.lcm(up.blocks_of_root(0), down.blocks_of_root(0))
    return up.times(both // up.blocks_of_root(0)), down.times(both // down.blocks_of_root(0))
