"""Servers of a program by their numbers: links, then the NICs and ejections of NPUs, then streams.

And what the links of a topology give a shape: rates, latencies, and the cuttings that its transfers ask for.
"""

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from sim.lower.nics import STREAMS, end_latencies, ends_of, injection_Bps
from sim.lower.shape import Shape
from sim.program import DISCIPLINES, FIFO, I8, I32, I64, ORDERS, Cutting, i32
from sim.program.model import Model
from topologies import Topology, WeftError
from topologies.units import MOST_PS, format_time

Keys = I32 | I64
"""Numbers of servers, ascending."""


def first_stream(topology: Topology, model: Model) -> int:
    """Number of the first stream, behind links and the ends of routes."""
    return topology.n_links + ends_of(model) * topology.n_npus


def bandwidths(topology: Topology, model: Model, at_once: int) -> npt.NDArray[np.float64]:
    """Of the links, and of the ends of routes; `at_once`: `links_at_once`."""
    parts = [topology.bandwidth_Bps]
    if model.nic is not None:
        parts.append(injection_Bps(topology, model, at_once))
        if model.nic.ejection_Bps is not None:
            parts.append(np.full(topology.n_npus, model.nic.ejection_Bps))
    return np.concatenate(parts)


def disciplines_of(topology: Topology, model: Model, keys: Keys, of_streams: str = "fifo") -> I8:
    """Of each server; links alone serve in turn."""
    of_links = DISCIPLINES.index(model.discipline)
    of_ends = of_links if model.discipline in ORDERS else FIFO
    kinds = [keys < topology.n_links, keys < first_stream(topology, model)]
    return np.select(kinds, [of_links, of_ends], DISCIPLINES.index(of_streams)).astype(np.int8)


def legend(
    topology: Topology, model: Model, keys: Keys, streams: Sequence[tuple[int, str]] = ()
) -> tuple[I32, I32, I32, tuple[str, ...]]:
    """Link, rank and stream of each server (-1: none), and the names of the streams.

    `streams`: rank and name of each stream, by its number.
    """
    own = list(dict.fromkeys(name for _, name in streams))
    names = (*(() if model.nic is None else STREAMS), *own)
    first = first_stream(topology, model)
    ranks = np.array([rank for rank, _ in streams], np.int64)
    numbers = np.array([len(names) - len(own) + own.index(name) for _, name in streams], np.int64)
    at = keys.astype(np.int64) - topology.n_links
    stream, rank = np.divmod(at, topology.n_npus)
    is_link, mine = at < 0, keys >= first
    rank[mine], stream[mine] = ranks[keys[mine] - first], numbers[keys[mine] - first]
    return i32(np.where(is_link, keys, -1)), i32(np.where(is_link, -1, rank)), i32(np.where(is_link, -1, stream)), names


def distinct_rates(bandwidth_Bps: npt.NDArray[np.float64], links: I32 | I64) -> tuple[list[Fraction], I64]:
    """Distinct bandwidths of some links, ascending, and which of them each has, given those of all."""
    if links.size and (bandwidth_Bps == bandwidth_Bps[0]).all():
        return [Fraction(bandwidth_Bps[0].item())], np.zeros(links.size, np.int64)
    bandwidth, row = np.unique(bandwidth_Bps[links], return_inverse=True)
    return [Fraction(rate) for rate in bandwidth.tolist()], row


def own_cuttings(shape: Shape, known: Sequence[Cutting]) -> tuple[list[Cutting], I64 | int]:
    """Known cuttings, the first of them that of the model, and new ones; and which of them each task has."""
    rounds = shape.quotient.transfers.rounds
    if rounds is None or not rounds[:, 0].any():
        return list(known), 0
    counts, row = np.unique(rounds[shape.task_row, 0], return_inverse=True)
    own = [known[0]] + [replace(known[0], chunks=count, chunk_bytes=None) for count in counts[counts > 0].tolist()]
    found = [*known, *(one for one in own if one not in known)]
    number = np.array([found.index(one) for one in own], np.int64)
    return found, number[row + (counts[0] > 0)]


def route_latencies(topology: Topology, shape: Shape, endpoint_ps: int, by_kind: bool = False) -> I64:
    """Latency behind each hop of a shape's routes: of the link, of the node behind it, and at the end of a route.

    `by_kind`: where that is all, (S, 2) of each server, inside routes and at their ends.
    """
    is_end = shape.server_link >= topology.n_links
    link = np.where(is_end, 0, shape.server_link)
    wire, node = topology.latency_ps[link], topology.hop_latency_ps[topology.dst[link]]
    most = int(wire.max(initial=0)) + int(node.max(initial=0)) + endpoint_ps
    if most > MOST_PS:
        raise WeftError(
            f"the latency of a link, {format_time(most)} with the node behind it, is beyond the clock, which ends at "
            f"{format_time(MOST_PS)}"
        )
    kinds: I64 = np.repeat(np.where(is_end, 0, wire + node)[:, None], 2, axis=1)
    laps = shape.laps
    if by_kind and laps is None and not is_end.any() and not shape.route_channel.size:
        kinds[:, 1] += endpoint_ps
        return kinds
    latency, ends = kinds.reshape(-1)[shape.route_hop], np.flatnonzero(shape.route_hop & 1)
    if laps is not None:
        total = np.concatenate(([0], np.cumsum(latency)))
        along = total[shape.route_ptr[1:]] - total[shape.route_ptr[:-1]]
        latency[ends] += (along * (laps - 1))[shape.route_ptr[1:] > shape.route_ptr[:-1]]
    if is_end.any():
        return end_latencies(topology, shape, latency, endpoint_ps)
    latency[ends] += endpoint_ps
    return latency
