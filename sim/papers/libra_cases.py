"""LIBRA's published cases: networks, workloads and splits; the gains over equal bandwidths, simulated too."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from sim.analytic.constraints import Feasible, budget
from sim.analytic.libra import Placed, iteration_time
from sim.optimizer.design import Design, design_analytic, design_simulated
from sim.optimizer.problem import Network, read_any_network
from sim.optimizer.programs import iteration_objective
from workloads.compute import LIBRA_AS_SHIPPED
from workloads.model_workload import training_workload
from workloads.models import NeuralNetwork, Shape, layer
from workloads.parallelism import Parallelism
from workloads.training import Training
from workloads.workload import Call, Layer, Phase, Workload

A100_SCALE = 0.2564
"""60 x 2^40 operations a second, on which the text workloads rest, over the 234e12 of LIBRA's 2022 evaluation."""

NETWORKS = {
    "2D-1K": ("RI(8)_SW(128)", ("InterPackage", "InterPod")),
    "3D-1K": ("RI(8)_FC(8)_SW(16)", ("InterPackage", "InterNode", "InterPod")),
    "4D-1K": ("RI(2)_FC(8)_RI(8)_SW(8)", ("InterChiplet", "InterPackage", "InterNode", "InterPod")),
    "3D-4K": ("RI(16)_FC(8)_SW(32)", ("InterPackage", "InterNode", "InterPod")),
    "4D-4K": ("RI(4)_FC(8)_RI(4)_SW(32)", ("InterChiplet", "InterPackage", "InterNode", "InterPod")),
}


class Transformer(NamedTuple):
    """Two layers, as the published workloads have them."""

    hidden: int
    sequence: int
    tokens: int
    tp: int


TRANSFORMERS = {
    "T-NLG": Transformer(4256, 512, 8192, 1),
    "GPT-3": Transformer(12288, 2048, 32768, 16),
    "MSFT-1T": Transformer(24576, 2048, 16384, 128),
}
RESNET_GRADIENT_BYTES, RESNET_COMPUTE_NS = 51_005_824.0, 1_095_314.0
WORKLOADS = (*TRANSFORMERS, "ResNet-50")


class Published(NamedTuple):
    """A split of 100 GB/s that the authors published in 2022."""

    network: str
    workload: str
    goal: str
    split: tuple[float, ...]


PUBLISHED = (
    Published("2D-1K", "T-NLG", "time", (87.58, 12.42)),
    Published("2D-1K", "GPT-3", "time-cost", (96.59, 3.41)),
    Published("2D-1K", "MSFT-1T", "time", (87.18, 12.82)),
    Published("3D-1K", "T-NLG", "time-cost", (49.51, 49.96, 0.53)),
    Published("3D-1K", "GPT-3", "time", (81.92, 13.77, 4.31)),
    Published("3D-1K", "MSFT-1T", "time-cost", (87.18, 10.91, 1.91)),
    Published("4D-1K", "T-NLG", "time", (50.03, 43.77, 5.49, 0.71)),
    Published("4D-1K", "GPT-3", "time-cost", (58.91, 36.65, 3.96, 0.48)),
    Published("4D-1K", "MSFT-1T", "time", (44.28, 38.74, 4.85, 12.14)),
    Published("2D-1K", "group", "time", (84.48, 15.52)),
    Published("4D-1K", "group", "time", (43.09, 37.71, 11.25, 7.95)),
)
"""Data of the 2022 artifact; "group" are the three transformers with equal weights."""


