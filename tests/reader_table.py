"""Every reader of files: a good example, and how it is called. A new reader is entered here, or a test fails."""

from __future__ import annotations

import gzip
import json
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from collectives import build
from collectives.core.pairs import proportions
from sim.astra.system_file import read_system
from sim.cli import share
from sim.cli.share import make_tenant
from sim.faults.plan import FaultPlan
from sim.measured.read import read_measurements
from sim.papers import hardware, training
from sim.papers.hardware import point_of
from sim.report.results import read_result
from sim.study.file import read_sweep
from sim.study.spec import Spec
from tests.astra_inputs import SYSTEM, network_text
from tests.collectives.formats.plans import direct
from tests.collectives.formats.test_teccl_and_trees import PUBLISHED
from tests.sim.measured.test_measurements import HCCL, IMB, NCCL, OSU, RECORD, document
from tests.sim.timeline.test_perfetto import ALL_GATHER_OF_TWO
from tests.topologies.formats.test_files import BOX, all_to_all, infra, table
from tests.topologies.formats.test_nccl_xml import TestCompleted, quad
from tests.topologies.formats.test_other_simulators import NS3, SIMAI, TOPO, cluster
from tests.topologies.formats.test_smi import amd_json, rocm_json, showtopo, square
from tests.workloads.formats.test_chakra import ALL_GATHER
from tests.workloads.formats.test_flexflow import NODES, TASKS, buffer
from tests.workloads.formats.test_flexflow import table as task_graph
from tests.workloads.formats.test_goal import GOOD
from tests.workloads.formats.test_htsim_cm import CHAIN
from tests.workloads.formats.test_kineto import PROFILE
from tests.workloads.formats.test_libra_files import EXTENTS, GROUPS, NETWORK
from tests.workloads.formats.test_ocs_plan import plan
from tests.workloads.models.test_job_files import MEGATRON, TITAN
from tests.workloads.passes.test_kernels import KERNELS
from topologies import from_spec, read_topology, ring, write_topology
from topologies.formats.files import Given, read_topology_file
from topologies.machines.profile import machine
from workloads.formats.astra_memory import read_remote_memory
from workloads.formats.chakra import read_trace
from workloads.formats.chakra_json import read_json_trace
from workloads.formats.comm_groups import read_comm_groups
from workloads.formats.flexflow import ENDING, open_flexflow
from workloads.formats.flight_recorder import read_dump
from workloads.formats.goal import read_goal
from workloads.formats.htsim_cm import open_matrix
from workloads.formats.kineto import read_profile
from workloads.formats.libra_files import read_communicator, read_network, read_prices
from workloads.formats.ocs_plan import open_ocs_plan
from workloads.formats.text_workload import read_text_workload
from workloads.models.job_files import read_job
from workloads.models.language import language_model
from workloads.passes.kernels import kernels

SPEC = (
    '[topology]\nspec = "ring:4"\n[collective]\nname = "all-reduce"\nalgorithms = ["ring"]\n'
    '[sweep]\nbegin = "1K"\nend = "4K"\n'
)
PLAN = 'seed = 3\n[[link-down]]\nlink = "0->1"\nat = "5us"\n[[straggler]]\nnpu = "1"\nspeed = 0.5\n'
LAYERS = "DATA\n1\nlayer -1 10 NONE 0 10 ALLREDUCE 64 10 ALLREDUCE 1024 5\n"
PRICES = "A:\n  Link: 7.8\nB:\n  Link: 4.7\n  Switch: 13.0\n"
FORESTCOLL = (
    '<Algo nchunkspernode="1"><tree root="0" index="0" nchunks="1" height="1"><send src="0" dst="1" path="0,1"/></tree>'
    '<tree root="1" index="0" nchunks="1" height="1"><send src="1" dst="0" path="1,0"/></tree></Algo>'
)
FEEDER = '{"workload_graph": [{"Id": 1, "Name": "a", "NodeType": 4, "data_deps": [], "runtime": 5, "is_cpu_op": true}]}'
RECORDED = '{"pg_config": {"0": {"ranks": "[0, 1]"}}, "entries": [{"profiling_name": "nccl:all_reduce"}]}'
MEMORY = '{"memory-type": "PER_NPU_MEMORY_EXPANSION", "remote-mem-latency": 5, "remote-mem-bw": 50}'
RESULT = json.dumps({"weft": "1", "spec": {}, "rows": [{"algorithm": "ring", "size_bytes": 8, "time_s": 1.0}]})


