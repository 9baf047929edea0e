"""Small simulations one after the other: memory stays flat. The long run is `python -m benchmarks.soak`."""

from __future__ import annotations

import pytest

from benchmarks import soak
from sim import simulate

LEAST_LEAK = 0.1
"""Objects a run that are noticed."""


@pytest.mark.full
def test_memory_is_flat_over_two_thousand_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """On one set of fabrics: caches of fabrics have limits of their own, which only the long run reaches.

    A run that kept one object would add a thousand; caches take what is new to them once, some 30 objects in these.
    """
    monkeypatch.setattr(soak, "FABRIC_RUNS", 2_000)
    samples = soak.soak(2_000, 500)
    assert [one.runs for one in samples] == [500, 1_000, 1_500, 2_000]
    assert samples[-1].objects - samples[1].objects < LEAST_LEAK * 1_000
    assert samples[-1].resident_bytes - samples[1].resident_bytes < 2 * 2**20


def test_a_leak_would_show(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[object] = []
    def leaky(*given: object, **named: object) -> object:
        kept.append([simulate(*given, **named)])  # type: ignore[arg-type]  # passed on
        return kept[-1][0]  # type: ignore[index]  # a list

    monkeypatch.setattr("benchmarks.soak.simulate", leaky)
    samples = soak.soak(200, 100)
    assert samples[-1].objects - samples[0].objects > LEAST_LEAK * 100


@pytest.mark.verify
def test_memory_is_flat_over_a_hundred_thousand_runs() -> None:
    samples = soak.soak(100_000, 50_000)
    assert samples[-1].objects - samples[0].objects <= 100  # of 50,000 runs
    assert samples[-1].resident_bytes - samples[0].resident_bytes < 8 * 2**20
