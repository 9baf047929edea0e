"""Random regular networks: every NPU has the same number of cables, to random other NPUs (Jellyfish)."""

from itertools import combinations
from random import Random
from typing import Unpack

import numpy as np

from topologies.checks import Natural, WeftError, checked
from topologies.core.components import components
from topologies.core.extents import check_extents
from topologies.core.links import EqualLinks, network_of, per_tier
from topologies.core.topology import Topology
from topologies.units import parse_time

MOST_ENDS = 200_000
"""Limit on NPUs x degree."""

Cable = tuple[int, int]
"""The lesser NPU and the other."""


@checked
def random_regular(n: int, degree: int, seed: Natural = 1, **links: Unpack[EqualLinks]) -> Topology:
    """A random regular network: `random_regular(32, 4, 7)` has 32 NPUs with 4 cables each.

    Parameters
    ----------
    n, degree : int
        NPUs, and cables per NPU.
    seed : int
        The same seed gives the same network.
    bandwidth, latency : quantity
        Per direction of every cable.
    hop_latency : quantity
        Added on every arrival at an NPU, which contains a router.

    Raises
    ------
    WeftError
        A degree of n or more, an odd number of cable ends, a disconnected draw, or a bad quantity.

    References
    ----------
    .. [1] A. Singla et al., "Jellyfish: networking data centers randomly", NSDI 2012.
    .. [2] A. Steger, N. Wormald, "Generating random regular graphs quickly", Combinatorics, Probability and Computing,
       1999; drawn as networkx 3 draws it.
    """
    check_extents((n, degree), "random-regular")
    name = f"random-regular:{n}x{degree}x{seed}"
    if degree >= n or n * degree % 2:
        raise WeftError(f"{name}: {n} NPUs cannot have {degree} cables each: n x degree must be even and degree < n")
    if n * degree > MOST_ENDS:
        raise WeftError(f"{name} has {n * degree:,} cable ends: at most {MOST_ENDS:,}, which are drawn in seconds")
    cables = _drawn(min(degree, n - 1 - degree), n, seed)
    if degree > n - 1 - degree:  # drawing a dense one cable by cable need not end
        cables = set(combinations(range(n), 2)) - cables
    ends = sorted((a, b) for one, other in cables for a, b in ((one, other), (other, one)))
    src, dst = np.array(ends, np.int64).reshape(-1, 2).T
    if components(n, src, dst).max(initial=0) > 0:
        raise WeftError(f"{name}: this draw is not connected; choose another seed or a larger degree")
    (rate,), (time_ps,) = per_tier(links["bandwidth"], links["latency"], 1)
    hop_ps = np.full(n, parse_time(links["hop_latency"], "hop latency") * bool(ends))
    return network_of(name, n, n, ends, np.full(len(ends), rate), np.full(len(ends), time_ps), hop_ps)


def _drawn(degree: int, n: int, seed: int) -> set[Cable]:
    """The cables of the first draw in which all ends find another."""
    rng, cables = Random(seed), None
    while cables is None:
        cables = _paired(rng, list(range(n)) * degree)
    return cables


def _paired(rng: Random, ends: list[int]) -> set[Cable] | None:
    """Ends of cables in pairs at random, those that cannot be a cable again; None where none of these ever can."""
    cables = set[Cable]()
    while ends:
        rng.shuffle(ends)
        left: dict[int, int] = {}
        for pair in zip(ends[::2], ends[1::2], strict=True):
            one, other = min(pair), max(pair)
            if one != other and (one, other) not in cables:
                cables.add((one, other))
            else:
                left[one] = left.get(one, 0) + 1
                left[other] = left.get(other, 0) + 1
        if left and not _may_pair([*left], cables):
            return None
        ends = [end for end, times in left.items() for _ in range(times)]
    return cables


def _may_pair(left: list[int], cables: set[Cable]) -> bool:
    """Whether some NPUs can have a cable more between them.

    It looks at fewer pairs than there are, as networkx does: the lesser NPU of a pair is in the next one too.
    """
    for one in left:
        kept = one
        for other in left:
            if kept == other:
                break
            kept, other = min(kept, other), max(kept, other)
            if (kept, other) not in cables:
                return True
    return False
