"""Collectives of any group of NPUs: schedules placed on them, messages, and the algorithm that each has."""

from __future__ import annotations

from contextlib import suppress
from itertools import product

import pytest

from collectives import ALGORITHMS
from collectives.core.placed import placed
from collectives.registry import build
from sim import simulate
from sim.program.model import Model
from topologies import Topology, WeftError, from_spec, ring, switch, torus
from workloads.group_collectives import DEFAULTS, OF_PRODUCTS, GroupCollectives, Named
from workloads.job import Communicate, Job

KIB = 1024
ONE = Model(chunks=1)


def time_ps(
    topology: Topology, kind: str, members: tuple[int, ...], algorithms: Named = (), size: int = 64 * KIB
) -> int:
    job = Job(topology)
    GroupCollectives(topology, algorithms).add(job, "x", kind, size, members, [])
    return simulate(job, model=ONE, check=True).time_ps


@pytest.mark.parametrize(("kind", "members"), list(product(DEFAULTS, [(3, 1, 6), (0, 2, 4, 6), (5, 2)])))
def test_a_group_behind_a_switch_takes_what_as_many_ranks_take_alone(kind: str, members: tuple[int, ...]) -> None:
    """Every collective on members that are no product, in any order; the certificate of the run holds."""
    alone = time_ps(switch(len(members)), kind, tuple(range(len(members))))
    assert time_ps(switch(8), kind, members) == alone > 0


@pytest.mark.parametrize(("name", "kind"), [
    (name, kind) for name, one in ALGORITHMS.items() if not one.built_from_rates and not one.reducing
    for kind in one.functions if name not in (*OF_PRODUCTS, "parameter-server")  # of dimensions; with links of its own
])
def test_every_algorithm_takes_in_a_group_what_it_takes_alone(name: str, kind: str) -> None:
    """Of any of its NPUs, in any order, behind a switch; unequal pairs too. Some admit only even numbers of ranks."""
    ran = 0
    for members in [(5, 2), (3, 1, 6), (6, 0, 2, 7)]:
        with suppress(WeftError):
            alone = build(name, kind, switch(len(members)), "1000B")
            in_group = simulate(placed(alone, switch(8), members), chunks=3, check=True)
            assert in_group.time_ps == simulate(alone, chunks=3).time_ps > 0
            ran += 1
    assert ran


def test_a_placed_schedule_is_proved_of_its_members() -> None:
    """The general proof, with the collective among the members; and on the small network where that is too large."""
    found = placed(build("ring", "all-reduce", switch(3), "1KiB"), ring(8), (6, 1, 4))
    assert (found.proof, found.kind.name, found.pattern.group_size) == ("proved", "all-reduce of 3", 3)
    assert found.kind.wanted_by(0, 8, 6) == (6, 1, 4)
    large = placed(build("ring", "all-reduce", switch(300), "1MiB"), switch(512), tuple(range(300)))
    assert large.proof == "proved on switch:300"
    assert placed(build("tree", "broadcast", switch(4), "1KiB"), ring(8), (7, 0, 3, 2)).pattern.root == 7


def test_overlapping_groups_share_the_network_and_wait_for_each_other() -> None:
    job = Job(ring(4))
    collectives = GroupCollectives(job.topology, "ring")
    first = collectives.add(job, "a", "all-reduce", 64 * KIB, (0, 1, 2), [])
    collectives.add(job, "b", "all-reduce", 64 * KIB, (2, 3), [first])
    both = simulate(job, model=ONE).time_ps
    assert both > time_ps(ring(4), "all-reduce", (0, 1, 2), "ring") > 0


def test_a_group_of_one_does_nothing() -> None:
    assert all(time_ps(ring(4), kind, (2,)) == 0 for kind in (*DEFAULTS, "barrier", "gather", "scatter"))


@pytest.mark.parametrize(("members", "rounds"), [((0, 1), 1), ((0, 1, 2), 2), ((0, 1, 2, 3, 4), 3), ((7, 2, 5, 1), 2)])
def test_a_barrier_takes_a_latency_for_each_doubling(members: tuple[int, ...], rounds: int) -> None:
    fabric = switch(8, bandwidth="1GB/s", latency="1us", hop_latency=0)
    found = time_ps(fabric, "barrier", members)
    assert found == pytest.approx(rounds * 2_000_000, abs=20)  # two links, and picoseconds of cut-through


