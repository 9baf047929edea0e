"""What `weft optimize` does with its flags: build the problem, search the discrete knobs, describe the answer."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

import numpy as np

from sim.analytic.constraints import Feasible
from sim.analytic.cost import PRICES, Cost
from sim.analytic.epigraph import Epigraph
from sim.analytic.libra import LOOPS as ANALYTIC_LOOPS
from sim.analytic.libra import Placed, iteration_time
from sim.analytic.traffic import F64
from sim.model import Model
from sim.optimize.design import Design, design_analytic, design_simulated, sensitivity
from sim.optimize.lanes import whole_lanes
from sim.optimize.model import positive
from sim.optimize.objective import Simulated
from sim.optimize.pareto import FrontPoint, pareto_front
from sim.optimize.problem import Network, limits, place_workload, read_any_network
from sim.optimize.programs import collective_objective, iteration_objective
from topologies import WeftError
from topologies.units import parse_bandwidth, parse_sweep_size
from workloads.compute import Accelerator
from workloads.libra_files import read_prices
from workloads.models import MODELS
from workloads.training import LOOPS as SIMULATED_LOOPS
from workloads.training import Training

HIERARCHICAL = "hierarchical"


@dataclass(frozen=True)
class Knobs:
    """A choice of what is not a bandwidth."""

    algorithm: str
    chunks: int


@dataclass
class Study:
    """A design problem with its knobs.

    Attributes
    ----------
    network : Network
    placed : tuple of Placed
        Empty where one collective is studied.
    collective, size_bytes
        Of that collective.
    feasible : Feasible
    cost : Cost or None
    goal, evaluator, loop : str
    knobs : list of Knobs
        Of which the best is taken.
    spec : dict
        The flags, for the result.
    """

    network: Network
    placed: tuple[Placed, ...]
    collective: str
    size_bytes: int
    feasible: Feasible
    cost: Cost | None
    goal: str
    evaluator: str
    loop: str
    checkpointed: bool
    knobs: list[Knobs]
    lane_GBps: float | None
    evaluations: int
    wants_sensitivity: bool
    symmetry: str
    spec: dict[str, Any]
    _objectives: dict[Knobs, Simulated] = field(default_factory=dict)

    @property
    def title(self) -> str:
        if not self.placed:
            return f"{self.collective} of {self.size_bytes} B on {self.network.name}"
        return f"{' + '.join(one.workload.name for one in self.placed)} on {self.network.name}"

    def settings(self) -> list[str]:
        """What the answer depends on, for people."""
        said = [f"least {'time' if self.goal == 'time' else 'time x cost'}", f"{self.loop} loop"]
        said += [constraint.text for constraint in self.feasible.constraints]
        if self.placed:
            said.append(f"compute {sum(one.weight * one.workload.compute_ns for one in self.placed) / 1e6:.6g} ms")
        if self.cost is not None:
            said.append(f"{self.spec['counting']} counting of links")
        return said

    @property
    def goal_cost(self) -> Cost | None:
        """The cost where it is part of what is minimised."""
        return self.cost if self.goal == "time-cost" else None

    def rows(self) -> list[dict[str, Any]]:
        """One row: the best answer over the knobs."""
        if self.evaluator == "analytic":
            time = self._analytic_time()
            found = design_analytic(time, self.feasible, self.goal_cost)
            return [self._row(found, time.time_ns, None)]
        design, knobs = self._best_simulated()
        objective = self._objective(knobs)
        row = self._row(design, lambda point: objective.evaluate(point).time_ns, knobs)
        if self.placed and self.loop in ANALYTIC_LOOPS:
            time, start = self._analytic_time(), self._analytic_start()
            row |= {
                "analytic_bandwidth_GBps": start.tolist(),
                "analytic_time_s": time.time_ns(start) * 1e-9,
                "analytic_simulated_s": objective.evaluate(start).time_ns * 1e-9,
            }
        return [row]

    def front(self, points: int = 9) -> list[FrontPoint]:
        """Time over cost for budgets from a quarter of the answer's total to twice it."""
        assert self.cost is not None
        if self.evaluator == "analytic":
            time = self._analytic_time()
            design = design_analytic(time, self.feasible, self.goal_cost)
            totals = _around(design, points)
            return pareto_front(totals, self.cost, lambda feasible: design_analytic(time, feasible))
        design, knobs = self._best_simulated()
        objective = self._objective(knobs)
        return pareto_front(
            _around(design, points), self.cost,
            lambda feasible: design_simulated(objective, feasible, max_evaluations=self.evaluations),
        )

    # --- parts

    def _analytic_time(self) -> Epigraph:
        """LIBRA's time of a workload; of one collective the load of its busiest links."""
        if self.placed:
            return iteration_time(self.placed, self.loop, self.checkpointed)
        return self._objective(self.knobs[0]).floors[0]

    def _analytic_start(self) -> F64:
        time = iteration_time(self.placed, "no-overlap", self.checkpointed)
        found = design_analytic(time, self.feasible, self.goal_cost).bandwidth_GBps
        return positive(found)

    def _objective(self, knobs: Knobs) -> Simulated:
        if knobs not in self._objectives:
            self._objectives[knobs] = self._make_objective(knobs)
        return self._objectives[knobs]

    def _make_objective(self, knobs: Knobs) -> Simulated:
        pipelined = knobs.algorithm in (HIERARCHICAL, "themis")
        options: dict[str, object] = {"pipeline_chunks": knobs.chunks} if pipelined else {}
        model = Model(chunks=1 if pipelined else knobs.chunks)
        topology = self.network.topology
        if not self.placed:
            return collective_objective(
                topology, self.collective, knobs.algorithm, self.size_bytes, model=model, symmetry=self.symmetry,
                **options,
            )
        training = Training(loop=self.loop, algorithm=knobs.algorithm, options=options)
        if self.loop == "no-overlap":
            training = replace(training, bucket_bytes=None)  # as LIBRA: each row reduces its own
        return iteration_objective(
            topology, self.placed, training, checkpointed=self.checkpointed, model=model, symmetry=self.symmetry
        )

    def _best_simulated(self) -> tuple[Design, Knobs]:
        return min((self._simulated(knobs) for knobs in self.knobs), key=lambda pair: pair[0].value)

    def _simulated(self, knobs: Knobs) -> tuple[Design, Knobs]:
        starts = [self._analytic_start()] if self.placed else []
        design = design_simulated(
            self._objective(knobs), self.feasible, self.goal_cost, starts=starts, max_evaluations=self.evaluations
        )
        return design, knobs

    def _row(self, design: Design, evaluate: Any, knobs: Knobs | None) -> dict[str, Any]:
        if self.lane_GBps is not None:
            design = whole_lanes(design, self.lane_GBps, self.feasible, self.goal_cost, evaluate)
        row: dict[str, Any] = {
            "network": self.network.name,
            "workload": self.title.rpartition(" on ")[0],
            "objective": self.goal,
            "evaluator": self.evaluator,
            "loop": self.loop,
            "algorithm": knobs.algorithm if knobs else None,
            "chunks": knobs.chunks if knobs else None,
            **design.row(self.cost),
        }
        if self.wants_sensitivity:
            row["saved_s_per_GBps"] = (sensitivity(evaluate, design.bandwidth_GBps) * 1e-9).tolist()
        return row


