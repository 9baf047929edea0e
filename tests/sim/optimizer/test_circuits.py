import itertools
from functools import cache

import pytest

from collectives import build, reconfigured
from collectives.reconfigured import in_matchings, switched
from sim import simulate
from sim.analytic import steps_bound
from sim.analytic.circuits_bound import circuits_bound_ps
from sim.faults.plan import FaultPlan, LinkDown, SlowLink, Straggler
from sim.how import How
from sim.optimizer.circuits import EVERY_STEP, PLANNED, POLICIES, STATIC, Planner, planned, planners_of, quickest
from sim.program.model import Model, make_model
from sim.program.outcome import Deadlock
from sim.study.policies import policies, row_of, switched_rows
from sim.study.spec import Spec
from tests.oracles.circuit_states import least_ps, least_union_ps, part_ps, states
from topologies import WeftError, from_spec, optics, ring
from topologies.optics import all_states
from topologies.units import parse_time

US = 1_000_000
HALVES = make_model(chunks=1, forwarding="store-and-forward", endpoint_latency="500ns")


@cache
def halving(size):
    fabric = from_spec("ocs:64x2,duplex,single,circuits=64", "50GB/s", "100ns", 0)
    return Planner(build("recursive-doubling", "all-reduce", fabric, size, "bandwidth"), HALVES)


@pytest.mark.table
@pytest.mark.parametrize(
    ("size", "delay", "static", "every", "match", "letters", "segments"),
    [
        ("4KiB", "100ns", 19.09, 8.46, 8.36, "BRRRRRmRRRRB", 8.36),
        ("4KiB", "1us", 19.09, 18.36, 13.74, "BBBBRRmRBBBB", 11.08),
        ("4KiB", "10us", 19.09, 117.36, 19.09, "BBBBBBBBBBBB", 19.09),
        ("64KiB", "1us", 26.46, 20.78, 18.22, "BBBRRRmRRBBB", 15.22),
        ("64KiB", "10us", 26.46, 119.78, 26.46, "BBBBBBBBBBBB", 26.46),
        ("1MiB", "1us", 144.43, 59.49, 58.49, "BRRRRRmRRRRB", 57.34),
        ("1MiB", "10us", 144.43, 158.49, 135.25, "BBBBRRmRBBBB", 92.51),
        ("1MiB", "100us", 144.43, 1148.49, 144.43, "BBBBBBBBBBBB", 144.43),
    ],
)
def test_published_plans_of_recursive_doubling(size, delay, static, every, match, letters, segments):
    """A ring of 64, one circuit for a pair: the plans of the literature, from simulated prices."""
    planner = halving(size)
    planner.optics = planner.optics._replace(delay_ps=parse_time(delay))
    plans = [planner.plan(policy) for policy in POLICIES]
    found = [simulate(planner.schedule, model=HALVES).time_ps, *(plan.time_ps for plan in plans)]
    assert [time / US for time in found[:4]] == pytest.approx([static, every, match, segments], abs=0.0051)
    assert plans[1].letters == letters and plans[0].changes == 11
    assert found[4] <= min(found)


CELLS = [*itertools.product((8,), (1, 2, 4), ("64KiB", "16MiB"), ("0s", "10us", "1ms", "25ms"))]


@pytest.mark.table
@pytest.mark.parametrize(("n", "ports", "size", "delay"), CELLS)
def test_best_is_the_least_of_a_table_with_static_circuits_and_a_bound(n, ports, size, delay):
    """Never above the best static algorithm, nor recursive doubling over unions of matchings; plan and run agree."""
    names = ("recursive-doubling", "totient-rings")
    spec = Spec.from_dict({
        "topology": {"spec": f"ocs:{n}x{ports},delay={delay}"}, "sweep": {"begin": size, "end": size},
        "collective": {"algorithms": list(names)},
    }).choosing()
    found, bound_ps = policies(spec, names)
    rows = {one.policy: row_of(one, bound_ps) for one in found}
    assert rows["best"]["simulated_s"] == min(row["simulated_s"] for row in rows.values())
    assert bound_ps <= found[-1].result.time_ps
    assert all(row["plan_s"] == pytest.approx(row["simulated_s"], rel=1e-4) for row in rows.values())
    halving = build("recursive-doubling", "all-reduce", spec.build_topology(), size, "bandwidth")
    union = [result.time_ps for plan, result in switched_rows(halving, found[0].result.model, [PLANNED])]
    assert found[-1].result.time_ps <= min(union)


