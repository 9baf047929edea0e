"""What a rank does in one pass: kernels one after the other, and collectives on streams beside them."""

from collections.abc import Callable
from typing import NamedTuple

Times = Callable[[str, float, str], int]
"""What a collective takes, in ps: (kind, bytes of the array, group)."""


class Work(NamedTuple):
    """A kernel, in ps."""

    kind: str
    begin: int
    end: int


class Begun(NamedTuple):
    """A collective on its way, in ps."""

    kind: str
    size_bytes: float
    group: str
    begin: int
    end: int
    behind: "Begun | None" = None  # waits for it

    @property
    def named(self) -> str:
        """What tables call it."""
        return f"{self.group} {self.kind}"


class Wait(NamedTuple):
    """For a collective; what kernels beside it lost, in ps."""

    begun: Begun
    slowed: int


class Tape:
    """Kernels run on one stream in the order in which they are given, as CUDA runs them.

    `slowed`: the share that kernels beside a collective lose, by its group.
    `pace`: factor on the times of kernels.

    A collective runs on the stream of its group, after what was given before it; the computation goes on at once, and
    waits where it is told to. A collective of one rank takes no time.
    """

    def __init__(self, times: Times, slowed: Callable[[str], float] = lambda group: 0.0, pace: float = 1.0) -> None:
        self.now, self.script = 0, list[Work | Begun | Wait]()
        self.exposed: dict[str, int] = {}  # by kind, what the computation waited
        self._times, self._slowed, self._streams, self._pace = times, slowed, dict[str, int](), pace

    def work(self, kind: str, seconds: float) -> None:
        """A kernel."""
        begin, self.now = self.now, self.now + round(seconds * self._pace * 1e12)
        self.script.append(Work(kind, begin, self.now))

    def begin(self, kind: str, size_bytes: float, group: str, behind: Begun | None = None) -> Begun:
        """A collective, behind another one; returns what to wait for."""
        time = self._times(kind, size_bytes, group)
        if not time:
            return Begun(kind, size_bytes, group, self.now, self.now)
        begin = max(self.now, self._streams.get(group, 0), behind.end if behind else 0)
        self._streams[group] = begin + time
        found = Begun(kind, size_bytes, group, begin, begin + time, behind)
        self.script.append(found)
        return found

    def wait(self, begun: Begun) -> None:
        """Go on when a collective has ended; kernels beside it took longer."""
        beside = max(0, min(self.now, begun.end) - begun.begin)
        slowed = round(beside * self._slowed(begun.group))
        self.now += slowed
        if begun.end > begun.begin:
            self.script.append(Wait(begun, slowed))
        if begun.end > self.now:
            self.exposed[begun.named] = self.exposed.get(begun.named, 0) + begun.end - self.now
            self.now = begun.end

    def call(self, kind: str, size_bytes: float, group: str) -> None:
        """A collective that the computation waits for."""
        self.wait(self.begin(kind, size_bytes, group))

    @property
    def compute(self) -> int:
        """Time of the kernels."""
        return self.now - sum(self.exposed.values())
