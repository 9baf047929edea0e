"""Which links and NPUs a fault plan treats alike."""

from collections.abc import Iterable

import numpy as np

from sim.faults.history import history_of
from sim.faults.plan import FaultPlan
from sim.lower.marks import Marks
from sim.program import I64
from topologies import Topology


def marks_of(topology: Topology, plan: FaultPlan) -> Marks | None:
    """Marks of a plan; None of one that no symmetry survives.

    Random losses and delays are drawn for each transfer by its number, and detours are found around each failure: both
    differ between NPUs that are otherwise alike.
    """
    history = history_of(topology, plan)
    drawn = any(history.loss.values()) or any(
        np.any(values) for values in (*history.link_jitter.values(), *history.npu_jitter.values())
    )
    if drawn or (plan.reroute is not None and history.breaks):
        return None
    late, nodes, links = history.delay_ps, history.npu_phases, history.phases
    return Marks(
        _numbers((late.get(node, 0), tuple(nodes.get(node, ()))) for node in range(topology.n_nodes)),
        _numbers(tuple(links.get(link, ())) for link in range(topology.n_links)),
    )


def _numbers(values: Iterable[object]) -> I64:
    """Equal numbers for equal values."""
    known: dict[object, int] = {}
    return np.array([known.setdefault(value, len(known)) for value in values], np.int64)
