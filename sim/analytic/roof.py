"""The roof over every algorithm: what the fabric allows at each size, by its tightest cut and its longest path."""

from fractions import Fraction
from typing import NamedTuple

import numpy as np

from collectives.core.collective import COLLECTIVES, collective
from sim.analytic.cut_bound import cut_bound
from topologies import Topology
from topologies.checks import checked, number
from topologies.units import PS_PER_S


class Roof(NamedTuple):
    """Two limits on the time of a collective, whatever the algorithm."""

    latency_s: float  # of the longest among the quickest paths between two NPUs whose data must meet
    s_per_byte: Fraction  # of the tightest cut

    def time_s(self, size_bytes: float) -> float:
        """No run of this size is faster."""
        number(size_bytes, "size_bytes", 0)
        return max(self.latency_s, float(self.s_per_byte) * size_bytes)

    @property
    def ridge_bytes(self) -> float:
        """The size at which both limits are equal; 0 where no byte must move."""
        return self.latency_s / float(self.s_per_byte) if self.s_per_byte else 0.0


@checked
def roof(
    topology: Topology, kind: str, root: int = 0, *, endpoint_latency_ps: int = 0, reducing_switches: bool = False
) -> Roof:
    """The roof of a collective on a fabric, for chunks that are delivered with their tail.

    Parameters
    ----------
    topology : Topology
    kind : str
        Name of the collective.
    root : int
        Of a broadcast or reduce.
    endpoint_latency_ps : int
        What every transfer spends outside the links.
    reducing_switches : bool
        Whether switches may reduce.

    Raises
    ------
    WeftError
        NPUs that cannot be reached, or a collective without a bound.
    """
    kind = collective(kind).name
    bound = cut_bound(topology, kind, root, reducing_switches=reducing_switches)
    if topology.n_npus == 1:
        return Roof(0.0, bound.s_per_byte)
    latency_ps = _longest_way_ps(topology, kind, root) + endpoint_latency_ps
    return Roof(latency_ps / PS_PER_S, bound.s_per_byte)


def _longest_way_ps(topology: Topology, kind: str, root: int) -> int:
    """Longest among the quickest paths that contributions must take: between any two NPUs, or from or to the root."""
    from scipy.sparse import coo_array  # heavy: loaded where it is used
    from scipy.sparse.csgraph import dijkstra

    n = topology.n_nodes
    weights = np.maximum(topology.latency_ps + topology.hop_latency_ps[topology.dst], 1)
    order = np.lexsort((weights, topology.dst, topology.src))
    pairs, first = np.unique(topology.src[order].astype(np.int64) * n + topology.dst[order], return_index=True)
    ends = pairs % n, pairs // n  # backwards: into the sources of the search
    graph = coo_array((weights[order][first].astype(np.float64), ends), shape=(n, n)).tocsr()
    sources = np.array([root]) if COLLECTIVES[kind].rooted else np.arange(topology.n_npus)
    ways = dijkstra(graph.T if kind in ("broadcast", "scatter") else graph, indices=sources)
    return int(ways[:, : topology.n_npus].max())
