"""Cuts by trying all of them: the bounds of `topologies.flows.tightest_cut` in a few lines, up to some 13 nodes."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from topologies import Topology


def every_set(n: int) -> np.ndarray:
    """All subsets of n nodes but the empty and the full one, as rows of booleans."""
    return (np.arange(1, 2**n - 1)[:, None] >> np.arange(n) & 1).astype(bool)


def rate_out(topology: Topology, sides: np.ndarray) -> np.ndarray:
    """Bytes a second that leave each set, exact for whole bandwidths."""
    rates = topology.bandwidth_Bps.astype(np.int64)
    return (sides[:, topology.src] & ~sides[:, topology.dst]) @ rates


def gather_s_per_byte(topology: Topology, weights: list[int] | None = None) -> Fraction:
    """Largest ratio of the shards in a set that lacks an NPU to what can leave it."""
    sides = every_set(topology.n_nodes)
    inside = sides[:, : topology.n_npus]
    weight = inside @ np.array(weights or [1] * topology.n_npus)
    matters = ~inside.all(axis=1) & (weight > 0)
    return max(
        Fraction(int(shards), int(out))
        for shards, out in zip(weight[matters], rate_out(topology, sides)[matters], strict=True)
    )


def gather_to_s_per_byte(topology: Topology, root: int) -> Fraction:
    """Largest ratio of the NPUs in a set that lacks the root to what can leave it."""
    sides = every_set(topology.n_nodes)
    inside = sides[:, : topology.n_npus]
    shards = inside.sum(axis=1)
    matters = ~inside[:, root] & (shards > 0)
    rates = rate_out(topology, sides)[matters].tolist()
    return max(Fraction(int(n), int(out)) for n, out in zip(shards[matters], rates, strict=True))


def least_rate(topology: Topology, root: int | None = None) -> int:
    """Least bandwidth out of a set that holds the root (any NPU unless given) and lacks an NPU."""
    sides = every_set(topology.n_nodes)
    inside = sides[:, : topology.n_npus]
    held = inside.any(axis=1) if root is None else inside[:, root]
    return int(rate_out(topology, sides)[held & ~inside.all(axis=1)].min())
