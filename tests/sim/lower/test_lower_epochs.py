import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectives import pairwise, recursive_doubling, ring, swing
from collectives.reconfigured import menu
from sim.engine.reference import run_reference
from sim.engine.run import run
from sim.lower.epochs import EpochBuilder, check_circuits, lower_plan, lower_planes
from sim.program.model import make_model
from topologies import Circuits, WeftError, optical, rotor_matchings, torus

BUILD = {
    "recursive-doubling": lambda base, size: recursive_doubling.all_reduce(base, size, form="bandwidth"),
    "swing": lambda base, size: swing.all_reduce(base, size, form="bandwidth"),
    "ring": ring.all_reduce,
    "pairwise": pairwise.all_to_all,
}


def simulated(one, plan, delay, **model):
    per_port = model.pop("per_port", False)
    epochs = lower_plan(one, plan, delay, make_model(**model), per_port=per_port)
    outcome = run(epochs.program)
    check_circuits(epochs, outcome)
    return outcome.makespan_ps


def whole_messages(one, plan, delay, **more):
    return simulated(one, plan, delay, chunks=1, forwarding="store-and-forward", **more)


@pytest.mark.table
@pytest.mark.parametrize("name", BUILD)
@pytest.mark.parametrize("delay", ["0s", "1us", "10us"])
def test_plan_and_simulation_agree_and_rank_plans_alike(name, delay):
    base = torus((16,), bandwidth="50GB/s", latency="100ns", hop_latency=0)
    one = menu(BUILD[name](base, "1MiB"), start_up="500ns")
    plans = [one.static(), one.every_step(delay), one.two_state(delay), one.segments(delay), one.best(delay)]
    planned = [plan.time_ps for plan in plans]
    found = [whole_messages(one, plan, delay) for plan in plans]
    for plan, simulation, choice in zip(planned, found, plans, strict=True):
        fill = sum(
            len(one.steps) + max(step.size_bytes) * 20 for step in one.steps  # one message a step, in ps at 50 GB/s
        )
        assert plan <= simulation <= plan + fill
        assert simulation - plan <= len(choice.fabrics)  # in fact equal, but for the rounding of each step
    assert np.argsort(planned, kind="stable").tolist() == np.argsort(found, kind="stable").tolist()


@pytest.mark.parametrize("name", BUILD)
def test_smaller_chunks_gain_at_most_the_propagation_and_lose_at_most_the_fill(name):
    base = torus((16,), bandwidth="50GB/s", latency="100ns", hop_latency=0)
    one = menu(BUILD[name](base, "1MiB"), start_up="500ns")
    for chunks in (4, 16):
        plan = one.two_state("1us")
        found = simulated(one, plan, "1us", chunks=chunks, forwarding="store-and-forward")
        hops = [int(one.fabrics[f].latency_ps[0]) for f in plan.fabrics]
        longest = [8] * len(hops)
        gain = sum((far - 1) * hop for far, hop in zip(longest, hops, strict=True))
        fill = sum(8 * -(-max(step.size_bytes) * 20 // chunks) + 16 for step in one.steps)
        assert plan.time_ps - gain <= found <= plan.time_ps + fill


@pytest.mark.parametrize("planes", [1, 2, 3])
def test_planes_take_as_long_as_planned(planes):
    base = torus((8,), bandwidth="60GB/s", latency="100ns", hop_latency=0)
    one = menu(recursive_doubling.all_reduce(base, "960KiB", form="bandwidth"), start_up="500ns")
    for delay in ("0s", "1us", "20us"):
        epochs = lower_planes(one, delay, planes, make_model(chunks=1, forwarding="store-and-forward"))
        outcome = run(epochs.program)
        check_circuits(epochs, outcome)
        assert 0 <= outcome.makespan_ps - one.overlapped_ps(delay, planes) <= len(one.steps)


def test_changing_only_ports_is_no_slower_than_the_whole_fabric():
    base = torus((16,), bandwidth="50GB/s", latency="100ns", hop_latency=0)
    one = menu(swing.all_reduce(base, "64KiB", form="bandwidth"), start_up="500ns")
    for plan in (one.every_step("1us"), one.two_state("1us"), one.best("1us")):
        whole = whole_messages(one, plan, "1us")
        assert whole_messages(one, plan, "1us", per_port=True) <= whole


@st.composite
def epochs_at_random(draw):
    """A few random fabrics, random transfers in each, some of which wait for earlier ones."""
    n = draw(st.integers(2, 5))
    builder = EpochBuilder(make_model(chunks=draw(st.integers(1, 3))), draw(st.booleans()))
    sent: list[int] = []
    total = 0
    for _ in range(draw(st.integers(1, 4))):
        order = draw(st.permutations(range(n)))
        extra = draw(st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), max_size=3))
        cycle = [(order[i], order[(i + 1) % n]) for i in range(n)]
        pairs = tuple({*cycle, *(pair for pair in extra if pair[0] != pair[1])})
        builder.begin(optical(Circuits(n, 8, pairs, False), bandwidth="1GB/s", latency="3ns"),
                      draw(st.sampled_from(["0s", "1ns", "1us"])))
        for _ in range(draw(st.integers(0, 4))):
            src, dst = draw(st.integers(0, n - 1)), draw(st.integers(0, n - 1))
            after = draw(st.lists(st.sampled_from(sent), max_size=2)) if sent else []
            size = draw(st.integers(0, 3000))
            total += size * len(builder.routes([src], [dst])[0])
            sent.append(builder.send(src, dst, size, after=after))
    return builder.build(), total


