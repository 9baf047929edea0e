"""Traces as each producer writes them, made here: STAGE, Chakra's PyTorch converter and generator, and JSON."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from sim import simulate
from sim.astra.run import run_astra
from sim.program.model import Model
from tests.astra_inputs import collective_node, compute_node, message_node, write_inputs, write_ranks
from topologies import WeftError, ring
from topologies.text.schema import InputNote
from workloads.formats.astra_memory import RemoteMemory, Roofline, read_remote_memory
from workloads.formats.chakra import Trace, parse_trace, write_trace
from workloads.formats.chakra_attributes import Attribute
from workloads.formats.chakra_job import Hardware, chakra_job, open_chakra
from workloads.formats.chakra_nodes import Communicates, Computes, Exchanges, meaning, read_ranks
from workloads.formats.chakra_schema import COMPUTE, LEGACY, OWN, REPLAYED, ROWS, Node, Row, TensorInfo
from workloads.job import Communicate

MIB = 2**20
ROOFLINE = {"local-mem-bw": 1600, "peak-perf": 900, "roofline-enabled": 1, "all-reduce-implementation": ["ring"]}


def named(name: str, value: Any, kind: str) -> Attribute:
    return Attribute(name, value, kind)


def stage() -> Trace:
    """A computation and its reduction as STAGE writes them: no version, no is_cpu_op, lists of names, an empty one."""
    inputs = named("inputs", ("x@0", "4096.0"), "string")
    compute = Node(0, "x_COMP", "compute", attributes=(
        inputs, named("outputs", ("y@0", "4096.0"), "string"), named("num_ops", 1_600_000, "int64"),
        named("tensor_size", 1_600_000, "uint64"), named("op_type", "M", "string"),
    ))
    reduce = Node(1, "x_COMM", "collective", data_after=(0,), attributes=(
        inputs, Attribute("outputs", (), ""), named("comm_size", MIB, "int64"), named("comm_type", 0, "int64"),
        named("pg_name", "1", "string"), named("is_cpu_op", 0, "int32"),
    ))
    return Trace("", (named("schema", "symbolic_tensor_network", "string"),), (compute, reduce))


def test_stage(tmp_path: Path) -> None:
    """1 us by the roofline, then the reduction; in ASTRA-sim's rules and in a job."""
    trace = parse_trace(write_trace(stage()), "x")
    assert trace == stage()
    (tmp_path / "groups.json").write_text('{"1": [0, 1], "2": [0], "3": [1]}', encoding="utf-8")
    inputs = write_inputs(tmp_path, [("Ring", 2)], [trace.nodes] * 2, **ROOFLINE)
    result = run_astra(**inputs, comm_groups=tmp_path / "groups.json")
    assert [cycles - exposed for cycles, exposed in zip(result.cycles, result.exposed, strict=True)] == [1000, 1000]
    assert "attributes that are passed over, as Chakra's feeders do: inputs, op_type, outputs" in result.notes
    alone = chakra_job([Trace("", (), (collective_node("all-reduce", MIB),))] * 2, ring(2))[0]
    job, _ = chakra_job([trace] * 2, ring(2), "ring", {"1": ((0, 1),)}, hardware=Hardware(Roofline(9e14, 1.6e12)))
    both, reduction = (simulate(one, model=Model(chunks=1)).time_ps for one in (job, alone))
    assert both - reduction == 1_000_000 + 1  # a picosecond for the computation, the least latency of any server


def test_a_job_says_that_it_needs_a_machine() -> None:
    with pytest.raises(WeftError, match="node 0 has 1,600,000 operations and no duration: give --peak TFLOPS"):
        chakra_job([stage()] * 2, ring(2), "ring", {"1": ((0, 1),)})


def test_bytes_that_no_rate_times_are_told() -> None:
    for memory, told in ((None, True), (1.6e12, False)):
        hardware = Hardware(Roofline(9e14, memory))
        _, notes = chakra_job([stage()] * 2, ring(2), "ring", {"1": ((0, 1),)}, hardware=hardware)
        assert any("2 operations move" in note for note in notes) == told


