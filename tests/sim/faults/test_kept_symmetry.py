"""Of a symmetry, what a fault plan leaves intact is used: exact to the picosecond, beside the run of all NPUs."""

from __future__ import annotations

import random
from functools import lru_cache

import numpy as np
import pytest

from collectives import ALGORITHMS, Schedule, build
from collectives.core.symmetry import Action, Group
from sim import simulate
from sim.faults.history import marks_of
from sim.faults.plan import IN_FLIGHT, Fault, FaultPlan, Jitter, LinkDown, Loss, NodeDown, Repair, SlowLink, Straggler
from sim.lower import quotient as quotients
from sim.lower.marks import Marks, keeping
from sim.program.outcome import Deadlock
from sim.result import Result
from topologies import Topology, WeftError, from_spec
from workloads.job import Job

pytestmark = pytest.mark.compiled

FABRICS = ("torus:4x4", "RI(4)_SW(4)", "switch:8", "ring:6", "dgx-a100:2")
CASES = [
    (fabric, name, kind, form)
    for fabric in FABRICS for name, one in ALGORITHMS.items() for kind in one.functions
    for form in one.forms_of(kind) or (None,)
]


@lru_cache(maxsize=8)
def fabric_of(spec: str) -> Topology:
    return from_spec(spec)


def regular_plan(rng: random.Random, t: Topology) -> FaultPlan:
    """Faults that come again at every stride of ranks, or in a dimension; now and then one more, anywhere."""
    stride = rng.choice([one for one in range(1, t.n_npus + 1) if t.n_npus % one == 0])
    npus = [t.node_name(rank) for rank in range(rng.randrange(stride), t.n_npus, stride)]
    links = [t.link_name(link) for link in range(t.n_links) if int(t.src[link]) % stride == 0]
    links = list(dict.fromkeys(links))
    faults: list[Fault] = []
    for what in rng.sample(range(6), rng.choice((1, 1, 2))):
        at = f"{rng.choice((0, 1, 3, 7))}us"
        if what == 0:
            faults += [Straggler(npu=npu, delay=at, speed=0.5) for npu in npus]
        elif what == 1:
            faults += [SlowLink(link=link, at=at, share=0.25, latency="200ns") for link in links]
        elif what == 2:
            faults += [LinkDown(link=link, at=at) for link in links]
            faults += [Repair(link=link, at="20us") for link in links]
        elif what == 3:
            faults += [NodeDown(node=npu, at=at) for npu in npus] + [Repair(node=npu, at="30us") for npu in npus]
        elif what == 4 and t.n_nodes > t.n_npus:
            switch = t.node_name(rng.randrange(t.n_npus, t.n_nodes))
            faults += [NodeDown(node=switch, at=at), Repair(node=switch, at="25us")]
        elif what == 5:
            faults.append(SlowLink(link=f"dimension {int(t.dimension.max())}", at="2us", share=0.5))
    if rng.random() < 0.2:
        faults.append(SlowLink(link=links[-1], at="9us", share=0.5))
    return FaultPlan(faults=tuple(faults), in_flight=rng.choice(IN_FLIGHT), timeout="5us")


@pytest.mark.table
@pytest.mark.parametrize(("fabric", "name", "kind", "form"), CASES)
def test_what_is_kept_is_exact(fabric: str, name: str, kind: str, form: str | None) -> None:
    """Time, bytes, every link's load, losses and the account, on random plans."""
    rng = random.Random(f"{fabric} {name} {kind} {form}")
    t = fabric_of(fabric)
    try:
        schedule = build(name, kind, t, rng.choice(("1KiB", "48KiB", "1MiB")), form)
    except WeftError:
        return
    for _ in range(3):
        same_run(schedule, regular_plan(rng, t))


