"""A network to be designed: its dimensions, which share a budget of bandwidth, and their prices."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from sim.analytic.cost import PRICES, TIERS, Cost, network_cost, usual_tiers
from sim.optimizer.retime import links_per_npu, switches
from topologies import Topology, from_spec, select_permutations, totient_perms
from topologies.checks import WeftError
from topologies.core.extents import links_at_most
from topologies.core.product import DimensionOrderRouter
from topologies.units import Quantity
from workloads.formats.libra_files import NetworkFile, Prices, read_network

NETWORK_FILES = (".yml", ".yaml")


@dataclass(frozen=True)
class Network:
    """A product of blocks and the price tier of each dimension (none if not given)."""

    name: str
    topology: Topology  # with latencies; bandwidths are ignored
    tiers: tuple[str, ...]

    @property
    def n_dims(self) -> int:
        """Dimensions of the fabric."""
        return links_per_npu(self.topology).size

    @property
    def has_formulas(self) -> bool:
        """Whether LIBRA's formulas cover its bandwidths: each belongs to a dimension of NPUs, whose links stay."""
        return len(self.topology.shape) == self.n_dims and not switches(self.topology)

    @property
    def _blocks(self) -> list[str]:
        """Kinds of the blocks of a product of several NPUs each, whose links stay; none of other networks."""
        router = self.topology.router
        if not isinstance(router, DimensionOrderRouter) or 1 in self.topology.shape or switches(self.topology):
            return []
        return [block.kind for block in router.blocks]

    @property
    def has_usual_prices(self) -> bool:
        """Whether the published tiers apply: up to four dimensions, the last and only the last of switches."""
        if not self._blocks:
            return False
        *inner, last = self._blocks
        return bool(self.tiers) or (last == "SW" and set(inner) <= {"RI", "FC"} and len(inner) < len(TIERS))

    def cost(self, prices: Mapping[str, Prices] = PRICES, *, counting: str = "2024", fixed: float = 0.0) -> Cost:
        """What it costs.

        WeftError: it is not a product of priced blocks, or a tier has no price.
        """
        if not (blocks := self._blocks):
            raise WeftError(
                f"{self.name} has no price list: it is not a product of blocks RI, FC and SW of several NPUs each"
            )
        tiers = self.tiers or usual_tiers(blocks)
        return network_cost(blocks, self.topology.shape, tiers, prices, counting=counting, fixed=fixed)


def circulants(text: str, degrees: str | None) -> list[str]:
    """The network itself, or a circulant of each degree.

    `text`: a network; "circulant:64" where degrees are given.
    `degrees`: "2,4,8": ports of each NPU, two per jump, one in each direction; jumps in geometric progression
        (TopoOpt).
    WeftError: another network, or a degree that is odd or exceeds the number of jumps.
    """
    if degrees is None:
        return [text]
    family, _, count = text.partition(":")
    if family != "circulant" or not count.isdecimal():
        raise WeftError(f"--degrees is for circulants: write the network as circulant:64, not {text}")
    n = int(count)
    found = []
    for word in degrees.split(","):
        if not word.strip().isdecimal():
            raise WeftError(f"--degrees {degrees!r}: write even numbers joined by commas")
        jumps = select_permutations(n, int(word), totient_perms(n), duplex=True, dedupe=True)
        if 2 * len(jumps) < int(word):
            raise WeftError(f"circulant:{n} has jumps for {2 * len(jumps)} ports at most, not for {word.strip()}")
        found.append("circulant:" + "x".join(map(str, (n, *sorted(jumps)))))
    return found


MOST_SEARCHED = 2**23
"""Limit on links: ten minutes for 150 evaluations on a core, at 0.4 us a link each as on RI(300)_RI(301)."""


def read_any_network(text: str, latency: Quantity | None = None, hop_latency: Quantity | None = None) -> Network:
    """A network from a LIBRA file (.yml) or from a spec, such as "RI(4)_FC(8)_SW(32)" or "torus:64x16"."""
    with links_at_most(MOST_SEARCHED, "for the evaluations of a search, which would take many minutes"):
        return _read_any_network(text, latency, hop_latency)


def _read_any_network(text: str, latency: Quantity | None, hop_latency: Quantity | None) -> Network:
    if text.endswith(NETWORK_FILES):
        file: NetworkFile = read_network(text)
        found = Network(file.spec, from_spec(file.spec, None, latency, hop_latency), file.tiers)
    else:
        found = Network(text, with_link_classes(from_spec(text, None, latency, hop_latency)), ())
    dimension = found.topology.dimension
    for empty in np.flatnonzero(np.bincount(dimension[dimension >= 0], minlength=1) == 0):
        raise WeftError(
            f"network {found.name} has no link in dimension {empty + 1}, and no bandwidth to give to it: leave it out"
        )
    if found.topology.n_npus == 1:
        raise WeftError(f"network {found.name} has one NPU, which has nobody to send to: at least 2")
    return found


def with_link_classes(topology: Topology) -> Topology:
    """Links that belong to no dimension in classes of one bandwidth and latency, the fastest first, after the others.

    They are the dimensions among which the budget is split if the network has no others.
    """
    bare = topology.dimension < 0
    if not bare.any():
        return topology
    of_link = np.stack([-topology.bandwidth_Bps, topology.latency_ps], axis=1)[bare]
    classes = np.unique(of_link, axis=0, return_inverse=True)[1].reshape(-1)
    dimension = topology.dimension.copy()
    dimension[bare] = int(topology.dimension.max(initial=-1)) + 1 + classes
    return replace(topology, dimension=dimension)
