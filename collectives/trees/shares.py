"""Numbers of trees per root and per link: the integers behind an optimum, or few trees that lose little.

With 1/x* = p/q in integer units of bandwidth and g the greatest common divisor of q and all bandwidths, k = q/g trees
per root and U = p/g trees per unit of bandwidth reach it (arXiv 2305.18461, section 3). Fewer trees cost bandwidth:
for a given k, the smallest U for which the trees fit is found. Links then carry floor(U b) trees, never more than they
have bandwidth for.

The optimum of measured or derated rates, such as 1 and 1.2345678 GB/s, takes millions of trees. The loss of a smaller
number is exact, against the bound of the tightest cut. The smallest k within the accepted loss is taken, among those
that pad the array by at most 1 %. The trees of the optimum are left for fewer, too, where they pad a small array by
more.
"""

import math
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, NamedTuple

from collectives.core.collective import collective
from collectives.trees.forest import mirror_of
from topologies import Topology, WeftError
from topologies.checks import Count, Number, checked
from topologies.flows.cuts import whole_capacities
from topologies.flows.maxflow import LARGEST, FlowNetwork
from topologies.flows.programs import Forwarded, balanced, forwarded, sends_more
from topologies.flows.tightest_cut import broadcast_cut, gather_cut, is_cut_at_one_npu, is_transitive, remembered

MOST_BLOCKS = 4_000_000
"""Limit on blocks that each of the NPUs must receive, over all NPUs: seconds, and below 2 GB."""

WIDEST = 64
"""Trees of the slowest link up to which more time is looked at, where switches cannot send on what links can carry."""

NEAR = 1e-6
"""Part of a tree that is rounding."""

MOST_POINTS = 4096
"""Scales that are listed; a wider range is halved first."""


@dataclass(frozen=True)
class Shares:
    """Numbers of trees per root and per link."""

    roots: dict[int, int]  # by NPU: trees per root
    links: list[int]  # trees each link may carry
    s_per_block_byte: Fraction  # seconds per byte of every block

    def times(self, many: int) -> "Shares":
        """The number of trees multiplied, each with its part of the data: the same bandwidth."""
        roots = {root: many * trees for root, trees in self.roots.items()}
        return Shares(roots, [many * trees for trees in self.links], many * self.s_per_block_byte)


def gather_shares(topology: Topology, k: int | None = None) -> Shares:
    """Shares of an all-gather with k trees per root (default: as many as the optimum takes).

    WeftError: k below 1, or unreachable NPUs.
    """
    if k is not None and k < 1:
        raise WeftError(f"k is {k}: every root needs at least 1 tree")
    return _shares(topology, None, k)


def broadcast_shares(topology: Topology, root: int, k: int | None = None) -> Shares:
    """Shares of a broadcast from one root, with k trees (default: as many as the optimum takes).

    WeftError: a root that is not a rank, or unreachable NPUs.
    """
    return _shares(topology, root, k)


def _shares(topology: Topology, root: int | None, k: int | None) -> Shares:
    unit, _ = whole_capacities(topology.bandwidth_Bps)
    if not s_per_byte_of_root(topology, root):
        return Shares({root or 0: k or 1}, [0] * topology.n_links, Fraction(0))
    if k is None:
        k = _exact_k(topology, root)
        per_unit = k * s_per_byte_of_root(topology, root) * unit
    else:
        per_unit = least_s_per_block_byte(topology, k, root) * unit
    roots = dict.fromkeys(range(topology.n_npus) if root is None else (root,), k)
    return Shares(roots, links_within(topology, root, per_unit), per_unit / unit)


def _exact_k(topology: Topology, root: int | None) -> int:
    """Trees per root with which all links carry whole numbers of trees at the optimum."""
    unit, rates = whole_capacities(topology.bandwidth_Bps)
    inverse = (s_per_byte_of_root(topology, root) * unit).denominator
    return inverse // math.gcd(inverse, *rates)


def s_per_byte_of_root(topology: Topology, root: int | None) -> Fraction:
    """Seconds per byte of each root's data at the optimum: of all roots (None), or of one. 0 for one NPU."""
    less = _less(topology, root)
    if less is not None:
        return less.s_per_byte
    cut = gather_cut(topology) if root is None else broadcast_cut(topology, root)
    return Fraction(0) if cut is None else cut.s_per_byte


def _less(topology: Topology, root: int | None) -> Forwarded | None:
    """What switches that copy nothing leave; of one root only where that is less than the cut: those have room."""
    found = forwarded(topology, root)
    if found is None or root is None:
        return found
    cut = broadcast_cut(topology, root)
    return found if cut is None or found.s_per_byte > cut.s_per_byte else None


def links_within(topology: Topology, root: int | None, per_unit: Fraction) -> list[int]:
    """Most trees of each link in so many units of time, of which every switch receives what it sends."""
    _, rates = whole_capacities(topology.bandwidth_Bps)
    most, less = _rounded(rates, per_unit), _less(topology, root)
    if less is not None:
        near = (math.ceil(float(per_unit * rate) * part - NEAR) for rate, part in zip(rates, less.part, strict=True))
        most = list(map(min, most, near))
    return most if root is not None and less is None else balanced(topology, most)


