"""Faults of a program: servers that slow down, fail and come back, lose and delay chunks; detours and deadlines.

Everything here is in the terms of a program, servers and tasks; `sim.faults.plan` speaks of links and NPUs.
"""

from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache
from typing import NamedTuple

import numpy as np

from sim.program.checks import check_nics
from sim.program.columns import i32
from sim.program.contract import CLOCK_END_PS, DOWN, HEAD, I64, NEVER_PS, WAITS, Program
from sim.program.service_table import pairs_that_meet, slowest_ps, times_of, with_services
from sim.program.turns import with_buffers, with_turns
from topologies import WeftError
from topologies.units import PS_PER_S, format_time

CERTAIN = 2**63
"""Of so many services as many are lost where the probability is 1."""


class Phase(NamedTuple):
    """What a server does from a time on: its share of its rate (0: down), and latency that it adds."""

    from_ps: int
    factor: Fraction = Fraction(1)
    latency_ps: int = 0


Path = tuple[tuple[int, ...], ...]
"""Server and latency of each hop, and its virtual channel where there are several."""


@dataclass
class Disruptions:
    """Faults by server and by task."""

    phases: dict[int, list[Phase]] = field(default_factory=dict)  # in order of time, no two at the same time
    # work per second, for service times at a share of it that are rounded once; from those at the full rate, in whole
    # ps, unless given. Needed of the servers of detours where the table of service times is packed.
    rates: dict[int, Fraction] = field(default_factory=dict)
    # WAITS (unless given), LOSES or COMPLETES, with DROPS added or not
    crossing: dict[int, int] = field(default_factory=dict)
    loss: dict[int, float] = field(default_factory=dict)  # probability of each service to be lost, below 1
    # for servers that lose: time until a lost chunk arrives again at its first server
    resend_ps: dict[int, int] = field(default_factory=dict)
    # quantiles in ps, as many for each server; whether they are added to the service or to the latency
    jitter: dict[int, tuple[I64, bool]] = field(default_factory=dict)
    detours: dict[int, list[tuple[int, Path]]] = field(default_factory=dict)  # in the order of time
    deadline_ps: dict[int, int] = field(default_factory=dict)
    seed: int = 0


def disrupt(program: Program, faults: Disruptions) -> Program:
    """The program with faults.

    WeftError: a factor above 1, times out of order, a loss that never ends, a detour of a task without a route or to or
        from another NIC, a chunk that is larger than a buffer on its detour, or one that could take longer than the
        clock goes.
    """
    shares: dict[tuple[int, Fraction], int] = {}
    program = _timetables(program, faults, shares)
    for add in (_losses, _jitter, _detours, _deadlines):
        program = add(program, faults)
    if faults.detours:
        program = _with_room(program)
    if shares or faults.detours:
        program = _with_services(program, faults, list(shares))
    program = program._replace(seed=faults.seed)
    _check_step(program)
    return program


def _timetables(program: Program, faults: Disruptions, shares: dict[tuple[int, Fraction], int]) -> Program:
    """The program with its timetables; fills in the shares of its rates that these have, each of them a new rate."""
    if not faults.phases:
        return program
    rows: list[tuple[int, int, int]] = []
    ptr = [0]
    for server in range(program.n_servers):
        before = -1
        for phase in faults.phases.get(server, []):
            if phase.from_ps <= before or not 0 <= phase.factor <= 1 or phase.latency_ps < 0:
                raise WeftError(
                    f"server {server} from {format_time(phase.from_ps)} on: times must rise, the share of its rate is "
                    f"from 0 (down) to 1, not {float(phase.factor):g}, and latency is added, not {phase.latency_ps} ps"
                )
            before = phase.from_ps
            rows.append((phase.from_ps, _share(program, shares, server, phase.factor), phase.latency_ps))
        ptr.append(len(rows))
    table = np.array(rows, np.int64).reshape(-1, 3)
    crossing = [faults.crossing.get(server, WAITS) for server in range(program.n_servers)]
    return program._replace(
        timetable_ptr=i32(ptr),
        timetable_from_ps=np.ascontiguousarray(table[:, 0]),
        timetable_rate=i32(table[:, 1]),
        timetable_latency_ps=np.ascontiguousarray(table[:, 2]),
        server_crossing=np.array(crossing, np.int8),
        server_resend_ps=_resend(program, faults),
    )


