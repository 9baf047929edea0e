"""`weft compare --library`: the table of nccl-tests, and what cannot be combined with it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from sim.cli import main
from tests.places import ROOT

WORDS = ["compare", "--topology", "dgx-h100:1", "--library", "nccl:2.26", "-b", "1K", "-e", "64M", "-f", "16",
         "--quiet"]


def test_rows_say_what_is_chosen_and_run_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, again = tmp_path / "first.json", tmp_path / "again.json"
    assert main([*WORDS, "--json", str(first)]) == 0
    rows = json.loads(first.read_text())["rows"]
    assert [(row["algorithm"], row["protocol"]) for row in rows][::4] == [("Ring", "LL"), ("NVLS", "Simple")]
    assert "limited by" in capsys.readouterr().out
    assert main(["compare", "--spec", str(first), "--quiet", "--json", str(again)]) == 0
    assert json.loads(again.read_text())["rows"] == rows


def test_a_profile_in_a_file_is_a_machine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('gpu = "h100"\ngpus = 4\ninside = "switch"\nnic = "roce-400"\nnics = 4\ncpu = "amd"\n')
    words = ["compare", "--machine", f"{file}:2", "-b", "1M", "--quiet"]
    assert main([*words, "--library", "nccl"]) == 0
    assert "2 nodes of 4 GPUs (h100), 4 x roce-400 a node" in capsys.readouterr().out
    assert main([*words, "--algorithms", "nccl-rings"]) == 0
    assert "mine:2, 8 NPUs" in capsys.readouterr().out


def test_the_json_of_nccl_tests_is_one_run_that_the_judge_calls_good(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, machine = tmp_path / "nccl.json", ["--machine", "dgx-h100:4", "--library", "nccl", "--quiet"]
    assert main(["compare", *machine, "-b", "8", "-e", "8G", "--nccl-json", str(file)]) == 0
    shown = capsys.readouterr().out
    assert all(word in shown for word in ("Tree", "NVLSTree", "between"))
    assert main(["judge", str(file), *machine]) == 0
    said = capsys.readouterr().out
    assert "verdict     good" in said
    assert "limited by  the links inside a node" in said
    assert "100.0% of what Ring Simple should here" in said


@pytest.mark.parametrize(("words", "said"), [
    (["--topology", "torus:4x4", "--library", "nccl"], "torus"), (["--library", "nccl"], "(or --machine)"),
    (["--topology", "dgx-h100:1", "--library", "mpi"], "mpi"),
    (["--topology", "dgx-h100:1", "--library", "nccl", "--chunks", "4"], "omit chunks"),
    (["--topology", "dgx-h100:1", "--library", "nccl", "--algorithms", "ring"], "--library-algorithms"),
    (["--topology", "dgx-h100:1", "--library", "nccl", "--link-bandwidth", "1GB/s"], "omit link_bandwidth"),
    (["--topology", "dgx-h100:1", "--library-protocols", "LL"], "add --library nccl"),
    (["--machine", "dgx-h100:1", "--topology", "ring:4"], "omit one"),
    (["--machine", "dgx-h1000:1"], "dgx-h1000"), (["--machine", "dgx-h100:none"], "'none' is no number of nodes"),
    (["--machine", "dgx-x:x", "--library", "nccl"], "machine 'dgx-x' is unknown"),
    (["--machine", "tpu-v4:4xq"], "tpu-v4:4x4"), (["--machine", "dgx-h100:0"], "write dgx-h100:4"),
    (["--machine", "dgx-h100:1", "--library", "nccl", "--plot", "x.png", "--figure", "speed-up"], "--figure speed-up"),
    (["--machine", "dgx-h100:2", "--algorithms", "ring"], "nccl-rings accepts boxes"),
    (["--machine", "dgx-h100:2", "--collective", "sendrecv"], "'sendrecv' is unknown"),
    (["--machine", "gaudi2:1", "--library", "nccl"], "only NCCL"),
])
def test_what_cannot_be_is_named(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", *words, "-b", "1M", "--quiet"]) == 2
    err = capsys.readouterr().err
    assert said in err
    assert err.count("\n") == 1


def test_the_profile_of_the_guide_is_a_machine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A user writes one in ten lines: those of docs/guides/machines.md."""
    text = re.findall(r"```toml\n(.*?)```", (ROOT / "docs/guides/machines.md").read_text(), re.DOTALL)[0]
    assert len(text.splitlines()) <= 10
    (tmp_path / "mine.toml").write_text(text)
    for nodes in (1, 2, 3, 8):
        assert main(["compare", "--machine", f"{tmp_path / 'mine.toml'}:{nodes}", "--library", "nccl", "-b", "1M"]) == 0
        assert f"{nodes} node" in capsys.readouterr().out


