"""The trees of pipelined schedules one by one, and as MSCCL XML from the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from collectives import pipelined
from collectives.formats.files import functions_of
from collectives.trees.pack import gather_forest
from sim.analytic.cut_bound import cut_bound
from sim.cli import main
from tests.oracles import plain_forest
from topologies import from_spec
from topologies.flows.tightest_cut import gather_cut


@pytest.mark.table
@pytest.mark.parametrize("spec", ["torus:4x4", "torus:4x2x3", "ring:7", "hypercube:3", "dgx-a100:2", "mesh:3x3"])
@pytest.mark.parametrize("kind", ["all-gather", "reduce-scatter", "all-reduce"])
def test_the_trees_of_a_schedule_fill_the_optimum(spec, kind):
    t = from_spec(spec)
    up, down = pipelined.forests(t, kind)
    assert (up is None, down is None) == (kind == "all-gather", kind == "reduce-scatter")
    for forest in (up, down):
        if forest is not None:
            k = forest.blocks_of_root(0)
            plain_forest.check(forest, dict.fromkeys(range(t.n_npus), k), k * gather_cut(t).s_per_byte)


@pytest.mark.parametrize(("spec", "most"), [("dgx-a100:3", 8), ("leaf-spine:4x4x4", 34)])
def test_trees_behind_switches_are_low(spec, most):
    """More trees than the optimum takes where they are lower; switches near the NPUs are removed first."""
    t = from_spec(spec)
    forest = gather_forest(t)
    assert forest.hops <= most
    assert forest.s_per_block_byte() / forest.blocks_of_root(0) == cut_bound(t, "all-gather").s_per_byte * t.n_npus


@pytest.mark.parametrize(
    ("spec", "kind", "name", "more"),
    [("torus:4x4", "all-gather", "pipelined", ["--option", "k=1"]), ("ring:5", "all-reduce", "ring", []),
     ("dgx-a100:2", "reduce-scatter", "pipelined", []), ("ring:5", "all-reduce", "pipelined", ["--form", "two-phase"])],
)
def test_written_and_read_again(spec, kind, name, more, tmp_path: Path, capsys):
    file = tmp_path / "trees.xml"
    asked = ["schedule", "--topology", spec, "--collective", kind, "--algorithm", name, "-b", "1M", "--quiet"]
    assert main([*asked, "--msccl", str(file), *more]) == 0
    assert "# programs" not in capsys.readouterr().out
    (build,) = functions_of(str(file)).values()
    assert build(from_spec(spec), "1MiB").proof.startswith("proved")


@pytest.mark.parametrize(
    ("spec", "kind", "name", "said"),
    [("torus:4x4", "all-to-all", "concurrent-flow", "50.0 % more on the busiest link than here\n"),
     pytest.param("mi250:2", "all-gather", "pipelined", "10.7 % more on the busiest link than here, with 1 trees of a "
                  "root", marks=pytest.mark.verify)],
)
def test_a_program_takes_the_routes_of_the_fabric(spec, kind, name, said, tmp_path: Path, capsys):
    """NPUs of a box that have a link have another way too, which the optimum takes and no program can."""
    file = tmp_path / "trees.xml"
    asked = ["schedule", "--topology", spec, "--collective", kind, "--algorithm", name, "-b", "64M"]
    assert main([*asked, "--msccl", str(file)]) == 0
    assert f"# programs take the routes of the fabric: {said}" in capsys.readouterr().out
