"""How far a time depends on accidents: the range over perturbations that no specification could tell apart."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from sim.engine.run import check_memory, run
from sim.lower.job import lower
from sim.program.model import Model
from sim.program.perturb import perturb
from topologies import WeftError
from topologies.core.routing import ShortestPathRouter
from topologies.text.brief import one_line
from topologies.units import PS_PER_S, format_time

if TYPE_CHECKING:
    from sim.engine.run import Progress
    from sim.result import Result

REROUTED_NPUS = 64
"""Limit on NPUs for taking other routes: all ranks are then simulated."""


@one_line
class Spread(NamedTuple):
    """The range of the times of a result and of its perturbations.

    Attributes
    ----------
    time_ps : int
        Of the result itself.
    times_ps : tuple of int
        Of each perturbation.
    """

    time_ps: int
    times_ps: tuple[int, ...]

    @property
    def low_ps(self) -> int:
        """The shortest of all, the result's included."""
        return min((self.time_ps, *self.times_ps))

    @property
    def high_ps(self) -> int:
        """The longest of all."""
        return max((self.time_ps, *self.times_ps))

    @property
    def low_s(self) -> float:
        return self.low_ps / PS_PER_S

    @property
    def high_s(self) -> float:
        return self.high_ps / PS_PER_S

    def __str__(self) -> str:
        ends = f"{format_time(self.low_ps)} to {format_time(self.high_ps)}"
        return f"{format_time(self.time_ps)}; {ends} in {len(self.times_ps)} perturbed runs"


def spread(
    result: Result, n: int = 8, *, seed: int = 0, progress: Callable[[Progress], None] | None = None
) -> Spread:
    """Run a result again n times, each time perturbed in a way that no specification would tell apart.

    In every run each class of links (or, without symmetry, each link) has a rate up to 0.1 % higher or lower, first
    transfers start up to 0.1 % of the time late, and ties are decided in another order. Every other run has a number of
    chunks nearby as well; every fourth takes other routes among equally short ones where only the numbers of nodes
    decide between them (fabrics without a regular router, up to 64 NPUs).

    Parameters
    ----------
    result : Result
        Of the chunk engine, without faults.
    n : int
        Number of runs.
    seed : int
        Equal seeds give equal ranges.
    progress : callable, optional
        Called on long runs.

    Raises
    ------
    WeftError
        A result with faults or of the analytic engine, or n below 1.

    Examples
    --------
    >>> from collectives import swing
    >>> from sim import simulate
    >>> from topologies import torus
    >>> found = simulate(swing.all_reduce(torus((4, 4)), "1MiB")).spread(4)
    >>> found.low_ps <= found.time_ps <= found.high_ps, len(found.times_ps)
    (True, 4)
    """
    if result.faults is not None or result.outcome is None:
        raise WeftError("a spread is of simulated runs without faults")
    if isinstance(n, bool) or not isinstance(n, int) or n < 1:
        raise WeftError(f"a spread of {n!r} runs: give an integer from 1")
    return Spread(result.time_ps, tuple(_run(result, number, seed, progress) for number in range(n)))


def _run(result: Result, number: int, seed: int, progress: Callable[[Progress], None] | None) -> int:
    rng = np.random.default_rng([seed, number])
    model = _nearby(result.model, rng) if number % 2 else result.model
    topology = result.job.topology
    by_number = isinstance(topology.router, ShortestPathRouter) and topology.n_npus <= REROUTED_NPUS
    if number % 4 == 2 and model.tie == "first" and by_number:
        model = replace(model, tie="ecmp", seed=int(rng.integers(2**31)))
    program = result.lowered.program if model == result.model else lower(result.job, model).program
    changed = perturb(program, rng, result.time_ps)
    check_memory(changed, log=False)
    return run(changed, progress=progress).makespan_ps


def _nearby(model: Model, rng: np.random.Generator) -> Model:
    """A number of chunks, or a size, up to a quarter from that of a model, and not the same."""
    value = model.chunks or model.chunk_bytes or 1
    away = int(rng.integers(1, max(1, value // 4) + 1)) * (1 if value == 1 else int(rng.choice((-1, 1))))
    return replace(model, chunks=value + away) if model.chunks else replace(model, chunk_bytes=value + away)
