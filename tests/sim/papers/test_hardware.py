"""The hardware book: are the predictions as close as promised, and are other tables read?"""

from __future__ import annotations

import statistics
from pathlib import Path

import numpy as np
import pytest

from sim.papers import hardware
from sim.papers.hardware import Calibrated, Point, left_out, median_error, of_group, point_of, shipped, with_values
from sim.papers.tables import run_paper
from topologies import WeftError


@pytest.fixture(scope="module")
def points() -> list[Point]:
    return [point_of(row) for row in shipped()]


def test_the_median_errors_are_as_promised(points: list[Point]) -> None:
    """15 % overall, 10 % inside a node and 15 % between nodes from 1 MiB."""
    assert sum(point.counted for point in points) > 850
    assert (median_error(points) or 1) <= 0.15
    assert (median_error(of_group(points, "1 MiB and more inside a node")) or 1) <= 0.10
    assert (median_error(of_group(points, "1 MiB and more between nodes")) or 1) <= 0.15


def test_systems_that_nothing_was_calibrated_on_are_predicted_too(points: list[Point]) -> None:
    """Leave out every system that a constant names."""
    named = ("xxrjun", "Together", "Snellius", "Polaris", "Sirius", "Perlmutter", "GCP", "p4de", "AAC8", "OCI", "Azure",
             "stas00", "Spark", "HGX A100")
    others = [point for point in points if point.counted and not any(word in point.run["system"] for word in named)]
    assert len(others) >= 30
    assert statistics.median(abs(point.error) for point in others) <= 0.15


def test_every_run_has_a_source_and_a_machine(points: list[Point]) -> None:
    for point in points:
        assert point.run["source_url"]
        assert point.setting is not None
    assert {point.found is None for point in points if "collnet" not in point.run["id"]} == {False}


def test_the_page_shows_every_row_and_what_is_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_paper("hardware", tmp_path, quick=True)
    page = (tmp_path / "hardware.md").read_text()
    assert "median error" in capsys.readouterr().out
    assert page.count("### ") == len({row["id"] for row in shipped()})
    assert page.count("| Ring ") > 500
    assert "polaris-128n-ar-tcp: over sockets" in page


def test_other_tables_are_read_and_bad_ones_named(tmp_path: Path) -> None:
    file = tmp_path / "other.csv"
    head = ",".join(hardware.COLUMNS)
    file.write_text(f"{head},busbw_GBps\nx,8x H100,8,1,H100,NVSwitch,,all-reduce,auto,2.26,,1048576,,65.5\n")
    (point,) = map(point_of, hardware.read(str(file)))
    assert point.measured_us == pytest.approx(1048576 * 1.75 / 65.5e3)
    assert abs(point.error) < 0.01
    for kind, factor in (("all-gather", 7 / 8), ("broadcast", 1), ("reduce", 1), ("sendrecv", 1)):
        file.write_text(f"{head},busbw_GBps\nx,8x H100,8,1,H100,NVSwitch,,{kind},auto,2.26,,1048576,,50\n")
        (point,) = map(point_of, hardware.read(str(file)))
        assert point.measured_us == pytest.approx(1048576 * factor / 50e3)
    file.write_text(f"{head}\nx,8x H100,8,1,H100,NVSwitch,,all-reduce,auto,2.26,,many,3\n")
    with pytest.raises(WeftError, match="line 2"):
        hardware.read(str(file))
    file.write_text("id,system\nx,y\n")
    with pytest.raises(WeftError, match="'gpus'"):
        hardware.read(str(file))


@pytest.mark.parametrize(
    ("cells", "why"), [({"size_bytes": "0"}, "0 B: what is measured is the call alone"),
                       ({"gpus": "7", "nodes": "2"}, "7 GPUs in 2 nodes: only nodes alike are predicted")],
)
def test_rows_that_cannot_be_predicted_are_left_out_by_name(cells: dict[str, str], why: str, tmp_path: Path) -> None:
    row = hardware.shipped()[0]
    file = tmp_path / "other.csv"
    lines = [",".join(row), ",".join(f'"{cell}"' for cell in (row | cells).values())]
    file.write_text("\n".join(lines))
    (point,) = map(point_of, hardware.read(str(file)))
    assert point.found is None and point.reason == why and not point.counted


def test_the_figures_are_drawn(tmp_path: Path) -> None:
    hardware.draw(tmp_path, [point for point in map(point_of, shipped()) if "together" in point.run["id"]])
    assert (tmp_path / "hardware-h100.png").stat().st_size > 10_000


def test_a_system_is_predicted_without_it() -> None:
    """What it alone determines is named and assumed; what others determine is fitted to them."""
    rows = [
        (one.setting, one.size_bytes, one.measured_us / 1e6) for one in map(point_of, shipped())
        if one.counted and one.setting is not None and one.setting.machine.nic.name in ("tcpx-200", "slingshot-11")
    ]
    tcpx = [row for row in rows if row[0].machine.nic.name == "tcpx-200"]
    polaris = [row for row in rows if row[0].machine.name == "ALCF Polaris"]
    found = left_out(tcpx, [row for row in rows if row not in tcpx])
    assert {"tcpx-200 reached", "tcpx-200 latency"} <= set(map(str, found.alone))
    assert statistics.median(np.abs(found.errors)) > 0.3  # nobody else says what TCPX takes
    found = left_out(polaris, [row for row in rows if row not in polaris])
    assert not any("slingshot" in str(one) for one in found.alone)
    assert statistics.median(np.abs(found.errors)) < 0.25


def test_a_constant_moves_every_profile_that_has_it_from_there() -> None:
    (row,) = [one.setting for one in map(point_of, shipped()) if one.run["id"] == "spark-2n-ar-pr103"][:1]
    assert row is not None
    assert row.machine.gpu.launch == 17e-6  # as H100
    other = with_values(row, {Calibrated("gpu", "h100", "launch"): 1e-5})
    assert other.machine.gpu.launch == 1e-5
    assert other.machine.gpu.ring == row.machine.gpu.ring
