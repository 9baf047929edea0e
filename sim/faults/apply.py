"""From a fault plan on a fabric to the faults of a program: which servers and tasks it means, the ways around what is
down, and spare cubes of a pod: circuits are switched to one of them, in the place of a cube with a chip that is down.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cache, partial

import numpy as np
import numpy.typing as npt

from sim.faults.history import History, history_of
from sim.faults.names import node_named
from sim.faults.plan import FaultPlan, NodeDown, Repair
from sim.faults.retry import NPU, with_retries
from sim.lower.credits import buffers_of, channels_of, route_channels
from sim.lower.lowered import NO_TRANSFER, Lowered
from sim.lower.nics import STREAMS
from sim.lower.rotor import Turns
from sim.lower.servers import bandwidths
from sim.lower.shape import forget
from sim.program.columns import BLOCK, i32
from sim.program.contract import COMPLETES, DROPS, FIFO, I32, I64, LOSES, WAITS, Program
from sim.program.disrupt import Disruptions, Path, disrupt
from sim.program.extend import Late, late_tasks, with_servers
from sim.program.model import Model
from sim.program.turns import with_buffers
from topologies import Paths, Topology, WeftError
from topologies.core.paths import distinct_of
from topologies.core.routing import ShortestPathRouter, distances
from topologies.optics import CUBE
from topologies.units import parse_time
from workloads.job import CLOCK, Compute, Reconfigure

Links = tuple[int, ...]

Hop = tuple[int, int, int]
"""Server, latency and channel."""


def detours(
    program: Program, topology: Topology, server_link: I32, breaks: Sequence[tuple[int, frozenset[int]]],
    reroute_ps: int, path: Callable[[Links, int, int], Path],
) -> dict[int, list[tuple[int, Path]]]:
    """For every task whose route breaks, the paths that it takes from each time on.

    `server_link` (S,): -1 for a server of another kind.
    `breaks`: each time, and the links that are down from then on.
    `reroute_ps`: from a break until routes have changed.
    `path`: over some links, and the servers of a NIC in front of them and behind them; -1: none.
    """
    ever = frozenset().union(*(down for _, down in breaks))
    own, at_ends = _own_links(program, server_link, ever)
    ends = {route: (int(topology.src[links[0]]), int(topology.dst[links[-1]])) for route, links in own.items()}
    through: dict[int, list[int]] = defaultdict(list)
    for route, links in own.items():
        for link in ever.intersection(links):
            through[link].append(route)
    off: dict[int, Links] = {}
    found: dict[int, list[tuple[int, Path]]] = {}

    @cache
    def around(down: frozenset[int]) -> tuple[set[int], dict[tuple[int, int], Links]]:
        """Routes that break, and the paths in their place."""
        broken = {route for link in down for route in through[link]}
        return broken, _ways(topology, down, {ends[route] for route in broken})

    for time, down in breaks:
        broken, ways = around(down)
        for route in sorted(broken | off.keys()):
            want = ways.get(ends[route]) if route in broken else own[route]
            if want is not None and want != off.get(route, own[route]):
                found.setdefault(route, []).append((time + reroute_ps, path(want, *at_ends[route])))
                off[route] = want
                if want == own[route]:
                    del off[route]
    moved = np.flatnonzero(np.isin(program.task_route, [*found]))
    return {task: found[route] for task, route in zip(moved.tolist(), program.task_route[moved].tolist(), strict=True)}


def _own_links(
    program: Program, server_link: I32, some: Iterable[int]
) -> tuple[dict[int, Links], dict[int, tuple[int, int]]]:
    """The links of each route of a task over some links, and the servers in front of them and behind them, if any."""
    on_them = np.isin(server_link[program.hop_server], [*some])[program.route_hop]
    crossing = distinct_of(np.searchsorted(program.route_ptr, np.flatnonzero(on_them), "right") - 1)
    own, ends = {}, {}
    for route in crossing[np.isin(crossing, program.task_route)].tolist():
        first, last = program.route_ptr[route : route + 2].tolist()
        hops = program.hop_server[program.route_hop[first:last]].tolist()
        own[route] = tuple(link for link in server_link[hops].tolist() if link >= 0)
        ends[route] = hops[0] if server_link[hops[0]] < 0 else -1, hops[-1] if server_link[hops[-1]] < 0 else -1
    return own, ends


def _ways(topology: Topology, down: frozenset[int], pairs: set[tuple[int, int]]) -> dict[tuple[int, int], Links]:
    """The shortest path of each pair over what is up, where there is one."""
    if not pairs:
        return {}
    up = np.setdiff1d(np.arange(topology.n_links), sorted(down))
    rest = replace(
        topology, src=topology.src[up], dst=topology.dst[up], bandwidth_Bps=topology.bandwidth_Bps[up],
        latency_ps=topology.latency_ps[up], dimension=topology.dimension[up], router=ShortestPathRouter(),
    )
    src, dst = np.array(sorted(pairs), np.int64).T
    targets, row = np.unique(dst, return_inverse=True)
    joined = distances(rest, targets)[row, src] >= 0
    src, dst = src[joined], dst[joined]
    paths = rest.paths(src, dst)
    links, ptr = up[paths.links].tolist(), paths.ptr.tolist()
    return {
        (a, b): tuple(links[begin:end])
        for a, b, begin, end in zip(src.tolist(), dst.tolist(), ptr[:-1], ptr[1:], strict=True)
    }


CROSSING = {"lost": LOSES + DROPS, "wait": WAITS, "complete": COMPLETES}

FAULTS_BREAK = "all ranks simulated (symmetry is off: faults are not the same everywhere)"
FAULTS_KEEP = "as far as the faults keep it"


def add_faults(lowered: Lowered, plan: FaultPlan, turns: Turns | None = None) -> Lowered:
    """The program with the faults of a plan, and its legend with the servers that they add.

    `lowered`: with symmetry off, or as far as `sim.faults.history` allows it.
    `turns`: of its circuits.
    WeftError: a name that the topology does not have, or what `sim.program.disrupt` rejects.
    """
    topology, history = lowered.topology, history_of(lowered.topology, plan)
    task_rank = None
    is_resent = plan.retry == NPU and bool(history.loss)
    if is_resent:
        lowered, task_rank = _retried(lowered, history, plan)
    program, late = _late_starts(lowered, task_rank, history)
    link_of = _longer(lowered.server_link, program)
    moves = plan.reroute is not None and bool(history.breaks)
    if moves:
        if lowered.job.alone is not None and program.route_hop.size > BLOCK:
            forget(lowered.job.alone.pattern)  # whose routes would stay beside those with detours
        program, link_of = _with_all_links(program, topology, link_of, lowered.model)
    rank_of = _longer(_computing(lowered), program)
    _check_computes(rank_of, history, topology)
    faults = _disruptions(link_of, rank_of, history, plan, topology, {} if is_resent else history.loss)
    _add_nics(faults, lowered, history)
    if moves:
        server_of = {link: server for server, link in enumerate(link_of.tolist()) if link >= 0}
        faults.detours = detours(
            program, topology, link_of, history.breaks, parse_time(plan.reroute or 0, "reroute"),
            cache(partial(_path, lowered, server_of, {})),
        )
    if turns is not None:
        turns(program, link_of, faults)
    return lowered._replace(
        program=disrupt(program, faults), phases=faults.phases, late=late, server_link=link_of,
        symmetry=FAULTS_BREAK if lowered.is_whole else f"{lowered.symmetry}, {FAULTS_KEEP}",
        server_rank=_longer(lowered.server_rank, program), server_stream=_longer(lowered.server_stream, program),
    )


def _computing(lowered: Lowered) -> I32:
    """NPU of each compute stream; -1 for links and clocks, which are of no NPU."""
    others = [number for number, name in enumerate(lowered.streams) if name.startswith(CLOCK)]
    others += _nic_streams(lowered)
    return np.where(np.isin(lowered.server_stream, others), -1, lowered.server_rank).astype(np.int32)


def _nic_streams(lowered: Lowered) -> list[int]:
    """The streams that are ends of NICs, in their order."""
    return [lowered.streams.index(name) for name in STREAMS if lowered.program.has_nics and name in lowered.streams]


def _add_nics(faults: Disruptions, lowered: Lowered, history: History) -> None:
    """NICs send as slowly as their NPUs, and are down with them: what they have waits."""
    topology, model = lowered.topology, lowered.model
    rates = bandwidths(topology, model, lowered.links_at_once)[topology.n_links :].reshape(-1, topology.n_npus)
    for end, stream in enumerate(_nic_streams(lowered)):
        for server in np.flatnonzero(lowered.server_stream == stream).tolist():
            rank = int(lowered.server_rank[server])
            phases = history.npu_phases.get(rank, [])
            if end == STREAMS.index("ejection"):
                phases = [phase._replace(factor=Fraction(phase.factor > 0)) for phase in phases]
            if phases:
                faults.phases[server] = phases
            faults.rates[server] = Fraction(rates[end, rank].item())


def _beginning(lowered: Lowered) -> I32:
    """NPU on which each task begins; -1 for those that wait for a clock."""
    waiting = [number for number, operation in enumerate(lowered.job.operations)
               if isinstance(operation.work, Compute) and operation.work.stream.startswith(CLOCK)]
    return np.where(np.isin(lowered.task_operation, waiting), -1, lowered.task_rank).astype(np.int32)


def _retried(lowered: Lowered, history: History, plan: FaultPlan) -> tuple[Lowered, I32]:
    """The program with every loss of the plan written into it, and the NPU on which each of its tasks begins."""
    shares = {}
    for server, (link, rank) in enumerate(zip(lowered.server_link.tolist(), lowered.server_rank.tolist(), strict=True)):
        phases = history.phases.get(link, []) if link >= 0 else history.npu_phases.get(rank, [])
        shares[server] = min((phase.factor for phase in phases if phase.factor), default=Fraction(1))
    timeout_ps = parse_time(plan.timeout, "timeout")
    program, task_rank, source, is_first, lost = with_retries(lowered, history.loss, timeout_ps, plan.seed, shares)
    timers, packet = range(lowered.program.n_servers, program.n_servers), source >= 0
    return lowered._replace(
        program=program, resent=lost, timers=timers, task_operation=np.zeros(source.size, np.int32),
        rank=np.where(packet, lowered.task_rank[source], -1).astype(np.int32),
        row=np.where(packet, lowered.task_row[source], NO_TRANSFER),
        task_bytes=_shares(lowered.task_bytes, source, is_first),
    ), task_rank


def _shares(task_bytes: I64, source: I64, is_first: npt.NDArray[np.bool_]) -> I64:
    """Bytes of each packet, which sum to those of its transfer; 0 for what is sent again, timers and sums."""
    shares = np.zeros(source.size, np.int64)
    packets = np.flatnonzero(is_first)
    packets = packets[np.argsort(source[packets], kind="stable")]
    task, first, count = np.unique(source[packets], return_index=True, return_counts=True)
    place, n = np.arange(packets.size) - np.repeat(first, count), np.repeat(count, count)
    each, rest = np.divmod(np.repeat(task_bytes[task], count), n)  # ends at place * size // n, which may overflow
    shares[packets] = each + (place + 1) * rest // n - place * rest // n
    return shares


def _longer(of_server: I32, program: Program) -> I32:
    """An array with -1 for every server that came later."""
    return np.append(of_server, np.full(program.n_servers - of_server.size, -1)).astype(np.int32)


def _check_computes(rank_of: I32, history: History, topology: Topology) -> None:
    """Reject the jitter of an NPU that computes nothing: it would change nothing."""
    idle = np.setdiff1d(np.array(list(history.npu_jitter), np.int64), rank_of)
    if idle.size:
        name = topology.node_name(int(idle[0]))
        raise WeftError(
            f"fault plan, jitter of {name}: it is of what an NPU computes, and {name} computes nothing here; "
            "give the jitter of a link"
        )


def _late_starts(lowered: Lowered, task_rank: I32 | None, history: History) -> tuple[Program, dict[int, str]]:
    delays_ps = {rank: delay_ps for rank, delay_ps in history.delay_ps.items() if delay_ps}
    if not delays_ps:
        return lowered.program, {}
    task_rank = _beginning(lowered) if task_rank is None else task_rank
    busy = {rank for one in lowered.job.operations if not isinstance(one.work, Reconfigure)
            for rank in lowered.ranks(one).tolist()}
    ranks = [rank for rank in delays_ps if rank in busy]  # others are represented by one as late, or take no part
    by_rank = np.argsort(task_rank, kind="stable")
    first, end = (np.searchsorted(task_rank[by_rank], ranks, side=side) for side in ("left", "right"))
    starts = [
        Late(by_rank[a:b], delays_ps[rank]) for rank, a, b in zip(ranks, first.tolist(), end.tolist(), strict=True)
    ]
    names = {lowered.program.n_servers + place: lowered.topology.node_name(rank) for place, rank in enumerate(ranks)}
    return late_tasks(lowered.program, starts) if starts else lowered.program, names


def _disruptions(
    link_of: I32, rank_of: I32, history: History, plan: FaultPlan, topology: Topology, loss: dict[int, float]
) -> Disruptions:
    """What a plan does to each server; `loss`: of links, unless the losses are in the program."""
    faults = Disruptions(seed=plan.seed)
    resend_ps = parse_time(plan.timeout, "timeout")
    crossing = CROSSING[plan.in_flight] + DROPS * (plan.reroute is not None and plan.in_flight != "lost")
    for server, (link, rank) in enumerate(zip(link_of.tolist(), rank_of.tolist(), strict=True)):
        phases = history.phases.get(link) if link >= 0 else history.npu_phases.get(rank)
        jitter = history.link_jitter.get(link) if link >= 0 else history.npu_jitter.get(rank)
        if phases:
            faults.phases[server] = phases
            faults.crossing[server] = crossing if link >= 0 else WAITS
        if jitter is not None:
            faults.jitter[server] = jitter, link < 0
        if link in loss:
            faults.loss[server] = loss[link]
        if link >= 0:
            faults.rates[server] = Fraction(float(topology.bandwidth_Bps[link]))
        faults.resend_ps[server] = resend_ps
    return faults


def _with_all_links(program: Program, topology: Topology, server_link: I32, model: Model) -> tuple[Program, I32]:
    """The program with a server for every link, so that detours may cross those that no route crosses."""
    disciplines = program.server_discipline[server_link >= 0]
    links = np.setdiff1d(np.arange(topology.n_links), server_link)
    rates = [Fraction(rate) for rate in topology.bandwidth_Bps[links].tolist()]
    program = with_servers(program, rates, int(disciplines[0]) if disciplines.size else FIFO)
    server_link = i32(np.append(server_link, links))
    buffers = buffers_of(topology, server_link, model)
    return program if buffers is None else with_buffers(program, *buffers, model.bubble), server_link


def _path(
    lowered: Lowered, server_of: dict[int, int], known: dict[Hop, Hop], links: Links, nic: int, behind: int
) -> Path:
    """A way over some links, from a NIC and into another where there are any; latencies as in `sim.lower.servers`.

    `known`: hops that thousands of ways have in common.
    """
    topology, rest_ps, of_links = lowered.topology, lowered.model.endpoint_latency_ps, np.array(links)
    latency = topology.latency_ps[of_links] + topology.hop_latency_ps[topology.dst[of_links]]
    channel = np.zeros(of_links.size, np.int8)
    if channels := channels_of(lowered.model):
        way = Paths(np.array([0, of_links.size]), of_links.astype(np.int32), np.zeros(1, np.int64))
        channel = route_channels(topology, way, channels)
    hops = zip((server_of[link] for link in links), latency.tolist(), channel.tolist(), strict=True)
    path = [known.setdefault(hop, hop) for hop in hops]
    if nic >= 0:
        first_ps = int(topology.latency_ps[links[0]] + topology.hop_latency_ps[topology.src[links[0]]])
        path.insert(0, (nic, min(first_ps, rest_ps), 0))
        rest_ps -= path[0][1]
    if behind >= 0:
        path.append((behind, 0, 0))
    *before, (server, latency_ps, last) = path
    return (*before, (server, latency_ps + rest_ps, last))


def with_spares(fabric: Topology, plan: FaultPlan) -> FaultPlan:
    """The plan in which a cube with a chip that goes down is dark for a delay, then as built: while spares last."""
    optics = fabric.optics
    if optics is None or not optics.spares:
        return plan
    cube = [tuple(at) for at in (np.asarray(fabric.coords)[: fabric.n_npus] // CUBE).tolist()]
    left, until_ps, more = optics.spares, dict[tuple[int, ...], int](), list[NodeDown | Repair]()
    for fault in sorted((one for one in plan.faults if isinstance(one, NodeDown)), key=lambda one: parse_time(one.at)):
        at_ps, where = parse_time(fault.at), cube[node_named(fabric, fault.node, npu=True)]
        if not left or at_ps <= until_ps.get(where, -1):
            continue
        left, until_ps[where] = left - 1, at_ps + optics.delay_ps
        names = [fabric.node_name(npu) for npu, other in enumerate(cube) if other == where]
        more += [NodeDown(node=name, at=fault.at) for name in names]
        more += [Repair(node=name, at=f"{until_ps[where]}ps") for name in names]
    return replace(plan, faults=(*plan.faults, *(one for one in more if one not in plan.faults)))
