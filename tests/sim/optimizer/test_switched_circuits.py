"""Splits of a budget where a policy switches circuits: each takes what `compare` and `train` have at its rates."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from collectives import build
from sim import simulate
from sim.cli import main
from sim.optimizer.cuts import floor_of
from sim.optimizer.programs import collective_objective, iteration_objective
from sim.optimizer.retime import links_per_npu, with_bandwidths
from sim.program.model import Model
from sim.why.spread import spread
from tests.sim.optimizer.test_pipeline_designs import Call, Layer, Phase, Placed, Workload
from topologies import from_spec
from workloads.training import Training, training_job

COLLECTIVES = [
    ("ocs:5x2,policy=demand", "all-reduce", "ring", "3", "1000003B"),
    ("ocs:7x3,policy=provisioned,delay=1.5us", "all-to-all", "direct", "1", "70001B"),
    ("ocs:4x2,policy=demand,duplex,per-port,circuits=2x2", "all-reduce", "hierarchical", "2", "90001B"),
    ("ocs:2x1,policy=demand", "all-gather", "ring", "1", "17B"),
    ("ocs:8x2,policy=demand,delay=100ns,single", "all-reduce", "recursive-doubling", "1", "1MiB"),
    ("patch-panel:5x2,look-ahead,policy=demand", "all-reduce", "swing", "1", "1234567B"),
    ("hybrid:7x2,policy=demand,delay=1us", "all-reduce", "direct", "2", "700001B"),
    ("hybrid:3x1,policy=provisioned,delay=3us", "all-reduce", "recursive-doubling", "1", "1234567B"),
    ("rails:3x4,policy=demand,delay=3us", "all-gather", "direct", "2", "1234567B"),
    ("rails:2x2x1,policy=provisioned,paid", "reduce-scatter", "direct", "1", "12345B"),
]
MODEL = ["--model", "gpt-1.7b", "--device", "h100", "--tp", "2", "--sequence", "64", "--global-batch", "6"]
FABRICS = ["hybrid:6x2,policy=demand,delay=1us", "rails:3x2,policy=provisioned,delay=1us", "ocs:6x2,policy=demand"]
LAYERS = (
    "DATA\n2\na -1 4000 NONE 0 4000 NONE 0 4000 ALLREDUCE 167773 10\n"
    "b -1 20000 NONE 0 9 NONE 0 7 ALLREDUCE 838861 1\n"
)


def rows(capsys: Any, *words: str) -> list[dict[str, Any]]:
    assert main([*words, "--json", "-", "--quiet"]) == 0
    found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["rows"]
    return found


def designed(capsys: Any, fabric: str, *words: str) -> tuple[dict[str, Any], list[str]]:
    """The simulated split, and flags of a fabric whose links have its rates."""
    (row,) = rows(capsys, "optimize", "--topology", fabric, "--budget", "97.3GB/s", *words)
    split = row["splits"][-1]
    *packets, circuits = split["bandwidth_GBps"]
    ports = links_per_npu(from_spec(fabric))[-1]
    rates = ",".join(f"{rate:.17g}GB/s" for rate in (*packets, circuits / ports))
    return split, ["--topology", fabric, "--link-bandwidth", rates]


def _shares(split: dict[str, Any]) -> str:
    return ",".join(f"{share!r}GB/s" for share in split["bandwidth_GBps"])


@pytest.mark.table
@pytest.mark.parametrize(("fabric", "kind", "algorithm", "chunks", "size"), COLLECTIVES)
def test_a_collective_takes_what_compare_has_there(
    fabric: str, kind: str, algorithm: str, chunks: str, size: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--collective", kind, "--algorithms", algorithm, "--chunks", chunks, "-b", size]
    split, there = designed(capsys, fabric, *words, "--evaluations", "30")
    own = ["--chunks", chunks] if algorithm != "hierarchical" else ["--chunks", "1", "--option", "pipeline_chunks=2"]
    (row,) = rows(capsys, "compare", *there, *words[:4], *own, *words[6:])
    assert split["simulated_s"] == pytest.approx(row["time_s"], rel=1e-12)


@pytest.mark.table
@pytest.mark.parametrize("fabric", FABRICS)
def test_an_iteration_of_a_model_takes_what_train_has_there(fabric: str, capsys: pytest.CaptureFixture[str]) -> None:
    split, there = designed(capsys, fabric, *MODEL, "--evaluations", "20")
    (row,) = rows(capsys, "train", *there, *MODEL)
    assert split["simulated_s"] == pytest.approx(row["time_s"], rel=1e-12)
    (same,) = rows(capsys, "train", "--topology", fabric, "--npu-bandwidth", _shares(split), *MODEL)
    assert same["time_s"] == row["time_s"]


@pytest.mark.table
@pytest.mark.parametrize("loop", ["no-overlap", "wfbp"])
@pytest.mark.parametrize("fabric", [*(one.replace("6x2", "7x2") for one in FABRICS), "rails:3x2", "leaf-spine:2x3x2",
                                    "ocs:6x5,circuits=2x3,policy=demand"])
def test_layers_take_what_train_has_there(
    fabric: str, loop: str, capsys: pytest.CaptureFixture[str], tmp_path: Any
) -> None:
    file = tmp_path / "layers.txt"
    file.write_text(LAYERS, encoding="utf-8")
    words = ["--workload", str(file), "--loop", loop]
    split, _ = designed(capsys, fabric, *words, "--evaluations", "20", "--check")
    there = ["--topology", fabric, "--npu-bandwidth", _shares(split)]
    each = rows(capsys, "train", *there, *words, *["--bucket", "off"] * (loop == "no-overlap"))  # NPU that is unlike
    assert split["simulated_s"] == pytest.approx(max(row["time_s"] for row in each), rel=1e-12)


def test_the_answer_is_no_worse_than_a_grid_and_no_point_below_the_bound(capsys: pytest.CaptureFixture[str]) -> None:
    fabric = "rails:3x2,policy=demand,delay=300ns"
    words = ["--collective", "all-to-all", "--algorithms", "direct", "--chunks", "1", "-b", "123457B"]
    (row,) = rows(capsys, "optimize", "--topology", fabric, "--budget", "60GB/s", *words)
    of = collective_objective(from_spec(fabric), "all-to-all", "direct", 123457, model=Model(chunks=1), most_GBps=60.0)
    floor = floor_of(of)
    for first in np.geomspace(0.1, 59.9, 25):
        split = np.array([first, 60.0 - first])
        assert floor.time_ns(split) <= of.time_ns(split) and row["lower_bound_s"] * 1e9 <= of.time_ns(split)
        assert row["time_s"] * 1e9 <= 1.001 * of.time_ns(split)
    assert row["circuits"] in ("circuits stay", "circuits=own", "planned")


def test_an_iteration_is_one_job_whose_circuits_the_policy_switches() -> None:
    """Forward collectives that run twice, too; the range is that of the quickest plan."""
    layers = tuple(Layer(f"l{k}", Phase(9e3, (Call("all-gather", 3e4 + k, "dp"),)), Phase(7e3), Phase(5e3, (
        Call("reduce-scatter", 1e5, "dp"),))) for k in range(2))
    one, fabric = Placed(Workload("w", layers), {"dp": (5,)}), from_spec("hybrid:5x2,policy=provisioned,delay=2us")
    training, split = Training(loop="no-overlap", bucket_bytes=None), np.array([3.0, 40.0])
    times = []
    for checkpointed in (False, True):
        of = iteration_objective(fabric, [one], training, checkpointed=checkpointed)
        times.append(of.evaluate(split).time_ns)
    result = simulate(training_job(with_bandwidths(fabric, split), one.workload, one.groups, training), chunks=1)
    assert times[0] * 1e3 == pytest.approx(result.time_ps)
    assert times[1] > times[0]
    of = iteration_objective(fabric, [one], training)
    assert of.spread(split).times_ps == spread(result.job, model=Model(chunks=1)).times_ps


def test_slopes_are_differences() -> None:
    fabric = from_spec("hybrid:4x1,policy=demand,delay=500ns")
    of = collective_objective(fabric, "all-reduce", "ring", "1MiB", model=Model(chunks=2))
    for split in (np.array([30.0, 31.0]), np.array([3.0, 71.0])):
        found, rest = of.evaluate(split), 1e-3 * split
        assert found.time_ns == of.time_ns(split)
        for dim, unit in enumerate(np.eye(2)):
            slope = (of.time_ns(split + rest * unit) - of.time_ns(split - rest * unit)) / (2 * rest[dim])
            assert found.slope_ns[dim] == pytest.approx(slope, rel=0.01, abs=0.01)


def test_at_no_bandwidths_is_a_policy_slower_than_circuits_that_stay() -> None:
    stays, switched = (from_spec(f"hybrid:5x2,delay=200ns{more}") for more in ("", ",policy=demand"))
    of = collective_objective(switched, "all-to-all", "direct", 50_001, model=Model(chunks=1))
    for split in ((10.0, 10.0), (1.0, 99.0), (80.0, 0.5)):
        static = simulate(build("direct", "all-to-all", with_bandwidths(stays, split), 50_001), chunks=1)
        assert of.time_ns(np.array(split)) * 1e3 <= static.time_ps + 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--topology", "rotor:4x1,policy=demand"], "option 'policy=demand' is unknown"),
        (["--topology", "pod:4x4x4,policy=demand"], "option 'policy=demand' is unknown"),
        (["--topology", "ocs:4x2,policy=often"], "policy of circuits 'often' is unknown"),
        (["--topology", "ring:4,policy=demand"], "ring"),
        (["--topology", "ocs:4x2,circuits=2x2,policy=demand", "--objective", "time-cost"], "has no price list"),
    ],
)
def test_what_no_policy_can_do_is_one_line(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["optimize", *words, "--collective", "all-reduce", "--budget", "9GB/s"]) == 2
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1
