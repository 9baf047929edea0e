"""Plans of circuits: what is written is read back and takes as long; each line that is wrong is named."""

import json

import pytest

from collectives import build
from collectives.formats.ocs_plan import to_ocs_plan
from sim import simulate
from sim.cli import main
from sim.optimizer.circuits import EVERY_STEP, planned
from sim.program.model import Model
from topologies import WeftError, from_spec
from workloads.formats.ocs_plan import open_ocs_plan
from workloads.job import Reconfigure, Send

WHOLE = Model(chunks=1)


@pytest.mark.table
@pytest.mark.parametrize("ports", ["1", "2", "3", "2,duplex", "3,duplex"])
@pytest.mark.parametrize("more", ["", ",paid", ",delay=0ns"])
@pytest.mark.parametrize(("name", "kind"), [("recursive-doubling", "reduce-scatter"), ("pairwise", "all-to-all")])
def test_a_plan_that_is_read_again_takes_as_long(ports, more, name, kind, tmp_path):
    """Steps that each wait for circuits of their own: nothing else holds them up."""
    fabric = from_spec(f"ocs:8x{ports}{more}")
    schedule = planned(build(name, kind, fabric, "192KiB"), WHOLE, policy=EVERY_STEP)
    path = tmp_path / "plan.json"
    path.write_text(to_ocs_plan(schedule), encoding="utf-8")
    job = open_ocs_plan(path, fabric)
    assert simulate(job, model=WHOLE, check=True).time_ps == simulate(schedule, model=WHOLE).time_ps
    t = schedule.pattern.transfers()
    sent = [sum(one.work.size_bytes) for one in job.operations if isinstance(one.work, Send)]
    assert sorted(sent) == sorted((t.blocks[t.src != t.dst] * schedule.block_bytes).tolist())


def test_stripes_may_be_of_any_size_that_a_collective_has(tmp_path):
    """Above 2^31 bytes: blocks of 5.33 GiB, on two planes."""
    fabric = from_spec("ocs:3x2")
    schedule = planned(build("pairwise", "all-to-all", fabric, "16GiB"), WHOLE, policy=EVERY_STEP)
    path = tmp_path / "plan.json"
    path.write_text(to_ocs_plan(schedule), encoding="utf-8")
    assert simulate(open_ocs_plan(path, fabric), model=WHOLE).time_ps == simulate(schedule, model=WHOLE).time_ps


def circuit(flow, plane, size, src=0, dst=1):
    return {"source": src, "destination": dst, "bytes": size, "flow_uid": flow, "stripe_uid": f"{flow}.{plane}"}


def plan():
    """Two rounds of two planes; A has stripes on both, B follows on the first, which alone changes."""
    return {
        "format": "panel-ocs-plan", "version": 6, "endpoints": 4, "planes": 2, "reconfiguration_ns": 10.0,
        "rounds": [
            {"index": 0, "synchronize": False, "configurations": [
                {"plane": 0, "stream": 7, "matching": [[0, 1], [2, 3]], "circuits": [circuit("A", 0, 5000)]},
                {"plane": 1, "stream": 7, "matching": [[0, 1]], "circuits": [circuit("A", 1, 1000)]}]},
            {"index": 1, "synchronize": False, "configurations": [
                {"plane": 0, "stream": 7, "matching": [[1, 2]], "circuits": [circuit("B", 0, 5000, 1, 2)]},
                {"plane": 1, "stream": 7, "matching": [[0, 1]], "circuits": [circuit("C", 1, 1000)]}]},
        ],
        "assignments": [
            {"flow_uid": flow, "source": src, "destination": dst, "tag": 7, "stream": 7, "logical_bytes": sum(sizes),
             "round": at, "route": "OCS",
             "stripes": [{"stripe_uid": f"{flow}.{plane}", "plane": plane, "bytes": size}
                         for plane, size in enumerate(sizes, first)]}
            for flow, src, dst, at, first, sizes in (("A", 0, 1, 0, 0, [5000, 1000]), ("B", 1, 2, 1, 0, [5000]),
                                                      ("C", 0, 1, 1, 1, [1000]))
        ],
    }


