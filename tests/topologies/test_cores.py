"""Cores: how many are idle, by what the system tells, whatever the load of this machine is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from topologies import cores
from topologies.cores import Watch

HEAD = "cpu  9 9 9 9 9 0\n"


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stands for /proc/stat, on a machine of which this process may use two cores; the clock stands still at 0."""
    monkeypatch.setattr(cores, "STAT", tmp_path / "stat")
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 2}, raising=False)
    monkeypatch.setattr(os, "sysconf", lambda name: 100)
    monkeypatch.setattr(cores, "perf_counter", lambda: 0.0)
    return tmp_path / "stat"


def text(*idle: int) -> str:
    """What is told of cores that were idle for so many ticks, a tenth of it waiting for a disk."""
    return HEAD + "".join(f"cpu{core} 7 7 7 {n - n // 10} {n // 10} 5\n" for core, n in enumerate(idle)) + "intr 3\n"


def test_only_cores_of_this_process_count(told: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told.write_text(text(1000, 0, 500))
    watch = Watch()
    told.write_text(text(1100, 1000, 550))
    monkeypatch.setattr(cores, "perf_counter", lambda: 1.0)
    assert watch.seconds == 1.0 and watch.idle() == pytest.approx(1.5)


@pytest.mark.parametrize("what", ["nothing", HEAD])
@pytest.mark.parametrize(("load", "idle"), [(0.0, 1.0), (0.9, 1.0), (1.5, 0.5), (7.0, -5.0)])
def test_elsewhere_the_load_tells(
    told: Path, monkeypatch: pytest.MonkeyPatch, what: str, load: float, idle: float
) -> None:
    """No such file, or one that names no core."""
    if what != "nothing":
        told.write_text(what)
    monkeypatch.setattr(os, "getloadavg", lambda: (load, 0.0, 0.0), raising=False)
    assert Watch().idle() == pytest.approx(idle)


def test_where_nothing_is_told_all_others_are_idle(told: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "getloadavg", raising=False)
    assert Watch().idle() == 1.0


def test_this_machine_has_cores() -> None:
    assert cores.cores() >= 1
    assert Watch().seconds >= 0
