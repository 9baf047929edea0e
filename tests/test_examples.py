"""Every example runs and prints something: programs, whose cells are those of a notebook, and commands of the helps."""

from __future__ import annotations

import re
import runpy
import subprocess
from pathlib import Path

import pytest

from docs.examples import PAGE, TEXTS, Example, every, lay_out, page, run
from tests.places import ROOT

EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_example_runs(example: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(example), run_name="__main__")
    assert capsys.readouterr().out.strip()


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_example_is_a_notebook(example: Path) -> None:
    """Cells in the percent format, the first with a title, every one of code complete in itself."""
    cells = example.read_text(encoding="utf-8").split("# %%")
    assert cells[0] == ""
    assert cells[1].startswith(" [markdown]\n# # ")
    for cell in cells[1:]:
        head, _, text = cell.partition("\n")
        if head == " [markdown]":
            assert all(line.startswith("# ") for line in text.strip().splitlines())
        else:
            assert head == ""
            compile(text, example.name, "exec")


COMMANDS = every()
SHOWN = dict(re.findall(r"^\| `(.*)` \| [^|]* \| (.*) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE))
"""Exit codes, or reasons why it is not run, by command."""


def test_the_page_of_commands_is_that_of_the_helps_and_the_readme() -> None:
    codes = [SHOWN.get(one.line.replace("|", "\\|"), "?") for one in COMMANDS]
    assert PAGE.read_text(encoding="utf-8") == page(codes), "it is out of date: run `make examples`"
    assert set(codes) == {"0", *(one.why_not for one in COMMANDS if one.why_not)}


def test_a_shell_takes_every_command_of_the_helps_and_the_documentation() -> None:
    """A fabric such as RI(4)_SW(2) needs quotes: bash reads each line, and runs none."""
    pages = "".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "docs").rglob("*.md")))
    lines = {one.line for one in COMMANDS} | set(re.findall(r"^\$ ((?:.*\\\n)*.*)$", pages, re.MULTILINE))
    assert len(lines) > len(COMMANDS)
    for line in sorted(lines):
        read = subprocess.run(["bash", "-n", "-c", line], capture_output=True, text=True, check=False)
        assert read.stderr == "", line


@pytest.mark.full
@pytest.mark.table
@pytest.mark.compiled
@pytest.mark.parametrize("example", [one for one in COMMANDS if not one.why_not], ids=lambda one: one.line[:90])
def test_a_command_of_the_helps_ends_as_the_page_says(
    example: Example, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a folder with what a checkout has: `examples/` and `out/`; no table is wider than a terminal of 80 columns."""
    lay_out(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    code, said = run(example)
    assert str(code) == SHOWN[example.line.replace("|", "\\|")], said
    if "weft completion" not in example.line:  # which prints a script
        assert [line for line in said.splitlines() if len(line) > 80 and len(re.findall(r"\S {2,}\S", line)) > 1] == []


@pytest.mark.parametrize("name", TEXTS)
def test_the_files_of_examples_are_those_that_are_generated(name: str) -> None:
    assert (ROOT / "examples" / name).read_text(encoding="utf-8") == TEXTS[name]
