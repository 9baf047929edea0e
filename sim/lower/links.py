"""What the links of a topology give a shape: rates, latencies, and the cuttings that its transfers ask for."""

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from sim.lower.nics import end_latencies
from sim.lower.shape import Shape
from sim.program import I32, I64, Cutting
from topologies import Topology, WeftError
from topologies.units import MOST_PS, format_time


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


def route_latencies(topology: Topology, shape: Shape, endpoint_ps: int) -> I64:
    """Latency behind each hop of a shape's routes: of the link, of the node behind it, and at the end of a route."""
    has_ends = bool(np.any(shape.server_link >= topology.n_links))
    every = shape.server_link[shape.route_server]
    link = np.where(every < topology.n_links, every, 0) if has_ends else every
    used = [int(of.max(initial=0)) for of in (topology.latency_ps[link], topology.hop_latency_ps[topology.dst[link]])]
    if sum(used) + endpoint_ps > MOST_PS:
        raise WeftError(
            f"the latency of a link, {format_time(sum(used) + endpoint_ps)} with the node behind it, is beyond the "
            f"clock, which ends at {format_time(MOST_PS)}"
        )
    latency = topology.latency_ps[link] + topology.hop_latency_ps[topology.dst[link]]
    if has_ends:
        latency[every >= topology.n_links] = 0
    ends, laps = shape.route_ends
    if laps is not None:
        total = np.concatenate(([0], np.cumsum(latency)))
        along = total[shape.route_ptr[1:]] - total[shape.route_ptr[:-1]]
        latency[ends] += (along * (laps - 1))[shape.route_ptr[1:] > shape.route_ptr[:-1]]
    if has_ends:
        return end_latencies(topology, shape, latency, endpoint_ps)
    latency[ends] += endpoint_ps
    return latency
