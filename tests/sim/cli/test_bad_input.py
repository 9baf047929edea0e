"""Every mistake: one clear line, exit code 2, and no file written."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sim.cli import main
from sim.cli.flags import EXIT_BAD_INPUT
from sim.papers import PAPERS
from sim.study import points
from sim.study.spec import Spec
from tests.places import ROOT
from topologies import Topology

CASES: dict[str, tuple[list[str], str]] = {
    "unknown algorithm": (["--algorithm", "swingg"], "algorithm 'swingg' is unknown: choose one of swing"),
    "unknown topology": (["--topology", "donut:8x8"], "topology 'donut:8x8' is unknown: choose one of torus:8x8"),
    "a folder": (["--topology", "/"], "topology '/' is a folder: name a file .graphml"),
    "capitals": (["--topology", "Torus:8x8"], "(did you mean torus?)"),
    "unknown collective": (["--collective", "all-to-none"], "collective 'all-to-none' is unknown"),
    "unknown preset": (["--preset", "swing"], "preset 'swing' is unknown: choose one of swing-paper"),
    "unknown form": (["--algorithm", "swing", "--form", "best"], "form 'best' belongs to none of swing"),
    "misspelled form": (["--algorithm", "swing", "--form", "bandwith"], "latency (did you mean bandwidth?)"),
    "misspelled option": (["--algorithm", "in-network", "--option", "tres=2"], "routers (did you mean trees?)"),
    "misspelled link latency": (["--link-latency", "5xs"], "link latency '5xs' is not a time: write a number with s"),
    "negative link latency": (["--link-latency=100ns,-5ns"], "link latency '-5ns' is negative"),
    "no size of a fabric": (["--topology", "torus"], "topology 'torus' has no size: write torus:8x8"),
    "negative root": (["--collective", "broadcast", "--root", "-1"], "root is -1: give an integer from 0"),
    "negative element": (["--element-bytes", "-4"], "--element-bytes is -4: give an integer from 1"),
    "unknown forwarding": (["--forwarding", "wormhole"], "forwarding 'wormhole' is unknown"),
    "unknown tie": (["--tie", "random"], "tie 'random' is unknown"),
    "unknown discipline": (["--discipline", "lifo"], "discipline 'lifo' is unknown"),
    "unknown delivery": (["--deliver", "middle"], "deliver 'middle' is unknown"),
    "unknown nic": (["--nic", "bonded"], "nic 'bonded' is unknown: choose one of none, shared"),
    "unknown progress": (["--rank-progress", "some"], "--rank-progress 'some' is unknown"),
    "a queue of a NIC whose engines take turns": (
        ["--nic", "shared", "--nic-queue", "1B"],
        "--nic-queue 1B: with engines that take turns it is one chunk; give nic_order fifo",
    ),
    "an option of a NIC without one": (["--nic-order", "fifo"], "--nic-order fifo: is of a NIC, and there is none"),
    "a credit latency without buffers": (["--credit-latency", "1us"], "is of buffers, and there are none"),
    "a buffer below a chunk": (["--chunk", "8KiB", "--buffer", "1B"], "are smaller than the largest chunk"),
    "too many channels": (["--vcs", "3"], "vcs 3: links have 1 virtual channel, or 2 with datelines"),
    "bubbles without buffers": (["--bubble"], "bubble: is about buffers of links with one virtual channel"),
    "bubbles in small buffers": (
        ["--chunk", "8KiB", "--buffer", "1B", "--bubble"], "are smaller than two of the largest chunk",
    ),
    "a unit of buffers": (["--buffer", "64K!"], "buffer '64K!' is not a size"),
    "posts in order without a NIC": (["--rank-progress", "any"], "it needs nic shared"),
    "no engine": (["--nic", "shared", "--nic-engines", "0"], "--nic-engines is 0"),
    "missing unit of a push": (["--nic", "shared", "--push-time", "1"], "push time '1' is not a time"),
    "missing unit of an injection": (["--nic", "shared", "--injection-rate", "3"], "--injection-rate '3' is not a"),
    "algorithm of another collective": (["--algorithm", "tree"], "tree does not implement all-reduce"),
    "missing unit of a rate": (["--link-bandwidth", "400"], "'400' is not a rate: write a number with b/s or B/s"),
    "missing unit of a time": (["--link-latency", "100"], "'100' is not a time"),
    "no unit of a chunk": (["--chunk", "8X"], "chunk '8X' is not a size"),
    "zero bandwidth": (["--link-bandwidth", "0Gb/s"], "'0Gb/s' must be above zero"),
    "negative bandwidth": (["--link-bandwidth=-4Gb/s"], "'-4Gb/s' must be above zero"),
    "a bandwidth too many": (["--link-bandwidth", "1Gb/s,2Gb/s,3Gb/s"], "has 3 values; give one for all"),
    "negative latency": (["--hop-latency=-1ns"], "'-1ns' is negative"),
    "not a power of two": (
        ["--topology", "torus:6x6", "--collective", "reduce-scatter", "--algorithm", "recursive-doubling"],
        "must all be powers of two",
    ),
    "odd extents": (
        ["--topology", "torus:3x4", "--algorithm", "swing", "--form", "bandwidth"], "needs even extents",
    ),
    "chunk of zero": (["--chunk", "0B"], "chunk '0B' is less than 1B"),
    "zero chunks": (["--chunks", "0"], "chunks is 0: give an integer from 1"),
    "chunk and chunks": (["--chunk", "8KiB", "--chunks", "4"], "not both"),
    "negative size": (["-b", "-8"], "-b '-8' is negative"),
    "sweep backwards": (["-b", "8K", "-e", "4K"], "ends at 4 KiB, before it begins at 8 KiB"),
    "root of an all-reduce": (["--root", "3"], "all-reduce has no root"),
    "root that is not there": (["--collective", "broadcast", "--root", "99", "--algorithm", "tree"], "root 99"),
    "no such spec": (["--spec", "none.toml"], "none.toml cannot be read"),
    "zero extent": (["--topology", "torus:0x4"], "extents are positive integers"),
    "too many nodes": (["--topology", "torus:100000x100000"], "would need about 10.04 TiB of memory"),
}


def refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """The one line that a command says as it rejects."""
    assert main(words) == EXIT_BAD_INPUT
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    return said.err


@pytest.mark.parametrize("command", ["compare", "validate"])
@pytest.mark.parametrize(("words", "message"), CASES.values(), ids=CASES)
def test_one_line_and_no_file(
    command: str, words: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    default = [word for word in ("--topology=torus:8x8", "-b=1K") if word.partition("=")[0] not in words]
    files = ["--json", "a.json", "--csv", "a.csv", "--plot", "a.png"]
    said = refused([command, *default, *words, *files, "--quiet"], capsys)
    assert said.startswith(f"weft {command}: ")
    assert message in said
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("words", [["compare", "--topology", "ring:4", "--collective", ""], ["report", ""],
                                   ["compare", "--topology", "ring:4", "--spec", ""]])
def test_nothing_that_is_empty_counts_as_not_given(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.json").write_text('{"rows": [{"time_s": 1}]}', encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert main(words) == EXIT_BAD_INPUT
    assert capsys.readouterr().err.count("\n") == 1 and [one.name for one in tmp_path.iterdir()] == ["a.json"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--figure", "speed-up", "--plot", "a.png", "--baseline", "tree"], "'tree' is not among the algorithms"),
        (["--plot", "a.png", "--baseline", "ring"], "--baseline ring is of a speed-up: add --plot"),
    ],
)
def test_a_baseline_is_checked_before_the_run(
    words: list[str], message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sim.cli.compare.compute", None)
    compare = ["compare", "--topology", "ring:4", "--algorithms", "ring,direct", "-b", "1K", "--json", "a.json"]
    assert message in refused([*compare, *words], capsys)


def test_no_workers_are_too_few(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["compare", "--topology", "torus:4x4", "-b", "1K", "--quiet", "--workers", "0"]
    assert "--workers 0 is out of range" in refused(words, capsys)


@pytest.mark.parametrize(
    ("section", "key"),
    [("topology", "bandwidth"), ("collective", "method"), ("model", "chunk_size"), ("sweep", "to")],
)
def test_an_unknown_key_of_a_file_is_named(
    section: str, key: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "experiment.toml"
    file.write_text(f"[{section}]\n{key} = 1\n")
    said = refused(["compare", "--spec", str(file)], capsys)
    assert f"[{section}] has the unknown key {key!r}: accepted are " in said


def islands(path: Path) -> Path:
    """A graph file of two pairs of NPUs that nothing joins."""
    nodes = [{"id": f"n{rank}", "kind": "npu", "rank": rank} for rank in range(4)]
    pairs = ((0, 1), (1, 0), (2, 3), (3, 2))
    edges: list[dict[str, Any]] = [
        {"source": f"n{a}", "target": f"n{b}", "bandwidth_Bps": 1e9, "latency_s": 1e-7} for a, b in pairs
    ]
    path.write_text(json.dumps({"directed": True, "multigraph": False, "graph": {}, "nodes": nodes, "edges": edges}))
    return path


@pytest.mark.parametrize("words", [[], ["--algorithm", "ring"]])
def test_an_unreachable_pair_is_named(words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = islands(tmp_path / "islands.json")
    said = refused(["compare", "--topology", str(file), "-b", "1K", *words, "--json", str(tmp_path / "a.json")], capsys)
    assert "no route joins n0 and n2" in said
    assert [path.name for path in tmp_path.iterdir()] == ["islands.json"]


def test_a_run_too_large_for_memory_says_so_before_it_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("topologies.core.extents.physical_memory", lambda: 3 * 2**33)
    monkeypatch.setattr("sim.study.ranked.simulate_ready", None)  # nothing may be computed
    words = ["--topology", "torus:64x64", "--algorithm", "ring", "--symmetry", "off", "-b", "8", "-e", "1M"]
    said = refused(["compare", *words, "--json", str(tmp_path / "a.json")], capsys)
    assert "ring on torus:64x64 is too large" in said
    assert "GiB of memory; the limit is 16 GiB, two thirds of this machine's memory" in said
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--json", "none/a.json"], "--json none/a.json: there is no folder none"),
        (["--csv", "none/a.csv"], "--csv none/a.csv: there is no folder none"),
        (["--plot", "a.bmp"], "--plot a.bmp has the suffix '.bmp': write .png or .pdf or .svg"),
        (["--json", "."], "--json . is a folder"),
        (["--json", "loop"], "--json loop: Too many levels of symbolic"),
        (["--json", "away"], "--json away: there is no folder "),
        (["--csv", "a" * 300], "File name too long"), (["--json", "file/a.json"], "there is no folder file"),
        (["--csv", "a.png"], "--csv a.png has the suffix '.png' of another kind of file: write .csv"),
        (["--json", "a.csv"], "--json a.csv has the suffix '.csv' of another kind of file: write .json"),
        (["--nccl-json", "a.gz"], "--nccl-json a.gz has the suffix '.gz' of another kind of file: write .json"),
    ],
)
def test_an_output_that_cannot_be_is_told_before_anything_runs(
    words: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sim.study.ranked.simulate_ready", None)
    Path("loop").symlink_to("loop")
    Path("away").symlink_to("nowhere/a.json")
    Path("file").touch()
    assert message in refused(["compare", "--topology", "torus:4x4", "-b", "1K", *words], capsys)


@pytest.mark.parametrize("names", ["ring,", ",ring", "ring,,bucket", "ring, ", ",", ""])
def test_no_name_in_a_list_is_empty(names: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["compare", "--topology", "ring:4", "--algorithms", names])
    assert ended.value.code == EXIT_BAD_INPUT
    said = capsys.readouterr().err
    assert said.endswith(f"{names!r}: give a list of names, none of them empty\n") and said.count("\n") == 1


@pytest.mark.parametrize("name", ["a", "a.txt", "a.dat"])
def test_texts_take_any_suffix_of_no_other_kind(name: str, tmp_path: Path) -> None:
    words = "compare --topology ring:4 --algorithms ring -b 1K --engine analytic --quiet --csv"
    assert main([*words.split(), str(tmp_path / name)]) == 0
    assert (tmp_path / name).read_text().startswith("topology,")


def test_the_real_command_line_exits_with_2(tmp_path: Path) -> None:
    words = ["compare", "--topology", "torus:8x8", "--link-bandwidth", "400", "--json", str(tmp_path / "a.json")]
    run = subprocess.run([sys.executable, "-m", "sim", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == EXIT_BAD_INPUT
    assert run.stdout == ""
    assert run.stderr.count("\n") == 1
    assert "Traceback" not in run.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["compare", "--figure", "speedup"], "'speedup' is unknown: choose one of comparison, speed-up, roofline (did"),
        (["plot", "--columns", "3"], "3 is unknown: choose one of 1, 2"),
        (["help"], "(did you mean --help?)"),
        (["completion", "bsh"], "'bsh' is unknown: choose one of bash, zsh, fish (did you mean bash?)"),
        (["topology", "torus:4x4"], "torus:4x4 (a fabric follows its flag: --topology torus:8x8)"),
    ],
)
def test_what_the_parser_rejects_is_said_in_the_same_words(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match=str(EXIT_BAD_INPUT)):
        main(words)
    assert message in capsys.readouterr().err


def test_papers_are_listed_where_none_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert f"choose one of {', '.join(PAPERS)}" in refused(["paper"], capsys)
    assert f"choose one of {', '.join(PAPERS)} (did you mean swing?)" in refused(["paper", "swin"], capsys)


@pytest.mark.parametrize("flag", ["--workers", "--max-events", "--seed"])
def test_all_flags_ask_for_integers_in_the_same_words(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match=str(EXIT_BAD_INPUT)):
        main(["compare", flag, "1.5"])
    assert f"{flag}: '1.5': give an integer" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words", [["judge", "a", "a"], ["judge", "b", "--baseline", "a", "--baseline", "a"], ["calibrate", "a", "a"],
              ["plot", "a", "a"]],
)
def test_no_file_counts_twice(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert "is ['a', 'a']: give a list of files, none of them twice" in refused(words, capsys)


TRAIN = "train --topology RI(4)_SW(4) --workload bert-large --samples 64 --peak 312 --efficiency 0.5"
BILLION = 10**9

ABSURD = {
    "repeat": (f"{TRAIN} --repeat {BILLION}", "--repeat 1,000,000,000: a job of at least"),
    "microbatches": (f"{TRAIN} --parallelism pp=4 --microbatches {BILLION}", "1,000,000,000 microbatches is too large"),
    "pipeline chunks": (f"{TRAIN} --pipeline-chunks {BILLION}", "--pipeline-chunks is 1000000000: give an integer"),
    "orders": (
        f"optimize --network {'_'.join(['RI(2)'] * 12)} --collective all-reduce -b 1M --budget 9GB/s --orders all",
        "the knobs make more than 512 choices",
    ),
    "interfaces": (f"topoopt --degree {BILLION}", "1,000,000,000 interfaces of a server: at most 1,024"),
    "routes": (f"topoopt --routes {BILLION}", "1000000000 routes per message: from 1 to 1024"),
    "moves": (f"topoopt --budget {10**21}", "budget of moves is 1000000000000000000000: give an"),
    "engines": (
        f"compare --topology ring:4 -b 1K --nic shared --nic-engines {BILLION}",
        "engines is 1000000000: give an integer",
    ),
    "messages": (
        f"schedule --topology ring:4 --algorithm ring -b 1K --goal a.goal --goal-chunks {BILLION}",
        "GOAL of 12,000,000,000 messages or more: at most 2,000,000 are written",
    ),
}


def test_of_named_algorithms_nothing_is_built_that_one_makes_useless(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Those that lack the collective are found first; after the first that cannot run, no other is tried."""
    built: list[str] = []
    ready = points._ready

    def counted(spec: Spec, topology: Topology, name: str, size_bytes: int, symmetry: str) -> Any:
        built.append(name)
        return ready(spec, topology, name, size_bytes, symmetry)

    monkeypatch.setattr(points, "_ready", counted)
    words = ["compare", "--topology", "switch:4", "-b", "1K", "--algorithms"]
    assert "pairwise does not implement all-reduce" in refused([*words, "swing,pairwise"], capsys)
    assert built == []
    assert "only direct networks are supported" in refused([*words, "ring,bfb,swing"], capsys)
    assert built == []


