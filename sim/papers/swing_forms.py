"""The Swing page: from which size on the faster form of an algorithm is the one for bandwidth."""

from __future__ import annotations

from collections.abc import Iterator

from sim.papers.swing_points import SPECS, Comparison, by_curve, published, short, worker_count
from sim.papers.tables import md_head
from sim.study.keys import ModelKeys, TopologyKeys
from sim.study.points import Task, compute_all
from sim.study.spec import Spec
from topologies.units import parse_size

FIRST_BANDWIDTH = {"64x16": "128KiB", "Hx2Mesh": "128KiB"}
"""Smallest plotted size at which Swing's bandwidth form is the better one, where not 512 KiB; RecDoub: 128 KiB."""


def forms(
    ideal: list[Comparison], of_sst: list[Comparison], by_rate: dict[str, list[str]]
) -> Iterator[str]:
    """From which size on the curves of algorithms with two forms are those of the bandwidth form."""
    yield "## Forms"
    yield ""
    yield "Curves of Swing and recursive doubling are of the faster form at each size: the latency form up to some"
    yield "size, the bandwidth form from the next one on. First size of the bandwidth form:"
    yield ""
    yield from md_head("topology", "algorithm", "published", "ideal", "swing-sst")
    nics = by_curve(of_sst)
    for (topology, algorithm), row in by_curve(ideal).items():
        if algorithm in ("Swing", "RecDoub"):
            theirs = FIRST_BANDWIDTH.get(topology, "512KiB") if algorithm == "Swing" else "128KiB"
            sst = nics.get((topology, algorithm), row if topology == "Hx2Mesh" else [])
            yield f"| {topology} | {algorithm} | {theirs} | {_first(row, topology != 'Hx2Mesh')} | {_first(sst)} |"
    yield ""
    yield "Over link rates on 8x8, ideal:"
    yield ""
    yield from md_head("link rate", "Swing", "RecDoub")
    for rate, sizes in by_rate.items():
        yield f"| {rate} | " + " | ".join(sizes) + " |"
    yield ""
    yield "The paper's figure over link rates is not among the points here. A comparison with it has to fix `--form`:"
    yield "reportedly its curves at 3.2 Tb/s are not those of the faster form."
    yield ""


def _first(row: list[Comparison], shown: bool = True) -> str:
    return short(min(c.size_bytes for c in row if c.form == "bandwidth")) if row and shown else "-"


RATES = ("100Gb/s", "200Gb/s", "400Gb/s", "800Gb/s", "1.6Tb/s", "3.2Tb/s")


def first_bandwidth_by_rate() -> dict[str, list[str]]:
    """By link rate, the first size at which the bandwidth forms of Swing and recursive doubling are faster, on 8x8."""
    sizes, names = published()["sizes"][5:12], ("swing", "recursive-doubling")
    fabrics = [TopologyKeys(spec=SPECS["8x8"], link_bandwidth=rate) for rate in RATES]
    specs = [Spec(topology=fabric, model=ModelKeys(preset="swing-paper")) for fabric in fabrics]
    tasks = [Task(spec, name, parse_size(size)) for spec in specs for name in names for size in sizes]
    form = [row["form"] for row in compute_all(tasks, worker_count())]
    curves = [form[at : at + len(sizes)] for at in range(0, len(form), len(sizes))]
    firsts = [sizes[curve.index("bandwidth")] if "bandwidth" in curve else "-" for curve in curves]
    return {rate: firsts[2 * at : 2 * at + 2] for at, rate in enumerate(RATES)}
