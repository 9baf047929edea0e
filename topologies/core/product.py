"""Products of one-dimensional blocks, such as RI(4)_FC(8)_SW(32), and their dimension-ordered router.

A block connects the NPUs that differ in one coordinate only. Dimension 0 varies fastest in the rank.

- `RI` ring: each NPU to both neighbors. A ring of two is one cable, not two in parallel;
- `FC` fully connected: each NPU to every other;
- `SW` switch: each NPU to a switch of its own line, and back;
- `LI` line: a ring without its wrap-around, the block of a mesh.

A block of extent 1 has neither links nor a switch.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from operator import mul
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from topologies.checks import WeftError
from topologies.core._walk import walk
from topologies.core.blocks import AT_SWITCH, Block, Switched
from topologies.core.extents import check_memory
from topologies.core.links import MOST_KEPT_NODES, Links, in_tiers, per_dimension, per_tier
from topologies.core.paths import Paths, routed
from topologies.core.routing import hash64
from topologies.core.topology import Topology
from topologies.units import Quantities, Quantity, parse_time

Ints = npt.NDArray[np.int64]


def link_bandwidths(npu_bandwidth: Sequence[float], blocks: Sequence[Block]) -> tuple[float, ...]:
    """Bandwidth of one link of each dimension, from the total bandwidth of an NPU in that dimension.

    LIBRA and Themis give an NPU bandwidth B_d in dimension d, whatever the block: a ring splits it over two directions
    (one cable for two NPUs), a fully connected block over extent - 1 links, and a switch puts it on one link.

    `npu_bandwidth`: out of one NPU, one value per dimension; any unit.
    """
    pairs = zip(npu_bandwidth, blocks, strict=True)
    return tuple(bandwidth / max(int(np.count_nonzero(block.links()[0] == 0)), 1) for bandwidth, block in pairs)


def npu_bandwidths(topology: Topology) -> tuple[float, ...]:
    """Total bandwidth out of NPU 0 in each dimension, in bytes/s: the inverse of `link_bandwidths`.

    WeftError: a link of NPU 0 belongs to no dimension.
    """
    own = topology.src == 0
    if np.any(topology.dimension[own] < 0):
        raise WeftError(f"{topology.name} has links outside any dimension: give a product of dimensions")
    rates = np.bincount(topology.dimension[own], topology.bandwidth_Bps[own], minlength=len(topology.shape))
    return tuple(rates.tolist())


class Axis(NamedTuple):
    """A block within the product: neighbors along it are `stride` ranks apart."""

    block: Block
    stride: int
    first_switch: int

    def node(self, origin: Ints, position: Ints) -> Ints:
        """The node at a position of the line whose first NPU is `origin`."""
        npu = origin + position * self.stride
        if not self.block.has_switch:
            return npu
        line = origin % self.stride + origin // (self.stride * self.block.extent) * self.stride
        return np.where(position == AT_SWITCH, self.first_switch + line, npu)


def axes_of(blocks: Sequence[Block]) -> list[Axis]:
    """Strides and first switches of the blocks of a product."""
    n_npus = math.prod(block.extent for block in blocks)
    strides = accumulate([block.extent for block in blocks[:-1]], mul, initial=1)
    switches = accumulate([_n_switches(block, n_npus) for block in blocks[:-1]], initial=n_npus)
    return [Axis(*axis) for axis in zip(blocks, strides, switches, strict=True)]


def _n_switches(block: Block, n_npus: int) -> int:
    return n_npus // block.extent if block.has_switch else 0


def build_product(
    name: str, blocks: Sequence[Block], links: Links, *, trace_latency: Quantities | None = None,
    switch_latency: Quantity | None = None,
) -> Topology:
    """The product of `blocks`, called `name`; `topologies.core.product` explains the rest.

    `trace_latency`: of links between NPUs; default: that of all links. `switch_latency`: added on arrival at a switch;
        default: the hop latency.
    """
    shape = tuple(block.extent for block in blocks)
    n_npus = math.prod(shape)
    n_nodes = n_npus + sum(_n_switches(block, n_npus) for block in blocks)
    check_memory(name, n_nodes, sum(n_npus // block.extent * block.n_links for block in blocks))
    rates, times = per_tier(links["bandwidth"], links["latency"], len(blocks))
    hop_ps = parse_time(links["hop_latency"], "hop latency")
    switch_ps = hop_ps if switch_latency is None else parse_time(switch_latency, "switch latency")
    direct = any(block.direct for block in blocks)
    build = _frame if n_nodes <= MOST_KEPT_NODES else _frame.__wrapped__
    frame = build(name, tuple(blocks), n_nodes)
    latency_ps = times[frame.dimension]
    if trace_latency is not None:
        what = "trace latency"
        traces = np.array([parse_time(one, what) for one in per_dimension(trace_latency, len(blocks), what)], np.int64)
        on_board = (frame.src < n_npus) & (frame.dst < n_npus)
        latency_ps[on_board] = traces[frame.dimension[on_board]]
    hops_ps = np.array([hop_ps * direct, switch_ps], np.int64)[frame.kind]
    return frame.at_rates(rates[frame.dimension], latency_ps, hops_ps)


@lru_cache(maxsize=4)
def _frame(name: str, blocks: tuple[Block, ...], n_nodes: int) -> Topology:
    """The product at rates that mean nothing."""
    n_npus = math.prod(block.extent for block in blocks)
    return in_tiers(
        name, [_links(axis, n_npus) for axis in axes_of(blocks)], n_npus, shape=tuple(block.extent for block in blocks),
        coords=_coordinates(blocks, n_nodes), router=DimensionOrderRouter(blocks),
    )


def _links(axis: Axis, n_npus: int) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """Ends of the links along one axis, (n,) each."""
    low, line = np.arange(axis.stride), axis.stride * axis.block.extent
    origin = (low + np.arange(0, n_npus, line)[:, None]).reshape(-1, 1)
    leaves, enters = axis.block.links()
    src, dst = (axis.node(origin, position).astype(np.int32).ravel() for position in (leaves, enters))
    return src, dst


def _coordinates(blocks: Sequence[Block], n_nodes: int) -> npt.NDArray[np.int32]:
    coords = np.empty((n_nodes, len(blocks)), np.int32)
    n_npus = math.prod(block.extent for block in blocks)
    npus = np.arange(n_npus, dtype=np.int32)
    for dim, axis in enumerate(axes_of(blocks)):
        coords[:n_npus, dim] = npus // axis.stride % axis.block.extent
    for dim, axis in enumerate(axes_of(blocks)):
        rows = slice(axis.first_switch, axis.first_switch + _n_switches(axis.block, n_npus))
        if axis.block.has_switch:
            coords[rows] = coords[:n_npus][coords[:n_npus, dim] == 0]  # one NPU of each line, in order
            coords[rows, dim] = AT_SWITCH
    return coords


@dataclass(frozen=True)
class DimensionOrderRouter:
    """Minimal routes that correct dimension 0 first, then 1, and so on.

    An end may be a switch: the route then begins or ends at the NPU of that switch that lies toward the other end.
    Ties are those of the blocks: the antipode in a ring of even extent above 2, the middle of an odd board.
    """

    blocks: tuple[Block, ...]

    def paths(self, topology: Topology, src: Ints, dst: Ints, tie: str, seed: int) -> Paths:
        """Routes of the pairs; see `topologies.core.paths` for the tie rules."""
        axes = axes_of(self.blocks)
        return routed(lambda a, b: _route(topology, axes, a, b, tie, seed), src, dst)


def _route(topology: Topology, axes: list[Axis], src: Ints, dst: Ints, tie: str, seed: int) -> Paths:
    a, b = _npu_coordinates(topology, axes, src, dst)
    pair, second = _choose(axes, a, b, src, dst, tie, seed)
    src, dst, a, b = src[pair], dst[pair], a[pair], b[pair]
    legs = [axis.block.leg(a[:, dim], b[:, dim], second[dim]) for dim, axis in enumerate(axes)]
    to_switch = ((src >= topology.n_npus).astype(np.int64) + (dst >= topology.n_npus)) * (src != dst)
    ptr = np.concatenate(([0], np.cumsum(np.sum([leg.hops for leg in legs], axis=0) + to_switch)))
    links, first = np.empty(ptr[-1], np.int32), a @ np.array([axis.stride for axis in axes])
    lines = np.array([(axis.stride, axis.block.extent, axis.first_switch) for axis in axes])
    walk(topology.link_ptr, topology.dst, lines, np.array(legs), src, first, dst, ptr, links)
    return Paths(ptr, links, pair)


def _npu_coordinates(topology: Topology, axes: list[Axis], src: Ints, dst: Ints) -> tuple[Ints, Ints]:
    """Coordinates (n, n_dims) of the first and last NPU of each route; at a switch, the one nearest the other end."""
    a, b = topology.coords[src].astype(np.int64), topology.coords[dst].astype(np.int64)
    for dim, axis in enumerate(axes):
        if isinstance(axis.block, Switched):
            near_b, near_a = axis.block.port(np.maximum(b[:, dim], 0)), axis.block.port(np.maximum(a[:, dim], 0))
            a_lacks, b_lacks = a[:, dim] == AT_SWITCH, b[:, dim] == AT_SWITCH
            a[a_lacks, dim] = near_b[a_lacks]
            b[b_lacks, dim] = near_a[b_lacks]
    return a, b


def _choose(
    axes: list[Axis], a: Ints, b: Ints, src: Ints, dst: Ints, tie: str, seed: int
) -> tuple[Ints, list[npt.NDArray[np.bool_]]]:
    """The pair of each route (n_routes,), and for each axis whether it takes the second path at a tie."""
    pair = np.arange(src.size)
    if tie == "first":
        return pair, [np.zeros(src.size, np.bool_)] * len(axes)
    if tie == "alternating":
        return pair, [a[:, dim] % 2 == 1 for dim in range(len(axes))]
    if tie == "ecmp":
        return pair, [hash64(seed, src, dst, dim) % np.uint64(2) == 1 for dim in range(len(axes))]
    tied = np.any([axis.block.tied(a[:, dim], b[:, dim]) for dim, axis in enumerate(axes)], axis=0)
    pair = np.repeat(pair, 1 + tied)
    return pair, [np.diff(pair, prepend=-1) == 0] * len(axes)