def circuits_of(data):
    return data["rounds"][0]["configurations"][0]["circuits"]


def opened(tmp_path, data, fabric="ocs:4x2,delay=10ns"):
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(data), encoding="utf-8")
    return open_ocs_plan(path, from_spec(fabric, "8Gb/s", "1us", 0))


@pytest.mark.parametrize(("synchronize", "paid", "force", "ns"), [
    (False, False, False, 12_010), (False, True, False, 12_020), (True, False, True, 12_010)])
def test_planes_change_when_they_are_idle(synchronize, paid, force, ns, tmp_path):
    data = plan() | {"initial_reconfiguration": paid}
    data["rounds"][1]["synchronize"] = synchronize
    data["rounds"][1]["configurations"][1]["force_reconfiguration"] = force
    job = opened(tmp_path, data)
    result = simulate(job, chunks=1, check=True)
    assert result.time_ps == ns * 1000
    assert sum(isinstance(one.work, Reconfigure) for one in job.operations) == 1 + 2 * paid + force


@pytest.mark.parametrize(("change", "said"), [
    (lambda one: one.update(version=5), "version 5: version 6 of 'panel-ocs-plan' is read"),
    (lambda one: one.update(endpoints=5), "--topology ocs:5x2,delay=10ns, not ocs:4x2"),
    (lambda one: one.update(reconfiguration_ns=11), "has a delay of 11ns, ocs:4x2,delay=10ns 10ns"),
    (lambda one: one.update(rounds=7), "rounds is no list of objects"),
    (lambda one: one["rounds"][0]["configurations"][0].update(matching=[[0, 1, 2]]), "no pair of servers"),
    (lambda one: one["rounds"][0]["configurations"][0].update(matching=[[0, 0]]),
     "plane 0, round 0: circuit 0-0: its ends are two different"),
    *((lambda one, what=what: one["rounds"][0]["configurations"][1].update(matching=what),
       "the matching of plane 1, round 0, is") for what in (8, 0, None, "x", {})),
    (lambda one: one["rounds"][0]["configurations"][0].update(matching=[[0, 1], [0, 2]]),
     "plan.json: plane 0, round 0: server 0 has 2 outgoing"),
    (lambda one: one["rounds"][0]["configurations"][1].update(plane=0), "round 0 has plane 0 twice"),
    (lambda one: one["assignments"][0].update(route="DIRECT"), "goes by DIRECT"),
    (lambda one: one["assignments"][0].update(logical_bytes=1), "its stripes are not its 1 bytes"),
    (lambda one: one["assignments"][0].update(round=1), "no circuit of round 1 carries its stripe 'A.0'"),
    (lambda one: one["assignments"][0].update(destination=3), "has destination 1; it is 3 elsewhere"),
    (lambda one: [some.update(matching=[[0, 3]]) for some in one["rounds"][0]["configurations"]], "no route"),
    (lambda one: one["assignments"].pop(), "no flow has stripe 'C.1'"),
    (lambda one: one["assignments"].append(one["assignments"][0]), "flow 'A' is there twice"),
    (lambda one: one["assignments"][0].pop("flow_uid"), "a flow of assignments has no flow_uid"),
    (lambda one: one["rounds"][1].update(index=0), "round 1 has index 0; it is 1 elsewhere"),
    (lambda one: circuits_of(one).append(circuits_of(one)[0]), "stripe 'A.0' crosses plane 0 of round 0 twice"),
    (lambda one: circuits_of(one)[0].update(source=2), "the circuit of stripe 'A.0' has source 2; it is 0 elsewhere"),
    (lambda one: circuits_of(one)[0].update(destination=3), "has destination 3; it is 1 elsewhere"),
    (lambda one: circuits_of(one)[0].update(flow_uid="B"), "has flow_uid 'B'; it is 'A' elsewhere"),
    (lambda one: circuits_of(one)[0].update(bytes=1), "has bytes 1; it is 5000 elsewhere"),
    (lambda one: circuits_of(one)[0].update(plane=1), "stripe 'A.0' has plane 1; it is 0 elsewhere"),
    (lambda one: one.update(initial_reconfiguration="false"), "initial_reconfiguration"),
    (lambda one: one["rounds"][1].update(synchronize=1), "synchronize"),
    (lambda one: one["rounds"][0]["configurations"][0]["matching"].append([0, 1]),
     "plan.json: plane 0, round 0: server 0 has 2 outgoing"),
    (lambda one: one["rounds"][0]["configurations"][0]["matching"].append([1, 1]), "1"),
])
def test_what_is_wrong_is_named(change, said, tmp_path):
    data = plan()
    change(data)
    with pytest.raises(WeftError, match=said):
        opened(tmp_path, data)


