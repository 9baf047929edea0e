"""Fault plans as such: what a plan means whatever its order, and what holds of every plan on every fabric."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from collectives import Schedule, build, ring, swing
from collectives.core.schedule import schedule
from collectives.trees.forest import Edge, Forest, Tree, forest_pattern
from sim import simulate
from sim.analytic.bounds import Bounds, bound_under
from sim.faults.history import History
from sim.faults.plan import FaultPlan, Jitter, LinkDown, Loss, NodeDown, Repair, SlowLink, Straggler
from sim.lower.job import lower
from sim.program import ORDERS
from sim.program.contract import CLOCK_END_PS
from sim.program.outcome import Deadlock
from tests.fault_strategies import fault_plans
from tests.users import cases, fabrics, models, sizes
from topologies import WeftError, from_spec, torus
from topologies import ring as ring_fabric

RING = ring.all_reduce(ring_fabric(4), "64KiB")
FABRIC = torus((4, 4))

# What a plan means


def test_equal_sets_of_faults_are_equal_plans() -> None:
    """Whatever their order, and however times and shares are written; plain data reads back."""
    down, up = LinkDown(link="npu0--npu1", at="1000ns"), Repair(link="npu0--npu1", at="1us")
    slow = SlowLink(link="*", at="1.5us", share=1)
    one, other = FaultPlan(faults=(up, down, slow)), FaultPlan(faults=[slow, down, up])  # type: ignore[arg-type]  # a list
    assert one == other and one.to_dict() == other.to_dict()
    assert one.to_dict()["slow-link"] == [{"link": "*", "at": "1500ns", "share": 1.0, "latency": "0s"}]
    assert FaultPlan.from_dict(one.to_dict()) == one


def test_what_is_repaired_and_goes_down_at_one_time_is_down() -> None:
    """Repairs come first, then what slows, then what fails; an earlier entry of all links is one of each."""
    cable = "npu0->npu1"
    history = History(FABRIC, FaultPlan(faults=(
        LinkDown(link=cable, at="1us"), Repair(link="*", at="1us"), SlowLink(link=cable, at="2us", share=0.5),
        Repair(link=cable, at="2us"),
    )))
    link = next(link for link in range(FABRIC.n_links) if FABRIC.link_name(link) == cable)
    assert list(history.phases) == [link]
    phases = [(phase.from_ps, float(phase.factor)) for phase in history.phases[link]]
    assert phases == [(1_000_000, 0), (2_000_000, 0.5)]
    assert history.breaks == [(1_000_000, frozenset({link})), (2_000_000, frozenset())]


def test_a_slow_worker_may_fail_at_the_beginning() -> None:
    """Its links are down from 0 on, and back at their share of the rate."""
    history = History(FABRIC, FaultPlan(faults=(
        Straggler(npu="npu0", speed=0.5), NodeDown(node="npu0"), Repair(node="npu0", at="1us"),
    )))
    assert [(phase.from_ps, float(phase.factor)) for phase in history.npu_phases[0]] == [(0, 0), (1_000_000, 0.5)]
    assert {len(phases) for phases in history.phases.values()} == {2}


def test_the_more_special_entry_counts() -> None:
    """A direction before a cable, a cable before a dimension, a dimension before all, in whatever order."""
    losses = (Loss(link="npu0->npu1", probability=0.4), Loss(link="npu0--npu1", probability=0.3),
              Loss(link="dimension 1", probability=0.2), Loss(link="*", probability=0))
    history = History(FABRIC, FaultPlan(faults=losses))
    named = {FABRIC.link_name(link): probability for link, probability in history.loss.items()}
    assert (named["npu0->npu1"], named["npu1->npu0"], named["npu0->npu4"]) == (0.4, 0.3, 0.2)
    assert set(named.values()) == {0.4, 0.3, 0.2, 0}
    jitters = (Jitter(link="npu0->npu1", mean="1us", distribution="uniform"), Jitter(link="*", mean="0s"))
    found = History(FABRIC, FaultPlan(faults=jitters)).link_jitter
    assert sorted({int(values.max()) for values in found.values()}) == [0, 1_996_094]


@pytest.mark.parametrize(
    ("faults", "message"),
    [
        ((Loss(link="npu0--npu1", probability=0.1), Loss(link="npu1--npu0", probability=0.1)), "loss .* given twice"),
        ((SlowLink(link="*", share=0.1), SlowLink(link="*", share=0.2)), "slow-link of .* twice at one time"),
        ((Straggler(npu="npu1", delay="1us"), Straggler(npu="npu1", speed=0.5)), "straggler of 'npu1' is given twice"),
        ((Jitter(npu="npu1", mean="1us"), Jitter(npu="npu1", mean="2us")), "jitter of 'npu1' is given twice"),
    ],
)
def test_contradictions_are_refused(faults: tuple[Loss, ...], message: str) -> None:
    """Two entries of one kind, of the same link, at one time, and none more special."""
    with pytest.raises(WeftError, match=message):
        History(FABRIC, FaultPlan(faults=faults))


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"reroute": False}, "reroute False is not a time"), ({"timeout": True}, "timeout True is not a time"),
        ({"seed": True}, "seed is True: give an integer"), ({"reroute": 5}, "reroute 5 is not a time: write a number"),
        ({"link-down": [{"link": "*", "at": 5}]}, r"\[\[link-down\]\] 1: at 5 is not a time"),
        ({"slow-link": [{"link": "*", "share": True}]}, "share is True: give a number above 0 to 1"),
        ({"loss": [{"link": "*", "probability": -1}]}, "probability is -1: give a number from 0 to 1"),
        ({"slow-link": [{"link": "*", "share": 10**5000}]}, "share is of thousands of digits"),
        ({"link-down": [{"link": "*", "at": "9" * 5000 + "s"}]}, r"at '9+\.\.\. is not a time"),
        ({"link-down": [{"link": "*", "at": "1e999999999s"}]}, "at '1e999999999s' is not a time"),
        (["link-down"], "is not a table of keys"), ({7: 1}, "unknown key 7"),
    ],
)
def test_values_of_a_file_that_mean_nothing(table: dict[str, object], message: str) -> None:
    """Switches for numbers, bare numbers for times, and numbers of thousands of digits."""
    with pytest.raises(WeftError, match=message):
        FaultPlan.from_dict(table)


def test_what_is_no_plan_is_refused() -> None:
    """In Python: faults that are none, one without its tuple, and a dict in place of a plan."""
    for faults, message in ((("x",), "item 0, is 'x': give a SlowLink"), (LinkDown(link="*"), "give a sequence")):
        with pytest.raises(WeftError, match=message):
            FaultPlan(faults=faults)  # type: ignore[arg-type]  # what is rejected
    with pytest.raises(WeftError, match=r"faults is .*: give a FaultPlan"):
        simulate(RING, faults={"seed": 1})  # type: ignore[arg-type]  # what is rejected
    with pytest.raises(WeftError, match=r"no link 'dimension 9+\.\.\."):
        simulate(RING, faults=FaultPlan(faults=(LinkDown(link="dimension " + "9" * 5000),)))
    with pytest.raises(WeftError, match=r"with its faults a server could take 4\.612e\+06 s or longer"):
        simulate(RING, faults=FaultPlan(faults=(SlowLink(link="*", share=1e-320),)))


def test_entries_without_effect_are_told() -> None:
    """Too late, where nobody sends, or nothing in it; what did something is not told."""
    plan = FaultPlan(faults=(
        LinkDown(link="npu0->npu1", at="4000000s"), SlowLink(link="npu2->npu3", share=0.5),
        SlowLink(link="npu3->npu0", share=0.9), Straggler(npu="npu1"), Repair(node="npu2", at="1s"),
    ))
    one_way = build("pipelined", "broadcast", ring_fabric(4), "64KiB")
    notes = [note for note in simulate(one_way, faults=plan).notes() if note.startswith("no effect")]
    assert [note.split(":")[1].strip() for note in notes] == [
        "SlowLink of npu3->npu0 at 0s", "LinkDown of npu0->npu1 at 4000000s", "Repair of npu2 at 1s",
        "Straggler of npu1",
    ]
    assert "the run was over at" in notes[1] and "no chunk came to it" in notes[0]
    down = FaultPlan(faults=(LinkDown(link="npu3->npu0"), SlowLink(link="npu0->npu1", share=0.5)))
    assert simulate(one_way, faults=down).notes()[1] == "no effect: LinkDown of npu3->npu0 at 0s: no chunk came to it"
    assert not any("no effect" in note for note in simulate(RING, faults=replace(down, reroute="1us")).notes())
    many = FaultPlan(faults=tuple(Repair(link="npu0->npu1", at=f"{at}s") for at in range(1, 9)))
    assert "no effect: 3 more entries of the plan" in simulate(RING, faults=many).notes()
    empty = simulate(RING, faults=FaultPlan(faults=(SlowLink(link="*"),)))
    assert empty.notes()[1] == "no effect: SlowLink of * at 0s: it changes nothing"


# Bounds and the clock


def test_detours_may_undercut_what_holds_for_healthy_routes() -> None:
    """A broadcast that goes the long way around, whose dead link is avoided, beats the bound of its healthy routes."""
    fabric = from_spec("ring:4")
    link = {(int(tail), int(head)): at for at, (tail, head) in enumerate(zip(fabric.src, fabric.dst, strict=True))}
    long = Edge(0, 1, (link[0, 3], link[3, 2], link[2, 1]))
    tree = Tree(0, 1, (Edge(0, 3, (link[0, 3],)), Edge(0, 2, (link[0, 3], link[3, 2])), long))
    pattern = forest_pattern(fabric, "broadcast", "long way", down=Forest(fabric, (tree,)))
    work = schedule(pattern, "1MiB")
    plan = FaultPlan(faults=(LinkDown(link="npu3->npu2"),), reroute="0s")
    result = simulate(work, faults=plan, chunks=4, check=True)
    assert result.lower_bound_ps <= result.time_ps < simulate(work, chunks=4).lower_bound_ps
    found = Bounds(9, 8, 7, 6)
    assert [bound_under(one, found) for one in (None, FaultPlan(reroute="0s"), plan)] == [9, 9, 7]


@pytest.mark.parametrize("engine", ["chunk", "reference"])
def test_only_a_run_that_outlasts_the_clock_is_refused(engine: str) -> None:
    """What could be lost 256 times is not the measure; beyond 2^60 ps both engines go on, and at 2^62 both stop."""
    slow = FaultPlan(timeout="200000s", faults=(SlowLink(link="npu0->npu1", share=0.5),))
    assert simulate(RING, faults=slow, engine=engine).time_ps < 10**9
    late = FaultPlan(faults=(SlowLink(link="*", latency="700000s"),))
    assert 2**60 < simulate(RING, faults=late, engine=engine, check=True).time_ps == 6 * 700_000 * 10**12 + simulate(
        RING).time_ps < CLOCK_END_PS
    for plan in (FaultPlan(faults=(SlowLink(link="*", latency="800000s"),)),
                 FaultPlan(timeout="1000000s", faults=(Loss(link="*", probability=0.5),))):
        with pytest.raises(WeftError, match="the run goes on beyond the end of the clock"):
            simulate(RING, faults=plan, engine=engine, chunks=1)


# Detours


def test_chunks_that_have_not_left_their_source_take_the_new_routes() -> None:
    """All of an all-to-all waits at its source when a node goes down; what is queued goes around it."""
    schedule = build("direct", "all-to-all", FABRIC, "1MiB")
    plan = FaultPlan(
        faults=(NodeDown(node="npu5", at="1us"), Repair(node="npu5", at="200us")), timeout="50us", reroute="1us"
    )
    one, other = (simulate(schedule, faults=plan, chunks=1, engine=engine, check=True)
                  for engine in ("chunk", "reference"))
    assert one.time_ps == other.time_ps
    assert one.faults is not None and one.faults.detours > 0
    assert one.outcome is not None and one.outcome.journal is not None and one.outcome.journal.moved.any()
    assert sum(one.why().parts.values()) == one.time_ps


# Any plan

def check_plan_on(data: st.DataObject, most_services: int) -> None:
    """One draw of a fabric, an algorithm, a size, a model and a plan: both engines, with every certificate."""
    fabric, (name, kind, form) = data.draw(fabrics()), data.draw(cases())
    model = data.draw(models(ORDERS))
    try:
        schedule: Schedule = build(name, kind, fabric, data.draw(sizes()), form)
        services = lower(schedule, model, "off").program.chunk_hops()
    except WeftError:
        event("refused")
        return
    if services > most_services:
        event("left out: too large for the reference")
        return
    plan = data.draw(fault_plans(fabric))
    assert FaultPlan.from_dict(plan.to_dict()) == plan
    ends: list[tuple[int, int] | str] = []
    for engine in ("chunk", "reference"):
        try:
            result = simulate(schedule, model=model, faults=plan, engine=engine, check=True)
            assert result.lower_bound_ps <= result.time_ps
            ends.append((result.time_ps, result.events))
        except Deadlock as stuck:
            ends.append(str(stuck))
    event("deadlock" if isinstance(ends[0], str) else "compared")
    assert ends[0] == ends[1]


@settings(max_examples=25)
@given(st.data())
def test_any_plan_on_any_fabric(data: st.DataObject) -> None:
    """Both engines agree on the end or on who waits for whom, above the bound, and every certificate holds."""
    check_plan_on(data, 400)


@pytest.mark.verify
@settings(max_examples=3000)
@given(st.data())
def test_many_plans_on_many_fabrics(data: st.DataObject) -> None:
    """The same on more and larger runs."""
    check_plan_on(data, 4000)


def test_swing_is_above_its_bound_when_nothing_moves() -> None:
    """Without re-routing the bound is that of the healthy run."""
    work = swing.all_reduce(FABRIC, "64KiB")
    slow = simulate(work, faults=FaultPlan(faults=(SlowLink(link="*", share=0.5),), reroute="1us"), check=True)
    assert slow.lower_bound_ps == simulate(work).lower_bound_ps
