"""Programs whose schedules are built from the bandwidths: built anew wherever these are evaluated."""

from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np

from collectives.core.schedule import Schedule
from sim.analytic.epigraph import Epigraph, flat_epigraph
from sim.analytic.traffic import F64
from sim.lower.job import lower
from sim.lower.progress import progress_told
from sim.optimizer.retime import Retimed, links_per_npu, retimed, with_bandwidths, with_base_rates
from sim.program import Program
from sim.program.model import Model
from sim.why.spread import nearby
from topologies import Topology
from topologies.core.product import DimensionOrderRouter
from workloads.job import Communicate, Job, on_network

MOST_KEPT = 32
"""Limit on the lowered programs of a part that are kept."""


class Moved(NamedTuple):
    """Bytes that an NPU has to send on average, whatever the algorithm."""

    dims: F64  # (D,): in each dimension of a product, 0 elsewhere and for groups
    total: float  # in all dimensions together


class Rebuilt:
    """A part of an objective whose schedules depend on the bandwidths.

    `build`: a job on a topology. At each bandwidths it is built; where its transfers are those of an
        earlier one, they are not lowered again.
    `most_GBps`: no allowed bandwidths sum to more, for the floor; infinite where nothing limits them.
    """

    def __init__(
        self, topology: Topology, build: Callable[[Topology], Job], model: Model, symmetry: str, most_GBps: float
    ) -> None:
        self.topology, self.build, self.model, self.symmetry = topology, build, model, symmetry
        self.most_GBps, self.n_dims = most_GBps, links_per_npu(topology).size
        self.base = with_base_rates(topology)
        self._kept: dict[tuple[object, ...], Retimed] = {}

    @property
    def rank_progress(self) -> str:
        return progress_told(self.build(self.topology), self.model)

    def retimed(self, bandwidth_GBps: F64, model: Model | None = None) -> Retimed:
        """The program of the schedules that are built from these bandwidths, at any."""
        job, model = self.build(with_bandwidths(self.topology, bandwidth_GBps)), model or self.model
        emitted = (model, *(schedule.pattern.emit for schedule in _schedules(job)))
        if emitted not in self._kept:
            if len(self._kept) >= MOST_KEPT:
                del self._kept[next(iter(self._kept))]
            self._kept[emitted] = retimed(lower(on_network(job, self.base), model, self.symmetry))
        return self._kept[emitted]

    def perturbed(self, bandwidth_GBps: F64, away: F64, number: int, rng: np.random.Generator) -> Program:
        """The program of a perturbed run, of schedules that are built from bandwidths a little away."""
        model = nearby(self.topology, self.model, number, rng)
        return self.retimed(bandwidth_GBps * (1 + away), model).at(bandwidth_GBps)

    def floor(self) -> Epigraph:
        """What holds for every schedule, whatever its order: the bytes that NPUs have to send, over the bandwidths."""
        if self.model.deliver == "head":
            return flat_epigraph(0.0, np.ones(1), [(0, 0.0, np.zeros(self.n_dims))], self.n_dims)
        job = self.build(self.topology)
        dims, total = np.zeros(self.n_dims), 0.0
        for operation in job.operations:
            if isinstance(operation.work, Communicate):
                moved = least_moved(operation.work.schedule)
                share = 1.0 if operation.npus is None else len(operation.npus) / self.topology.n_npus
                dims, total = dims + share * moved.dims, total + share * moved.total
        rows = [(0, 0.0, row) for row in np.diag(dims)]
        return flat_epigraph(0.0, np.ones(1), [*rows, (0, total / self.most_GBps, np.zeros(self.n_dims))], self.n_dims)


def least_moved(schedule: Schedule) -> Moved:
    """Bytes that an NPU sends on average in any schedule of a collective without reducing switches.

    Parts of a product that differ in one coordinate exchange through the links of that dimension: each byte that one
    needs of another crosses them at least once. An all-reduce is a reduce-scatter and an all-gather.
    """
    topology, kind = schedule.topology, schedule.kind.name
    size, members = schedule.size_bytes, schedule.pattern.group_size
    extents = np.ones(links_per_npu(topology).size)
    if members == schedule.pattern.p and isinstance(topology.router, DimensionOrderRouter):
        extents = np.array(topology.shape, np.float64)
    if kind == "all-to-all":
        dims = size * (extents - 1) / extents
        return Moved(dims, max(float(dims.sum()), size * (members - 1) / members))
    factor = 2 if kind == "all-reduce" else 1
    return Moved(factor * size * (extents - 1) / members, factor * size * (members - 1) / members)


def _schedules(job: Job) -> Iterable[Schedule]:
    return (one.work.schedule for one in job.operations if isinstance(one.work, Communicate))
