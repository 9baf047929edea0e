"""Every example runs and prints something; its cells are those of a notebook."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

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
