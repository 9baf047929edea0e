"""The door: help is quick and complete, mistakes take one line, interruptions leave nothing behind."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import sim
from sim.cli import COMMANDS, EXIT_INTERRUPTED, main, parsers
from sim.cli.flags import EXIT_BAD_INPUT, examples_of
from sim.program.outcome import Stopped
from tests.places import ROOT
from workloads.topoopt import MODELS

SMALL = ["compare", "--topology", "torus:4x4", "--algorithms", "ring", "-b", "1K", "--quiet"]

OF_ONE_COMMAND = (
    *(f"optimize.{name}" for name in ("network", "workload", "communicator", "parallelism", "chunks", "option")),
    "astra.network", "pool.size", "pool.header", "pool.rule", "circuits.rule", "optimize.budget",
    "circuits.budget", "plot.size", "plot.algorithms",
)
"""Keys with the flag of another: they take several values, or mean something of the command's own."""


def test_help_loads_neither_compiler_nor_figures() -> None:
    code = (
        "import sys\nfrom sim.cli import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit: pass\n"
        "sys.exit(str([name for name in ('numba', 'simpy', 'matplotlib', 'rich', 'cvxpy') if name in sys.modules]))"
    )
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.stderr.strip() == "[]"


UNUSED = {
    "scipy", "clarabel", "yaml", "email", "multiprocessing", "xml.etree", "collectives.formats.files",
    "collectives.formats.mscclpp", "sim.optimizer.network", "topologies.formats.exchange", "simpy", "pandas", "rich",
    "workloads.models.job_files", "workloads.models.transformer", "numba", "networkx", "rustworkx", "matplotlib",
}
"""What small commands do without: solvers, readers of files, worker processes, what reads metadata of packages."""


@pytest.mark.compiled
@pytest.mark.parametrize("line", [
    "compare --topology torus:3x5 --algorithms swing,bucket -b 1M",
    "validate --topology ring:7 --algorithm ring -b 2M",
])
def test_a_small_command_loads_only_what_it_uses(line: str) -> None:
    code = (
        f"import sys\nsys.argv = ['weft', *{line.split()}, '--quiet']\nfrom sim.__main__ import main\n"
        "assert main() == 0\nprint('loaded', *sys.modules)\n"
    )
    for _ in range(2):  # the first may have to compile, which loads the compiler and all that it needs
        run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
        loaded = set(run.stdout.splitlines()[-1].split())
    assert {"sim.cli.output", "numpy"} <= loaded
    assert not UNUSED & loaded


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main([name, "--help"])
    text = capsys.readouterr().out
    assert left.value.code == 0
    assert all(line in text for line in examples_of(name))


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["compere"],
        ["compare", "--speed", "3"],
        ["compare", "--topo", "torus:4x4"],
        ["compare", "--chunks", "many"],
        ["compare", "--topology"],
        ["schedule", "--rank", "x"],
        ["pool", "--slots", "4.5"],
    ],
)
def test_a_wrong_flag_takes_one_line(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(words)
    said = capsys.readouterr()
    assert left.value.code == EXIT_BAD_INPUT
    assert said.out == ""
    assert said.err.startswith("weft")
    assert said.err.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        ("", "no command is given: choose one of compare,"),
        ("compere", "(did you mean compare?)"),
        ("compare --toplogy ring:4", "(did you mean --topology?)"),
        ("compare --toplogy=ring:4", "(did you mean --topology?)"),
        ("compare --topology torus8x8", "(did you mean torus?)"),
        ("compare --topology ring:4 --algorithms swng", "(did you mean swing?)"),
        ("compare --topology ring:4 --preset swing-papr", "(did you mean swing-paper?)"),
        ("compare --topology ring:4 -b 1Q", "such as 512, 8K, 1.5M, 8KiB or 2MB"),
        ("train --topology RI(4) --workload resnet50", "(did you mean resnet-50?)"),
        ("topoopt --workload VGG17", "(did you mean VGG16?)"),
        ("plot examples/results/torus-4x4.json --algorithms swng --plot none.png", "(did you mean swing?)"),
        ("compare --version", "(did you mean weft --version?)"),
        ("share examples/tenants.toml", "(a spec follows its flag: --spec examples/tenants.toml)"),
        ("compare torus:8x8", "(a fabric follows its flag: --topology torus:8x8)"),
        ("sweep", "no file is given: write FILE, or --spec FILE"),
        ("sweep one.toml --spec two.toml", "one.toml and --spec two.toml are both the file of the sweep: give one"),
    ],
)
def test_a_misspelled_name_is_answered_with_the_nearest(
    words: str, answer: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code: object = main(words.split())
    except SystemExit as left:
        code = left.code
    said = capsys.readouterr().err
    assert code == EXIT_BAD_INPUT
    assert answer in said and said.count("\n") == 1


@pytest.mark.parametrize("flag", ["-V", "--version"])
def test_the_version(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main([flag])
    assert (left.value.code, capsys.readouterr().out) == (0, f"weft {sim.__version__}\n")


def test_flags_of_one_meaning_have_one_name() -> None:
    """Every flag that two commands share has the same help."""
    said: dict[str, str] = {}
    for parser in parsers().values():
        for action in parser._actions:
            for flag in action.option_strings:
                if action.dest.partition(".")[1] and action.dest not in OF_ONE_COMMAND:
                    assert said.setdefault(flag, action.dest) == action.dest


def test_the_help_of_topoopt_names_its_models() -> None:
    action = next(one for one in parsers()["topoopt"]._actions if one.dest == "workload.name")
    *others, last = re.split(", | or ", str(action.help).partition(": ")[2].partition(" (default")[0])
    assert [*others, last] == list(MODELS)


def interrupt(*arguments: Any, **named: Any) -> Any:
    raise KeyboardInterrupt


def stop(*arguments: Any, **named: Any) -> Any:
    try:
        raise KeyboardInterrupt
    except KeyboardInterrupt:
        raise Stopped("interrupted at 1 us of simulated time") from None


@pytest.mark.parametrize("how", [interrupt, stop])
def test_an_interruption_leaves_nothing_behind(
    how: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sim.study.ranked.simulate_ready", how)
    assert main([*SMALL, "--json", str(tmp_path / "a.json")]) == EXIT_INTERRUPTED
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert "interrupted" in said.err
    assert list(tmp_path.iterdir()) == []


def test_a_closed_pipe_ends_quietly() -> None:
    command = f"{sys.executable} -m sim topology | head -n 1"
    run = subprocess.run(["bash", "-c", command], cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.stderr == ""
    assert run.stdout.startswith("# family")
