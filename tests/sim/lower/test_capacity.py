"""Is a run that would not fit refused before it is built, and only such a run?"""

from __future__ import annotations

import tracemalloc

import pytest

from collectives import build
from collectives.core.routes import paths_of
from collectives.core.transfers import Transfers
from sim.cli import main
from sim.lower.capacity import BYTES_PER_TASK, check_capacity, most_bytes, peak_bytes
from sim.lower.job import count_tasks, lower
from sim.program.checks import EVENT_BYTES, IN_FLIGHT, TASK_BYTES
from sim.program.model import Model
from sim.simulation import simulate
from sim.study.jobs import build_job
from sim.study.keys import TrainingKeys, WorkloadKeys
from topologies import Paths, Topology, WeftError, from_spec
from topologies.core import extents
from workloads.job import Job


@pytest.mark.parametrize(("spec", "algorithm", "kind", "chunks"), [
    ("ring:512", "ring", "all-reduce", 8), ("ring:513", "ring", "all-reduce", 1),
    ("torus:48x24", "bucket", "all-reduce", 3), ("torus:64x32", "swing", "all-reduce", 1),
    ("torus:16x16", "direct", "all-to-all", 8),
    ("ring:301", "direct", "all-to-all", 1), ("fat-tree:12", "direct", "all-to-all", 4),
    ("switch:701", "direct", "all-reduce", 1), ("switch:500", "pairwise", "all-to-all", 1),
    ("random-regular:900x4", "direct", "all-to-all", 1), ("torus:16x16", "hierarchical", "all-reduce", 3),
])
def test_the_estimate_is_above_the_memory_taken_and_not_far(spec: str, algorithm: str, kind: str, chunks: int) -> None:
    schedule = build(algorithm, kind, from_spec(spec), "1MiB")
    estimate, transfers = peak_bytes(schedule.pattern, schedule.pattern.p, chunks)
    simulate(build("direct", "all-to-all", from_spec("torus:4x4"), "1MiB"), chunks=1, symmetry="off")  # imports
    tracemalloc.start()
    lowered = simulate(schedule, chunks=chunks, symmetry="off").lowered
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert transfers == lowered.program.n_tasks
    assert 1 < estimate / peak < 1.75


