"""No file of a call is two things: written twice, or read and written over. Of all commands and all their flags."""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from itertools import combinations
from pathlib import Path

import pytest

from sim.cli import COMMANDS, main, parsers
from sim.cli.asked import flag_of
from sim.cli.flags import EXIT_BAD_INPUT, KEPT, PAGE, WRITTEN
from sim.cli.output import SUFFIXES
from tests.places import ROOT

READ = {
    "FILE": ("in.txt", "in.txt"), "FILE.csv": ("d/in.csv", "d/in.csv"), "SKEW|FILE.csv": ("d/in.csv", "d/in.csv"),
    "FILE.csv|FILE.parquet": ("d/in.csv", "d/in.csv"), "FILE.csv|FOLDER": ("d/in.csv", "d/in.csv"),
    "SPEC|FILE": ("in.graphml", "in.graphml"),
    "NAME|FILE": ("in.xml", "in.xml"), "NAME|FILE[,...]": ("in.xml", "in.xml"),
    "NAME|FILE.json|FILE.toml|FILE.sh": ("in.json", "in.json"),
    "NAME|FILE.toml|FILE.xml[:NODES]": ("in.toml:4", "in.toml"), "PREFIX": ("in", "in.0.et"),
    "DIR": ("in", "in/deep/a.json"),
}
"""By what stands for a value in help: an argument that names a file, and the file."""

HELD = {"chakra": ("out", "out.0.et"), "out": ("d", "d/points.csv")}
"""Outputs that are several files: the argument, and one of the files."""

NAMES_A_FILE = re.compile("FILE|DIR|PREFIX")

ACTIONS = {
    name: [action for action in parser._actions if NAMES_A_FILE.search(str(action.metavar))]
    for name, parser in parsers().items()
}
OUTPUTS = {
    name: [action.dest for action in actions if action.dest in (*WRITTEN, *KEPT)] for name, actions in ACTIONS.items()
}
READ_AND_WRITTEN = [
    (name, action, flag) for name, actions in ACTIONS.items() for action in actions for flag in OUTPUTS[name]
    if action.dest not in OUTPUTS[name]
]
TWICE_WRITTEN = [(name, *pair) for name, flags in OUTPUTS.items() for pair in combinations(flags, 2)]


def as_output(flag: str, target: Path) -> str:
    """An argument of an output flag that leads to a file: through a link, if the flag wants another suffix."""
    link = Path(f"link-{flag_of(flag)[2:]}{SUFFIXES.get(flag, ('.out',))[0]}")
    link.symlink_to(target)
    return str(link)


def in_place(target: str, content: str) -> Path:
    path = Path(target).absolute()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    return path


def test_every_flag_of_a_command_that_names_an_output_is_known_as_one() -> None:
    for name, command in COMMANDS.items():
        assert set(command.outputs) <= set(OUTPUTS[name])
    assert {"store"} < set(OUTPUTS["sweep"]) and {"out"} < set(OUTPUTS["paper"]) and {PAGE} < set(OUTPUTS["report"])
    assert len(READ_AND_WRITTEN) > 100


