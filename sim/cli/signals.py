"""SIGTERM, by which batch systems and containers end a program: it ends a command as Ctrl-C does, in order."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Terminated(KeyboardInterrupt):
    """SIGTERM arrived: code that cleans up after Ctrl-C also cleans up after it."""


@contextmanager
def ends_in_order() -> Iterator[None]:
    """SIGTERM raises `Terminated` for the length of a `with`; a second one ends the process at once.

    Only the main thread of a process receives signals: in another one nothing changes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        raise Terminated

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL if before is None else before)
