"""Networks whose links come in dimensions or tiers: the links of one have the same bandwidth and latency."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from topologies.core.links import Links, per_tier
from topologies.core.topology import NPU, SWITCH, Router, Topology
from topologies.units import parse_time

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