def same_run(work: Schedule | Job, plan: FaultPlan) -> str:
    """Compare with the run of all NPUs; how many were simulated."""
    every, few = (run_or_stop(work, plan, symmetry) for symmetry in ("off", "auto"))
    if isinstance(every, str) or isinstance(few, str):
        assert every == few
        return "deadlock"
    assert few.time_ps == every.time_ps and few.wire_bytes == every.wire_bytes
    assert np.array_equal(few.link_busy_ps, every.link_busy_ps)
    assert str(few.faults) == str(every.faults) and few.effbw == every.effbw
    assert few.notes() == every.notes()
    assert sum(few.why().parts.values()) == few.time_ps
    return few.symmetry


def run_or_stop(work: Schedule | Job, plan: FaultPlan, symmetry: str) -> Result | str:
    """The run, or what it says that it waits for."""
    try:
        return simulate(work, faults=plan, symmetry=symmetry, chunks=3)
    except Deadlock as stuck:
        return str(stuck)


def test_how_much_is_kept() -> None:
    """A slow dimension leaves everything, two stragglers opposite each other half, a row of them a row."""
    t = fabric_of("torus:4x4")
    schedule = build("bucket", "all-reduce", t, "64KiB")
    kept = {
        "1 of 16": (SlowLink(link="dimension 1", share=0.5),),
        "8 of 16": (Straggler(npu="npu0", speed=0.5), Straggler(npu="npu10", speed=0.5)),
        "4 of 16": tuple(NodeDown(node=f"npu{n}", at="1us") for n in range(4))
        + tuple(Repair(node=f"npu{n}", at="9us") for n in range(4)),
    }
    for ranks, faults in kept.items():
        words = same_run(schedule, FaultPlan(faults=faults))
        assert words.startswith(f"{ranks} ranks simulated by translations")
        assert words.endswith("as far as the faults keep it")
    for faults in (
        (Straggler(npu="npu3", speed=0.5),), (Loss(link="*", probability=0.1),), (Jitter(link="*", mean="1us"),),
        (SlowLink(link="npu0->npu1", share=0.5),),
    ):
        assert "faults are not the same everywhere" in same_run(schedule, FaultPlan(faults=faults, timeout="5us"))
    around = FaultPlan(faults=(LinkDown(link="dimension 1", at="1us"), Repair(link="*", at="5us")), reroute="1us")
    assert marks_of(t, around) is None


REGULAR = ("ring:16", "torus:4x4", "switch:8", "fc:8", "hypercube:4", "hyperx:4x4", "circulant:16x1x5", "hx2mesh:2x2",
           "RI(4)_SW(4)")


