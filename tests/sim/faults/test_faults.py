"""Fault plans on fabrics: what they say, what they do, and what the result tells."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from fractions import Fraction
from pathlib import Path

import pytest

from collectives import Schedule, ring, swing
from sim import simulate
from sim.cli import main
from sim.faults.apply import CROSSING, add_faults
from sim.faults.plan import (
    DISTRIBUTIONS,
    FaultPlan,
    Jitter,
    LinkDown,
    Loss,
    NodeDown,
    Repair,
    SlowLink,
    Straggler,
    quantiles_ps,
)
from sim.lower.job import lower
from sim.program.contract import COMPLETES, DROPS, LOSES
from sim.program.outcome import Deadlock
from sim.study.key import point_key
from sim.study.points import Task
from sim.study.spec import Spec
from topologies import Topology, WeftError, switch, torus
from topologies import ring as ring_fabric
from workloads.job import Job

FABRIC = torus((4, 4))
SWING = swing.all_reduce(FABRIC, "64KiB")
RING = ring.all_reduce(ring_fabric(4), "64KiB")

PLAN = """
in-flight = "wait"
timeout = "50us"
reroute = "20us"
seed = 7

[[slow-link]]
link = "npu0->npu1"
at = "1us"
share = 0.5
latency = "2us"

[[link-down]]
link = "npu1--npu2"
at = "1us"

[[node-down]]
node = "npu3"
at = "2us"

[[repair]]
node = "npu3"
at = "3us"

[[straggler]]
npu = "npu1"
delay = "10us"
speed = 0.5

[[jitter]]
link = "dimension 0"
mean = "100ns"

[[loss]]
link = "*"
probability = 0.001
"""


def plan_file(folder: Path, text: str) -> Path:
    path = folder / "faults.toml"
    path.write_text(text, encoding="utf-8")
    return path


# What a plan says


def test_toml_and_python_are_one_plan(tmp_path: Path) -> None:
    """Every table has its object, and plain data reads back."""
    plan = FaultPlan.read(plan_file(tmp_path, PLAN))
    assert plan == FaultPlan(
        faults=(
            SlowLink(link="npu0->npu1", at="1us", share=0.5, latency="2us"), LinkDown(link="npu1--npu2", at="1us"),
            NodeDown(node="npu3", at="2us"), Repair(node="npu3", at="3us"),
            Straggler(npu="npu1", delay="10us", speed=0.5), Jitter(link="dimension 0", mean="100ns"),
            Loss(link="*", probability=0.001),
        ),
        in_flight="wait", timeout="50us", reroute="20us", seed=7,
    )
    assert FaultPlan.from_dict(json.loads(json.dumps(plan.to_dict()))) == plan


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("link-down = 1", r"link-down is 1: write it as \[\[link-down\]\]"),
        ("[[link-dwn]]\nlink = 'a'", "unknown key 'link-dwn'; accepted are .*link-down"),
        ("[[link-down]]\nlnk = 'a'", r"\[\[link-down\]\] 1: unknown key 'lnk'; accepted are link, at"),
        ("[[link-down]]\nlink = 'a'\n[[link-down]]\nat = '1us'", r"\[\[link-down\]\] 2: LinkDown needs link"),
        ("[[jitter]]\nlink = 'a'", "needs mean"),
        ("[[link-down]]\nlink = 'a'\nat = '1 parsec'", "at '1 parsec' is not a time"),
        ("[[link-down]]\nlink = 3", "link is 3: give text"),
        ("[[link-down]]\nlink = 'a'\nat = true", "at True is not a time"),
        ("[[repair]]\nat = '1us'", "give either link or node"),
        ("[[jitter]]\nlink = 'a'\nnpu = 'b'\nmean = '1us'", "give either link or npu"),
        ("[[jitter]]\nlink = 'a'\nmean = '1us'\ndistribution = 'cauchy'", "distribution 'cauchy' is unknown"),
        ("[[slow-link]]\nlink = 'a'\nshare = 0", "share is 0: give a number above 0"),
        ("[[slow-link]]\nlink = 'a'\nshare = 1.5", "share is 1.5"),
        ("[[straggler]]\nnpu = 'a'\nspeed = 'slow'", "speed is 'slow': give a number"),
        ("[[loss]]\nlink = 'a'\nprobability = 1.0", "probability 1.0 is out of range"),
        ("in-flight = 'gone'", "in_flight 'gone' is unknown"),
        ("seed = -1", "seed is -1: give an integer from 0"),
        ("timeout = '0s'", "timeout 0: at least"),
        ("= 3", "is not TOML"),
    ],
)
def test_bad_plans_name_what_is_wrong(tmp_path: Path, text: str, message: str) -> None:
    """One line, with the file, the table, the key and what is accepted."""
    with pytest.raises(WeftError, match=message) as wrong:
        FaultPlan.read(plan_file(tmp_path, text))
    assert "\n" not in str(wrong.value) and "faults.toml" in str(wrong.value)


def test_files_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    """No file, a folder, or bytes that are no text."""
    for path in (tmp_path / "none.toml", tmp_path):
        with pytest.raises(WeftError, match="fault plan"):
            FaultPlan.read(path)
    (tmp_path / "latin.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(WeftError, match="is not UTF-8 text"):
        FaultPlan.read(tmp_path / "latin.toml")


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (LinkDown(link="npu0->npu9"), "no link 'npu0->npu9': its links are npu0->npu1"),
        (SlowLink(link="dimension 7"), "no link 'dimension 7'"),
        (NodeDown(node="npu99"), "no node 'npu99': they are npu0 to npu15"),
        (Straggler(npu="switch0", delay="1us"), "no NPU 'switch0'"),
        (Jitter(npu="npu77", mean="1us"), "no NPU 'npu77'"),
    ],
)
def test_names_that_the_topology_does_not_have(fault: object, message: str) -> None:
    """They are rejected before anything is simulated."""
    with pytest.raises(WeftError, match=message):
        simulate(SWING, faults=FaultPlan(faults=(fault,)))  # type: ignore[arg-type]  # one of the kinds


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_quantiles_have_their_mean(distribution: str) -> None:
    """Ascending, not negative, and their mean within 3 % of the distribution's."""
    values = quantiles_ps(Jitter(link="*", mean="1us", distribution=distribution))
    assert (values >= 0).all() and (values[1:] >= values[:-1]).all()
    assert values.mean() == pytest.approx(1e6, rel=0.03)


