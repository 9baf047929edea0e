"""Constants of a machine from tables of nccl-tests: rates, launch and latency, with intervals.

Fitted are the constants of the profile that the tables depend on, by robust least squares of the logarithms of times;
tables may be of several collectives, numbers of nodes and GPUs. A constant that the tables do not determine keeps the
value of the profile; two that trade off are named.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sim.library.expected import expected
from sim.library.tuner import Setting
from topologies.checks import WeftError, checked
from topologies.machines.profile import OF_LINK, Machine
from topologies.stages import staged
from topologies.text.brief import one_line

F64 = npt.NDArray[np.float64]
Table = tuple[Setting, Sequence[tuple[int, float]]]
"""What ran, and (size in bytes, seconds)."""

TOGETHER = 0.95
"""Correlation of two constants from which the tables cannot tell them apart."""

NO_EFFECT = 1e-3
"""Change of the logarithm of the times, root mean square, per unit: below it a constant is not determined."""

AWAY = 0.5
"""How much less NICs are taken to reach in a second start: of links inside and between, only the slower are felt."""

UNIT_S = 10e-6
"""A unit of times in the fit; of rates and shares it is their logarithm."""

MANY = 1.96
FAR, FAR_AT_LEAST = 5.0, 1.5
"""Times the median error from which a point is not explained, and at least that factor."""

RANGES = ((0, 2**16), (2**16, 2**24), (2**24, 2**63))
"""Sizes that are left out in turn."""

NOISE = 0.1
REPEATED = 0.01
"""Difference of two runs of one test, at least: an interval is not narrower for a table without scatter."""

BELIEVED = (0.2, 1.0)
"""How far a constant may be from that of the profile, a rate and a time in their units: as much as one measured size
says, so it decides only what the tables leave open, such as rates from small messages."""

POOR = 0.25
"""Median error from which a profile does not describe the tables: those of public tables are at 8 %."""

LOWEST, MOVES, NONE_S = -3.0, 0.01, 1e-9
"""The least logarithm of a rate beside the profile's, a step that shows a limit, and a time that is none."""


class Constant(NamedTuple):
    """A constant of a profile: part, key, and whether it is a time."""

    part: str
    key: str
    time: bool

    def of(self, machine: Machine) -> float:
        """Its value on a machine."""
        return float(getattr(getattr(machine, self.part), self.key))

    def moved(self, machine: Machine, by: float) -> Machine:
        """The machine with the constant moved by some units."""
        value = self.of(machine)
        changed = max(value + by * UNIT_S, 0.0) if self.time else value * math.exp(by)
        if self.key in ("reached", "messages"):
            changed = min(changed, 1.0)
        elif self.key in OF_LINK:
            changed = min(changed, machine.gpu.link)
        part = replace(getattr(machine, self.part), **{self.key: changed})
        return replace(machine, gpu=part) if self.part == "gpu" else replace(machine, nic=part)

    def limited(self, machine: Machine, start: Machine) -> bool:
        """Whether a fit stopped only at the least or most that it can be."""
        value, was = self.of(machine), self.of(start)
        if self.time:
            return value < NONE_S < was
        ends = [self.of(self.moved(one, MOVES)) < self.of(one) * math.exp(MOVES / 2) for one in (machine, start)]
        return value < was * math.exp(LOWEST + MOVES) or ends == [True, False]


CONSTANTS = (
    Constant("gpu", "ring", False), Constant("gpu", "multicast", False), Constant("gpu", "launch", True),
    Constant("gpu", "launch_per_gpu", True), Constant("gpu", "ramp", True), Constant("gpu", "ramp_ll128", True),
    Constant("gpu", "channel", False), Constant("nic", "reached", False), Constant("nic", "messages", False),
    Constant("nic", "latency", True), Constant("nic", "handshake", True), Constant("nic", "handshake_simple", True),
)


@one_line
@dataclass(frozen=True)
class Calibrated:
    """What the tables say of a machine."""

    machine: Machine  # with the fitted constants
    # Of 95 %, by "gpu.ring"; of the constants that were fitted. They know the profile's value, as `BELIEVED`
    # says
    intervals: Mapping[str, tuple[float, float]]
    undetermined: tuple[str, ...]  # constants that the tables do not depend on: those of the profile
    together: tuple[tuple[str, str], ...]  # pairs that the tables cannot tell apart
    error: float  # median of the absolute relative errors
    error_before: float  # the same, of the profile as it was
    left_out: Mapping[str, float]  # median error of a range of sizes, by constants fitted to the others
    # points that no constants explain beside the others: collective, size in bytes, measured over expected
    unexplained: tuple[tuple[str, int, float], ...]
    limited: tuple[str, ...]  # constants that stopped at the least or most that they can be

    @property
    def poor(self) -> bool:
        """Whether the median error is above `POOR`."""
        return self.error > POOR


