"""Optical circuits: which interfaces they connect, through which device, and how long that device takes to switch.

A server has a number of optical interfaces. Duplex: an interface sends and receives on one cable, and a circuit
connects one interface at each end in both directions. Simplex: the two fibers of an interface are patched separately,
and a circuit leads from one server to another in one direction.
"""

import math
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import combinations_with_replacement, cycle, islice, permutations
from typing import Unpack

import numpy as np

from topologies.checks import Count, WeftError, checked, choice, nearest
from topologies.circulants import circulant
from topologies.core.custom import network_of
from topologies.core.extents import check_memory, format_extents, parse_extents
from topologies.core.links import DEFAULT_BANDWIDTH, DEFAULT_LATENCY, EqualLinks, parse_link
from topologies.core.paths import Ints, Paths
from topologies.core.routing import ShortestPathRouter
from topologies.core.topology import Optics, Router, Topology
from topologies.products import fully_connected, torus
from topologies.text.brief import one_line
from topologies.totient_rings import select_permutations, totient_perms
from topologies.units import Quantity, Rate, bytes_per_s, parse_time

Pair = tuple[int, int]


@checked
@one_line
@dataclass(frozen=True)
class Circuits:
    """Circuits between servers; the same pair may have several.

    Attributes
    ----------
    n : int
        Servers.
    interfaces : int
        Per server.
    pairs : tuple of (int, int)
        Ends of each circuit; (from, to) if simplex.
    duplex : bool

    Raises
    ------
    WeftError
        A circuit that joins a server to itself or to one that does not exist, or more circuits at a server than it has
        interfaces.
    """

    n: Count
    interfaces: Count
    pairs: tuple[Pair, ...]
    duplex: bool = True

    def __post_init__(self) -> None:
        for a, b in self.pairs:
            if not (0 <= a < self.n and 0 <= b < self.n) or a == b:
                raise WeftError(f"circuit {a}-{b}: its ends are two different servers of 0 to {self.n - 1}")
        sides = (("circuits", self.pairs, (0, 1)),) if self.duplex else (
            ("outgoing circuits", self.pairs, (0,)), ("incoming circuits", self.pairs, (1,)))
        for what, pairs, ends in sides:
            used = Counter(pair[end] for pair in pairs for end in ends)
            for server, count in used.items():
                if count > self.interfaces:
                    raise WeftError(f"server {server} has {count} {what}, and {self.interfaces} interfaces for them")

    def links(self) -> Counter[Pair]:
        """Directed links, with the number of circuits on each."""
        back = [(b, a) for a, b in self.pairs] if self.duplex else []
        return Counter([*self.pairs, *back])


@checked
def optical(
    circuits: Circuits,
    *,
    bandwidth: Quantity = DEFAULT_BANDWIDTH,
    latency: Quantity = DEFAULT_LATENCY,
    hop_latency: Quantity = 0,
    router: Router | None = None,
    name: str = "optical",
) -> Topology:
    """The network made by circuits. Servers forward; parallel circuits become one link with their combined bandwidth.

    Parameters
    ----------
    circuits : Circuits
    bandwidth, latency : quantity
        Per direction of a circuit.
    hop_latency : quantity
        Added on every arrival at a server.
    router : Router, optional
        Default: shortest paths.
    name : str
    """
    return _network(circuits, bandwidth, latency, hop_latency, router or ShortestPathRouter(), name, None)


@checked
def hybrid(
    circuits: Circuits,
    *,
    switch_bandwidth: Rate,
    bandwidth: Quantity = DEFAULT_BANDWIDTH,
    latency: Quantity = DEFAULT_LATENCY,
    hop_latency: Quantity = 0,
    name: str = "hybrid",
) -> Topology:
    """Circuits next to an electrical switch that connects all servers: pairs with a circuit use it, others the switch.

    Parameters
    ----------
    circuits : Circuits
    switch_bandwidth : quantity
        Of one direction of each server's cable to the switch.
    bandwidth : quantity
        Of one direction of a circuit.
    latency : quantity
        Of every cable.
    hop_latency : quantity
        Added on every arrival at the switch.
    name : str
    """
    return _network(circuits, bandwidth, latency, hop_latency, CircuitOrSwitchRouter(), name, switch_bandwidth)


