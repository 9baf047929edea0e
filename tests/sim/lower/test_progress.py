"""What ranks wait for beyond a schedule's dependencies, and what is not simulated with it."""

from __future__ import annotations

from contextlib import suppress

import networkx as nx
import numpy as np
import pytest

from collectives import algorithms_for, build
from collectives.core.schedule import Schedule
from sim import simulate
from sim.lower.job import lower
from sim.lower.progress import Waiting, progress_told
from sim.lower.quotient import quotient
from sim.lower.shape import make_shape
from sim.lower.tenants import Tenant, merge
from sim.program.model import SWING_SST, Model
from topologies import SWITCH, TOPOLOGIES, WeftError, from_spec, torus
from workloads.job import Communicate, Job, Operation

SHAPE = torus((4, 4))
LINKED = (
    "torus:8x4", "torus:16x2", "torus:3x5", "torus:4x2x3", "mesh:8x4", "mesh:5", "mesh:2x3", "hyperx:4x3",
    "hx2mesh:3x2", "hx4mesh:2x1", "RI(4)_RI(3)", "RI(4)_FC(4)_SW(4)", "RI(4)_SW(4)", "twisted-torus:2x4x4",
    "hypercube:3", "ring:7", "circulant:12x1x5", "dgx1:1",
)
SHARED = (
    "switch:6", "SW(4)_SW(2)", "LI(4)_SW(4)", "hx1mesh:3x3", "leaf-spine:3x4x2", "fat-tree:4", "dgx-a100:2",
    "dgx-h100:1", "dgx1:2", "mi250:2", "dragonfly:3x2x2", "random-regular:16x4",
)
"""Fabrics whose neighbors are joined by links of their own, and those whose ports share a link."""


def parents(algorithm: str, model: Model) -> list[int]:
    """How many tasks each task waits for, whole or pushed."""
    program = lower(build(algorithm, "all-reduce", SHAPE, "1MiB"), model, "off").program
    return sorted(set((program.task_waits + program.pushed_waits).tolist()))


@pytest.mark.parametrize(
    ("algorithm", "progress", "counts"),
    [
        ("swing", "free", [0, 2]), ("swing", "all", [0, 8]), ("swing", "authors", [0, 8]),
        ("recursive-doubling", "authors", [0, 2]), ("bucket", "free", [0, 2]), ("bucket", "all", [0, 8]),
    ],
)
def test_a_step_waits_for_all_ports(algorithm: str, progress: str, counts: list[int]) -> None:
    """A send and a receive of its own port, or of all four."""
    assert parents(algorithm, Model(chunks=1, rank_progress=progress)) == counts


def test_only_phases_of_bucket_begin_together() -> None:
    """With a NIC and the authors' progress: first steps of phases wait for all ports, the others for their own."""
    assert parents("bucket", SWING_SST) == [0, 2, 8]


def test_own_sends_end_when_they_are_pushed() -> None:
    """One half of what a step waits for is sent by its own rank."""
    program = lower(build("ring", "all-reduce", SHAPE, "1MiB"), SWING_SST, "off").program
    assert program.pushed_child.size == program.whole_child.size > 0
    np.testing.assert_array_equal(np.unique(program.pushed_waits), [0, 1])


@pytest.mark.table
@pytest.mark.parametrize("symmetry", ["auto", "off"])
@pytest.mark.parametrize("algorithm", ["totient-rings", "ring", "swing", "recursive-doubling"])
@pytest.mark.parametrize("spec", ["ring:2", "ring:4", "torus:4x4"])
def test_the_step_of_a_representative_waits_as_often_as_those_it_stands_for(
    spec: str, algorithm: str, symmetry: str
) -> None:
    """Its own send and that of another rank of its orbit are two things to wait for; certified."""
    schedule = build(algorithm, "all-reduce", from_spec(spec), "1KiB")
    simulate(schedule, chunks=1, rank_progress="all", symmetry=symmetry, check=True)
    assert lower(schedule, Model(chunks=1, rank_progress="all"), symmetry).waits() == lower(
        schedule, Model(chunks=1, rank_progress="all"), "off").waits()


def test_ports_that_wait_for_each_other_do_not_drift_apart() -> None:
    """Swing on unequal extents takes as long with few chunks as with many; ports alone collide, by how they are cut."""
    schedule = build("swing", "all-reduce", torus((16, 8, 4)), "16MiB")
    free, together = (
        [simulate(schedule, chunks=chunks, rank_progress=progress).time_s for chunks in (2, 16, 64)]
        for progress in ("free", "all")
    )
    assert max(together) / min(together) < 1.01
    assert max(free) / min(free) > 1.3


