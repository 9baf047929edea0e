"""The notebooks of the tutorial run from their first cell to their last, and are stored as text, without outputs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.places import ROOT

NOTEBOOKS = sorted((ROOT / "docs" / "tutorial").glob("*.py"))


def test_there_are_three() -> None:
    assert [path.stem for path in NOTEBOOKS] == ["compare-algorithms", "design-a-network", "judge-a-cluster"]


@pytest.mark.full
@pytest.mark.compiled
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(notebook: Path, tmp_path: Path) -> None:
    """In a process of its own, where any warning is an error; the site shows what its cells display."""
    ran = subprocess.run(
        [sys.executable, "-W", "error", str(notebook)], cwd=tmp_path, capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT), "MPLBACKEND": "agg"},
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_cells(notebook: Path) -> None:
    """In the percent format: a title first, text as comments, every cell of code complete in itself."""
    first, *cells = notebook.read_text(encoding="utf-8").split("# %%")
    assert first == ""
    assert cells[0].startswith(" [markdown]\n# # Notebook: ")
    for cell in cells:
        head, _, text = cell.partition("\n")
        if head == " [markdown]":
            assert [line for line in text.strip().splitlines() if line != "#" and not line.startswith("# ")] == []
        else:
            assert head == ""
            compile(text, notebook.name, "exec")
