"""User-defined networks, from a list of links."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

import numpy as np
import numpy.typing as npt

from topologies.checks import MOST_COUNT, UNCHECKED, Count, WeftError, checked, integer, told
from topologies.core.links import DEFAULT_HOP_LATENCY
from topologies.core.routing import ShortestPathRouter
from topologies.core.topology import NPU, SWITCH, Topology
from topologies.units import Quantity, parse_bandwidth, parse_time

MOST_LONE = 2**16
"""Limit on switches without a link, which numbers that are left out make."""


@checked
def from_links(
    links: Annotated[Iterable[tuple[int, int, Quantity, Quantity]], UNCHECKED],
    n_npus: Count,
    *,
    hop_latency: Quantity = DEFAULT_HOP_LATENCY,
    name: str = "custom",
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
    kind = np.repeat(np.array([NPU, SWITCH], np.int8), [n_npus, n_nodes - n_npus])
    charged = np.any((src < n_npus) & (dst < n_npus)) | (kind != NPU)
    return Topology(
        name=name,
        kind=kind,
        src=src,
        dst=dst,
        bandwidth_Bps=np.array([row[2] for row in rows], np.float64),
        latency_ps=np.array([row[3] for row in rows], np.int64),
        hop_latency_ps=np.where(charged, parse_time(hop_latency, "hop latency"), 0).astype(np.int64),
        dimension=np.full(src.size, -1, np.int16),
        shape=(n_npus,),
        coords=rank_coordinates(n_npus, n_nodes),
        router=ShortestPathRouter(),
    )


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
