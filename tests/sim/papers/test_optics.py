"""Optical fabrics by formula: published and derived values to their last digit."""

import pytest

from sim.papers.optics import STUDIES, dollars, goodput, on_planes, phases, rails, regions, waste
from sim.papers.tables import run_paper


@pytest.mark.parametrize(("gpus", "dollars", "kilowatts", "optical"), [
    (1024, 4.281, 260.39, (1.289, 11.04)), (4096, 17.458, 1062.09, (5.157, 44.16)),
])
def test_rails_of_opus(gpus: int, dollars: float, kilowatts: float, optical: tuple[float, float]) -> None:
    packet, circuits = (row for row in rails(True) if row["gpus"] == gpus)
    assert (round(packet["million_dollars"], 3), round(packet["kilowatts"], 2)) == (dollars, kilowatts)
    assert (round(circuits["million_dollars"], 3), round(circuits["kilowatts"], 2)) == optical


def test_regions_of_mixnet() -> None:
    ratio = {row["Gbps"]: row["fat_tree_over_regions"] for row in regions(True)}
    assert ratio[200] == pytest.approx(1.803, abs=5e-5) and ratio[800] == pytest.approx(2.3369, abs=5e-5)


@pytest.mark.parametrize(("host", "chips", "with_ocs", "without"), [
    (0.99, 64, 0.85146, 0.85146), (0.99, 3072, 0.74205, 0.00033), (0.995, 1024, 0.75147, None),
    (0.995, 2048, 0.50295, None), (0.999, 1024, None, 0.77404), (0.999, 4096, 0.35897, None),
])
def test_goodput_of_pods(host: float, chips: int, with_ocs: float | None, without: float | None) -> None:
    for circuits, published in ((True, with_ocs), (False, without)):
        if published is not None:
            assert round(goodput(host, chips // 64, circuits=circuits), 5) == published


@pytest.mark.parametrize(("model", "gbps", "published"), [
    ("Mixtral 8x22B", 100, 1.4565), ("Mixtral 8x22B", 800, 2.3634), ("Mixtral 8x7B", 400, 2.2963),
    ("LLaMA-MoE", 100, 1.2097), ("LLaMA-MoE", 200, 1.447), ("Qwen-MoE", 100, 1.2716), ("Qwen-MoE", 400, 2.0359),
    ("Qwen-MoE", 800, 2.2183),
])
def test_performance_per_dollar_of_mixnet(model: str, gbps: int, published: float) -> None:
    (found,) = (row["regions_over_fat_tree"] for row in dollars(True) if (row["model"], row["Gbps"]) == (model, gbps))
    assert round(found, 4) == published


def test_every_change_of_phase_costs_its_time_on_rails() -> None:
    """The law of Opus: 30 changes, of which windows of 20 ms hide as much as they last."""
    for row in phases(True):
        hidden = row["window_ms"] if row["policy"] == "provisioned" else 0
        if row["delay_ms"]:
            times = 30 * max(0, row["delay_ms"] - hidden) / row["delay_ms"]
            assert row["switching_times"] == pytest.approx(times, abs=1e-6)
        assert row["best_ms"] <= row["every_change_ms"]


def test_waste_of_domains_that_lose_nodes() -> None:
    """Every value that was computed from the trace by the rules of the paper."""
    found = {row["ring_gpus"]: row for row in waste(True)}
    for gpus, rule, published in (
        (16, "K=2", 0.194), (16, "K=3", 0.126), (16, "cubes of 8 nodes", 13.697), (16, "fixed rings", 2.161),
        (32, "K=2", 0.506), (64, "K=2", 1.314), (64, "K=3", 0.915), (64, "fixed rings", 13.697),
    ):
        assert round(found[gpus][rule], 3) == published


@pytest.mark.parametrize(("case", "every", "overlapped"), [
    (("reduce-scatter", 16, 4, 0.125, 0.2), 0.681171875, 0.0846875),  # the authors' own
    (("all-reduce", 8, 2, 0.5, 0.2), 0.9375, 0.505), (("all-reduce", 8, 2, 0.5, 2.0), 8.1375, 4.105),
    (("all-reduce", 8, 2, 8, 0.2), 1.2, 0.82), (("all-reduce", 8, 4, 8, 2.0), None, 0.52),
])
def test_planes_of_swot(case: tuple[str, int, int, float, float], every: float | None, overlapped: float) -> None:
    found = on_planes(*case)
    assert found[1] == pytest.approx(overlapped, abs=5e-10)
    assert every is None or found[0] == pytest.approx(every, abs=5e-10)


def test_the_page_has_every_study(tmp_path, capsys) -> None:
    left = run_paper("optics", tmp_path, True)
    assert left.tables.keys() == {f"optics-{name}" for name in STUDIES}
    assert (tmp_path / "optics.md").read_text() == capsys.readouterr().out
