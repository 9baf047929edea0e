"""The messages of a job, as transfers of single bytes, and where they join what is before and after on each NPU."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from collectives.core.transfers import Transfers
from topologies import Topology
from topologies.core.paths import ranges
from workloads.job import Send

I64 = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Messages:
    """The messages of some sends, one send after the other."""

    topology: Topology
    sends: tuple[Send, ...]
    n_sources: int | None = None

    @property
    def p(self) -> int:
        """Number of ranks."""
        return self.topology.n_npus

    @cached_property
    def all(self) -> I64:
        """Number of the send, place in it, source and destination of each message, (4, n)."""
        count = np.array([len(send.src) for send in self.sends], np.int64)
        src, dst = _flat(send.src for send in self.sends), _flat(send.dst for send in self.sends)
        return np.stack([np.repeat(np.arange(count.size), count), ranges(np.zeros_like(count), count), src, dst])

    def of_sends(self, attribute: str) -> npt.NDArray[Any]:
        """An attribute of the send of each message, (n,)."""
        found: npt.NDArray[Any] = np.array([getattr(send, attribute) for send in self.sends])[self.all[0]]
        return found

    def emit(self, ranks: npt.NDArray[np.integer]) -> Transfers:
        """The messages of some sources."""
        kept = np.flatnonzero(np.isin(self.all[2], ranks))
        place, src, dst = self.all[1:, kept].astype(np.int32)
        none, zero = np.zeros(0, np.int32), np.zeros(src.size, np.int32)
        found = Transfers(
            src=src, dst=dst, slot=np.where(self.of_sends("ordered")[kept], place, zero), step=zero, port=zero,
            blocks=np.ones(src.size, np.int64), reduces=zero.astype(np.bool_), tie_class=zero.astype(np.int64),
            dep_ptr=np.zeros(src.size + 1, np.int64), dep_src=none, dep_slot=none, dep_lag=none,
        )
        if any(send.via for send in self.sends):
            routes = [links for send in self.sends for links in send.via or ((),) * len(send.src)]
            via = [routes[at] for at in kept.tolist()]
            ptr = np.concatenate(([0], np.cumsum([len(links) for links in via], dtype=np.int64)))
            found = found._replace(via_ptr=ptr, via_links=_flat(via).astype(np.int32))
        laps = self.of_sends("laps")[kept]
        if np.any(laps > 1):
            found = found._replace(rounds=np.stack([zero, laps.astype(np.int32)], axis=1))
        return found


def _flat(parts: Iterable[Iterable[int]]) -> I64:
    return np.fromiter(chain.from_iterable(parts), np.int64)