@given(epochs_at_random())
@settings(max_examples=60, deadline=None)
def test_no_chunk_crosses_a_circuit_that_is_not_up_and_no_byte_is_lost(drawn):
    epochs, total = drawn
    outcome = run(epochs.program)
    check_circuits(epochs, outcome)
    reference = run_reference(epochs.program)
    assert np.array_equal(outcome.finish_ps, reference.finish_ps)
    moved = sum(int(outcome.busy_ps[one.server]) for one in epochs.circuits)
    assert total * 1000 <= moved <= total * 1000 + epochs.program.chunk_hops()
    assert all(outcome.finish_ps[task] >= 0 for task in range(epochs.program.n_tasks))


@pytest.mark.parametrize("per_port", [False, True])
def test_switching_without_draining_is_found_out(per_port):
    builder = EpochBuilder(per_port=per_port)
    one, other = (optical(Circuits(3, 1, (pair,), False), bandwidth="1GB/s") for pair in ((0, 1), (0, 2)))
    builder.begin(one)
    builder.send(0, 1, 10_000)
    builder.begin(other, "1us", drain=False)
    builder.send(0, 2, 10)
    epochs = builder.build()
    with pytest.raises(WeftError, match=r"circuit npu0->npu1 is down from 0 ps"):
        check_circuits(epochs, run(epochs.program))


def test_a_transfer_has_only_the_circuits_of_its_epoch():
    builder = EpochBuilder()
    with pytest.raises(WeftError, match="before the first epoch"):
        builder.send(0, 1, 1)
    builder.begin(optical(Circuits(3, 1, ((0, 1),))))
    with pytest.raises(WeftError, match="no route from npu0 to npu2"):
        builder.send(0, 2, 1)
    with pytest.raises(WeftError, match="reconfiguration delay '10' is not a time"):
        builder.begin(optical(Circuits(3, 1, ((0, 2),))), "10")


def test_unchanged_circuits_stay_up_where_only_ports_change():
    builder = EpochBuilder(make_model(chunks=1), per_port=True)
    rate = {"bandwidth": "1GB/s", "latency": "1ns"}
    builder.begin(optical(Circuits(4, 2, ((0, 1), (2, 3)), False), **rate))
    kept = builder.send(0, 1, 1_000)
    builder.begin(optical(Circuits(4, 2, ((0, 1), (3, 2)), False), **rate), "1ms")
    again, new = builder.send(0, 1, 1_000), builder.send(3, 2, 1_000)
    epochs = builder.build()
    outcome = run(epochs.program)
    check_circuits(epochs, outcome)
    assert outcome.finish_ps[[kept, again]].tolist() == [1_001_000, 2_001_000]
    assert outcome.finish_ps[new] == 10**9 + 1_001_000


def test_a_rotor_that_carries_an_all_to_all_with_guard_times():
    n, size = 8, 5_000
    builder = EpochBuilder(make_model(chunks=1, forwarding="store-and-forward"))
    clock = builder.program.server(10**12)
    slot_ps, guard = 6_000_000, "1us"
    tick = -1
    for at, turn in enumerate(rotor_matchings(n)):
        fabric = optical(turn, bandwidth="1GB/s", latency="100ns")
        if at:
            tick = builder.program.task(slot_ps if at == 1 else slot_ps + 1_000_000, [(clock, 0)],
                                        after=[] if tick < 0 else [tick])
        builder.begin(fabric, guard, after=[tick] if at else [])
        for src, dst in turn.pairs:
            builder.send(src, dst, size)
    epochs = builder.build()
    outcome = run(epochs.program)
    check_circuits(epochs, outcome)
    assert outcome.makespan_ps == (n - 2) * 7_000_000 + 5_100_000