def test_a_ring_that_fits_is_not_refused_and_one_that_does_not_is_refused_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An all-reduce of ring:4096 without symmetry takes 3.3 GiB; in 16 chunks the engine would refuse it."""
    pattern = build("ring", "all-reduce", from_spec("ring:4096"), "64MiB").pattern
    monkeypatch.setattr(extents, "physical_memory", lambda: 3 * 5 * 2**29)
    check_capacity(pattern, pattern.p)
    with pytest.raises(WeftError, match=r"67,092,480 transfers and 18.75 GiB of memory"):
        check_capacity(pattern, pattern.p, 16)
    monkeypatch.setattr(extents, "physical_memory", lambda: 3 * 3 * 2**29)
    with pytest.raises(WeftError, match=r"67,092,480 transfers and .* GiB of memory"):
        check_capacity(pattern, pattern.p)


def test_a_full_hamiltonian_ring_of_4096_nodes_is_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extents, "physical_memory", lambda: 3 * 2**32)
    pattern = build("ring", "all-reduce", from_spec("torus:64x64"), "1MiB").pattern
    check_capacity(pattern, 1)
    with pytest.raises(WeftError, match=r"134,184,960 transfers and .* GiB of memory; the limit is 8 GiB"):
        check_capacity(pattern, pattern.p)


@pytest.mark.parametrize(("spec", "algorithm", "kind"), [
    ("ring:7", "ring", "all-reduce"), ("torus:5x3", "direct", "all-to-all"), ("torus:1", "ring", "all-gather"),
    ("torus:4x4", "hierarchical", "all-reduce"), ("fat-tree:4", "parameter-server", "all-reduce"),
    ("torus:3x4", "tacos", "all-gather"), ("torus:8x8", "swing", "all-reduce"), ("ring:3", "bfb", "all-gather"),
    ("ring:5", "pipelined", "broadcast"),
])
@pytest.mark.parametrize("chunks", [1, 3, 64])
def test_what_is_seen_at_a_glance_is_no_less_than_the_estimate(
    spec: str, algorithm: str, kind: str, chunks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of transfers that are listed, so that those which surely fit are not looked at."""
    pattern = build(algorithm, kind, from_spec(spec), "1MiB").pattern
    listed = pattern.emission.listed
    assert listed is not None
    for ranks in {1, pattern.p}:
        estimate, transfers = peak_bytes(pattern, ranks, chunks)
        most = most_bytes(listed, ranks, pattern.topology.n_nodes, chunks)
        assert most >= max(estimate, transfers * (TASK_BYTES + EVENT_BYTES * min(chunks, IN_FLIGHT)))
        monkeypatch.setattr(extents, "physical_memory", lambda most=most: 3 * max(1, most // 2))
        with monkeypatch.context() as looks:
            looks.setattr("sim.lower.capacity.peak_bytes", lambda *_: pytest.fail("looked at"))
            check_capacity(pattern, ranks, chunks)


def test_one_rank_needs_nothing() -> None:
    assert peak_bytes(build("ring", "all-reduce", from_spec("torus:1"), "1MiB").pattern, 1) == (0, 0)


def test_long_routes_are_sampled_sparsely(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand routes of this ring are two gigabytes of hops, and the refusal came after a minute."""
    found: list[int] = []

    def counted(transfers: Transfers, topology: Topology) -> Paths:
        paths = paths_of(transfers, topology)
        found.append(paths.links.size)
        return paths

    monkeypatch.setattr("sim.lower.capacity.paths_of", counted)
    pattern = build("direct", "all-reduce", from_spec("ring:100000"), "1MiB").pattern
    peak_bytes(pattern, 1)
    assert 0 < sum(found) < 5_000_000


def pipeline_on_few(microbatches: int) -> Job:
    training = TrainingKeys(microbatches=microbatches)
    work = WorkloadKeys(name="bert-base", parallelism="tp=2,pp=2", samples=16, peak=312, efficiency=0.5)
    return build_job(work, training, from_spec("RI(2)_FC(2)_SW(2)"))[1]


@pytest.mark.parametrize("symmetry", ["auto", "off"])
def test_the_tasks_of_a_job_are_counted_before_it_is_lowered(symmetry: str) -> None:
    """And grow by as many with each microbatch, so that those of two tell those of many."""
    one, two, four = (pipeline_on_few(microbatches) for microbatches in (1, 2, 4))
    tasks = [count_tasks(job, Model(chunks=1), symmetry) for job in (one, two, four)]
    assert tasks[2] == lower(four, Model(chunks=1), symmetry).program.n_tasks
    assert tasks[2] - tasks[1] == 2 * (tasks[1] - tasks[0])


def test_the_estimate_of_a_job_is_near_the_memory_taken() -> None:
    job = pipeline_on_few(32)
    tracemalloc.start()
    tasks = lower(job, Model(chunks=1), "off").program.n_tasks
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert 0.5 < peak / (tasks * BYTES_PER_TASK) < 2


def test_a_job_of_too_many_tasks_is_refused_before_it_is_built(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    job = pipeline_on_few(32)
    monkeypatch.setattr(extents, "physical_memory", lambda: 3 * 2**22)
    with pytest.raises(WeftError, match=r"the job of .* operations is too large .* tasks and .* the limit is 8 MiB"):
        lower(job, Model(chunks=1), "off")
    built = []
    kept = "sim.study.jobs.build_job"
    monkeypatch.setattr(kept, lambda *of, make=build_job: built.append(of[1]) or make(*of))
    words = ["train", "--topology", "RI(2)_FC(2)_SW(2)", "--workload", "bert-base", "--parallelism", "tp=2,pp=2"]
    assert main([*words, "--samples", "16", "--peak", "312", "--efficiency", "0.5", "--microbatches", "4000"]) == 2
    [line] = capsys.readouterr().err.strip().splitlines()
    assert "an iteration of 4,000 microbatches is too large to be simulated: about" in line and "the limit is" in line
    assert [training.microbatches for training in built] == [1, 2]