# What it does


def test_no_faults_cost_nothing() -> None:
    """An empty plan is the healthy run, by the same symmetry and with a message."""
    result = simulate(SWING, faults=FaultPlan(), check=True)
    assert result.faults is not None
    assert result.time_ps == result.faults.healthy_ps == simulate(SWING).time_ps
    assert result.why().parts == simulate(SWING).why().parts
    assert result.symmetry == f"{simulate(SWING).symmetry}, as far as the faults keep it"


def test_a_slow_fabric_is_the_fabric_with_slow_links() -> None:
    """All links at half their bandwidth from the beginning: the run of the fabric that is built so."""
    slow = ring_fabric(4, bandwidth="200Gb/s")
    found = simulate(RING, faults=FaultPlan(faults=(SlowLink(link="*", share=0.5),)), forwarding="store-and-forward")
    assert found.time_ps == simulate(ring.all_reduce(slow, "64KiB"), forwarding="store-and-forward").time_ps


def test_added_latency_is_paid_on_every_hop_of_the_path() -> None:
    """2 us more on all links: once for each of the six steps of a ring of four."""
    result = simulate(RING, faults=FaultPlan(faults=(SlowLink(link="*", latency="2us"),)), check=True)
    assert result.faults is not None
    assert result.time_ps == result.faults.healthy_ps + 6 * 2_000_000
    assert result.why().parts["added latency"] == 6 * 2_000_000


def test_a_late_worker_is_named() -> None:
    """One NPU begins 10 us late: nothing is earlier than that, and the path says who."""
    late = FaultPlan(faults=(Straggler(npu="npu5", delay="10us"),))
    result = simulate(SWING, faults=late, check=True)
    assert result.faults is not None
    assert 10_000_000 < result.time_ps <= result.faults.healthy_ps + 10_000_000
    assert result.why().parts["late worker npu5"] == 10_000_000
    assert not any(name.endswith(", late worker npu5") for name in result.why().parts)
    assert simulate(SWING, faults=late, deliver="head").why().parts["late worker npu5"] == 10_000_000


