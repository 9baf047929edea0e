"""The JSON of every command runs again: `weft COMMAND --spec that.json` gives the same rows."""

from __future__ import annotations

import json
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest

from sim.cli import COMMANDS, main
from sim.cli.flags import EXIT_BAD_INPUT
from sim.study.document import UNREPEATABLE
from tests.astra_inputs import collective_node, write_inputs

PLAN = 'seed = 3\n[[link-down]]\nlink = "npu0->npu1"\nat = "5us"\n[[straggler]]\nnpu = "npu1"\nspeed = 0.5\n'
SWEEP = (
    '[topology]\nspec = ["ring:4", "torus:2x2"]\n[collective]\nalgorithms = ["ring"]\n[model]\nfaults = "plan.toml"\n'
    '[sweep]\nbegin = "1K"\nend = "4K"\nfactor = 4\n'
)
TENANTS = '[[tenant]]\nworkload = "resnet-50"\nsamples = 1\npeak = 312\nefficiency = 0.5\nactive_chunks = 4\n'
TRAINING = "--workload resnet-50 --samples 1 --peak 312 --efficiency 0.5"

CALLS: dict[str, tuple[str, ...]] = {
    "compare": (
        "--topology ring:4 --algorithms ring,direct -b 1K -e 4K -f 4 --chunks 2 --faults plan.toml --why",
        "--topology torus:2x2 --preset swing-paper --collective broadcast --root 2 -b 1K --engine reference",
    ),
    "validate": (
        "--topology ring:4 --algorithm ring -b 1K", "--topology ring:4 --algorithm ring --measured times.json",
    ),
    "judge": ("times.json --topology ring:4 --known latency --algorithms ring,direct",),
    "sweep": ("sweep.toml --why", "sweep.toml"),
    "bound": ("--topology ring:4 --collective broadcast --root 1", "--topology switch:4 --reducing-switches"),
    "train": (
        f"--topology ring:4 {TRAINING} --loop dear --bucket off --no-in-order --faults straggler.toml",
        f'--topology RI(2)_FC(2) {TRAINING} --npu-bandwidth 50GB/s,20GB/s --chunks 2 --repeat 2',
    ),
    "share": (
        '--spec tenants.toml --topology ring:4 --tenant "all-reduce ring 64KiB priority=1 start=2us"',
        '--topology ring:4 --tenant "all-to-all direct 64KiB start=1us" --tenant "broadcast tree 1KiB form=binomial"',
    ),
    "trace": ("--topology ring:4 --algorithm ring -b 1K --faults plan.toml", f"--topology ring:4 {TRAINING}"),
    "optimize": (
        '--network RI(4)_FC(4) --workload resnet-50 --budget 100GB/s --loop no-overlap --constraint "B1 >= B2"',
        "--topology torus:4x2 --collective all-reduce -b 64K --budget 100GB/s --evaluator simulated --evaluations 6 "
        "--algorithm bucket --chunks 1,2",
    ),
    "topoopt": ("--workload VGG16 --servers 4 --degree 2 --seed 0 --budget 2",),
    "reconfigure": ("--topology ring:8 --delay 1us --per-port", "--collective all-to-all --algorithm pairwise "
                    "--topology ring:4 --size 64KiB"),
    "topology": ("--topology ring:4 --link-bandwidth 10GB/s", ""),
    "schedule": ("--topology ring:4 --algorithm ring -b 1K --rank 2", "--list"),
    "pool": (
        "--size 64KiB --slots 2,4 --late 3=5us --slow 0=1/2 --link-latency 1us",
        "--size 16KiB --slots 4 --loss 1e-3 --timeout 1ms --seeds 2",
        "--size 16KiB --slots 4 --jobs 2 --switch-slots 8 --rule static,hashed",
    ),
    "paper": ("dear --quick",),
    "report": ("results",),
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
    (tmp_path / "results").mkdir()
    shutil.copy(tmp_path / "times.json", tmp_path / "results")

    def two_rows(out: Path, quick: bool) -> None:
        (out / "dear.csv").write_text(f"point,ours,quick\na,0.5,{quick}\nb,1,{quick}\n")

    monkeypatch.setattr("sim.papers.dear.run", two_rows)  # what a paper computes is tested with the paper
    return tmp_path


def words_of(command: str, call: str, folder: Path) -> list[str]:
    if command != "astra":
        return shlex.split(call)
    inputs = write_inputs(folder, [("Ring", 4)], [[collective_node("all-gather", 2**20)]] * 4,
                          **{"all-gather-implementation": ["ring"]})
    return [word for name, path in inputs.items() for word in (f"--{name}", str(path))] + ["--backend", "unaware"]


def repeatable(value: Any) -> Any:
    """Without what this machine's speed decides."""
    if isinstance(value, dict):
        return {key: repeatable(one) for key, one in value.items() if key not in UNREPEATABLE}
    return [repeatable(one) for one in value] if isinstance(value, list) else value


def writing_json() -> list[tuple[str, str]]:
    names = [name for name, command in COMMANDS.items() if "json" in command.outputs]
    return [(name, call) for name in names for call in CALLS.get(name, ("",))]


def test_every_command_that_writes_json_has_a_call() -> None:
    assert set(CALLS) == {name for name, command in COMMANDS.items() if "json" in command.outputs}


@pytest.mark.compiled
@pytest.mark.parametrize(("command", "call"), writing_json())
def test_the_json_of_a_command_runs_again(
    command: str, call: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, *words_of(command, call, folder), "--json", "first.json"]) == 0, capsys.readouterr().err
    for name in ("plan.toml", "straggler.toml", "tenants.toml", "sweep.toml"):
        (folder / name).unlink()  # whatever these said is in the document
    assert main([command, "--spec", "first.json", "--json", "second.json"]) == 0, capsys.readouterr().err
    first, second = (json.loads((folder / f"{name}.json").read_text()) for name in ("first", "second"))
    assert first["rows"]
    assert repeatable(first["rows"]) == repeatable(second["rows"])
    assert (first["command"], first["spec"]) == (command, second["spec"])
    assert list(first)[:3] == ["weft", "command", "spec"] and list(first)[-1] == "rows"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[pool]\nslots = [8]", "weft compare does not use [pool]: it takes topology, collective, model, sweep"),
        ('[topology]\nspec = "ring:4"\n[training]\nloop = "dear"', "weft compare does not use [training]"),
        ("[colective]\n", "unknown section 'colective'"),
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
    path.write_text('[topology]\nspec = "ring:4"\n[model]\npreset = "swing-paper"\n')
    assert main(["train", "--spec", str(path)]) == EXIT_BAD_INPUT
    assert "weft train does not use 'preset' of [model]" in capsys.readouterr().err


def test_a_key_that_json_gives_twice_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "spec.json"
    path.write_text('{"spec": {"topology": {"spec": "ring:4", "spec": "ring:8"}}, "rows": []}')
    assert main(["compare", "--spec", str(path)]) == EXIT_BAD_INPUT
    assert "key 'spec' is given twice" in capsys.readouterr().err
