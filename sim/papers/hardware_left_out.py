"""How well a system is predicted by constants that were calibrated without it.

For each system the calibrated constants that its rows depend on are fitted anew to the rows of all other systems, and
the system is predicted with them. A constant that only this system determines takes what would be said of a machine
that nobody has measured (`ASSUMED`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sim.library.expected import expected
from sim.library.tuner import Setting
from topologies.machines.profile import FIELDS, Gpu, Nic, origin

F64 = npt.NDArray[np.float64]
Row = tuple[Setting, int, float]
"""What ran, size in bytes, measured seconds."""

ASSUMED = {
    "reached": 0.95, "messages": 0.95, "latency": 0.0, "handshake": 0.0, "handshake_simple": 0.0, "launch": 17e-6,
    "launch_per_gpu": 2.25e-6, "ramp": 4.5e-6, "ramp_ll128": 0.0, "channel": 20.4e9, "multicast_ramp": 1.0,
    "network_channel": 1e9, "most_of_a_channel": 2.0**24, "send": 8.4, "peer": 0.0, "scatter": 8.4,
}
"""For a constant of which nothing is measured: a NIC like InfiniBand, a GPU like the next generation that is known, and
of messages the latency that NCCL states for Simple; a ring reaches `RING` of the links."""

RING = 0.8
TIMES = ("latency", "handshake", "handshake_simple", "launch", "launch_per_gpu", "ramp", "ramp_ll128")
SHARES = ("reached", "messages")
UNIT_S = 10e-6
"""A unit of times in the fit; of all else it is the logarithm."""

STEP, NOISE, FELT = 0.02, 0.1, 1e-6
MOST_STEPS = 12


class Calibrated(NamedTuple):
    """A constant that was calibrated: "gpu", "nic" or "reached", the profile that has it, and its key."""

    part: str
    profile: str
    key: str

    def __str__(self) -> str:
        return f"{self.profile} {self.key}".strip()


Values = Mapping[Calibrated, float]


class LeftOut(NamedTuple):
    """Errors (predicted over measured, less one) of a system's rows, and the constants that it alone determines."""

    errors: F64
    alone: tuple[Calibrated, ...]


def _sources(setting: Setting) -> Iterator[tuple[str, str, Calibrated]]:
    """Part ("gpu", "nic" or "reached") and key of each calibrated constant of a setting, and where it comes from."""
    parts: dict[str, Gpu | Nic] = {"gpu": setting.machine.gpu, "nic": setting.machine.nic}
    for kind, part in parts.items():
        for key in FIELDS[type(part)]:
            if where := origin(f"{kind}s", part.name, key):
                yield kind, key, Calibrated(kind, *where)
    for key in setting.reached._fields:
        yield "reached", key, Calibrated("reached", "", key)


@cache
def _of(setting: Setting) -> dict[Calibrated, float]:
    """The calibrated constants of a setting, and their values."""
    parts: dict[str, Any] = {"gpu": setting.machine.gpu, "nic": setting.machine.nic, "reached": setting.reached}
    return {one: float(getattr(parts[kind], key)) for kind, key, one in _sources(setting)}


def with_values(setting: Setting, values: Values) -> Setting:
    """The setting with other values of constants, which every profile takes that has them from the same place."""
    new: dict[str, dict[str, Any]] = {"gpu": {}, "nic": {}, "reached": {}}
    for kind, key, one in _sources(setting):
        if one in values:
            new[kind][key] = values[one]
    machine = setting.machine
    gpu, nic = replace(machine.gpu, **new["gpu"]), replace(machine.nic, **new["nic"])
    known = setting.reached._replace(**new["reached"])
    return replace(setting, machine=replace(machine, gpu=gpu, nic=nic), reached=known)


def errors(rows: Sequence[Row], values: Values) -> F64:
    """Logarithms of predicted over measured times."""
    changed: dict[int, Setting] = {}
    found = []
    for setting, size, seconds in rows:
        if id(setting) not in changed:
            changed[id(setting)] = with_values(setting, values)
        found.append(math.log(expected(changed[id(setting)], size).time_s / seconds))
    return np.array(found)


def left_out(own: Sequence[Row], others: Sequence[Row]) -> LeftOut:
    """Predict the rows of a system by constants fitted to the others."""
    start = {one: value for setting, _, _ in own for one, value in _of(setting).items()}
    felt = [one for one in start if _matters(one, start, own)]
    alone = tuple(one for one in felt if not _matters(one, start, others))
    values = {one: _assumed(one, own) if one in alone else start[one] for one in felt}
    shared = [one for one in felt if one not in alone]
    near = [row for row in others if any(one in _of(row[0]) for one in shared)]
    values |= _fitted({one: values[one] for one in shared}, near) if shared else {}
    return LeftOut(np.expm1(errors(own, values)), alone)


def _matters(one: Calibrated, start: Values, rows: Sequence[Row]) -> bool:
    having = [row for row in rows if one in _of(row[0])]
    base = errors(having, {})
    return any(
        bool(np.any(np.abs(errors(having, {one: _moved(one, start[one], by)}) - base) > FELT)) for by in (-0.1, 0.1)
    )


def _moved(one: Calibrated, value: float, by: float) -> float:
    if one.key in TIMES:
        return max(value + by * UNIT_S, 0.0)
    moved = value * math.exp(by)
    return min(moved, 1.0) if one.key in SHARES else moved


def _assumed(one: Calibrated, own: Sequence[Row]) -> float:
    if one.key == "ring":
        return RING * next(setting.machine.gpu.link for setting, _, _ in own if one in _of(setting))
    return ASSUMED[one.key]


def _fitted(start: Values, rows: Sequence[Row]) -> Values:
    """Least squares of the logarithms, in which outliers count little."""
    from scipy.optimize import least_squares  # heavy: loaded where it is used

    names = list(start)

    def at(x: F64) -> Values:
        return {one: _moved(one, start[one], float(by)) for one, by in zip(names, x, strict=True)}

    lowest = [-start[one] / UNIT_S - 1e-9 if one.key in TIMES else -3.0 for one in names]
    solved: Any = least_squares(
        lambda x: errors(rows, at(x)), np.zeros(len(names)), bounds=(lowest, np.inf), loss="soft_l1", f_scale=NOISE,
        diff_step=STEP, x_scale=NOISE, max_nfev=MOST_STEPS,
    )
    return at(solved.x)
