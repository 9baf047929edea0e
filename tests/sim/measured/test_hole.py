"""LL128 off is found by what it predicts size by size, and not by medium sizes that are slow."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from sim.library.expected import expected
from sim.library.tuner import Setting
from sim.measured.causes import OF_MEDIUM, Hole, hole, ll128_off
from sim.measured.library_run import LibraryRun
from topologies.machines.profile import machine

SIZES = [2**power for power in range(10, 34, 2)]
PLACES = [
    Setting(machine=machine(name), nodes=nodes, gpus=8, collective=kind)
    for name, nodes, kind in (("dgx-h100", 4, "all-reduce"), ("dgx-h100", 16, "all-reduce"),
                              ("dgx-a100", 4, "all-reduce"), ("dgx-h200", 4, "all-gather"), ("dgx1", 8, "all-reduce"))
]


def cause(setting: Setting, factors: dict[int, float]) -> str:
    """Of healthy times at `SIZES`, each that many times as long."""
    points = [(size, expected(setting, size).time_s * factors[size]) for size in SIZES]
    return LibraryRun("table", setting, points).finding.cause


@pytest.mark.table
@pytest.mark.parametrize("setting", PLACES, ids=lambda one: f"{one.machine.name}:{one.nodes}")
def test_medium_sizes_that_scatter_are_no_hole(setting: Setting) -> None:
    """Some sizes by a quarter, all of small and medium ones alike, or as healthy machines scatter; never LL128."""
    rng = np.random.default_rng(1)
    dents = [{size: 1.3 if 2**20 <= size <= 2**24 else 1.0 for size in SIZES},
             {size: 1.27 if size <= 2**24 else 1.0 for size in SIZES},
             *({size: 3.0 if size == odd else 1.0 for size in SIZES} for odd in SIZES[4:6])]
    for _ in range(3):  # as the book: what is off at one medium size is off at its neighbors
        off = rng.normal(0, OF_MEDIUM / 2**0.5)
        each = rng.normal(0, OF_MEDIUM / 2**0.5, len(SIZES))
        dents.append({size: float(np.exp(off + one)) if 2**18 <= size <= 2**26 else 1.0
                      for size, one in zip(SIZES, each, strict=True)})
    named = [cause(setting, dent) for dent in dents]
    assert "ll128-off" not in named


@pytest.mark.parametrize("setting", PLACES, ids=lambda one: f"{one.machine.name}:{one.nodes}")
@pytest.mark.parametrize("slow", [1.0, 1.25])
def test_what_ll128_off_predicts_is_found(setting: Setting, slow: float) -> None:
    """With noise, and on a machine whose latencies are longer."""
    other, rng = ll128_off(setting), np.random.default_rng(2)
    assert other is not None
    factors = {size: expected(other.setting, size).time_s / expected(setting, size).time_s
               * (slow if size <= 2**22 else 1) * float(np.exp(rng.normal(0, 0.03))) for size in SIZES}
    assert cause(setting, factors) == "ll128-off"


def test_one_size_that_is_far_off_is_no_evidence_as_a_normal_distribution_has_it() -> None:
    """Far beyond the scatter, twice as far off is only some times as unlikely."""
    sizes, most = (2**20, 2**22, 2**24), np.full(3, np.log(2.0))
    one, two = (Hole(sizes, np.array([far, 0.0, 0.0]), most * 0.9, most).likelier[0] for far in (1.0, 2.0))
    assert two - one < 0.5


def test_a_hole_has_two_ends_and_some_sizes() -> None:
    setting = PLACES[0]
    other = ll128_off(setting)
    assert other is not None
    rows = LibraryRun("table", setting, [(size, expected(setting, size).time_s) for size in SIZES]).rows
    found = hole(setting, other.setting, rows, ())
    assert found is not None and found.sizes == (2**18, 2**20, 2**22, 2**24) and found.deep == (2**18, 2**22)
    assert found.usual == pytest.approx(0, abs=1e-9) and found.likelier[0] < -10
    assert hole(setting, other.setting, rows[:8], ()) is None  # no larger size
    assert hole(setting, other.setting, rows[5:], ()) is None  # no smaller one
    assert hole(setting, other.setting, rows[::3], ()) is None
    alone = replace(setting, protocols=("Simple",))
    assert ll128_off(alone) is None and LibraryRun("table", alone, [(2**30, 0.01)]).hole is None
