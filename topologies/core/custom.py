"""Networks of links as a caller or a file lists them, without a regular shape; routes are shortest paths."""

from collections.abc import Collection, Iterable, Sequence
from typing import Annotated, NamedTuple

import numpy as np
import numpy.typing as npt

from topologies.checks import MOST_COUNT, UNCHECKED, Count, WeftError, checked, integer, told
from topologies.core.links import DEFAULT_HOP_LATENCY
from topologies.core.routing import ShortestPathRouter
from topologies.core.topology import NPU, SWITCH, Router, Topology
from topologies.units import Quantity, parse_bandwidth, parse_time

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