def test_the_table_of_ideal_links_says_what_the_library_takes(capsys: pytest.CaptureFixture[str]) -> None:
    """Not on other fabrics, and not where no library is modeled."""
    words = ["-b", "1K", "-e", "1M", "-f", "1024", "--quiet"]
    for fabric in (["--topology", "dgx-h100:1"], ["--machine", "dgx-h100:1"]):
        assert main(["compare", *fabric, "--algorithms", "nccl-rings", *words]) == 0
        assert "NCCL on 1 node of dgx-h100 is expected to take 17 us at 1 KiB and 28.01 us at 1 MiB" in (
            capsys.readouterr().out
        )
    for fabric in (["--topology", "switch:8"], ["--machine", "tpu-v5e:8"]):
        assert main(["compare", *fabric, "--algorithms", "ring", *words]) == 0
        assert "NCCL" not in capsys.readouterr().out


def test_expected_and_simulated_stand_side_by_side(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "rows.json"
    words = ["compare", "--machine", "dgx-h100:2", "--library", "nccl", "-b", "1K", "-e", "256M", "-f", "512"]
    assert main([*words, "--json", str(file)]) == 0
    said = capsys.readouterr().out
    assert "nccl-trees" in said
    assert "nvls-trees" in said
    rows = json.loads(file.read_text())["rows"]
    assert all(0.7 < row["simulated_s"] / row["time_s"] < 1.3 and not row["not_simulated"] for row in rows)
    assert main(["compare", "--machine", "gb200-nvl72:4", "--collective", "all-gather", "--library", "nccl"]) == 0
    assert "# not simulated: about" in capsys.readouterr().out


@pytest.mark.parametrize(("words", "said"), [
    (("--machine", "dgx-a100:2", "--topology", "ring:4"), "cannot be combined with a topology: omit one"),
    (("--machine", "dgx-a100:2", "--collective", "broadcast", "--root", "99"), "ranks 0 to 15"),
    (("--machine", "mi300x:1"), "--library rccl"),
])
def test_what_a_library_cannot_use_is_refused(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], said: str
) -> None:
    assert main(["compare", *words, "--library", "nccl", "-b", "1K", "-e", "1K"]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("name", ["sendrecv", "send/recv"])
def test_a_ring_of_messages_is_a_table_that_the_judge_reads(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, machine = tmp_path / "nccl.json", ["--machine", "dgx-h100:2", "--library", "nccl", "--quiet"]
    words = ["compare", *machine, "--collective", name, "-b", "1M", "-e", "1G", "-f", "8", "--nccl-json", str(file)]
    assert main(words) == 0
    assert "send/recv by nccl" in capsys.readouterr().out
    assert json.loads(file.read_text())["args"][0] == "sendrecv_perf"
    assert main(["judge", str(file), *machine]) == 0
    assert "verdict     good" in capsys.readouterr().out


def test_a_profile_without_nics_is_a_single_node(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "alone.toml"
    file.write_text('gpu = "h100"\ngpus = 8\ninside = "switch"\ncpu = "intel"\n')
    for words in (["--library", "nccl"], ["--algorithms", "nccl-rings"]):
        assert main(["compare", "--machine", str(file), *words, "-b", "1M", "-e", "1M", "--quiet"]) == 0
        capsys.readouterr()
        assert main(["compare", "--machine", f"{file}:2", *words, "-b", "1M", "-e", "1M", "--quiet"]) == 2
        assert "alone has no NICs that join 2 nodes" in capsys.readouterr().err
    file.write_text(file.read_text() + "nics = 8\n")
    assert main(["compare", "--machine", str(file), "--library", "nccl", "-b", "1M"]) == 2
    assert "lacks the key 'nic'" in capsys.readouterr().err


def test_expected_and_simulated_times_are_drawn(tmp_path: Path) -> None:
    file = tmp_path / "x.svg"
    words = ["compare", "--machine", "dgx-h100:1", "--library", "nccl", "-b", "1K", "-e", "1G", "-f", "32", "--quiet"]
    assert main([*words, "--plot", str(file)]) == 0
    drawn = file.read_text()
    assert all(word in drawn for word in ("expected", "by the engine"))


def test_a_chain_alone_is_told_from_repeats(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["compare", "--machine", "dgx-a100:1", "--library", "nccl", "-b", "16M", "-e", "16M", "--quiet"]
    for collective, told in (("broadcast", True), ("reduce", True), ("all-reduce", False)):
        assert main([*words, "--collective", collective]) == 0
        assert ("alone, expected one of 20" in capsys.readouterr().out) == told


def test_a_size_of_zero_takes_a_launch(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("dgx-h100:2", "polaris:3", "dgx-spark:4", "mi300x:1"):
        library = "rccl" if name.startswith("mi") else "nccl"
        words = ["compare", "--machine", name, "--library", library, "-b", "0", "-e", "64", "-i", "64", "--quiet"]
        assert main(words) == 0
        said = capsys.readouterr().out
        assert "0 B" in said