@pytest.mark.parametrize(("words", "message"), ABSURD.values(), ids=ABSURD)
def test_what_is_far_too_large_is_refused_before_it_is_built(
    words: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(words.split()) == EXIT_BAD_INPUT
    told = capsys.readouterr().err
    assert message in told and told.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_what_can_never_finish_is_told_in_ranks_and_steps(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["compare", "--topology", "torus:4x4", "-b", "64K", "--algorithms", "nccl-trees", "--spread", "0"]
    assert main([*words, "--rank-progress", "any", "--nic", "shared"]) == EXIT_BAD_INPUT
    said = capsys.readouterr().err
    assert said.startswith("weft compare: 32 of 60 tasks can never finish: npu8 to npu0 (step 4) waits for ")
    assert "; npu0 to npu8 (step 5) waits for npu8 to npu0 (step 4); " in said and said.count("\n") == 1


@pytest.mark.parametrize(("words", "wrong"), [
    (["train", "--topology", "torus:4x4", "--model", "foo"], "--model 'foo' is unknown: choose one of "),
    (["train", "--topology", "ring:4", "--workload", "gpt-3", "--samples", "16", "--peak", "300", "--efficiency", "0.5",
      "--parallelism", "tp=0"], "--parallelism 'tp=0': tp is 0: give an integer from 1"),
    (["train", "--topology", "ring:4", "--workload", "broken.json"], "workload broken.json is not JSON: "),
    (["train", "--topology", "ring:4", "--workload", "other.json"], "workload other.json is JSON, and none of what "),
    (["judge", "a.json", "a.json"], "FILE is ['a.json', 'a.json']: give a list of files, none of them twice"),
    (["plot", ""], "FILE is ['']: give a list of files, none of them twice"),
    (["paper", "nosuch"], "NAME 'nosuch' is unknown: choose one of swing, "),
    (["sweep", "", "--store", "s.db"], "sweep file . cannot be read: Is a directory"),
])
def test_what_is_wrong_is_said_first_and_by_its_own_name(
    words: list[str], wrong: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("broken.json").write_text('{"a": ')
    Path("other.json").write_text('{"a": 1}')
    assert main(words) == EXIT_BAD_INPUT
    said = capsys.readouterr().err
    assert said.startswith(f"weft {words[0]}: {wrong}") and said.count("\n") == 1
