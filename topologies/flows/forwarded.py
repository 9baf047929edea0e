"""The tightest bound where switches copy nothing: what a switch sends, it must have received.

A cut is reached by trees if every switch receives at least what it sends (Bang-Jensen, Frank and Jackson, "Preserving
and increasing local edge-connectivity in mixed graphs", 1995). Else it may be out of reach: links have to be left
partly idle until every switch receives what it sends, and cuts then hold of what is left. The best choice is a linear
program over the links, to which cuts are added until no flow violates one; its prices, rounded to fractions, prove a
bound on every schedule whose switches only forward.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from topologies.core.topology import Topology
from topologies.flows.cuts import whole_capacities
from topologies.flows.maxflow import FlowNetwork
from topologies.flows.programs import Floats, incidence, sends_more, solve
from topologies.flows.tightest_cut import broadcast_cut, gather_cut, remembered

if TYPE_CHECKING:
    from scipy.sparse import csr_array

UNITS = 2**40
"""Units of the fastest link in which flows are tested, of which rounding takes at most one a link."""

MOST_WORK = 40_000
"""Times that sets are looked for, times links: about ten seconds."""

NEAR = 1e-9
"""Shortfall of a flow that is rounding."""

FINE = (12, 720, 10**6, 10**9)
"""Largest denominators of prices that are tried: the best bound is taken, and all are valid."""


class Forwarded(NamedTuple):
    """What switches that copy nothing allow."""

    s_per_byte: Fraction  # of each root's data: no schedule is faster
    part: tuple[float, ...]  # (n_links,): of each link's bandwidth, what is used
    reached: bool  # whether trees of any number are as fast with those, but for `NEAR`


@remembered
def forwarded(topology: Topology, root: int | None = None) -> Forwarded | None:
    """The best that switches without copies allow an all-gather (None), or a broadcast from one root.

    None where every switch receives what it sends: the tightest cut is reached.
    WeftError: unreachable NPUs.
    """
    cut = gather_cut(topology) if root is None else broadcast_cut(topology, root)
    return _Program(topology, root, cut.s_per_byte).run() if cut is not None and sends_more(topology) else None


class _Program:
    """Maximize x, and then the least part of a link that is used: cuts hold, and no switch sends what it lacks.

    The variables are what each link carries, in units of the fastest, and x, or the largest part that is idle.
    """

    def __init__(self, topology: Topology, root: int | None, s_per_byte: Fraction) -> None:
        t, self.topology, self.s_per_byte = topology, topology, s_per_byte
        self.roots = np.arange(t.n_npus) if root is None else np.array([root])
        self.unit = float(t.bandwidth_Bps.max())
        self.rates = t.bandwidth_Bps / self.unit
        self.inside = [np.arange(t.n_nodes) != npu for npu in range(t.n_npus) if npu != root]
        self.network = FlowNetwork(t.n_nodes + 1)
        ends = zip(t.src.tolist(), t.dst.tolist(), strict=True)
        self.arcs = [self.network.add(tail, head) for tail, head in ends]
        self.feeds = [self.network.add(t.n_nodes, npu) for npu in self.roots.tolist()]
        self.sent = -incidence(t)[t.n_npus :]

    def run(self) -> Forwarded:
        """Solve, and add sets that flows find too tight, as long as there are any, or `MOST_WORK` is done."""
        from scipy.sparse import csr_array, vstack  # heavy: loaded where it is used

        t, rounds = self.topology, max(1, MOST_WORK // self.rates.size)
        for left in reversed(range(rounds)):
            crossed = [csr_array((side[t.src] & ~side[t.dst])[None, :], dtype=np.float64) for side in self.inside]
            rows = vstack([*(-one for one in crossed), self.sent])  # with shards times x, none may be positive
            shards = np.append([side[self.roots].sum() for side in self.inside], np.zeros(t.n_nodes - t.n_npus))
            x, prices = self._fastest(rows, shards)
            used = self._evenly(rows, shards * x)
            tight = self._tight(used, x)
            if not (tight and left):
                break
            self.inside += tight
        part = np.clip(used / self.rates, 0, 1)
        return Forwarded(self._proved(shards, prices), tuple(part.tolist()), not tight)

    def _fastest(self, rows: csr_array, shards: Floats) -> tuple[float, Floats]:
        from scipy.sparse import csr_array, hstack

        cost = np.append(np.zeros(self.rates.size), -1.0)
        bounds = np.zeros((cost.size, 2))
        bounds[:, 1] = *self.rates, 1 / (float(self.s_per_byte) * self.unit)
        solved, prices = solve(
            self.topology, cost, hstack([rows, csr_array(shards[:, None])]), np.zeros(shards.size), bounds=bounds
        )
        return float(solved[-1]), np.maximum(prices, 0)

    def _evenly(self, rows: csr_array, needed: Floats) -> Floats:
        """What links carry if the largest part that is idle is least: whole numbers of trees are then near to it."""
        from scipy.sparse import block_array, csr_array, eye_array

        m = self.rates.size
        upper = block_array([[rows, None], [-eye_array(m), csr_array(-self.rates[:, None])]])
        bounds = np.stack([np.zeros(m + 1), np.append(self.rates, 1)], axis=1)
        limit = np.append(-needed * (1 - NEAR), -self.rates)
        return solve(self.topology, np.append(np.full(m, -1 / m**2), 1.0), upper, limit, bounds=bounds)[0][:-1]

    def _tight(self, used: Floats, x: float) -> list[npt.NDArray[np.bool_]]:
        """Sets that flows of x do not leave."""
        due = int(x * UNITS)
        self.network.capacity[self.arcs] = np.ceil(used * (UNITS * (1 + 8 * NEAR))).astype(np.int64)
        self.network.capacity[self.feeds] = due
        found = {}
        for npu in range(self.topology.n_npus):
            if self.network.flow(self.topology.n_nodes, npu, due * self.roots.size) < due * self.roots.size:
                side = self.network.source_side()[:-1].copy()
                found[side.tobytes()] = side
        known = {side.tobytes() for side in self.inside}
        return [side for key, side in found.items() if key not in known]

    def _proved(self, shards: Floats, prices: Floats) -> Fraction:
        """The bound that prices prove: of the shards, by what all links together can pay.

        A set asks its price of what leaves it; a switch pays its price for what it receives, and gets it for what it
        sends, which is no more. Any prices prove a bound, so that rounding costs at most sharpness.
        """
        t, best, cuts = self.topology, self.s_per_byte, len(self.inside)
        unit, rates = whole_capacities(t.bandwidth_Bps)
        crossing = [np.flatnonzero(side[t.src] & ~side[t.dst]).tolist() for side in self.inside]
        for most in FINE:
            price = [Fraction(one).limit_denominator(most) for one in (prices / (prices.max() or 1)).tolist()]
            at = [Fraction(0)] * t.n_npus + price[cuts:]
            asked = [at[head] - at[tail] for tail, head in zip(t.src.tolist(), t.dst.tolist(), strict=True)]
            for one, links in zip(price, crossing, strict=False):
                for link in links if one else ():
                    asked[link] += one
            paid = sum(max(one, 0) * rate for one, rate in zip(asked, rates, strict=True)) * unit
            if paid:
                best = max(best, sum(map(Fraction.__mul__, price, map(Fraction, map(int, shards)))) / paid)
        return best
