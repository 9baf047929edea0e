"""One way in for workload files: every format by --workload or --job, in trace, train and share, with its groups."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sim.cli import main
from tests.astra_inputs import SYSTEM, collective_node, compute_node, network_text, write_ranks
from workloads.formats.chakra_attributes import Attribute
from workloads.formats.chakra_schema import Node
from workloads.passes.device import device

GOAL = "num_ranks 2\nrank 0 {\nl1: calc 1000\nl2: send 1000000b to 1\nl2 irequires l1\n}\n" \
    "rank 1 {\nl1: recv 1000000b from 0\n}\n"
HEADER = "HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 2 ep: 1 pp: {} vpp: {} ga: 2 all_gpus: 4 mode: 1 " \
    "checkpoints: 0 checkpoint_initiates: 0 pp_comm: {}"
LAYER = "layer -1 500000 ALLREDUCE 1048576 1 ALLGATHER 1048576 1 REDUCESCATTER 1048576 1"


def said(words: list[str], capsys: pytest.CaptureFixture[str], code: int = 0) -> str:
    """What a command prints, without the names of files; after an error its one line."""
    assert main(words) == code
    found = capsys.readouterr()
    assert code == 0 or (found.out == "" and found.err.count("\n") == 1)
    return found.err if code else found.out


def time_of(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """The time in the first line of `weft trace`."""
    return said(["trace", *words], capsys).splitlines()[0].rpartition(": ")[2]


@pytest.fixture
def grouped(tmp_path: Path) -> list[str]:
    """A job of eight ranks, half of whom reduce among themselves; the words that name it."""
    nodes = [[collective_node("all-reduce", 4096, 0, group="1")] for _ in range(4)]
    nodes += [[*nodes[0], collective_node("all-gather", 1024, 1, after=[0], group="2")] for _ in range(4)]
    prefix = write_ranks(tmp_path, nodes)
    (tmp_path / "groups.json").write_text('{"1": [0, 1, 2, 3, 4, 5, 6, 7], "2": [4, 5, 7, 6]}', encoding="utf-8")
    (tmp_path / "ring8.yml").write_text(network_text(("Ring", 8)), encoding="utf-8")
    return ["--topology", str(tmp_path / "ring8.yml"), "--job", str(prefix)]


def test_groups_by_one_file_everywhere(
    grouped: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    groups = str(tmp_path / "groups.json")
    flags = "--comm-group", "--communicator"
    times = {time_of([*grouped, "--algorithm", "ring", flag, groups], capsys) for flag in flags}
    assert len(times) == 1
    assert "communicator group 1 is not given: --comm-group FILE" in said(["trace", *grouped], capsys, 2)
    same = ["trace", *grouped[:2], "--workload", grouped[3], "--comm-group", groups]
    assert times.pop() in said(same, capsys).splitlines()[0]
    assert "iteration " in said(["train", *grouped, "--comm-group", groups], capsys)
    for key in ("communicator", "comm-group"):
        assert "t1, " in said(["share", *grouped[:2], "--tenant", f"job={grouped[3]} {key}={groups}"], capsys)
    said(["share", *grouped[:2], "--tenant", f"workload={grouped[3]} comm-group={groups} algorithm=swing,ring"], capsys)
    tree = said(["share", *grouped[:2], "--tenant", f"job={grouped[3]} comm-group={groups} algorithm=tree"], capsys)
    assert "# note: t1: by default, as no named algorithm implements it: all-gather by ring, all-reduce by ring" in tree


def test_operations_take_the_rates_of_the_machine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In every command, where nothing else is given; flags are over them."""
    h100 = device("h100")
    work = (Attribute("num_ops", round(h100.half / 1000), "int64"), Attribute("tensor_size", 8, "int64"))
    prefix = str(write_ranks(tmp_path, [[Node(0, "gemm", "compute", attributes=work)]] * 8))
    for fabric in (["--machine", "dgx-h100:1"], ["--topology", "dgx-h100:1"]):
        found = said(["trace", *fabric, "--job", prefix], capsys)
        assert found.splitlines()[0].endswith(": 1 ms") and "take the rates of h100: --peak" in found
    assert time_of([*fabric, "--job", prefix, "--efficiency", "0.5"], capsys) == "2 ms"
    assert time_of([*fabric, "--job", prefix, "--peak", "9890"], capsys) == "100 us"
    assert "1 ms" in said(["share", *fabric, "--tenant", f"job={prefix}"], capsys)
    timed = str(write_ranks(tmp_path, [[Node(0, "gemm", "compute", duration_us=7)]] * 8, "timed"))
    assert "the rates of" not in said(["trace", *fabric, "--job", timed], capsys)


