"""A hierarchical collective with one server for each dimension: the coarsest simulation that has chunks.

A chunk climbs through the dimensions (reduce-scatter), and comes down again (all-gather). In a dimension it is served
for its bytes over the NPU's bandwidth there, then takes the latency of its steps; a dimension works on one chunk at a
time, latency included. All NPUs do the same at once, so one stands for all; contention between them is not modeled.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sim.analytic.traffic import dimension_traffic
from sim.optimizer.retime import Retimed
from sim.program import PER_TASK, Cutting, ProgramBuilder
from topologies import WeftError

CLIMB, DESCEND = "reduce-scatter", "all-gather"


def station_collective(
    kind: str,
    size_bytes: float,
    sizes: Sequence[int],
    *,
    chunks: int,
    step_latency_ps: Sequence[int] | int = 0,
    blocks: Sequence[str] | None = None,
    order: Sequence[int] | None = None,
    active: int = 1,
) -> Retimed:
    """The program of one collective.

    Parameters
    ----------
    kind : str
        "all-reduce", "reduce-scatter", "all-gather" or "all-to-all".
    size_bytes : float
        Buffer of an NPU before, as in `dimension_traffic`.
    sizes : sequence of int
        NPUs of the group in each dimension; 1 where it does not use one.
    chunks : int
    step_latency_ps : int or one for each dimension
        Latency of a step of the algorithm inside a dimension.
    blocks : sequence of str, optional
        "RI", "FC", "SW": their algorithms take n-1, 1 and log2 n steps; "RI" unless given.
    order : sequence of int, optional
        The order of the climb; dimension 0 first unless given.
    active : int
        Chunks that a dimension works on at a time.

    Raises
    ------
    WeftError
        No chunk, or an order that is not a permutation.
    """
    n_dims = len(sizes)
    order = tuple(range(n_dims)) if order is None else tuple(order)
    if sorted(order) != list(range(n_dims)):
        raise WeftError(f"order {list(order)} of the dimensions is not a permutation of 0 to {n_dims - 1}")
    if chunks < 1:
        raise WeftError(f"chunks={chunks} is out of range: at least 1")
    latency = np.broadcast_to(np.asarray(step_latency_ps, np.int64), (n_dims,))
    builder = ProgramBuilder(forwarding="store-and-forward")
    servers = [builder.server(10**9) for _ in range(n_dims)]
    pools = [builder.pool(active) for _ in range(n_dims)]
    parts = _even(size_bytes, chunks)
    visits = [_visits(kind, part, sizes, order) for part in parts]
    for chunk in range(len(parts)):
        before: list[int] = []
        for dim, n_bytes in visits[chunk]:
            delay = int(latency[dim]) * _steps(blocks[dim] if blocks else "RI", sizes[dim])
            task = builder.task(n_bytes, [(servers[dim], delay)], Cutting(), after=before, tie_class=chunk)
            builder.ask(task, pools[dim], per=PER_TASK)
            builder.give(task, pools[dim], per=PER_TASK)
            before = [task]
    return Retimed(builder.build(), np.arange(n_dims), np.ones(n_dims))


def _even(size_bytes: float, chunks: int) -> list[int]:
    """Whole bytes of each chunk."""
    small, larger = divmod(round(size_bytes), chunks)
    return [small + (chunk < larger) for chunk in range(chunks)]


def _visits(kind: str, size_bytes: int, sizes: Sequence[int], order: tuple[int, ...]) -> list[tuple[int, int]]:
    """Dimensions that a chunk visits and the bytes that an NPU sends there."""
    ordered = [sizes[dim] for dim in order]
    if kind == "all-reduce":
        up = dimension_traffic(CLIMB, size_bytes, ordered)
        legs = [*zip(order, up, strict=True), *zip(order[::-1], up[::-1], strict=True)]
    elif kind == DESCEND:
        legs = list(zip(order, dimension_traffic(kind, size_bytes, ordered), strict=True))[::-1]
    else:
        legs = list(zip(order, dimension_traffic(kind, size_bytes, ordered), strict=True))
    return [(dim, round(n_bytes)) for dim, n_bytes in legs if n_bytes]


def _steps(block: str, size: int) -> int:
    """Steps of the block's own algorithm in one pass (ring, direct, halving-doubling)."""
    return {"RI": size - 1, "FC": min(size - 1, 1), "SW": int(np.ceil(np.log2(size)))}[block]
