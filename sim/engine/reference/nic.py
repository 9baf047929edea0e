"""NICs of the reference engine: what an NPU posts, which engines take it, and what they push into the queue.

A round happens once in a picosecond, after all that delivers and releases, and before the arrivals. It looks at all
that waits, in plain lists.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import simpy


class Transfer(Protocol):
    """A task, as far as a NIC knows it."""

    index: int
    tie_class: int
    port: int
    flow: int


@dataclass(eq=False)
class Want:
    """A chunk that waits to be posted, for an engine, or to be pushed, since a picosecond."""

    task: Transfer
    chunk: int
    work: int
    since_ps: int
    pushed: simpy.Event  # into the queue

    @property
    def key(self) -> tuple[int, int, int, int]:
        """The least comes first."""
        return self.since_ps, self.task.tie_class, self.chunk, self.task.index


@dataclass(eq=False)
class Nic:
    """The NIC of one NPU, and the NPU that posts.

    `now_ps` is the clock; `round_at` calls `round` once in the picosecond that it is given.
    """

    now_ps: Callable[[], int]
    round_at: "Callable[[Nic, int], None]"
    engines: int
    room: int  # work that fits into the queue before engines wait
    post_ps: int
    in_turn: int  # ports of a phase that take turns
    unposted: list[Want] = field(default_factory=list)
    posted: list[Want] = field(default_factory=list)
    pushing: list[Want] = field(default_factory=list)
    holder: dict[int, Transfer] = field(default_factory=dict)  # of each flow that has an engine
    paused: list[Transfer] = field(default_factory=list)  # whose engine has just pushed a chunk
    unpushed: Counter[int] = field(default_factory=Counter)  # transfers of each port that are not pushed in full
    last_port: int | None = None
    may_post_ps: int = 0
    due: set[int] = field(default_factory=set)

    def send(self, task: Transfer, chunk: int, work: int, pushed: simpy.Event) -> simpy.Event:
        """A released chunk: happens when it is in the queue."""
        holds = self.holder.get(task.flow) is task
        (self.pushing if holds else self.unposted).append(Want(task, chunk, work, self.now_ps(), pushed))
        self.something_changed()
        return pushed

    def engine_is_done(self, task: Transfer, all_of_it: bool) -> None:
        """An engine has pushed a chunk of a task."""
        self.paused.append(task)
        self.unpushed[task.port] -= all_of_it
        self.something_changed()

    def served(self, work: int) -> None:
        """The server has done its service of a chunk."""
        self.room += work
        self.something_changed()

    def arrived_again(self, work: int) -> None:
        """A chunk that was lost is in the queue of the server again."""
        self.room -= work

    def dropped(self, work: int) -> None:
        """The server is down and has lost a chunk that waited; the arrivals of this picosecond are over."""
        self.room += work
        self.round_at(self, self.now_ps() + 1)

    def something_changed(self) -> None:
        """Hold a round in this picosecond."""
        self.round_at(self, self.now_ps())

    def round(self) -> None:
        """Free the engines that have nothing to push; post; give engines to what is posted; push."""
        for task in self.paused:
            if not any(want.task is task for want in self.pushing):
                del self.holder[task.flow]
                self.engines += 1
        self.paused = []
        self._post()
        for want in sorted(self.posted, key=lambda want: want.key):
            if self.engines and want.task.flow not in self.holder:
                self.posted.remove(want)
                self.engines -= 1
                self.holder[want.task.flow] = want.task
                want.since_ps = self.now_ps()
                self.pushing.append(want)
        for want in sorted(self.pushing, key=lambda want: want.key):
            if self.room > 0:
                self.pushing.remove(want)
                self.room -= want.work
                want.pushed.succeed()

    def _is_left_out(self, port: int) -> bool:
        """Whether a port was posted last, and another of its phase has transfers that are not pushed in full."""
        if self.in_turn == 0 or port != self.last_port:
            return False
        phase = port // self.in_turn
        return any(count for other, count in self.unpushed.items() if other != port and other // self.in_turn == phase)

    def _post(self) -> None:
        while self.unposted:
            if self.now_ps() < self.may_post_ps:
                self.round_at(self, self.may_post_ps)
                return
            choice = [want for want in self.unposted if not self._is_left_out(want.task.port)]
            if not choice:
                return
            want = min(choice, key=lambda want: want.key)
            self.unposted.remove(want)
            want.since_ps = self.now_ps()
            self.posted.append(want)
            self.last_port = want.task.port
            self.may_post_ps = self.now_ps() + self.post_ps
