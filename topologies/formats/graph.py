"""A network under construction by a reader: nodes by name, links that may be parallel, latencies of each switch."""

from topologies.checks import WeftError
from topologies.core.custom import network_of
from topologies.core.topology import Topology

MOST_NODES = 200_000
MOST_LINKS = 4_000_000


class Graph:
    """NPUs in rank order, switches in the order in which ties between paths prefer them."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.npus: dict[str, None] = {}
        self.npu_hop_ps = 0
        self.switches: dict[str, int] = {}
        self._links: list[tuple[str, str, float, int, int]] = []

    def add(self, name: str, hop_ps: int = 0) -> str:
        """A switch, by its name."""
        self.switches[name] = hop_ps
        return name

    def link(self, src: str, dst: str, rate_Bps: float, latency_ps: int, tier: int = -1) -> None:
        """One direction."""
        if len(self._links) >= MOST_LINKS:
            raise WeftError(f"{self.name} has more than {MOST_LINKS:,} links")
        self._links.append((src, dst, rate_Bps, latency_ps, tier))

    def cable(self, one: str, other: str, rate_Bps: float, latency_ps: int, tier: int = -1) -> None:
        """Both directions, each of this rate."""
        self.link(one, other, rate_Bps, latency_ps, tier)
        self.link(other, one, rate_Bps, latency_ps, tier)

    def topology(self) -> Topology:
        """The network, with routes over the fewest links.

        WeftError: no NPU.
        """
        if not self.npus:
            raise WeftError(f"{self.name} has no NPU")
        names = (*self.npus, *self.switches)
        number = {name: at for at, name in enumerate(names)}
        src, dst, rates, times, tiers = zip(*self._links, strict=True) if self._links else ((),) * 5
        ends = [(number[one], number[other]) for one, other in zip(src, dst, strict=True)]
        hops = [self.npu_hop_ps] * len(self.npus) + list(self.switches.values())
        return network_of(self.name, len(self.npus), len(names), ends, rates, times, hops, dimension=tiers,
                          node_names=names)


def check_size(name: str, nodes: int) -> None:
    """Refuse what is too large before it is built."""
    if nodes > MOST_NODES:
        raise WeftError(f"{name} has {nodes:,} nodes; at most {MOST_NODES:,}")
