import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectives import pairwise, recursive_doubling, ring, swing
from collectives.reconfiguration_plan import (
    IMPOSSIBLE,
    alternating_planes_ps,
    best_plan,
    congestion,
    cost_of,
    only,
    steps_of,
)
from collectives.reconfigured import menu
from tests.oracles.circuit_plans import cheapest_ps
from tests.oracles.concurrent_flow import max_concurrent_flow
from topologies import WeftError, switch, torus

US = 1_000_000


@pytest.fixture(scope="module")
def base():
    return torus((64,), bandwidth="50GB/s", latency="100ns", hop_latency=0)


@pytest.fixture(scope="module")
def menus(base):
    return {
        size: menu(recursive_doubling.all_reduce(base, size, form="bandwidth"), start_up="500ns")
        for size in ("4KiB", "64KiB", "1MiB")
    }


@pytest.mark.parametrize(
    ("size", "delay", "static", "every", "match", "letters", "segments", "strides"),
    [
        ("4KiB", "100ns", 19.09, 8.46, 8.36, "BRRRRRmRRRRB", 8.36, "0 1 2 3 4 5 5 4 3 2 1 0"),
        ("4KiB", "1us", 19.09, 18.36, 13.74, "BBBBRRmRBBBB", 11.08, "0 0 0 3 3 3 3 3 3 0 0 0"),
        ("4KiB", "10us", 19.09, 117.36, 19.09, "BBBBBBBBBBBB", 19.09, "0 0 0 0 0 0 0 0 0 0 0 0"),
        ("64KiB", "1us", 26.46, 20.78, 18.22, "BBBRRRmRRBBB", 15.22, "0 0 0 3 3 3 3 3 3 0 0 0"),
        ("64KiB", "10us", 26.46, 119.78, 26.46, "BBBBBBBBBBBB", 26.46, "0 0 0 0 0 0 0 0 0 0 0 0"),
        ("1MiB", "1us", 144.43, 59.49, 58.49, "BRRRRRmRRRRB", 57.34, "0 1 2 3 4 4 4 4 3 2 1 0"),
        ("1MiB", "10us", 144.43, 158.49, 135.25, "BBBBRRmRBBBB", 92.51, "0 0 2 2 2 2 2 2 2 2 0 0"),
        ("1MiB", "100us", 144.43, 1148.49, 144.43, "BBBBBBBBBBBB", 144.43, "0 0 0 0 0 0 0 0 0 0 0 0"),
    ],
)
def test_published_plans_of_recursive_doubling(menus, size, delay, static, every, match, letters, segments, strides):
    one = menus[size]
    two_state, rings = one.two_state(delay), one.segments(delay)
    found = [plan.time_ps / US for plan in (one.static(), one.every_step(delay), two_state, rings)]
    assert found == pytest.approx([static, every, match, segments], abs=0.0051)
    assert two_state.letters == letters and one.every_step(delay).reconfigurations == 11
    exponent = {0: 0} | {fabric: at for at, fabric in enumerate(one.rings)}
    assert " ".join(str(exponent[fabric]) for fabric in rings.fabrics) == strides
    assert one.best(delay).time_ps <= rings.time_ps <= two_state.time_ps
    assert two_state.time_ps <= min(one.static().time_ps, one.every_step(delay).time_ps)


@pytest.mark.table
@pytest.mark.parametrize(("size", "one_way", "both"), [("4KiB", 75.76, 75.68), ("64KiB", 78.18, 76.89),
                                                       ("1MiB", 116.89, 96.24)])
def test_rings_beside_them(base, size, one_way, both):
    for directions, expected in ((1, one_way), (2, both)):
        schedule = ring.all_reduce(base, size, directions=directions)
        assert menu(schedule, start_up="500ns").static().time_ps / US == pytest.approx(expected, abs=0.0051)


def test_swing_hops_and_congestion(base):
    steps = steps_of(swing.all_reduce(base, "1MiB", form="bandwidth"), port=0)[:6]
    crowds = [congestion(base, step) for step in steps]
    assert [(one.hops, one.messages) for one in crowds] == [(1, 1), (1, 1), (3, 2), (5, 3), (11, 6), (21, 11)]


