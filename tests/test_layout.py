"""What is tested is this checkout, and the rooms are where the design says."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("room", ["topologies", "collectives", "workloads", "sim"])
def test_room_is_imported_from_this_checkout(room: str) -> None:
    module = importlib.import_module(room)
    assert module.__file__ is not None
    assert Path(module.__file__).parent == ROOT / room


@pytest.mark.parametrize("room", ["topologies", "collectives", "workloads", "sim"])
def test_room_is_typed(room: str) -> None:
    assert (ROOT / room / "py.typed").exists()
