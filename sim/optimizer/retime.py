"""One program at many bandwidths: only service times change; dependencies and chunks do not."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import NamedTuple

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
from topologies.core.epochs import packet_links
from topologies.units import PS_PER_S
from workloads.circuits import least_ps

GB = 10**9
ANY_GBPS = 1e15
"""Where nothing limits bandwidths, so much of each for the chain of the floor."""

ONE_MORE_GBPS = 1.0
"""Also allowed: what one more GB/s of budget saves is asked, and a solver may overdraw a budget a little."""

PS_PER_BASE_BYTE = 2
"""Time of a byte in dimension 0 at its base rate."""


class Least(NamedTuple):
    """What no run at any bandwidths takes less than."""

    load_bytes: F64  # (D,): over the bandwidth of each dimension
    time_ns: float

    def floor(self) -> Epigraph:
        """It as a function of the bandwidths."""
        rows = [(0, 0.0, row) for row in np.diag(self.load_bytes)]
        constant = [(0, self.time_ns, np.zeros(self.load_bytes.size))]
        return flat_epigraph(0.0, np.ones(1), [*rows, *constant], self.load_bytes.size)


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
    circuits: F64 | None = None  # (S,): how many circuits each server is; one where omitted
    free: "Callable[[], Retimed] | None" = None  # with ports that go on alone, where ranks wait by default

    @property
    def n_dims(self) -> int:
        """Dimensions of the fabric."""
        return int(self.servers_per_npu.size)

    def retimed(self, bandwidth_GBps: F64) -> "Retimed":
        """Itself: its transfers do not depend on the bandwidths."""
        return self

    def perturbed(self, bandwidth_GBps: F64, away: F64, number: int, rng: "np.random.Generator") -> "Retimed":
        """The structure of a perturbed run, whose rates and starts are still to be changed."""
        return self if self.cut is None else self.cut(number, rng)

    def alone(self, bandwidth_GBps: F64) -> "Retimed | None":
        """The structure with ports that go on alone, where ranks wait by default."""
        return None if self.free is None else self.free()

    def at(self, bandwidth_GBps: F64) -> Program:
        """The program with an NPU's bandwidth into each dimension, (D,) GB/s."""
        rates, retimer = np.array(rates_of_links(bandwidth_GBps, self.servers_per_npu)), self._retimer
        return retimer([Fraction(float(rates[int(dim)] * circuits)) for dim, circuits in self._kinds[0].T])

    @cached_property
    def _kinds(self) -> tuple[F64, I64]:
        """Dimension and number of circuits of servers, (2, K), those of a dimension first; and which each has, (S,)."""
        chosen = self.server_dim != KEEPS_ITS_RATE
        each = np.stack([self.server_dim, np.ones(chosen.size) if self.circuits is None else self.circuits])
        kinds, kind = np.unique(each[:, chosen], axis=1, return_inverse=True)
        of_server = np.full(chosen.size, KEEPS_ITS_RATE)
        of_server[chosen] = kind.reshape(-1)
        return kinds, of_server

    @cached_property
    def _retimer(self) -> Retimer:
        kinds, of_server = self._kinds
        return Retimer(self.program, kinds.shape[1], of_server)

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
        work = work if self.circuits is None else work / self.circuits
        load = np.array([work[self.server_dim == dim].max(initial=0.0) for dim in range(self.n_dims)])
        fixed_ps = work_ps(program)[self.server_dim == KEEPS_ITS_RATE].max(initial=0)
        return load * self.servers_per_npu, float(fixed_ps) / 1e3

    def least(self) -> Least:
        """The load bound, and the longest chain of tasks at the highest bandwidths.

        The chain counts what no bandwidth shortens: computations and latencies, one after the other.
        """
        load, fixed_ns = self.loads()
        most = self.at(np.full(self.n_dims, min(self.most_GBps + ONE_MORE_GBPS, ANY_GBPS)))
        chain_ns = np.nextafter(busy_and_path_ps(most)[1] / 1e3, 0.0)  # in ps no more than the chain, however rounded
        return Least(load, max(fixed_ns, chain_ns))

    def least_ps(self, bandwidth_GBps: F64) -> int:
        """What the changes of its circuits take."""
        return 0 if self.lowered is None else least_ps(self.lowered.job)


