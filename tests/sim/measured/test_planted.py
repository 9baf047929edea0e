"""Defects planted into machines with noise are found; `python -m benchmarks.planted` counts more of them."""

from __future__ import annotations

import pytest

from benchmarks.planted import DEFECTS, SWEEPS, elsewhere, planted, shows

SEEDS = (1, 2, 3)


@pytest.mark.table
@pytest.mark.parametrize("name", DEFECTS)
def test_a_planted_defect_is_found(name: str) -> None:
    """In two tables of three at least: a machine that scatters may hide a rail of four, but not twice."""
    sizes = SWEEPS["sweep" if name == "LL128 off" else "few"]
    found = [planted(DEFECTS[name], sizes, seed) for seed in SEEDS]
    assert sum(one.verdict in DEFECTS[name].right for one in found) >= 2, [(one.verdict, one.cause) for one in found]


@pytest.mark.table
@pytest.mark.parametrize("kind", SWEEPS)
def test_a_healthy_machine_is_never_called_bad(kind: str) -> None:
    assert all(planted(DEFECTS["healthy, one node"], SWEEPS[kind], seed).fine for seed in range(10))


@pytest.mark.full
def test_defects_on_other_machines_are_found() -> None:
    """One table of four sizes of each, of up to 16 GPUs: `python -m benchmarks.planted` has the others."""
    wrong, total = [], 0
    for name, place, defect in elsewhere():
        if shows(name, "few") and defect.told.n <= 16:
            total += 1
            one = planted(defect, SWEEPS["few"], total)
            assert one.fine or name != "healthy", (place, one.verdict)
            if one.verdict not in defect.right:
                wrong.append((name, place, one.verdict, one.cause))
    assert total >= 25
    assert len(wrong) <= total // 8, wrong