@remembered
def trees_fit(topology: Topology, k: int, root: int | None, s_per_block_byte: Fraction) -> bool:
    """Whether k trees from every root (None), or from one, fit into that time."""
    unit, _ = whole_capacities(topology.bandwidth_Bps)
    return _Fits(topology, k, root, s_per_block_byte * unit)(s_per_block_byte * unit)


@remembered
def least_s_per_block_byte(topology: Topology, k: int, root: int | None) -> Fraction:
    """Shortest time per byte of every block, with k trees from every root (None), or from one.

    It is U per unit of bandwidth for the smallest U for which the trees fit into links that carry floor(U b) of them: a
    multiple of 1/b for some bandwidth b, at least k/x* and at most that plus 1 / min b. Where switches cannot send on
    all of those, it may be more.
    """
    unit, rates = whole_capacities(topology.bandwidth_Bps)
    distinct = sorted(set(rates))
    low = k * s_per_byte_of_root(topology, root) * unit
    wider = Fraction(1, distinct[0])
    fits = _Fits(topology, k, root, low + WIDEST * wider)
    while sends_more(topology, _rounded(rates, low + wider)) and wider * distinct[0] < WIDEST and not fits(low + wider):
        wider *= 2
    high = low + wider
    while sum(math.floor(high * rate) - math.ceil(low * rate) + 1 for rate in distinct) > MOST_POINTS:
        middle = (low + high) / 2
        low, high = (low, middle) if fits(middle) else (middle, high)
    points = sorted({
        Fraction(many, rate) for rate in distinct for many in range(math.ceil(low * rate), math.floor(high * rate) + 1)
    })
    return points[bisect_left(points, True, hi=len(points) - 1, key=fits)] / unit


def _rounded(rates: list[int], per_unit: Fraction) -> list[int]:
    trees = {rate: math.floor(per_unit * rate) for rate in set(rates)}
    return [trees[rate] for rate in rates]


class _Fits:
    """Whether k trees per root fit at scales up to `most`, by one flow to each NPU, or to one if all are alike."""

    def __init__(self, topology: Topology, k: int, root: int | None, most: Fraction) -> None:
        n, self.topology, self.root = topology.n_npus, topology, root
        _, self.rates = whole_capacities(topology.bandwidth_Bps)
        roots = range(n) if root is None else (root,)
        self.source, self.need = topology.n_nodes, k * len(roots)
        # Trees of the others that enter an NPU, and its links, of which all are equal; 0 where flows are needed.
        self.entering, self.links = 0, topology.n_links // n
        if root is None and is_cut_at_one_npu(topology):
            self.entering = self.need - k
            return
        total = self.need + sum(_rounded(self.rates, most))
        self.network = FlowNetwork(topology.n_nodes + 1, 4 * total > LARGEST)
        ends = zip(topology.src.tolist(), topology.dst.tolist(), strict=True)
        self.arcs = [self.network.add(tail, head) for tail, head in ends]
        for npu in roots:
            self.network.add(self.source, npu, k)
        self.sinks = range(1) if root is None and is_transitive(topology) else range(n)

    def __call__(self, scale: Fraction) -> bool:
        if self.entering:
            return math.floor(scale * self.rates[0]) * self.links >= self.entering
        self.network.capacity[self.arcs] = links_within(self.topology, self.root, scale)
        return all(self.network.flow(self.source, npu, self.need) >= self.need for npu in self.sinks)


def roots_reach_all(topology: Topology, roots: dict[int, int], links: list[int]) -> bool:
    """Whether as many trees as each root has fit into links that carry so many, by one flow to each NPU."""
    source, need = topology.n_nodes, sum(roots.values())
    network = FlowNetwork(topology.n_nodes + 1, 4 * (need + sum(links)) > LARGEST)
    for tail, head, many in zip(topology.src.tolist(), topology.dst.tolist(), links, strict=True):
        network.add(tail, head, many)
    for root, trees in roots.items():
        network.add(source, root, trees)
    return all(network.flow(source, npu, need) >= need for npu in range(topology.n_npus))


MOST_K = 128
"""Default limit on trees per root: above what any regular fabric takes (mi250:2, 83; its broadcast, 128)."""

LOSS = Fraction(1, 100)
"""Default loss that is accepted for fewer trees."""

PADDING = Fraction(1, 100)
"""Limit on what blocks of whole elements add to the array, if the number of trees is a choice."""


@checked
@dataclass(frozen=True)
class Limits:
    """What is accepted for fewer trees than the optimum takes."""

    most_k: Count | None = None  # most trees per root; None for `MOST_K`
    # accepted loss of bandwidth, below 1; more is an error. None for `LOSS`, or as little as `most_k` allows.
    loss: Annotated[float, Number(0, 1)] | None = None

    def __post_init__(self) -> None:
        if self.loss == 1:
            raise WeftError("loss is 1: it is a fraction of the bandwidth, from 0 to below 1")


