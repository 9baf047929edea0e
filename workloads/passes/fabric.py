"""Collectives of groups of ranks as operations of a job on any fabric."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from topologies import Topology
from workloads.group_collectives import GroupCollectives
from workloads.job import Job
from workloads.passes.plan import Group

SEND = "send"
PIPELINE = "pp"
"""The group whose ranks send to the next one; those of others send around a ring."""
ALL, IN_ROUNDS = "all", "recursive-doubling"
"""The group of all ranks, which reduce a number alone: in log2 n rounds where the algorithm runs, and no circuits are
switched for it."""


class FabricGroups:
    """Adds collectives of the groups of a plan to jobs; all-to-alls are pairwise where the algorithm has none.

    `name`: of several with commas, each collective takes the first that has it.
    `npus`: where the ranks are; default: everywhere, in order.
    WeftError: the algorithm is made for whole fabrics.
    """

    def __init__(
        self, topology: Topology, groups: Mapping[str, Group], name: str, npus: Sequence[int] | None = None
    ) -> None:
        self.topology, self.groups = topology, groups
        names = name.split(",")
        self.collectives = GroupCollectives(topology, (*names, "pairwise"))
        self.scalars = GroupCollectives(topology, names if topology.optics else (IN_ROUNDS, *names))
        self.npus = range(topology.n_npus) if npus is None else npus

    def add(
        self, job: Job, kind: str, size_bytes: int, group: str, after: Iterable[int] = (),
        ranks: range | None = None, together: bool = False,
    ) -> list[int]:
        """A collective of all groups of a kind, or of those of some ranks; returns the operations."""
        after, label = list(after), f"{group} {kind}"
        if kind == SEND:
            src, dst = zip(*self._messages(group, ranks), strict=True)
            return [job.send(label, size_bytes, src, dst, kind=label, after=after)]
        found = self.scalars if group == ALL else self.collectives
        return [found.add(job, label, kind, size_bytes, members, after, label, together=together)
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