def test_operations_take_the_roofline(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """1.6e6 operations on as many bytes: 1 us of memory, half of it at half the intensity, or an error."""
    work = (Attribute("num_ops", 1_600_000, "int64"), Attribute("tensor_size", 1_600_000, "int64"))
    prefix = str(write_ranks(tmp_path, [[Node(0, "gemm", "compute", attributes=work)]] * 2))
    words = ["--topology", "ring:2", "--job", prefix]
    assert time_of([*words, "--peak", "900", "--memory-bandwidth", "1600GB/s"], capsys) == "1 us"
    assert time_of([*words, "--peak", "1.6", "--efficiency", "0.5"], capsys) == "2 us"
    (tmp_path / "system.json").write_text(json.dumps(SYSTEM | {"peak-perf": 900}), encoding="utf-8")
    system = ["--system", str(tmp_path / "system.json")]
    assert time_of([*words, *system], capsys) == "1 us"
    assert "has the rates of its NPUs: omit --peak" in said(["trace", *words, *system, "--peak", "9"], capsys, 2)
    (tmp_path / "system.json").write_text(json.dumps(SYSTEM), encoding="utf-8")
    assert "key 'peak-perf' is missing" in said(["trace", *words, *system], capsys, 2)
    assert "1,600,000 operations and no duration: give --peak" in said(["trace", *words], capsys, 2)
    assert "--memory-bandwidth is of a roofline" in said(["trace", *words, "--memory-bandwidth", "1GB/s"], capsys, 2)


def test_collectives_of_a_job_differ(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, kinds in (("moe", ("all-to-all", "all-reduce")), ("init", ("broadcast", "all-reduce")),
                        ("barrier", ("barrier", "reduce-scatter"))):
        nodes = [collective_node(kind, 4096 * (kind != "barrier"), at, after=[0] * at) for at, kind in enumerate(kinds)]
        prefix = str(write_ranks(tmp_path, [nodes] * 4, name))
        for more in ([], ["--algorithm", "ring"], ["--algorithm", "swing,pairwise"]):
            assert time_of(["--topology", "ring:4", "--job", prefix, *more], capsys).endswith(" us")


def test_groups_of_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nodes = [[collective_node("all-reduce", 4096, 0, group=str(1 + rank))] for rank in range(2)]
    prefix = str(write_ranks(tmp_path, nodes))
    (tmp_path / "groups.json").write_text('{"1": [0], "2": [1]}', encoding="utf-8")
    words = ["--topology", "ring:2", "--job", prefix, "--comm-group", str(tmp_path / "groups.json")]
    assert time_of(words, capsys) == "0 ps"


def test_goal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The message starts with the calc."""
    path = tmp_path / "a.goal"
    path.write_text(GOAL, encoding="utf-8")
    fabric = ["--topology", "switch:2", "--link-bandwidth", "10GB/s", "--link-latency", "1us", "--hop-latency", "0s"]
    for flag in ("--job", "--workload"):
        assert time_of([*fabric, flag, str(path)], capsys) == "102 us"
    assert "a GOAL file has messages, and no collectives" in said(
        ["trace", *fabric, "--job", str(path), "--algorithm", "ring"], capsys, 2)
    for more in ([], ["--algorithms", "ring"]):
        assert "whose algorithms could be compared: weft train and weft trace time it" in said(
            ["compare", *fabric, "--workload", str(path), *more], capsys, 2)


def simai(folder: Path, pp: int = 1, vpp: int = 1, pp_comm: str = "0") -> str:
    path = folder / "simai.txt"
    path.write_text(f"{HEADER.format(pp, vpp, pp_comm)}\n1\n{LAYER}\n", encoding="utf-8")
    return str(path)


def test_the_header_of_simai(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """vpp says nothing without stages, a pipeline is told, and the groups are those of the sizes."""
    words = ["train", "--topology", "SW(2)_SW(2)", "--workload"]
    found = [said([*words, simai(tmp_path, vpp=vpp)], capsys) for vpp in (1, 8)]
    assert found[0] == found[1] and "tp all-reduce" in found[0] and "dp reduce-scatter" in found[0]
    assert said([*words, simai(tmp_path, 2, 8, "50331648.0")], capsys).count("one of 2 pipeline stages") == 1
    by_hand = "forward=2,-1;input_grad=2,-1;weight_grad=-1,2"
    times = [said([*words, simai(tmp_path), *more], capsys).split("iteration ")[1].split(" = ")[0]
             for more in ([], ["--groups", by_hand])]
    assert times[0] == times[1]
    assert "tp=2 x dp=2 x pp=1 is 4 NPUs; the network has 8" in said(
        ["train", "--topology", "switch:8", "--workload", simai(tmp_path)], capsys, 2)


def test_an_all_gather_of_simai_is_of_the_whole_array(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As long as the reduce-scatter of the same size."""
    path = tmp_path / "ag.txt"
    times = []
    for kind in ("ALLGATHER", "REDUCESCATTER"):
        path.write_text(f"{HEADER.format(1, 1, 0)}\n1\nl -1 1 {kind} 1048576 1 NONE 0 1 NONE 0 1\n", encoding="utf-8")
        words = ["train", "--topology", "SW(2)_SW(2)", "--workload", str(path)]
        times.append(said(words, capsys).split("iteration ")[1].split(" = ")[0])
    assert times[0] == times[1]


def test_a_folder_of_traces_is_told_its_prefix(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prefix = write_ranks(tmp_path, [[collective_node("all-reduce", 64)]] * 2)
    assert main(["train", "--topology", "switch:2", "--workload", str(tmp_path)]) == 2
    said = f"workload {tmp_path} is a folder: give what the names of all ranks' traces begin with, {prefix}\n"
    assert capsys.readouterr().err == f"weft train: {said}"


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["-b", "1M"], "-b is of a collective: a workload says what it moves"),
        (["--form", "latency"], "--form is of a collective"),
        (["--samples", "3"], "--samples 3.0 has no use for Chakra traces: omit it"),
        (["--repeat", "2"], "--repeat 2 has no use for Chakra traces"),
        (["--in-order"], "--in-order has no use for Chakra traces"),
        (["--microbatches", "2"], "--microbatches 2 has no use for Chakra traces"),
        (["--workload", "b"], "--workload and --job are two jobs"),
        (["--efficiency", "0.5"], "--efficiency is of a roofline, which needs --peak"),
        (["--groups", "1=-5"], "'1=-5' is not a group"),
        (["--job", ""], "--job is '': give text"),
    ],
)
def test_a_flag_without_a_use_is_an_error(
    more: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prefix = str(write_ranks(tmp_path, [[compute_node(1, 0)]] * 2))
    assert message in said(["trace", "--topology", "ring:2", "--job", prefix, *more], capsys, 2)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"schemaVersion": 1, "traceEvents": []}', "the Kineto profile of one rank"),
        ('{"schema": "1.1.1-chakra.0.0.4", "pid": 3, "nodes": []}', "a host trace of PyTorch"),
        ('{"pg_config": {}, "entries": []}', "the dump of one rank of PyTorch's NCCL flight recorder"),
        ('{"architectures": ["LlamaForCausalLM"]}', "the config.json of a model"),
        ('{"scheduling-policy": "LIFO"}', "a system file of ASTRA-sim: give it as --system"),
        ('{"memory-type": "MEMORY_POOL"}', "a remote memory file of ASTRA-sim"),
        ('{"1": [0, 1]}', "a file of communicator groups: give it as --comm-group"),
        ("# nThread 1 nGpus 8\n", "a table of measured times: weft judge reads it"),
        ("<?xml version='1.0'?>\n<!DOCTYPE platform SYSTEM 'x'>\n<platform/>",
         "a platform of SimGrid: give it as --topology"),
        ("\tGPU0\tGPU1\n", "a table of nvidia-smi topo: give it as --topology"),
        ('[topology]\nspec = "ring:8"\n', "a spec of weft: give it as --spec, or to weft sweep"),
        ('{"logical-dims": ["8"]}', "the logical dimensions of ASTRA-sim's ns-3"),
        ("topology: [ Ring ]\nnpus_count: [ 4 ]\n", "a network of ASTRA-sim: give it as --topology"),
        ("<system version='1'>\n</system>\n", "a topology of NCCL or RCCL: give it as --topology"),
        ("<algo name='x'>", "an MSCCL program"),
        ("6 2 8\n4 5\n0 4 200Gbps 0.0005ms 0\n", "a topology of ns-3"),
        ("SQLite format 3\0", "a database, as Nsight Systems"),
        ("[model]\nname = \"llama3\"\n", "a job file of torchtitan"),
    ],
)
def test_files_of_another_kind_are_named(
    text: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "other"
    path.write_text(text, encoding="utf-8")
    for flag in ("--job", "--workload"):
        found = said(["trace", "--topology", "ring:4", flag, str(path)], capsys, 2)
        assert f"{path} is {message}" in found


@pytest.mark.parametrize("command", ["compare", "trace"])
def test_keys_of_a_workload_need_one(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = [command, "--topology", "ring:4", "--algorithms", "ring", "-b", "1M", "--peak", "312"]
    assert "--peak 312.0 is of a workload: give --workload FILE, or omit it" in said(words, capsys, 2)


def test_one_trace_of_several_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prefix = write_ranks(tmp_path, [[compute_node(1, 0)]] * 2)
    found = said(["trace", "--topology", "ring:2", "--job", f"{prefix}.0.et"], capsys, 2)
    assert f"is the trace of one rank: give what comes before .<rank>.et, {prefix}" in found


def test_results_run_again(grouped: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The JSON names the files, and runs again from another folder."""
    out = tmp_path / "out.json"
    words = ["train", *grouped, "--comm-group", str(tmp_path / "groups.json"), "--json", str(out)]
    first = said(words, capsys)
    assert json.loads(out.read_text(encoding="utf-8"))["rows"][0]["loop"] is None
    assert said(["train", "--spec", str(out)], capsys) == first
