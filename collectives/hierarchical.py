"""Hierarchical collectives on products of dimensions, in pipelined chunks (BlueConnect, M. Cho et al., MLSys 2019).

Reduce-scatter goes through the dimensions one after the other on ever smaller parts, all-gather in reverse, and
all-reduce is the two in sequence; an all-to-all regroups its blocks in each dimension. The array is cut into
pipeline chunks that pass through the dimensions independently, and a pool limits how many of them are active at
once in a dimension of a rank. Themis (collectives/themis.py) gives every chunk its own order of dimensions.

Ranks that started different chunks would deadlock. Under a limit, therefore, the ranks that exchange in a dimension
enter a stage together, once all of them have the chunk, and leave it together: their pools see the same requests in
the same order, whatever slows one of them down.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from operator import itemgetter
from typing import Annotated, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from collectives.core import stages
from collectives.core.builders import kept_by_wiring, of_kind
from collectives.core.carried import OfMany
from collectives.core.grid import NOBODY, shrink_shape
from collectives.core.pattern import Pattern, Smaller
from collectives.core.process_groups import GroupSpec, ProcessGroup, automorphisms, grouped, process_group
from collectives.core.schedule import ELEMENT_BYTES, Schedule, schedule
from collectives.core.stages import LaneRounds
from collectives.core.symmetry import Group, Groups, node_group
from collectives.core.transfers import Mark, Pool, Ref, Transfers, TransferTable, mark, repeat
from topologies import Topology, WeftError, torus
from topologies.checks import Choice, Count, Integer, checked, choice
from topologies.core.blocks import Block, Ring
from topologies.core.product import DimensionOrderRouter
from topologies.core.symmetry import move_nodes
from topologies.units import Quantity

NAME = "hierarchical"
DEFAULT_PIPELINE_CHUNKS = 16
MOST_PIPELINE_CHUNKS = 65_536
"""Each is a block of every rank, with an order of dimensions of its own."""

ORDERS_OF_SERVICE = ("fifo", "smallest-first")

Algorithms = str | Sequence[str | None] | None
"""Algorithm of each dimension, "ring,direct"; None (or "") means the block's native one."""


@checked
class Options(NamedTuple):
    """Options of a hierarchical collective of any kind."""

    # chunks that the array is cut into
    pipeline_chunks: Annotated[int, Integer(1, MOST_PIPELINE_CHUNKS)] = DEFAULT_PIPELINE_CHUNKS
    active_chunks: Count | None = 1  # chunks a rank works on at once in a dimension; None for no limit
    # a dimension serves the first chunk to request it, or the one with the fewest bytes there
    service: Annotated[str, Choice(ORDERS_OF_SERVICE)] = "fifo"
    algorithms: Algorithms = None
    group: GroupSpec | ProcessGroup | None = None
    # dimensions in the order of the reduce-scatter or all-to-all ("2,0,1"); dimensions unused by the group are skipped.
    # All-gather takes the reverse. Default: dimension 0 first.
    order: str | Sequence[int] | None = None


def _schedule(
    kind: str, /, topology: Topology, size: Quantity, *, element_bytes: int = ELEMENT_BYTES, **options: object
) -> Schedule:
    chosen = make_options(NAME, options)
    group = process_group(topology.shape, chosen.group)
    orders = (order_of_dimensions(chosen.order, group),) * chosen.pipeline_chunks
    return schedule(pattern(NAME, topology, kind, chosen, orders), size, element_bytes)


all_reduce = of_kind("all-reduce", _schedule, """
    Reduce-scatter up through the dimensions, then all-gather down.

    `topology`: a product of blocks: rings, fully connected, switches, lines.
    `size`: of the array of one process group.
    `**options`: see `Options`.
    """)
reduce_scatter = of_kind("reduce-scatter", _schedule, """
    Reduce-scatter along dimension 0, then on a part of the array along dimension 1, and so on.""")
all_gather = of_kind("all-gather", _schedule, """
    All-gather along the last dimension first, so that outer dimensions carry little.""")
all_to_all = of_kind("all-to-all", _schedule, """
    All-to-all dimension by dimension; in each, every rank moves all but its own share.""")


def make_options(name: str, options: dict[str, object]) -> Options:
    """The options of an algorithm; WeftError: an unknown one, or a value that is not accepted."""
    for option in options:
        choice(option, Options._fields, f"{name} option")
    return Options(**options)  # type: ignore[arg-type]  # checked as it is made


