"""Collectives of groups of ranks as operations of a job on any fabric."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress

from collectives.core.placed import placed
from collectives.core.schedule import Schedule
from collectives.registry import algorithm, build
from topologies import Topology, WeftError, ring
from workloads.job import Job
from workloads.passes.plan import Group

SEND = "send"
PIPELINE = "pp"
"""The group whose ranks send to the next one; those of others send around a ring."""


class FabricGroups:
    """Adds collectives to jobs; schedules are built once.

    A group of all NPUs runs the algorithm as the fabric has it if it can, others that of a ring of so many ranks;
    all-to-alls are pairwise where the algorithm has none.

    `npus`: where the ranks are; default: everywhere, in order.
    WeftError: the algorithm is made for whole fabrics.
    """

    def __init__(
        self, topology: Topology, groups: Mapping[str, Group], name: str, npus: Sequence[int] | None = None
    ) -> None:
        self.topology, self.groups, self.algorithm = topology, groups, name
        self.npus = range(topology.n_npus) if npus is None else npus
        self._small: dict[tuple[str, int, int], Schedule] = {}
        self._known: dict[tuple[str, int, tuple[int, ...]], Schedule] = {}

    def add(
        self, job: Job, kind: str, size_bytes: int, group: str, after: Iterable[int] = (),
        ranks: range | None = None,
    ) -> list[int]:
        """A collective of all groups of a kind, or of those of some ranks; returns the operations."""
        after, label = list(after), f"{group} {kind}"
        if kind == SEND:
            src, dst = zip(*self._messages(group, ranks), strict=True)
            return [job.send(label, size_bytes, src, dst, kind=label, after=after)]
        return [job.collective(label, self._schedule(kind, size_bytes, members), kind=label, after=after,
                               npus=None if len(members) == self.topology.n_npus else members)
                for members in self.members(group, ranks)]

    def members(self, group: str, ranks: range | None = None) -> Iterator[tuple[int, ...]]:
        """The NPUs of each group of a kind; of groups of some ranks those that they have all of."""
        size, stride = self.groups[group]
        among = range(len(self.npus)) if ranks is None else ranks
        for first in among:
            if first // stride % size == 0 and first + (size - 1) * stride in among:
                yield tuple(self.npus[rank] for rank in range(first, first + size * stride, stride))

    def _messages(self, group: str, ranks: range | None) -> Iterator[tuple[int, int]]:
        if group == PIPELINE:
            stride = self.groups[group].stride
            yield from zip(self.npus, self.npus[stride:], strict=False)
            return
        for members in self.members(group, ranks):
            yield from zip(members, (*members[1:], members[0]), strict=True)

    def _schedule(self, kind: str, size_bytes: int, members: tuple[int, ...]) -> Schedule:
        key = kind, size_bytes, members
        if key not in self._known:
            self._known[key] = self._build(*key)
        return self._known[key]

    def _build(self, kind: str, size_bytes: int, members: tuple[int, ...]) -> Schedule:
        name = self.algorithm if kind in algorithm(self.algorithm).functions else "pairwise"
        if members == tuple(range(self.topology.n_npus)):
            with suppress(WeftError):  # not on this fabric: on a ring of its ranks
                return build(name, kind, self.topology, size_bytes)
        key = kind, size_bytes, len(members)
        if key not in self._small:
            self._small[key] = build(name, kind, ring(len(members)), size_bytes)
        return placed(self._small[key], self.topology, members)
