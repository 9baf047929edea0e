"""`weft pool`: the three models behind one command, and one line for every mistake."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sim.cli import main
from sim.cli.flags import EXIT_BAD_INPUT
from sim.scenarios.partial_aggregates import LateWorker, late_worker_run
from sim.scenarios.pool_streaming import PoolStreaming, time_ps
from sim.scenarios.slot_sharing import RULES, Sharing, fallback_share

SIZE = 16 * 1024


def rows_of(words: str, capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    assert main(["pool", "--size", "16KiB", *words.split(), "--json", "-"]) == 0
    said = capsys.readouterr()
    assert said.err.startswith("# weft pool: ")
    return list(json.loads(said.out)["rows"])


def test_a_job_by_its_slots(capsys: pytest.CaptureFixture[str]) -> None:
    rows = rows_of("--slots 4,16", capsys)
    for row, slots in zip(rows, (4, 16), strict=True):
        job = PoolStreaming(size_bytes=SIZE, slots=slots)
        found_ps = time_ps(job)
        assert row["time_s"] == found_ps / 1e12
        assert row["closed_form_s"] == job.closed_form_ps() / 1e12
        assert row["goodput_Gbps"] == pytest.approx(8e3 * SIZE / found_ps)
        assert (row["slots"], row["slots_needed"], row["size_bytes"], row["workers"]) == (slots, 58, SIZE, 8)


def test_every_quantity_is_taken(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--slots 4 --workers 3 --payload 512B --header 10B --link-bandwidth 10GB/s --link-latency 1us "
             "--hop-latency 100ns --late 2=7us --late 0=3us --slow 1=1/2")
    job = PoolStreaming(size_bytes=SIZE, slots=4, workers=3, payload_bytes=512, header_bytes=10, bandwidth_Bps=10**10,
                        latency_ps=10**6, switch_latency_ps=10**5)
    expected_ps = time_ps(job, late_ps={2: 7 * 10**6, 0: 3 * 10**6}, rate_factor={1: 0.5})
    assert rows_of(words, capsys)[0]["time_s"] == expected_ps / 1e12


def test_loss_is_the_mean_of_seeds(capsys: pytest.CaptureFixture[str]) -> None:
    (row,) = rows_of("--slots 8 --workers 2 --loss 0.05 --timeout 100us --seeds 4 --late 1=5us", capsys)
    job, late = PoolStreaming(size_bytes=SIZE, slots=8, workers=2), {1: 5 * 10**6}
    times = [time_ps(job, loss=0.05, timeout_ps=10**8, seed=seed, late_ps=late) / 1e12 for seed in range(4)]
    assert row["seeds"] == 4
    assert (row["time_s"], row["p5_s"], row["p95_s"]) == pytest.approx((np.mean(times), *np.percentile(times, [5, 95])))
    assert row["slow_down"] == pytest.approx(np.mean(times) * 1e12 / time_ps(job, late_ps=late))


def test_jobs_under_every_rule(capsys: pytest.CaptureFixture[str]) -> None:
    rows = rows_of("--slots 16 --workers 2 --jobs 2 --switch-slots 20", capsys)
    assert [row["rule"] for row in rows] == list(RULES)
    times = {row["rule"]: row["time_s"] for row in rows}
    assert times["port-locked"] < times["shared"] <= times["static"]
    assert times["locked"] == pytest.approx(2 * times["port-locked"])
    sharing = Sharing(job=PoolStreaming(size_bytes=SIZE, slots=16, workers=2), jobs=2, slots=20, rule="hashed")
    assert rows[-1]["fallback"] == fallback_share(sharing) > 0
    assert len(rows_of("--rule static,hashed --slots 16", capsys)) == 2


def test_partial_sums_beside_a_leaf_that_waits(capsys: pytest.CaptureFixture[str]) -> None:
    rows = rows_of("--slots 4 --late 3=1ms --partial-timeout 10us --leaves 4", capsys)
    for row, timeout_ps in zip(rows, (None, 10**7), strict=True):
        case = LateWorker(job=PoolStreaming(size_bytes=SIZE, slots=4), leaves=4, late_ps=10**9, timeout_ps=timeout_ps)
        found = late_worker_run(case)
        assert (row["packets_up"], row["partial_sums"]) == (found.packets_up, found.partial_sums)
        assert (row["time_s"], row["held_most_s"]) == (found.makespan_ps / 1e12, found.longest_ps / 1e12)
        assert row["difference"] == pytest.approx(0, abs=0.02)
    assert [row["leaf"] for row in rows] == ["waits", "partial"]


def test_what_people_see_and_the_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [f"--{kind}={tmp_path / name}" for kind, name in (("csv", "a.csv"), ("plot", "a.png"), ("json", "a.json"))]
    assert main(["pool", "--size", "4KiB", "--slots", "2,4", "--workers", "2", *files]) == 0
    said = capsys.readouterr().out
    assert said.startswith("# weft pool: 4 KiB, 2 workers at 12.5 GB/s; 58 slots keep the links busy\n")
    assert "closed form" in said
    assert [row["slots"] for row in csv.DictReader(io.StringIO((tmp_path / "a.csv").read_text()))] == ["2", "4"]
    assert (tmp_path / "a.png").stat().st_size > 10_000
    assert json.loads((tmp_path / "a.json").read_text())["spec"]["pool"]["slots"] == [2, 4]
    assert main(["pool", "--size", "4KiB", "--slots", "4", "--workers", "2", "--rule", "static,shared"]) == 0
    assert "to the server" in capsys.readouterr().out
    assert main(["pool", "--size", "0B", "--slots", "4", "--loss", "0.1", "--timeout", "1ms"]) == 0
    assert "0 ps" in capsys.readouterr().out


@pytest.mark.parametrize(("words", "message"), [
    ("--slots 0", "slots is 0: give a"),
    ("--size 1X", "size '1X' is not a size"),
    ("--payload 0B", "--payload '0B' is less than 1B"),
    ("--late 9=1ms", "worker is 9: give a"),
    ("--late 1=5", "--late 1=5: '5' is not a time"),
    ("--late 1", "--late '1': write WORKER=VALUE, such as --late 3=5ms"),
    ("--late 1=1ms --late 1=2ms", "--late '1=2ms': worker 1 is given twice"),
    ("--slow 1=x", "--slow 1=x: 'x' is not a number"),
    ("--slow 1=2", "worker 1 at a rate of 2: give a share above 0 and at most 1"),
    ("--loss .1", "--loss P and --timeout TIME go together"),
    ("--loss 2 --timeout 1ms", "loss is 2.0: give a"),
    ("--loss .1 --timeout 1us", "timeout of 1 us is not above the round trip of 4.974 us"),
    ("--loss .1 --timeout 1ms --seeds 0", "seeds is 0: give a"),
    ("--seeds 3", "a job without --loss cannot be simulated with --seeds"),
    ("--jobs 2 --late 1=1ms --loss 0", "jobs that share a switch cannot be simulated with --late and --loss"),
    ("--jobs 0", "jobs is 0: give a"),
    ("--rule fair", "rule 'fair' is unknown"),
    ("--leaves 2", "partial aggregates need --partial-timeout TIME and one late worker"),
    ("--late 8=1ms --partial-timeout 1us", "one late worker of 8"),
    ("--late 0=1ms --partial-timeout 1us --leaves 3", "8 workers on 3 leaves"),
    ("--late 0=1ms --partial-timeout 1us --slow 1=.5", "partial aggregates cannot be simulated with --slow"),
    ("--slots 4 --plot x.png", "--plot draws goodput by slots"),
])
def test_a_mistake_is_one_line(words: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pool", *words.split()]) == EXIT_BAD_INPUT
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("weft pool: ") and message in said.err
    assert said.err.count("\n") == 1


def test_seeds_are_counted_and_limited(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sim.cli.progress.PLAIN_SECONDS", -1)
    words = "pool --size 64KiB --slots 4,8 --loss 1e-2 --timeout 1ms --progress --seeds"
    assert main([*words.split(), "2"]) == 0
    assert "then 3 of 4 runs with loss" in capsys.readouterr().err
    assert main([*words.split(), "1000000000"]) == 2
    assert "seeds is 1000000000: give an integer from 1 to 1000000" in capsys.readouterr().err
