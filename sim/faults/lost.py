"""Chunks that links lose, from the draws alone: a journal of every service takes several times as long as the run."""

import numpy as np

from sim.program.contract import DOWN, DROPS, I64, LOSES, Program
from topologies.core.paths import ranges
from topologies.core.routing import hash64

LOSS = 0
"""What is drawn, as in `Program`."""

PART = 2**20
"""Chunks that are looked at together."""


def needs_journal(program: Program) -> bool:
    """Whether it depends on times what is lost, or which way chunks go: servers drop chunks, or there are detours."""
    if not program.server_crossing.size:
        return bool(program.detour_ptr.size)
    owner = np.repeat(np.arange(program.n_servers), np.diff(program.timetable_ptr))
    crossing = program.server_crossing[owner[program.timetable_rate == DOWN]]
    return bool(program.detour_ptr.size or np.any((crossing % DROPS == LOSES) | (crossing >= DROPS)))


def chunks_lost(program: Program) -> I64:
    """Chunks that each task loses, (T,), of a program that needs no journal; one that is lost twice counts twice."""
    lost = np.zeros(program.n_tasks, np.int64)
    if not program.server_loss.size:
        return lost
    lossy = np.append(0, np.cumsum(program.server_loss[program.route_server] > 0))
    begin, end = (program.route_ptr[program.task_route + at] for at in (0, 1))
    tasks = np.flatnonzero(lossy[end] > lossy[begin])
    chunks = program.chunks()[tasks]
    part = np.cumsum(chunks) // PART
    for some in np.split(np.arange(tasks.size), np.flatnonzero(np.diff(part)) + 1):
        chunk = ranges(np.zeros(some.size, np.int64), chunks[some])
        _add_lost(program, lost, np.repeat(tasks[some], chunks[some]), chunk)
    return lost


def _add_lost(program: Program, lost: I64, task: I64, chunk: I64) -> None:
    """Count the losses of some chunks: what is lost begins once more at the first hop, with draws of its own."""
    attempt = 0
    while task.size:
        first = program.route_ptr[program.task_route[task]].astype(np.int64)
        hops = program.route_ptr[program.task_route[task] + 1] - first
        owner, place = np.repeat(np.arange(task.size), hops), ranges(first, hops)
        risk = program.server_loss[program.route_server[place]]
        owner, place, risk = (column[risk > 0] for column in (owner, place, risk))
        drawn = hash64(program.seed, LOSS, task[owner], chunk[owner], place - first[owner], attempt) >> np.uint64(1)
        again = np.unique(owner[drawn < risk.astype(np.uint64)])
        task, chunk, attempt = task[again], chunk[again], attempt + 1
        lost += np.bincount(task, minlength=lost.size)