@pytest.mark.parametrize("fabric", ["rotor:4x2,delay=10ns", "rails:2x2x2,delay=10ns"])
def test_circuits_that_a_fabric_cannot_make_are_refused(fabric, tmp_path):
    with pytest.raises(WeftError, match=f"--topology ocs:4x2,delay=10ns, not {fabric}"):
        opened(tmp_path, plan(), fabric)


@pytest.mark.parametrize("servers", [4, 5, 7])
@pytest.mark.parametrize("ports", [2, 4])
def test_duplex_circuits_are_both_ways_on_one_plane(servers, ports, tmp_path):
    """A plane leaves out one of an odd number of servers, each of which has a circuit on all."""
    fabric = from_spec(f"ocs:{servers}x{ports},duplex,circuits=rings")
    schedule = build("ring", "all-reduce", fabric, "1KiB")
    if servers % 2:
        with pytest.raises(WeftError, match=f"no matchings of {ports} planes were found that have all duplex circuits"):
            to_ocs_plan(schedule)
        return
    (one,) = json.loads(to_ocs_plan(schedule))["rounds"]
    planes = [{(a, b) for a, b in some["matching"]} for some in one["configurations"]]
    assert all({(b, a) for a, b in some} == some and len({a for a, _ in some}) == len(some) for some in planes)
    rate = fabric.optics.rate_Bps
    assert sum(map(len, planes)) == round(sum(fabric.bandwidth_Bps) / rate)


def test_a_plan_that_leads_one_way_is_not_of_duplex_circuits(tmp_path):
    with pytest.raises(WeftError, match="plane 0, round 0, has a circuit from 0 to 1 and none back: those of ocs:4x2"):
        opened(tmp_path, plan(), "ocs:4x2,duplex,delay=10ns")


def test_what_a_plan_cannot_hold_is_named():
    for fabric, why in (("torus:4", "the fabric has none"), ("ocs:8x2,per-port", "and per-port ones change one by one"),
                        ("hybrid:8x2", "nothing beside circuits"), ("rails:4x2x2", "joins any two servers")):
        with pytest.raises(WeftError, match=why):
            to_ocs_plan(build("bucket", "all-reduce", from_spec(fabric), "1KiB"))
    with pytest.raises(WeftError, match="takes 2 circuits, a flow of a plan one"):
        to_ocs_plan(build("direct", "all-to-all", from_spec("ocs:8x2"), "1KiB"))


def test_commands_write_and_read_plans(tmp_path, capsys):
    path = str(tmp_path / "plan.json")
    assert main(["schedule", "--topology", "ocs:8x2", "--algorithm", "swing", "--form", "bandwidth", "-b", "64K",
                 "--ocs-plan", path]) == 0
    assert main(["train", "--topology", "ocs:8x2,delay=10us", "--workload", path]) == 0
    assert "operations of a plan of circuits" in capsys.readouterr().out
