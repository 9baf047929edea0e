"""SIGTERM ends a command in order: one line, exit code 143, nothing half-written, and no worker left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import sim.__main__
from sim.cli import EXIT_INTERRUPTED, EXIT_TERMINATED, main
from sim.cli.signals import ends_at_once, ends_in_order
from sim.study.points import row_of
from sim.study.processes import begin_worker, processes
from tests.places import ROOT

SWEEP = '[topology]\nspec = "ring:4"\n[collective]\nalgorithms = ["ring", "swing"]\n[sweep]\nbegin = "1K"\nend = "8K"\n'


def sigterm(*arguments: Any, **named: Any) -> Any:
    os.kill(os.getpid(), signal.SIGTERM)


def test_a_comparison_leaves_nothing_behind(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sim.study.ranked.simulate_ready", sigterm)
    before = signal.getsignal(signal.SIGTERM)
    words = ["compare", "--topology", "ring:4", "-b", "1K", "--algorithms", "ring", "--json", str(tmp_path / "a.json")]
    assert main(words) == EXIT_TERMINATED
    said = capsys.readouterr()
    assert said.out == "" and said.err == "weft compare: interrupted; nothing was written\n"
    assert not list(tmp_path.iterdir())
    assert signal.getsignal(signal.SIGTERM) == before


@pytest.mark.parametrize("more", [[], ["--algorithms", "ring,swing"]])
def test_what_a_comparison_has_finished_is_shown(
    more: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = iter([row_of, sigterm])
    monkeypatch.setattr("sim.study.ranked.row_of", lambda *given: next(rows)(*given))
    file = tmp_path / "part.json"
    words = ["compare", "--topology", "ring:4", "-b", "1K", "-e", "4K", "--quiet", "--json", str(file), *more]
    assert main(words) == EXIT_TERMINATED
    part = json.loads(file.read_text(encoding="utf-8"))
    assert len(part["rows"]) == 1 and part["interrupted"].startswith("1 of ")
    said = capsys.readouterr()
    assert "# time by size and algorithm" in said.out
    assert said.out.endswith(" points are shown: what is fastest is the fastest of these\n")
    assert said.err.startswith("weft compare: interrupted: 1 of ") and said.err.endswith(" points are shown\n")


def test_before_anything_runs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sim.cli.compare.refusals", sigterm)
    assert main(["compare", "--topology", "ring:4", "-b", "1K"]) == EXIT_TERMINATED
    assert capsys.readouterr().err == "weft compare: interrupted, nothing was written\n"


def test_a_sweep_says_how_to_go_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "a.toml"
    file.write_text(SWEEP, encoding="utf-8")
    monkeypatch.setattr("sim.study.sweep.STORE_SECONDS", 0)  # each at once
    with monkeypatch.context() as patched:
        patched.setattr("sim.cli.progress.Steps.advance", sigterm)
        assert main(["sweep", str(file), "--quiet"]) == EXIT_TERMINATED
    said = f"weft sweep: interrupted: 1 of 8 points are in {file.with_suffix('.db')}; run it again to go on\n"
    assert capsys.readouterr().err == said
    assert main(["sweep", str(file), "--quiet"]) == 0


def test_in_the_middle_of_a_point(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The engine hears it between slices; the point is not stored as one that failed."""
    file = tmp_path / "a.toml"
    file.write_text(SWEEP, encoding="utf-8")
    with monkeypatch.context() as patched:
        patched.setattr("sim.engine.run.Run.advance", sigterm)
        assert main(["sweep", str(file), "--quiet"]) == EXIT_TERMINATED


def test_another_thread_hears_no_signals() -> None:
    found = []

    def inside() -> None:
        with ends_in_order():
            found.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=inside)
    thread.start()
    thread.join()
    assert found == [signal.getsignal(signal.SIGTERM)]


ENDS = pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, EXIT_TERMINATED), (signal.SIGINT, EXIT_INTERRUPTED)]
)


