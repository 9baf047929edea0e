"""One program at many bandwidths: only service times change; dependencies and chunks do not."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import cached_property, lru_cache

import numpy as np
import numpy.typing as npt

from sim.analytic.bounds import busy_and_path_ps
from sim.analytic.convex import Epigraph, flat_epigraph
from sim.analytic.traffic import F64
from sim.lower.lowered import Lowered
from sim.program.columns import crossings, work_of_servers, work_ps
from sim.program.contract import HEAD, I64, Program
from sim.program.retime import KEEPS_ITS_RATE, Retimer
from topologies import NPU, Topology, WeftError
from topologies.units import PS_PER_S

GB = 10**9
ANY_GBPS = 1e15
"""Where nothing limits bandwidths, so much of each for the chain of the floor."""

ONE_MORE_GBPS = 1.0
"""Also allowed: what one more GB/s of budget saves is asked, and a solver may overdraw a budget a little."""

PS_PER_BASE_BYTE = 2
"""Time of a byte in dimension 0 at its base rate."""


@dataclass(frozen=True, eq=False)
class Retimed:
    """A program whose servers belong to dimensions."""

    program: Program  # at any bandwidths
    server_dim: I64  # (S,): dimension of each server, `KEEPS_ITS_RATE` for one whose rate is fixed
    servers_per_npu: F64  # (D,): number of servers that share an NPU's bandwidth into a dimension: 2 for a ring
    most_GBps: float = math.inf  # no allowed bandwidth is higher, for the floor
    lowered: Lowered | None = None  # from which the program is, for the circuits that take turns in it
    cut: "Callable[[int, np.random.Generator], Retimed] | None" = None  # as perturbed runs are cut and routed
    rank_progress: str = "free"  # what ranks wait for before their next step, for people
    free: "Callable[[], Retimed] | None" = None  # with ports that go on alone, where ranks wait by default

    @property
    def n_dims(self) -> int:
        """Dimensions of the fabric."""
        return int(self.servers_per_npu.size)

    def retimed(self, bandwidth_GBps: F64) -> "Retimed":
        """Itself: its transfers do not depend on the bandwidths."""
        return self

    def perturbed(self, bandwidth_GBps: F64, away: F64, number: int, rng: np.random.Generator) -> "Retimed":
        """The structure of a perturbed run, whose rates and starts are still to be changed."""
        return self if self.cut is None else self.cut(number, rng)

    def alone(self, bandwidth_GBps: F64) -> "Retimed | None":
        """The structure with ports that go on alone, where ranks wait by default."""
        return None if self.free is None else self.free()

    def at(self, bandwidth_GBps: F64) -> Program:
        """The program with an NPU's bandwidth into each dimension, (D,) GB/s."""
        return self._retimer([Fraction(rate) for rate in rates_of_links(bandwidth_GBps, self.servers_per_npu)])

    @cached_property
    def _retimer(self) -> Retimer:
        return Retimer(self.program, self.n_dims, self.server_dim)

    def loads(self) -> tuple[F64, float]:
        """Bytes of an NPU's share that the busiest server of each dimension needs, (D,), and of the fixed ones, in ns.

        No run at any bandwidth is faster than load / B: a server serves one chunk at a time.
        """
        program = self.program
        work = work_of_servers(program).astype(np.float64)
        if program.delivers_heads:  # the service of a last chunk does not count
            tasks = np.flatnonzero(program.hops())
            ends = program.route_hop[program.route_ptr[program.task_route[tasks] + 1] - 1]
            task, server = crossings(program, tasks[program.hop_last[ends] == HEAD])
            longest = np.zeros(program.n_servers)
            np.maximum.at(longest, server, program.chunk_work[program.cut_size[program.task_cut[task]]].max(axis=1))
            work -= longest
        load = np.array([work[self.server_dim == dim].max(initial=0.0) for dim in range(self.n_dims)])
        fixed_ps = work_ps(program)[self.server_dim == KEEPS_ITS_RATE].max(initial=0)
        return load * self.servers_per_npu, float(fixed_ps) / 1e3

    def floor(self) -> Epigraph:
        """The load bound as a function of the bandwidths, and the longest chain of tasks at the highest of them.

        The chain counts what no bandwidth shortens: computations and latencies, one after the other.
        """
        load, fixed_ns = self.loads()
        most = self.at(np.full(self.n_dims, min(self.most_GBps + ONE_MORE_GBPS, ANY_GBPS)))
        chain_ns = np.nextafter(busy_and_path_ps(most)[1] / 1e3, 0.0)  # in ps no more than the chain, however rounded
        rows = [(0, 0.0, np.eye(self.n_dims)[dim] * load[dim]) for dim in range(self.n_dims)]
        constant = [(0, max(fixed_ns, chain_ns), np.zeros(self.n_dims))]
        return flat_epigraph(0.0, np.ones(1), [*rows, *constant], self.n_dims)


