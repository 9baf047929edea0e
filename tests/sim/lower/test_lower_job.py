"""Jobs: representatives on the kernel, and all NPUs on the reference engine, agree on every operation."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectives import build, direct, hierarchical, swing
from collectives.core.process_groups import process_group
from sim.engine.reference.engine import run_reference
from sim.engine.run import run
from sim.lower.job import lower
from sim.program.model import Model
from sim.program.outcome import Outcome
from sim.simulation import simulate
from topologies import WeftError, from_spec, torus
from topologies.units import PS_PER_S
from workloads.job import Job

ONE_MS = 10**9
PLAIN = Model(chunks=2)


def check_alike(job: Job, model: Model = PLAIN) -> int:
    """Compare every operation on every NPU; returns the makespan."""
    few, every = lower(job, model), lower(job, model, "off")
    fast, slow = run(few.program), run_reference(every.program)
    assert fast.makespan_ps == slow.makespan_ps
    for table_of in ("begin_task", "end_task"):
        small = getattr(few, table_of)
        for (operation, rank), task in getattr(every, table_of).items():
            image = small[operation, int(few.orbits.rank[0][rank])]
            assert fast.finish_ps[image] == slow.finish_ps[task]
    return fast.makespan_ps


def layers_of_two_groups(service: str = "fifo", **options: object) -> Job:
    """Forward and backward of three layers with tensor and data parallelism that share dimension 1."""
    topology = from_spec("RI(4)_FC(4)_SW(2)")
    job = Job(topology)
    tensor = hierarchical.all_reduce(topology, 9_600, pipeline_chunks=2, group="4,2,-1", service=service, **options)
    data = hierarchical.all_reduce(topology, 48_000, pipeline_chunks=3, group="-1,2@2,2", service=service, **options)
    last: list[int] = []
    for layer in range(3):
        computed = job.compute(f"forward {layer}", 700_000, after=last)
        last = [job.collective(f"activations {layer}", tensor, after=[computed])]
    for layer in reversed(range(3)):
        computed = job.compute(f"backward {layer}", 1_400_000, after=last)
        last = [job.collective(f"errors {layer}", tensor, after=[computed])]
        job.collective(f"gradients {layer}", data, after=[computed], priority=1 + layer)
    return job


@pytest.mark.table
@pytest.mark.parametrize("options", [
    {}, *(pytest.param(one, marks=pytest.mark.full) for one in (
        {"service": "smallest-first"}, {"active_chunks": 2}, {"active_chunks": None})),
])
@pytest.mark.parametrize("forwarding", ["cut-through", "store-and-forward"])
def test_groups_that_share_a_dimension(options, forwarding):
    job = layers_of_two_groups(**options)
    assert "1 of 32 ranks simulated" in lower(job, PLAIN).symmetry
    check_alike(job, Model(chunks=2, forwarding=forwarding))


@settings(max_examples=15, deadline=None)
@given(st.lists(st.sampled_from((0.25, 0.5, 1.0)), min_size=32, max_size=32))
def test_stragglers_hold_up_nobody_forever(speeds):
    """Ranks that drift apart take up the same chunks all the same: no limit of active chunks ends in a deadlock."""
    job = layers_of_two_groups()
    even = makespan(job)
    job.speed = np.array(speeds)
    assert makespan(job) >= even


def test_one_straggler_breaks_the_symmetry():
    job = layers_of_two_groups()
    job.speed = np.where(np.arange(32) == 3, 0.5, 1.0)
    assert lower(job, PLAIN).symmetry == "all ranks simulated"
    check_alike(job)


def test_stages_of_a_pipeline_have_one_representative_each():
    topology = from_spec("RI(4)_SW(2)")
    job = Job(topology)
    stages = range(4), range(4, 8)
    gather = hierarchical.all_gather(topology, "64KiB", pipeline_chunks=2, group="4,-1")
    last: list[list[int]] = [[], []]
    for batch in range(3):
        first = job.compute(f"stage 0, batch {batch}", ONE_MS, npus=stages[0], after=last[0])
        sent = job.send(f"batch {batch}", 1 << 20, stages[0], stages[1], after=[first])
        second = job.compute(f"stage 1, batch {batch}", ONE_MS, npus=stages[1], after=[sent, *last[1]])
        last = [[first], [second]]
    for stage, ranks in enumerate(stages):
        job.collective(f"gather {stage}", gather, npus=ranks, after=last[stage])
    assert "2 of 8 ranks" in lower(job, PLAIN).symmetry
    check_alike(job)


@pytest.mark.parametrize("tie", ["first", "split", "alternating", "ecmp"])
def test_other_algorithms_and_ties(tie):
    topology = torus((4, 4))
    job = Job(topology)
    before = job.compute("before", ONE_MS)
    reduced = job.collective("reduce", swing.all_reduce(topology, "16KiB"), after=[before])
    exchanged = job.collective("exchange", direct.all_to_all(topology, "16KiB"), after=[before])
    job.compute("after", 5, after=[reduced, exchanged])
    check_alike(job, Model(chunks=1, tie=tie))


@pytest.mark.parametrize("spec", ["RI(4)_FC(2)_SW(4)", "torus:3x5", "SW(4)", "RI(1)"])
def test_a_job_of_one_collective_takes_as_long_as_the_collective(spec):
    topology = from_spec(spec)
    schedule = hierarchical.all_reduce(topology, "48KiB", pipeline_chunks=3)
    job = Job(topology)
    job.collective("all", schedule)
    assert check_alike(job) == simulate(schedule, model=PLAIN).time_ps


def test_an_operation_ends_where_its_data_are():
    """A message ends at its source and destination when it arrives; other ranks never see it."""
    topology = from_spec("FC(3)")
    job = Job(topology)
    sent = job.send("send", 1 << 20, [0], [1])
    done = [job.compute(f"after {rank}", ONE_MS, npus=[rank], after=[sent]) for rank in range(3)]
    lowered = lower(job, PLAIN)
    outcome = run(lowered.program)
    wire = np.ceil((1 << 20) * PS_PER_S / topology.bandwidth_Bps[0])
    starts = [int(outcome.start_ps[lowered.begin_task[operation, rank]]) for rank, operation in enumerate(done)]
    assert starts[2] == 0
    assert starts[0] == starts[1] > wire


def test_streams_of_an_npu_run_side_by_side():
    job = Job(from_spec("FC(2)"))
    job.compute("one", ONE_MS)
    job.compute("two", ONE_MS)
    job.compute("other", 3 * ONE_MS, stream="copy")
    assert makespan(job) == 3 * ONE_MS + 1  # a cut-through hop takes at least 1 ps
    job.speed = np.array([1.0, 0.25])
    assert makespan(job) == 12 * ONE_MS + 1


def test_streams_serve_the_small_priorities_first():
    job = Job(from_spec("FC(2)"))
    late = job.compute("late", ONE_MS, priority=5)
    soon = job.compute("soon", ONE_MS, priority=1)
    lowered = lower(job, PLAIN)
    outcome = run(lowered.program)
    assert outcome.start_ps[lowered.begin_task[soon, 0]] == 0
    assert outcome.start_ps[lowered.begin_task[late, 0]] == ONE_MS


def makespan(job: Job) -> int:
    outcome: Outcome = run(lower(job, PLAIN).program)
    return outcome.makespan_ps


def test_an_empty_job():
    assert makespan(Job(from_spec("FC(2)"))) == 0


@pytest.mark.parametrize("kind", ["broadcast", "reduce"])
@pytest.mark.parametrize("npus", [one for n in (1, 2, 3) for one in combinations(range(4), n)])
def test_no_part_of_a_tree_is_a_whole_group(kind: str, npus: tuple[int, ...]) -> None:
    """Also one that sends to nobody outside, or waits for nobody, or does neither and lacks what others send to it."""
    topology = from_spec("ring:4")
    job = Job(topology)
    job.collective("half", build("tree", kind, topology, 4096), npus=list(npus))
    with pytest.raises(WeftError, match="'half' covers a part of a process group"):
        lower(job, PLAIN)


def test_what_is_refused():
    topology, other = from_spec("FC(4)"), from_spec("FC(4)")
    job = Job(topology)
    with pytest.raises(WeftError, match="duration_ps is -1"):
        job.compute("x", -1)
    with pytest.raises(WeftError, match="'x' waits for operation 0, which does not exist yet"):
        job.compute("x", 1, after=[0])
    with pytest.raises(WeftError, match="'x' names an NPU that is not one of the 4"):
        job.compute("x", 1, npus=[4])
    with pytest.raises(WeftError, match="not on the topology of the job"):
        job.collective("x", hierarchical.all_reduce(other, 4))
    with pytest.raises(WeftError, match="as many destinations as sources"):
        job.send("x", 4, [0], [1, 2])
    with pytest.raises(WeftError, match="speeds must be 4 positive, finite numbers"):
        Job(topology, speed=np.ones(3))
    with pytest.raises(WeftError, match="speeds must be 4 positive, finite numbers"):
        Job(topology, speed=np.array([1, 1, np.inf, 1]))
    job.collective("half", hierarchical.all_reduce(topology, 4), npus=[0, 1])
    with pytest.raises(WeftError, match="'half' covers a part of a process group"):
        lower(job, PLAIN)
    job = Job(topology)
    for active in (1, 2):
        job.collective(str(active), hierarchical.all_reduce(topology, 64, active_chunks=active))
    with pytest.raises(WeftError, match="give all the same active_chunks and service"):
        lower(job, PLAIN)


def test_the_group_of_a_job_is_the_largest_that_all_its_collectives_keep():
    """A ring turns as a whole, a group of half of it only by halves: the job keeps the half-turn and dimension 1."""
    topology = from_spec("RI(4)_FC(3)")
    job = Job(topology)
    job.collective("whole", hierarchical.all_reduce(topology, "1KiB", pipeline_chunks=1))
    job.collective("half", hierarchical.all_reduce(topology, "1KiB", pipeline_chunks=1, group="2,-1"))
    assert "2 of 12 ranks" in lower(job, PLAIN).symmetry
    check_alike(job)


@pytest.mark.parametrize("n", [3, 6, 7, 9, 12])
@pytest.mark.parametrize("every", [1, 2, 3])
def test_turns_of_any_order_are_doubled_until_a_job_keeps_them(n: int, every: int) -> None:
    """Of an odd order they never end at the identity; messages from every so many NPUs are kept by few of them."""
    topology = from_spec(f"ring:{n}")
    job = Job(topology)
    src = list(range(0, n - 1, every))
    job.send("some", 1000, src, [rank + 1 for rank in src])
    lowered = lower(job, PLAIN)
    assert ("all ranks" in lowered.symmetry) == (every != 2 or n % 2 == 1)
    check_alike(job)


def test_process_groups_of_a_spec_and_of_an_object_are_the_same():
    topology = from_spec("SW(4)_FC(4)")
    group = process_group(topology.shape, "4,-1")
    one, two = (hierarchical.all_reduce(topology, "1KiB", group=spec) for spec in (group, "4,-1"))
    assert one.pattern is two.pattern


@pytest.mark.parametrize(
    ("spec", "form"), [("fat-tree:4", "push"), ("leaf-spine:3x2x2", "pull"), ("torus:3x3", "push")]
)
def test_switches_that_send(spec, form):
    """Alone, a collective in the network is its own program; behind another it waits for ranks, not for switches."""
    topology = from_spec(spec)
    schedule = build("in-network", "all-reduce", topology, "64KiB", form)
    alone = run(lower(schedule, Model(chunks=4), "off").program).makespan_ps
    job = Job(topology)
    first = job.collective("first", schedule)
    once = lower(job, Model(chunks=4), joins=True)
    assert run(once.program).makespan_ps == alone
    second = job.collective("second", schedule, after=[job.compute("between", 10**6, after=[first])])
    twice = lower(job, Model(chunks=4))
    outcome = run(twice.program)
    assert outcome.makespan_ps == run_reference(twice.program).makespan_ps
    assert alone + 10**6 < outcome.makespan_ps <= 2 * alone + 10**6 + 1
    for rank in range(topology.n_npus):
        assert outcome.start_ps[twice.begin_task[second, rank]] >= outcome.finish_ps[twice.end_task[first, rank]]
