"""Themis: every chunk takes the dimensions in the order that balances their loads.

S. Rashidi, W. Won, S. Srinivasan, S. Sridharan, T. Krishna, "Themis: A Network Bandwidth-Aware Collective Scheduling
Policy for Distributed Training of DL Models", ISCA 2022, section 4.

The orders are chosen once, before the collective starts, and are the same on every rank. Within a dimension, the
chunk with the fewest bytes there goes first.
"""

from collections.abc import Sequence

from collectives.core.builders import of_kind
from collectives.core.process_groups import process_group
from collectives.core.schedule import ELEMENT_BYTES, Schedule, schedule
from collectives.hierarchical import blocks_of, make_options, pattern
from topologies import Topology, WeftError
from topologies.core.product import npu_bandwidths
from topologies.units import Quantity

NAME = "themis"
THRESHOLD = 1 / 16
"""Load difference, as a fraction of a chunk, below which the default order is kept."""


def _schedule(
    kind: str, /, topology: Topology, size: Quantity, *, element_bytes: int = ELEMENT_BYTES, **options: object
) -> Schedule:
    blocks_of(topology)  # rejects networks without dimensions
    chosen = make_options(NAME, {"service": "smallest-first"} | options)
    if chosen.order is not None:
        raise WeftError(f"{NAME} chooses the order of dimensions for each chunk itself: omit order")
    group = process_group(topology.shape, chosen.group)
    orders = chunk_orders(group.extents, npu_bandwidths(topology), chosen.pipeline_chunks)
    return schedule(pattern(NAME, topology, kind, chosen, orders), size, element_bytes)


all_reduce = of_kind("all-reduce", _schedule, """
    Reduce-scatter in the order that Themis chooses for each chunk, then all-gather in reverse order.

    Parameters as for `collectives.hierarchical`; `service` defaults to "smallest-first".
    """)
reduce_scatter = of_kind("reduce-scatter", _schedule, "The first half of `all_reduce`.")
all_gather = of_kind("all-gather", _schedule, """
    The second half of `all_reduce`; the most loaded dimensions come first, with the smallest parts.""")


def chunk_orders(extents: Sequence[int], bandwidth: Sequence[float], chunks: int) -> tuple[tuple[int, ...], ...]:
    """The order of dimensions in the reduce-scatter of each chunk; they do not depend on the size.

    `extents`: NPUs of a group along each dimension; extents of 1 are skipped.
    `bandwidth`: bandwidth out of an NPU in each dimension.
    """
    dims = [dim for dim, extent in enumerate(extents) if extent > 1]
    load = dict.fromkeys(dims, 0.0)  # time of the reduce-scatters so far, for chunks of one byte
    orders = []
    for _ in range(chunks):
        order = sorted(dims, key=lambda dim: load[dim])
        if dims and _difference(load, order, extents, bandwidth) < THRESHOLD:
            order = dims
        part = 1.0
        for dim in order:
            load[dim] += part * (extents[dim] - 1) / extents[dim] / bandwidth[dim]
            part /= extents[dim]
        orders.append(tuple(order))
    return tuple(orders)


def _difference(
    load: dict[int, float], order: Sequence[int], extents: Sequence[int], bandwidth: Sequence[float]
) -> float:
    """Difference between the most and the least loaded dimension, in chunks that the latter could carry."""
    least = order[0]
    return (load[order[-1]] - load[least]) * bandwidth[least] * extents[least] / (extents[least] - 1)
