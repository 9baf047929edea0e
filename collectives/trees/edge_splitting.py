"""Edge splitting: a network without switches that admits as many trees as the one with them.

A link into a switch and one out of it are replaced by a logical link past it, as long as no relevant cut falls below
the demand (Bang-Jensen, Frank and Jackson; arXiv 2305.18461). Every logical link keeps the physical paths it
consists of, with their multiplicities.
"""

import random
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

from collectives.trees.forest import Routes
from topologies import Topology, WeftError
from topologies.flows.maxflow import LARGEST, FlowNetwork
from topologies.flows.tightest_cut import remembered
from topologies.stages import count

Pair = tuple[int, int]
Path = tuple[int, ...]
Shares = deque[tuple[Path, int]]
"""Physical paths, as links in order, with their multiplicities."""

TRIES = 12
"""Random orders of partners (fixed seed) tried for a switch before every pair is tested separately."""


class Logical(NamedTuple):
    """Links between NPUs, each made of physical paths."""

    capacity: dict[Pair, int]  # by (tail, head): trees on each logical link
    # by (tail, head): (links, multiplicity); the multiplicities of a link sum to its capacity
    paths: dict[Pair, Shares]


def without_switches(
    topology: Topology, link_capacity: Sequence[int], demand: Mapping[int, int], *, spread: bool = True,
    routes: Routes | None = None,
) -> Logical:
    """Replace every switch by logical links past it.

    `link_capacity`: trees on each link.
    `demand`: trees per root.
    `spread`: whether a node is connected to as many others as possible, each with its share, which keeps trees shallow;
        otherwise each pair takes all it can, which keeps trees few.
    `routes`: the ways that logical links may take. Default: all.
    WeftError: the trees do not fit past a switch, as where one sends more than it receives.
    """
    return _split_off(topology, tuple(link_capacity), tuple(demand.items()), spread, routes)


@remembered
def _split_off(
    topology: Topology, link_capacity: tuple[int, ...], demand: tuple[tuple[int, int], ...], spread: bool,
    routes: Routes | None,
) -> Logical:
    split = _Splitting(topology, link_capacity, dict(demand), routes)
    switches = split.order()
    for number, switch in enumerate(switches):
        count("switches that are split off", number, len(switches))
        split.remove(switch, spread)
    split.check()
    return Logical({pair: cap for pair, cap in split.capacity.items() if cap}, dict(split.paths))


