"""A schedule of a few ranks, placed on any NPUs of a larger network: a communicator group that is no product.

The transfers are those of the algorithm on as many ranks, under the numbers of the members; the network routes them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from collectives.core.collective import Collective
from collectives.core.pattern import OwnProof, Pattern
from collectives.core.schedule import Schedule
from collectives.core.transfers import sources_only, take
from topologies import Topology, WeftError


@dataclass(frozen=True)
class _Among:
    """A function of a collective among members; those of the same collective and members are equal."""

    whole: Collective
    members: tuple[int, ...]


class _Sources(_Among):
    def __call__(self, block: int, p: int, root: int) -> Sequence[int]:
        small = self.whole.sources(block, len(self.members), self.members.index(root))
        return tuple(self.members[rank] for rank in small)


class _WantedBy(_Among):
    def __call__(self, block: int, p: int, root: int) -> Sequence[int]:
        small = self.whole.wanted_by(block, len(self.members), self.members.index(root))
        return tuple(self.members[rank] for rank in small)


class _Multiple(_Among):
    def __call__(self, p: int) -> int:
        return self.whole.blocks_multiple(len(self.members))


class _PerRank(_Among):
    def __call__(self, n_blocks: int, p: int) -> int:
        return self.whole.blocks_per_rank(n_blocks, len(self.members))


class _Factor(_Among):
    def __call__(self, p: int) -> float:
        return self.whole.bus_factor(len(self.members))


def placed(schedule: Schedule, topology: Topology, members: Sequence[int]) -> Schedule:
    """The schedule among some NPUs of a topology, in their order.

    `schedule`: of as many ranks, on any network of that size; its routes are left to the topology.
    WeftError: switches that add, slots, or links that transfers name, which belong to the other network.
    """
    small, where = schedule.pattern, np.array(members, np.int64)
    if not small.is_of_ranks or small.transfers().via_links is not None:
        raise WeftError(f"{schedule.name} is made for whole networks, not for a group of {where.size} of their NPUs")
    return replace(schedule, pattern=_pattern(small, topology, tuple(members)))


def _pattern(small: Pattern, topology: Topology, members: tuple[int, ...]) -> Pattern:
    where, t = np.array(members, np.int32), small.transfers()
    moved = t._replace(src=where[t.src], dst=where[t.dst], dep_src=where[t.dep_src])
    table = take(moved, np.lexsort((moved.src, moved.slot)))
    rank_of = {npu: rank for rank, npu in enumerate(members)}
    whole = small.kind
    kind = replace(
        whole, name=f"{whole.name} of {len(members)}", sources=_Sources(whole, members),
        wanted_by=_WantedBy(whole, members), blocks_multiple=_Multiple(whole, members),
        blocks_per_rank=_PerRank(whole, members), bus_factor=_Factor(whole, members),
        group_size=whole.group_size or len(members),
    )
    return Pattern(
        topology=topology, kind=kind, algorithm=small.algorithm, form=small.form, n_blocks=small.n_blocks,
        emit=lambda ranks: sources_only(table, ranks),
        blocks_of=lambda source, slot: small.blocks_of(rank_of[source], slot), root=members[small.root],
        own_proof=OwnProof(lambda: f"proved on {small.topology.name}"), progress=small.progress, phases=small.phases,
    )
