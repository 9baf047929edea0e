"""From columns, one row per server, task or edge, to the arrays of a program."""

from collections.abc import Sequence
from fractions import Fraction
from math import ceil
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sim.program.checks import check_clock, check_nics, check_windows
from sim.program.columns import i32, numbered, unique_rows
from sim.program.contract import CLOCK_END_PS, HEAD, I8, I32, I64, TAIL, WEIGHTS, Program
from sim.program.cutting import Cutting, Rates, service_time_ps
from sim.program.model_options import DELIVERY, FORWARDING
from sim.program.service_table import pairs_that_meet, with_services
from sim.program.turns import with_buffers, with_turns
from sim.program.waits import Waits, waits_of
from topologies.checks import WeftError, choice
from topologies.units import PS_PER_S, format_time


class Columns(NamedTuple):
    """What `assemble` needs, one row per server, task or edge."""

    rates: list[Fraction]  # distinct rates, work a second
    server_rate: I32  # (S,)
    server_discipline: I8  # (S,)
    # route_ptr, route_server, route_latency_ps: as in `Program`
    route_ptr: I32
    route_server: I32
    route_latency_ps: I64
    task_work: I64  # (T,), or of runs of tasks that are alike
    task_cutting: I32 | I64 | None  # of each of them, index into `cuttings`; None where there is one
    # task_route, task_class, task_priority: (T,)
    task_route: I32
    task_class: I32
    task_priority: I32
    # edge_parent, edge_child, edge_lag: (E,): the child waits for the parent; lag WHOLE, 0 or a window
    edge_parent: I32
    edge_child: I32
    edge_lag: I32
    edges_forward: bool = False  # whether it is known that nothing waits in a circle
    task_run: I64 | None = None  # how many tasks each work and cutting is of; None: of one
    route_channel: I8 = np.zeros(0, np.int8)  # channel of each hop of the routes; empty where all are of channel 0
    # servers that deliver tails whatever is delivered, and cross no wire; None where there are none
    server_computes: npt.NDArray[np.bool_] | None = None


class Pools(NamedTuple):
    """Pools and who uses them; `ask` rows are (task, pool, units, per), `give` rows likewise."""

    capacity: list[int]
    discipline: list[int]
    ask: list[tuple[int, int, int, int]] | I64
    give: list[tuple[int, int, int, int]] | I64


NO_POOLS = Pools([], [], [], [])


class Posting(NamedTuple):
    """How NPUs post transfers and NICs take them."""

    post_ps: int = 0  # between two posts of an NPU
    push_ps: Fraction = Fraction(0)  # in which an engine pushes a unit of work
    queue: int = 1  # work in the queue of a NIC at which engines wait; 1: one chunk, so that engines take turns
    in_turn: int = 0  # ports of a phase of which the one posted last is left out; 0 for none


class Nics(NamedTuple):
    """Servers that are NICs, with their engines, and port and flow of each task; ports are numbered from 0."""

    server: Sequence[int] | I32
    engines: Sequence[int] | I32
    task_port: I32
    task_flow: I64
    posting: Posting


_LASTS = 3
"""Values of `hop_last`."""


def assemble(
    columns: Columns, cuttings: Sequence[Cutting], forwarding: str = "cut-through", deliver: str = "tail",
    pools: Pools = NO_POOLS, *, nics: Nics | None = None, task_flow: I64 | None = None,
    buffers: tuple[I64, I64] | None = None, bubble: bool = False, waits: Waits | None = None,
    works: "Works | None" = None, hops: "Hops | None" = None,
) -> Program:
    """Build a program from columns: tabulate service times, sort the edges, check what would deadlock or overflow.

    `task_flow`: source and destination of each task, where flows take turns and there are no NICs.
    `buffers`: room behind each server, and time until room given back is known; see `with_buffers` for `bubble`.
    `waits`, `works` and `hops`: of the edges, of `task_work` and of the routes (`hop_kinds`), where an earlier program
        of the same tasks has them.

    WeftError: tasks that wait for each other in a circle, a window that can never open, more pool units asked than
        there are, or a run that could outlast the clock.
    """
    choice(forwarding, FORWARDING, "forwarding")
    choice(deliver, DELIVERY, "deliver")
    n_tasks = columns.task_route.size
    cuts = _cuts(columns.task_cutting, works or works_of(columns.task_work), cuttings)
    if columns.task_run is not None:
        cuts["task_cut"] = np.repeat(cuts["task_cut"], columns.task_run)
    if waits is None:
        edges, chunks = (columns.edge_parent, columns.edge_child, columns.edge_lag), cuts["cut_chunks"].astype(np.int64)
        waits = waits_of(*edges, n_tasks, (chunks, cuts["task_cut"]), columns.edges_forward)
    used = np.append(columns.server_discipline, np.asarray(pools.discipline, np.int8))
    looked_at = np.any(WEIGHTS[used, 0] != 0)
    program = Program(
        cut_through=int(forwarding == "cut-through"),
        server_rate=i32(columns.server_rate),
        server_discipline=np.ascontiguousarray(columns.server_discipline, np.int8),
        service_ps=np.zeros(0, np.int64),  # with_services
        service_row=np.zeros(0, np.int64),
        n_rates=0,
        **cuts,
        **(hop_kinds(columns, forwarding, deliver) if hops is None else hops),
        route_ptr=i32(columns.route_ptr),
        task_route=i32(columns.task_route),
        task_class=i32(columns.task_class),
        task_priority=i32(columns.task_priority if looked_at else []),
        **waits.columns,
        **_pool_arrays(pools, n_tasks),
        **(_flows(task_flow) if nics is None else _nic_arrays(nics, cuts["chunk_work"], columns.server_rate.size)),
    )
    check_nics(program)
    check_windows(program)
    if buffers is not None:
        program = with_buffers(program, *buffers, bubble)
    return with_turns(with_rates(program, columns.rates))


