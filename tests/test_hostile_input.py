"""Input that ended in a traceback, or was taken for what it is not: one line each."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from collectives import build, swing
from sim.analytic.constraints import parse_constraint
from sim.cli import main
from sim.study.tables import to_csv
from topologies import WeftError, ring
from topologies.core import extents
from workloads import schedule_to_chakra, write_trace


@pytest.mark.parametrize("rate", ["1b/s", "7b/s", "0.3B/s"])
def test_a_search_takes_rates_below_a_byte_a_second(rate):
    assert build("tacos", "all-gather", ring(4, bandwidth=rate), "1KiB").proof == "proved"


def test_a_node_of_an_unknown_kind_is_named():
    trace = schedule_to_chakra(swing.all_reduce(ring(4), 4096))[0]
    wrong = trace._replace(nodes=(trace.nodes[0]._replace(kind="sned"),))
    with pytest.raises(WeftError, match=r"node 0: kind 'sned' is unknown: .* \(did you mean send\?\)"):
        write_trace(wrong)


@pytest.mark.parametrize("bound", ["nan", "inf", "-inf"])
def test_a_constraint_has_a_finite_bound(bound):
    with pytest.raises(WeftError, match="neither a dimension"):
        parse_constraint(f"B1 >= {bound}", 2)


def test_a_budget_in_dollars_is_finite(capsys):
    words = ["optimize", "--network", "RI(2)_SW(2)", "--workload", "ncf", "--budget", "100GB/s", "--budget-cost", "nan"]
    assert main(words) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "budget" in error


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1"])
def test_no_cell_of_a_table_is_a_formula(text):
    assert to_csv([{"name": text, "number": -1.5}]).splitlines()[1].strip('"').startswith("'")
    assert to_csv([{"name": text, "number": -1.5}]).endswith(",-1.5\n")


def test_the_limits_of_a_container_and_of_the_shell_are_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    limit = tmp_path / "memory.max"
    limit.write_text("max\n")
    monkeypatch.setattr(extents, "CGROUP_LIMITS", (str(limit), str(tmp_path / "absent")))
    whole = extents.physical_memory()
    limit.write_text("4096\n")
    assert extents.physical_memory() == 4096 < whole
    with pytest.raises(WeftError, match="this machine has 4 KiB"):
        ring(1000)
    limit.write_text("max\n")
    monkeypatch.setattr(resource, "getrlimit", lambda which: (8192, 8192))
    assert extents.physical_memory() == 8192
