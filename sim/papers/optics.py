"""Fabrics of optical circuit switches by formula: rails and regions by their money and power, pods by their goodput.

Opus (arXiv 2602.12521), MixNet (SIGCOMM 2025) and TPU v4 (ISCA 2023): each published value beside the model's.
"""

from collections.abc import Callable, Iterable, Iterator
from math import comb, sqrt

from sim.papers.tables import Left, Row, as_text
from topologies.core.prices import PRICES

HEADLINES = {
    "rails": "Opus: an OCS for each rail takes 23 times less power and costs 4 times less than packet switches",
    "regions": "MixNet: 2.0 times less cost than a fat-tree on average; six of eight interfaces on circuits",
    "pods": "TPU v4: with OCS slices of 1,024, 2,048, 3,072 chips have goodputs of 75, 50, 75 %; without, less",
}

PER_SERVER = 8
"""GPUs of a server, and its rails."""

TRANSCEIVER, SWITCH_PORT, OCS_PORT = (219.0, 10.0), (37_299 / 64, 2_524 / 64), (520.0, 75 / 192)
"""Dollars and watts at 400 Gb/s, of Opus's notebook."""


def packet_ports(servers: int) -> int:
    """Ports of switches, rail by rail: as large as two tiers of them need."""
    ports = round(sqrt(4 * servers))
    leaves = servers // (ports // 2) * 2 * PER_SERVER
    return (leaves + PER_SERVER * servers // ports) * ports


def rails(quick: bool) -> Iterator[Row]:
    """Money and power of rails, without NICs: packet switches, or an OCS with a port for each direction."""
    for gpus in (1024, 2048, 4096, 8192):
        servers = gpus // PER_SERVER
        ports, circuits = packet_ports(servers), 2 * servers * PER_SERVER
        packet, optical = (
            [count * (port + far) + gpus * near for port, far, near in zip(kind, ends, TRANSCEIVER, strict=True)]
            for count, kind, ends in ((ports, SWITCH_PORT, TRANSCEIVER), (circuits, OCS_PORT, (0.0, 0.0)))
        )
        for fabric, (dollars, watts) in (("packet switches", packet), ("OCS", optical)):
            yield {"gpus": gpus, "fabric": fabric, "million_dollars": dollars / 1e6, "kilowatts": watts / 1e3,
                   "times_cheaper": packet[0] / dollars, "times_less_power": packet[1] / watts}


def regions(quick: bool) -> Iterator[Row]:
    """Money of an interface of fat-trees, of regions and of patch panels."""
    prices = PRICES["MixNet"]
    for rate in prices.rates_Gbps:
        tree, region = prices.switched(rate, 3), prices.regional(rate, packet_share=2 / 8)
        yield {"Gbps": rate, "fat_tree": tree, "regions": region, "patch_panels": prices.patched(1, rate),
               "fat_tree_over_regions": tree / region}


CUBES, HOSTS, CHIPS = 64, 16, 64
"""Of a pod; hosts and chips of a cube."""


def goodput(host: float, cubes: int, *, circuits: bool) -> float:
    """Expected share of a pod's chips in whole slices of so many cubes, where a host is up with a probability.

    Circuits make a slice of any cubes; without, the cubes of a slice are given.
    """
    up = host**HOSTS
    if not circuits:
        return CUBES // cubes * cubes / CUBES * float(up**cubes)
    return sum(comb(CUBES, some) * up**some * (1 - up) ** (CUBES - some) * (some // cubes) * cubes / CUBES
               for some in range(CUBES + 1))


def pods(quick: bool) -> Iterator[Row]:
    """Goodput over the size of slices."""
    for host in (0.99, 0.995, 0.999):
        for chips in (64, 128, 256, 512, 1024, 2048, 3072, 4096):
            yield {"host_up": host, "slice": chips, "with_ocs": goodput(host, chips // CHIPS, circuits=True),
                   "without": goodput(host, chips // CHIPS, circuits=False)}


STUDIES: dict[str, Callable[[bool], Iterable[Row]]] = {"rails": rails, "regions": regions, "pods": pods}


def run(left: Left, quick: bool) -> None:
    """Leave a table of each study and the page, and print them."""
    lines = ["# Rails, regions and pods", "", "Made by `weft paper optics`, by formula."]
    for name, study in STUDIES.items():
        rows = list(study(quick))
        left.table(f"optics-{name}", rows)
        lines += ["", f"## {name}", "", f"Published: {HEADLINES[name]}.", "", "```", *as_text(rows).split("\n"), "```"]
    print("\n".join(lines))
    left.page("\n".join(lines) + "\n")
