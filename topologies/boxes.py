"""Boxes of accelerators: DGX A100, DGX H100, DGX-1 and MI250, alone or joined by a network.

Bandwidths are per direction, as assumed by the schedule generators evaluated on these boxes
(ForestColl, arXiv 2402.06787, and its public code): 300 GB/s NVLink and 25 GB/s InfiniBand for each A100, 50 GB/s for
each xGMI link and 16 GB/s InfiniBand for each GCD of an MI250, 25 GB/s for each NVLink of a V100. An H100 has
450 GB/s NVLink and a 400 Gb/s NIC (NVIDIA DGX H100 data sheet).

GPU g of box b has rank 8 b + g (16 b + g for MI250). Tier 0 is inside the boxes, tier 1 the network.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Unpack

import numpy as np

from topologies.checks import Count, WeftError, checked
from topologies.core.extents import check_extents
from topologies.core.links import Links, Times, per_tier
from topologies.core.routing import ShortestPathRouter
from topologies.core.topology import NPU, SWITCH, Aggregation, Topology
from topologies.units import Quantities, Quantity, bytes_per_s, parse_time

A100_BANDWIDTH: tuple[Quantity, ...] = ("300GB/s", "25GB/s")
H100_BANDWIDTH: tuple[Quantity, ...] = ("450GB/s", "50GB/s")
DGX1_BANDWIDTH: tuple[Quantity, ...] = ("25GB/s", "12.5GB/s")
MI250_BANDWIDTH: tuple[Quantity, ...] = ("50GB/s", "16GB/s")

_DGX1 = ("02112000", "20120100", "11020020", "12200001", "20000211", "01002012", "00201102", "00011220")
"""NVLinks between the V100s of a DGX-1: row and column are GPUs."""

_MI250 = (
    "0-1:4 0-4:2 0-8:1 1-5:1 1-9:1 1-10:1 2-3:4 2-6:1 2-9:1 2-10:1 3-7:2 3-11:1 4-5:4 4-6:1 5-6:1 5-7:1 6-7:4 8-9:4 "
    "8-12:2 9-13:1 10-11:4 10-14:1 11-15:2 12-13:4 12-14:1 13-14:1 13-15:1 14-15:4"
)
"""xGMI links between the GCDs of a box of eight MI250."""

NVLINK_SHARP = Aggregation(0.835)
"""Fits measured times of 5 to 8 H100: see `collectives.in_network.all_reduce`."""

Cable = tuple[str, str, int, int]
"""Names of the two ends, the tier, and how many links of that tier the cable bundles."""


MOST_BOXES = 20_000
"""Limit on boxes: as many take one to three seconds."""


@checked
def dgx_a100(boxes: int = 1, *, bandwidth: Quantities = A100_BANDWIDTH, **times: Unpack[Times]) -> Topology:
    """DGX A100: eight GPUs around an NVSwitch; each has a NIC to one of two InfiniBand switches, by the parity of g.

    Parameters
    ----------
    boxes : int
        Number of boxes; connected by the network if there are several.
    bandwidth, latency : quantity or one per tier
        Per direction of a link: inside the box, then in the network.
    hop_latency : quantity
        Added on every arrival at a switch; NICs add none.

    Raises
    ------
    WeftError
        Fewer than one box, more than `MOST_BOXES`, or a bad quantity.
    """
    return _dgx("dgx-a100", boxes, 2, bandwidth, times)


@checked
def dgx_h100(boxes: int = 1, *, bandwidth: Quantities = H100_BANDWIDTH, **times: Unpack[Times]) -> Topology:
    """DGX H100: eight GPUs around an NVSwitch; GPU g of every box has a NIC to switch g ("rails").

    Boxes reduce in their NVSwitches; the switches between several are not known to.
    Parameters and errors as for `dgx_a100`.
    """
    return replace(_dgx("dgx-h100", boxes, 8, bandwidth, times), aggregation=NVLINK_SHARP)


@checked
def dgx1(boxes: int = 1, *, bandwidth: Quantities = DGX1_BANDWIDTH, **times: Unpack[Times]) -> Topology:
    """DGX-1: eight V100s whose NVLinks form a cube mesh; GPU 1 of a box sends to GPU 0 of the next.

    The unidirectional links between boxes are those of NDv2 as modeled by TE-CCL. Parameters and errors as for
    `dgx_a100`.
    """
    count = _count(boxes, "dgx1")
    pairs = [(a, b, int(links)) for a, row in enumerate(_DGX1) for b, links in enumerate(row)]
    inside = [(a, b, links) for a, b, links in pairs if a < b and links]
    links = _direct_links(inside, count, 8)
    if count > 1:
        links += [(f"gpu{8 * box + 1}", f"gpu{8 * ((box + 1) % count)}", 1, 1) for box in range(count)]
    return _build(f"dgx1:{count}", (8, count), links, [], bandwidth, times)


@checked
def mi250(boxes: int = 1, *, bandwidth: Quantities = MI250_BANDWIDTH, **times: Unpack[Times]) -> Topology:
    """MI250: sixteen GCDs joined by one to four xGMI links; each has a link to one InfiniBand switch.

    The links between two GCDs are one link of their joint bandwidth. Parameters and errors as for `dgx_a100`.
    """
    count = _count(boxes, "mi250")
    inside = []
    for word in _MI250.split():
        ends, links = word.split(":")
        one, other = ends.split("-")
        inside.append((int(one), int(other), int(links)))
    cables = _direct_links(inside, count, 16)
    if count > 1:
        cables += _both((f"gpu{npu}", "ib0", 1, 1) for npu in range(16 * count))
    return _build(f"mi250:{count}", (16, count), cables, ["ib0"] * (count > 1), bandwidth, times)


def _count(boxes: int, family: str) -> int:
    (count,) = check_extents(boxes, family)
    if count > MOST_BOXES:
        raise WeftError(f"{family}:{count} boxes are too many to cable one link at a time: at most {MOST_BOXES:,}")
    return count


@checked
def boxes_of(
    name: str, boxes: int, gpus: Count, nics: Count, mesh: bool, *, bandwidth: Quantities, **times: Unpack[Times]
) -> Topology:
    """Boxes of some GPUs around a switch, or with a link between every two, and of some NICs, each on its own rail.

    GPUs share NICs in the order of both; where there are more NICs than GPUs, those of a GPU are one of their joint
    rate.

    `name`: of the topology, before the number of boxes.
    `boxes`, `gpus`, `nics`: boxes; GPUs and NICs of each.
    `mesh`: GPUs are joined directly; each divides its bandwidth among the others.
    `bandwidth`, `latency`: bandwidth of a GPU inside a box, and of a NIC.
    `hop_latency`: as for `dgx_a100`.
    WeftError: fewer than one box, or a bad quantity.
    """
    count = _count(boxes, name)
    shared = min(gpus, nics)
    inside, port = per_tier(bandwidth, times["latency"], 2)[0].tolist()
    rates = tuple(map(bytes_per_s, (inside / (gpus - 1) if mesh and gpus > 1 else inside, port * nics / shared)))
    if mesh or gpus == 1:
        links, switches = _direct_links([(a, b, 1) for a in range(gpus) for b in range(a)], count, gpus), list[str]()
    else:
        links, switches = _around_switches(count, gpus)
    return _joined(name, count, gpus, shared, shared, links, switches, rates, times)


def boxes_apart(boxes: int, gpus: int, **links: Unpack[Links]) -> Topology:
    """Boxes of some GPUs around a switch, which nothing joins; the second bandwidth and latency mean nothing."""
    count = _count(boxes, "rails")
    cables, switches = _around_switches(count, gpus) if gpus > 1 else ([], [])
    times: Times = {"latency": links["latency"], "hop_latency": links["hop_latency"]}
    return _build("", (gpus, count), cables, switches, links["bandwidth"], times)


def _dgx(family: str, boxes: int, rails: int, bandwidth: Quantities, times: Times) -> Topology:
    """Boxes of eight GPUs around a switch, each with a NIC of its own."""
    count = _count(boxes, family)
    return _joined(family, count, 8, 8, rails, *_around_switches(count, 8), bandwidth, times)


def _around_switches(boxes: int, gpus: int) -> tuple[list[Cable], list[str]]:
    """The cables of boxes whose GPUs are around a switch, and the switches."""
    links = _both((f"gpu{gpu}", f"nvswitch{gpu // gpus}", 0, 1) for gpu in range(gpus * boxes))
    return links, [f"nvswitch{box}" for box in range(boxes)]


def _joined(
    name: str, boxes: int, gpus: int, nics: int, rails: int, links: list[Cable], switches: list[str],
    bandwidth: Quantities, times: Times,
) -> Topology:
    """Boxes with these links inside, whose GPUs share NICs in the order of both; NICs take turns at the rails."""
    if boxes > 1:
        firsts = [-(-nic * gpus // nics) for nic in range(nics)]  # a NIC has the number of its first GPU
        for box in range(boxes):
            nic = [f"nic{box * gpus + first}" for first in firsts]
            links += _both((f"gpu{box * gpus + gpu}", nic[gpu * nics // gpus], 1, 1) for gpu in range(gpus))
            links += _both((one, f"ib{at % rails}", 1, 1) for at, one in enumerate(nic))
        switches += [f"ib{rail}" for rail in range(rails)]
        switches += [f"nic{box * gpus + first}" for box in range(boxes) for first in firsts]
    return _build(f"{name}:{boxes}", (gpus, boxes), links, switches, bandwidth, times)


def _direct_links(inside: Sequence[tuple[int, int, int]], boxes: int, gpus: int) -> list[Cable]:
    return _both(
        (f"gpu{box * gpus + one}", f"gpu{box * gpus + other}", 0, links)
        for box in range(boxes) for one, other, links in inside
    )


def _both(cables: Iterable[Cable]) -> list[Cable]:
    """Both directions of each cable."""
    return [link for a, b, tier, count in cables for link in ((a, b, tier, count), (b, a, tier, count))]


def _build(
    name: str, shape: tuple[int, int], links: Sequence[Cable], switches: Sequence[str], bandwidth: Quantities,
    times: Times,
) -> Topology:
    n_npus = shape[0] * shape[1]
    names = [f"gpu{gpu}" for gpu in range(n_npus)] + list(switches)
    number = {node: index for index, node in enumerate(names)}
    rates, latencies = per_tier(bandwidth, times["latency"], 2)
    hop_ps = parse_time(times["hop_latency"], "hop latency")
    direct = not any(node.startswith("nvswitch") for node in switches)
    charged = [direct if node.startswith("gpu") else not node.startswith("nic") for node in names]
    tier = np.array([link[2] for link in links], np.int16)
    return Topology(
        name=name,
        kind=np.repeat(np.array([NPU, SWITCH], np.int8), [n_npus, len(switches)]),
        src=np.array([number[link[0]] for link in links], np.int32),
        dst=np.array([number[link[1]] for link in links], np.int32),
        bandwidth_Bps=rates[tier] * np.array([link[3] for link in links], np.float64),
        latency_ps=latencies[tier],
        hop_latency_ps=np.where(charged, hop_ps, 0).astype(np.int64),
        dimension=tier, shape=shape, coords=_coordinates(names, shape[0]), router=ShortestPathRouter(),
        node_names=tuple(names),
    )


def _coordinates(names: Sequence[str], gpus: int) -> np.ndarray[tuple[int, int], np.dtype[np.int32]]:
    """(g, b) of a GPU; (-1, b) of the NVSwitch of a box, (i, -1) of network switch i, (g, -2 - b) of a NIC."""
    rows = []
    for name in names:
        kind = name.rstrip("0123456789")
        box, place = divmod(int(name[len(kind):]), gpus)
        rows.append({
            "gpu": (place, box), "nvswitch": (-1, box * gpus + place), "ib": (box * gpus + place, -1),
            "nic": (place, -2 - box),
        }[kind])
    return np.array(rows, np.int32).reshape(-1, 2)
