"""Cost of an optical fabric and of a fat-tree of packet switches, from port prices.

`EXAMPLE_PRICES` circulate with TopoOpt's scripts and are unverified: supply your own.
"""

from dataclasses import dataclass

from topologies.checks import WeftError


@dataclass(frozen=True)
class PortPrices:
    """Dollars per port at one rate."""

    transceiver: float
    nic: float  # network card
    switch: float  # electrical switch
    patch: float = 100.0  # patch panel
    ocs: float = 520.0  # optical circuit switch
    flip: float = 25.0  # 1x2 switch

    def __post_init__(self) -> None:
        for name in ("transceiver", "nic", "switch", "patch", "ocs", "flip"):
            if not getattr(self, name) >= 0:
                raise WeftError(f"price of a {name} port is {getattr(self, name)}: give zero or more dollars")


EXAMPLE_PRICES: dict[int, PortPrices] = {
    10: PortPrices(20, 185, 94),
    25: PortPrices(39, 185, 144),
    40: PortPrices(39, 354, 144),
    100: PortPrices(99, 678, 187),
    200: PortPrices(198, 815, 374),
}
"""Keyed by rate in Gb/s; 400 is missing."""


def patch_panel_price(n: int, degree: int, prices: PortPrices) -> float:
    """Price of n servers with `degree` interfaces each on patch panels with a look-ahead plane."""
    return n * degree * (prices.nic + prices.transceiver + 2 * prices.patch + prices.flip)


def fat_tree_price(n: int, prices: PortPrices, *, oversubscription: float = 1.0) -> float:
    """Price of n servers under three tiers of switches; oversubscription shrinks the tiers above the edge.

    A full tree has five switch ports and six transceivers per server; four of each are above the edge.
    """
    if oversubscription < 1:
        raise WeftError(f"oversubscription is {oversubscription}: give at least 1")
    above = 4 / oversubscription
    return n * (prices.nic + (1 + above) * prices.switch + (2 + above) * prices.transceiver)


def similar_cost_rate(n: int, budget: float, table: dict[int, PortPrices], *, parallel: int = 16) -> tuple[int, float]:
    """The fat-tree whose price is closest to a budget: Gb/s per server, and the price.

    Candidates are one tree of any rate in the table, or several parallel trees of the highest.
    """
    top = max(table)
    offers = [
        (rate * trees, trees * fat_tree_price(n, prices)) for rate, prices in table.items()
        for trees in range(1, parallel + 1 if rate == top else 2)
    ]
    return min(offers, key=lambda offer: (abs(offer[1] - budget), -offer[0]))
