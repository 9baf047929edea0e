"""Adding to a finished program: servers, or tasks that others wait for."""

from collections.abc import Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from sim.program.columns import by_key, i32
from sim.program.contract import FIFO, I64, TAIL, UNBOUNDED, Program
from sim.program.service_table import times_of, with_services
from sim.program.turns import with_turns
from topologies.core.dealt import STREAM
from topologies.units import PS_PER_S


def with_servers(program: Program, per_s: Sequence[Fraction], discipline: int = FIFO) -> Program:
    """The program with more servers, of rates of their own; services beyond the clock are its end, as in `assemble`."""
    n, more = program.n_rates, len(per_s)
    times = times_of(program, [Fraction(PS_PER_S)] * n + list(per_s), np.append(np.arange(n), np.full(more, -1)))
    return with_turns(with_services(_with_servers(program, np.arange(n, n + more), discipline), n + more, times))


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


class Late(NamedTuple):
    """Tasks that wait until a time, at least 1."""

    tasks: I64
    delay_ps: int


def late_tasks(program: Program, starts: Sequence[Late]) -> Program:
    """The program with one more server for each of the starts, and a task on it for which the others wait."""
    more = len(starts)
    if not more:
        return program
    program = _with_servers(_with_chunk(program), np.zeros(more, np.int64), FIFO)
    late = np.arange(more)
    latency_ps = np.array([start.delay_ps for start in starts], np.int64) - 1  # the service takes 1 ps
    if program.cut_through:
        latency_ps = np.maximum(latency_ps, 1)
    parent, child = program.whole_edges()
    waiting = np.concatenate([start.tasks for start in starts])
    parent = i32(np.append(parent, program.n_tasks + np.repeat(late, [start.tasks.size for start in starts])))
    child = i32(np.append(child, waiting))
    whole_ptr, whole_child, _ = by_key(parent, child, np.zeros_like(parent), STREAM, program.n_tasks + more)
    return with_turns(program._replace(
        hop_server=i32(np.append(program.hop_server, program.n_servers - more + late)),
        hop_latency_ps=np.append(program.hop_latency_ps, latency_ps),
        hop_last=np.append(program.hop_last, np.full(more, TAIL)).astype(np.int8),
        hop_channel=np.append(program.hop_channel, np.zeros(more * program.has_channels)).astype(np.int8),
        route_ptr=i32(np.append(program.route_ptr, program.route_hop.size + 1 + late)),
        route_hop=i32(np.append(program.route_hop, program.hop_server.size + late)),
        task_cut=i32(np.append(program.task_cut, np.full(more, program.cut_chunks.size - 1))),
        task_route=i32(np.append(program.task_route, program.route_ptr.size - 1 + late)),
        task_class=i32(np.append(program.task_class, np.zeros(more))),
        task_priority=i32(np.append(program.task_priority, np.zeros(more * bool(program.task_priority.size)))),
        whole_ptr=whole_ptr,
        whole_child=whole_child,
        **_longer(program, more),
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


def _longer(program: Program, more: int) -> dict[str, Any]:
    """Arrays with one row per task, for more tasks, that have no streams and no pool."""
    flows = int(program.task_flow.max(initial=-1)) + 1
    rows = {"task_pool": -1, "task_units": 0, "task_per": 0, "task_port": 0, "task_flow": flows + np.arange(more)}
    longer = {
        name: np.append(getattr(program, name), np.repeat(getattr(program, name)[-1:], more))
        for name in ("stream_ptr", "parent_ptr", "give_ptr", "pushed_ptr")
    }
    for name, value in rows.items():
        array = getattr(program, name)
        longer[name] = np.append(array, np.full(more, value) if array.size else []).astype(array.dtype)
    return longer