def _share(program: Program, shares: dict[tuple[int, Fraction], int], server: int, factor: Fraction) -> int:
    """A share of a server's rate, as a rate."""
    rate = int(program.server_rate[server])
    if factor == 0:
        return DOWN
    return rate if factor == 1 else shares.setdefault((rate, factor), program.n_rates + len(shares))


def _with_services(program: Program, faults: Disruptions, shares: list[tuple[int, Fraction]]) -> Program:
    """The program with its services at shares of its rates, and of the sizes that detours bring to other rates."""
    known = {int(program.server_rate[server]): rate for server, rate in faults.rates.items()}
    rates = [(rate, Fraction(1)) for rate in range(program.n_rates)] + shares
    per_s = [known.get(rate, Fraction(PS_PER_S)) * factor for rate, factor in rates]
    old = [-1 if rate in known else rate for rate, _ in rates]
    return with_services(program, len(rates), times_of(program, per_s, np.array(old, np.int64)))


def _resend(program: Program, faults: Disruptions) -> I64:
    resend = np.array([faults.resend_ps.get(server, 1) for server in range(program.n_servers)], np.int64)
    if np.any(resend < 1):
        server = int(np.flatnonzero(resend < 1)[0])
        raise WeftError(f"server {server} has a timeout of {resend[server]} ps; at least 1 ps")
    return resend


def _losses(program: Program, faults: Disruptions) -> Program:
    if not faults.loss:
        return program
    share = np.zeros(program.n_servers, np.int64)
    for server, probability in faults.loss.items():
        if not 0 <= probability < 1:
            raise WeftError(f"server {server} loses a share of {probability:g}; at least 0 and below 1")
        share[server] = int(Fraction(probability) * CERTAIN)
    return program._replace(server_loss=share, server_resend_ps=_resend(program, faults))


def _jitter(program: Program, faults: Disruptions) -> Program:
    if not faults.jitter:
        return program
    row = np.full(program.n_servers, -1, np.int32)
    tables: dict[tuple[bytes, bool], int] = {}
    for server, (quantiles, of_service) in faults.jitter.items():
        if quantiles.size == 0 or quantiles.min() < 0:
            raise WeftError(f"server {server} has a jitter of {quantiles.min(initial=0)} ps; at least 0")
        row[server] = tables.setdefault((quantiles.astype(np.int64).tobytes(), of_service), len(tables))
    return program._replace(
        server_jitter=row,
        jitter_ps=np.array([np.frombuffer(quantiles, np.int64) for quantiles, _ in tables]),
        jitter_of_service=np.array([of_service for _, of_service in tables], np.int8),
    )


def _with_room(program: Program) -> Program:
    """The program with the queues, quanta and buffers that its detours need as well."""
    check_nics(program)
    if program.has_credits:
        buffer = program.server_buffer[: program.n_servers]
        program = with_buffers(program, buffer, program.server_credit_ps, bool(program.buffer_shared))
    return with_turns(program)


