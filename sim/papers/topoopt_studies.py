"""The studies of `weft paper topoopt`: each returns tidy rows, one per point."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from collectives import pairwise, recursive_doubling, swing
from collectives.core.schedule import Schedule
from collectives.direct import all_to_all
from collectives.reconfigured import menu
from collectives.registry import algorithms_for
from collectives.registry import build as build_schedule
from collectives.totient_rings import ring_jumps
from sim.papers.tables import Row
from sim.program.model import Model
from sim.scenarios.circuit_machine import CircuitMachine, greedy_circuits
from sim.scenarios.optical import (
    ClusterJob,
    bandwidth_tax,
    contended_ps,
    isolated_ps,
    lower_bound_ps,
    place_randomly,
    simulate_iteration,
    simulate_plan,
)
from sim.scenarios.topoopt_search import Settings, iteration_ps, optical_fabric, search
from sim.simulation import simulate
from topologies import (
    Circuits,
    Topology,
    WeftError,
    circulant,
    fat_tree,
    optical,
    random_regular,
    switch,
    torus,
    twisted_torus,
)
from topologies.core.prices import EXAMPLE_PRICES, patch_panel_price, similar_cost_rate
from topologies.flows.load import average_path, diameter, spread_loads
from topologies.units import bytes_per_s, parse_time
from workloads.reconfigured import plan_job, planes_job
from workloads.topoopt import (
    MEASURED,
    MODELS,
    ONE_RING,
    Demand,
    Fabric,
    Iteration,
    Rings,
    Transport,
    data_parallel,
    iteration_of,
    model,
)
from workloads.topoopt.models import dlrm

MS = 1e9
US = 1e6

PACKET_LEVEL_MS = {
    ("BERT-16", "TopoOpt", 2, 100): 63.179720175, ("BERT-16", "TopoOpt", 4, 100): 62.815131375,
    ("BERT-16", "TopoOpt", 8, 100): 62.643560175, ("VGG16-16", "TopoOpt", 4, 100): 100.480326542,
    ("VGG16-16", "TopoOpt", 8, 100): 100.480326542,
    ("BERT-16", "fat-tree", 1, 25): 161.773, ("BERT-16", "fat-tree", 1, 100): 64.740,
    ("BERT-16", "fat-tree", 1, 200): 63.523, ("VGG16-16", "fat-tree", 1, 25): 725.934,
    ("VGG16-16", "fat-tree", 1, 100): 210.773, ("VGG16-16", "fat-tree", 1, 200): 132.352,
    ("VGG16-16", "fat-tree", 1, 400): 100.490, ("VGG16-16", "fat-tree", 1, 800): 100.490,
}
"""Iteration times of a packet-level rerun of the released task graphs: fabric, interfaces, Gb/s of each."""

MACHINE_MS = {"10us": 147.43, "50us": 150.44, "200us": 151.17, "1ms": 150.93, "10ms": 163.35}
"""VGG16 on 16 servers with circuits that follow demand, one ring, packet level; single runs without a seed."""

JOB_MIX = (("DLRM", 0.35), ("BERT", 0.30), ("CANDLE", 0.25), ("VGG16", 0.10))

ROUTED = Transport(tie="ecmp")
JOINED = Transport(tie="ecmp", most_rounds=64, message_chunks=8)
"""Within 0.2 % of all rounds on 128 servers (DLRM, NCF, BERT; rings, fat-tree, switch); 8 are off by up to 31 %."""


def tree(n: int, rate_Gbps: float, *, oversubscription: int = 1) -> Topology:
    """The fat-tree of n servers; oversubscribed at the edge, which has so many times more servers than links up."""
    ports = next(k for k in range(2, 64, 2) if k**3 // 4 * oversubscription >= n)
    return fat_tree(
        ports, ports // 2 * oversubscription, bandwidth=bytes_per_s(rate_Gbps / 8 * 1e9), latency="1us", hop_latency=0
    )


def one_ring(network: Topology) -> Fabric:
    """A packet network as a fabric: all-reduces go around one ring in rank order."""
    return Fabric(network, (1,), {}, 1, 0, ())


def expander(n: int, degree: int, rate_Gbps: float) -> Fabric:
    """A random regular network whose servers forward; the rings are those of rank order, in both directions."""
    network = random_regular(n, degree, 1, bandwidth=f"{rate_Gbps}Gb/s", latency="1us", hop_latency=0)
    return Fabric(network, (1, n - 1), {}, degree, 0, ())


REDUCES_ON_THE_WAY = ("in-network", "parameter-server")
"""Algorithms that need more than servers that forward."""


@lru_cache(maxsize=8)
def best_all_reduce(n: int, degree: int) -> str:
    """The algorithm with the fastest all-reduce of 16 MiB on the expander."""
    network = expander(n, degree, 100).topology
    time_ps: dict[str, int] = {}
    for name in algorithms_for("all-reduce"):
        if name in REDUCES_ON_THE_WAY:
            continue
        try:
            schedule = build_schedule(name, "all-reduce", network, "16MiB")
        except WeftError:  # it does not run here
            continue
        time_ps[name] = simulate(schedule, chunks=JOINED.message_chunks, tie=JOINED.tie).time_ps
    return min(time_ps, key=lambda name: time_ps[name])


def demand_matched(n: int, degree: int, demand: Demand, rate_Gbps: float) -> Fabric:
    """Circuits by demand alone, as SiP-ML's greedy gives them; one ring in rank order, and servers forward."""
    wish = demand.flows.copy()
    along = np.arange(n), (np.arange(n) + 1) % n
    wish[along] += sum(demand.all_reduce.values()) / n
    pairs = greedy_circuits(wish, degree, random.Random(1))
    circuits = Circuits(n, degree, tuple(pairs))
    return Fabric(optical(circuits, bandwidth=f"{rate_Gbps}Gb/s", latency="1us"), (1,), {}, degree, 0, ())


