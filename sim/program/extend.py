"""Adding to a finished program: a server, or a task that others wait for."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from sim.program.columns import by_key, i32
from sim.program.contract import FIFO, I64, UNBOUNDED, Program
from sim.program.service_table import times_of, with_services
from sim.program.turns import with_turns
from topologies.units import PS_PER_S


def with_servers(program: Program, per_s: Sequence[Fraction], discipline: int = FIFO) -> Program:
    """The program with more servers, of rates of their own; services beyond the clock are its end, as in `assemble`."""
    n, more = program.n_rates, len(per_s)
    times = times_of(program, [Fraction(PS_PER_S)] * n + list(per_s), np.append(np.arange(n), np.full(more, -1)))
    return with_services(_with_servers(program, np.arange(n, n + more), discipline), n + more, times)


def _with_servers(program: Program, rate: I64, discipline: int) -> Program:
    more = rate.size
    return program._replace(
        server_rate=i32(np.append(program.server_rate, rate)),
        server_discipline=np.append(program.server_discipline, [discipline] * more).astype(np.int8),
        server_nic=i32(np.append(program.server_nic, [-1] * more) if program.has_nics else []),
        server_buffer=_more_buffers(program, more),
        server_credit_ps=np.append(program.server_credit_ps, [1] * more * program.has_credits).astype(np.int64),
    )


def _more_buffers(program: Program, more: int) -> I64:
    """Buffers, where there are any, with those of more servers, which are unbounded."""
    by_channel = program.server_buffer.reshape(program.channels, -1)
    return np.pad(by_channel, ((0, 0), (0, more * program.has_credits)), constant_values=UNBOUNDED).reshape(-1)


def late_task(program: Program, tasks: I64, delay_ps: int) -> Program:
    """The program with one more server, and a task on it for which `tasks` wait until `delay_ps`, at least 1."""
    program = _with_servers(_with_chunk(program), np.zeros(1, np.int64), FIFO)
    late, server = program.n_tasks, program.n_servers - 1
    # The service takes 1 ps; heads are delivered at its start.
    latency_ps = delay_ps if program.deliver_head else delay_ps - 1
    if program.cut_through or program.deliver_head:
        latency_ps = max(latency_ps, 1)
    parent, child = program.whole_edges()
    edges = np.append(parent, np.full(tasks.size, late)).astype(np.int32), np.append(child, tasks).astype(np.int32)
    whole_ptr, whole_child, _ = by_key(*edges, None, late + 1)
    return with_turns(program._replace(
        hop_server=i32(np.append(program.hop_server, server)),
        hop_latency_ps=np.append(program.hop_latency_ps, latency_ps),
        hop_last=np.append(program.hop_last, 1).astype(np.int8),
        hop_channel=np.append(program.hop_channel, [0] * program.has_channels).astype(np.int8),
        route_ptr=i32(np.append(program.route_ptr, program.route_hop.size + 1)),
        route_hop=i32(np.append(program.route_hop, program.hop_server.size)),
        task_cut=i32(np.append(program.task_cut, program.cut_chunks.size - 1)),
        task_route=i32(np.append(program.task_route, program.route_ptr.size - 1)),
        task_class=i32(np.append(program.task_class, 0)),
        task_priority=i32(np.append(program.task_priority, 0) if program.task_priority.size else []),
        whole_ptr=whole_ptr,
        whole_child=whole_child,
        **_longer(program),
    ))


def _with_chunk(program: Program) -> Program:
    """The program with one more cut: a chunk of no work, which every server serves in 1 ps."""
    n_rates, size = max(program.n_rates, 1), program.chunk_work.size
    return program._replace(
        service_ps=np.append(program.service_ps, np.ones(n_rates, np.int64)),
        service_row=np.append(program.service_row, program.service_ps.size),
        n_rates=n_rates,
        chunk_work=np.append(program.chunk_work, 0),
        push_ps=np.append(program.push_ps, 1) if program.has_nics else program.push_ps,
        cut_chunks=i32(np.append(program.cut_chunks, 1)),
        cut_first=i32(np.append(program.cut_first, 1)),
        cut_size=i32(np.concatenate([program.cut_size, [[size, size]]])),
        cut_work=np.append(program.cut_work, 0),
    )


def _longer(program: Program) -> dict[str, Any]:
    """Arrays with one row per task, for one task that has no streams and no pool."""
    rows = {
        "task_pool": -1, "task_units": 0, "task_per": 0, "task_port": 0,
        "task_flow": int(program.task_flow.max(initial=-1)) + 1,
    }
    longer = {
        name: np.append(getattr(program, name), getattr(program, name)[-1:])
        for name in ("stream_ptr", "parent_ptr", "give_ptr", "pushed_ptr")
    }
    for name, value in rows.items():
        array = getattr(program, name)
        longer[name] = np.append(array, [value] if array.size else []).astype(array.dtype)
    return longer
