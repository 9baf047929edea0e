"""The sample of a table: the share that was asked for, and all that must not be missing."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from collectives import ALGORITHMS
from tests.sampling import sample
from topologies import TOPOLOGIES


def table(*ids: str) -> list[Any]:
    return [SimpleNamespace(nodeid=f"tests/test_a.py::test_a[{one}]") for one in ids]


def kept(*ids: str, share: int = 8) -> set[str]:
    return {item.nodeid.partition("[")[2][:-1] for item in sample(table(*ids), share)}


def test_every_registered_name_is_kept() -> None:
    names = [f"torus:{n}x{n}-{name}" for n in range(4, 12) for name in ALGORITHMS]
    assert {one.partition("-")[2] for one in kept(*names)} == set(ALGORITHMS)
    specs = [f"{family}:{n}" for n in range(4, 12) for family in TOPOLOGIES]
    assert {one.partition(":")[0] for one in kept(*specs)} == set(TOPOLOGIES)


def test_degenerate_sizes_are_kept() -> None:
    shapes = [f"{rows}x{columns}" for rows in range(40) for columns in range(40)]
    found = kept(*shapes, *map(str, range(200)), share=100)
    assert {f"{rows}x{columns}" for rows in range(4) for columns in range(4)} | set("0123") <= found
    assert len(found) < 60


def test_the_share_is_one_in_k_by_name() -> None:
    names = [f"case {'abcdefgh'[at % 8]}{at:x}" for at in range(4000)]
    found = kept(*names)
    assert 400 < len(found) < 600
    assert kept(*reversed(names)) == found
    assert found <= kept(*names, "one more")


def test_no_table_is_left_out_whole() -> None:
    assert len(kept("a", share=10**9)) == 1
