"""How a run is done, as commands that simulate take it: each flag reaches every run, and nothing else is run."""

from __future__ import annotations

import re
from typing import Any

import pytest

from sim.certify import healthy
from sim.cli import COMMANDS, main
from sim.cli.commands import RUNS
from sim.cli.flags import EXIT_BAD_INPUT
from sim.engine import run as engine

CALLS = {
    "compare": ("--topology ring:4 --algorithms ring -b 1K -e 1K --chunks 4 --spread 0",
                "--topology dgx-h100:1 --library nccl -b 1K -e 1K"),
    "validate": ("--topology ring:4 --algorithm ring -b 1K --chunks 4 --spread 0",),
    "judge": ("{table} --topology switch:4 --collective all-reduce --algorithms ring,direct",),
    "sweep": ("{sweep} --store {folder}/a.db",),
    "train": ("--topology SW(4) --workload examples/layers.txt --groups forward=4;input_grad=4;weight_grad=4",),
    "share": ("--topology ring:4 --tenant|all-reduce ring 1KiB",),
    "trace": ("--topology ring:4 --algorithm ring -b 1K --chunks 16 --spread 0",
              "--topology SW(4) --workload examples/layers.txt --groups forward=4;input_grad=4;weight_grad=4"),
    "optimize": ("--network RI(4)_SW(2) --collective all-reduce -b 1M --budget 10GB/s --evaluations 4",
                 "--network RI(4)_SW(2) --workload resnet-50 --budget 10GB/s --evaluations 4"),
    "topoopt": ("--workload NCF --servers 8 --degree 2 --budget 2",),
    "reconfigure": ("--topology ocs:8x2 --algorithm swing -b 1KiB --chunks 2",),
    "pool": ("--size 64KiB --slots 4", "--size 64KiB --slots 4 --jobs 2 --rule static,shared,hashed",
             "--size 64KiB --slots 4 --late 0=1ms --partial-timeout 10us"),
}
EVERY = [(name, words) for name, all_words in CALLS.items() for words in all_words]
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

TABLE = """#       size         count      type   redop    root     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)
""" + "".join(f"{2**n} {2**n // 4} float sum -1 {10 + 2**n / 1e4:.2f} 0.1 0.1 0\n" for n in range(10, 24, 2))


def words_of(words: str, folder: Any) -> list[str]:
    (folder / "sweep.toml").write_text(SWEEP)
    (folder / "table.txt").write_text(TABLE)
    first, *tenant = words.format(sweep=folder / "sweep.toml", table=folder / "table.txt", folder=folder).split("|")
    return [*first.split(), *tenant]


def test_all_commands_that_simulate_take_the_same_flags() -> None:
    flags = {name: set(command.run_flags) for name, command in COMMANDS.items()}
    assert {name for name, own in flags.items() if own - {"max_events"}} == set(CALLS)
    assert all(set(RUNS) <= flags[name] for name in CALLS)


@pytest.mark.parametrize(("name", "words"), EVERY)
@pytest.mark.parametrize("given", [True, False])
def test_each_flag_reaches_every_run(
    name: str, words: str, given: bool, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the door of the engine, whoever calls it."""
    seen: list[int | None] = []
    checked: list[Any] = []
    to_end, conserve = engine.advance_to_end, healthy._conservation

    def ended(one: Any, max_events: Any = None, *others: Any) -> Any:
        seen.append(max_events)
        return to_end(one, max_events, *others)

    def certified(program: Any, outcome: Any) -> None:
        checked.append(program)
        conserve(program, outcome)

    monkeypatch.setattr(engine, "advance_to_end", ended)
    monkeypatch.setattr(healthy, "_conservation", certified)
    flags = ["--check", "--max-events", "1000000"] * given
    assert main([name, *words_of(words, tmp_path), *flags]) == 0
    if given:
        assert set(seen) == {1_000_000}
        assert len(checked) == len(seen)
    else:
        assert None in seen
        assert not checked


@pytest.mark.parametrize(("name", "words"), EVERY)
def test_every_command_stops_at_the_limit_of_services(
    name: str, words: str, tmp_path: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    told = main([name, *words_of(words, tmp_path), "--max-events", "1"]), capsys.readouterr().err
    assert (told[0], told[1].count("\n")) == (EXIT_BAD_INPUT, 1)
    assert re.search("stopped at the limit of 1 services", told[1])


@pytest.mark.parametrize("flag", ["--check", "--max-events 9"])
@pytest.mark.parametrize(
    ("name", "words"),
    [("judge", "examples/nccl.txt --machine dgx-h100:2"),
     ("optimize", "--network RI(4)_SW(2) --workload ncf --budget 10GB/s --evaluator analytic")],
)
def test_flags_of_runs_are_refused_where_nothing_is_run(
    name: str, words: str, flag: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([name, *words.split(), *flag.split()]) == EXIT_BAD_INPUT
    assert f"{flag.split()[0]} is for simulations" in capsys.readouterr().err


def test_a_check_is_refused_where_nothing_is_simulated(capsys: pytest.CaptureFixture[str]) -> None:
    words = "compare --topology ring:4 -b 1K --algorithms ring --engine analytic --check"
    assert main(words.split()) == EXIT_BAD_INPUT
    told = capsys.readouterr().err
    assert "a check needs an engine that simulates, not 'analytic'" in told and told.count("\n") == 1


def test_a_library_has_one_comparison_for_one_process(capsys: pytest.CaptureFixture[str]) -> None:
    words = "compare --topology dgx-h100:1 --library nccl -b 1K -e 1K --workers 2"
    assert main(words.split()) == EXIT_BAD_INPUT
    assert "--workers is for comparisons of algorithms" in capsys.readouterr().err