@dataclass(frozen=True)
class FewTrees:
    """A number of trees per root, and its exact loss of bandwidth against the optimum."""

    k: int
    loss: Fraction

    def told(self, of: str = "") -> str:
        """For people; `of`: of what the optimum is."""
        percent = math.ceil(self.loss * 10_000) / 100  # rounded up: a loss is not understated
        where = f"{percent:g} % below" if percent else "at"
        return f"{where} the optimum{of}, {self.k} {'tree' if self.k == 1 else 'trees'} per root"


class Sides(NamedTuple):
    """Where trees grow: a network for each direction, reversed if toward the roots, and the root if there is one.

    Directions take turns on the links.
    """

    topology: Topology
    kind: str
    networks: tuple[Topology, ...]
    root: int | None = None

    @classmethod
    def of(cls, topology: Topology, kind: str, root: int = 0) -> "Sides":
        """The directions of a collective."""
        away, toward = kind not in ("reduce-scatter", "reduce"), kind in ("reduce-scatter", "reduce", "all-reduce")
        networks = (topology,) * away + ((mirror_of(topology),) if toward else ())
        return cls(topology, kind, networks, root if collective(kind).rooted else None)

    def least_s_per_byte(self) -> Fraction:
        """Of the data of each root, with as many trees as the optimum takes."""
        return sum((s_per_byte_of_root(one, self.root) for one in self.networks), Fraction(0))

    def loss(self, k: int) -> Fraction:
        """Exact loss of bandwidth with k trees per root."""
        whole = sum((least_s_per_block_byte(one, k, self.root) for one in self.networks), Fraction(0))
        return 1 - k * self.least_s_per_byte() / whole

    def is_within(self, k: int, loss: Fraction) -> bool:
        """Whether each direction loses no more than that with k trees per root."""
        return all(
            trees_fit(one, k, self.root, k * s_per_byte_of_root(one, self.root) / (1 - loss)) for one in self.networks
        )


def exact_k(sides: Sides) -> int:
    """Trees per root that the optimum takes, of both directions in an all-reduce; more than can be if none reach it."""
    found = [_exact_k(one, sides.root) for one in sides.networks]
    for one, k in zip(sides.networks, found, strict=True):
        if _less(one, sides.root) and not (
            k <= MOST_K and trees_fit(one, k, sides.root, k * s_per_byte_of_root(one, sides.root))
        ):
            return MOST_BLOCKS + 1
    return math.lcm(*found)


def fewer_trees(sides: Sides, limits: Limits, size_bytes: int, element_bytes: int) -> Iterator[FewTrees]:
    """Numbers of trees to be tried, best first; nothing if the optimum is within the limit and pads the array little.

    `size_bytes`, `element_bytes`: of the array; with 0 bytes no number of trees is excluded by its padding.
    WeftError: a loss that is asked for and cannot be reached, with what can be.
    """
    n = sides.topology.n_npus
    most = limits.most_k or MOST_K
    exact = exact_k(sides)
    owners = n if sides.root is None else 1
    if exact <= most and padded_little(size_bytes, element_bytes, owners, exact):
        return
    most = min(most, max(1, MOST_BLOCKS // (owners * n)))
    allowed = tuple(k for k in range(1, most + 1) if padded_little(size_bytes, element_bytes, owners, k))
    accepted = LOSS if limits.loss is None else Fraction(limits.loss)
    within = False
    for k in allowed:
        if sides.is_within(k, accepted) and sides.loss(k) <= accepted:  # more time may not be of use to switches
            yield FewTrees(k, sides.loss(k))
            within = True
    if within:
        return
    order = sorted((FewTrees(k, sides.loss(k)) for k in allowed), key=lambda one: (one.loss, one.k))
    if limits.loss is not None:
        raise WeftError(
            f"{sides.kind} on {sides.topology.name}: the best of up to {most} trees per root is {order[0].told()}: "
            f"more than the accepted loss of {100 * float(accepted):g} %; raise most_k or loss"
        )
    yield from order


def check_blocks(topology: Topology, k: int, owners: int) -> None:
    """Reject numbers of trees whose schedule could not be held.

    WeftError: the message says how many blocks there would be.
    """
    blocks = k * owners * topology.n_npus
    if blocks > MOST_BLOCKS:
        raise WeftError(
            f"{k:,} trees per root on {topology.name}: its {topology.n_npus} NPUs would receive {blocks:,} blocks "
            f"(limit: {MOST_BLOCKS:,}); choose a smaller k"
        )


def padded_little(size_bytes: int, element_bytes: int, owners: int, k: int) -> bool:
    """Whether k blocks per owner pad the array by at most `PADDING`, or no more than one block does."""
    padded, least = (
        many * owners * element_bytes * -(-size_bytes // (many * owners * element_bytes)) for many in (k, 1)
    )
    return padded <= max(least, math.floor((1 + PADDING) * size_bytes))