class _Splitting:
    """The network while its switches are removed; node n_nodes feeds all roots."""

    def __init__(
        self, topology: Topology, link_capacity: Sequence[int], demand: Mapping[int, int], routes: Routes | None
    ) -> None:
        self.topology, self.demand = topology, demand
        self.parts = None if routes is None else {
            way[first:last] for way in routes for first, last in combinations(range(len(way) + 1), 2)
        }  # of the ways that logical links may take
        n = topology.n_nodes
        self.feed, self.source, self.sink = n, n + 1, n + 2
        self.need = sum(demand.values())
        self.capacity: dict[Pair, int] = defaultdict(int)
        self.paths: dict[Pair, Shares] = defaultdict(deque)
        for link, cap in enumerate(link_capacity):
            if cap and (self.parts is None or (link,) in self.parts):
                pair = (int(topology.src[link]), int(topology.dst[link]))
                self.capacity[pair] += cap
                self.paths[pair].append(((link,), cap))
        total = 4 * (sum(self.capacity.values()) + self.need) + 1
        self.infinite = total
        self.network = FlowNetwork(n + 3, 4 * total > LARGEST)
        self.arc = {pair: self.network.add(*pair, cap) for pair, cap in self.capacity.items()}
        self.out: dict[int, int] = defaultdict(int)  # capacity of all links out of a node
        self.tails: dict[int, set[int]] = defaultdict(set)
        self.heads: dict[int, set[int]] = defaultdict(set)
        for (tail, head), cap in self.capacity.items():
            self.out[tail] += cap
            self.tails[head].add(tail)
            self.heads[tail].add(head)
        for root, trees in demand.items():
            self.arc[self.feed, root] = self.network.add(self.feed, root, trees)
        self.start = {node: self.network.add(self.source, node) for node in range(n + 1)}
        self.end = {node: self.network.add(node, self.sink) for node in range(n + 1)}
        self.before: dict[Pair, tuple[int, Shares | None]] = {}  # of the links changed since an attempt began
        self.hard: deque[int] = deque(range(topology.n_npus))  # most recently binding first

    def order(self) -> list[int]:
        """Switches: first pass-through nodes such as NICs, then those closest to the NPUs.

        Logical links then go up and down again by the shortest path: 34 links from a root to its farthest leaf instead
        of 44 on leaf-spine:4x4x4, 74 instead of 92 on fat-tree:4x3.
        """
        switches = range(self.topology.n_npus, self.topology.n_nodes)
        degree = {node: len(self.tails[node]) + len(self.heads[node]) for node in switches}
        near = self._distances()
        return sorted(degree, key=lambda node: (degree[node] > 4, near.get(node, len(near)), degree[node], node))

    def _distances(self) -> dict[int, int]:
        """Links from the nearest NPU to each reachable node."""
        distance = dict.fromkeys(range(self.topology.n_npus), 0)
        reached = list(distance)
        for node in reached:
            for head in sorted(self.heads[node]):
                if head not in distance:
                    distance[head] = distance[node] + 1
                    reached.append(head)
        return distance

    def remove(self, switch: int, spread: bool) -> None:
        """Pair links into the switch with links out of it until none is left, or none can be paired.

        Spread evenly, pairs rarely violate a cut, in whatever order: that is tried first, and verified by one flow to
        each NPU. Otherwise every pair is tested separately.
        """
        if spread and not self._passed_through(switch):
            for seed in range(TRIES):
                self.before.clear()
                self._pair_off(switch, random.Random(seed), spread=True)
                if self._unreached() is None:
                    return
                self._restore()
        self._pair_off(switch, None, spread=spread)

    def _pair_off(self, switch: int, lots: random.Random | None, *, spread: bool) -> None:
        """Split pairs as long as there are any: in random order, or each tested."""
        progress = True
        while progress:
            progress = False
            for u in self._into(switch):
                out = self._out_of(switch)
                if lots:
                    lots.shuffle(out)
                for t in out:
                    if t != u and self.capacity[u, switch] and self.capacity[switch, t]:
                        most = self._share(u, switch, t) if spread else self.infinite
                        progress |= self._split(u, switch, t, most, lots is None)
            if not progress:
                for u in self._into(switch):
                    if self.capacity[switch, u] and self.capacity[u, switch]:
                        progress |= self._split(u, switch, u, self.infinite, lots is None)
        for u in self._into(switch):
            self._take(u, switch, self.capacity[u, switch])
        for t in self._out_of(switch):
            self._take(switch, t, self.capacity[switch, t])

    def _restore(self) -> None:
        """Undo an attempt."""
        for pair, (cap, found) in list(self.before.items()):
            self._set(*pair, cap)
            if found is None:
                del self.paths[pair]
            else:
                self.paths[pair] = found

    def _unreached(self) -> int | None:
        """An NPU that not all trees reach."""
        for npu in range(self.topology.n_npus):
            if self._reaching(npu) < self.need:
                return npu
        return None

    def _reaching(self, npu: int) -> int:
        """Trees that reach an NPU, found from those that did before."""
        self._end_at(npu, self.infinite)
        reaching = self.network.flow_again(npu, self.source, self.sink, self.need)
        self._end_at(npu, 0)
        return reaching

    def _end_at(self, npu: int, cap: int) -> None:
        """Give the roots and the end at an NPU a capacity."""
        self.network.capacity[self.start[self.feed]] = self.network.capacity[self.end[npu]] = cap

    def check(self) -> None:
        """Every NPU must still be reached by all trees."""
        npu = self._unreached()
        if npu is not None:
            how = "past the switches; allow more trees per root"
            if self.parts is not None:
                how = "along the fabric's own routes past the switches; omit paths, or choose 'any'"
            node = self.topology.node_name(npu)
            raise WeftError(f"topology {self.topology.name}: {self.need} trees do not reach {node} {how}")

    def _into(self, node: int) -> list[int]:
        return sorted(u for u in self.tails[node] if self.capacity[u, node])

    def _out_of(self, node: int) -> list[int]:
        return sorted(t for t in self.heads[node] if self.capacity[node, t])

    def _share(self, u: int, w: int, t: int) -> int:
        others = self.out[w] - self.capacity[w, u]
        return max(1, self.capacity[u, w] * self.capacity[w, t] // others)

    def _leads(self, u: int, w: int, t: int) -> bool:
        """Whether all paths from u past w to t are among the ways that logical links may take."""
        return self.parts is None or u == t or all(
            (*one, *other) in self.parts for one, _ in self.paths[u, w] for other, _ in self.paths[w, t]
        )

    def _split(self, u: int, w: int, t: int, most: int, tested: bool) -> bool:
        if not self._leads(u, w, t):
            return False
        amount = min(most, self.capacity[u, w], self.capacity[w, t])
        if tested and not self._passed_through(w):
            amount = self._allowed(u, w, t, amount)
        if amount <= 0:
            return False
        one, other = self._take(u, w, amount), self._take(w, t, amount)
        if u != t:
            self._set(u, t, self.capacity[u, t] + amount)
            self.paths[u, t].extend(_join(one, other))
        return True

    def _passed_through(self, w: int) -> bool:
        """Whether a switch has two neighbors, with as much to one as from the other, so that no cut can shrink."""
        into = self._into(w)
        if len(into) != 2 or into != self._out_of(w):
            return False
        a, b = into
        return self.capacity[a, w] == self.capacity[w, b] and self.capacity[b, w] == self.capacity[w, a]

    def _allowed(self, u: int, w: int, t: int, amount: int) -> int:
        """The largest amount that no cut forbids."""
        self.network.asks_of((
            (self.start[u], self.start[t], self.end[w]), (self.start[w], self.end[u], self.end[t]),
        ))
        for v in list(self.hard):
            if amount <= 0:
                break
            least = self._slack(v, amount, reached=v in (u, t))
            if least < amount:
                amount = least
                self.hard.remove(v)
                self.hard.appendleft(v)
        return amount

    def _slack(self, npu: int, amount: int, *, reached: bool) -> int:
        """Slack over the demand of the cuts between the roots and an NPU that a split makes smaller; at most `amount`.

        `reached`: whether the NPU is an end of the link that the split makes.
        """
        self._end_at(npu, self.infinite)
        slack = self.network.least_slack(npu, self.source, self.sink, self.need, amount, second=reached)
        self._end_at(npu, 0)
        return slack

    def _set(self, u: int, t: int, cap: int) -> None:
        """Change the capacity of a link, before its paths."""
        if (u, t) not in self.before:
            found = self.paths.get((u, t))
            self.before[u, t] = self.capacity[u, t], None if found is None else found.copy()
        self.out[u] += cap - self.capacity[u, t]
        self.capacity[u, t] = cap
        if (u, t) not in self.arc:
            self.arc[u, t] = self.network.add(u, t)
            self.tails[t].add(u)
            self.heads[u].add(t)
        self.network.capacity[self.arc[u, t]] = cap

    def _take(self, u: int, w: int, amount: int) -> Shares:
        """Remove capacity from a link, and the same amount of its paths."""
        self._set(u, w, self.capacity[u, w] - amount)
        return take_paths(self.paths[u, w], amount)


def take_paths(paths: Shares, amount: int) -> Shares:
    """Remove paths of a given total multiplicity from the front of a list."""
    taken: Shares = deque()
    while amount:
        links, many = paths.popleft()
        here = min(many, amount)
        taken.append((links, here))
        amount -= here
        if here < many:
            paths.appendleft((links, many - here))
    return taken


def _join(one: Shares, other: Shares) -> Shares:
    """Concatenated paths; both lists have the same total multiplicity."""
    joined: Shares = deque()
    while one:
        many = min(one[0][1], other[0][1])
        ((first, _),), ((second, _),) = take_paths(one, many), take_paths(other, many)
        joined.append(((*first, *second), many))
    return joined
