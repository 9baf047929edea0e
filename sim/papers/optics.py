"""Fabrics of optical circuit switches: rails, regions, pods, domains that lose nodes, and planes that switch in turns.

Opus (arXiv 2602.12521), MixNet (SIGCOMM 2025), TPU v4 (ISCA 2023), InfiniteHBD (SIGCOMM 2025) and SWOT (arXiv
2510.19322): each published value beside the model's.
"""

import csv
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from math import comb, sqrt
from pathlib import Path

from collectives import build
from sim.papers.tables import Left, Row, as_text
from sim.program.model import Model
from sim.simulation import simulate
from sim.study.circuits import EVERY_STEP, switched_rows
from sim.study.overlap import divide, overlapped
from topologies import from_spec
from topologies.core.prices import PRICES
from workloads.circuits import SHARED, with_circuits
from workloads.job import Job

HEADLINES = {
    "rails": "Opus: an OCS for each rail takes 23 times less power and costs 4 times less than packet switches",
    "regions": "MixNet: 2.0 times less cost than a fat-tree on average; six of eight interfaces on circuits",
    "dollars": "MixNet: 1.2 to 1.5 times the performance per dollar of a fat-tree at 100 Gb/s, 1.9 to 2.3 at 400",
    "phases": "Opus: N changes of phase cost N switching times; switched ahead of time, what exceeds each window",
    "waste": "InfiniteHBD: more than 10 times less waste than cubes, which are lost whole, and than boxes of 72 GPUs",
    "planes": "SWOT: up to 89.7 % less than switching for every step; 0.0846875 and 0.681171875 ms in its example",
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


ITERATION = {
    "Mixtral 8x22B": (1.3743484582184033, 1.4541709245236023, 1.1940221720447362, 1.2006052855934743,
                      1.0816994101601314, 1.1138412705013914, 1.0241518770911373, 1.0126344225828576),
    "Mixtral 8x7B": (1.2098142915084984, 1.2487696208629178, 1.0786571639450722, 1.0975801537020935,
                     1.0302239853908406, 1.0309467182793302, 1.0002911778848984, 1.0012663602248657),
    "LLaMA-MoE": (3.9323615746392275, 5.009859032475658, 2.18810393086488, 2.7265517950688967,
                  1.3461747361073735, 1.599192937232423, 1.0, 1.1916720240604728),
    "Qwen-MoE": (5.09418619126068, 6.173743766918513, 2.730045083711109, 3.204935316618282,
                 1.563193883429469, 1.7643737444680594, 1.0, 1.0534585618520547),
}
"""Published times on a fat-tree and on regions, at 100, 200, 400, 800 Gb/s (mixnet-project.github.io)."""


def dollars(quick: bool) -> Iterator[Row]:
    """Performance per dollar of regions over fat-trees: published times, and money by `regions`."""
    for name, times in ITERATION.items():
        for at, row in enumerate(regions(quick)):
            gain = times[2 * at] / times[2 * at + 1] * row["fat_tree_over_regions"]
            yield {"model": name, "Gbps": row["Gbps"], "regions_over_fat_tree": gain}


def phases(quick: bool) -> Iterator[Row]:
    """Groups that alternate on rails of one port, with windows of computation between them: 30 changes of circuits."""
    for window_ms in (0, 20):
        alone_ms = 0.0
        for policy in ("demand", "provisioned"):
            for delay_ms in (0, 50) if quick else (0, 1, 10, 50):
                job = Job(from_spec(f"rails:4x2,delay={delay_ms}ms,policy={policy}", hop_latency=0))
                last = list[int]()
                for turn in range(31):
                    other = [rank ^ (2 << turn % 2) for rank in range(8)]
                    last = [job.send(f"phase {turn}", 50_000_000, range(8), other, after=last)]
                    last = [job.compute(f"window {turn}", window_ms * 10**9, after=last)]
                # of one port each, so that no two phases share circuits
                every_ms, best_ms = (simulate(one).time_ps / 1e9 for one in (with_circuits(job)[SHARED], job))
                alone_ms = alone_ms or every_ms
                yield {"window_ms": window_ms, "policy": policy, "delay_ms": delay_ms, "every_change_ms": every_ms,
                       "switching_times": (every_ms - alone_ms) / delay_ms if delay_ms else None, "best_ms": best_ms}


NODES, EACH = 400, 8
"""Of the fault trace; GPUs of a node. Nodes are in the order of their names."""

FAULTS = Path(__file__).parent / "data" / "hbd_faults.csv"
"""Days at which nodes went down and came up (stepfun-ai/InfiniteHBD-Trace, Apache-2.0)."""


def on_a_line(down: set[int], size: int, reach: int) -> int:
    """Healthy nodes that belong to no ring of a size, where rings pass over fewer than `reach` nodes that are down."""
    lost = row = gap = 0
    for node in range(NODES):
        row, gap = (row, gap + 1) if node in down else (row + 1, 0)
        if gap == reach:
            lost, row = lost + row % size, 0
    return lost + row % size


def in_groups(down: set[int], size: int, group: int, whole: bool = False) -> int:
    """Healthy nodes that belong to no ring of a size inside their group; `whole`: a group with a node down is lost."""
    lost = 0
    for first in range(0, NODES, group):
        last = min(first + group, NODES)
        up = last - first - len(down.intersection(range(first, last)))
        lost += up if whole and up < last - first else up % size if not whole else 0
    return lost


RULES: dict[str, Callable[[set[int], int], int]] = {
    "K=2": lambda down, size: on_a_line(down, size, 2), "K=3": lambda down, size: on_a_line(down, size, 3),
    "cubes of 8 nodes": lambda down, size: in_groups(down, size, 8, whole=True),
    "fixed rings": lambda down, size: in_groups(down, size, size),
    "72 GPUs": lambda down, size: in_groups(down, size, 9),
    "one switch": lambda down, size: in_groups(down, size, NODES),
}
"""Healthy nodes that are lost to rings of a size."""


def waste(quick: bool) -> Iterator[Row]:
    """Time average of the GPUs that are up and in no ring, in per cent of all, over the published faults."""
    with FAULTS.open(encoding="utf-8") as file:
        faults = [(int(row["node"]), float(row["down_day"]), float(row["up_day"])) for row in csv.DictReader(file)]
    times = sorted({0.0, *(moment for _, *both in faults for moment in both)})
    states = [({node for node, begin, end in faults if begin <= now < end}, later - now)
              for now, later in pairwise(times)]
    for gpus in (16, 32, 64):
        lost = {name: sum(rule(down, gpus // EACH) * days for down, days in states) / times[-1] / NODES * 100
                for name, rule in RULES.items()}
        yield {"ring_gpus": gpus, **lost}


PLANES = ((8, 2, 0.5, 0.2), (8, 2, 8, 0.2), (8, 3, 0.5, 2), (8, 3, 128, 0.2), (8, 4, 8, 2))
"""Servers, planes, MB, and ms of switching, of all-reduces by halving and doubling; 25 MB per ms, 20 us a use."""


def on_planes(kind: str, servers: int, planes: int, megabytes: float, switch_ms: float) -> tuple[float, float]:
    """Times in ms of switching for every step, and of steps divided over planes that switch in turns; both simulated.

    With eight times the bytes at eight times the rate, so that the parts of all steps are whole elements.
    """
    fabric = from_spec(f"ocs:{servers}x{planes},per-port,delay={switch_ms}ms", "200GB/s", "20us", 0)
    form = "bandwidth" if kind == "all-reduce" else None
    schedule = build("recursive-doubling", kind, fabric, round(megabytes * 8e6), form)
    model = Model(chunks=1)
    ((_, every),) = switched_rows(schedule, model, [EVERY_STEP])
    divided = simulate(overlapped(schedule, divide(schedule)), model=model)
    return every.time_ps / 1e9, divided.time_ps / 1e9


def planes(quick: bool) -> Iterator[Row]:
    """Reconfiguration inside a collective: every step, and overlapped with the steps of other planes."""
    cases = [("reduce-scatter", 16, 4, 0.125, 0.2), *(("all-reduce", *case) for case in PLANES[: 1 if quick else None])]
    for kind, *case in cases:
        every_ms, divided_ms = on_planes(kind, *case)
        servers, planes, megabytes, switch_ms = case
        yield {"collective": kind, "servers": servers, "planes": planes, "MB": megabytes, "switch_ms": switch_ms,
               "every_step_ms": every_ms, "overlapped_ms": divided_ms, "less": 1 - divided_ms / every_ms}


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


STUDIES: dict[str, Callable[[bool], Iterable[Row]]] = {
    "rails": rails, "phases": phases, "regions": regions, "dollars": dollars, "pods": pods, "waste": waste,
    "planes": planes,
}


def run(left: Left, quick: bool) -> None:
    """Leave a table of each study and the page, and print them."""
    about = "Made by `weft paper optics`: phases and planes simulated, the others by formula."
    lines = ["# Rails, regions, pods and planes", "", about]
    for name, study in STUDIES.items():
        rows = list(study(quick))
        left.table(f"optics-{name}", rows)
        lines += ["", f"## {name}", "", f"Published: {HEADLINES[name]}.", "", "```", *as_text(rows).split("\n"), "```"]
    print("\n".join(lines))
    left.page("\n".join(lines) + "\n")
