"""Is what is chosen never slower than 16 chunks and fifo, is it shown, and can it be pinned?"""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from collectives import ALGORITHMS, Schedule, algorithms_for, build
from collectives.in_network import all_reduce
from sim import Model, Result, simulate
from sim.cli import main
from sim.cli.flags import EXIT_BAD_INPUT
from sim.program.outcome import Deadlock, Outrun
from sim.study.choice import LADDER, WORTH, choose, floor_of_all
from sim.study.points import Row, Task, compute, ready_point, simulate_ready
from sim.study.spec import Spec
from topologies import WeftError, dgx_h100, from_spec
from topologies.units import PS_PER_S

FABRICS = ("torus:4x4", "mi250:1", "switch:6", "torus:3x2", "RI(4)_SW(3)")
KINDS = ("all-reduce", "all-gather", "all-to-all", "broadcast")


def row_of(fabric: str, kind: str, name: str, size: str | int, chunks: int | str = "auto", **collective: object) -> Row:
    progress = {"rank_progress": collective.pop("rank_progress", "auto")}
    spec = Spec.from_dict({
        "topology": {"spec": fabric}, "model": {"chunks": chunks, **progress},
        "collective": {"name": kind, "algorithms": [name], **collective}, "sweep": {"begin": size},
    })
    return compute(Task(spec, name, spec.sizes_bytes[0]))


@pytest.mark.table
@pytest.mark.parametrize("size", [1000, 2**20, 2**26])
@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind in KINDS for name in algorithms_for(kind)])
@pytest.mark.parametrize("fabric", FABRICS)
def test_what_is_chosen_is_never_slower_than_sixteen_chunks(fabric: str, kind: str, name: str, size: int) -> None:
    try:
        fixed = row_of(fabric, kind, name, size, 16)
    except WeftError:
        with pytest.raises(WeftError):
            row_of(fabric, kind, name, size)
        return
    chosen = row_of(fabric, kind, name, size)
    assert chosen["time_s"] <= fixed["time_s"]
    assert chosen["chunks_chosen"] == chosen["chunks"] and fixed["chunks_chosen"] is None


@pytest.mark.table
@pytest.mark.parametrize("size", [77_777, 1_234_567])
@pytest.mark.parametrize(("kind", "name"), [
    ("all-to-all", "pairwise"), ("all-gather", "swing"), ("all-reduce", "pipelined"), ("all-to-all", "direct"),
    ("all-reduce", "bine"),
])
@pytest.mark.parametrize("fabric", ["ocs:5x2,duplex", "ocs:5x2,duplex,delay=1ms", "ocs:6x3,delay=10us", "ocs:3x1"])
def test_what_is_chosen_on_circuits_is_never_slower_than_whole_transfers(
    fabric: str, kind: str, name: str, size: int
) -> None:
    """But for the share that another number of chunks has to save."""
    chosen = row_of(fabric, kind, name, size)
    least_s = min(row_of(fabric, kind, name, size, chunks)["time_s"] for chunks in (1, 16))
    assert chosen["time_s"] * (1 - WORTH) <= least_s


@pytest.mark.table
@pytest.mark.parametrize("size", [17, 77_777, 1_234_567])
@pytest.mark.parametrize(("kind", "name"), [
    ("all-to-all", "direct"), ("all-gather", "swing"), ("all-reduce", "pipelined"), ("all-reduce", "trivance"),
    ("broadcast", "nccl-rings"), ("reduce-scatter", "pat"),
])
@pytest.mark.parametrize("fabric", [
    "ocs:5x2", "ocs:4x3,paid", "ocs:6x1,delay=1us", "ocs:3x2,duplex", "ocs:5x2,per-port",
])
def test_a_limit_changes_no_plan_within_it(fabric: str, kind: str, name: str, size: int) -> None:
    """Of what takes longer nothing is told, or its time, but for the share that other chunks have to save."""
    spec = Spec.from_dict({
        "topology": {"spec": fabric}, "collective": {"name": kind, "algorithms": [name]}, "sweep": {"begin": size},
    })
    task = Task(spec, name, size)
    free_ps = compute(task)["time_s"] * PS_PER_S
    for share in (0.8, 0.999, 1.0, 1.03, 1.5):
        limit_ps = round(free_ps * share)
        found_ps: float | None = None
        with suppress(Outrun):
            found_ps = simulate_ready(task, *ready_point(task), limit_ps=limit_ps).result.time_ps
        if share < 1:
            assert found_ps is None or found_ps >= free_ps * (1 - WORTH)
        else:
            assert found_ps == round(free_ps)


