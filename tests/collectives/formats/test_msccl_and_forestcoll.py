"""MSCCL and ForestColl XML: read, proved, simulated, written and read again; what is wrong is named."""

from __future__ import annotations

import pytest

from collectives import build
from collectives.core.schedule import schedule
from collectives.formats.files import all_gather_pattern, parse_forestcoll
from collectives.formats.msccl import msccl_pattern
from collectives.formats.msccl_program import RUNTIMES, not_run, parse_msccl
from collectives.formats.msccl_xml import to_msccl
from collectives.trees.forest import Edge, Forest, Tree
from collectives.trees.pack import gather_forest, scatter_forest
from sim import simulate
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


@pytest.mark.table
@pytest.mark.parametrize("kind", ["all-gather", "reduce-scatter", "all-reduce"])
@pytest.mark.parametrize(("spec", "k"), [("torus:4x4", None), ("dgx-a100:2", 1), ("mi250:1", 1), ("dgx1:1", None)])
def test_forests_are_written_and_read_again(spec, k, kind):
    t = from_spec(spec)
    up = None if kind == "all-gather" else scatter_forest(t, k)
    down = None if kind == "reduce-scatter" else gather_forest(t, k)
    text = to_msccl(kind, up, down)
    algo = parse_msccl(text)
    assert algo.kind == kind and algo.aliased == (True,)
    runtimes = RUNTIMES.keys() - algo.refused.keys()
    assert "msccl" in runtimes
    assert not any(not_run(algo, runtime, size) for runtime in runtimes for size in (4, 2**27, 2**40))
    assert algo.chunks == t.n_npus * (up or down).blocks_of_root(0)
    result = simulate(schedule(msccl_pattern(algo, t), "256MiB"), chunks=64, discipline="lowest-chunk-first")
    assert result.time_ps <= 1.04 * result.lower_bound_ps


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


def test_too_many_trees_for_the_runtime_are_refused():
    with pytest.raises(WeftError, match="use fewer trees per root"):
        to_msccl("all-gather", down=gather_forest(from_spec("dgx-a100:2")))


def stars(p: int, blocks: int) -> Forest:
    """From each root to every other rank at once."""
    rest = [[Edge(root, other) for other in range(p) if other != root] for root in range(p)]
    return Forest(from_spec(f"switch:{p}"), tuple(Tree(root, blocks, tuple(edges)) for root, edges in enumerate(rest)))


@pytest.mark.parametrize(("p", "blocks", "channels"), [(33, 1, 1), (2, 71 * 32, 32), (3, 71 * 2, 2)])
def test_as_many_channels_are_declared_as_are_used_up_to_the_limits(p, blocks, channels):
    text = to_msccl("all-gather", down=stars(p, blocks))
    algo = parse_msccl(text)
    assert f'nchannels="{channels}"' in text
    assert {block.channel for blocks in algo.gpus for block in blocks} == set(range(channels))


@pytest.mark.parametrize(("p", "blocks", "said"), [
    (34, 1, "33 thread blocks that send on channel 0 of GPU 0 (at most 32: 1 too many) and "
            "33 thread blocks that receive on channel 0 of GPU 0 (at most 32: 1 too many)"),
    (2, 71 * 35, "35 channels (at most 32: 3 too many)"),
    (5, 71 * 28, "224 thread blocks on GPU 0 (at most 216: 8 too many)"),
])
def test_the_limit_that_a_program_exceeds_is_named_and_by_how_much(p, blocks, said):
    with pytest.raises(WeftError) as refused:
        to_msccl("all-gather", down=stars(p, blocks))
    assert str(refused.value) == f"MSCCL XML: the trees need {said}; use fewer trees per root, or deeper ones"


@pytest.mark.parametrize("spec", ["torus:3x3", "dgx-a100:2", "mi250:1"])
def test_forestcoll_trees_come_back(spec):
    t = from_spec(spec)
    forest = gather_forest(t)
    again = parse_forestcoll(to_forestcoll(forest), t)
    assert again.trees == forest.trees
    assert all_gather_pattern(again).proof == "proved"


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
