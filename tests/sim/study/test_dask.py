"""A sweep on a Dask cluster: a real scheduler and two worker processes on loopback."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest

from sim.study.processes import dask_executor
from tests.places import ROOT
from topologies import WeftError

LIMIT_SECONDS = 120

SWEEP = """
[topology]
spec = ["ring:4", "fc:4", "torus:4x4"]
[collective]
algorithms = ["ring", "direct"]
[model]
chunks = [1, 2, 4]
[sweep]
begin = "1K"
end = "256K"
"""


def test_without_the_extra_the_command_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise ModuleNotFoundError(name)

    monkeypatch.setattr("sim.study.processes.import_module", missing)
    with pytest.raises(WeftError, match=r"--dask needs distributed: pip install 'weft\[dask\]'"), dask_executor("a"):
        pass


@contextmanager
def started(*words: str, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process of the cluster, which ends with the block."""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "DASK_DISTRIBUTED__WORKER__DAEMON": "False"}
    with (folder / "log.txt").open("ab") as log:
        process = subprocess.Popen([sys.executable, "-m", *words], cwd=folder, stdout=log, stderr=log, env=environment)
    try:
        yield process
    finally:
        process.kill()
        process.wait(30)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[tuple[str, list[subprocess.Popen[bytes]]]]:
    """Address of a scheduler, and its two workers."""
    file = tmp_path / "scheduler.json"
    scheduler = ("distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard",
                 "--scheduler-file", str(file))
    with started(*scheduler, folder=tmp_path):
        last = monotonic() + LIMIT_SECONDS
        while not file.exists() or not file.read_text():
            assert monotonic() < last, (tmp_path / "log.txt").read_text()
            sleep(0.05)
        address = json.loads(file.read_text())["address"]
        worker = ("distributed.cli.dask_worker", address, "--nthreads", "1", "--no-nanny", "--no-dashboard",
                  "--local-directory", str(tmp_path))
        with started(*worker, folder=tmp_path) as first, started(*worker, folder=tmp_path) as second:
            client = import_module("distributed").Client(address, timeout=LIMIT_SECONDS)
            client.wait_for_workers(2, timeout=LIMIT_SECONDS)
            client.close()
            yield address, [first, second]


def weft_sweep(*words: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-m", "sim", "sweep", *words], cwd=ROOT, text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def end(run: subprocess.Popen[str]) -> str:
    """Errors of a command that has to succeed."""
    try:
        _, errors = run.communicate(timeout=LIMIT_SECONDS)
    finally:
        run.kill()
    assert run.returncode == 0, errors
    return errors


@pytest.mark.verify
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("lose_a_worker", [False, True])
def test_a_cluster_gives_the_same_file(lose_a_worker: bool, cluster: Any, tmp_path: Path) -> None:
    address, workers = cluster
    file, here, there = tmp_path / "s.toml", tmp_path / "here.csv", tmp_path / "there.csv"
    file.write_text(SWEEP)
    end(weft_sweep(str(file), "--store", str(tmp_path / "here.db"), "--export", str(here), "--quiet"))
    run = weft_sweep(str(file), "--store", str(tmp_path / "there.db"), "--export", str(there), "--dask", address)
    if lose_a_worker:
        sleep(2.0)
        workers[0].send_signal(signal.SIGKILL)
    end(run)
    assert there.read_bytes() == here.read_bytes()


@pytest.mark.verify
@pytest.mark.filterwarnings("ignore")
def test_nobody_at_the_address_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sim.study.processes.CONNECT_SECONDS", 1)
    with pytest.raises(WeftError, match=r"--dask tcp://127.0.0.1:1: no scheduler answers there"), \
            dask_executor("tcp://127.0.0.1:1"):
        pass
