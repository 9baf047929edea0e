"""What a process shares with others and with the system: signals, cores, the search for garbage, turns at a file.

Signals are held back while other people's code runs that does not hear them: an exception raised in a callback of
numba's compiler is lost, and the code with it; a solver goes on to its end first. A lock on a file gives one process
at a time its turn, and the system releases it when the process ends, however it ends.
"""

import contextlib
import ctypes
import gc
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, TypeVar, cast

if TYPE_CHECKING:
    from concurrent.futures import Future

try:
    import fcntl
except ImportError:  # not on Windows: nobody waits
    fcntl = None  # type: ignore[assignment]  # a module elsewhere

T = TypeVar("T")

ENDING = (signal.SIGINT, signal.SIGTERM)
"""Signals that ask a program to end."""

FREED_BYTES = 128 * 2**20
"""What a process keeps of the memory it has freed."""

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
"""Of glibc's `mallopt`."""

Guard = Callable[[], AbstractContextManager[None]]


def handled() -> dict[signal.Signals, Callable[[int, FrameType | None], object]]:
    """The handlers in Python of `ENDING`, which only the main thread may change: elsewhere none."""
    if threading.current_thread() is not threading.main_thread():
        return {}
    found = {number: signal.getsignal(number) for number in ENDING}
    return {number: one for number, one in found.items() if callable(one) and not isinstance(one, signal.Handlers)}


def keep_freed() -> None:
    """Take arrays of up to 32 MiB from memory that was freed: a new page costs the system more than to fill it."""
    with contextlib.suppress(AttributeError, OSError, TypeError):  # not every system has it
        system = ctypes.CDLL(None)
        system.mallopt(M_MMAP_THRESHOLD, FREED_BYTES // 4)
        system.mallopt(M_TRIM_THRESHOLD, FREED_BYTES)


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


HEARD_S = 0.1
"""How often a wait for a solver looks for signals."""

_left: list["Future[object]"] = []
"""Calls that were interrupted while they ran."""


def is_left_running() -> bool:
    """Whether an interrupted call still runs: the process has to end at once, or the solver's threads abort it."""
    return not all(one.done() for one in _left)


def heard(solve: Callable[[], T]) -> T:
    """What a long call into compiled code gives, during which Ctrl-C and SIGTERM are heard at once.

    The call runs in a thread of its own; if this one is interrupted, it is left to itself and ends with the process.
    """
    if threading.current_thread() is not threading.main_thread():
        return solve()
    from concurrent.futures import Future, wait  # loads logging, which no command needs that solves nothing

    found: Future[Any] = Future()

    def run() -> None:
        try:
            found.set_result(solve())
        except BaseException as error:  # raised again where it is waited for
            found.set_exception(error)

    try:
        threading.Thread(target=run, name="solve", daemon=True).start()
        while not wait([found], HEARD_S).done:
            pass
    except BaseException:
        _left.append(found)
        raise
    return cast(T, found.result())


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


SELDOM = (20_000, 50, 1_000)
"""Thresholds of the garbage collector."""


@contextmanager
def few_searches() -> Iterator[None]:
    """While something is compiled a fifth of the time goes into searches at the usual thresholds; on a long path, more.

    Examples
    --------
    >>> with few_searches():
    ...     kept = [object() for _ in range(100_000)]
    """
    thresholds = gc.get_threshold()
    gc.set_threshold(*(own and max(own, seldom) for own, seldom in zip(thresholds, SELDOM, strict=True)))
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)


class Turn:
    """The turn of this process at something that a file stands for; where there are no locks nobody waits.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     turn = Turn(Path(folder) / "lock")
    ...     turn.take()
    ...     turn.give_back()
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: int | None = None

    def take(self) -> None:
        """Wait until no other process has it, unless this one has."""
        if self._file is None and fcntl is not None:
            with contextlib.suppress(OSError):
                self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
                fcntl.flock(self._file, fcntl.LOCK_EX)

    def give_back(self) -> None:
        """Let the next process go on, if this one has the turn."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
