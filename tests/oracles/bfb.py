"""What the fullest link of each step carries in a breadth-first broadcast."""

from __future__ import annotations

from fractions import Fraction

from collectives.bfb import _all_loads
from topologies import Topology
from topologies.flows.cuts import whole_capacities


def step_loads(topology: Topology) -> list[Fraction]:
    """Load of the fullest link in each step, in shards times the least bandwidth over its own bandwidth."""
    _, rates = whole_capacities(topology.bandwidth_Bps)
    return [max(loads) * min(rates) for loads in zip(*_all_loads(topology), strict=True)]
