"""Every flag of a command with every kind of workload: it changes what comes out, or one line refuses it.

A flag at its default is refused where another value of it is.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from sim.cli import main
from sim.cli.commands import COMMANDS
from sim.cli.flags import accepted
from sim.study.keys import flags_of, keys_of
from tests.astra_inputs import SYSTEM, collective_node, compute_node, write_ranks
from tests.sim.cli.test_workload_files import GOAL, HEADER, LAYER
from tests.workloads.formats import test_flexflow, test_flight_recorder, test_kineto
from tests.workloads.formats.test_htsim_cm import CHAIN
from tests.workloads.formats.test_ocs_plan import plan
from workloads.formats.chakra_attributes import Attribute
from workloads.formats.chakra_schema import Node

LAYERS = "DATA\n4\n" + "".join(
    f"l{at} -1 {at + 1}0000 NONE 0 20000 NONE 0 30000 ALLREDUCE {9000000 * at + 9000} 5000\n" for at in range(4))
MEMORY = {"memory-type": "PER_NPU_MEMORY_EXPANSION", "remote-mem-latency": 5, "remote-mem-bw": 50}


def _written(folder: Path, name: str, text: str) -> str:
    (folder / name).write_text(text, encoding="utf-8")
    return str(folder / name)


def _timed(folder: Path) -> str:
    nodes = [compute_node(1, 0), collective_node("all-reduce", 4096, 1, after=[0])]
    return str(write_ranks(folder, [nodes] * 4, "timed"))


def _untimed(folder: Path) -> str:
    """Operations that the NPU or its memory bounds, and an access to memory, which nothing in the trace times."""
    work = [(Attribute("num_ops", many, "int64"), Attribute("tensor_size", 10**6, "int64")) for many in (10**9, 10**12)]
    access = Node(2, "load", "memory load", (1,), attributes=(Attribute("tensor_size", 4096, "int64"),))
    nodes = [Node(0, "gemm", "compute", attributes=work[0]), Node(3, "gemm", "compute", attributes=work[1]),
             collective_node("all-reduce", 4096, 1, after=[0], group="1")]
    return str(write_ranks(folder, [[*nodes, access]] * 4, "untimed"))


def _dumps(folder: Path) -> str:
    return test_flight_recorder.write(folder, [test_flight_recorder.dump([
        test_flight_recorder.entry("all_reduce", 1, 5, (2**20,))])] * 4)


def _profiles(folder: Path) -> str:
    events = [test_kineto.kernel(1, 0, 0, 100), test_kineto.kernel(2, 1, 102, 150, 20, **test_kineto.said("allreduce"))]
    return test_kineto.write(folder, *[events] * 2)


SOURCES: dict[str, tuple[str, Callable[[Path], list[str]]]] = {
    "layers": ("ring:4", lambda at: [_written(at, "layers.txt", LAYERS)]),
    "SimAI": ("SW(2)_SW(2)", lambda at: [_written(at, "simai.txt", f"{HEADER.format(1, 1, 0)}\n1\n{LAYER}\n")]),
    "model": ("ring:4", lambda at: ["resnet-50", "--samples", "32", "--peak", "100", "--efficiency", "0.5"]),
    "Chakra": ("ring:4", lambda at: [_timed(at)]),
    "Chakra, untimed": ("ring:4", lambda at: [
        _untimed(at), "--peak", "9", "--memory-bandwidth", "1GB/s", "--comm-group",
        _written(at, "g.json", '{"1": [0, 1, 2, 3]}'), "--remote-memory",
        _written(at, "m.json", json.dumps({**MEMORY, "remote-mem-latency": 10**9}))]),
    "GOAL": ("switch:2", lambda at: [_written(at, "a.goal", GOAL)]),
    "flight recorder": ("ring:4", lambda at: [_dumps(at)]),
    "Kineto": ("ring:2", lambda at: [_profiles(at)]),
    "task graph": ("ring:4", lambda at: [str(test_flexflow.written(at, test_flexflow.TASKS, flat=False))]),
    "connection matrix": ("ring:4", lambda at: [_written(at, "c.cm", CHAIN)]),
    "plan of circuits": ("ocs:4x2,delay=10ns", lambda at: [_written(at, "p.json", json.dumps(plan()))]),
}

OTHERS = {
    "workload.parallelism": "tp=2,dp=2", "workload.samples": "7", "workload.peak": "33", "workload.efficiency": "0.25",
    "workload.memory_bandwidth": "2GB/s", "workload.npu_bandwidth": "10GB/s", "workload.repeat": "2",
    "workload.compute_scale": "2", "workload.groups": "forward=2;input_grad=2;weight_grad=2",
    "training.loop": "no-overlap", "training.bucket": "off", "training.pipeline_chunks": "2",
    "training.active_chunks": "2", "training.microbatches": "2", "training.activation": "1KiB",
    "training.pipeline_order": "gpipe", "collective.name": "all-gather", "collective.algorithms": "swing",
    "collective.form": "latency", "collective.options": "trees=2", "collective.root": "1", "library.name": "nccl",
    "collective.element_bytes": "8", "sweep.begin": "1M", "sweep.end": "2M", "sweep.factor": "4", "sweep.step": "1K",
    "library.algorithms": "Ring", "library.protocols": "Simple", "library.gpus_per_process": "2",
    "account.spread": "2",
}
"""Values of keys that are not their defaults; of other keys "2", or nothing where they are switches."""

DEFAULTS = {
    "workload.repeat": "1", "workload.compute_scale": "1", "training.loop": "wfbp", "training.bucket": "25MiB",
    "training.pipeline_chunks": "16", "training.active_chunks": "1", "training.pipeline_order": "1f1b",
    "collective.name": "all-reduce", "collective.element_bytes": "4", "sweep.begin": "32M", "sweep.factor": "2",
    "library.gpus_per_process": "1", "iteration.micro_batch": "1", "iteration.tp": "1", "iteration.zero": "1",
    "iteration.schedule": "1f1b", "iteration.recompute": "none",
}

OF_LAYERS = {"training.in_order", "training.first_layers_first", "training.bucket"}
"""Keys that are used by every loop of layers, and that may change nothing where gradients are as they are."""


@cache
def _flags(command: str) -> tuple[tuple[str, str, str | None], ...]:
    """Keys that are no fabric, no model and no name of a workload, with their flag and a value."""
    found = []
    for section, names in accepted(COMMANDS[command]).items():
        for name in names if section not in ("topology", "model") else ():
            key, one = f"{section}.{name}", keys_of(section)[name]
            if key in ("workload.name", "workload.job", "iteration.model"):
                continue
            value = None if one.metadata["kind"] == "flag" else OTHERS.get(key, "2")
            found.append((key, flags_of(one)[0], value))
    return tuple(found)


def _plain(value: Any) -> Any:
    """Without what differs from run to run."""
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items() if key not in ("wall_s", "spec", "seconds", "command")}
    return [_plain(one) for one in value] if isinstance(value, list) else value


def _run(words: list[str], capsys: pytest.CaptureFixture[str]) -> Any:
    """What comes out; None of what is refused, in one line."""
    try:
        code = main([*words, "--json", "-"])
    except SystemExit as end:
        code = end.code
    found = capsys.readouterr()
    assert code in (0, 2), found.err
    if code == 2:
        refused = [line for line in found.err.splitlines() if not line.startswith("# note: ")]
        assert (found.out, len(refused)) == ("", 1)
        return None
    return _plain(json.loads(found.out))["rows"]


@pytest.mark.table
@pytest.mark.parametrize("command", ["trace", "train", "compare"])
@pytest.mark.parametrize("source", SOURCES)
def test_a_flag_is_used_or_refused(
    source: str, command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fabric, written = SOURCES[source]
    words = [command, "--topology", fabric, "--workload", *written(tmp_path)]
    words += ["--algorithms", "ring"] if command == "compare" else []
    base = _run(words, capsys)
    if base is None:
        assert command == "compare" and source in ("GOAL", "connection matrix", "plan of circuits")
        return
    files = {"workload.system": SYSTEM | {"peak-perf": 900}, "workload.remote_memory": MEMORY,
             "workload.communicator": {"1": [0, 2], "2": [1, 3]}}
    for key, flag, value in _flags(command):
        if command == "compare" and key == "collective.algorithms":
            continue
        if key in files:
            value = _written(tmp_path, f"{key}.json", json.dumps(files[key]))
        found = _run([*words, flag, *([] if value is None else [value])], capsys)
        assert found is None or found != base or (source in ("layers", "SimAI", "model") and key in OF_LAYERS), (
            f"{flag} {value} changes nothing")
        if key in DEFAULTS:
            usual = _run([*words, flag, DEFAULTS[key]], capsys)
            assert (usual is None) == (found is None), f"{flag} {DEFAULTS[key]}"
            assert usual in (None, base)


def _times(source: str, flags: dict[str, str], folder: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """Of a workload by every command; None where one refuses it."""
    fabric, written = SOURCES[source]
    name, *words = written(folder)
    keys = {flag[2:].replace("-", "_"): value for flag, value in zip(words[::2], words[1::2], strict=True)}
    model = [word for pair in flags.items() for word in pair]
    by = [] if source in ("GOAL", "connection matrix", "plan of circuits") else ["ring"]
    calls = {
        "trace": ["--workload", name, *words, *(["--algorithm", *by] if by else [])],
        "train": ["--workload", name, *words, *(["--algorithm", *by] if by else [])],
        "share": ["--tenant", " ".join([f"workload={name}", *(f"{key}={value}" for key, value in keys.items()),
                                        *(f"algorithm={one}" for one in by)])],
        **({"compare": ["--workload", name, *words, "--algorithms", *by]} if by else {}),
    }
    found = {}
    for command, more in calls.items():
        rows = _run([command, "--topology", fabric, *model, *more], capsys)
        found[command] = rows and rows[0]["alone_s" if command == "share" else "time_s"]
    own = {**keys, "name": name}
    number = ("peak", "samples", "efficiency")
    sections = {
        "topology": {"spec": fabric}, "workload": {**own}, "collective": {"algorithms": by} if by else {},
        "model": {flag[2:].replace("-", "_"): value for flag, value in flags.items()},
    }
    text = "".join(f"[{section}]\n" + "".join(
        f"{key} = {value if key in number or key == 'chunks' else json.dumps(value)}\n" for key, value in some.items())
        for section, some in sections.items() if some)
    path = _written(folder, "sweep.toml", text)
    code = main(["sweep", path, "--store", str(folder / f"{'-'.join(flags)}.db"), "--json", "-"])
    said = capsys.readouterr()
    found["sweep"] = json.loads(said.out)["rows"][0]["time_s"] if code == 0 else None
    return found


@pytest.mark.table
@pytest.mark.parametrize("flags", [{}, {"--chunks": "4"}, {"--nic": "shared"}, {"--preset": "swing-paper"},
                                   {"--symmetry": "off"}, {"--endpoint-latency": "1us"}, {"--vcs": "0"}])
@pytest.mark.parametrize("source", SOURCES)
def test_a_workload_takes_one_time_in_every_command(
    source: str, flags: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert len(set(_times(source, flags, tmp_path, capsys).values())) == 1


def test_keys_of_workloads_that_optimize_has_no_use_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """At their defaults too; and what optimize takes of a file is what train takes."""
    words = ["optimize", "--network", "SW(2)_SW(2)", "--budget", "100GB/s", "--evaluations", "20"]
    of_layers = ["--workload", _written(tmp_path, "simai.txt", f"{HEADER.format(1, 1, 0)}\n1\n{LAYER}\n")]
    for flags in ("--checkpointed", "--samples 7", "--peak 312", "--efficiency 0.75", "--loop no-overlap", "--weight 1",
                  "--compute-scale 1", "--microbatches 2", "--activation 1KiB", "--pipeline-order 1f1b"):
        assert _run([*words, "--collective", "all-reduce", *flags.split()], capsys) is None, flags
    for flags in ("--samples 7", "--peak 312", "--efficiency 0.75", "--activation 1KiB", "--pipeline-order 1f1b"):
        assert _run([*words, *of_layers, *flags.split()], capsys) is None, flags
    row = _run([*words, *of_layers], capsys)[0]
    split = ",".join(f"{rate}GB/s" for rate in row["bandwidth_GBps"])
    trained = _run(["train", "--topology", "SW(2)_SW(2)", *of_layers, "--loop", "no-overlap", "--npu-bandwidth", split],
                   capsys)
    assert trained[0]["time_s"] == pytest.approx(row["time_s"], rel=1e-6)
    for source in ("Chakra", "GOAL", "Kineto"):
        assert main([*words, "--workload", SOURCES[source][1](tmp_path)[0]]) == 2
        assert "weft train times it on a given network" in capsys.readouterr().err
    assert main(["validate", "--topology", "ring:4", "--algorithms", "ring", "--placement", "out-of-place"]) == 2
    assert "--placement out-of-place is of --measured FILE: omit it" in capsys.readouterr().err


@pytest.mark.parametrize("source", ["Chakra", "GOAL", "flight recorder", "task graph", "connection matrix"])
def test_tenants_and_sweeps_refuse_the_same(source: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Keys of a loop, at their defaults too."""
    fabric, written = SOURCES[source]
    name = written(tmp_path)[0]
    for key, value in {"loop": '"wfbp"', "repeat": 1, "microbatches": 2}.items():
        assert main(["share", "--topology", fabric, "--tenant", f"job={name} {key}={str(value).strip(chr(34))}"]) == 2
        assert f"has no use for {'' if source in ('Chakra', 'flight recorder') else 'a '}" in capsys.readouterr().err
        section = "workload" if key == "repeat" else "training"
        keys = {"workload": f'job = "{name}"\n', "training": ""}
        keys[section] += f"{key} = {value}\n"
        text = "".join(f"[{one}]\n{lines}" for one, lines in {"topology": f'spec = "{fabric}"\n', **keys}.items())
        path = _written(tmp_path, "sweep.toml", text)
        main(["sweep", path, "--store", str(tmp_path / f"{key}.db")])
        assert "has no use for" in "".join(capsys.readouterr())


