"""What algorithms make of switches that multicast and reduce, and of links between groups."""

from __future__ import annotations

import numpy as np
import pytest

from collectives import build
from collectives.core.routes import paths_of
from collectives.core.schedule import Schedule
from sim import simulate
from topologies import Topology, from_spec
from topologies.flows.programs import best_roots


@pytest.mark.parametrize(("spec", "optimum_GBps"), [("dgx-a100:2", 200.0), ("dgx-h100:2", 377.3667)])
def test_trees_over_boxes_reach_the_optimum_of_switches_that_reduce(spec: str, optimum_GBps: float) -> None:
    """On links at the rate at which they do: the program knows that what a NIC brings crosses the switch as well."""
    t = from_spec(spec)
    optimum = best_roots(t.as_it_reduces(), in_network=True).rate_Bps
    assert optimum == pytest.approx(optimum_GBps * 1e9, rel=1e-6)
    for name, form, chunks in (("nvls-trees", None, 256), ("in-network", "rail-wise", 1024)):
        built = build(name, "all-reduce", t, "1GiB", form)
        assert 0.98 * optimum < built.size_bytes / simulate(built, chunks=chunks).time_s <= optimum


def between_groups(built: Schedule, group: np.ndarray) -> float:
    """Bytes on links between groups of nodes, by the routes of all transfers, in arrays; -1: nodes of no group."""
    t, transfers = built.topology, built.pattern.transfers()
    paths = paths_of(transfers, t)
    crosses = (group[t.src] != group[t.dst])[paths.links]
    many = np.add.reduceat(np.append(crosses, 0), paths.ptr[:-1])
    return float((transfers.blocks * many[paths.index]).sum() * built.block_bytes / built.size_bytes)


def groups_of(t: Topology, per: int) -> np.ndarray:
    """Consecutive ranks, with the switch that they share; other switches are a group of their own."""
    group = np.full(t.n_nodes, -1)
    group[: t.n_npus] = np.arange(t.n_npus) // per
    hosts = t.src < t.n_npus
    group[t.dst[hosts]] = group[t.src[hosts]]
    return group
