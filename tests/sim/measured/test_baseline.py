"""What became slower since an earlier run."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from sim.cli import main
from sim.library.expected import expected
from sim.library.tuner import Setting
from sim.measured.baseline import SMALL, Changes, Table
from topologies import WeftError
from topologies.machines.profile import machine

Points = list[tuple[int, float]]


def changes(source: str, points: Points, before: str, earlier: Points) -> Changes:
    return Changes(Table(source, points), Table(before, earlier))


SIZES = [2**power for power in range(10, 33)]
def before(noise: float = 0.01, seed: int = 0) -> Points:
    rng = np.random.default_rng(seed)
    return [(size, (2e-5 + size / 150e9) * float(np.exp(rng.normal(0, noise)))) for size in SIZES]


@pytest.mark.parametrize("seed", range(5))
def test_the_same_run_twice_is_unchanged(seed: int) -> None:
    found = changes("now", before(seed=seed), "then", before(seed=seed + 100))
    assert found.slower == found.faster == ()
    assert not found.lost_rail(8)


def test_a_range_is_slower_and_a_single_size_is_an_outlier() -> None:
    now = [(size, time * (1.15 if size >= 2**28 else 1.4 if size == 2**15 else 1)) for size, time in before(seed=1)]
    found = changes("now", now, "then", before())
    assert found.slower == tuple(size for size in SIZES if size >= 2**28)
    assert (found.outliers, found.faster) == ((2**15,), ())
    back = changes("then", before(), "now", now)
    assert (back.faster, back.slower) == (found.slower, ())
    assert {row["change"] for row in found.rows()} == {"", "slower"}


@pytest.mark.parametrize(("nics", "factor", "lost"), [
    (8, 8 / 7, True), (4, 4 / 3, True), (8, 1.0, False), (8, 1.3, False), (1, 1.5, False), (0, 8 / 7, False),
])
def test_a_lost_rail_has_its_ratio(nics: int, factor: float, lost: bool) -> None:
    now = [(size, time * (factor if size >= 2**22 else 1)) for size, time in before(seed=1)]
    assert changes("now", now, "then", before()).lost_rail(nics) == lost


@pytest.mark.parametrize("noise", [0.003, 0.01, 0.03, 0.08])
def test_thresholds_are_those_of_the_noise(noise: float) -> None:
    """The same machine twice: of 50 pairs hardly one has a size that changed, whatever the noise."""
    pairs = [changes("now", before(noise, seed), "then", before(noise, seed + 1000)) for seed in range(50)]
    assert sum(bool(one.slower or one.faster) for one in pairs) <= 3
    assert np.median([one.noise[1] for one in pairs]) == pytest.approx(2**0.5 * noise, rel=0.35)


@pytest.mark.parametrize("share", [1.02, 1.05])
def test_a_small_change_of_all_large_sizes_is_found_where_no_single_one_shows_it(share: float) -> None:
    noise = 0.004 if share < 1.05 else 0.015
    now = [(size, time * (share if size >= SMALL else 1)) for size, time in before(noise, 7)]
    pairs = [(size, time * 1.001) for size, time in now]
    found = Changes(Table("now", now, pairs), Table("then", before(noise, 8), before(noise, 8)))
    assert set(found.slower) >= {size for size in SIZES if size >= 2**24}
    assert not any(size < SMALL for size in found.slower)


def test_noise_is_that_of_repeated_rows_and_of_the_other_placement() -> None:
    """Runs whose neighbors agree by accident, and whose repeated rows do not."""
    smooth, rng = before(0.0), np.random.default_rng(3)
    repeated = [(size, time * float(np.exp(rng.normal(0, 0.05)))) for size, time in smooth for _ in range(5)]
    beside = [(size, time * 1.2 * float(np.exp(rng.normal(0, 0.05)))) for size, time in smooth]
    plain = Changes(Table("now", smooth), Table("then", smooth))
    assert plain.noise[1] < 1e-9 and plain.threshold(2**30) == pytest.approx(1.03)
    for found in (Changes(Table("now", repeated), Table("then", smooth)),
                  Changes(Table("now", smooth, beside), Table("then", smooth, beside))):
        assert found.noise[1] == pytest.approx(0.07, rel=0.5)
        assert found.threshold(2**30) > 1.1
    steady = [(size, time * 1.2) for size, time in smooth]  # always slower in place, and no noise
    assert Changes(Table("now", smooth, steady), Table("then", smooth)).threshold(2**30) == pytest.approx(1.01)


def test_no_size_in_common() -> None:
    with pytest.raises(WeftError, match="now and then have no size in common"):
        changes("now", [(1024, 1.0)], "then", [(2048, 1.0)])


def written(path: Path, points: Points, program: str = "all_gather") -> str:
    rows = [{"size": size, "out_of_place": {"time": time * 1e6}} for size, time in points]
    path.write_text(json.dumps({"args": [f"{program}_perf"], "devices": [{}] * 32, "results": rows}))
    return str(path)


def test_the_command_finds_a_dead_rail_that_a_single_table_cannot_show(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same machine, 32 GPUs of DGX A100, before and after; the table alone is good."""
    words = ["compare", "--machine", "dgx-a100:4", "--library", "nccl", "--collective", "all-gather", "-b", "1K", "-e",
             "8G", "--quiet"]
    mine = tmp_path / "seven.toml"
    mine.write_text('gpu = "a100"\ngpus = 8\ninside = "switch"\nnic = "ib-hdr"\nnics = 7\ncpu = "amd"\n')
    assert main([*words, "--nccl-json", str(tmp_path / "old.json")]) == 0
    assert main([*words, "--machine", f"{mine}:4", "--nccl-json", str(tmp_path / "new.json")]) == 0
    judge = ["judge", str(tmp_path / "new.json"), "--machine", "dgx-a100:4", "--quiet"]
    capsys.readouterr()
    assert main(judge) == 0
    assert "verdict     good" in capsys.readouterr().out
    assert main([*judge, "--baseline", str(tmp_path / "old.json"), "--json", str(tmp_path / "out.json")]) == 0
    out = capsys.readouterr().out
    assert "one NIC of 8 less than in " in out
    data = json.loads((tmp_path / "out.json").read_text())
    assert (data["verdict"], data["cause"]) == ("slow-hw", "dead-rail")
    assert data["tables"][0]["verdict"] == "good"
    assert {row["change"] for row in data["changes"][0]["rows"]} == {"", "slower"}
    assert data["changes"][0]["verdict_before"] == "good"