@pytest.mark.table
@pytest.mark.parametrize("fabric", REGULAR)
def test_all_that_repeated_faults_leave_is_kept(fabric: str) -> None:
    """Of the elements of a group, made one by one, as many as keep the stragglers: one NPU in so many is simulated."""
    t, seen = fabric_of(fabric), 0
    for name in ("swing", "ring", "bucket", "direct", "recursive-doubling", "hierarchical"):
        try:
            pattern = build(name, "all-reduce", t, "64KiB").pattern
        except WeftError:
            continue
        words = quotients.quotient(pattern, "first", 0).symmetry
        group = next((one for one in pattern.groups if f"by {one.name}," in words and "shrunk" not in words), None)
        for stride in (2, t.n_npus // 4) if group else ():
            late = [Straggler(npu=t.node_name(rank), delay="1us") for rank in range(0, t.n_npus, stride)]
            marks = marks_of(t, FaultPlan(faults=tuple(late)))
            found = quotients.quotient(pattern, "first", 0, marks=marks)
            kept = sum(marks.are_kept(action) for action in elements(group))
            assert found.orbits.sources.size == t.n_npus // kept, f"{name}: {found.symmetry}"
            seen += kept > 1
    assert seen >= 4


def elements(group: Group) -> list[Action]:
    """All products of the generators."""
    first = group.generators[0]
    none = Action(np.tile(np.arange(first.ranks.shape[1], dtype=np.int32), (len(first.ranks), 1)),
                  np.arange(first.links.size, dtype=np.int32))
    found, new = {none.ranks.tobytes() + none.links.tobytes(): none}, [none]
    while new:
        one = new.pop()
        for other in group.generators:
            parts = [other.ranks[min(port, len(other.ranks) - 1)][part] for port, part in enumerate(one.ranks)]
            product = Action(np.stack(parts), other.links[one.links])
            key = product.ranks.tobytes() + product.links.tobytes()
            if key not in found:
                found[key] = product
                new.append(product)
    return list(found.values())


def test_a_few_stragglers_among_many_cost_little() -> None:
    """Every 32nd of 1,024 NPUs: 32 NPUs are simulated, for a straggler starts later."""
    t = from_spec("ring:1024")
    late = tuple(Straggler(npu=t.node_name(rank), delay="3us") for rank in range(0, 1024, 32))
    schedule = build("ring", "all-reduce", t, "1MiB")
    found = simulate(schedule, faults=FaultPlan(faults=late), chunks=1)
    assert found.symmetry.startswith("32 of 1024 ranks simulated") and found.time_ps == 3_000_000 + simulate(
        schedule, chunks=1
    ).time_ps
    assert found.events <= 32 * simulate(schedule, chunks=1).events + 1


def test_a_dead_switch_keeps_the_rotation_of_its_npus() -> None:
    """And the other switches stand for themselves."""
    t = fabric_of("RI(4)_SW(4)")
    faults = (NodeDown(node=t.node_name(t.n_npus), at="1us"), Repair(node=t.node_name(t.n_npus), at="40us"))
    words = same_run(build("hierarchical", "all-reduce", t, "64KiB"), FaultPlan(faults=faults))
    assert words.startswith("4 of 16 ranks simulated")


def test_jobs_keep_what_is_left() -> None:
    """Computations included: stragglers compute slowly, and equally."""
    t = fabric_of("torus:4x4")
    job = Job(t)
    first = job.compute("forward", 10**6)
    sums = job.collective("sums", build("bucket", "all-reduce", t, "64KiB"), after=[first])
    job.compute("backward", 2 * 10**6, after=[sums])
    plan = FaultPlan(faults=tuple(Straggler(npu=f"npu{n}", speed=0.5, delay="1us") for n in (0, 5, 10, 15)))
    words = same_run(job, plan)
    assert words.startswith("4 of 16 ranks simulated")
    few, every = (simulate(job, faults=plan, symmetry=one) for one in ("auto", "off"))
    assert few.compute_ps(0) == every.compute_ps(0)
    assert sum(few.exposed_ps(0).values()) + few.compute_ps(0) == few.time_ps


def test_faults_that_an_orbit_does_not_share_are_no_symmetry() -> None:
    """The check itself, without the choice of the subgroup."""
    pattern = build("bucket", "all-reduce", fabric_of("torus:4x4"), "1KiB").pattern
    q = quotients.quotient(pattern, "first", 0)
    for field in ("rank", "link"):
        marks = Marks(np.zeros(16, np.int64), np.zeros(pattern.topology.n_links, np.int64))
        assert quotients.check(pattern, q, "first", 0, marks)[0] is None
        getattr(marks, field)[-1] = 1
        assert quotients.check(pattern, q, "first", 0, marks)[0] == "faults of one orbit differ"


def test_the_subgroup_is_found_among_products_of_powers() -> None:
    """On a diagonal of a torus no generator keeps the marks, but both together."""
    n = np.arange(16, dtype=np.int32)
    right, up = n // 4 * 4 + (n + 1) % 4, (n + 4) % 16
    group = Group("translations", tuple(Action(to[None, :], to) for to in (right, up)))
    marks = Marks((n // 4 == n % 4).astype(np.int64), np.zeros(16, np.int64))
    kept = keeping(group, marks)
    assert len(kept.generators) == 1
    assert sorted(np.flatnonzero(marks.rank)[np.isin([0, 5, 10, 15], kept.generators[0].ranks[0][[0, 5, 10, 15]])]) == [
        0, 5, 10, 15,
    ]
    assert keeping(group, Marks(n.astype(np.int64), n.astype(np.int64))).generators == ()
