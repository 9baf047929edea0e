"""Completion in a real bash, from a line as it is typed; the scripts of all shells name every command and flag."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from collectives import ALGORITHMS, COLLECTIVES
from sim.cli import COMMANDS, main, subparsers
from sim.cli.completion import commands
from sim.cli.shells import SHELLS
from sim.papers import PAPERS
from topologies import TOPOLOGIES

PROBE = """
source {script}
COMP_LINE={line}; COMP_POINT=${{#COMP_LINE}}
read -ra COMP_WORDS <<< "$COMP_LINE"; COMP_CWORD=$(( ${{#COMP_WORDS[@]}} - 1 ))
_weft
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("completion") / "weft.bash"
    path.write_text(SHELLS["bash"](commands()))
    return path


def completed(script: Path, line: str) -> set[str]:
    """What bash offers for a line."""
    folder = script.parent
    (folder / "results.json").write_text("{}")
    text = PROBE.format(script=script, line="'" + line + "'")
    run = subprocess.run(
        ["bash", "--norc", "-c", text], capture_output=True, text=True, timeout=30, check=True, cwd=folder
    )
    assert run.stderr == ""
    return {word for word in run.stdout.split("\n") if word}


def names() -> set[str]:
    return set(subparsers())


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("weft comp", {"compare", "completion"}),
        ("weft schedule --algorithm pipe", {"pipelined"}),
        ("weft compare --collective all-g", {"all-gather"}),
        ("weft compare --algorithms swing,buck", {"swing,bucket"}),
        ("weft compare --engine ", {"chunk", "reference", "analytic"}),
        ("weft compare --forw", {"--forwarding"}),
        ("weft compare --json res", {"results.json"}),
        ("weft compare --quiet --json res", {"results.json"}),
        ("weft compare --figure speed", {"speed-up"}),
        ("weft completion z", {"zsh"}),
        ("weft plot res", {"results.json"}),
        ("weft compare --no-such ", set()),
        ("weft unknown ", set()),
    ],
)
def test_bash_offers(script: Path, line: str, offered: set[str]) -> None:
    found = completed(script, line)
    assert offered <= found if line.endswith("--no-such ") else found == offered


def test_bash_offers_all_commands_and_papers(script: Path) -> None:
    assert completed(script, "weft ") == names() | {"--help"}
    assert completed(script, "weft paper ") == set(PAPERS)
    assert completed(script, "weft schedule --collective ") == set(COLLECTIVES)
    assert completed(script, "weft schedule --algorithm ") == set(ALGORITHMS)


def test_a_colon_is_part_of_a_fabric_and_only_the_rest_is_replaced(script: Path) -> None:
    torus = next(family.example for family in TOPOLOGIES.values() if family.name == "torus")
    assert completed(script, "weft compare --topology tor") == {torus}
    assert completed(script, f"weft compare --topology {torus[:6]}") == {torus.partition(":")[2]}


def test_every_command_and_flag_is_in_every_script(capsys: pytest.CaptureFixture[str]) -> None:
    assert len(names()) == len(COMMANDS)
    for shell in SHELLS:
        assert main(["completion", shell]) == 0
        text = capsys.readouterr().out
        for command in commands():
            assert command.name in text
            for name in (name for flag in command.flags for name in flag.names):
                written = f"-l {name[2:]} " if shell == "fish" and name.startswith("--") else name
                assert written in text or (shell == "fish" and f"-s {name[1:]} " in text)


@pytest.mark.parametrize("shell", [shell for shell in SHELLS if shutil.which(shell)])
def test_the_script_is_read_by_its_shell(shell: str, tmp_path: Path) -> None:
    """Bash everywhere; zsh and fish where they are."""
    path = tmp_path / "script"
    path.write_text(SHELLS[shell](commands()))
    run = subprocess.run([shell, "-n", str(path)], capture_output=True, text=True, timeout=30, check=False)
    assert (run.returncode, run.stderr) == (0, "")


def test_what_is_completed_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "bash", "--json", "-"]) == 0
    found = {one["name"]: one for one in json.loads(capsys.readouterr().out)["commands"]}
    assert set(found) == names()
    assert {"names": ["--quiet"], "takes": ""}.items() <= next(
        flag for flag in found["compare"]["flags"] if flag["names"] == ["--quiet"]
    ).items()


def test_an_unknown_shell_takes_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["completion", "tcsh"])
    assert left.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1