@pytest.mark.parametrize(("name", "action", "flag"), READ_AND_WRITTEN, ids=lambda one: getattr(one, "dest", one))
def test_what_is_read_is_not_written_over(
    name: str, action: argparse.Action, flag: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    given, file = READ[str(action.metavar)]
    if flag in HELD:
        output, target = HELD[flag]
        written = in_place(target, "precious")
        if Path(file) != Path(target):
            Path(file).parent.mkdir(exist_ok=True)
            Path(file).symlink_to(written)
    else:
        written = in_place(file, "precious")
        output = as_output(flag, written)
    read = [*action.option_strings[:1], given]
    assert main([name, *read, flag_of(flag), output]) == EXIT_BAD_INPUT
    said = capsys.readouterr()
    assert said.out == "" and said.err.startswith(f"weft {name}: {flag_of(flag)} {output} would be written over ")
    assert " ".join([*read[:-1], given.removesuffix(":4")]) in said.err and said.err.count("\n") == 1
    assert written.read_text() == "precious"


@pytest.mark.parametrize(("name", "first", "second"), TWICE_WRITTEN)
def test_nothing_is_written_twice(
    name: str, first: str, second: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    held = next((HELD[flag] for flag in (first, second) if flag in HELD), ("", "one"))
    target = in_place(held[1], "precious")
    words = []
    for flag in (first, second):
        words += [flag_of(flag), held[0] if flag in HELD else as_output(flag, target)]
    assert main([name, *words]) == EXIT_BAD_INPUT
    said = capsys.readouterr()
    both = f"{' '.join(words[:2])} and {' '.join(words[2:])}", f"{' '.join(words[2:])} and {' '.join(words[:2])}"
    assert said.out == "" and said.err.startswith(tuple(f"weft {name}: {one} are the same file" for one in both))
    assert said.err.count("\n") == 1 and target.read_text() == "precious"


COMPARE = "compare --topology ring:4 --algorithms ring -b 1K --engine analytic --quiet"


@pytest.mark.parametrize("words", [
    "--json a.txt --csv a.txt", "--json ./a.txt --csv a.txt", "--json {here}/a.txt --csv none/../a.txt",
    "--json - --csv -", "--json - --nccl-json /dev/stdout", "--json a.txt --csv folder/../a.txt",
])
def test_a_file_has_many_names(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("none", "folder"):
        Path(folder).mkdir()
    assert main([*COMPARE.split(), *words.format(here=tmp_path).split()]) == EXIT_BAD_INPUT
    assert "are the same file: give each a name of its own" in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "none"]


def test_a_call_runs_again_over_its_own_outputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("link.csv").symlink_to("elsewhere.csv")
    for _ in range(2):
        assert main([*COMPARE.split(), "--json", "a.json", "--csv", "link.csv"]) == 0
    assert Path("link.csv").is_symlink() and Path("elsewhere.csv").exists()
    assert main([*COMPARE.split(), "--json", "/dev/null", "--csv", "/dev/null"]) == 0


SPEC = """
[topology]
spec = "net.json"
[collective]
algorithms = ["ring"]
[model]
faults = "plan.toml"
"""


@pytest.mark.parametrize(("command", "said"), [
    ("compare --spec d/spec.toml --csv d/plan.toml", "faults {here}/d/plan.toml of [model]"),
    ("compare --spec d/spec.toml --json d/net.json", "spec {here}/d/net.json of [topology]"),
    ("sweep d/spec.toml --store d/net.json", "spec {here}/d/net.json of [topology]"),
    ("sweep d/spec.toml --store d/plan.toml", "faults {here}/d/plan.toml of [model]"),
    ("share --topology ring:4 --tenant job=tree.txt --csv tree.txt", "job tree.txt of [tenant]"),
    ("share --topology ring:4 --tenant job=tree --csv tree.1.et", "job tree of [tenant]"),
    ("share --topology ring:4 --spec d/tenants.toml --csv d/layers.txt", "workload {here}/d/layers.txt of [tenant]"),
])
def test_what_a_file_names_is_not_written_over(
    command: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    in_place("d/spec.toml", SPEC)
    in_place("d/tenants.toml", '[[tenant]]\nworkload = "layers.txt"\n')
    assert main(["topology", "--topology", "ring:4", "--output", "d/net.json"]) == 0
    in_place("d/plan.toml", "faults = []\n")
    capsys.readouterr()
    before = {path: path.read_text() for path in Path("d").iterdir()}
    assert main(command.split()) == EXIT_BAD_INPUT
    error = capsys.readouterr().err
    assert f"would be written over what is read, {said.format(here=tmp_path)}" in error and error.count("\n") == 1
    assert {path: path.read_text() for path in Path("d").iterdir()} == before


def test_a_key_that_a_flag_overrides_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    in_place("spec.toml", '[topology]\nspec = "net.json"\n')
    assert main([*COMPARE.split(), "--spec", "spec.toml", "--json", "net.json"]) == 0


def test_standard_input_is_a_file_as_well(tmp_path: Path) -> None:
    spec = tmp_path / "spec.toml"
    spec.write_text('[topology]\nspec = "ring:4"\n')
    with spec.open() as stream:
        ran = subprocess.run([sys.executable, "-m", "sim", "compare", "--spec", "-", "--json", str(spec)], cwd=ROOT,
                             stdin=stream, capture_output=True, text=True)
    assert ran.returncode == EXIT_BAD_INPUT
    assert ran.stderr.startswith(f"weft compare: --json {spec} would be written over what is read, --spec -")
    assert spec.read_text() == '[topology]\nspec = "ring:4"\n'


@pytest.mark.parametrize("beside", ["", "-wal", "-shm", "-journal", "-claims"])
def test_a_store_without_a_name_is_beside_its_sweep(
    beside: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    in_place("a.toml", '[topology]\nspec = "ring:4"\n[collective]\nalgorithms = ["ring"]\n[sweep]\nbegin = "1K"\n')
    assert main(["sweep", "a.toml", "--json", f"a.db{beside}"]) == EXIT_BAD_INPUT
    assert f"--json a.db{beside} and --store a.db are the same file" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["a.toml"]
