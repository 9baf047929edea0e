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
from sim.engine.compile.rows import Rows, rows
from sim.engine.core.state import BLOCK, FifoState, Return, Service
from sim.engine.core.state import Run as Registers
from sim.engine.core.status import NONE
from sim.engine.run import Run
from sim.program import I32, I64, Program
from sim.program.outcome import Outcome


class Stingy:
    """Hides free memory of states, and hands it out; a state is known by its registers, which stay when arrays grow."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.shortages = 0
        self._hidden: dict[tuple[int, str], list[int]] = {}

    def hide(self, state: FifoState) -> FifoState:
        """Leave nothing free, or next to nothing."""
        state.run["blocks"] = min(self.rng.choice((0, 0, 1, 3)), _free_blocks(state))
        if state.nodes.size:
            state.run["free_nodes"] = 0
        if state.backlog.size:
            self._hide_list(state.run, "backlog_free", state.backlog["behind"])
        return state._replace(
            journal=rows(Service, state.journal[: max(state.run["journaled"], 1)].copy()),
            late=state.late[: max(state.run["late"], 1)].copy(),
            order=state.order[: max(state.run["opened"], 1)].copy(),
        )

    def more_room(self, state: FifoState) -> FifoState:
        """A little of some kinds, more of what is used up."""
        self.shortages += 1
        run = state.run
        if run["blocks"] >= _free_blocks(state):
            state = setup.with_blocks(state, 1)
        elif self._few():
            run["blocks"] = min(run["blocks"] + self._few(), _free_blocks(state))
        if state.nodes.size and self._few():
            if run["free_nodes"] >= _free_nodes(state):
                state = self._with_nodes(state)
            run["free_nodes"] = min(run["free_nodes"] + self._few(), _free_nodes(state))
        if state.backlog.size:
            self._give(run, "backlog_free", state.backlog["behind"])
            if not self._list(run, "backlog_free") and run["backlog_free"] == NONE:
                state = setup._with_longer_backlog(state)
        if state.journal.size:
            state = state._replace(journal=rows(Service, setup._longer(state.journal, self._few())))
        sizes = {name: getattr(state, name).size + self._few() for name in ("late", "order")}
        return state._replace(**{
            name: np.concatenate([array := getattr(state, name), np.zeros(size - array.size, np.int64)])
            for name, size in sizes.items()
        }, other=np.zeros(max(sizes["order"], state.other.size), np.int64))

    def _few(self) -> int:
        return self.rng.choice((0, 1, 1, 2, 3))

    def _list(self, run: Rows[Registers], first: str) -> list[int]:
        return self._hidden.setdefault((run.ctypes.data, first), [])

    def _hide_list(self, run: Rows[Registers], first: str, links: I32 | I64) -> None:
        hidden = self._list(run, first)
        hidden += _walk(links, int(run[first]))
        run[first] = NONE

    def _give(self, run: Rows[Registers], first: str, links: I32 | I64) -> None:
        hidden = self._list(run, first)
        for _ in range(min(self._few(), len(hidden))):
            links[hidden[-1]], run[first] = run[first], hidden[-1]
            hidden.pop()

    def _with_nodes(self, state: FifoState) -> FifoState:
        nodes, rank, since = setup._with_nodes(state.nodes, state.run, 1), state.node_rank, state.node_since
        return state._replace(
            nodes=nodes, returns=rows(Return, nodes), node_rank=np.append(rank, 0) if rank.size else rank,
            node_since=np.append(since, 0) if since.size else since,
        )


def _walk(links: I32 | I64, first: int) -> list[int]:
    """The list that begins with an entry."""
    found = []
    while first != NONE:
        found.append(first)
        first = int(links[first])
    return found


def _free_blocks(state: FifoState) -> int:
    """Blocks that no slot of the calendar has."""
    return int(state.next_block.size - (-(-state.slots["count"] // BLOCK)).sum())


def _free_nodes(state: FifoState) -> int:
    return len(_walk(state.nodes["next"], int(state.run["free_node"])))


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
