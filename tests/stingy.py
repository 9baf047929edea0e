"""Runs whose memory is short at random, so that every return of a kernel for want of memory is taken, again and again.

A kernel that returns for more memory is called again and has to go on as if nothing had happened. Here memory that is
free is hidden now and then, and handed out a little at a time: often less than what is needed, or of another kind.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from random import Random

import numpy as np
import pytest

from sim.engine import setup
from sim.engine.core import nic_state as of_nic
from sim.engine.core import state as fields
from sim.engine.core.state import FifoState
from sim.engine.core.status import NONE
from sim.engine.run import Run
from sim.program import I32, I64, Program
from sim.program.outcome import Outcome


class Stingy:
    """Hides free memory of states, and hands it out; a state is known by its registers, which stay when arrays grow."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.shortages = 0
        self._hidden: dict[tuple[int, int], list[int]] = {}

    def hide(self, state: FifoState) -> FifoState:
        """Leave nothing free, or next to nothing."""
        state.register[fields.BLOCKS] = min(self.rng.choice((0, 0, 1, 3)), _free_blocks(state))
        if state.node.size:
            state.register[fields.FREE_NODES] = 0
        if state.backlog.size:
            self._hide_list(state.register, fields.BACKLOG_FREE, _links_of_backlog(state))
        used = state.register[fields.JOURNALED] * fields.JOURNAL_COLUMNS
        return state._replace(
            journal=state.journal[: max(used, fields.JOURNAL_COLUMNS)].copy(),
            late=state.late[: max(state.register[fields.LATE], 1)].copy(),
            order=state.order[: max(state.register[fields.OPENED], 1)].copy(),
        )

    def more_room(self, state: FifoState) -> FifoState:
        """A little of some kinds, more of what is used up."""
        self.shortages += 1
        register = state.register
        if register[fields.BLOCKS] >= _free_blocks(state):
            state = setup.with_blocks(state, 1)
        elif self._few():
            register[fields.BLOCKS] = min(register[fields.BLOCKS] + self._few(), _free_blocks(state))
        if state.node.size and self._few():
            if register[fields.FREE_NODES] >= _free_nodes(state):
                state = self._with_nodes(state)
            register[fields.FREE_NODES] = min(register[fields.FREE_NODES] + self._few(), _free_nodes(state))
        if state.backlog.size:
            self._give(register, fields.BACKLOG_FREE, _links_of_backlog(state))
            if not self._list(register, fields.BACKLOG_FREE) and register[fields.BACKLOG_FREE] == NONE:
                state = setup._with_longer_backlog(state)
        if state.journal.size:
            rows = self._few() * fields.JOURNAL_COLUMNS
            state = state._replace(journal=np.append(state.journal, np.zeros(rows, np.int64)))
        sizes = {name: getattr(state, name).size + self._few() for name in ("late", "order")}
        return state._replace(**{
            name: np.concatenate([array := getattr(state, name), np.zeros(size - array.size, np.int64)])
            for name, size in sizes.items()
        }, other=np.zeros(max(sizes["order"], state.other.size), np.int64))

    def _few(self) -> int:
        return self.rng.choice((0, 1, 1, 2, 3))

    def _list(self, register: I64, first: int) -> list[int]:
        return self._hidden.setdefault((register.ctypes.data, first), [])

    def _hide_list(self, register: I64, first: int, links: I32 | I64) -> None:
        hidden = self._list(register, first)
        hidden += _walk(links, int(register[first]))
        register[first] = NONE

    def _give(self, register: I64, first: int, links: I32 | I64) -> None:
        hidden = self._list(register, first)
        for _ in range(min(self._few(), len(hidden))):
            links[hidden[-1]], register[first] = register[first], hidden[-1]
            hidden.pop()

    def _with_nodes(self, state: FifoState) -> FifoState:
        node, rank, since = setup._with_nodes(state.node, state.register, 1), state.node_rank, state.node_since
        return state._replace(
            node=node, link=node.view(np.int32), node_rank=np.append(rank, 0) if rank.size else rank,
            node_since=np.append(since, 0) if since.size else since,
        )


def _walk(links: I32 | I64, first: int) -> list[int]:
    """The list that begins with an entry."""
    found = []
    while first != NONE:
        found.append(first)
        first = int(links[first])
    return found


def _links_of_backlog(state: FifoState) -> I64:
    return state.backlog.reshape(-1, of_nic.BACKLOG_WORDS)[:, of_nic.BEHIND]


def _free_blocks(state: FifoState) -> int:
    """Blocks that no slot of the calendar has."""
    return int(state.next_block.size - (-(-state.slot[1::2] // fields.BLOCK)).sum())


def _free_nodes(state: FifoState) -> int:
    links = state.link.reshape(-1, 2 * fields.NODE_WORDS)[:, fields.NEXT]
    return len(_walk(links, int(state.register[fields.FREE_NODE])))


@contextmanager
def stingy(seed: int) -> Iterator[Stingy]:
    """Runs within have memory only a little at a time."""
    one = Stingy(seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(setup, "with_more_room", one.more_room)
        patch.setattr(setup, "JOURNAL_TO_SPARE", 1)
        yield one


def run_stingily(program: Program, seed: int) -> tuple[Outcome, int]:
    """A run of a program with pauses at which all that is free is hidden again; and how often memory was short."""
    with stingy(seed) as one:
        run = Run(program, log=True)
        pause = max(program.chunk_hops() // 40, 1)
        run.state = one.hide(run.state)
        while not run.advance(max_events=one.rng.randint(1, pause)):
            run.state = one.hide(run.state)
        return run.outcome(), one.shortages
