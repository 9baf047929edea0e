"""Small programs by seed, resumed from a tape: the state in which a run stands when it is resumed, word by word.

They are quick without the compiler, so that `make mutants` runs them thousands of times.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import numpy as np
import pytest

from sim.engine import setup as fifo
from sim.engine.core.state import BUSY_PS, FREE_PS, GATE, SERVER_WORDS, TASK_WORDS, FifoState
from sim.engine.run import Run
from sim.engine.tape.tape import Replay, Tape, resume
from sim.program import Program
from tests.eager_runs import assert_same
from tests.repeating_programs import repeating_program

SEEDS = range(40)


@pytest.fixture(autouse=True)
def _wherever_it_can_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resume, "LEAST_SAVED", 0)


def retimed(rng: Random, program: Program, latencies: tuple[int, ...] = (0, 1, 1, 2)) -> Program:
    """The program at other rates and latencies: each on its own, or services of one length, so that ties abound.

    `latencies`: factors of them; at 0 those of different hops may become alike.
    """
    service = program.service_ps.reshape(-1, program.n_rates)
    if rng.random() < 0.7:
        service = -(-service * np.array([rng.choice((2, 3, 3, 4, 9)) for _ in range(program.n_rates)]) // 3)
    else:
        service = np.full_like(service, rng.randint(1, 3))
    latency = program.hop_latency_ps * rng.choice(latencies)
    latency = np.where(latency == 0, np.minimum(program.hop_latency_ps, 1), latency)
    return program._replace(service_ps=service.reshape(-1), hop_latency_ps=latency)


def changes(seed: int, latencies: tuple[int, ...] = (0, 1, 1, 2)) -> Iterator[tuple[Tape, Program, Replay]]:
    """The tape of a small program, and retimed ones whose order of service is another, one replay after the other."""
    rng = Random(seed)
    program = repeating_program(rng, 1, 3)
    tape = Tape.record(program)
    for _ in range(3):
        other = retimed(rng, program, latencies)
        replay = tape.replay(other)
        if not replay.in_order:
            yield tape, other, replay


def assert_stands_alike(one: Run, other: Run) -> None:
    """Two runs between two picoseconds, in all that decides how they go on."""
    assert isinstance(one.state, FifoState) and isinstance(other.state, FifoState)
    assert one.events == other.events
    words, others = (state.task.reshape(-1, TASK_WORDS) for state in (one.state, other.state))
    np.testing.assert_array_equal(words[:, : 2 * GATE], others[:, : 2 * GATE])
    gate, others = (state.gate_ps[GATE :: TASK_WORDS // 2] for state in (one.state, other.state))
    np.testing.assert_array_equal(gate, others)
    servers = [state.server.reshape(-1, SERVER_WORDS)[:, [FREE_PS, BUSY_PS]] for state in (one.state, other.state)]
    np.testing.assert_array_equal(*servers)
    for name in ("start_ps", "log_start_ps", "log_before", "last_row"):
        np.testing.assert_array_equal(getattr(one.state, name), getattr(other.state, name), err_msg=name)
    waiting = [sorted(fifo.waiting(state).tolist()) for state in (one.state, other.state)]
    assert waiting[0] == waiting[1]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_resumed_run_stands_where_the_run_stands(seed: int) -> None:
    for tape, program, replay in changes(seed):
        one, other = resume.resume(tape, program, replay, log=True), Run(program, log=True, skip=False)
        if one.events:
            other.advance(until_ps=replay.change_ps - 1)
            assert_stands_alike(one, other)
        one.advance()
        other.advance()
        assert_same(one.outcome(), other.outcome())


@pytest.mark.parametrize("seed", SEEDS)
def test_a_tape_put_in_another_order_is_that_of_the_run(seed: int) -> None:
    """It says of every service and every other program what one says that was recorded."""
    for tape, program, replay in changes(seed, (1, 2)):
        one, other = resume.record_again(tape, program, replay), Tape.record(program)
        np.testing.assert_array_equal(one.places.before, other.places.before)
        rng = Random(seed)
        for again in (program, *(retimed(rng, program, (1, 2)) for _ in range(3))):
            assert one.replay(again) == other.replay(again)
            np.testing.assert_array_equal(one.finish_ps(), other.finish_ps())
            np.testing.assert_array_equal(one.start_ps(again), other.start_ps(again))
