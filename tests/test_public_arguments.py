"""Every argument of every public callable meets values that it was not made for: a result, or one line of WeftError.

The table below has valid arguments for whatever the four packages export; a new export without an entry fails here. One
argument at a time is replaced. What an annotation says is read here by itself, without the code under test: an argument
that is an integer and nothing else must reject 1.5, True, nan and whatever does not fit into 64 bits, so that nothing
is cut in silence.
"""

from __future__ import annotations

import inspect
import math
import types
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from functools import cache, partial
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import numpy as np
import pytest

import collectives
import sim
import topologies
import workloads
from collectives.registry import ALGORITHMS
from sim.measured.fabric_run import curve
from topologies import WeftError
from workloads.models.model import Operator

HOSTILE = {
    "None": None, "text": "x", "nan": math.nan, "inf": math.inf, "-1": -1, "0": 0, "1.5": 1.5, "True": True,
    "2**63": 2**63, "2**70": 2**70, "[]": [], "object": object(),
}
OSU = "# OSU MPI Allgather Latency Test v7.4\n# Size       Avg Latency(us)\n1   2.81\n"
NOT_CALLED = {"NPU", "OCS", "REDUCER", "SWITCH", "Router", "Groups"}
"""Numbers, a protocol and an alias of a type."""

Arguments = dict[str, Any]


def parts(thing: Any) -> Arguments:
    """What a dataclass or a named tuple was made of."""
    if is_dataclass(thing):
        return {one.name: getattr(thing, one.name) for one in fields(thing) if one.init}
    return dict(thing._asdict())


@cache
def torus() -> topologies.Topology:
    return topologies.torus((2, 2))


@cache
def ring_schedule() -> collectives.Schedule:
    return collectives.swing.all_reduce(torus(), 4096)


def job() -> workloads.Job:
    made = workloads.Job(torus())
    made.compute("first", 1000)
    return made


@cache
def result() -> sim.Result:
    return sim.simulate(ring_schedule(), chunks=1, log=True)


@cache
def workload() -> workloads.Workload:
    phase = workloads.Phase(1e3, (workloads.Call("all-reduce", 4096.0, "dp"),))
    return workloads.Workload("tiny", (workloads.Layer("one", phase, phase, phase),))


GROUPS = {"dp": (2, 2)}
STAGES = {"dp": (1, 2), "pp": (2, 1)}


@cache
def pipelined_workload() -> workloads.Workload:
    return workloads.Workload("two", workload().layers * 2)


@cache
def measured() -> sim.Measurements:
    from sim.measured.points import Point

    points = tuple(Point(size, 1e-5 + size / 1e9) for size in (1024, 4096, 16384, 65536, 262144))
    return sim.Measurements("here", "table", points, 0, "all-reduce", 4)


@cache
def curves() -> tuple[Any, ...]:
    spec = sim.Spec.from_dict({"topology": {"spec": "torus:2x2"}, "collective": {"name": "all-reduce"}})
    return (curve(spec, torus(), "swing", sorted({one.size_bytes for one in measured().points})),)


@cache
def on_fabric() -> sim.FabricRun:
    return sim.FabricRun("here", torus(), "all-reduce", curves(), measured().points)


@cache
def judged() -> sim.Judgment:
    return sim.judge([on_fabric()])


def on_machine() -> dict[str, Any]:
    from sim.library.tuner import Setting
    from topologies.machines.profile import machine

    setting = Setting(machine=machine("dgx-h100"), nodes=1, gpus=8, collective="all-reduce")
    return {"source": "here", "setting": setting, "points": measured().points}


def sweep_data() -> Arguments:
    return {
        "topology": {"spec": "torus:2x2"},
        "collective": {"name": "all-reduce", "algorithms": ["swing"]}, "sweep": {"begin": "1K"},
    }


@cache
def sweep() -> sim.Sweep:
    return sim.make_sweep(sweep_data())


def store(folder: Any) -> sim.Store:
    return sim.Store(folder / "store")


def feasible() -> sim.Feasible:
    return sim.Feasible([sim.budget(100.0, 2, spent=True)], 2)


