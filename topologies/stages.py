"""Stages of a command, such as "proof" and "engine": the time and the memory of each, and how far, if anybody asks.

Functions that do the work of a stage are decorated with `staged`. A stage inside another stops the clock of the outer
one, so that all of them add up to the whole. Worker processes measure theirs, which are rows of their own: the sum of
all workers (`sim.study.processes`).

They are "imports", "parse" (flags and files), "topology", "pattern" (schedules and jobs), "proof", "lowering",
"quotient", "bounds", "engine", "compilation" (kernels are compiled, or found compiled and loaded), "check" (of
certificates), "critical path", "search" (of an optimizer or for a plan, without what it runs), "fit" (of constants or
causes to measured tables) and "output".
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import wraps
from importlib import import_module
from time import perf_counter, process_time
from typing import Any, ParamSpec, TypeVar

try:
    import resource
except ImportError:  # not on Windows
    resource = None  # type: ignore[assignment]  # a module elsewhere

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

OTHER = "other"
"""What is in no stage."""


@dataclass
class Stage:
    """What one stage took: seconds on the clock and of the processor, and bytes by which the peak of memory grew."""

    wall_s: float = 0.0
    cpu_s: float = 0.0
    peak_bytes: int = 0
    calls: int = 0  # times that it was entered, also where what an earlier call built was only looked up

    def add(self, other: "Stage") -> None:
        """What another process took for the same; the peaks of both were there at once."""
        self.wall_s += other.wall_s
        self.cpu_s += other.cpu_s
        self.peak_bytes += other.peak_bytes
        self.calls += other.calls


@dataclass
class Profile:
    """The stages of a command, in the order in which they began."""

    stages: dict[str, Stage] = field(default_factory=dict)
    of_workers: dict[str, Stage] = field(default_factory=dict)  # all together
    workers: int = 0  # which these are of
    unmeasured: int = 0  # workers that were ended before they could tell theirs
    _open: list[str] = field(default_factory=lambda: [OTHER])
    _at: tuple[float, float, int] = field(default_factory=lambda: _now())

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Count what happens inside as a stage."""
        self._count()
        self._open.append(name)
        self.stages.setdefault(name, Stage()).calls += 1
        try:
            yield
        finally:
            self._count()
            self._open.pop()

    def add(self, stages: Mapping[str, Stage]) -> None:
        """Add what a worker has measured."""
        self.workers += 1
        for name, one in stages.items():
            self.of_workers.setdefault(name, Stage()).add(one)

    def up_to_now(self) -> dict[str, Stage]:
        """The stages of this process."""
        self._count()
        return self.stages

    def rows(self) -> list[dict[str, Any]]:
        """One row for each stage, up to now; rows with a number of workers are of those."""
        own = [{"stage": name, **vars(one)} for name, one in self.up_to_now().items()]
        of_workers = [{"stage": name, **vars(one), "workers": self.workers} for name, one in self.of_workers.items()]
        return own + of_workers

    def _count(self) -> None:
        """Give what has passed since the last call to the stage that is open."""
        now, one = _now(), self.stages.setdefault(self._open[-1], Stage())
        one.wall_s += now[0] - self._at[0]
        one.cpu_s += now[1] - self._at[1]
        one.peak_bytes += now[2] - self._at[2]
        self._at = now


_profile: Profile | None = None

_under_way: list[str] = []
"""Stages that have begun and not ended, the innermost last."""


def under_way() -> str:
    """What this process does now: a stage, or what `doing` was given; "" outside all."""
    now = _under_way[-1:]  # one step: the other thread that looks here may not find it empty in between
    return now[0] if now else ""


@contextmanager
def doing(what: str) -> Iterator[None]:
    """For the length of a `with`, this is what is done: for calls that count nothing, with their size."""
    _under_way.append(what)
    try:
        yield
    finally:
        _under_way.pop()


def start_profile() -> Profile:
    """Measure from now on; returns what is measured."""
    global _profile
    _profile = Profile()
    return _profile


def profiled() -> Profile | None:
    """What is measured now, if anything is."""
    return _profile


def end_profile() -> None:
    """Measure no more."""
    global _profile
    _profile = None


def staged(name: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorate a function that does the work of a stage."""

    def decorated(function: Callable[P, R]) -> Callable[P, R]:
        @wraps(function)
        def within(*args: P.args, **named: P.kwargs) -> R:
            _under_way.append(name)
            try:
                if _profile is None:
                    return function(*args, **named)
                with _profile.stage(name):
                    return function(*args, **named)
            finally:
                _under_way.pop()

        return within

    return decorated


@staged("imports")
def imported(name: str) -> Any:
    """A module that takes long to load, where it is used."""
    return import_module(name)


_tell: Callable[[str], None] | None = None


def tell_compiling(tell: Callable[[str], None] | None) -> None:
    """From now on, call this with the name of each kernel before it is compiled, which takes seconds."""
    global _tell
    _tell = tell


def compiling(name: str) -> None:
    """A kernel of this name is compiled next."""
    if _tell is not None:
        _tell(name)


Counted = Callable[[str, int, int], None]
"""Hears what a long loop counts, how many are done, and of how many at most."""

_counted: Counted | None = None


@contextmanager
def hearing(counted: Counted) -> Iterator[None]:
    """Long loops tell this how far they are, for the length of a `with`."""
    global _counted
    before, _counted = _counted, counted
    try:
        yield
    finally:
        _counted = before


def count(unit: str, done: int, total: int) -> None:
    """A long loop has done so many of at most `total` units, such as "maximum flows"."""
    if _counted is not None:
        _counted(unit, done, total)


def counting(unit: str, items: Sequence[T]) -> Iterator[T]:
    """The items of a long loop that writes, counted by the thousand.

    Examples
    --------
    >>> list(counting("lines", "abc"))
    ['a', 'b', 'c']
    """
    for done, item in enumerate(items):
        if done % 1024 == 0:
            count(unit, done, len(items))
        yield item


@contextmanager
def counting_of(what: str, unit: str) -> Iterator[None]:
    """For the length of a `with`, what is counted in this unit is of this, such as one search among several."""
    if _counted is None:
        yield
        return
    before = _counted
    with hearing(lambda one, done, total: before(f"{unit} of {what}" if one == unit else one, done, total)):
        yield


def _now() -> tuple[float, float, int]:
    peak = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss if resource is not None else 0
    return perf_counter(), process_time(), peak
