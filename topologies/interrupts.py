"""Signals while other people's code runs that does not hear them: numba's compiler, and solvers.

An exception raised in a callback of the compiler is lost, and the code with it; a solver goes on to its end first.
"""

import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import AbstractContextManager, contextmanager
from types import FrameType
from typing import Any, TypeVar, cast

T = TypeVar("T")

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


HEARD_S = 0.1
"""How often a wait for a solver looks for signals."""

_left: list[Future[object]] = []
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