def test_recursive_doubling_hops_and_congestion(base):
    for n in (8, 16, 64):
        fabric = torus((n,))
        steps = steps_of(recursive_doubling.all_reduce(fabric, "1MiB", form="bandwidth"))
        for at, step in enumerate(steps[: len(steps) // 2]):
            crowd = congestion(fabric, step)
            assert (crowd.hops, crowd.messages) == (2**at, 2**at)


def test_flows_over_all_routes_are_no_worse_than_one_route_each():
    fabric = torus((8,), bandwidth="1GB/s")
    for step in steps_of(recursive_doubling.all_reduce(fabric, "8KiB", form="bandwidth"))[:3]:
        share = max_concurrent_flow(fabric, step)
        assert share * congestion(fabric, step).transmission_ps * 1e-12 >= 1 - 1e-9
    half = steps_of(recursive_doubling.all_reduce(fabric, "8KiB", form="bandwidth"))[2]
    # 8 messages over 4 hops of 16 links: two at once on each link, where one route each puts four on some.
    assert 1 / share == pytest.approx(2 * half.size_bytes[0] / 1e9)


costs = st.integers(1, 5).flatmap(lambda steps: st.integers(1, 4).flatmap(lambda fabrics: st.lists(
    st.lists(st.integers(0, 50), min_size=fabrics, max_size=fabrics), min_size=steps, max_size=steps)))


@given(costs, st.integers(0, 30))
@settings(max_examples=100, deadline=None)
def test_the_plan_is_the_best_of_all_sequences(table, delay):
    array = np.array(table, np.int64)
    plan = best_plan(array, delay)
    assert plan.time_ps == cheapest_ps(array, delay) == cost_of(plan.fabrics, array, delay).time_ps
    static = cost_of([0] * len(table), array, delay).time_ps
    assert plan.time_ps <= static
    assert best_plan(array, 0).time_ps == array.min(axis=1).sum() <= static  # no delay: never worse than static


@given(st.lists(st.integers(1, 50), max_size=8), st.integers(0, 40))
@settings(max_examples=60, deadline=None)
def test_planes(step_costs, delay):
    alone = alternating_planes_ps(step_costs, delay, 1)
    assert alone == sum(step_costs) + delay * len(step_costs)
    two = alternating_planes_ps(step_costs, delay)
    assert (delay if step_costs else 0) + sum(step_costs) <= two <= alone
    if delay <= min(step_costs, default=0):  # all but the first change is hidden
        assert two == sum(step_costs) + (delay if step_costs else 0)


def test_bad_input_is_named(base):
    schedule = recursive_doubling.all_reduce(base, "4KiB", form="bandwidth")
    with pytest.raises(WeftError, match="reconfiguration delay '10' is not a time"):
        menu(schedule).two_state("10")
    with pytest.raises(WeftError, match="reconfiguration delay -1 ps is negative"):
        best_plan(np.zeros((1, 1), np.int64), -1)
    with pytest.raises(WeftError, match="switched between servers; switch:4 has 1 switches"):
        menu(pairwise.all_to_all(switch(4), "4KiB"))
    with pytest.raises(WeftError, match="server 0 has 2 outgoing circuits, and 1 interfaces"):
        menu(ring.all_reduce(base, "4KiB"), interfaces=1)
    with pytest.raises(WeftError, match="step 1 has no route on any fabric"):
        best_plan(only(np.ones((2, 2), np.int64), [{0}, set()]), 1)
    with pytest.raises(WeftError, match="step 0 has no route on fabric 0"):
        cost_of([0], np.array([[IMPOSSIBLE]]), 1)
    with pytest.raises(WeftError, match="0 planes"):
        alternating_planes_ps([1], 1, 0)


def test_nothing_to_do():
    lonely = menu(pairwise.all_to_all(torus((1,)), "4KiB"))
    assert lonely.steps == () and lonely.best("1us").time_ps == lonely.overlapped_ps("1us") == 0