@pytest.mark.parametrize("in_flight", ["lost", "wait", "complete"])
def test_a_repair_is_waited_for(in_flight: str) -> None:
    """A cable is out from 1 us to 50 us; without it nobody can finish, so the run ends after the repair."""
    cable = "npu0--npu1"
    plan = FaultPlan(
        faults=(LinkDown(link=cable, at="1us"), Repair(link=cable, at="50us")), in_flight=in_flight, timeout="30us"
    )
    result = simulate(RING, faults=plan, check=True)
    assert result.faults is not None
    assert result.time_ps > 50_000_000
    parts = result.why().parts
    assert sum(parts.values()) == result.time_ps
    if in_flight == "lost":
        assert result.faults.lost and parts["lost and sent again"] > 30_000_000
    else:
        assert not result.faults.lost and any(name.startswith("waiting for repair") for name in parts)


def test_routes_lead_around_what_is_down() -> None:
    """With re-routing a ring goes on the other way round; without it, the report says who waits for whom."""
    down = LinkDown(link="npu0--npu1", at="1us")
    result = simulate(RING, faults=FaultPlan(faults=(down,), timeout="5us", reroute="2us"), check=True)
    assert result.faults is not None and result.faults.detours > 0
    used = {RING.topology.link_name(link) for link, busy in enumerate(result.link_busy_ps.tolist()) if busy}
    assert "npu3->npu2" in used
    with pytest.raises(Deadlock, match=r"link npu0->npu1 is down from 1 us on.*npu0 to npu1 \(step 2\)") as stuck:
        simulate(RING, faults=FaultPlan(faults=(down,)))
    assert "waits for" in str(stuck.value) and "\n" not in str(stuck.value)


def test_detours_over_links_that_no_route_crosses() -> None:
    """Swing in one dimension first: a detour may cross links of the program, or bring new servers."""
    plan = FaultPlan(faults=(NodeDown(node="npu3", at="1us"), Repair(node="npu3", at="20us")), reroute="1us")
    result = simulate(swing.all_reduce(FABRIC, "1KiB"), faults=plan, check=True)
    assert result.time_ps > 20_000_000


def test_a_node_that_stays_down_is_an_unreachable_destination() -> None:
    """Re-routing does not help where the destination is gone."""
    plan = FaultPlan(faults=(NodeDown(node="npu2"),), timeout="1us", reroute="1us")
    with pytest.raises(Deadlock, match=r"never finish: node npu2 is down from .* and no other route is left"):
        simulate(RING, faults=plan)


def test_a_switch_that_is_repaired() -> None:
    """All traffic of a star waits for its switch."""
    plan = FaultPlan(
        faults=(NodeDown(node="switch0"), Repair(node="switch0", at="10us")), in_flight="wait"
    )
    schedule = ring.all_reduce(switch(4), "64KiB")
    result = simulate(schedule, faults=plan, check=True)
    assert result.time_ps == 10_000_000 + simulate(schedule).time_ps


def test_draws_depend_on_the_seed_and_on_nothing_else() -> None:
    """The same plan gives the same time in both engines; another seed gives another."""
    faults = (Loss(link="*", probability=0.05), Jitter(link="*", mean="200ns", distribution="lognormal"))
    times = {seed: simulate(RING, faults=FaultPlan(faults=faults, seed=seed), check=True).time_ps for seed in range(3)}
    assert len(set(times.values())) == 3
    plan = FaultPlan(faults=faults, seed=1)
    assert simulate(RING, faults=plan, engine="reference", check=True).time_ps == times[1]


