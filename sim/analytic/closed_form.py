"""Closed forms of all-reduce on tori: steps in lockstep, by formula and without a schedule.

    T = sum over steps of endpoint + max(hops x hop + message, hop + messages on the fullest link x message)

That is the deficiency model of the Swing paper (NSDI 2024, equation 1) with its sums taken exactly and with hops,
where the paper has the time to a neighbor for every step. Messages that come from afar reach a shared link one hop
later each, so that hops and messages on the link do not add up. Lambda, the latency deficiency of table 2, is the
number of steps over log2 p; Psi Xi, those of bandwidth and congestion, are the bytes on the fullest links over n / D.
Equation 3 of the paper, for rectangular tori, is too small by a factor 2D in its second term: `rectangular_xi` in the
tests is the corrected form.

Closed form of arrays that stream along trees: aggregation in the network, chains and broadcasts in chunks.

    T = RTT + q max(RTT_s, s service) + r service,        C - 1 = q s + r

The first of C chunks needs RTT from the first sender to the last receiver, and the others follow at the pace of the
slowest link. If at most s chunks are in flight at once (in-network aggregation: one slot per chunk), they go in
turns of s, each as long as the round trip RTT_s to what a chunk waits for. For many chunks that is the published RTT
+ (C - 1) max(service, RTT / s), which counts part of a turn as that part of a round trip.
"""

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from sim.lower.lowered import Lowered
from sim.program.columns import blocks
from sim.program.contract import I64, Program
from sim.program.cutting import service_time_ps
from sim.program.model import Model
from topologies import Topology
from topologies.core.paths import distinct_of, ranges


def streaming_ps(program: Program) -> int | None:
    """Time by the formula; None where transfers share links, or wait for whole transfers.

    The last chunk counts as a full one.

    `program`: healthy, as lowered.
    """
    if not _streams(program):
        return None
    longest, time_ps = first_chunk(program)
    (first,), service = first_delivered(program, time_ps), int(longest.max())
    others = int(program.chunks().max()) - 1
    parent, _, lag = program.stream_edges()
    waits = [turns_ps(others, 1, 0, service)]
    for window in distinct_of(lag[lag > 0]).tolist():
        waits.append(turns_ps(others, window, int(first[parent[lag == window]].max()), service))
    return int(first.max()) + max(waits)


def turns_ps(chunks: int, window: int, round_trip_ps: int, service_ps: int) -> int:
    """Time of chunks behind a first one: whole turns of a window, and the rest of one at the pace of the link."""
    turns, rest = divmod(chunks, window)
    return turns * max(round_trip_ps, window * service_ps) + rest * service_ps


def _streams(program: Program) -> bool:
    if program.n_tasks == 0 or not program.is_healthy or program.whole_child.size or program.pool_capacity.size:
        return False
    hops = program.route_server[_hops_of(program, np.arange(program.n_tasks))]
    return bool(distinct_of(program.chunks()).size == 1 and distinct_of(hops).size == hops.size)


def _hops_of(program: Program, tasks: I64) -> I64:
    """Hops of some tasks, task by task."""
    route = program.task_route[tasks]
    first = program.route_ptr[route].astype(np.int64)
    return ranges(first, program.route_ptr[route + 1] - first)


def first_chunk(program: Program) -> tuple[I64, I64]:
    """Longest service of the first chunk of each task, and its time from release to delivery, (T,) each."""
    longest, time_ps = np.zeros((2, program.n_tasks), np.int64)
    for some in blocks(program.n_tasks):
        tasks = np.arange(some.start, min(some.stop, program.n_tasks))
        at = _hops_of(program, tasks)
        row = np.repeat(np.arange(tasks.size), np.diff(program.route_ptr)[program.task_route[tasks]])
        size = program.cut_size[program.task_cut[tasks[row]], 0]
        service = program.service(size, program.server_rate[program.route_server[at]])
        np.maximum.at(longest[some], row, service)
        counted = program.route_latency_ps[at] if program.cut_through else program.route_latency_ps[at] + service
        time_ps[some] = np.bincount(row, weights=counted, minlength=tasks.size).astype(np.int64)
        time_ps[some] += longest[some] if program.cut_through else 0
    return longest, time_ps


