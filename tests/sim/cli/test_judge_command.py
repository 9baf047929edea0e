"""`weft judge`: what ran is read from headers or named, several files are judged together, and the rest is one line."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from sim.analytic.cut_bound import cut_bound
from sim.cli import main
from sim.cli.flags import EXIT_BAD_INPUT
from sim.library.expected import expected
from sim.library.tuner import Setting
from sim.measured.diagnosis import CLASSES
from tests.places import ROOT
from topologies.machines.profile import Gpu, machine, machine_and_nodes, part

SIZES = [2**power for power in range(20, 34)]
H100 = Setting(machine=machine("dgx-h100"), nodes=4, gpus=8, collective="all-reduce")


def text(setting: Setting, *, device: str = "NVIDIA H100 80GB HBM3") -> str:
    """What nccl-tests prints, with the prefixes of mpirun --tag-output."""
    program, each = setting.collective.replace("-", "_"), setting.gpus
    head = "".join(
        f"#  Rank {rank:>2} Group  0 Pid  11 on  node{rank // each} device  {rank % each} [0x18] {device}\n"
        for rank in range(setting.n)
    )
    body = ""
    for size in SIZES:
        us = expected(setting, size).time_s * 1e6
        cells = f"{us:.2f}  {size / us / 1e3:.2f}  {size / us / 1e3 * setting.bus_factor:.2f}  0"
        body += f"  {size}  {size // 4}  float  sum  -1  {cells}  {cells}\n"
    table = "#  size  count  type  redop  root  time  algbw  busbw  #wrong  time  algbw  busbw  #wrong\n"
    whole = f"# nThread 1 nGpus 1 minBytes 8\n# Collective test starting: {program}_perf\n{head}{table}{body}"
    return "".join(f"[1,0]<stdout>: {line}\n" for line in whole.splitlines())


@pytest.fixture
def written(tmp_path: Path) -> Callable[..., str]:
    def write(name: str, setting: Setting, **how: object) -> str:
        path = tmp_path / name
        path.write_text(text(setting, **how))  # type: ignore[arg-type]  # of the function above
        return str(path)

    return write


def said(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["judge", *words, "--quiet"]) == 0
    return capsys.readouterr().out


def test_machine_and_nodes_are_those_of_the_header(
    written: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    file = written("a.txt", H100)
    alone = said(capsys, file)
    assert "4 nodes of 8 GPUs (h100), 8 x ib-ndr a node" in alone
    assert "verdict     good" in alone
    assert "verdict     good, if its NICs are 8 x ib-ndr a node, as assumed: no header names them" in alone
    assert "headers name no" not in said(capsys, file, "--machine", "dgx-h100")
    assert "4 nodes of 8 GPUs (h200), 8 x ib-ndr a node" in said(capsys, file, "--machine", "dgx-h200")
    part = written("b.txt", replace(H100, nodes=2, gpus=4))
    assert "2 nodes of 4 GPUs (h100), 4 x ib-ndr a node" in said(capsys, part, "--machine", "dgx-h100:4")
    rack = written("d.txt", replace(H100, machine=machine("gb200-nvl72"), nodes=1, gpus=72), device="NVIDIA GB200")
    eighteen = Path(rack)
    eighteen.write_text(re.sub(r"Rank (..) (.*)node0", lambda rank: f"Rank {rank[1]} {rank[2]}node{int(rank[1]) // 4}",
                               eighteen.read_text()))
    assert "1 node of 72 GPUs (gb200)" in said(capsys, rack)
    assert "1 node of 72 GPUs (gb200)" in said(capsys, rack, "--machine", "gb200-nvl72")
    amd = written("c.txt", replace(H100, machine=machine("mi300x"), nodes=1), device="AMD Instinct MI300X")
    assert "1 node of 8 GPUs (mi300x)" in said(capsys, amd)


@pytest.mark.table
@pytest.mark.parametrize("rate", [7, 10, 20, 45])
@pytest.mark.parametrize("device", ["NVIDIA A100 80GB PCIe", "NVIDIA H100 NVL", "NVIDIA H100 PCIe",
                                    "Tesla V100-PCIE-16GB", "NVIDIA L40S", "Tesla T4"])
def test_cards_for_slots_are_no_boxes(
    device: str, rate: int, written: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever PCIe gives is good, conditionally; what it cannot give asks for the machine."""
    card = machine("dgx-a100")
    gpu = part(Gpu, "gpus", {"like": "rtx-pcie", "link": f"{rate * 4 / 3}GB/s"}, "card")
    file = written("a.txt", replace(H100, machine=replace(card, gpu=gpu), nodes=1), device=device)
    out = said(capsys, file)
    assert "verdict     good, if PCIe alone joins its 8 cards, as assumed: no header names bridges" in out
    named = said(capsys, file, "--machine", "dgx-a100:1")
    assert f"the header lists {device}, judged as a100" in named and "verdict     good" not in named