def recut(program: Program, works: "Works", cutting: Cutting, per_s: Sequence[Fraction]) -> Program | None:
    """An assembled program with other amounts of work, all cut alike; None where more than its cuts depends on chunks.

    `per_s`: its distinct rates, work per second.
    WeftError: a window that can never open, or a run that could outlast the clock.
    """
    if program.has_nics or program.has_credits or program.takes_turns:
        return None
    program = program._replace(**_cuts(None, works, [cutting]))
    check_windows(program)
    return with_rates(program, per_s)


def with_rates(program: Program, per_s: Sequence[Fraction], *, same_pairs: bool = False) -> Program:
    """The program with its services at the distinct rates, work per second; see `with_services`.

    WeftError: the run could outlast the clock.
    """
    rates = Rates(per_s)
    program = with_services(
        program, len(per_s), lambda size, rate: rates.times_ps(program.chunk_work[size], rate), same_pairs=same_pairs
    )
    _check_times(program, per_s)
    return program


def _check_times(program: Program, rates: Sequence[Fraction]) -> None:
    """Reject a program that could outlast the clock.

    What a task waits for may last longer than that at the rate of a link that never serves it.
    """
    if program.service_ps.max(initial=0) == CLOCK_END_PS:
        size, rate = pairs_that_meet(program)
        for at in np.flatnonzero(program.service(size, rate) == CLOCK_END_PS)[-1:]:
            work, slow = int(program.chunk_work[size[at]]), rates[rate[at]]
            takes, end = format_time(service_time_ps(work, slow)), format_time(CLOCK_END_PS)
            raise WeftError(
                f"a chunk of {work} B at {float(slow):g} B/s takes {takes}; the clock ends at {end}: give it more than "
                f"{work * PS_PER_S / CLOCK_END_PS:.3g} B/s, or send less"
            )
    check_clock(program, rates)


Works = tuple[I64, I32]
"""Distinct amounts of work, ascending, and which of them each task has."""


def works_of(task_work: I64) -> Works:
    """The distinct amounts of work of some tasks."""
    works, row = unique_rows(task_work)
    return works, i32(row)


