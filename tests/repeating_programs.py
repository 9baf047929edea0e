"""Programs that are hard to skip in: parts side by side, each of its own period, that meet and wait for each other.

Each is drawn from a `Random`, so that hypothesis shrinks what fails, and a long run needs no more than a seed. Nearly
all of the chunks of a program are alike, so that most of it repeats; what differs is drawn to end a stretch, or to
begin one, in a place of its own: rates that are equal or 1 ps apart, last chunks that are smaller, streams between
tasks of unequal chunk counts, latencies of none and of a thousand services, queues that grow until what feeds them
ends, windows that let out few chunks, joins without servers, and tasks that start in the middle of a stretch of others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from fractions import Fraction
from random import Random

from hypothesis import strategies as st

from sim.program import DELIVERY, FORWARDING, Cutting, Program, ProgramBuilder

LEAST_CHUNKS, MOST_CHUNKS = 64, 20_000
HOPS_A_TASK = 2
"""Of a task, about."""
BYTE_PS = (1, 2, 3, 5, 7, 12, 100_000, 99_991)
"""What a server takes for a byte: where it is little much happens at once, where it is long everything has its time."""
SHARES = ((1, 1), (1, 1), (1, 1), (2, 1), (1, 2), (3, 2), (2, 3), (3, 1), (1, 7))
"""Chunks of a task for each of those that it waits for."""


def repeating_programs(most_services: int = 12_000) -> st.SearchStrategy[Program]:
    """Programs of some thousand services of fifo servers, without pools, most of which have stretches that repeat."""
    return st.randoms(use_true_random=False).map(lambda rng: repeating_program(rng, most_services))


def repeating_program(rng: Random, most_services: int, least_chunks: int = LEAST_CHUNKS) -> Program:
    """One of them; all of them finish."""
    drawn = _Drawn(rng, ProgramBuilder(rng.choice(FORWARDING), rng.choice(DELIVERY)), rng.randint(1, 4), least_chunks)
    drawn.most_chunks = min(max(most_services // (4 * HOPS_A_TASK * drawn.parts), least_chunks), MOST_CHUNKS)
    for _ in range(drawn.parts):
        drawn.begin_part()
        rng.choice(SHAPES)(drawn)
    for _ in range(rng.choice((0, 0, 1, 2))):
        _late(drawn)
    return drawn.builder.build()


@dataclass
class _Drawn:
    """What has been drawn: tasks with their chunks, servers of all parts, and what those of this part are like."""

    rng: Random
    builder: ProgramBuilder
    parts: int
    least_chunks: int
    most_chunks: int = MOST_CHUNKS
    chunks: list[int] = field(default_factory=list)
    servers: list[int] = field(default_factory=list)
    byte_ps: int = 1
    size: int = 1
    classes: int = 0
    first: int = 0
    tail: bool = False

    def begin_part(self) -> None:
        """Draw what the servers and tasks of the next part have in common."""
        rng = self.rng
        self.byte_ps, self.size = rng.choice(BYTE_PS), rng.randint(1, 3)
        self.classes, self.first, self.tail = rng.choice((0, 0, 0, 2)), len(self.chunks), rng.random() < 0.4

    def rarely(self, one_in: int) -> bool:
        return self.rng.randrange(one_in) == 0

    def count(self) -> int:
        """Chunks of a task, evenly by their logarithm."""
        fewest = self.most_chunks / self.least_chunks
        return int(self.least_chunks * fewest ** self.rng.random())

    def server(self, alike: bool = False) -> int:
        """A server: as fast as most of this part, or 1 ps from it, or a multiple; now and then one of any part."""
        if self.servers and self.rarely(8):
            return self.rng.choice(self.servers)
        near = 0 if alike else self.rng.choice((0, 0, 0, 1, -1))
        times = Fraction(1) if alike else self.rng.choice((Fraction(1), Fraction(1), Fraction(2), Fraction(1, 2)))
        ps = max(self.byte_ps * times + Fraction(near, self.size), Fraction(1, 2))
        self.servers.append(self.builder.server(10**12 / ps))
        return self.servers[-1]

    def latency(self) -> int:
        service = self.byte_ps * self.size
        return self.rng.choice((0, 0, 0, 1, service, service + 1, 7 * service, self.rng.choice((0, 1000 * service))))

    def path(self, hops: int, last: Iterable[int] = ()) -> list[tuple[int, int]]:
        own = [self.server() for _ in range(hops)]
        return [(server, self.latency()) for server in (*own, *last)]

    def near(self, chunks: int) -> int:
        """Chunks of a task that waits for one of so many."""
        most, least = self.rng.choice(SHARES)
        return min(max(chunks * most // least + self.rng.choice((0, 0, 0, 1, -1)), 1), MOST_CHUNKS)

    def task(
        self, chunks: int, path: list[tuple[int, int]], after: Iterable[int] = (), stream: Iterable[int] = ()
    ) -> int:
        """Add a task of so many chunks, some of which are smaller than the others in some parts."""
        rng, work = self.rng, self.size * chunks
        cutting = Cutting(chunks, packet_header_bytes=rng.choice((0, 0, 1)))
        if self.tail and self.size > 1:
            if self.rarely(2):
                work -= rng.choice((1, min(chunks // 2, work - chunks)))
            else:
                work, cutting = work - rng.randint(0, self.size - 1), Cutting(None, self.size)
        tie_class = rng.randint(0, self.classes)
        self.chunks.append(chunks if path or work else 1)
        return self.builder.task(work, path, cutting, after=after, stream=stream, tie_class=tie_class)

    def earlier(self) -> list[int]:
        """Now and then a task of another part, to be waited for."""
        return [self.rng.randrange(self.first)] if self.first and self.rarely(4) else []


def _chain(drawn: _Drawn) -> None:
    """Streams behind each other, of unequal chunk counts."""
    before = drawn.task(drawn.count(), drawn.path(drawn.rng.randint(1, 3)), after=drawn.earlier())
    for _ in range(drawn.rng.randint(0, 3)):
        whole = drawn.rarely(5)
        hops = drawn.rng.randint(0, 2)
        chunks = drawn.near(drawn.chunks[before])
        before = drawn.task(
            chunks, drawn.path(hops), after=[before] if whole else drawn.earlier(), stream=[] if whole else [before]
        )


def _incast(drawn: _Drawn) -> None:
    """Senders of equal and nearly equal rates to servers that serve fewer chunks than come."""
    alike, chunks = drawn.rarely(2), drawn.count()
    shared = [drawn.server(alike) for _ in range(drawn.rng.randint(1, 2))]
    sent = []
    for _ in range(drawn.rng.randint(2, 5)):
        own = [(drawn.server(alike), drawn.latency())] * (not drawn.rarely(6))
        path = own + [(server, drawn.latency()) for server in shared]
        sent.append(drawn.task(chunks if alike else drawn.count(), path, after=drawn.earlier()))
    if drawn.rarely(2):
        one = drawn.rng.choice(sent)
        drawn.task(drawn.near(drawn.chunks[one]), drawn.path(1, shared[: drawn.rng.randint(0, 1)]), stream=[one])


def _ring(drawn: _Drawn) -> None:
    """Steps around a ring: each task streams behind that of its neighbor, over some links in a row."""
    n, hops, chunks = drawn.rng.randint(2, 4), drawn.rng.randint(1, 2), drawn.count()
    links, latency = [drawn.server(alike=not drawn.rarely(4)) for _ in range(n)], drawn.latency()
    before: list[int] = []
    for _ in range(drawn.rng.randint(1, 3)):
        before = [
            drawn.task(chunks, [(links[(at + hop) % n], latency) for hop in range(hops)],
                       stream=[before[at - 1]] if before else [])
            for at in range(n)
        ]


def _levels(drawn: _Drawn) -> None:
    """Up a hierarchy by streams of fewer and more chunks, across as a whole or not, and down again."""
    up, down = drawn.path(1), drawn.path(1)
    leaves = [drawn.task(drawn.count(), drawn.path(1), after=drawn.earlier()) for _ in range(drawn.rng.randint(1, 3))]
    lifted = [drawn.task(drawn.near(drawn.chunks[leaf]), up, stream=[leaf]) for leaf in leaves]
    top = drawn.task(drawn.near(drawn.chunks[lifted[0]]), drawn.path(drawn.rng.randint(0, 1)), stream=lifted)
    for leaf in leaves:
        drawn.task(drawn.near(drawn.chunks[leaf]), down, **{drawn.rng.choice(("after", "stream")): [top]})


def _windows(drawn: _Drawn) -> None:
    """A task whose chunks wait for its own, or for those of the task that streams behind it."""
    one = drawn.task(drawn.count(), drawn.path(drawn.rng.randint(1, 3)), after=drawn.earlier())
    if drawn.rarely(2):
        drawn.builder.window(one, one, drawn.rng.choice((1, 2, 3, 8, 50)))
        return
    other = drawn.task(drawn.chunks[one], drawn.path(drawn.rng.randint(0, 2)), stream=[one])
    drawn.builder.window(one, other, drawn.rng.choice((1, 2, 3, 8, 50)))


def _late(drawn: _Drawn) -> None:
    """A few chunks that come to where others are served, at some time in the middle."""
    drawn.begin_part()
    ps = drawn.rng.randint(1, 100 * drawn.most_chunks) * drawn.rng.choice((1, drawn.byte_ps))
    start = drawn.task(1, [(drawn.builder.server(10**12), ps)])
    path = [(drawn.rng.choice(drawn.servers), drawn.latency()) for _ in range(drawn.rng.randint(1, 2))]
    drawn.task(drawn.rng.choice((1, 2, drawn.count())), path, after=[start])


SHAPES: tuple[Callable[[_Drawn], None], ...] = (_chain, _incast, _ring, _levels, _windows)
