"""MSCCL and ForestColl XML: read, proved, simulated, written and read again; what is wrong is named."""

from __future__ import annotations

import re
from itertools import product

import pytest

from collectives import build
from collectives.core.schedule import schedule
from collectives.formats.files import all_gather_pattern, parse_forestcoll
from collectives.formats.msccl import msccl_pattern
from collectives.formats.msccl_order import cut_of
from collectives.formats.msccl_program import RUNTIMES, not_run, parse_msccl
from collectives.formats.msccl_xml import to_msccl
from collectives.formats.played import busiest_s
from collectives.registry import algorithm
from collectives.trees.forest import Forest
from collectives.trees.pack import gather_forest
from sim import simulate
from sim.cli import main
from tests.places import SHARED
from topologies import WeftError, from_spec

FILES = sorted((SHARED / "msccl").glob("*.xml"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_public_files_are_proved_and_stay_above_the_bound(path):
    algo = parse_msccl(path.read_text(), path.name)
    t = from_spec(f"fc:{len(algo.gpus)}")
    read = build(str(path), algo.kind, t, "1MiB")
    assert read.proof.startswith("proved: all conflicting steps are ordered")
    result = simulate(read, check=True)
    assert result.lower_bound_ps <= result.time_ps


NAMES = ("ring", "swing", "direct", "pat", "tacos", "nccl-rings", "double-binary-tree", "bucket", "pipelined")
SPECS = ("torus:4x4", "dgx-a100:2", "fat-tree:4", "hypercube:4")
GATE = [
    (name, spec, kind) for name, spec, kind in product(NAMES, SPECS, ("all-gather", "reduce-scatter", "all-reduce"))
    if kind in algorithm(name).functions and (name != "ring" or spec in ("torus:4x4", "fat-tree:4"))
]
LARGE = "64MiB"


def exported(name, kind, spec, form=None, **options):
    """A schedule, what is read of its file, and the program in it."""
    given = build(name, kind, from_spec(spec), LARGE, form, **options)
    algo = parse_msccl(to_msccl(given))
    pattern = msccl_pattern(algo, given.topology, cut_of(algo, given.size_bytes))
    return given, schedule(pattern, LARGE), algo


def check_limits(algo):
    """Those of Azure's executor: 32 channels, 64 thread blocks of 64 steps."""
    blocks = [block for blocks in algo.gpus for block in blocks]
    assert max(len(block.steps) for block in blocks) <= 64 and max(block.channel for block in blocks) < 32
    assert max(map(len, algo.gpus)) <= 64
    assert "msccl" not in algo.refused


@pytest.mark.table
@pytest.mark.parametrize(("name", "spec", "kind"), GATE)
def test_any_algorithm_is_written_read_and_as_fast(name, spec, kind):
    """Faster where ranks wait for whole transfers and the runtime only for slices of their runs, as behind pat."""
    given, read, algo = exported(name, kind, spec)
    check_limits(algo)
    assert algo.kind == kind and read.proof.startswith("proved: all conflicting steps are ordered")
    discipline = "lowest-chunk-first" if name == "pipelined" else "fifo"
    was, is_now = (simulate(one, chunks=64, discipline=discipline).time_ps for one in (given, read))
    assert is_now <= 1.03 * was


@pytest.mark.parametrize(("name", "kind", "form"), [
    ("tree", "broadcast", "binomial"), ("tree", "reduce", "binomial"), ("bine", "broadcast", "bandwidth"),
    ("bruck", "all-to-all", None), ("direct", "all-to-all", None), ("recursive-doubling", "all-reduce", "latency"),
    ("swing", "all-reduce", "latency"), ("nccl-trees", "all-reduce", None), ("trivance", "all-reduce", "latency"),
    ("recursive-multiplying", "all-reduce", "latency"),
])
def test_collectives_and_forms_of_all_kinds(name, kind, form):
    """Relays of an all-to-all have scratch; who exchanges arrays sends before what arrives is added."""
    spec = "ring:9" if name == "trivance" else "torus:4x2"
    given, read, algo = exported(name, kind, spec, form)
    check_limits(algo)
    assert read.kind.name == kind and (algo.aliased == (False,)) == (kind == "all-to-all")
    assert simulate(read, chunks=16).time_ps <= 1.03 * simulate(given, chunks=16).time_ps


def test_runtimes_load_what_is_written():
    _, _, algo = exported("ring", "all-reduce", "torus:4x4")
    assert not algo.refused
    assert not any(not_run(algo, runtime, size) for runtime in RUNTIMES for size in (4, 2**27, 2**40))


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("topo.xml", '<system version="1"><cpu/></system>', "is a topology of NCCL or RCCL: give it as --topology"),
        ("graph.xml", '<graphs version="1"/>', "is an NCCL graph"),
        ("platform.xml", '<platform version="4"/>', "is a platform of SimGrid: give it as --topology"),
    ],
)
def test_files_that_are_no_schedule_are_named(name, text, message, tmp_path):
    (tmp_path / name).write_text(text)
    with pytest.raises(WeftError, match=message):
        build(str(tmp_path / name), "all-reduce", from_spec("switch:2"), "1KiB")


