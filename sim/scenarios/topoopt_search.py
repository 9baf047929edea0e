"""Alternating optimization: search strategies on a fabric, find a fabric for the best one, and repeat (TopoOpt).

The search is a Markov chain over placements: a move gives some operators in a row a random legal placement, the chunk
engine times the iteration, and a slower one is kept with a probability that falls with the milliseconds it loses. The
chance is drawn first, so that a move whose load alone takes too long needs no run. It begins at what the same chain
finds by loads alone (`Load`), in more moves.
"""

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from time import perf_counter

from sim.how import AS_USUAL, How
from sim.scenarios.optical import iteration_time_ps
from topologies import WeftError
from topologies.checks import MOST_COUNT, integer
from topologies.core.extents import physical_memory
from topologies.stages import count, staged
from topologies.units import Quantity, format_size
from workloads.topoopt import (
    PACKETS,
    Demand,
    Fabric,
    Load,
    OperatorModel,
    Placement,
    Strategy,
    Transport,
    data_parallel,
    find_topology,
    iteration_of,
)
from workloads.topoopt.strategy import legal_sizes

SEARCH_ROUNDS, SEARCH_CHUNKS = (8, 32), (1, 4)
"""Rounds that an all-reduce is merged into while searching, the fewest on 512 servers or more and the most on 128 or
fewer, and chunks of a message, from 64 and on 16; the result uses all of them."""

DRAFTS, WARM = 30, 0.05
"""Moves by their loads for each move of the search; at first one that loses 5 % is kept with probability 1/e."""

ROWS = (1, 1, 1, 2, 4, 8, 16)
"""Numbers of operators that move together."""

NOTHING_LEFT = 1.01
"""A search ends where the best takes no more than so many times the least load that was found."""

FabricFor = Callable[[Demand], Fabric]
"""A fabric for a demand; a fixed network gives the same for any."""


@dataclass(frozen=True, eq=False)
class Found:
    """What a search found: strategy, circuits, and the times before and after."""

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
        integer(self.budget, "budget of moves", 0, MOST_COUNT)
        integer(self.outer, "outer turns of a search", 1, MOST_COUNT)
        if not self.temper_per_ms > 0:
            raise WeftError(f"temper_per_ms of a search {self.temper_per_ms}: above 0")


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
    """Time of an iteration of a strategy on a fabric, simulated."""
    return iteration_time_ps(iteration_of(model, strategy), fabric.topology, fabric.rings, transport, how)


