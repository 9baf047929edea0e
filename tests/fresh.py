"""New draws in CI, beside the fixed ones: `make fresh`.

`--hypothesis-profile new --hypothesis-seed N` draws by a seed, which the Makefile chooses and prints. What fails is
kept in out/corpus; copied to tests/corpus and committed, it is tried first in every later run of `make fresh`.
Examples are filed by the name of their test, not by its text (hypothesis's own way, which keeps none under a seed).
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import is_hypothesis_test, settings
from hypothesis.database import DirectoryBasedExampleDatabase, MultiplexedDatabase, ReadOnlyDatabase

from tests.places import ROOT


def register(kept: str = str(ROOT / "tests" / "corpus"), found: str = str(ROOT / "out" / "corpus")) -> None:
    """The profile "new": the corpus is read, and what fails is written to another folder."""
    corpus = ReadOnlyDatabase(DirectoryBasedExampleDatabase(kept))
    database = MultiplexedDatabase(DirectoryBasedExampleDatabase(found), corpus)
    # derandomize said here: hypothesis turns it on by itself where it sees a CI, and every seed would draw the same
    settings.register_profile("new", derandomize=False, deadline=None, database=database, print_blob=True)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        test: Any = getattr(item, "obj", None)
        if test is not None and is_hypothesis_test(test):
            test._hypothesis_internal_database_key = f"{test.__module__}:{test.__qualname__}".encode()


register()