@pytest.mark.parametrize(("fabric", "kind", "name", "size", "model"), [
    ("hybrid:4x1", "all-reduce", "pipelined", 1000, {"tie": "split"}),
    ("ocs:4x1,delay=1us", "all-to-all", "concurrent-flow", 77_777, {"vcs": 2}),
])
def test_circuits_that_the_model_refuses_are_not_chosen(
    fabric: str, kind: str, name: str, size: int, model: dict[str, Any]
) -> None:
    """Whether a plan may be lowered depends on its circuits: it is one less, and the others stay."""
    spec = Spec.from_dict({
        "topology": {"spec": fabric}, "model": model, "collective": {"name": kind, "algorithms": [name]},
        "sweep": {"begin": size},
    })
    task = Task(spec, name, size)
    found = simulate_ready(task, *ready_point(task))
    assert found.result.time_ps > 0
    refused = [why for label, why in found.others.items() if label.endswith("circuits=planned")]
    assert all("tie rule" in why or "datelines" in why or " us" in why for why in refused)


@pytest.mark.parametrize(("fabric", "size", "chunks"), [
    ("ocs:8x2", 77_777, 4), ("mesh:3x4", 622_216, 64), ("mesh:4x4", 622_216, 64),
])
def test_what_was_designed_for_a_discipline_is_tried_in_another_too(fabric: str, size: int, chunks: int) -> None:
    """In each number of chunks, not in the first alone."""
    chosen = row_of(fabric, "all-reduce", "pipelined", size)
    assert (chosen["chunks"], chosen["discipline"]) == (chunks, "fifo")
    assert chosen["time_s"] <= 0.99 * row_of(fabric, "all-reduce", "pipelined", size, 16)["time_s"]


@pytest.mark.table
@pytest.mark.parametrize("size", [17, 333_333, 2**20, 2**26 + 4])
@pytest.mark.parametrize(("fabric", "name", "discipline"), [
    ("dgx-h100:2", "nccl-trees", None), ("dgx-h100:2", "nvls-trees", None), ("torus:3x5", "bucket", None),
    ("ring:7", "ring", None), ("switch:5", "pipelined", "lowest-chunk-first"),
    ("mi250:1", "pipelined", "lowest-chunk-first"),
])
def test_a_limit_changes_no_choice_within_it(fabric: str, name: str, discipline: str | None, size: int) -> None:
    schedule = build(name, "all-reduce", from_spec(fabric), size)

    def run(tried: Schedule, model: Model, limit_ps: int) -> Result:
        return simulate(tried, model=model, limit_ps=limit_ps)

    free = choose(schedule, Model(chunks=16), run, discipline=discipline)
    limits = [int(free.time_ps * share) for share in (0.5, 0.98, 1.003, 1.02, 1.2)]
    for limit_ps in (free.time_ps - 1, free.time_ps, *limits):
        if limit_ps < free.time_ps:
            with pytest.raises(Outrun) as outrun:
                choose(schedule, Model(chunks=16), run, discipline=discipline, limit_ps=limit_ps)
            assert outrun.value.limit_ps == limit_ps
        else:
            found = choose(schedule, Model(chunks=16), run, discipline=discipline, limit_ps=limit_ps)
            assert (found.model, found.time_ps, found.events) == (free.model, free.time_ps, free.events)


@pytest.mark.parametrize("words", [{"vcs": 2}, {"buffer": "300B"}, {"buffer": "300B", "bubble": True},
                                   {"buffer": "1KiB", "header": "50B", "packet_header": "100B", "vcs": 2}])
@pytest.mark.parametrize("name", [*algorithms_for("all-reduce"), "pipelined"])
def test_what_is_chosen_fits_the_rest_of_the_model(name: str, words: dict[str, object]) -> None:
    """Chunks fit the buffers: whatever runs without them runs, in fifo or as it was designed."""
    kind = "all-reduce" if name != "pipelined" else "broadcast"
    spec = Spec.from_dict({
        "topology": {"spec": "torus:2x2"}, "model": {"chunks": "auto"} | words,
        "collective": {"name": kind, "algorithms": [name]}, "sweep": {"begin": "64K"},
    })
    try:
        row_of("torus:2x2", kind, name, "64K", 16)
    except WeftError:
        return
    task = Task(spec, name, 65536)
    chosen = compute(task)
    assert chosen["chunks_chosen"] and chosen["discipline"] in ("fifo", ALGORITHMS[name].discipline)


@pytest.mark.parametrize(("fabric", "kind", "name", "size", "options", "fixed_us", "chosen_us"), [
    ("mi250:2", "all-gather", "pipelined", "1G", {}, 3600, 3110),
    ("torus:8x8", "all-reduce", "in-network", "32M", {"form": "push", "options": ["trees=1"]}, 1300, 710),
    ("torus:8x8", "all-reduce", "in-network", "32M", {"form": "push"}, 1300, 360),
    ("torus:16x8x4", "all-reduce", "swing", "16M", {"rank_progress": "free"}, 190, 142),
])
def test_chunks_discipline_and_trees_that_pay_are_found(
    fabric: str, kind: str, name: str, size: str, options: dict[str, object], fixed_us: float, chosen_us: float
) -> None:
    assert row_of(fabric, kind, name, size, 16, **options)["time_s"] > fixed_us * 1e-6
    assert row_of(fabric, kind, name, size, **options)["time_s"] <= chosen_us * 1e-6