@cache
def objective() -> Any:
    return sim.collective_objective(torus(), "all-reduce", "swing", 4096, model=sim.Model(chunks=1))


@cache
def optimum() -> Any:
    return sim.optimize(objective(), feasible(), max_evaluations=2)


def link() -> Arguments:
    return {"bandwidth": "1GB/s", "latency": "1ns", "hop_latency": "1ns"}


def file(folder: Any, name: str, text: str) -> Arguments:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return {"path": path}


def graph_file(folder: Any) -> Arguments:
    path = folder / "fabric.json"
    topologies.write_topology(torus(), path)
    return {"path": path}


VALID: Mapping[str, Callable[[Any], Arguments]] = {
    "topologies.Family": lambda at: parts(topologies.TOPOLOGIES["torus"]),
    "topologies.Paths": lambda at: parts(torus().paths(np.array([0]), np.array([1]))),
    "topologies.ShortestPathRouter": lambda at: {},
    "topologies.Topology": lambda at: parts(torus()),
    "topologies.bisection_Bps": lambda at: {"topology": torus()},
    "topologies.bytes_per_s": lambda at: {"rate_Bps": 1.0},
    "topologies.circulant": lambda at: {"n": 5, "jumps": (1, 2), "duplex": True, "connected": True} | link(),
    "topologies.dgx1": lambda at: {"boxes": 1} | link(),
    "topologies.dgx_a100": lambda at: {"boxes": 1} | link(),
    "topologies.dgx_h100": lambda at: {"boxes": 1} | link(),
    "topologies.dragonfly": lambda at: {"groups": 3, "routers": 2, "hosts": 1} | link(),
    "topologies.egress_Bps": lambda at: {"topology": torus()},
    "topologies.fat_tree": lambda at: {"k": 4, "hosts": 1} | link(),
    "topologies.from_links": lambda at: {
        "links": [(0, 1, "1GB/s", "1ns"), (1, 0, "1GB/s", 0)], "n_npus": 2, "hop_latency": "1ns", "name": "two"},
    "topologies.from_networkx": lambda at: {"graph": topologies.to_networkx(torus()), "name": "graph"},
    "topologies.from_spec": lambda at: {
        "spec": "hx2mesh:2x2", "trace_latency": "1ns", "switch_latency": "1ns", "boxes": None, "nvlink": None} | link(),
    "topologies.fully_connected": lambda at: {"n": 3} | link(),
    "topologies.hamming_mesh": lambda at: {"board": (2, 2), "boards": (2, 2)} | link(),
    "topologies.hypercube": lambda at: {"dimensions": 2} | link(),
    "topologies.hyperx": lambda at: {"shape": (2, 3)} | link(),
    "topologies.ingress_Bps": lambda at: {"topology": torus()},
    "topologies.leaf_spine": lambda at: {"hosts": 2, "leaves": 2, "spines": 1} | link(),
    "topologies.link_loads": lambda at: {
        "topology": torus(), "src": np.array([0]), "dst": np.array([1]), "size_bytes": 8, "tie": "first", "seed": 0},
    "topologies.mesh": lambda at: {"shape": (2, 3)} | link(),
    "topologies.mi250": lambda at: {"boxes": 1} | link(),
    "topologies.multidim": lambda at: {"spec": "RI(2)_SW(2)"} | link(),
    "topologies.optical": lambda at: {
        "n": 4, "interfaces": 2, "pairs": ((0, 1), (1, 2), (2, 3), (3, 0)), "duplex": True, "name": "light"} | link(),
    "topologies.random_regular": lambda at: {"n": 6, "degree": 3, "seed": 1} | link(),
    "topologies.read_topology": graph_file,
    "topologies.ring": lambda at: {"n": 3} | link(),
    "topologies.seconds": lambda at: {"time_s": 1.0},
    "topologies.select_permutations": lambda at: {
        "n": 12, "degree": 2, "candidates": [1, 5, 7, 11], "rule": "paper", "duplex": False, "dedupe": False},
    "topologies.switch": lambda at: {"n": 3} | link(),
    "topologies.to_networkx": lambda at: {"topology": torus()},
    "topologies.torus": lambda at: {"shape": (2, 2)} | link(),
    "topologies.totient_perms": lambda at: {"n": 12, "k": 2},
    "topologies.twisted_torus": lambda at: {"shape": (2, 2, 4)} | link(),
    "topologies.with_reduction_units": lambda at: {
        "topology": topologies.switch(2), "rate": "1GB/s", "per": "switch", "latency": "1ns", "nodes": None},
    "topologies.write_topology": lambda at: {"topology": torus(), "path": at / "written.json"},
    "collectives.Action": lambda at: parts(ring_schedule().pattern.groups[0].generators[0]),
    "collectives.Algorithm": lambda at: parts(ALGORITHMS["swing"]),
    "collectives.Collective": lambda at: parts(collectives.COLLECTIVES["broadcast"]),
    "collectives.Group": lambda at: parts(ring_schedule().pattern.groups[0]),
    "collectives.Pattern": lambda at: parts(ring_schedule().pattern),
    "collectives.Schedule": lambda at: parts(ring_schedule()),
    "collectives.TransferTable": lambda at: {"ranks": np.arange(4)},
    "collectives.Transfers": lambda at: parts(ring_schedule().pattern.transfers()),
    "collectives.algorithm": lambda at: {"name": "ring"},
    "collectives.algorithms_for": lambda at: {"kind": "all-reduce"},
    "collectives.build": lambda at: {
        "name": "swing", "kind": "all-reduce", "topology": torus(), "size": 4096, "form": "latency"},
    "collectives.from_steps": lambda at: {
        "topology": topologies.ring(2), "kind": "all-gather", "steps": [[(0, 1, [0]), (1, 0, [1])]], "size": 8,
        "name": "mine", "root": 0, "element_bytes": 4},
    "collectives.prove": lambda at: {
        "kind": ring_schedule().kind, "p": 4, "n_blocks": ring_schedule().pattern.n_blocks, "root": 0,
        "transfers": ring_schedule().pattern.transfers(), "blocks_of": ring_schedule().pattern.blocks_of},
    "collectives.schedule": lambda at: {"pattern": ring_schedule().pattern, "size": 4096, "element_bytes": 4},
    "workloads.Accelerator": lambda at: {"peak_flops": 1e12, "efficiency": 0.5},
    "workloads.Call": lambda at: {"kind": "all-reduce", "size_bytes": 8.0, "group": "dp"},
    "workloads.Communicate": lambda at: {"schedule": ring_schedule()},
    "workloads.Compute": lambda at: {"duration_ps": 8, "stream": "compute"},
    "workloads.Job": lambda at: parts(job()),
    "workloads.Job.of": lambda at: {"schedule": ring_schedule()},
    "workloads.Job.compute": lambda at: {
        "self": job(), "name": "c", "duration_ps": 8, "kind": "k", "stream": "s", "npus": [0], "after": [0],
        "priority": 1},
    "workloads.Job.collective": lambda at: {
        "self": job(), "name": "c", "schedule": ring_schedule(), "kind": "k", "npus": None, "after": [0],
        "priority": 1, "turn": 1},
    "workloads.Job.send": lambda at: {
        "self": job(), "name": "c", "size_bytes": [8], "src": [0], "dst": [1], "kind": "k", "after": [0],
        "priority": 1, "via": [[int(torus().link_ids(np.array([0]), np.array([1]))[0])]], "laps": 1,
        "detached": False},
    "workloads.Job.reconfigure": lambda at: {
        "self": job(), "name": "c", "delay": "1us", "down": [0], "up": [1], "kind": "k", "controller": "o",
        "after": [0], "drain": True},
    "workloads.Job.ranks": lambda at: {"self": job(), "operation": job().operations[0]},
    "workloads.Layer": lambda at: parts(workload().layers[0]),
    "workloads.NeuralNetwork": lambda at: parts(workloads.model("ncf")),
    "workloads.NetworkFile": lambda at: {"blocks": ("Ring",), "extents": (4,), "tiers": ("Chiplet",)},
    "workloads.Operation": lambda at: parts(job().operations[0]),
    "workloads.Operator": lambda at: parts(Operator("one", 8, 16.0, 4.0, 4.0)),
    "workloads.Parallelism": lambda at: {"tp": 2, "dp": 2, "pp": 1, "ep": 1, "zero": 1},
    "workloads.Phase": lambda at: parts(workload().layers[0].forward),
    "workloads.Pipeline": lambda at: {"group": "pp", "microbatches": 2, "activation_bytes": 8, "order": "gpipe"},
    "workloads.Prices": lambda at: {"link": 1.0, "switch": 1.0, "nic": 1.0, "npu": 1.0},
    "workloads.Send": lambda at: {
        "size_bytes": (8,), "src": (0,), "dst": (1,), "via": ((0,),), "laps": 1, "detached": False},
    "workloads.Trace": lambda at: parts(workloads.schedule_to_chakra(ring_schedule())[0]),
    "workloads.Training": lambda at: parts(workloads.Training()),
    "workloads.Workload": lambda at: parts(workload()),
    "workloads.ideal_bubble": lambda at: {"n_stages": 2, "microbatches": 4},
    "workloads.model": lambda at: {"name": "ncf"},
    "workloads.parse_goal": lambda at: {"text": "num_ranks 4\nrank 0 {\n}\n", "topology": torus(), "name": "g"},
    "workloads.parse_parallelism": lambda at: {"text": "tp=2", "n_npus": 4},
    "workloads.pipeline_job": lambda at: {
        "topology": torus(), "workload": pipelined_workload(), "groups": STAGES,
        "pipeline": workloads.Pipeline(microbatches=2, activation_bytes=8), "training": workloads.Training()},
    "workloads.read_chakra": lambda at: chakra(at) | {"topology": torus(), "algorithms": "ring", "groups": None},
    "workloads.read_comm_groups": lambda at: file(at, "groups.json", '{"1": [0, 1]}') | {"n_npus": 4},
    "workloads.read_communicator": lambda at: file(
        at, "c.yml", "Forward: [2, -1]\nInputGrad: [2, -1]\nWeightGrad: [-1, 2]\n") | {"extents": (2, 2)},
    "workloads.read_goal": lambda at: file(at, "one.goal", "num_ranks 4\nrank 0 {\n}\n") | {"topology": torus()},
    "workloads.read_network": lambda at: file(
        at, "n.yml", "Topology: [ Ring ]\nNpusCount: [ 4 ]\nCostDimension: [ A ]\n"),
    "workloads.read_prices": lambda at: file(at, "p.yml", "Pod:\n  Link: 7.8\n"),
    "workloads.read_text_workload": lambda at: file(
        at, "w.txt", "DATA\n1\nQ -1 9 NONE 0 9 ALLREDUCE 8 9 ALLGATHER 4 1\n"),
    "workloads.read_trace": lambda at: {"path": chakra(at)["prefix"].with_name("of.0.et")},
    "workloads.schedule_to_chakra": lambda at: {"schedule": ring_schedule(), "version": "0.0.4"},
    "workloads.schedule_to_goal": lambda at: {"schedule": ring_schedule(), "chunks": 1},
    "workloads.training_job": lambda at: {
        "topology": torus(), "workload": workload(), "groups": GROUPS, "training": workloads.Training()},
    "workloads.training_workload": lambda at: {
        "model": workloads.model("ncf"), "parallelism": workloads.Parallelism(dp=4),
        "accelerator": workloads.Accelerator(1e12, 0.5), "samples": 8.0, "bundled": False,
        "gather_checkpoints": False},
    "workloads.write_trace": lambda at: {"trace": workloads.schedule_to_chakra(ring_schedule())[0]},
    "sim.Bounds": lambda at: parts(sim.bounds(result().lowered)),
    "sim.FaultPlan": lambda at: {
        "faults": (sim.LinkDown(link="npu0->npu1"),), "in_flight": "lost", "timeout": "1us", "retry": "source",
        "reroute": "1us", "seed": 1},
    "sim.Feasible": lambda at: {"constraints": [sim.budget(100.0, 2, spent=True)], "n_dims": 2},
    "sim.Jitter": lambda at: {"mean": "1us", "link": "*", "npu": None, "distribution": "uniform"},
    "sim.FabricRun": lambda at: {
        "source": "here", "topology": torus(), "kind": "all-reduce", "curves": curves(), "points": measured().points,
        "known": (), "reducing_switches": False},
    "sim.How": lambda at: parts(sim.How()),
    "sim.Judgment": lambda at: parts(judged()),
    "sim.LibraryRun": lambda at: on_machine(),
    "sim.LinkDown": lambda at: {"link": "*", "at": "1us"},
    "sim.Loss": lambda at: {"link": "*", "probability": 0.5},
    "sim.Measurements": lambda at: parts(measured()),
    "sim.Model": lambda at: parts(sim.Model()),
    "sim.NodeDown": lambda at: {"node": "npu0", "at": "1us"},
    "sim.Placed": lambda at: {"workload": workload(), "groups": GROUPS, "weight": 1.0, "pipeline": None},
    "sim.Repair": lambda at: {"link": "*", "node": None, "at": "1us"},
    "sim.Result": lambda at: parts(result()),
    "sim.Shares": lambda at: parts(sim.share_fabric([sim.Tenant(name="a", work=ring_schedule())])),
    "sim.SlowLink": lambda at: {"link": "*", "at": "1us", "share": 0.5, "latency": "1us"},
    "sim.Spec": lambda at: parts(sim.Spec()),
    "sim.Store": lambda at: {"path": at / "made", "read_only": False},
    "sim.Straggler": lambda at: {"npu": "npu0", "delay": "1us", "speed": 0.5},
    "sim.Sweep": lambda at: parts(sweep()),
    "sim.Tally": lambda at: parts(sim.Tally()),
    "sim.Tenant": lambda at: {"name": "a", "work": ring_schedule(), "arrival": "1us", "priority": 1, "npus": None},
    "sim.Timeline": lambda at: parts(result().timeline()),
    "sim.Why": lambda at: parts(result().why()),
    "sim.Optimum": lambda at: parts(optimum()),
    "sim.Validation": lambda at: parts(sim.validate(result())),
    "sim.validate": lambda at: {"result": result()},
    "sim.Spread": lambda at: {"time_ps": 8, "times_ps": (8, 9)},
    "sim.spread": lambda at: {
        "work": ring_schedule(), "n": 1, "model": sim.Model(chunks=1), "seed": 1, "symmetry": "auto", "progress": None},
    "sim.bounds": lambda at: {"lowered": result().lowered},
    "sim.budget": lambda at: {"total_GBps": 100.0, "n_dims": 2, "spent": True},
    "sim.collective_objective": lambda at: {
        "topology": torus(), "collective": "all-reduce", "algorithm": "swing", "size": 4096, "model": sim.Model(),
        "symmetry": "auto"},
    "sim.cut_bound": lambda at: {
        "topology": torus(), "collective": "broadcast", "root": 1, "reducing_switches": False},
    "sim.export": lambda at: {"rows": [{"a": 1}], "path": at / "rows.csv"},
    "sim.iteration_objective": lambda at: {
        "topology": torus(), "placed": [sim.Placed(workload(), GROUPS)], "training": workloads.Training(),
        "checkpointed": False, "model": sim.Model(chunks=1), "symmetry": "auto", "how": sim.How()},
    "sim.judge": lambda at: {"runs": [on_fabric()]},
    "sim.link_load": lambda at: {"lowered": result().lowered, "outcome": result().outcome, "frames": 3},
    "sim.make_sweep": lambda at: {
        "data": sweep_data(), "where": "here", "check": False, "why": None, "max_events": None},
    "sim.optimize": lambda at: {
        "objective": objective(), "feasible": feasible(), "cost": None, "starts": (), "tolerance": 0.1,
        "max_evaluations": 4},
    "sim.read_measurements": lambda at: file(at, "m.txt", OSU) | {
        "collective": None, "n_ranks": 4, "placement": "out-of-place"},
    "sim.read_sweep": lambda at: file(
        at, "s.toml", '[topology]\nspec = "torus:2x2"\n[collective]\nname = "all-reduce"\n') | {
        "check": False, "why": None, "max_events": None},
    "sim.roof": lambda at: {
        "topology": torus(), "kind": "broadcast", "root": 1, "endpoint_latency_ps": 1, "reducing_switches": False},
    "sim.run_sweep": lambda at: {
        "points": sweep().points, "store": at / "swept", "executor": None, "workers": 1, "in_flight": None,
        "done": lambda task, point: None, "progress": None},
    "sim.share_fabric": lambda at: {
        "tenants": [sim.Tenant(name="a", work=ring_schedule())], "model": sim.Model(chunks=1), "engine": "chunk",
        "symmetry": "auto", "check": False, "faults": None, "done": lambda what, time_ps: None},
    "sim.simulate": lambda at: {
        "work": ring_schedule(), "model": sim.Model(chunks=1), "forwarding": "cut-through", "deliver": "tail",
        "chunk": None, "chunks": 1, "header": "8B", "packet_header": "8B", "endpoint_latency": "1ns", "tie": "first",
        "discipline": "fifo", "seed": 1, "nic": "shared", "injection_rate": "1Tb/s", "ejection_rate": "1Tb/s",
        "nic_engines": 1, "post_time": "1ns", "push_time": "1ns", "nic_queue": "1MiB", "nic_order": "fifo",
        "send_complete": "pushed", "rank_progress": "free", "engine": "chunk", "symmetry": "off",
        "buffer": "1GiB", "credit_latency": "1us", "vcs": 1, "bubble": False,
        "check": False, "log": False, "progress": None, "max_events": 1000, "faults": None},
    "sim.sweep_rows": lambda at: {"sweep": sweep(), "store": store(at)},
    "sim.to_frame": lambda at: {"rows": [{"a": 1}]},
    "sim.write_perfetto": lambda at: {"timeline": result().timeline(), "path": at / "t.json"},
}


