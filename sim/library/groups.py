"""What collectives take on groups of ranks, on a machine by its library, and on any fabric by the engine.

A group is so many ranks, so far apart in the order of ranks. All groups of a kind run at once.
"""

import math
from collections.abc import Mapping
from contextlib import suppress
from functools import cache

from collectives import algorithm as registered
from collectives import build
from collectives.core.placed import placed
from collectives.core.schedule import Schedule
from sim.faults.plan import FaultPlan
from sim.how import AS_USUAL, How
from sim.library.expected import expected
from sim.library.tuner import NEWEST, SENDRECV, Setting
from sim.program.model import Model
from sim.simulation import simulate
from topologies import Topology, WeftError, ring
from topologies.machines.profile import Machine
from topologies.products import torus
from topologies.units import bytes_per_s
from workloads.job import Job
from workloads.passes.plan import Group
from workloads.passes.tape import Times

SEND = "send"
KINDS = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all")


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


def torus_times(machine: Machine, groups: Mapping[str, Group], how: How = AS_USUAL) -> Times:
    """On a torus of accelerators: a group takes dimensions of its own, or part of one, the inner ones first."""
    shape = machine.extents or _block(groups["all"].size, machine.dimensions)
    rate = bytes_per_s(machine.gpu.link / (2 * machine.dimensions))

    @cache
    def fabric(group: str) -> Topology:
        return torus(_taken(*groups[group], shape), bandwidth=rate)

    @cache
    def times(kind: str, size_bytes: float, group: str) -> int:
        if kind == SEND:
            return simulate(_messages(torus((2,), bandwidth=rate), round(size_bytes), 1), **how.arguments()).time_ps
        whole = max(1, round(size_bytes))
        return simulate(build("bucket", kind, fabric(group), whole), chunks=4, **how.arguments()).time_ps

    return times


def fabric_times(
    topology: Topology, groups: Mapping[str, Group], algorithm: str, model: Model, faults: FaultPlan | None = None,
    how: How = AS_USUAL,
) -> Times:
    """On any fabric, by an algorithm.

    A group of all ranks runs the algorithm as the fabric has it if it can, others that of a ring of so many ranks, all
    groups of a kind at once; all-to-alls are pairwise where the algorithm has none. Faults strike each collective as if
    it began the iteration.
    """
    own = {kind: algorithm if kind in registered(algorithm).functions else "pairwise" for kind in KINDS}

    @cache
    def times(kind: str, size_bytes: float, group: str) -> int:
        whole = max(1, round(size_bytes))
        work = (_messages(topology, whole, groups[group].stride) if kind == SEND
                else _runs(topology, groups[group], own[kind], kind, whole))
        return simulate(work, model=model, faults=faults, **how.arguments()).time_ps

    return times


def _runs(topology: Topology, group: Group, algorithm: str, kind: str, size_bytes: int) -> Schedule | Job:
    size, stride = group
    if size == topology.n_npus:
        with suppress(WeftError):  # not on this fabric: on a ring of its ranks
            return build(algorithm, kind, topology, size_bytes)
    schedule, job = build(algorithm, kind, ring(size), size_bytes), Job(topology)
    for first in (rank for rank in range(topology.n_npus) if rank // stride % size == 0):
        members = range(first, first + size * stride, stride)
        job.collective(f"from {first}", placed(schedule, topology, members), kind=kind, npus=members)
    return job


def _messages(topology: Topology, size_bytes: int, stride: int) -> Job:
    """A message of every rank that has another one behind it."""
    job, last = Job(topology), topology.n_npus - stride
    job.send(SEND, size_bytes, list(range(last)), list(range(stride, stride + last)))
    return job


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
