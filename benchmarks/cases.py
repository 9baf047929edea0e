"""The fixed cases: programs whose numbers of services are known beforehand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from sim.program import WHOLE, Columns, Cutting, Program
from sim.program.assemble import assemble
from topologies import torus

LINK_BPS = 50 * 2**30
"""The 50 "GB/s" of the peers' cases: GiB/s (reference: ASTRA-sim's analytical network)."""
LATENCY_PS = 500_000
MIB = 2**20


@dataclass(frozen=True)
class Case:
    """A program by name, and the services it must do.

    Attributes
    ----------
    name : str
    build : callable () -> Program
    services : int
        Chunks crossing servers, counted by hand.
    """

    name: str
    build: Callable[[], Program]
    services: int


def ring_all_reduce(n: int, chunks: int, size_bytes: int = 64 * MIB) -> Program:
    """All-reduce around one direction of a ring: a rank passes each chunk on when it has it.

    Store-and-forward; 2(n-1) transfers a rank, each waiting chunk by chunk for the one it passes on.
    """
    steps = 2 * (n - 1)
    step, rank = np.divmod(np.arange(steps * n), n)
    child = np.arange(n, steps * n)
    parent = (step[n:] - 1) * n + (rank[n:] - 1) % n
    columns = Columns(
        rates=[Fraction(LINK_BPS)],
        server_rate=np.zeros(n, np.int32),
        server_discipline=np.zeros(n, np.int8),
        route_ptr=np.arange(n + 1, dtype=np.int32),
        route_server=np.arange(n, dtype=np.int32),
        route_latency_ps=np.full(n, LATENCY_PS, np.int64),
        task_work=np.full(steps * n, size_bytes // n, np.int64),
        task_cutting=None,
        task_route=rank.astype(np.int32),
        task_class=step.astype(np.int32),
        task_priority=np.zeros(steps * n, np.int32),
        edge_parent=parent.astype(np.int32),
        edge_child=child.astype(np.int32),
        edge_lag=np.zeros(child.size, np.int32),
    )
    return assemble(columns, [Cutting(chunks=chunks)], "store-and-forward")


def torus_all_to_all(
    side: int, chunks: int, pair_bytes: int = MIB, *, distinct: bool = False, discipline: int = 0
) -> Program:
    """All-to-all on a square torus, at distance k = 1, 2, ... of the ranks in turn, dimension 0 first.

    Parameters
    ----------
    side, chunks, pair_bytes : int
    distinct : bool
        Give every link a bandwidth of its own, so that hardly two times are equal.
    discipline : int
        Of every link.
    """
    fabric = torus((side, side))
    p = side * side
    k, rank = np.divmod(np.arange((p - 1) * p), p)
    target = (rank + k + 1) % p
    paths = fabric.paths(rank, target)
    step = np.arange(fabric.n_links) if distinct else np.zeros(fabric.n_links, np.int64)
    columns = Columns(
        rates=[Fraction(LINK_BPS + 1_000_003 * int(i)) for i in np.unique(step)],
        server_rate=step.astype(np.int32),
        server_discipline=np.full(fabric.n_links, discipline, np.int8),
        route_ptr=paths.ptr.astype(np.int32),
        route_server=paths.links,
        route_latency_ps=np.full(paths.links.size, LATENCY_PS, np.int64),
        task_work=np.full(rank.size, pair_bytes, np.int64),
        task_cutting=None,
        task_route=np.arange(rank.size, dtype=np.int32),
        task_class=k.astype(np.int32),
        task_priority=k.astype(np.int32),
        edge_parent=np.zeros(0, np.int32),
        edge_child=np.zeros(0, np.int32),
        edge_lag=np.full(0, WHOLE, np.int32),
    )
    return assemble(columns, [Cutting(chunks=chunks)], "store-and-forward")
