"""Boxes of any numbers of GPUs and NICs: all NICs of a box carry the same, and the time is as expected."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from collectives import Schedule, build
from collectives.core.routes import paths_of
from sim.library.expected import expected, timed
from sim.library.tuner import Setting, candidates
from sim.study.library_runs import APART, simulated, why_apart
from topologies.machines.profile import Machine, machine

ABOVE_THE_RAMP = 2**32
RING = ("all-reduce", "all-gather", "reduce-scatter", "broadcast", "reduce")


def machines() -> Iterator[Machine]:
    """GPUs behind a switch, and NICs of which GPUs share one, or have several."""
    for gpus in range(1, 9):
        for nics in (1, 2, 3, 4, 6, 8):
            if nics <= 2 * gpus:
                yield replace(machine("dgx-h100"), name=f"box-{gpus}-{nics}", gpus=gpus, nics=nics)


def loads(schedule: Schedule) -> dict[int, dict[str, list[float]]]:
    """Bytes out of and into every NIC, by box."""
    t, fabric = schedule.pattern.transfers(), schedule.topology
    routes = paths_of(t, fabric)
    sent = np.repeat((t.blocks * schedule.block_bytes)[routes.pair], np.diff(routes.ptr))
    of_link = np.bincount(routes.links, weights=sent, minlength=fabric.n_links)
    found: dict[int, dict[str, list[float]]] = defaultdict(lambda: {"out": [], "in": []})
    for link in range(fabric.n_links):
        src, dst = fabric.node_name(int(fabric.src[link])), fabric.node_name(int(fabric.dst[link]))
        if src.startswith("nic") and dst.startswith("ib"):
            found[int(src[3:]) // fabric.shape[0]]["out"].append(float(of_link[link]))
        if src.startswith("ib") and dst.startswith("nic"):
            found[int(dst[3:]) // fabric.shape[0]]["in"].append(float(of_link[link]))
    return found


GAPS = {
    "latency, dips and ramps": (0.65, 0.8), "counts the whole array up and down": (0.4, 0.8),
    "rate of NVLS is that of a full box": (1.2, 1.8),
}
"""Least and largest ratio of the simulated to the expected time, above the ramp, by what is said of it."""


@pytest.mark.table
@pytest.mark.parametrize("nodes", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("inside", ["dgx-h100", "dgx-a100", "mi300x"])
@pytest.mark.parametrize("gpus", range(1, 9))
def test_every_algorithm_takes_the_expected_time_or_says_why_not(gpus: int, inside: str, nodes: int) -> None:
    for nics in (1, 2, 3, 4, 6, 8):
        if nics > 2 * gpus or nodes * gpus == 1:
            continue
        box = replace(machine(inside), name=f"box-{gpus}-{nics}", gpus=gpus, nics=nics)
        for kind in (*RING, "all-to-all"):
            asked = Setting(machine=box, nodes=nodes, gpus=gpus, collective=kind)
            for one in (one for one in candidates(asked) if one.protocol == "Simple"):  # that of large arrays
                row = timed(asked, one, ABOVE_THE_RAMP)
                found = simulated(asked, row)
                assert found.time_s is not None, found.reason
                ratio, why = found.time_s / row.time_s, why_apart(asked, row, found.time_s)
                low, high = next((gap for said, gap in GAPS.items() if said in why), (0.8, 1.2))
                if "unevenly" in why:  # the fullest NIC serves so many rings
                    low, high = (-(-gpus // nics) * nics / gpus * off for off in (0.95, 1.05))
                assert low <= ratio <= high, (nics, kind, one.algorithm, one.protocol, why)
                assert bool(why) == (abs(ratio - 1) > APART)


def carries_alike(bytes_of: list[float]) -> bool:
    return max(bytes_of) == pytest.approx(min(bytes_of), rel=1e-6)


def open_ends(kind: str, nodes: int) -> tuple[tuple[int, str], ...]:
    """Box and direction in which the chains of a rooted collective are open: rings that are cut at rank 0."""
    ends = {"broadcast": ((0, "in"), (nodes - 1, "out")), "reduce": ((0, "out"), (1, "in"))}
    return ends.get(kind, ())


@pytest.mark.table
@pytest.mark.parametrize("nodes", [2, 3, 4, 5])
@pytest.mark.parametrize("box", list(machines()), ids=lambda one: one.name)
def test_rings_load_all_nics_alike_and_take_the_expected_time(box: Machine, nodes: int) -> None:
    for kind in RING:
        asked = Setting(machine=box, nodes=nodes, gpus=box.gpus, collective=kind, algorithms=("Ring",),
                        protocols=("Simple",))
        row = expected(asked, ABOVE_THE_RAMP)
        found = simulated(asked, row)
        assert found.time_s is not None, found.reason
        assert found.time_s == pytest.approx(row.time_s, rel=0.2), kind
        boxes = loads(build("nccl-rings", kind, box.topology(nodes), "1MiB"))
        for at, of_box in boxes.items():
            for way, carried in of_box.items():
                assert (at, way) in open_ends(kind, nodes) or carries_alike(carried), (kind, at, way, carried)


@pytest.mark.table
@pytest.mark.parametrize("nodes", [2, 3, 4, 5])
@pytest.mark.parametrize("algorithm", ["Tree", "NVLSTree"])
@pytest.mark.parametrize("box", list(machines()), ids=lambda one: one.name)
def test_trees_load_all_nics_of_a_box_alike_and_take_the_expected_time(
    box: Machine, algorithm: str, nodes: int
) -> None:
    """Boxes differ, for roots send less. The time from four boxes on: of fewer, less crosses than is counted."""
    if algorithm == "NVLSTree" and box.gpus == 1:
        return
    name = {"Tree": "nccl-trees", "NVLSTree": "nvls-trees"}[algorithm]
    asked = Setting(machine=box, nodes=nodes, gpus=box.gpus, collective="all-reduce", algorithms=(algorithm,),
                    protocols=("Simple",))
    row = expected(asked, ABOVE_THE_RAMP)
    found = simulated(asked, row)
    assert found.time_s is not None, found.reason
    if nodes > 3:
        assert found.time_s == pytest.approx(row.time_s, rel=0.2)
    for of_box in loads(build(name, "all-reduce", box.topology(nodes), "1MiB")).values():
        assert all(carries_alike(carried) for carried in of_box.values())
