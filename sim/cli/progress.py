"""Progress on standard error: a bar on a terminal, plain lines elsewhere, nothing when quiet."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Protocol

PLAIN_SECONDS = 2.0
"""Between two plain lines."""


class Steps(Protocol):
    """What a command tells while it works."""

    def begin(self, what: str) -> None:
        """Say what is being done."""

    def advance(self, what: str) -> None:
        """One more step is done."""

    def within(self, share: float) -> None:
        """How much of a long step is done, 0 to 1."""


class _Quiet:
    def begin(self, what: str) -> None:
        pass

    def advance(self, what: str) -> None:
        pass

    def within(self, share: float) -> None:
        pass


class _Plain:
    """At most a line every few seconds, and one at the end."""

    def __init__(self, title: str, total: int) -> None:
        self.title, self.total, self.done = title, total, 0
        self.last = monotonic()

    def begin(self, what: str) -> None:
        pass

    def advance(self, what: str) -> None:
        self.done += 1
        if self.done == self.total or monotonic() - self.last > PLAIN_SECONDS:
            self._line(what)

    def within(self, share: float) -> None:
        if monotonic() - self.last > PLAIN_SECONDS:
            self._line(f"{share:.0%} of this one")

    def _line(self, what: str) -> None:
        self.last = monotonic()
        print(f"{self.title}: {self.done}/{self.total} done, {what}", file=sys.stderr, flush=True)


@contextmanager
def progress(title: str, total: int, quiet: bool = False) -> Iterator[Steps]:
    """Progress over `total` steps."""
    if quiet or total < 1:
        yield _Quiet()
    elif not sys.stderr.isatty():
        yield _Plain(title, total)
    else:
        with _bar(title, total) as steps:
            yield steps


@contextmanager
def _bar(title: str, total: int) -> Iterator[Steps]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    counts = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    columns = (TextColumn(title), *counts, TextColumn("{task.description}"))
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=total)

        class _Bar:
            done = 0

            def begin(self, what: str) -> None:
                bar.update(task, description=what)

            def advance(self, what: str) -> None:
                self.done += 1
                bar.update(task, completed=self.done, description=what)

            def within(self, share: float) -> None:
                bar.update(task, completed=self.done + share)

        yield _Bar()
