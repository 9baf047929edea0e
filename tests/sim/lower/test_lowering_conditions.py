"""Lowered jobs, task by task, against an oracle in plain loops; representatives against the ranks they represent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from collectives import Transfers, TransferTable, build, direct, hierarchical, swing
from collectives.core.routes import paths_of
from collectives.core.symmetry import Group
from sim.engine.run import run
from sim.lower import job_symmetry, shape, templates
from sim.lower.job import lower
from sim.lower.marks import Marks
from sim.lower.progress import FREE, Waiting
from sim.lower.quotient import Quotient, Routes, orbits_of, routes_of
from sim.program import DISCIPLINES
from sim.program.model import Model, Nic
from tests.oracles.plain_lowering import Plain, by_priority, comparable, folded, lines, tasks_of
from topologies import WeftError, from_spec, ring, torus
from workloads.job import CLOCK, Job


def pipeline() -> Job:
    """Two stages that compute, send, gather and wait for a clock; streams of two priorities."""
    job = Job(from_spec("RI(4)_SW(2)"))
    one, two = range(4), range(4, 8)
    gather = hierarchical.all_gather(job.topology, 4096, pipeline_chunks=2, group="4,-1")
    first = job.compute("first", 700, npus=one, priority=1)
    sent = job.send("sent", 5000, one, two, after=[first])
    second = job.compute("second", 900, npus=two, after=[sent])
    job.collective("gather", gather, npus=one, after=[first, second], priority=2)
    job.compute("timer", 50, npus=two, stream=CLOCK + "timer", after=[sent, second])
    job.compute("copy", 20, stream="copy", after=[second])
    return job


def groups() -> Job:
    """Two kinds of groups with pools that share a dimension, and a message that overtakes neither."""
    job = Job(from_spec("RI(4)_SW(2)"))
    tensor = hierarchical.all_reduce(job.topology, 9600, pipeline_chunks=3, group="4,-1", service="smallest-first")
    data = hierarchical.all_reduce(job.topology, 4800, pipeline_chunks=2, group="-1,2", service="smallest-first")
    first = job.compute("first", 300)
    job.collective("tensor", tensor, after=[first], priority=1)
    job.collective("data", data, after=[first], priority=1, turn=-1)
    job.send("sent", 100, range(4), range(4, 8), priority=2)
    return job


def messages() -> Job:
    """Messages in an order, without one, to oneself, by named links, acknowledged, and ones that nobody waits for."""
    job = Job(ring(4), speed=np.array([1.0, 0.5, 1.0, 0.25]))
    links = {(int(a), int(b)): at for at, (a, b) in enumerate(zip(job.topology.src, job.topology.dst, strict=True))}
    start = job.compute("start", 10, npus=[0, 1, 2])
    several = job.send("several", [7, 9, 11, 0], [0, 0, 2, 1], [1, 2, 2, 0], after=[start])
    job.send("same again", [9, 9, 9, 9], [0, 0, 2, 1], [1, 2, 2, 0], after=[several])
    job.send("shift", 8, [0, 1, 2, 3], [1, 2, 3, 0], after=[several], laps=2)
    job.send("loose", 100, [3, 1], [1, 3], detached=True)
    job.send("own", 5, [1], [1], detached=True)
    via = [[links[0, 3], links[3, 2], links[2, 1]], [links[2, 3]]]
    job.send("named", [100, 30], [0, 2], [1, 3], via=via, after=[several])
    job.compute("end", 1, after=[several])
    job.compute("timer", 50, stream=CLOCK + "timer", after=[several])
    return job


def exchange() -> Job:
    """Two collectives at once on a torus with ties between routes."""
    job = Job(torus((2, 4)))
    before = job.compute("before", 100)
    reduced = job.collective("reduce", swing.all_reduce(job.topology, 1001), after=[before])
    exchanged = job.collective("exchange", direct.all_to_all(job.topology, 999), after=[before])
    job.collective("again", swing.all_reduce(job.topology, 501), after=[reduced, exchanged])
    return job


def circuits() -> Job:
    """Links that change: what drains, what waits, one change that takes no time, and one that drains nothing."""
    job = Job(ring(4), speed=np.array([1.0, 1.0, 1.0, 0.5]))
    up = [link for link in range(8) if job.topology.dst[link] == (job.topology.src[link] + 1) % 4]
    down = [link for link in range(8) if link not in up]
    moved = job.send("moved", 90, [0, 1, 2, 3], [1, 2, 3, 0])
    job.reconfigure("swap", "3ns", up, down, after=[moved])
    back = job.send("back", 60, [1, 2, 3, 0], [0, 1, 2, 3])
    off = job.reconfigure("off", 0, down, (), controller="other")
    job.reconfigure("still", "1ns", down[:2], (), after=[back], drain=False)
    job.compute("end", 5, npus=[1], after=[off])
    return job


def in_the_network() -> Job:
    """Switches send as well; the second collective begins behind the first."""
    job = Job(from_spec("leaf-spine:3x2x2"))
    schedule = build("in-network", "all-reduce", job.topology, "1KiB")
    first = job.collective("first", schedule, priority=4)
    job.collective("second", schedule, after=[job.compute("between", 5, after=[first])])
    return job


def windows() -> Job:
    """Transfers that follow each other chunk by chunk, in windows and in rounds."""
    job = Job(from_spec("mesh:3x3"))
    first = job.collective("tree", build("double-binary-tree", "all-reduce", job.topology, "9KiB"))
    second = job.collective("server", build("parameter-server", "all-reduce", job.topology, "9KiB"), after=[first])
    job.collective("ring", build("pipelined", "all-gather", job.topology, "9KiB"), after=[second])
    return job


def alone(spec: str, algorithm: str, kind: str) -> Callable[[], Job]:
    return lambda: Job.of(build(algorithm, kind, from_spec(spec), 7000))


def pooled() -> Job:
    return Job.of(hierarchical.all_reduce(from_spec("RI(4)_SW(2)"), 7000, pipeline_chunks=3, service="smallest-first"))


def odd() -> Job:
    """Blocks of 875 bytes, some of which go two ways."""
    return Job.of(direct.all_to_all(torus((2, 4)), 7000, element_bytes=1))


JOBS = {one.__name__: one for one in (pipeline, groups, messages, exchange, circuits, in_the_network)}
ALONE = {"pooled": pooled, "odd": odd} | {
    name: alone(*name.split())
    for name in ("ring:5 ring all-reduce", "torus:2x4 swing all-reduce", "fat-tree:4 in-network all-reduce",
                 "mesh:2x3 concurrent-flow all-to-all", "switch:4 direct all-to-all", "mesh:2x3 pipelined all-gather",
                 "mesh:2x3 double-binary-tree all-reduce")
}
MODELS = {
    "cut-through": Model(chunks=3, endpoint_latency_ps=70, header_bytes=3),
    "priority": Model(chunks=None, chunk_bytes=800, forwarding="store-and-forward", discipline="priority"),
    "split": Model(chunks=2, tie="split", packet_header_bytes=5),
    "ecmp": Model(chunks=1, tie="ecmp", seed=5),
}


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("name", JOBS)
def test_every_task_of_a_job_is_as_an_oracle_lowers_it(name: str, model: str) -> None:
    check_tasks(JOBS[name](), MODELS[model], joins=True)


@pytest.mark.table
@pytest.mark.parametrize("joins", [False, True])
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("name", ALONE)
def test_every_task_of_a_schedule_alone_is_as_an_oracle_lowers_it(name: str, model: str, joins: bool) -> None:
    """With the joins of an operation, and without."""
    check_tasks(ALONE[name](), MODELS[model], joins)


def check_tasks(job: Job, model: Model, joins: bool) -> None:
    lowered, plain = lower(job, model, "off", joins=joins), Plain(job, model, joins).tasks
    assert comparable(tasks_of(lowered)) == comparable(plain)
    is_link = lowered.server_link >= 0
    assert set(lowered.program.server_discipline[is_link].tolist()) <= {DISCIPLINES.index(model.discipline)}
    assert np.all((lowered.server_rank < 0) & (lowered.server_stream < 0) | ~is_link)
    assert lines(tasks_of(lowered), by_priority(lowered)) == lines(plain, by_priority(lowered))


# Representatives: a job in which all four ranks of a ring are alike, and what makes some of them unlike.


def alike(**columns: Any) -> Job:
    """An all-reduce between two computations."""
    job = Job(ring(4), **columns)
    first = job.compute("first", 500)
    reduced = job.collective("reduce", build("ring", "all-reduce", job.topology, 4000), after=[first])
    job.compute("last", 300, after=[reduced])
    return job


def with_(add: Callable[[Job], Any]) -> Callable[[], Job]:
    def made() -> Job:
        job = alike()
        add(job)
        return job

    return made


UNLIKE: dict[str, tuple[int, Callable[[], Job]]] = {
    "nothing": (1, alike),
    "equal speeds": (1, lambda: alike(speed=np.full(4, 0.5))),
    "two speeds in turn": (2, lambda: alike(speed=np.array([1, 0.5, 1, 0.5]))),
    "one slow rank": (4, lambda: alike(speed=np.array([1, 1, 0.5, 1]))),
    "every other rank computes": (2, with_(lambda job: job.compute("even", 7, npus=[0, 2]))),
    "two neighbors compute": (4, with_(lambda job: job.compute("some", 7, npus=[1, 2]))),
    "everybody sends on": (1, with_(lambda job: job.send("shift", 9, [0, 1, 2, 3], [1, 2, 3, 0]))),
    "pairs exchange": (2, with_(lambda job: job.send("pairs", 9, [0, 1, 2, 3], [1, 0, 3, 2]))),
    "one sends": (4, with_(lambda job: job.send("one", 9, [1], [2]))),
    "messages in an order": (4, with_(lambda job: job.send("in order", [9] * 4, [0, 1, 2, 3], [1, 2, 3, 0]))),
    "sends alone": (1, lambda: sends_alone([0, 1, 2, 3], [1, 2, 3, 0])),
    "pairs alone": (2, lambda: sends_alone([0, 2], [1, 3])),
    "a group of two": (2, lambda: of_groups("2,-1")),
    "groups of both kinds": (2, lambda: of_groups("2,-1", "4,-1")),
    "the whole, and halves": (2, lambda: of_groups("4,3", "2,-1")),
    "pipeline": (2, pipeline),
    "messages one way": (2, groups),
    "even ranks swing the other way": (2, exchange),
}


def sends_alone(src: list[int], dst: list[int]) -> Job:
    job = Job(ring(4))
    job.send("sent", 9, src, dst)
    return job


def of_groups(*some: str) -> Job:
    """All-reduces in process groups of a ring of four, times three."""
    job = Job(from_spec("RI(4)_FC(3)"))
    for group in some:
        job.collective(group, hierarchical.all_reduce(job.topology, 960, pipeline_chunks=1, group=group))
    job.compute("last", 1)
    return job


@pytest.mark.parametrize("name", UNLIKE)
def test_representatives_do_what_every_rank_does(name: str) -> None:
    """As few as there are kinds of ranks; and each task of all ranks is its representative's."""
    few, job = UNLIKE[name][0], UNLIKE[name][1]()
    lowered, every = lower(job, MODELS["cut-through"]), lower(job, MODELS["cut-through"], "off")
    assert np.unique(lowered.orbits.rank).size == few
    kinds = folded(tasks_of(every), lowered.orbits)
    assert kinds == folded(tasks_of(lowered), lowered.orbits)
    assert all(len(kind) == 1 for kind in kinds.values())
    assert every.is_whole and every.symmetry == "all ranks simulated (off)"
    if few == job.topology.n_npus:
        assert lowered.symmetry == "all ranks simulated"
    else:
        assert lowered.symmetry.startswith(f"{few} of {job.topology.n_npus} ranks simulated by ")
        assert lowered.symmetry.endswith(", each collective checked")