def coarser(transport: Transport, n: int) -> Transport:
    """The transport of a search on n servers."""
    (rounds, most_rounds), (chunks, most_chunks) = SEARCH_ROUNDS, SEARCH_CHUNKS
    return replace(transport, most_rounds=min(max(4096 // n, rounds), most_rounds),
                   message_chunks=min(max(64 // n, chunks), most_chunks))


class _Chain:
    """The Markov chain: strategies and their times on fabrics."""

    def __init__(self, model: OperatorModel, fabric_for: FabricFor, settings: Settings) -> None:
        self.model, self.fabric_for, self.settings = model, fabric_for, settings
        self.coarse = coarser(settings.transport, model.n)
        self.random = random.Random(settings.seed)
        self.load = Load(model)
        self.least_ps = self.load.compute_ps()  # of any strategy, as far as is known
        self.known: dict[tuple[int, Strategy], int] = {}
        self.keep: list[Fabric] = []  # fabrics are compared by identity: none may be freed and its id reused
        self.best: tuple[int, Strategy, Fabric] | None = None
        self.history: list[tuple[int, int]] = []

    @property
    def best_ps(self) -> float:
        return math.inf if self.best is None else self.best[0]

    def made_for(self, strategy: Strategy) -> Fabric:
        fabric = self.fabric_for(Demand.of(iteration_of(self.model, strategy).job()))
        self.keep.append(fabric)
        return fabric

    def time_ps(self, strategy: Strategy, fabric: Fabric, limit_ps: float = math.inf) -> float:
        """The time of a strategy, or infinity where its load alone takes more than the limit."""
        key = (id(fabric), strategy)
        if key not in self.known:
            if self.load.least_ps(strategy, fabric.rate_Bps) > limit_ps:
                return math.inf
            self.known[key] = time = iteration_ps(self.model, strategy, fabric, self.coarse, self.settings.how)
            if time < self.best_ps:
                self.best = time, strategy, fabric
                self.history.append((len(self.known), time))
        return self.known[key]

    def all_of(self, choices: Sequence[Placement]) -> None:
        """Every strategy on the fabric that is made for it."""
        for strategy in product(choices, repeat=len(self.model.operators)):
            self.time_ps(strategy, self.made_for(strategy), self.best_ps)

    def draft(self, turn: range, fabric: Fabric, choices: Sequence[Placement]) -> Fabric:
        """Moves from the best strategy on by their loads (simulated annealing); what comes out is run."""
        assert self.best is not None  # of the start
        best = current = self.best[1]
        best_ps = current_ps = self.load.least_ps(current, fabric.rate_Bps)
        moves = DRAFTS * len(turn)
        for move in range(moves):
            count("moves by their loads", DRAFTS * turn.start + move, DRAFTS * self.settings.budget)
            proposed = self.move(current, choices)
            time_ps = self.load.least_ps(proposed, fabric.rate_Bps)
            lost = (time_ps - current_ps) / best_ps
            if lost <= 0 or self.random.random() < math.exp(-lost / (WARM * (1 - move / moves))):
                current, current_ps = proposed, time_ps
            if time_ps < best_ps:
                best, best_ps = proposed, time_ps
        self.least_ps = max(self.least_ps, best_ps)
        self.time_ps(best, self.made_for(best))
        return self.best[2]

    def walk(self, moves: range, fabric: Fabric, choices: Sequence[Placement]) -> Fabric:
        """Moves from the best strategy on; a fabric is made for each new best one, and stays if it is faster."""
        assert self.best is not None  # of the start
        _, current, _ = self.best
        current_ps = self.time_ps(current, fabric)
        for move in moves:
            if self.best_ps <= NOTHING_LEFT * self.least_ps:
                break
            count("moves", move, self.settings.budget)
            proposed, best_ps = self.move(current, choices), self.best_ps
            # Drawn first: what is slower than this is not kept, and needs no run if its load shows it.
            limit_ps = current_ps - 1e9 * math.log(1 - self.random.random()) / self.settings.temper_per_ms
            time_ps = self.time_ps(proposed, fabric, limit_ps)
            if time_ps > limit_ps:
                continue
            current, current_ps = proposed, time_ps
            if time_ps < best_ps:
                made = self.made_for(proposed)
                if (made_ps := self.time_ps(proposed, made, time_ps)) < time_ps:
                    fabric, current_ps = made, made_ps
        return fabric

    def move(self, strategy: Strategy, choices: Sequence[Placement]) -> Strategy:
        """Another placement for some operators in a row; sometimes that of the one before them."""
        at = self.random.randrange(len(strategy))
        placed = strategy[at - 1] if at and self.random.random() < 0.25 else self.random.choice(choices)
        end = min(at + self.random.choice(ROWS), len(strategy))
        return (*strategy[:at], *[placed] * (end - at), *strategy[end:])


@staged("search")
def search(model: OperatorModel, fabric_for: FabricFor, settings: Settings = Settings()) -> Found:
    """Search strategy and fabric together; never worse than the start, and the same for the same seed.

    As many moves as there are strategies try all of them, each on the fabric that is made for it.

    `fabric_for`: `optical_fabric`, or one fixed network.
    """
    started = perf_counter()
    chain = _Chain(model, fabric_for, settings)
    start = data_parallel(model)
    fabric = first = chain.made_for(start)
    chain.time_ps(start, fabric)
    sizes = legal_sizes(model.n)
    choices = [Placement(k, at) for k in sizes for at in range(model.n // k)]
    if len(choices) ** len(model.operators) <= settings.budget:
        chain.all_of(choices)
    else:
        # Half of the moves are to placements on many servers, which are few.
        weighed = [placed for k in sizes for placed in [Placement(k, at) for at in range(model.n // k)]
                   for _ in range(max(1, 4 * k // model.n))]
        for turn in range(settings.outer):
            moves = range(*(settings.budget * at // settings.outer for at in (turn, turn + 1)))
            if chain.best_ps > NOTHING_LEFT * chain.least_ps:
                fabric = chain.draft(moves, fabric, weighed)
                fabric = chain.walk(moves, fabric, weighed)
    assert chain.best is not None  # of the start
    _, best, best_fabric = chain.best
    seconds = (perf_counter() - started) / len(chain.known)
    start_ps = iteration_ps(model, start, first, settings.transport, settings.how)
    time_ps = iteration_ps(model, best, best_fabric, settings.transport, settings.how)
    if time_ps > start_ps:  # merged rounds ranked them differently
        best, best_fabric, time_ps = start, first, start_ps
    return Found(best, best_fabric, time_ps, start_ps, len(chain.known), chain.history[-1][0], seconds,
                 tuple(chain.history))
