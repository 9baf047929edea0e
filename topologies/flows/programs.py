"""Linear programs on flows: the best rates of an all-to-all, and of an all-reduce with free choice of roots.

Solved by HiGHS in floating point, in units of the fastest link; bounds subtract a safety margin.

The tightest bound where switches copy nothing: what a switch sends, it must have received.

A cut is reached by trees if every switch receives at least what it sends (Bang-Jensen, Frank and Jackson, "Preserving
and increasing local edge-connectivity in mixed graphs", 1995). Else it may be out of reach: links have to be left
partly idle until every switch receives what it sends, and cuts then hold of what is left. The best choice is a linear
program over the links, to which cuts are added until no flow violates one; its prices, rounded to fractions, prove a
bound on every schedule whose switches only forward.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from fractions import Fraction
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from topologies.checks import WeftError
from topologies.core.symmetry import link_orbits
from topologies.core.topology import NPU, Topology
from topologies.flows.cuts import whole_capacities
from topologies.flows.maxflow import FlowNetwork
from topologies.flows.tightest_cut import broadcast_cut, gather_cut, is_transitive, remembered
from topologies.process import heard
from topologies.stages import doing

if TYPE_CHECKING:
    from scipy.sparse import csr_array

Floats = npt.NDArray[np.float64]


class Roots(NamedTuple):
    """The best all-reduce along trees: how much each root reduces and broadcasts."""

    rate_Bps: float  # bytes of the array per second
    share_Bps: Floats  # (n_npus,): share of each root
    spread_Bps: Floats  # (n_links,): bandwidth of each link used for broadcasting
    gather_Bps: Floats  # (n_links,): the same for reducing: the rest, less what switches could not send on


class ConcurrentFlow(NamedTuple):
    """The best all-to-all over arbitrary routes."""

    rate_Bps: float  # bytes per second from every NPU to every other at once
    # (n_npus, n_links) or (1, n_links): flow from each source over each link; only that of NPU 0 if all NPUs are alike
    flow_Bps: Floats
    price: Floats  # (n_links,): how much the rate would gain from a link, in any unit; see `topologies.flows.prices`


FOR_SIMPLEX = 10_000
"""Variables up to which the simplex method is used; for more, the interior-point method takes as little as a tenth."""

MOST_VARIABLES = 1_000_000
"""Limit on the variables of a linear program: hours. Far beyond it not even Ctrl-C is heard while it is read."""

MOST_TREES = 10**6
"""Limit on the trees of a link that are balanced: the solver's tolerance is well below one."""

SMALL = 5_000
"""Variables of a program that is solved without being asked for."""

DETOUR = 1e-6
"""Cost of a byte on a link relative to a byte delivered; without it idle links may carry detours."""


def all_to_all_rate_Bps(topology: Topology) -> float:
    """Bytes per second from every NPU to every other at once, over arbitrary routes; infinite for one NPU."""
    return concurrent_flow(topology).rate_Bps


@remembered
def concurrent_flow(topology: Topology, demand: tuple[tuple[int, ...], ...] | None = None) -> ConcurrentFlow:
    """A maximum concurrent flow of an all-to-all that crosses few links.

    `demand`: what each NPU sends every other, in units of which the rate is the number per second (default: a byte).

    One flow per source (arXiv 2309.13541, section 3.1), or a single one if all NPUs are alike; its load on a link is
    then spread evenly over the orbit of the link.
    """
    from scipy.sparse import coo_array, csr_array, eye_array, hstack, kron, vstack  # heavy: loaded where it is used

    t, n = topology, topology.n_npus
    if n == 1:
        return ConcurrentFlow(float("inf"), np.zeros((1, t.n_links)), np.zeros(t.n_links))
    unit = float(t.bandwidth_Bps.max())
    sources = [0] if demand is None and is_transitive(t) else list(range(n))
    m = t.n_links
    _check_size(t, m * len(sources) + 1)
    enters = incidence(t)  # +1 where a link enters a node
    rows, rates = [], []  # conservation: inflow minus outflow is the rate at an NPU, zero at a switch
    for source in sources:
        keep = np.arange(t.n_nodes) != source
        rows.append(enters[keep])
        wanted = (t.kind == NPU).astype(np.float64)
        if demand is not None:
            wanted[:n] = np.array(demand[source], np.float64) / max(map(max, demand))
        rates.append(wanted[keep])
    balance = vstack([hstack([coo_array((r.shape[0], m * i)), r, coo_array((r.shape[0], m * (len(rows) - 1 - i)))])
                      for i, r in enumerate(rows)])
    given = csr_array(-np.concatenate(rates)[:, None])
    orbit = link_orbits(t) if len(sources) == 1 else np.arange(m)
    if len(sources) == 1:
        share = coo_array((np.ones(m), (orbit, np.arange(m))))
        limit = np.bincount(orbit, t.bandwidth_Bps / unit) / n
    else:
        share = kron(np.ones((1, len(sources))), eye_array(m))
        limit = t.bandwidth_Bps / unit
    upper = hstack([share, coo_array((share.shape[0], 1))])
    cost = np.full(m * len(sources) + 1, DETOUR / n)
    cost[-1] = -1
    solved, price = solve(t, cost, upper, limit, hstack([balance, given]), np.zeros(balance.shape[0]))
    rate = float(solved[-1]) * unit / (1 if demand is None else max(map(max, demand)))
    return ConcurrentFlow(rate, solved[:-1].reshape(len(sources), m) * unit, price[orbit])


