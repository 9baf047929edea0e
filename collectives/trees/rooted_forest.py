"""All-reduce with chosen roots: the trees behind the linear program of `topologies.flows.programs.best_roots`.

Shares and bandwidths of the solution are rounded to fractions with small denominators; scaled to integers they are
packed like any other trees, downward on the broadcast bandwidth and upward on the rest. If the program is no better
than a reduce-scatter and an all-gather (`equal_roots_are_best`), those are used: their fractions are simpler.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from collectives.trees.forest import Forest
from collectives.trees.pack import mirror_of, pack_forest, turned_back
from collectives.trees.shares import MOST_BLOCKS, Shares
from topologies import Topology, WeftError
from topologies.flows.partitions import partition_s_per_byte
from topologies.flows.programs import best_roots
from topologies.flows.tightest_cut import gather_cut, remembered, scatter_cut, separating_cut

DENOMINATORS = (1, 2, 4, 6, 12, 60, 720)
"""Largest denominators tried for the shares of a solution, smallest first."""

MOST_VARIABLES = 12_000
"""Limit on the variables of the linear program: about ten seconds."""


def best_root_forests(topology: Topology) -> tuple[Forest, Forest]:
    """Trees up and down for the best all-reduce along trees, where roots are better chosen than equal.

    WeftError: unreachable NPUs, a linear program that is too large, or a solution whose fractions are too fine.
    """
    best = best_roots(topology)
    unit = float(topology.bandwidth_Bps.max())
    for denominator in DENOMINATORS:
        shares = [_near(share / unit, denominator) for share in best.share_Bps.tolist()]
        if abs(float(sum(shares)) * unit - best.rate_Bps) > 1e-6 * best.rate_Bps:
            continue
        found = _packed(topology, shares, best.spread_Bps / unit, denominator)
        if found is not None:
            return found
    raise WeftError(
        f"topology {topology.name}: the best roots of an all-reduce need fractions finer than 1/{DENOMINATORS[-1]}; "
        "use the form two-phase"
    )


@remembered
def equal_roots_are_best(topology: Topology) -> bool:
    """Whether a reduce-scatter and an all-gather are as fast as an all-reduce with chosen roots.

    WeftError: unreachable NPUs, or a linear program that is too large.
    """
    simple = two_phase_rate_Bps(topology)
    if simple is None or 1 / simple <= _bound_s_per_byte(topology):
        return True  # already optimal: no program is needed
    variables = 2 * topology.n_npus * topology.n_links
    if variables > MOST_VARIABLES:
        raise WeftError(
            f"best-roots on {topology.name}: the linear program would have {variables:,} variables (limit: "
            f"{MOST_VARIABLES:,}); use the form two-phase"
        )
    return best_roots(topology).rate_Bps <= float(simple) * (1 + 1e-6)


def two_phase_rate_Bps(topology: Topology) -> Fraction | None:
    """Bytes per second of an all-reduce as concurrent reduce-scatter and all-gather; None for one NPU.

    Both share every link, so their times add up.
    """
    gather, scatter = gather_cut(topology), scatter_cut(topology)
    if gather is None or scatter is None:
        return None
    return topology.n_npus / (gather.s_per_byte + scatter.s_per_byte)


def _bound_s_per_byte(topology: Topology) -> Fraction:
    """Lower bound on any all-reduce, in seconds per byte."""
    cut = separating_cut(topology)
    return max(partition_s_per_byte(topology)[0], cut.s_per_byte if cut else Fraction(0))


def _near(value: float, denominator: int) -> Fraction:
    return Fraction(value).limit_denominator(denominator)


def _packed(
    topology: Topology, shares: list[Fraction], spread: np.ndarray[tuple[int], np.dtype[np.float64]], denominator: int
) -> tuple[Forest, Forest] | None:
    """Both forests, or None if the rounded fractions do not fit.

    WeftError: more blocks than a schedule can hold.
    """
    unit = topology.bandwidth_Bps.max()
    down = [_near(one, denominator) for one in spread.tolist()]
    rates = [Fraction(float(rate)) / Fraction(float(unit)) for rate in topology.bandwidth_Bps.tolist()]
    up = [rate - one for rate, one in zip(rates, down, strict=True)]
    if min(up) < 0:
        return None
    whole = math.lcm(*(one.denominator for one in (*shares, *down, *up)))
    roots = {npu: int(share * whole) for npu, share in enumerate(shares) if share}
    if sum(roots.values()) * topology.n_npus > MOST_BLOCKS:
        raise WeftError(
            f"best-roots on {topology.name}: its rates take {sum(roots.values()):,} blocks (limit: "
            f"{MOST_BLOCKS // topology.n_npus:,}); use the form two-phase"
        )
    s_per_block_byte = Fraction(1, whole) / Fraction(float(unit))
    mirror = mirror_of(topology)
    turned = np.lexsort((topology.src, topology.dst)).tolist()
    try:
        spreading = pack_forest(topology, Shares(roots, [int(one * whole) for one in down], s_per_block_byte))
        summing = pack_forest(mirror, Shares(roots, [int(up[link] * whole) for link in turned], s_per_block_byte))
    except WeftError:
        return None
    return turned_back(summing, topology), spreading