@pytest.mark.parametrize("topology", [torus((4, 4)), switch(4)], ids=["torus", "switch"])
@pytest.mark.parametrize("schedule_of", [swing.all_reduce, ring.all_reduce], ids=["swing", "ring"])
def test_the_whole_plan_on_any_algorithm(tmp_path: Path, topology: Topology, schedule_of: object) -> None:
    """Algorithms run unchanged; both engines agree and every certificate holds."""
    text = PLAN if topology.name.startswith("torus") else PLAN.replace("npu0->npu1", "npu0->switch0").replace(
        "npu1--npu2", "npu1--switch0").replace("node = \"npu3\"\nat = \"2us\"", "node = \"npu3\"\nat = \"0s\"") + (
        "[[repair]]\nlink = \"npu1--switch0\"\nat = \"30us\"\n")
    plan = FaultPlan.read(plan_file(tmp_path, text))
    schedule: Schedule = schedule_of(topology, "16KiB")  # type: ignore[operator]  # one of two functions
    one, other = (simulate(schedule, faults=plan, engine=engine, check=True, chunks=1)
                  for engine in ("chunk", "reference"))
    assert one.time_ps == other.time_ps
    assert one.faults is not None and one.time_ps > one.faults.healthy_ps
    assert str(one.faults) in one.notes()
    assert one.row()["healthy_time_s"] == one.faults.healthy_ps / 1e12


def test_servers_get_what_the_plan_says() -> None:
    """Links by name in each direction; the flag of what is in flight; the end of a phase at the repair."""
    lowered = lower(RING, simulate(RING).model, "off")
    plan = FaultPlan(faults=(LinkDown(link="npu0->npu1", at="1us"), Repair(link="npu0->npu1", at="3us")))
    for in_flight in CROSSING:
        program = add_faults(lowered, FaultPlan(**(asdict(plan) | {
            "faults": plan.faults, "in_flight": in_flight}))).program
        assert program.timetable_from_ps.tolist() == [1_000_000, 3_000_000]
        assert program.timetable_rate.tolist()[0] == -1
        assert set(program.server_crossing.tolist()) <= {0, CROSSING[in_flight]}
    assert CROSSING["lost"] == LOSES + DROPS and CROSSING["complete"] == COMPLETES


# Jobs and the command line


def job() -> Job:
    fabric = ring_fabric(4)
    one = Job(fabric)
    first = one.compute("forward", 5_000_000)
    grads = one.collective("gradients", ring.all_reduce(fabric, "64KiB"), after=[first])
    one.compute("update", 1_000_000, after=[grads])
    return one


def test_a_straggler_slows_the_computations_of_a_job() -> None:
    """At half its speed one NPU holds up the all-reduce; computing and waiting sum to the iteration."""
    plan = FaultPlan(faults=(Straggler(npu="npu2", speed=0.5, delay="1us"), Jitter(npu="npu1", mean="500ns")))
    result = simulate(job(), faults=plan, check=True)
    assert result.faults is not None
    assert result.compute_ps(2) >= 12_000_000 > result.compute_ps(0)
    assert result.time_ps >= result.faults.healthy_ps + 6_000_000
    for rank in result.ranks:
        assert result.compute_ps(rank) + sum(result.exposed_ps(rank).values()) == result.time_ps
    assert simulate(job(), faults=plan, engine="reference").time_ps == result.time_ps


def test_who_takes_no_part_is_late_for_nothing() -> None:
    """Of three NPUs that send on, the last only receives, and still begins late; a fourth has nothing to do."""
    one = Job(ring_fabric(5))
    one.send("on", 100_000, [1], [2], after=[one.send("to the first", 100_000, [0], [1])])
    usual = simulate(one).time_ps
    late = [simulate(one, faults=FaultPlan(faults=(Straggler(npu=f"npu{npu}", delay="1ms"),)), check=True).time_ps
            for npu in range(5)]
    assert late[3:] == [usual, usual]
    assert min(late[:3]) >= 1_000_000_000


def test_a_job_that_cannot_end_says_which_operation_waits() -> None:
    """The report names operations and NPUs."""
    with pytest.raises(Deadlock, match=r"forward of npu2|gradients of npu"):
        simulate(job(), faults=FaultPlan(faults=(NodeDown(node="npu2"),)))