def first_delivered(program: Program, *times_ps: I64) -> list[I64]:
    """When the first chunk of each task is delivered without contention, for each of several times of its own."""
    parent, child, lag = program.stream_edges()
    order = np.argsort(parent[lag == 0], kind="stable")
    parent, child = parent[lag == 0][order], child[lag == 0][order]
    many = np.bincount(parent, minlength=program.n_tasks)
    first, waits = np.cumsum(many) - many, np.bincount(child, minlength=program.n_tasks)
    done, place = [time_ps.copy() for time_ps in times_ps], np.empty(program.n_tasks, np.int64)
    at = np.flatnonzero((waits == 0) & (many > 0))
    while at.size:  # tasks all of whose parents are done: each edge is passed once
        edges = ranges(first[at], many[at])
        begin, to = parent[edges], child[edges]
        for ends_ps, time_ps in zip(done, times_ps, strict=True):
            np.maximum.at(ends_ps, to, ends_ps[begin] + time_ps[to])
        np.subtract.at(waits, to, 1)
        at = to[waits[to] == 0]
        place[at] = np.arange(at.size)
        at = at[place[at] == np.arange(at.size)]  # each task once, without sorting
    return done


Shape = tuple[int, ...]
Distance = Callable[[int], Fraction]
"""Messages on the fullest link when every node sends one at step sigma of a dimension, plain and mirrored together."""


class Steps(NamedTuple):
    """Consecutive steps that are alike."""

    steps: int
    hops: int  # of the longest route
    messages: Fraction  # on the fullest link
    share: Fraction  # of the array, in a message


Phase = tuple[Steps, ...]
"""Steps of several copies at once, of which the longest decides."""


def phases_ps(phases: Sequence[Phase], n_bytes: int, model: Model, hop_ps: int, rate_Bps: Fraction) -> int:
    """Time of an array of `n_bytes`; `hop_ps`: latency of a link and the router behind it."""
    return sum(max(one.steps * _step_ps(one, n_bytes, model, hop_ps, rate_Bps) for one in phase) for phase in phases)


def _step_ps(step: Steps, n_bytes: int, model: Model, hop_ps: int, rate_Bps: Fraction) -> int:
    """The longest route with nobody else, or the fullest link, whose first message is there at once.

    Store-and-forward serializes the first chunk at every hop; with head delivery the last one is not waited for, but
    the link is not free for the next step before it is sent.
    """
    chunks, leading, first, rest = model.cutting.cut(int(step.share * n_bytes))
    chunk_ps, last_ps = (service_time_ps(size, rate_Bps) for size in (first, rest))
    cuts_through, heads = model.forwarding == "cut-through", model.deliver == "head"
    message_ps = leading * chunk_ps + (chunks - leading) * last_ps
    load_ps = math.ceil(step.messages * message_ps)
    before_ps = (step.hops - 1) * (max(hop_ps, 1) if cuts_through else hop_ps + chunk_ps)
    after_ps = max(hop_ps + model.endpoint_latency_ps, cuts_through or heads) - (last_ps if heads else 0)
    return max(max(before_ps + message_ps, load_ps) + after_ps, load_ps)


def closed_form_ps(lowered: Lowered, model: Model) -> int | None:
    """The lockstep form of an all-reduce on a torus of equal links, that of streaming trees, or None.

    None with NICs, of which neither knows.
    """
    schedule, topology = lowered.schedule, lowered.topology
    pattern, phases = schedule.pattern, None
    if model.nic is not None:
        return None
    if schedule.kind.name == "all-reduce" and _is_plain_torus(topology):
        ports = pattern.n_blocks // pattern.p
        phases = all_reduce_phases(pattern.algorithm, pattern.form, topology.shape, ports, model.tie)
    if phases is None:
        return streaming_ps(lowered.program)
    hop_ps = int(topology.latency_ps[0] + topology.hop_latency_ps[0])
    n_bytes = schedule.block_bytes * pattern.n_blocks
    return phases_ps(phases, n_bytes, model, hop_ps, Fraction(float(topology.bandwidth_Bps[0])))


def _is_plain_torus(topology: Topology) -> bool:
    """Whether the fabric is a ring in every dimension, with identical links."""
    alike = all(values.size and np.ptp(values) == 0 for values in (topology.bandwidth_Bps, topology.latency_ps))
    torus = topology.name.startswith(("torus:", "ring:")) and topology.n_links > 0
    return torus and alike and np.ptp(topology.hop_latency_ps) == 0


