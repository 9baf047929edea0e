"""The JSON of every command runs again: `weft COMMAND --spec that.json` gives the same rows."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sim.cli import COMMANDS, main
from sim.cli.flags import EXIT_BAD_INPUT
from sim.papers import dear
from sim.study.tables import MEASURED, document
from sim.version import __version__
from tests.astra_inputs import collective_node, write_inputs
from tests.sim.cli.test_foreign_inputs import ALL_GATHER_OF_TWO
from tests.sim.cli.test_optimize_command import COST, GROUPS, NETWORK, WORK
from topologies import ring, write_topology

PLAN = 'seed = 3\n[[link-down]]\nlink = "npu0->npu1"\nat = "5us"\n[[straggler]]\nnpu = "npu1"\nspeed = 0.5\n'
SWEEP = (
    '[topology]\nspec = ["ring:4", "torus:2x2"]\n[collective]\nalgorithms = ["ring"]\n[model]\nfaults = "plan.toml"\n'
    '[sweep]\nbegin = "1K"\nend = "4K"\nfactor = 4\n'
)
OF_FILES = (
    '[topology]\nspec = ["ring.json", "ring:2"]\n[collective]\nname = "all-gather"\nalgorithms = ["gather.xml"]\n'
    '[sweep]\nbegin = "1K"\n'
)
MACHINE = 'gpu = "h100"\ngpus = 4\ninside = "switch"\nnic = "roce-400"\nnics = 4\ncpu = "amd"\n'
TENANTS = (
    '[[tenant]]\nname = "v"\nworkload = "resnet-50"\nsamples = 1\npeak = 312\nefficiency = 0.5\nactive_chunks = 4\n'
)
TRAINING = "--workload resnet-50 --samples 1 --peak 312 --efficiency 0.5"

CALLS: dict[str, tuple[str, ...]] = {
    "compare": (
        "--topology ring:4 --algorithms ring,direct -b 1K -e 4K -f 4 --chunks 2 --faults plan.toml --why",
        "--topology torus:2x2 --preset swing-paper --collective broadcast --root 2 -b 1K --engine reference",
        "--topology ring:4 --algorithms ring,direct -b 1K --engine fluid --check",
        "--topology inputs/ring.json --collective all-gather --algorithms inputs/gather.xml,ring -b 1K",
        "--machine inputs/mine.toml:2 --library nccl:2.27 --library-protocols LL,Simple -b 1K -e 1M -f 32",
    ),
    "validate": (
        "--topology ring:4 --algorithm ring -b 1K", "--topology ring:4 --algorithm ring --measured times.json",
    ),
    "judge": (
        "times.json --topology ring:4 --known latency --algorithms ring,direct",
        "times.json results/times.json --machine h100-quad --library nccl --baseline times.json",
    ),
    "calibrate": ("times.json results/times.json --machine h100-quad --library nccl --gpus-per-process 4",),
    "sweep": ("sweep.toml --why", "sweep.toml", "inputs/sweep.toml"),
    "bound": ("--topology ring:4 --collective broadcast --root 1", "--topology switch:4 --reducing-switches"),
    "train": (
        f"--topology ring:2 {TRAINING} --loop dear --bucket off --no-in-order --chunks 1 "
        "--faults straggler.toml",
        f'--topology RI(2)_FC(2) {TRAINING} --npu-bandwidth 50GB/s,20GB/s --chunks 2 --repeat 2',
        "--topology RI(4)_FC(2)_SW(4) --workload inputs/work.txt --communicator inputs/groups.yml",
    ),
    "share": (
        '--spec tenants.toml --topology ring:4 --tenant "all-reduce ring 64KiB priority=1 start=2us"',
        '--topology ring:4 --tenant "all-to-all direct 64KiB start=1us" --tenant "broadcast tree 1KiB form=binomial"',
        '--topology inputs/ring.json --tenant "all-gather inputs/gather.xml 64KiB"',
    ),
    "trace": ("--topology ring:4 --algorithm ring -b 1K --faults plan.toml", f"--topology ring:4 {TRAINING}"),
    "optimize": (
        '--network RI(4)_FC(4) --workload resnet-50 --budget 100GB/s --loop no-overlap --constraint "B1 >= B2" '
        "--evaluations 2 --chunks 1",
        "--topology torus:4x2 --collective all-reduce -b 64K --budget 100GB/s --evaluator simulated --evaluations 6 "
        "--algorithm bucket --chunks 1,2",
        "--network inputs/network.yml --workload inputs/work.txt --communicator inputs/groups.yml --cost "
        "inputs/cost.yml --budget 100GB/s --objective time-cost --evaluations 2 --chunks 1",
    ),
    "topoopt": ("--workload VGG16 --servers 4 --degree 2 --seed 0 --budget 2",),
    "reconfigure": ("--topology ocs:8x2,delay=1us,per-port --algorithm swing -b 4K", "--collective all-to-all "
                    "--algorithm pairwise --topology ocs:4x2,paid,duplex -b 64KiB"),
    "topology": ("--topology ring:4 --link-bandwidth 10GB/s", ""),
    "schedule": ("--topology ring:4 --algorithm ring -b 1K --rank 2", "--list"),
    "pool": (
        "--size 64KiB --slots 2,4 --late 3=5us --slow 0=1/2 --link-latency 1us",
        "--size 16KiB --slots 4 --loss 1e-3 --timeout 1ms --seeds 2",
        "--size 16KiB --slots 4 --jobs 2 --switch-slots 8 --rule static,hashed",
    ),
    "paper": ("dear --quick",),
    "report": ("results --title Rings --page rings.html",),
    "plot": ("results/times.json --algorithms ring",),
    "astra": ("--workload w --system s --network n --backend unaware",),
}
"""What every command is asked, in calls that take a second or less."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The files that the calls name, where the calls are run."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "plan.toml").write_text(PLAN)
    (tmp_path / "straggler.toml").write_text('[[straggler]]\nnpu = "npu1"\nspeed = 0.5\n')
    (tmp_path / "sweep.toml").write_text(SWEEP)
    (tmp_path / "tenants.toml").write_text(TENANTS)
    words = "--topology ring:4 --algorithms ring -b 1K -e 64K -f 4 --json times.json"
    assert main(["compare", *words.split()]) == 0
    for name in ("results", "inputs", "elsewhere"):
        (tmp_path / name).mkdir()
    shutil.copy(tmp_path / "times.json", tmp_path / "results")
    texts = {"network.yml": NETWORK, "groups.yml": GROUPS, "cost.yml": COST, "work.txt": WORK, "sweep.toml": OF_FILES,
             "gather.xml": ALL_GATHER_OF_TWO, "mine.toml": MACHINE}
    for name, text in texts.items():
        (tmp_path / "inputs" / name).write_text(text)
    write_topology(ring(2), tmp_path / "inputs" / "ring.json")
    monkeypatch.setattr("sim.papers.dear.QUICK", ("resnet-50",))  # a model of two, a network of three: one second
    monkeypatch.setattr("sim.papers.dear.NETWORKS", dear.NETWORKS[:1])
    return tmp_path