@ENDS
@pytest.mark.usefixtures("ctrl_c")
def test_while_a_command_is_imported(
    number: int, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sim.cli.importlib.import_module", lambda name: signal.raise_signal(number))
    assert main(["compare"]) == code
    assert capsys.readouterr().err == "weft compare: interrupted, nothing was written\n"


@ENDS
@pytest.mark.usefixtures("ctrl_c")
def test_before_a_command_is_known(
    number: int, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """While `sim.cli` is imported."""
    monkeypatch.setattr("sim.cli.main", lambda: signal.raise_signal(number))
    before = signal.getsignal(signal.SIGTERM)
    assert sim.__main__.main() == code
    assert capsys.readouterr().err == "weft: interrupted, nothing was written\n"
    assert signal.getsignal(signal.SIGTERM) == before


def blocked() -> set[int]:
    return set(signal.pthread_sigmask(signal.SIG_BLOCK, ()))


def test_workers_are_started_deaf_to_ctrl_c(monkeypatch: pytest.MonkeyPatch) -> None:
    """What they inherit; the parent hears it again after each start."""
    def submit(pool: ProcessPoolExecutor, work: Callable[[], set[int]]) -> Future[set[int]]:
        found: Future[set[int]] = Future()
        found.set_result(work())
        return found

    monkeypatch.setattr(ProcessPoolExecutor, "submit", submit)
    before = blocked()
    with processes(1) as pool:
        assert signal.SIGINT in pool.submit(blocked).result()
        assert blocked() == before


def test_a_worker_that_has_begun_ends_silently(monkeypatch: pytest.MonkeyPatch) -> None:
    handlers = []
    monkeypatch.setattr("sim.study.processes.signal.signal", lambda *handler: handlers.append(handler))
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        begin_worker()
        assert signal.SIGINT not in blocked() and handlers == [(signal.SIGINT, signal.SIG_DFL)]
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@pytest.mark.compiled
def test_a_sweep_with_workers_ends_in_one_line(tmp_path: Path) -> None:
    """Its semaphores are freed: else another process, which watches them, would complain."""
    file, code = tmp_path / "a.toml", "from sim.__main__ import main; "
    file.write_text(SWEEP.replace("8K", "512M"), encoding="utf-8")
    store = tmp_path / "a.db"
    with subprocess.Popen(
        [sys.executable, "-c", f"import signal; signal.signal(signal.SIGINT, signal.default_int_handler); {code}"
         "raise SystemExit(main())", "sweep", str(file), "--workers", "2", "--store", str(store), "--quiet"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)},
    ) as run:
        while not store.exists():
            time.sleep(0.02)
        time.sleep(0.5)
        run.send_signal(signal.SIGINT)
        out, said = run.communicate(timeout=60)
    assert (run.returncode, out) == (EXIT_INTERRUPTED, "")
    assert said.startswith("weft sweep: interrupted") and said.count("\n") == 1


@pytest.mark.table
@pytest.mark.compiled
@ENDS
# In the passes written in Python, and in those of the compiler.
@pytest.mark.parametrize("wait_s", [pytest.param(0.0, marks=pytest.mark.full), 1.5])
def test_while_a_kernel_is_compiled(number: int, code: int, wait_s: float, tmp_path: Path) -> None:
    """One line, before the compiler is done: nothing of the kernel is in the cache."""
    code_of = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); from sim.__main__ import main; "
    words = ["compare", "--topology", "ring:4", "--algorithms", "ring", "-b", "1K", "--symmetry", "off"]
    surroundings = {**os.environ, "PYTHONPATH": str(ROOT), "NUMBA_CACHE_DIR": str(tmp_path)}
    with subprocess.Popen(
        [sys.executable, "-c", f"{code_of}raise SystemExit(main())", *words], stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, env=surroundings,
    ) as run:
        assert run.stderr is not None
        while "run_fifo" not in (line := run.stderr.readline()):
            assert line.startswith("compiling the engine, once: ")
        time.sleep(wait_s)
        run.send_signal(number)
        out, said = run.communicate(timeout=60)
    assert (run.returncode, out, said) == (code, "", "weft compare: interrupted while the engine was compiled\n")
    assert not list(tmp_path.rglob("run_fifo*.o*"))


@pytest.mark.usefixtures("ctrl_c")
def test_a_signal_while_no_kernel_is_compiled_is_an_exception_again() -> None:
    before = signal.getsignal(signal.SIGINT)
    with ends_at_once("compare"):
        assert signal.getsignal(signal.SIGINT) != before
    assert signal.getsignal(signal.SIGINT) == before and signal.set_wakeup_fd(-1) == -1
    assert not [one for one in threading.enumerate() if one.name == "end at once"]


@pytest.mark.verify
def test_ctrl_c_while_workers_start(tmp_path: Path) -> None:
    """To the whole group, as a terminal sends it: one line, whenever it comes."""
    words = ["compare", "--topology", "torus:16x16", "--algorithms", "swing,bucket", "-b", "1K", "-e", "1G",
             "--symmetry", "off", "--workers", "2"]
    code = (
        "import signal, threading, os, sys\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from concurrent.futures import ProcessPoolExecutor as Pool\n"
        "from sim.cli import main\n"
        "begin, timers = Pool._spawn_process, []\n"
        "def spawn(pool):\n"
        "    begin(pool)\n"
        "    timers.append(threading.Timer(float(sys.argv[1]), os.killpg, (os.getpid(), signal.SIGINT)))\n"
        "    len(timers) > 1 or timers[0].start()\n"
        "Pool._spawn_process = spawn\n"
        f"if __name__ == '__main__':\n    sys.exit(main({words!r}))\n"
    )
    (tmp_path / "run.py").write_text(code, encoding="utf-8")
    for wait_s in ("0.1", "0.3", "0.8"):
        done = subprocess.run(
            [sys.executable, "run.py", wait_s], cwd=tmp_path, capture_output=True, text=True, timeout=60,
            start_new_session=True, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=False,
        )
        assert done.returncode == EXIT_INTERRUPTED, done.stderr
        assert done.stderr.count("\n") == 1 and done.stderr.startswith("weft compare: interrupted")


@pytest.mark.verify
@pytest.mark.parametrize("command", ["sweep", "compare"])
def test_with_workers_nothing_is_left_but_one_line(command: str, tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text(
        '[topology]\nspec = ["torus:8x8", "torus:16x16"]\n[collective]\nalgorithms = ["swing", "bucket"]\n'
        '[model]\nsymmetry = "off"\n[sweep]\nbegin = "1K"\nend = "1G"\n', encoding="utf-8",
    )
    words = {
        "sweep": ["sweep", "a.toml", "--workers", "2"],
        "compare": ["compare", "--topology", "torus:16x16", "--algorithms", "swing,bucket", "-b", "1K", "-e", "1G",
                    "--symmetry", "off", "--workers", "2", "--json", "a.json"],
    }[command]
    with subprocess.Popen(
        [sys.executable, "-m", "sim", *words, "--progress"], cwd=tmp_path, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)},
    ) as run:
        assert run.stderr is not None
        run.stderr.readline()  # something is done: the workers are there
        time.sleep(0.5)
        run.send_signal(signal.SIGTERM)
        said = run.communicate(timeout=60)[1].splitlines()
    assert run.returncode == EXIT_TERMINATED
    assert [line for line in said if "done, " not in line] == [said[-1]]
    assert said[-1].startswith(f"weft {command}: interrupted") and not (tmp_path / "a.json").exists()
