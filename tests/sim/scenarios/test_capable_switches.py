"""What algorithms make of switches that multicast and reduce, and of links between groups."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.between import CELLS, bine, bruck, near_first, parted_tree, tree
from benchmarks.between import crossing as counted_crossing
from collectives import build
from collectives.core.routes import paths_of
from collectives.core.schedule import Schedule
from sim import simulate
from sim.cli.bound import bound_rows
from topologies import Topology, from_spec


@pytest.mark.parametrize(("spec", "optimum_GBps"), [("dgx-a100:2", 200.0), ("dgx-h100:2", 377.3667)])
def test_trees_over_boxes_reach_the_optimum_of_switches_that_reduce(spec: str, optimum_GBps: float) -> None:
    """On links at the rate at which they do: the program knows that what a NIC brings crosses the switch as well."""
    t = from_spec(spec)
    printed = bound_rows(t, "all-reduce", reducing_switches=True)[-1]
    assert printed["by"] == "linear program"
    optimum = 1e9 * printed["algbw_GBps"]
    assert optimum == pytest.approx(optimum_GBps * 1e9, rel=1e-6)
    for name, form, chunks, size, options in (
        ("nvls-trees", None, 256, "1GiB", {}), ("in-network", "rail-wise", 1024, "1GiB", {}),
        ("pipelined", None, 512, "64MiB", {"switches": "reduce"}),
    ):
        built = build(name, "all-reduce", t, size, form, **options)
        assert 0.98 * optimum < built.size_bytes / simulate(built, chunks=chunks).time_s <= optimum


def test_a_bound_by_boxes_that_reduce_is_not_beaten_by_them() -> None:
    t = from_spec("dgx-h100:2")
    for switches in (None, True):
        rows = bound_rows(t, "all-reduce", programs=True, reducing_switches=switches)
        built = build("nvls-trees", "all-reduce", t, "1GiB")
        assert built.size_bytes / simulate(built, chunks=256).time_s < 1e9 * min(row["algbw_GBps"] for row in rows)


def between_groups(built: Schedule, group: np.ndarray) -> float:
    """Bytes on links between groups of nodes, by the routes of all transfers, in arrays; -1: nodes of no group."""
    t, transfers = built.topology, built.pattern.transfers()
    paths = paths_of(transfers, t)
    before = np.append(0, np.cumsum((group[t.src] != group[t.dst])[paths.links]))
    many = before[paths.ptr[1:]] - before[paths.ptr[:-1]]
    return float((transfers.blocks[paths.pair] * many).sum() * built.block_bytes / built.size_bytes)


def groups_of(t: Topology, per: int) -> np.ndarray:
    """Consecutive ranks, with the switch that they share; other switches are a group of their own."""
    group = np.full(t.n_nodes, -1)
    group[: t.n_npus] = np.arange(t.n_npus) // per
    hosts = t.src < t.n_npus
    group[t.dst[hosts]] = group[t.src[hosts]]
    return group


RIVALS = {
    "all-reduce": ("recursive-doubling", "bandwidth"), "all-gather": ("recursive-doubling", None),
    "reduce-scatter": ("recursive-doubling", None), "broadcast": ("tree", "binomial"), "scatter": ("tree", "binomial"),
}
FORMS = {"all-reduce": "bandwidth", "broadcast": "latency"}


def shares(t: Topology, kind: str, group: np.ndarray) -> float:
    """What bine sends between groups, over what the binomial tree or butterfly does."""
    name, form = RIVALS[kind]
    bine, other = build("bine", kind, t, "64MiB", FORMS.get(kind)), build(name, kind, t, "64MiB", form)
    return between_groups(bine, group) / between_groups(other, group)


@pytest.mark.parametrize(("spec", "per", "most"), [
    ("leaf-spine:8x8x4", 8, 0.572), ("leaf-spine:16x8x8", 16, 0.346), ("leaf-spine:16x16x8", 16, 0.353),
    ("leaf-spine:32x16x16", 32, 0.209), ("dragonfly:8x1x8", 8, 0.572), ("dragonfly:16x1x32", 32, 0.209),
])
def test_bine_crosses_between_groups_less_than_the_butterfly_by_dimensions_and_more_than_an_aligned_tree(
    spec: str, per: int, most: float
) -> None:
    t = from_spec(spec)
    for kind in RIVALS:
        share = shares(t, kind, groups_of(t, per))
        assert share <= most if kind not in ("broadcast", "scatter") else share > 1, kind


def in_rank_order(kind: str, p: int, far_first: bool) -> list[tuple[int, int, float]]:
    """Messages of the binomial butterfly of a reduce-scatter, or the tree of a broadcast: from, to, in arrays.

    A reduce-scatter of MPI libraries halves with the far ranks first, and a broadcast as often doubles its distances.
    """
    rounds = range(p.bit_length() - 1)
    distances = [p >> (i + 1) if far_first else 1 << i for i in rounds]
    if kind == "reduce-scatter":
        return [(rank, rank ^ far, 0.5 ** (i + 1)) for i, far in enumerate(distances) for rank in range(p)]
    tree, have = [], [0]
    for far in reversed(distances):  # of trees the last messages are the many
        tree += [(rank, rank ^ far, 1.0) for rank in have]
        have += [rank ^ far for rank in have]
    return tree


def crossing(messages: list[tuple[int, int, float]], group: np.ndarray) -> float:
    return sum(amount for one, other, amount in messages if group[one] != group[other])


@pytest.mark.parametrize(("p", "per"), [(64, 8), (128, 16), (256, 16), (512, 16), (512, 32)])
def test_bine_crosses_a_quarter_of_far_first_binomial_wherever_a_job_is_and_a_fifth_less_than_near_first(
    p: int, per: int
) -> None:
    """Groups that are full, those of a job of ranks in turn that starts anywhere, and fragments of any size."""
    rng = np.random.default_rng(p + per)
    fragments = [np.repeat(np.arange(p), rng.integers(1, per + 1, p))[:p] for _ in range(20)]
    anywhere = [(np.arange(p) + start) // per for start in range(per)]
    for kind, form in (("reduce-scatter", None), ("broadcast", "latency")):
        built = build("bine", kind, from_spec(f"switch:{p}"), "64MiB", form)
        rows = built.pattern.transfers()
        sent = (rows.blocks * built.block_bytes / built.size_bytes).tolist()
        bine = list(zip(rows.src.tolist(), rows.dst.tolist(), sent, strict=True))
        near, far = (in_rank_order(kind, p, far_first) for far_first in (False, True))
        aligned = np.arange(p) // per
        assert crossing(bine, aligned) > 1.7 * crossing(near, aligned)
        shifted = [(-a % p, -b % p, much) for a, b, much in bine]
        better = sum(min(crossing(bine, group), crossing(shifted, group)) for group in anywhere)
        assert better < 0.72 * sum(crossing(near, group) for group in anywhere)
        for groups in ([aligned], anywhere, fragments):
            ours, nearest, farthest = (sum(crossing(of, group) for group in groups) for of in (bine, near, far))
            assert ours < 0.4 * farthest
            assert len(groups) == 1 or 0.76 < ours / nearest < 0.88


@pytest.mark.parametrize("spec", ["dragonfly:9x4x2", "leaf-spine:8x8x4"])
@pytest.mark.parametrize("peers", ["aligned", "shifted"])
def test_counted_messages_of_bine_are_what_its_routes_carry_between_groups(spec: str, peers: str) -> None:
    t = from_spec(spec)
    groups = np.arange(t.n_npus) // 8
    for _, kind, form, _, least in CELLS:
        (counted,) = counted_crossing(bine(t.n_npus, kind, form, peers), t, 8, range(1))
        routed = between_groups(build("bine", kind, t, "64MiB", form, peers=peers), groups_of(t, 8))
        assert counted == pytest.approx(routed, rel=1e-6)
        assert (2 if spec.startswith("leaf") else 1) * least(groups) <= counted


@pytest.mark.parametrize("p", [8, 12, 32])
def test_binomial_counterparts_are_complete(p: int) -> None:
    """Every rank is reached from the root once; a reduce-scatter and Bruck's all-to-all bring all that they must."""
    for doubling in (False, True):
        edges = tree(p, doubling)
        assert sorted(to for _, to, _ in edges) == list(range(1, p))
        assert all(one < to for one, to, _ in edges)
    parts = parted_tree(p)
    for rank in range(1, p):
        (came,) = [much for _, to, much in parts if to == rank]
        assert came == pytest.approx(1 / p + sum(much for one, _, much in parts if one == rank))
    for groups in (np.arange(p), np.arange(p) // 4):
        assert crossing(near_first(p), groups) >= len(set(groups)) - 1
        assert crossing(bruck(p), groups) >= np.mean(groups[:, None] != groups) * p