def test_the_key_of_a_point_knows_what_is_in_the_plan(tmp_path: Path) -> None:
    """Another plan under the same name is another point."""
    path = plan_file(tmp_path, "seed = 1")
    spec = Spec.from_dict({"topology": {"spec": "ring:4"}, "model": {"faults": str(path)}})
    keys = [point_key(Task(spec, "ring", 1024))]
    for text in ("seed = 1\n# the same", "seed = 2"):
        path.write_text(text, encoding="utf-8")
        keys.append(point_key(Task(spec, "ring", 1024)))
    assert keys[0] == keys[1] != keys[2]


def test_the_command_says_what_faults_cost_and_ends_with_2_where_they_win(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """--faults of weft compare: a note and keys in the JSON; a fabric that is cut apart is a report."""
    path = plan_file(tmp_path, "[[straggler]]\nnpu = 'npu1'\ndelay = '10us'")
    how = ("--topology", "ring:4", "--algorithms", "ring", "-b", "64K", "--faults", str(path), "--quiet")
    assert main(["compare", *how, "--check", "--json", "-"]) == 0
    said = capsys.readouterr()
    row = json.loads(said.out)["rows"][0]
    assert row["faults"]["straggler"] == [{"npu": "npu1", "delay": "10us", "speed": 1.0}]
    assert row["slowdown"] == pytest.approx(row["time_s"] / row["healthy_time_s"])
    assert "faults: +" in said.err
    path.write_text("[[link-down]]\nlink = 'npu0--npu1'\n")
    for command in ("compare", "validate"):
        assert main([command, *how]) == 2
        said = capsys.readouterr()
        assert said.out == "" and len(said.err.splitlines()) == 1 and "nothing repairs it" in said.err


def test_a_training_iteration_says_what_faults_cost(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """--faults of weft train: a line above the table, and the late worker in it."""
    path = plan_file(tmp_path, "[[straggler]]\nnpu = 'npu3'\ndelay = '1ms'\nspeed = 0.5")
    words = ["train", "--topology", "RI(2)_SW(2)", "--workload", "bert-large", "--parallelism", "tp=2", "--samples",
             "64", "--peak", "312", "--efficiency", "0.5", "--pipeline-chunks", "1", "--faults", str(path)]
    assert main(words) == 0
    said = capsys.readouterr().out
    assert "# faults: +" in said and "late worker" in said


def test_commands_that_do_not_follow_faults_say_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A plan in a spec file is not ignored."""
    path, plan = tmp_path / "spec.toml", plan_file(tmp_path, "seed = 1")
    fabric = '[topology]\nspec = "ring:4"\n[collective]\nalgorithms = ["ring"]\n'
    path.write_text(f"{fabric}[model]\nfaults = {json.dumps(str(plan))}\n")
    assert main(["judge", "measured.txt", "--spec", str(path)]) == 2
    assert "weft judge does not use 'faults' of [model]" in capsys.readouterr().err


def test_the_analytic_engine_refuses_faults() -> None:
    """It has no chunks to lose."""
    with pytest.raises(WeftError, match="analytic engine knows no faults"):
        simulate(RING, engine="analytic", faults=FaultPlan())


def test_the_jitter_of_an_npu_that_computes_nothing_is_refused() -> None:
    schedule = ring.all_reduce(ring_fabric(4), "1KiB")
    plan = FaultPlan(faults=(Jitter(npu="npu1", mean="1us"),))
    with pytest.raises(WeftError, match="npu1 computes nothing here"):
        simulate(schedule, faults=plan)


@pytest.mark.parametrize("share", [0.5, 0.25, 0.3])
def test_a_share_of_a_bandwidth_is_rounded_once(share: float) -> None:
    """2 KiB at 300 Gb/s take 54,613 1/3 ps."""
    schedule = ring.all_reduce(ring_fabric(2, bandwidth="300Gb/s", latency="0s"), "8KiB")
    result = simulate(schedule, chunks=1, faults=FaultPlan(faults=(SlowLink(link="*", share=share),)))
    slowed, exact = result.lowered.program, 37_500_000_000 * Fraction(str(share))
    assert slowed.chunk_work.max() == 2048 and slowed.n_rates == 2
    for work, service_ps in zip(slowed.chunk_work.tolist(), slowed.service_ps[1::2].tolist(), strict=True):
        assert service_ps == math.ceil(work * 10**12 / exact)