class Reader(NamedTuple):
    """A reader of files.

    Attributes
    ----------
    module : str
        Where it is.
    suffix : str
        Of its files.
    good : bytes
    read : callable (path)
    """

    module: str
    suffix: str
    good: bytes
    read: Callable[[Path], object]


MACHINE = 'gpu = "h100"\ngpus = 8\ninside = "switch"\nnic = { like = "ib-ndr", reached = 0.9 }\nnics = 8\ncpu = "amd"\n'
MEASURED = (
    f"{','.join(hardware.COLUMNS)},busbw_GBps\n"
    "x,8x H100,8,1,H100,NVSwitch,,all-reduce,auto,2.26,-g 8,1048576,28.5,\n"
    "y,Polaris,8,2,A100,all-to-all,2x Slingshot 200Gb/s,sendrecv,auto,,,4194304,,7.5\n"
)

_RUN = {key: value for key, value in training.shipped()[0].items() if key in training.COLUMNS}
MIXTURE = json.dumps({
    "model_type": "qwen3_moe", "hidden_size": 2048, "intermediate_size": 6144, "num_attention_heads": 32,
    "head_dim": 128,
    "num_hidden_layers": 48, "num_key_value_heads": 4, "vocab_size": 151936, "num_experts": 128,
    "num_experts_per_tok": 8, "moe_intermediate_size": 768, "decoder_sparse_step": 2, "mlp_only_layers": [1, 5],
    "use_sliding_window": True, "sliding_window": 4096, "max_window_layers": 28, "tie_word_embeddings": False,
})
RUNS = f"{','.join(_RUN)}\n" + ",".join(value.replace(",", ";") for value in _RUN.values()) + "\n"
CONFIG = json.dumps({
    "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32,
    "num_hidden_layers": 32, "num_key_value_heads": 8, "vocab_size": 128256, "tie_word_embeddings": False,
})


def _written(suffix: str, folder: Path) -> bytes:
    path = folder / f"ring{suffix}"
    write_topology(ring(3), path)
    return path.read_bytes()


TENANTS = """
[topology]
spec = "ring:4"
[[tenant]]
collective = "all-reduce"
algorithm = "ring"
size = "1KiB"
priority = 1
[[tenant]]
collective = "broadcast"
algorithm = "tree"
form = "binomial"
size = "1KiB"
start = "2us"
root = 3
"""


def _read_tenants(path: Path) -> object:
    """As the command does, up to the JSON of what was given."""
    spec = share.read(Namespace(spec=str(path), tenant=[], command="share"))
    tenants = [make_tenant(table, ring(4), number) for number, table in enumerate(spec.tenant, 1)]
    return json.dumps(share.given(spec, tenants).to_dict())