def chakra(folder: Any) -> Arguments:
    for rank, trace in enumerate(workloads.schedule_to_chakra(ring_schedule())):
        (folder / f"of.{rank}.et").write_bytes(workloads.write_trace(trace))
    return {"prefix": folder / "of"}


def public() -> dict[str, Callable[..., Any]]:
    """What the packages export and can be called, the ways to add to a job, and every algorithm."""
    found: dict[str, Callable[..., Any]] = {}
    for package in (topologies, collectives, workloads, sim):
        for name in package.__all__:
            one = getattr(package, name)
            error = inspect.isclass(one) and issubclass(one, BaseException)
            if callable(one) and name not in NOT_CALLED and not error:
                found[f"{package.__name__}.{name}"] = one
    for name in vars(workloads.Job):
        if not name.startswith("_") and callable(getattr(workloads.Job, name)):
            found[f"workloads.Job.{name}"] = getattr(workloads.Job, name)
    for algorithm in ALGORITHMS.values():
        for kind, function in algorithm.functions.items():
            found[f"{algorithm.name} {kind}"] = function
    return found


def arguments(name: str, call: Callable[..., Any], folder: Any) -> Arguments:
    if name in VALID:
        return VALID[name](folder)
    valid: Arguments = {"topology": topologies.ring(4) if name.startswith("ring ") else torus(), "size": 4096}
    return valid | {
        one.name: one.default for one in inspect.signature(call).parameters.values()
        if one.name not in valid and one.default is not one.empty
    }


