"""ASTRA-sim's cycles: figures measured with ASTRA-sim 518bd513, closed forms, and inputs that it gets wrong."""

from __future__ import annotations

import json
import math
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectives import ring as ring_schedules
from sim.astra import network
from sim.astra.run import run_astra
from tests.astra_inputs import DATA, collective_node, compute_node, message_node, write_inputs, write_ranks
from tests.oracles import astra_closed_forms as closed
from topologies import WeftError, ring
from workloads.formats.chakra import Trace, read_trace
from workloads.formats.schedule_writers import schedule_to_chakra

MIB = 2**20
RING, FULL, SWITCH = "Ring", "FullyConnected", "Switch"

MEASURED = [  # kind, algorithm, network, NPUs, cycles of the aware and of the unaware backend; 1 MiB, 4 splits
    ("all-reduce", "ring", RING, 4, 43_000, 43_000),
    ("all-gather", "ring", RING, 4, 64_744, 64_744),
    ("reduce-scatter", "ring", RING, 4, 22_240, 22_240),
    ("all-to-all", "ring", RING, 4, 41_560, None),
    ("all-gather", "ring", RING, 8, 151_016, 151_016),
    ("reduce-scatter", "ring", RING, 8, 33_080, 33_080),
    ("all-gather", "ring", RING, 16, 323_560, 323_560),
    ("all-reduce", "ring", SWITCH, 8, 126_600, 92_440),
    ("all-reduce", "ring", SWITCH, 16, 196_240, 159_640),
    ("all-reduce", "halvingDoubling", RING, 8, 87_568, 63_168),
    ("all-reduce", "halvingDoubling", RING, 16, 139_288, 97_808),
    ("all-reduce", "halvingDoubling", FULL, 8, 47_168, 47_168),
    ("all-reduce", "halvingDoubling", FULL, 16, 53_808, 53_808),
    ("all-reduce", "halvingDoubling", SWITCH, 8, 93_336, 59_168),
    ("all-reduce", "halvingDoubling", SWITCH, 16, 106_416, 69_808),
    ("all-reduce", "direct", RING, 8, 57_160, 21_240),
    ("all-reduce", "direct", RING, 16, 97_640, 34_680),
    ("all-reduce", "direct", FULL, 8, 9_240, 9_240),
    ("all-reduce", "direct", FULL, 16, 6_680, 6_680),
    ("all-reduce", "direct", SWITCH, 8, 47_400, 13_240),
    ("all-reduce", "direct", SWITCH, 16, 47_280, 10_680),
    ("all-to-all", "direct", RING, 16, 48_780, 17_300),
    ("all-to-all", "direct", FULL, 16, 3_300, 3_300),
    ("all-to-all", "direct", SWITCH, 16, 23_600, 5_300),
]

PARTS = [  # kind, network, algorithms, NPUs of a group (0: none), backend, cycles; 1 MiB, 4 splits, a delay of 77 ns
    ("all-to-all", [(SWITCH, 8)], ["direct"], 4, "aware", {23_600}),
    ("all-reduce", [(SWITCH, 12)], ["direct"], 4, "aware", {48_120}),
    ("reduce-scatter", [(SWITCH, 6)], ["direct2"], 3, "aware", {24_252}),
    ("all-reduce", [(FULL, 8)], ["halvingDoubling"], 4, "aware", {37_968}),
    ("all-gather", [(RING, 8)], ["oneDirect"], 4, "aware", {87_094, 87_594, 88_094, 88_574}),
    ("all-reduce", [(SWITCH, 4), (RING, 3)], ["direct", "direct"], 4, "unaware", {55_000}),
    ("all-gather", [(RING, 3), (SWITCH, 4)], ["oneRing", "ring"], 0, "unaware", {240_504}),
    ("all-reduce", [(SWITCH, 4), (RING, 3)], ["direct", "oneDirect"], 0, "unaware", {19_472}),
    ("all-to-all", [(FULL, 2), (SWITCH, 4)], ["oneDirect2"], 0, "unaware", {20_552}),
    ("reduce-scatter", [(SWITCH, 4), (RING, 2)], ["oneHalvingDoubling", "ring"], 0, "unaware", {29_036}),
]

