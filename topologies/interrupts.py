"""Signals while numba compiles or loads code: an exception raised in its callbacks is lost, and the code with it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from types import FrameType

ENDING = (signal.SIGINT, signal.SIGTERM)
"""Signals that ask a program to end."""

Guard = Callable[[], AbstractContextManager[None]]


def handled() -> dict[signal.Signals, Callable[[int, FrameType | None], object]]:
    """The handlers in Python of `ENDING`, which only the main thread may change: elsewhere none."""
    if threading.current_thread() is not threading.main_thread():
        return {}
    found = {number: signal.getsignal(number) for number in ENDING}
    return {number: one for number, one in found.items() if callable(one) and not isinstance(one, signal.Handlers)}


@contextmanager
def held_back() -> Iterator[None]:
    """A signal that arrives inside is delivered at the end."""
    before, held = handled(), list[int]()

    def hold(number: int, frame: FrameType | None) -> None:
        held.append(number)

    for number in before:
        signal.signal(number, hold)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if held:
            signal.raise_signal(held[0])


_guard: Guard = held_back


def while_compiling(guard: Guard | None) -> None:
    """From now on, compile and load code inside this; None: signals are held back until it is there."""
    global _guard
    _guard = held_back if guard is None else guard


def guarded() -> AbstractContextManager[None]:
    """What code is compiled and loaded in."""
    return _guard()
