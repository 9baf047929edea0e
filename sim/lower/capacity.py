"""Whether a schedule can be lowered in this machine's memory, estimated before anything large is built."""

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from collectives.core.emission import Emission
from collectives.core.pattern import Pattern
from collectives.core.routes import paths_of
from collectives.core.transfers import Transfers, take
from sim.lower.progress import waiting_of
from sim.program.checks import EVENT_BYTES, IN_FLIGHT, TASK_BYTES
from sim.program.columns import BLOCK
from sim.program.model import Model
from topologies import Topology, WeftError
from topologies.core.extents import memory_limit, shown_limit
from topologies.core.paths import evenly
from topologies.core.rateless import wiring_of
from topologies.units import format_size


class _Bytes(NamedTuple):
    """What takes memory at the peak of a run without symmetry, in bytes: the most that `compare` was seen to take.

    Measured as the largest resident set, less that of imports, of ring, bucket, swing, pairwise and direct on rings,
    tori, switches, fat-trees and random-regular graphs, 0.3 to 67 million transfers; other defaults, which short runs
    try besides, may have rows and take three times as much. Of two numbers, the second is of tables that are laid out
    slot by slot; where it does not say so, of such in which transfers wait for others.
    """

    transfer: tuple[int, int] = 90, 42  # where tables are sorted, and where they are laid out slot by slot
    wait: tuple[int, int] = 34, 14  # of a transfer for another
    kept: tuple[int, int] = 60, 15  # of a transfer, where they are few; slots that wait have no rows
    route: tuple[int, int] = 120, 70
    hop: int = 4
    hop_found: int = 9  # while routes are looked for
    apart: tuple[int, int] = 52, 12  # more of a wait, where ports of a rank wait for each other
    joint: tuple[int, int] = 60, 53  # of a transfer for what another port of its rank waits for
    in_flight: tuple[int, int] = EVENT_BYTES * 3 // 2, EVENT_BYTES * 3  # of a chunk: their capacity grows by half


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
    listed, n_nodes = pattern.emission.listed, pattern.topology.n_nodes
    if listed is not None and most_bytes(listed, n_ranks, n_nodes, chunks) <= memory_limit():
        return
    need, transfers = peak_bytes(pattern, n_ranks, chunks)
    need = max(need, transfers * (TASK_BYTES + EVENT_BYTES * min(chunks, IN_FLIGHT)))  # else the engine would refuse it
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


def peak_bytes(pattern: Pattern, n_ranks: int, chunks: int = 1) -> tuple[int, int]:
    """Memory to lower and run the transfers of `n_ranks` ranks, and their number, both from those of one in the middle.

    Ports wait for each other as the authors have them. Chunks in flight are of what a rank sends in one step.
    """
    one = _of_one(pattern.emission, wiring_of(pattern.topology))
    steps, each = waiting_of(pattern, Model()).steps, _Bytes()
    slots = one.is_even and one.waits > 0
    table = each.transfer[one.is_even] * one.transfers + each.wait[one.is_even] * one.waits
    kept = each.kept[slots] * one.transfers * (one.transfers * n_ranks <= BLOCK)
    least = table + each.route[slots] * one.routes + kept
    waits = 0.0 if steps is None else each.apart[slots] * one.waits + each.joint[slots] * one.joint * (not steps)
    run = each.hop * one.hops + waits + each.in_flight[slots] * one.at_once * min(chunks, IN_FLIGHT)
    return int(n_ranks * (least + max(each.hop_found * one.hops, run))), one.transfers * n_ranks


def most_bytes(t: Transfers, n_ranks: int, n_nodes: int, chunks: int = 1) -> int:
    """At least what `peak_bytes` says, at a glance: if all ranks had as many as any, and routes through all nodes."""
    each, waits = _Bytes(), np.bincount(t.src, np.diff(t.dep_ptr)).max(initial=0)
    hops = n_nodes if t.via_links is None else max(n_nodes, t.via_links.size)
    run = max(each.in_flight) * min(chunks, IN_FLIGHT) + max(each.joint) * waits + (each.hop + each.hop_found) * hops
    table = max(each.transfer) + max(each.kept) + max(each.route)
    transfers = np.bincount(t.src).max(initial=0) * (table + run)
    return int(n_ranks * (transfers + waits * (max(each.wait) + max(each.apart))))


class _OfOne(NamedTuple):
    """What one rank has, routes between the same ends once."""

    transfers: int = 0
    routes: int = 0
    hops: float = 0.0
    waits: float = 0.0
    joint: float = 0.0  # waits, if all transfers of a step wait for what any of them waits for
    at_once: float = 0.0  # the most transfers of a step, or those that wait for nothing
    is_even: bool = True  # whether the table of all ranks is laid out slot by slot


@lru_cache(maxsize=256)
def _of_one(emission: Emission, wiring: Topology) -> _OfOne:
    """What a rank has: the same on every topology of the wiring."""
    n, n_routes, some, is_even = emission.sample()
    if n == 0:
        return _OfOne()
    few, share = _mean_hops(some, wiring, FIRST_SAMPLED), n / some.src.size
    hops = _mean_hops(some, wiring, max(FIRST_SAMPLED, int(SAMPLED_HOPS / max(few, 1.0))))
    n_waits, step = np.diff(some.dep_ptr), some.step - some.step.min()
    of_step = np.bincount(step)
    names = {*zip(np.repeat(step, n_waits).tolist(), some.dep_src.tolist(), some.dep_slot.tolist(), strict=True)}
    joint = sum(of_step[own].item() for own, _, _ in names)
    at_once = int(max(of_step.max(), np.count_nonzero(n_waits == 0)))
    return _OfOne(n, n_routes, hops * n_routes, share * some.dep_src.size, share**2 * joint, share * at_once, is_even)


def _mean_hops(t: Transfers, wiring: Topology, many: int) -> float:
    """Hops of the routes of some transfers, evenly spread, for each of them."""
    rows = evenly(t.src.size, min(many, t.src.size))
    return paths_of(take(t, rows), wiring).links.size / rows.size
