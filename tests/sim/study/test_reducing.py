"""Whether switches reduce, and at which rate, is asked of the fabric, for every algorithm."""

from __future__ import annotations

import pytest

from collectives import algorithms_for, build
from collectives.registry import REDUCING
from sim import simulate
from sim.analytic.cut_bound import cut_bound
from sim.study.spec import Spec
from topologies import WeftError, from_spec, with_reduction_units

FABRICS = (
    "switch:8", "switch:3", "SW(4)_SW(2)", "RI(3)_SW(4)", "leaf-spine:3x2x2", "fat-tree:4", "dgx-a100:1", "dgx-a100:2",
    "dgx-h100:1", "dgx-h100:2", "mi250:1", "torus:4x2", "torus:3x5", "mesh:3x4", "hyperx:3x2", "hx2mesh:2x1",
)


@pytest.mark.table
@pytest.mark.parametrize("kind", ["all-reduce", "reduce-scatter", "all-gather", "broadcast", "reduce"])
@pytest.mark.parametrize("fabric", FABRICS)
def test_no_default_row_is_faster_than_switches_that_only_forward(fabric: str, kind: str) -> None:
    """Unless the fabric says that they reduce, and then only of the algorithms that take such switches."""
    spec = Spec.from_dict({"topology": {"spec": fabric}, "collective": {"name": kind}})
    topology = spec.build_topology()
    least_s = float(cut_bound(topology, kind).s_per_byte) * 2**22
    looked_at = 0
    for name in algorithms_for(kind):
        try:
            schedule = spec.build_schedule(name, topology, 2**22)
        except WeftError:
            continue
        looked_at += 1
        if (result := simulate(schedule, chunks=4)).time_s < least_s * (1 - 1e-9):
            assert name in REDUCING and topology.boxes_reduce, name
            assert "switches, or routers, reduce and multicast" in result.notes()
    assert looked_at


@pytest.mark.parametrize("name", sorted(REDUCING))
def test_what_takes_reducing_switches_is_left_out_where_there_are_none(name: str) -> None:
    spec = Spec.from_dict({"topology": {"spec": "switch:8"}})
    with pytest.raises(WeftError, match=f"switch:8 does not say that its switches reduce.* or name {name} to run it"):
        spec.build_schedule(name, spec.build_topology(), 2**20)
    asked = Spec.from_dict({"topology": {"spec": "switch:8", "aggregation_rate": "50GB/s"}})
    assert spec.updated({"collective": {"algorithms": (name,)}}).build_schedule(name, spec.build_topology(), 2**20)
    assert asked.build_schedule(name, asked.build_topology(), 2**20)


def test_equal_traffic_on_equal_links_takes_equal_time() -> None:
    """One box: nvls-trees and push carry the array once each way, over links of the rate that aggregation reaches."""
    for size in ("64MiB", "1GiB"):
        box = from_spec("dgx-h100:1")
        trees, push = (
            simulate(build(name, "all-reduce", box, size, form), chunks=64).time_s
            for name, form in (("nvls-trees", None), ("in-network", "push"))
        )
        assert trees == pytest.approx(push, rel=0.02)


RATES = ("0.7GB/s", "20GB/s", "50GB/s", "333GB/s")


@pytest.mark.table
@pytest.mark.parametrize("per", ["switch", "port"])
@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize(
    "fabric", ["switch:8", "switch:3", "switch:2", "fat-tree:4", "leaf-spine:3x2x2", "SW(4)_SW(2)", "RI(3)_SW(4)",
               "dgx-a100:2", "torus:4x2", "mesh:3x3", "hx2mesh:2x1"],
)
def test_the_bound_of_all_algorithms_knows_the_rate_of_reduction(fabric: str, rate: str, per: str) -> None:
    """It is between those of switches that reduce at the rate of links, and of switches that only forward."""
    topology = Spec.from_dict({"topology": {
        "spec": fabric, "aggregation_rate": rate, "aggregation_per": per,
    }}).build_topology()
    forwarded, least, free = (
        cut_bound(one, "all-reduce", reducing_switches=reduces).s_per_byte
        for one, reduces in ((topology, False), (topology, None), (from_spec(fabric), True))
    )
    assert free <= least <= forwarded
    for name in algorithms_for("all-reduce"):
        for form in ("push", "pull") if name == "in-network" else (None,):
            try:
                result = simulate(build(name, "all-reduce", topology, 2**20, form), chunks=4)
            except WeftError:
                continue
            assert result.time_s >= float(least) * 2**20 * (1 - 1e-9), (name, form)
            assert result.time_ps >= result.lower_bound_ps


def test_slow_units_are_worth_what_they_take_in() -> None:
    """Of 14 arrays that eight NPUs exchange through links of 400 GB/s in all, a unit of 10 GB/s takes 1 in 41."""
    fabric = with_reduction_units(from_spec("switch:8"), "10GB/s")
    bound = cut_bound(fabric, "all-reduce", reducing_switches=None)
    assert float(bound.s_per_byte) == pytest.approx(14 / 410e9)
    assert bound.reason == "8 parts must exchange 14 arrays, less what switches between them add up and copy"
    assert cut_bound(from_spec("switch:8"), "all-reduce", reducing_switches=None) == cut_bound(
        from_spec("switch:8"), "all-reduce")


def test_routers_that_reduce_save_nothing() -> None:
    """An NPU adds up what arrives, and so does its router: each message still enters it."""
    fabric = from_spec("torus:4x4")
    slow = with_reduction_units(fabric, "1GB/s", nodes=range(16))
    for reduces in (None, True):
        found = cut_bound(slow, "all-reduce", reducing_switches=reduces)
        assert found.s_per_byte == cut_bound(fabric, "all-reduce").s_per_byte


def test_boxes_whose_switches_reduce_say_nothing_of_those_between_them() -> None:
    two = from_spec("dgx-h100:2")
    assert two.boxes_reduce and not two.says_it_reduces
    inside = two.dimension == 0
    share = two.as_it_reduces().bandwidth_Bps / two.bandwidth_Bps
    assert set(share[inside]) == {0.835} and set(share[~inside]) == {1.0}