@pytest.mark.parametrize(("fabric", "kind", "name", "size", "model"), [
    ("ocs:5x5,per-port,paid,delay=100ns", "broadcast", "nccl-rings", 77_777, {}),
    ("ocs:7x2,delay=0s", "broadcast", "pipelined", 65_536, {"deliver": "head"}),
    ("ocs:5x2,per-port,paid,delay=100ns", "all-gather", "pat", 17, {}),
    ("rails:5x2x2,single", "gather", "bine", 77_777, {"tie": "split"}),
])
def test_to_change_nothing_is_a_plan_and_the_best_names_its_circuits(fabric, kind, name, size, model):
    spec = Spec.from_dict({
        "topology": {"spec": fabric}, "sweep": {"begin": size}, "collective": {"name": kind, "algorithms": [name]},
        "model": model,
    }).choosing()
    rows = {one.policy: row_of(one, bound_ps) for found, bound_ps in [policies(spec, [name])] for one in found}
    assert rows["best"]["simulated_s"] <= rows["planned"]["simulated_s"] <= rows["static"]["simulated_s"]
    same = [row for policy, row in rows.items() if policy != "best" and row["circuits"] == rows["best"]["circuits"]]
    assert rows["best"]["simulated_s"] in [row["simulated_s"] for row in same]


def test_sixteen_servers_reach_what_their_ports_allow():
    for ports, most in ((2, 316.4), (4, 157.9)):
        fabric = from_spec(f"ocs:16x{ports},delay=10us,circuits=16")
        assert simulate(build("pipelined", "all-reduce", fabric, "16MiB", "two-phase"), chunks=4).time_ps <= most * US


def test_an_all_to_all_is_carried_in_unions_of_matchings():
    schedule = build("direct", "all-to-all", from_spec("ocs:16x4,delay=10us"), "64MiB")
    (plan, result), = switched_rows(schedule, policies=[PLANNED])
    assert plan.time_ps == pytest.approx(result.time_ps, rel=1e-4) and result.time_ps <= 378 * US
    assert circuits_bound_ps(schedule.topology, schedule.kind, schedule.size_bytes) <= result.time_ps


@pytest.mark.parametrize("policy", POLICIES)
def test_only_ports_that_change_are_dark_no_slower_than_the_fabric(policy):
    times = []
    for options in ("", ",per-port"):
        schedule = build("swing", "all-reduce", from_spec(f"ocs:8x2,delay=1us{options}"), "64KiB", "bandwidth")
        times += [result.time_ps for _, result in switched_rows(schedule, HALVES, [policy])]
    assert times == sorted(times, reverse=True)


@pytest.mark.parametrize(("fabric", "name"), [
    ("ocs:32x2,delay=10us", "pairwise"), ("ocs:29x2,duplex,single,circuits=29,delay=3us", "pairwise"),
    ("ocs:27x1,delay=1us", "pairwise"),
])
def test_the_plan_of_many_steps_is_no_slower_than_that_of_any_policy(fabric, name):
    """More steps than are priced on all circuits: each may go on the first circuits."""
    schedule = build(name, "all-to-all", from_spec(fabric, "50GB/s", "100ns", 0), "1MiB")
    planner = Planner(schedule, make_model(chunks=1))
    plans = [planner.plan(policy) for policy in POLICIES]
    assert len(planner.pairs) > 24 and plans[-1].policy == PLANNED
    assert plans[-1].time_ps == min(plan.time_ps for plan in plans if plan is not None)


