"""Individual transfers collected one by one, for schedules that come from a search or a file instead of a formula."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from collectives.core.collective import collective
from collectives.core.pattern import Pattern
from collectives.core.transfers import WHOLE, Transfers, sources_only, take
from topologies import Topology


@dataclass
class SendList:
    """Transfers in insertion order, identified by index."""

    _rows: list[tuple[int, ...]] = field(default_factory=list)
    _waits: list[list[tuple[int, int]]] = field(default_factory=list)
    _links: list[Sequence[int]] = field(default_factory=list)
    blocks: list[Sequence[int]] = field(default_factory=list)
    """Blocks of each transfer, in the order in which they are sent."""
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

    def __len__(self) -> int:
        return len(self._rows)

    def build(self) -> tuple[Transfers, dict[tuple[int, int], Sequence[int]]]:
        """The table of transfers, and the blocks of each (source, slot)."""
        columns = np.array(self._rows, np.int64).reshape(-1, 6).T
        src = columns[0]
        slot = np.zeros(src.size, np.int64)
        order = np.argsort(src, kind="stable")
        slot[order] = np.arange(src.size) - np.searchsorted(src[order], src[order])
        counts = np.array([len(one) for one in self._waits], np.int64)
        waits = np.array([wait for one in self._waits for wait in one], np.int64).reshape(-1, 2)
        hops = np.array([len(one) for one in self._links], np.int64)
        links = np.array([link for one in self._links for link in one], np.int32)
        ties = slot.copy() if self.alike_by_slot else np.arange(src.size)
        rows = Transfers(
            src=src.astype(np.int32), dst=columns[1].astype(np.int32), slot=slot.astype(np.int32),
            step=columns[2].astype(np.int32), port=columns[3].astype(np.int32), blocks=columns[4],
            reduces=columns[5].astype(np.bool_), tie_class=ties, dep_ptr=_offsets(counts),
            dep_src=src[waits[:, 0]].astype(np.int32), dep_slot=slot[waits[:, 0]].astype(np.int32),
            dep_lag=waits[:, 1].astype(np.int32), via_ptr=_offsets(hops) if hops.any() else None,
            via_links=links if hops.any() else None,
        )
        blocks = dict(zip(zip(src.tolist(), slot.tolist(), strict=True), self.blocks, strict=True))
        return take(rows, np.lexsort((src, slot))), blocks

    def pattern(self, topology: Topology, kind: str, algorithm: str, n_blocks: int, **more: Any) -> Pattern:
        """The pattern of all transfers added; `more` as in `Pattern`."""
        transfers, blocks = self.build()
        return Pattern(
            topology=topology, kind=collective(kind), algorithm=algorithm, n_blocks=n_blocks,
            emit=partial(sources_only, transfers),
            **{"blocks_of": lambda source, slot: blocks[source, slot]} | more,
        )


def _offsets(counts: np.ndarray[tuple[int], np.dtype[np.int64]]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.concatenate((np.zeros(1, np.int64), np.cumsum(counts)))
