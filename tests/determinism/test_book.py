"""The same numbers as ever: a fixed book of specs and jobs against the committed hashes of their results."""

from __future__ import annotations

import pytest

from benchmarks.determinism import BOOK, book, logged, programs, read_hashes
from sim.version import RESULTS_VERSION
from tests.oracles.general_loop.run import run_general_loop

ENTRIES, PROGRAMS = book(), programs()
HASHES = read_hashes()

MEANT = (
    "If the change is meant: python -m benchmarks.determinism --write, the next RESULTS_VERSION in sim/version.py, and "
    'an entry under "changed results" in CHANGELOG.md.'
)


def test_the_book_has_a_hundred_entries_and_more_each_with_a_hash() -> None:
    assert len(ENTRIES) >= 100
    assert ENTRIES.keys() == HASHES["results"].keys(), f"{BOOK.name} and the hashes differ. {MEANT}"


def test_the_hashes_are_of_this_version_of_the_results() -> None:
    assert HASHES["results_version"] == RESULTS_VERSION, MEANT


@pytest.mark.parametrize("name", ENTRIES)
def test_no_number_has_changed(name: str) -> None:
    assert ENTRIES[name]() == HASHES["results"][name], f"the results of {name!r} are not those committed. {MEANT}"


@pytest.mark.table
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_general_loop_has_the_same_services(name: str) -> None:
    """All of their times, and which follows which."""
    assert logged(PROGRAMS[name], run_general_loop) == HASHES["results"][name]