@pytest.mark.parametrize(("tie", "few"), [("first", 1), ("split", 1), ("alternating", 2), ("ecmp", 4)])
def test_messages_that_go_other_ways_are_unlike(tie: str, few: int) -> None:
    """To the opposite rank there are two routes: of even and of odd ranks, or drawn, which ones they take differs."""
    job, model = sends_alone([0, 1, 2, 3], [2, 3, 0, 1]), Model(chunks=1, tie=tie, seed=2)
    lowered = lower(job, model)
    assert np.unique(lowered.orbits.rank).size == few
    kinds = folded(tasks_of(lower(job, model, "off")), lowered.orbits)
    assert kinds == folded(tasks_of(lowered), lowered.orbits)


@pytest.mark.parametrize(("marked", "few"), [([], 1), ([0, 2], 2), ([1], 4)])
def test_what_faults_mark_is_unlike_in_a_job(marked: list[int], few: int) -> None:
    rank = np.zeros(4, np.int64)
    rank[marked] = 1
    marks = Marks(rank, np.zeros(8, np.int64))
    lowered = lower(alike(), marks=marks)
    assert np.unique(lowered.orbits.rank).size == few and lowered.marks is marks


def test_where_circuits_change_or_switches_send_all_ranks_are_simulated() -> None:
    assert lower(circuits()).symmetry == "all ranks simulated (circuits change)"
    assert lower(in_the_network()).symmetry == "all ranks simulated (switches send as well)"


