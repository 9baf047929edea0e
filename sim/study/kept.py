"""Fabrics that are kept, so that one that is read, keyed and run is built once: as many as a limit on links allows."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock

from topologies import Topology

MOST_LINKS = 2**21
"""Limit on the links of all fabrics that are kept: 32 MiB of rates; 8,192 of torus:8x8, whose wiring is shared."""

LAST = 4
"""Fabrics that are kept whatever their links."""


class Kept:
    """The fabrics that were asked for last, by what they were built from."""

    def __init__(self, most_links: int = MOST_LINKS) -> None:
        self.most_links, self.n_links = most_links, 0
        self._known: OrderedDict[Hashable, Topology] = OrderedDict()
        self._lock = Lock()

    def get(self, key: Hashable, build: Callable[[], Topology]) -> Topology:
        """The fabric of a key, built unless it is kept."""
        with self._lock:
            if key in self._known:
                self._known.move_to_end(key)
                return self._known[key]
        built = build()
        with self._lock:
            found = self._known.setdefault(key, built)  # another thread may have been first
            self.n_links += built.n_links if found is built else 0
            while self.n_links > self.most_links and len(self._known) > LAST:
                self.n_links -= self._known.popitem(last=False)[1].n_links
        return found
