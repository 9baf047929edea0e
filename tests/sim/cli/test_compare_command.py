"""`weft compare`: does it print, write and repeat what was simulated?"""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from collectives import algorithms_for, build
from sim import simulate
from sim.cli import main
from sim.cli.flags import EXIT_BAD_INPUT
from sim.study.points import Task, refusals
from sim.study.ranked import NEAR, compute_all
from sim.study.spec import Spec
from sim.study.tables import tied_with
from tests.places import ROOT
from topologies import from_spec

EXAMPLES = ROOT / "examples"

KEYS = {
    "topology", "collective", "algorithm", "size_bytes", "time_s", "algbw_GBps", "busbw_GBps", "events", "engine",
    "symmetry", "forwarding", "chunk_bytes", "lower_bound_s", "estimate_s", "why", "wall_s",
}
"""Keys of a row that files of ours promise."""

WORDS = ["compare", "--topology", "torus:4x4", "--collective", "all-reduce", "--algorithms", "swing,ring,bucket",
         "-b", "1K", "-e", "1M", "-f", "32", "--quiet"]


def compare(tmp_path: Path, *words: str) -> dict[str, Any]:
    file = tmp_path / "out.json"
    assert main([*words, "--json", str(file)]) == 0
    data: dict[str, Any] = json.loads(file.read_text())
    return data


def timeless(data: dict[str, Any]) -> dict[str, Any]:
    """Without the seconds that this machine took."""
    return data | {"rows": [row | {"wall_s": 0} for row in data["rows"]]}


def test_the_json_has_provenance_and_the_promised_keys(tmp_path: Path) -> None:
    data = compare(tmp_path, *WORDS)
    assert set(data) >= {"weft", "spec", "model", "rows"}
    assert all(set(row) >= KEYS for row in data["rows"])
    assert [(row["algorithm"], row["size_bytes"]) for row in data["rows"]] == [
        (name, size) for name in ("swing", "ring", "bucket") for size in (1024, 32768, 2**20)
    ]


def test_times_are_those_of_the_library(tmp_path: Path) -> None:
    for row in compare(tmp_path, *WORDS)["rows"]:
        schedule = build(row["algorithm"], "all-reduce", from_spec("torus:4x4"), row["size_bytes"], row["form"] or None)
        assert simulate(schedule).time_s == row["time_s"]


def test_a_result_runs_again_from_its_own_file(tmp_path: Path) -> None:
    first = compare(tmp_path, *WORDS, "--preset", "swing-paper", "--chunk", "4KiB")
    (tmp_path / "first.json").write_text(json.dumps(first))
    again = compare(tmp_path, "compare", "--spec", str(tmp_path / "first.json"), "--quiet")
    assert timeless(again) == timeless(first)
    assert Spec.from_dict(first["spec"]).build_model().chunk_bytes == 4096


def test_workers_do_not_change_the_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """None are started where they would take longer to start than the work does."""
    with monkeypatch.context() as patched:
        patched.setattr("sim.study.processes.WorkerPool", None)
        alone = compare(tmp_path, *WORDS, "--workers", "2")
    monkeypatch.setattr("sim.study.points.FEWEST_OF_WORKERS", 0)
    together = compare(tmp_path, *WORDS, "--workers", "2")
    assert timeless(alone) == timeless(together)


def test_the_tables_name_winner_forms_and_assumptions(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(WORDS) == 0
    text = capsys.readouterr().out
    assert "# model: cut-through, chunks as chosen for each point, ties first; chunk engine, seed 0" in text
    assert "of 16 ranks simulated by" in text
    assert "# schedule: proved" in text
    assert text.count("out-of-place") == 3
    assert "* fastest at this size; L = latency form; B = bandwidth form" in text
    assert "# swing: latency form at 1 KiB" in text


def test_json_on_standard_output_is_json_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*WORDS, "--json", "-"]) == 0
    said = capsys.readouterr()
    assert len(json.loads(said.out)["rows"]) == 9
    assert "out-of-place" in said.err


