"""Optical fabrics by formula: published and derived values to their last digit."""

import pytest

from sim.papers.optics import STUDIES, goodput, rails, regions
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


def test_the_page_has_every_study(tmp_path, capsys) -> None:
    left = run_paper("optics", tmp_path, True)
    assert left.tables.keys() == {f"optics-{name}" for name in STUDIES}
    assert (tmp_path / "optics.md").read_text() == capsys.readouterr().out