def test_a_job_on_a_part_of_a_fabric(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """On NPUs of a switch as on one with so many; two jobs that share no port do not meet."""

    def alone(fabric: str, *tenants: str) -> list[list[float]]:
        words = [word for tenant in tenants for word in ("--tenant", tenant)]
        assert main(["share", "--topology", fabric, *words, "--json", "-"]) == 0
        rows = json.loads(capsys.readouterr().out)["rows"]
        return [[row["alone_s"], row["time_s"]] for row in rows]

    for source in ("Chakra", "flight recorder", "connection matrix"):
        name = SOURCES[source][1](tmp_path)[0]
        whole = alone("switch:4", f"job={name}")
        both = alone("switch:9", f"job={name} npus=8,1,6,3", f"job={name} npus=0,2,4,5")
        assert both == whole * 2, source
    layers = SOURCES["layers"][1](tmp_path)[0]
    whole = alone("switch:4", f"workload={layers} algorithm=ring")
    assert alone("switch:7", f"workload={layers} npus=0,1,5,6") == whole
    for tenant, message in ((f"job={name} npus=0-2", "is no flow between two of the 3 NPUs"),
                            (f"workload={layers} npus=0-3 active_chunks=2", "a part of 4 NPUs is none"),
                            (f"job={SOURCES['plan of circuits'][1](tmp_path)[0]} npus=0-3", "not a part of 4 NPUs")):
        assert main(["share", "--topology", "switch:8", "--tenant", tenant]) == 2
        assert message in capsys.readouterr().err
