"""Buffers behind links, by model and fabric: room, the time until it is known again, and the virtual channel that a
route takes at each hop, by datelines or by bubbles.
"""

from collections.abc import Sequence

import numpy as np

from sim.program import I8, I32, I64, Cutting
from sim.program.contract import UNBOUNDED
from sim.program.model import Model
from topologies import Paths, Topology, WeftError
from topologies.units import format_size


class NoRoom(WeftError):
    """Chunks of a transfer are larger than the buffers of links; those of smaller sizes may fit."""


def _credit_ps(topology: Topology, model: Model, links: I64) -> I64:
    """Until room given back is known at the other end of some links: unless given, wire and router once more."""
    if model.credit_ps is not None:
        return np.full(links.size, model.credit_ps)
    found: I64 = topology.latency_ps[links] + topology.hop_latency_ps[topology.dst[links]]
    return found


def check_buffers(model: Model, work: I64, cutting: I32 | I64 | int, cuttings: Sequence[Cutting]) -> None:
    """Reject buffers that have no room for the largest chunk.

    `work`, `cutting`: bytes of each transfer, and which of the cuttings it has, or all have.
    NoRoom: with both sizes.
    """
    if model.buffer_bytes is None:
        return
    cut_alike = [work] if isinstance(cutting, int) else [work[cutting == number] for number in range(len(cuttings))]
    largest_bytes = max(cuttings[at].cut(int(some.max()))[2] if some.size else 0 for at, some in enumerate(cut_alike))
    if largest_bytes * (1 + model.bubble) > model.buffer_bytes:
        raise NoRoom(
            f"buffers of {format_size(model.buffer_bytes)} ({model.buffer_bytes:,} B) are smaller than "
            f"{'two of ' * model.bubble}the largest chunk, {format_size(largest_bytes)} ({largest_bytes:,} B with "
            "headers): give larger buffers, or cut smaller chunks"
        )


def buffers_of(topology: Topology, keys: I32 | I64, model: Model) -> tuple[I64, I64] | None:
    """Room behind each server, and the time until what is given back is known; `keys`: links by their number."""
    if model.buffer_bytes is None:
        return None
    is_link = (keys >= 0) & (keys < topology.n_links)
    links = np.where(is_link, keys, 0).astype(np.int64)
    return (np.where(is_link, model.buffer_bytes, UNBOUNDED), np.where(is_link, _credit_ps(topology, model, links), 1))


def buffer_note(topology: Topology, model: Model) -> list[str]:
    """A warning where buffers have less than what a link sends until it can know that there is room again."""
    if model.buffer_bytes is None or not topology.n_links:
        return []
    links = np.arange(topology.n_links)
    wait_ps = topology.latency_ps + topology.hop_latency_ps[topology.dst] + _credit_ps(topology, model, links)
    needed = int(np.ceil(topology.bandwidth_Bps * wait_ps / 1e12).max())
    if needed <= model.buffer_bytes:
        return []
    return [
        f"buffers of {format_size(model.buffer_bytes)} are below {format_size(needed)}, rate x (hop + credit latency): "
        "links pause for credits even where nothing is in the way"
    ]


DATELINES, BUBBLES = "datelines", "bubbles"


def channels_of(model: Model) -> str:
    """What gives routes their channels under a model; nothing where links have one."""
    return BUBBLES if model.bubble else DATELINES if model.vcs > 1 else ""


def check_rings(topology: Topology, channels: str) -> None:
    """Reject a fabric whose links are not steps along rings or lines.

    WeftError: with the first link that is none.
    """
    if not channels:
        return
    src, dst, is_own = topology.src, topology.dst, np.arange(len(topology.shape)) == topology.dimension[:, None]
    step = (topology.coords[dst] - topology.coords[src]) % np.array(topology.shape)
    is_step = (step == 1) | (step == np.array(topology.shape) - 1)
    wrong = (np.maximum(src, dst) >= topology.n_npus) | ~np.all(np.where(is_own, is_step, step == 0), axis=1)
    if np.any(wrong):
        link = int(np.flatnonzero(wrong)[0])
        without = "--vcs 1" if channels == DATELINES else "--no-bubble"
        raise WeftError(
            f"{channels} are of rings: on {topology.name} the link {topology.node_name(int(src[link]))}->"
            f"{topology.node_name(int(dst[link]))} is no step along a dimension; give a ring, torus, mesh or "
            f"hypercube, or omit them ({without})"
        )


def route_channels(topology: Topology, paths: Paths, channels: str) -> I8:
    """Channel of each hop of some routes over links and, beyond them, ends.

    Datelines: a route begins in each dimension with channel 0, and changes to the other one where it goes on within the
    dimension from coordinate 0. Bubbles: channel 1 where it enters a dimension, 0 where it goes on.
    """
    is_link = paths.links < topology.n_links
    link = np.where(is_link, paths.links, 0)
    dimension = np.where(is_link, topology.dimension[link], -1).astype(np.int64)
    goes_on = np.zeros(link.size, np.bool_)
    goes_on[1:] = dimension[1:] == dimension[:-1]  # no route has two ends in a row
    goes_on[paths.ptr[:-1][np.diff(paths.ptr) > 0]] = False
    if channels == BUBBLES:
        return (is_link & ~goes_on).astype(np.int8)
    crossed = np.cumsum(topology.coords[topology.src[link], dimension] == 0)
    entered = np.maximum.accumulate(np.where(goes_on, 0, np.arange(link.size)))
    found: I8 = ((crossed - crossed[entered]) % 2).astype(np.int8)
    return found
