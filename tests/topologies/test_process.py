"""What a process asks of the system for itself."""

import ctypes

import pytest

from topologies.process import keep_freed


@pytest.mark.parametrize("there", [True, False])
def test_freed_memory_is_kept_where_the_system_can(there: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int]] = []

    class System:
        def __init__(self, name: None) -> None:
            if there:
                self.mallopt = lambda what, value: asked.append((what, value))

    monkeypatch.setattr(ctypes, "CDLL", System)
    keep_freed()
    assert [value // 2**20 for _, value in asked] == [32, 128] * there
