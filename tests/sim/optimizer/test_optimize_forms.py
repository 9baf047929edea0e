"""Forms of algorithms are choices of the optimizer: what it reports is what `weft compare` reports there."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from collectives.registry import ALGORITHMS
from sim.cli import main
from sim.cli.flags import EXIT_BAD_INPUT

RATES = (33.0, 5.0)
SHAPES = [("torus:4x4", (2, 2)), ("torus:8x2", (2, 1)), ("mesh:4x2", (1.5, 1))]
"""And the links of an NPU in each dimension: on a line, on average."""
OWN_CHUNKS = ("hierarchical", "themis")
"""Their chunks are options of the algorithm in one command, and of the model in the other."""
CASES = [
    (spec, links, kind, name, size)
    for spec, links in SHAPES
    for name, one in ALGORITHMS.items()
    for kind in (one.forms or {"all-reduce": ()})
    for size in (("1K", "1M") if one.forms else ("64K",))
    if kind in one.functions and not one.built_from_rates and name not in OWN_CHUNKS
]


def rows_of(path: Path, *words: str) -> list[dict[str, Any]] | None:
    """Rows of a command; None where the fabric is not for it."""
    if main([*words, "--quiet", "--json", str(path)]) == EXIT_BAD_INPUT:
        return None
    found: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["rows"]
    return found


@pytest.mark.table
@pytest.mark.parametrize(("spec", "links", "kind", "name", "size"), CASES)
def test_the_time_is_that_of_a_comparison_at_the_same_bandwidths(
    spec: str, links: tuple[float, float], kind: str, name: str, size: str, tmp_path: Path
) -> None:
    """To the picosecond, in the same form."""
    asked = ["--topology", spec, "--collective", kind, "--algorithms", name, "-b", size]
    rates = ",".join(f"{rate / share}GB/s" for rate, share in zip(RATES, links, strict=True))
    compared = rows_of(tmp_path / "a.json", "compare", *asked, "--link-bandwidth", rates, "--chunks", "4",
                       "--spread", "0")
    limits = [word for dim, rate in enumerate(RATES, start=1) for word in ("--constraint", f"B{dim} = {rate}")]
    found = rows_of(tmp_path / "b.json", "optimize", *asked, *limits, "--chunks", "4", "--evaluations", "3")
    if compared is None:
        assert found is None
        return
    assert found is not None
    assert round(found[0]["time_s"] * 1e12) == round(compared[0]["time_s"] * 1e12)
    assert found[0]["form"] == compared[0]["form"]
    assert set(found[0]["other_forms"]) == set(compared[0]["other_forms"])


@pytest.mark.parametrize(("name", "size"), [("swing", "16K"), ("recursive-doubling", "4K"), ("in-network", "1M")])
def test_the_best_form_is_found(name: str, size: str, tmp_path: Path) -> None:
    """No form alone is faster, and no split beside the answer."""
    spec = "fat-tree:4" if name == "in-network" else "torus:8x4"
    asked = ["optimize", "--topology", spec, "--collective", "all-reduce", "--algorithm", name, "-b", size,
             "--budget", "38GB/s", "--chunks", "2", "--evaluations", "12"]
    (best,) = rows_of(tmp_path / "a.json", *asked) or []
    assert best["form"] in best["knobs"] and best["time_s"] <= best["equal_time_s"]
    assert best["time_s"] <= best["analytic_simulated_s"] * (1 + 1e-12)
    assert best["evaluations"] == best["simulations"]
    for form in ALGORITHMS[name].forms_of("all-reduce"):
        alone = rows_of(tmp_path / "b.json", *asked, "--form", form)
        if alone is not None:
            assert alone[0]["form"] == form and best["time_s"] <= alone[0]["time_s"]


IN_NETWORK = ["optimize", "--topology", "fat-tree:4", "--collective", "all-reduce", "--algorithm", "in-network",
              "--option", "trees=2", "--budget", "50GB/s", "--chunks", "4", "-b"]
"""Whose best form has its best split where the other one is faster at the start."""


@pytest.mark.parametrize("asked", [
    [*IN_NETWORK, "116K", "--evaluations", "20"],
    ["optimize", "--topology", "torus:4x4", "--collective", "all-reduce", "--algorithm", "swing", "-b", "64K",
     "--budget", "50GB/s", "--evaluations", "15"],
])
def test_a_check_changes_nothing(asked: list[str], tmp_path: Path) -> None:
    (plain,) = rows_of(tmp_path / "a.json", *asked) or []
    (checked,) = rows_of(tmp_path / "b.json", *asked, "--check") or []
    assert plain == checked


def test_times_by_formula_are_the_least_over_forms(tmp_path: Path) -> None:
    asked = [*IN_NETWORK, "116K", "--evaluations", "4"]
    rows = {form: (rows_of(tmp_path / "a.json", *asked, *(["--form", form] if form else [])) or [{}])[0]
            for form in ("", "push", "pull")}
    assert rows[""]["analytic_time_s"] == min(rows[form]["analytic_time_s"] for form in ("push", "pull"))
    equal = {form: row["splits"][0]["formula_s"] for form, row in rows.items()}
    assert equal[""] == min(equal["push"], equal["pull"]) < max(equal["push"], equal["pull"])


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--workload", "resnet-50"], "--form belongs to --collective"),
        (["--collective", "all-reduce", "--algorithms", "swing,hierarchical"],
         "--form latency: hierarchical all-reduce has one form only"),
        (["--collective", "all-reduce", "--algorithms", "tree"], "form 'latency' belongs to none of tree"),
    ],
)
def test_forms_that_are_refused(more: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["optimize", "--network", "RI(4)_SW(2)", "--budget", "100GB/s", "--form", "latency"]
    assert main([*asked, *more]) == EXIT_BAD_INPUT
    assert message in capsys.readouterr().err


def test_the_searches_are_named_where_progress_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    heard: set[str] = set()
    monkeypatch.setattr("sim.cli.progress._Loops.__call__", lambda self, unit, done, total: heard.add(unit))
    rows_of(tmp_path / "a.json", "optimize", "--topology", "torus:4x4", "--collective", "all-reduce",
            "--algorithms", "ring,bucket", "-b", "16M", "--budget", "38GB/s", "--chunks", "2", "--evaluations", "4")
    named = [unit for unit in heard if "evaluations" in unit]
    assert len(named) == 2
    assert all(re.fullmatch(r"evaluations at most of search \d \((ring|bucket), 2 chunks\)", one) for one in named)
