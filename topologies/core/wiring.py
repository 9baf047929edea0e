"""Networks of named nodes and cables, as described by files from real machines."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from topologies.checks import WeftError
from topologies.core.custom import rank_coordinates
from topologies.core.routing import ShortestPathRouter
from topologies.core.topology import NPU, SWITCH, Topology


class Cable(NamedTuple):
    """Both directions between two nodes."""

    ends: tuple[str, str]
    bandwidth_Bps: float  # per direction
    latency_ps: int
    tier: int  # 0 for fast links inside a box, 1 for other links inside it, 2 between boxes


def wired(
    name: str, npus: Sequence[str], switches: Sequence[str], cables: Iterable[Cable], hop_latency_ps: int,
    passive: Collection[str] = (),
) -> Topology:
    """The network made by the cables, with shortest-path routing; parallel cables are merged.

    `npus`, `switches`: names, NPUs in rank order.
    `hop_latency_ps`: of every switch, and of NPUs if any cable connects two of them.
    `passive`: switches that add no latency: ports and NICs.
    WeftError: no NPU, or a duplicate name.
    """
    if not npus:
        raise WeftError(f"{name}: has no NPU")
    names = [*npus, *switches]
    number = {node: at for at, node in enumerate(names)}
    if len(number) < len(names):
        twice = next(node for node in names if names.count(node) > 1)
        raise WeftError(f"{name}: two nodes are called {twice}")
    joint: dict[tuple[int, int], tuple[float, int, int]] = {}
    for cable in cables:
        for a, b in (cable.ends, cable.ends[::-1]):
            key = number[a], number[b]
            rate, latency, tier = joint.get(key, (0.0, cable.latency_ps, cable.tier))
            joint[key] = rate + cable.bandwidth_Bps, max(latency, cable.latency_ps), tier
    ends = np.array(list(joint), np.int32).reshape(-1, 2)
    direct = bool(np.any((ends < len(npus)).all(axis=1)))
    charged = [direct] * len(npus) + [node not in passive for node in switches]
    return Topology(
        name=name,
        kind=np.repeat(np.array([NPU, SWITCH], np.int8), [len(npus), len(switches)]),
        src=ends[:, 0],
        dst=ends[:, 1],
        bandwidth_Bps=np.array([link[0] for link in joint.values()], np.float64),
        latency_ps=np.array([link[1] for link in joint.values()], np.int64),
        hop_latency_ps=np.where(charged, hop_latency_ps, 0).astype(np.int64),
        dimension=np.array([link[2] for link in joint.values()], np.int16),
        shape=(len(npus),),
        coords=rank_coordinates(len(npus), len(names)),
        router=ShortestPathRouter(),
        node_names=tuple(names),
    )
