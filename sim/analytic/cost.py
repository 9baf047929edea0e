"""What a network costs: $ per GB/s of each tier, by LIBRA's two published counting rules (libra.md section 4)."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from sim.analytic.traffic import F64
from topologies.checks import WeftError, choice
from topologies.units import counted
from workloads.formats.libra_files import Prices

COUNTING = ("2024", "2022")
"""2024 charges both directions of a direct link, 2022 charges a bidirectional link once."""

TIERS = ("InterChiplet", "InterPackage", "InterNode", "InterPod")

PRICES: Mapping[str, Prices] = {
    "InterChiplet": Prices(2.0),
    "InterPackage": Prices(4.0, 13.0),
    "InterNode": Prices(4.0, 13.0),
    "InterPod": Prices(7.8, 18.0, 31.6),
}
"""The published prices, without the tie-breakers of order 1e-5 that the 2024 files carry."""


@dataclass(frozen=True)
class Cost:
    """`fixed + price . B` in $, B in GB/s."""

    price: F64  # (D,): $ for one GB/s of every NPU into each dimension
    fixed: float = 0.0  # $ for parts that do not depend on bandwidth, such as the NPUs

    def __post_init__(self) -> None:
        if not (np.all(self.price > 0) and np.all(np.isfinite(self.price)) and 0 <= self.fixed < math.inf):
            raise WeftError("prices must be above zero, and a fixed cost zero or more")

    def of(self, bandwidth_GBps: F64) -> float:
        """$ of a network with these bandwidths."""
        return float(self.fixed + self.price @ bandwidth_GBps)


def worth(time_ns: float, bandwidth_GBps: F64, cost: Cost | None) -> float:
    """What is minimized: the time in ns or, where a cost is given, ns x $."""
    return time_ns if cost is None else time_ns * cost.of(bandwidth_GBps)


def usual_tiers(blocks: Sequence[str]) -> tuple[str, ...]:
    """The tiers of LIBRA's own networks: the outermost dimension is the pod, then node, package and chiplet inwards."""
    by_size = {1: ("InterPod",), 2: ("InterPackage", "InterPod"), 3: TIERS[1:], 4: TIERS}
    if len(blocks) not in by_size:
        raise WeftError(f"a network of {counted(len(blocks), 'dimension')} has no usual tiers: name them in a network "
                        "file")
    return by_size[len(blocks)]


def network_cost(
    blocks: Sequence[str], extents: Sequence[int], tiers: Sequence[str], prices: Mapping[str, Prices] = PRICES, *,
    counting: str = "2024", fixed: float = 0.0,
) -> Cost:
    """Cost of a product of blocks.

    `blocks`: "RI", "FC" or "SW" of each dimension.
    `tiers`: price tier of each dimension.
    `prices`: by tier.
    `counting`: how many links a ring or a fully connected block is charged for; in 2024 a switch needs a price for its
        NIC.
    `fixed`: $ besides the network.
    WeftError: an unknown tier or counting rule, a block without a price, or an element that the tier has no price for.
    """
    choice(counting, COUNTING, "counting")
    n_npus = math.prod(extents)
    price = [n_npus * _coefficient(block, tier, prices, counting) for block, tier in zip(blocks, tiers, strict=True)]
    return Cost(np.array(price, np.float64), fixed)


def _coefficient(block: str, tier: str, prices: Mapping[str, Prices], counting: str) -> float:
    """$ for one GB/s of one NPU."""
    if tier not in prices:
        raise WeftError(f"tier {tier!r} has no prices; there are {', '.join(prices)}")
    one = prices[tier]
    if block in ("RI", "FC"):
        return one.link if counting == "2024" else one.link / 2
    if block != "SW":
        raise WeftError(f"block {block} has no counting rule: LIBRA prices RI, FC and SW")
    if one.switch is None:
        raise WeftError(f"tier {tier!r} has no price for a Switch, and a switch dimension needs one")
    if one.nic is None and counting == "2024":
        raise WeftError(f"tier {tier!r} has no price for a Nic, and a switch dimension needs one by the 2024 rule")
    return one.link + one.switch + (one.nic or 0.0)
