"""Circulants: servers on a circle, each with circuits to the servers a fixed set of jumps further on.

Routes are computed once for all sources: the jumps are coins, and the distance to the destination is the amount to be
changed into as few of them as possible (TopoOpt, NSDI 2023, CoinChangeMod).
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce
from math import gcd
from typing import NamedTuple, Unpack

import numpy as np

from topologies.checks import WeftError, checked
from topologies.core.extents import check_extents, check_memory
from topologies.core.links import EqualLinks, parse_link
from topologies.core.paths import Ints, Paths, join_paths, ranges
from topologies.core.routing import ShortestPathRouter
from topologies.core.topology import NPU, Topology
from topologies.units import parse_time


@checked
def circulant(
    n: int, jumps: Sequence[int], *, duplex: bool = True, connected: bool = True, **links: Unpack[EqualLinks]
) -> Topology:
    """A circulant: in `circulant(16, (1, 5))` each of 16 NPUs has cables to those 1 and 5 further on, and 1 and 5 back.

    A jump given more than once, or backwards in a duplex network, makes parallel circuits; they become one link with
    their combined bandwidth.

    Parameters
    ----------
    n : int
        NPUs.
    jumps : sequence of int
        From 1 to n - 1; empty for a single NPU.
    duplex : bool
        Whether each jump makes links in both directions, or forward only.
    connected : bool
        Whether to reject jumps that leave the network disconnected.
    bandwidth, latency : quantity
        Per direction of every circuit.
    hop_latency : quantity
        Added on every arrival at an NPU, since NPUs forward.

    Raises
    ------
    WeftError
        A jump that is out of range, jumps that leave the network disconnected, or a bad quantity.
    """
    (n,) = check_extents(n, "circulant")
    jumps = tuple(int(jump) for jump in jumps)
    name = f"{'' if duplex else 'simplex-'}circulant:" + "x".join(map(str, (n, *jumps)))
    coins = _coins(name, n, jumps, duplex, connected)
    check_memory(name, n, n * len(coins))
    rate, latency_ps = parse_link(links["bandwidth"], links["latency"])
    node = np.arange(n, dtype=np.int32)
    onward = [(node + coin) % n for coin in coins]
    return Topology(
        name=name,
        kind=np.full(n, NPU, np.int8),
        src=np.tile(node, len(coins)),
        dst=np.concatenate(onward).astype(np.int32) if coins else np.zeros(0, np.int32),
        bandwidth_Bps=np.repeat(np.array([rate * count for count in coins.values()], np.float64), n),
        latency_ps=np.full(n * len(coins), latency_ps, np.int64),
        hop_latency_ps=np.full(n, parse_time(links["hop_latency"], "hop latency"), np.int64),
        dimension=np.repeat(np.array([_kind(n, coin, jumps) for coin in coins], np.int16), n),
        shape=(n,),
        coords=node[:, None].copy(),
        router=CoinRouter(n, tuple(coins)),
    )


def _coins(name: str, n: int, jumps: Sequence[int], duplex: bool, connected: bool) -> dict[int, int]:
    """Every directed jump with the number of its circuits, ascending."""
    for jump in jumps:
        if not 1 <= jump < n:
            raise WeftError(f"{name}: the jump {jump} is out of range: from 1 to {n - 1}")
    if connected and reduce(gcd, jumps, n) != 1:
        shared = reduce(gcd, jumps, n)
        raise WeftError(f"{name} is disconnected: the jumps and {n} share the divisor {shared}; add a jump")
    # The half-turn is its own inverse: one cable serves a pair.
    backwards = [n - jump for jump in jumps if duplex and 2 * jump != n]
    return dict(sorted(Counter([*jumps, *backwards]).items()))


def _kind(n: int, coin: int, jumps: Sequence[int]) -> int:
    """The dimension of a link: the position of its jump in the list."""
    return jumps.index(coin) if coin in jumps else jumps.index(n - coin)


class Change(NamedTuple):
    """How each distance is changed into the fewest coins."""

    coins: Ints  # (n,): number of coins for each distance, -1 if it cannot be changed
    last: Ints  # (n,): the last coin used for each distance; 0 for distance 0


def coin_change_mod(n: int, coins: Sequence[int], *, ascending: bool = True) -> Change:
    """Change every distance on Z_n into the fewest coins.

    `coins`: directed jumps.
    `ascending`: whether smaller or larger coins are tried first.
    """
    count, last = np.full(n, -1, np.int64), np.zeros(n, np.int64)
    count[0] = 0
    front = [0]
    while front:
        reached = []
        for at in front:
            for coin in sorted(set(coins), reverse=not ascending):
                further = (at + coin) % n
                if count[further] < 0:
                    count[further], last[further] = count[at] + 1, coin
                    reached.append(further)
        front = reached
    return Change(count, last)


@dataclass(frozen=True)
class CoinRouter:
    """Routes of a circulant by `coin_change_mod`, the same from every source.

    Ties: `first` tries smaller jumps first; the second route of a tie tries larger ones first; `ecmp` chooses among all
    shortest routes, as in any network.
    """

    n: int
    coins: tuple[int, ...]  # directed jumps, ascending

    def paths(self, topology: Topology, src: Ints, dst: Ints, tie: str, seed: int) -> Paths:
        """Routes of the pairs."""
        if tie == "ecmp":
            return ShortestPathRouter().paths(topology, src, dst, tie, seed)
        first = self._walk(topology, src, dst)
        if tie == "first":
            return first
        other = self._walk(topology, src, dst, ascending=False)
        both = join_paths([first, other]) if src.size else first
        if tie == "alternating":
            kept = np.arange(src.size) + src.size * (src % 2)
        else:
            hop_pair = np.repeat(np.arange(src.size), np.diff(first.ptr))
            differs = np.bincount(hop_pair, first.links != other.links, minlength=src.size) > 0
            kept = np.flatnonzero(np.stack([np.ones_like(differs), differs], axis=1))
            kept = kept // 2 + src.size * (kept % 2)
        return _take(both, kept, src.size)

    def _walk(self, topology: Topology, src: Ints, dst: Ints, *, ascending: bool = True) -> Paths:
        distance = (dst - src) % self.n
        first, begin, coin = _steps(self.n, self.coins, ascending)
        hops = (first[1:] - first[:-1])[distance]
        if np.any((hops == 0) & (distance > 0)):
            pair = int(np.flatnonzero((hops == 0) & (distance > 0))[0])
            raise WeftError(f"topology {topology.name}: no route from npu{src[pair]} to npu{dst[pair]}")
        tail = np.tile(np.arange(self.n), len(self.coins))
        link = topology.link_ids(tail, (tail + np.repeat(np.array(self.coins, np.int64), self.n)) % self.n)
        at = ranges(first[distance], hops)
        ptr = np.concatenate(([0], np.cumsum(hops))).astype(np.int64)
        return Paths(ptr, link[coin[at] * self.n + (np.repeat(src, hops) + begin[at]) % self.n], np.arange(src.size))


@lru_cache(maxsize=64)
def _steps(n: int, coins: tuple[int, ...], ascending: bool) -> tuple[Ints, Ints, Ints]:
    """The hops to each distance: where they are, (n + 1,), where each begins, and the number of its coin."""
    change = coin_change_mod(n, coins, ascending=ascending)
    first = np.concatenate(([0], np.cumsum(np.maximum(change.coins, 0)))).astype(np.int64)
    begin, coin = np.empty((2, first[-1]), np.int64)
    left, route = np.arange(n), np.flatnonzero(change.coins > 0)
    while route.size:  # from the destination back, the last coin first
        at = first[route] + change.coins[left[route]] - 1
        coin[at] = np.searchsorted(coins, change.last[left[route]])
        left[route] = begin[at] = (left[route] - change.last[left[route]]) % n
        route = route[left[route] > 0]
    return first, begin, coin


def _take(paths: Paths, rows: Ints, n_pairs: int) -> Paths:
    """A subset of the routes; pair indices are taken modulo `n_pairs`."""
    hops = np.diff(paths.ptr)[rows]
    links = paths.links[ranges(paths.ptr[rows], hops)]
    return Paths(np.concatenate(([0], np.cumsum(hops))), links, rows % max(n_pairs, 1))