def test_a_slow_link_breaks_the_symmetry_of_a_job() -> None:
    """Every link of the ring is another's representative: one that is slower has none, nor has what crosses it."""
    topology = ring(4)
    rates = topology.bandwidth_Bps.copy()
    rates[3] /= 2
    job = Job(topology.with_links(bandwidth_Bps=rates))
    job.collective("reduce", build("ring", "all-reduce", job.topology, 4000))
    job.compute("last", 1)
    assert lower(job).is_whole


def test_a_slow_link_breaks_the_symmetry_of_a_schedule_alone() -> None:
    """The shape of the same wiring with equal links is known by then, and not taken."""
    topology = ring(4)
    assert not lower(build("ring", "all-reduce", topology, 4000)).is_whole
    slower = topology.with_links(latency_ps=topology.latency_ps + (np.arange(8) == 3))
    assert lower(build("ring", "all-reduce", slower, 4000)).is_whole


def test_where_every_generator_holds_alone_the_last_one_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job(torus((4, 4)))
    job.collective("reduce", direct.all_to_all(job.topology, 4000))
    job.compute("last", 1)
    tried: list[int] = []

    def holds(_: Any, __: float, group: Group, *___: Any) -> bool:
        tried.append(len(group.generators))
        return len(group.generators) < 2

    monkeypatch.setattr(job_symmetry, "_holds", holds)
    assert "of 16 ranks" in lower(job).symmetry and tried[:4] == [2, 1, 1, 1]