def is_small_program(topology: Topology) -> bool:
    """Whether `concurrent_flow` takes about a second at most."""
    return flow_variables(topology) <= SMALL


def flow_variables(topology: Topology) -> int:
    """Of the program of `concurrent_flow`, which has at most `MOST_VARIABLES`."""
    return topology.n_links * (1 if is_transitive(topology) else topology.n_npus)


@remembered
def best_roots(topology: Topology, reducing: tuple[int, ...] = (), equal: int = 0) -> Roots:
    """The best all-reduce along trees with arbitrary roots (ForestColl, arXiv 2402.06787, appendix on all-reduce).

    Maximizes the sum of the shares x, over x and the broadcast bandwidth a of each link, such that flows of that value
    reach every NPU from the roots within a, and the roots from every NPU within the remaining bandwidth.

    `reducing`: switches that multicast and reduce. At others, flow is conserved in each direction.
    `equal`: whether the first so many NPUs have equal shares, and others none (0: free).
    """
    from scipy.sparse import csr_array, eye_array, vstack  # heavy: loaded where it is used

    t, n, m = topology, topology.n_npus, topology.n_links
    if n == 1:
        return Roots(float("inf"), np.ones(1), np.zeros(m), np.zeros(m))
    forwards = np.setdiff1d(np.arange(n, t.n_nodes), reducing)
    uneven = any(_surplus(t)[switch - n] for switch in forwards.tolist())  # links cannot all be used in full
    columns = n + m + 2 * n * m + uneven * m  # x, a, flows down, flows up, what is idle
    _check_size(t, columns)
    unit = float(t.bandwidth_Bps.max())
    bandwidth = t.bandwidth_Bps / unit
    enters = incidence(t)
    fixed, upper, limit = [], [], []
    for way in (0, 1):
        for npu in range(n):
            first = n + m + (way * n + npu) * m
            # Inflow minus outflow plus what the node is fed; the sink absorbs the shares of all roots.
            feed = np.zeros((t.n_nodes, n))
            feed[np.arange(n), np.arange(n)] = 1
            feed[npu] -= 1
            flow = enters if way == 0 else -enters
            fixed.append(_placed(columns, (0, csr_array(feed)), (first, flow)))
            within = -eye_array(m) if way == 0 else eye_array(m)
            idle = ((columns - m, eye_array(m)),) if way and uneven else ()
            upper.append(_placed(columns, (n, within), (first, eye_array(m)), *idle))
            limit.append(np.zeros(m) if way == 0 else bandwidth)
    if forwards.size:
        fixed.append(_placed(columns, (n, enters[forwards])))
    right = np.zeros(sum(one.shape[0] for one in fixed))
    if uneven:
        upper.append(_placed(columns, (n, eye_array(m)), (columns - m, eye_array(m))))
        limit.append(bandwidth)
        fixed.append(_placed(columns, (columns - m, enters[forwards])))
        right = np.append(right, enters[forwards] @ bandwidth)
    if equal > 1:
        fixed.append(_placed(columns, (0, csr_array(np.eye(equal - 1, n) - np.eye(equal - 1, n, 1)))))
    cost = np.zeros(columns)
    cost[:n] = -1
    bounds = np.full((columns, 2), [0, np.inf])
    bounds[n : n + m, 1] = bandwidth
    bounds[equal or n : n, 1] = 0
    left = vstack(fixed)
    right = np.append(right, np.zeros(left.shape[0] - right.size))
    solved, _ = solve(t, cost, vstack(upper), np.concatenate(limit), left, right, bounds)
    spread = solved[n : n + m]
    gather = bandwidth - spread - (solved[columns - m :] if uneven else 0)
    return Roots(float(solved[:n].sum()) * unit, *(one * unit for one in (solved[:n], spread, gather)))