@pytest.mark.parametrize(("name", "kind", "spec", "options", "said"), [
    ("in-network", "all-reduce", "switch:4", {}, "its switches reduce"),
    ("tree", "broadcast", "torus:4x2", {"root": 3}, "root 3: programs have root 0"),
    ("pipelined", "all-gather", "ring:128", {"k": 128}, "16,384 chunks on 128 ranks, more than 1,048,576 together"),
    ("direct", "all-gather", "switch:300", {}, "299 peers of a rank, and 216 thread blocks are the most"),
])
def test_what_no_program_can_hold_is_refused(name, kind, spec, options, said):
    with pytest.raises(WeftError, match=said):
        to_msccl(build(name, kind, from_spec(spec), LARGE, **options))


def test_the_collective_is_that_of_the_file(tmp_path, capsys):
    path = tmp_path / "gather.xml"
    path.write_text(to_msccl(build("ring", "all-gather", from_spec("ring:4"), LARGE)))
    assert main(["compare", "--topology", "ring:4", "-b", "1M", "--algorithms", f"{path},ring", "--quiet"]) == 0
    assert "# weft compare: all-gather on ring:4" in capsys.readouterr().out
    asked = ["compare", "--topology", "ring:4", "--collective", "all-reduce", "--algorithms", str(path)]
    assert main(asked) == 2 and "does not implement all-reduce, only all-gather" in capsys.readouterr().err


def test_programs_go_where_the_fabric_leads():
    """The flows of an all-to-all have routes of their own, which a program cannot hold."""
    given = build("concurrent-flow", "all-to-all", from_spec("torus:4x4"), LARGE)
    assert busiest_s(given, named=False) == pytest.approx(1.5 * busiest_s(given, named=True))


@pytest.mark.parametrize("spec", ["torus:3x3", "dgx-a100:2", "mi250:1"])
def test_forestcoll_trees_come_back(spec):
    t = from_spec(spec)
    forest = gather_forest(t)
    again = parse_forestcoll(to_forestcoll(forest), t)
    assert again.trees == forest.trees
    assert all_gather_pattern(again).proof == "proved"


def test_chunks_of_a_node_are_those_of_its_trees():
    t = from_spec("fc:3")
    with pytest.raises(WeftError, match="nchunkspernode is 7, and trees of a root have 1 chunks"):
        parse_forestcoll(re.sub(r'nchunkspernode="\d+"', 'nchunkspernode="7"', to_forestcoll(gather_forest(t))), t)


def to_forestcoll(forest: Forest) -> str:
    """A forest as ForestColl tree XML; nodes are given by index."""
    t = forest.topology
    lines = [f'<Algo nchunkspernode="{forest.blocks_of_root(forest.trees[0].root)}">']
    place: dict[int, int] = {}
    for tree in forest.trees:
        index = place.get(tree.root, 0)
        place[tree.root] = index + tree.multiplicity
        shape = f'nchunks="{tree.multiplicity}" height="{tree.height}"'
        lines.append(f'  <tree root="{tree.root}" index="{index}" {shape}>')
        for edge in tree.edges:
            nodes = ",".join(map(str, [edge.parent, *(int(t.dst[link]) for link in edge.links)]))
            lines.append(f'    <send src="{edge.parent}" dst="{edge.child}" path="{nodes}"/>')
        lines.append("  </tree>")
    return "\n".join([*lines, "</Algo>"]) + "\n"


