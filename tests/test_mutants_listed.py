"""The list of surviving mutants is of lines that are there, and every subject has its files and tests."""

from __future__ import annotations

import pytest

from benchmarks.mutants import PAGE, SUBJECTS, known
from tests.places import ROOT


@pytest.mark.parametrize("name", SUBJECTS)
def test_every_listed_line_is_in_its_file(name: str) -> None:
    lines = {}
    for group in known(name):
        assert group.reason and group.mutants
        for mutant in group.mutants:
            lines.setdefault(mutant.file, {line.strip() for line in (ROOT / mutant.file).read_text().splitlines()})
            assert mutant.before in lines[mutant.file]
            assert mutant.after not in lines[mutant.file]
            assert f"`{mutant.before}` becomes `{mutant.after}`" in PAGE.read_text()


@pytest.mark.parametrize("name", SUBJECTS)
def test_every_subject_has_files_and_tests(name: str) -> None:
    assert all(list(ROOT.glob(pattern)) for pattern in SUBJECTS[name].files)
    assert all((ROOT / test).exists() for test in SUBJECTS[name].tests if not test.startswith("-"))
