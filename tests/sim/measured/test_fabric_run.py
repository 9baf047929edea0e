"""The judge of a fabric: what was simulated with noise is found again, and what cannot be known is said to be so."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest

from sim import simulate
from sim.cli import main
from sim.cli.flags import EXIT_BAD_INPUT
from sim.measured.fabric_run import Curve, FabricRun, curves, link_classes
from sim.study.points import Task, simulate_point
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


def noisy(times_s: Iterable[float], noise: float, seed: int = 1) -> list[tuple[int, float]]:
    rng = np.random.default_rng(seed)
    return [(size, float(time * np.exp(rng.normal(0, noise)))) for size, time in zip(SIZES, times_s, strict=True)]


def run_of(topology: Topology, found: list[Curve], points: list[tuple[int, float]], *known: str) -> FabricRun:
    return FabricRun("noisy.json", topology, "all-reduce", found, points, known)


def judged(topology: Topology, found: list[Curve], name: str, latency_s: float, share: float, seed: int) -> FabricRun:
    truth = next(one for one in found if one.name == name)
    return run_of(topology, found, noisy(truth.times_s(latency_s, share), 0.02, seed))


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
    assert own.shares[0].low <= share <= own.shares[0].high
    assert own.shares[0].high - own.shares[0].low < 0.1
    assert name in (found.fits[0].algorithm, *found.alike)
    assert found.fits[0].residual < 0.03


@pytest.mark.verify
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("latency_s", "share"), [(2e-6, 0.85), (0.3e-6, 0.97)])
def test_intervals_hold_the_truth_as_often_as_they_say(name: str, latency_s: float, share: float) -> None:
    """Of 30 seeds 28.5 are expected; 24 or fewer would be one chance in 300."""
    spec = spec_of("switch:8")
    topology = spec.build_topology()
    one = curves(spec, topology, [name], SIZES)[0]
    fits = [judged(topology, one, name, latency_s, share, seed).fits[0] for seed in range(30)]
    assert sum(fit.latency_s.low <= latency_s <= fit.latency_s.high for fit in fits) >= 25
    assert sum(fit.shares[0].low <= share <= fit.shares[0].high for fit in fits) >= 25


def test_on_a_torus_swing_is_told_from_the_others() -> None:
    spec = spec_of("torus:4x4")
    topology = spec.build_topology()
    found = curves(spec, topology, ("swing", "bucket"), SIZES)[0]
    truth = found[0].times_s(1e-6, 0.9)
    result = run_of(topology, found, noisy(truth, 0.02))
    assert result.fits[0].algorithm == "swing"
    assert result.alike == []


def test_the_same_schedule_under_two_names_is_alike() -> None:
    spec = spec_of("ring:4")
    topology = spec.build_topology()
    found = curves(spec, topology, ("ring", "bucket"), SIZES)[0]
    result = run_of(topology, found, noisy(found[0].times_s(1e-6, 0.9), 0.01))
    assert {result.fits[0].algorithm, *result.alike} == {"ring", "bucket"}
    assert "would look the same" in result.diagnosis().notes[0]


def test_what_is_known_is_not_fitted(pair: tuple[Topology, list[Curve]]) -> None:
    topology, found = pair
    points = noisy(found[0].times_s(0.0, 0.8), 0.01)
    latency = run_of(topology, found, points, "latency").fits[0]
    assert latency.latency_s == (0.0, 0.0, 0.0)
    assert latency.shares[0].low <= 0.8 <= latency.shares[0].high
    nothing = run_of(topology, found, points, "latency", "bandwidth").fits[0]
    assert nothing.shares == ((1.0, 1.0, 1.0),)
    with pytest.raises(WeftError, match="--known 'color' is unknown"):
        run_of(topology, found, points, "color")


def test_sizes_that_say_nothing_of_the_bandwidth(pair: tuple[Topology, list[Curve]]) -> None:
    """Where a byte takes no time beside the latency, the bandwidth is not determined, and nothing is said of it."""
    topology, _ = pair
    spec, sizes = spec_of("ring:2"), (32, 64, 128, 256)
    found = curves(spec, topology, ["ring"], sizes)[0]
    times = found[0].times_s(50e-6, 0.9) * np.array([1.01, 0.99, 0.99, 1.01])
    run = run_of(topology, found, list(zip(sizes, times.tolist(), strict=True)))
    assert run.fits[0].determined == (True, False)
    assert run.fits[0].latency_s.low <= 50e-6 <= run.fits[0].latency_s.high
    said = run.diagnosis()
    assert (said.verdict, said.cause) == ("too-small", "healthy")
    late = 1 / np.median(found[0].times_s(0.0, 1.0) / times)
    assert said.but == f"small messages are slow: 32 B to 256 B, {late:.1f} times the time of the network alone"
    alone = run_of(topology, found, list(zip(sizes, found[0].times_s(0.0, 1.0).tolist(), strict=True))).diagnosis()
    assert (alone.verdict, alone.but) == ("too-small", "")


@pytest.mark.parametrize(
    ("share", "verdict"), [(1.0, "good"), (0.85, "good"), (0.6, "slow-unknown"), (0.3, "slow-unknown"),
                           (1.3, "impossible")]
)
def test_verdicts(share: float, verdict: str, pair: tuple[Topology, list[Curve]]) -> None:
    topology, found = pair
    result = run_of(topology, found, noisy(found[0].times_s(1e-6, share), 0.001)).diagnosis()
    assert result.verdict == verdict
    assert ("16 MiB measured faster" in result.limit) == (verdict == "impossible")
    assert result.share_of_bound == pytest.approx(share, rel=0.12)
    assert result.share == pytest.approx(share, rel=0.12)


def test_a_collapse_is_named(pair: tuple[Topology, list[Curve]]) -> None:
    topology, found = pair
    points = [(size, time * (5 if size > 2**20 else 1)) for size, time in noisy(found[0].times_s(1e-6, 0.9), 0.01)]
    result = run_of(topology, found, points).diagnosis()
    assert (result.verdict, result.cause) == ("slow-hw", "collapse")


def test_an_outlier_moves_nothing(switch8: tuple[Topology, list[Curve]]) -> None:
    topology, found = switch8
    points = noisy(found[0].times_s(2e-6, 0.85), 0.01)
    points[4] = points[4][0], 8 * points[4][1]
    result = run_of(topology, found[:1], points)
    assert result.fits[0].shares[0].value == pytest.approx(0.85, rel=0.04)
    assert result.fits[0].latency_s.value == pytest.approx(2e-6, rel=0.04)
    assert result.diagnosis().outliers == result.diagnosis().contradictions == (SIZES[4],)


def test_links_of_each_rate_have_their_own_share() -> None:
    """Two boxes: the links between them are the slower class, and at half of their rate."""
    spec = spec_of("dgx-a100:2")
    topology = spec.build_topology()
    found = curves(spec, topology, ["nccl-rings"], SIZES)[0]
    inside, between = link_classes(topology)[::-1]
    assert inside > between
    run = run_of(topology, found, noisy(found[0].times_s(1e-6, 0.5, 1.0), 0.01))
    slow, _ = run.fits[0].shares
    assert slow.low <= 0.5 <= slow.high
    assert run.diagnosis().limit.startswith("the links of 25 GB/s")


def test_too_few_sizes_and_no_candidate(pair: tuple[Topology, list[Curve]]) -> None:
    topology, found = pair
    with pytest.raises(WeftError, match=r"noisy\.json has 3 sizes; at least 4 needed"):
        run_of(topology, found, [(size, 1e-6) for size in SIZES[:3]])
    with pytest.raises(WeftError, match="no algorithm can run all-reduce on ring:2"):
        run_of(topology, [], noisy([1e-6] * len(SIZES), 0.01))


def measured_file(path: Path, fabric: str = "switch:8") -> Path:
    spec = spec_of(fabric)
    topology = spec.build_topology()
    times = curves(spec, topology, ["ring"], SIZES)[0][0].times_s(2e-6, 0.85)
    rows = [
        {"size": size, "out_of_place": {"time": time * 1e6}} for size, time in noisy(times, 0.02)
    ]
    data = {"version": 3, "args": ["all_reduce_perf"], "devices": [{}] * topology.n_npus, "results": rows}
    path.write_text(json.dumps(data), encoding="utf-8")
    return path


def test_the_command_says_what_it_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = measured_file(tmp_path / "m.json")
    words = ["judge", str(file), "--topology", "switch:8", "--algorithms", "ring,direct", "--quiet"]
    assert main([*words, "--csv", str(tmp_path / "rows.csv")]) == 0
    said = capsys.readouterr().out
    assert "verdict     good\nlimited by  the links of 50 GB/s, as ring uses them" in said
    assert main([*words, "--json", "-", "--plot", str(tmp_path / "judged.svg")]) == 0
    assert "measured" in (tmp_path / "judged.svg").read_text(encoding="utf-8")
    data = json.loads(capsys.readouterr().out)
    assert (data["verdict"], data["tables"][0]["algorithm"], len(data["rows"])) == ("good", "ring", len(SIZES))
    low, high = data["candidates"][0]["fits"][0]["latency_s"][1:]
    assert low < 2e-6 < high
    assert (tmp_path / "rows.csv").read_text(encoding="utf-8").count("\n") == len(SIZES) + 1


def test_the_command_on_two_ranks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """All algorithms are alike there, and the report says so; what was put in is found again."""
    file = measured_file(tmp_path / "m.json", "ring:2")
    words = ["judge", str(file), "--topology", "ring:2", "--algorithms", "ring,direct", "--quiet"]
    assert main([*words, "--json", str(tmp_path / "judged.json"), "--csv", str(tmp_path / "rows.csv")]) == 0
    said = capsys.readouterr().out
    assert "note        direct would look the same" in said
    assert "verdict     good" in said
    data = json.loads((tmp_path / "judged.json").read_text(encoding="utf-8"))
    (candidates,) = data["candidates"]
    (_, low, high), ((_, least, most),) = (candidates["fits"][0][key] for key in ("latency_s", "bandwidth_shares"))
    assert low < 2e-6 < high and least < 0.85 < most
    assert candidates["alike"] == ["direct"]
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


@pytest.mark.parametrize("fabric", ["ocs:8x2,delay=1us", "ocs:3x1,per-port,delay=300ns", "hybrid:4x1,delay=1us",
                                    "rails:2x2x1,delay=1us", "rotor:5x2,dwell=30us", "patch-panel:3x2"])
def test_on_an_optical_fabric_what_compare_measures_is_found_again(fabric: str) -> None:
    """Its circuits may be others than the first, or change; ports are slower than they say."""
    sizes, spec = (4096, 2**16, 2**18, 2**20), spec_of(fabric, algorithms=["recursive-doubling", "direct"])
    spec = spec.updated({"model": {"chunks": 4}})
    found, refused = curves(spec, spec.build_topology(), spec.algorithms, sizes)
    assert not [why for name, why in refused.items() if "power" not in why]
    for one in found:
        whole = [simulate_point(Task(spec, one.name, size, spread=0)).result.time_s for size in sizes]
        assert one.times_s(0.0, *(1.0,) * len(link_classes(spec.build_topology()))).tolist() == pytest.approx(whole)
    run = FabricRun("measured", spec.build_topology(), "all-reduce", found, [*zip(sizes, whole, strict=True)])
    assert run.diagnosis().verdict in ("good", "too-small") and run.fits[0].algorithm == one.name
