"""LIBRA (Won et al., ISPASS'24): the published splits, and what a design gains over equal bandwidths, simulated too."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from sim.analytic.constraints import Feasible, budget
from sim.analytic.libra import Placed, iteration_time
from sim.optimizer.design import Design, design_analytic, design_simulated
from sim.optimizer.network import Network, read_any_network
from sim.optimizer.programs import iteration_objective
from sim.papers.tables import Left, md_table, read_published
from sim.plots.lines import OTHERS
from sim.plots.style import REFERENCE, WIDE, figure, heading, legend
from workloads.compute import LIBRA_AS_SHIPPED
from workloads.model_workload import training_workload
from workloads.models.language import LanguageModel
from workloads.models.model import NeuralNetwork
from workloads.models.transformer import layer
from workloads.parallelism import Parallelism
from workloads.training import Training
from workloads.workload import Call, Layer, Phase, Workload

BUDGETS_GBPS = (100, 200, 300, 400, 500, 700, 1000)
CHUNKS = 64


def run(left: Left, quick: bool) -> None:
    """Compute all points, and leave `splits`, `points`, the page and the figures."""
    networks = ("4D-4K",) if quick else ("3D-4K", "4D-4K")
    budgets = (100, 300, 1000) if quick else BUDGETS_GBPS
    print(f"LIBRA: {', '.join(networks)} at {len(budgets)} budgets", file=sys.stderr)
    splits = compare_splits()
    chunks, evaluations = (16, 30) if quick else (CHUNKS, 60)
    points = list(compute_points(networks, WORKLOADS, budgets, chunks, evaluations))
    left.table("splits", splits)
    left.table("points", [asdict(point) for point in points])
    means = md_table(("network", "least", "gain", *BY), _means(points), 3)
    print(left.page(chunks=chunks, evaluations=evaluations, splits=_split_table(splits), scale=A100_SCALE,
                    points=_point_table(points), means=means), end="")
    draw(left.out, points)
    print(f"tables and figures are in {left.out}/", file=sys.stderr)


BY = ("formula", "simulated", "optimized")


def _split_table(rows: list[dict[str, object]]) -> list[str]:
    columns = ("network", "workload", "least", "published (GB/s)", "optimum (GB/s)", "published over optimum")
    keys = ("network", "workload", "goal", "published", "ours")
    return md_table(columns, [(*map(row.get, keys), f"{row['published_over_optimum']:.6f}") for row in rows], 1)


def _point_table(points: "list[GainPoint]") -> list[str]:
    columns = ("network", "workload", "least", "GB/s", "speed-up: formula", *BY[1:], "perf per cost: formula", *BY[1:])
    lines = []
    for p in points:
        numbers = (p.analytic_speedup, p.replayed_speedup, p.simulated_speedup, p.analytic_gain, p.replayed_gain,
                   p.simulated_gain)
        lines.append((p.network, p.workload, p.goal, f"{p.budget_GBps:.0f}", *(f"{number:.3f}" for number in numbers)))
    return md_table(columns, lines, 7)


def _means(points: "list[GainPoint]") -> Iterator[tuple[str, ...]]:
    """Mean and largest of what each goal is about; the published ones are in figures that were not at hand."""
    for network in dict.fromkeys(p.network for p in points):
        for goal, gain in (("time", "speedup"), ("time-cost", "gain")):
            some = [p for p in points if (p.network, p.goal) == (network, goal)]
            each = [[getattr(p, f"{by}_{gain}") for p in some] for by in ("analytic", "replayed", "simulated")]
            yield (network, goal, "speed-up" if goal == "time" else "perf per cost",
                   *(f"{sum(one) / len(one):.2f}, {max(one):.2f}" for one in each))


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


PUBLISHED = tuple(Published(network, name, goal, tuple(split))
                  for network, name, goal, split in read_published("libra")["splits"])
"""Data of the 2022 artifact; "group" are the three transformers with equal weights."""


def workload(name: str, n_npus: int) -> tuple[Workload, Parallelism]:
    """One of the published workloads, made from its hyper-parameters, and its parallelism."""
    if name == "ResNet-50":
        call = Call("all-reduce", RESNET_GRADIENT_BYTES, "dp")
        return Workload(name, (Layer(name, weight_grad=Phase(RESNET_COMPUTE_NS, (call,))),)), Parallelism(dp=n_npus)
    one = TRANSFORMERS[name]
    shape = LanguageModel(name=name, layers=2, hidden=one.hidden, heads=1, vocabulary=1, sequence=one.sequence,
                          biases=False)
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
                        f"{prefix}_{key}": one.row(cost, feasible)[column]
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


SERIES = (
    ("analytic", "analytic optimum, by formula", OTHERS[0].curve()),
    ("replayed", "the same split, simulated", OTHERS[1]._replace(marker="s").points() | {"markersize": 5.0}),
    ("simulated", "optimized for the simulation",
     OTHERS[2]._replace(hollow=False).style()
     | {"linestyle": "none", "markersize": 3.2, "markeredgewidth": 0, "zorder": 4}),
)
"""Marks in one another, so that points that coincide are seen all the same."""

FIGURES = {
    "speedup": ("time", "speedup", "speed-up over equal bandwidths"),
    "perf-per-cost": ("time-cost", "gain", "perf per cost over equal"),
}


def draw(out: Path, points: Sequence[GainPoint]) -> None:
    """Write `libra-speedup.png` and `libra-perf-per-cost.png` to `out`."""
    for name, (goal, quantity, label) in FIGURES.items():
        chosen = [point for point in points if point.goal == goal]
        networks = list(dict.fromkeys(point.network for point in chosen))
        workloads = list(dict.fromkeys(point.workload for point in chosen))
        with figure(out / f"libra-{name}.png", WIDE, 0.5 + 1.4 * len(networks)) as drawn:
            grid = drawn.subplots(len(networks), len(workloads), sharex=True, squeeze=False)
            for row, network in enumerate(networks):
                for column, workload in enumerate(workloads):
                    mine = [p for p in chosen if p.network == network and p.workload == workload]
                    _panel(grid[row, column], mine, quantity)
                    if not row:
                        grid[row, column].set_title(workload)
                    if not column:
                        grid[row, column].set_ylabel(network)
                    if row == len(networks) - 1:
                        grid[row, column].set_xlabel("GB/s per NPU")
            heading(drawn, label)
            legend(drawn)


def _panel(axes: Any, points: Sequence[GainPoint], quantity: str) -> None:
    budgets = [point.budget_GBps for point in points]
    for prefix, label, style in SERIES:
        axes.plot(budgets, [getattr(point, f"{prefix}_{quantity}") for point in points], label=label, **style)
    axes.axhline(1.0, **REFERENCE)
