"""What the optimizer minimizes: times of programs at chosen bandwidths, with their critical paths."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import inf
from typing import NamedTuple, Protocol

import numpy as np

from collectives.reconfigured import Unswitchable
from sim.analytic.bounds import busy_and_path_ps
from sim.analytic.convex import Epigraph
from sim.analytic.traffic import F64
from sim.certify.schedule import certify_circuits
from sim.engine.run import check_size
from sim.how import AS_USUAL, How
from sim.lower.lowered import task_names
from sim.lower.rotor import in_turns
from sim.optimizer.retime import Least, Retimed
from sim.program import FIFO, Program
from sim.program.outcome import Outcome
from sim.program.retime import KEEPS_ITS_RATE, SHARE, perturb
from sim.why.faulty_path import services_on_path
from sim.why.spread import RUNS, Spread
from topologies import WeftError
from topologies.text.brief import one_line
from topologies.units import counted

MOST_SMALL = 1 << 16
"""Services of a small program, in which servers and pools are fifo: other forms of it are optimized as well."""


class Unbuilt(WeftError):
    """An algorithm that is built from bandwidths cannot be built from some: at others it may."""


class Part(NamedTuple):
    """A time that enters the whole `weight` times, and what its critical path spent in each dimension."""

    weight: float
    time_ns: float
    # (D,): services on the critical path, other tasks' included: minus the derivative by the logarithm of B
    service_ns: F64


@one_line
class Evaluation(NamedTuple):
    """A simulated time at one choice of bandwidths."""

    bandwidth_GBps: F64
    constant_ns: float  # infinite where an algorithm cannot run: it then has no parts
    parts: tuple[Part, ...]

    @property
    def time_ns(self) -> float:
        """The time of all parts, weighted, and what no bandwidth changes; infinite where an algorithm cannot run."""
        return self.constant_ns + sum(part.weight * part.time_ns for part in self.parts)

    @property
    def slope_ns(self) -> F64:
        """Derivative of the time by each bandwidth, ns per GB/s, (D,); one-sided where paths tie."""
        total = sum((part.weight * part.service_ns for part in self.parts), np.zeros(self.bandwidth_GBps.size))
        return -total / self.bandwidth_GBps


class Objective(Protocol):
    """Anything whose time depends on D bandwidths."""

    @property
    def n_dims(self) -> int:
        """Dimensions that share the budget."""
    @property
    def constant_ns(self) -> float:
        """What no bandwidth changes."""
    @property
    def weights(self) -> tuple[float, ...]:
        """Of the parts of every evaluation."""
    @property
    def evaluations(self) -> int:
        """Bandwidths that were asked for, each once."""
    @property
    def runs(self) -> int:
        """Programs simulated by the engine."""
    @property
    def left_out(self) -> Mapping[bytes, str]:
        """Why it cannot run, by the bandwidths at which it cannot."""
    @property
    def is_small(self) -> bool:
        """Whether an evaluation is cheap, as a rule."""
    @property
    def floors(self) -> tuple[Epigraph, ...]:
        """Lower bounds on the times of its parts; empty if none is known."""
    def evaluate(self, bandwidth_GBps: F64) -> Evaluation:
        """The times at bandwidths, (D,)."""


class Timed(Protocol):
    """A part of an objective: a program at any bandwidths, whose structure may depend on them."""

    @property
    def n_dims(self) -> int:
        """Dimensions that share the budget."""
    @property
    def rank_progress(self) -> str:
        """What ranks wait for before their next step."""
    def retimed(self, bandwidth_GBps: F64) -> Retimed:
        """The structure at these bandwidths, (D,)."""
    # of a perturbed run, before rates and starts are changed: other cuts and routes, and the structure nearby
    def perturbed(self, bandwidth_GBps: F64, away: F64, number: int, rng: np.random.Generator) -> Retimed:
        """The structure of a perturbed run."""
    def alone(self, bandwidth_GBps: F64) -> Retimed | None:
        """The structure with ports that go on alone, where ranks wait; None elsewhere."""
    def least(self) -> Least:
        """What bounds its time at any bandwidths from below."""
    def least_ps(self, bandwidth_GBps: F64) -> int:
        """A lower bound on its time at these bandwidths that costs little."""


class Switched(NamedTuple):
    """A part that may run on several circuits, by what is up: at each bandwidths the quickest that can run is taken."""

    ways: Mapping[str, Timed]
    most_GBps: float  # no allowed bandwidths sum to more

    @property
    def first(self) -> Timed:
        """One of them, with what is the same on all."""
        return next(iter(self.ways.values()))

    def least(self) -> Least:
        """What bounds its time from below on all of them."""
        each = [one.least() for one in self.ways.values()]
        times_ns = [max(one.time_ns, float(one.load_bytes.sum()) / self.most_GBps) for one in each]
        return Least(np.stack([one.load_bytes for one in each]).min(axis=0), min(times_ns))

    def quickest(self, bandwidth_GBps: F64, time_ps: Callable[[Timed], int]) -> str:
        """The way of the least time, of several the first; plans that cannot be are left out."""
        found: dict[str, int] = {}
        refused: list[WeftError] = []
        for way, one in self.ways.items():
            if not found or one.least_ps(bandwidth_GBps) < min(found.values()):
                try:
                    found[way] = time_ps(one)
                except (Unswitchable, Unbuilt) as wrong:
                    refused.append(wrong)
        if not found:
            raise refused[0]
        return min(found, key=lambda way: found[way])


class Simulated:
    """A weighted sum of the simulated times of several programs, and a constant.

    `parts`: weight, and program.
    `constant_ns`: compute that nothing overlaps.
    `how`: the engine runs.
    """

    def __init__(
        self, parts: Sequence[tuple[float, Timed | Switched]], constant_ns: float = 0.0, how: How = AS_USUAL
    ) -> None:
        if not parts:
            raise WeftError("nothing to simulate: the workload has no collective of more than one NPU")
        self.parts, self.constant_ns, self.how = tuple(parts), constant_ns, how
        self.floors = tuple(part.least().floor() for _, part in self.parts)
        self.runs = 0
        self.left_out: dict[bytes, str] = {}  # why it cannot run, by bandwidths
        self._known: dict[bytes, Evaluation] = {}
        self._each: dict[bytes, tuple[Part, ...]] = {}
        self._spreads: dict[bytes, Spread] = {}
        self._is_small = False
        self._has_run: set[Timed] = set()
        self._ways: dict[tuple[int, bytes], str] = {}  # by part and bandwidths

    @property
    def _any(self) -> list[Timed]:
        return [part.first if isinstance(part, Switched) else part for _, part in self.parts]

    def __repr__(self) -> str:
        return f"<weighted sum of {counted(len(self.parts), 'simulated time')} and {self.constant_ns:g} ns>"

    @property
    def n_dims(self) -> int:
        """Dimensions that share the budget."""
        return self._any[0].n_dims

    @property
    def evaluations(self) -> int:
        """Bandwidths that were asked for, each once."""
        return len(self._known)

    @property
    def is_small(self) -> bool:
        """Whether it has evaluated a small program."""
        return self._is_small

    def check_memory(self) -> None:
        """Reject programs that are too large to run with a log.

        WeftError: one is.
        """
        for _, part in self.parts:
            for one in part.ways.values() if isinstance(part, Switched) else (part,):
                if isinstance(one, Retimed):
                    check_size(one.program, log=True)

    @property
    def rank_progress(self) -> str:
        """What ranks wait for before their next step, in each program that differs."""
        return ", ".join(dict.fromkeys(part.rank_progress for part in self._any))

    @property
    def weights(self) -> tuple[float, ...]:
        """Of the parts, in their order."""
        return tuple(weight for weight, _ in self.parts)

    def evaluate(self, bandwidth_GBps: F64) -> Evaluation:
        """Simulate every part; the same bandwidths are simulated once. Where one cannot run the time is infinite."""
        bandwidth = np.asarray(bandwidth_GBps, np.float64)
        if not np.all((bandwidth > 0) & np.isfinite(bandwidth)):
            raise WeftError(f"bandwidths {bandwidth.tolist()} GB/s must be above zero and finite")
        key = bandwidth.tobytes()
        if key not in self._known:
            try:
                parts = tuple(self._part(index, bandwidth) for index in range(len(self.parts)))
                self._known[key] = Evaluation(bandwidth, self.constant_ns, self._joined(parts))
                self._each[key] = parts
            except Unbuilt as wrong:
                self.left_out[key] = str(wrong)
                self._known[key] = Evaluation(bandwidth, inf, ())
        return self._known[key]

    def _joined(self, parts: tuple[Part, ...]) -> tuple[Part, ...]:
        """What the parts are to the search, which adds up the times of these."""
        return parts

    def _total_ps(self, times_ps: Sequence[float] | F64) -> float:
        """The time that parts make."""
        return self.constant_ns * 1e3 + float(np.dot([weight for weight, _ in self.parts], times_ps))

    def time_ns(self, bandwidth_GBps: F64) -> float:
        """The time alone: engine runs without a log, for a black-box search."""
        bandwidth = np.asarray(bandwidth_GBps, np.float64)
        self.runs += len(self.parts)
        return self._total_ps(self._times_ps(bandwidth)) / 1e3

    def circuits(self, bandwidth_GBps: F64) -> str:
        """On which circuits its parts run at bandwidths; empty where none are switched."""
        used = [self._way(at, bandwidth_GBps) for at, (_, part) in enumerate(self.parts) if isinstance(part, Switched)]
        return ", ".join(dict.fromkeys(used))

    def spread(self, bandwidth_GBps: F64) -> Spread:
        """The time and its range, as `sim.why.spread` has it; of each point once.

        Schedules that are built from bandwidths are built from some up to 0.1 % away in each run.
        """
        found = self.evaluate(bandwidth_GBps)
        key = found.bandwidth_GBps.tobytes()
        if key not in self._spreads:
            times = []
            for number in range(RUNS):
                rng = np.random.default_rng([0, number])
                away = np.random.default_rng([1, number]).uniform(-SHARE, SHARE, self.n_dims)
                changed = []
                for timed, part in zip(self._timed(found.bandwidth_GBps), self._each[key], strict=True):
                    its = timed.perturbed(found.bandwidth_GBps, away, number, rng)
                    program = perturb(its.at(found.bandwidth_GBps), rng, round(part.time_ns * 1e3))
                    changed.append(self._run(its, program)[1].makespan_ps)
                times.append(round(self._total_ps(changed)))
            self._spreads[key] = Spread(round(found.time_ns * 1e3), tuple(times), self._alone_ps(found))
        return self._spreads[key]

    def _alone_ps(self, found: Evaluation) -> int | None:
        """The time with ports that go on alone; None where no ranks wait by default."""
        others = [timed.alone(found.bandwidth_GBps) for timed in self._timed(found.bandwidth_GBps)]
        if all(one is None for one in others):
            return None
        parts = self._each[found.bandwidth_GBps.tobytes()]
        return round(self._total_ps([part.time_ns * 1e3 if other is None else self._time_ps(other, found.bandwidth_GBps)
                                     for part, other in zip(parts, others, strict=True)]))

    def _part(self, index: int, bandwidth: F64) -> Part:
        weight, part = self.parts[index][0], self._one(index, bandwidth)
        retimed = part.retimed(bandwidth)
        program = retimed.at(bandwidth)
        self._is_small = self._is_small or _is_small(program)
        self.runs += 1
        program, outcome = self._run(retimed, program, log=True, fits=retimed is part and part in self._has_run)
        self._has_run.add(part)
        if (lowered := retimed.lowered) is not None and lowered.changes:
            certify_circuits(
                program, outcome, lowered.topology, lowered.server_link, lowered.changes, task_names(lowered))
        service_ps = np.zeros(self.n_dims, np.float64)
        chosen = np.flatnonzero(retimed.server_dim != KEEPS_ITS_RATE)
        np.add.at(service_ps, retimed.server_dim[chosen], services_on_path(program, outcome)[chosen])
        return Part(weight, outcome.makespan_ps / 1e3, service_ps / 1e3)

    def _timed(self, bandwidth: F64) -> list[Timed]:
        """The parts at bandwidths, on the circuits on which they are quickest."""
        return [self._one(index, bandwidth) for index in range(len(self.parts))]

    def _one(self, index: int, bandwidth: F64) -> Timed:
        part = self.parts[index][1]
        return part.ways[self._way(index, bandwidth)] if isinstance(part, Switched) else part

    def _way(self, index: int, bandwidth: F64) -> str:
        part, key = self.parts[index][1], (index, bandwidth.tobytes())
        assert isinstance(part, Switched)
        if key not in self._ways:
            def time_ps(one: Timed) -> int:
                self.runs += 1
                return self._time_ps(one.retimed(bandwidth), bandwidth)
            self._ways[key] = part.quickest(bandwidth, time_ps)
        return self._ways[key]

    def _times_ps(self, bandwidth: F64) -> list[int]:
        return [self._time_ps(one.retimed(bandwidth), bandwidth) for one in self._timed(bandwidth)]

    def _time_ps(self, retimed: Retimed, bandwidth: F64) -> int:
        return self._run(retimed, retimed.at(bandwidth))[1].makespan_ps

    def _run(self, its: Retimed, program: Program, log: bool = False, fits: bool = False) -> tuple[Program, Outcome]:
        """A program of a structure, with the turns of its circuits, and its run."""
        run = partial(self.how.run, log=log, fits=fits, lower_bound_ps=lambda one: max(busy_and_path_ps(one)))
        if its.lowered is None:
            return program, run(program)
        turned, outcome = in_turns(its.lowered._replace(program=program), lambda one: run(one.program))
        return turned.program, outcome


def _is_small(program: Program) -> bool:
    is_fifo = np.all(program.server_discipline == FIFO) and np.all(program.pool_discipline == FIFO)
    return bool(is_fifo) and program.is_healthy and program.chunk_hops() <= MOST_SMALL