@staged("fit")
@checked
def calibrate(tables: Sequence[Table]) -> Calibrated:
    """Fit the constants of the machine on which all tables were measured.

    WeftError: no table, or fewer sizes than constants.
    """
    if not tables:
        raise WeftError("no table to calibrate on")
    start = tables[0][0].machine
    chosen, machine, jacobian, residuals = _fit(start, tables)
    names = [f"{one.part}.{one.key}" for one in chosen]
    spread = max(math.sqrt(float(np.sum(residuals**2)) / max(residuals.size - len(chosen), 1)), REPEATED)
    covariance = np.linalg.pinv(jacobian.T @ jacobian)  # by the tables alone, of residuals of one
    belief = np.diag([BELIEVED[one.time] ** -2 for one in chosen])
    deviations = np.sqrt(np.diag(np.linalg.inv(jacobian.T @ jacobian / spread**2 + belief)))
    intervals, together = {}, []
    for name, one, deviation in zip(names, chosen, deviations.tolist(), strict=True):
        low, high = (one.of(one.moved(machine, sign * MANY * deviation)) for sign in (-1, 1))
        intervals[name] = (low, high)
    for a, b in combinations(range(len(chosen)), 2):
        scale = math.sqrt(max(float(covariance[a, a] * covariance[b, b]), 1e-300))
        if abs(float(covariance[a, b])) > TOGETHER * scale:
            together.append((names[a], names[b]))
    every = [f"{one.part}.{one.key}" for one in CONSTANTS]
    return Calibrated(
        machine, intervals, tuple(name for name in every if name not in names), tuple(together),
        _median(machine, tables), _median(start, tables), _left_out(start, tables), _unexplained(tables, residuals),
        tuple(name for name, one in zip(names, chosen, strict=True) if one.limited(machine, start)),
    )


def _unexplained(tables: Sequence[Table], residuals: F64) -> tuple[tuple[str, int, float], ...]:
    usual = float(np.median(np.abs(residuals)))
    points = [(setting.collective, size) for setting, sizes in tables for size, _ in sizes]
    return tuple(
        (*point, math.exp(-off)) for point, off in zip(points, residuals.tolist(), strict=True)
        if abs(off) > max(FAR * usual, math.log(FAR_AT_LEAST))
    )


def _errors(machine: Machine, tables: Sequence[Table]) -> F64:
    """Logarithms of expected over measured times."""
    found = []
    for setting, points in tables:
        here = replace(setting, machine=machine)
        found += [math.log(expected(here, size).time_s / time) for size, time in points]
    return np.array(found)


def _median(machine: Machine, tables: Sequence[Table]) -> float:
    return float(np.median(np.abs(np.expm1(_errors(machine, tables)))))


def _fit(start: Machine, tables: Sequence[Table]) -> tuple[list[Constant], Machine, F64, F64]:
    """Constants that matter, the machine with them fitted, slopes and residuals there."""
    from scipy.optimize import least_squares  # heavy: loaded where it is used

    base = _errors(start, tables)

    def matters(one: Constant) -> bool:
        shift = max(float(np.sqrt(np.mean((_errors(one.moved(start, by), tables) - base) ** 2))) for by in (-0.2, 0.2))
        return shift / 0.2 > NO_EFFECT and one.of(start) + one.time > 0

    chosen = [one for one in CONSTANTS if matters(one)]
    if base.size <= len(chosen):
        raise WeftError(f"{base.size} measured sizes are too few for {len(chosen)} constants")

    def at(x: Sequence[float] | F64) -> Machine:
        found = start
        for one, by in zip(chosen, x, strict=True):
            found = one.moved(found, float(by))
        return found

    def residuals(x: F64) -> F64:
        return _errors(at(x), tables)

    held = NOISE / np.array([BELIEVED[one.time] for one in chosen])
    lowest = [-one.of(start) / UNIT_S - 1e-9 if one.time else LOWEST for one in chosen]

    def solved(x: F64) -> Any:
        return least_squares(
            lambda x: np.concatenate((residuals(x), held * x)), x, bounds=(lowest, np.inf), loss="soft_l1",
            f_scale=NOISE, diff_step=0.02, x_scale=0.1,
        )

    starts = [np.zeros(len(chosen))] + [np.array(
        [-AWAY * (other is one) for other in chosen]) for one in chosen if one.key == "reached"]
    found = min((solved(start_at) for start_at in starts), key=lambda one: float(one.cost))
    steps = 0.02 * np.eye(len(chosen))
    slope = np.stack([(residuals(found.x + one) - residuals(found.x - one)) / 0.04 for one in steps], axis=1)
    felt = np.sqrt(np.mean(slope**2, axis=0)) > NO_EFFECT  # others are without effect on any of the times
    kept = np.where(felt, found.x, 0.0)
    return [one for one, has in zip(chosen, felt, strict=True) if has], at(kept), slope[:, felt], residuals(kept)


def _left_out(start: Machine, tables: Sequence[Table]) -> dict[str, float]:
    """Errors of each range of sizes, by constants that were fitted to the rest."""
    found = {}
    for low, high in RANGES:
        inside = [(setting, [p for p in points if low <= p[0] < high]) for setting, points in tables]
        rest = [(setting, [p for p in points if not low <= p[0] < high]) for setting, points in tables]
        if any(points for _, points in inside) and sum(len(points) for _, points in rest) > len(CONSTANTS):
            found[f"{low}-{high}"] = _median(_fit(start, rest)[1], inside)
    return found
