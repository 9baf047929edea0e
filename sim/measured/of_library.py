"""Times that a collective library should take on a machine whose links reach a share of their rate."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from sim.analytic.traffic import F64
from sim.library.expected import chosen, expected, parts_us, timed
from sim.library.tuner import Setting, candidates
from topologies.machines.profile import Machine

LARGEST = 2**34

INSIDE, BETWEEN, LATENCY = range(3)
"""Parameters, as logarithms: the shares of the links inside a node and of the NICs, and the factor on latency."""


def times_of(setting: Setting, sizes: Sequence[int]) -> Callable[[F64], F64]:
    """Times in seconds over the parameters; the library's choice is that of healthy links."""
    places = {(one.algorithm, one.protocol): at for at, one in enumerate(candidates(setting))}
    picked = [places[one.algorithm, one.protocol] for one in (chosen(setting, size) for size in sizes)]
    launch_us = setting.launch_s * 1e6

    def times(x: F64) -> F64:
        slowed = replace(setting, machine=_slowed(setting.machine, *np.exp(x[[INSIDE, BETWEEN]]).tolist()))
        every = candidates(slowed)
        parts = np.array([parts_us(slowed, every[at], size) for at, size in zip(picked, sizes, strict=True)])
        found: F64 = np.maximum(launch_us, parts[:, 0] * np.exp(x[LATENCY]) + parts[:, 1]) / 1e6
        return found

    return times


def _slowed(machine: Machine, inside: float, between: float) -> Machine:
    gpu, nic = machine.gpu, machine.nic
    gpu = replace(gpu, ring=gpu.ring * inside, multicast=gpu.multicast * inside, channel=gpu.channel * inside)
    return replace(
        machine, gpu=gpu, nic=replace(nic, reached=nic.reached * between, messages=nic.messages * between)
    )


def with_nics(setting: Setting, nics: int) -> Setting:
    """The setting with another number of ports in use of a node."""
    of_all = max(1, nics * setting.machine.gpus // setting.gpus)
    return replace(setting, machine=replace(setting.machine, nics=of_all))


def busbw(setting: Setting, size: int, time_s: float) -> float:
    """Bus bandwidth in GB/s."""
    return size / time_s / 1e9 * setting.bus_factor


def ceiling(setting: Setting) -> float:
    """Bus bandwidth of the largest messages in GB/s."""
    return busbw(setting, LARGEST, expected(setting, LARGEST).time_s)


def most(setting: Setting) -> float:
    """Bus bandwidth of the largest messages in GB/s by the best algorithm, at the raw rate of the NICs."""
    least = min(timed(setting, one, LARGEST).time_s for one in candidates(setting))
    return busbw(setting, LARGEST, least) / setting.machine.nic.reached


def without(setting: Setting, *names: str) -> Setting | None:
    """The setting without some algorithms; None if they change nothing or nothing is left."""
    kept = tuple(dict.fromkeys(one.algorithm for one in candidates(setting) if one.algorithm not in names))
    if not kept or kept == tuple(dict.fromkeys(one.algorithm for one in candidates(setting))):
        return None
    return replace(setting, algorithms=kept)


def by_protocols(setting: Setting, *protocols: str) -> Setting | None:
    """The setting with some protocols alone; None if they change nothing or nothing is left."""
    there = {one.protocol for one in candidates(setting)}
    if not there & set(protocols) or there <= set(protocols):
        return None
    return replace(setting, protocols=tuple(protocols))
