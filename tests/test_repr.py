"""Every public object prints itself on one line of at most 120 characters, however large it is, and can be pickled."""

from __future__ import annotations

import importlib
import inspect
import pickle
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import collectives
import sim
import topologies
import workloads
from collectives import swing
from tests.test_public_arguments import judged, on_fabric, on_machine
from topologies import multidim, torus
from topologies.text.brief import Registry, Tabular

LONG = "a name of many words, " * 30
FABRIC = torus((8, 8))


def schedule() -> collectives.Schedule:
    return swing.all_reduce(FABRIC, "1MiB")


def result() -> sim.Result:
    return sim.simulate(schedule())


def workload() -> workloads.Workload:
    layer = workloads.Layer(LONG, workloads.Phase(1.0, (workloads.Call("all-reduce", 1e6, "dp"),) * 50))
    return workloads.Workload(LONG, (layer,) * 50)


def timeline() -> sim.Timeline:
    return result().timeline()


def optimum() -> sim.Optimum:
    fabric = multidim("RI(2)_FC(2)")
    objective = sim.collective_objective(fabric, "all-reduce", "hierarchical", "1MiB")
    return sim.optimize(objective, sim.Feasible([sim.budget(100, 2, spent=True)], 2), max_evaluations=4)


def measured() -> sim.Measurements:
    return sim.Measurements(LONG, "nccl-tests JSON", ())


EXAMPLES: dict[str, Callable[[], object]] = {
    "topologies.Family": lambda: topologies.TOPOLOGIES["torus"],
    "topologies.Paths": lambda: FABRIC.paths(np.arange(64), np.arange(64)[::-1]),
    "topologies.ShortestPathRouter": topologies.ShortestPathRouter,
    "topologies.Topology": lambda: multidim("RI(4)_FC(8)_SW(4)"),
    "collectives.Action": lambda: schedule().pattern.groups[0].generators[0],
    "collectives.Algorithm": lambda: collectives.ALGORITHMS["in-network"],
    "collectives.Collective": lambda: collectives.COLLECTIVES["all-to-all"],
    "collectives.Group": lambda: schedule().pattern.groups[0],
    "collectives.Pattern": lambda: schedule().pattern,
    "collectives.Schedule": schedule,
    "collectives.TransferTable": lambda: collectives.TransferTable(np.arange(64)),
    "collectives.Transfers": lambda: schedule().pattern.transfers(),
    "workloads.Accelerator": lambda: workloads.Accelerator(312e12, 0.5),
    "workloads.Call": lambda: workloads.Call("all-reduce", 1e9 / 3, LONG),
    "workloads.Communicate": lambda: workloads.Communicate(schedule()),
    "workloads.Compute": lambda: workloads.Compute(10**9, LONG),
    "workloads.Job": lambda: workloads.training_job(FABRIC, workload(), {"dp": (8, 8)}),
    "workloads.Layer": lambda: workload().layers[0],
    "workloads.NeuralNetwork": lambda: workloads.model("gpt-3"),
    "workloads.NetworkFile": lambda: workloads.NetworkFile(("RI",) * 50, (4,) * 50, ("pod",) * 50),
    "workloads.Operation": lambda: workloads.training_job(FABRIC, workload(), {"dp": (8, 8)}).operations[0],
    "workloads.Operator": lambda: workloads.model("gpt-3").operators[1],
    "workloads.Parallelism": lambda: workloads.Parallelism(tp=8, dp=64, pp=8, ep=4, zero=3),
    "workloads.Phase": lambda: workload().layers[0].forward,
    "workloads.Pipeline": lambda: workloads.Pipeline(order="1f1b", microbatches=8, activation_bytes=10**9),
    "workloads.Prices": lambda: workloads.Prices(1.0, 2.0),
    "workloads.Send": lambda: workloads.Send(10**9, tuple(range(64)), tuple(range(64))),
    "workloads.Trace": lambda: workloads.schedule_to_chakra(schedule())[0],
    "workloads.Training": lambda: workloads.Training(loop="dear", options={"order": LONG}),
    "workloads.Workload": workload,
    "sim.Bounds": lambda: sim.bounds(result().lowered),
    "sim.Feasible": lambda: sim.Feasible([sim.budget(100, 4, spent=True)], 4),
    "sim.FaultPlan": lambda: sim.FaultPlan(faults=tuple(sim.SlowLink(link=f"npu{n}->npu{n + 1}") for n in range(50))),
    "sim.Jitter": lambda: sim.Jitter(link="*", mean="1us"),
    "sim.FabricRun": lambda: replace(on_fabric(), source=LONG),
    "sim.Judgment": lambda: replace(judged(), tables=judged().tables * 50, limit=LONG),
    "sim.LibraryRun": lambda: sim.LibraryRun(**on_machine() | {"source": LONG}),
    "sim.LinkDown": lambda: sim.LinkDown(link="npu0--npu1"),
    "sim.How": lambda: sim.How(check=True, max_events=2),
    "sim.Loss": lambda: sim.Loss(link="*", probability=0.1),
    "sim.Measurements": measured,
    "sim.Model": lambda: sim.PRESETS["swing-paper"],
    "sim.NodeDown": lambda: sim.NodeDown(node="npu3"),
    "sim.Optimum": optimum,
    "sim.Placed": lambda: sim.Placed(workload(), {"dp": (8, 8)}),
    "sim.Repair": lambda: sim.Repair(link="npu0--npu1"),
    "sim.Result": result,
    "sim.Shares": lambda: sim.share_fabric([sim.Tenant(name="a", work=schedule())]),
    "sim.SlowLink": lambda: sim.SlowLink(link="npu0--npu1", share=0.5),
    "sim.Spec": lambda: sim.Spec.from_dict({"topology": {"spec": "torus:4x4"}, "sweep": {"begin": "1K", "end": "1M"}}),
    "sim.Spread": lambda: result().spread(2),
    "sim.Store": lambda: sim.Store(Path(tempfile.mkdtemp()) / "points.db"),
    "sim.Straggler": lambda: sim.Straggler(npu="npu3", speed=0.5),
    "sim.Sweep": lambda: sim.make_sweep(
        {"topology": {"spec": ["ring:4", "ring:8"]}, "sweep": {"begin": "1K", "end": "1M"}}, "sweep"
    ),
    "sim.Tally": lambda: sim.Tally(failed={str(n): LONG for n in range(9)}),
    "sim.Tenant": lambda: sim.Tenant(name="a", work=schedule(), npus=tuple(range(64))),
    "sim.Timeline": timeline,
    "sim.Validation": lambda: sim.validate(result()),
    "sim.Why": lambda: result().why(),
}
"""By package and class: something large of it."""