def _cuts(which: I32 | I64 | None, found: Works, cuttings: Sequence[Cutting]) -> dict[str, Any]:
    """The cuts of a program, one for each amount of work and cutting (`which` of each task), and those of the tasks."""
    works, row = found
    if which is not None:
        pairs, at = unique_rows(which.astype(np.int64) * works.size + row)
        row = i32(at)
        distinct = [(int(pair // works.size), int(works[pair % works.size])) for pair in pairs]
    else:
        distinct = [(0, int(work)) for work in works]
    table = np.array([(*cuttings[c].cut(work), work) for c, work in distinct], dtype=np.int64).reshape(len(distinct), 5)
    sizes, size = np.unique(table[:, 2:4], return_inverse=True)
    return {
        "cut_chunks": i32(table[:, 0]), "cut_first": i32(table[:, 1]), "cut_size": i32(size.reshape(-1, 2)),
        "cut_work": np.ascontiguousarray(table[:, 4]), "task_cut": row, "chunk_work": np.ascontiguousarray(sizes),
    }


def _last_hops(columns: Columns, deliver: str) -> I8:
    """At the last hop of each route HEAD or TAIL, by what is delivered there; computations deliver their end."""
    last = np.zeros(columns.route_latency_ps.size, np.int8)
    ends = np.asarray(columns.route_ptr[1:])[np.diff(columns.route_ptr) > 0] - 1
    last[ends] = HEAD if deliver == "head" else TAIL
    if columns.server_computes is not None:
        last[(last == HEAD) & columns.server_computes[columns.route_server]] = TAIL
    return last


Hops = dict[str, Any]
"""Distinct hops, and which of them each hop of a route is: 4 bytes per hop instead of 12."""


def hop_kinds(columns: Columns, forwarding: str, deliver: str) -> Hops:
    """The hops of some columns; WeftError where their latencies are beyond the clock."""
    latency = columns.route_latency_ps.astype(np.int64)
    if latency.min(initial=0) < 0:  # three times of the clock, added up
        raise WeftError(f"the latencies of a hop add up beyond the clock, which ends at {format_time(CLOCK_END_PS)}")
    last = _last_hops(columns, deliver)
    latency = np.maximum(latency, (last == HEAD) | (forwarding == "cut-through"))
    latencies, row = numbered(latency.size, lambda some: latency[some])
    count, channels = max(latencies.size, 1), int(columns.route_channel.max(initial=0)) + 1
    if channels > 1:
        last = last + _LASTS * columns.route_channel
    kinds, hop = numbered(
        latency.size,
        lambda some: (columns.route_server[some].astype(np.int64) * count + row[some]) * _LASTS * channels + last[some],
    )
    server, at = np.divmod(kinds // (_LASTS * channels), count)
    return {
        "hop_server": i32(server),
        "hop_channel": np.ascontiguousarray(kinds // _LASTS % channels if channels > 1 else [], np.int8),
        "channels": channels,
        "hop_latency_ps": np.ascontiguousarray(latencies[at]),
        "hop_last": np.ascontiguousarray(kinds % _LASTS, np.int8),
        "route_hop": hop,
    }


def hops_by_kind(route_hop: I32, latency_ps: I64, forwarding: str, deliver: str) -> Hops:
    """The hops of routes of one channel: two kinds for each server, inside a route and at its end."""
    kind = np.arange(latency_ps.size, dtype=np.int32)
    last = (kind & 1).astype(np.int8) * np.int8(HEAD if deliver == "head" else TAIL)
    return {
        "hop_server": kind >> 1, "hop_channel": np.zeros(0, np.int8), "channels": 1,
        "hop_latency_ps": np.maximum(latency_ps, (last == HEAD) | (forwarding == "cut-through")), "hop_last": last,
        "route_hop": route_hop,
    }


def _pool_arrays(pools: Pools, n_tasks: int) -> dict[str, Any]:
    n_pools = len(pools.capacity)
    rows = n_tasks if n_pools else 0
    pool, units, per = np.full(rows, -1, np.int32), np.zeros(rows, np.int32), np.zeros(rows, np.int8)
    task, asked, count, mode = np.array(pools.ask, np.int64).reshape(-1, 4).T
    again = np.ones(task.size, np.bool_)
    again[np.unique(task, return_index=True)[1]] = False
    beyond = (count < 1) | (count > np.array(pools.capacity, np.int64)[asked])
    for at in np.flatnonzero(again | beyond)[:1].tolist():
        if again[at]:
            raise WeftError(f"task {task[at]} asks two pools; a task may ask one")
        whole = pools.capacity[asked[at]]
        raise WeftError(f"task {task[at]} asks {count[at]} units of pool {asked[at]}, which has {whole}")
    pool[task], units[task], per[task] = asked, count, mode
    give = np.array(pools.give, np.int64).reshape(-1, 4)
    give = give[np.lexsort(give.T[::-1])]
    give_ptr = np.zeros(n_tasks + 1 if n_pools else 0, np.int32)
    if n_pools:
        np.cumsum(np.bincount(give[:, 0], minlength=n_tasks), out=give_ptr[1:])
    return {
        "pool_capacity": i32(pools.capacity),
        "pool_discipline": np.array(pools.discipline, np.int8),
        "task_pool": pool,
        "task_units": units,
        "task_per": per,
        "give_ptr": give_ptr,
        "give_pool": i32(give[:, 1]),
        "give_units": i32(give[:, 2]),
        "give_per": np.ascontiguousarray(give[:, 3], np.int8),
    }


def _flows(task_flow: I64 | None) -> dict[str, Any]:
    return {} if task_flow is None else {"task_flow": i32(unique_rows(task_flow)[1])}


def _nic_arrays(nics: Nics, sizes: I64, n_servers: int) -> dict[str, Any]:
    server_nic = np.full(n_servers, -1, np.int32)
    server_nic[nics.server] = np.arange(len(nics.server))
    return {
        "server_nic": server_nic,
        "nic_engines": i32(nics.engines),
        "task_port": i32(nics.task_port),
        **_flows(nics.task_flow),
        "push_ps": np.array([_push_ps(nics.posting.push_ps, int(size)) for size in sizes], np.int64),
        "post_ps": nics.posting.post_ps,
        "nic_queue": nics.posting.queue,
        "ports_in_turn": int(nics.posting.in_turn),
    }


def _push_ps(unit_ps: Fraction, work: int) -> int:
    lasts_ps = max(1, ceil(unit_ps * work))
    if lasts_ps >= CLOCK_END_PS:
        raise WeftError(
            f"a chunk of {work} B would be pushed for {format_time(lasts_ps)}; the clock ends at "
            f"{format_time(CLOCK_END_PS)}"
        )
    return lasts_ps
