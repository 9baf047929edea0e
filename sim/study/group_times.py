"""What collectives take on groups of ranks, on a machine by its library, and on any fabric by the engine.

A group is so many ranks, so far apart in the order of ranks. All groups of a kind run at once.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import TypeVar

from collectives import build
from sim.how import AS_USUAL, How
from sim.library.expected import expected
from sim.library.tuner import NEWEST, SENDRECV, Setting
from sim.simulation import simulate
from topologies import Topology, torus
from topologies.machines.profile import Machine
from topologies.units import bytes_per_s
from workloads.job import Job
from workloads.passes.job import SEND, FabricGroups
from workloads.passes.plan import Group
from workloads.passes.tape import Times

T = TypeVar("T")


def library_times(machine: Machine, groups: Mapping[str, Group], version: tuple[int, int] = NEWEST) -> Times:
    """By the library of a machine: a group fills nodes, and has the ports of its own ranks there."""

    @cache
    def setting(kind: str, group: str) -> Setting:
        size, stride = groups[group]
        each = math.gcd(size, max(1, machine.gpus // stride))
        collective = SENDRECV if kind == SEND else kind
        return Setting(machine=machine, nodes=size // each, gpus=each, collective=collective, version=version)

    def times(kind: str, size_bytes: float, group: str) -> int:
        return round(expected(setting(kind, group), max(1, round(size_bytes))).time_s * 1e12)

    return times


def torus_times(machine: Machine, groups: Mapping[str, Group], how: How = AS_USUAL, between_Bps: float = 0.0) -> Times:
    """On a torus of accelerators: a group takes dimensions of its own, or part of one, the inner ones first.

    Copies of a job have a torus each; `between_Bps`: of an accelerator to those of the others.
    """
    copies = groups["rep"].size if "rep" in groups else 1
    shape = machine.extents or _block(groups["all"].size // copies, machine.dimensions)
    rate = bytes_per_s(machine.gpu.link / (2 * machine.dimensions))

    @cache
    def fabric(group: str) -> Topology:
        return torus(shape if group == "slice" else _taken(*groups[group], shape), bandwidth=rate)

    @cache
    def times(kind: str, size_bytes: float, group: str) -> int:
        if kind == SEND:
            pair = Job(torus((2,), bandwidth=rate))
            pair.send(SEND, round(size_bytes), [0], [1])
            return simulate(pair, **how.arguments()).time_ps
        whole = max(1, round(size_bytes))
        if group == "rep":
            return round(2 * (copies - 1) / copies * whole / between_Bps * 1e12)
        if group == "all" and copies > 1:
            return times(kind, size_bytes, "slice") + times(kind, size_bytes, "rep")
        return simulate(build("bucket", kind, fabric(group), whole), chunks=4, **how.arguments()).time_ps

    return times


def fabric_times(
    topology: Topology, groups: Mapping[str, Group], algorithm: str, run: Callable[[Job], T],
    npus: Sequence[int] | None = None,
) -> Callable[[str, float, str], T]:
    """On any fabric, by an algorithm; all groups of a kind at once.

    `run`: the time of a job in ps, or its range; faults strike each collective as if it began the iteration.
    `npus`: where the ranks are; default: everywhere, in order.
    """
    runs = FabricGroups(topology, groups, algorithm, npus)

    @cache
    def times(kind: str, size_bytes: float, group: str) -> T:
        job = Job(topology)
        runs.add(job, kind, max(1, round(size_bytes)), group)
        return run(job)

    return times


def _block(size: int, dimensions: int) -> tuple[int, ...]:
    """Extents of so many ranks, as near to a cube as their divisors are."""
    found: list[int] = []
    for left in range(dimensions, 0, -1):
        wanted = size ** (1 / left)
        extent = size if left == 1 else min((one for one in range(1, size + 1) if size % one == 0),
                                            key=lambda one: abs(one - wanted))
        found.append(extent)
        size //= extent
    return tuple(found)


def _taken(size: int, stride: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Extents that a group takes of a torus."""
    found = []
    for extent in shape:
        inner = math.gcd(stride, extent)
        stride //= inner
        share = math.gcd(size, extent // inner)
        size //= share
        found.append(share)
    return tuple(one for one in found if one > 1) or (1,)
