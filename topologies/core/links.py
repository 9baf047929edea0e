"""What the links of a fabric are like: the keywords that builders share, and networks whose links come in tiers.

Families whose links differ, such as boxes, have keywords or defaults of their own.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import Annotated, NamedTuple, TypedDict

import numpy as np
import numpy.typing as npt

from topologies.checks import MOST_COUNT, UNCHECKED, Count, Default, WeftError, checked, integer, told
from topologies.core.routing import ShortestPathRouter
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


MOST_LONE = 2**16
"""Limit on switches without a link, which numbers that are left out make."""


@checked
def from_links(
    links: Annotated[Iterable[tuple[int, int, Quantity, Quantity]], UNCHECKED], n_npus: Count, *,
    hop_latency: Quantity = DEFAULT_HOP_LATENCY, name: str = "custom",
) -> Topology:
    """A network of directed links with shortest-path (fewest-link) routing.

    Parameters
    ----------
    links : iterable of (src, dst, bandwidth, latency)
        One entry per direction of a cable. Nodes from `n_npus` up are switches.
    n_npus : int
        Number of NPUs, which are nodes 0 to n_npus-1.
    hop_latency : quantity
        Added on every arrival at a switch, and at an NPU if any link connects two NPUs.
    name : str
        Shown in messages and tables.

    Raises
    ------
    WeftError
        No NPU, a negative node, a link from a node to itself, or a bad quantity.
    """
    if not isinstance(links, Iterable):
        raise WeftError(f"links is {told(links)}: give (src, dst, bandwidth, latency) of each")
    rows = [_parse(index, link) for index, link in enumerate(links)]
    src, dst = (np.array([row[end] for row in rows], np.int32) for end in (0, 1))
    n_nodes = max(n_npus, int(max(src.max(initial=0), dst.max(initial=0))) + 1)
    if n_nodes > n_npus + 2 * len(rows) + MOST_LONE:
        raise WeftError(f"links name node {n_nodes - 1}: {n_npus} NPUs and {len(rows)} links have at most "
                        f"{n_npus + 2 * len(rows)} nodes; number the switches from {n_npus}")
    charged = np.any((src < n_npus) & (dst < n_npus)) | (np.arange(n_nodes) >= n_npus)
    hop_ps = np.where(charged, parse_time(hop_latency, "hop latency"), 0)
    rates, times = [row[2] for row in rows], [row[3] for row in rows]
    return network_of(name, n_npus, n_nodes, [row[:2] for row in rows], rates, times, hop_ps)


def rank_coordinates(n_npus: int, n_nodes: int) -> npt.NDArray[np.int32]:
    """Coordinates (n_nodes, 1) of a network without dimensions: ranks for NPUs; -1, -2, ... for the rest."""
    return np.concatenate([np.arange(n_npus), -1 - np.arange(n_nodes - n_npus)]).astype(np.int32)[:, None]


def _parse(index: int, link: tuple[int, int, Quantity, Quantity]) -> tuple[int, int, float, int]:
    try:
        src, dst, bandwidth, latency = link
    except (TypeError, ValueError):
        raise WeftError(f"link {index} is {link!r}: write (src, dst, bandwidth, latency)") from None
    src, dst = (integer(node, f"link {index} {link!r}: node", 0, MOST_COUNT) for node in (src, dst))
    what = f"link {index} ({src}->{dst})"
    return src, dst, parse_bandwidth(bandwidth, f"{what} bandwidth"), parse_time(latency, f"{what} latency")


def network_of(
    name: str, n_npus: int, n_nodes: int, ends: Sequence[tuple[int, int]], bandwidth_Bps: npt.ArrayLike,
    latency_ps: npt.ArrayLike, hop_latency_ps: npt.ArrayLike, *, dimension: npt.ArrayLike = -1,
    router: Router = ShortestPathRouter(), node_names: tuple[str, ...] = (),
) -> Topology:
    """The network of links between some NPUs and the switches after them, without dimensions; others as in `Topology`.

    `ends`: source and destination of each link.
    """
    src, dst = np.array(ends, np.int32).reshape(-1, 2).T.copy()
    return Topology(
        name=name, kind=np.repeat(np.array([NPU, SWITCH], np.int8), [n_npus, n_nodes - n_npus]), src=src, dst=dst,
        bandwidth_Bps=np.array(bandwidth_Bps, np.float64), latency_ps=np.array(latency_ps, np.int64),
        hop_latency_ps=np.array(hop_latency_ps, np.int64), dimension=np.full(src.size, dimension, np.int16),
        shape=(n_npus,), coords=rank_coordinates(n_npus, n_nodes), router=router, node_names=node_names,
    )


class Cable(NamedTuple):
    """Both directions between two nodes."""

    ends: tuple[str, str]
    bandwidth_Bps: float  # per direction
    latency_ps: int
    tier: int  # 0 for fast links inside a box, 1 for other links inside it, 2 between boxes


def wired(
    name: str, npus: Sequence[str], switches: Sequence[str], cables: Iterable[Cable], hop_latency_ps: int,
    passive: Collection[str] = (),
) -> Topology:
    """The network made by the cables, with shortest-path routing; parallel cables are merged.

    `npus`, `switches`: names, NPUs in rank order.
    `hop_latency_ps`: of every switch, and of NPUs if any cable connects two of them.
    `passive`: switches that add no latency: ports and NICs.
    WeftError: no NPU, or a duplicate name.
    """
    if not npus:
        raise WeftError(f"{name}: has no NPU")
    names = [*npus, *switches]
    number = {node: at for at, node in enumerate(names)}
    if len(number) < len(names):
        twice = next(node for node in names if names.count(node) > 1)
        raise WeftError(f"{name}: two nodes are called {twice}")
    joint: dict[tuple[int, int], tuple[float, int, int]] = {}
    for cable in cables:
        for a, b in (cable.ends, cable.ends[::-1]):
            key = number[a], number[b]
            rate, latency, tier = joint.get(key, (0.0, cable.latency_ps, cable.tier))
            joint[key] = rate + cable.bandwidth_Bps, max(latency, cable.latency_ps), tier
    ends = np.array(list(joint), np.int32).reshape(-1, 2)
    direct = bool(np.any((ends < len(npus)).all(axis=1)))
    charged = [direct] * len(npus) + [node not in passive for node in switches]
    rates, times, tiers = zip(*joint.values(), strict=True) if joint else ((),) * 3
    hop_ps = np.where(charged, hop_latency_ps, 0)
    return network_of(
        name, len(npus), len(names), list(joint), rates, times, hop_ps, dimension=tiers, node_names=tuple(names)
    )
