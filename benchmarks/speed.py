"""How fast the engines are on the fixed cases, in chunk-hops (chunks crossing servers) a second of CPU."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from statistics import median
from time import process_time
from typing import NamedTuple

import numpy as np

from benchmarks import heapq_loop, plain_loop
from benchmarks.cases import MIB, Case, ring_all_reduce, torus_all_to_all
from sim.engine.core.state import FifoState
from sim.engine.reference.engine import run_reference
from sim.engine.run import Run, run
from sim.program import PRIORITY, Program

CASES = (
    Case("ring 256, 64 MiB, 16 chunks", partial(ring_all_reduce, 256, 16), 2 * 255 * 256 * 16),
    Case("all-to-all 16x16, 1 MiB per pair, 16 chunks", partial(torus_all_to_all, 16, 16), 256 * 256 * 8 * 16),
    Case(
        "the same, every link its own bandwidth", partial(torus_all_to_all, 16, 16, distinct=True), 256 * 256 * 8 * 16
    ),
    Case("the same, priorities", partial(torus_all_to_all, 16, 16, discipline=PRIORITY), 256 * 256 * 8 * 16),
)
"""The event counts are 2 (n-1) n chunks, and pairs x mean distance x chunks."""

SMALL_CASES = (
    Case("ring 64, 64 MiB, 16 chunks", partial(ring_all_reduce, 64, 16), 2 * 63 * 64 * 16),
    Case("all-to-all 8x8, 1 MiB per pair, 4 chunks", partial(torus_all_to_all, 8, 4), 64 * 64 * 4 * 4),
    Case(
        "the same, every link its own bandwidth",
        partial(torus_all_to_all, 8, 4, pair_bytes=MIB, distinct=True),
        64 * 64 * 4 * 4,
    ),
)
"""Small enough for SimPy."""


class Speed(NamedTuple):
    """One case of the chunk engine.

    Attributes
    ----------
    case : str
    services : int
    rate : float
        Chunk-hops a second of CPU.
    bytes_a_transfer : float
        Program, dependencies included, and state, without chunks in flight.
    bytes_a_chunk : float
        Of each chunk that the engine set aside room for.
    chunks_in_flight : int
    build_s : float
        CPU seconds from the columns of routes, tasks and dependencies to the program.
    """

    case: str
    services: int
    rate: float
    bytes_a_transfer: float
    bytes_a_chunk: float
    chunks_in_flight: int
    build_s: float


class Ratio(NamedTuple):
    """One small case in one process.

    Attributes
    ----------
    case : str
    services : int
    engine, reference, loop : float
        Chunk-hops a second of CPU; the loop 0 where it does not apply.
    """

    case: str
    services: int
    engine: float
    reference: float
    loop: float


def rate(services: int, times: int, once: Callable[[], Callable[[], object]]) -> float:
    """Median rate; `once` prepares and returns what is to be timed."""
    seconds = []
    for _ in range(times):
        work = once()
        began = process_time()
        work()
        seconds.append(process_time() - began)
    return services / median(seconds)


def engine_rate(program: Program, services: int, times: int = 5) -> float:
    """Of the chunk engine; asserts the event count and the end."""

    def once() -> Callable[[], object]:
        one = Run(program)

        def work() -> None:
            assert one.advance()
            assert one.events == services, f"{one.events} services where {services} were due"

        return work

    return rate(services, times, once)


def measure(case: Case, times: int = 5) -> Speed:
    """Engine and memory of one case, and what it takes to build its program."""
    built_per_s = rate(1, times, lambda: case.build)
    program = case.build()
    assert program.chunk_hops() == case.services
    found = engine_rate(program, case.services, times)
    one = Run(program)
    one.advance()
    assert isinstance(one.state, FifoState)
    in_flight = one.state.events.nbytes + one.state.nodes.nbytes + one.state.node_rank.nbytes
    return Speed(
        case.name,
        case.services,
        found,
        (program.nbytes() + one.nbytes - in_flight) / program.n_tasks,
        in_flight / one.tokens,
        one.tokens,
        1 / built_per_s,
    )


def compare(case: Case) -> Ratio:
    """Engine, SimPy reference and heapq loop on the same small case, one after the other in this process."""
    program = case.build()
    assert program.chunk_hops() == case.services
    makespan = run(program).makespan_ps
    fast = engine_rate(program, case.services)

    def reference() -> None:
        found = run_reference(program)
        assert (found.makespan_ps, found.events) == (makespan, case.services)

    slow = rate(case.services, 1, lambda: reference)
    loop = 0.0
    if case.name.startswith("ring"):
        assert heapq_loop.run(program) == (makespan, case.services)
        loop = rate(case.services, 3, lambda: partial(heapq_loop.run, program))
    return Ratio(case.name, case.services, fast, slow, loop)


def against_plain(case: Case, times: int = 5) -> tuple[float, float]:
    """Rates of the engine and of the plain C++ loop, in turn: what it takes to run, not to build the program."""
    program = case.build()
    seconds = []
    for _ in range(times):
        one = Run(program)
        times_of_one = [process_time()]
        one.advance()
        times_of_one.append(process_time())
        found = plain_loop.run(program)
        times_of_one.append(process_time())
        outcome = one.outcome()
        assert found[:2] == (outcome.makespan_ps, case.services)
        assert np.array_equal(found[2], outcome.finish_ps) and np.array_equal(found[3], outcome.busy_ps)
        seconds.append(np.diff(times_of_one))
    engine, loop = np.median(seconds, axis=0)
    return case.services / engine, case.services / loop


def log_cost(case: Case, times: int = 5) -> tuple[float, float]:
    """Rates without a log, and with one."""
    program = case.build()
    without = engine_rate(program, case.services, times)
    return without, rate(case.services, times, lambda: partial(run, program, log=True))


class TimeEngine:
    """For asv: seconds of each case, and bytes per transfer."""

    params = tuple(case.name for case in CASES)
    param_names = ("case",)
    timeout = 300

    def setup(self, name: str) -> None:
        self.case = next(case for case in CASES if case.name == name)
        self.program = self.case.build()
        run(self.program)  # compiled, or loaded

    def time_run(self, name: str) -> None:
        assert run(self.program).events == self.case.services

    def track_bytes_a_transfer(self, name: str) -> float:
        return measure(self.case, 1).bytes_a_transfer