def retimed(lowered: Lowered, most_GBps: float = math.inf) -> Retimed:
    """The lowered program of a schedule or a job, at any bandwidth of the dimensions of its topology.

    `most_GBps`: no allowed bandwidth is higher.
    `lowered`: on a network of `with_base_rates`, at which no symmetry exchanges dimensions.
    WeftError: a link without a dimension, or another network.
    """
    topology, orbits = lowered.topology, lowered.orbits.link
    dimension, links = dimensions(topology), lowered.server_link
    if np.any(dimension < 0):
        raise WeftError(f"topology {topology.name} has links without a dimension, whose bandwidth nobody can choose")
    if np.any(topology.bandwidth_Bps != with_base_rates(topology).bandwidth_Bps):
        raise WeftError(f"topology {topology.name} must have its base rates (with_base_rates) to be timed at others")
    if np.any(dimension[orbits] != dimension):
        raise WeftError(f"{lowered.symmetry} exchanges dimensions, whose bandwidths differ")
    dims = np.where(links >= 0, dimension[links].astype(np.int64), KEEPS_ITS_RATE)
    circuits = np.where(links >= 0, _circuits(topology)[links], 1.0) if switches(topology) else None
    return Retimed(lowered.program, dims, links_per_npu(topology), most_GBps, lowered, circuits=circuits)


def switches(topology: Topology) -> bool:
    """Whether a policy switches circuits for the operations of jobs."""
    return topology.optics is not None and bool(topology.optics.policy)


def dimensions(topology: Topology) -> npt.NDArray[np.integer]:
    """Among what a budget is split: the dimension of each link, (L,); one for all circuits that are switched.

    It comes after the dimension of links that stay, which lead to a packet switch.
    """
    if not switches(topology):
        return topology.dimension
    stays = packet_links(topology)
    return np.where(stays, 0, int(stays.any()))


def _circuits(topology: Topology) -> F64:
    """How many circuits each link is where they are switched, (L,); one elsewhere."""
    if not switches(topology):
        return np.ones(topology.n_links)
    assert topology.optics is not None
    parallel: F64 = np.rint(topology.bandwidth_Bps / topology.optics.rate_Bps)
    return np.where(packet_links(topology), 1.0, parallel)


@lru_cache(maxsize=4)  # one for all parts of an objective: what is found of its links and routes is found once
def with_base_rates(topology: Topology) -> Topology:
    """The network at rates of 2, 4, 8, ... ps per byte in dimensions 0, 1, 2, ...: no two dimensions look alike."""
    return _at_rates(topology, PS_PER_S / (PS_PER_BASE_BYTE * 2.0 ** np.arange(max(links_per_npu(topology).size, 1))))


def with_bandwidths(topology: Topology, bandwidth_GBps: npt.ArrayLike) -> Topology:
    """The network with an NPU's bandwidth into each dimension, (D,) GB/s, spread evenly over its links there.

    Of circuits that are switched, over all ports, whatever they are connected to.
    """
    rates = rates_of_links(np.asarray(bandwidth_GBps, np.float64), links_per_npu(topology))
    return _at_rates(topology, np.array(rates))


def _at_rates(topology: Topology, rate_Bps: F64) -> Topology:
    """The network whose links in each dimension have a rate, (D,), and circuits that are switched as well."""
    found = topology.with_links(bandwidth_Bps=rate_Bps[dimensions(topology)] * _circuits(topology))
    if not switches(topology):
        return found
    assert topology.optics is not None
    return replace(found, optics=topology.optics._replace(rate_Bps=float(rate_Bps[-1])))


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
    a line). Of a tier that joins no NPU each has its share of the cables, so that bandwidth is what the network has. Of
    circuits that are switched, or take turns, as many as there are ports.
    """
    optics, dimension = topology.optics, dimensions(topology)
    n_dims = int(dimension.max(initial=-1)) + 1
    leaves_npu = topology.kind[topology.src] == NPU
    counts = np.bincount(dimension[leaves_npu], minlength=n_dims).astype(np.float64)
    every = np.bincount(dimension[dimension >= 0], minlength=n_dims)
    found: F64 = np.where(counts > 0, counts, every / 2) / topology.n_npus
    if optics is not None and (optics.policy or optics.dwell_ps) and not packet_links(topology).all():
        found[-1] = optics.ports
    return found
