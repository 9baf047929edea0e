"""What networks cost, from published prices of ports: circuits on patch panels, tiers of packet switches, and both.

Prices are those of one server's share of the network. Lists are never mixed: they differ by a factor of three.
"""

from dataclasses import dataclass
from math import inf

from topologies.checks import WeftError

SWITCH_PORTS = 64


@dataclass(frozen=True)
class Prices:
    """Dollars a port at some rates: between two of them in proportion, above the highest several in parallel."""

    source: str
    rates_Gbps: tuple[float, ...]  # ascending
    nic: tuple[float, ...]
    transceiver: tuple[float, ...]
    switch: tuple[float, ...]  # of packets
    patch: float  # all that a patch panel has of an interface
    ocs: float = 520.0  # port of an optical circuit switch
    fiber: float = 0.0

    def at(self, rate_Gbps: float) -> tuple[float, float, float]:
        """NIC, transceiver and switch port."""
        rates = self.rates_Gbps
        if not rates[0] <= rate_Gbps < inf:
            raise WeftError(f"{rate_Gbps:g} Gb/s: the prices of {self.source} begin at {rates[0]:g} Gb/s")
        parallel = max(rate_Gbps / rates[-1], 1.0)
        above = next((i for i, rate in enumerate(rates) if rate >= rate_Gbps), len(rates) - 1)
        below = max(above - 1, 0)
        part = 0.0 if above == below else min((rate_Gbps - rates[below]) / (rates[above] - rates[below]), 1.0)
        nic, transceiver, switch = (
            parallel * (kind[below] + part * (kind[above] - kind[below]))
            for kind in (self.nic, self.transceiver, self.switch)
        )
        return nic, transceiver, switch

    def patched(self, degree: int, rate_Gbps: float) -> float:
        """A server with so many interfaces on patch panels."""
        nic, transceiver, _ = self.at(rate_Gbps)
        return degree * (nic + transceiver + self.patch + self.fiber)

    def switched(self, rate_Gbps: float, tiers: int, oversubscription: float = 1.0) -> float:
        """A server under tiers of switches; oversubscription shrinks those above the edge."""
        if oversubscription < 1 or tiers < 1:
            raise WeftError(f"{tiers} tiers, oversubscription {oversubscription}: both are at least 1")
        nic, transceiver, switch = self.at(rate_Gbps)
        cables = (tiers - 1) / oversubscription  # above the edge; each has two ports and two transceivers
        return nic + (1 + 2 * cables) * switch + (2 + 2 * cables) * transceiver + (1 + cables) * self.fiber

    def regional(self, rate_Gbps: float, packet_share: float) -> float:
        """An interface where this share of a server's is under three tiers of switches and the others on an OCS.

        X. Liao et al., "MixNet", SIGCOMM 2025, table 4.
        """
        nic, transceiver, _ = self.at(rate_Gbps)
        circuits = nic + transceiver + self.ocs + self.fiber
        # Its table has half a fiber less of each packet interface than that of a fat-tree.
        packets = self.switched(rate_Gbps, 3) - self.fiber / 2
        return packet_share * packets + (1 - packet_share) * circuits

    def switched_rate(self, price: float, tiers: int, oversubscription: float = 1.0) -> float:
        """The rate in Gb/s at which a server under switches costs this."""
        low, high = self.rates_Gbps[0], self.rates_Gbps[-1]
        if price < self.switched(low, tiers, oversubscription):
            raise WeftError(f"{price:g} $ a server buy no switches by {self.source}, at {low:g} Gb/s or more")
        while self.switched(high, tiers, oversubscription) < price:
            high *= 2
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if self.switched(middle, tiers, oversubscription) <= price else (low, middle)
        return low


def tiers_for(n: int, ports: int = SWITCH_PORTS) -> int:
    """Tiers of switches of so many ports that n servers need at full rate."""
    tiers, most = 1, ports
    while most < n:
        tiers, most = tiers + 1, most * ports // 2
    return tiers


PRICES = {
    "TopoOpt": Prices("TopoOpt's scripts", (10, 25, 40, 100, 200), (185, 185, 354, 678, 815), (20, 39, 39, 99, 198),
                      (94, 144, 144, 187, 374), patch=225.0),  # two ports, for the next job too, and a 1x2 switch
    "MixNet": Prices("MixNet, table 4", (100, 200, 400, 800), (659, 1079, 1499, 2248), (99, 239, 659, 1399),
                     (187, 374, 1090, 1400), patch=100.0, fiber=150.0),  # 500 m
}
"""By the paper that published them."""
