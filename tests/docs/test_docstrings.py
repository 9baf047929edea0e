"""The examples of docstrings give what they show."""

from __future__ import annotations

import doctest
from importlib import import_module
from pathlib import Path

import pytest

from tests.places import ROOT

ROOMS = ("topologies", "collectives", "workloads", "sim")
WITH_EXAMPLES = sorted(
    path for room in ROOMS for path in (ROOT / room).rglob("*.py") if ">>> " in path.read_text(encoding="utf-8")
)


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


def test_there_are_examples() -> None:
    assert len(WITH_EXAMPLES) > 20


@pytest.mark.parametrize("path", WITH_EXAMPLES, ids=module_name)
def test_examples_of_a_module(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = doctest.testmod(import_module(module_name(path)), optionflags=doctest.ELLIPSIS)
    assert result.attempted > 0
    assert result.failed == 0
