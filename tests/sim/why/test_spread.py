"""Do perturbed runs show which times are accidents, are they repeatable, and are ties in a table marked?"""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest

from collectives import ALGORITHMS, build, registry
from sim import FaultPlan, SlowLink, simulate
from sim.cli import main
from sim.cli.flags import EXIT_BAD_INPUT
from sim.engine.run import run
from sim.lower.job import lower
from sim.optimizer.programs import collective_objective
from sim.optimizer.retime import links_per_npu
from sim.program.model import Model
from sim.program.retime import SHARE, perturb
from sim.study.tables import abbreviations, comparison_table, range_s, tied_with
from sim.why.spread import Spread, _renumbered, nearby, spread
from topologies import Topology, WeftError, from_links, from_spec, ring
from topologies.units import format_time
from workloads.job import Communicate, Job, on_network

ACCIDENT = ("torus:16x8x4", "all-reduce", "16MiB")


@pytest.mark.compiled
def test_swing_where_its_ports_collide_is_an_accident_and_bucket_is_not() -> None:
    fabric, kind, size = ACCIDENT
    ranges = {}
    for name, progress in (("swing", "free"), ("bucket", "free"), ("swing", "auto")):
        found = simulate(build(name, kind, from_spec(fabric), size), rank_progress=progress).spread(8)
        ranges[name, progress] = (found.high_ps - found.low_ps) / found.time_ps
    assert ranges["swing", "free"] > 0.2
    assert ranges["bucket", "free"] < 0.005 and ranges["swing", "auto"] < 0.005