def _detours(program: Program, faults: Disruptions) -> Program:
    if not faults.detours:
        return program
    channel = program.hop_channel if program.has_channels else np.zeros(program.hop_server.size, np.int8)
    columns = program.hop_server, program.hop_latency_ps, program.hop_last, channel
    kinds = {kind: at for at, kind in enumerate(zip(*(column.tolist() for column in columns), strict=True))}
    routes: dict[tuple[int, ...], int] = {}
    hops = program.hops()
    first = program.route_ptr.size - 1

    @cache
    def row_of(path: Path, home: int) -> int:
        """The route that takes a path, which may be the task's own."""
        if program.is_packed and (unknown := {hop[0] for hop in path} - faults.rates.keys()):
            raise WeftError(f"a detour crosses server {min(unknown)}, whose rate is needed: give it in `rates`")
        last = int(program.hop_last[program.route_hop[program.route_ptr[home + 1] - 1]])
        lasts = [0] * (len(path) - 1) + [last]
        ends = [
            (server, max(latency, int(program.cut_through or end == HEAD)), end, channel)
            for end, (server, latency, channel) in zip(lasts, ((*hop, 0)[:3] for hop in path), strict=True)
        ]
        route = tuple(kinds.setdefault(end, len(kinds)) for end in ends)
        if route == tuple(program.route_hop[program.route_ptr[home] : program.route_ptr[home + 1]].tolist()):
            return home
        return first + routes.setdefault(route, len(routes))

    tables: dict[tuple[int, int], I64] = {}  # by the list itself, which tasks of one route share, and the route
    parts, rows_of = [np.zeros((0, 2), np.int64)], np.zeros(program.n_tasks + 1, np.int64)
    for task in sorted(faults.detours):
        detours, home = faults.detours[task], int(program.task_route[task])
        if (id(detours), home) not in tables:
            rows = [(from_ps, row_of(path, home)) for from_ps, path in detours if path and hops[task]]
            table = np.array(rows, np.int64).reshape(-1, 2)
            if len(rows) < len(detours) or np.any(np.diff(table[:, 0], prepend=-1) <= 0):
                raise WeftError(f"task {task} has a detour that is no path, that has none to replace, or out of order")
            tables[id(detours), home] = table
        parts.append(tables[id(detours), home])
        rows_of[task + 1] = len(parts[-1])
    table = np.concatenate(parts)
    hop_kinds = np.array(list(kinds), np.int64).reshape(-1, 4)
    channels = max(program.channels, 1 + int(hop_kinds[:, 3].max(initial=0)))
    lengths = np.cumsum([len(route) for route in routes]) + program.route_ptr[-1]
    return program._replace(
        hop_server=i32(hop_kinds[:, 0]),
        hop_latency_ps=np.ascontiguousarray(hop_kinds[:, 1]),
        hop_last=np.ascontiguousarray(hop_kinds[:, 2], np.int8),
        hop_channel=np.ascontiguousarray(hop_kinds[:, 3] if channels > 1 else [], np.int8),
        channels=channels,
        route_ptr=i32(np.concatenate([program.route_ptr, lengths])),
        route_hop=np.concatenate([program.route_hop, *map(i32, routes)]),
        detour_ptr=i32(np.cumsum(rows_of)),
        detour_from_ps=np.ascontiguousarray(table[:, 0]),
        detour_route=i32(table[:, 1]),
    )


def _deadlines(program: Program, faults: Disruptions) -> Program:
    if not faults.deadline_ps:
        return program
    deadline = np.full(program.n_tasks, NEVER_PS, np.int64)
    for task, time in faults.deadline_ps.items():
        if time < 0:
            raise WeftError(f"task {task} has a deadline at {time} ps; at least 0")
        deadline[task] = time
    return program._replace(task_deadline_ps=deadline)


def _check_step(program: Program) -> None:
    """From any moment before the end of the clock, what comes next must have a time; the engines watch the rest."""
    jitter_ps = int(program.jitter_ps.max(initial=0))
    added_ps = int(program.timetable_latency_ps.max(initial=0)) + jitter_ps
    latency_ps = int(program.hop_latency_ps.max(initial=0)) + added_ps + int(program.server_credit_ps.max(initial=0))
    rest_ps = jitter_ps + max(latency_ps, int(program.server_resend_ps.max(initial=0)))
    step_ps = int(program.service_ps.max(initial=1)) + rest_ps
    if step_ps >= CLOCK_END_PS:
        size, rate = pairs_that_meet(program)
        over = size[program.service(size, rate) == CLOCK_END_PS]
        if over.size:
            raise WeftError(
                f"with its faults a server could take {format_time(CLOCK_END_PS)} or longer for a chunk of "
                f"{program.chunk_work[over[-1]]} B, and then the clock ends"
            )
        step_ps = slowest_ps(program) + rest_ps
    last_ps = max(int(program.timetable_from_ps.max(initial=0)), int(program.detour_from_ps.max(initial=0)))
    for longest_ps, what in ((step_ps, "one chunk could take"), (last_ps, "something changes at")):
        if longest_ps >= CLOCK_END_PS:
            raise WeftError(
                f"with its faults {what} {format_time(longest_ps)}; the clock ends at {format_time(CLOCK_END_PS)}"
            )