def readers(folder: Path) -> dict[str, Reader]:
    """All readers; the folder is for examples that are written by their writers."""

    def one(module: str, suffix: str, good: str | bytes, read: Callable[[Path], object]) -> Reader:
        return Reader(module, suffix, good.encode() if isinstance(good, str) else good, read)

    two = ring(2)

    def gather(path: Path) -> object:
        return build(str(path), "all-gather", two, "1KiB")

    return {
        "GraphML": one("topologies.formats.exchange", ".graphml", _written(".graphml", folder), read_topology),
        "node-link JSON": one("topologies.formats.exchange", ".json", _written(".json", folder), read_topology_file),
        "InfraGraph JSON": one("topologies.formats.infragraph", ".json", json.dumps(infra()), read_topology_file),
        "NCCL topology XML": one("topologies.formats.nccl_xml", ".xml", BOX, read_topology_file),
        "RCCL topology XML": one("topologies.formats.nccl_xml", ".xml", quad("gfx942"), read_topology_file),
        "NCCL topology of a VM": one(
            "topologies.formats.nccl_xml", ".xml", TestCompleted.VM,
            lambda path: read_topology_file(path, Given(nvlink="3")),
        ),
        "SimGrid fat-tree": one("topologies.formats.simgrid", ".xml", cluster("FAT_TREE", "2;4,4;1,2;1,2", 16),
                                read_topology_file),
        "SimGrid dragonfly": one("topologies.formats.simgrid", ".xml", cluster("DRAGONFLY", "2,1;2,1;2,1;2", 16),
                                 read_topology_file),
        "ns-3 topology": one("topologies.formats.ns3_text", ".txt", NS3, read_topology_file),
        "SimAI topology": one("topologies.formats.ns3_text", ".txt", SIMAI, read_topology_file),
        "htsim topology": one("topologies.formats.htsim_topo", ".topo", TOPO, read_topology_file),
        "rocm-smi": one(
            "topologies.formats.rocm_smi", ".txt", showtopo(square(4, "XGMI"), square(4, 15)),
            lambda path: read_topology_file(path, Given(bandwidth="48GB/s")),
        ),
        "rocm-smi JSON": one(
            "topologies.formats.rocm_smi", ".json", rocm_json(4),
            lambda path: read_topology_file(path, Given(bandwidth="48GB/s")),
        ),
        "amd-smi JSON": one("topologies.formats.rocm_smi", ".json", amd_json(4), read_topology_file),
        "nvidia-smi of cards": one(
            "topologies.formats.nvidia_smi", ".txt", table(square(4, "PHB", " X ")),
            lambda path: read_topology_file(path, Given(bandwidth="24GB/s")),
        ),
        "nvidia-smi": one(
            "topologies.formats.nvidia_smi", ".txt", table(all_to_all(4, 4)),
            lambda path: read_topology_file(path, Given(nvlink="3")),
        ),
        "ASTRA-sim network": one(
            "topologies.formats.astra_network", ".yml", network_text(("Ring", 4), ("Switch", 2)), read_topology_file
        ),
        "MSCCL XML": one("collectives.formats.msccl_program", ".xml", ALL_GATHER_OF_TWO, gather),
        "MSCCL++ plan": one("collectives.formats.mscclpp_plan", ".json", json.dumps(direct(2)), gather),
        "pairs": one("collectives.core.pairs", ".csv", "# from, to\n0,1.5\n2,0\n",
                     lambda path: proportions(str(path), 2)),
        "TE-CCL JSON": one(
            "collectives.formats.teccl", ".json", json.dumps(PUBLISHED),
            lambda path: build(str(path), "all-gather", from_spec("mesh:3"), "3MB"),
        ),
        "ForestColl XML": one("collectives.formats.files", ".xml", FORESTCOLL, gather),
        "schedule in place of an algorithm": one(
            "collectives.formats.files", ".xml", ALL_GATHER_OF_TWO,
            lambda path: build(str(path), "all-gather", two, "1GiB"),
        ),
        "GOAL": one("workloads.formats.goal", ".goal", GOOD, lambda path: read_goal(path, two)),
        "task graph CSV": one("workloads.formats.flexflow", ".csv", task_graph(TASKS), lambda path: open_flexflow(
            path, ring(NODES))),
        "task graph": one("workloads.formats.flexflow", ENDING, buffer(TASKS), lambda path: open_flexflow(
            path, ring(NODES))),
        "plan of circuits": one("workloads.formats.ocs_plan", ".json", json.dumps(plan()), lambda path: open_ocs_plan(
            path, from_spec("ocs:4x2,delay=10ns"))),
        "Chakra": one("workloads.formats.chakra", ".et", ALL_GATHER, read_trace),
        "Chakra, gzipped": one("workloads.formats.chakra", ".et", gzip.compress(ALL_GATHER, mtime=0), read_trace),
        "text workload": one("workloads.formats.text_workload", ".txt", LAYERS, read_text_workload),
        "LIBRA network": one("workloads.formats.libra_files", ".yml", NETWORK, read_network),
        "LIBRA communicator": one(
            "workloads.formats.libra_files", ".yml", GROUPS, lambda path: read_communicator(path, EXTENTS)
        ),
        "LIBRA cost": one("workloads.formats.libra_files", ".yml", PRICES, read_prices),
        "communicator groups": one(
            "workloads.formats.comm_groups", ".json", '{"1": [0, 2], "2": [1, 3]}',
            lambda path: read_comm_groups(path, 4)
        ),
        "Chakra JSON": one("workloads.formats.chakra_json", ".json", FEEDER, read_json_trace),
        "flight recorder": one("workloads.formats.flight_recorder", ".json", RECORDED, lambda path: read_dump(path, 2)),
        "Kineto profile": one("workloads.formats.kineto", ".json", json.dumps(PROFILE),
                              lambda path: read_profile(path, 2)),
        "connection matrix": one("workloads.formats.htsim_cm", ".cm", CHAIN, lambda path: open_matrix(
            str(path), ring(4))),
        "remote memory": one("workloads.formats.astra_memory", ".json", MEMORY, read_remote_memory),
        "system file": one("sim.astra.system_file", ".json", json.dumps(SYSTEM), lambda path: read_system(path, 1)),
        "spec TOML": one("sim.study.spec", ".toml", SPEC, Spec.read),
        "spec JSON": one(
            "sim.study.spec", ".json",
            json.dumps({"topology": {"spec": "ring:4"}, "sweep": {"begin": "1K", "end": "4K"}}), Spec.read,
        ),
        "sweep": one("sim.study.file", ".toml", SPEC, read_sweep),
        "fault plan": one("sim.faults.plan", ".toml", PLAN, FaultPlan.read),
        "nccl-tests text": one("sim.measured.read", ".txt", NCCL, lambda path: read_measurements(path, n_ranks=2)),
        "nccl-tests JSON": one(
            "sim.measured.read", ".json", document(), lambda path: read_measurements(path, n_ranks=2)
        ),
        "rccl-tests JSON": one("sim.measured.read", ".json", json.dumps([RECORD, RECORD | {"size": 8192}]),
                               read_measurements),
        "OSU text": one("sim.measured.read", ".txt", OSU, lambda path: read_measurements(path, n_ranks=2)),
        "IMB text": one("sim.measured.read", ".txt", IMB, read_measurements),
        "HCCL text": one("sim.measured.read", ".txt", HCCL, lambda path: read_measurements(
            path, collective="all-reduce")),
        "JSON of weft": one("sim.measured.read", ".json", RESULT, lambda path: read_measurements(
            path, n_ranks=2, collective="all-reduce")),
        "machine": one("topologies.machines.profile", ".toml", MACHINE, lambda path: machine(str(path))),
        "machine of NCCL": one("topologies.machines.profile", ".xml", BOX, lambda path: machine(str(path))),
        "measured machines": one("sim.papers.tables", ".csv", MEASURED, lambda path: [
            point_of(row) for row in hardware.read(str(path))]),
        "training runs": one("sim.papers.tables", ".csv", RUNS, lambda path: [
            training.point_of(row) for row in training.read(str(path))]),
        "config.json of Hugging Face": one("workloads.models.language", ".json", CONFIG, lambda path: language_model(
            str(path)).parameters),
        "config.json of a mixture": one("workloads.models.language", ".json", MIXTURE, lambda path: language_model(
            str(path))),
        "job file of torchtitan": one("workloads.models.job_files", ".toml", TITAN, lambda path: read_job(str(path))),
        "arguments of Megatron-LM": one("workloads.models.job_files", ".sh", MEGATRON,
                                        lambda path: read_job(str(path))),
        "measured kernels": one("workloads.passes.kernels", ".csv", KERNELS, lambda path: kernels(str(path))),
        "tenants": one("sim.cli.share", ".toml", TENANTS, _read_tenants),
        "result": one("sim.report.results", ".json", RESULT, lambda path: read_result(path, "result")),
    }