def test_sixteen_chunks_are_as_ever_to_the_picosecond() -> None:
    row = row_of("torus:4x4", "all-gather", "pipelined", "1M", 16)
    assert row["time_s"] == simulate(build("pipelined", "all-gather", from_spec("torus:4x4"), "1MiB")).time_s
    assert (row["discipline"], row["chunks"], row["trees"]) == ("fifo", 16, None)


@pytest.mark.parametrize("chunks", [1, 7, 16, 64, 256])
@pytest.mark.parametrize("name", ["pipelined", "recursive-doubling", "in-network"])
def test_the_floor_holds_for_every_number_of_chunks(name: str, chunks: int) -> None:
    schedule = build(name, "all-reduce", from_spec("torus:4x4"), 10_000_000)
    assert floor_of_all(schedule, Model()) <= simulate(schedule, chunks=chunks).time_ps
    assert max(LADDER) > 256


def test_the_choice_is_printed_and_repeated_from_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["compare", "--topology", "mi250:1", "--collective", "all-gather", "--algorithms", "pipelined", "-b", "64M"]
    assert main([*words, "--quiet", "--json", str(tmp_path / "a.json")]) == 0
    said, data = capsys.readouterr().out, json.loads((tmp_path / "a.json").read_text(encoding="utf-8"))
    (row,) = data["rows"]
    assert f"# chosen: {row['chunks_chosen']} chunks lowest-chunk-first" in said
    assert data["spec"]["model"]["chunks"] == data["model"]["chunks"] == "auto"
    assert main(["compare", "--spec", str(tmp_path / "a.json"), "--quiet", "--json", str(tmp_path / "b.json")]) == 0
    (again,) = json.loads((tmp_path / "b.json").read_text(encoding="utf-8"))["rows"]
    assert again | {"wall_s": 0} == row | {"wall_s": 0}
    pinned = ["--chunks", str(row["chunks"]), "--discipline", row["discipline"], "--json", str(tmp_path / "c.json")]
    assert main([*words, "--quiet", *pinned]) == 0
    (fixed,) = json.loads((tmp_path / "c.json").read_text(encoding="utf-8"))["rows"]
    assert fixed["time_s"] == row["time_s"] and fixed["chunks_chosen"] is None


def test_a_preset_and_a_chunk_size_are_kept(tmp_path: Path) -> None:
    words = ["compare", "--topology", "torus:4x4", "--algorithms", "swing", "-b", "1M", "--quiet", "--json"]
    for more, chunk_bytes in ((["--preset", "swing-paper"], 8192), (["--chunk", "4KiB"], 4096)):
        assert main([*words, str(tmp_path / "a.json"), *more]) == 0
        (row,) = json.loads((tmp_path / "a.json").read_text(encoding="utf-8"))["rows"]
        assert (row["chunk_bytes"], row["chunks"], row["chunks_chosen"]) == (chunk_bytes, None, None)


