"""An iteration as a job: every kernel and collective of its passes an operation, so that all share the links.

`workloads.passes.iteration` has each collective take what it takes alone; here the engine times them together, with
whatever else is on the fabric. A rank is at one place; what it waits for is local, so that ranks drift apart.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby

from topologies import Topology, WeftError
from topologies.units import counted
from workloads.group_collectives import GroupCollectives
from workloads.job import Job, check_room
from workloads.passes.iteration import Passes
from workloads.passes.orders import Slot
from workloads.passes.plan import Group, Plan
from workloads.passes.tape import Begun, Tape, Times, Wait, Work
from workloads.passes.timeline import Key, walk

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


END_PS = 1
"""What the end of an operation takes in the engine."""


def iteration_job(
    plan: Plan, topology: Topology, times: Times, algorithm: str, npus: Sequence[int] | None = None
) -> Job:
    """The operations of an iteration.

    `times`: of collectives alone, which say how long kernels beside them are slowed.
    `npus`: where the ranks are; default: everywhere, in order.
    WeftError: too many operations for memory, or fewer NPUs than ranks.
    """
    if plan.n_ranks != (topology.n_npus if npus is None else len(npus)):
        raise WeftError(f"the plan of {plan.model.name} has {counted(plan.n_ranks, 'rank')}: name as many NPUs")
    return _Writer(Passes(plan, times), FabricGroups(topology, plan.groups, algorithm, npus)).job


class _Writer:
    """Adds the operations of an iteration; `at`: what each rank of the pipeline waits for before it goes on."""

    def __init__(self, passes: Passes, groups: FabricGroups) -> None:
        self.passes, self.plan, self.groups = passes, passes.plan, groups
        self.job = Job(groups.topology)
        self.at: list[list[int]] = [[] for _ in range(self.plan.pp)]
        self.streams: dict[tuple[int, str], list[int]] = {}
        self.arrived: dict[Key, list[int]] = {}
        self.ready: list[list[tuple[int, list[int]]]] = [[] for _ in self.at]  # bucket and what it waits for
        self._check_room()
        steps = list(walk(self.plan.schedule, self.plan.pp, self.plan.vp, self.plan.microbatches))
        for step in steps:
            self._slot(step.rank, step.slot, [one for key in step.needs for one in self.arrived[key]])
            for key, to in step.gives:
                self.arrived[key] = self._message(step.rank, to)
        for rank in range(self.plan.pp):
            self._reduce(rank)
        for kind, amount, group in self.passes.tail():
            if taking := self.passes.across(group):
                self._across(kind, amount, group, taking)
                continue
            for rank in range(self.plan.pp):
                if group:
                    self._call(rank, kind, amount, group)
                else:
                    self.at[rank] = [self._compute(rank, kind, round(amount * 1e12), self.at[rank])]

    def _check_room(self) -> None:
        n, plan = 0, self.plan
        counted = Passes(plan, lambda *_: 1)  # without asking what collectives take, which may take long itself
        for stages in counted.stages:
            width = self.plan.n_ranks // plan.pp
            for stage in stages:
                for kind in ("F", "BW"):
                    calls = [one for one in counted.tape(stage, kind).script if isinstance(one, Begun)]
                    n += 20 + sum(width // plan.groups[one.group].size for one in calls)
        check_room(n * plan.microbatches, f"an iteration of {plan.microbatches:,} microbatches")

    def ranks(self, rank: int) -> range:
        """The ranks of all groups at a rank of the pipeline."""
        n = self.plan.n_ranks // self.plan.pp
        return range(rank * n, (rank + 1) * n)

    def npus(self, rank: int) -> list[int]:
        return [self.groups.npus[one] for one in self.ranks(rank)]

    def _compute(self, rank: int, kind: str, time_ps: int, after: Iterable[int]) -> int:
        return self.job.compute(kind, max(0, time_ps - END_PS), npus=self.npus(rank), after=after)

    def _collective(self, rank: int, kind: str, size_bytes: float, group: str, after: Iterable[int]) -> list[int]:
        """On the stream of its group, where the one before has ended."""
        stream = self.streams.get((rank, group), [])
        found = self.groups.add(self.job, kind, max(1, round(size_bytes)), group, [*after, *stream], self.ranks(rank))
        self.streams[rank, group] = found
        return found

    def _call(self, rank: int, kind: str, size_bytes: float, group: str) -> None:
        if size_bytes and self.plan.groups[group].size > 1:
            self.at[rank] = self._collective(rank, kind, size_bytes, group, self.at[rank])

    def _across(self, kind: str, size_bytes: float, group: str, taking: Sequence[int]) -> None:
        """A collective over ranks of the pipeline: nothing is sent to one that is not there yet, as it has no room."""
        if self.plan.groups[group].size > 1:
            after = [one for rank in taking for one in self.at[rank]]
            found = self.groups.add(self.job, kind, max(1, round(size_bytes)), group, after, together=True)
            for rank in taking:
                self.at[rank] = [*self.at[rank], *found]

    # --- passes

    def _slot(self, rank: int, slot: Slot, after: list[int]) -> None:
        """Passes beside each other share the stream of kernels."""
        begin, ends = [*self.at[rank], *after], list[int]()
        for one in slot:
            stage = self.passes.stages[rank][one.chunk]
            tape = self.passes.tape(stage, one.kind)
            buckets = self.passes.buckets(stage) if self.passes.is_last(one) and self.plan.zero != 3 else []
            marks = [tape.now * number // len(buckets) for number in range(1, len(buckets) + 1)]
            *_, last = ready = list(self._pass(rank, tape, begin, marks))
            self.ready[rank] += zip([stage] * len(buckets), ready, strict=False)
            ends += last
        self.at[rank] = ends
        if slot and self.passes.flushes:
            self._reduce(rank)

    def _pass(self, rank: int, tape: Tape, at: list[int], marks: list[int]) -> Iterator[list[int]]:
        """What follows waits for, at every mark and at the end; marks are times of the tape."""
        begun: dict[int, list[int]] = {}
        left = list(marks)
        for work, items in groupby(tape.script, lambda one: one.kind if isinstance(one, Work) else None):
            if work is None:
                for item in items:
                    if isinstance(item, Begun):
                        after = [*at, *begun.get(id(item.behind), [])]
                        begun[id(item)] = self._collective(rank, item.kind, item.size_bytes, item.group, after)
                    elif isinstance(item, Wait):
                        slowed = [self._compute(rank, "beside collectives", item.slowed, at)] if item.slowed else at
                        at = [*slowed, *begun[id(item.begun)]]
                continue
            whole = [item for item in items if isinstance(item, Work)]
            now, end = whole[0].begin, whole[-1].end
            while left and left[0] < end:
                cut = max(now, left.pop(0))
                at = [self._compute(rank, work, cut - now, at)] if cut > now else at
                now = cut
                yield at
            if end > now:
                at = [self._compute(rank, work, end - now, at)]
        for _ in range(max(1, len(left))):
            yield at

    def _message(self, src: int, dst: int) -> list[int]:
        """An activation from a rank of the pipeline to another, of which each tensor rank sends its share."""
        if src == dst:
            return list(self.at[src])
        whole = self.passes.layers.activation
        after = [*self.at[src], *self.streams.get((src, SEND), [])]
        sent = [self.job.send(
            "pp send", max(1, round(whole / self.plan.tp)), self.npus(src), self.npus(dst), kind="pp send",
            after=after, detached=self.plan.send_overlap,
        )]
        if not self.plan.send_overlap:
            self.at[src] = [*self.at[src], *sent]
        if self.plan.sequence_parallel or self.plan.tp == 1:
            return sent
        return self.groups.add(self.job, "all-gather", round(whole), "tp", sent, self.ranks(dst))

    def _reduce(self, rank: int) -> None:
        """The gradients that are there, one bucket after the other; a rank goes on when all are reduced."""
        last: list[int] = []
        for stage, ready in self.ready[rank]:
            after = [*(ready if self.plan.data_overlap and not self.passes.flushes else self.at[rank]), *last]
            for kind, size, group in self.passes.reduction_of(self.passes.buckets(stage)[0]):
                if size and self.plan.groups[group].size > 1:
                    after = last = self._collective(rank, kind, size, group, after)
        self.at[rank] = [*self.at[rank], *last]
        self.ready[rank] = []