def measured_iterations(quick: bool) -> Iterator[Row]:
    """VGG16 and BERT on 16 servers: ours, the lower bound, the packet-level value."""
    for build in MEASURED.values():
        job = build()
        for degree, jumps in ((2, (1,)), (4, (1, 3)), (8, (1, 3, 5, 9))):
            fabric = circulant(16, jumps, bandwidth="100Gb/s", latency="1us", hop_latency=0)
            yield _against(job, "TopoOpt", degree, 100, fabric, ring_jumps(fabric), Transport())
        for rate in (25, 100, 200, 400, 800):
            yield _against(job, "fat-tree", 1, rate, tree(16, rate), (1,), ROUTED)
            ideal = switch(16, bandwidth=f"{rate}Gb/s", latency="1us", hop_latency=0)
            yield _against(job, "ideal switch", 1, rate, ideal, (1,), ROUTED)


def _against(
    job: Iteration, name: str, degree: int, rate: int, fabric: Topology, jumps: tuple[int, ...], transport: Transport
) -> Row:
    time_ms = simulate_iteration(job, fabric, Rings(jumps, {}), transport).time_ps / MS
    packet = PACKET_LEVEL_MS.get((job.name, name, degree, rate))
    return {
        "workload": job.name, "fabric": name, "interfaces": degree, "Gbps": rate, "time_ms": time_ms,
        "lower_bound_ms": lower_bound_ps(job, degree * rate / 8 * 1e9) / MS, "packet_level_ms": packet,
        "difference": None if packet is None else time_ms / packet - 1,
    }


SCHEDULES: dict[str, Callable[[Topology, str], Schedule]] = {
    "recursive doubling": lambda ring, size: recursive_doubling.all_reduce(ring, size, form="bandwidth"),
    "Swing": lambda ring, size: swing.all_reduce(ring, size, form="bandwidth"),
    "pairwise all-to-all": lambda ring, size: pairwise.all_to_all(ring, size),
}


WHOLE_MESSAGES = Model(chunks=1, forwarding="store-and-forward")


def switching_inside(quick: bool) -> Iterator[Row]:
    """Circuits switched between the steps of a collective: plan and simulation over the delay."""
    n = 16 if quick else 64
    ring = torus((n,), bandwidth="50GB/s", latency="100ns", hop_latency=0)
    for name, build in SCHEDULES.items():
        for size in ("1MiB",) if quick else ("64KiB", "1MiB", "64MiB"):
            choice = menu(build(ring, size), start_up="500ns")
            for delay in ("1us", "10us", "100us", "1ms", "10ms"):
                plans = {"static": choice.static(), "every step": choice.every_step(delay),
                         "two states": choice.two_state(delay), "best": choice.best(delay)}
                for policy, plan in plans.items():
                    result = simulate_plan(plan_job(choice, plan, delay), choice.start_up_ps, WHOLE_MESSAGES)
                    yield {
                        "collective": name, "size": size, "servers": n, "delay": delay,
                        "delay_us": parse_time(delay) / US, "policy": policy, "plan_us": plan.time_ps / US,
                        "simulated_us": result.time_ps / US, "reconfigurations": plan.reconfigurations,
                    }
                planes = simulate_plan(planes_job(choice, delay), choice.start_up_ps, WHOLE_MESSAGES)
                yield {
                    "collective": name, "size": size, "servers": n, "delay": delay, "delay_us": parse_time(delay) / US,
                    "policy": "two planes, overlapped", "plan_us": choice.overlapped_ps(delay) / US,
                    "simulated_us": planes.time_ps / US, "reconfigurations": len(choice.steps),
                }


