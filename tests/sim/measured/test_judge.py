"""The judge: what was simulated with noise is found again, and what cannot be known is said to be unknown."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest

from sim import simulate
from sim.cli import main
from sim.cli.flags import EXIT_BAD_INPUT
from sim.measured.curves import Curve, curves
from sim.measured.judge import Judgment, judge
from sim.measured.read import Measurements, Point
from sim.study.spec import Spec
from topologies import Topology, WeftError

NAMES = ("ring", "swing", "direct")
SIZES = tuple(1024 * 4**power for power in range(8))


def spec_of(fabric: str, **collective: object) -> Spec:
    return Spec.from_dict({"topology": {"spec": fabric}, "collective": collective})


@pytest.fixture(scope="module")
def switch8() -> tuple[Topology, list[Curve]]:
    spec = spec_of("switch:8")
    topology = spec.build_topology()
    return topology, curves(spec, topology, NAMES, SIZES)[0]


@pytest.fixture(scope="module")
def pair() -> tuple[Topology, list[Curve]]:
    """The smallest ring, where curves are known at once."""
    spec = spec_of("ring:2")
    topology = spec.build_topology()
    return topology, curves(spec, topology, ("ring",), SIZES)[0]


def noisy(times_s: Iterable[float], noise: float, seed: int = 1, collective: str = "all-reduce") -> Measurements:
    rng = np.random.default_rng(seed)
    points = [
        Point(size, float(time * np.exp(rng.normal(0, noise)))) for size, time in zip(SIZES, times_s, strict=True)
    ]
    return Measurements("noisy.json", "made up", tuple(points), 0, collective, 8)


def judged(topology: Topology, found: list[Curve], name: str, latency_s: float, share: float, seed: int) -> Judgment:
    truth = next(one for one in found if one.name == name)
    return judge(noisy(truth.times_s(latency_s, share), 0.02, seed), topology, found)


def test_a_curve_is_the_simulation_at_other_links() -> None:
    """The table of service times edited in place gives what a slower network gives, but for rounding."""
    spec = spec_of("switch:4")
    topology = spec.build_topology()
    one = curves(spec, topology, ["ring"], (1000, 10**6))[0][0]
    slower = topology.with_links(bandwidth_Bps=topology.bandwidth_Bps * 0.8)
    for size, time in zip(one.sizes_bytes, one.times_s(3e-6, 0.8), strict=True):
        whole = simulate(spec.build_schedule("ring", slower, size), endpoint_latency="3us")
        assert time == pytest.approx(whole.time_s, rel=1e-6)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("latency_s", "share"), [(2e-6, 0.85)])
def test_latency_bandwidth_and_algorithm_are_found_again(
    name: str, latency_s: float, share: float, switch8: tuple[Topology, list[Curve]]
) -> None:
    found = judged(*switch8, name, latency_s, share, seed=4)
    own = next(fit for fit in found.fits if fit.algorithm == name)
    assert own.latency_s.low <= latency_s <= own.latency_s.high
    assert own.share.low <= share <= own.share.high
    assert own.share.high - own.share.low < 0.1
    assert name in (found.best.algorithm, *found.alike)
    assert found.best.residual < 0.03


@pytest.mark.verify
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("latency_s", "share"), [(2e-6, 0.85), (0.3e-6, 0.97)])
def test_intervals_hold_the_truth_as_often_as_they_say(name: str, latency_s: float, share: float) -> None:
    """Of 30 seeds 28.5 are expected; 24 or fewer would be one chance in 300."""
    spec = spec_of("switch:8")
    topology = spec.build_topology()
    one = curves(spec, topology, [name], SIZES)[0]
    fits = [judged(topology, one, name, latency_s, share, seed).best for seed in range(30)]
    assert sum(fit.latency_s.low <= latency_s <= fit.latency_s.high for fit in fits) >= 25
    assert sum(fit.share.low <= share <= fit.share.high for fit in fits) >= 25


def test_on_a_torus_swing_is_told_from_the_others() -> None:
    spec = spec_of("torus:4x4")
    topology = spec.build_topology()
    found = curves(spec, topology, ("swing", "bucket"), SIZES)[0]
    truth = found[0].times_s(1e-6, 0.9)
    measured = Measurements("f", "x", noisy(truth, 0.02).points, 0, "all-reduce", 16)
    result = judge(measured, topology, found)
    assert result.best.algorithm == "swing"
    assert result.alike == ()


def test_the_same_schedule_under_two_names_is_alike() -> None:
    spec = spec_of("ring:4")
    topology = spec.build_topology()
    found = curves(spec, topology, ("ring", "bucket"), SIZES)[0]
    result = judge(noisy(found[0].times_s(1e-6, 0.9), 0.01), topology, found)
    assert {result.best.algorithm, *result.alike} == {"ring", "bucket"}


def test_what_is_known_is_not_fitted(pair: tuple[Topology, list[Curve]]) -> None:
    topology, found = pair
    measured = noisy(found[0].times_s(0.0, 0.8), 0.01)
    latency = judge(measured, topology, found, ["latency"]).best
    assert latency.latency_s == (0.0, 0.0, 0.0)
    assert latency.share.low <= 0.8 <= latency.share.high
    nothing = judge(measured, topology, found, ["latency", "bandwidth"]).best
    assert nothing.share == (1.0, 1.0, 1.0)
    with pytest.raises(WeftError, match="--known 'color' is unknown"):
        judge(measured, topology, found, ["color"])


def test_sizes_that_say_nothing_of_the_bandwidth(pair: tuple[Topology, list[Curve]]) -> None:
    """Where a byte takes no time beside the latency, the interval of the bandwidth is wide open."""
    topology, _ = pair
    spec, sizes = spec_of("ring:2"), (32, 64, 128, 256)
    found = curves(spec, topology, ["ring"], sizes)[0]
    times = found[0].times_s(50e-6, 0.9) * np.array([1.01, 0.99, 0.99, 1.01])
    points = tuple(Point(size, float(time)) for size, time in zip(sizes, times, strict=True))
    fit = judge(Measurements("f", "x", points, 0, "all-reduce", 8), topology, found).best
    assert fit.share.high / fit.share.low > 1e6
    assert fit.latency_s.low <= 50e-6 <= fit.latency_s.high


@pytest.mark.parametrize(
    ("share", "grade"), [(1.0, "good"), (0.6, "fair"), (0.3, "poor"), (1.3, "impossible")]
)
def test_grades(share: float, grade: str, pair: tuple[Topology, list[Curve]]) -> None:
    topology, found = pair
    result = judge(noisy(found[0].times_s(1e-6, share), 0.001), topology, found)
    assert result.grade() == grade
    assert (SIZES[-1] in result.too_fast()) == (grade == "impossible")
    assert result.rows()[-1]["share_of_bound"] == pytest.approx(share, rel=0.12)


def test_too_few_sizes_and_no_candidate(pair: tuple[Topology, list[Curve]]) -> None:
    topology, found = pair
    few = Measurements("few.json", "x", tuple(Point(size, 1e-6) for size in SIZES[:3]), 0, "all-reduce", 8)
    with pytest.raises(WeftError, match=r"few\.json has 3 sizes; at least 4 needed"):
        judge(few, topology, found)
    with pytest.raises(WeftError, match="no algorithm can run all-reduce on ring:2"):
        judge(noisy([1e-6] * len(SIZES), 0.01), topology, [])


def measured_file(path: Path, fabric: str = "switch:8") -> Path:
    spec = spec_of(fabric)
    topology = spec.build_topology()
    times = curves(spec, topology, ["ring"], SIZES)[0][0].times_s(2e-6, 0.85)
    rows = [
        {"size": point.size_bytes, "out_of_place": {"time": point.time_s * 1e6}} for point in noisy(times, 0.02).points
    ]
    data = {"version": 3, "args": ["all_reduce_perf"], "devices": [{}] * topology.n_npus, "results": rows}
    path.write_text(json.dumps(data), encoding="utf-8")
    return path


def test_the_command_says_what_it_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = measured_file(tmp_path / "m.json")
    words = ["judge", str(file), "--topology", "switch:8", "--algorithms", "ring,direct", "--quiet"]
    assert main([*words, "--csv", str(tmp_path / "rows.csv")]) == 0
    said = capsys.readouterr().out
    assert "looks like  ring, within " in said
    assert "verdict     good: 16 MiB at 8" in said
    assert main([*words, "--json", "-"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["algorithm"] == "ring"
    assert data["grade"] == "good"
    assert data["measured"]["points"] == len(data["rows"]) == len(SIZES)
    low, high = data["fits"][0]["latency_s"][1:]
    assert low < 2e-6 < high
    assert (tmp_path / "rows.csv").read_text(encoding="utf-8").count("\n") == len(SIZES) + 1


def test_the_command_on_two_ranks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """All algorithms are alike there, and the report says so; what was put in is found again."""
    file = measured_file(tmp_path / "m.json", "ring:2")
    words = ["judge", str(file), "--topology", "ring:2", "--algorithms", "ring,direct", "--quiet"]
    assert main([*words, "--json", str(tmp_path / "judged.json"), "--csv", str(tmp_path / "rows.csv")]) == 0
    said = capsys.readouterr().out
    assert "looks like  ring, within 1" in said
    assert "or          direct: these points do not distinguish them" in said
    assert "verdict     good: 16 MiB at 8" in said
    data = json.loads((tmp_path / "judged.json").read_text(encoding="utf-8"))
    (_, low, high), (_, least, most) = data["fits"][0]["latency_s"], data["fits"][0]["bandwidth_share"]
    assert low < 2e-6 < high and least < 0.85 < most
    assert data["alike"] == ["direct"]
    assert (tmp_path / "rows.csv").read_text(encoding="utf-8").count("\n") == len(SIZES) + 1


def test_validate_holds_simulated_against_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = measured_file(tmp_path / "m.json")
    words = ["validate", "--topology", "switch:8", "--algorithm", "ring", "--endpoint-latency", "2us", "--quiet",
             "--link-bandwidth", "340Gb/s", "--chunks", "16", "--measured", str(file)]
    assert main([*words, "--json", "-"]) == 0
    said = capsys.readouterr()
    data = json.loads(said.out)
    assert [row["size_bytes"] for row in data["rows"]] == list(SIZES)
    assert max(abs(row["error"]) for row in data["rows"]) < 0.06
    assert f"against {file} (nccl-tests JSON)" in said.err
    assert "ring: mean error " in said.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["judge", "FILE", "--topology", "switch:4"], "measured ranks 8, but 4 is requested"),
        (["judge", "FILE", "--topology", "switch:8", "--collective", "all-gather"], "measured collective all-reduce"),
        (["judge", "FILE", "--topology", "switch:8", "--algorithm", "bfb"], "only direct networks are supported"),
        (["judge", "none.json", "--topology", "switch:8"], "none.json cannot be read"),
        (["validate", "--topology", "switch:8", "--measured", "FILE", "-b", "1K"], "brings its own sizes"),
    ],
)
def test_what_is_wrong_is_one_line(
    words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = measured_file(tmp_path / "m.json")
    assert main([str(file) if word == "FILE" else word for word in words]) == EXIT_BAD_INPUT
    said = capsys.readouterr()
    assert message in said.err
    assert said.err.count("\n") == 1
    assert said.out == ""
