"""What the optimizer minimises: times of programs at chosen bandwidths, with their critical paths."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np

from sim.analytic.epigraph import Epigraph
from sim.analytic.traffic import F64
from sim.engine import check_memory, run
from sim.optimize.retime import Retimed
from sim.why import Labels, explain
from topologies import WeftError

FIXED = "fixed"


class Part(NamedTuple):
    """A time that enters the whole `weight` times, and what its critical path spent in each dimension.

    Attributes
    ----------
    weight : float
    time_ns : float
    service_ns : (D,) float64
        Services on the critical path, other tasks' included: minus the derivative by the logarithm of B.
    """

    weight: float
    time_ns: float
    service_ns: F64


class Evaluation(NamedTuple):
    """A simulated time at one choice of bandwidths."""

    bandwidth_GBps: F64
    constant_ns: float
    parts: tuple[Part, ...]

    @property
    def time_ns(self) -> float:
        return self.constant_ns + sum(part.weight * part.time_ns for part in self.parts)

    @property
    def slope_ns(self) -> F64:
        """Derivative of the time by each bandwidth, ns per GB/s, (D,); one-sided where paths tie."""
        total = sum((part.weight * part.service_ns for part in self.parts), np.zeros(self.bandwidth_GBps.size))
        return -total / self.bandwidth_GBps


class Objective(Protocol):
    """Anything whose time depends on D bandwidths.

    Attributes
    ----------
    n_dims : int
    runs, replays : int
        Programs simulated by the engine, and evaluated from a recorded tape.
    floor : Epigraph or None
        A time that it never undercuts, of the same parts in the same order, if one is known.
    """

    @property
    def n_dims(self) -> int: ...
    @property
    def runs(self) -> int: ...
    @property
    def replays(self) -> int: ...
    @property
    def floor(self) -> Epigraph | None: ...
    def evaluate(self, bandwidth_GBps: F64) -> Evaluation: ...


class Simulated:
    """A weighted sum of the simulated times of several programs, and a constant.

    Parameters
    ----------
    parts : sequence of (weight, Retimed)
    constant_ns : float
        Compute that nothing overlaps.
    """

    def __init__(self, parts: Sequence[tuple[float, Retimed]], constant_ns: float = 0.0) -> None:
        if not parts:
            raise WeftError("nothing to simulate: the workload has no collective of more than one NPU")
        self.parts, self.constant_ns = tuple(parts), constant_ns
        self.runs = self.replays = 0
        self._known: dict[bytes, Evaluation] = {}

    @property
    def n_dims(self) -> int:
        return self.parts[0][1].n_dims

    @property
    def floor(self) -> Epigraph:
        """Load bounds of all parts."""
        return join_floors(self.constant_ns, [(weight, part.floor()) for weight, part in self.parts])

    def evaluate(self, bandwidth_GBps: F64) -> Evaluation:
        """Simulate every part; the same bandwidths are simulated once."""
        bandwidth = np.asarray(bandwidth_GBps, np.float64)
        if not np.all((bandwidth > 0) & np.isfinite(bandwidth)):
            raise WeftError(f"bandwidths {bandwidth.tolist()} GB/s must be above zero and finite")
        key = bandwidth.tobytes()
        if key not in self._known:
            parts = tuple(self._part(weight, part, bandwidth) for weight, part in self.parts)
            self._known[key] = Evaluation(bandwidth, self.constant_ns, parts)
        return self._known[key]

    def _part(self, weight: float, part: Retimed, bandwidth: F64) -> Part:
        program = part.at(bandwidth)
        check_memory(program, log=True)
        outcome = run(program, log=True)
        self.runs += 1
        names = [FIXED if dim < 0 else str(dim) for dim in part.server_dim]
        why = explain(program, outcome, Labels(names.__getitem__, lambda hop: []))
        service = np.array([why.service_ps.get(str(dim), 0) for dim in range(self.n_dims)], np.float64)
        return Part(weight, outcome.makespan_ps / 1e3, service / 1e3)


def join_floors(constant_ns: float, floors: Sequence[tuple[float, Epigraph]]) -> Epigraph:
    """The weighted sum of floors of one variable each."""
    count = len(floors)
    return Epigraph(
        constant_ns=constant_ns,
        weight=np.array([weight for weight, _ in floors]),
        target=np.concatenate([np.full(floor.target.size, at) for at, (_, floor) in enumerate(floors)]),
        offset_ns=np.concatenate([floor.offset_ns for _, floor in floors]),
        slope_bytes=np.concatenate([floor.slope_bytes for _, floor in floors]),
        inner=np.zeros((sum(floor.target.size for _, floor in floors), count)),
    )
