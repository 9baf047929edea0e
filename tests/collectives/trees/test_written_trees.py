"""The trees of pipelined schedules one by one, and as MSCCL XML from the command line."""

from __future__ import annotations

import random
import time
from pathlib import Path

import numpy as np
import pytest

from collectives import build, pipelined
from collectives.formats.files import functions_of
from collectives.trees.pack import gather_forest
from sim import simulate
from sim.analytic.cut_bound import cut_bound
from sim.cli import main
from tests.oracles import plain_forest
from topologies import WeftError, from_spec
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
     pytest.param("mi250:2", "all-gather", "pipelined", "3.7 % more on the busiest link than here, with 2 trees of a "
                  "root", marks=pytest.mark.verify)],
)
def test_a_program_takes_the_routes_of_the_fabric(spec, kind, name, said, tmp_path: Path, capsys):
    """NPUs of a box that have a link have another way too, which the optimum takes and no program can."""
    file = tmp_path / "trees.xml"
    asked = ["schedule", "--topology", spec, "--collective", kind, "--algorithm", name, "-b", "64M"]
    assert main([*asked, "--msccl", str(file)]) == 0
    assert f"# programs take the routes of the fabric: {said}" in capsys.readouterr().out


@pytest.mark.parametrize("spec", ["mi250:2", "fat-tree:4", "leaf-spine:3x5x3", "dgx-a100:3", "switch:5", "torus:2x3"])
@pytest.mark.parametrize("kind", ["all-gather", "reduce-scatter", "all-reduce", "broadcast", "reduce"])
def test_trees_go_where_the_fabric_leads(spec, kind):
    """Links of every transfer are those of its route, asked for pair by pair."""
    fabric = from_spec(spec)
    few = {} if kind in ("broadcast", "reduce") else {"k": 1}
    t = build("pipelined", kind, fabric, "1MiB", paths="routes", **few).pattern.transfers()
    for row, (src, dst) in enumerate(zip(t.src.tolist(), t.dst.tolist(), strict=True)):
        route = fabric.paths(np.array([src]), np.array([dst])).links
        assert t.via_ptr is None or t.via_links[t.via_ptr[row] : t.via_ptr[row + 1]].tolist() in ([], route.tolist())


def test_rates_that_no_trees_fit_are_refused_at_once():
    """Where 16 trees cannot go on past the switches, neither can 32, ..., 256: none is tried after the first."""
    even, rng = from_spec("fat-tree:4"), random.Random(1)
    rates = np.array([rng.uniform(0.9, 1) for _ in range(even.n_links)]) * even.bandwidth_Bps
    fabric, begin = even.at_rates(rates, even.latency_ps, even.hop_latency_ps), time.process_time()
    with pytest.raises(WeftError, match="along the fabric's own routes past the switches; omit paths, or choose 'any'"):
        build("pipelined", "all-gather", fabric, "64MiB", paths="routes")
    assert time.process_time() - begin < 2
    assert build("pipelined", "all-gather", fabric, "64MiB").proof.startswith("proved")


def test_links_that_no_route_takes_are_left_out():
    """Chosen roots are solved for on all paths."""
    with pytest.raises(WeftError, match="paths are for equal roots"):
        build("pipelined", "all-reduce", from_spec("mesh:3x3"), "1MiB", "best-roots", paths="routes")


@pytest.mark.parametrize(
    ("spec", "kind", "form"),
    [("fat-tree:4", "broadcast", []), ("fat-tree:4", "reduce", []), *(
        pytest.param("mi250:2", kind, form, marks=pytest.mark.verify)
        for kind, form in (("all-gather", []), ("reduce-scatter", []), ("broadcast", []), ("reduce", []),
                           ("all-reduce", ["--form", "two-phase"])))],
)
def test_a_program_is_nearly_as_fast_as_its_trees(spec, kind, form, tmp_path: Path):
    """Each in the chunks that suit it."""
    file, fabric = tmp_path / "trees.xml", from_spec(spec)
    asked = ["schedule", "--topology", spec, "--collective", kind, "--algorithm", "pipelined", "-b", "64M", "--quiet"]
    assert main([*asked, *form, "--msccl", str(file)]) == 0
    its, own = (min(simulate(build(name, kind, fabric, "64MiB"), chunks=chunks, discipline=discipline).time_ps
                    for chunks in (64, 256, 1024))
                for name, discipline in ((str(file), "fifo"), ("pipelined", "lowest-chunk-first")))
    assert its <= 1.03 * own
