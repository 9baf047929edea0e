"""How far a time depends on accidents: the range over perturbations that no specification could tell apart."""

from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, NamedTuple

import numpy as np

from collectives.core.schedule import Schedule
from sim.engine.run import check_size, run
from sim.lower.job import lower
from sim.lower.lowered import Lowered
from sim.lower.progress import progress_told
from sim.lower.rotor import in_turns
from sim.program.model import MOST_SPREAD, SYMMETRY, Model
from sim.program.outcome import Outcome, Progress
from sim.program.retime import perturb
from topologies import ShortestPathRouter, Topology
from topologies.checks import Choice, Integer, Natural, checked
from topologies.stages import count
from topologies.text.brief import one_line
from topologies.units import PS_PER_S, counted, format_time
from workloads.job import Job, on_network

RUNS = 4
"""Perturbed runs where nobody says how many."""

REROUTED_NPUS = 64
"""Limit on NPUs for taking other routes: all ranks are then simulated."""


@checked
@one_line
class Spread(NamedTuple):
    """The range of the times of a result and of its perturbations.

    Attributes
    ----------
    time_ps : int
        Of the result itself.
    times_ps : tuple of int
        Of each perturbation.
    alone_ps : int or None
        Of a run whose ports go on alone, where ranks wait by default (`rank_progress`).
    """

    time_ps: int
    times_ps: tuple[int, ...]
    alone_ps: int | None = None

    @property
    def low_ps(self) -> int:
        """The shortest of all, the result's included."""
        return min((self.time_ps, *self.times_ps))

    @property
    def high_ps(self) -> int:
        """The longest of all."""
        return max((self.time_ps, *self.times_ps))

    @property
    def alone_s(self) -> float | None:
        """Time with ports that go on alone; None where that was not run."""
        return None if self.alone_ps is None else self.alone_ps / PS_PER_S

    @property
    def low_s(self) -> float:
        """The shortest time."""
        return self.low_ps / PS_PER_S

    @property
    def high_s(self) -> float:
        """The longest time."""
        return self.high_ps / PS_PER_S

    def __str__(self) -> str:
        ends = f"{format_time(self.low_ps)} to {format_time(self.high_ps)}"
        alone = "" if self.alone_ps is None else f", {format_time(self.alone_ps)} where ports go on alone"
        return f"{format_time(self.time_ps)}; {ends} in {counted(len(self.times_ps), 'perturbed run')}{alone}"


@checked
def spread(
    work: Schedule | Job, n: Annotated[int, Integer(1, MOST_SPREAD)] = RUNS, *, model: Model = Model(),
    seed: Natural = 0, symmetry: Annotated[str, Choice(SYMMETRY)] = "auto",
    progress: Callable[[Progress], None] | None = None, time_ps: int | None = None,
) -> Spread:
    """Run a schedule or a job, and n times more, each time perturbed in a way that no specification would tell apart.

    In every run each class of links (or, without symmetry, each link) has a rate up to 0.1 % higher or lower, first
    transfers start up to 0.1 % of the time late, and ties are decided in another order. Every other run has a number of
    chunks nearby as well; where links have buffers, smaller chunks only, which fit them as well. Where only the numbers
    of nodes decide between equally short routes (fabrics without a regular router, up to 64 NPUs), one run of four
    draws each route, and the others have those of another numbering.

    Where ranks wait by default for all ports of a step, one more run has ports that go on alone.

    Transfers stay as they were built: ranks keep their numbers, and neither trees nor orders of peers, in which numbers
    decide as well, are chosen anew.

    Parameters
    ----------
    work : Schedule or Job
    n : int
        Number of perturbed runs, at most 10,000.
    model : Model
    seed : int
        Equal seeds give equal ranges.
    symmetry : {"auto", "off"}
    progress : callable, optional
        Called on long runs.
    time_ps : int, optional
        Of the work as it is, where it is known: it is not run once more.

    Raises
    ------
    WeftError
        n below 1 or above 10,000, or a run too large for memory.

    Examples
    --------
    >>> from collectives import swing
    >>> from topologies import torus
    >>> found = spread(swing.all_reduce(torus((4, 4)), "1MiB"), 4)
    >>> found.low_ps <= found.time_ps <= found.high_ps, len(found.times_ps)
    (True, 4)
    """
    job = Job.of(work) if isinstance(work, Schedule) else work
    plain = lower(job, model, symmetry)

    def outcome(one: Lowered) -> Outcome:
        check_size(one.program, log=False)
        return run(one.program, progress=progress)

    def run_ps(one: Lowered) -> int:
        return in_turns(one, outcome)[1].makespan_ps

    found = run_ps(plain) if time_ps is None else time_ps
    times = []
    for number in range(n):
        count("perturbed runs", number, n)
        rng = np.random.default_rng([seed, number])
        moved, other = _renumbered(job, model, number, rng), nearby(job.topology, model, number, rng)
        changed = plain if (moved, other) == (job, model) else lower(moved, other, symmetry)
        times.append(run_ps(changed._replace(program=perturb(changed.program, rng, found))))
    free = alone(job, model)
    return Spread(found, tuple(times), None if free is None else run_ps(lower(job, free, symmetry)))


def alone(job: Job, model: Model) -> Model | None:
    """The model in which ports go on alone, where ranks of a job wait for all of them because nobody said otherwise."""
    waits = model.rank_progress == "auto" and progress_told(job, model) != "free"
    return replace(model, rank_progress="free") if waits else None


def _by_number(topology: Topology, model: Model) -> bool:
    """Whether numbers of nodes decide between equally short routes, which are few enough to take others."""
    return isinstance(topology.router, ShortestPathRouter) and model.tie == "first" and topology.n_npus <= REROUTED_NPUS


def _renumbered(job: Job, model: Model, number: int, rng: "np.random.Generator") -> Job:
    """The job of a perturbed run: routes are those of another numbering of the nodes where they are not drawn."""
    if number % 4 == 2 or not _by_number(job.topology, model):
        return job
    router = ShortestPathRouter(numbering=int(rng.integers(2**31)))
    return on_network(job, replace(job.topology, router=router))


def nearby(topology: Topology, model: Model, number: int, rng: "np.random.Generator") -> Model:
    """The model of a perturbed run: chunks up to a quarter away in odd ones, drawn routes in every fourth.

    With buffers chunks are smaller only: larger ones might not fit.
    """
    if number % 4 == 2 and _by_number(topology, model):
        return replace(model, tie="ecmp", seed=int(rng.integers(2**31)))
    if number % 2 == 0:
        return model
    value = model.chunks or model.chunk_bytes or 1
    away = int(rng.integers(1, max(1, value // 4) + 1)) * (1 if value == 1 else int(rng.choice((-1, 1))))
    if model.buffer_bytes is not None:
        away = abs(away) if model.chunks else -min(abs(away), value - 1)
    return replace(model, chunks=value + away) if model.chunks else replace(model, chunk_bytes=value + away)
