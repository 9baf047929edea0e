"""What NICs add to a program: their servers in front of the links, rates, latencies, and how ranks post."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import numpy.typing as npt

from collectives.core.pattern import Pattern
from sim.lower.progress import progress_of
from sim.lower.shape import Shape
from sim.program import I32, I64, Nics, Posting, i32
from sim.program.model import PUSHED_BYTES, Model
from topologies import Topology, egress_Bps

STREAMS = ("injection", "ejection")
"""Names of the servers in front of and behind the links of an NPU."""


def ends_of(model: Model) -> int:
    """What routes have besides links; see `sim.lower.quotient.Ranks`."""
    return 0 if model.nic is None else 1 if model.nic.ejection_Bps is None else 2


def bandwidths(topology: Topology, model: Model) -> npt.NDArray[np.float64]:
    """Of the links, and of the ends of routes, by their numbers."""
    parts = [topology.bandwidth_Bps]
    if model.nic is not None:
        given, p = model.nic.injection_Bps, topology.n_npus
        parts.append(2 * egress_Bps(topology) if given is None else np.full(p, given))
        if model.nic.ejection_Bps is not None:
            parts.append(np.full(p, model.nic.ejection_Bps))
    return np.concatenate(parts)


def nics_of(topology: Topology, shape: Shape, pattern: Pattern, model: Model) -> Nics | None:
    """The NICs of the ranks of a shape, and what they post."""
    if model.nic is None:
        return None
    rank = shape.server_link.astype(np.int64) - topology.n_links
    server = np.flatnonzero((rank >= 0) & (rank < topology.n_npus))
    links = np.bincount(topology.src[topology.src < topology.n_npus], minlength=topology.n_npus)
    engines = links[rank[server]] if model.nic.engines is None else np.full(server.size, model.nic.engines)
    t = shape.quotient.transfers
    ports = int(t.port.max(initial=0)) + 1
    phase = np.maximum(np.searchsorted(pattern.phases, t.step, "right") - 1, 0)
    posting = Posting(
        model.nic.post_ps, Fraction(model.nic.push_ps, PUSHED_BYTES),
        1 if model.nic.order == "rotate" else model.nic.queue_bytes,
        ports if progress_of(pattern, model) == "any" else 0,
    )
    port = (t.port + ports * phase)[shape.task_row]
    return Nics(i32(server), i32(engines), i32(port), flows(topology, shape), posting)


def flows(topology: Topology, shape: Shape) -> I64:
    """Source and destination of each task, as one number."""
    t = shape.quotient.transfers
    flow: I64 = t.src.astype(np.int64) * topology.n_nodes + t.dst
    return flow[shape.task_row]


def legend(topology: Topology, shape: Shape) -> tuple[I32, I32, I32, tuple[str, ...]]:
    """Link, rank and stream of each server (-1: none), and the names of the streams."""
    link = shape.server_link.astype(np.int64) - topology.n_links
    none = np.full(link.size, -1)
    stream, rank = np.divmod(link, topology.n_npus)
    is_link = link < 0
    return (
        i32(np.where(is_link, shape.server_link, none)), i32(np.where(is_link, none, rank)),
        i32(np.where(is_link, none, stream)), STREAMS if np.any(~is_link) else (),
    )


def end_latencies(topology: Topology, shape: Shape, links_ps: I64, endpoint_ps: int) -> I64:
    """Latency behind each hop, given those of links and the nodes behind them.

    Up to one hop of the endpoint latency, wire and router of the first link, lies behind the NIC; the rest at the end.
    """
    latency = links_ps.copy()
    some = np.flatnonzero(np.diff(shape.route_ptr) > 0)
    first, last = shape.route_ptr[:-1][some].astype(np.int64), shape.route_ptr[1:][some].astype(np.int64) - 1
    kind = shape.server_link[shape.route_server].astype(np.int64) - topology.n_links
    has_nic = kind[first] >= 0
    link = shape.server_link[shape.route_server[(first + 1)[has_nic]]]
    moved = np.zeros(some.size, np.int64)
    moved[has_nic] = np.minimum(topology.latency_ps[link] + topology.hop_latency_ps[topology.src[link]], endpoint_ps)
    latency[first] += moved
    latency[last] += endpoint_ps - moved
    return latency