def test_other_commands_take_a_number(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["trace", "--topology", "torus:4x4", "--algorithm", "ring", "-b", "1K", "--chunks", "auto"]
    assert main([*words, "--perfetto", "never.json.gz"]) == EXIT_BAD_INPUT
    assert capsys.readouterr().err.startswith("weft trace: --chunks auto tries several on one collective alone")


def test_in_network_needs_a_fabric_that_reduces_or_its_name(tmp_path: Path) -> None:
    def rows(*words: str) -> list[Row]:
        assert main(["compare", *words, "-b", "1M", "--quiet", "--json", str(tmp_path / "a.json")]) == 0
        found: list[Row] = json.loads((tmp_path / "a.json").read_text(encoding="utf-8"))["rows"]
        return [row for row in found if row["algorithm"] == "in-network"]

    assert not rows("--topology", "switch:4")
    assert not rows("--topology", "dgx-h100:2")
    assert [row["form"] for row in rows("--topology", "dgx-h100:1")] == ["push"]
    assert rows("--topology", "switch:4", "--aggregation-rate", "1TB/s")
    assert rows("--topology", "switch:4", "--algorithms", "in-network")


def test_nvlink_sharp_is_pull_at_its_efficiency() -> None:
    """m + m/8 in each direction at 0.835 of 450 GB/s; see `collectives.in_network.all_reduce` for what was measured."""
    pull = simulate(all_reduce(dgx_h100(), "8GiB", form="pull"), chunks=256)
    assert pull.algbw == pytest.approx(0.835 * 450 / (1 + 1 / 8), rel=0.01)
    faster = row_of("dgx-h100:1", "all-reduce", "in-network", "8G")
    assert faster["form"] == "push" and faster["algbw_GBps"] == pytest.approx(0.835 * 450, rel=0.01)


def test_a_trial_that_can_never_end_is_not_chosen() -> None:
    schedule, model = build("ring", "all-reduce", from_spec("ring:4"), "1MiB"), Model()

    def run(tried: Schedule, one: Model, limit_ps: int) -> Result:
        if one.chunks != model.chunks:
            raise Deadlock("a circle of buffers")
        return simulate(tried, model=one)

    assert choose(schedule, model, run).model == model


@pytest.mark.parametrize(("fabric", "size"), [("ocs:8x2", "64K"), ("ocs:8x4", "64K"), ("ocs:5x2,duplex", "100K")])
def test_the_choice_on_circuits_is_the_best_of_its_runs(
    fabric: str, size: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whose runs have no limit: the last is not the choice."""
    times_ps = list[int]()

    def noted(schedule: Schedule, **how: Any) -> Result:
        result = simulate(schedule, **how)
        times_ps.append(result.time_ps)
        return result

    monkeypatch.setattr("sim.study.points.simulate", noted)
    chosen = row_of(f"{fabric},delay=1s,circuits=rings", "all-reduce", "pipelined", size)
    assert len(times_ps) > 1 and chosen["time_s"] == min(times_ps) / 1e12


def test_what_is_cut_alike_is_run_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A block of four bytes has four chunks, whether four or sixteen are asked for."""
    monkeypatch.setattr("sim.study.choice.WORTH", -1.0)  # nothing is excluded by its bounds
    ran: list[tuple[int | None, int]] = []

    def run(schedule: Schedule, model: Model, limit_ps: int) -> Result:
        found = simulate(schedule, model=model)
        ran.append((model.chunks, found.events))
        return found

    schedule = build("direct", "all-reduce", from_spec("ring:4"), "16B")
    assert simulate(schedule, chunks=4).events == simulate(schedule, chunks=16).events
    choose(schedule, Model(chunks=16), run)
    assert [chunks for chunks, _ in ran] == [16, 1]


def test_a_row_names_the_fabric_whatever_circuits_are_up() -> None:
    """The figure of a comparison has one panel: which circuits were chosen has a column of its own."""
    rows = [row_of("ocs:5x2", "all-reduce", name, 77_777) for name in ("ring", "swing", "direct")]
    assert {row["topology"] for row in rows} == {"ocs:5x2"}
    assert len({row["circuits"] for row in rows}) > 1
    assert all(row["circuits"] and all("circuits=" in label for label in row["other_forms"]) for row in rows)
    assert not any(label.startswith(",") for row in rows for label in row["other_forms"])


@pytest.mark.parametrize("model", [{}, {"chunks": 16}])
def test_faults_are_beside_what_suits_the_healthy_fabric(model: dict[str, Any]) -> None:
    """Another form is the fastest with the dimension slow; what the faults cost is told of the one without."""
    slow = {"slow-link": [{"link": "dimension 0", "at": "0s", "share": 0.1}]}
    rows = [
        compute(Task(Spec.from_dict({
            "topology": {"spec": "torus:4x4"}, "model": {"chunks": "auto"} | model | more, "sweep": {"begin": "32K"},
            "collective": {"algorithms": ["swing"]},
        }), "swing", 2**15))
        for more in ({}, {"faults": slow})
    ]
    assert rows[0]["form"] != rows[1]["form"] and rows[1]["healthy_time_s"] == rows[0]["time_s"]


@pytest.mark.parametrize("fabric", ["torus:4x3", "random-regular:10x3"])
@pytest.mark.parametrize("check", [False, True])
def test_the_choice_beside_faults_is_that_of_all_ranks(fabric: str, check: bool) -> None:
    """It goes by symmetry, if there is one, and counts services as if it did not."""
    rows = [
        compute(Task(Spec.from_dict({
            "topology": {"spec": fabric}, "model": {"chunks": "auto", "symmetry": "off"} | more,
            "collective": {"name": "all-to-all", "algorithms": ["direct"]}, "sweep": {"begin": "1M"},
        }), "direct", 2**20, check=check))
        for more in ({}, {"faults": {"loss": [{"link": "*", "probability": 0.01}]}})
    ]
    assert rows[0]["chunks_chosen"] == rows[1]["chunks_chosen"] and rows[1]["healthy_time_s"] == rows[0]["time_s"]
    assert rows[1]["chunks_lost"] > 0 and rows[1]["symmetry"].startswith("all ranks simulated (symmetry is off")
