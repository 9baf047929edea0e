"""Beats: another thread says what is under way while the command itself is silent, at every moment of a command."""

import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread
from time import monotonic

from topologies.stages import under_way

SILENT_SECONDS = 1.0
"""How long a stage lasts before it is named."""

BEAT_SECONDS = 0.25
"""How often it is looked at what is under way."""

LONG_SECONDS = 20.0
"""What a step must still take, or a stage have taken, to be announced where no progress is shown."""

LONGEST_SECONDS = 5.0
"""Most that passes between two lines outside the steps of a command."""

Beat = Callable[[str], None]
"""Reports what is under way, such as "3 s in proof"."""

_hearers: list[Beat] = []
"""Who is told, the innermost last; the others are silent."""


@contextmanager
def beating(beat: Beat) -> Iterator[None]:
    """Another thread says what is under way while this one is silent: in kernels, solvers, and what does not count."""
    ended = Event()

    def listen() -> None:
        began, before = monotonic(), ""
        while not ended.wait(BEAT_SECONDS):
            what, hears = under_way(), _hearers[-1:] == [beat]
            if what != before or not hears:
                began, before = monotonic(), what
            elif monotonic() - began > SILENT_SECONDS:
                beat(f"{monotonic() - began:.0f} s in {what or 'other work'}")

    _hearers.append(beat)
    listener = Thread(target=listen, name="progress", daemon=True)
    listener.start()
    try:
        yield
    finally:
        _hearers.remove(beat)
        ended.set()
        listener.join()


@contextmanager
def speaking(command: str, quiet: bool | None) -> Iterator[None]:
    """Beats for the length of a command, for what it does outside its steps: lines, and fewer and fewer of them.

    `quiet`: True: none; False: always; None: at a terminal, and elsewhere one of what takes long.
    """
    if quiet:
        yield
        return
    is_shown, began = quiet is False or sys.stderr.isatty(), monotonic()
    due = 0.0 if is_shown else LONG_SECONDS

    def say(what: str) -> None:
        nonlocal due
        taken = monotonic() - began
        if taken >= due:
            due = taken + min(taken, LONGEST_SECONDS) if is_shown else math.inf
            print(f"{command}: {what}", file=sys.stderr, flush=True)

    with beating(say):
        yield