def _around(design: Design, points: int) -> F64:
    """Total bandwidths from a quarter of the design's to twice it."""
    totals: F64 = float(design.bandwidth_GBps.sum()) * np.geomspace(0.25, 2.0, points)
    return totals


def make_study(flags: argparse.Namespace) -> Study:
    """The study that the flags of `weft optimize` describe.

    Raises
    ------
    WeftError
        Flags that contradict each other, and whatever is wrong in the files.
    """
    network = read_any_network(flags.network, flags.link_latency, flags.hop_latency)
    placed = _place(flags, network)
    cost = _cost(flags, network)
    if flags.objective == "time-cost" and cost is None:
        raise WeftError("--objective time-cost needs prices: give --cost FILE, or a network of RI, FC and SW")
    feasible = limits(
        network.n_dims, total=flags.budget, rule=flags.budget_rule, constraints=flags.constraint, cost=cost,
        dollars=flags.budget_cost,
    )
    loops = ANALYTIC_LOOPS if flags.evaluator == "analytic" else SIMULATED_LOOPS
    if flags.loop not in loops:
        known = ", ".join(loops)
        raise WeftError(f"--loop {flags.loop!r} is unknown to the {flags.evaluator} evaluator: choose one of {known}")
    if flags.checkpointed and flags.loop not in ANALYTIC_LOOPS:
        raise WeftError(f"--checkpointed does not go with --loop {flags.loop}")
    if flags.evaluations < 1:
        raise WeftError(f"--evaluations {flags.evaluations}: at least 1")
    lane = None if flags.lane is None else parse_bandwidth(flags.lane, "--lane") / 1e9
    names = [name for name in (flags.algorithms or HIERARCHICAL).split(",") if name]
    knobs = [Knobs(name, chunks) for name, chunks in product(names, _whole_numbers(flags.chunks))]
    hidden = ("json", "csv", "plot", "quiet", "command_module")
    return Study(
        network=network, placed=placed, collective=flags.collective or "",
        size_bytes=parse_sweep_size(flags.size or "32M"), feasible=feasible, cost=cost, goal=flags.objective,
        evaluator=flags.evaluator, loop=flags.loop,
        checkpointed=flags.checkpointed, knobs=knobs, lane_GBps=lane, evaluations=flags.evaluations,
        wants_sensitivity=flags.sensitivity, symmetry=flags.symmetry,
        spec={name: value for name, value in vars(flags).items() if name not in hidden},
    )


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
        )
        for name in names
    )


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


def _whole_numbers(text: str) -> list[int]:
    words = [word.strip() for word in text.split(",")]
    if not all(word.isdecimal() and int(word) for word in words):
        raise WeftError(f"--chunks {text!r}: write whole numbers of at least 1, joined by commas")
    return [int(word) for word in words]
