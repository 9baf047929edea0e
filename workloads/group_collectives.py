"""Collectives of communicator groups in a job: which algorithm each has, and what has no schedule.

A group is any NPUs. All of them run the algorithm on the network, if that admits it; a product of its dimensions the
hierarchical one, if that is asked for; any others the algorithm among themselves. A group of one does nothing. A
barrier is messages without bytes to the NPUs 1, 2, 4, ... further on (dissemination).
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np

from collectives.core.collective import collective
from collectives.core.placed import placed
from collectives.core.schedule import Schedule
from collectives.registry import algorithm, build, spelled
from topologies import Topology, WeftError, switch
from workloads.job import Job

DEFAULTS = {
    "all-reduce": ("ring", "bucket"), "all-gather": ("ring", "bucket"), "reduce-scatter": ("ring", "bucket"),
    "all-to-all": ("direct",), "broadcast": ("tree",), "reduce": ("tree",), "gather": ("direct",),
    "scatter": ("direct",),
}
"""By collective: the first that the network admits is taken where none is named that implements it."""

OF_PRODUCTS = ("hierarchical", "themis")
"""Algorithms of process groups that are products of dimensions."""

Named = str | Sequence[str] | Mapping[str, str]
"""Algorithms: one, several of which each collective takes the first that can run it, or one by collective."""


class GroupCollectives:
    """Adds collectives to jobs on a topology; schedules are built once.

    `options`: of algorithms; each takes those that it has.
    """

    def __init__(self, topology: Topology, algorithms: Named = (), options: Mapping[str, object] | None = None) -> None:
        self.topology, self.algorithms, self.options = topology, algorithms, options or {}
        self.chosen: dict[str, str] = {}  # by collective, what no one asked for
        self._in_order: dict[str, None] = {}  # why the algorithm itself does not run on the fabric
        self._known: dict[tuple[str, int, tuple[int, ...]], Schedule] = {}
        self._small: dict[tuple[str, str, int, int], Schedule] = {}  # before they are placed

    @property
    def notes(self) -> list[str]:
        """Which algorithms were chosen, and which run among the ranks, as they do not on the fabric."""
        chosen = ", ".join(f"{kind} by {name}" for kind, name in sorted(self.chosen.items()))
        first = f"by default, as no named algorithm implements it: {chosen}"
        return [first] * bool(self.algorithms and chosen) + [
            f"among the ranks in their order, as on a switch: {reason}" for reason in self._in_order
        ]

    def add(
        self, job: Job, label: str, kind: str, size: int, members: Sequence[int], after: Iterable[int],
        called: str = "", priority: int = 0, together: bool = False,
    ) -> int:
        """A collective of some NPUs; `size` of its array as nccl-tests counts it. Returns the operation.

        `called`: in tables; default: the kind.
        """
        after, members = list(after), tuple(members)
        if len(members) == 1:
            return job.send(label, 0, members, members, kind="join", after=after)
        if kind == "barrier":
            return _barrier(job, label, members, after)
        return job.collective(label, self._schedule(kind, size, members), kind=called or kind, npus=members,
                              after=after, priority=priority, together=together)

    def _schedule(self, kind: str, size: int, members: tuple[int, ...]) -> Schedule:
        key = kind, size, members
        if key not in self._known:
            self._known[key] = self._build(*key)
        return self._known[key]

    def _build(self, kind: str, size: int, members: tuple[int, ...]) -> Schedule:
        refused: WeftError | None = None
        named = self._names(kind)
        for way, name in product((self._by, self._among), named or DEFAULTS[kind]):
            try:
                found = way(name, kind, size, members)
            except WeftError as wrong:
                refused = refused or wrong
                continue
            if not named:
                self.chosen.setdefault(kind, name)
            if refused is not None and way == self._among:
                self._in_order[str(refused)] = None
            return found
        raise refused or WeftError(f"no algorithm of {kind}")

    def _names(self, kind: str) -> list[str]:
        """Algorithms that are named and implement a collective."""
        if isinstance(self.algorithms, Mapping):
            return [self.algorithms[kind]] if kind in self.algorithms else []
        names = [self.algorithms] if isinstance(self.algorithms, str) else self.algorithms
        return [name for name in names if kind in algorithm(name).functions]

    def _by(self, name: str, kind: str, size: int, members: tuple[int, ...]) -> Schedule:
        topology = self.topology
        if len(members) == topology.n_npus:
            options = self._options(name) | ({"root": members[0]} if collective(kind).rooted and members[0] else {})
            return build(name, kind, topology, size, **options)
        if spelled(name) in OF_PRODUCTS:
            if (spec := group_spec(members, topology)) is None:
                some = ", ".join(map(str, members[:8]))
                raise WeftError(f"{name} takes groups that are a product of dimensions of {topology.name}, which ranks "
                                f"{some} are not: name another algorithm, such as ring")
            return build(name, kind, topology, size, group=spec, **self._options(name))
        return self._among(name, kind, size, members)

    def _among(self, name: str, kind: str, size: int, members: tuple[int, ...]) -> Schedule:
        key = name, kind, size, len(members)
        if key not in self._small:
            self._small[key] = _of_ranks(name, kind, size, self.topology, len(members), None, self._options(name))
        return placed(self._small[key], self.topology, members)

    def _options(self, name: str) -> dict[str, Any]:
        return {option: value for option, value in self.options.items() if option in algorithm(name).options}


def _barrier(job: Job, label: str, members: tuple[int, ...], after: list[int]) -> int:
    step, number = 1, -1
    while step < len(members):
        number = job.send(label, 0, members, members[step:] + members[:step], kind="barrier", after=after)
        after, step = [number], 2 * step
    return number


def among(
    name: str, kind: str, size: int, topology: Topology, members: Sequence[int], form: str | None = None,
    **options: object,
) -> Schedule:
    """A collective of any NPUs of a topology.

    WeftError: an algorithm that is made for whole networks.
    """
    return placed(_of_ranks(name, kind, size, topology, len(members), form, options), topology, members)


def _of_ranks(
    name: str, kind: str, size: int, topology: Topology, n: int, form: str | None, options: dict[str, Any]
) -> Schedule:
    """A collective of so many ranks, before it is placed."""
    if algorithm(name).built_from_rates or algorithm(name).reducing:
        raise WeftError(f"{name} is made for whole networks, not for a group of {n} of the {topology.n_npus} NPUs: "
                        "name another algorithm, such as ring")
    return build(name, kind, switch(n), size, form, **options)


def group_spec(members: Sequence[int], topology: Topology) -> str | None:
    """Ranks as a process group of the topology's dimensions: "4,-1" (`collectives.core.process_groups`).

    None of ranks that are no product of equally spaced positions.
    """
    coords = topology.coords[np.array(sorted(members))]
    parts, count = [], 1
    for dim, whole in enumerate(topology.shape):
        taken = np.unique(coords[:, dim])
        gaps = np.unique(np.diff(taken))
        stride = int(gaps[0]) if gaps.size else 1
        if gaps.size > 1 or whole % (taken.size * stride) or taken[0] // stride % taken.size:
            return None
        count *= taken.size
        parts.append(f"{taken.size}@{stride}" if taken.size > 1 else "-1")
    return ",".join(parts) if count == len(members) else None