@pytest.mark.parametrize(("fabric", "best_us"), [("ocs:5x2,delay=0s", 12.78304), ("ocs:7x3,delay=0s", 9.18784)])
def test_of_several_algorithms_the_quickest_plan_is_that_of_one(fabric, best_us):
    """Also where steps that run into each other take less than one by one: two messages a port, and two hops."""
    names = "direct", "pairwise", "concurrent-flow"
    spec = Spec.from_dict({
        "topology": {"spec": fabric}, "sweep": {"begin": "1.5MiB", "end": "1.5MiB"},
        "collective": {"name": "all-to-all", "algorithms": list(names)},
    }).choosing()
    best = [policies(spec, some)[0][-1].result.time_ps for some in (names, *([name] for name in names))]
    assert best[0] == min(best[1:])
    assert best[0] / US == pytest.approx(best_us)


def test_what_a_plan_takes_on_a_rotor_is_with_its_turns():
    spec = Spec.from_dict({
        "topology": {"spec": "rotor:7x2"}, "sweep": {"begin": "77777B", "end": "77777B"},
        "collective": {"name": "all-to-all", "algorithms": ["direct"]},
    }).choosing()
    found, bound_ps = policies(spec, ["direct"])
    assert all(row["plan_s"] == row["simulated_s"] for row in (row_of(one, bound_ps) for one in found))


def test_switching_needs_circuits():
    with pytest.raises(WeftError, match="ring:4 has no circuits to switch: choose a fabric such as ocs:16x4"):
        Planner(build("ring", "all-reduce", ring(4), "1KiB"))
    alone = build("ring", "all-reduce", from_spec("ocs:1x1"), "1KiB")
    assert Planner(alone).plan(PLANNED) is None and planned(alone, HALVES) is alone


EXHAUSTED = [(size, kind, name) for size in ("4x1", "4x2") for kind, name in (
    ("all-reduce", "recursive-doubling"), ("all-reduce", "ring"), ("all-gather", "ring"), ("all-gather", "direct"),
    ("reduce-scatter", "recursive-doubling"), ("all-to-all", "direct"), ("all-to-all", "pairwise"),
    ("broadcast", "tree"), ("reduce", "tree"),
)] + [("6x1", "all-reduce", "direct"), ("6x1", "all-to-all", "pairwise"), ("6x1", "broadcast", "tree")]
EXHAUSTED += [("6x2", "all-reduce", "recursive-doubling"), ("6x2", "all-to-all", "pairwise")]


@pytest.mark.table
@pytest.mark.parametrize(("size", "kind", "name"), EXHAUSTED)
def test_no_sequence_of_any_circuits_of_few_servers_is_quicker(size, kind, name):
    planner = Planner(build(name, kind, from_spec(f"ocs:{size}"), "64KiB"), make_model(chunks=1))
    delays_ps = [0, US, 1_000 * US]
    least = least_ps(planner.schedule, planner.model, delays_ps, whole=size == "4x1")
    for delay_ps, want in zip(delays_ps, least, strict=True):
        planner.optics = planner.optics._replace(delay_ps=delay_ps)
        assert planner.plan(PLANNED).time_ps == want


def no_worse_than_unions(n, ports, kind):
    planner = Planner(build("direct", kind, from_spec(f"ocs:{n}x{ports},duplex"), "64KiB"), make_model(chunks=1))
    delays_ps = [0, US, 1_000 * US]
    least = least_union_ps(planner.schedule, planner.model, delays_ps)
    for delay_ps, want in zip(delays_ps, least, strict=True):
        planner.optics = planner.optics._replace(delay_ps=delay_ps)
        assert planner.plan(PLANNED).time_ps <= want


