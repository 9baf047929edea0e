"""Transfers that follow each other chunk by chunk along paths of named nodes, possibly from switches."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from collectives.core.sends import SendList
from topologies import Topology, WeftError


class Relays(SendList):
    """Collects transfers one by one; the same number of those of each source tie alike."""

    def __init__(self, topology: Topology) -> None:
        super().__init__(alike_by_slot=True)
        self.topology = topology
        self._first: dict[tuple[int, int], int] = {}  # of parallel links
        for link, ends in enumerate(zip(topology.src.tolist(), topology.dst.tolist(), strict=True)):
            self._first.setdefault(ends, link)

    def along(
        self, nodes: Sequence[int], blocks: Sequence[int], *, step: int = 0, reduces: bool = False,
        stream: Sequence[int] = (), port: int = 0,
    ) -> int:
        """Add a transfer along a path of nodes; returns its index.

        `nodes`: from the source to the receiver, connected by links.
        `reduces`, `stream`: as in `add`.
        `port`: index of the neighbor among those of the last node.
        """
        ends = int(nodes[0]), int(nodes[-1])
        return self.add(*ends, tuple(blocks), step=step, reduces=reduces, stream=stream, links=self._path(nodes, port))

    def _path(self, nodes: Sequence[int], port: int) -> list[int]:
        try:
            links = [self._first[pair] for pair in pairwise(nodes)]
        except KeyError:
            raise WeftError(f"topology {self.topology.name}: no links along the path {list(nodes)}") from None
        if port and links:
            count = self._count(nodes[-2], nodes[-1], links[-1])
            links[-1] += port % count
        return links

    def _count(self, tail: int, head: int, first: int) -> int:
        """Number of parallel links, of which this is the first."""
        t, link = self.topology, first
        while link < t.n_links and t.src[link] == tail and t.dst[link] == head:
            link += 1
        return link - first