LARGE = [  # 64 MiB: kind, algorithm, network, NPUs, splits, active chunks, queues, backend, cycles
    ("all-reduce", "ring", RING, 64, 1, 1, 1, "aware", 2_648_971),
    ("all-reduce", "halvingDoubling", RING, 64, 1, 1, 1, "aware", 7_624_037),
    ("all-reduce", "halvingDoubling", SWITCH, 64, 1, 1, 1, "aware", 4_994_941),
    ("all-to-all", "direct", FULL, 64, 1, 1, 1, "aware", 20_051),
]

LARGER = [
    ("all-reduce", "ring", RING, 64, 16, 16, 1, "aware", 2_460_040),
    ("all-reduce", "ring", RING, 64, 16, 16, 1, "unaware", 225_550),
    ("all-reduce", "ring", SWITCH, 64, 4, 4, 1, "aware", 2_466_430),
    ("all-reduce", "ring", RING, 64, 32, 32, 2, "aware", 1_230_280),
    ("all-reduce", "direct", RING, 64, 1, 1, 1, "aware", 20_628_731),
    ("all-to-all", "direct", RING, 64, 1, 1, 1, "aware", 10_313_388),
    ("all-reduce", "ring", RING, 256, 1, 1, 1, "aware", 2_874_625),
    ("all-reduce", "ring", RING, 256, 4, 1, 1, "aware", 3_651_640),
    ("all-to-all", "direct", SWITCH, 256, 1, 1, 1, "aware", 1_250_812),
]


def one_collective(
    folder: Path, kind: str, size: int, dims: list[tuple[str, int]], algorithms: list[str], *, backend: str = "aware",
    queues: int = 1, bandwidth: float = 50.0, latency: float = 500.0, **system: Any,
) -> Any:
    """The result of one collective on all NPUs."""
    n = 1
    for _, extent in dims:
        n *= extent
    inputs = write_inputs(
        folder, dims, [[collective_node(kind, size)]] * n, bandwidth=bandwidth, latency=latency,
        **{f"{kind}-implementation": algorithms, **system},
    )
    return run_astra(**inputs, backend=backend, queues=queues)


@pytest.mark.table
@pytest.mark.parametrize(("kind", "algorithm", "block", "n", "aware", "unaware"), MEASURED)
def test_measured_cycles(
    kind: str, algorithm: str, block: str, n: int, aware: int, unaware: int | None, tmp_path: Path
) -> None:
    """Figures of ASTRA-sim itself, congested ones included."""
    for backend, cycles in (("aware", aware), ("unaware", unaware)):
        result = one_collective(tmp_path, kind, MIB, [(block, n)], [algorithm], backend=backend)
        assert cycles is None or max(result.cycles) == cycles
        assert result.exposed == result.cycles


def large(tmp_path: Path, case: tuple[Any, ...]) -> None:
    kind, algorithm, block, n, splits, active, queues, backend, cycles = case
    result = one_collective(
        tmp_path, kind, 64 * MIB, [(block, n)], [algorithm], backend=backend, queues=queues,
        **{"preferred-dataset-splits": splits, "active-chunks-per-dimension": active,
           "collective-optimization": "baseline"},
    )
    assert max(result.cycles) == cycles


@pytest.mark.parametrize("case", LARGE)
def test_measured_cycles_of_large_networks(case: tuple[Any, ...], tmp_path: Path) -> None:
    large(tmp_path, case)


@pytest.mark.verify
@pytest.mark.parametrize("case", LARGER)
def test_measured_cycles_of_many_streams(case: tuple[Any, ...], tmp_path: Path) -> None:
    """Streams that share links; two directions of a ring with two queues."""
    large(tmp_path, case)


def test_published_files() -> None:
    """The microbenchmarks of ASTRA-sim's repository, where they are at hand."""
    for workload, fabric, cycles in (
        ("all_gather_16npus_1MB/all_gather", "Ring_16npus", 323_560),
        ("all_reduce_4npus_1MB/all_reduce", "Ring_4npus", 43_000),
    ):
        if DATA.exists():
            system = DATA / "system" / "Ring_4chunks.json"
            result = run_astra(DATA / "workload" / workload, system, DATA / "network" / f"{fabric}.yml")
            assert set(result.cycles) == {cycles}
            assert f"sys[3] finished, {cycles} cycles, exposed communication {cycles} cycles." in result.lines()


