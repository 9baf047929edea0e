"""SIGTERM, by which batch systems and containers end a program: it ends a command as Ctrl-C does, in order."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from topologies.process import handled


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


CLEAR_LINE = b"\r\x1b[K\x1b[?25h"
"""To a terminal: whatever progress is shown goes, and the cursor comes back."""


@contextmanager
def ends_at_once(command: str) -> Iterator[None]:
    """SIGTERM and Ctrl-C end the process inside a `with`, with one line: a compiler hears no exception for seconds.

    Python's handlers wait for the compiler to return. So a thread listens too, to the pipe that the interpreter writes
    to when a signal arrives, and whoever hears of it first ends the process.
    """
    before = handled()
    if not before:
        yield
        return
    ending = threading.Lock()

    def end(number: int, frame: FrameType | None = None) -> None:
        if ending.acquire(blocking=False):
            line = f"weft {command}: interrupted while the engine was compiled\n".encode()
            os.write(2, CLEAR_LINE + line if os.isatty(2) else line)
            os._exit(128 + number)

    def listen() -> None:
        while heard := os.read(listens, 1):
            if heard[0] in before:
                end(heard[0])

    listens, tells = os.pipe()
    os.set_blocking(tells, False)
    listener = threading.Thread(target=listen, name="end at once", daemon=True)
    listener.start()
    told = signal.set_wakeup_fd(tells, warn_on_full_buffer=False)
    for number in before:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(told)
        os.close(tells)
        listener.join()
        os.close(listens)
