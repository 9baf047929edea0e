"""What NICs add to a program: their servers in front of the links, latencies, and how ranks post."""

from collections.abc import Iterable
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from collectives.core.pattern import Pattern
from collectives.core.transfers import Transfers
from sim.lower.progress import progress_of
from sim.lower.shape import Shape
from sim.program import I32, I64, Nics, Posting, i32, unique_rows
from sim.program.model import PUSHED_BYTES, Model
from topologies import Topology

STREAMS = ("injection", "ejection")
"""Names of the servers in front of and behind the links of an NPU."""


def links_at_once(topology: Topology, works: Iterable[Transfers | None], model: Model) -> int:
    """Links that a rank may send on at once, for the defaults of NICs: not all that it has, where work uses few.

    Two for each dimension, and as many as the most transfers that a rank sends in one step of an operation.
    """
    if model.nic is None:
        return 0
    most = 2 * sum(extent > 1 for extent in topology.shape)
    for t in works:
        if t is not None and t.src.size:
            sent = np.flatnonzero(t.src != t.dst)
            step = t.step[sent].astype(np.int64) - int(t.step.min())
            at = unique_rows(t.src[sent] * (int(step.max(initial=0)) + 1) + step)[1]
            most = max(most, int(np.bincount(at).max(initial=0)))
    return most


def injection_Bps(topology: Topology, model: Model, at_once: int) -> npt.NDArray[np.float64]:
    """Rate of the NIC of each NPU: the given one, or twice its fastest links, as many as it may send on at once."""
    assert model.nic is not None
    if model.nic.injection_Bps is not None:
        return np.full(topology.n_npus, model.nic.injection_Bps)
    order = np.lexsort((-topology.bandwidth_Bps, topology.src))
    source = topology.src[order]
    place = np.arange(source.size) - np.searchsorted(source, source)
    order = order[(place < at_once) & (source < topology.n_npus)]
    rates = np.bincount(topology.src[order], topology.bandwidth_Bps[order], minlength=topology.n_npus)
    return np.asarray(2 * rates, np.float64)


def ends_of(model: Model) -> int:
    """What routes have besides links; see `sim.lower.quotient.Ranks`."""
    return 0 if model.nic is None else 1 if model.nic.ejection_Bps is None else 2


class Ports:
    """Numbers the ports from which operations are posted: each of those that take turns has phases of its own."""

    def __init__(self, model: Model, patterns: Iterable[tuple[Pattern, Transfers]]) -> None:
        self.model, self.phases = model, 1  # ports that do not take turns are one port of phase 0
        in_turn = [t for pattern, t in patterns if model.nic is not None and progress_of(pattern, model) == "any"]
        self.in_turn = max((int(t.port.max(initial=0)) + 1 for t in in_turn), default=0)

    def of(self, pattern: Pattern | None, t: Transfers) -> I64 | int:
        """The port of each transfer of an operation; `pattern`: None of messages."""
        if self.in_turn == 0 or pattern is None or progress_of(pattern, self.model) != "any":
            return 0
        first, self.phases = self.phases, self.phases + max(len(pattern.phases), 1)
        phase = np.maximum(np.searchsorted(pattern.phases, t.step, "right") - 1, 0)
        port: I64 = t.port + self.in_turn * (first + phase)
        return port


def nics_of(
    topology: Topology, keys: I32 | I64, model: Model, port: I32 | I64, flow: I64 | None, in_turn: int, at_once: int
) -> Nics | None:
    """The NICs among some servers, and what they post: port and flow of each task; `at_once`: `links_at_once`."""
    if model.nic is None or flow is None:
        return None
    rank = keys.astype(np.int64) - topology.n_links
    server = np.flatnonzero((rank >= 0) & (rank < topology.n_npus))
    links = np.bincount(topology.src[topology.src < topology.n_npus], minlength=topology.n_npus)
    most = np.minimum(links, at_once) if model.nic.engines is None else np.full(links.size, model.nic.engines)
    return Nics(i32(server), i32(most[rank[server]]), i32(port), flow, posting_of(model, in_turn))


def posting_of(model: Model, in_turn: int = 0) -> Posting:
    """How NPUs post; `in_turn`: ports of a phase that take turns."""
    nic = model.nic
    if nic is None:
        return Posting()
    queue = 1 if nic.order == "rotate" else nic.queue_bytes
    return Posting(nic.post_ps, Fraction(nic.push_ps, PUSHED_BYTES), queue, in_turn)


def has_flows(model: Model) -> bool:
    """Whether anything looks at the flow of a task."""
    return model.nic is not None or model.discipline == "round-robin-flow"


def flows(topology: Topology, t: Transfers) -> I64:
    """Source and destination of each transfer, as one number."""
    flow: I64 = t.src.astype(np.int64) * topology.n_nodes + t.dst
    return flow


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