def pytorch(group: int) -> Trace:
    """What the PyTorch converter writes: a node of process groups, and calls of the host beside kernels."""
    groups = [{"pg_name": "0", "ranks": []}, {"pg_name": "7", "ranks": [0, 2]}, {"pg_name": "8", "ranks": [1, 3]}]
    notes = (named("rf_id", 3, "int64"), named("op_schema", "", "string"), named("stream", 7, "int64"))
    return Trace("", (named("schema", "1.0.2-chakra.0.0.4", "string"), named("pid", 1, "uint64")), (
        Node(1, "## process_group:init ##", "metadata", inputs=TensorInfo(f"['{json.dumps(groups)}']"),
             attributes=(*notes, named("is_cpu_op", True, "bool"))),
        Node(2, "nccl:all_reduce", "compute", data_after=(1,), control_after=(99,), duration_us=4,
             attributes=(*notes, named("is_cpu_op", True, "bool"))),
        Node(3, "c10d::allreduce_", "collective", data_after=(2,), duration_us=6,
             attributes=(*notes, named("is_cpu_op", True, "bool"))),
        Node(4, "ncclDevKernel_AllReduce", "collective", data_after=(3,), duration_us=30, attributes=(
            *notes, named("is_cpu_op", False, "bool"), named("comm_type", 0, "int64"),
            named("comm_size", 4096, "int64"), named("pg_name", str(group), "string"),
        )),
    ))


def test_pytorch() -> None:
    """Groups of the trace itself, which are no products; calls of the host take their time on the CPU."""
    traces = [parse_trace(write_trace(pytorch(7 + rank % 2)), f"x.{rank}.et") for rank in range(4)]
    assert [trace.dropped for trace in traces] == [1] * 4
    job, _ = chakra_job(traces, ring(4))
    assert sorted(one.npus or () for one in job.operations if isinstance(one.work, Communicate)) == [(0, 2), (1, 3)]
    assert 10_000_000 < simulate(job, model=Model(chunks=1)).time_ps < 20_000_000


