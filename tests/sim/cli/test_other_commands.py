"""`weft validate`, `weft topology`, `weft schedule`: what they print and write."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from collectives import ALGORITHMS, COLLECTIVES
from sim.cli import main
from sim.cli.topology import diameter_hops
from topologies import TOPOLOGIES, from_links, from_spec, read_topology


def said(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert main(words) == 0
    return capsys.readouterr().out


# --- validate


def test_a_ring_is_as_predicted(capsys: pytest.CaptureFixture[str]) -> None:
    text = said(["validate", "--topology", "torus:4x4", "--algorithm", "ring", "-b", "1M", "--quiet"], capsys)
    assert "ring, 1 MiB: simulated = estimate" in text
    assert "hop processing" in text


def test_a_difference_is_explained_and_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = {"--json": "a.json", "--csv": "a.csv", "--plot": "a.png", "--heatmap": "b.png", "--links": "l.csv"}
    words = [word for flag, name in files.items() for word in (flag, str(tmp_path / name))]
    text = said(["validate", "--topology", "torus:4x4", "--algorithms", "swing,direct", "-b", "1K", "-e", "1M", "-f",
                 "1024", "--quiet", *words], capsys)
    rows = json.loads((tmp_path / "a.json").read_text())["rows"]
    assert len(rows) == 4
    for row in rows:
        assert sum(row["residual_parts_ps"].values()) == round(row["residual_s"] * 1e12)
        assert row["verdict"] in text
    assert {path.name for path in tmp_path.iterdir()} == set(files.values())
    with (tmp_path / "l.csv").open(newline="") as stream:
        assert len(list(csv.DictReader(stream))) == from_spec("torus:4x4").n_links


# --- topology


def test_families_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    text = said(["topology"], capsys)
    assert all(family.example in text for family in TOPOLOGIES.values())


def test_a_fabric_is_described(capsys: pytest.CaptureFixture[str]) -> None:
    text = said(["topology", "--topology", "RI(4)_SW(8)", "--link-bandwidth", "400Gb/s,100Gb/s"], capsys)
    assert "NPUs       32  (shape 4x8)" in text
    assert "switches   4" in text
    assert "diameter   4 links" in text
    assert "diameter   1 link\n" in said(["topology", "--topology", "fc:3"], capsys)
    assert "bisection  200 GB/s" in text
    assert "12.5 GB/s" in text


@pytest.mark.parametrize("suffix", [".json", ".graphml"])
def test_a_fabric_is_written_and_read_back(tmp_path: Path, suffix: str, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / f"fabric{suffix}"
    said(["topology", "--topology", "hx2mesh:2x2", "--output", str(file), "--quiet"], capsys)
    written, read = from_spec("hx2mesh:2x2"), read_topology(file)
    assert (read.n_npus, read.n_links, read.shape) == (written.n_npus, written.n_links, written.shape)
    assert "diameter   4 links" in said(["topology", "--topology", str(file)], capsys)


def test_a_fabric_is_drawn_and_told_in_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["topology", "--topology", "torus:4x4", "--plot", str(tmp_path / "a.png"), "--json", "-", "--quiet"]
    facts = json.loads(said(words, capsys))
    assert (facts["npus"], facts["links"], facts["diameter_hops"]) == (16, 64, 4)
    assert facts["bisection_Bps"] == 4e11
    assert (tmp_path / "a.png").exists()


@pytest.mark.parametrize(("spec", "hops"), [("torus:1", 0), ("ring:5", 2), ("torus:4x6", 5), ("fc:6", 1),
                                            ("switch:4", 2), ("mesh:3x3", 4)])
def test_diameters(spec: str, hops: int) -> None:
    assert diameter_hops(from_spec(spec)) == (hops, True)


def test_islands_have_no_diameter() -> None:
    both = [(0, 1, "1GB/s", "1ns"), (1, 0, "1GB/s", "1ns"), (2, 3, "1GB/s", "1ns"), (3, 2, "1GB/s", "1ns")]
    assert diameter_hops(from_links(both, 4)) == (None, True)


def test_a_large_fabric_is_sampled_and_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sim.cli.topology.EXACT_DIAMETER_NPUS", 100)
    assert "diameter   16 links or more (seen from 16 NPUs)" in said(["topology", "--topology", "torus:16x16"], capsys)


# --- schedule


def test_algorithms_are_listed_with_their_limits(capsys: pytest.CaptureFixture[str]) -> None:
    text = said(["schedule", "--list"], capsys)
    assert all(f"# {name}: {one.help}; {one.limits}" in text for name, one in ALGORITHMS.items())
    assert all(kind in text.splitlines()[0] for kind in COLLECTIVES)


def test_both_forms_are_described(capsys: pytest.CaptureFixture[str]) -> None:
    text = said(["schedule", "--topology", "torus:4x4", "--algorithm", "swing", "-b", "1M"], capsys)
    assert "# swing (latency form): all-reduce of 1 MiB on torus:4x4" in text
    assert "steps      8 on 4 ports" in text
    assert "rank 0     sends 32 transfers, 1.875 MiB in all" in text


def test_the_transfers_of_a_rank_are_those_of_the_paper(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """4x4: the first peers of rank 0 are 4, 1, 12 and 3 (NSDI 2024, figure 4), in some order of ports."""
    file = tmp_path / "a.json"
    words = ["--form", "bandwidth", "-b", "1M", "--rank", "0", "--json", str(file)]
    said(["schedule", "--topology", "torus:4x4", "--algorithm", "swing", *words], capsys)
    (one,) = json.loads(file.read_text())["schedules"]
    assert {t["to"] for t in one["transfers"] if t["step"] == 0} == {"npu4", "npu1", "npu12", "npu3"}
    assert sum(t["bytes"] for t in one["transfers"]) == one["bytes_sent_by_rank"] == 2 * 15 * 2**20 // 16
    assert one["proof"] == "proved"


@pytest.mark.parametrize(("words", "message"), [
    (["--topology", "torus:4x4"], "no algorithm is given"),
    (["--topology", "torus:4x4", "--algorithm", "swing", "--rank", "16"], "ranks are 0 to 15"),
    (["--topology", "torus:3x4", "--algorithm", "ring"], "Hamiltonian"),
])
def test_what_cannot_be_described_is_told(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schedule", *words]) == 2
    assert message in capsys.readouterr().err