@pytest.mark.table
@pytest.mark.parametrize(("size", "kind", "name"), [
    *EXHAUSTED, ("5x2,duplex", "all-to-all", "pairwise"), ("5x2,duplex", "all-gather", "swing"),
    ("5x2,duplex", "all-reduce", "nccl-trees"), ("3x2,duplex", "all-reduce", "ring"),
])
def test_no_circuits_that_stay_are_quicker(size, kind, name):
    """The whole schedule on every state, and on named circuits, which have routes of their own."""
    planner = Planner(build(name, kind, from_spec(f"ocs:{size},delay=1ms"), 77_777), make_model(chunks=1))
    plan, schedule = planner.plan(STATIC), planner.schedule
    t, named = schedule.pattern.transfers(), optics.layouts(schedule.topology).values()
    least = min(part_ps(schedule, planner.model, t),
                *(simulate(reconfigured.part(schedule, t, one), model=planner.model).time_ps for one in named))
    assert plan.time_ps == least and plan.changes == 0 and len({id(one) for one in plan.fabrics}) == 1


@pytest.mark.table
@pytest.mark.parametrize("kind", ["all-to-all", "all-gather"])
@pytest.mark.parametrize(("n", "ports"), [(3, 2), (3, 3), (4, 2), (4, 3)])
def test_no_union_of_pairs_on_duplex_ports_is_quicker(n, ports, kind):
    """Whatever order the matchings of a schedule are in: every sequence of every set of pairs, on all circuits."""
    no_worse_than_unions(n, ports, kind)


@pytest.mark.full
def test_no_union_of_pairs_of_five_servers_is_quicker():
    no_worse_than_unions(5, 2, "all-to-all")


@pytest.mark.table
@pytest.mark.parametrize(("n", "ports", "parts"), [
    (5, 2, 2), (6, 2, 2.5), (7, 2, 3), (8, 2, 3.5), (11, 2, 5), (9, 4, 2), (6, 3, 5 / 3), (8, 3, 7 / 3), (7, 4, 1.5),
])
def test_on_duplex_ports_both_ways_of_as_many_pairs_as_there_are_ports_for_are_up(n, ports, parts):
    """Each server sends on all its ports all the time, but for latencies."""
    fabric, model = from_spec(f"ocs:{n}x{ports},duplex,delay=0s"), make_model(chunks=1)
    for name in ("direct", "pairwise", "fast"):
        plan, _ = quickest(planners_of(build(name, "all-to-all", fabric, n * 1_000_000), model), PLANNED)
        assert plan.time_ps == pytest.approx(20 * US * parts + 100_000 * (plan.changes + 1), rel=1e-6)


@pytest.mark.table
@pytest.mark.parametrize(("n", "ports", "options"), [
    (3, 1, ""), (5, 1, ",per-port"), (4, 2, ""), (5, 2, ",per-port"), (3, 2, ",duplex"), (4, 2, ",duplex"),
    (5, 2, ",duplex"), (5, 3, ",duplex,per-port"), (6, 3, ",duplex"), (7, 2, ",duplex,paid"),
])
@pytest.mark.parametrize("name", ["direct", "recursive-multiplying"])
def test_steps_wider_than_the_ports_are_planned_in_matchings_too(n, ports, options, name):
    """Plan and run agree, no circuits of the steps as they are are quicker; twice what half of an all-reduce takes."""
    fabric, model = from_spec(f"ocs:{n}x{ports},delay=1us{options}"), make_model(chunks=1)
    schedule = build(name, "all-reduce", fabric, f"{n}MB")
    plan, steps = quickest(planners_of(schedule, model), PLANNED)
    result = simulate(planned(schedule, model), model=model, check=True)
    assert result.time_ps == simulate(switched(steps, plan.fabrics), model=model).time_ps
    assert plan.time_ps == pytest.approx(result.time_ps, rel=1e-4)
    assert plan.time_ps <= Planner(schedule, model).plan(PLANNED).time_ps
    if name == "direct":
        halves = [Planner(build(name, kind, fabric, f"{n}MB"), model).plan(PLANNED).time_ps
                  for kind in ("reduce-scatter", "all-gather")]
        assert plan.time_ps <= sum(halves) + US


