"""kill -9 at random moments: what was finished is there, nothing is half-written, and the rest goes on."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from time import monotonic, sleep

import pytest

from tests.places import ROOT

KINDS = ("sweep", "two", "csv", "parquet", "compare", "report", "trace")


def kill(kills: int, kinds: str, *more: str, timeout_s: float) -> list[list[str]]:
    """Rows of the table of `benchmarks.kills`, which checks after every kill."""
    words = ["-m", "benchmarks.kills", "--kills", str(kills), "--kinds", kinds, *more]
    python = [sys.executable, *words]
    run = subprocess.run(python, cwd=ROOT, capture_output=True, text=True, timeout=timeout_s, check=False)
    assert run.returncode == 0, run.stderr
    print(run.stdout)
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in run.stdout.splitlines()[2:]]


@pytest.mark.full
def test_a_few_kills_lose_nothing() -> None:
    rows = kill(3, "sweep,two,csv", "--sizes", "1", timeout_s=120)
    assert [int(row[1]) >= 3 for row in rows] == [True] * 3


@pytest.mark.verify
@pytest.mark.parametrize("kind", KINDS)
def test_two_hundred_kills_lose_nothing(kind: str) -> None:
    (row,) = kill(200, kind, timeout_s=1800)
    assert int(row[1]) >= 200


@pytest.mark.verify
def test_workers_of_killed_sweeps_end() -> None:
    (row,) = kill(40, "workers", timeout_s=1800)
    assert int(row[1]) >= 40 and int(row[4]) >= 40


ORPHAN = """
import os, sys, time
from sim.study.processes import processes

if __name__ == "__main__":
    with processes(1) as pool:
        print(pool.submit(os.getpid).result(), flush=True)
        pool.submit(time.sleep, 3600)
        time.sleep(3600)
"""


def test_a_worker_ends_with_its_parent(tmp_path: Path) -> None:
    script = tmp_path / "parent.py"
    script.write_text(ORPHAN)
    parent = subprocess.Popen([sys.executable, str(script)], cwd=ROOT, env={"PYTHONPATH": str(ROOT)},
                              stdout=subprocess.PIPE, text=True)
    try:
        assert parent.stdout is not None
        worker = Path("/proc", parent.stdout.readline().strip())
        assert worker.is_dir()
    finally:
        parent.send_signal(signal.SIGKILL)
        parent.communicate(timeout=30)
    last = monotonic() + 30
    while worker.is_dir() and " Z " not in (worker / "stat").read_text():
        assert monotonic() < last, "the worker outlives its parent"
        sleep(0.02)