def order_of_dimensions(asked: str | Sequence[int] | None, group: ProcessGroup) -> tuple[int, ...]:
    """The dimensions a group uses, in the requested order.

    WeftError: not a permutation of the network's dimensions.
    """
    if asked is None or asked == "":
        return group.dims
    words = asked.split(",") if isinstance(asked, str) else list(asked)
    n_dims = len(group.extents)
    try:
        order = [int(word) for word in words]
    except ValueError:
        order = []
    if sorted(order) != list(range(n_dims)):
        every = ",".join(map(str, range(n_dims)))
        raise WeftError(f"order of dimensions {asked!r}: give each of {every} once, in the order of the "
                        "reduce-scatter")
    return tuple(dim for dim in order if dim in group.dims)


def pattern(name: str, topology: Topology, kind: str, options: Options, orders: tuple[tuple[int, ...], ...]) -> Pattern:
    """The pattern of a hierarchical collective.

    `name`: name of the algorithm.
    `orders`: for each chunk, the order of dimensions of its reduce-scatter (or all-to-all); all-gather takes the
        reverse.
    """
    blocks = blocks_of(topology)
    group = process_group(topology.shape, options.group)
    algorithms = _algorithms(options.algorithms, blocks, group, kind)
    service = "priority" if options.service == "smallest-first" else "fifo"
    limit = None if options.active_chunks is None else Pool(options.active_chunks, service)
    return _pattern(topology, name, HierarchicalPlan(kind, group, algorithms, orders, limit))


def blocks_of(topology: Topology) -> tuple[Block, ...]:
    """The blocks of a product.

    WeftError: the topology is not a product of blocks.
    """
    if not isinstance(topology.router, DimensionOrderRouter):
        raise WeftError(f"{topology.name} is not a product of dimensions: hierarchical collectives need one, such as "
                        "RI(4)_FC(8)_SW(32) or torus:8x8")
    return topology.router.blocks


def _algorithms(asked: Algorithms, blocks: Sequence[Block], group: ProcessGroup, kind: str) -> tuple[str, ...]:
    parts = asked.split(",") if isinstance(asked, str) else list(asked or [None] * len(blocks))
    if len(parts) != len(blocks):
        raise WeftError(f"{len(parts)} algorithms for {len(blocks)} dimensions: give one each, or leave it empty")
    chosen = []
    for dim, (part, block) in enumerate(zip(parts, blocks, strict=True)):
        algorithm = (part or "").strip() or stages.own_algorithm(block, group, dim, kind)
        stages.check_algorithm(algorithm, group.extents[dim], kind, dim)
        chosen.append(algorithm)
    return tuple(chosen)


