"""What is tested is this checkout, the packages are where the design says, and their tests mirror them."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from tests.places import ROOT

ROOMS = ("topologies", "collectives", "workloads", "sim")
OF_NO_PACKAGE = {"browser", "data", "determinism", "oracles"}
"""Folders of tests that try the whole from outside, or have no tests but what tests use."""


def packages() -> set[str]:
    return {path.parent.relative_to(ROOT).as_posix() for room in ROOMS for path in (ROOT / room).rglob("__init__.py")}


def folders_of_tests() -> set[str]:
    """Folders below tests/ with a file that is committed or about to be."""
    tests = ROOT / "tests"
    return {path.parent.relative_to(tests).as_posix() for path in tests.rglob("*.py")} - {"."}


@pytest.mark.parametrize("room", ROOMS)
def test_room_is_imported_from_this_checkout(room: str) -> None:
    module = importlib.import_module(room)
    assert module.__file__ is not None
    assert Path(module.__file__).parent == ROOT / room


@pytest.mark.parametrize("room", ROOMS)
def test_room_is_typed(room: str) -> None:
    assert (ROOT / room / "py.typed").exists()


def test_every_folder_of_tests_mirrors_a_package() -> None:
    assert folders_of_tests() - OF_NO_PACKAGE <= packages()


def test_every_package_has_tests() -> None:
    assert {name for name in packages() if not list((ROOT / "tests" / name).glob("test_*.py"))} == set()