def workload(name: str, n_npus: int) -> tuple[Workload, Parallelism]:
    """One of the published workloads, made from its hyper-parameters, and its parallelism."""
    if name == "ResNet-50":
        call = Call("all-reduce", RESNET_GRADIENT_BYTES, "dp")
        return Workload(name, (Layer(name, weight_grad=Phase(RESNET_COMPUTE_NS, (call,))),)), Parallelism(dp=n_npus)
    one = TRANSFORMERS[name]
    shape = Shape(
        layers=2, hidden=one.hidden, vocabulary=0, sequence=one.sequence, feed_forward=4 * one.hidden,
        key_value=one.hidden, biases=False,
    )
    # The published gradients are those of the matrices: norms are left out.
    rows = [row if row.out_elements != row.in_elements or row.sharded else replace(row, parameters=0)
            for number in (1, 2) for row in layer(shape, number)]
    how = Parallelism(tp=one.tp, dp=n_npus // one.tp)
    network = NeuralNetwork(name, "token", tuple(rows), "LIBRA, 2024 release", 2)
    made = training_workload(network, how, LIBRA_AS_SHIPPED, one.tokens, bundled=True, gather_checkpoints=True)
    return made, how


def place(name: str, network: Network, compute_scale: float) -> list[Placed]:
    """A workload, or the group of all transformers, on a network."""
    made = [workload(one, network.topology.n_npus) for one in (TRANSFORMERS if name == "group" else (name,))]
    return [Placed(one.scaled(compute_scale), how.groups(network.topology.shape)) for one, how in made]


@dataclass(frozen=True)
class GainPoint:
    """Gains over the equal split at one budget."""

    network: str
    workload: str
    goal: str
    budget_GBps: float
    analytic_speedup: float  # time of the optimum by LIBRA's formulas, analytic
    analytic_gain: float  # its perf per cost
    replayed_speedup: float  # of the same split, simulated
    replayed_gain: float
    simulated_speedup: float  # of the split optimized for the simulation
    simulated_gain: float
    analytic_split: str
    simulated_split: str
    runs: int


def network_of(name: str) -> Network:
    """A network of the papers: latency of a link 1 ns, none in switches, as in the published set-up."""
    spec, tiers = NETWORKS[name]
    return replace(read_any_network(spec, "1ns", "0ns"), tiers=tiers)


def compute_points(
    networks: Iterable[str], workloads: Iterable[str], budgets: Iterable[float], chunks: int, evaluations: int
) -> Iterator[GainPoint]:
    """Every combination, for time and for time x cost."""
    workloads, budgets = tuple(workloads), tuple(budgets)
    for network_name in networks:
        network = network_of(network_name)
        cost = network.cost()
        for name in workloads:
            placed = place(name, network, A100_SCALE)
            time = iteration_time(placed)
            objective = iteration_objective(
                network.topology, placed,
                Training(loop="no-overlap", bucket_bytes=None, options={"pipeline_chunks": chunks}),
            )
            for total in budgets:
                feasible = Feasible([budget(total, network.n_dims, spent=True)], network.n_dims)
                for goal in ("time", "time-cost"):
                    priced = cost if goal == "time-cost" else None
                    analytic = design_analytic(time, feasible, priced)
                    start = np.maximum(analytic.bandwidth_GBps, 1e-9 * total)
                    simulated = design_simulated(
                        objective, feasible, priced, starts=[start], max_evaluations=evaluations
                    )
                    same = replace(simulated, bandwidth_GBps=start, time_ns=objective.evaluate(start).time_ns)
                    gains = {
                        f"{prefix}_{key}": one.row(cost)[column]
                        for prefix, one in (("analytic", analytic), ("replayed", same), ("simulated", simulated))
                        for key, column in (("speedup", "speedup"), ("gain", "perf_per_cost_gain"))
                    }
                    yield GainPoint(
                        network=network_name, workload=name, goal=goal, budget_GBps=total, **gains,
                        analytic_split=_words(analytic), simulated_split=_words(simulated), runs=simulated.runs,
                    )


def compare_splits() -> list[dict[str, object]]:
    """Every published split beside the certified optimum, by the 2022 counting of links."""
    rows: list[dict[str, object]] = []
    for one in PUBLISHED:
        network = network_of(one.network)
        time = iteration_time(place(one.workload, network, 1.0), checkpointed=True)
        feasible = Feasible([budget(100, network.n_dims, spent=True)], network.n_dims)
        cost = network.cost(counting="2022")
        found = design_analytic(time, feasible, cost if one.goal == "time-cost" else None)
        theirs = np.array(one.split)
        value = time.time_ns(theirs) * (cost.of(theirs) if one.goal == "time-cost" else 1.0)
        rows.append({
            "network": one.network, "workload": one.workload, "goal": one.goal,
            "published": " / ".join(f"{value:.2f}" for value in one.split), "ours": _words(found),
            "published_over_optimum": value / found.value, "certified_gap": found.value / found.bound - 1.0,
        })
    return rows


def _words(design: Design) -> str:
    return " / ".join(f"{value:.2f}" for value in design.bandwidth_GBps)