GOOD = (
    '<algo name="pair" nchunksperloop="2" ngpus="2" coll="allgather" inplace="1" proto="Simple" nchannels="1">'
    '<gpu id="0" i_chunks="0" o_chunks="2" s_chunks="0"><tb id="0" send="1" recv="1" chan="0">'
    '<step s="0" type="s" srcbuf="o" srcoff="0" dstbuf="o" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="0"/>'
    '<step s="1" type="r" srcbuf="o" srcoff="1" dstbuf="o" dstoff="1" cnt="1" depid="-1" deps="-1" hasdep="0"/>'
    '</tb></gpu><gpu id="1" i_chunks="0" o_chunks="2" s_chunks="0"><tb id="0" send="0" recv="0" chan="0">'
    '<step s="0" type="s" srcbuf="o" srcoff="1" dstbuf="o" dstoff="1" cnt="1" depid="-1" deps="-1" hasdep="0"/>'
    '<step s="1" type="r" srcbuf="o" srcoff="0" dstbuf="o" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="0"/>'
    "</tb></gpu></algo>"
)


def test_the_smallest_program():
    pattern = msccl_pattern(parse_msccl(GOOD), from_spec("fc:2"))
    assert pattern.transfers().src.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("<algo", "<alga", "is not XML"), ('coll="allgather"', 'coll="gossip"', "coll='gossip'"),
        ('ngpus="2"', 'ngpus="3"', "has ngpus=3"), ('chan="0"', 'chan="32"', "chan='32': give an integer from 0 to 0"),
        ('type="s"', 'type="x"', "type='x'"), ('cnt="1"', 'cnt="72"', "cnt='72'"),
        (' coll="allgather"', "", "lacks the attribute"),
        ('s="1" type="r"', 's="2" type="r"', "numbered from 0 in their order"),
        ('send="1"', 'send="0"', "send=0: give another GPU"),
        ('depid="-1" deps="-1"', 'depid="4" deps="0"', "waits for step 0 of thread block 4"),
        ('type="r"', 'type="nop"', "sends 1 times to GPU 1 on channel 0, which receives 0 times|stops|lacks"),
        ('srcoff="1" dstbuf="o" dstoff="1" cnt="1" depid="-1" deps="-1" hasdep="0"/></tb></gpu><gpu',
         'srcoff="1" dstbuf="s" dstoff="1" cnt="1" depid="-1" deps="-1" hasdep="0"/></tb></gpu><gpu',
         "touches s.1. to .1.: s_chunks=0 are declared"),
    ],
)  # fmt: skip
def test_bad_programs_are_named(old, new, message):
    with pytest.raises(WeftError, match=message):
        msccl_pattern(parse_msccl(GOOD.replace(old, new)), from_spec("fc:2"))


def test_other_numbers_of_npus_are_refused():
    with pytest.raises(WeftError, match="is for 2 GPUs, and fc:3 has 3 NPUs"):
        msccl_pattern(parse_msccl(GOOD), from_spec("fc:3"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<Algo/>", "a ForestColl file is <Algo> with <tree>s"), ("<algo", "is not XML"),
        ('<Algo><tree root="0"><send src="0" dst="2"/></tree></Algo>', "does not reach npu1"),
        ('<Algo><tree root="9"/></Algo>', "no node '9' in ring:4"),
        ('<Algo><tree root="0"><send src="0" dst="2" path="0,2"/></tree></Algo>', "needs a link npu0->npu2"),
    ],
)
def test_bad_trees_are_named(text, message):
    with pytest.raises(WeftError, match=message):
        parse_forestcoll(text, from_spec("ring:4"))