def _network(
    circuits: Circuits, bandwidth: Quantity, latency: Quantity, hop_latency: Quantity, router: Router, name: str,
    switch_bandwidth: Rate | None,
) -> Topology:
    rate, latency_ps = parse_link(bandwidth, latency)
    n, links = circuits.n, circuits.links()
    ends = [*links, *((a, b) for v in range(n) for a, b in ((v, n), (n, v)) if switch_bandwidth is not None)]
    electrical = len(ends) - len(links)
    switch_rate = rate if switch_bandwidth is None else parse_link(switch_bandwidth, latency)[0]
    n_nodes = n + (electrical > 0)
    hop_ps = np.full(n_nodes, parse_time(hop_latency, "hop latency"), np.int64)
    hop_ps[:n] *= electrical == 0  # next to a switch, servers are plain endpoints
    rates = [rate * count for count in links.values()] + [switch_rate] * electrical
    tiers = [0] * len(links) + [1] * electrical
    return network_of(
        name, n, n_nodes, ends, rates, [latency_ps] * len(ends), hop_ps, dimension=tiers, router=router
    )


@dataclass(frozen=True)
class CircuitOrSwitchRouter:
    """The direct circuit of a pair if there is one, otherwise the switch, whose index is the number of NPUs."""

    def paths(self, topology: Topology, src: Ints, dst: Ints, tie: str, seed: int) -> Paths:
        """Routes of the pairs; there are no ties."""
        direct, hub = topology.link_ids(src, dst), np.full(src.size, topology.n_npus)
        through_hub = (src != dst) & (direct < 0)
        stray = through_hub & ((src >= topology.n_npus) | (dst >= topology.n_npus))
        if np.any(stray):
            at = int(np.argmax(stray))
            raise WeftError(f"topology {topology.name}: no route from node {src[at]} to {dst[at]}")
        hops = np.where(src == dst, 0, 1 + through_hub)
        first = np.where(through_hub, topology.link_ids(src, hub), direct)
        links = np.stack([first, topology.link_ids(hub, dst)], axis=1)[np.arange(2) < hops[:, None]]
        return Paths(np.concatenate(([0], np.cumsum(hops))), links.astype(np.int32), np.arange(src.size))


