"""Parts: connected sets of live tasks, which share a server or wait for each other chunk by chunk."""

from __future__ import annotations

import numpy as np

from sim.engine.compile.door import helper, section, u64
from sim.engine.core.state import CHUNKS, DELIVERED, GATE, JOINED, MISSING, RELEASED, TASK_WORDS
from sim.engine.core.status import NONE
from sim.engine.core.tasks import _of
from sim.engine.skip.state import (
    ALLOWED,
    COST,
    FIRST,
    LIVE,
    MEMBERS,
    N_PARTS,
    N_STAGES,
    OF_TASK,
    PART_WORDS,
    PARTS,
    SAVED,
    SKIPPED,
    STAGE_WORDS,
    WAS_DELIVERED,
    WAS_JOINED,
    WAS_MISSING,
    WAS_RELEASED,
    WAS_WORDS,
)

FAR_OFF = np.int64(1 << 61)
FOUND, NOTHING, CHANGED = 8, 9, 10
"""How a try ends, beside the statuses of a run: something can be skipped; nothing can; or a task ended meanwhile."""


@helper
def _root(skip, node):
    while skip.owner[u64(node)] != node:
        above = skip.owner[u64(node)]
        skip.owner[u64(node)] = skip.owner[u64(above)]
        node = np.int64(above)
    return node


@helper
def _unite(skip, one, other):
    skip.owner[u64(_root(skip, one))] = _root(skip, other)


@helper
def _is_live(state, task):
    return _of(state, task, RELEASED) > 0 and _of(state, task, DELIVERED) < _of(state, task, CHUNKS)


@helper
def first_hop(program, task):
    return np.int64(program.route_ptr[u64(program.task_route[u64(task)])])


@helper
def end_hop(program, task):
    return np.int64(program.route_ptr[u64(program.task_route[u64(task)] + 1)])


@helper
def server_at(program, at):
    return np.int64(program.hop_server[u64(program.route_hop[u64(at)])])


@helper
def word_of(skip, part, what):
    return skip.part[u64(PART_WORDS * part + what)]


@helper
def let_word(skip, part, what, value):
    skip.part[u64(PART_WORDS * part + what)] = value


@helper
def find_live(program, state, skip):
    """List the live tasks."""
    n_tasks, n_live = program.task_route.size, 0
    skip.register[COST] += n_tasks // 8 + 20
    for task in range(n_tasks):
        if _is_live(state, task):
            skip.live[u64(n_live)] = task
            n_live += 1
    skip.register[LIVE] = n_live


@section
def find_parts(program, state, skip):
    """Divide the live tasks into parts. Returns False where there are too many parts."""
    n_tasks, n_live = program.task_route.size, skip.register[LIVE]
    for i in range(n_live):
        task = np.int64(skip.live[u64(i)])
        skip.owner[u64(task)] = task
        skip.label[u64(task)] = NONE
        for at in range(first_hop(program, task), end_hop(program, task)):
            node = n_tasks + server_at(program, at)
            skip.owner[u64(node)] = node
            skip.label[u64(node)] = NONE
    for i in range(n_live):
        task = np.int64(skip.live[u64(i)])
        skip.register[COST] += 3
        for at in range(first_hop(program, task), end_hop(program, task)):
            _unite(skip, task, n_tasks + server_at(program, at))
            skip.register[COST] += 2
        if program.parent.size:
            for edge in range(program.parent_ptr[u64(task)], program.parent_ptr[u64(task + 1)]):
                parent = np.int64(program.parent[u64(edge)])
                if _is_live(state, parent):
                    _unite(skip, task, parent)
    n_parts = 0
    for i in range(n_live):
        task = np.int64(skip.live[u64(i)])
        root = _root(skip, task)
        part = np.int64(skip.label[u64(root)])
        if part == NONE:
            if n_parts == PARTS:
                return False
            part = np.int64(n_parts)
            n_parts += 1
            skip.label[u64(root)] = part
            for what in range(PART_WORDS):
                let_word(skip, part, what, 0)
        skip.part_of[u64(task)] = part
        let_word(skip, part, MEMBERS, word_of(skip, part, MEMBERS) + 1)
        remember(state, skip, task)
    skip.register[N_PARTS] = n_parts
    first = np.int64(0)
    for part in range(n_parts):
        let_word(skip, part, FIRST, first)
        first += word_of(skip, part, MEMBERS)
        let_word(skip, part, MEMBERS, 0)
    for i in range(n_live):
        task = np.int64(skip.live[u64(i)])
        part = np.int64(skip.part_of[u64(task)])
        place = word_of(skip, part, FIRST) + word_of(skip, part, MEMBERS)
        skip.grouped[u64(place)] = task
        let_word(skip, part, MEMBERS, word_of(skip, part, MEMBERS) + 1)
    n_stages = 0
    for i in range(n_live):
        task = np.int64(skip.grouped[u64(i)])
        skip.live[u64(i)] = task
        skip.stage_of[u64(task)] = n_stages
        n_stages += end_hop(program, task) - first_hop(program, task) + 1
        if n_stages > skip.stage.size // STAGE_WORDS:
            return False
        for stage in range(skip.stage_of[u64(task)], n_stages):
            skip.stage[u64(STAGE_WORDS * stage + OF_TASK)] = task
    skip.register[N_STAGES] = n_stages
    return n_live > 0


@helper
def end_of(skip, part):
    return word_of(skip, part, FIRST) + word_of(skip, part, MEMBERS)


@helper
def forget_parts(skip):
    for i in range(skip.register[LIVE]):
        skip.part_of[u64(skip.live[u64(i)])] = NONE


@helper
def remember(state, skip, task):
    skip.was[u64(WAS_WORDS * task + WAS_RELEASED)] = _of(state, task, RELEASED)
    skip.was[u64(WAS_WORDS * task + WAS_JOINED)] = _of(state, task, JOINED)
    skip.was[u64(WAS_WORDS * task + WAS_DELIVERED)] = _of(state, task, DELIVERED)
    skip.was[u64(WAS_WORDS * task + WAS_MISSING)] = _of(state, task, MISSING)
    skip.was_gate_ps[u64(task)] = state.gate_ps[u64((TASK_WORDS // 2) * task + GATE)]


@helper
def was_of(skip, task, what):
    return np.int64(skip.was[u64(WAS_WORDS * task + what)])


@helper
def may_try(skip, more=0):
    """Whether the search stays within its budget at `more` cost: a share of the run and of what it saved."""
    return skip.register[COST] + more <= skip.register[ALLOWED] + 2 * skip.register[SKIPPED] + skip.register[SAVED]