@pytest.mark.compiled  # more than a minute without
@pytest.mark.parametrize("spec", ["torus:8x2", "torus:6x4", "mesh:6x2"])
def test_a_range_has_ports_that_go_on_alone_where_ranks_wait_by_default(
    spec: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same in every command, and nothing of it where somebody says what ranks wait for."""
    schedule = build("swing", "all-reduce", from_spec(spec), "64KiB", "bandwidth")
    alone = simulate(schedule, rank_progress="free", chunks=4).time_s
    found = simulate(schedule, chunks=4).spread(2)
    assert found.alone_s == alone and f"{format_time(round(alone * 1e12))} where ports go on alone" in str(found)
    for progress in ("free", "authors", "all"):
        assert simulate(schedule, rank_progress=progress, chunks=4).spread(2).alone_ps is None
    assert simulate(build("direct", "all-reduce", from_spec(spec), "64KiB")).spread(2).alone_ps is None
    asked = ["--topology", spec, "--collective", "all-reduce", "--algorithm", "swing", "--chunks", "4",
             "--form", "bandwidth"]
    for command in ("compare", "validate"):
        assert main([command, *asked, "-b", "64K", "-e", "64K", "--json", "-", "--quiet"]) == 0
        (row,) = json.loads(capsys.readouterr().out)["rows"]
        assert row["alone_s"] == alone
        assert range_s(row) == (min(row["spread_low_s"], alone), max(row["spread_high_s"], alone))
    assert main(["trace", *asked, "--size", "64K", "--json", "-", "--quiet"]) == 0
    assert f'"alone_s": {alone}' in capsys.readouterr().out
    objective = collective_objective(
        from_spec(spec), "all-reduce", "swing", "64KiB", model=Model(chunks=4), form="bandwidth"
    )
    rates = from_spec(spec).bandwidth_Bps[0] * links_per_npu(from_spec(spec)) / 1e9
    assert objective.spread(rates).alone_s == pytest.approx(alone, rel=1e-6)


@pytest.mark.compiled
@pytest.mark.table
@pytest.mark.parametrize("name", [name for name, one in ALGORITHMS.items() if "all-reduce" in one.functions])
@pytest.mark.parametrize("fabric", ["torus:4x4", "mi250:1", "RI(4)_SW(2)"])
def test_a_range_holds_the_time_and_is_the_same_again(name: str, fabric: str) -> None:
    try:
        schedule = registry.build(name, "all-reduce", from_spec(fabric), "256KiB")
    except WeftError:
        return  # limits of algorithms are tested with the registry
    result = simulate(schedule)
    found = result.spread(5)
    assert found.low_ps <= result.time_ps <= found.high_ps and len(found.times_ps) == 5
    assert result.spread(5) == found
    assert result.spread(6).times_ps[:5] == found.times_ps
    assert "in 5 perturbed runs" in str(found)


@pytest.mark.parametrize("name", ["ring", "direct"])
def test_perturbing_keeps_the_symmetry(name: str) -> None:
    """Rates belong to classes of links, so that one rank and all ranks take as long, but for starts and ties."""
    program = lower(build(name, "all-reduce", from_spec("torus:4x4"), "1MiB")).program
    time_ps = run(program).makespan_ps
    for seed in range(4):
        changed = perturb(program, np.random.default_rng(seed), time_ps)
        assert abs(run(changed).makespan_ps / time_ps - 1) < 10 * SHARE
        assert np.abs(changed.service_ps.max() / program.service_ps.max() - 1) <= 1.01 * SHARE
        assert sorted(set(changed.task_class[: program.n_tasks].tolist())) == sorted(set(program.task_class.tolist()))


def line(n: int) -> Topology:
    return from_links([(a, b, "1GB/s", 0) for at in range(n - 1) for a, b in ((at, at + 1), (at + 1, at))], n)


@pytest.mark.parametrize("model", [
    *(Model(chunks=chunks) for chunks in (1, 2, 20)), *(Model(chunks=None, chunk_bytes=size) for size in (1, 40)),
])
def test_what_perturbed_runs_havenearby(model: Model) -> None:
    """In odd ones another number (or size) of chunks, a quarter away at most; in every fourth other routes."""
    irregular, value = line(4), model.chunks or model.chunk_bytes or 0
    seen = set()
    for number, seed in itertools.product(range(8), range(40)):
        other = nearby(irregular, model, number, np.random.default_rng([seed, number]))
        if number % 2:
            seen.add((other.chunks or other.chunk_bytes or 0) - value)
            changed = replace(model, chunks=other.chunks, chunk_bytes=other.chunk_bytes)
            assert other == changed and (other.chunks is None) == (model.chunks is None)
        elif number % 4 == 2:
            assert other == replace(model, tie="ecmp", seed=other.seed) != replace(model, tie="ecmp")
        else:
            assert other == model
    most = max(1, value // 4)
    assert seen == {*range(1, most + 1), *(range(-most, 0) if value > 1 else ())}


@pytest.mark.parametrize("model", [
    Model(chunks=1, buffer_bytes=8192), Model(chunks=9, buffer_bytes=2000, bubble=True),
    Model(chunks=8, buffer_bytes=1024, vcs=2), Model(chunks=None, chunk_bytes=1000, buffer_bytes=1000),
    pytest.param(Model(chunks=None, chunk_bytes=1, buffer_bytes=1), marks=pytest.mark.compiled),
])
def test_chunks_that_just_fit_the_buffers_fit_them_in_perturbed_runs(model: Model) -> None:
    schedule = build("ring", "all-reduce", from_spec("ring:2"), "16KiB")
    assert len(spread(schedule, 4, model=model).times_ps) == 4


def test_only_routes_that_numbers_decide_are_taken_otherwise() -> None:
    """Not those of a regular router, nor by another rule for ties, nor on more than 64 NPUs."""
    rng = np.random.default_rng(0)
    for fabric, model, same in (
        (ring(4), Model(), True), (line(4), Model(tie="split"), True), (line(64), Model(), False),
        (line(65), Model(), True),
    ):
        assert (nearby(fabric, model, 2, rng) == model) == same
        job = Job(fabric)
        assert [_renumbered(job, model, number, rng) is job for number in range(4)] == [same, same, True, same]


def test_a_range_from_its_times() -> None:
    one = Spread(2_000_000, (1_000_000, 4_000_000))
    assert (one.low_ps, one.high_ps, one.low_s, one.high_s) == (1_000_000, 4_000_000, 1e-6, 4e-6)
    assert str(one) == "2 us; 1 us to 4 us in 2 perturbed runs"
    assert (Spread(2, (5,)).low_ps, Spread(9, (5,)).high_ps) == (2, 9)


def test_runs_are_perturbed_by_seed_and_number() -> None:
    """Each run's draws are its own: of `seed` and its number, whatever came before; memory is checked for each."""
    cycle = from_links([(a, b, "1GB/s", 0) for at in range(4) for a, b in ((at, (at + 1) % 4), ((at + 1) % 4, at))], 4)
    schedule = build("direct", "all-gather", cycle, "64KiB")
    model, program = Model(chunks=5), lower(schedule, Model(chunks=5)).program
    time_ps = run(program).makespan_ps
    found = spread(schedule, 4, model=model, seed=3)
    assert found.time_ps == time_ps
    for number in range(4):
        rng = np.random.default_rng([3, number])
        job = _renumbered(Job.of(schedule), model, number, rng)
        other = nearby(schedule.topology, model, number, rng)
        changed = perturb(lower(job, other).program, rng, time_ps)
        assert found.times_ps[number] == run(changed).makespan_ps
    job = Job(ring(4))
    job.collective("reduce", build("ring", "all-reduce", job.topology, 4000))
    job.compute("last", 10)
    assert spread(job, 1, model=model).time_ps == run(lower(job, model).program).makespan_ps


def test_a_range_is_not_begun_where_memory_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sim.why.spread.check_size", Mock(side_effect=WeftError("short")))
    with pytest.raises(WeftError, match="short"):
        spread(build("ring", "all-reduce", from_spec("ring:4"), "4KiB"), 1)


def test_routes_that_only_numbers_decide_are_taken_differently() -> None:
    direct = simulate(build("direct", "all-gather", from_spec("mi250:1"), "16MiB"), chunks=4)
    times = direct.spread(8).times_ps
    assert max(abs(time / direct.time_ps - 1) for time in times[2::4]) > 0.02


LADDER = [(0, 1), (1, 2), (3, 4), (4, 5), (0, 3), (1, 4), (2, 5)]


def ladder(number: list[int]) -> Topology:
    """Two rows of three NPUs: one graph, whatever the numbers."""
    return from_links([(number[a], number[b], "10GB/s", "1us") for x, y in LADDER for a, b in ((x, y), (y, x))], 6)


def test_a_range_holds_what_other_numbers_of_the_nodes_change() -> None:
    """Direct takes the lowest links: a third less or half as much again, by numbers that mean nothing."""
    numberings = [list(range(6)), *(np.random.default_rng(seed).permutation(6).tolist() for seed in range(1, 7))]
    found = [simulate(build("direct", "all-gather", ladder(one), "16MiB"), chunks=4) for one in numberings]
    times = [one.time_ps for one in found]
    assert max(times) > 1.45 * min(times)
    for result in (found[times.index(min(times))], found[times.index(max(times))]):
        ends = result.spread(32)
        assert ends.low_ps < 1.005 * min(times) and ends.high_ps > 0.995 * max(times)


def test_other_numbers_change_routes_alone() -> None:
    """Ranks, transfers, named links, speeds and computations of a job are the same; each schedule is moved once."""
    fabric = ladder(list(range(6)))
    job, schedule = Job(fabric, speed=np.linspace(1, 2, 6)), build("direct", "all-gather", fabric, "1MiB")
    alone = _renumbered(Job.of(schedule), Model(), 0, np.random.default_rng(0))
    hops = [lower(one, symmetry="off").program.route_hop.tolist() for one in (Job.of(schedule), alone)]
    assert hops[0] != hops[1] and len(hops[0]) == len(hops[1])
    for name in ("a", "b"):
        job.collective(name, schedule)
    job.compute("c", 10, after=[0])
    other = _renumbered(job, Model(), 0, np.random.default_rng(0))
    moved = [one.work.schedule for one in other.operations if isinstance(one.work, Communicate)]
    assert moved[0] is moved[1] and moved[0].topology is other.topology
    assert moved[0].pattern.emit is schedule.pattern.emit
    assert other.operations[2] is job.operations[2] and other.speed is job.speed
    assert other.topology.src is fabric.src and other.topology.router != fabric.router
    assert on_network(other, fabric).operations[0].after == ()


def test_only_healthy_simulated_runs_are_perturbed() -> None:
    schedule = build("ring", "all-reduce", from_spec("ring:4"), "4KiB")
    faulty = simulate(schedule, faults=FaultPlan(faults=(SlowLink(link="npu0->npu1", at="0s", share=0.5),)))
    for result in (faulty, simulate(schedule, engine="analytic")):
        with pytest.raises(WeftError, match="simulated runs without faults"):
            result.spread(2)
    for n in (0, -1, True, 1.5):
        with pytest.raises(WeftError, match="give an integer from 1"):
            simulate(schedule).spread(n)  # type: ignore[arg-type]  # what a user may write


@pytest.mark.compiled
def test_compare_shows_ranges_and_marks_what_is_tied(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["compare", "--topology", "torus:16x8x4", "--algorithms", "swing,bucket", "-b", "16M", "--quiet",
             "--rank-progress", "free"]
    assert main([*words, "--json", str(tmp_path / "a.json")]) == 0
    said = capsys.readouterr().out
    rows = json.loads((tmp_path / "a.json").read_text(encoding="utf-8"))["rows"]
    assert all(row["spread_low_s"] <= row["time_s"] <= row["spread_high_s"] for row in rows)
    assert tied_with(sorted(rows, key=lambda row: float(row["time_s"]))) == ("bucket",)
    assert "% B *" in said and " =" in said and "tied" in said and "its range overlaps" in said
    assert main([*words, "--spread", "0"]) == 0
    without = capsys.readouterr().out
    assert "tied" not in without and "no perturbed runs of swing, bucket" in without
    assert main([*words, "--spread", "-1"]) == EXIT_BAD_INPUT


@pytest.mark.compiled
def test_compare_says_which_schedules_stay_as_they_were_built(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["compare", "--topology", "RI(2)_SW(4)", "--algorithms", "themis", "-b", "64K", "--quiet"]
    assert main(words) == 0
    assert "perturbed runs of themis keep the schedule that was built from the rates" in capsys.readouterr().out
    assert main([*words, "--spread", "0"]) == 0
    assert "keep the schedule" not in capsys.readouterr().out


def test_only_overlapping_ranges_are_tied() -> None:
    def row(name: str, time_s: float, low_s: float | None, high_s: float | None) -> dict[str, object]:
        ends = {"spread_low_s": low_s, "spread_high_s": high_s}
        return {"algorithm": name, "time_s": time_s, "size_bytes": 1024, "form": ""} | ends

    rows = [row("a", 1e-6, 1e-6, 1.2e-6), row("b", 1.1e-6, 1.1e-6, 1.3e-6), row("c", 2e-6, 1.9e-6, 2e-6),
            row("d", 1.1e-6, None, None)]
    assert tied_with(rows) == ("b",) and tied_with(rows[2:]) == () and tied_with(rows[3:]) == ()
    assert "1 us +0% +20% *" in comparison_table(rows) and "1.1 us +0% +18% =" in comparison_table(rows)


@pytest.mark.parametrize(("more", "why"), [
    (["--spread", "0"], "switched off by --spread 0"),
    (["--engine", "reference"], "by the reference engine"),
    (["--faults", "plan.toml"], "not with faults"),
])
def test_why_a_point_has_no_perturbed_runs(
    more: list[str], why: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("plan.toml").write_text('[[slow-link]]\nlink = "*"\nat = "1us"\nshare = 0.5\n', encoding="utf-8")
    assert main(["compare", "--topology", "ring:4", "--algorithms", "ring", "-b", "1K", *more]) == 0
    assert f"no perturbed runs of ring: {why}\n" in capsys.readouterr().out


def test_a_broken_table_names_all_that_are_tied() -> None:
    rows = [
        {"algorithm": name, "size_bytes": 8, "form": "", "time_s": time, "spread_low_s": time, "spread_high_s": 3e-6}
        for name, time in (("bfb", 1e-6), ("pipelined", 2e-6), ("ring", 4e-6))
    ]
    assert comparison_table(rows, 30).splitlines()[-1].endswith("bfb, pipelined tied")


def test_letters_of_forms_are_no_marks_of_the_table() -> None:
    short = abbreviations(["=x", "*", "=", "latency"])
    assert len({*short.values()}) == 4 and all(mark.isalnum() for mark in short.values())