@dataclass(frozen=True)
class HierarchicalPlan:
    """Everything that the transfers depend on."""

    kind: str
    group: ProcessGroup
    algorithms: tuple[str, ...]  # one per dimension
    orders: tuple[tuple[int, ...], ...]  # dimensions of each chunk, in the order of its reduce-scatter
    limit: Pool | None  # for every dimension of every rank; None for no limit

    @cached_property
    def parts(self) -> int:
        """Parts per block: 2 if a ring runs in both directions."""
        cut = (stages.cuts_blocks(self.algorithms[dim], self.group.extents[dim]) for dim in self.group.dims)
        return 2 if any(cut) else 1

    @cached_property
    def stages(self) -> tuple[tuple[Stage, ...], ...]:
        """Stages of each chunk, with their slots."""
        placed, slot = [], 1  # slot 0 is where every rank starts
        for order in self.orders:
            mine, step = [], 0
            for at, task in self._tasks(order):
                stage = self._stage(order, at, task)._replace(slot=slot, step=step)
                mine.append(stage)
                slot += stage.slots + (self.limit is not None)
                step += stage.steps + 1
            placed.append(tuple(mine))
        return tuple(placed)

    def _tasks(self, order: tuple[int, ...]) -> list[tuple[int, str]]:
        up = list(range(len(order)))
        return {
            "all-reduce": [(at, stages.SCATTER) for at in up] + [(at, stages.GATHER) for at in reversed(up)],
            "reduce-scatter": [(at, stages.SCATTER) for at in up],
            "all-gather": [(at, stages.GATHER) for at in reversed(up)],
            "all-to-all": [(at, stages.EXCHANGE) for at in up],
        }[self.kind]

    def _stage(self, order: tuple[int, ...], at: int, task: str) -> Stage:
        dim, extents = order[at], self.group.extents
        before = math.prod(extents[one] for one in order[:at])
        whole = self.group.size if task == stages.EXCHANGE else self.group.size // before
        rounds = self._rounds(dim, task)
        return Stage(dim, task, rounds, whole // extents[dim], whole, order[:at], order[at + 1 :], 0, 0)

    def _rounds(self, dim: int, task: str) -> tuple[LaneRounds, ...]:
        return tuple(stages.stage_rounds(self.algorithms[dim], task, self.group, dim, self.parts))

    @cached_property
    def firsts(self) -> list[tuple[int, int, Stage]]:
        """First slot, chunk and stage, in the order of slots."""
        return [(stage.slot, chunk, stage) for chunk, mine in enumerate(self.stages) for stage in mine]


class Stage(NamedTuple):
    """A chunk in a dimension."""

    dim: int
    task: str  # {"scatter", "gather", "exchange"}
    rounds: tuple[LaneRounds, ...]
    unit: int  # blocks per part at one position
    whole: int  # largest number of blocks of one part that the rank holds: the key of smallest-first
    before: tuple[int, ...]  # dimensions that come earlier in the chunk's reduce-scatter or exchange
    later: tuple[int, ...]  # dimensions that come later
    # of the join that starts the stage: transfers follow, round by round, and a join ends it; under a limit another
    # join returns the unit
    slot: int
    step: int  # of that join

    @property
    def slots(self) -> int:
        """Slots of the stage, including both joins."""
        return 2 + sum(one.counts.size for one in self.rounds)

    @property
    def steps(self) -> int:
        """Rounds of the stage."""
        return sum(len(one.counts) for one in self.rounds)

    @property
    def last_slot(self) -> int:
        """Slot of the join that ends it."""
        return self.slot + self.slots - 1

    def cargo(self, position: stages.Position, slot: int) -> list[stages.Cargo]:
        """What the rank at a position sends in a slot; nothing in the joins."""
        at = slot - self.slot - 1
        for one in self.rounds:
            if 0 <= at < one.counts.size:
                step, lane = divmod(at, one.counts.shape[1])
                return one.cargo(step, position, lane)
            at -= one.counts.size
        return []


@kept_by_wiring(256)
def _pattern(topology: Topology, name: str, plan: HierarchicalPlan) -> Pattern:
    group, p = plan.group, topology.n_npus
    kind = grouped(plan.kind, group)
    firsts = [slot for slot, _, _ in plan.firsts]

    def emit(ranks: npt.NDArray[np.integer]) -> Transfers:
        table = TransferTable(ranks)
        if group.dims:
            table.join(0, table.ranks, NOBODY)
        alike: dict[tuple[int, ...], tuple[int, Mark, Mark]] = {}  # by order: the chunk that was emitted, and its rows
        for order, run in groupby(zip(plan.orders, plan.stages, strict=True), itemgetter(0)):
            chunks = [mine for _, mine in run if mine]
            if chunks and order not in alike:
                last, begin = 0, mark(table)
                for stage in chunks[0]:
                    _add_stage(table, plan, stage, last)
                    last = stage.last_slot
                alike[order] = chunks.pop(0)[0].slot, begin, mark(table)
            if chunks:
                first, begin, end = alike[order]
                repeat(table, begin, end, np.array([mine[0].slot - first for mine in chunks]))
        return table.build()

    def carried(source: Any, slot: int) -> list[Any]:
        if slot == 0:
            return []
        _, chunk, stage = plan.firsts[bisect_right(firsts, slot) - 1]
        return _carried(plan, p, chunk, stage, source, slot)

    per_chunk = plan.parts * (p * p if plan.kind == "all-to-all" else p)
    return Pattern(
        topology=topology, kind=kind, algorithm=name, n_blocks=len(plan.orders) * per_chunk, emit=emit,
        blocks_of=OfMany(carried), groups=_groups(topology, plan), smaller=Smaller(lambda: _smaller(name, plan)),
        pools=_pools(plan), pipeline=tuple(mine[0].slot for mine in plan.stages if mine and plan.limit),
    )


def _pools(plan: HierarchicalPlan) -> tuple[Pool, ...]:
    """One pool per dimension."""
    if plan.limit is None:
        return ()
    return tuple(plan.limit._replace(name=f"dimension {dim} of {plan.group}") for dim in range(len(plan.group.shape)))


def _add_stage(table: TransferTable, plan: HierarchicalPlan, stage: Stage, before: int) -> None:
    """A stage: starts when the previous one has ended and the pool has a free unit, which it returns at the end."""
    pool, ranks = stage.dim if plan.limit else -1, table.ranks
    line = ranks[None]
    if plan.limit:
        line = plan.group.move(ranks, stage.dim, np.arange(plan.group.extents[stage.dim])[:, None])
    table.join(stage.slot, line, before, step=stage.step, takes=pool, order=stage.whole)
    waits: list[Ref] = [(ranks, stage.slot)]
    slot, step = stage.slot + 1, stage.step
    slots, senders = np.zeros((0, 1), np.int64), np.zeros((0, ranks.size), np.int64)
    for one in stage.rounds:
        n_rounds, lanes = one.counts.shape
        slots = slot + np.arange(n_rounds * lanes)[:, None]
        receivers, senders = (np.tile(ends(ranks), (n_rounds, 1)) for ends in (one.receivers, one.senders))
        table.add(
            slots, receivers, one.counts.reshape(-1, 1) * stage.unit,
            step=np.repeat(step + np.arange(n_rounds), lanes)[:, None], reduces=stage.task == stages.SCATTER,
            after=_one_after_another(waits, ranks, senders, slots, lanes),
        )
        slots, senders = slots[-lanes:], senders[-lanes:]
        waits = [(senders, slots), (ranks, slots)]
        slot, step = slot + n_rounds * lanes, step + n_rounds
    own = np.broadcast_to(ranks, senders.shape)
    table.join(stage.last_slot, np.concatenate([senders, own]), np.concatenate([slots, slots]), step=step)
    if plan.limit:
        table.join(stage.last_slot + 1, line, stage.last_slot, step=step, gives=pool)


def _one_after_another(
    waits: Sequence[Ref], ranks: npt.NDArray[np.integer], senders: npt.NDArray[np.integer],
    slots: npt.NDArray[np.int64], lanes: int,
) -> list[Ref]:
    """What the rows of several rounds wait for: those of the first for `waits`, the others for the round before.

    `ranks`, `senders`: the sources, (n,), and who sends to each of them in each row, (rows, n).
    """
    if len(slots) == lanes:
        return list(waits)
    first = np.full((len(slots), ranks.size), -1)
    refs: list[Ref] = []
    for rank, other in waits:
        whom, what = first.copy(), first.copy()
        whom[:lanes], what[:lanes] = rank, other
        refs.append((whom, what))
    before = np.concatenate([np.full((lanes, 1), -1), slots[:-lanes]])
    return [*refs, (np.concatenate([senders[:lanes], senders[:-lanes]]), before), (ranks, before)]


def _carried(plan: HierarchicalPlan, p: int, chunk: int, stage: Stage, source: Any, slot: int) -> list[Any]:
    """Blocks of a transfer: those of the owners (and origins) at the positions named by its round."""
    group, dim = plan.group, stage.dim
    here, step = group.position(source, dim), group.strides[dim] * group.grid.strides[dim]
    before, later = (*stage.before, dim), (*stage.later, dim)
    numbers = []
    for item in stage.cargo(here, slot):
        owners = group.members(source + (item.owner - here) * step, before)
        origins = group.members(source + (item.origin - here) * step, later) if stage.task == stages.EXCHANGE else ()
        for part in item.parts:
            first = chunk * plan.parts + part
            if stage.task == stages.EXCHANGE:
                numbers += [(first * p + origin) * p + owner for origin in origins for owner in owners]
            else:
                numbers += [first * p + owner for owner in owners]
    return numbers


def _groups(topology: Topology, plan: HierarchicalPlan) -> Sequence[Group]:
    """Moves of each dimension that preserve the process groups: rotations, or flips under halving-doubling."""
    moves = []
    for dim, block in enumerate(blocks_of(topology)):
        if isinstance(block, Ring) and plan.algorithms[dim] != stages.HALVING_DOUBLING:
            span = plan.group.extents[dim] * plan.group.strides[dim]
            by = 1 if span == block.extent or plan.group.extents[dim] == 1 else span
            maps = [(f"translation by {by} in dimension {dim}", (np.arange(block.extent) + by) % block.extent)]
        else:
            maps = automorphisms(plan.group, dim, plan.algorithms[dim] == stages.HALVING_DOUBLING)
        moves += [(label, move_nodes(topology, {dim: table})) for label, table in maps if block.extent > 1]
    return Groups(topology, lambda on: node_group(on, "moves of each dimension", moves)) if moves else ()


def _smaller(name: str, plan: HierarchicalPlan) -> Pattern:
    """The same stages on a smaller torus: three dimensions at most, and one chunk of each order, sorted."""
    group = plan.group
    kept = group.dims[:3]
    extents = [1] * len(group.shape)
    for dim, extent in zip(kept, shrink_shape(tuple(group.extents[dim] for dim in kept)), strict=True):
        extents[dim] = extent
    strides = [min(stride, 2) if dim in kept else 1 for dim, stride in enumerate(group.strides)]
    more = [min(whole // (extent * stride), 2) if dim in kept else 1
            for dim, (whole, extent, stride) in enumerate(zip(group.shape, group.extents, group.strides, strict=True))]
    shape = tuple(math.prod(three) for three in zip(extents, strides, more, strict=True))
    orders = tuple(sorted({tuple(dim for dim in order if dim in kept) for order in plan.orders}))
    group = ProcessGroup(shape, tuple(extents), tuple(strides))
    small = HierarchicalPlan(plan.kind, group, plan.algorithms, orders, plan.limit)
    return _pattern(torus(shape), name, small)