def following_demand(quick: bool) -> Iterator[Row]:
    """Circuits that follow demand while a job trains, against static TopoOpt and a fat-tree of d times the rate."""
    for name, build in MEASURED.items():
        job = build()
        for degree in (4,) if quick else (4, 8):
            jumps = (1, 3) if degree == 4 else (1, 3, 5, 9)
            fabric = circulant(16, jumps, bandwidth="100Gb/s", latency="1us", hop_latency=0)
            coins = ring_jumps(fabric)
            static = simulate_iteration(job, fabric, Rings(coins, {})).time_ps / MS
            fat = simulate_iteration(job, tree(16, 100 * degree), ONE_RING, ROUTED).time_ps / MS
            shortest = ("1us",) if (job.name, degree) == ("VGG16-16", 4) else ()  # its 16,000 cycles take minutes
            for delay in ("1ms", "10ms") if quick else (*shortest, "10us", "50us", "200us", "1ms", "10ms"):
                for rings, said in (((1,), "one ring"), (coins, f"{degree} rings")):
                    machine = CircuitMachine(job, degree, delay, rings).run()
                    yield {
                        "workload": name, "interfaces": degree, "delay": delay, "delay_us": parse_time(delay) / US,
                        "rings": said, "time_ms": machine.time_ps / MS, "reconfigurations": machine.reconfigurations,
                        "dark_ms": machine.dark_ps / MS, "static_topoopt_ms": static, "fat_tree_ms": fat,
                        "packet_level_ms": MACHINE_MS.get(delay) if (name, degree, said) == (
                            "VGG16-16", 4, "one ring") else None,
                    }


def all_to_all_share(quick: bool) -> Iterator[Row]:
    """DLRM with growing batches: the share of all-to-all traffic grows."""
    n = 16 if quick else 128
    for batch in (64, 256, 1024) if quick else (64, 128, 256, 512, 1024, 2048):
        job = dlrm(n, None if quick else 128, batch)
        strategy = data_parallel(job)
        iteration = iteration_of(job, strategy)
        demand = Demand.of(iteration)
        flows, rings = float(demand.flows.sum()), sum(demand.all_reduce.values())
        for degree in (4, 8):
            fabrics = {
                "TopoOpt": optical_fabric(n, degree)(demand),
                "TopoOpt, rings only": optical_fabric(n, degree, split=False)(demand),
                RING: expander(n, degree, 100),
                BEST: expander(n, degree, 100),
                "ideal switch": one_ring(switch(n, bandwidth=f"{100 * degree}Gb/s", latency="1us", hop_latency=0)),
                "similar-cost fat-tree": one_ring(tree(n, _similar_rate(n, degree, 100))),
            }
            for name, fabric in fabrics.items():
                transport = _carried(name, n, degree)
                result = simulate_iteration(iteration, fabric.topology, fabric.rings, transport)
                tax = bandwidth_tax(result.lowered) if name.startswith(("TopoOpt", "expander")) else 1.0
                yield {
                    "servers": n, "batch_per_gpu": batch, "interfaces": degree, "fabric": name,
                    "all_to_all_share": flows / (flows + rings), "time_ms": result.time_ps / MS,
                    "bandwidth_tax": tax, "ring_interfaces": fabric.ring_degree,
                    "all_reduce": transport.all_reduce or "rings",
                }


RING, BEST = "expander, ring", "expander, best algorithm"


def _carried(fabric: str, n: int, degree: int) -> Transport:
    """Rings everywhere, and the best algorithm of the registry on the second expander."""
    return replace(JOINED, all_reduce=best_all_reduce(n, degree)) if fabric == BEST else JOINED


def _similar_rate(n: int, degree: int, rate: int) -> float:
    prices = EXAMPLE_PRICES
    return similar_cost_rate(n, patch_panel_price(n, degree, prices[rate]), prices)[0]


def dedicated(quick: bool) -> Iterator[Row]:
    """Six models over degree and rate, against an ideal switch, fat-trees, an expander, matched circuits."""
    for n in (16,) if quick else (16, 128):
        for name in MODELS:
            job = model(name, n)
            for degree in (4,) if quick else (4, 8):
                for rate in (25, 100) if quick else (10, 25, 40, 100, 200):
                    yield from _dedicated_point(job, n, degree, rate)