# What is built once.


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many shapes were made since."""
    calls: list[int] = []
    make = shape.make_shape

    def counted(q: Quotient, waiting: Waiting = FREE) -> shape.Shape:
        calls.append(1)
        return make(q, waiting)

    for where in (shape, templates):
        monkeypatch.setattr(where, "make_shape", counted)
    monkeypatch.setattr(templates, "_known", {})
    return calls


def exchanges(*offsets: int) -> Job:
    """One message of each rank to the one so many further, again and again."""
    job = Job(ring(6))
    for offset in offsets:
        job.send(f"by {offset}", 8, range(6), [(at + offset) % 6 for at in range(6)])
    return job


def test_templates_are_made_once_and_the_longest_unused_is_dropped(made: list[int], monkeypatch: Any) -> None:
    """Of two that may be kept: 1 and 2; 1 again; 3, for which 2 goes; 1 is there, and 2 is made anew."""
    monkeypatch.setattr(templates, "MOST_KEPT", 2)
    for offset, count in ((1, 1), (2, 2), (1, 2), (3, 3), (1, 3), (2, 4)):
        lower(exchanges(offset), symmetry="off")
        assert len(made) == count
    assert len(templates._known) == 2


@pytest.mark.parametrize("model", [Model(), Model(tie="split"), Model(nic=Nic())])
def test_of_messages_new_ones_are_made_and_routes_of_others_left_out(made: list[int], model: Model) -> None:
    """The program is the same whatever jobs were lowered before: of offset 5 the links back are no servers."""
    lower(exchanges(1, 3, 5), model, symmetry="off")
    for offsets, count in (((3, 1), 1), ((1, 2), 2), ((2,), 2), ((5, 4, 1), 3)):
        kept = lower(exchanges(*offsets), model, symmetry="off")
        assert len(made) == count
        with pytest.MonkeyPatch.context() as alone:
            alone.setattr(templates, "_known", {})
            fresh, _ = lower(exchanges(*offsets), model, symmetry="off"), made.pop()
        assert np.array_equal(kept.server_link, fresh.server_link)
        assert kept.links_at_once == fresh.links_at_once
        assert np.array_equal(kept.program.nic_engines, fresh.program.nic_engines)
        assert run(kept.program, log=True).finish_ps.tolist() == run(fresh.program, log=True).finish_ps.tolist()


def test_templates_of_too_many_tasks_are_dropped(made: list[int], monkeypatch: Any) -> None:
    """Each has six tasks: two fit into twelve, and three do not."""
    monkeypatch.setattr(templates, "MOST_TASKS", 12)
    for offset in (1, 2, 1, 2):
        lower(exchanges(offset), symmetry="off")
    assert len(made) == len(templates._known) == 2
    lower(exchanges(3), symmetry="off")
    assert len(templates._known) == 2
    monkeypatch.setattr(templates, "MOST_TASKS", 11)
    lower(exchanges(2), symmetry="off")
    lower(exchanges(1), symmetry="off")
    assert len(templates._known) == 1


def test_one_template_for_each_collective_set_of_npus_and_representatives(made: list[int]) -> None:
    """Alike are operations of one pattern on the same NPUs, whatever their size; ties and representatives matter."""
    topology = from_spec("RI(4)_FC(3)")
    job = Job(topology)
    for size in (960, 1920):
        job.collective(f"{size}", hierarchical.all_reduce(topology, size, pipeline_chunks=1, group="4,-1"))
    lower(job, symmetry="off")
    assert len(made) == 1
    part = [rank for rank in range(12) if rank < 4]
    job.collective("part", hierarchical.all_reduce(topology, 960, pipeline_chunks=1, group="4,-1"), npus=part)
    lower(job, symmetry="off")
    assert len(made) == 2
    lower(job)
    more = len(made)
    assert more > 2
    lower(job, Model(seed=5))
    assert len(made) == more
    lower(job, Model(tie="ecmp", seed=5))
    lower(job, Model(tie="ecmp", seed=6))
    assert len(made) == 3 * more - 4


def test_shapes_are_made_once_and_the_oldest_is_dropped(made: list[int], monkeypatch: Any) -> None:
    """By routing rule and seed, use of the symmetry, and what is marked; not by rates."""
    monkeypatch.setattr(shape, "MOST_SHAPES", 2)
    monkeypatch.setattr(shape, "_shapes", type(shape._shapes)())
    schedule = build("ring", "all-reduce", ring(6), 4000)
    marks = Marks(np.arange(6), np.zeros(12, np.int64))
    first, other = Model(), Model(tie="ecmp", seed=1)
    for model, symmetry, marked, count in (
        (first, "auto", None, 1), (Model(seed=3), "auto", None, 1), (other, "auto", None, 2), (first, "auto", None, 2),
        (Model(tie="ecmp", seed=2), "auto", None, 3), (other, "auto", None, 3), (first, "auto", None, 4),
        (first, "off", None, 5), (first, "auto", None, 5), (first, "auto", marks, 6), (first, "auto", marks, 6),
    ):
        lower(schedule, model, symmetry, marks=marked)
        assert len(made) == count


# What is refused.


def made_of(table: TransferTable | Transfers, tie: str) -> shape.Shape:
    """The shape of transfers on a ring of four, without symmetry."""
    topology, transfers = ring(4), table.build() if isinstance(table, TransferTable) else table
    everyone = orbits_of(Group("", ()), topology.n_npus, topology.n_links)
    routes = Routes(paths_of(transfers, topology, tie), np.arange(transfers.src.size, dtype=np.int32))
    made = shape.make_shape(Quotient(everyone, transfers, routes, ""))
    assert made.edges is made.edges, "found, or refused, once"
    return made


def test_transfers_that_stream_cannot_be_split() -> None:
    """To the opposite rank there are two routes: both halves wait for both halves, and neither for chunks of them."""
    ranks = np.arange(4)
    for how, refused in (("after", False), ("stream", True)):
        table = TransferTable(ranks)
        table.add(slot=0, dst=(ranks + 2) % 4)
        table.add(slot=1, dst=(ranks + 2) % 4, **{how: [((ranks + 2) % 4, 0)]})
        assert made_of(table, "first").edges[0].size == 4
        if refused:
            with pytest.raises(WeftError, match="tie rule 'split' cannot serve transfers that follow each other"):
                made_of(table, "split")
        else:
            assert made_of(table, "split").edges[0].size == 16


def test_transfers_that_count_their_latency_otherwise_have_routes_of_their_own() -> None:
    """Between the same ends, those that stand for as many rounds share one."""
    table, ranks = TransferTable(np.arange(4)), np.arange(4)
    for slot in range(3):
        table.add(slot=slot, dst=(ranks + 1) % 4)
    laps = np.repeat([1, 3, 1], 4)
    transfers = table.build()._replace(rounds=np.stack([0 * laps, laps], axis=1).astype(np.int32))
    everyone = orbits_of(Group("", ()), 4, ring(4).n_links)
    made = shape.make_shape(Quotient(everyone, transfers, routes_of(transfers, ring(4), "first", 0), ""))
    assert made.laps is not None and made.laps[made.task_route].tolist() == laps.tolist()
    assert np.unique(made.task_route).size == 8


@pytest.mark.parametrize("pooled", [(0, -1), (-1, 0), (0, 0), (-1, -1)])
def test_transfers_that_use_a_pool_cannot_be_split(pooled: tuple[int, int]) -> None:
    """To the next rank there is one route; the transfer that uses it may."""
    ranks = np.arange(4)
    for far, refused in ((2, pooled != (-1, -1)), (1, False)):
        table = TransferTable(ranks)
        table.add(slot=0, dst=(ranks + far) % 4)
        table.add(slot=1, dst=(ranks + 3 - far) % 4)
        transfers = table.build()
        pool = np.where(transfers.slot[:, None] == 0, [*pooled, 7], [-1, -1, 7]).astype(np.int32)
        if refused:
            with pytest.raises(WeftError, match="tie rule 'split' cannot serve transfers that use a pool"):
                made_of(transfers._replace(pool=pool), "split")
        else:
            assert made_of(transfers._replace(pool=pool), "split").task_row.size == 12


def test_every_part_of_a_transfer_waits_for_every_part_of_another() -> None:
    """Of two halves, of one whole, and of both."""
    ranks = np.arange(4)
    table = TransferTable(ranks)
    table.add(slot=0, dst=(ranks + 2) % 4)
    table.add(slot=1, dst=(ranks + 1) % 4, after=[(ranks, 0)])
    table.add(slot=2, dst=(ranks + 2) % 4, after=[(ranks, 1), (ranks, 0)])
    made = made_of(table, "split")
    tasks: dict[int, list[int]] = {}
    for task, row in enumerate(made.task_row.tolist()):
        tasks.setdefault(row, []).append(task)
    assert [len(tasks[row]) for row in range(12)] == [2] * 4 + [1] * 4 + [2] * 4
    rows = [(after, 4 * slot + rank) for rank in range(4) for slot, after in ((1, rank), (2, 4 + rank), (2, rank))]
    expected = [(one, other) for parent, child in rows for one in tasks[parent] for other in tasks[child]]
    parent, child, _ = made.edges
    assert sorted(zip(parent.tolist(), child.tolist(), strict=True)) == sorted(expected)


def test_who_waits_for_what_nobody_sends_is_refused() -> None:
    ranks = np.arange(4)
    table = TransferTable(ranks)
    table.add(slot=0, dst=np.where(ranks < 3, ranks + 1, -1))
    table.add(slot=1, dst=(ranks + 1) % 4, after=[((ranks - 1) % 4, 0)])
    with pytest.raises(WeftError, match="a transfer waits for one that no rank sends"):
        made_of(table, "first")


def test_circles_of_operations_are_named() -> None:
    """The change waits for the message that crosses its link, and the message for the change that brings it up."""
    job = Job(ring(4))
    job.reconfigure("swap", "1ns", [0, 2, 4, 6], [1, 3, 5, 7])
    job.send("moved", 9, [0], [2], after=[0])
    job.send("back", 9, [0], [3])
    with pytest.raises(WeftError, match=r"circle: .*'swap' \(takes down npu0->npu1, npu1->npu0, npu2->npu1, \.\.\.; "):
        lower(job)
