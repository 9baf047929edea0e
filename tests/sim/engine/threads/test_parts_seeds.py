"""Small programs by seed in parts, in turn: the state in which they pause and end, and in how many windows they run.

They are quick without the compiler, so that `make mutants` runs them thousands of times. Windows and room are frozen
as well: shorter windows or larger boxes change no result, and would go unnoticed.
"""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest

from sim.engine import setup as fifo
from sim.engine.core.state import BUSY_PS, DONE, FREE_PS, GATE, ROOM, SERVER_WORDS, TASK_WORDS, FifoState
from sim.engine.run import Run
from sim.engine.threads import parts
from sim.program import I64, Program
from tests.eager_runs import assert_same
from tests.repeating_programs import repeating_program

ROOMS = (1, 2, 256)
EMPTY_CALENDAR = fifo.empty_calendar

WINDOWS = {
    0: (14, 4, 8), 1: (5, 17, 9), 2: (42, 256, 9), 3: (83, 17, 7), 4: (26, 2, 4), 5: (114, 256, 6), 6: (5, 14, 4),
    7: (5, 9, 4), 8: (106, 256, 12), 9: (92, 3, 4), 11: (98, 256, 5), 12: (5, 5, 3), 13: (5, 10, 3),
    14: (108, 256, 7), 15: (5, 9, 2), 16: (5, 18, 5), 19: (44, 2, 6), 20: (11, 256, 6), 21: (118, 6, 5),
    22: (52, 5, 6), 23: (12, 256, 6), 24: (36, 4, 7), 27: (76, 6, 8), 28: (80, 8, 6), 30: (42, 8, 6), 33: (46, 5, 6),
    34: (32, 5, 8), 37: (108, 6, 5), 38: (32, 256, 6), 40: (73, 6, 4), 42: (76, 8, 8), 43: (29, 4, 9), 51: (35, 3, 6),
    52: (117, 9, 5), 55: (42, 7, 5), 56: (5, 256, 7), 58: (78, 5, 7), 60: (62, 5, 6), 63: (68, 8, 7), 65: (68, 256, 8),
}
"""By seed: windows of a run that pauses again and again, room of its boxes, and of what its parts sort."""


def dealt(seed: int) -> tuple[Program, int, parts.Cut]:
    """A small program, and its groups dealt to a few parts at random."""
    rng = Random(seed)
    program, n_parts = repeating_program(rng, 1, 2), rng.randint(1, 3)
    groups = parts.groups_of(program)
    deal = np.array([rng.randrange(n_parts) for _ in groups.first])
    return program, n_parts, parts.dealt(program, groups, n_parts, deal)


def in_parts(seed: int, monkeypatch: pytest.MonkeyPatch) -> Run:
    """A run of it that goes on in parts after its first service, with boxes and calendars that are soon full."""
    program, n_parts, cut = dealt(seed)
    monkeypatch.setattr(parts, "FIRST_ROOM", ROOMS[seed % 3])
    monkeypatch.setattr(fifo, "empty_calendar", with_little_room)
    one = Run(program, log=True, skip=False)
    one.advance(1)
    assert isinstance(one.state, FifoState)
    one._parts = parts.Parts(program, one.state, n_parts, cut, in_turn=True)
    return one


def with_little_room(register: I64, n_events: int, n_sorted: int) -> dict[str, Any]:
    """A calendar that sorts two events before it needs more room."""
    made = EMPTY_CALENDAR(register, n_events, n_sorted)
    return made | {name: made[name][:2] for name in ("order", "other", "late")}


def assert_stands_alike(one: Run, other: Run) -> None:
    """What two runs have done so far."""
    one.outcome()
    assert isinstance(one.state, FifoState)
    assert isinstance(other.state, FifoState)
    assert one.events == other.events
    for name in ("delivered", "joined", "start_ps", "finish_ps", "log_start_ps", "log_before"):
        np.testing.assert_array_equal(getattr(one.state, name), getattr(other.state, name), err_msg=name)
    servers, others = (state.server.reshape(-1, SERVER_WORDS) for state in (one.state, other.state))
    np.testing.assert_array_equal(servers[:, [FREE_PS, BUSY_PS]], others[:, [FREE_PS, BUSY_PS]])
    words, other_words = (state.task.reshape(-1, TASK_WORDS) for state in (one.state, other.state))
    np.testing.assert_array_equal(words[:, : 2 * GATE], other_words[:, : 2 * GATE])


def found(seed: int, monkeypatch: pytest.MonkeyPatch) -> tuple[int, int, int]:
    """Hold a run in parts against one in one, at a time in its midst, and at its end after pauses by services."""
    whole = Run(dealt(seed)[0], log=True, skip=False)
    whole.advance()
    one, other = in_parts(seed, monkeypatch), Run(whole.program, log=True, skip=False)
    until_ps = int(whole.outcome().makespan_ps * Random(seed).random())
    assert one.advance(until_ps=until_ps) == other.advance(until_ps=until_ps)
    assert_stands_alike(one, other)
    while not one.advance(max_events=1 + seed % 40):
        pass
    assert_stands_alike(one, whole)
    assert_same(one.outcome(), whole.outcome())
    assert one._parts is not None
    first = one._parts.states[0].own
    return int(first[DONE]), int(first[ROOM]), sum(state.late.size for state in one._parts.states)


@pytest.mark.parametrize("seed", WINDOWS)
def test_in_parts_as_in_one(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert found(seed, monkeypatch) == WINDOWS[seed]
