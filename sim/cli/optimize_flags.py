"""The studies that the flags of `weft optimize` describe."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from collectives.registry import algorithm
from sim.analytic.cost import PRICES, Cost
from sim.analytic.libra import LOOPS as ANALYTIC_LOOPS
from sim.analytic.libra import Placed
from sim.optimize.knobs import HIERARCHICAL, Asked
from sim.optimize.problem import Microbatches, Network, circulants, limits, place_workload, read_any_network
from sim.optimize.study import Study
from topologies import WeftError
from topologies.units import parse_bandwidth, parse_size, parse_sweep_size
from workloads.compute import Accelerator
from workloads.formats.libra_files import read_prices
from workloads.models import MODELS
from workloads.training import LOOPS as SIMULATED_LOOPS

NOT_OF_THE_PROBLEM = ("json", "csv", "plot", "quiet", "command_module")


def make_studies(flags: argparse.Namespace) -> list[Study]:
    """One study for each network.

    Raises
    ------
    WeftError
        Flags that contradict each other, and whatever is wrong in the files.
    """
    specs = [name for text in flags.network for name in circulants(text, flags.degrees)]
    return [_make_study(flags, spec) for spec in specs]


def _make_study(flags: argparse.Namespace, spec: str) -> Study:
    network = read_any_network(spec, flags.link_latency, flags.hop_latency)
    placed = _place(flags, network)
    cost = _cost(flags, network)
    if flags.objective == "time-cost" and cost is None:
        raise WeftError("--objective time-cost needs prices: give --cost FILE, or a network of RI, FC and SW")
    feasible = limits(
        network.n_dims, total=flags.budget, rule=flags.budget_rule, constraints=flags.constraint, cost=cost,
        dollars=flags.budget_cost,
    )
    _check(flags, placed)
    if placed and flags.evaluator == "analytic" and not network.has_formulas:
        raise WeftError(f"{spec}: LIBRA's formulas need dimensions of NPUs: add --evaluator simulated")
    asked = Asked(
        algorithms=_names(flags.algorithms or HIERARCHICAL), chunks=_whole_numbers(flags.chunks),
        options=tuple(flags.option), orders=flags.orders, dimension_algorithms=flags.dimension_algorithms,
    )
    return Study(
        network=network, placed=placed, collective=flags.collective or "",
        size_bytes=parse_sweep_size(flags.size or "32M"), feasible=feasible, cost=cost, goal=flags.objective,
        evaluator=flags.evaluator, loop=flags.loop, checkpointed=flags.checkpointed,
        knobs=asked.choices(network.topology.shape, placed, flags.collective or ""),
        lane_GBps=None if flags.lane is None else parse_bandwidth(flags.lane, "--lane") / 1e9,
        evaluations=flags.evaluations, wants_sensitivity=flags.sensitivity, symmetry=flags.symmetry,
        spec={name: value for name, value in vars(flags).items() if name not in NOT_OF_THE_PROBLEM},
    )


def _check(flags: argparse.Namespace, placed: Sequence[Placed]) -> None:
    loops = ANALYTIC_LOOPS if flags.evaluator == "analytic" else SIMULATED_LOOPS
    if flags.loop not in loops:
        known = ", ".join(loops)
        raise WeftError(f"--loop {flags.loop!r} is unknown to the {flags.evaluator} evaluator: choose one of {known}")
    if flags.checkpointed and flags.loop not in ANALYTIC_LOOPS:
        raise WeftError(f"--checkpointed does not go with --loop {flags.loop}")
    if flags.checkpointed and any(one.pipeline for one in placed):
        raise WeftError("--checkpointed does not go with pipeline stages")
    if flags.evaluations < 1:
        raise WeftError(f"--evaluations {flags.evaluations}: at least 1")
    if placed and flags.evaluator == "analytic":
        for name in ("algorithms", "option", "orders", "dimension_algorithms"):
            if getattr(flags, name):
                flag = f"--{name.replace('_', '-')}"
                raise WeftError(f"{flag} changes nothing in LIBRA's formulas of a workload: add --evaluator simulated")


def _place(flags: argparse.Namespace, network: Network) -> tuple[Placed, ...]:
    names = flags.workload or []
    if bool(names) == bool(flags.collective):
        raise WeftError("give either --workload or --collective")
    if flags.size is not None and names:
        raise WeftError("--size belongs to --collective; a workload has sizes of its own")
    files = [name for name in names if name not in MODELS]
    models = [name for name in names if name in MODELS]
    communicator = _one_each(flags.communicator, files, "--communicator", "text workloads", None)
    parallelism = _one_each(flags.parallelism, models, "--parallelism", "models", None)
    weight = _one_each(flags.weight, names, "--weight", "workloads", 1.0)
    accelerator = Accelerator(flags.peak_flops, flags.efficiency)
    return tuple(
        place_workload(
            name, network, communicator=communicator.pop(0) if name in files else None,
            parallelism=parallelism.pop(0) if name in models else None, samples=flags.samples,
            accelerator=accelerator, compute_scale=flags.compute_scale, weight=weight.pop(0),
            microbatches=_microbatches(flags),
        )
        for name in names
    )


def _microbatches(flags: argparse.Namespace) -> Microbatches | None:
    if flags.microbatches is None:
        return None
    activation = None if flags.activation is None else parse_size(flags.activation, "--activation")
    return Microbatches(flags.microbatches, activation, flags.pipeline_order)


def _one_each(given: Sequence[Any] | None, names: Sequence[str], flag: str, what: str, default: Any) -> list[Any]:
    """As many values as names."""
    if not given:
        return [default] * len(names)
    if len(given) != len(names):
        raise WeftError(f"{flag} is given {len(given)} times for {len(names)} {what}: one each, in their order")
    return list(given)


def _cost(flags: argparse.Namespace, network: Network) -> Cost | None:
    prices = PRICES if flags.cost is None else read_prices(flags.cost)
    asked = flags.cost is not None or flags.budget_cost is not None or flags.objective == "time-cost"
    if not asked and not network.has_usual_prices:
        return None
    return network.cost(prices, counting=flags.counting, fixed=flags.fixed_cost)


def _names(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    for name in names:
        algorithm(name)
    if not names:
        raise WeftError("--algorithms is empty: give at least one name")
    return names


def _whole_numbers(text: str) -> tuple[int, ...]:
    words = [word.strip() for word in text.split(",")]
    if not all(word.isdecimal() and int(word) for word in words):
        raise WeftError(f"--chunks {text!r}: write whole numbers of at least 1, joined by commas")
    return tuple(int(word) for word in words)
