"""Forty mutated files of each format of workloads: each is read, or one line of ours says what is wrong with it."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from sim.astra.system_file import read_system
from tests.astra_inputs import SYSTEM
from tests.workloads.formats.test_chakra_old import first, later
from tests.workloads.formats.test_chakra_producers import FEEDER, JSONIZER, STAGE_JSON, pytorch, stage
from tests.workloads.formats.test_flexflow import TASKS, buffer, table
from tests.workloads.formats.test_flight_recorder import dump, entry
from tests.workloads.formats.test_goal import GOOD
from tests.workloads.formats.test_htsim_cm import CHAIN
from tests.workloads.formats.test_kineto import PROFILE
from tests.workloads.models.test_job_files import MEGATRON, TITAN
from topologies import WeftError, ring, switch
from workloads import read_text_workload
from workloads.formats.astra_memory import Roofline, read_remote_memory
from workloads.formats.chakra import write_trace
from workloads.formats.chakra_job import Hardware, open_chakra, open_dumps, open_profiles
from workloads.formats.comm_groups import read_sets
from workloads.formats.flexflow import open_flexflow
from workloads.formats.goal import open_goal
from workloads.formats.htsim_cm import open_matrix
from workloads.formats.libra_files import read_communicator
from workloads.formats.recognize import format_of
from workloads.models.job_files import read_job

MUTANTS = 40

SIMAI = (
    "HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 2 ep: 1 pp: 1 vpp: 8 ga: 1 all_gpus: 4 checkpoints: 0 "
    "checkpoint_initiates: 0\n1\nlayer -1 500 ALLREDUCE 16777216 1 NONE 0 1 REDUCESCATTER_DP_EP 64 1\n"
)


def chakra(ending: str) -> Callable[[Path], object]:
    """Reader of the traces of two ranks, which are both the file."""
    def read(path: Path) -> object:
        for rank in range(2):
            path.with_name(f"w.{rank}.{ending}").write_bytes(path.read_bytes())
        groups = {"1": ((0, 1),)} if b"_COMM" in path.read_bytes() else {}  # of STAGE
        return open_chakra(path.with_name("w"), ring(2), (), groups, Hardware(Roofline(9e14)))
    return read


def recorded(path: Path) -> object:
    """The dumps of two ranks, which are both the file."""
    for rank in range(2):
        path.with_name(f"d{rank}").write_bytes(path.read_bytes())
    return open_dumps(str(path.with_name("d")), ring(2), ())


RECORDED = dump([entry("all_reduce", 1, 0), entry("_all_gather_base", 2, 9)], **{"0": (0, 1)})

def profiled(path: Path) -> object:
    """The profiles of two ranks, which are both the file but for its rank."""
    for rank in range(2):
        data = path.read_bytes().replace(b'"rank": 0', f'"rank": {rank}'.encode())
        path.with_name(f"p{rank}.json").write_bytes(data)
    return open_profiles(str(path.with_name("p")), ring(2), ())


FORMATS: dict[str, tuple[bytes, Callable[[Path], object]]] = {
    "Chakra traces of STAGE": (write_trace(stage()), chakra("et")),
    "Chakra traces of PyTorch": (write_trace(pytorch(0)), chakra("et")),
    "Chakra traces of schema 0.0.1": (first(), chakra("eg")),
    "Chakra traces of schema 0.0.3": (later("0.0.3"), chakra("et")),
    "JSON of Chakra's feeder": (json.dumps(FEEDER).encode(), chakra("json")),
    "JSON of STAGE": (json.dumps(STAGE_JSON).encode(), chakra("json")),
    "JSON of Chakra's jsonizer": (JSONIZER.encode(), chakra("json")),
    "flight recorder": (json.dumps(RECORDED).encode(), recorded),
    "task graph": (buffer(TASKS), lambda path: open_flexflow(path.rename(path.with_suffix(".fbuf")), switch(3))),
    "tasks as CSV": (table(TASKS).encode(), lambda path: open_flexflow(path, switch(3))),
    "Kineto profile": (json.dumps(PROFILE).encode(), profiled),
    "job file of torchtitan": (TITAN.encode(), lambda path: read_job(str(path.rename(path.with_suffix(".toml"))))),
    "arguments of Megatron-LM": (MEGATRON.encode(), lambda path: read_job(str(path))),
    "connection matrix": (CHAIN.encode(), lambda path: open_matrix(str(path), switch(4))),
    "GOAL": (GOOD.encode(), lambda path: open_goal(path, switch(2))),
    "text workload": (SIMAI.encode(), lambda path: (format_of(str(path)), read_text_workload(path))),
    "system file": (json.dumps(SYSTEM).encode(), lambda path: read_system(path, 1)),
    "remote memory": (
        b'{"memory-type": "PER_NODE_MEMORY_EXPANSION", "num-npus-per-node": 2, "remote-mem-latency": 5, '
        b'"remote-mem-bw": 50}', read_remote_memory,
    ),
    "communicator groups": (b'{"1": [0, 2], "tp": [[0, 1], [2, 3]]}', lambda path: read_sets(path, (4,))),
    "LIBRA communicators": (
        b"Forward: [4, -1]\nInputGrad: [4, -1]\nWeightGrad: [-1, 2]\n", lambda path: read_communicator(path, (4, 2)),
    ),
}


def mutant(data: bytes, number: int, name: str) -> bytes:
    """Pieces cut out, doubled, overwritten or exchanged; always the same of a number."""
    draw = random.Random(f"{name} {number}")
    for _ in range(draw.randint(1, 3)):
        at, length = draw.randrange(len(data) + 1), draw.choice((0, 1, 1, 2, 5, 20))
        piece = data[at : at + length]
        put = draw.choice((
            b"", piece + piece, draw.randbytes(length), b"9" * 30, b"-1", b"\0", b"{", b'"', b"\n", b"\xff\xfe",
            piece[::-1],
        ))
        data = data[:at] + put + data[at + length :]
    return data[: draw.randrange(len(data) + 1)] if number % 8 == 0 else data


@pytest.mark.parametrize("name", FORMATS)
def test_mutated_files_are_read_or_refused_in_one_line(name: str, tmp_path: Path) -> None:
    data, read = FORMATS[name]
    path, said = tmp_path / "file", list[str]()
    path.write_bytes(data)
    read(path)
    for number in range(MUTANTS):
        path.write_bytes(mutant(data, number, name))
        try:
            read(path)
        except WeftError as wrong:
            said.append(str(wrong))
    assert said
    assert [line for line in said if "\n" in line or not 10 < len(line) < 1500] == []
