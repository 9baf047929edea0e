"""Jobs of which nothing but the time is asked: without the joins that only show when operations begin and end."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectives import direct, ring_rounds
from sim.engine.reference.engine import run_reference
from sim.engine.run import run
from sim.lower.job import lower
from sim.lower.lowered import NO_TRANSFER
from sim.program.model import Model, make_model
from sim.scenarios.optical import iteration_time_ps, simulate_iteration
from sim.scenarios.topoopt_search import coarser, optical_fabric
from sim.simulation import simulate, time_ps
from topologies import WeftError, from_spec, switch, torus
from workloads.job import Job
from workloads.topoopt import PACKETS, Demand, Placement, data_parallel, iteration_of, model


@st.composite
def jobs(draw: st.DrawFn) -> Job:
    """Computations, messages and all-reduces of some ranks or all, each after some of those before it."""
    topology = from_spec(draw(st.sampled_from(["ring:3", "torus:2x3", "switch:5"])))
    p, job = topology.n_npus, Job(topology)
    some = st.sets(st.integers(0, p - 1), min_size=1).map(sorted)
    for number in range(draw(st.integers(1, 9))):
        after = draw(st.lists(st.integers(0, number - 1), max_size=3)) if number else []
        kind, name = draw(st.sampled_from(("compute", "send", "messages", "rounds", "direct", "together"))), str(number)
        if kind == "compute":
            job.compute(name, draw(st.sampled_from([0, 1, 999, 10**6])), npus=draw(st.none() | some), after=after,
                        stream=draw(st.sampled_from(["compute", "other"])))
        elif kind == "send":
            src = draw(some)
            job.send(name, draw(st.sampled_from([0, 1, 5_000])), src, draw(st.permutations(src)), after=after)
        elif kind == "messages":
            ends = draw(st.lists(st.tuples(*[st.integers(0, p - 1)] * 2), min_size=1, max_size=6))
            job.send(name, [7 * at for at in range(len(ends))], *zip(*ends, strict=True), after=after, detached=True,
                     laps=draw(st.sampled_from([1, 2])))
        elif kind == "rounds":
            group = draw(some)
            schedule = ring_rounds.all_reduce(topology, draw(st.sampled_from([3, 4_000])), jumps=(1,), group=group,
                                              most_rounds=draw(st.sampled_from([None, 1, 3])))
            job.collective(name, schedule, npus=group, after=after, turn=draw(st.integers(0, 1)))
        else:
            job.collective(name, direct.all_reduce(topology, 600), after=after, together=kind == "together")
    return job


@settings(max_examples=40, deadline=None)
@given(jobs(), st.sampled_from([{}, {"chunks": 3}, {"nic": "shared"}, {"discipline": "priority"}, {"deliver": "head"}]))
def test_nothing_but_joins_is_left_out(job: Job, options: dict[str, object]) -> None:
    """The same work in the same time, also by the reference engine, with no more tasks."""
    whole, bare = lower(job, make_model(**options), joins=True), lower(job, make_model(**options), bare=True)
    expected = run_reference(whole.program)
    for found in (run(bare.program), run_reference(bare.program)):
        assert (found.makespan_ps, found.events) == (expected.makespan_ps, expected.events)
        np.testing.assert_array_equal(found.busy_ps, expected.busy_ps)
    assert bare.program.n_tasks <= whole.program.n_tasks
    assert time_ps(job, **options) == simulate(job, **options).time_ps


@pytest.mark.parametrize("spec", ["ring:3", "switch:5"])
def test_of_one_operation_all_ranks_begin_at_once(spec: str) -> None:
    job, apart = Job(from_spec(spec)), Job(from_spec(spec))
    for one, together in ((job, True), (apart, False)):
        one.collective("0", direct.all_reduce(one.topology, 600), together=together)
    assert run(lower(job, joins=True).program).makespan_ps == simulate(apart).time_ps


@pytest.mark.compiled
@pytest.mark.parametrize(("kind", "n"), [("DLRM", 16), ("DLRM", 12), ("CANDLE", 9), ("BERT", 8)])
def test_iterations(kind: str, n: int) -> None:
    """Also where one operator is on one server; on circuits and on a switch, coarse and fine."""
    job = model(kind, n)
    start = data_parallel(job)
    fabric = optical_fabric(n, 4)(Demand.of(iteration_of(job, start).job()))
    for strategy in (start, (*start[:3], Placement(1, 2), *start[4:])):
        for transport in (PACKETS, coarser(PACKETS, 512)):
            given_ = iteration_of(job, strategy), fabric.topology, fabric.rings, transport
            assert iteration_time_ps(*given_) == simulate_iteration(*given_).time_ps


def test_what_waits_in_a_circle_is_told() -> None:
    """A change waits for what crosses a link that it takes down, which waits for the change."""
    job = Job(torus((4,)))
    first = job.send("first", [8], [0], [1], via=[[0]])
    change = job.reconfigure("change", "1us", down=[0], up=[1], after=[first])
    job.send("second", [8], [0], [1], via=[[0]], after=[change])
    for bare in (False, True):
        with pytest.raises(WeftError, match=r"wait for each other in a circle: .*'change' .*-> 'second'"):
            lower(job, bare=bare)


def test_joins_are_left_where_several_are_waited_for() -> None:
    """The second computation on a rank waits for two messages; what nobody waits for has no end."""
    job = Job(switch(4))
    first = [job.compute(f"first {rank}", 5, npus=[rank]) for rank in range(4)]
    sent = job.send("sent", [8] * 3, [1, 2, 3], [0, 0, 0], after=first, detached=True)
    job.compute("second", 7, npus=[0], after=[sent])
    job.collective("gradients", direct.all_reduce(job.topology, 64), after=first)
    lowered = lower(job, Model(), "off", bare=True)
    joins = np.flatnonzero((lowered.program.hops() == 0) & (lowered.task_row == NO_TRANSFER))
    assert lowered.task_rank[joins].tolist() == [0] and lowered.task_operation[joins].tolist() == [sent]
