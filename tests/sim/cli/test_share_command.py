"""`weft share`: tenants as text and as tables, times alone and shared, and one line for what is wrong."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest

from collectives import build
from sim import simulate
from sim.cli import main
from sim.cli.commands import COMMANDS
from sim.cli.flags import EXIT_BAD_INPUT, accepted
from sim.cli.share import make_tenant, read_tenant
from sim.program.model import ENGINES
from topologies import WeftError, from_spec

RING = ("share", "--topology", "ring:4", "--quiet")
TWO = ("--tenant", "all-reduce ring 1MiB name=a", "--tenant", "all-gather ring 1MiB start=2us priority=1")
FILE = """
[topology]
spec = "torus:4x4"

[[tenant]]
name = "left"
collective = "all-reduce"
algorithm = "hierarchical"
size = "64KiB"
group = "4,2"
pipeline_chunks = 2
npus = "0-3,4-7"

[[tenant]]
collective = "all-to-all"
algorithm = "direct"
size = "16K"
start = "1us"
priority = 1
"""
LAYERS = "one -1 1000 NONE 0 1000 NONE 0 1000 ALLREDUCE 65536 10\n"


def share(tmp_path: Path, *words: str) -> dict[str, Any]:
    assert main([*words, "--quiet", "--check", "--json", str(tmp_path / "a.json")]) == 0
    found: dict[str, Any] = json.loads((tmp_path / "a.json").read_text(encoding="utf-8"))
    return found


def test_alone_shared_and_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = share(tmp_path, *RING, *TWO)
    one, other = data["rows"]
    assert (one["tenant"], other["tenant"]) == ("a", "t2")
    for row, kind in ((one, "all-reduce"), (other, "all-gather")):
        assert row["alone_s"] == simulate(build("ring", kind, from_spec("ring:4"), "1MiB")).time_s
        assert row["slowdown"] == pytest.approx(row["time_s"] / row["alone_s"])
        assert sum(row["why"]["parts_ps"].values()) == row["why"]["makespan_ps"] == round(row["time_s"] * 1e12)
        assert row["all_lower_bound_s"] <= row["all_end_s"]
    assert any(name.startswith("behind a: ") for name in other["why"]["parts_ps"])
    assert other["end_s"] == pytest.approx(2e-6 + other["time_s"])
    assert data["model"]["discipline"] == "priority"  # priorities differ, and nothing else was asked for
    said = capsys.readouterr().out
    assert said.startswith("# weft share: 2 tenants on ring:4, 4 NPUs\n# model: cut-through")
    assert "slow-down" in said and "#   t2, " in said and "behind a " in said
    # The result runs again from its own file.
    written = (tmp_path / "a.json").replace(tmp_path / "written.json")
    again = share(tmp_path, "share", "--spec", str(written))
    assert again["rows"] == data["rows"] and again["spec"] == data["spec"]
    assert data["spec"]["tenant"][1]["priority"] == 1  # a number, whatever it was given as


def test_tables_of_a_file_and_a_process_group(tmp_path: Path) -> None:
    (tmp_path / "t.toml").write_text(FILE, encoding="utf-8")
    words = "share", "--spec", str(tmp_path / "t.toml"), "--tenant", "broadcast tree 1K root=2 form=binomial"
    left, every, more = share(tmp_path, *words)["rows"]
    assert left["work"].startswith("all-reduce hierarchical") and left["priority"] == 0
    assert every["work"] == "all-to-all direct 16 KiB" and every["start_s"] == pytest.approx(1e-6)
    assert more["tenant"] == "t3"


def test_iterations_and_files_are_tenants_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "layers.txt").write_text(LAYERS, encoding="utf-8")
    (tmp_path / "a.goal").write_text(
        "num_ranks 4\nrank 0 {\nl1: send 1024b to 1 tag 0\n}\nrank 1 {\nl1: recv 1024b from 0 tag 0\n}\n"
        "rank 2 {\n}\nrank 3 {\n}\n", encoding="utf-8",
    )
    words = [
        *RING, "--tenant", f"workload={tmp_path}/layers.txt groups=weight_grad=4 in-order=true updates=false name=w",
        "--tenant", f"job={tmp_path}/a.goal start=1us", "--csv", "-", "--perfetto", str(tmp_path / "p.json"),
    ]
    assert main(words) == 0
    said = capsys.readouterr()
    rows = list(csv.DictReader(io.StringIO(said.out)))
    assert [row["tenant"] for row in rows] == ["w", "t2"]
    assert rows[0]["work"] == "iteration of layers" and "# weft share" in said.err
    assert (tmp_path / "p.json").stat().st_size > 1000


def test_faults_hold_for_all(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = tmp_path / "f.toml"
    plan.write_text('[[straggler]]\nnpu = "npu0"\ndelay = "3us"\n', encoding="utf-8")
    data = share(tmp_path, *RING, *TWO, "--faults", str(plan))
    assert data["rows"][0]["faults"]["straggler"] == [{"npu": "npu0", "delay": "3us", "speed": 1.0}]
    assert data["spec"]["model"]["faults"] == data["rows"][0]["faults"]
    assert data["rows"][0]["why"]["parts_ps"]["late worker npu0"] == pytest.approx(3_000_000, abs=1)
    assert "# faults: +" in capsys.readouterr().out
    plan.write_text('timeout = "1us"\n[[link-down]]\nlink = "npu0->npu1"\n', encoding="utf-8")
    assert main([*RING, *TWO, "--faults", str(plan)]) == EXIT_BAD_INPUT
    said = capsys.readouterr()
    assert said.out == "" and "a from npu0 to npu1 (1 of 6), t2 from npu0 to npu1 (1 of 3)" in said.err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "a tenant is empty: write COLLECTIVE ALGORITHM SIZE, workload=NAME, model=NAME or job=FILE"),
        ("all-reduce ring", "tenant 't1': no size is given: write COLLECTIVE ALGORITHM SIZE"),
        ("x ring 1K", "tenant 't1': collective 'x' is unknown"),
        ("all-reduce y 1K", "tenant 't1': algorithm 'y' is unknown"),
        ("all-reduce ring 1X", "tenant 't1': size '1X' is not a size"),
        ("all-reduce ring 1K 7", "'7' is one word too many: write COLLECTIVE ALGORITHM SIZE, then NAME=VALUE"),
        ("all-reduce ring 1K priority=hi", "tenant 't1': priority 'hi' is not an integer"),
        ("all-reduce ring 1K priority=99999999999", "tenant 't1': priority is 99999999999: give an integer"),
        ("all-reduce ring 1K start=5", "arrival '5' is not a time"),
        ("all-reduce ring 1K npus=3-1", "npus '3-1': the first number is above the last"),
        ("all-reduce ring 1K npus=0-3000000", "npus '0-3000000': the NPUs are 0 to 3"),
        ("all-reduce ring 1K npus=0-3,0-3", "npus '0-3,0-3' name an NPU twice"),
        ("all-reduce ring 1K npus=0,0", "npus (0, 0) name an NPU twice"),
        ("all-reduce in-network 1K npus=0,1", "in-network is made for whole networks, not for a group of 2 of the 4"),
        ("all-reduce ring 1K start=" + "9" * 5000, "arrival '" + "9" * 59 + "... is not a time"),
        ("all-reduce ring 1K foo=1", "unknown key 'foo'; accepted are name, start, priority, npus, place, collective"),
        ("all-reduce ring 1K name=a name=b", "'name' is given twice"),
        ("all-reduce 'ring", "No closing quotation"),
        ("all-reduce ring 1K =3", "'=3': write NAME=VALUE"),
        ("priority=1", "give one of collective, workload, job, model; none is given"),
        ("all-reduce ring 1K job=a", "give one of collective, workload, job, model; collective and job is given"),
        ("workload=resnet-50", "--workload resnet-50 needs --samples"),
        ("workload=resnet-50 samples=x", "samples is 'x': give a number"),
        ("workload=resnet-50 samples=16 updates", "'updates' has no value: write NAME=VALUE, such as in-order=true"),
        ("workload=resnet-50 foo=1", "unknown key 'foo'; accepted are name, start, priority, npus, place, workload"),
        ("workload=resnet-50 in-order=perhaps", "in_order is 'perhaps': give true or false"),
        ("job=nothere.goal", "GOAL file nothere.goal cannot be read"),
        ("job=a.goal samples=1", "--samples 1.0 has no use for a GOAL file: omit it"),
    ],
)
def test_bad_tenants_are_one_line(text: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*RING, "--tenant", text]) == EXIT_BAD_INPUT
    said = capsys.readouterr()
    assert said.out == "" and message in said.err and said.err.count("\n") == 1 and len(said.err) < 1000


COLLECTIVE = "collective = 'all-reduce'\nalgorithm = 'ring'\nsize = '1K'\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[topology]", "no tenant is given"),
        ("[tenant]\na = 1", "write it as [[tenant]] with its keys below"),
        ("[sweep]\nbegin = '1K'", "weft share does not use [sweep]: it takes topology, model, workload, tenant"),
        ("[other]\na = 1\n[[tenant]]\njob = 'a'", "unknown section 'other'"),
        ("[[tenant]]\ncollective = 'all-reduce'\nalgorithm = 'ring'\nsize = true", "size True is not a text"),
        ("[[tenant]]\ncollective = 'all-reduce'\nalgorithm = ['ring']", "algorithm is ['ring']: give text"),
        ("[[tenant]]\nworkload = 2020-01-01", "tenant 't1': workload is datetime.date(2020, 1, 1): give text"),
        ("[[tenant]]\njob = 5", "job is 5: give text"),
        *((f"[[tenant]]\n{COLLECTIVE}{line}", message) for line, message in (
            ("npus = [0, true]", "NPU True is not an integer"),
            ("npus = true", "NPU True is not an integer"),
            ("npus = 4", "npus (4,): the NPUs are 0 to 3"),
            ("npus = []", "npus are empty: name some, or leave them out for all"),
            ("npus = 2020-01-01", "npus datetime.date(2020, 1, 1) are neither a text such as 0-31,40 nor a list"),
            ("name = 2020-01-01", "tenant datetime.date(2020, 1, 1): name is datetime.date(2020, 1, 1): give text"),
            ("name = true", "name is True: give text"),
            ("name = 5", "name is 5: give text"),
            ('name = "a\\u001b[31mb\\nc"', r"'name' is 'a\x1b[31mb\nc': give printable text"),
            ('name = ""', "a name is printable text, not empty"),
            (f"name = '{'n' * 61}'", "of at most 60 characters"),
            ("start = true", "start True is not a time"),
            ("start = 5", "start 5 is not a time: give text with a unit, such as 10us"),
            ("element-bytes = 4\nelement_bytes = 4", "'element_bytes' is given twice, with - and with _"),
            ("root = 2020-01-01", "'root' is datetime.date(2020, 1, 1): give text or a number"),
            ("pipeline = inf", "'pipeline' is inf: give printable text, or a finite number"),
            (f"root = 0x{'f' * 5000}", "has an integer of 20000 bits: the limit is 64"),
        )),
    ],
)
def test_bad_files_are_one_line(
    text: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "t.toml").write_text(text, encoding="utf-8")
    assert main([*RING, "--spec", str(tmp_path / "t.toml")]) == EXIT_BAD_INPUT
    said = capsys.readouterr()
    assert said.out == "" and message in said.err and said.err.count("\n") == 1


def test_values_of_tables_may_be_numbers() -> None:
    topology = from_spec("torus:4x4")
    table = {"collective": "broadcast", "algorithm": "tree", "size": "1K", "root": 3, "element-bytes": 8, "priority": 2}
    made = make_tenant(table, topology, 7)
    assert made.tenant.name == "t7" and made.tenant.priority == 2 and made.what == "broadcast tree (binomial) 1 KiB"
    group = {"collective": "all-reduce", "algorithm": "hierarchical", "size": "1K", "pipeline_chunks": 2,
             "group": "4,1", "npus": [0, 1, 2, 3]}
    assert make_tenant(group, topology, 1).tenant.npus == (0, 1, 2, 3)
    with pytest.raises(WeftError, match="write NAME=VALUE"):
        read_tenant("all-reduce ring size=")


NICS = ("--nic", "shared", "--injection-rate", "37.5GB/s", "--rank-progress", "authors", "--check")
COMMANDS_OF_JOBS = {
    "share": (*RING, *TWO[:3], "all-gather ring 1MiB start=2us", *NICS, "--vcs", "2", "--buffer", "1MiB"),
    "train": ("train", "--topology", "RI(4)_FC(2)", "--workload", "examples/layers.txt", "--quiet", "--groups",
              "forward=4,-1;input_grad=4,-1;weight_grad=-1,2", *NICS, "--discipline", "round-robin-flow"),
}


@pytest.mark.table
@pytest.mark.parametrize("more", [(), ("--deliver", "head"), ("--preset", "swing-paper", "--tie", "split")])
@pytest.mark.parametrize("command", COMMANDS_OF_JOBS)
def test_jobs_take_every_option_of_a_schedule(
    command: str, more: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    """An iteration and tenants behind NICs, in both engines."""
    assert set(accepted(COMMANDS[command])["model"]) == set(accepted(COMMANDS["compare"])["model"])
    times = []
    for engine in ("chunk", "reference"):
        assert main([*COMMANDS_OF_JOBS[command], *more, "--engine", engine, "--json", "-"]) == 0
        rows = json.loads(capsys.readouterr().out)["rows"]
        times.append([row["time_s"] for row in rows])
    assert times[0] == times[1] and all(time > 0 for time in times[0])


@pytest.mark.parametrize("engine", ENGINES)
def test_engines_that_are_offered_run(engine: str, capsys: pytest.CaptureFixture[str]) -> None:
    offered = engine in COMMANDS["share"].helps["model.engine"][1].split()
    assert main([*RING, *TWO, "--engine", engine]) == (0 if offered else EXIT_BAD_INPUT)
    assert offered or f"--engine {engine}: the table says" in capsys.readouterr().err


def test_a_plan_on_a_machine_is_that_of_train(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The device and the nodes are those of the machine, as in `weft train --inline`."""
    asked, file = ["--machine", "dgx-h100:2"], tmp_path / "out.json"
    tenant = "model=gpt-1.7b tp=4 global_batch=4 zero=0 sequence=512"
    assert main(["share", *asked, "--chunks", "1", "--tenant", tenant, "--json", str(file)]) == 0
    (row,) = json.loads(file.read_text())["rows"]
    words = ["--model", "gpt-1.7b", "--tp", "4", "--global-batch", "4", "--zero", "0", "--sequence", "512"]
    assert main(["train", *asked, *words, "--inline", "--json", str(file), "--quiet"]) == 0
    alone = json.loads(file.read_text())["rows"][0]
    assert row["time_s"] == alone["time_s"]
