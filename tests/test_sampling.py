"""The sample of a table: the share that was asked for, and all that must not be missing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from types import SimpleNamespace
from typing import Any

import pytest

from collectives import ALGORITHMS
from tests.costs import affordable, listed, read
from tests.places import ROOT
from tests.sampling import sample
from topologies import TOPOLOGIES

TWO_TABLES = """
    import pytest
    from hypothesis import given, settings, strategies as st

    @pytest.mark.table
    @pytest.mark.parametrize("n", range(40))
    def test_table(n): ...

    @pytest.mark.full
    def test_full(): ...

    def test_alone(): ...

    @settings(max_examples=200)
    @given(st.integers())
    def test_many_draws(n): ...

    @settings(max_examples=2)
    @given(st.integers())
    def test_few_draws(n): ...
"""


COLLECTED = """
import sys
import pytest

for options in sys.argv[1].split("|"):
    print("with", options)
    pytest.main([*sys.argv[2:], *options.split()])
"""


@pytest.mark.full
def test_a_sample_and_its_rest_are_every_test(tmp_path: Path) -> None:
    """The rest has what the sample has only where the sample draws fewer examples; its parts are the rest."""
    path = tmp_path / "test_some.py"
    path.write_text(dedent(TWO_TABLES))
    rests = ["", "--keep-full", "--part 0/2", "--part 1/2", "--part 2/2", f"--drawn-anew {tmp_path}"]
    asked = ["", "--sample 8", "--sample 8 --keep-full", *(f"--sample 8 --rest {more}" for more in rests)]
    collect = ["-p", "tests.sampling", "--collect-only", "-q", "-o", "addopts=", "-o", "markers=table\nfull"]
    run = subprocess.run(
        [sys.executable, "-c", COLLECTED, "|".join(asked), *collect, f"--rootdir={tmp_path}", str(path)],
        capture_output=True, text=True, check=True, cwd=ROOT,
    )  # fmt: skip
    found = [
        {line.partition("::")[2] for line in said.splitlines() if "::" in line}
        for said in f"\n{run.stdout}".split("\nwith ")[1:]
    ]
    every, some, some_full, rest, rest_full, *parts, fixed = found
    assert len(every) == 44 and some | rest == every == some_full | rest_full
    assert some & rest == {"test_many_draws"} == some_full & rest_full
    assert "test_full" not in some and "test_full" in some_full
    assert parts[0] == parts[2] and not parts[0] & parts[1] and parts[0] | parts[1] == rest
    assert fixed == rest - {"test_many_draws"}


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


@pytest.mark.parametrize(
    ("seconds", "cost", "cases"), [(1, 0.03125, 32), (1, 1, 1), (1, 1.01, 1), (1, 3, 1), (1, 3.51, 0), (2, 0.9, 2)]
)
def test_a_function_runs_what_its_seconds_pay_for(seconds: float, cost: float, cases: int) -> None:
    assert affordable(seconds, cost) == cases
    assert affordable(seconds, cost, dearest=cost) == max(cases, 1)


def test_costs_are_the_mean_of_the_cases_of_dear_functions() -> None:
    spent = {"a.py::dear[1]": 0.5, "a.py::dear[2]": 0.25, "b.py::cheap": 0.2}
    reports = [
        SimpleNamespace(when=when, nodeid=name, user_properties=[("cpu", cpu)] if when == "teardown" else [])
        for name, cpu in spent.items() for when in ("setup", "teardown")
    ]  # fmt: skip
    assert listed(reports) == "0.375 a.py::dear\n"


def test_every_dear_test_exists() -> None:
    """A test that was renamed has no cost: `make costs` measures it anew."""
    for name in read():
        path, _, function = name.partition("::")
        assert f"def {function.rpartition('::')[2]}(" in (ROOT / path).read_text(), f"{name}: see make costs"