@checked
def rotor_matchings(n: int, *, duplex: bool = False) -> list[Circuits]:
    """Configurations of a demand-oblivious rotor: together they connect every pair of servers once.

    Parameters
    ----------
    n : int
        Servers; even if circuits are duplex.
    duplex : bool
        n - 1 matchings by the circle method, or n - 1 rotations.

    References
    ----------
    .. [1] W. Mellette et al., "RotorNet: A Scalable, Low-complexity, Optical Datacenter Network", SIGCOMM 2017.
    """
    if n < 2 or (duplex and n % 2):
        raise WeftError(f"a rotor over {n} servers: give at least 2, and an even number if circuits are duplex")
    if not duplex:
        return [Circuits(n, 1, tuple((v, (v + by) % n) for v in range(n)), False) for by in range(1, n)]
    turns = []
    for turn in range(n - 1):
        pairs = [(turn, n - 1)] + [((turn + k) % (n - 1), (turn - k) % (n - 1)) for k in range(1, n // 2)]
        turns.append(Circuits(n, 1, tuple((min(pair), max(pair)) for pair in pairs)))
    return turns


RINGS, KAUTZ, FULL = "rings", "kautz", "full"

DEFAULT_DELAY = "10us"

POLICIES = ("", "demand", "provisioned")

_FLAGS = ("duplex", "per-port", "paid", "single")


@checked
def ocs(
    n: Count, ports: Count, *, duplex: bool = False, delay: Quantity = DEFAULT_DELAY, per_port: bool = False,
    paid: bool = False, single: bool = False, circuits: str = "", policy: str = "", **links: Unpack[EqualLinks],
) -> Topology:
    """Servers with optical ports behind circuit switches, and the circuits that are up in the beginning.

    Parameters
    ----------
    n : int
        Servers.
    ports : int
        Of each server.
    duplex : bool
        Whether a circuit takes a port at both ends and leads both ways; otherwise the fibers of a port are switched
        apart.
    delay : quantity
        How long a port that changes is dark: control, switching and link-up together.
    per_port : bool
        Whether only the ports that change are dark, or the whole fabric.
    paid : bool
        Whether the first circuits take the delay too; otherwise they are up in the beginning.
    single : bool
        Whether a pair of servers has at most one circuit.
    circuits : str
        Those of `layouts`, or a torus such as "4x4"; default: rings, and whoever plans may choose others.
    policy : {"", "demand", "provisioned"}
        Of jobs of several operations: whether circuits for each are switched when it is ready for them, or as soon as
        those before are idle; default: they stay as they are.
    bandwidth, latency : quantity
        Per direction of a circuit.
    hop_latency : quantity
        Added on every arrival at a server.

    Raises
    ------
    WeftError
        Circuits that take more ports than there are, or do not join all servers; a fabric that is too large for memory.
    """
    check_memory(f"ocs:{n}x{ports}", n, n * ports)
    rate = parse_link(links["bandwidth"], links["latency"])[0]
    delay_ps = sum(parse_time(part, "reconfiguration delay") for part in str(delay).split("+"))
    choice(policy or POLICIES[1], POLICIES[1:], "policy of circuits")
    given = Optics(ports, duplex, delay_ps, per_port, paid, single, circuits, policy, rate)
    options = [name for name, on in zip(_FLAGS, (duplex, per_port, paid, single), strict=True) if on]
    values = {"circuits": circuits, "policy": policy}
    more = [f"delay={delay}", *options, *(f"{name}={value}" for name, value in values.items() if value)]
    found = _built(circuits or RINGS, n, given, links)
    return replace(found, name=f"ocs:{n}x{ports}," + ",".join(more), optics=given)


def parse_ocs(argument: str, **links: Unpack[EqualLinks]) -> Topology:
    """The fabric of "16x4,delay=10us,per-port"."""
    size, *options = argument.split(",")
    what = f"ocs:{argument}"
    extents = parse_extents(size, what)
    if len(extents) != 2:
        raise WeftError(f"{what} has {len(extents)} extents: write SERVERSxPORTS, such as ocs:16x4")
    given: dict[str, str | bool] = {}
    for option in options:
        name, equals, value = option.partition("=")
        accepted = (*_FLAGS, "delay=TIME", "circuits=NAME", "policy=NAME")
        if bool(equals) != (name in ("delay", "circuits", "policy")) or not (equals or name in _FLAGS):
            raise WeftError(f"{what}: option {option!r} is unknown: choose among {', '.join(accepted)}"
                            f"{nearest(name, accepted)}")
        given[name.replace("-", "_")] = value if equals else True
    return ocs(*extents, **given, **links)  # type: ignore[arg-type]  # flags are booleans, the others text


@lru_cache(maxsize=8)
def layouts(fabric: Topology) -> dict[str, Topology]:
    """The static circuits that suit the ports of a fabric, by name; only those that it names, if it names some."""
    optics, n = fabric.optics, fabric.n_npus
    assert optics is not None
    if optics.circuits or n == 1:
        return {optics.circuits or RINGS: fabric}
    names = [RINGS]
    if n - 1 <= optics.ports:
        names.append(FULL)
    elif optics.ports > 1 and not optics.duplex:
        names.append(KAUTZ)
    names += [format_extents(shape) for shape in _tori(n, optics.ports)]
    found: dict[str, Topology] = {}
    for name in names:
        built = _built(name, n, optics, links_of(fabric))
        found[name] = replace(built, name=f"{fabric.name},circuits={name}", optics=optics)
    return found


def _tori(n: int, ports: int) -> list[tuple[int, ...]]:
    """Tori of n servers on all ports: the ring, and of those of least diameter that of fewest and most dimensions."""
    def split(left: int, most: int) -> list[tuple[int, ...]]:
        return [()] if left == 1 else [
            (extent, *rest) for extent in range(min(left, most), 1, -1) if left % extent == 0
            for rest in split(left // extent, extent)
        ]
    fit = [shape for shape in split(n, n) if _taken(shape) <= ports and ports % _taken(shape) == 0]
    across = [sum(extent // 2 for extent in shape) for shape in fit]
    least = [shape for shape, hops in zip(fit, across, strict=True) if hops == min(across)]
    return list(dict.fromkeys([*fit[:1], *least[:1], *least[-1:]]))


def _taken(shape: tuple[int, ...]) -> int:
    """Ports that a torus takes of each server."""
    return sum(min(extent - 1, 2) for extent in shape)


def _built(name: str, n: int, optics: Optics, links: EqualLinks) -> Topology:
    """Circuits by name, each pair with as many as the ports allow."""
    ports, duplex = optics.ports, optics.duplex
    if n == 1:
        return torus((1,), **links)
    if name == RINGS:
        even = duplex and n > 2
        if ports < 1 + even:
            raise WeftError(f"{ports} duplex port joins {n} servers in pairs only: at least 2, or simplex ports")
        wanted = ports - ports % 2 if even else ports
        jumps = select_permutations(n, wanted, totient_perms(n), duplex=even, dedupe=even)
        some = jumps if optics.single else islice(cycle(jumps), wanted // (1 + even))
        return circulant(n, tuple(some), duplex=even, **links)
    if name == KAUTZ:
        pairs = [(v, -(ports * v + turn) % n) for v in range(n) for turn in range(1, ports + 1)]
        apart = (pair for pair in pairs if pair[0] != pair[1])
        kept = tuple(dict.fromkeys(apart) if optics.single else apart)
        return optical(Circuits(n, ports, kept, False), **links)
    shape = (2,) * (n == 2) if name == FULL else parse_extents(name, f"circuits {name!r}")
    taken = n - 1 if name == FULL else _taken(shape)
    if name != FULL and math.prod(shape) != n:
        raise WeftError(f"circuits {name!r} join {math.prod(shape)} servers, not {n}")
    if taken > ports:
        raise WeftError(f"circuits {name!r} take {taken} of the {ports} ports of a server")
    found = fully_connected(n, **links) if name == FULL else torus(shape, **links)
    return found if optics.single else found.with_links(bandwidth_Bps=found.bandwidth_Bps * (ports // taken))


def stride_rings(fabric: Topology) -> list[Topology]:
    """Rings of servers 1, 2, 4, ... apart, in both directions: states on which several steps run well."""
    optics, n = fabric.optics, fabric.n_npus
    assert optics is not None
    if optics.ports < 2 or n < 2:
        return []
    times = 1 if optics.single else optics.ports // 2
    return [
        replace(circulant(n, (1 << t,) * times, connected=False, **links_of(fabric)), optics=optics)
        for t in range((n - 1).bit_length()) if n % (2 << t) == 0 or t == 0
    ]


def all_states(fabric: Topology, most: int) -> list[Topology]:
    """All circuits that take every simplex port; none where there are more than `most`, or ports are duplex."""
    optics, n = fabric.optics, fabric.n_npus
    assert optics is not None
    if optics.duplex or optics.single or n < 2:
        return []
    matchings = sum((-1) ** k * math.perm(n, n - k) for k in range(n + 1))  # in which nobody is its own destination
    if math.comb(matchings + optics.ports - 1, optics.ports) > most:
        return []
    found = [one for one in permutations(range(n)) if all(a != b for a, b in enumerate(one))]
    return [
        replace(optical(Circuits(
            n, optics.ports, tuple((a, b) for one in some for a, b in enumerate(one)), False
        ), **links_of(fabric)), optics=optics)
        for some in combinations_with_replacement(found, optics.ports)
    ]


def joining(fabric: Topology, pairs: Collection[Pair]) -> Topology | None:
    """Circuits from each source to each destination of some pairs, as many as the ports of a fabric allow.

    None where a server has more of them than ports.
    """
    optics, n = fabric.optics, fabric.n_npus
    assert optics is not None
    wanted = sorted({(min(pair), max(pair)) for pair in pairs} if optics.duplex else set(pairs))
    ends = Counter(("any" if optics.duplex else side, end) for pair in wanted for side, end in enumerate(pair))
    most = max(ends.values(), default=1)
    if most > optics.ports:
        return None
    times = 1 if optics.single else optics.ports // most
    circuits = Circuits(n, optics.ports, tuple(pair for pair in wanted for _ in range(times)), optics.duplex)
    found = optical(circuits, **links_of(fabric), name=f"circuits for {len(wanted)} pairs")
    return replace(found, optics=optics)


def links_of(fabric: Topology) -> EqualLinks:
    """What the circuits of a fabric are like."""
    optics, latency = fabric.optics, fabric.latency_ps.max(initial=0)
    assert optics is not None
    return {"bandwidth": bytes_per_s(optics.rate_Bps), "latency": f"{latency}ps",
            "hop_latency": f"{fabric.hop_latency_ps.max()}ps"}
