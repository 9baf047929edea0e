"""Optical circuits: which interfaces they connect, through which device, and how long that device takes to switch.

A server has a number of optical interfaces. Duplex: an interface sends and receives on one cable, and a circuit
connects one interface at each end in both directions. Simplex: the two fibers of an interface are patched separately,
and a circuit leads from one server to another in one direction.
"""

from collections import Counter
from dataclasses import dataclass

import numpy as np

from topologies.checks import Count, WeftError, checked
from topologies.core.custom import network_of
from topologies.core.links import DEFAULT_BANDWIDTH, DEFAULT_LATENCY, parse_link
from topologies.core.paths import Ints, Paths
from topologies.core.routing import ShortestPathRouter
from topologies.core.topology import Router, Topology
from topologies.text.brief import one_line
from topologies.units import Quantity, Rate, Time, parse_time

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

    def free(self, server: int) -> int:
        """Unused interfaces of a server; with simplex circuits the smaller count of the two directions."""
        sends = sum(a == server for a, _ in self.pairs)
        receives = sum(b == server for _, b in self.pairs)
        return self.interfaces - (sends + receives if self.duplex else max(sends, receives))


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


@checked
@one_line
@dataclass(frozen=True)
class PatchPanel:
    """A robotic patch panel: circuits are patched ahead of time on a second plane, and flipped in when the job starts.

    Attributes
    ----------
    provision : quantity
        Time for the robot to patch all fibers.
    flip : quantity
        Time of the 1x2 switches that select the plane.
    lookahead : bool
        Whether there is a second plane, patched while an earlier job runs.
    """

    provision: Time = "300s"
    flip: Time = "10ms"
    lookahead: bool = True

    def start_delay_ps(self) -> int:
        """From the moment the servers are free to the first byte."""
        provision = parse_time(self.provision, "provisioning time of the patch panel")
        return parse_time(self.flip, "flip time of the patch panel") + (0 if self.lookahead else provision)


@checked
@one_line
@dataclass(frozen=True)
class CircuitSwitch:
    """An optical circuit switch, with its delays kept apart.

    Attributes
    ----------
    control, switching, link_up : quantity
        Time to deliver the command; to switch the light path; for both transceivers to lock.
    per_port : bool
        Whether only the ports that change go dark, or the entire fabric.
    """

    switching: Time
    control: Time = 0
    link_up: Time = 0
    per_port: bool = False

    def delay_ps(self) -> int:
        """How long a port is dark."""
        parts = ((self.control, "control"), (self.switching, "switching"), (self.link_up, "link-up"))
        return sum(parse_time(value, f"{name} delay of the circuit switch") for value, name in parts)
