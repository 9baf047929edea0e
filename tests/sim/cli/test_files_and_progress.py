"""Files appear whole or not at all; progress goes to standard error and is silent on demand."""

from __future__ import annotations

import os
import re
from contextlib import nullcontext
from pathlib import Path
from threading import Event
from threading import enumerate as all_threads

import pytest

from collectives import build
from sim import simulate
from sim.cli import main
from sim.cli.commands import COMMANDS
from sim.cli.flags import EXIT_BAD_INPUT, command_parser
from sim.cli.output import write_text, write_whole
from sim.cli.progress import _fitted, _Plain, _Warning, progress
from sim.program.outcome import Progress, Stopped
from sim.study import points
from topologies import WeftError, ring
from topologies.stages import count, doing, hearing

HALF = Progress(events=6_000_000, total_events=12_000_000, now_ps=1, events_per_s=2e6)


def test_a_run_that_takes_hours_says_so_soon(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Chunks of one byte: how many services, and how long they will take, as soon as the pace tells."""
    within, done = _Warning.within, []

    def once(self: _Warning, inside: Progress) -> None:
        within(self, inside)
        done.append(inside.events)
        if self.is_said:
            raise KeyboardInterrupt

    monkeypatch.setattr("sim.cli.progress.LONG_SECONDS", 15)
    monkeypatch.setattr(_Warning, "within", once)
    assert main(["compare", "--topology", "ring:8", "--algorithms", "ring", "--chunk", "1B", "-b", "1G"]) == 130
    said = [line for line in capsys.readouterr().err.splitlines() if not line.startswith("compiling")]
    assert re.fullmatch(r"compare: 1,879,048,192 services, \d+% at [\d.]+ M services/s, \d+ s left", said[0])
    assert len(said) == 2 and "interrupted" in said[1] and 0 < done[0] <= done[-1] < 1_879_048_192 // 2


def test_memory_that_is_not_there_takes_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*given: object) -> None:
        raise MemoryError("Unable to allocate 1.82 TiB")

    monkeypatch.setattr("sim.study.ranked.simulate_ready", full)
    assert main(["compare", "--topology", "ring:4", "--algorithms", "ring", "-b", "1K", "--quiet"]) == 2
    said = capsys.readouterr()
    assert said.out == "" and said.err.count("\n") == 1
    assert said.err.startswith("weft compare: out of memory: Unable to allocate 1.82 TiB: ")


@pytest.mark.parametrize("name", [name for name, command in COMMANDS.items() if command.outputs])
def test_a_named_pipe_is_no_output(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It would wait for its reader for ever; none is asked for what else is missing."""
    pipe = tmp_path / "pipe.json"
    os.mkfifo(pipe)
    for kind in COMMANDS[name].outputs:
        assert main([name, f"--{kind.replace('_', '-')}", str(pipe)]) == EXIT_BAD_INPUT
        assert "is a named pipe" in capsys.readouterr().err


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_text("old")

    def fail(temporary: Path) -> None:
        temporary.write_text("half")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        write_whole(file, fail)
    assert file.read_text() == "old"
    assert list(tmp_path.iterdir()) == [file]


def test_a_new_file_has_the_usual_permissions(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    before = os.umask(0o027)
    try:
        write_text(str(file), "new")
    finally:
        os.umask(before)
    assert file.read_text() == "new"
    assert file.stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize(("flag", "value"), [("figure", "roofline"), ("columns", "1")])
def test_what_is_of_a_figure_is_not_ignored_without_one(
    flag: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", "--topology", "ring:4", "--algorithms", "ring", "-b", "1K", f"--{flag}", value]) == 2
    assert f"--{flag} {value} is of a figure: add --plot FILE" in capsys.readouterr().err


def test_standard_output_that_is_closed_takes_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdout", None)
    assert main(["topology", "--topology", "ring:4", "--json", "-"]) == 1
    assert capsys.readouterr().err.splitlines()[-1] == "weft topology: standard output: Bad file descriptor"


@pytest.mark.parametrize("closed", ["stdout", "stderr"])
@pytest.mark.parametrize(("call", "code"), [
    ("compare --topology ring:4 --algorithms ring -b 1K --json rows.json --progress", 0),
    ("compare --topology ring:4 --algorithms ring -b 1K --csv - --json rows.json", 1),
    ("topology", 0), ("completion bash", 1), ("topology --topology ring:0", 2),
])
def test_a_stream_that_is_closed_costs_no_file_and_no_traceback(
    call: str, code: int, closed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(f"sys.{closed}", None)
    assert main(call.split()) == (0 if code == 1 and closed == "stderr" else code)
    assert (tmp_path / "rows.json").exists() == ("rows.json" in call)
    said = capsys.readouterr()
    assert len((said.out if closed == "stdout" else said.err).splitlines()) == 0
    assert "Traceback" not in said.err


def test_more_perturbed_runs_than_anyone_needs_are_refused_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "--topology", "ring:4", "-b", "1K", "--algorithms", "ring", "--spread", "10000"]) == 2
    said = "weft compare: --spread 10000 is not a number of perturbed runs from 0 to 1000\n"
    assert capsys.readouterr().err == said


def test_a_dash_is_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    write_text("-", "text")
    assert capsys.readouterr().out == "text"


def test_plain_progress_says_when_all_is_done(capsys: pytest.CaptureFixture[str]) -> None:
    with progress("work", 2) as steps:
        steps.begin("first")
        steps.advance("first")
        steps.within(HALF)
        steps.advance("second")
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err == "work: 2/2 done, second\n"


def test_plain_progress_speaks_now_and_then(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sim.cli.progress.PLAIN_SECONDS", -1)
    with progress("work", 3) as steps:
        steps.within(HALF)
        steps.advance("first")
    assert capsys.readouterr().err == "work: 0/3 done, then 50% at 2.0 M services/s, 3 s left\nwork: 1/3 done, first\n"


@pytest.mark.parametrize(("events", "rate", "said"), [
    (2_000_000, 5e6, "0%"),  # 0.4 s
    (2_000_000, 4e6, "0% at 4.0 M services/s, 250 s left"),
    (10_000_000, 5e7, "1% at 50.0 M services/s, 20 s left"),  # 0.2 s
])
def test_services_tell_no_time_left_before_enough_was_seen(
    events: int, rate: float, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sim.cli.progress.PLAIN_SECONDS", -1)
    with progress("work", 1) as steps:
        steps.within(Progress(events, 1_000_000_000, 1, rate))
    assert capsys.readouterr().err == f"work: 0/1 done, then {said}\n"


def test_beats_are_silent_while_a_run_reports(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Beats come four times a second and were always there first when the next line was due."""
    now = 0.0
    monkeypatch.setattr("sim.cli.progress.monotonic", lambda: now)
    monkeypatch.setattr("sim.cli.progress._heard_beats", lambda steps: nullcontext())
    with progress("work", 1) as steps:
        for now in (0.9, 1.9, 2.8, 3.9):
            steps.within(HALF)
            now += 0.12
            steps.beat("in engine")
        now = 6.0
        steps.beat("6 s in bounds")
    *of_run, last = capsys.readouterr().err.splitlines()
    assert of_run == ["work: 0/1 done, then 50% at 2.0 M services/s, 3 s left"] * 2
    assert last == "work: 0/1 done, then 6 s in bounds"


def test_flows_tell_no_time_left_while_hardly_any_has_ended(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sim.cli.progress.PLAIN_SECONDS", -1)
    monkeypatch.setattr("sim.cli.progress.LONG_SECONDS", -1)
    few, half = (Progress(events, 1000, 1, 50.0, "flows") for events in (1, 500))
    for quiet, head in ((False, "work: 0/3 done, then"), (None, "work: 1,000 flows,")):
        for inside, said in ((few, "0% of its flows ended"), (half, "50% at 50 flows/s, 10 s left")):
            with progress("work", 3, quiet) as steps:
                steps.within(inside)
            assert capsys.readouterr().err == f"{head} {said}\n"


def test_loops_tell_how_far_they_are_and_how_long_it_takes_at_their_rate(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The clock of a loop begins anew with another unit, and where it begins anew; nobody hears one outside."""
    seconds = iter(range(0, 10_000, 10))
    monkeypatch.setattr("sim.cli.progress.monotonic", lambda: next(seconds))
    with progress("work", 2):
        for unit, done in (("trees", 1), ("trees", 3), ("flows of water", 2), ("flows of water", 1)):
            count(unit, done, 4)
    count("trees", 4, 4)
    first, second, *others = capsys.readouterr().err.splitlines()
    assert first == "work: 0/2 done, then 1 of 4 trees"
    assert second == "work: 0/2 done, then 3 of 4 trees, 15 s left at this rate"
    assert others == [f"work: 0/2 done, then {done} of 4 flows of water" for done in (2, 1)]


def test_where_none_was_asked_for_a_long_loop_is_announced_once_with_what_is_left_of_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What its first steps took says nothing: a quick command whose streams are piped prints its result alone."""
    now = 0.0
    monkeypatch.setattr("sim.cli.progress.monotonic", lambda: now)
    with progress("work", 1, None):
        for at in (0.0, 0.1, 4.0, 6.0, 22.0, 90.0):
            now = at
            count("trees", int(2 * at), 10_000)
            said = capsys.readouterr().err
            assert said == ("work: 12 of 10,000 trees, 4994 s left at this rate\n" if at == 6.0 else "")


def test_a_loop_that_ends_soon_is_announced_only_when_it_has_taken_long(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And so is one that was named before because it was silent."""
    now = 0.0
    monkeypatch.setattr("sim.cli.progress.monotonic", lambda: now)
    with progress("work", 1, None):
        for at in (0.0, 6.0, 19.0, 21.0, 22.0):
            now = at
            count("trees", int(at), 24)
            assert capsys.readouterr().err == ("work: 21 of 24 trees, 3 s left at this rate\n" if at == 21.0 else "")
    with progress("work", 1, None) as steps:
        now = 43.0
        steps.beat("21 s in bounds")
        for now in (44.0, 45.0, 52.0):
            count("trees", int(now) - 44, 1000)
    assert capsys.readouterr().err == "work: 21 s in bounds\nwork: 8 of 1,000 trees, 992 s left at this rate\n"


@pytest.mark.parametrize(("words", "unit"), [
    ("compare --topology mesh:2x7 --algorithms pipelined -b 1K", "edges of trees"),
    ("bound --topology mesh:2x11", "NPUs tested for a tighter cut"), ("bound --topology mesh:2x13", "maximum flows"),
    ("optimize --network RI(2)_SW(2) --collective all-reduce -b 1M --budget 100GB/s --chunks 1",
     "evaluations at most"),
    ("topoopt --workload DLRM --servers 4 --degree 2 --budget 2", "moves"),
    ("train --topology RI(2)_SW(2) --workload bert-large --parallelism tp=2 --samples 64 --peak 312 --efficiency 0.5",
     "operations"),
    ("reconfigure --topology ocs:8x2 --algorithm recursive-doubling -b 1MiB", "prices of steps"),
    ("compare --topology mesh:2x3 --algorithms tacos -b 1K", "blocks that are sent"),
    ("schedule --topology SW(3)_SW(2) --algorithm pipelined -b 1K", "switches that are split off"),
])
def test_what_takes_long_counts_what_it_has_done(
    words: str, unit: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On fabrics of their own: cuts and trees of a wiring are remembered."""
    monkeypatch.setattr("sim.cli.progress.PLAIN_SECONDS", -1)
    assert main([*words.split(), "--progress"]) == 0
    said = capsys.readouterr().err.replace(",", "")
    counts = [(int(done), int(total)) for done, total in re.findall(rf"then (\d+) of (\d+) {unit}", said)]
    assert any(done for done, _ in counts) and all(done <= total for done, total in counts)


def test_what_counts_nothing_is_named_while_it_lasts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as a linear program, whose solver calls nobody."""
    heard, said = Event(), list[str]()

    def beat(self: _Plain, what: str) -> None:
        said.append(what)
        heard.set()

    monkeypatch.setattr(_Plain, "beat", beat)
    monkeypatch.setattr("sim.cli.beats.BEAT_SECONDS", 0.001)
    monkeypatch.setattr("sim.cli.beats.SILENT_SECONDS", 0)
    with doing("a linear program of 9 variables"), progress("work", 1):
        assert heard.wait(60)
    assert said[0] == "0 s in a linear program of 9 variables"
    assert "progress" not in [thread.name for thread in all_threads()]


def test_what_is_under_way_is_a_line_or_the_words_of_the_bar(capsys: pytest.CaptureFixture[str]) -> None:
    with progress("work", 2) as steps:
        steps.last = 0.0  # type: ignore[attr-defined]  # of plain lines
        steps.beat("3 s in proof")
        steps.beat("4 s in proof")
    assert capsys.readouterr().err == "work: 0/2 done, then 3 s in proof\n"


def test_where_none_was_asked_for_a_silent_stage_is_announced_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = 0.0
    monkeypatch.setattr("sim.cli.progress.monotonic", lambda: now)
    with progress("work", 1, None) as steps:
        for at in (19.0, 21.0, 40.0):
            now = at
            steps.beat(f"{at:.0f} s in proof")
    assert capsys.readouterr().err == "work: 21 s in proof\n"


@pytest.mark.parametrize(("total", "quiet"), [(3, True), (0, False)])
def test_quiet_progress_says_nothing(total: int, quiet: bool, capsys: pytest.CaptureFixture[str]) -> None:
    with progress("work", total, quiet) as steps:
        steps.begin("first")
        steps.advance("first")
        steps.within(HALF)
    assert capsys.readouterr().err == ""


def test_a_terminal_shows_a_bar(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    with progress("work", 2) as steps:
        steps.begin("first")
        steps.within(HALF)
        steps.advance("second")
    assert "work" in capsys.readouterr().err


def test_ctrl_c_says_how_far_it_came() -> None:
    said = "^interrupted, with 1 of 3 steps done; nothing was written$"

    def interrupted() -> None:
        with progress("work", 3) as steps:
            steps.advance("first")
            raise KeyboardInterrupt

    with pytest.raises(WeftError, match=said):
        interrupted()


def test_ctrl_c_between_runs_says_how_many_there_were() -> None:
    """As of the collectives of an iteration, whose number is not known before."""
    def interrupted() -> None:
        with progress("train", 1):
            for unit in ("services", "switches", "services"):
                count(unit, 0, 8)
            raise KeyboardInterrupt

    with pytest.raises(WeftError, match=r"^interrupted, with 2 runs of the engine begun; nothing was written$"):
        interrupted()


@pytest.mark.parametrize(("total", "after"), [(1, ", in run 2 of the engine"), (3, ", after 1 of 3 points")])
def test_ctrl_c_in_a_run_says_that_nothing_was_written(total: int, after: str) -> None:
    def interrupted() -> None:
        with progress("work", total) as steps:
            steps.advance("first")
            for _ in range(2):
                count("services", 0, 8)
            try:
                raise KeyboardInterrupt
            except KeyboardInterrupt:
                raise Stopped("interrupted at 1 us") from None

    with pytest.raises(Stopped, match=f"^interrupted at 1 us{after}; nothing was written$"):
        interrupted()


def test_ctrl_c_in_one_of_many_runs_says_how_far_the_search_came() -> None:
    """Not how far that run came: it may be over."""

    def interrupted() -> None:
        with progress("search", 1, of_runs=True):
            count("moves", 3, 10)
            try:
                raise KeyboardInterrupt
            except KeyboardInterrupt:
                raise Stopped("interrupted at 1 us of simulated time, 8 of 8 services done") from None

    with pytest.raises(Stopped, match=r"^interrupted, with 3 of 10 moves; nothing was written$") as ended:
        interrupted()
    assert isinstance(ended.value.__context__, KeyboardInterrupt)  # the exit code is that of Ctrl-C


def test_a_limit_says_how_many_points_were_done(capsys: pytest.CaptureFixture[str]) -> None:
    words = "--topology torus:4x4 --algorithms ring -b 32 -e 32M -f 1048576 --symmetry off --max-events 2000"
    assert main(["compare", *words.split()]) == 2
    said = capsys.readouterr().err
    assert "stopped at the limit of 2,000 services" in said
    assert said.endswith(", after 0 of 2 points\n")


def test_a_limit_is_of_the_chunk_engine(capsys: pytest.CaptureFixture[str]) -> None:
    words = "--max-events 10 --engine reference"
    assert main(["compare", "--topology", "torus:4x4", "-b", "32", "-e", "32", *words.split()]) == 2
    assert "the chunk engine, not" in capsys.readouterr().err


LIMITED = [name for name, command in COMMANDS.items() if "max_events" in command.run_flags]


@pytest.mark.parametrize("number", ["0", "-3", "1.5"])
@pytest.mark.parametrize("command", LIMITED)
def test_a_limit_that_cannot_be_is_refused_while_the_words_are_read(
    command: str, number: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        command_parser(command).parse_args(["--max-events", number])
    assert ended.value.code == 2
    assert capsys.readouterr().err.startswith(f"weft {command}: argument --max-events: '{number}': give an integer")


def test_such_a_limit_is_rejected_before_chunks_are_tried(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(points, "choose", None)
    words = "--max-events 10 --engine fluid"
    assert main(["compare", "--topology", "torus:4x4", "-b", "32", "-e", "32", *words.split()]) == 2
    assert "the chunk engine, not" in capsys.readouterr().err


@pytest.mark.parametrize(("room", "title", "words"), [
    (60, "optimize: all-reduce on torus:8x8", "12 of 150 evaluations"),
    (40, "optimize: all-redu…", "12 of 150 evaluations"),
    (31, "optimize:…", "12 of 150 evaluations"),
    (20, "optimize:", "12 of 150 …"),
])
def test_a_bar_shortens_its_title_before_what_it_says(room: int, title: str, words: str) -> None:
    found = _fitted("optimize: all-reduce on torus:8x8", "12 of 150 evaluations", room)
    assert sum(map(len, found)) <= max(room, len(title) + 1) and found[1] == words


def test_a_loop_inside_a_loop_does_not_set_back_its_clock(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And where nothing is left of a loop, the stage may go on: no time is told."""
    seconds = iter(range(0, 10_000, 10))
    monkeypatch.setattr("sim.cli.progress.monotonic", lambda: next(seconds))
    with progress("work", 2):
        for unit, done in (("trees", 0), ("leaves", 0), ("trees", 2), ("leaves", 1), ("trees", 4)):
            count(unit, done, 4)
    said = [line.partition("then ")[2] for line in capsys.readouterr().err.splitlines()]
    assert [line for line in said if "trees" in line][1:] == [
        "2 of 4 trees, 60 s left at this rate", "4 of 4 trees"]


def test_a_run_that_was_heard_once_does_not_lend_its_pace_to_the_next(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Runs of a search each tell one slice, of two services more than the last: once a pace of two in 11 s."""
    now = 0.0
    monkeypatch.setattr("sim.cli.progress.monotonic", lambda: now)
    with progress("work", 1, None):
        for slice_events in (1_000_001, 1_000_003, 1_000_007):
            count("services", 0, 1_100_000)
            now += 11
            count("services", slice_events, 1_100_000)
        assert capsys.readouterr().err == ""
        now += 1
        count("services", 1_000_107, 1_100_000)
    assert capsys.readouterr().err == "work: 1,100,000 services, 91% at 0.0 M services/s, 999 s left\n"


def test_every_run_of_the_engine_tells_that_it_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one that pauses: then what its slices have done."""
    monkeypatch.setattr("sim.engine.run.SLICE_EVENTS", 20)
    monkeypatch.setattr("sim.engine.run.FEWEST_KNOWN", 1 << 40)
    heard: list[tuple[str, int, int]] = []
    schedule = build("ring", "all-reduce", ring(4), "4KiB")
    with hearing(lambda *told: heard.append(told)):
        for _ in range(2):
            simulate(schedule, symmetry="off", chunks=4)
    services = [done for unit, done, _ in heard if unit == "services"]
    assert services[0] == 0 and services.count(0) == 2 and len(services) >= 4


def test_of_many_runs_the_loop_around_them_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """While it lasts, and where it is interrupted; before it a run tells its services, of each anew."""
    seconds = iter(range(0, 10_000, 10))
    monkeypatch.setattr("sim.cli.progress.monotonic", lambda: next(seconds))
    def interrupted() -> None:
        with progress("work", 1, of_runs=True):
            for unit, moves in (("services", 0), ("moves", 1), ("services", 0), ("moves", 2)):
                for done in (1_000_000, 2_000_000, 1_000_000) if unit == "services" else (moves,):
                    count(unit, done, 4_000_000 if unit == "services" else 9)
            raise KeyboardInterrupt

    with pytest.raises(WeftError, match="interrupted, with 2 of 9 moves"):
        interrupted()
    said = [line.partition("then ")[2] for line in capsys.readouterr().err.splitlines()]
    assert said == ["50% at 0.1 M services/s, 20 s left", "1 of 9 moves", "2 of 9 moves, 210 s left at this rate"]


def test_a_pool_tells_how_far_its_run_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sim.cli.progress.PLAIN_SECONDS", -1)
    monkeypatch.setattr("sim.engine.run.SLICE_EVENTS", 1000)
    assert main(["pool", "--size", "1MiB", "--slots", "8", "--progress"]) == 0
    assert re.search(r"pool: 0/1 done, then \d+% at \d+\.\d M services/s", capsys.readouterr().err)
