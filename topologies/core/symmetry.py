"""Automorphisms of a topology, built from their action on the coordinates."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from topologies.core.components import components
from topologies.core.topology import Topology

Permutation = npt.NDArray[np.int32]
"""Entry i is the image of item i."""


def move_nodes(topology: Topology, maps: Mapping[int, npt.NDArray[np.integer]]) -> Permutation | None:
    """Permutation of the nodes that moves coordinates, dimension by dimension.

    `maps`: by dimension, (extent,): image of each coordinate of that dimension. Other dimensions, and the
        negative coordinates of switches, are unchanged.
    None if some node has no image.
    """
    low = topology.coords.min(axis=0).astype(np.int64)
    span = topology.coords.max(axis=0).astype(np.int64) - low + 1
    weights = np.concatenate(([1], np.cumprod(span[:-1])))
    keys = (topology.coords - low) @ weights
    want = keys.copy()
    for dim, table in maps.items():
        column = topology.coords[:, dim].astype(np.int64)
        want += np.where(column >= 0, np.asarray(table)[np.maximum(column, 0)] - column, 0) * weights[dim]
    image = _places(keys, want)
    if np.array_equal(keys[image], want):
        return image if _is_permutation(image) else None
    npus = slice(topology.n_npus)
    return follow_npus(topology, image[npus]) if np.array_equal(keys[image[npus]], want[npus]) else None


def follow_npus(topology: Topology, npus: Permutation) -> Permutation | None:
    """Permutation of the nodes that moves NPUs as given, and switches to where the links of their images lead.

    For switches whose coordinates do not say where they go, such as NICs and the rails behind them. The first link of a
    node becomes the first of its image, and so on; whether all links do, `link_permutation` tells.
    None if two switches have one image.
    """
    t, image = topology, np.full(topology.n_nodes, -1, np.int32)
    image[: npus.size] = npus
    place = np.arange(t.n_links) - t.link_ptr[t.src]
    while (ahead := np.flatnonzero((image[t.src] >= 0) & (image[t.dst] < 0))).size:
        image[t.dst[ahead]] = t.dst[np.minimum(t.link_ptr[image[t.src[ahead]]] + place[ahead], t.n_links - 1)]
    return image if _is_permutation(image) else None


def _is_permutation(image: Permutation) -> bool:
    there = np.zeros(image.size, np.bool_)
    there[image] = True
    return bool(there.all() and (image >= 0).all())


def _places(keys: npt.NDArray[np.int64], want: npt.NDArray[np.int64]) -> Permutation:
    """Place of each wanted number among distinct keys, or of another key where it is not among them."""
    top = int(keys.max())
    if top > 4 * keys.size + 1024:
        order = np.argsort(keys).astype(np.int32)
        return order[np.minimum(np.searchsorted(keys[order], want), keys.size - 1)]
    place = np.zeros(top + 1, np.int32)
    place[keys] = np.arange(keys.size)
    return place[np.clip(want, 0, top)]


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
    return components(n, np.tile(np.arange(n), len(images)), np.concatenate(images))


def link_permutation(topology: Topology, nodes: Permutation | None) -> Permutation | None:
    """Image of each link under a permutation of the nodes, or None if that is not an automorphism.

    An automorphism preserves links, node kinds, bandwidths and latencies.
    """
    image, t = wiring_permutation(topology, nodes), topology
    if nodes is None or image is None:
        return None
    alike = (_keeps(t.bandwidth_Bps, image) and _keeps(t.latency_ps, image) and _keeps(t.kind, nodes)
             and _keeps(t.hop_latency_ps, nodes))
    return image if alike else None


def wiring_permutation(topology: Topology, nodes: Permutation | None) -> Permutation | None:
    """Image of each link under a permutation of the nodes, whatever the rates; None if there is no such link.

    Parallel links keep their order.
    """
    if nodes is None:
        return None
    t = topology
    if not _keeps(np.diff(t.link_ptr), nodes):  # which takes less time than to look for each link
        return None
    src, dst = nodes[t.src], nodes[t.dst]
    image = t.link_ids(src, dst)
    if np.any(image < 0):
        return None
    again = (t.src[1:] == t.src[:-1]) & (t.dst[1:] == t.dst[:-1])
    if again.any():  # parallel links
        place = np.arange(t.n_links)
        image += place - np.maximum.accumulate(np.where(np.append(False, again), 0, place))
        if not (np.all(image < t.n_links) and _keeps(t.src, image, src) and _keeps(t.dst, image, dst)):
            return None
    return image


def _keeps(values: npt.NDArray[Any], image: Permutation, wanted: npt.NDArray[Any] | None = None) -> bool:
    """Whether the image of each item has the value that is wanted; default: its own."""
    if wanted is None and (values == values[:1]).all():
        return True
    return np.array_equal(values[image], values if wanted is None else wanted)
