"""Defects planted into machines, and what the judge calls them: `python -m benchmarks.planted [TABLES]`.

A table is that of a machine whose rates and latencies scatter as those of healthy machines do, with noise and now and
then an outlier. The engine makes the times, chunk by chunk on the machine's links, not the formulas that the judge
knows; those are used where our schedules do not divide the work as the library does (three NICs for eight GPUs) and for
sockets.
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
from sim.library.simulated import simulated
from sim.library.tuner import Setting
from sim.measured.diagnosis import Diagnosis
from sim.measured.library_run import LibraryRun
from sim.measured.of_library import with_nics
from topologies.machines.profile import Gpu, Machine, machine

NOISE, RATES, LATENCIES = 0.03, 0.05, 0.15
"""Standard deviations of logarithms: of a point, and of what all points of a machine share."""

SWEEPS = {
    "sweep": tuple(2**power for power in range(10, 34, 2)), "large": tuple(2**power for power in range(26, 34)),
    "few": (2**20, 2**24, 2**28, 2**32),
}
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


def sockets(setting: Setting, size: int) -> float:
    """The same machine with the profile of sockets, which take Simple."""
    tcp = machine("dgx-a100").nic
    tcp = replace(tcp, name="tcp", reached=0.16, latency=50e-6, ll128=False)  # 4 GB/s of each port of 25
    return by_formula(replace(setting, machine=replace(setting.machine, nic=tcp)), size)


def pcie(setting: Setting, size: int) -> float:
    """Rings through PCIe, without reducing switches."""
    gpu: Gpu = replace(setting.machine.gpu, ring=24e9, multicast=0.0)
    return by_engine(replace(setting, machine=replace(setting.machine, gpu=gpu)), size)


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


def planted(name: str, sizes: tuple[int, ...], seed: int) -> Diagnosis:
    """What the judge says of a defect."""
    rng = np.random.default_rng(seed)
    defect = DEFECTS[name]
    there = replace(defect.told, machine=_scattered(defect.told.machine, rng))
    delay = float(np.exp(rng.normal(0, LATENCIES)))
    odd = int(rng.integers(len(sizes))) if rng.random() < 0.3 and len(sizes) > 4 else -1
    points = []
    for at, size in enumerate(sizes):
        time = defect.time_s(there, size)
        small = defect.time_s(there, sizes[0]) if sizes[0] < 2**14 else 0.0
        time += min(small, time) * (delay - 1)
        points.append((size, time * float(np.exp(rng.normal(0, NOISE))) * (3 if at == odd else 1)))
    return LibraryRun(name, defect.told, points).diagnosis()


def _scattered(one: Machine, rng: np.random.Generator) -> Machine:
    inside, between = np.exp(rng.normal(0, RATES, 2)).tolist()
    gpu, nic = one.gpu, one.nic
    gpu = replace(gpu, ring=gpu.ring * inside, multicast=gpu.multicast * inside)
    return replace(one, gpu=gpu, nic=replace(nic, reached=min(1.0, nic.reached * between)))


def confusion(n_tables: int) -> Iterator[tuple[str, str, Counter[str], int]]:
    """Of every defect and kind of sizes: how many tables were judged to what, and how many rightly."""
    for name, defect in DEFECTS.items():
        for kind, sizes in SWEEPS.items():
            if (name == "LL128 off") != (kind == "sweep") and name == "LL128 off":
                continue  # a hole at medium sizes needs them
            if name == "one NIC at 45 %" and kind == "sweep":
                continue  # rings of Simple alone
            found = [planted(name, sizes, seed) for seed in range(n_tables)]
            right = sum(one.verdict in defect.right for one in found)
            yield name, kind, Counter(f"{one.verdict} ({one.cause})" for one in found), right


def main(n_tables: int) -> None:
    """Print the table of the page."""
    print("| planted | sizes | right | judged |\n|---|---|--:|---|")
    for name, kind, counted, right in confusion(n_tables):
        print(f"| {name} | {kind} | {right} of {n_tables} | "
              + ", ".join(f"{verdict} {count}" for verdict, count in counted.most_common()) + " |", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 20)
