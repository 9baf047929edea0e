"""Whether a schedule can be lowered in this machine's memory, estimated before anything large is built."""

from functools import lru_cache

from collectives.core.emission import Emission
from collectives.core.pattern import Pattern
from collectives.core.routes import paths_of
from collectives.core.transfers import Transfers, take
from sim.program.checks import EVENT_BYTES, IN_FLIGHT, TASK_BYTES
from topologies import Topology, WeftError
from topologies.core.extents import memory_limit, shown_limit
from topologies.core.paths import evenly
from topologies.core.rateless import wiring_of
from topologies.units import format_size

BYTES_PER_TRANSFER = 115
BYTES_PER_HOP = 45
"""Peak while lowering without symmetry, and for the hops of each pair of ends: tracemalloc on ring, bucket, swing and
direct, tori of 256 to 4,096 nodes, 65 thousand to 8 million transfers."""

BYTES_PER_TASK = 340
"""Peak of a command that lowers, runs and explains a job of several operations: gpt-3 in a pipeline of 8 stages on 128
NPUs, 8.8 million tasks."""

FIRST_SAMPLED = 8
"""Transfers whose routes say how many more are looked at: on ring:1000000 a thousand would be 2 GB of hops."""
SAMPLED_HOPS = 2_000_000


def check_capacity(pattern: Pattern, n_ranks: int, chunks: int = 1) -> None:
    """Reject to lower, or to run, the transfers of more ranks than fit in memory.

    `n_ranks`: ranks to be simulated: all of them, or the representatives of a symmetry.
    `chunks`: of a transfer, as far as it is known.
    WeftError: with the estimate, and what would help.
    """
    need, transfers = lowering_bytes(pattern, n_ranks)
    need = max(need, transfers * (TASK_BYTES + EVENT_BYTES * min(chunks, IN_FLIGHT)))
    if need > memory_limit():
        raise WeftError(
            f"{pattern.name} on {pattern.topology.name} is too large: simulating {n_ranks:,} of {pattern.p:,} ranks "
            f"takes about {transfers:,} transfers and {format_size(need)} of memory; {shown_limit()}. Use a smaller "
            "fabric, or an algorithm with fewer transfers"
        )


def check_tasks(n_tasks: int, what: str) -> None:
    """Reject to lower a job of more tasks than fit in memory.

    `what`: has them, for the message.
    """
    need = n_tasks * BYTES_PER_TASK
    if need > memory_limit():
        raise WeftError(
            f"{what} is too large to be simulated: about {n_tasks:,} tasks and {format_size(need)} of memory; "
            f"{shown_limit()}"
        )


def least_ranks(pattern: Pattern, symmetry: str) -> int:
    """The ranks that are simulated at least, before any symmetry is looked at."""
    return pattern.p if symmetry == "off" or not len(pattern.groups) else 1


def lowering_bytes(pattern: Pattern, n_ranks: int) -> tuple[int, int]:
    """Memory to lower the transfers of `n_ranks` ranks, and their number, both from those of one rank in the middle.

    Hops are those of its routes over its transfers: transfers between the same ends share one.
    """
    of_one, hops = _of_one(pattern.emission, wiring_of(pattern.topology))
    transfers = of_one * n_ranks
    return int(transfers * (BYTES_PER_TRANSFER + BYTES_PER_HOP * hops)), transfers


@lru_cache(maxsize=256)
def _of_one(emission: Emission, wiring: Topology) -> tuple[int, float]:
    """Transfers of a rank, and hops of its routes for each of them: the same on every topology of the wiring."""
    n, n_routes, some = emission.sample()
    if n == 0:
        return 0, 0.0
    few = _mean_hops(some, wiring, FIRST_SAMPLED)
    hops = _mean_hops(some, wiring, max(FIRST_SAMPLED, int(SAMPLED_HOPS / max(few, 1.0))))
    return n, hops * n_routes / n


def _mean_hops(t: Transfers, wiring: Topology, many: int) -> float:
    """Hops of the routes of some transfers, evenly spread, for each of them."""
    rows = evenly(t.src.size, min(many, t.src.size))
    return paths_of(take(t, rows), wiring).links.size / rows.size
