"""Individual transfers collected one by one, for schedules that come from a search or a file instead of a formula."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from collectives.core.by_slots import WHOLE
from collectives.core.collective import Collective, collective
from collectives.core.pattern import Pattern
from collectives.core.transfers import Transfers, sources_only, take
from topologies import Topology

Ints = npt.NDArray[np.int64]


class Columns(NamedTuple):
    """Transfers in insertion order, identified by index, in columns of int64."""

    # src, dst, step, port, blocks, reduces: (n,): as in `Transfers`
    src: Ints
    dst: Ints
    step: Ints
    port: Ints
    blocks: Ints
    reduces: Ints
    # waits, hops: (n,): number of transfers that each waits for, and of links that it crosses (0: the topology's route)
    waits: Ints
    # other, lag: (sum of waits,): transfers waited for, and how
    other: Ints
    lag: Ints
    hops: Ints
    links: Ints  # (sum of hops,)

    def table(self, *, alike_by_slot: bool = False, slot: Ints | None = None) -> Transfers:
        """The same transfers by source and slot; ties are broken by slots, given or `alike_by_slot`, or by indices."""
        src, alike_by_slot = self.src, alike_by_slot or slot is not None
        slot = slots_of(src) if slot is None else slot
        has_links = self.hops.any()
        rows = Transfers(
            src=src.astype(np.int32), dst=self.dst.astype(np.int32), slot=slot.astype(np.int32),
            step=self.step.astype(np.int32), port=self.port.astype(np.int32), blocks=self.blocks.astype(np.int64),
            reduces=self.reduces.astype(np.bool_), tie_class=slot.copy() if alike_by_slot else np.arange(src.size),
            dep_ptr=_offsets(self.waits), dep_src=src[self.other].astype(np.int32),
            dep_slot=slot[self.other].astype(np.int32), dep_lag=self.lag.astype(np.int32),
            via_ptr=_offsets(self.hops) if has_links else None,
            via_links=self.links.astype(np.int32) if has_links else None,
        )
        return take(rows, np.lexsort((src, slot)))


@dataclass
class SendList:
    """Transfers in insertion order, identified by index."""

    _rows: list[tuple[int, ...]] = field(default_factory=list)
    _waits: list[list[tuple[int, int]]] = field(default_factory=list)
    _links: list[Sequence[int]] = field(default_factory=list)
    blocks: list[Sequence[int]] = field(default_factory=list)
    """Blocks of each transfer, in the order in which they are sent."""
    alike: tuple[Ints, Ints] | None = None
    """Slot and port of each transfer, where those of other transfers look the same from their sources."""
    alike_by_slot: bool = False
    """Whether ties are broken by slots, the number of a transfer among those of its source, or by indices."""

    def add(
        self, src: int, dst: int, blocks: Sequence[int], *, step: int = 0, port: int = 0, reduces: bool = False,
        after: Iterable[int] = (), stream: Iterable[int] = (), links: Sequence[int] = (), count: int | None = None,
    ) -> int:
        """Add a transfer; returns its index.

        `reduces`: whether the receiver adds.
        `after`, `stream`: transfers waited for, entirely and chunk by chunk.
        `links`: physical links, in order (default: the topology's route).
        `count`: number of blocks, if they are not named.
        """
        self._rows.append((src, dst, step, port, len(blocks) if count is None else count, reduces))
        self._waits.append([(one, WHOLE) for one in after] + [(one, 0) for one in stream])
        self._links.append(links)
        self.blocks.append(blocks)
        return len(self._rows) - 1

    def wait(self, number: int, other: int, lag: int) -> None:
        """Make a transfer wait for another, which may be added later."""
        self._waits[number].append((other, lag))

    def receiver(self, number: int) -> int:
        """Where a transfer goes."""
        return self._rows[number][1]

    def __len__(self) -> int:
        return len(self._rows)

    def columns(self) -> Columns:
        """All transfers added."""
        src, dst, step, port, blocks, reduces = _flat(self._rows).reshape(-1, 6).T
        counts, hops = (np.fromiter(map(len, lists), np.int64) for lists in (self._waits, self._links))
        other, lag = _flat(chain.from_iterable(self._waits)).reshape(-1, 2).T
        links = _flat(self._links)
        return Columns(src, dst, step, port, blocks, reduces, counts, other, lag, hops, links)

    def build(self) -> tuple[Transfers, dict[tuple[int, int], Sequence[int]]]:
        """The table of transfers, and the blocks of each (source, slot)."""
        columns = self.columns()
        slot, port = self.alike or (slots_of(columns.src), columns.port)
        carried = dict(zip(zip(columns.src.tolist(), slot.tolist(), strict=True), self.blocks, strict=True))
        given = None if self.alike is None else slot
        return columns._replace(port=port).table(alike_by_slot=self.alike_by_slot, slot=given), carried

    def pattern(
        self, topology: Topology, kind: str | Collective, algorithm: str, n_blocks: int, **more: Any
    ) -> Pattern:
        """The pattern of all transfers added; `more` as in `Pattern`."""
        transfers, blocks = self.build()
        return Pattern(
            topology=topology, kind=collective(kind) if isinstance(kind, str) else kind, algorithm=algorithm,
            n_blocks=n_blocks, emit=partial(sources_only, transfers),
            **{"blocks_of": lambda source, slot: blocks[source, slot]} | more,
        )


def _flat(rows: Iterable[Iterable[int]]) -> Ints:
    return np.fromiter(chain.from_iterable(rows), np.int64)


def columns_pattern(columns: Columns, block: Ints, alike_by_slot: bool = True, **more: Any) -> Pattern:
    """The pattern of transfers that carry a block each; ties go by slots, or by indices. `more` as in `Pattern`."""
    carried = block[np.argsort(columns.src, kind="stable")]
    first = _offsets(np.bincount(columns.src))
    return Pattern(
        emit=partial(sources_only, columns.table(alike_by_slot=alike_by_slot)),
        blocks_of=lambda source, slot: [int(carried[first[source] + slot])], **more,
    )


def slots_of(src: Ints) -> Ints:
    """Number of each transfer among those of its source."""
    slot = np.zeros(src.size, np.int64)
    order = np.argsort(src, kind="stable")
    slot[order] = np.arange(src.size) - np.searchsorted(src[order], src[order])
    return slot


def _offsets(counts: Ints) -> Ints:
    return np.concatenate((np.zeros(1, np.int64), np.cumsum(counts)))