def sends_more(topology: Topology, most: Sequence[int] | None = None) -> bool:
    """Whether a switch sends more than it receives, with so much on every link (default: its bandwidth)."""
    return min(_surplus(topology, most), default=0) < 0


def _surplus(topology: Topology, most: Sequence[int] | None = None) -> list[int]:
    """What each switch receives beyond what it sends, in whole units."""
    t = topology
    if t.n_nodes == t.n_npus:
        return []
    surplus = [0] * t.n_nodes
    most = whole_capacities(t.bandwidth_Bps)[1] if most is None else most
    for tail, head, many in zip(t.src.tolist(), t.dst.tolist(), most, strict=True):
        surplus[tail] -= many
        surplus[head] += many
    return surplus[t.n_npus :]


def balanced(topology: Topology, most: list[int]) -> list[int]:
    """As many trees of each link as switches can send on, all links near to what each can have at most.

    One of few counts more than one of many.
    WeftError: more trees than the solver can count.
    """
    t, less = topology, 1
    if not sends_more(t, most):
        return most
    if max(most) > MOST_TREES:
        raise WeftError(f"topology {t.name}: {max(most):,} trees on a link (limit past switches: {MOST_TREES:,})")
    sent, high = -incidence(t)[t.n_npus :], np.array(most, np.float64)
    while True:
        bounds = np.stack([np.maximum(high - less, 0), high], axis=1)
        with suppress(WeftError):
            taken, _ = solve(t, -1 / np.maximum(high, 1), sent, np.zeros(sent.shape[0]), bounds=bounds)
            return [round(one) for one in taken.tolist()]  # the program of a network has whole corners
        less *= 2  # ends: without any trees all is balanced


def _check_size(topology: Topology, n_variables: int) -> None:
    if n_variables > MOST_VARIABLES:
        raise WeftError(
            f"topology {topology.name}: the linear program has {n_variables:,} variables, one for each NPU and link; "
            f"the limit is {MOST_VARIABLES:,}. Use a smaller fabric"
        )


def incidence(topology: Topology) -> csr_array:
    """(n_nodes, n_links): 1 where a link enters a node, -1 where it leaves."""
    from scipy.sparse import coo_array, csr_array  # heavy: loaded where it is used

    links = np.arange(topology.n_links)
    return csr_array(
        coo_array(
            (np.repeat([1.0, -1.0], links.size), (np.concatenate([topology.dst, topology.src]), np.tile(links, 2))),
            shape=(topology.n_nodes, links.size),
        )
    )


def _placed(columns: int, *parts: tuple[int, csr_array]) -> csr_array:
    """Blocks side by side, each starting at its column."""
    from scipy.sparse import coo_array, csr_array, hstack  # heavy: loaded where it is used

    blocks, at = [], 0
    height = parts[0][1].shape[0]
    for first, block in parts:
        if first > at:
            blocks.append(coo_array((height, first - at)))
        blocks.append(block)
        at = first + block.shape[1]
    if at < columns:
        blocks.append(coo_array((height, columns - at)))
    return csr_array(hstack(blocks))


def solve(
    topology: Topology, cost: Floats, upper: csr_array, limit: Floats, equal: csr_array | None = None,
    right: Floats | None = None, bounds: Floats | None = None,
) -> tuple[Floats, Floats]:
    """The variables of least cost, and what each limit of `upper` is worth.

    WeftError: there are none, or the solver gives up.
    """
    from scipy.optimize import linprog  # heavy: loaded where it is used

    with doing(f"a linear program of {cost.size:,} variables"):
        result = heard(lambda: linprog(
            cost, A_ub=upper, b_ub=limit, A_eq=equal, b_eq=right, bounds=(0, None) if bounds is None else bounds,
            method="highs-ds" if cost.size <= FOR_SIMPLEX else "highs-ipm",
        ))
    if result.status != 0:
        raise WeftError(f"topology {topology.name}: the linear program could not be solved: {result.message}")
    return np.asarray(result.x, np.float64), -np.asarray(result.ineqlin.marginals, np.float64)


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