def test_csv_has_the_same_rows(tmp_path: Path) -> None:
    data = compare(tmp_path, *WORDS, "--csv", str(tmp_path / "out.csv"))
    with (tmp_path / "out.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert [float(row["time_s"]) for row in rows] == [row["time_s"] for row in data["rows"]]
    assert set(rows[0]) == set(data["rows"][0])


@pytest.mark.table
@pytest.mark.parametrize("suffix", [".png", ".pdf", ".svg"])
def test_a_figure_is_drawn(tmp_path: Path, suffix: str) -> None:
    file = tmp_path / f"out{suffix}"
    assert main([*WORDS, "--plot", str(file)]) == 0
    assert file.stat().st_size > 1000
    assert [path.name for path in tmp_path.iterdir()] == [file.name]


def test_all_algorithms_run_or_say_why_not(capsys: pytest.CaptureFixture[str]) -> None:
    """On 3x4 the ring has no Hamiltonian cycles; nobody named it, so it is told and left out."""
    assert main(["compare", "--topology", "torus:3x4", "-b", "1K", "--quiet"]) == 0
    text = capsys.readouterr().out
    table = " ".join(line for line in text.splitlines() if line.startswith("#  size "))
    for name in algorithms_for("all-reduce"):
        assert name in table.split() or any(
            name in line.partition("cannot run: ")[0] for line in text.splitlines() if "cannot run: " in line
        )
    assert "cannot run: ring on torus:3x4" in text or "ring" not in table.split()


def test_why_accounts_every_picosecond(tmp_path: Path) -> None:
    for row in compare(tmp_path, *WORDS, "--why")["rows"]:
        assert sum(row["why"]["parts_ps"].values()) == row["why"]["makespan_ps"] == round(row["time_s"] * 1e12)


def test_without_why_nothing_is_accounted(tmp_path: Path) -> None:
    assert all(row["why"] == {} for row in compare(tmp_path, *WORDS)["rows"])


@pytest.mark.parametrize("engine", ["chunk", "reference", "analytic"])
def test_engines_are_named(tmp_path: Path, engine: str) -> None:
    data = compare(tmp_path, *WORDS, "--engine", engine, "-e", "1K", *(["--check"] if engine != "analytic" else []))
    assert {row["engine"] for row in data["rows"]} == {engine}


def test_two_engines_one_answer(tmp_path: Path) -> None:
    times = [
        [row["time_s"] for row in compare(tmp_path, *WORDS, "--engine", engine)["rows"]]
        for engine in ("chunk", "reference")
    ]
    assert times[0] == times[1]


@pytest.mark.parametrize("kind", ["reduce-scatter", "all-gather", "all-to-all", "broadcast", "reduce"])
def test_every_collective_compares(tmp_path: Path, kind: str) -> None:
    words = ["compare", "--topology", "torus:4x4", "--collective", kind, "-b", "4K", "--quiet"]
    assert {row["collective"] for row in compare(tmp_path, *words)["rows"]} == {kind}


def test_zero_load_of_the_swing_paper(tmp_path: Path) -> None:
    """32 B on 8x8: 7.14, 8.74 and 25.66 us are plotted (NSDI 2024, figure 11); within 2 %."""
    words = ["compare", "--topology", "torus:8x8", "--algorithms", "swing,recursive-doubling,bucket", "-b", "32",
             "--preset", "swing-paper", "--quiet"]
    times = {row["algorithm"]: row["time_s"] * 1e6 for row in compare(tmp_path, *words)["rows"]}
    assert times["swing"] == pytest.approx(7.14, rel=0.02)
    assert times["recursive-doubling"] == pytest.approx(8.74, rel=0.02)
    assert times["bucket"] == pytest.approx(25.66, rel=0.02)


@pytest.mark.parametrize(("words", "said"), [
    (["--topology", "switch:8", "--algorithms", "in-network,ring", "-b", "1M"],
     "reduce at any rate; with 50 GB/s a switch, the rate of one link, ring is the fastest at 1 MiB "
     "(--aggregation-rate)"),
    (["--topology", "torus:4x4", "--algorithms", "pipelined,swing", "-b", "32M", "--deliver", "head", "--chunks",
      "16"], "a chunk is delivered with its head; with its tail, pipelined is the fastest at 32 MiB (--deliver tail)"),
    (["--topology", "torus:3x3x3", "--algorithms", "in-network,bucket", "-b", "32M", "--deliver", "head",
      "--chunks", "16"],
     "in-network over one tree; with 3 trees, in-network is the fastest at 32 MiB (--option trees=3)"),
])
def test_a_default_that_decides_is_said(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    """It was tried: what is named does win, with the flag that is named."""
    assert main(["compare", *words, "--quiet"]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("# decided by a default: ")]
    assert len(lines) == 1 and said in lines[0]


@pytest.mark.parametrize("words", [
    ["--algorithms", "in-network,ring", "--aggregation-rate", "1TB/s"], ["--algorithms", "in-network"],
    ["--algorithms", "ring,direct"], ["--algorithms", "pipelined,ring", "--chunks", "16"],
    ["--algorithms", "ring,pipelined", "--deliver", "head"],
])
def test_nothing_is_said_of_defaults_that_decide_nothing(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "--topology", "switch:8", "-b", "1M", *words, "--quiet"]) == 0
    assert "decided by a default" not in capsys.readouterr().out


def test_two_files_are_two_columns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = (EXAMPLES / "migrate" / "one-way-ring.xml").read_text()
    for name in ("a", "b", "sub/a"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / f"{name}.xml").write_text(program)
    words = ["compare", "--topology", "ring:4", "--collective", "all-gather", "-b", "1M", "--quiet", "--algorithms"]
    assert main([*words, f"{tmp_path}/a.xml,{tmp_path}/b.xml", "--json", f"{tmp_path}/r.json"]) == 0
    assert "size        a.xml        b.xml" in capsys.readouterr().out
    rows = json.loads((tmp_path / "r.json").read_text())["rows"]
    assert [row["algorithm"] for row in rows] == ["a.xml", "b.xml"]
    assert main([*words, f"{tmp_path}/a.xml,{tmp_path}/sub/a.xml"]) == 2
    assert "have the same file name" in capsys.readouterr().err


def test_flows_are_compared_and_what_has_none_is_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Times are those of `simulate`, also of a pipeline through pools."""
    data = compare(tmp_path, "compare", "--topology", "torus:2x4", "-b", "64K", "--engine", "fluid", "--check")
    shown = capsys.readouterr().out
    assert "# model: cut-through, 1 chunk per transfer, ties first; fluid engine" in shown
    assert "hierarchical cannot run" not in shown
    assert {row["engine"] for row in data["rows"]} == {"fluid"}
    [swing] = [row for row in data["rows"] if row["algorithm"] == "swing"]
    built = build("swing", "all-reduce", from_spec("torus:2x4"), "64KiB", swing["form"])
    assert swing["time_s"] == simulate(built, engine="fluid").time_s


@pytest.mark.parametrize(("flag", "said"), [
    (("--chunks", "16"), "chunks 16: not with the fluid engine"), (("--why",), "--why: not with the fluid engine"),
    (("--chunk", "8KiB"), "chunk 8 KiB: not with the fluid engine"),
    (("--spread", "3"), "spread 3: not with the fluid engine"), (("--max-events", "5"), "needs the chunk engine"),
    (("--preset", "swing-paper"), "deliver head of preset swing-paper: not with the fluid engine"),
])
def test_what_flows_do_not_have_is_rejected(
    flag: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", "--topology", "ring:4", "-b", "1K", "--engine", "fluid", *flag]) == 2
    [line] = capsys.readouterr().err.strip().splitlines()
    assert said in line


def test_more_services_than_anybody_waits_for_must_be_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["compare", "--topology", "ring:4", "--algorithms", "ring", "--quiet"]
    many = ["-b", "1M", "-e", "1T", "-f", "2", "--chunk", "64KiB", "--spread", "1000"]
    for asked in (many, ["-b", "15G", "--chunk", "1B"]):
        assert main([*words, *asked]) == 2
        [line] = capsys.readouterr().err.strip().splitlines()
        assert "must be asked for: use fewer algorithms, larger chunks, or --max-events" in line


@pytest.mark.parametrize("engine", ["analytic", "fluid"])
def test_default_words_are_accepted_also_where_an_engine_knows_only_them(tmp_path: Path, engine: str) -> None:
    [row] = compare(
        tmp_path, *WORDS, "-e", "1K", "--algorithms", "ring", "--engine", engine, "--chunks", "auto", "--buffer",
        "unlimited",
    )["rows"]
    assert row["engine"] == engine
    assert "buffer_bytes" not in row


def test_what_a_nic_was_given_is_told_and_exported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """All of it, beside the model and as columns: two runs with different times differ there as well."""
    given = {
        "injection-rate": "1GB/s", "ejection-rate": "2GB/s", "nic-engines": "2", "post-time": "3us",
        "push-time": "5us", "nic-queue": "1MiB", "buffer": "256KiB", "credit-latency": "7us", "nic": "shared",
        "nic-order": "fifo",
    }
    flags = [f"--{name}={value}" for name, value in given.items()]
    [row] = compare(tmp_path, *WORDS, "-e", "1K", "--algorithms", "ring", "--chunks", "1", *flags)["rows"]
    shown = capsys.readouterr().out
    for text in ("injection 1 GB/s", "ejection 2 GB/s", "engines 2", "post 3 us", "push 5 us", "queue 1 MiB",
                 "buffers of 256 KiB, credits after 7 us"):
        assert text in shown
    columns = {
        "nic_injection_Bps": 1e9, "nic_ejection_Bps": 2e9, "nic_engines": 2, "nic_post_ps": 3 * 10**6,
        "nic_push_ps": 5 * 10**6, "nic_queue_bytes": 2**20, "buffer_bytes": 2**18, "credit_ps": 7 * 10**6,
    }
    assert {name: row[name] for name in columns} == columns


@pytest.mark.parametrize("command", ["compare", "validate"])
def test_a_point_whose_chunks_do_not_fit_the_buffers_is_listed(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [command, "--topology", "ring:4", "--algorithms", "ring,bucket", "--quiet", "--chunks", "16", "--buffer"]
    sizes = ["-b", "64K", "-e", "256K", "-f", "4"]
    assert main([*words, "1KiB", *sizes]) == 0
    said = capsys.readouterr().out
    assert "# ring, bucket cannot run: at 256 KiB: buffers of 1 KiB (1,024 B) are smaller than the largest" in said
    assert "64 KiB" in said and "never end" not in said
    assert main([*words, "100B", *sizes]) == EXIT_BAD_INPUT
    said = capsys.readouterr().err
    assert said.startswith(f"weft {command}: no algorithm can run; ring, bucket: at 64 KiB: buffers of 100 B")


@pytest.mark.parametrize("spec", ["torus:4x4", "dgx-h100:2"])
def test_points_slower_than_two_others_by_their_bounds_are_left_out(spec: str) -> None:
    """Of each size the two fastest and all that are tied have their rows, whatever the workers; bounds are no times."""
    given = Spec().updated({"topology": {"spec": spec}, "sweep": {"begin": "4KiB", "end": "16MiB", "factor": 64}})
    names = [name for name in given.algorithms if name not in refusals(given, given.algorithms, 16 * 2**20)]
    tasks = [Task(given, name, size, spread=None) for name in names for size in given.sizes_bytes]
    every = {(row["size_bytes"], row["algorithm"]): row for row in compute_all(tasks)}
    for workers in (1, 2):
        bounds: dict[tuple[int, str], int] = {}
        rows = compute_all(tasks, workers,
                           left_out=lambda task, ps, at=bounds: at.update({(task.size_bytes, task.algorithm): ps}))
        assert len(bounds) > len(tasks) / 4
        assert [(row["size_bytes"], row["algorithm"]) for row in rows] == [key for key in every if key not in bounds]
        for row in rows:
            assert row | {"wall_s": 0} == every[row["size_bytes"], row["algorithm"]] | {"wall_s": 0}
        for (size, name), ps in bounds.items():
            fastest = sorted((row for at, row in every.items() if at[0] == size), key=lambda row: row["time_s"])
            assert ps / 1e12 <= every[size, name]["time_s"] * 1.001
            assert name not in (fastest[0]["algorithm"], fastest[1]["algorithm"], *tied_with(fastest))


def test_a_long_point_that_its_bound_does_not_exclude_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two of each size are simulated, however long they take."""
    words = ["compare", "--topology", "torus:2x2", "-b", "1K", "-e", "1M", "-f", "1024", "--quiet"]
    assert main(words) == 0
    before = capsys.readouterr().out
    assert "not excluded" not in before
    monkeypatch.setattr("sim.study.ranked.LONG_SERVICES", 1)
    assert main(words) == 0
    said = capsys.readouterr().out
    assert " is not excluded by its bound: it was not simulated because it has more than 100,000,000 services" in said
    for size in ("1 KiB", "1 MiB"):
        row = next(line for line in said.splitlines() if line.strip().startswith(size))
        assert "*" in row
    assert ", unless " in said and ", unless " not in before


def test_ranges_are_of_what_is_near_the_fastest(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--topology", "torus:4x4", "--algorithms", "swing,bucket,ring,parameter-server", "-b", "4M"]
    rows = compare(tmp_path, "compare", *words)["rows"]
    least_s = min(row["time_s"] for row in rows)
    assert {row["time_s"] <= NEAR * least_s for row in rows} == {True, False}
    assert [row["spread_low_s"] is not None for row in rows] == [row["time_s"] <= NEAR * least_s for row in rows]
    assert f"and at most {NEAR:g} times the fastest, where several are" in capsys.readouterr().out
    far = compare(tmp_path, "compare", *words[:3], "ring,parameter-server", *words[4:])["rows"]
    assert all(row["spread_low_s"] is None for row in far), "the fastest is far ahead"
    assert "no perturbed runs" not in capsys.readouterr().out
    assert all(row["spread_low_s"] is not None for row in compare(tmp_path, "compare", *words, "--spread", "1")["rows"])


def test_a_bound_stands_for_a_time_unless_all_are_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["compare", "--topology", "torus:2x2", "-b", "16M", "--quiet"]
    told = "# > at least that, by a bound or a run that ended there"
    for more, few in (([], True), (["--all"], False), (["--csv", str(tmp_path / "rows.csv")], False)):
        assert main([*words, *more]) == 0
        assert (told in capsys.readouterr().out) == few
    every = {row["algorithm"] for row in csv.DictReader((tmp_path / "rows.csv").read_text().splitlines())}
    assert len(every) > 8
