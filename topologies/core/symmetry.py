"""Automorphisms of a topology, built from their action on the coordinates."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from topologies.core.topology import Topology

Permutation = npt.NDArray[np.int32]
"""Entry i is the image of item i."""


def move_nodes(topology: Topology, maps: Mapping[int, npt.NDArray[np.integer]]) -> Permutation | None:
    """Permutation of the nodes that moves coordinates, dimension by dimension.

    `maps`: by dimension, (extent,): image of each coordinate of that dimension. Other dimensions, and the
        negative coordinates of switches, are unchanged.
    None if some node has no image.
    """
    moved = topology.coords.astype(np.int64)
    for dim, table in maps.items():
        column = moved[:, dim]
        moved[:, dim] = np.where(column >= 0, np.asarray(table)[np.maximum(column, 0)], column)
    low = topology.coords.min(axis=0).astype(np.int64)
    span = topology.coords.max(axis=0).astype(np.int64) - low + 1
    weights = np.concatenate(([1], np.cumprod(span[:-1])))
    keys = (topology.coords - low) @ weights
    want = (moved - low) @ weights
    order = np.argsort(keys, kind="stable")
    at = np.minimum(np.searchsorted(keys[order], want), keys.size - 1)
    image = order[at]
    if np.any(keys[image] != want) or np.unique(image).size != image.size:
        return None
    return np.asarray(image, np.int32)


def translation(topology: Topology, dim: int, by: int = 1) -> Permutation | None:
    """Shift of one dimension, wrapping around."""
    extent = topology.shape[dim]
    return move_nodes(topology, {dim: (np.arange(extent) + by) % extent})


def reflection(topology: Topology, dim: int, center: int) -> Permutation | None:
    """The map c -> center - c of one dimension, wrapping around."""
    extent = topology.shape[dim]
    return move_nodes(topology, {dim: (center - np.arange(extent)) % extent})


def link_orbits(topology: Topology) -> npt.NDArray[np.int64]:
    """Orbit of each link under the translations that are automorphisms, (n_links,), numbered from 0."""
    n = topology.n_links
    moves = [translation(topology, dim) for dim, extent in enumerate(topology.shape) if extent > 1]
    images = [image for image in (link_permutation(topology, move) for move in moves) if image is not None]
    if not images:
        return np.arange(n)
    edges = (np.ones(n * len(images), np.int8), (np.tile(np.arange(n), len(images)), np.concatenate(images)))
    return np.asarray(connected_components(coo_array(edges, shape=(n, n)), directed=False)[1], np.int64)


def link_permutation(topology: Topology, nodes: Permutation | None) -> Permutation | None:
    """Image of each link under a permutation of the nodes, or None if that is not an automorphism.

    An automorphism preserves links, node kinds, bandwidths and latencies. Parallel links keep their order.
    """
    if nodes is None:
        return None
    t = topology
    rank = np.arange(t.n_links) - np.searchsorted(_pair(t, t.src, t.dst), _pair(t, t.src, t.dst))
    image = t.link_ids(nodes[t.src], nodes[t.dst]).astype(np.int64)
    if np.any(image < 0):
        return None
    image = image + rank
    alike = (
        bool(np.all(image < t.n_links))
        and np.array_equal(t.src[image], nodes[t.src])
        and np.array_equal(t.dst[image], nodes[t.dst])
        and np.array_equal(t.bandwidth_Bps[image], t.bandwidth_Bps)
        and np.array_equal(t.latency_ps[image], t.latency_ps)
        and np.array_equal(t.kind[nodes], t.kind)
        and np.array_equal(t.hop_latency_ps[nodes], t.hop_latency_ps)
    )
    return image.astype(np.int32) if alike else None


def _pair(t: Topology, src: npt.NDArray[np.int32], dst: npt.NDArray[np.int32]) -> npt.NDArray[np.int64]:
    return src.astype(np.int64) * t.n_nodes + dst