@pytest.mark.table
@pytest.mark.parametrize(("n", "ports"), [(3, 2), (4, 2), (4, 3)])
def test_no_unions_of_pairs_in_both_steps_of_an_all_reduce_are_quicker(n, ports):
    """Every sequence of every set of pairs on all circuits, of either step; between them they may have to change."""
    delays_ps, model = [0, US, 1_000 * US], make_model(chunks=1)
    halves = [least_union_ps(in_matchings(build("direct", kind, from_spec(f"ocs:{n}x{ports},duplex"), "64KiB")), model,
                             delays_ps) for kind in ("reduce-scatter", "all-gather")]
    for delay_ps, *least in zip(delays_ps, *halves, strict=True):
        fabric = from_spec(f"ocs:{n}x{ports},duplex,delay={delay_ps}ps")
        schedule = planned(build("direct", "all-reduce", fabric, "64KiB"), model)
        assert simulate(schedule, model=model).time_ps <= sum(least) + delay_ps


@pytest.mark.table
@pytest.mark.parametrize(("n", "ports"), [(2, 1), (3, 2), (3, 3), (4, 2), (5, 2)])
def test_all_cables_of_few_servers(n, ports):
    found = all_states(from_spec(f"ocs:{n}x{ports},duplex")).circuits
    some = {tuple(itertools.chain(*([pair] * one[pair] for pair in itertools.combinations(range(n), 2))))
            for one in found}
    assert some == {*states(n, ports, duplex=True)} and len(some) == len(found)


RATES = (["50GB/s", "3GB/s"], ["1GB/s", "96.1GB/s"]), ("7.3GB/s", "96.1GB/s")


@pytest.mark.parametrize("fabric", ["hybrid:5x2,delay=1us", "ocs:5x3,duplex,delay=700ns", "rails:3x2x1,delay=1us"])
def test_what_is_kept_for_other_rates_changes_no_plan(fabric):
    found = [[], []]
    for fresh, plans in enumerate(found):
        for rate in RATES[fabric.startswith("ocs")]:
            if fresh:
                reconfigured._PATTERNS.clear()
                optics._BETWEEN.clear()
                steps_bound._paths.cache_clear()
            schedule = build("direct", "all-to-all", from_spec(fabric, rate), "99KiB")
            plan = Planner(schedule, make_model(chunks=2)).plan(PLANNED)
            plans.append((*plan[2:], simulate(switched(in_matchings(schedule), plan.fabrics), chunks=2).time_ps))
    assert found[0] == found[1]


KINDS = ("all-reduce", "reduce-scatter", "all-gather", "broadcast", "reduce", "all-to-all")
NAMES = {"all-to-all": ("direct", "pairwise"), "broadcast": ("tree", "pipelined"), "reduce": ("tree", "pipelined")}
SMALL = [
    (n, ports, options, kind) for n, ports in ((2, 1), (2, 2), (3, 1), (3, 2), (4, 1), (5, 1), (5, 2), (6, 2))
    for kind in KINDS
    for options in ("delay=0s", "delay=1us", "delay=1us,paid", "delay=1us,per-port", "delay=0s,per-port", "delay=20us")
]


@pytest.mark.table
@pytest.mark.parametrize(("n", "ports", "options", "kind"), SMALL)
def test_no_plan_is_below_the_bound_on_all_circuits(n, ports, options, kind):
    """Of the small and of the large: where latency counts, and where bytes do."""
    fabric = from_spec(f"ocs:{n}x{ports},{options}", "50GB/s", "100ns", "50ns")
    for name, size in itertools.product(NAMES.get(kind, ("ring", "direct")), ("64B", "256KiB")):
        schedule = build(name, kind, fabric, size)
        bound_ps = circuits_bound_ps(fabric, schedule.kind, schedule.size_bytes, HALVES)
        rows = switched_rows(schedule, HALVES, POLICIES if n * ports < 5 else POLICIES[:3])
        found = [result.time_ps for _, result in rows]
        assert bound_ps <= min([simulate(schedule, model=HALVES).time_ps, *found])


