"""Direct: every rank sends to every other rank at once, on any topology."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from collectives.core.builders import by_wiring, plain
from collectives.core.carried import OfMany
from collectives.core.collective import collective
from collectives.core.grid import NOBODY, Grid, shrink
from collectives.core.pairs import Pairs, exchange
from collectives.core.pattern import Pattern, Smaller
from collectives.core.schedule import ELEMENT_BYTES, Schedule, schedule
from collectives.core.symmetry import translations
from collectives.core.transfers import Ref, Transfers, TransferTable
from topologies import Topology
from topologies.checks import checked
from topologies.units import Quantity

NAME = "direct"


@by_wiring
def _pattern(topology: Topology, kind: str) -> Pattern:
    grid = Grid(topology.shape)
    p = grid.p
    steps = {"all-reduce": (True, False), "reduce-scatter": (True,)}.get(kind, (False,))

    def emit(ranks: npt.NDArray[np.integer]) -> Transfers:
        table = TransferTable(ranks)
        if p > 1:
            _send(table, grid, 0, steps[0])
        if p > 1 and len(steps) > 1:
            _wait(table, grid)
            _send(table, grid, 1, steps[1], after=[(table.ranks, p)])
        return table.build()

    def blocks_of(source: Any, slot: int) -> list[Any]:
        step, displacement = divmod(slot, p)
        receiver = grid.displace(source, displacement)
        return [] if displacement == 0 else [_block(kind, p, source, receiver, steps[step])]

    return Pattern(
        topology=topology, kind=collective(kind), algorithm=NAME, n_blocks=p * p if kind == "all-to-all" else p,
        emit=emit, blocks_of=OfMany(blocks_of), groups=translations(topology),
        smaller=Smaller(lambda: _pattern(shrink(topology), kind)),
    )


all_reduce = plain("all-reduce", _pattern, """
    Direct reduce-scatter, then direct all-gather: two steps of p - 1 messages from each rank.

    Messages are injected in order of displacement, so all ranks send alike.
    """)
reduce_scatter = plain("reduce-scatter", _pattern, """
    Every rank sends every other rank the block that the receiver owns.""")
all_gather = plain("all-gather", _pattern, "Every rank sends its block to every other.")


@checked
def all_to_all(
    topology: Topology, size: Quantity, *, pairs: Pairs | None = None, element_bytes: int = ELEMENT_BYTES
) -> Schedule:
    """Every rank sends every other rank a distinct block, all at once.

    `pairs`: how much each rank sends every other (default: equal blocks); see `collectives.core.pairs`.
    """
    if pairs is None:
        return schedule(_pattern(topology, "all-to-all"), size, element_bytes)
    return exchange(topology, NAME, pairs, size, element_bytes, in_turn=False)


@by_wiring
def _rooted_pattern(topology: Topology, kind: str, root: int = 0) -> Pattern:
    p = topology.n_npus
    topology.check_root(root)

    def emit(ranks: npt.NDArray[np.integer]) -> Transfers:
        table = TransferTable(ranks)
        if kind == "gather":
            table.add(0, np.where(table.ranks != root, root, NOBODY))
        elif root in ranks:
            ahead = np.arange(1, p)[:, None]
            table.add(ahead, np.where(table.ranks == root, (root + ahead) % p, NOBODY))
        return table.build()

    def blocks_of(source: int, slot: int) -> Sequence[int]:
        return [source if kind == "gather" else (root + slot) % p]

    def smaller() -> Pattern:
        small = shrink(topology)
        return _rooted_pattern(small, kind, root % small.n_npus)

    return Pattern(
        topology=topology, kind=collective(kind), algorithm=NAME, n_blocks=p, emit=emit, blocks_of=blocks_of,
        smaller=Smaller(smaller), root=root,
    )


gather = plain("gather", _rooted_pattern, """
    Every rank sends the root its block, all at once.

    `root`: the rank that wants them.
    WeftError: a root that is not a rank.
    """)
scatter = plain("scatter", _rooted_pattern, "The root sends every rank its block, the nearest ahead first.")


def _send(table: TransferTable, grid: Grid, step: int, reduces: bool, after: Sequence[Ref] = ()) -> None:
    """The transfers of a step: slot `step * p + d` goes to the rank displaced by the coordinates of rank d."""
    displacement = np.arange(1, grid.p)[:, None]
    receivers = grid.displace(table.ranks, displacement)
    table.add(step * grid.p + displacement, receivers, step=step, reduces=reduces, after=after)


def _wait(table: TransferTable, grid: Grid) -> None:
    """A join, in slot p, of what each rank sent and received in the first step."""
    displacement = np.arange(1, grid.p)[:, None]
    senders = grid.displace(table.ranks, displacement, sign=-1)
    ranks = np.broadcast_to(table.ranks, senders.shape)
    table.join(grid.p, np.concatenate([senders, ranks]), np.tile(displacement, (2, 1)), step=1)


def _block(kind: str, p: int, source: Any, receiver: Any, reduces: bool) -> Any:
    if kind == "all-to-all":
        return source * p + receiver
    return receiver if reduces else source