@pytest.mark.parametrize(("fabric", "uses_all", "kind"), [
    ("gaudi2:1", "direct", "all-reduce"), ("gaudi3:1", "direct", "all-gather"), ("tpu-v5e:4x4", "bucket", "all-reduce"),
    ("gaudi2:1", "direct", "reduce-scatter"),
])
def test_machines_without_a_library_are_held_against_all_of_their_links(
    fabric: str, uses_all: str, kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """At their full rate good, at a sixth slow, whatever curve fits; and beyond the candidates nothing is said."""
    path = tmp_path / "a.csv"
    path.write_text("size_bytes,time_us\n")
    machine, nodes = machine_and_nodes(fabric)
    bound = float(cut_bound(machine.topology(nodes), kind).s_per_byte)
    verdicts = {}
    for share in (0.95, 1 / 6):
        path.write_text("size_bytes,time_us\n" + "".join(
            f"{size},{20 + 1e6 * size * bound / share}\n" for size in SIZES[1::3]))
        out = said(capsys, str(path), "--machine", fabric, "--collective", kind)
        verdicts[share] = re.findall(r"verdict +(\S+)", out)[0]
        if share > 0.5:
            rings = said(capsys, str(path), "--machine", fabric, "--collective", kind,
                         "--algorithms", "recursive-doubling")
            assert f"of what {uses_all} should here" in out and "verdict     cannot-say" in rings
    assert verdicts == {0.95: "good", 1 / 6: "slow-unknown"}


def test_help_names_every_verdict() -> None:
    shown = subprocess.run([sys.executable, "-m", "sim", "judge", "--help"], capture_output=True, text=True, check=True)
    assert re.findall(r"^  ([a-z][a-z0-9-]+)  +\S", shown.stdout.partition("verdicts:")[2].partition("\n\n")[0],
                      re.MULTILINE) == list(CLASSES)


def test_other_nodes_than_named_and_other_machines_are_said(
    written: Callable[..., str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = written("one.txt", replace(H100, nodes=1))
    few = said(capsys, one, "--machine", "dgx-h100:4")
    assert "--machine names 4 nodes, and " in few and "measured 8 ranks: judged as 1 node" in few
    for words in (["--machine", "dgx-h100:1"], ["--machine", "dgx-h100"], []):
        assert "--machine names" not in said(capsys, one, *words)
    other = written("other.txt", replace(H100, machine=machine("dgx-a100"), nodes=1), device="NVIDIA A100-SXM4-80GB")
    different = "note        these tables are of different machines: dgx-h100 (h100, ib-ndr), dgx-a100 (a100, ib-hdr)"
    assert different in said(capsys, one, other).partition("\n#\n")[0]  # beside the verdict on both
    assert "different machines" not in said(capsys, one, written("again.txt", replace(H100, nodes=1)))


def test_what_is_missing_is_named_and_no_more(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.txt"
    path.write_text("size busbw\n1048576 40\n1073741824 1e30\n")
    assert main(["judge", str(path)]) == 2
    assert "name the collective with --collective, and the ranks with nodes" in capsys.readouterr().err
    assert main(["judge", str(path), "--machine", "dgx-h100:1"]) == 2
    assert capsys.readouterr().err.endswith("name the collective with --collective\n")
    cut = tmp_path / "cut.json"
    cut.write_text("[1,2")
    assert main(["judge", str(cut)]) == 2
    assert "JSON must be an object, and whole" in capsys.readouterr().err
    out = said(capsys, str(path), "--machine", "dgx-h100:1", "--collective", "all-reduce")
    assert "more than 100,000%" in out and not re.search(r"\d{8,}\.\d%", out)


def test_bridges_are_asked_for(written: Callable[..., str], capsys: pytest.CaptureFixture[str]) -> None:
    pair = replace(H100, machine=machine("dgx-a100"), nodes=1, gpus=2)
    file = written("a.txt", pair, device="NVIDIA A100 80GB PCIe")
    assert main(["judge", file]) == 2
    assert "more than PCIe: the header lists 2 x NVIDIA A100 80GB PCIe and no bridges; give --machine FILE.toml" in (
        capsys.readouterr().err)


def test_a_topology_that_is_a_machine_is_judged_by_its_library(
    written: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    file = written("a.txt", replace(H100, nodes=1))
    assert "NVLS Simple" in said(capsys, file, "--topology", "dgx-h100:1")
    simulated = said(capsys, file, "--topology", "dgx-h100:1", "--algorithms", "nccl-rings")
    assert "fitted" in simulated and "NVLS" not in simulated


def test_run_again_the_tables_have_the_same_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The spec in the JSON names files by absolute paths; what was given as one is named as here too."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").write_text((ROOT / "examples" / "nccl.txt").read_text())
    for words, out in ((["a.txt"], "1.json"), (["--spec", "1.json"], "2.json"), ([str(tmp_path / "a.txt")], "3.json")):
        assert main(["judge", *words, "--quiet", "--json", out]) == 0
        assert "of a.txt (nccl-tests text)" in capsys.readouterr().out
        (table,) = json.loads((tmp_path / out).read_text())["tables"]
        assert table["source"] == "a.txt"


def test_several_files_are_one_judgment(
    written: Callable[..., str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two nodes as they should be and four slower: the links that only four need."""
    gather = replace(H100, machine=machine("dgx-a100"), collective="all-gather")
    nic = replace(gather.machine.nic, reached=0.45 * gather.machine.nic.reached)
    slow = replace(gather, machine=replace(gather.machine, nic=nic))
    words = [written("two.txt", replace(gather, nodes=2), device="NVIDIA A100-SXM4-80GB"),
             written("four.txt", slow, device="NVIDIA A100-SXM4-80GB")]
    out = said(capsys, *words, "--json", str(tmp_path / "out.json"), "--plot", str(tmp_path / "out.svg"))
    assert out.startswith("# weft judge: 2 tables\nverdict     slow-hw, if its NICs are 8 x ib-hdr a node, ")
    assert "\nlimited by  links between the switches" in out
    data = json.loads((tmp_path / "out.json").read_text())
    assert (data["verdict"], data["cause"]) == ("slow-hw", "spine")
    assert [table["verdict"] for table in data["tables"]] == ["good", "slow-hw"]
    assert {row["table"] for row in data["rows"]} == {0, 1}
    assert {rate["name"] for rate in data["rates"]} == {"NVLink", "NICs", "spine", "latency"}
    assert "four.txt: slow-hw" in (tmp_path / "out.svg").read_text()


def test_several_files_of_which_some_name_no_collective(
    written: Callable[..., str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bare = tmp_path / "bare.csv"
    gather = replace(H100, collective="all-gather")
    bare.write_text("size_bytes,busbw_GBps\n" + "".join(
        f"{size},{size * gather.bus_factor / expected(gather, size).time_s / 1e9}\n" for size in SIZES))
    file = written("a.txt", H100)
    out = said(capsys, file, str(bare), "--machine", "dgx-h100:4", "--collective", "all-gather")
    assert "all-reduce on dgx-h100" in out and "all-gather on dgx-h100" in out
    assert out.count("verdict     good") == 3
    assert main(["judge", file, "--collective", "all-gather"]) == 2


def test_what_the_header_says_otherwise_is_noted(
    written: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    file = written("a.txt", H100)
    assert "note" not in said(capsys, file, "--machine", "dgx-h100:4")
    assert "the header lists NVIDIA H100 80GB HBM3, judged as a100" in said(capsys, file, "--machine", "dgx-a100:4")
    one = Path(file)
    one.write_text(re.sub("node[1-3]", "node0", one.read_text()))
    assert "the header lists 1 host, judged as 4 nodes of dgx-h100" in said(capsys, file, "--machine", "dgx-h100:4")


def test_messages_are_judged_on_machines(written: Callable[..., str], capsys: pytest.CaptureFixture[str]) -> None:
    file = written("a.txt", replace(H100, collective="send/recv"))
    path = Path(file)
    path.write_text(path.read_text().replace("send/recv_perf", "sendrecv_perf"))
    out = said(capsys, file, "--machine", "dgx-h100:4")
    assert out.startswith("# weft judge: send/recv on dgx-h100") and "verdict     good" in out
    assert main(["judge", file, "--topology", "switch:32"]) == 2
    assert "send/recv, which is judged on machines only" in capsys.readouterr().err


def test_standard_input(written: Callable[..., str]) -> None:
    with Path(written("a.txt", H100)).open("rb") as stream:
        done = subprocess.run([sys.executable, "-m", "sim", "judge", "-", "--machine", "dgx-h100", "--quiet"],
                              stdin=stream, capture_output=True, text=True, check=True)
    assert "14 points of - (nccl-tests text)" in done.stdout and "verdict     good" in done.stdout


@pytest.mark.parametrize(("words", "message"), [
    (["FILE", "--machine", "dgx-h100:2"], "measured ranks 32, but dgx-h100 has 16"),
    (["FILE", "--known", "latency"], "--known and --reducing-switches are of fabrics that are no machine"),
    (["FILE", "--machine", "dgx-h100:4", "--library-algorithms", "Bruck"], "Bruck"),
    (["FILE", "--topology", "switch:32", "--library-protocols", "LL"], "add --library nccl"),
    (["FILE", "--topology", "switch:8"], "measured ranks 32, but 8 is requested"),
    (["BARE"], "does not say what it ran on: give --machine"),
    (["BARE", "--machine", "gaudi2:1", "--library", "nccl"], "only NCCL"),
    (["FILE", "--baseline", "none.txt"], "none.txt cannot be read"),
    ([], "judge.files"),
])
def test_what_is_wrong_is_one_line(
    words: list[str], message: str, written: Callable[..., str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = written("a.txt", H100)
    bare = tmp_path / "bare.txt"
    bare.write_text("# Collective test starting: all_reduce_perf\n# size count type time\n 1024 256 float 8.5\n")
    given = [{"FILE": file, "BARE": str(bare)}.get(word, word) for word in words]
    assert main(["judge", *given]) == 2
    error = capsys.readouterr()
    assert error.err.count("\n") == 1 and error.out == ""
    if message != "judge.files":
        assert message in error.err


def test_it_is_said_why_no_candidate_can_run(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["judge", str(ROOT / "examples" / "measured.json"), "--topology", "switch:8", "--buffer", "64KiB"]
    assert main(words) == EXIT_BAD_INPUT
    said = capsys.readouterr().err
    assert "no algorithm can run all-reduce on switch:8; " in said and "buffers of 64 KiB" in said
    assert said.count("\n") == 1


def test_what_a_machine_should_choose_goes_into_a_file(written, tmp_path, capsys):
    kinds = ("all-reduce", "all-gather")
    tables = [written(f"{kind}.txt", replace(H100, collective=kind)) for kind in kinds]
    tuner = tmp_path / "tuner.csv"
    said(capsys, *tables, "--tuner", str(tuner))
    rows = [line.split(",") for line in tuner.read_text().splitlines() if not line.startswith("#")]
    assert {row[0] for row in rows} == {"allreduce", "allgather"} and all(row[6:] == ["4", "32"] for row in rows)
    assert int(rows[0][1]) == SIZES[0]
    osu = ["judge", str(ROOT / "examples/osu.txt"), "--topology", "switch:16", "--algorithms", "ring"]
    assert main([*osu, "--tuner", str(tuner)]) == EXIT_BAD_INPUT
    assert "on a machine: give --machine" in capsys.readouterr().err
