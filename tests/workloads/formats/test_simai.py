"""SimAI's text workloads: the keys of the first line, and the groups of experts."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from docs.producers import absent_of
from sim.cli import main
from sim.study.jobs import build_workload
from sim.study.keys import TrainingKeys, WorkloadKeys
from topologies import WeftError, from_spec
from topologies.text.schema import Absent
from workloads import Call, Workload, read_text_workload
from workloads.formats import simai

KEYS = (
    "model_parallel_NPU_group: 8 ep: 4 pp: 1 vpp: 1 ga: 2 all_gpus: 64 checkpoints: 0 checkpoint_initiates: 0 "
    "pp_comm: 0"
)
HEADER = f"HYBRID_TRANSFORMER_FWD_IN_BCKWD {KEYS}"
ROW = "moe -1 500 ALLTOALL_EP 4096 600 ALLREDUCE 8192 700 REDUCESCATTER_DP_EP 1024 10"


def read(folder: Path, header: str, row: str = ROW) -> Workload:
    path = folder / "simai.txt"
    path.write_text(f"{header}\n1\n{row}\n", encoding="utf-8")
    return read_text_workload(path)


def test_groups_of_types_and_suffixes(tmp_path: Path) -> None:
    """A bare type runs in the group of its phase, a suffix names another."""
    found = read(tmp_path, HEADER)
    (layer,) = found.layers
    assert layer.forward.calls == (Call("all-to-all", 4096.0, "ep"),)
    assert layer.input_grad.calls == (Call("all-reduce", 8192.0, "input_grad"),)
    assert layer.weight_grad.calls == (Call("reduce-scatter", 1024.0, "dp_ep"),)
    assert (layer.forward.compute_ns, layer.update_ns) == (500.0, 10.0)
    assert dict(found.header)["all_gpus"] == 64


def test_the_last_bottom_layer_of_a_dlrm(tmp_path: Path) -> None:
    """With its key, or bare."""
    row = ROW.replace("_DP_EP", "").replace("_EP", "")
    for words in ("DLRM_LAST_BOTTOM_LAYER: 7", "7"):
        assert read(tmp_path, f"HYBRID_DLRM {words}", row).header == (("DLRM_LAST_BOTTOM_LAYER", 7),)


def test_a_key_without_a_colon(tmp_path: Path) -> None:
    assert read(tmp_path, HEADER.replace("pp_comm:", "pp_comm")).header == read(tmp_path, HEADER).header


@pytest.mark.parametrize(
    ("header", "row", "message"),
    [
        (HEADER + " tp: 8", ROW, "line 1: unknown key 'tp'; accepted are model_parallel_NPU_group"),
        (HEADER + " ep: 4", ROW, "line 1: key 'ep' is given twice"),
        (HEADER.replace("ga: 2", "ga: two"), ROW, "line 1: ga is 'two': an integer is expected"),
        (HEADER + " DLRM_LAST_BOTTOM_LAYER:", ROW, "DLRM_LAST_BOTTOM_LAYER is ''"),
        (HEADER.replace("pp: 1", "pp: 3", 1), ROW, "experts of 4 and 3 stages do not divide"),
        (HEADER.replace("checkpoints: 0", "checkpoints: 2 0 1"), ROW, "SimAI takes the first of several checkpoints"),
        (HEADER.replace("checkpoints: 0", "checkpoints: 2 0"), ROW, "one of 2 checkpoints is 'checkpoint_initiates:'"),
        (HEADER.replace("ep: 4", "ep: 0"), ROW, "ep is 0: at least 1"),
        (HEADER.replace("64", "60"), ROW, "all_gpus is 60, which groups of 8"),
        (HEADER, ROW.replace("ALLTOALL_EP", "ALLREDUCEALLTOALL"), "forward collective 'ALLREDUCEALLTOALL' is unknown"),
        (HEADER, ROW.replace("ALLTOALL_EP", "ALLTOALL_TP"), "forward collective 'ALLTOALL_TP' is unknown"),
        ("HYBRID_TRANSFORMER", ROW, "forward collective 'ALLTOALL_EP' is unknown"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, header: str, row: str, message: str) -> None:
    with pytest.raises(WeftError, match=r"simai\.txt") as wrong:
        read(tmp_path, header, row)
    assert message in str(wrong.value)


@pytest.mark.parametrize("row", absent_of("SimAI and AICB"), ids=lambda row: row.name)
def test_absent_equals_explicit(row: Absent, tmp_path: Path) -> None:
    """Groups, sizes and layers of a file without the key are those with what stands for it."""
    topology = from_spec("SW(8)_SW(8)")
    value = str(topology.n_npus) if row.name == simai.EVERYONE else row.value
    words = HEADER.replace("ep: 4", "ep: 1").replace("ga: 2", "ga: 1")
    explicit = re.sub(rf"\b{row.name}: \d+", f"{row.name}: {value}", words)
    absent = re.sub(rf"\b{row.name}: \d+ ?", "", words)
    assert explicit != absent and row.name in explicit
    found = []
    for header in (explicit, absent):
        read(tmp_path, header, ROW.replace("ALLTOALL_EP", "ALLGATHER").replace("_DP_EP", ""))
        work = WorkloadKeys(name=str(tmp_path / "simai.txt"))
        workload, groups = build_workload(work, TrainingKeys(), topology)
        found.append((workload.layers, groups))
    assert found[0] == found[1]


MICRO = "micro_test\t-1\t1\tNONE\t0\t1\tNONE\t0\t1\tALLGATHER\t8192\t1"
MEGATRON = "HYBRID_TRANSFORMER_FWD_IN_BCKWD\tmodel_parallel_NPU_group: 8 checkpoints: 0 checkpoint_initiates: 0"


@pytest.mark.parametrize(("header", "row", "size"), [
    ("MICRO", MICRO, 8192 / 64),
    ("MICRO", MICRO.replace("micro_test", "mine"), 8192),  # of ASTRA-sim 1.0: a shard
    (MEGATRON, MICRO.replace("micro_test", "grad_norm"), 8192 / 8),
    (MEGATRON, MICRO.replace("micro_test", "mine"), 8192),
    (f"{MEGATRON} pp: 2", MICRO.replace("micro_test", "mine"), 8192 / 4),
])
def test_all_gathers_of_simai_are_whole_arrays(header: str, row: str, size: float, tmp_path: Path) -> None:
    """Whatever the first line says: SimAI has one engine for all of them."""
    read(tmp_path, header, row)
    (layer,) = read_text_workload(tmp_path / "simai.txt", 64).layers
    assert [call.size_bytes for call in layer.weight_grad.calls] == [size]


@pytest.mark.parametrize(("policy", "passes", "gradients"), [
    ("DATA", (1, 1), (4, 2)), ("MICRO", (1, 1), (4, 2)), ("MODEL", (4, 2), (1, 1)),
    ("HYBRID_DATA_MODEL", (4, 1), (1, 2)), ("HYBRID_MODEL_DATA", (1, 2), (4, 1)),
])
def test_groups_of_a_policy(policy: str, passes: tuple[int, ...], gradients: tuple[int, ...], tmp_path: Path) -> None:
    read(tmp_path, policy, ROW.replace("_DP_EP", "").replace("_EP", ""))
    _, groups = build_workload(WorkloadKeys(name=str(tmp_path / "simai.txt")), TrainingKeys(), from_spec("SW(4)_SW(2)"))
    assert groups == {"forward": passes, "input_grad": passes, "weight_grad": gradients}


def test_a_micro_benchmark_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    read(tmp_path, "MICRO", MICRO)
    assert main(["train", "--topology", "SW(4)_SW(2)", "--workload", str(tmp_path / "simai.txt")]) == 0
    assert "run the first line alone" in capsys.readouterr().out


def test_a_file_of_another_encoding(tmp_path: Path) -> None:
    path = tmp_path / "simai.txt"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(WeftError, match=r"simai\.txt"):
        read_text_workload(path)