def retimed(lowered: Lowered, most_GBps: float = math.inf) -> Retimed:
    """The lowered program of a schedule or a job, at any bandwidth of the dimensions of its topology.

    `most_GBps`: no allowed bandwidth is higher.
    `lowered`: on a network of `with_base_rates`, at which no symmetry exchanges dimensions.
    WeftError: a link without a dimension, or another network.
    """
    topology, orbits = lowered.topology, lowered.orbits.link
    if np.any(topology.dimension < 0):
        raise WeftError(f"topology {topology.name} has links without a dimension, whose bandwidth nobody can choose")
    if np.any(topology.bandwidth_Bps != _base_rates(topology)):
        raise WeftError(f"topology {topology.name} must have its base rates (with_base_rates) to be timed at others")
    if np.any(topology.dimension[orbits] != topology.dimension):
        raise WeftError(f"{lowered.symmetry} exchanges dimensions, whose bandwidths differ")
    links = lowered.server_link
    dims = np.where(links >= 0, topology.dimension[np.maximum(links, 0)].astype(np.int64), KEEPS_ITS_RATE)
    return Retimed(lowered.program, dims, links_per_npu(topology), most_GBps, lowered)


def _base_rates(topology: Topology) -> F64:
    rates: F64 = PS_PER_S / (PS_PER_BASE_BYTE * 2.0 ** topology.dimension)
    return rates


@lru_cache(maxsize=4)  # one for all parts of an objective: what is found of its links and routes is found once
def with_base_rates(topology: Topology) -> Topology:
    """The network at rates of 2, 4, 8, ... ps per byte in dimensions 0, 1, 2, ...: no two dimensions look alike.

    WeftError: circuits that a policy changes.
    """
    if topology.optics is not None and topology.optics.policy:
        raise WeftError(f"bandwidths of dimensions on {topology.name}: circuits stay, so leave out the policy")
    return topology.with_links(bandwidth_Bps=_base_rates(topology))


def with_bandwidths(topology: Topology, bandwidth_GBps: npt.ArrayLike) -> Topology:
    """The network with an NPU's bandwidth into each dimension, (D,) GB/s, spread evenly over its links there."""
    rate = np.array(rates_of_links(np.asarray(bandwidth_GBps, np.float64), links_per_npu(topology)))
    return topology.with_links(bandwidth_Bps=rate[topology.dimension])


def rates_of_links(bandwidth_GBps: F64, links: F64) -> list[float]:
    """Rate of a link of each dimension, bytes per second, where an NPU's bandwidth is spread over some links.

    A bandwidth is the decimal that it is written as: 5.3 GB/s are 5,300,000,000 bytes per second, and no less.
    """
    return [
        float(Decimal(repr(one)) * GB / Decimal(share))
        for one, share in zip(bandwidth_GBps.tolist(), links.tolist(), strict=True)
    ]


def links_per_npu(topology: Topology) -> F64:
    """Links over which an NPU's bandwidth into each dimension is spread, (D,).

    2 for a ring, n - 1 for a fully connected block, 1 for a switch; the mean over NPUs where they differ (the ends of
    a line). Of a tier that joins no NPU each has its share of the cables, so that bandwidth is what the network has. On
    a rotor, those that are up at once.
    """
    if topology.optics is not None and topology.optics.dwell_ps:
        return np.array([float(topology.optics.ports)])
    n_dims = int(topology.dimension.max(initial=-1)) + 1
    leaves_npu = topology.kind[topology.src] == NPU
    counts = np.bincount(topology.dimension[leaves_npu], minlength=n_dims).astype(np.float64)
    every = np.bincount(topology.dimension[topology.dimension >= 0], minlength=n_dims)
    return np.where(counts > 0, counts, every / 2) / topology.n_npus
