"""Chakra traces as jobs, and schedules as Chakra traces."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from collectives.registry import build
from sim import simulate
from sim.program.model import Model
from tests.astra_inputs import DATA, collective_node, compute_node, message_node, write_ranks
from topologies import WeftError, from_spec, ring, switch, torus
from workloads.formats.chakra import Trace, parse_trace, write_trace
from workloads.formats.chakra_attributes import Attribute
from workloads.formats.chakra_job import chakra_job, read_chakra
from workloads.formats.chakra_schema import Node
from workloads.formats.schedule_writers import schedule_to_chakra
from workloads.group_collectives import group_spec
from workloads.job import Communicate

MIB = 2**20

PLAIN = Model(chunks=1, forwarding="store-and-forward")


def trace(*nodes: Node) -> Trace:
    return Trace("0.0.4", (), nodes)


@pytest.mark.parametrize(
    ("algorithm", "kind", "spec", "version"),
    [("swing", "all-reduce", "torus:2x4", "0.0.4"), ("ring", "all-gather", "torus:5", "1.0.0"),
     ("direct", "all-to-all", "fc:4", "0.0.4"), ("recursive-doubling", "all-reduce", "switch:8", "1.0.0"),
     ("ring", "reduce-scatter", "ring:2", "0.0.4"), ("pipelined", "all-reduce", "ring:3", "0.0.4"),
     ("bucket", "all-reduce", "torus:1x1", "0.0.4")],
)
def test_a_schedule_comes_back(algorithm: str, kind: str, spec: str, version: str) -> None:
    """Written as traces and read as a job, it takes the same time to the picosecond, and moves the same bytes."""
    schedule = build(algorithm, kind, from_spec(spec), MIB)
    traces = schedule_to_chakra(schedule, version)
    assert [parse_trace(write_trace(one), "x") for one in traces] == list(traces)
    job, _ = chakra_job(traces, schedule.topology)
    model = Model(chunks=1, rank_progress="free")  # traces have dependencies alone
    assert simulate(job, model=model).time_ps / 1e12 == simulate(schedule, model=model).time_s
    sizes = [int(node.attributes[1].value) for one in traces for node in one.nodes if node.kind == "send"]
    assert sum(sizes) == int((schedule.pattern.transfers().blocks * schedule.block_bytes).sum())


def test_a_collective_is_the_schedule_of_its_algorithm() -> None:
    """The size of an all-gather is that of a shard; here an array has four."""
    topology = ring(4)
    sizes = {"all-gather": MIB, "all-reduce": 4 * MIB, "reduce-scatter": 4 * MIB, "all-to-all": 4 * MIB}
    for kind, size in sizes.items():
        job, _ = chakra_job([trace(collective_node(kind, size))] * 4, topology, {kind: "direct"})
        (operation,) = job.operations
        assert isinstance(operation.work, Communicate)
        assert (operation.work.schedule.size_bytes, operation.work.schedule.pattern.algorithm) == (4 * MIB, "direct")


def test_waits_and_streams() -> None:
    """Computations of the GPU one after the other, the CPU beside them, a message held back by what it waits for."""
    first = trace(compute_node(5, 0), compute_node(3, 1, after=[0]), message_node("send", 1, 1000, 2, after=[1]))
    other = trace(
        message_node("receive", 0, 1000, 7, after=[9]), compute_node(20, 9, cpu=True), compute_node(2, 8, after=[7])
    )
    job, _ = chakra_job([first, other], switch(2, bandwidth="1GB/s", latency="1us", hop_latency=0))
    assert simulate(job, model=PLAIN).time_ps == (20 + 2) * 10**6  # the CPU's 20 us outlast 8 + 4
    free = trace(other.nodes[0]._replace(data_after=()), other.nodes[2])
    job, _ = chakra_job([first, free], switch(2, bandwidth="1GB/s", latency="1us", hop_latency=0))
    assert simulate(job, model=PLAIN).time_ps == (8 + 4 + 2) * 10**6


def test_groups_of_a_dimension() -> None:
    """Two groups of a row each, in the hierarchical algorithm."""
    topology = torus((2, 2))
    nodes = [trace(collective_node("all-reduce", MIB, group=str(1 + rank // 2))) for rank in range(4)]
    job, _ = chakra_job(nodes, topology, "hierarchical", {"1": ((0, 1),), "2": ((2, 3),)})
    assert sorted(operation.npus or () for operation in job.operations) == [(0, 1), (2, 3)]
    assert simulate(job, model=Model()).time_ps > 0
    assert group_spec((0, 2), topology) == "-1,2@1"
    assert group_spec((0, 4, 8, 12), ring(16)) == "4@4"
    for members, fabric in (((0, 1, 2), topology), ((0, 1, 3), ring(4)), ((1, 2), ring(4))):
        assert group_spec(members, fabric) is None


def test_published_traces() -> None:
    """Those of ASTRA-sim's repository, where they are at hand: one collective; a ring of 14 steps of 128 KiB."""
    if DATA.exists():
        topology = from_spec(str(DATA / "network" / "Ring_16npus.yml"))
        assert len(read_chakra(DATA / "workload" / "all_gather_16npus_1MB" / "all_gather", topology).operations) == 1
        slow = ring(8, bandwidth="1GB/s", latency=0, hop_latency=0)
        job = read_chakra(DATA / "workload" / "custom_ring_allreduce_8npus_1MB" / "custom_allreduce", slow)
        step, adding = 131_072 * 1_000, 7 * 10**6
        assert simulate(job, model=PLAIN).time_ps == 14 * step + 7 * adding


