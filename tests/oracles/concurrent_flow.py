"""The largest concurrent flow of a step as a linear program over all routes."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.optimize import linprog
from scipy.sparse import csr_array

from collectives.reconfiguration_plan import Step
from topologies import Topology, WeftError


def max_concurrent_flow(topology: Topology, step: Step) -> float:
    """The largest share of all messages of a step that the fabric can carry in a second, over any routes.

    A linear program over the flows from each source; for fabrics of some tens of nodes.

    Returns
    -------
    float
        1 / seconds; 0 where some pair has no route, infinite where nothing is sent.
    """
    demand: dict[int, dict[int, float]] = {}
    for a, b, size in zip(step.src, step.dst, step.size_bytes, strict=True):
        if a != b and size:
            demand.setdefault(a, {})[b] = demand.get(a, {}).get(b, 0.0) + size
    if not demand:
        return float("inf")
    n_links, n_nodes, sources = topology.n_links, topology.n_nodes, sorted(demand)
    unit = float(topology.bandwidth_Bps.max(initial=1.0))
    columns = len(sources) * n_links + 1  # flow of each source on each link, then the share
    node = np.concatenate([topology.src, topology.dst]).astype(np.int64)
    sign = np.repeat([1.0, -1.0], n_links)
    link = np.tile(np.arange(n_links), 2)
    rows: list[npt.NDArray[np.int64]] = []
    cols: list[npt.NDArray[np.int64]] = []
    values: list[npt.NDArray[np.float64]] = []
    for at, source in enumerate(sources):
        rows.append(at * n_nodes + node)
        cols.append(at * n_links + link)
        values.append(sign)
        wanted = np.zeros(n_nodes)
        for target, wish in demand[source].items():
            wanted[target] += wish / unit
            wanted[source] -= wish / unit
        rows.append(at * n_nodes + np.arange(n_nodes))
        cols.append(np.full(n_nodes, columns - 1))
        values.append(wanted)
    shape = (len(sources) * n_nodes, columns)
    kept = csr_array((np.concatenate(values), (np.concatenate(rows), np.concatenate(cols))), shape=shape)
    each = np.arange(len(sources) * n_links)
    load = csr_array((np.ones(each.size), (each % n_links, each)), shape=(n_links, columns))
    aim = np.zeros(columns)
    aim[-1] = -1.0
    found = linprog(
        aim, A_ub=load, b_ub=topology.bandwidth_Bps / unit, A_eq=kept, b_eq=np.zeros(shape[0]), method="highs"
    )
    if found.status != 0:
        raise WeftError(f"the largest concurrent flow on {topology.name} was not found: {found.message}")
    return float(found.x[-1])
