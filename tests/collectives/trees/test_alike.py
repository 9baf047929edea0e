"""Forests that translations map onto themselves: which do, by sets of edges; and one rank stands for the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from collectives import Schedule, build
from collectives.core.symmetry import STRIDES
from collectives.pipelined import forests
from collectives.trees.forest import Forest
from sim import simulate
from topologies import Topology, from_spec
from topologies.core.symmetry import follow_npus, link_permutation, translation

FOLDED = {
    ("dgx-h100:2", "pipelined"): 1, ("dgx-h100:3", "nccl-trees"): 3, ("dgx-h100:5", "pipelined"): 1,
    ("dgx-h100:8", "pipelined"): 1, ("dgx-h100:8", "nccl-trees"): 8, ("dgx-a100:2", "pipelined"): 4,
    ("dgx-a100:3", "pipelined"): 1, ("dgx-a100:3", "nccl-trees"): 3, ("FC(7)_SW(2)", "pipelined"): 1,
    ("SW(3)_SW(4)", "nccl-trees"): 4, ("RI(3)_SW(4)", "pipelined"): 1,
    ("fat-tree:4", "pipelined"): 4, ("leaf-spine:4x4x4", "pipelined"): 4, ("SW(3)_SW(4)", "pipelined"): 3,
    ("torus:4x4", "nccl-trees"): 4, ("torus:5x3", "nccl-trees"): 3, ("dgx1:2", "pipelined"): 8,
}
"""Ranks that stand for all, at most."""

HOW: tuple[dict[str, Any], ...] = (
    {"chunks": 1}, {"chunks": 7}, {"chunks": 16, "discipline": "lowest-chunk-first"}, {"chunks": 4, "nic": "shared"},
    {"chunks": 3, "discipline": "round-robin-flow"}, {"chunks": 5, "rank_progress": "all"},
)


@pytest.mark.table
@pytest.mark.parametrize(("spec", "algorithm"), FOLDED)
def test_one_rank_of_each_orbit_takes_the_time_of_all(spec: str, algorithm: str) -> None:
    schedule = build(algorithm, "all-reduce", from_spec(spec), "1000003B")
    for how in HOW:
        assert_same(schedule, FOLDED[spec, algorithm], **how)


def assert_same(schedule: Schedule, most: int, **how: Any) -> None:
    few, every = (simulate(schedule, symmetry=which, **how) for which in ("auto", "off"))
    assert few.time_ps == every.time_ps
    assert few.lowered.orbits.sources.size <= most < every.lowered.orbits.sources.size == schedule.topology.n_npus


@pytest.mark.parametrize("what", ["bandwidth_Bps", "latency_ps"])
def test_a_link_that_differs_leaves_less_of_the_symmetry_and_the_same_time(what: str) -> None:
    plain = from_spec("dgx-h100:3")
    values = getattr(plain, what).copy()
    at = int(np.flatnonzero(plain.dimension > 0)[5])
    values[at] *= 2
    schedule = build("nccl-trees", "all-reduce", plain.with_links(**{what: values}), "1MiB")
    few, every = (simulate(schedule, symmetry=which, chunks=8) for which in ("auto", "off"))
    assert few.time_ps == every.time_ps and few.lowered.is_whole


def test_links_of_other_rates_that_are_alike_keep_the_symmetry() -> None:
    fabric = from_spec("dgx-h100:3", bandwidth=["370GB/s", "41GB/s"])
    assert_same(build("nccl-trees", "all-reduce", fabric, "3MB"), 3, chunks=16)


def moves(t: Topology, dim: int) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    for by in (by for by in STRIDES if by < t.shape[dim]):
        nodes = translation(t, dim, by)
        for one in () if nodes is None else (nodes, follow_npus(t, nodes[: t.n_npus])):
            if (links := link_permutation(t, one)) is not None:
                assert one is not None
                yield by, one, links
                break


def trees_of(forest: Forest, nodes: np.ndarray, links: np.ndarray) -> Counter[tuple[int, int, frozenset[object]]]:
    return Counter(
        (int(nodes[tree.root]), tree.multiplicity, frozenset(
            (int(nodes[edge.parent]), int(nodes[edge.child]), *(int(links[link]) for link in edge.links))
            for edge in tree.edges
        ))
        for tree in forest.trees
    )


@pytest.mark.table
@pytest.mark.parametrize("spec", [
    "dgx-h100:2", "dgx-h100:3", "dgx-h100:5", "dgx-a100:2", "dgx-a100:3", "fat-tree:4", "leaf-spine:4x4x4", "mesh:3x3",
    "SW(3)_SW(4)", "RI(3)_SW(2)", "mi250:2", "dgx1:2", "switch:5", "switch:2", "switch:1", "dragonfly:3x2x2",
])
def test_the_group_is_of_the_translations_that_keep_the_set_of_trees(spec: str) -> None:
    fabric = from_spec(spec)
    _, down = forests(fabric, "all-gather")
    assert down is not None
    same = np.arange(fabric.n_nodes), np.arange(fabric.n_links)
    first = [
        next((nodes for _, nodes, links in moves(fabric, dim) if trees_of(down, nodes, links) == trees_of(down, *same)),
             None)
        for dim in range(len(fabric.shape))
    ]
    groups = build("pipelined", "all-gather", fabric, "1MiB").pattern.groups
    found = [action.ranks[0].tolist() for action in groups[0].generators] if groups else []
    assert found == [nodes[: fabric.n_npus].tolist() for nodes in first if nodes is not None]


@pytest.mark.parametrize("spec", ["ring:7", "torus:4x3", "switch:5", "dgx-h100:2", "switch:1"])
def test_trees_that_no_translation_keeps_declare_nothing_and_tie_as_they_come(spec: str) -> None:
    pattern = build("double-binary-tree", "all-reduce", from_spec(spec), "1MiB").pattern
    t = pattern.transfers()
    assert not pattern.groups
    assert np.array_equal(np.sort(t.tie_class), np.arange(t.src.size))


@pytest.mark.parametrize(("spec", "algorithm"), [("dgx-h100:5", "pipelined"), ("dgx-a100:2", "nccl-trees")])
def test_images_share_slot_tie_port_and_step_and_trees_of_a_rank_keep_ports_of_their_own(
    spec: str, algorithm: str
) -> None:
    pattern = build(algorithm, "all-reduce", from_spec(spec), "1MiB").pattern
    t = pattern.transfers()
    rows = {(src, slot): row for row, (src, slot) in enumerate(zip(t.src.tolist(), t.slot.tolist(), strict=True))}
    for action in pattern.groups[0].generators:
        image = action.ranks[0].tolist()
        for (src, slot), row in rows.items():
            other = rows[image[src], slot]
            assert image[t.dst[row]] == t.dst[other]
            assert (t.tie_class[row], t.port[row], t.step[row]) == (t.tie_class[other], t.port[other], t.step[other])
    for rank in range(pattern.p):
        blocks: dict[int, tuple[int, ...]] = {}
        for row in np.flatnonzero(t.src == rank).tolist():
            carried = tuple(pattern.blocks_of(rank, int(t.slot[row])))
            assert blocks.setdefault(int(t.port[row]), carried) == carried  # a tree has blocks of its own
        assert sorted(blocks) == list(range(len(blocks))) and len(set(blocks.values())) == len(blocks)
