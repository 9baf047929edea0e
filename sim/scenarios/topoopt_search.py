"""Alternating optimization: search strategies on a fabric, find a fabric for the best one, and repeat (TopoOpt).

The search is a Markov chain over placements: a move gives one operator a random legal placement, the chunk engine
times the iteration, and a slower one is kept with a probability that falls with the milliseconds it loses.
"""

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from time import perf_counter

from sim.how import AS_USUAL, How
from sim.scenarios.optical import simulate_iteration
from topologies import WeftError
from topologies.checks import MOST_COUNT
from topologies.core.extents import physical_memory
from topologies.stages import count, staged
from topologies.units import Quantity, format_size
from workloads.topoopt import (
    PACKETS,
    Demand,
    Fabric,
    OperatorModel,
    Placement,
    Strategy,
    Transport,
    data_parallel,
    find_topology,
    iteration_of,
)
from workloads.topoopt.strategy import legal_sizes

SEARCH_ROUNDS = 32
"""Rounds that an all-reduce is merged into while searching: within 1.5 % of all rounds; the result uses all of them."""

FabricFor = Callable[[Demand], Fabric]
"""A fabric for a demand; a fixed network gives the same for any."""


@dataclass(frozen=True, eq=False)
class Found:
    strategy: Strategy
    fabric: Fabric
    time_ps: int  # iteration time of the result, every round simulated
    start_ps: int  # the same of the start
    evaluations: int
    evaluations_to_best: int
    seconds_per_evaluation: float  # of this machine
    history: tuple[tuple[int, int], ...]  # evaluation and time in ps (rounds joined) of each improvement


@dataclass(frozen=True)
class Settings:
    """Length and temperature of a search."""

    budget: int = 200  # total number of moves; 0 finds a fabric for the start and moves nothing
    outer: int = 4  # number of alternations between strategy and fabric
    temper_per_ms: float = 1.0  # a move that loses t ms is kept with probability exp(-temper t)
    seed: int = 1
    transport: Transport = PACKETS
    how: How = AS_USUAL  # its runs

    def __post_init__(self) -> None:
        if not 0 <= self.budget <= MOST_COUNT or self.outer < 1 or not self.temper_per_ms > 0:
            raise WeftError(
                f"a search of {self.budget} moves in {self.outer} turns, temper {self.temper_per_ms}: moves from 0 to "
                f"{MOST_COUNT}, at least 1 turn, temper above 0"
            )


def optical_fabric(
    n: int, degree: int, *, bandwidth: Quantity = "100Gb/s", latency: Quantity = "1us", duplex: bool = True,
    rule: str = "paper", split: bool = True,
) -> FabricFor:
    """Fabrics of `find_topology` for any demand.

    WeftError: so many servers that the traffic between every two of them would not fit in memory.
    """
    need, most = 2 * 8 * n**2, physical_memory() / 2  # one matrix from row to column, one of both directions
    if need > most:
        raise WeftError(f"circuits for {n} servers: the traffic between every two would need about {format_size(need)} "
                        f"of memory: at most half of the {format_size(int(2 * most))} of this machine")
    return lambda demand: find_topology(
        n, degree, demand, bandwidth=bandwidth, latency=latency, duplex=duplex, rule=rule, split=split
    )


def iteration_ps(
    model: OperatorModel, strategy: Strategy, fabric: Fabric, transport: Transport = PACKETS, how: How = AS_USUAL
) -> int:
    return simulate_iteration(iteration_of(model, strategy), fabric.topology, fabric.rings, transport, how).time_ps


class _Chain:
    """The Markov chain: current and best strategy on the current fabric."""

    def __init__(self, model: OperatorModel, settings: Settings) -> None:
        self.model, self.settings = model, settings
        self.coarse = replace(settings.transport, most_rounds=SEARCH_ROUNDS, message_chunks=4)
        self.random = random.Random(settings.seed)
        self.known: dict[tuple[int, Strategy], int] = {}
        self.evaluations = 0

    def time_ps(self, strategy: Strategy, fabric: Fabric) -> int:
        key = (id(fabric), strategy)
        if key not in self.known:
            self.known[key] = iteration_ps(self.model, strategy, fabric, self.coarse, self.settings.how)
            self.evaluations += 1
        return self.known[key]

    def move(self, strategy: Strategy) -> Strategy:
        """Another placement for one operator, not the last; sometimes that of its neighbor."""
        n, last = self.model.n, len(strategy) - 1
        at = self.random.randrange(max(last, 1))
        k = self.random.choice(legal_sizes(n))
        placed = Placement(k, self.random.randrange(n // k))
        if at and self.random.random() < 0.25:
            placed = strategy[at - 1]
        return (*strategy[:at], placed, *strategy[at + 1 :])


@staged("search")
def search(model: OperatorModel, fabric_for: FabricFor, settings: Settings = Settings()) -> Found:
    """Search strategy and fabric together; never worse than the start, and the same for the same seed.

    `fabric_for`: `optical_fabric`, or one fixed network.
    """
    started = perf_counter()
    chain = _Chain(model, settings)
    start = data_parallel(model)
    fabric = first = fabric_for(Demand.of(iteration_of(model, start)))
    keep = [fabric]  # fabrics are compared by identity: none may be freed and its id reused
    best, best_fabric, best_ps = start, fabric, chain.time_ps(start, fabric)
    history, to_best = [(chain.evaluations, best_ps)], chain.evaluations
    for turn in range(settings.outer):
        current, current_ps = best, chain.time_ps(best, fabric)
        moves = range(*(settings.budget * at // settings.outer for at in (turn, turn + 1)))
        for move in moves:
            count("moves", move, settings.budget)
            proposed = chain.move(current)
            time_ps = chain.time_ps(proposed, fabric)
            lost_ms = (time_ps - current_ps) / 1e9
            if lost_ms <= 0 or chain.random.random() < math.exp(-settings.temper_per_ms * lost_ms):
                current, current_ps = proposed, time_ps
            if time_ps < best_ps:
                best, best_fabric, best_ps, to_best = proposed, fabric, time_ps, chain.evaluations
                history.append((chain.evaluations, best_ps))
        fabric = fabric_for(Demand.of(iteration_of(model, best)))
        keep.append(fabric)
        if (time_ps := chain.time_ps(best, fabric)) < best_ps:
            best_fabric, best_ps, to_best = fabric, time_ps, chain.evaluations
            history.append((chain.evaluations, best_ps))
    seconds = (perf_counter() - started) / max(chain.evaluations, 1)
    start_ps = iteration_ps(model, start, first, settings.transport, settings.how)
    time_ps = iteration_ps(model, best, best_fabric, settings.transport, settings.how)
    if time_ps > start_ps:  # merged rounds ranked them differently
        best, best_fabric, time_ps = start, first, start_ps
    return Found(best, best_fabric, time_ps, start_ps, chain.evaluations, to_best, seconds, tuple(history))
