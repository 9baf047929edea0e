"""Numbers of trees per root and per link: the integers behind an optimum.

With 1/x* = p/q in integer units of bandwidth and g the greatest common divisor of q and all bandwidths, k = q/g trees
per root and U = p/g trees per unit of bandwidth reach it (arXiv 2305.18461, section 3). Fewer trees cost bandwidth:
for a given k, the smallest U for which the trees fit is found.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from topologies import Topology, WeftError
from topologies.flows.cuts import whole_capacities
from topologies.flows.maxflow import LARGEST, FlowNetwork
from topologies.flows.tightest_cut import broadcast_cut, gather_cut


@dataclass(frozen=True)
class Shares:
    """Numbers of trees per root and per link.

    Attributes
    ----------
    roots : dict from NPU to int
        Trees per root.
    links : list of int
        Trees each link may carry.
    s_per_block_byte : Fraction
        Seconds per byte of every block.
    """

    roots: dict[int, int]
    links: list[int]
    s_per_block_byte: Fraction

    def times(self, many: int) -> Shares:
        """The number of trees multiplied, each with its part of the data: the same bandwidth."""
        roots = {root: many * trees for root, trees in self.roots.items()}
        return Shares(roots, [many * trees for trees in self.links], many * self.s_per_block_byte)


def gather_shares(topology: Topology, k: int | None = None) -> Shares:
    """Shares of an all-gather with k trees per root (default: as many as the optimum takes).

    Raises
    ------
    WeftError
        k below 1, or unreachable NPUs.
    """
    n = topology.n_npus
    if k is not None and k < 1:
        raise WeftError(f"k is {k}: every root needs at least 1 tree")
    unit, rates = whole_capacities(topology.bandwidth_Bps)
    cut = gather_cut(topology)
    if cut is None:
        return Shares({0: k or 1}, [0] * topology.n_links, Fraction(0))
    ratio = cut.s_per_byte * unit
    if k is None:
        divisor = math.gcd(ratio.denominator, *rates)
        k, per_unit = ratio.denominator // divisor, Fraction(ratio.numerator, divisor)
    else:
        per_unit = _least_scale(topology, rates, k, ratio)
    links = [math.floor(per_unit * rate) for rate in rates]
    return Shares(dict.fromkeys(range(n), k), links, per_unit / unit)


def broadcast_shares(topology: Topology, root: int) -> Shares:
    """Shares of a broadcast from one root.

    Raises
    ------
    WeftError
        A root that is not a rank, or unreachable NPUs.
    """
    unit, rates = whole_capacities(topology.bandwidth_Bps)
    cut = broadcast_cut(topology, root)
    if cut is None:
        return Shares({root: 1}, [0] * topology.n_links, Fraction(0))
    rate = int(cut.rate_Bps / unit)
    divisor = math.gcd(rate, *rates)
    return Shares({root: rate // divisor}, [one // divisor for one in rates], 1 / (unit * divisor))


def _least_scale(topology: Topology, rates: list[int], k: int, ratio: Fraction) -> Fraction:
    """Smallest U for which k trees per root fit into links that carry floor(U b) of them.

    U is a multiple of 1/b for some bandwidth b, at least k/x* and at most that plus 1 / min b.
    """
    fits = _Fits(topology, rates, k)
    best = k * ratio + Fraction(1, min(rates))
    for rate in sorted(set(rates), reverse=True):
        low, high = math.ceil(k * ratio * rate), math.ceil(best * rate) - 1
        if low > high or not fits(Fraction(high, rate)):
            continue
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if fits(Fraction(middle, rate)) else (middle + 1, high)
        best = Fraction(high, rate)
    return best


class _Fits:
    """Whether k trees per root fit, by one flow to each NPU."""

    def __init__(self, topology: Topology, rates: list[int], k: int) -> None:
        n = topology.n_npus
        self.n, self.source, self.need, self.rates = n, topology.n_nodes, n * k, rates
        self.network = FlowNetwork(topology.n_nodes + 1, 4 * n * k * sum(rates) > LARGEST)
        ends = zip(topology.src.tolist(), topology.dst.tolist(), strict=True)
        self.arcs = [self.network.add(tail, head) for tail, head in ends]
        for npu in range(n):
            self.network.add(self.source, npu, k)

    def __call__(self, scale: Fraction) -> bool:
        self.network.capacity[self.arcs] = [scale.numerator * rate // scale.denominator for rate in self.rates]
        return all(self.network.flow(self.source, npu, self.need) >= self.need for npu in range(self.n))