def _dedicated_point(job: Any, n: int, degree: int, rate: int) -> list[Row]:
    strategy = data_parallel(job)
    demand = Demand.of(iteration_of(job, strategy))
    similar = _similar_rate(n, degree, rate)
    fabrics = {
        "TopoOpt": optical_fabric(n, degree, bandwidth=f"{rate}Gb/s")(demand),
        "ideal switch": one_ring(switch(n, bandwidth=f"{rate * degree}Gb/s", latency="1us", hop_latency=0)),
        "similar-cost fat-tree": one_ring(tree(n, similar)),
        "2:1 fat-tree": one_ring(tree(n, rate * degree, oversubscription=2)),
        RING: expander(n, degree, rate),
        BEST: expander(n, degree, rate),
        "demand-matched circuits": demand_matched(n, degree, demand, rate),
    }
    carried = {name: _carried(name, n, degree) for name in fabrics}
    times = {name: iteration_ps(job, strategy, fabric, carried[name]) / MS for name, fabric in fabrics.items()}
    return [
        {"model": job.name, "servers": n, "interfaces": degree, "Gbps": rate, "fabric": name, "time_ms": time,
         "over_topoopt": time / times["TopoOpt"], "fat_tree_Gbps": similar,
         "all_reduce": carried[name].all_reduce or "rings"}
        for name, time in times.items()
    ]


def shared_cluster(quick: bool) -> Iterator[Row]:
    """Jobs of 16 servers in a cluster of 432: isolated by optics, or in one fat-tree, placed at random or packed."""
    n, size = (128, 16) if quick else (432, 16)
    for load in (4, 8) if quick else (5, 10, 15, 20, 27):
        rng = random.Random(1)
        names = rng.choices([name for name, _ in JOB_MIX], [share for _, share in JOB_MIX], k=load)
        iterations = {name: iteration_of(model(name, size), data_parallel(model(name, size))) for name in names}
        places = place_randomly([size] * load, n, rng)
        arrivals = [rng.randrange(10**11) for _ in names]
        packed = [tuple(range(at * size, (at + 1) * size)) for at in range(load)]
        jobs, neighbors = (
            [ClusterJob(iterations[name], seat, at) for name, seat, at in zip(names, chosen, arrivals, strict=True)]
            for chosen in (places, packed)
        )
        fabrics = [optical_fabric(size, 4)(Demand.of(job.iteration)) for job in jobs]
        times = {"TopoOpt d=4 100 Gb/s": isolated_ps(jobs, fabrics, transport=JOINED)}
        for rate in (100, 200, 400):
            alone = one_ring(switch(size, bandwidth=f"{rate}Gb/s", latency="1us", hop_latency=0))
            times[f"ideal switches {rate} Gb/s"] = isolated_ps(jobs, [alone] * load, transport=JOINED)
            for placement, placed in (("random", jobs), ("packed", neighbors)):
                times[f"fat-tree {rate} Gb/s, {placement}"] = contended_ps(placed, tree(n, rate), transport=JOINED)
        for name, found in times.items():
            yield {"jobs": load, "servers": n, "fabric": name, "mean_ms": float(np.mean(found)) / MS,
                         "p99_ms": float(np.percentile(found, 99)) / MS}


def twisted(quick: bool) -> Iterator[Row]:
    """Uniform all-to-all on 4x4x8 (2x2x4 when quick), regular and twisted: link loads, and simulated."""
    shape = (2, 2, 4) if quick else (4, 4, 8)
    for name, fabric in (("regular", torus(shape)), ("twisted", twisted_torus(shape))):
        demand = np.ones((fabric.n_npus, fabric.n_npus)) - np.eye(fabric.n_npus)
        found = simulate(all_to_all(fabric, "16MiB"), chunks=4, tie="ecmp", symmetry="off")
        yield {"torus": name, "shape": "x".join(map(str, shape)), "diameter": diameter(fabric),
                     "average_path": average_path(fabric), "largest_load": float(spread_loads(fabric, demand).max()),
                     "simulated_us": found.time_ps / US}


def searches(quick: bool) -> Iterator[Row]:
    """Alternating optimization: before, after, and its cost."""
    for n, name, budget in ((16, "DLRM", 100), (16, "NCF", 60)) if quick else (
        (16, "DLRM", 400), (16, "NCF", 400), (16, "CANDLE", 400), (128, "DLRM", 200), (128, "NCF", 200)):
        found = search(model(name, n), optical_fabric(n, 4), Settings(budget=budget, temper_per_ms=1.0))
        yield {
            "model": name, "servers": n, "budget": budget, "start_ms": found.start_ps / MS,
            "found_ms": found.time_ps / MS, "evaluations": found.evaluations,
            "evaluations_to_best": found.evaluations_to_best, "s_per_evaluation": found.seconds_per_evaluation,
            "ring_interfaces": found.fabric.ring_degree, "matched_interfaces": found.fabric.matched_degree,
        }


STUDIES: dict[str, Callable[[bool], Iterable[Row]]] = {
    "iterations": measured_iterations,
    "twisted": twisted,
    "switching": switching_inside,
    "following": following_demand,
    "all_to_all": all_to_all_share,
    "dedicated": dedicated,
    "cluster": shared_cluster,
    "search": searches,
}