@settings(max_examples=15, deadline=None)
@given(
    st.sampled_from(["all-reduce", "all-gather", "reduce-scatter", "all-to-all"]), st.integers(2, 7),
    st.integers(1, 3), st.integers(7, 10**6), st.integers(0, 50), st.sampled_from([1.5, 50.0, 400.0]),
    st.sampled_from([0.0, 500.0, 936.25]), st.sampled_from(["aware", "unaware"]),
)
def test_closed_forms_without_contention(
    tmp_path_factory: pytest.TempPathFactory, kind: str, n: int, splits: int, d: int, e: int, bandwidth: float,
    latency: float, backend: str,
) -> None:
    """Rings on a ring, and direct on a fully connected network: streams one after the other add up."""
    folder = tmp_path_factory.mktemp("astra")
    system = {"endpoint-delay": e, "preferred-dataset-splits": splits}
    for block, algorithm, form in ((RING, "ring", closed.ring), (FULL, "direct", closed.direct_fully_connected)):
        result = one_collective(
            folder, kind, splits * d, [(block, n)], [algorithm], backend=backend, bandwidth=bandwidth,
            latency=latency, **system,
        )
        assert max(result.cycles) == splits * form(kind, n, d, e, bandwidth, latency, 1600.0)
        cut = kind != "all-gather" and d % n != 0
        assert any("whole bytes" in note for note in result.notes) == cut


@settings(max_examples=10, deadline=None)
@given(st.integers(1, 4), st.integers(5, 20), st.integers(0, 50), st.sampled_from([1.5, 50.0]))
def test_closed_form_of_halving_doubling(
    tmp_path_factory: pytest.TempPathFactory, log_n: int, log_d: int, e: int, bandwidth: float
) -> None:
    """On a fully connected network no exchange meets another."""
    result = one_collective(
        tmp_path_factory.mktemp("astra"), "all-reduce", 2**log_d, [(FULL, 2**log_n)], ["halvingDoubling"],
        bandwidth=bandwidth, **{"endpoint-delay": e, "preferred-dataset-splits": 1},
    )
    assert max(result.cycles) == closed.halving_doubling(2**log_n, 2**log_d, e, bandwidth, 500.0, 1600.0)


