import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.certify.schedule import certify_circuits
from sim.engine.reference.engine import run_reference
from sim.program.model import make_model
from sim.program.outcome import CertificateError
from sim.simulation import simulate
from topologies import WeftError, optical, torus
from topologies.core.epochs import circuit_epochs
from workloads.job import Job, change_circuits


def certified(job, **model):
    """A run whose circuits are certified, with the task of each operation that is one message or change."""
    result = simulate(job, model=make_model(**model), check=True)
    return result, [result.lowered.end_task[number, min(job.ranks(operation))]
                    for number, operation in enumerate(job.operations)]


@st.composite
def epochs_at_random(draw):
    """A few random fabrics, random transfers in each, some of which wait for earlier ones."""
    n, per_port = draw(st.integers(2, 5)), draw(st.booleans())
    fabrics = []
    for _ in range(draw(st.integers(1, 4))):
        order = draw(st.permutations(range(n)))
        extra = draw(st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), max_size=3))
        cycle = [(order[i], order[(i + 1) % n]) for i in range(n)]
        pairs = tuple({*cycle, *(pair for pair in extra if pair[0] != pair[1])})
        fabrics.append(optical(n, 8, pairs, False, bandwidth="1GB/s", latency="3ns"))
    epochs = circuit_epochs(fabrics, keep=per_port)
    job, sent, total = Job(epochs.topology), [], 0
    for epoch in range(len(fabrics)):
        for _ in range(draw(st.integers(0, 4))):
            src, dst, size = draw(st.integers(0, n - 1)), draw(st.integers(0, n - 1)), draw(st.integers(0, 3000))
            after = draw(st.lists(st.sampled_from(sent), max_size=2)) if sent else []
            via = epochs.route(epoch, [src], [dst])
            total += size * len(via[0])
            sent.append(job.send("message", [size], [src], [dst], via=via, after=after))
    change_circuits(job, epochs, draw(st.sampled_from(["0s", "1ns", "1us"])), per_port=per_port)
    return job, total, draw(st.integers(1, 3))


@given(epochs_at_random())
@settings(max_examples=60, deadline=None)
def test_no_chunk_crosses_a_circuit_that_is_not_up_and_no_byte_is_lost(drawn):
    job, total, chunks = drawn
    result, _ = certified(job, chunks=chunks)
    outcome, lowered = result.outcome, result.lowered
    assert np.array_equal(outcome.finish_ps, run_reference(result.program).finish_ps)
    moved = int(outcome.busy_ps[lowered.server_link >= 0].sum())
    assert total * 1000 <= moved <= total * 1000 + result.program.chunk_hops()
    assert np.all(outcome.finish_ps >= 0)


@pytest.mark.parametrize("per_port", [False, True])
def test_switching_without_draining_is_found_out(per_port):
    fabrics = [optical(3, 1, (pair,), False, bandwidth="1GB/s") for pair in ((0, 1), (0, 2))]
    epochs = circuit_epochs(fabrics, keep=per_port)
    job = Job(epochs.topology)
    job.send("before", [10_000], [0], [1], via=epochs.route(0, [0], [1]))
    job.send("after", [10], [0], [2], via=epochs.route(1, [0], [2]))
    change_circuits(job, epochs, "1us", per_port=per_port, drain=False)
    with pytest.raises(CertificateError, match=r"before from npu0 .* ends .*; circuit npu0->npu1 is down from 0 ps"):
        simulate(job)


def test_a_transfer_that_starts_before_its_circuit_is_up_is_found_out():
    fabrics = [optical(3, 1, (pair,), False, bandwidth="1GB/s") for pair in ((0, 1), (0, 2))]
    epochs = circuit_epochs(fabrics)
    job = Job(epochs.topology)
    job.send("after", [10], [0], [2], via=epochs.route(1, [0], [2]))
    change_circuits(job, epochs, "1us")
    result, tasks = certified(job)
    assert result.outcome.finish_ps[tasks[1]] == 10**6
    early = result.outcome._replace(start_ps=np.zeros_like(result.outcome.start_ps))
    with pytest.raises(CertificateError, match=r"starts at 0 ps; circuit npu0->npu2 is up from 1 us"):
        certify_circuits(
            result.program, early, job.topology, result.lowered.server_link, result.lowered.changes
        )


def test_a_transfer_has_only_the_circuits_of_its_epoch():
    epochs = circuit_epochs([optical(3, 1, (pair,)) for pair in ((0, 1), (0, 2))])
    with pytest.raises(WeftError, match="no route from npu0 to npu2"):
        epochs.route(0, [0], [2])
    job = Job(epochs.topology)
    with pytest.raises(WeftError, match="reconfiguration delay '10' is not a time"):
        change_circuits(job, epochs, "10")
    with pytest.raises(WeftError, match="names link 9 of the 4"):
        job.reconfigure("change", "1us", [9], [])
    job.send("unnamed", [1], [0], [1])
    with pytest.raises(WeftError, match="circuits of 2 epochs from optical change: name those from npu0 to npu1"):
        simulate(job)
    with pytest.raises(WeftError, match="at least one fabric"):
        circuit_epochs([])
    with pytest.raises(WeftError, match="they are not on the same nodes"):
        circuit_epochs([torus((4,)), torus((8,))])


def test_a_circuit_that_comes_back_is_the_same_link():
    fabric = optical(3, 2, ((0, 1), (0, 2)), False, bandwidth="1GB/s")
    job, (one, two) = Job(fabric), fabric.link_ids(np.array([0, 0]), np.array([1, 2])).tolist()
    ends = []
    for turn in range(6):
        if turn:
            old, new = (two, one) if turn % 2 == 0 else (one, two)
            job.reconfigure(f"change {turn}", "1us", [old], [new])
        ends.append(job.send("message", [1_000], [0], [1 + turn % 2]))
    result, tasks = certified(job, chunks=1)
    assert result.time_ps == 6 * 1_100_000 + 5 * 1_000_000
    assert [int(result.outcome.finish_ps[tasks[at]]) for at in ends] == [1_100_000 + 2_100_000 * at for at in range(6)]
    assert np.array_equal(run_reference(result.program).finish_ps, result.outcome.finish_ps)
    start_ps = result.outcome.start_ps
    early = result.outcome._replace(start_ps=np.where(start_ps == 6_300_000, 4_300_000, start_ps))
    with pytest.raises(CertificateError, match=r"ends at 7.4 us; circuit npu0->npu2 is down from 3.2 us"):
        certify_circuits(result.program, early, job.topology, result.lowered.server_link, result.lowered.changes)


def test_unchanged_circuits_stay_up_where_only_ports_change():
    rate = {"bandwidth": "1GB/s", "latency": "1ns"}
    fabrics = [optical(4, 2, ((0, 1), pair), False, **rate) for pair in ((2, 3), (3, 2))]
    epochs = circuit_epochs(fabrics, keep=True)
    job = Job(epochs.topology)
    kept = job.send("kept", [1_000], [0], [1], via=epochs.route(0, [0], [1]))
    again = job.send("again", [1_000], [0], [1], via=epochs.route(1, [0], [1]))
    new = job.send("new", [1_000], [3], [2], via=epochs.route(1, [3], [2]))
    change_circuits(job, epochs, "1ms", per_port=True)
    result, _ = certified(job, chunks=1)
    end = [span.end_ps for number in (kept, again, new) for span in result.spans() if span.operation == number][::2]
    assert end == [1_001_000, 2_001_000, 10**9 + 1_001_000]
