"""New draws: by a seed, and what failed once is tried first from then on."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.places import ROOT

FAILING = """
from hypothesis import given, settings, strategies as st
from tests.fresh import register

register({kept!r}, {found!r})
settings.load_profile("new")

@settings(max_examples={draws})
@given(st.integers(0, 10**9))
def test_small(n):{comment}
    print("drawn", n)
    assert n {condition}
"""


def drawn(folder: Path, seed: int, *, draws: int, condition: str, comment: str = "") -> list[int]:
    """What was drawn, by a run that keeps what fails in found/, and reads kept/."""
    kept, found = str(folder / "kept"), str(folder / "found")
    (folder / "conftest.py").write_text("")
    text = FAILING.format(kept=kept, found=found, draws=draws, condition=condition, comment=comment)
    (folder / "test_small.py").write_text(text)
    command = [
        sys.executable, "-m", "pytest", "-q", "-s", "-p", "_hypothesis_pytestplugin", "-p", "tests.fresh",
        "-p", "no:cacheprovider", "--rootdir", str(folder), "-c", os.devnull, "--hypothesis-seed", str(seed),
        str(folder / "test_small.py"),
    ]  # fmt: skip
    few = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "CI": "true"}  # where hypothesis has defaults of its own
    done = subprocess.run(command, cwd=ROOT, env=few, capture_output=True, text=True, check=False)
    return [int(line.split()[1]) for line in done.stdout.splitlines() if line.startswith("drawn")]


def test_a_seed_repeats_its_draws_and_another_draws_others(tmp_path: Path) -> None:
    once, again, other = (drawn(tmp_path, seed, draws=5, condition="< 10**10") for seed in (1, 1, 2))
    assert len(once) == 5
    assert once == again
    assert once != other


@pytest.mark.full
def test_what_failed_is_tried_first_and_stays_in_the_corpus(tmp_path: Path) -> None:
    """Also when the text of the test has changed, with another seed, and when it has been mended in between."""
    drawn(tmp_path, 3, draws=300, condition="< 77777")
    (tmp_path / "found").rename(tmp_path / "kept")
    for condition in ("< 10**10", "< 77777"):
        assert drawn(tmp_path, 4, draws=2, condition=condition, comment="  # another text")[0] == 77777