NOT_PICKLED = ("sim.Store",)
"""An open file."""

RETURNED: dict[str, Callable[[], object]] = {
    "sim.cut_bound": lambda: sim.cut_bound(FABRIC, "all-gather"),
    "sim.roof": lambda: sim.roof(FABRIC, "all-gather"),
    "sim.budget": lambda: sim.budget(100, 4, spent=True),
    "sim.algorithm": lambda: collectives.algorithm("swing"),
}
"""What functions return, of classes that are not public themselves."""

PUBLIC = {
    f"{package}.{name}": getattr(importlib.import_module(package), name)
    for package in ("topologies", "collectives", "workloads", "sim")
    for name in importlib.import_module(package).__all__
}
"""Everything that a package exports, by its name."""


def public_classes() -> list[str]:
    return [name for name, thing in PUBLIC.items() if inspect.isclass(thing)
            and not issubclass(thing, BaseException) and not getattr(thing, "_is_protocol", False)]


def is_brief(thing: object) -> bool:
    text = repr(thing)
    return text.isprintable() and 0 < len(text) <= 120


@pytest.mark.parametrize("name", [*public_classes(), *RETURNED])
def test_one_line_and_pickled(name: str) -> None:
    thing = (EXAMPLES | RETURNED)[name]()
    assert is_brief(thing), repr(thing)
    assert " object at 0x" not in repr(thing)
    if name not in NOT_PICKLED:
        assert type(pickle.loads(pickle.dumps(thing))) is type(thing)


def test_registries_and_constants_take_one_line() -> None:
    things = {name: one for name, one in PUBLIC.items() if not callable(one) and not inspect.ismodule(one)}
    assert {"sim.PRESETS", "workloads.MODELS", "collectives.ALGORITHMS"} < set(things)
    assert [name for name, one in things.items() if not is_brief(one)] == []
    for name, one in things.items():
        assert type(pickle.loads(pickle.dumps(one))) is type(one), name


def test_the_size_of_a_tuple_with_names_is_not_told_as_its_length() -> None:
    told = repr(result().lowered)
    assert "program=Program(...)" in told
    assert " of " not in told, "the number of fields says nothing of how much is in it"
    assert is_brief(optimum().best)


def test_what_has_rows_is_a_frame_of_them() -> None:
    some = [result(), EXAMPLES["sim.Shares"](), EXAMPLES["sim.Optimum"](), EXAMPLES["sim.Validation"]()]
    for one in some:
        assert isinstance(one, Tabular) and len(one.to_frame()) == len(one.rows()) > 0
        assert list(one.to_frame().columns) == list(one.rows()[0])


REGISTRIES = [name for name, thing in PUBLIC.items() if isinstance(thing, Registry)]


@pytest.mark.parametrize("name", REGISTRIES)
def test_a_registry_answers_a_misspelled_name_with_the_nearest(name: str) -> None:
    registry = PUBLIC[name]
    known = next(iter(registry))
    assert registry.get(known + "x") is None
    for kind in (KeyError, topologies.WeftError):
        with pytest.raises(kind, match=f"^no such name among {registry.what}: .* \\(did you mean {known}"):
            registry[known + "x"]