@pytest.mark.parametrize(("n", "delay"), [(16, "1us"), (6, "0s"), (8, "1us")])
def test_with_enough_changes_an_all_to_all_crosses_one_circuit(n, delay):
    """All that the bound leaves out are the latencies of the steps but one."""
    schedule = build("pairwise", "all-to-all", from_spec(f"ocs:{n}x1,delay={delay}", "50GB/s", "100ns", 0), n * 65536)
    bound_ps = circuits_bound_ps(schedule.topology, schedule.kind, schedule.size_bytes)
    (_, result), = switched_rows(schedule, policies=["every step"])
    assert bound_ps <= result.time_ps == pytest.approx(bound_ps + (n - 2) * 100_000, rel=1e-6)


@pytest.mark.parametrize(("fabric", "kind", "name"), [
    ("ocs:8x2,delay=1us", "all-reduce", "recursive-doubling"), ("ocs:6x1,delay=1us", "all-to-all", "pairwise"),
])
def test_certificates_hold_for_parts_and_for_plans(fabric, kind, name):
    schedule = build(name, kind, from_spec(fabric), "1MiB")
    checked, plain = (planned(schedule, HALVES, How(check=check)) for check in (True, False))
    assert simulate(checked, model=HALVES, check=True).time_ps == simulate(plain, model=HALVES).time_ps


def test_the_static_circuits_may_be_those_of_the_pairs_of_a_schedule():
    """Ranks 1, 2 and 4 apart: one hop each on three ports, where no circuits with a name have less than two."""
    spec = Spec.from_dict({
        "topology": {"spec": "ocs:7x3,delay=25ms"}, "sweep": {"begin": "64KiB"},
        "collective": {"name": "all-gather", "algorithms": ["bruck"]}, "model": {"chunks": 1},
    })
    static, *_ = policies(spec, ["bruck"])[0]
    assert static.form.endswith("circuits=own") and static.result.job.topology.n_links == 21
    assert not static.changes and static.result.time_ps == policies(spec, ["bruck"])[0][-1].result.time_ps
    named = simulate(build("bruck", "all-gather", from_spec("ocs:7x3,delay=25ms"), "64KiB"), chunks=1)
    assert static.result.time_ps < named.time_ps


SLOW = FaultPlan(faults=(SlowLink(link="npu0->npu1", share=0.1, latency="1us"), SlowLink(link="npu2->npu0", share=0.5)))


@pytest.mark.table
@pytest.mark.parametrize("fabric", ["ocs:4x1,delay=1us", "ocs:4x2,delay=100ns", "ocs:6x2,delay=1us,duplex"])
@pytest.mark.parametrize(("name", "kind"), [
    ("direct", "all-to-all"), ("pairwise", "all-to-all"), ("ring", "all-reduce"),
])
def test_plans_that_are_priced_with_faults_take_what_they_say_and_no_longer_than_others(name, kind, fabric):
    schedule = build(name, kind, from_spec(fabric), "256KiB")
    times = []
    for priced in (None, SLOW):
        (plan, order) = quickest(planners_of(schedule, Model(chunks=1), faults=priced), PLANNED)
        times.append(simulate(switched(order, plan.fabrics), chunks=1, faults=SLOW).time_ps)
    assert times[1] == plan.time_ps <= times[0]


def test_plans_do_without_what_is_down():
    down = FaultPlan(faults=(LinkDown(link="npu0->npu1"),))
    schedule = build("ring", "all-reduce", from_spec("ocs:4x1,delay=1us"), "64KiB")
    with pytest.raises(Deadlock):
        simulate(planned(schedule, Model()), faults=down)
    assert simulate(planned(schedule, Model(), faults=down), faults=down, check=True).time_ps > 0


def test_who_begins_late_does_so_once():
    late = FaultPlan(faults=(Straggler(npu="npu1", delay="20us"),))
    schedule = build("direct", "all-to-all", from_spec("ocs:4x1,delay=1us"), "256KiB")
    (plan, order) = quickest(planners_of(schedule, Model(chunks=1), faults=late), EVERY_STEP)
    assert plan.time_ps == simulate(switched(order, plan.fabrics), chunks=1, faults=late).time_ps
