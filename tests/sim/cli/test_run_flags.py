"""How a run is done, as commands that simulate take it: each flag reaches every run, but those that try chunks."""

from __future__ import annotations

from typing import Any

import pytest

from sim import simulation
from sim.cli import COMMANDS, main

CALLS = {
    "compare": "--topology ring:4 --algorithms ring -b 1K -e 1K --chunks 4",
    "validate": "--topology ring:4 --algorithm ring -b 1K --chunks 4",
    "sweep": "{sweep} --store {folder}/a.db",
    "train": "--topology SW(4) --workload examples/layers.txt --groups forward=4;input_grad=4;weight_grad=4",
    "share": "--topology ring:4 --tenant|all-reduce ring 1KiB",
    "trace": "--topology ring:4 --algorithm ring -b 1K",
    "reconfigure": "--topology ring:8 --size 1KiB --delay 1us",
}
SWEEP = """
[topology]
spec = "ring:4"
[collective]
algorithms = ["ring"]
[sweep]
begin = "1K"
end = "1K"
[model]
chunks = 4
"""
NAMES = [name for name, command in COMMANDS.items() if "skip" in command.run_flags]


def test_runs_are_checked_and_simulated_in_full_by_the_same_commands() -> None:
    flags = {name: set(command.run_flags) for name, command in COMMANDS.items()}
    both = {"check", "skip", "threads"}
    assert {name for name in flags if flags[name] & both} == set(CALLS)
    assert all(both <= flags[name] for name in CALLS)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("given", [True, False])
def test_each_flag_reaches_every_run(
    name: str, given: bool, tmp_path: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    runs: list[Any] = []
    start = simulation._Run.__init__

    def noted(self: Any, *arguments: Any) -> None:
        start(self, *arguments)
        if self.engine == "chunk":
            runs.append(self)

    monkeypatch.setattr(simulation._Run, "__init__", noted)
    (tmp_path / "sweep.toml").write_text(SWEEP)
    words = CALLS[name].format(sweep=tmp_path / "sweep.toml", folder=tmp_path)
    first, *tenant = words.split("|")
    flags = ["--check", "--no-skip", "--threads", "2"] * given
    assert main([name, *first.split(), *tenant, *flags]) == 0
    assert {(run.check, run.skip, run.threads) for run in runs} == {(given, not given, 2 if given else None)}