@pytest.mark.table
@pytest.mark.parametrize("spec", sorted({*SHARED, *(one for family in TOPOLOGIES.values() for one in family.samples)}))
def test_ports_of_which_all_share_a_link_to_a_switch_have_none_of_their_own(spec: str) -> None:
    """Counted over the routes to the neighbors in all dimensions."""
    fabric = from_spec(spec)
    t = build("bucket", "all-reduce", fabric, "1KiB").pattern.transfers()
    first = np.flatnonzero((t.step == 0) & (t.src != t.dst))
    routes = fabric.paths(t.src[first], t.dst[first])
    begin = routes.links[routes.ptr[:-1]]
    _, link, ports = np.unique(begin, return_inverse=True, return_counts=True)
    share = (fabric.kind[fabric.dst[begin]] == SWITCH) & (ports[link] > 1)
    assert not (first.size and share.all() and fabric.ports_have_links)


def waiting_schedules(spec: str) -> list[Schedule]:
    """Of every algorithm whose authors have ranks wait."""
    found = []
    for name in algorithms_for("all-reduce"):
        try:
            found.append(build(name, "all-reduce", from_spec(spec), "96KiB"))
        except WeftError:
            continue
    return [one for one in found if one.pattern.progress != "free"]


def job_of(*schedules: Schedule) -> Job:
    """One after the other."""
    return Job(schedules[0].topology, [
        Operation(one.pattern.algorithm, "", Communicate(one), None, (at - 1,) if at else (), 0)
        for at, one in enumerate(schedules)
    ])


@pytest.mark.table
@pytest.mark.parametrize("spec", LINKED + SHARED)
def test_the_default_is_one_rule_for_schedules_jobs_and_tenants(spec: str) -> None:
    """The program of the default is that of the rule that it stands for, however the schedule is run."""
    schedules = waiting_schedules(spec)
    assert {one.pattern.algorithm for one in schedules} >= {"bucket"}
    assert from_spec(spec).ports_have_links == (spec in LINKED)
    rule = Model(rank_progress="authors" if spec in LINKED else "free")
    for one in schedules:
        for work in (one, job_of(one, one), merge([Tenant(name="mine", work=Job.of(one))], Model())):
            mine, its = lower(work, Model()).waits(), lower(work, rule).waits()
            assert mine == its
        told = {"any": "authors"}.get(one.pattern.progress, one.pattern.progress)  # which the flag takes without a NIC
        assert progress_told(Job.of(one), Model()) == (told if spec in LINKED else "free")
        for engine in ("chunk", "analytic", "fluid"):
            times = [simulate(one, model=model, engine=engine).time_ps for model in (Model(), rule)]
            assert times[0] == times[1]


@pytest.mark.parametrize(("spec", "size"), [("torus:16x8x4", "64MiB"), ("torus:32x8x4", "64MiB")])
def test_swing_leads_on_tori_of_unequal_extents(spec: str, size: str) -> None:
    """As its closed form has it: 492 us on 16x8x4, within 3 % of the bound; ports that go on alone take 890."""
    swing, bucket = (simulate(build(name, "all-reduce", from_spec(spec), size)) for name in ("swing", "bucket"))
    assert swing.rank_progress == "all"
    assert 1.14 < bucket.time_s / swing.time_s < 1.25
    assert swing.time_ps < 1.035 * swing.lower_bound_ps


@pytest.mark.parametrize(("spec", "rule"), [("torus:4x4", "all"), ("torus:8x4", "all"), ("mesh:4x4", "free")])
def test_steps_of_bfb_begin_together_where_all_npus_are_alike(spec: str, rule: str) -> None:
    """A step loads every link alike, so that waiting keeps steps apart; on a mesh, links are unlike."""
    schedule = build("bfb", "all-reduce", from_spec(spec), "16MiB")
    default, *both = (simulate(schedule, chunks=16, rank_progress=rule) for rule in (None, "free", "all"))
    assert default.rank_progress == rule
    assert default.time_ps == min(one.time_ps for one in both)


def test_what_ranks_wait_for_is_told_of_every_algorithm_of_a_job() -> None:
    schedules = [build(name, "all-reduce", SHAPE, "1MiB") for name in ("swing", "direct")]
    result = simulate(job_of(*schedules))
    assert result.rank_progress == "all (swing), free (direct)"
    assert f"progress of ranks: auto ({result.rank_progress})" in str(result)
    assert "progress of ranks" not in str(simulate(schedules[1]))


@pytest.mark.parametrize("symmetry", ["auto", "off"])
@pytest.mark.parametrize("spec", ["torus:3x2", "torus:4x4", "mesh:5", "ring:7"])
def test_steps_that_rise_wait_in_no_circle(spec: str, symmetry: str) -> None:
    risen = 0
    for name in algorithms_for("all-reduce"):
        with suppress(WeftError):
            pattern = build(name, "all-reduce", from_spec(spec), "96KiB").pattern
            shape = make_shape(quotient(pattern, "first", 0, symmetry), Waiting(()))
            if shape._steps_rise():
                risen += 1
                parent, child, _ = shape.edges
                assert nx.is_directed_acyclic_graph(nx.DiGraph(zip(parent.tolist(), child.tolist(), strict=True)))
    assert risen > 3
