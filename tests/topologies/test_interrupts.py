"""Signals are heard while a solver works."""

from __future__ import annotations

import signal
import threading
import time

import pytest

import sim.__main__
import sim.cli
import sim.study.processes
from topologies.process import heard, is_left_running


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_ends_the_wait_for_a_solver(monkeypatch: pytest.MonkeyPatch) -> None:
    """And then the process, at once: a solver with threads aborts it where the interpreter takes itself apart."""
    working, never = threading.Event(), threading.Event()

    def solve() -> None:
        working.set()
        never.wait()

    def interrupt() -> None:
        working.wait()
        signal.raise_signal(signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        heard(solve)
    codes = list[int]()
    monkeypatch.setattr("os._exit", codes.append)
    monkeypatch.setattr(sim.cli, "main", lambda: 130)
    assert is_left_running() and sim.__main__.main() == 130 and codes == [130]
    never.set()
    while is_left_running():
        time.sleep(0.001)
    monkeypatch.setattr(sim.study.processes, "begun", True)
    assert sim.__main__.main() == 130 and codes == [130]  # workers have semaphores, which have to be freed
    monkeypatch.setattr(sim.study.processes, "begun", False)
    assert sim.__main__.main() == 130 and codes == [130, 130]  # what was built is not freed
    monkeypatch.setattr(sim.cli, "main", lambda: 0)
    assert sim.__main__.main() == 0 and codes == [130, 130]


def test_what_a_solver_gives_or_raises_is_that_of_the_call() -> None:
    def fails() -> None:
        raise TimeoutError("as such")

    assert heard(lambda: 7) == 7
    with pytest.raises(TimeoutError, match="as such"):
        heard(fails)


def test_another_thread_calls_the_solver_itself() -> None:
    found: list[threading.Thread] = []
    other = threading.Thread(target=lambda: found.append(heard(threading.current_thread)))
    other.start()
    other.join()
    assert found == [other]
