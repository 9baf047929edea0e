import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectives import in_network, parameter_server, ring
from collectives.aggregation_tree import torus_trees
from sim import simulate
from sim.engine import run
from sim.lower import lower
from sim.model import Model
from sim.reference import run_reference
from topologies import fat_tree, from_spec, leaf_spine, switch, torus, with_reduction_units

MIB = 2**20


def star(p, **changes):
    return switch(p, **({"bandwidth": "100Gb/s", "latency": "2us", "hop_latency": "0.8us"} | changes))


def ideal_s(size, rate_Bps):
    return size / rate_Bps


@pytest.mark.compiled
def test_in_network_against_the_ring():
    size = 100 * MIB
    pushed = {p: simulate(in_network.all_reduce(star(p), size, slots=64), chunk=1024, packet_header_bytes=66,
                          forwarding="store-and-forward").time_ps for p in (2, 8)}
    rings = {p: simulate(ring.all_reduce(star(p, hop_latency=0), size, directions=1), chunks=1).time_ps for p in (2, 8)}
    assert rings[8] / 1e9 == pytest.approx(14.736, abs=5e-4) and rings[2] / 1e9 == pytest.approx(8.397, abs=5e-4)
    assert pushed[8] / rings[8] == pytest.approx(0.606, abs=5e-4)
    assert pushed[2] > rings[2]
    assert pushed[2] == pushed[8]


@pytest.mark.parametrize(("n", "measured_GBps", "busbw_GBps"), [(5, (258, 262), 420), (8, (273, 275), 480)])
def test_pull_is_nvlink_sharp(n, measured_GBps, busbw_GBps):
    fabric = switch(n, bandwidth=0.835 * 370e9, latency="0.5us", hop_latency="0.3us")
    result = simulate(in_network.all_reduce(fabric, "8GiB", form="pull"), chunks=256)
    assert result.algbw == pytest.approx(np.mean(measured_GBps), rel=0.03)
    assert result.busbw == pytest.approx(busbw_GBps, rel=0.03)


def test_pull_sends_the_array_and_a_share_each_way():
    n, size = 8, 8 * MIB
    result = simulate(in_network.all_reduce(star(n), size, form="pull"), chunks=64)
    busy = result.link_busy_ps / 1e12 * 12.5e9
    assert busy == pytest.approx(size * (1 + 1 / n), rel=1e-6)


@pytest.mark.parametrize("spec", ["switch:6", "fat-tree:4", "leaf-spine:4x3x2"])
def test_each_tree_edge_carries_the_array_once_each_way(spec):
    size, fabric = MIB, from_spec(spec)
    result = simulate(in_network.all_reduce(fabric, size), chunks=16, check=True)
    carried = result.link_busy_ps / 1e12 * fabric.bandwidth_Bps
    assert set(np.round(carried).astype(int).tolist()) <= {0, size}
    assert np.count_nonzero(carried) == 2 * (np.count_nonzero(carried) // 2) >= 2 * fabric.n_npus


@settings(max_examples=15, deadline=None)
@given(st.integers(1, 20), st.integers(0, 300_000), st.integers(1, 40))
def test_time_does_not_depend_on_the_workers(p, size, slots):
    times = {simulate(in_network.all_reduce(star(n), size, slots=slots), chunk=4096).time_ps for n in (p + 1, 2)}
    assert len(times) == 1


@pytest.mark.parametrize("spec", ["switch:4", "leaf-spine:2x2x1"])
@pytest.mark.parametrize("slots", [1, 3, 8])
def test_slots_in_use_stay_within_the_window(spec, slots):
    """A slot is taken when its first packet arrives and free when the last result is in."""
    fabric = from_spec(spec, latency="2us")
    lowered = lower(in_network.all_reduce(fabric, 64 * 4096, slots=slots), Model(chunks=None, chunk_bytes=4096))
    outcome = run(lowered.program, log=True)
    program, log = lowered.program, outcome.log
    hops, chunks = program.hops(), program.chunks()
    start = {}
    for task in range(program.n_tasks):
        rows = log.start_ps[log.base[task] : log.base[task + 1]].reshape(chunks[task], hops[task])
        start[task] = rows[:, 0]
    first = np.min(list(start.values()), axis=0)
    last = np.max(list(start.values()), axis=0)
    moments = np.concatenate([first, last])
    in_use = [int(np.count_nonzero((first <= at) & (last > at))) for at in moments]
    assert 1 <= max(in_use) <= slots


@pytest.mark.parametrize("form", ["push", "pull"])
def test_both_engines_agree(form):
    for fabric in (star(4), fat_tree(4), with_reduction_units(leaf_spine(2, 2, 1), "300Gb/s", per="port")):
        for forwarding in ("cut-through", "store-and-forward"):
            schedule = in_network.all_reduce(fabric, 100_000, form=form, slots=3 if form == "push" else None)
            program = lower(schedule, Model(chunks=None, chunk_bytes=4096, forwarding=forwarding)).program
            assert run_reference(program).makespan_ps == run(program).makespan_ps


@pytest.mark.compiled
@pytest.mark.parametrize(
    ("per", "rate", "slower"), [("port", "50Gb/s", 2.0), ("switch", "400Gb/s", 2.0), ("switch", "3.2Tb/s", 1.0)]
)
def test_aggregation_rates_decide(per, rate, slower):
    fabric = with_reduction_units(star(8), rate, per=per, latency="1us")
    result = simulate(in_network.all_reduce(fabric, 16 * MIB, slots=4096), chunk=1024, check=True)
    assert result.time_s == pytest.approx(slower * ideal_s(16 * MIB, 12.5e9), rel=0.01)


def test_striping_over_the_trees_of_a_torus():
    size, fabric = 64 * MIB, torus((4, 4))
    one = simulate(in_network.all_reduce(fabric, size, routers=True), chunks=512).time_s
    two = simulate(in_network.all_reduce(fabric, size, routers=True, trees=torus_trees(fabric)), chunks=512).time_s
    assert one == pytest.approx(ideal_s(size, 50e9), rel=0.03)
    assert two == pytest.approx(ideal_s(size, 50e9) / 2, rel=0.03)


def test_an_oversubscribed_spine_does_not_slow_a_tree_down():
    schedules = [in_network.all_reduce(leaf_spine(8, 4, spines), "16MiB") for spines in (8, 1)]
    even, narrow = (simulate(schedule, chunks=256).time_s for schedule in schedules)
    assert even == narrow


@pytest.mark.compiled
@pytest.mark.parametrize("fallback", [0.0, 0.25, 0.5])
def test_the_link_of_the_server_decides(fallback):
    size, p = 64 * MIB, 8
    result = simulate(parameter_server.all_reduce(star(p), size, fallback=fallback), chunk="16KiB", check=True)
    share = 1 - fallback + fallback * (p - 1)
    assert result.time_s == pytest.approx(share * ideal_s(size, 12.5e9), rel=0.01)


def test_rail_wise_takes_the_array_once_through_the_node():
    result = simulate(in_network.all_reduce(from_spec("SW(4)_SW(8)"), "64MiB", form="rail-wise"), chunks=64, check=True)
    assert result.time_s == pytest.approx(ideal_s(64 * MIB, 50e9), rel=0.05)