def members(hint: Any) -> set[Any]:
    """Plain types that an annotation is the union of."""
    if get_origin(hint) is Annotated:
        return members(get_args(hint)[0])
    if get_origin(hint) in (Union, types.UnionType):
        return set().union(*map(members, get_args(hint)))
    return {hint}


def must_fail(hint: Any, value: object) -> bool:
    """Whether an annotation of plain types alone excludes a value."""
    plain = members(hint)
    if not plain <= {int, float, str, bool, type(None)}:
        return False
    if type(value) is int:
        return not ((int in plain and abs(value) < 2**63) or float in plain)
    return type(value) not in plain or (isinstance(value, float) and not math.isfinite(value))


def hints_of(call: Callable[..., Any]) -> dict[str, Any]:
    plain = call.func if isinstance(call, partial) else call
    try:
        return get_type_hints(plain, include_extras=True)
    except NameError:  # of what is imported for types alone
        return {}


@pytest.mark.parametrize("name", public())
def test_every_argument_of_every_public_callable_meets_hostile_values(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    call = public()[name]
    hints, wrong = hints_of(call), []
    call(**arguments(name, call, tmp_path))  # without a hostile value there is a result
    for parameter in inspect.signature(call).parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD) or parameter.name == "self":
            continue
        for called, value in HOSTILE.items():
            given = arguments(name, call, tmp_path) | {parameter.name: value}
            try:
                call(**given)
            except WeftError as error:
                if not str(error) or "\n" in str(error):
                    wrong.append(f"{parameter.name}={called}: not one line")
            except Exception as error:
                wrong.append(f"{parameter.name}={called}: {type(error).__name__}: {error}")
            else:
                if must_fail(hints.get(parameter.name, Any), value):
                    wrong.append(f"{parameter.name}={called}: accepted")
    assert wrong == []


