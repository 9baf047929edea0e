"""Sweeps over plans of training: rows, reasons, keys."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sim.study.file import make_sweep
from sim.study.key import point_key
from sim.study.plans import asked, fitting, label_of, run_plan
from sim.study.spec import Spec
from sim.study.store import Store
from sim.study.sweep import run_sweep, sweep_rows
from topologies.checks import WeftError

SWEEP: dict[str, dict[str, Any]] = {
    "topology": {"machine": "dgx-h100:2"}, "library": {"name": "nccl"},
    "iteration": {"model": "llama-3-8b", "tp": [2, 8], "pp": [1, 2], "global_batch": 32},
}


def test_a_sweep_over_plans_has_the_rows_of_train_and_says_what_does_not_fit(tmp_path: Path) -> None:
    sweep = make_sweep(SWEEP)
    assert sweep.axes == {"iteration.tp": (2, 8), "iteration.pp": (1, 2)}
    tally = run_sweep(sweep.points, tmp_path / "plans.db")
    assert (tally.computed, tally.refused) == (4, 0)
    rows = sweep_rows(sweep, Store(tmp_path / "plans.db"))
    assert [(row["iteration.tp"], row["iteration.pp"], row["dp"]) for row in rows] == [
        (2, 1, 8), (2, 2, 4), (8, 1, 2), (8, 2, 1)]
    spec = Spec.from_dict(SWEEP | {"iteration": {**SWEEP["iteration"], "tp": 8, "pp": 2}})
    again = run_plan(spec, fitting(spec))
    assert again["time_s"] == rows[-1]["time_s"] and again["mfu"] == rows[-1]["mfu"]


def test_plans_that_do_not_fit_are_rows_with_a_reason(tmp_path: Path) -> None:
    sweep = make_sweep(SWEEP | {"iteration": {"model": "llama-3-70b", "tp": 8, "global_batch": [32, 33]}})
    assert run_sweep(sweep.points, tmp_path / "plans.db").refused == 2
    reasons = [row["refused"] for row in sweep_rows(sweep, Store(tmp_path / "plans.db"))]
    assert "llama-3-70b needs" in reasons[0] and "global-batch 33 is no multiple" in reasons[1]


def test_keys_of_plans_tell_what_differs() -> None:
    base = make_sweep(SWEEP | {"iteration": {"model": "llama-3-8b", "global_batch": 32}}).points[0]
    assert label_of(base.spec) == "llama-3-8b global_batch=32"

    def changed(section: str, **keys: Any) -> str:
        spec = replace(base.spec, **{section: replace(getattr(base.spec, section), **keys)})
        return point_key(base._replace(spec=spec))

    keys = [point_key(base), changed("iteration", tp=2), changed("iteration", inline=True),
            changed("library", name="nccl:2.18"), changed("topology", machine="dgx-a100:2"),
            changed("workload", efficiency=0.5)]
    assert len(set(keys)) == len(keys)
    assert changed("iteration", tp=1) == keys[0]


def test_an_inlined_plan_is_a_point_too() -> None:
    spec = Spec.from_dict({
        "topology": {"spec": "switch:4"},
        "iteration": {"model": "gpt-1.7b", "device": "a100", "tp": 4, "global_batch": 1, "inline": True},
    })
    row = run_plan(spec, asked(spec))
    composed = replace(spec, iteration=replace(spec.iteration, inline=False))
    assert row["time_s"] == pytest.approx(run_plan(composed, asked(composed))["time_s"], rel=1e-3)
    ends = run_plan(composed, asked(composed), spread=2)
    assert ends["spread_low_s"] <= ends["time_s"] <= ends["spread_high_s"]
    account = run_plan(spec, asked(spec), why=True)["why"]
    assert sum(account["parts_ps"].values()) == account["makespan_ps"] == round(row["time_s"] * 1e12)


def test_a_sweep_over_plans_takes_algorithms_engines_and_looks(tmp_path: Path) -> None:
    """An algorithm is a row, an engine is that of the collectives, and what needs one run is refused elsewhere."""
    swept: dict[str, dict[str, Any]] = {
        "topology": {"spec": "torus:2x4"}, "collective": {"algorithms": ["ring", "bucket"]},
        "model": {"engine": ["chunk", "fluid"]},
        "iteration": {"model": "gpt-1.7b", "device": "a100", "tp": 4, "global_batch": 2},
    }

    def rows(data: dict[str, dict[str, Any]], name: str) -> list[dict[str, Any]]:
        sweep = make_sweep(data)
        run_sweep(sweep.points, tmp_path / name)
        return sweep_rows(sweep, Store(tmp_path / name))

    found = rows(swept, "composed.db")
    assert [row["algorithm"] for row in found] == ["ring", "bucket"] * 2
    assert found[0]["time_s"] != found[2]["time_s"] == pytest.approx(found[0]["time_s"], rel=0.01)
    both = {**swept, "model": {}, "account": {"why": True}, "collective": {},
            "iteration": swept["iteration"] | {"inline": [False, True]}}
    composed, inlined = rows(both, "looked.db")
    assert "give --inline" in composed["refused"]
    assert inlined["why"]["makespan_ps"] == round(inlined["time_s"] * 1e12)
    (library,) = rows({**SWEEP, "account": {"spread": 2}, "iteration": {"model": "gpt-1.7b", "global_batch": 32}}, "n")
    assert "--spread 2 perturbs simulated collectives: a library" in library["refused"]


@pytest.mark.parametrize(("sections", "why"), [
    ({"iteration": {"tp": 2}}, "--tp 2 is of a plan: give --model"),
    ({"workload": {"efficiency": 0.5}}, "--efficiency 0.5 is of a workload: give --workload"),
    ({"iteration": {"inline": True}}, "--inline is of a plan: give --model"),
])
def test_keys_of_a_plan_need_its_model(sections: dict[str, Any], why: str) -> None:
    with pytest.raises(WeftError, match=why):
        make_sweep({"topology": {"spec": "ring:4"}, "collective": {"algorithms": ["ring"]}, **sections})


@pytest.mark.parametrize(("name", "stage", "replicas"), [
    ("ddp", 0, 1), ("ZeRO-1", 1, 1), ("zero2", 2, 1), ("fsdp", 3, 1), ("FSDP2", 3, 1), ("hsdp", 3, 2)])
def test_schemes_go_by_their_names(name: str, stage: int, replicas: int) -> None:
    keys = {"model": "llama-3-8b", "global_batch": 32, "replicas": replicas}
    plans = [asked(Spec.from_dict({**SWEEP, "iteration": keys | {"zero": zero}})).plan for zero in (name, stage)]
    assert plans[0] == plans[1] and plans[0].zero == stage


@pytest.mark.parametrize(("keys", "why"), [
    ({"iteration": {"zero": "hsdp"}}, "give --replicas N"), ({"iteration": {"zero": "fdsp"}}, "zero 'fdsp' is unknown"),
    ({"training": {"loop": "fsdp"}}, "--loop fsdp is of the layers of --workload: .* which has --zero fsdp"),
])
def test_schemes_that_are_not(keys: dict[str, Any], why: str) -> None:
    base = {"model": "llama-3-8b", "global_batch": 32}
    with pytest.raises(WeftError, match=why):
        asked(Spec.from_dict({**SWEEP, **keys, "iteration": base | keys.get("iteration", {})}))


def test_a_plan_has_collectives_of_its_own() -> None:
    for more in ({"sweep": {"begin": "1K"}}, {"collective": {"name": "all-gather"}}):
        with pytest.raises(WeftError, match="a plan has collectives and sizes of its own"):
            asked(Spec.from_dict({**SWEEP, "iteration": {"model": "llama-3-8b", "global_batch": 32}, **more}))
