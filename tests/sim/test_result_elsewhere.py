"""A result in a notebook, in a data frame, and in another process."""

from __future__ import annotations

import copy
import pickle
import xml.etree.ElementTree as ElementTree

from collectives import build
from sim import FaultPlan, Result, SlowLink, simulate, to_frame
from topologies import multidim, torus
from workloads import Call, Layer, Phase, Workload, training_job

FABRIC = torus((4, 4))


def results() -> list[Result]:
    swing = build("swing", "all-reduce", FABRIC, "64KiB")
    slow = FaultPlan(faults=(SlowLink(link="npu0--npu1", share=0.5),))
    return [simulate(swing), simulate(swing, faults=slow), simulate(swing, engine="analytic")]


def test_results_come_back_with_their_rows_and_critical_paths() -> None:
    for result in results():
        for back in (pickle.loads(pickle.dumps(result)), copy.deepcopy(result)):
            assert back.row() == result.row()
            assert back.why() == result.why()
            assert str(back) == str(result)


def test_a_schedule_that_comes_back_takes_the_same_time() -> None:
    schedule = build("pipelined", "all-reduce", FABRIC, "64KiB")
    rows = [simulate(one).row() | {"wall_s": 0.0} for one in (schedule, pickle.loads(pickle.dumps(schedule)))]
    assert rows[0] == rows[1]


def test_a_timeline_that_comes_back_has_its_names() -> None:
    network = multidim("RI(2)_FC(2)")
    layers = Workload("two", (Layer("a", Phase(1e-6, (Call("all-reduce", 1e6, "dp"),))),) * 2)
    for work in (build("swing", "all-reduce", FABRIC, "64KiB"), training_job(network, layers, {"dp": (2, 2)})):
        timeline = simulate(work).timeline()
        back = pickle.loads(pickle.dumps(timeline))
        tasks = range(timeline.program.n_tasks)
        assert [back.task_name(task) for task in tasks] == [timeline.task_name(task) for task in tasks]
        assert [back.task_facts(task) for task in tasks] == [timeline.task_facts(task) for task in tasks]


def test_a_result_shows_its_row() -> None:
    for result in results():
        table = ElementTree.fromstring(result._repr_html_())
        shown = {row[0].text: row[1].text for row in table.findall("tr")}
        assert shown["algorithm"] == "swing" and shown["npus"] == "16"


def test_results_are_frames_of_their_rows() -> None:
    some = results()
    assert some[0].to_frame()["time_s"].tolist() == [some[0].time_s]
    frame = to_frame([one.row() for one in some])
    assert frame["time_s"].tolist() == [one.time_s for one in some]
    assert frame["faults"].notna().tolist() == [False, True, False]