@pytest.mark.parametrize("name", public())
def test_every_public_callable_names_what_it_does_not_take_and_what_it_lacks(name, tmp_path):
    call = public()[name]
    parameters = inspect.signature(call).parameters.values()
    given = arguments(name, call, tmp_path)
    if not any(one.kind is one.VAR_KEYWORD for one in parameters):  # algorithms say which options they have
        with pytest.raises(WeftError, match="has no argument 'apples': it takes"):
            call(**given, apples=1)
    needed = [
        one.name for one in parameters
        if one.default is one.empty and one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)
    ]
    if needed and needed != ["self"]:
        own = {"self": given["self"]} if "self" in given else {}
        with pytest.raises(WeftError, match=f"needs {', '.join(one for one in needed if one != 'self')}: it takes"):
            call(**own)


def test_the_table_names_nothing_that_is_not_public():
    assert set(VALID) <= set(public())


@pytest.mark.parametrize(
    ("made", "text", "number"),
    [
        (lambda value: workloads.Accelerator(value, 0.5), "312TFLOPS", 312e12),
        (lambda value: workloads.Accelerator(value, 0.5), "312 TFLOP/s", 312e12),
        (lambda value: workloads.Accelerator(1e12, 0.5, value), "2TB/s", 2e12),
        (lambda value: sim.budget(value, 2, spent=True), "800Gb/s", 100.0),
        (lambda value: workloads.Training(bucket_bytes=value), "25MiB", 25 * 2**20),
        (lambda value: workloads.Pipeline(microbatches=2, activation_bytes=value), "1KiB", 1024),
        (lambda value: sim.Model(chunks=None, chunk_bytes=value), "8KiB", 8192),
        (lambda value: sim.Model(header_bytes=value, packet_header_bytes=value), "40B", 40),
        (lambda value: sim.Model(endpoint_latency_ps=value), "1.5us", 1_500_000),
    ],
)  # fmt: skip
def test_where_the_name_says_the_unit_text_may_say_it_as_well(made, text, number):
    assert made(text) == made(number)
    # a bare number of bytes is a size
    for wrong in ("312 apples", "", *["312"] * (not text.endswith("B"))):
        with pytest.raises(WeftError, match=f"'{wrong}'"):
            made(wrong)


def test_operations_of_a_job_take_text_with_units():
    texts, numbers = workloads.Job(torus()), workloads.Job(torus())
    for made, duration, size in ((texts, "1us", "8KiB"), (numbers, 10**6, 8192)):
        made.compute("first", duration)
        made.send("second", size, [0, 1], [1, 2])
    assert texts.operations == numbers.operations
