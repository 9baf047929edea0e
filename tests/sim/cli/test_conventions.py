"""What holds for every command: examples that parse, JSON on standard output, silence in a pipe, exit codes."""

from __future__ import annotations

import argparse
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from sim.cli import COMMANDS, EXIT_BAD_INPUT, EXIT_CODES, main, parsers
from sim.cli.flags import accepted
from sim.cli.output import folded
from sim.cli.paper import _value
from sim.study.keys import flags_of, keys_of
from tests.places import ROOT

ESCAPE = "\x1b"


def examples() -> list[str]:
    """Every call of weft in the examples of the helps, without what a shell does around it."""
    found = []
    for parser in parsers().values():
        lines = (parser.epilog or "").replace("examples:\n", "").splitlines()
        for line in lines:
            for part in re.split(r"&&|<\(|\)|\s>\s|\s#\s|\|", line) if "(weft" in line else re.split(r"&&|\s>\s", line):
                if part.strip().startswith("weft "):
                    found.append(part.strip())
    return found


@pytest.mark.parametrize("example", examples())
def test_an_example_parses(example: str) -> None:
    name, *words = shlex.split(example, comments=True)[1:]
    parsed = parsers()[name].parse_args(words)
    assert isinstance(parsed, argparse.Namespace)


@pytest.mark.parametrize(("line", "said"), [
    ("# note: one two three four", ["# note: one two", "#   three four"]),
    ("limited by  the one and the other", ["limited by  the one", "            and the", "            other"]),
    ("  saves 2 us in the simulation", ["  saves 2 us in the", "    simulation"]),
    ("one two three four", ["one two three four"]),
    ("", [""]),
])
def test_a_line_of_text_is_broken_between_words_on_a_terminal(line: str, said: list[str]) -> None:
    assert folded(line, 20).split("\n") == said


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_examples_a_help_for_every_flag_and_json(name: str) -> None:
    parser, summary = parsers()[name], COMMANDS[name].help
    assert (parser.epilog or "").startswith("examples:\n  ")
    assert len(summary) > 20
    assert not summary.endswith(".")
    flags = {flag: action for action in parser._actions for flag in action.option_strings}
    assert "--json" in flags or name in ("completion", "warm"), f"weft {name} writes no JSON"
    assert [flag for flag, action in flags.items() if not action.help] == []


