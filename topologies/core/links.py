"""What the links of a fabric are like: the keywords that builders share, and networks whose links come in tiers.

Families whose links differ, such as boxes, have keywords or defaults of their own.
"""

from collections.abc import Iterable, Sequence
from typing import Annotated, TypedDict

import numpy as np
import numpy.typing as npt

from topologies.checks import Default, WeftError
from topologies.core.topology import NPU, SWITCH, Router, Topology
from topologies.units import Quantities, Quantity, parse_bandwidth, parse_time

DEFAULT_BANDWIDTH: Quantity = "400Gb/s"
DEFAULT_LATENCY: Quantity = "100ns"
DEFAULT_HOP_LATENCY: Quantity = "300ns"


class Times(TypedDict, total=False):
    """Latency of links, one for all or one per dimension or tier, and what is added on every arrival at a node."""

    latency: Annotated[Quantities, Default(DEFAULT_LATENCY)]
    hop_latency: Annotated[Quantity, Default(DEFAULT_HOP_LATENCY)]


class Links(TypedDict, total=False):
    """The same, and bandwidth per direction of every cable, one for all or one per dimension or tier."""

    bandwidth: Annotated[Quantities, Default(DEFAULT_BANDWIDTH)]
    latency: Annotated[Quantities, Default(DEFAULT_LATENCY)]
    hop_latency: Annotated[Quantity, Default(DEFAULT_HOP_LATENCY)]


class EqualLinks(TypedDict, total=False):
    """The same where all cables are alike."""

    bandwidth: Annotated[Quantity, Default(DEFAULT_BANDWIDTH)]
    latency: Annotated[Quantity, Default(DEFAULT_LATENCY)]
    hop_latency: Annotated[Quantity, Default(DEFAULT_HOP_LATENCY)]


def per_dimension(value: Quantities, n_dims: int, what: str) -> list[Quantity]:
    """One value per dimension, from a single value or one per dimension.

    WeftError: neither 1 nor `n_dims` values.
    """
    if isinstance(value, str):
        value = value.split(",")
    if not isinstance(value, Iterable):
        value = [value]
    values = list(value)
    if len(values) == 1:
        return values * n_dims
    if len(values) != n_dims:
        raise WeftError(f"{what} has {len(values)} values; give one for all dimensions or {n_dims}, one per dimension")
    return values


def per_tier(
    bandwidth: Quantities, latency: Quantities, n_tiers: int
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    """Bytes per second and picoseconds of a link of each tier."""
    rates = [parse_bandwidth(rate, "bandwidth") for rate in per_dimension(bandwidth, n_tiers, "bandwidth")]
    times = [parse_time(time, "latency") for time in per_dimension(latency, n_tiers, "latency")]
    return np.array(rates, np.float64), np.array(times, np.int64)


def parse_link(bandwidth: Quantity, latency: Quantity) -> tuple[float, int]:
    """Bandwidth in bytes/s and latency in ps of one link."""
    return parse_bandwidth(bandwidth, "link bandwidth"), parse_time(latency, "link latency")


Ends = tuple[npt.NDArray[np.integer], npt.NDArray[np.integer]]
"""Source and destination of some links, (n,) each."""

MOST_KEPT_NODES = 2**14
"""Limit on the nodes of a network whose wiring is kept for the next one at other rates."""


def in_tiers(
    name: str, tiers: Sequence[Ends], n_npus: int, *, shape: tuple[int, ...], coords: npt.NDArray[np.int32],
    router: Router, node_names: tuple[str, ...] = (),
) -> Topology:
    """The network of some tiers of links, between NPUs and the switches after them, at rates that mean nothing.

    Others as in `Topology`.
    """
    counts, kinds = [src.size for src, _ in tiers], [n_npus, len(coords) - n_npus]
    src, dst = (np.concatenate([ends[side] for ends in tiers]).astype(np.int32) for side in (0, 1))
    return Topology(
        name=name, kind=np.repeat(np.array([NPU, SWITCH], np.int8), kinds), src=src, dst=dst,
        bandwidth_Bps=np.ones(src.size), latency_ps=np.zeros(src.size, np.int64),
        hop_latency_ps=np.zeros(len(coords), np.int64),
        dimension=np.repeat(np.arange(len(tiers), dtype=np.int16), counts),
        shape=shape, coords=coords, router=router, node_names=node_names,
    )


def at_tier_rates(frame: Topology, n_tiers: int, links: Links, npus_forward: bool) -> Topology:
    """A network of `in_tiers` at rates and latencies, one for all tiers or one for each.

    `npus_forward`: whether NPUs contain routers, so that arrivals there take the hop latency as well.
    """
    rates, times = per_tier(links["bandwidth"], links["latency"], n_tiers)
    hop_ps = parse_time(links["hop_latency"], "hop latency")
    hops_ps = np.array([hop_ps * npus_forward, hop_ps], np.int64)[frame.kind]
    return frame.at_rates(rates[frame.dimension], times[frame.dimension], hops_ps)
