"""Every public object prints itself on one line of at most 120 characters, however large it is."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable

import numpy as np
import pytest

import collectives
import sim
import topologies
import workloads
from collectives import swing
from topologies import multidim, torus

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


def measured() -> sim.Measurements:
    return sim.Measurements(LONG, "nccl-tests JSON", ())


EXAMPLES: dict[str, Callable[[], object]] = {
    "topologies.CircuitSwitch": lambda: topologies.CircuitSwitch("10ms"),
    "topologies.Circuits": lambda: topologies.Circuits(64, 2, tuple((a, (a + 1) % 64) for a in range(64))),
    "topologies.Family": lambda: topologies.TOPOLOGIES["torus"],
    "topologies.PatchPanel": topologies.PatchPanel,
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
    "workloads.Trace": lambda: workloads.Trace("1.0.0", (), (LONG,) * 50),  # type: ignore[arg-type]  # never looked at
    "workloads.Training": lambda: workloads.Training(loop="dear", options={LONG: LONG}),
    "workloads.Workload": workload,
    "sim.Bounds": lambda: sim.bounds(result().lowered),
    "sim.Feasible": lambda: sim.Feasible([sim.budget(100, 4, spent=True)], 4),
    "sim.FaultPlan": lambda: sim.FaultPlan(faults=tuple(sim.SlowLink(link=f"npu{n}->npu{n + 1}") for n in range(50))),
    "sim.Jitter": lambda: sim.Jitter(link="*", mean="1us"),
    "sim.Judgment": lambda: sim.Judgment(measured(), FABRIC, (), (LONG,) * 50, None),
    "sim.LinkDown": lambda: sim.LinkDown(link="npu0--npu1"),
    "sim.Loss": lambda: sim.Loss(link="*", probability=0.1),
    "sim.Measurements": measured,
    "sim.Model": lambda: sim.PRESETS["swing-paper"],
    "sim.NodeDown": lambda: sim.NodeDown(node="npu3"),
    "sim.Placed": lambda: sim.Placed(workload(), {"dp": (8, 8)}),
    "sim.Repair": lambda: sim.Repair(link="npu0--npu1"),
    "sim.Result": result,
    "sim.Shares": lambda: sim.share_fabric([sim.Tenant(name="a", work=schedule())]),
    "sim.SlowLink": lambda: sim.SlowLink(link="npu0--npu1", share=0.5),
    "sim.Spec": lambda: sim.Spec.from_dict({"topology": {"spec": "torus:4x4"}, "sweep": {"begin": "1K", "end": "1M"}}),
    "sim.Store": lambda: object.__new__(sim.Store),
    "sim.Straggler": lambda: sim.Straggler(npu="npu3", speed=0.5),
    "sim.Sweep": lambda: sim.make_sweep(
        {"topology": {"spec": ["ring:4", "ring:8"]}, "sweep": {"begin": "1K", "end": "1M"}}, "sweep"
    ),
    "sim.Tally": lambda: sim.Tally(failed={str(n): LONG for n in range(9)}),
    "sim.Tenant": lambda: sim.Tenant(name="a", work=schedule(), npus=tuple(range(64))),
    "sim.Timeline": timeline,
    "sim.Why": lambda: result().why(),
}
"""By package and class: something large of it."""


def public_classes() -> list[str]:
    packages = ("topologies", "collectives", "workloads", "sim")
    found = [(name, one, getattr(importlib.import_module(name), one)) for name in packages
             for one in importlib.import_module(name).__all__]
    return [f"{package}.{name}" for package, name, thing in found if inspect.isclass(thing)
            and not issubclass(thing, BaseException) and not getattr(thing, "_is_protocol", False)]


@pytest.mark.parametrize("name", public_classes())
def test_one_line(name: str) -> None:
    text = repr(EXAMPLES[name]())
    assert text.isprintable() and 0 < len(text) <= 120, text
