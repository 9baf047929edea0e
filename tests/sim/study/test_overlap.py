import os
from contextlib import suppress

import pytest

from collectives import build
from collectives.reconfigured import in_matchings
from sim import simulate
from sim.optimizer.circuits import EVERY_STEP
from sim.program.model import make_model
from sim.study import overlap
from sim.study.overlap import _Steps, divide, divided, overlapped
from sim.study.points import Task, compute, simulate_point, topology_of, what_ran
from sim.study.policies import BEST, policies, switched_rows
from sim.study.spec import Spec
from topologies import WeftError, from_spec
from topologies.core.epochs import packet_links
from workloads.job import Reconfigure

WHOLE = make_model(chunks=1)


def asked(fabric, kind, size, names, **model):
    return Spec.from_dict({
        "topology": {"spec": fabric}, "sweep": {"begin": size, "end": size}, "model": model,
        "collective": {"name": kind, "algorithms": names},
    }).choosing()


def halving(p, planes, megabytes, delay_ms, kind="all-reduce"):
    """On planes of 25 MB per ms, with 0.02 ms for each use: the setting of SWOT."""
    fabric = from_spec(f"ocs:{p}x{planes},per-port,delay={delay_ms}ms", "25GB/s", "20us", 0)
    form = ["bandwidth"] if kind == "all-reduce" else []
    return build("recursive-doubling", kind, fabric, int(megabytes * 1e6), *form)


@pytest.mark.table
@pytest.mark.parametrize(
    ("p", "planes", "megabytes", "delay_ms", "every_ms", "least_ms"),
    [
        (8, 2, 0.5, 2.0, 8.1375, 4.105), (8, 2, 8, 0.2, 1.2, 0.82), (8, 2, 0.5, 0.2, 0.9375, 0.505),
        (8, 3, 0.5, 0.2, 0.93167, 0.155), (8, 4, 8, 2.0, None, 0.52), (8, 2, 512, 0.2, 18.84, None),
        (8, 3, 32, 2.0, 8.86667, None), (16, 4, 8, 2.0, 12.31, None),
        (8, 3, 0.5, 2.0, None, 0.155),  # presolved, the solver meets an error
    ],
)
def test_values_of_swot(p, planes, megabytes, delay_ms, every_ms, least_ms):
    schedule = halving(p, planes, megabytes, delay_ms)
    if every_ms is not None:
        ((_, result),) = switched_rows(schedule, WHOLE, [EVERY_STEP])
        assert result.time_ps / 1e9 == pytest.approx(every_ms, abs=6e-6)
    if least_ms is not None:
        result = simulate(overlapped(schedule, divide(schedule)), model=WHOLE, check=True)
        assert result.time_ps / 1e9 == pytest.approx(least_ms, abs=6e-6)


def test_the_fixture_of_swot():
    schedule = halving(16, 4, 0.125, 0.2, "reduce-scatter")
    division = divide(schedule)
    assert division.switches == 0  # a plane for each step: one shot
    assert simulate(overlapped(schedule, division), model=WHOLE).time_ps / 1e9 == pytest.approx(0.0846875, abs=3e-6)


def test_what_planes_cannot_divide_is_named():
    schedule = build("direct", "all-to-all", from_spec("ocs:4x2,per-port"), "4KiB")
    with pytest.raises(WeftError, match="step 0 of direct is no permutation of equal messages"):
        divide(schedule)
    with pytest.raises(WeftError, match="steps over 4 planes: at most 48 together are divided"):
        divide(build("ring", "all-reduce", from_spec("ocs:16x4,per-port"), "4KiB"))
    with pytest.raises(WeftError, match="step 0 of pairwise leads one way, and a duplex port of a plane both"):
        divide(build("pairwise", "all-to-all", from_spec("ocs:5x2,per-port,duplex"), "4KiB"))


def test_what_a_solver_says_is_no_output_of_the_command(capfd: pytest.CaptureFixture[str]) -> None:
    with overlap._quiet():
        os.write(1, b"HighsMipSolverData")
    os.write(1, b"{}")
    assert capfd.readouterr().out == "{}"


@pytest.mark.parametrize("fabric", ["hybrid:5x2,per-port,delay=0s", "hybrid:7x2,per-port,delay=1.5us"])
def test_planes_switch_circuits_and_leave_the_links_of_a_packet_switch(fabric):
    """With those links in every change, operations of several planes waited for each other in a circle."""
    schedule = build("bine", "broadcast", from_spec(fabric), 123_457, "bandwidth")
    job = overlapped(schedule, divide(schedule))
    stay = packet_links(job.topology)
    changes = [one.work for one in job.operations if isinstance(one.work, Reconfigure)]
    assert changes and stay.any() and not any(stay[[*one.down, *one.up]].any() for one in changes)
    assert simulate(job, chunks=3, check=True).time_ps > 0


