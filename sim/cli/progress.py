"""Progress on standard error: a bar on a terminal, plain lines elsewhere if asked for, nothing when quiet."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING, Protocol

from sim.program.outcome import Stopped
from topologies import WeftError

if TYPE_CHECKING:
    from sim.engine.run import Progress

PLAIN_SECONDS = 2.0
"""Interval between plain lines."""

LONG_SECONDS = 20.0
"""What a step must still take to be announced where no progress is shown."""


class Steps(Protocol):
    """Progress reports of a command."""

    def begin(self, what: str) -> None:
        """Report the current step."""

    def advance(self, what: str) -> None:
        """Count a finished step."""

    def within(self, inside: Progress) -> None:
        """Report progress inside a long step."""


class _Quiet:
    def begin(self, what: str) -> None:
        pass

    def advance(self, what: str) -> None:
        pass

    def within(self, inside: Progress) -> None:
        pass


class _Warning(_Quiet):
    """One line, and only of a step that takes long."""

    def __init__(self, title: str) -> None:
        self.title, self.is_said = title, False

    def within(self, inside: Progress) -> None:
        if not self.is_said and inside.seconds_left > LONG_SECONDS:
            self.is_said = True
            print(f"{self.title}: {inside.total_events:,} services, {_pace(inside)}", file=sys.stderr, flush=True)


class _Plain:
    """At most one line every few seconds, and one at the end."""

    def __init__(self, title: str, total: int) -> None:
        self.title, self.total, self.done = title, total, 0
        self.last = monotonic()

    def begin(self, what: str) -> None:
        pass

    def advance(self, what: str) -> None:
        self.done += 1
        if self.done == self.total or monotonic() - self.last > PLAIN_SECONDS:
            self._line(what)

    def within(self, inside: Progress) -> None:
        if monotonic() - self.last > PLAIN_SECONDS:
            self._line(f"then {_pace(inside)}")

    def _line(self, what: str) -> None:
        self.last = monotonic()
        print(f"{self.title}: {self.done}/{self.total} done, {what}", file=sys.stderr, flush=True)


@contextmanager
def progress(title: str, total: int, quiet: bool | None = False) -> Iterator[Steps]:
    """Progress over `total` steps; Ctrl-C and limits inside report how many were done.

    `quiet`: True: nothing; False: a bar on a terminal, lines elsewhere; None: a bar on a terminal; elsewhere
    a line before what takes long.
    """
    with _shown(title, total, quiet) as shown:
        steps = _Counting(shown)
        try:
            yield steps
        except KeyboardInterrupt:
            raise WeftError(f"interrupted, with {steps.done} of {total} done; nothing was written") from None
        except WeftError as wrong:
            if total > 1 and _has_stopped(wrong):
                wrong.args = (f"{wrong}, after {steps.done} of {total} points",)
            raise


def _has_stopped(wrong: WeftError) -> bool:
    return isinstance(wrong, Stopped)


@contextmanager
def _shown(title: str, total: int, quiet: bool | None) -> Iterator[Steps]:
    if quiet or total < 1:
        yield _Quiet()
    elif sys.stderr.isatty():
        with _bar(title, total) as steps:
            yield steps
    else:
        yield _Warning(title) if quiet is None else _Plain(title, total)


class _Counting:
    """Steps that count how many are done, however they are shown."""

    def __init__(self, shown: Steps) -> None:
        self.begin, self.within, self._advance, self.done = shown.begin, shown.within, shown.advance, 0

    def advance(self, what: str) -> None:
        self.done += 1
        self._advance(what)


def _share(inside: Progress) -> float:
    return inside.events / max(inside.total_events, 1)


def _pace(inside: Progress) -> str:
    """How much of a long step is done, how fast, and how long it will take at that rate."""
    return f"{_share(inside):.0%} at {inside.events_per_s / 1e6:.1f} M services/s, {inside.seconds_left:.0f} s left"


@contextmanager
def _bar(title: str, total: int) -> Iterator[Steps]:
    from rich.console import Console  # only at a terminal
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bars

    counts = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    columns = (TextColumn(title), *counts, TextColumn("{task.description}"))
    with Bars(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=total)

        class _Bar:
            done = 0

            def begin(self, what: str) -> None:
                bar.update(task, description=what)

            def advance(self, what: str) -> None:
                self.done += 1
                bar.update(task, completed=self.done, description=what)

            def within(self, inside: Progress) -> None:
                bar.update(task, completed=self.done + _share(inside), description=_pace(inside))

        yield _Bar()
