"""`weft warm`: its parts, in one process and in several, and what the first commands of a checkout need."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from sim.cli import EXIT_INTERRUPTED, main
from sim.cli.commands import WARM_PARTS
from sim.cli.warm import Warmed
from sim.cli.warm_work import WORK
from tests.places import ROOT

NOT_WARMED = """
import sys
from topologies.compiled import Kernel
from sim.__main__ import main

sys.argv = ["weft", "warm", "--jobs", "1"]
main()
rooms = [module for name, module in sys.modules.items() if name.split(".")[0] in ("topologies", "workloads", "sim")]
kernels = {one.__name__: one for room in rooms for one in vars(room).values() if isinstance(one, Kernel)}
inner = {name for one in kernels.values() for name in one.py_func.__code__.co_names}
print([name for name, one in kernels.items() if not one.signatures and name not in inner])
"""


@pytest.mark.full
@pytest.mark.compiled
def test_every_kernel_is_warmed() -> None:
    run = subprocess.run([sys.executable, "-c", NOT_WARMED], capture_output=True, text=True,
                         check=True, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)})
    *parts, missing = run.stdout.splitlines()
    assert len(parts) == len(WARM_PARTS)
    assert missing == "[]"


@pytest.mark.compiled
def test_warm_finds_compiled_what_it_has_compiled(capsys: pytest.CaptureFixture[str]) -> None:
    """And then no kernel is left to compile: `make ready` runs it before the tests."""
    assert main(["warm", "--jobs", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[1] for line in lines] == [f"{part}:" for part in WARM_PARTS]
    assert main(["warm", "--jobs", "1"]) == 0
    assert all(line.endswith(": ready") for line in capsys.readouterr().out.splitlines())


@pytest.mark.compiled
def test_several_processes_take_the_named_parts(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["warm", "fabrics", "trees", "fabrics", "--jobs", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert sorted(line.split()[1] for line in lines) == ["fabrics:", "trees:"]
    assert [line.split()[0] for line in lines] == ["1/2", "2/2"]


def test_the_help_has_every_part() -> None:
    assert list(WARM_PARTS) == list(WORK)


@pytest.mark.parametrize(("words", "said"), [
    (["fifi"], "part 'fifi' is unknown: choose one of fifo, "), (["fifo", "--jobs", "0"], "--jobs 0 is out of range"),
    (["fifo", "--jobs", "1025"], "--jobs 1025 is out of range: give 1 to 1024"),
])
def test_what_is_no_part_or_number_is_refused(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["warm", *words]) == 2
    assert said in capsys.readouterr().err


def test_an_interruption_says_what_is_kept(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(parts: Sequence[str], jobs: int) -> Iterator[Warmed]:
        yield Warmed(parts[0], ("run_fifo",), 2.0)
        raise KeyboardInterrupt

    monkeypatch.setattr("sim.cli.warm._each", interrupted)
    assert main(["warm", "fifo", "trees"]) == EXIT_INTERRUPTED
    said = capsys.readouterr()
    assert said.out == "1/2 fifo: compiled run_fifo, 2.0 s of CPU\n"
    assert "interrupted, with 1 of 2 parts ready; what is compiled is kept" in said.err


@pytest.mark.full
@pytest.mark.compiled
def test_the_first_commands_after_the_demo_compile_nothing(tmp_path: Path) -> None:
    """Those of the README, and a comparison of all algorithms."""
    common = re.search(r"^COMMON := ([a-z ]+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert common is not None
    readme = (ROOT / "README.md").read_text()
    commands = re.findall(r"^    weft ((?:compare|validate|optimize) .*)", readme, re.MULTILINE)
    assert len(commands) == 3
    own = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    for command in (f"warm {common[1]}", *commands, "compare --topology torus:8x8"):
        words = [sys.executable, "-m", "sim", *command.replace('"', "").split()]
        run = subprocess.run(words, capture_output=True, text=True, check=True, cwd=ROOT, env=own)
        assert "compiling" not in run.stderr, command
