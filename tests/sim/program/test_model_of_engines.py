"""Each engine takes what it knows of a model, and rejects the rest."""

from __future__ import annotations

import pytest

from collectives import algorithms_for, build
from sim import simulate
from sim.program.model import PRESETS, Model, make_model, model_of
from tests.model_values import GIVEN
from topologies import WeftError, from_spec

KNOWN = {
    "analytic": {"forwarding", "chunk", "chunks", "endpoint_latency", "tie", "seed", "rank_progress"},
    "fluid": {"header", "endpoint_latency", "tie", "seed", "rank_progress"},
    "chunk": set(GIVEN), "reference": set(GIVEN),
}


@pytest.mark.parametrize("engine", KNOWN)
def test_what_an_engine_does_not_know_is_rejected(engine: str) -> None:
    for name, options in GIVEN.items():
        model = make_model(**options)
        if name in KNOWN[engine]:
            assert model_of(engine, model).describe()
        else:
            with pytest.raises(WeftError, match=f": not with the {engine} engine, ") as wrong:
                model_of(engine, model)
            told = str(wrong.value).partition(":")[0]
            assert not {"bytes", "None", "True"} & set(told.split())
            assert "(" not in told


def test_a_preset_is_named_only_for_what_is_its_own() -> None:
    paper = PRESETS["swing-paper"]
    with pytest.raises(WeftError, match=r"^deliver head of preset swing-paper: "):
        model_of("fluid", paper, "swing-paper")
    with pytest.raises(WeftError, match=r"^vcs 2: "):
        model_of("fluid", make_model(vcs=2), "swing-paper")


def test_default_words_take_a_value_back() -> None:
    assert make_model(make_model(buffer="1MiB"), buffer="unlimited") == Model()
    ejecting = make_model(nic="shared", ejection_rate="1GB/s")
    assert make_model(ejecting, ejection_rate="unlimited") == make_model(nic="shared")


@pytest.mark.parametrize("size", [0, "100KiB"])
def test_no_analytic_time_is_below_a_bound(size: str | int) -> None:
    """Also of schedules whose steps are not in lockstep, such as tacos', and of empty arrays."""
    fabric = from_spec("torus:4x2")
    below = 0
    for name in algorithms_for("all-reduce"):
        try:
            schedule = build(name, "all-reduce", fabric, size)
        except WeftError:
            continue
        result = simulate(schedule, engine="analytic")
        assert result.estimate_ps is not None
        assert result.time_ps == max(result.estimate_ps, result.lower_bound_ps), name
        below += result.estimate_ps < result.lower_bound_ps
    assert below
