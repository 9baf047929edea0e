"""Runs whose memory is short at random, so that every return of a kernel for want of memory is taken, again and again.

A kernel that returns for more memory is called again and has to go on as if nothing had happened. Here memory that is
free is hidden now and then, and handed out a little at a time: often less than what is needed, or of another kind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random

import numpy as np
import pytest

from sim.engine import _event, _state, fifo, parts
from sim.engine import _fifo_nic_state as of_nic
from sim.engine import _fifo_state as fields
from sim.engine import run as engine
from sim.engine._fifo_state import FifoState
from sim.engine._state import NONE, State
from sim.engine.run import Run
from sim.program import I32, I64, Program
from sim.program.outcome import Outcome


class Stingy:
    """Hides free memory of states, and hands it out; a state is known by its registers, which stay when arrays grow."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.shortages = 0
        self._more_room, self._more_tokens = fifo.with_more_room, engine._with_more_tokens
        self._hidden: dict[tuple[int, int], list[int]] = {}

    def hide(self, state: FifoState | State) -> FifoState | State:
        """Leave nothing free, or next to nothing."""
        if isinstance(state, State):
            self._hide_list(state.register, _state.FREE, _links_of_tokens(state))
            return state
        state.register[fields.BLOCKS] = min(self.rng.choice((0, 0, 1, 3)), _free_blocks(state))
        if state.node.size:
            state.register[fields.FREE_NODES] = 0
        if state.backlog.size:
            self._hide_list(state.register, fields.BACKLOG_FREE, _links_of_backlog(state))
        return state._replace(
            late=state.late[: max(state.register[fields.LATE], 1)].copy(),
            order=state.order[: max(state.register[fields.OPENED], 1)].copy(),
        )

    def more_room(self, state: FifoState) -> FifoState:
        """A little of some kinds, more of what is used up."""
        self.shortages += 1
        register = state.register
        if register[fields.BLOCKS] >= _free_blocks(state):
            state = fifo.with_blocks(state, 1)
        elif self._few():
            register[fields.BLOCKS] = min(register[fields.BLOCKS] + self._few(), _free_blocks(state))
        if state.node.size and self._few():
            if register[fields.FREE_NODES] >= _free_nodes(state):
                state = self._with_nodes(state)
            register[fields.FREE_NODES] = min(register[fields.FREE_NODES] + self._few(), _free_nodes(state))
        if state.backlog.size:
            self._give(register, fields.BACKLOG_FREE, _links_of_backlog(state))
            if not self._list(register, fields.BACKLOG_FREE) and register[fields.BACKLOG_FREE] == NONE:
                state = fifo._with_longer_backlog(state)
        sizes = {name: getattr(state, name).size + self._few() for name in ("late", "order")}
        return state._replace(**{
            name: np.concatenate([array := getattr(state, name), np.zeros(size - array.size, np.int64)])
            for name, size in sizes.items()
        }, other=np.zeros(max(sizes["order"], state.other.size), np.int64))

    def more_tokens(self, state: State, n_servers: int) -> State:
        """A few tokens of those that are hidden, or new ones."""
        self.shortages += 1
        if not self._list(state.register, _state.FREE):
            state = self._more_tokens(state, n_servers)
            self._hide_list(state.register, _state.FREE, _links_of_tokens(state))
        self._give(state.register, _state.FREE, _links_of_tokens(state))
        return state

    def journal_rows(self, program: Program, n_tokens: int) -> int:
        """The least room for a journal."""
        return _state.JOURNAL_COLUMNS * (1 + self._few())

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
        node, rank = fifo._with_nodes(state.node, state.register, 1), state.node_rank
        return state._replace(
            node=node, link=node.view(np.int32), node_rank=np.append(rank, 0) if rank.size else rank
        )


def _walk(links: I32 | I64, first: int) -> list[int]:
    """The list that begins with an entry."""
    found = []
    while first != NONE:
        found.append(first)
        first = int(links[first])
    return found


def _links_of_tokens(state: State) -> I32:
    return state.event.reshape(-1, 8)[:, _event.NEXT]


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
        patch.setattr(fifo, "with_more_room", one.more_room)
        patch.setattr(engine, "_with_more_tokens", one.more_tokens)
        patch.setattr(engine, "_journal_size", one.journal_rows)
        patch.setattr(parts, "FIRST_ROOM", 1)
        yield one


def run_stingily(program: Program, seed: int, make: Callable[[Program], Run]) -> tuple[Outcome, int]:
    """A run of a program with pauses at which all that is free is hidden again; and how often memory was short."""
    with stingy(seed) as one:
        run = make(program)
        pause = max(program.chunk_hops() // 40, 1)
        hide(run, one)
        while not run.advance(max_events=one.rng.randint(1, pause)):
            hide(run, one)
        return run.outcome(), one.shortages


def hide(run: Run, one: Stingy) -> None:
    """Hide what is free in a run, or in each of its parts."""
    if run._parts is None:
        run.state = one.hide(run.state)
    else:
        run._parts.states = [one.hide(state) for state in run._parts.states]