def all_reduce_phases(algorithm: str, form: str, shape: Shape, ports: int, tie: str = "first") -> list[Phase] | None:
    """Steps of an all-reduce on a torus, or None where no closed form is known.

    `algorithm`, `form`: as in the registry of algorithms.
    `shape`: extents of the torus; those of 1 are left out. With an extent of 2, whose nodes have one port
        there and not two, there is no closed form.
    `ports`: on which a ring runs: two for each cycle, or one.
    `tie`: rule of the model for two equally short routes, which recursive doubling has at half an extent.

    Notes
    -----
    NSDI 2024, table 2 and sections 2.3 and 4.1. Ring: on one dimension, or on two with edge-disjoint Hamiltonian
    cycles, 2(p-1) steps. Bucket: the copies change dimension together, so that the longest decides. Latency forms:
    whole arrays at every step, on 2D ports for Swing and mirrored recursive doubling, on one for recursive doubling.
    Ring and bucket take exactly this time; in butterflies, ranks that are ahead begin the next step early.
    """
    extents = tuple(extent for extent in shape if extent > 1)
    if not extents or min(extents) < 3:
        return None
    if algorithm == "ring":
        return _ring(extents, ports)
    if algorithm == "bucket":
        return _bucket(extents)
    if algorithm not in _BUTTERFLIES or not all(extent & (extent - 1) == 0 for extent in extents):
        return None
    return _butterfly(extents, *_BUTTERFLIES[algorithm], form, tie)


def _ring(extents: Shape, ports: int) -> list[Phase] | None:
    if len(extents) > 2:
        return None
    p = math.prod(extents)
    return [(Steps(2 * (p - 1), 1, Fraction(1), Fraction(1, ports * p)),)]


def _bucket(extents: Shape) -> list[Phase]:
    """Phase i of the copy that starts at dimension k runs d-1 steps of blocks n / (2D x extents done so far)."""
    n_dims = len(extents)
    copies = [[extents[(start + i) % n_dims] for i in range(n_dims)] for start in range(n_dims)]
    return 2 * [
        tuple(
            Steps(done[i] - 1, 1, Fraction(1), Fraction(1, 2 * n_dims * math.prod(done[: i + 1]))) for done in copies
        )
        for i in range(n_dims)
    ]


def _butterfly(extents: Shape, distance: Distance, single_port: bool, form: str, tie: str) -> list[Phase] | None:
    ports = 1 if single_port else 2 * len(extents)
    orders = [_dimension_order(extents, start) for start in range(1 if single_port else len(extents))]
    phases: list[Phase] = []
    for step, turns in enumerate(zip(*orders, strict=True)):
        total: dict[int, Fraction] = {}
        for dim, sigma in turns:
            tied = 2 * distance(sigma) == extents[dim]
            if tied and tie not in _TIED:
                return None
            both = _TIED[tie] * (1 if single_port else 2) if tied else 1  # ports of the dimension, on its fullest link
            total[dim] = total.get(dim, Fraction(0)) + both * distance(sigma)
        halved = 1 if form == "latency" else 2 ** (step + 1)
        hops = int(max(distance(sigma) for _, sigma in turns))
        phases.append((Steps(1, hops, max(total.values()), Fraction(1, ports * halved)),))
    return phases if form == "latency" else 2 * phases


_TIED = {"first": Fraction(1), "split": Fraction(1, 2), "alternating": Fraction(1, 2)}
"""Share of the messages on the fuller side, if both directions around a ring are equally long."""


def _dimension_order(extents: Shape, start: int) -> list[tuple[int, int]]:
    """(dimension, sigma) of each step: the dimensions in turn, without the finished ones (section 4.2)."""
    left = [extent.bit_length() - 1 for extent in extents]
    done = [0] * len(extents)
    order: list[tuple[int, int]] = []
    dim = start
    while done != left:
        if done[dim] < left[dim]:
            order.append((dim, done[dim]))
            done[dim] += 1
        dim = (dim + 1) % len(extents)
    return order


def _swing_distance(sigma: int) -> Fraction:
    """|rho(sigma)|: 1, 1, 3, 5, 11, ..."""
    return Fraction((2 ** (sigma + 1) - (-1) ** (sigma + 1)) // 3)


def _doubling_distance(sigma: int) -> Fraction:
    return Fraction(2**sigma)


_BUTTERFLIES: dict[str, tuple[Distance, bool]] = {
    "swing": (_swing_distance, False),
    "mirrored-recursive-doubling": (_doubling_distance, False),
    "recursive-doubling": (_doubling_distance, True),
}
"""Distance of each step, and whether one port sends at a time."""
