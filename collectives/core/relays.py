"""Schedules of individual transfers that follow each other chunk by chunk over named links, possibly from switches."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from collectives.core.transfers import Transfers, take
from topologies import Topology, WeftError


class Relays:
    """Collects transfers one by one, numbered per source."""

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self._rows: list[tuple[int, int, int, int, int]] = []
        self._blocks: list[tuple[int, ...]] = []
        self._via: list[list[int]] = []
        self._waits: list[list[tuple[int, int]]] = []
        self._slots: dict[int, int] = {}
        self._row_of: dict[tuple[int, int], int] = {}
        ends = zip(topology.src.tolist(), topology.dst.tolist(), strict=True)
        self._link_of: dict[tuple[int, int], int] = {}
        for link, pair in enumerate(ends):
            self._link_of.setdefault(pair, link)  # the first of parallel links

    def add(
        self,
        nodes: Sequence[int],
        blocks: Sequence[int],
        *,
        step: int = 0,
        reduces: bool = False,
        stream: Sequence[int] = (),
        port: int = 0,
    ) -> int:
        """Add a transfer along a path of nodes; returns its row.

        `nodes`: from the source to the receiver, connected by links.
        `reduces`: whether the receiver adds.
        `stream`: rows it follows chunk by chunk.
        `port`: index of the neighbor among those of the last node.
        """
        src, dst = int(nodes[0]), int(nodes[-1])
        slot = self._slots.get(src, 0)
        self._slots[src] = slot + 1
        row = len(self._rows)
        self._row_of[src, slot] = row
        self._rows.append((src, dst, slot, step, int(reduces)))
        self._blocks.append(tuple(blocks))
        self._via.append(self._links(nodes, port))
        self._waits.append([(parent, 0) for parent in stream])
        return row

    def window(self, row: int, other: int, chunks: int) -> None:
        """Make chunk j of a transfer wait for chunk j - `chunks` of another, which may be added later."""
        self._waits[row].append((other, chunks))

    def blocks_of(self, source: int, slot: int) -> Sequence[int]:
        """Blocks that a transfer carries."""
        return self._blocks[self._row_of[source, slot]]

    def build(self) -> Transfers:
        """All transfers, sorted by (slot, source)."""
        rows = np.array(self._rows, np.int64).reshape(-1, 5)
        order = np.lexsort((rows[:, 0], rows[:, 2]))
        waits = [(*self._rows[parent][0:3:2], lag) for row in order for parent, lag in self._waits[row]]
        flat = np.array(waits, np.int64).reshape(-1, 3)
        src, dst, slot, step, reduces = rows[order].T
        return Transfers(
            src=src.astype(np.int32), dst=dst.astype(np.int32), slot=slot.astype(np.int32),
            step=step.astype(np.int32), port=np.zeros(src.size, np.int32),
            blocks=np.array([len(self._blocks[row]) for row in order], np.int64), reduces=reduces.astype(np.bool_),
            tie_class=slot.copy(), dep_ptr=_pointers([len(self._waits[row]) for row in order]),
            dep_src=flat[:, 0].astype(np.int32), dep_slot=flat[:, 1].astype(np.int32),
            dep_lag=flat[:, 2].astype(np.int32), via_ptr=_pointers([len(self._via[row]) for row in order]),
            via_links=np.array([link for row in order for link in self._via[row]], np.int32),
        )

    def _links(self, nodes: Sequence[int], port: int) -> list[int]:
        try:
            links = [self._link_of[pair] for pair in pairwise(nodes)]
        except KeyError:
            raise WeftError(f"topology {self.topology.name}: no links along the path {list(nodes)}") from None
        if port and links:
            last = links[-1]
            parallel = (self.topology.src[last:] == nodes[-2]) & (self.topology.dst[last:] == nodes[-1])
            links[-1] = last + port % int(np.argmin(np.append(parallel, False)))
        return links


def sources_only(table: Transfers, ranks: npt.NDArray[np.integer]) -> Transfers:
    """The transfers of some sources."""
    return take(table, np.flatnonzero(np.isin(table.src, ranks)))


def _pointers(counts: list[int]) -> npt.NDArray[np.int64]:
    return np.concatenate(([0], np.cumsum(np.array(counts, np.int64)))).astype(np.int64)
