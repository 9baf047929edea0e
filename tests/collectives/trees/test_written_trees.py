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
    ("spec", "kind", "more"),
    [("torus:4x4", "all-gather", ["--msccl-trees", "1"]), ("dgx-a100:2", "reduce-scatter", ["--msccl-trees", "1"]),
     ("ring:5", "all-reduce", ["--form", "two-phase"])],
)
def test_written_and_read_again(spec, kind, more, tmp_path: Path):
    file = tmp_path / "trees.xml"
    asked = ["schedule", "--topology", spec, "--collective", kind, "--algorithm", "pipelined", "-b", "1M", "--quiet"]
    assert main([*asked, "--msccl", str(file), *more]) == 0
    (build,) = functions_of(str(file)).values()
    assert build(from_spec(spec), "1MiB").proof.startswith("proved")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--algorithm", "ring"], "--msccl writes the trees of pipelined, not ring"),
        (["--algorithm", "pipelined", "--msccl-trees", "0"], "--msccl-trees is 0: give an integer from 1 to 1024"),
    ],
)
def test_what_is_not_written(words, message, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    file = tmp_path / "trees.xml"
    asked = ["schedule", "--topology", "torus:4x4", "--collective", "all-gather", "-b", "1M", "--msccl", str(file)]
    assert main([*asked, *words]) == 2
    assert message in capsys.readouterr().err
    assert not file.exists()
