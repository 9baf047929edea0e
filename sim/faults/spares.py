"""Spare cubes of a pod: circuits are switched to one of them, in the place of a cube with a chip that is down."""

from dataclasses import replace

import numpy as np

from sim.faults.names import node_named
from sim.faults.plan import FaultPlan, NodeDown, Repair
from topologies import Topology
from topologies.optics import CUBE
from topologies.units import parse_time


def with_spares(fabric: Topology, plan: FaultPlan) -> FaultPlan:
    """The plan in which a cube with a chip that goes down is dark for a delay, then as built: while spares last."""
    optics = fabric.optics
    if optics is None or not optics.spares:
        return plan
    cube = [tuple(at) for at in (np.asarray(fabric.coords)[: fabric.n_npus] // CUBE).tolist()]
    left, until_ps, more = optics.spares, dict[tuple[int, ...], int](), list[NodeDown | Repair]()
    for fault in sorted((one for one in plan.faults if isinstance(one, NodeDown)), key=lambda one: parse_time(one.at)):
        at_ps, where = parse_time(fault.at), cube[node_named(fabric, fault.node, npu=True)]
        if not left or at_ps <= until_ps.get(where, -1):
            continue
        left, until_ps[where] = left - 1, at_ps + optics.delay_ps
        names = [fabric.node_name(npu) for npu, other in enumerate(cube) if other == where]
        more += [NodeDown(node=name, at=fault.at) for name in names]
        more += [Repair(node=name, at=f"{until_ps[where]}ps") for name in names]
    return replace(plan, faults=(*plan.faults, *(one for one in more if one not in plan.faults)))