def test_groups_of_one_name_differ_between_ranks() -> None:
    """Where a trace brings its groups along, a name is that of its own rank."""
    def of(rank: int) -> Trace:
        text = json.dumps([{"pg_name": "1", "ranks": [rank // 2 * 2, rank // 2 * 2 + 1]}])
        return Trace("", (), (
            Node(0, "pg", "metadata", inputs=TensorInfo(f"['{text}']")),
            collective_node("all-gather", 512, 1, group="1"),
        ))
    job, _ = chakra_job([of(rank) for rank in range(4)], ring(4))
    assert sorted(one.npus or () for one in job.operations if isinstance(one.work, Communicate)) == [(0, 1), (2, 3)]


def test_control_dependencies_against_the_data_are_left_out() -> None:
    """As older feeders do, which read none; V3 would stop."""
    nodes = (compute_node(1, 0)._replace(control_after=(1,)), compute_node(1, 1, after=[0]))
    trace = parse_trace(write_trace(Trace("1.0.1", (), nodes)), "x")
    assert (trace.dropped, [node.after for node in trace.nodes]) == (1, [(), (0,)])


def test_versions_and_endings(tmp_path: Path) -> None:
    """Any version is read, and a compressed trace by either name."""
    for version in ("0.0.4", "1.0.0", "1.0.1", "1.0.2-chakra.0.0.4", "2.0", ""):
        assert parse_trace(write_trace(Trace(version, (), (compute_node(1, 0),))), "x").version == version
    data = write_trace(Trace("1.0.1", (), (compute_node(5, 0),)))
    (tmp_path / "w.0.et.gz").write_bytes(gzip.compress(data))
    traces, _ = read_ranks(tmp_path / "w", 1)
    assert traces[0].nodes == (compute_node(5, 0),)


FEEDER = {"workload_graph": [
    {"Id": 1, "Name": "a", "NodeType": 4, "ctrlDeps": [9], "data_deps": [], "runtime": 5, "is_cpu_op": False},
    {"Id": 2, "Name": "b", "NodeType": 7, "data_deps": [1], "is_cpu_op": False, "comm_type": 0, "comm_size": 4096},
], "ngpus": 2}

STAGE_JSON = {"nodes": [
    {"id": 1, "name": "a", "node_type": "comp_node", "data_deps": [], "ctrl_deps": [], "num_ops": 4_500_000_000,
     "tensor_size": 8, "op_type": "M", "y_tensor_size": 8},
    {"id": 2, "name": "b", "node_type": "coll_comm_node", "data_deps": [1], "comm_size": 4096,
     "comm_type": "ALL_REDUCE"},
]}

JSONIZER = """{"version": "1.0.0"}{"id": "1", "name": "a", "type": "COMP_NODE", "durationMicros": "5",
 "attr": [{"name": "is_cpu_op", "boolVal": false}, {"name": "outputs"}]}
{"id": "2", "name": "b", "type": "COMM_COLL_NODE", "dataDeps": ["1"], "attr": [{"name": "comm_type", "int64Val": "0"},
 {"name": "comm_size", "int64Val": "4096"}, {"name": "involved_dim", "boolList": {"values": [true]}}]}"""


@pytest.mark.parametrize("text", [json.dumps(FEEDER), json.dumps(STAGE_JSON), JSONIZER])
def test_json(text: str, tmp_path: Path) -> None:
    """5 us and a reduction, in the words of each."""
    for rank in range(2):
        (tmp_path / f"w.{rank}.json").write_text(text, encoding="utf-8")
    job, _ = open_chakra(tmp_path / "w", ring(2), (), {}, Hardware(Roofline(9e14)))
    want, _ = chakra_job([Trace("", (), (compute_node(5, 1), collective_node("all-reduce", 4096, 2, after=[1])))] * 2,
                         ring(2))
    model = Model(chunks=1)
    assert simulate(job, model=model).time_ps == simulate(want, model=model).time_ps


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not JSON"), ("[1]", "objects of keys and values"), ('{"nodes": 3}', "a list of at most"),
        ('{"nodes": [{"id": "x", "name": "a"}]}', "id is 'x': an integer"),
        ('{"nodes": [{"id": 1, "node_type": "thing"}]}', "the unknown type 'thing'"),
        ('{"nodes": [{"id": 1, "data_deps": 3}]}', "dependencies are 3"),
        ('{"nodes": [{"id": 1, "attr": [3]}]}', "3 is no attribute"),
        ('{"nodes": [{"x": 1}]}', "is no node of a trace"),
    ],
)
def test_bad_json_is_one_line(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "w.0.json").write_text(text, encoding="utf-8")
    with pytest.raises(WeftError, match=r"w\.0\.json") as wrong:
        read_ranks(tmp_path / "w", 1)
    assert message in str(wrong.value)


def test_numbers_of_every_type() -> None:
    """As feeder V3 converts them; text of digits as well."""
    for kind, value in (("int32", 8), ("int64", 8), ("uint64", 8), ("sint32", 8), ("fixed64", 8), ("string", "8")):
        node = collective_node("all-reduce", 8)._replace(attributes=(
            named("comm_type", 0, "int32"), named("comm_size", value, kind), named("is_cpu_op", 0, "uint32"),
        ))
        found = meaning(node, 0, 2, "x")
        assert isinstance(found, Communicates) and found.size == 8


# --- what stands for an absent attribute ------------------------------------------------------------------------------


BASE = {
    COMPUTE: compute_node(5, 0), "collective": collective_node("all-reduce", 64),
    "send": message_node("send", 1, 64, 0), "receive": message_node("receive", 1, 64, 0),
    "memory load": Node(0, "m", "memory load", attributes=(Attribute("tensor_size", 8, "uint64"),)),
    "memory store": Node(0, "m", "memory store", attributes=(Attribute("tensor_size", 8, "uint64"),)),
}
OF_EACH = [(row, kind) for row in ROWS for kind in row.of]
NAMES = [f"{row.name} of a {kind}" for row, kind in OF_EACH]


@pytest.mark.parametrize(("row", "kind"), OF_EACH, ids=NAMES)
def test_absent_equals_explicit(row: Row, kind: str) -> None:
    """Each row of the schema: without the attribute a node means what it means with the value that stands for it."""
    rest = tuple(one for one in BASE[kind].attributes if one.name != row.name)
    absent = BASE[kind]._replace(attributes=rest)
    if row.absent is None:
        with pytest.raises(WeftError, match=f"lacks the attribute '{row.name}'"):
            meaning(absent, 0, 2, "x")
        return
    if row.absent == REPLAYED:
        found = meaning(absent, 0, 2, "x")
        assert isinstance(found, Computes) and (found.operations is None or found.bytes is None)
        return
    stands: Any = 0 if row.absent == OWN else row.absent
    if row.name == "involved_dim":
        explicit = Attribute(row.name, (True, True), "bool")
        jobs = [chakra_job([Trace("", (), (absent._replace(attributes=(*rest, *more)),))] * 4, ring(4))[0]
                for more in ((), (explicit,))]
        assert jobs[0].operations[0].npus == jobs[1].operations[0].npus
        return
    explicit = Attribute(row.name, stands, "string" if isinstance(stands, str) else "int32")
    assert meaning(absent, 0, 2, "x") == meaning(absent._replace(attributes=(*rest, explicit)), 0, 2, "x")


def test_the_mpi_converter() -> None:
    """A root before the group, both as `comm_group`, and a duration for the size of a barrier."""
    for kind, size in (("broadcast", 64), ("barrier", 0)):
        node = collective_node(kind, 64)
        group = (Attribute("comm_group", 3, "int64"), Attribute("comm_group", 0, "int64"))
        found = meaning(node._replace(attributes=(*node.attributes, *group)), 0, 4, "x")
        assert isinstance(found, Communicates) and (found.group, found.size) == ("", size)


def test_the_legacy_name_of_a_group() -> None:
    for name in LEGACY:
        node = BASE["collective"]._replace(attributes=(*BASE["collective"].attributes, Attribute(name, 3, "int32")))
        found = meaning(node, 0, 2, "x")
        assert isinstance(found, Communicates) and found.group == "3"


def test_missing_is_cpu_op_is_the_gpu(tmp_path: Path) -> None:
    """All of a computation by the roofline is computing, as where is_cpu_op is false."""
    node = stage().nodes[0]
    explicit = node._replace(attributes=(*node.attributes, Attribute("is_cpu_op", False, "bool")))
    for one in (node, explicit):
        result = run_astra(**write_inputs(tmp_path, [("Ring", 2)], [[one]] * 2, **ROOFLINE))
        assert (set(result.cycles), set(result.exposed)) == ({1000}, {0})


def test_replayed_without_what_a_roofline_needs(tmp_path: Path) -> None:
    result = run_astra(**write_inputs(tmp_path, [("Ring", 2)], [[compute_node(5, 0)]] * 2, **ROOFLINE))
    assert set(result.cycles) == {5000}


# --- memory -----------------------------------------------------------------------------------------------------------


def memory_file(folder: Path, **keys: Any) -> Path:
    path = folder / "memory.json"
    data = {"memory-type": "PER_NPU_MEMORY_EXPANSION", "remote-mem-latency": 100, "remote-mem-bw": 50}
    path.write_text(json.dumps(data | {key.replace("_", "-"): value for key, value in keys.items()}), encoding="utf-8")
    return path


def test_memory_files_of_2022_name_the_local_one_too(tmp_path: Path) -> None:
    with pytest.warns(InputNote, match="passed over, as ASTRA-sim does: local-mem-latency, local-mem-bw"):
        found = read_remote_memory(memory_file(tmp_path, local_mem_latency=0, local_mem_bw=4096))
    assert found == RemoteMemory(100, 50, 1)


@pytest.mark.parametrize(
    ("keys", "cycles"),
    [({}, [120, 120]), ({"memory_type": "MEMORY_POOL"}, [120, 240]),
     ({"memory_type": "PER_NODE_MEMORY_EXPANSION", "num_npus_per_node": 1}, [120, 120])],
)
def test_memory_nodes(keys: dict[str, Any], cycles: list[int], tmp_path: Path) -> None:
    """100 ns and 1000 bytes at 50 a ns; one access at a time where all NPUs share the memory."""
    load = Node(0, "load", "memory load", attributes=(Attribute("tensor_size", 1000, "uint64"),))
    inputs = write_inputs(tmp_path, [("Ring", 2)], [[load]] * 2)
    assert list(run_astra(**inputs, remote_memory=memory_file(tmp_path, **keys)).cycles) == cycles
    with pytest.raises(WeftError, match="is a memory load: give the remote memory"):
        run_astra(**inputs, remote_memory=memory_file(tmp_path, memory_type="NO_MEMORY_EXPANSION"))


def test_memory_nodes_of_a_job() -> None:
    load = Node(0, "load", "memory load", attributes=(Attribute("tensor_size", 1000, "uint64"),))
    traces = [Trace("", (), (load,))] * 2
    job, _ = chakra_job(traces, ring(2), hardware=Hardware(memory=RemoteMemory(100, 50.0, 1)))
    assert simulate(job, model=Model(chunks=1, forwarding="store-and-forward")).time_ps == 120_000
    with pytest.raises(WeftError, match="a memory that NPUs share: only weft astra"):
        chakra_job(traces, ring(2), hardware=Hardware(memory=RemoteMemory(100, 50.0, 0)))


@pytest.mark.parametrize(
    ("keys", "message"),
    [({"memory_type": "HBM"}, "memory-type 'HBM' is unknown"), ({"remote_mem_bw": 0}, "remote-mem-bw is 0"),
     ({"color": 1}, "key 'color' is unknown"), ({"memory_type": "PER_NODE_MEMORY_EXPANSION"}, "num-npus-per-node")],
)
def test_bad_memory_files(keys: dict[str, Any], message: str, tmp_path: Path) -> None:
    inputs = write_inputs(tmp_path, [("Ring", 2)], [[compute_node(1, 0)]] * 2)
    with pytest.raises(WeftError, match=r"memory\.json") as wrong:
        run_astra(**inputs, remote_memory=memory_file(tmp_path, **keys))
    assert message in str(wrong.value)


def test_messages_are_those_of_their_sizes(tmp_path: Path) -> None:
    """The generator's `tensor_size` of a message is passed over."""
    send = message_node("send", 1, 65536, 0)
    send = send._replace(attributes=(*send.attributes, Attribute("tensor_size", 9, "uint64")))
    found = meaning(send, 0, 2, "x")
    assert isinstance(found, Exchanges) and found.size == 65536
    prefix = write_ranks(tmp_path, [[send], [message_node("receive", 0, 65536, 0)]])
    assert len(open_chakra(prefix, ring(2), (), {})[0].operations) == 1
