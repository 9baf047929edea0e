"""Defects planted into machines with noise are found; `python -m benchmarks.planted` counts more of them."""

from __future__ import annotations

import pytest

from benchmarks.planted import DEFECTS, SWEEPS, planted

SEEDS = (1, 2, 3)


@pytest.mark.parametrize("name", DEFECTS)
def test_a_planted_defect_is_found(name: str) -> None:
    """In two tables of three at least: a machine that scatters may hide a rail of four, but not twice."""
    sizes = SWEEPS["sweep" if name == "LL128 off" else "few"]
    found = [planted(name, sizes, seed) for seed in SEEDS]
    assert sum(one.verdict in DEFECTS[name].right for one in found) >= 2, [(one.verdict, one.cause) for one in found]


@pytest.mark.parametrize("kind", SWEEPS)
def test_a_healthy_machine_is_never_called_bad(kind: str) -> None:
    assert all(planted("healthy, one node", SWEEPS[kind], seed).fine for seed in range(10))