def test_a_class_that_changed_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old, now = (written(tmp_path / name, [(size, 7e-5 + size / rate) for size in SIZES])
                for name, rate in (("old.json", 190e9), ("now.json", 23.5e9)))
    words = ["--machine", "dgx-a100:4", "--quiet"]
    assert main(["judge", now, "--baseline", old, *words]) == 0
    assert "(then good, now slow-hw): slower at " in capsys.readouterr().out
    assert main(["judge", old, "--baseline", old, *words]) == 0
    assert "no size changed by more than noise (3.0%)" in capsys.readouterr().out


@pytest.mark.parametrize(("large", "small", "cause", "said"), [
    (8 / 7, 1.0, "dead-rail", "one NIC of 8 less than in "), (1.0, 1.5, "slower", "latency since "),
    (1.0, 1.0, "protocol", ", nothing new"),
])
def test_what_is_new_leads_and_what_is_in_both_runs_is_old(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], large: float, small: float, cause: str, said: str
) -> None:
    """LL is forced in both runs, and one is slower."""
    slow = Setting(machine=machine("dgx-h100"), nodes=4, gpus=8, collective="all-gather", protocols=("LL",))
    then = [(size, expected(slow, size).time_s) for size in SIZES]
    now = [(size, time * (large if size >= 2**22 else small if size < SMALL else 1)) for size, time in then]
    old, new = written(tmp_path / "old.json", then), written(tmp_path / "new.json", now)
    words = ["judge", new, "--machine", "dgx-h100:4", "--baseline", old, "--quiet"]
    assert main([*words, "--json", str(tmp_path / "out.json")]) == 0
    out = capsys.readouterr().out
    assert said in out and "as in " in out and "LL is forced or chosen" in out
    data = json.loads((tmp_path / "out.json").read_text())
    assert (data["cause"], data["changes"][0]["verdict_before"]) == (cause, "wrong-config")


def test_a_baseline_of_something_else_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    now = written(tmp_path / "now.json", before())
    other = written(tmp_path / "other.json", before(), "all_reduce")
    assert main(["judge", now, "--machine", "dgx-a100:4", "--baseline", other]) == 2
    assert "is of all-reduce on 32 ranks: no table is" in capsys.readouterr().err
