"""All-to-all along the routes of the maximum concurrent flow: whole routes, even links, faster than direct."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest

from collectives import concurrent_flow, direct
from sim import simulate
from tests import fabrics
from topologies import WeftError, from_links, from_spec
from topologies.flows.programs import all_to_all_rate_Bps

SPECS = ("torus:4x4", "torus:5", "torus:4x2x3", "mesh:3x3", "hypercube:3", "fc:4", "switch:8", "random-regular:16x4x1",
         "dgx1:1", "mi250:1", "dgx-a100:2", "leaf-spine:4x4x4", "dragonfly:3x2x2")
RANDOM = [fabrics.random_fabric(seed) for seed in range(30_000, 30_015)]
EVERY = [*map(from_spec, SPECS), *RANDOM]

by_fabric = pytest.mark.parametrize("fabric", EVERY, ids=lambda fabric: fabric.name)


@by_fabric
def test_routes_lead_there_and_fill_no_link_beyond_the_program(fabric):
    routes = concurrent_flow.routes_of(fabric)
    share, load = defaultdict(float), np.zeros(fabric.n_links)
    for route in routes:
        nodes = [route.source, *(int(fabric.dst[link]) for link in route.links)]
        assert nodes[-1] == route.target and len(set(nodes)) == len(nodes)
        assert nodes[:-1] == [int(fabric.src[link]) for link in route.links]
        share[route.source, route.target] += route.share
        load[list(route.links)] += route.share
    n = fabric.n_npus
    assert sorted(share) == [(a, b) for a in range(n) for b in range(n) if a != b]
    assert min(share.values()) == pytest.approx(1) and max(share.values()) == pytest.approx(1)
    assert (load / fabric.bandwidth_Bps).max() * all_to_all_rate_Bps(fabric) == pytest.approx(1, abs=1e-4)


@pytest.mark.table
@by_fabric
@pytest.mark.parametrize("parts", [1, 3])
def test_parts_are_whole(fabric, parts):
    routes = concurrent_flow.routes_of(fabric)
    counts = concurrent_flow.whole_parts(fabric, routes, parts)
    given = defaultdict(int)
    for route, count in zip(routes, counts.tolist(), strict=True):
        given[route.source, route.target] += count
        assert abs(count - parts * route.share) <= parts
    assert set(given.values()) == {parts}


@pytest.mark.parametrize(
    ("spec", "gain"),
    [("torus:4x4", 1.4), ("random-regular:16x4x1", 1.6), ("dgx1:1", 1.4), ("mi250:1", 1.7), ("dgx-a100:2", 2.2)],
)
def test_it_comes_near_the_program_and_beats_direct(spec, gain):
    t = from_spec(spec)
    size = 2**26
    model = {"chunks": 16, "discipline": "lowest-chunk-first"}
    mine, plain = (simulate(one.all_to_all(t, size), **model).time_s for one in (concurrent_flow, direct))
    least_s = size / t.n_npus / all_to_all_rate_Bps(t)
    assert least_s <= mine * (1 + 1e-6) <= 1.06 * least_s
    assert plain / mine >= gain


def test_one_rank_sends_nothing():
    schedule = concurrent_flow.all_to_all(from_spec("torus:1"), "1MiB")
    assert schedule.proof == "proved" and schedule.pattern.transfers().src.size == 0


def test_too_many_ranks_are_refused():
    with pytest.raises(WeftError, match=r"concurrent-flow on mesh:23x23: the limit is 512 NPUs; this fabric has 529"):
        concurrent_flow.all_to_all(from_spec("mesh:23x23"), "1MiB")
    with pytest.raises(WeftError, match=r"on hx2mesh:4x4: the limit is 20,000 flows over links; .* has 24,576"):
        concurrent_flow.all_to_all(from_spec("hx2mesh:4x4"), "1MiB")


def test_many_ranks_are_refused_before_their_symmetries_are_looked_for(monkeypatch):
    monkeypatch.setattr(concurrent_flow, "_alike", None)
    with pytest.raises(WeftError, match="the limit is 512 NPUs; this fabric has 4,096"):
        concurrent_flow.all_to_all(from_spec("torus:64x64"), "1MiB")


def test_what_cannot_be_reached_is_named():
    one_way = from_links([(0, 1, "1GB/s", 0)], 2, name="one-way")
    with pytest.raises(WeftError, match="topology one-way: npu0 cannot be reached by any other NPU"):
        concurrent_flow.all_to_all(one_way, "1MiB")