def test_several_dimensions_are_the_sum_of_their_phases(tmp_path: Path) -> None:
    """One stream: reduce-scatter in dimension 0, all-reduce in 1, all-gather in 0; baseline: an all-reduce in each."""
    d, e, n = 2**20, 10, 4
    for backend in ("aware", "unaware"):
        for optimization in ("localBWAware", "baseline"):
            result = one_collective(
                tmp_path, "all-reduce", d, [(RING, n), (RING, 2)], ["ring", "ring"], backend=backend,
                **{"preferred-dataset-splits": 1, "collective-optimization": optimization},
            )
            forms = {
                "localBWAware": [("reduce-scatter", n, d), ("all-reduce", 2, d // n), ("all-gather", n, d // n)],
                "baseline": [("all-reduce", n, d), ("all-reduce", 2, d)],
            }[optimization]
            phases = (closed.ring(kind, k, size, e, 50.0, 500.0, 1600.0) for kind, k, size in forms)
            assert max(result.cycles) == sum(phases)


def test_streams_of_several_dimensions_share_the_first(tmp_path: Path) -> None:
    """Four streams, one at a time: dimension 0 serves its reduce-scatters and all-gathers and is never idle.

    The formula that ASTRA-sim follows where dimension 0 is the bottleneck.
    """
    d, n0, e = 2**20 // 4, 8, 10
    result = one_collective(
        tmp_path, "all-reduce", 2**20, [(RING, n0), (FULL, 2)], ["ring", "direct"], backend="unaware"
    )
    first = closed.ring("reduce-scatter", n0, d, e, 50.0, 500.0, 1600.0)
    last = closed.ring("all-gather", n0, d // n0, e, 50.0, 500.0, 1600.0)
    assert max(result.cycles) == 4 * (first + last)


def test_routes_of_several_dimensions_go_one_after_the_other(tmp_path: Path) -> None:
    """A message from one corner to the other crosses a link of each ring; unaware, of the first dimension only."""
    n, size = 9, 3 * 2**20
    ranks = [[message_node("send", 4, size, 0)], *[[] for _ in range(n - 1)]]
    ranks[4] = [message_node("receive", 0, size, 0)]
    ranks = [nodes or [compute_node(0, 0)] for nodes in ranks]
    inputs = write_inputs(tmp_path, [(RING, 3), (RING, 3)], ranks)
    hop = closed.message_ns(size, 50.0, 500.0)
    assert run_astra(**inputs).cycles[4] == 2 * hop
    assert run_astra(**inputs, backend="unaware").cycles[4] == hop


def test_computation_is_not_exposed_communication(tmp_path: Path) -> None:
    """A GPU that computes while it communicates; a CPU is not counted."""
    nodes = [compute_node(7, 0), collective_node("all-reduce", MIB, 1, after=[0]), compute_node(3, 2, after=[0]),
             compute_node(2, 3, after=[1], cpu=True)]
    result = run_astra(**write_inputs(tmp_path, [(RING, 4)], [nodes] * 4, **{"all-reduce-implementation": ["ring"]}))
    assert set(result.cycles) == {7_000 + 43_000 + 2_000} and set(result.exposed) == {52_000 - 10_000}


def test_roofline(tmp_path: Path) -> None:
    """Time of a computation by its operations and bytes, whatever the trace says; whole ns."""
    from workloads.formats.chakra_attributes import Attribute

    node = compute_node(5, 0)
    node = node._replace(attributes=(*node.attributes, Attribute("num_ops", 10**9, "int64"),
                                     Attribute("tensor_size", 10**6, "uint64")))
    system = {"roofline-enabled": 1, "peak-perf": 900}
    inputs = write_inputs(tmp_path, [(RING, 2)], [[node]] * 2, **system)
    assert run_astra(**inputs).cycles == (int(10**9 / 900e12 * 1e9),) * 2
    slow = write_inputs(tmp_path, [(RING, 2)], [[node]] * 2, **system, **{"local-mem-bw": 0.1})
    assert run_astra(**slow).cycles == (int(10**9 / (0.1e9 * 1000) * 1e9),) * 2


@pytest.mark.parametrize("case", PARTS)
def test_measured_cycles_of_groups_and_of_algorithms_across_dimensions(case: tuple[Any, ...], tmp_path: Path) -> None:
    """Figures of ASTRA-sim 518bd51: groups have a delay of 10 ns, and a ring where the file has two algorithms."""
    kind, dims, algorithms, size, backend, cycles = case
    n = math.prod(extent for _, extent in dims)
    groups = tmp_path / "groups.json"
    groups.write_text(json.dumps({one + 1: list(range(one * size, one * size + size)) for one in range(n // size)}
                                 if size else {}), encoding="utf-8")
    ranks = [[collective_node(kind, MIB, group=str(1 + rank // size) if size else None)] for rank in range(n)]
    inputs = write_inputs(tmp_path, dims, ranks, **{f"{kind}-implementation": algorithms, "endpoint-delay": 77})
    result = run_astra(**inputs, comm_groups=groups, backend=backend)
    assert set(result.cycles) == cycles
    assert any("endpoint delay of 10 ns" in note for note in result.notes) == (size > 0)


def test_a_group_of_all_runs_what_the_system_file_says(tmp_path: Path) -> None:
    groups = tmp_path / "groups.json"
    groups.write_text('{"3": [3, 2, 1, 0]}', encoding="utf-8")
    system = {"all-gather-implementation": ["direct"], "endpoint-delay": 77, "preferred-dataset-splits": 1}
    whole = write_inputs(tmp_path, [(FULL, 4)], [[collective_node("all-gather", MIB, group="3")]] * 4, **system)
    cycles = run_astra(**whole, comm_groups=groups).cycles
    assert set(cycles) == {closed.direct_fully_connected("all-gather", 4, MIB, 77, 50.0, 500.0, 0.001)}


def test_a_custom_collective_of_a_group_is_refused(tmp_path: Path) -> None:
    pair = [[message_node("send", 1, 8, 0)], [message_node("receive", 0, 8, 0)]]
    custom = str(write_ranks(tmp_path, pair * 2, "own"))
    groups = tmp_path / "groups.json"
    groups.write_text('{"1": [0, 1]}', encoding="utf-8")
    inputs = write_inputs(tmp_path, [(FULL, 4)], [[collective_node("all-gather", MIB, group="1")]] * 2 + [[]] * 2,
                          **{"all-gather-implementation-custom": [custom]})
    with pytest.raises(WeftError, match="a custom all-gather in a communicator group of 2 of 4 NPUs: not simulated"):
        run_astra(**inputs, comm_groups=groups)


@pytest.mark.parametrize(
    ("kind", "size", "system", "note"),
    [
        ("all-reduce", 1_000_003, {"preferred-dataset-splits": 3}, "in 3 splits runs as 4 of 333334 bytes: +33.3%"),
        ("all-reduce", 100, {}, "is not divisible by 8 NPUs"),
        ("all-reduce", 8, {}, "in 4 splits runs as 4 of 8 bytes: +300.0%"),
        ("all-reduce", MIB, {"local-mem-bw": None}, "reductions take no time"),
        ("all-to-all", MIB, {}, "28 messages one after the other; direct sends 7 at once"),
        ("all-gather", MIB, {}, "clockwise only"),
        ("all-gather", MIB, {}, "2^30 B/s"),
    ],
)
def test_silent_changes_are_told(tmp_path: Path, kind: str, size: int, system: dict[str, Any], note: str) -> None:
    result = one_collective(tmp_path, kind, size, [(RING, 8)], ["ring"], **system)
    assert any(note in one for one in result.notes), result.notes


def test_small_messages_cost_what_astra_sim_says(tmp_path: Path) -> None:
    """100 bytes on 8 NPUs in 4 splits: messages of 3 bytes."""
    assert max(one_collective(tmp_path, "all-reduce", 100, [(RING, 8)], ["ring"]).cycles) == 28_600


def test_no_memory_bandwidth_is_free_reduction(tmp_path: Path) -> None:
    result = one_collective(tmp_path, "all-reduce", MIB, [(RING, 4)], ["ring"], **{"local-mem-bw": None})
    assert max(result.cycles) == 41_560


def test_the_unaware_backend_is_told_to_be_too_fast(tmp_path: Path) -> None:
    result = one_collective(tmp_path, "all-reduce", MIB, [(SWITCH, 16)], ["direct"], backend="unaware")
    assert result.busiest_ns > max(result.cycles) == 10_680
    assert any(f"the busiest link alone needs {result.busiest_ns} cycles" in note for note in result.notes)


def test_traces_that_are_not_read_are_told(tmp_path: Path) -> None:
    nodes = [[collective_node("all-gather", MIB)]] * 3
    inputs = write_inputs(tmp_path, [(RING, 2)], nodes, **{"all-gather-implementation": ["ring"]})
    assert any("trace.2.et" in note for note in run_astra(**inputs).notes)


@pytest.mark.parametrize(
    ("kind", "size", "dims", "algorithms", "message"),
    [
        ("all-reduce", MIB, [(RING, 6)], ["halvingDoubling"], "needs a power of two, and dimension 0 has 6 NPUs"),
        ("all-to-all", MIB, [(RING, 4)], ["halvingDoubling"], "does no all-to-all"),
        ("all-gather", 3, [(RING, 4)], ["ring"], "a split has no bytes"),
        ("all-reduce", 0, [(RING, 4)], ["ring"], "a split has no bytes"),
        ("barrier", 1, [(RING, 4)], ["ring"], "key 'barrier-implementation' is not simulated"),
        ("all-reduce", MIB, [(RING, 4), (RING, 2)], ["ring"], "has 1 entries; the network has 2 dimensions"),
        ("all-reduce", 2**59, [(RING, 2)], ["ring"], None),
    ],
)
def test_what_astra_sim_never_ends(
    tmp_path: Path, kind: str, size: int, dims: list[tuple[str, int]], algorithms: list[str], message: str | None
) -> None:
    if message is None:
        assert max(one_collective(tmp_path, kind, size, dims, algorithms).cycles) > 10**15
        return
    with pytest.raises(WeftError) as wrong:
        one_collective(tmp_path, kind, size, dims, algorithms)
    assert message in str(wrong.value)


def test_memory_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Streams, messages and routes that would not fit are one line."""
    many = {"preferred-dataset-splits": 100_000}
    with pytest.raises(WeftError, match="100000 streams on each of 16 NPUs; at most 1,000,000 in all"):
        one_collective(tmp_path, "all-reduce", MIB, [(RING, 16)], ["ring"], **many)
    for limit, message in (("MOST_MESSAGES", "messages at once"), ("MOST_HOPS", "hops")):
        monkeypatch.setattr(network, limit, 9)
        with pytest.raises(WeftError, match=f"more than 9 {message}"):
            one_collective(tmp_path, "all-to-all", MIB, [(RING, 4)], ["direct"])
        monkeypatch.undo()


def test_a_missing_partner_is_named(tmp_path: Path) -> None:
    inputs = write_inputs(tmp_path, [(RING, 2)], [[compute_node(1, 0)], [message_node("receive", 0, 8, 0)]])
    with pytest.raises(WeftError, match="NPU 1 waits for a message of 8 bytes from NPU 0"):
        run_astra(**inputs)


def test_collectives_that_do_not_match_are_named(tmp_path: Path) -> None:
    ranks = [[collective_node("all-gather", MIB)], [collective_node("all-gather", 2 * MIB)]]
    inputs = write_inputs(tmp_path, [(RING, 2)], ranks, **{"all-gather-implementation": ["ring"]})
    with pytest.raises(WeftError, match="never ends"):
        run_astra(**inputs)


@pytest.mark.parametrize("change", [{"backend": "fast"}, {"queues": 0}, {"queues": 2}, {"most_events": 10}])
def test_bad_options(tmp_path: Path, change: dict[str, Any]) -> None:
    inputs = write_inputs(
        tmp_path, [(RING, 4)], [[collective_node("all-gather", MIB)]] * 4, **{"all-gather-implementation": ["ring"]}
    )
    with pytest.raises(WeftError, match=r"backend|queues|events"):
        run_astra(**inputs, **change)


def custom(folder: Path, traces: Any, dims: list[tuple[str, int]], splits: int = 1) -> Any:
    """The result of an all-reduce that runs given traces."""
    n = len(traces)
    write_ranks(folder, [trace.nodes for trace in traces], "custom")
    inputs = write_inputs(
        folder, dims, [[collective_node("all-reduce", MIB)]] * n,
        **{"all-reduce-implementation-custom": [str(folder / "custom")], "preferred-dataset-splits": splits},
    )
    return run_astra(**inputs)


def test_a_schedule_of_weft_runs_as_a_custom_collective(tmp_path: Path) -> None:
    """A ring in both directions: 14 messages of a sixteenth, one after the other, both ways at once; once a split."""
    traces = schedule_to_chakra(ring_schedules.all_reduce(ring(8), MIB))
    for splits in (1, 4):
        result = custom(tmp_path, traces, [(RING, 8)], splits)
        assert set(result.cycles) == {splits * 14 * closed.message_ns(MIB // 16, 50.0, 500.0)}
    assert any("moves the bytes of its traces, 4 times" in note for note in result.notes)


def test_the_published_custom_collective() -> None:
    """Steps of 128 KiB that wait for one another on every NPU, and additions of 7 us, where the files are at hand."""
    for folder in (DATA / "workload" / "custom_ring_allreduce_8npus_1MB",):
        if folder.exists():
            traces = [read_trace(folder / f"custom_allreduce.{rank}.et") for rank in range(8)]
            with TemporaryDirectory() as scratch:
                result = custom(Path(scratch), traces, [(RING, 8)])
            assert set(result.cycles) == {14 * closed.message_ns(131_072, 50.0, 500.0) + 7 * 7_000}


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ([collective_node("all-gather", 8)], "node 0 is not a send, receive or computation"),
        ([], "no nodes: ASTRA-sim"),
        ([message_node("receive", 1, 8, 0)], "NPU 0 never ends"),
    ],
)
def test_custom_collectives_that_never_end(tmp_path: Path, nodes: list[Any], message: str) -> None:
    with pytest.raises(WeftError, match=message):
        custom(tmp_path, [Trace("0.0.4", (), tuple(nodes)), Trace("0.0.4", (), (compute_node(1, 0),))], [(RING, 2)])