@pytest.mark.parametrize("fabric", ["ocs:4x2,per-port,delay=3us", "ocs:5x2,per-port,delay=0s", "ocs:3x2,per-port"])
def test_the_best_division_of_some_schedules_is_that_of_all(fabric):
    names = ("fast", "pairwise", "direct", "bruck")
    schedules = [in_matchings(build(name, "all-to-all", from_spec(fabric), "99KiB")) for name in names]
    times, every = [], []
    for schedule in schedules:
        with suppress(WeftError):
            every.append(divide(schedule))
            times.append(simulate(overlapped(schedule, every[-1]), model=WHOLE).time_ps)
    some = divided(schedules)
    ran = [simulate(overlapped(schedules[at], one), model=WHOLE).time_ps for at, one in some]
    assert min(ran) == min(times) and all(one in every for _, one in some)


def test_steps_on_the_same_circuits_are_left_to_the_schedule_that_has_them_as_one():
    whole = build("pairwise", "all-to-all", from_spec("ocs:4x2,per-port,delay=3us"), "96KiB")
    twice = _Steps((10, 20, 30, 1, 5), (0, 0, 2, 2, 0), 2, 1, 1, 1.0)
    assert twice.joined() == _Steps((30, 31, 5), (0, 1, 0), 2, 1, 1, 1.0)
    assert twice.joined().joined() == twice.joined()
    found = divided([whole, whole])
    assert [at for at, _ in found] == [0, 1] and found[0][1] == found[1][1] == divide(whole)


@pytest.mark.table
@pytest.mark.parametrize(
    ("name", "fabric", "kind", "size", "is_overlapped"),
    [
        ("recursive-doubling", "ocs:8x2,delay=10us", "all-reduce", "1MiB", True),
        ("pairwise", "ocs:4x2,delay=3us", "all-to-all", "8MiB", False),
        ("bine", "ocs:8x2,delay=1us,circuits=rings", "all-to-all", "1MiB", True),
        ("bruck", "hybrid:5x2,delay=1us", "all-to-all", "1MiB", False),
    ],
)
def test_compare_and_reconfigure_find_the_same(name, fabric, kind, size, is_overlapped):
    spec = asked(f"{fabric},per-port", kind, size, [name])
    found = {one.policy: one.result.time_ps for one in policies(spec, [name])[0]}
    task = Task(spec, name, spec.sizes_bytes[0])
    row = compute(task)
    assert round(row["time_s"] * 1e12) == found[BEST]
    assert (row["circuits"] == "overlapped") == is_overlapped == (found[BEST] < min(
        time_ps for policy, time_ps in found.items() if policy not in (BEST, "overlapped")))
    job, model = what_ran(spec, topology_of(spec), row)
    assert simulate(job, model=model, check=True).time_ps == found[BEST] == simulate_point(task).result.time_ps


LOSS = {"timeout": "10us", "seed": 3, "loss": [{"link": "*", "probability": 0.02}]}
SLOW = {"slow-link": [{"link": "npu0->npu1", "share": 0.1}]}
DOWN = {"timeout": "5us", "reroute": "2us", "link-down": [{"link": "npu0--npu1", "at": "3us"}]}
LATE = {"straggler": [{"npu": "npu1", "delay": "7us", "speed": 0.5}]}


@pytest.mark.parametrize(
    ("name", "fabric", "kind", "size", "faults"),
    [
        ("pairwise", "ocs:4x2,delay=1us,single", "all-to-all", "1MiB", DOWN),
        ("bfb", "ocs:6x2,delay=1us,per-port,duplex", "all-gather", "64KiB", LOSS),
        ("direct", "ocs:4x2,delay=1us,single", "all-to-all", "1000003", LOSS),
        ("bfb", "ocs:4x2,delay=1us,single", "all-gather", "1MiB", LATE),
        ("ring", "ocs:5x2,delay=2us,duplex", "all-reduce", "64KiB", SLOW | LATE),
    ],
)
def test_compare_and_reconfigure_find_the_same_with_faults(name, fabric, kind, size, faults):
    spec, healthy = (asked(fabric, kind, size, [name], **more) for more in ({"faults": faults}, {}))
    row, without = (compute(Task(one, name, one.sizes_bytes[0])) for one in (spec, healthy))
    assert round(row["time_s"] * 1e12) == policies(spec, [name])[0][-1].result.time_ps
    assert row["healthy_time_s"] <= without["time_s"]
    job, model = what_ran(spec, topology_of(spec), row)
    assert simulate(job, model=model, faults=spec.build_faults()).time_s == row["time_s"]


def test_with_faults_the_best_of_all_algorithms_is_not_above_that_of_one():
    found = {}
    for names in (["direct"], ["pairwise"], ["pairwise", "direct"]):
        spec = asked("ocs:4x1,delay=1us,per-port", "all-to-all", "1MiB", names, faults=SLOW)
        found[len(names) > 1, names[0]] = policies(spec, names)[0][-1].result.time_ps
    assert found[True, "pairwise"] == min(found.values())
