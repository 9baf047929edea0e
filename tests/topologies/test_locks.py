"""Turns: one process at a time, and the next goes on when the one before has given its turn back."""

from __future__ import annotations

from pathlib import Path
from threading import Event, Thread

from topologies.process import Turn


def test_the_next_waits_until_the_turn_is_given_back(tmp_path: Path) -> None:
    """Another thread stands for another process: each file that is opened has locks of its own."""
    first, second, begun, had = Turn(tmp_path / "lock"), Turn(tmp_path / "lock"), Event(), Event()

    def wait() -> None:
        begun.set()
        second.take()
        had.set()

    first.take()
    first.take()  # it has it
    waiting = Thread(target=wait, daemon=True)
    waiting.start()
    assert begun.wait(60) and not had.wait(0.05)
    first.give_back()
    assert had.wait(60)
    second.give_back()
    first.take()
    first.give_back()
    waiting.join()


def test_without_a_folder_nobody_waits(tmp_path: Path) -> None:
    turn = Turn(tmp_path / "missing" / "lock")
    turn.take()
    turn.give_back()
