"""Switches that reduce, and how fast: a reduction unit is a node behind its switch.

A unit receives its operands over a link whose bandwidth is the aggregation rate and whose latency is the pipeline
latency, so neither needs a rule of its own. A switch without a unit reduces at any rate in no time.
"""

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from topologies.checks import WeftError, checked, choice
from topologies.core.topology import NPU, OCS, REDUCER, SWITCH, Topology
from topologies.units import Quantity, parse_bandwidth, parse_time

PER = ("switch", "port")


@checked
def with_reduction_units(
    topology: Topology, rate: Quantity, *, per: str = "switch", latency: Quantity = 0,
    nodes: Iterable[int] | None = None,
) -> Topology:
    """The same network with a reduction unit behind each of some nodes.

    Parameters
    ----------
    topology : Topology
    rate : quantity
        Bytes per second into a unit, and out of it.
    per : {"switch", "port"}
        Whether the rate is that of the entire unit, or of each port of its switch.
    latency : quantity
        From the arrival of a chunk at the unit until it has been added.
    nodes : iterable of int, optional
        Nodes that get a unit (default: all switches). May include NPUs whose routers reduce.

    Raises
    ------
    WeftError
        A node that does not exist or cannot reduce, such as an optical switch; a bad quantity.
    """
    rate_Bps, latency_ps = parse_bandwidth(rate, "aggregation rate"), parse_time(latency, "pipeline latency")
    choice(per, PER, "aggregation rate per")
    chosen = np.flatnonzero(topology.kind == SWITCH) if nodes is None else np.unique(list(nodes)).astype(np.int64)
    _refuse(topology, chosen)
    unit = topology.n_nodes + np.arange(chosen.size)
    ports = np.bincount(topology.dst, minlength=topology.n_nodes)[chosen] if per == "port" else np.ones_like(chosen)
    src = np.concatenate([np.repeat(chosen, ports), unit])
    dst = np.concatenate([np.repeat(unit, ports), chosen])
    tier = int(topology.dimension.max(initial=-1)) + 1
    return replace(
        topology,
        kind=np.concatenate([topology.kind, np.full(unit.size, REDUCER, np.int8)]),
        src=np.concatenate([topology.src, src]).astype(np.int32),
        dst=np.concatenate([topology.dst, dst]).astype(np.int32),
        bandwidth_Bps=np.concatenate([topology.bandwidth_Bps, np.full(src.size, rate_Bps)]),
        latency_ps=np.concatenate([topology.latency_ps, np.full(src.size - unit.size, latency_ps), np.zeros(unit.size)])
        .astype(np.int64),
        # arrivals at units cost only the latency of the unit
        hop_latency_ps=np.concatenate([topology.hop_latency_ps, np.zeros(unit.size, np.int64)]),
        dimension=np.concatenate([topology.dimension, np.full(src.size, tier)]).astype(np.int16),
        coords=np.concatenate([topology.coords, _coordinates(topology, chosen)]),
        node_names=(*map(topology.node_name, range(topology.n_nodes)), *(f"reducer{i}" for i in range(unit.size))),
    )


def unit_of(topology: Topology) -> npt.NDArray[np.int64]:
    """Reduction unit of each node, (n_nodes,); the node itself where it has none."""
    place = np.arange(topology.n_nodes)
    at = np.flatnonzero(topology.kind[topology.dst] == REDUCER)
    place[topology.src[at]] = topology.dst[at]
    return place


def _refuse(topology: Topology, chosen: npt.NDArray[np.int64]) -> None:
    for node in chosen.tolist():
        if not 0 <= node < topology.n_nodes:
            raise WeftError(f"topology {topology.name}: no node {node} that can reduce")
        if topology.kind[node] in (OCS, REDUCER):
            what = "an optical switch" if topology.kind[node] == OCS else "a reduction unit"
            raise WeftError(f"topology {topology.name}: {topology.node_name(node)} is {what} and cannot get a unit")
    if np.any(topology.kind == REDUCER):
        raise WeftError(f"topology {topology.name}: already has reduction units")


def _coordinates(topology: Topology, chosen: npt.NDArray[np.int64]) -> npt.NDArray[np.int32]:
    """Coordinates of the switch, negative ones shifted, so that a unit moves with its switch; units of NPUs stay."""
    coords = topology.coords[chosen].astype(np.int64)
    below = int(topology.coords.min(initial=0)) - 1
    npu = topology.kind[chosen] == NPU
    coords = np.where(coords < 0, coords + below, coords)
    coords[npu] = 3 * below - np.arange(chosen.size)[npu][:, None]
    return coords.astype(np.int32)