@pytest.mark.parametrize("name", [name for name, command in COMMANDS.items() if command.needs])
def test_all_that_is_missing_is_named_at_once(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([name]) == EXIT_BAD_INPUT
    said = capsys.readouterr().err
    for needed in COMMANDS[name].needs:
        for one in needed.split("|"):
            section, dot, key = one.partition(".")
            flag = flags_of(keys_of(section)[key])[0] if dot else f"--{one}"
            assert one == COMMANDS[name].positional or flag in said


def test_a_model_lacks_what_only_models_need(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--workload", "gpt-3", "--peak", "312"]) == EXIT_BAD_INPUT
    assert "no topology, samples or efficiency is given" in capsys.readouterr().err


COLLECTIVE_CALLS = {
    "compare": "--topology ring:4 --algorithm ring -b 1K --json -", "bound": "--topology torus:4x4 --json -",
    "validate": "--topology ring:4 --algorithm ring -b 1K --json -",
    "judge": "{measured} --topology switch:8 --algorithm ring --json -",
    "calibrate": "{measured} --machine dgx-h100:1",
    "trace": "--topology ring:4 --algorithm ring -b 1K --json -",
    "optimize": "--network torus:4x4 --algorithm bucket -b 1M --budget 200GB/s --chunks 1 --json -",
    "reconfigure": "--topology ocs:4x1 --algorithm ring -b 1K --json -",
    "schedule": "--topology ring:4 --algorithm ring -b 1K --json -",
}
"""A call of every command with --collective."""

VARIES = re.compile(r'"(wall_s|seconds_per_evaluation|\w*cpu_s)": [^,\n]*')
"""Of JSON, what a clock measures."""


@pytest.mark.parametrize("name", [
    name for name, one in COMMANDS.items() if one.positional != "spec" and "name" in accepted(one).get("collective", ())
])
def test_a_collective_has_one_meaning_however_it_is_spelled(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    measured = tmp_path / "measured.json"
    rank_8 = "compare --topology switch:8 --algorithm ring --chunks 1 -b 1K -e 64M -f 4 --nccl-json"
    assert main([*rank_8.split(), str(measured)]) == 0
    capsys.readouterr()
    words = COLLECTIVE_CALLS[name].format(measured=measured).split()
    said = set()
    for spelled in ("all-reduce", "allreduce", "all_reduce", "ALLREDUCE"):
        assert main([name, *words, "--collective", spelled]) == 0
        said.add(VARIES.sub("", capsys.readouterr().out).replace(f'"name": "{spelled}"', ""))
    assert len(said) == 1


@pytest.mark.parametrize("value", ["-5GB/s", "-.5GB/s", "-1B/s"])
def test_a_negative_value_is_a_value(value: str, capsys: pytest.CaptureFixture[str]) -> None:
    """And no flag, which would leave that before it without a value."""
    assert main(["compare", "--topology", "ring:4", "--link-bandwidth", value]) == EXIT_BAD_INPUT
    assert value in (said := capsys.readouterr().err) and "above zero" in said


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_offers_no_default_that_the_command_refuses(name: str) -> None:
    told = {flag: str(action.help) for action in parsers()[name]._actions for flag in action.option_strings}
    values = {flag: str(action.metavar) for action in parsers()[name]._actions for flag in action.option_strings}
    if "--chunks" in told:
        assert ("auto: chosen" in told["--chunks"]) == ("auto" in values["--chunks"]) == COMMANDS[name].chooses
    if name in ("schedule", "trace"):
        assert "default" not in told["--algorithm"], "it runs what is named, not all that can run"


@pytest.mark.parametrize("name", [name for name in COMMANDS if COMMANDS[name].positional])
def test_what_stands_without_a_flag_is_asked_for_without_one(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    outputs = ["--plot", "never.png"] if name == "plot" else []
    assert main([name, *outputs]) == EXIT_BAD_INPUT
    told = capsys.readouterr().err
    assert " give" in told
    assert "write --" not in told
    assert "no files is" not in told


LIGHT = (
    "topology --json -",
    "topology --topology torus:2x2 --json -",
    "schedule --list --json -",
    "schedule --topology ring:4 --algorithm ring -b 1K --json -",
    "bound --topology ring:4 --json -",
    "compare --topology ring:4 --algorithms ring -b 1K --engine analytic --json -",
)


@pytest.mark.parametrize("words", LIGHT)
def test_json_is_all_of_standard_output(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words.split()) == 0
    said = capsys.readouterr()
    assert isinstance(json.loads(said.out), dict)
    assert ESCAPE not in said.out + said.err


def test_a_pipe_gets_the_table_alone_and_no_colors(tmp_path: Path) -> None:
    words = "compare --topology ring:4 --algorithms ring,direct -b 1K -e 4K --csv out.csv"
    run = subprocess.run(
        [sys.executable, "-m", "sim", *words.split()], cwd=tmp_path, capture_output=True, text=True, timeout=120,
        check=True, env={"PYTHONPATH": str(ROOT), "FORCE_COLOR": "", "TERM": "xterm-256color", "PATH": "/usr/bin:/bin"},
    )
    assert run.stderr == ""
    assert run.stdout.startswith("# weft compare")
    assert ESCAPE not in run.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["out.csv"]


def test_who_asks_for_progress_gets_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = f"compare --topology ring:4 --algorithms ring -b 1K --csv {tmp_path}/a.csv --engine analytic".split()
    heard = []
    for flags in ([], ["--quiet"], ["--progress"]):
        assert main([*words, *flags]) == 0
        heard.append(capsys.readouterr().err)
    assert heard[:2] == ["", ""]
    assert heard[2].startswith("compare: schedules: 1/1 done, ring\ncompare: 1/1 done")
    assert heard[2].endswith(f"wrote {tmp_path}/a.csv\n")


@pytest.mark.parametrize("name", [name for name, command in COMMANDS.items() if command.outputs])
def test_progress_is_asked_for_or_not(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    for one, other in (("--quiet", "--progress"), ("--progress", "--quiet")):
        with pytest.raises(SystemExit) as ended:
            main([name, one, other])
        assert ended.value.code == EXIT_BAD_INPUT
        assert capsys.readouterr().err == f"weft {name}: argument {other}: not allowed with argument {one}\n"


def test_exit_codes_are_in_the_help_and_in_the_reference(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    text = capsys.readouterr().out
    reference = (ROOT / "docs" / "reference" / "commands.md").read_text()
    for code, meaning in EXIT_CODES.items():
        assert re.search(rf"^  {code} +{re.escape(meaning)}$", text, re.MULTILINE)
        assert f"| {code} | {meaning} |" in reference


@pytest.mark.parametrize(
    ("text", "value"), [("3", 3), ("-3", -3), ("0.5", 0.5), ("nan", "nan"), ("", None), ("a", "a")]
)
def test_a_cell_of_a_paper_is_the_number_that_it_is(text: str, value: object) -> None:
    assert _value(text) == value
    assert type(_value(text)) is type(value)


STAGES = {"imports", "parse", "topology", "pattern", "proof", "lowering", "quotient", "bounds", "engine",
          "compilation", "critical path", "output"}


def test_a_profile_names_every_stage_once_and_only_if_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = f"compare --topology torus:3x5 --algorithms bucket -b 1K --why --json {tmp_path}/a.json".split()
    assert main([*words, "--profile"]) == 0
    table = capsys.readouterr().err.splitlines()
    rows = json.loads((tmp_path / "a.json").read_text())["stages"]
    names = [row["stage"] for row in rows]
    may_be_at_hand = {"topology", "pattern", "proof", "quotient", "compilation", "output"}
    assert STAGES | {"other"} >= set(names) >= STAGES - may_be_at_hand
    assert len(names) == len(set(names)) and len(table) == 1 + len({*names, "output"})
    assert all(row["wall_s"] >= 0 and row["peak_bytes"] >= 0 for row in rows)
    assert main(words) == 0
    assert capsys.readouterr().err == ""
    assert "stages" not in json.loads((tmp_path / "a.json").read_text())


@pytest.mark.parametrize(("words", "said"), [
    (["compare", "--topology", "ring:3", "--chunks", "-1"], "--chunks is -1: give an integer from 1"),
    (["compare", "--topology", "ring:3", "--nic-order", "x"], "--nic-order 'x' is unknown: choose one of rotate, fifo"),
    (["compare", "--topology", "ring:3", "--element-bytes", "0"], "--element-bytes is 0: give an integer from 1"),
    (["optimize", "--network", "RI(2)", "--collective", "all-reduce", "--budget", "1GB/s", "--evaluator", "x"],
     "--evaluator 'x' is unknown: choose one of analytic, simulated"),
    (["train", "--topology", "ring:2", "--workload", "resnet-50", "--samples", "1e400"], "--samples is inf: give a"),
    (["compare", "--topology", "ring:3", "--aggregation-per", "port"], "--aggregation-per needs --aggregation-rate"),
])
def test_a_bad_value_is_told_with_its_flag(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    assert capsys.readouterr().err.startswith(f"weft {words[0]}: {said}")


def test_a_bad_value_of_a_file_is_told_with_its_key(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "spec.toml"
    file.write_text('[topology]\nspec = "ring:3"\n[model]\nnic_order = "x"\n', encoding="utf-8")
    assert main(["compare", "--spec", str(file)]) == 2
    assert capsys.readouterr().err.startswith("weft compare: nic_order 'x' is unknown")
