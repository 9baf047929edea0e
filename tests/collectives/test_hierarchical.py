"""Hierarchical schedules: proved with groups and overrides, and refused where they cannot be."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest

from collectives import build, hierarchical, themis
from collectives.core.process_groups import process_group
from collectives.themis import chunk_orders
from topologies import WeftError, from_links, from_spec

KINDS = ("all-reduce", "reduce-scatter", "all-gather", "all-to-all")


@pytest.mark.table
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("spec", "group"),
    [
        ("RI(4)_FC(8)", "4,4"), ("RI(4)_FC(8)", "-1,2@4"), ("SW(6)_RI(4)", "3,2"), ("torus:6x2", "3@2,2"),
        ("SW(4)_SW(4)", "1,1"), ("RI(5)_SW(2)_FC(3)", None), ("hx2mesh:2x2", None), ("mesh:3x2", None),
    ],
)
def test_proved_with_groups(kind, spec, group):
    schedule = build("hierarchical", kind, from_spec(spec), "64KiB", pipeline_chunks=2, group=group)
    assert schedule.proof == "proved"


@pytest.mark.table
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("algorithms", ["ring,ring", "direct,direct", "halving-doubling,ring", ",halving-doubling"])
def test_every_algorithm_on_every_block(kind, algorithms):
    for spec in ("RI(4)_SW(4)", "FC(8)_LI(2)"):
        if kind == "all-to-all" and "halving" in algorithms:
            with pytest.raises(WeftError, match="halving-doubling does not support all-to-all"):
                build("hierarchical", kind, from_spec(spec), "1KiB", algorithms=algorithms)
        else:
            assert build("hierarchical", kind, from_spec(spec), "1KiB", algorithms=algorithms).proof == "proved"


@pytest.mark.parametrize(("kind", "halves"), [("all-reduce", 2), ("reduce-scatter", 1), ("all-gather", 1)])
def test_bytes_sent_in_each_dimension(kind, halves):
    """M_d = s (p-1)/p with s shrinking by each dimension's extent, whatever the algorithm."""
    topology = from_spec("RI(4)_FC(8)_SW(16)")
    for algorithms in (None, "direct,ring,direct", "halving-doubling,halving-doubling,ring"):
        schedule = build("hierarchical", kind, topology, 2**20, pipeline_chunks=2, algorithms=algorithms)
        t = schedule.pattern.emit(np.array([0]))
        dim = np.argmax(topology.coords[t.dst] != topology.coords[0], axis=1)
        sent = np.bincount(dim, t.blocks, minlength=3) * schedule.block_bytes
        assert sent.tolist() == [halves * 2**20 * 3 / 4, halves * 2**18 * 7 / 8, halves * 2**15 * 15 / 16]


@pytest.mark.parametrize("kind", KINDS)
def test_every_order_of_dimensions_is_proved(kind):
    """The first of the reduce-scatter moves the whole array; a group leaves out what it does not use."""
    topology = from_spec("RI(4)_FC(2)_SW(2)")
    for order in permutations(range(3)):
        schedule = build("hierarchical", kind, topology, 2**12, pipeline_chunks=1, order=",".join(map(str, order)))
        assert schedule.proof == "proved"
        if kind == "all-to-all":  # every dimension carries the whole array
            continue
        t = schedule.pattern.emit(np.array([0]))
        dim = np.argmax(topology.coords[t.dst] != topology.coords[0], axis=1)
        first = np.bincount(dim, t.blocks, minlength=3)[order[0]] * schedule.block_bytes
        extent = topology.shape[order[0]]
        assert first == (2 if kind == "all-reduce" else 1) * 2**12 * (extent - 1) / extent
    group = build("hierarchical", kind, topology, "1KiB", group="4,-1,2", order=(2, 1, 0))
    assert group.proof == "proved"


@pytest.mark.parametrize("order", ["0,0", "first", "0,1,2", (1,)])
def test_orders_that_are_refused(order):
    with pytest.raises(WeftError, match="give each of 0,1 once"):
        build("hierarchical", "all-reduce", from_spec("SW(4)_SW(4)"), "1KiB", order=order)
    with pytest.raises(WeftError, match="omit order"):
        build("themis", "all-reduce", from_spec("SW(4)_SW(4)"), "1KiB", order=order)


def test_large_networks_are_proved_on_small_ones():
    schedule = hierarchical.all_reduce(from_spec("RI(16)_FC(8)_SW(32)"), "1MiB", group="-1,2@4,32")
    assert schedule.proof.startswith("proved on torus:1x")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pipeline_chunks": 0}, "pipeline_chunks is 0: give an integer from 1"),
        ({"active_chunks": 0}, "active_chunks is 0"),
        ({"service": "lifo"}, "service 'lifo' is unknown: choose one of fifo, smallest-first"),
        ({"algorithms": "ring"}, "1 algorithms for 2 dimensions"),
        ({"algorithms": "ring,tree"}, "dimension 1: algorithm 'tree' is unknown: choose one of ring, direct"),
        ({"algorithms": "halving-doubling,"}, "needs a power of two in dimension 0, which has 6"),
        ({"groups": "6,2"}, "no option 'groups'|option 'groups' is unknown"),
    ],
)
def test_options_are_checked(options, message):
    for module in (hierarchical, themis):
        with pytest.raises(WeftError, match=message):
            module.all_reduce(from_spec("RI(6)_SW(2)"), "1KiB", **options)


def test_other_networks_are_refused():
    with pytest.raises(WeftError, match="is not a product of dimensions"):
        hierarchical.all_reduce(from_links([(0, 1, "1GB/s", 0), (1, 0, "1GB/s", 0)], 2), "1KiB")


def test_themis_orders():
    """Three equal dimensions take turns; a wide first dimension keeps the default order."""
    orders = chunk_orders((8, 8, 8), (50.0, 50.0, 50.0), 6)
    assert orders[0] == (0, 1, 2)
    assert {order[0] for order in orders} == {0, 1, 2}
    assert set(chunk_orders((8, 8), (800.0, 100.0), 16)) == {(0, 1)}
    assert chunk_orders((1, 4, 1), (1.0, 1.0, 1.0), 2) == ((1,), (1,))
    assert chunk_orders((1, 1), (1.0, 1.0), 1) == ((),)


def test_the_same_orders_are_proved_once_whichever_comes_first() -> None:
    """A search for bandwidths meets the orders of themis in any sequence."""
    orders = (0, 1, 2), (2, 1, 0), (0, 1, 2)
    plan = hierarchical.HierarchicalPlan("all-reduce", process_group((4, 8, 4), None), ("ring",) * 3, orders, None)
    small = hierarchical._smaller("themis", plan)
    assert small.proof == "proved"
    assert hierarchical._smaller("themis", replace(plan, orders=orders[::-1][:2])).emit is small.emit
    assert hierarchical._smaller("themis", replace(plan, orders=orders[:1])).emit is not small.emit
