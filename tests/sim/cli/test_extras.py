"""What `compare`, `train` and `judge` do not need may be missing; what needs it says which extra brings it."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from sim.cli import main
from tests.places import ROOT
from topologies.checks import EXTRAS

WITHOUT = """
import sys
for name in {names}:
    sys.modules[name] = None
from sim.__main__ import main
for line in {lines}:
    sys.argv = ["weft", *line.split()]
    print(main(), flush=True)
"""


def without(names: list[str], lines: list[str], folder: Path) -> tuple[list[str], str]:
    """Exit codes and messages of commands in an environment without some packages."""
    code = WITHOUT.format(names=names, lines=[f"{line} --quiet" for line in lines])
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=folder,
                         env={"PYTHONPATH": str(ROOT), "HOME": str(folder), "NUMBA_DISABLE_JIT": "0"})
    return [line for line in run.stdout.splitlines() if line.isdigit()], run.stderr


@pytest.mark.compiled
def test_the_core_runs_without_any_extra(tmp_path: Path) -> None:
    codes, said = without([*EXTRAS, "rich"], [
        "compare --topology switch:8 --algorithms ring,direct -b 1K -e 1M -f 4 --json a.json --csv a.csv",
        "compare --topology switch:8 --algorithm ring -b 1K -e 1M -f 4 --nccl-json measured.json",
        "judge measured.json --topology switch:8 --algorithms ring,direct",
        "train --topology RI(4)_FC(4) --workload resnet-50 --samples 32 --peak 312 --efficiency 0.5",
        "compare --library nccl --machine dgx-h100:2 -b 1M -e 8M", "validate --topology torus:4x4 --algorithm swing",
        "bound --topology torus:4x4", "bound --topology random-regular:16x4",
    ], tmp_path)
    assert codes == ["0"] * 8, said


FULL = pytest.mark.full


@pytest.mark.table
@pytest.mark.parametrize(("name", "line"), [
    ("networkx", "compare --topology net.graphml --algorithm ring -b 1K"),
    pytest.param("simpy", "compare --topology ring:4 --algorithm ring -b 1K --engine reference", marks=FULL),
    pytest.param("rustworkx", "topoopt --workload VGG16 --servers 8 --degree 2", marks=FULL),
    pytest.param("clarabel", "optimize --network RI(4)_SW(4) --workload resnet-50 --budget 100GB/s", marks=FULL),
    ("matplotlib", "compare --topology ring:4 --algorithm ring -b 1K --plot a.png"),
    ("pyarrow", "sweep sweep.toml --export a.parquet"),
])
def test_what_needs_an_extra_names_it_in_one_line(name: str, line: str, tmp_path: Path) -> None:
    (tmp_path / "sweep.toml").write_text('[topology]\nspec = "ring:4"\n[collective]\nalgorithms = ["ring"]\n')
    (tmp_path / "net.graphml").write_text('<graphml><graph edgedefault="directed"/></graphml>')
    codes, said = without([name], [line], tmp_path)
    assert codes == ["2"], said
    assert f"weft[{EXTRAS[name]}]" in said and said.count("\n") == 1


def test_a_figure_that_cannot_be_drawn_is_refused_before_the_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr("sim.cli.output.find_spec", lambda name: None)
    assert main(["compare", "--topology", "torus:64x64", "--plot", str(tmp_path / "a.png")]) == 2
    assert "this needs weft[plot]: matplotlib is not installed" in capsys.readouterr().err


def test_every_extra_that_a_message_names_exists() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    for package, extra in EXTRAS.items():
        assert any(one.startswith(package) for one in extras[extra])
