"""Defects planted into machines, and what the judge calls them: `python -m benchmarks.planted [TABLES]`.

A table is that of a machine whose rates and latencies scatter as those of healthy machines do, with noise and now and
then an outlier. The engine makes the times, chunk by chunk on the machine's links, not the formulas that the judge
knows; those are used where our schedules do not divide the work as the library does (three NICs for eight GPUs). The
second table plants every defect into machines, node counts and collectives other than those of the public cases.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from collectives import build
from sim import simulate
from sim.library.expected import expected
from sim.library.tuner import Setting
from sim.measured.causes import with_nics
from sim.measured.diagnosis import Diagnosis
from sim.measured.library_run import LibraryRun
from sim.study.library_runs import simulated
from topologies.machines.profile import Gpu, Machine, machine, machine_and_nodes

NOISE, RATES, LATENCIES = 0.03, 0.05, 0.15
"""Standard deviations of logarithms: of a point, and of what all points of a machine share."""

SWEEPS = {
    "sweep": tuple(2**power for power in range(10, 34, 2)), "large": tuple(2**power for power in range(26, 34)),
    "few": (2**20, 2**24, 2**28, 2**32), "one": (2**30,),
}
BY_SHAPE = {"LL128 off": ("sweep",), "packets lost": ("sweep", "few"), "time per step": ("sweep", "few")}
"""Kinds of sizes that show a defect at all; every kind shows the others."""
A100 = Setting(machine=machine("dgx-a100"), nodes=4, gpus=8, collective="all-gather")
FOUR_NICS = replace(A100, machine=machine("p4de"))
H100 = Setting(machine=machine("dgx-h100"), nodes=1, gpus=8, collective="all-reduce")
H100_FOUR = replace(H100, nodes=4)


class Defect(NamedTuple):
    """What is planted: the machine that the judge is told, the verdicts that are right, and the time of a size."""

    told: Setting
    right: tuple[str, ...]
    time_s: Callable[[Setting, int], float]


def by_engine(setting: Setting, size: int) -> float:
    """What the library runs, on the links of the machine."""
    found = simulated(setting, expected(setting, size))
    assert found.time_s is not None, found.reason
    return found.time_s


def by_formula(setting: Setting, size: int) -> float:
    return expected(setting, size).time_s


def _nics(count: int, time_s: Callable[[Setting, int], float]) -> Callable[[Setting, int], float]:
    return lambda setting, size: time_s(with_nics(setting, count), size)


def _nic(time_s: Callable[[Setting, int], float], **changes: float) -> Callable[[Setting, int], float]:
    def time(setting: Setting, size: int) -> float:
        own = setting.machine
        nic = replace(own.nic, **{key: getattr(own.nic, key) * value for key, value in changes.items()})
        return time_s(replace(setting, machine=replace(own, nic=nic)), size)

    return time


def _only(algorithms: tuple[str, ...] = (), protocols: tuple[str, ...] = ()) -> Callable[[Setting, int], float]:
    return lambda setting, size: by_engine(replace(setting, algorithms=algorithms, protocols=protocols), size)


def sockets(setting: Setting, size: int, rate: float = 4e9, count: int = 0) -> float:
    """The same machine with the profile of sockets, which take Simple, on `count` interfaces or all."""
    port = setting.machine.nic.port
    tcp = replace(machine("tpu-v4").nic, port=port, reached=rate / port, messages=rate / port)
    slow = replace(setting, machine=replace(setting.machine, nic=tcp))
    return by_engine(with_nics(slow, count) if count else slow, size)


def pcie(setting: Setting, size: int) -> float:
    """Rings through PCIe, without reducing switches."""
    gpu: Gpu = replace(setting.machine.gpu, ring=24e9, multicast=0.0)
    return by_engine(replace(setting, machine=replace(setting.machine, gpu=gpu)), size)


def lost(setting: Setting, size: int) -> float:
    """Packets are lost under load, beyond 32 MiB."""
    return by_engine(setting, size) * (7 if size > 2**25 else 1)


def per_step(setting: Setting, size: int) -> float:
    """Every step is late, which the largest messages hide."""
    return by_engine(setting, size) + 4 * min(by_engine(setting, size), 3e-3)


def slow_nic(setting: Setting, size: int) -> float:
    """One port of one node at 45 % of its rate: rings of equal parts wait for it."""
    own = setting.machine
    rates = (f"{own.gpu.ring}B/s", f"{own.nic.port * own.nic.reached}B/s")
    topology = own.topology(setting.nodes, bandwidth=rates)
    bandwidth = topology.bandwidth_Bps.copy()
    ports = np.flatnonzero(bandwidth == bandwidth.min())
    bandwidth[ports[0]] *= 0.45
    schedule = build("nccl-rings", setting.collective, topology.with_links(bandwidth_Bps=bandwidth), size)
    return simulate(schedule, chunks=1).time_s


DEFECTS = {
    "healthy": Defect(A100, ("good", "too-small"), by_engine),
    "healthy, one node": Defect(H100, ("good", "too-small"), by_engine),
    "one NIC of eight": Defect(A100, ("slow-hw",), _nics(1, by_engine)),
    "half of the NICs": Defect(A100, ("slow-hw",), _nics(4, by_engine)),
    "a dead rail of four": Defect(FOUR_NICS, ("slow-hw",), _nics(3, by_formula)),
    "one NIC at 45 %": Defect(A100, ("slow-hw",), slow_nic),
    "a shared link": Defect(A100, ("slow-hw",), _nic(by_engine, reached=0.45)),
    "sockets": Defect(A100, ("wrong-config",), sockets),
    "NVLS off": Defect(H100, ("wrong-config",), _only(("Ring", "Tree"))),
    "LL128 off": Defect(H100_FOUR, ("wrong-config",), _only((), ("LL", "Simple"))),
    "PCIe": Defect(H100, ("wrong-config",), pcie),
}


FINE, HARDWARE, CONFIG = ("good", "too-small", "tree-2n"), ("slow-hw",), ("wrong-config",)
ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER = "all-reduce", "all-gather", "reduce-scatter"
_ELSEWHERE: dict[str, tuple[tuple[str, ...], Callable[[Setting, int], float], str]] = {
    "healthy": (FINE, by_engine, "dgx1:4 AR, dgx1:2 AG, dgx1:1 AR, dgx-h200:4 AR, dgx-h200:2 RS, dgx-b200:4 AG, "
                "dgx-b300:1 AR, dgx-b300:2 AR, gb200-nvl72:1 AR, gb300-nvl72:1 AG, h100-quad:1 AR, h100-quad:4 AG, "
                "perlmutter:4 AR, perlmutter:2 AR, p4de:4 AR, p5:4 AR, a3-high:4 AG, a3-ultra:4 AR, mi300x:1 AR, "
                "mi300x:4 AR, mi350x:2 AG, frontier:4 AG, dgx-spark:2 AR, dgx-h200:4 A2A"),
    "one NIC": (HARDWARE, _nics(1, by_engine), "dgx1:4 AR, dgx-h200:4 AG, dgx-b200:2 AR, dgx-b200:4 RS, p4de:8 AR, "
                "perlmutter:4 AR, frontier:4 AG, mi300x:4 AR, a3-ultra:2 AG, dgx-b300:4 AG"),
    "a dead rail of four": (HARDWARE, _nics(3, by_engine), "dgx1:4 AR, perlmutter:8 AG, dgx1:2 RS"),
    "half of the NICs": (HARDWARE, _nics(4, by_engine), "dgx-h200:4 AG, dgx-b200:8 AR, dgx-b300:4 RS"),
    "a shared link": (HARDWARE, _nic(by_engine, reached=0.45), "dgx-h200:8 AG, dgx1:8 AR, dgx-b200:16 AR, "
                      "dgx-h100:8 RS, dgx-h200:4 AR"),
    "colliding flows": (CONFIG, _nic(by_engine, reached=0.45), "a3-ultra:4 AR, mi300x:4 AG, mi350x:8 AR"),
    "sockets on every port": (CONFIG, lambda setting, size: sockets(setting, size, 3e9), "dgx-h200:2 AR, p4de:2 AR, "
                              "perlmutter:2 AG, mi300x:2 AR, dgx1:2 AR, dgx-spark:2 AR, dgx-b200:4 AG, p5:4 AR, "
                              "a3-ultra:4 RS"),
    "one socket": (CONFIG, lambda setting, size: sockets(setting, size, 3e9, 1), "dgx-h200:4 AR, dgx1:4 AG, "
                   "dgx-b200:2 AG, perlmutter:4 AR"),
    "host copies": (CONFIG, _nic(by_engine, reached=0.3), "dgx-h200:4 AG, dgx-b200:4 AR, perlmutter:4 AG"),
    "NVLS off": (CONFIG, _only(("Ring", "Tree")), "dgx-h200:1 AR, dgx-b200:1 AR, dgx-b300:1 AR, gb200-nvl72:1 AR"),
    "LL128 off": (CONFIG, _only((), ("LL", "Simple")), "dgx-h200:4 AR, dgx-b200:4 AR, dgx-a100:8 AR, dgx1:8 AR, "
                  "dgx-h200:4 AG"),
    "LL alone": (CONFIG, _only((), ("LL",)), "dgx-h200:1 AG, dgx-h200:4 AR, dgx-a100:1 AR, dgx-b200:1 AR"),
    "PCIe": (CONFIG, pcie, "dgx-a100:1 AR, dgx-h200:1 AR, mi300x:1 AR, h100-quad:1 AG, dgx1:1 AR, dgx-b200:1 AG"),
    "packets lost": (HARDWARE, lost, "a3-ultra:4 AR, mi300x:4 AG, dgx-h200:8 AR"),
    "time per step": (CONFIG, per_step, "dgx-h200:2 AR, dgx-b200:2 AR, dgx-h100:4 AR"),
}
"""Places other than those of the public cases: what is right, the time of a size, and machines, nodes, collectives."""


def elsewhere() -> Iterator[tuple[str, str, Defect]]:
    """The defects on other machines: name, place, defect."""
    kinds = {"AR": ALL_REDUCE, "AG": ALL_GATHER, "RS": REDUCE_SCATTER, "A2A": "all-to-all"}
    for name, (right, time_s, places) in _ELSEWHERE.items():
        for place in places.split(", "):
            spec, kind = place.split()
            box, nodes = machine_and_nodes(spec)
            yield name, place, Defect(
                Setting(machine=box, nodes=nodes, gpus=box.gpus, collective=kinds[kind]), right, time_s
            )


def planted(defect: Defect, sizes: tuple[int, ...], seed: int) -> Diagnosis:
    """What the judge says of a defect."""
    rng = np.random.default_rng(seed)
    there = replace(defect.told, machine=_scattered(defect.told.machine, rng))
    delay = float(np.exp(rng.normal(0, LATENCIES)))
    odd = int(rng.integers(len(sizes))) if rng.random() < 0.3 and len(sizes) > 4 else -1
    points = []
    for at, size in enumerate(sizes):
        time = defect.time_s(there, size)
        small = defect.time_s(there, sizes[0]) if sizes[0] < 2**14 else 0.0
        time += min(small, time) * (delay - 1)
        points.append((size, time * float(np.exp(rng.normal(0, NOISE))) * (3 if at == odd else 1)))
    return LibraryRun("planted", defect.told, points).diagnosis()


def _scattered(one: Machine, rng: np.random.Generator) -> Machine:
    inside, between = np.exp(rng.normal(0, RATES, 2)).tolist()
    gpu, nic = one.gpu, one.nic
    gpu = replace(gpu, ring=gpu.ring * inside, multicast=gpu.multicast * inside)
    return replace(one, gpu=gpu, nic=replace(nic, reached=min(1.0, nic.reached * between)))


def shows(name: str, kind: str) -> bool:
    """Whether sizes of a kind show a defect."""
    slow = name == "one NIC at 45 %" and kind == "sweep"  # rings of Simple alone
    return kind in BY_SHAPE.get(name, SWEEPS) and not slow


def confusion(n_tables: int) -> Iterator[tuple[str, str, Counter[str], int]]:
    """Of every defect and kind of sizes: how many tables were judged to what, and how many rightly."""
    for name, defect in DEFECTS.items():
        for kind, sizes in SWEEPS.items():
            if kind == "one" or not shows(name, kind):
                continue
            found = [planted(defect, sizes, seed) for seed in range(n_tables)]
            right = sum(one.verdict in defect.right for one in found)
            yield name, kind, Counter(f"{one.verdict} ({one.cause})" for one in found), right


def main(n_tables: int) -> None:
    """Print the tables of the page."""
    print("| planted | sizes | right | judged |\n|---|---|--:|---|")
    for name, kind, counted, right in confusion(n_tables):
        print(f"| {name} | {kind} | {right} of {n_tables} | "
              + ", ".join(f"{verdict} {count}" for verdict, count in counted.most_common()) + " |", flush=True)
    print(f"\n| elsewhere | {' | '.join(SWEEPS)} | otherwise |\n|---|{'--:|' * len(SWEEPS)}---|")
    rights: Counter[tuple[str, str, bool]] = Counter()
    for name in _ELSEWHERE:
        wrong: Counter[str] = Counter()
        for _, place, defect in (one for one in elsewhere() if one[0] == name):
            for kind, sizes in SWEEPS.items():
                if shows(name, kind):
                    found = planted(defect, sizes, len(rights))
                    right = found.verdict in defect.right
                    rights[name, kind, right] += 1
                    wrong[f"{place} {kind}: {found.verdict} ({found.cause})"] += not right
        cells = [f"{rights[name, kind, True]} of {rights[name, kind, True] + rights[name, kind, False]}"
                 if shows(name, kind) else "" for kind in SWEEPS]
        otherwise = ", ".join(one for one, count in wrong.items() if count)
        print(f"| {name} | {' | '.join(cells)} | {otherwise} |", flush=True)
    print(f"right: {sum(count for (_, _, right), count in rights.items() if right)} of {rights.total()}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 20)
