"""The symmetric quotient: exactly the full run, or another group, or none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectives import build
from collectives.core.schedule import Schedule
from sim import simulate
from sim.lower import quotient
from sim.lower.quotient import turns_differ
from sim.lower.shape import _shapes
from sim.program.model import SWING_PAPER, SWING_SST, Model, Nic
from topologies import Topology, from_spec
from topologies.core.routing import ShortestPathRouter
from topologies.core.topology import NPU, SWITCH

CASES = [
    ("swing", "all-reduce", "torus:8x8", "bandwidth"),
    pytest.param("swing", "all-reduce", "torus:16x8", "bandwidth", marks=pytest.mark.full),  # light: 4x4x4 and 8x8
    ("swing", "all-reduce", "torus:4x4x4", "bandwidth"),
    ("swing", "all-reduce", "torus:8x8", "latency"),
    ("swing", "all-reduce", "mesh:4x4", "bandwidth"),
    ("bucket", "all-reduce", "torus:6x4", None),
    ("bucket", "all-reduce", "RI(4)_FC(3)_SW(2)", None),
    ("direct", "all-to-all", "torus:8x8", None),
    ("direct", "all-to-all", "switch:8", None),
    ("ring", "all-reduce", "torus:8x8", None),
    ("ring", "all-reduce", "torus:5x5", None),
    ("ring", "reduce-scatter", "ring:9", None),
    ("recursive-doubling", "all-reduce", "torus:8x8", "bandwidth"),
    ("recursive-doubling", "all-reduce", "torus:8x4", "latency"),
    ("mirrored-recursive-doubling", "all-reduce", "torus:8x8", "bandwidth"),
    ("direct", "all-reduce", "fat-tree:4", None),
    ("direct", "all-to-all", "fat-tree:6x2", None),
    ("recursive-multiplying", "all-reduce", "leaf-spine:5x8x5", "bandwidth"),
    ("swing", "all-reduce", "fat-tree:4", "bandwidth"),
    ("mirrored-recursive-doubling", "all-reduce", "leaf-spine:8x4x8", "bandwidth"),
]
MODELS = {
    "cut-through": Model(chunks=3),
    "store-and-forward": Model(chunks=3, forwarding="store-and-forward"),
    "swing-paper": SWING_PAPER,
    "swing-sst": replace(SWING_SST, vcs=1),
    "both ends": Model(chunks=3, nic=Nic(engines=1, ejection_Bps=1e10), rank_progress="any"),
}


def assert_exact(schedule: Schedule, model: Model) -> str:
    """Quotient and full run agree on the time and on every link; returns what was simulated."""
    small, full = (simulate(schedule, model=model, symmetry=symmetry) for symmetry in ("auto", "off"))
    assert small.time_ps == full.time_ps
    np.testing.assert_array_equal(small.link_busy_ps, full.link_busy_ps)
    assert small.wire_bytes == full.wire_bytes
    assert small.events <= full.events
    return small.symmetry


@pytest.mark.table
@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
@pytest.mark.parametrize(("algorithm", "collective", "topology", "form"), CASES)
def test_the_quotient_is_the_full_run(
    algorithm: str, collective: str, topology: str, form: str | None, model: Model
) -> None:
    """Makespan and busy time of every link, ties and congestion included."""
    symmetry = assert_exact(build(algorithm, collective, from_spec(topology), "1MiB", form=form), model)
    assert "ranks simulated by" in symmetry


@pytest.mark.parametrize(
    ("algorithm", "topology", "few"),
    [
        ("swing", "torus:8x8", 1), ("bucket", "torus:8x8", 1), ("ring", "torus:8x8", 1),
        ("recursive-doubling", "torus:8", 4), ("direct", "fat-tree:4", 1), ("trivance", "fat-tree:4", 1),
        ("recursive-multiplying", "leaf-spine:5x8x5", 1), ("swing", "fat-tree:4", 1), ("bucket", "fat-tree:6x2", 1),
        ("direct", "leaf-spine:3x5x4", 1),
    ],
)
def test_how_few_representatives(algorithm: str, topology: str, few: int) -> None:
    """One rank stands for all where the algorithm looks alike from everywhere; half-turn and complement keep more."""
    fabric = from_spec(topology)
    symmetry = simulate(build(algorithm, "all-reduce", fabric, "1MiB"), model=Model(chunks=1)).symmetry
    assert symmetry.startswith(f"{few} of {fabric.n_npus} ranks simulated")


def two_leaves() -> Topology:
    """Two leaf switches of four hosts, each with one uplink to a spine that its hosts share."""
    hosts, leaves, spine = range(8), (8, 9), 10
    cables = [(host, leaves[host // 4]) for host in hosts] + [(leaf, spine) for leaf in leaves]
    src, dst = zip(*cables, *((b, a) for a, b in cables), strict=True)
    n_links = len(src)
    coords = [(host % 4, host // 4) for host in hosts] + [(-1, 0), (-1, 1), (-1, -1)]
    return Topology(
        name="two leaves",
        kind=np.array([NPU] * 8 + [SWITCH] * 3, np.int8),
        src=np.array(src, np.int32),
        dst=np.array(dst, np.int32),
        bandwidth_Bps=np.full(n_links, 50e9),
        latency_ps=np.full(n_links, 100_000, np.int64),
        hop_latency_ps=np.full(11, 300_000, np.int64),
        dimension=np.zeros(n_links, np.int16),
        shape=(4, 2),
        coords=np.array(coords, np.int32),
        router=ShortestPathRouter(),
    )


@pytest.mark.parametrize("algorithm", ["direct", "dimension-wise"])
def test_a_group_that_fixes_a_shared_uplink_is_refused(algorithm: str) -> None:
    """Turning the hosts of a leaf keeps the uplink that they share; exchanging leaves ties their transfers there."""
    symmetry = assert_exact(build(algorithm, "all-to-all", two_leaves(), "1MiB"), Model(chunks=2))
    assert symmetry.startswith("all ranks simulated")
    assert "it fixes a link that several ranks share" in symmetry


def slower_link(fabric: Topology) -> Topology:
    """One link at half its bandwidth."""
    bandwidth = fabric.bandwidth_Bps.copy()
    bandwidth[3] /= 2
    return fabric.with_links(bandwidth_Bps=bandwidth)


def later_link(fabric: Topology) -> Topology:
    """One link with a longer wire."""
    latency = fabric.latency_ps.copy()
    latency[5] += 1
    return fabric.with_links(latency_ps=latency)


@pytest.mark.parametrize("spoil", [slower_link, later_link])
@pytest.mark.parametrize("algorithm", ["swing", "ring", "bucket"])
def test_an_unequal_link_ends_the_symmetry(algorithm: str, spoil: Callable[[Topology], Topology]) -> None:
    """One link that differs: no smaller run is exact, and the full one is done."""
    fabric = spoil(from_spec("torus:4x4"))
    assert_exact(build(algorithm, "all-reduce", fabric, "64KiB"), Model(chunks=2))


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(-1, 5), st.integers(-1, 3)), max_size=12))
def test_turns_differ_where_links_and_flows_are_not_one_to_one(rows: list[tuple[int, int, int]]) -> None:
    counts = {len({tuple(row[at] for at in some) for row in rows}) for some in ((0, 1), (0, 2), (0, 1, 2))}
    parts = [np.array(part, np.int64).reshape(-1, 3).T for part in (rows[:5], rows[5:])]
    assert turns_differ(parts) == (len(counts) > 1)


@pytest.mark.parametrize("at_once", [1, 7, 100])
@pytest.mark.parametrize(("algorithm", "collective", "topology"), [
    ("bucket", "all-reduce", "torus:6x4"), ("ring", "all-reduce", "torus:5x5"), ("direct", "all-to-all", "switch:8"),
    ("hierarchical", "all-reduce", "RI(4)_FC(3)_SW(2)"), ("recursive-doubling", "all-reduce", "dragonfly:3x2x2"),
])
def test_transfers_may_be_compared_a_part_at_a_time(
    algorithm: str, collective: str, topology: str, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def found() -> tuple[str, int]:
        _shapes.clear()
        result = simulate(build(algorithm, collective, from_spec(topology), "1MiB"), chunks=1)
        return result.symmetry, result.time_ps

    whole = found()
    monkeypatch.setattr(quotient, "AT_ONCE", at_once)
    assert found() == whole


def test_a_group_is_looked_at_once_whatever_ranks_wait_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """And anew where other links are alike; each time the run is the full one."""
    looked, check = [], quotient.check

    def counted(pattern: quotient.Emitter, q: quotient.Quotient, *more: Any, **named: Any) -> tuple[str | None, str]:
        looked.append(q.orbits.sources.size)
        return check(pattern, q, *more, **named)

    monkeypatch.setattr(quotient, "check", counted)
    monkeypatch.setattr(quotient, "_VERDICTS", WeakKeyDictionary())
    fabric = from_spec("torus:7x3")
    for progress in ("free", "all"):
        words = assert_exact(build("bucket", "all-reduce", fabric, "64KiB"), Model(chunks=2, rank_progress=progress))
        assert words.startswith("1 of 21 ranks")
    assert looked == [1]
    slower = fabric.with_links(latency_ps=fabric.latency_ps + (fabric.dimension == 1))
    assert_exact(build("bucket", "all-reduce", slower, "64KiB"), Model(chunks=2))
    assert looked == [1, 1]
