"""What an optical fabric and a fat-tree of packet switches cost, from prices of ports.

The prices of `EXAMPLE_PRICES` are those that circulate with TopoOpt's scripts and are not verified: give your own.
"""

from __future__ import annotations

from dataclasses import dataclass

from topologies.errors import WeftError


@dataclass(frozen=True)
class PortPrices:
    """Dollars a port at one rate.

    Attributes
    ----------
    transceiver, nic, switch, patch, ocs, flip : float
        Transceiver, network card, electrical switch, patch panel, optical circuit switch, 1x2 switch.
    """

    transceiver: float
    nic: float
    switch: float
    patch: float = 100.0
    ocs: float = 520.0
    flip: float = 25.0

    def __post_init__(self) -> None:
        for name in ("transceiver", "nic", "switch", "patch", "ocs", "flip"):
            if not getattr(self, name) >= 0:
                raise WeftError(f"price of a {name} port is {getattr(self, name)}: zero or more dollars")


EXAMPLE_PRICES: dict[int, PortPrices] = {
    10: PortPrices(20, 185, 94),
    25: PortPrices(39, 185, 144),
    40: PortPrices(39, 354, 144),
    100: PortPrices(99, 678, 187),
    200: PortPrices(198, 815, 374),
}
"""By rate in Gb/s; there is none for 400."""


def patch_panel_price(n: int, degree: int, prices: PortPrices) -> float:
    """n servers of `degree` interfaces on patch panels with a look-ahead plane."""
    return n * degree * (prices.nic + prices.transceiver + 2 * prices.patch + prices.flip)


def circuit_switch_price(n: int, degree: int, prices: PortPrices) -> float:
    """n servers of `degree` interfaces on optical circuit switches."""
    return n * degree * (prices.nic + prices.transceiver + prices.ocs)


def fat_tree_price(n: int, prices: PortPrices, *, oversubscription: float = 1.0) -> float:
    """n servers under three tiers of switches; the tiers above the edge shrink by the oversubscription.

    A full tree has five switch ports and six transceivers a server, of which four and four are above the edge.
    """
    if oversubscription < 1:
        raise WeftError(f"oversubscription {oversubscription}: at least 1")
    above = 4 / oversubscription
    return n * (prices.nic + (1 + above) * prices.switch + (2 + above) * prices.transceiver)


def similar_cost_rate(n: int, budget: float, table: dict[int, PortPrices], *, parallel: int = 16) -> tuple[int, float]:
    """The fat-tree that comes nearest to a budget: Gb/s a server and its price.

    One tree of any rate in the table, or several in parallel of the highest.
    """
    top = max(table)
    offers = [
        (rate * trees, trees * fat_tree_price(n, prices)) for rate, prices in table.items()
        for trees in range(1, parallel + 1 if rate == top else 2)
    ]
    return min(offers, key=lambda offer: (abs(offer[1] - budget), -offer[0]))