def test_a_barrier_waits_for_all_of_its_group() -> None:
    """What follows on any member begins after the slowest has come."""
    job = Job(switch(4, bandwidth="1GB/s", latency="1us", hop_latency=0))
    late = job.compute("late", "50us", npus=[3])
    barrier = GroupCollectives(job.topology).add(job, "barrier", "barrier", 0, (0, 1, 3), [late])
    after = [job.compute(f"after {npu}", "1us", npus=[npu], after=[barrier]) for npu in (0, 1, 3)]
    ends = {span.operation: span.end_ps for span in simulate(job, model=ONE).spans()}
    assert all(ends[one] >= 52_000_000 for one in after)


def test_gathers_and_scatters_are_a_message_each() -> None:
    """Each of three members has a third; they share the link of the first."""
    fabric = switch(4, bandwidth="1GB/s", latency=0, hop_latency=0)
    for kind in ("gather", "scatter"):
        assert time_ps(fabric, kind, (0, 1, 2), size=3000) == pytest.approx(2_000_000, abs=1_000_001)


def test_the_first_of_a_group_is_the_root() -> None:
    """Of all NPUs, and of some, in any order."""
    fabric = switch(4, bandwidth="1GB/s", latency=0, hop_latency=0)
    for kind in ("gather", "scatter", "broadcast", "reduce"):
        for members in ((2, 0, 1, 3), (0, 1, 2, 3), (3, 1), (1, 3)):
            job = Job(fabric)
            GroupCollectives(fabric).add(job, kind, kind, 4096, members, [])
            work = job.operations[0].work
            assert isinstance(work, Communicate) and work.schedule.pattern.root == members[0]
    assert time_ps(fabric, "gather", (0, 1, 2, 3), "tree") > 0


def algorithms_of(algorithms: Named, topology: Topology, kinds: tuple[str, ...]) -> tuple[list[str], list[str]]:
    job = Job(topology)
    collectives = GroupCollectives(topology, algorithms)
    for kind in kinds:
        collectives.add(job, kind, kind, KIB, tuple(range(topology.n_npus)), [])
    work = [one.work for one in job.operations]
    return [one.schedule.pattern.algorithm for one in work if isinstance(one, Communicate)], collectives.notes


def test_each_collective_has_an_algorithm_that_implements_it() -> None:
    kinds = ("all-reduce", "all-to-all", "broadcast")
    assert algorithms_of((), ring(4), kinds) == (["ring", "direct", "tree"], [])
    assert algorithms_of((), torus((2, 2, 2)), kinds)[0] == ["bucket", "direct", "tree"]
    found, notes = algorithms_of("ring", ring(4), kinds)
    assert found == ["ring", "direct", "tree"]
    assert notes == ["by default, as no named algorithm implements it: all-to-all by direct, broadcast by tree"]
    assert algorithms_of(["swing", "pairwise", "tree"], ring(4), kinds) == (["swing", "pairwise", "tree"], [])
    assert algorithms_of({"all-reduce": "swing"}, ring(4), kinds)[0][0] == "swing"


def test_all_npus_of_a_fabric_that_does_not_admit_an_algorithm_run_it_among_themselves() -> None:
    """Rings are of tori and switches; on a mesh the ranks are a ring, where nothing else is named."""
    mesh, ranks = from_spec("mesh:2x2"), (0, 1, 3, 2)
    assert algorithms_of((), mesh, ("all-reduce",))[0] == ["bucket"]
    assert time_ps(mesh, "all-reduce", ranks, "ring") > 0


@pytest.mark.parametrize("name", ["pipelined", "in-network"])
def test_what_is_made_for_whole_networks_is_refused(name: str) -> None:
    with pytest.raises(WeftError, match=f"{name} is made for whole networks, not for a group of 3 of the 8 NPUs"):
        time_ps(switch(8), "all-reduce", (0, 1, 3), name)


def test_the_first_of_several_that_can_run_is_taken() -> None:
    """Recursive doubling gathers among powers of two, and hierarchical groups are products of dimensions."""
    for named in (["recursive-doubling", "ring"], ["hierarchical", "ring"]):
        assert time_ps(ring(8), "all-gather", (0, 1, 3), named) == time_ps(ring(8), "all-gather", (0, 1, 3), "ring")
    with pytest.raises(WeftError, match="hierarchical takes groups that are a product of dimensions of ring:8, which"):
        time_ps(ring(8), "all-gather", (0, 1, 3), "hierarchical")


def test_a_product_of_dimensions_takes_the_hierarchical_algorithm_with_its_groups() -> None:
    job = Job(torus((4, 2)))
    GroupCollectives(job.topology, "hierarchical").add(job, "x", "all-reduce", KIB, (0, 1, 2, 3), [])
    (one,) = job.operations
    assert isinstance(one.work, Communicate) and one.work.schedule.kind.name == "all-reduce"