def words_of(command: str, call: str, folder: Path) -> list[str]:
    if command != "astra":
        return shlex.split(call)
    inputs = write_inputs(folder, [("Ring", 4)], [[collective_node("all-gather", 2**20)]] * 4,
                          **{"all-gather-implementation": ["ring"]})
    return [word for name, path in inputs.items() for word in (f"--{name}", str(path))] + ["--backend", "unaware"]


def repeatable(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Without what this machine's speed decides."""
    return [row | {"wall_s": None} for row in rows]


def writing_json() -> list[tuple[str, str]]:
    names = [name for name, command in COMMANDS.items() if "json" in command.outputs]
    return [(name, call) for name in names for call in CALLS.get(name, ("",))]


def test_every_command_that_writes_json_has_a_call() -> None:
    assert set(CALLS) == {name for name, command in COMMANDS.items() if "json" in command.outputs}


@pytest.mark.table
@pytest.mark.parametrize(("command", "call"), writing_json())
def test_the_json_of_a_command_runs_again(
    command: str, call: str, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """From another directory, and without the files that the document contains."""
    assert main([command, *words_of(command, call, folder), "--json", "first.json"]) == 0, capsys.readouterr().err
    for name in ("plan.toml", "straggler.toml", "tenants.toml", "sweep.toml"):
        (folder / name).unlink()  # whatever these said is in the document
    monkeypatch.chdir(folder / "elsewhere")
    assert main([command, "--spec", "../first.json", "--json", "../second.json"]) == 0, capsys.readouterr().err
    first, second = (json.loads((folder / f"{name}.json").read_text()) for name in ("first", "second"))
    assert first["rows"]
    assert repeatable(first["rows"]) == repeatable(second["rows"])
    assert (first["command"], first["spec"]) == (command, second["spec"])
    assert list(first)[:3] == ["weft", "command", "spec"] and list(first)[-1] == "rows"
    assert list(first.get("timing", {})) == list(second.get("timing", {}))
    assert not any(name in row for row in first["rows"] for name in MEASURED)


def test_a_document_of_another_command_names_it(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", "--spec", "times.json"]) == EXIT_BAD_INPUT
    assert capsys.readouterr().err == (
        "weft validate: spec file times.json was written by weft compare: run weft compare --spec times.json\n"
    )


def test_a_report_runs_again_to_its_own_page(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert main(["report", "results", "--page", "rings.html", "--title", "Rings", "--json", "first.json"]) == 0
    page = (folder / "rings.html").read_text()
    (folder / "rings.html").unlink()
    monkeypatch.chdir(folder / "elsewhere")
    assert main(["report", "--spec", "../first.json"]) == 0
    assert "<title>Rings" in page and (folder / "rings.html").read_text() == page


def test_measured_times_stand_beside_the_rows() -> None:
    data = json.loads(document("paper", {}, [{"a": 1, "trees_cpu_s": 0.5}, {"a": 2}]))
    assert (data["timing"], data["rows"]) == ({"trees_cpu_s": [0.5, None]}, [{"a": 1}, {"a": 2}])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[topology]\nspec = 'ring:4'\n[pool]\n", "weft compare does not use [pool]"),
        ("[pool]\nslots = [8]", "weft compare does not use [pool]: it takes topology, collective, model, sweep"),
        ('[topology]\nspec = "ring:4"\n[training]\nloop = "dear"', "--loop dear is of a workload: give --workload"),
        ("[colective]\n", "unknown section 'colective'"),
        ("[[tenants]]\n", "unknown section 'tenants'"),
        ('spec = "ring:4"', "'spec' is in no section: a heading such as [topology] is missing above it"),
        ('algorithms = ["ring"]', "'algorithms' is in no section: a heading such as [collective] is missing above it"),
        ('[topology]\nspec = "a\\u0000b.json"', "no name of a file has a zero byte"),
        ('[topology]\nspec = "ring:4"\n[model]\nfaults = "a\\u0000b"', "no name of a file has a zero byte"),
        ("speck = 3\n[model]\n", "'speck' is in no section: a heading such as [topology] is missing above it"),
        ("[model]\nchunk_size = 3", "unknown key 'chunk_size'"),
        ('[topology]\nspec = "ring:4"\nspec = "ring:8"', "Cannot overwrite a value"),
    ],
)
def test_nothing_in_a_spec_is_ignored(
    text: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "spec.toml"
    path.write_text(text)
    assert main(["compare", "--spec", str(path)]) == EXIT_BAD_INPUT
    said = capsys.readouterr().err
    assert message in said and said.count("\n") == 1


def test_a_key_that_a_command_does_not_use_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "spec.toml"
    path.write_text('[topology]\nspec = "ring:4"\n[collective]\nroot = 1\n')
    assert main(["train", "--spec", str(path)]) == EXIT_BAD_INPUT
    assert "weft train does not use 'root' of [collective]" in capsys.readouterr().err


def test_a_key_that_json_gives_twice_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "spec.json"
    path.write_text('{"spec": {"topology": {"spec": "ring:4", "spec": "ring:8"}}, "rows": []}')
    assert main(["compare", "--spec", str(path)]) == EXIT_BAD_INPUT
    assert "key 'spec' is given twice" in capsys.readouterr().err


SPEC = {"topology": {"spec": "ring:4"}, "collective": {"algorithms": ["ring"]}, "sweep": {"begin": "1K"}}
WRITTEN = {"weft": __version__, "command": "compare", "spec": SPEC, "rows": []}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"spec": None}, "its spec is None"),
        ({"spec": [SPEC]}, "its spec is [{"),
        ({"spec": ...}, "it has no spec"),
        ({"command": "nope"}, "command 'nope' is unknown: choose one of compare,"),
        ({"command": 3}, "command 3 is unknown"),
        ({"command": "sweep"}, "was written by weft sweep: run weft sweep --spec"),
        ({"spec": SPEC | {"collective": {"algorithms": [3]}}}, "algorithms is [3]: give a list of names"),
    ],
)
def test_a_document_that_is_not_one_of_weft(
    change: dict[str, Any], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps({key: value for key, value in (WRITTEN | change).items() if value is not ...}))
    assert main(["compare", "--spec", str(path)]) == EXIT_BAD_INPUT
    said = capsys.readouterr().err
    assert message in said and said.count("\n") == 1


@pytest.mark.parametrize(
    ("weft", "note"),
    [(__version__, ""), ("0.0.9", "was written by weft '0.0.9'"), (None, "does not say which weft wrote it")],
)
def test_a_document_of_another_version_is_noted(
    weft: str | None, note: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps(WRITTEN | {"weft": weft}))
    assert main(["compare", "--spec", str(path), "--quiet"]) == 0
    said = capsys.readouterr().err
    assert note in said and said.count("\n") == bool(note)


@pytest.mark.parametrize("text", [json.dumps(WRITTEN), '[topology]\nspec = "ring:4"'], ids=["json", "toml"])
def test_a_spec_is_read_from_standard_input(text: str) -> None:
    words = [sys.executable, "-m", "sim", "schedule", "--spec", "-", "--algorithm", "ring", "-b", "1K", "--quiet"]
    text = text.replace('"compare"', '"schedule"')
    ran = subprocess.run(words, input=text, capture_output=True, text=True)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "ring:4" in ran.stdout