def bad(kind: str, *attributes: tuple[str, Any, str], number: int = 0) -> Trace:
    return trace(Node(number, "n", kind, attributes=tuple(Attribute(*one) for one in attributes)))


COLLECTIVE = (("comm_type", 0, "int64"), ("comm_size", 8, "int64"))
MESSAGE = (("comm_size", 8, "int64"), ("comm_dst", 1, "int32"))


@pytest.mark.parametrize(
    ("first", "message"),
    [
        (bad("collective", *COLLECTIVE, ("comm_type", 1, "int64")), "attribute 'comm_type' is given twice"),
        (bad("collective", COLLECTIVE[0]), "lacks the attribute 'comm_size'"),
        (bad("collective", ("comm_type", 10, "int64")), "comm_type is 10"),
        (bad("collective", COLLECTIVE[0], ("comm_size", "8 MB", "string")), "comm_size is '8 MB'"),
        (bad("collective", COLLECTIVE[0], ("comm_size", -8, "int64")), "comm_size is -8"),
        (bad("collective", *COLLECTIVE, ("pg_name", 1.5, "float")), "pg_name is 1.5"),
        (bad("collective", *COLLECTIVE, ("pg_name", "3", "string")), "communicator group 3 is not given: --comm-group"),
        (bad("collective", *COLLECTIVE, ("involved_dim", 1, "int32")), "involved_dim is 1: a list of booleans"),
        (bad("collective", *COLLECTIVE), "rank 0 has 1 collectives and rank 1 0"),
        (bad("send", *MESSAGE), "rank 0 to rank 1, tag 0: 1 sends and 0 receives"),
        (bad("send", MESSAGE[0]), "lacks the attribute 'comm_dst'"),
        (bad("send", MESSAGE[0], ("comm_dst", 2, "int32")), "comm_dst is 2: an integer from 0 to 1"),
        (bad("send", MESSAGE[0], ("comm_dst", 0, "int32")), "comm_dst is 0, its own NPU"),
        (bad("send", *MESSAGE, ("comm_src", 1, "int32")), "comm_src is 1; the trace is that of NPU 0"),
        (bad("memory load"), "lacks the attribute 'tensor_size'"),
        (bad("memory load", ("tensor_size", 8, "uint64")), "access to remote memory: give --remote-memory FILE"),
        (bad("compute", ("num_ops", 8, "int64")), "has 8 operations and no duration: give --peak TFLOPS"),
    ],
)
def test_what_is_wrong_is_named(first: Trace, message: str) -> None:
    with pytest.raises(WeftError) as wrong:
        chakra_job([first, trace(compute_node(1, 0))], ring(2), name="t")
    assert message in str(wrong.value)


def test_traces_that_do_not_fit() -> None:
    with pytest.raises(WeftError, match="rank 0 begins all-reduce of 8 bytes while rank 1 begins all-reduce of"):
        chakra_job([trace(collective_node("all-reduce", size)) for size in (8, 9)], ring(2))
    send, receive = trace(message_node("send", 1, 8, 0)), trace(message_node("receive", 0, 9, 0))
    with pytest.raises(WeftError, match="8 bytes are sent and 9 received"):
        chakra_job([send, receive], ring(2))
    crossed = [
        trace(message_node("receive", 1 - rank, 8, 0), message_node("send", 1 - rank, 8, 1, after=[0]))
        for rank in (0, 1)
    ]
    with pytest.raises(WeftError, match="waits for itself in a cycle"):
        chakra_job(crossed, ring(2))


def test_files_of_other_ranks(tmp_path: Path) -> None:
    prefix = write_ranks(tmp_path, [[compute_node(1, 0)]] * 3)
    with pytest.raises(WeftError, match=r"trace\.2\.et is of a rank that torus:2 does not have"):
        read_chakra(prefix, torus((2,)))
    with pytest.raises(WeftError, match=r"there is no trace\.3\.et, and the network has 4 NPUs"):
        read_chakra(prefix, torus((4,)))
    with pytest.raises(WeftError, match=r"give what comes before"):
        read_chakra(tmp_path, torus((2,)))


def test_switches_that_add_have_no_trace() -> None:
    schedule = build("in-network", "all-reduce", switch(4), MIB)
    with pytest.raises(WeftError, match="no switches that add"):
        schedule_to_chakra(schedule)
