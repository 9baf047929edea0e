"""Servers of the reference engine whose queues take turns, in plain lists: deficit round robin."""

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar


class Waiting(Protocol):
    """A chunk at a hop, as far as turns are concerned."""

    @property
    def queue(self) -> Hashable:
        """What has its turn when it is served."""

    @property
    def key(self) -> tuple[int, ...]:
        """Of the order in which chunks arrive; the least came first."""

    @property
    def cost(self) -> int:
        """What it costs its queue to be served."""


Chunk = TypeVar("Chunk", bound=Waiting)


@dataclass
class _Queue(Generic[Chunk]):
    """Chunks of one flow, or from one port."""

    name: Hashable
    allowance: int
    chunks: list[Chunk] = field(default_factory=list)


@dataclass
class Turns(Generic[Chunk]):
    """The line of a channel, in which at most the queue in front is empty. `quantum`: what a queue gets every turn."""

    quantum: int
    line: list[_Queue[Chunk]] = field(default_factory=list)

    def line_up(self, waiting: list[Chunk]) -> None:
        """Let the chunks that are new among all that wait join their queues, before what came after them."""
        known = [chunk for queue in self.line for chunk in queue.chunks]
        for chunk in sorted((one for one in waiting if one not in known), key=lambda one: one.key):
            chunks = self._in_line(chunk.queue).chunks
            later = (at for at, one in enumerate(chunks) if one.key > chunk.key)
            chunks.insert(next(later, len(chunks)), chunk)

    def choose(self) -> Chunk:
        """The chunk to serve now; one waits at least."""
        while True:
            queue = self.line.pop(0)
            if not queue.chunks:
                continue
            if queue.chunks[0].cost <= queue.allowance:
                self.line.insert(0, queue)
                return queue.chunks[0]
            queue.allowance += self.quantum
            self.line.append(queue)

    def leave(self, chunk: Chunk) -> None:
        """Let the chunk that was chosen leave its queue."""
        self.line[0].chunks.remove(chunk)

    def pay(self, chunk: Chunk) -> None:
        """Serve the chunk that was chosen."""
        self.line[0].allowance -= chunk.cost

    def _in_line(self, name: Hashable) -> _Queue[Chunk]:
        found = next((queue for queue in self.line if queue.name == name), None)
        if found is None:
            found = _Queue(name, self.quantum)
            self.line.append(found)
        return found
