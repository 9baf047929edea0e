"""Completion in a real bash, from a line as it is typed; the scripts of all shells name every command and flag."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from collectives import ALGORITHMS, COLLECTIVES
from sim.cli import COMMANDS, main, parsers
from sim.cli.commands import SHELLS
from sim.papers import PAPERS
from topologies import TOPOLOGIES

PROBE = """
source {script}
COMP_LINE={line}; COMP_POINT=${{#COMP_LINE}}
read -ra COMP_WORDS <<< "$COMP_LINE"
[[ "$COMP_LINE" == *" " ]] && COMP_WORDS+=("")
COMP_CWORD=$(( ${{#COMP_WORDS[@]}} - 1 ))
called=$(complete -p weft | sed 's/.*-F \\([^ ]*\\) .*/\\1/')
"$called" weft "${{COMP_WORDS[COMP_CWORD]}}" "${{COMP_WORDS[COMP_CWORD-1]}}" 2> /dev/null
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


def written(shell: str, path: Path, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["completion", shell]) == 0
    path.write_text(capsys.readouterr().out)
    return path.read_text()


@pytest.fixture
def script(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    written("bash", tmp_path / "weft.bash", capsys)
    return tmp_path / "weft.bash"


def completed(script: Path, line: str) -> set[str]:
    """What bash offers for a line."""
    folder = script.parent
    (folder / "results.json").write_text("{}")
    text = PROBE.format(script=script, line="'" + line + "'")
    run = subprocess.run(
        ["bash", "--norc", "-c", text], capture_output=True, text=True, timeout=30, check=False, cwd=folder
    )
    assert run.stderr == ""
    return {word.strip() for word in run.stdout.split("\n") if word.strip()}


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("weft comp", {"compare", "completion"}),
        ("weft schedule --algorithm pipe", {"pipelined"}),
        ("weft compare --algorithms ring,sw", {"ring,swing"}),
        ("weft plot out --algorithms swing,ring,pipe", {"swing,ring,pipelined"}),
        ("weft compare --collective all-g", {"all-gather"}),
        ("weft compare --engine ", {"chunk", "reference", "analytic", "fluid"}),
        ("weft compare --forw", {"--forwarding"}),
        ("weft compare --json res", {"results.json"}),
        ("weft compare --figure speed", {"speed-up"}),
        ("weft completion z", {"zsh"}),
        ("weft plot res", {"results.json"}),
    ],
)
def test_bash_offers(script: Path, line: str, offered: set[str]) -> None:
    assert completed(script, line) == offered


def test_bash_offers_all_commands_and_papers(script: Path) -> None:
    assert set(COMMANDS) <= completed(script, "weft ")
    assert set(PAPERS) <= completed(script, "weft paper ")
    assert completed(script, "weft schedule --collective ") == set(COLLECTIVES)
    assert completed(script, "weft schedule --algorithm ") == set(ALGORITHMS)


def test_a_colon_is_part_of_a_fabric(script: Path) -> None:
    torus = next(family.example for family in TOPOLOGIES.values() if family.name == "torus")
    assert completed(script, "weft compare --topology tor") == {torus}
    assert completed(script, f"weft compare --topology {torus[:6]}") == {torus}
    assert "COMP_WORDBREAKS" in script.read_text()


@pytest.mark.parametrize("shell", SHELLS)
def test_every_command_and_flag_is_in_every_script(
    shell: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = written(shell, tmp_path / "script", capsys)
    for name, parser in parsers().items():
        assert name in text
        for flag in (flag for action in parser._actions for flag in action.option_strings):
            said = f"-l {flag[2:]}" if shell == "fish" and flag.startswith("--") else flag
            assert said in text or (shell == "fish" and f"-s {flag[1:]}" in text), (name, flag)


@pytest.mark.parametrize("shell", [shell for shell in SHELLS if shutil.which(shell)])
def test_the_script_is_read_by_its_shell(shell: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Bash everywhere; zsh and fish where they are."""
    written(shell, tmp_path / "script", capsys)
    run = subprocess.run(
        [shell, "-n", str(tmp_path / "script")], capture_output=True, text=True, timeout=30, check=False
    )
    assert (run.returncode, run.stderr) == (0, "")


def test_an_unknown_shell_takes_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["completion", "tcsh"])
    assert left.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1
