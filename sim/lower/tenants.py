"""Several collectives and jobs on one fabric: one job, whose operations name their tenant."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from collectives.core.schedule import Schedule
from sim.program.model import Model
from topologies.checks import MOST_COUNT, WeftError, checked, integer, told
from topologies.text.brief import one_line
from topologies.units import Time, parse_time
from workloads.job import CLOCK, Job, Priority

LONGEST_NAME = 60
"""Characters in the name of a tenant: it stands in tables."""


@checked
@one_line
@dataclass(frozen=True, eq=False, kw_only=True)
class Tenant:
    """A collective or a job that shares the fabric.

    Attributes
    ----------
    name : str
        Printable, of at most 60 characters.
    work : Schedule or Job
    arrival : quantity
        Text with a unit, or 0.
    priority : int
        Small first, on links and streams; added to the priorities of a job's own operations.
    npus : tuple of int, optional
        Of a collective: whole process groups of its schedule, each NPU once; all of them unless given.

    Raises
    ------
    WeftError
        A value that is not accepted.
    """

    name: str
    work: Schedule | Job
    arrival: Time = "0s"
    priority: Priority = 0
    npus: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        if not self.name.strip() or not self.name.isprintable() or len(self.name) > LONGEST_NAME:
            accepted = f"printable text, not empty and of at most {LONGEST_NAME} characters"
            raise WeftError(f"tenant {told(self.name)}: a name is {accepted}")
        where = f"tenant {self.name!r}"
        for one in self.work.operations if isinstance(self.work, Job) else ():
            integer(self.priority + one.priority, f"{where}: priority", -MOST_COUNT, MOST_COUNT)
        if self.npus is not None and isinstance(self.work, Job):
            raise WeftError(f"{where}: the operations of a job say themselves on which NPUs they are")
        if self.npus is not None:
            check_npus(self.npus, self.work.topology.n_npus, where)


def check_npus(npus: Sequence[int], n_npus: int, where: str) -> None:
    """Reject none, those that are not there, and those that are there twice."""
    if not npus:
        raise WeftError(f"{where}: npus are empty: name some, or leave them out for all")
    if not all(0 <= npu < n_npus for npu in npus):
        raise WeftError(f"{where}: npus {told(npus)}: the NPUs are 0 to {n_npus - 1}")
    if len(set(npus)) < len(npus):
        raise WeftError(f"{where}: npus {told(npus)} name an NPU twice")


def merge(tenants: Sequence[Tenant], model: Model) -> Job:
    """All tenants as one job.

    Each operation carries its tenant, and waits for its arrival. The arrival itself belongs to no tenant: a computation
    on a clock.

    `tenants`: all on the same topology.
    `model`: its discipline must be "priority" where the tenants differ in priority.
    WeftError: not a list of tenants, none, two of one name, tenants on different topologies, or priorities that nothing
        looks at.
    """
    _check(tenants, model)
    speeds = [tenant.work.speed for tenant in tenants if isinstance(tenant.work, Job) and tenant.work.speed is not None]
    job = Job(tenants[0].work.topology, speed=speeds[0] if speeds else None)
    for tenant in tenants:
        arrival_ps = parse_time(tenant.arrival, "arrival")
        wait = f"arrival of {tenant.name}"
        # Cut-through raises the latency after a computation to 1 ps.
        waited_ps = max(arrival_ps - (model.forwarding == "cut-through"), 0)
        arrival = [job.compute(wait, waited_ps, stream=f"{CLOCK}{wait}")] if arrival_ps else []
        begin = len(job.operations)
        if isinstance(tenant.work, Job):
            for one in tenant.work.operations:
                # What an NPU waits for is local: each operation waits for the arrival itself.
                after = (*arrival, *(begin + other for other in one.after))
                name, priority = f"{tenant.name}: {one.name}", tenant.priority + one.priority
                job.operations.append(replace(one, name=name, after=after, priority=priority, tenant=tenant.name))
        else:
            number = job.collective(tenant.name, tenant.work, npus=tenant.npus, after=arrival, priority=tenant.priority)
            job.operations[number] = replace(job.operations[number], tenant=tenant.name)
    return job


def _check(tenants: Sequence[Tenant], model: Model) -> None:
    if not isinstance(tenants, (list, tuple)) or not all(isinstance(tenant, Tenant) for tenant in tenants):
        raise WeftError(f"the tenants {told(tenants)} are not a list of Tenant")
    if not tenants:
        raise WeftError("a shared fabric needs at least one tenant")
    names = [tenant.name for tenant in tenants]
    if len(set(names)) < len(names):
        raise WeftError(f"two tenants have the name {next(name for name in names if names.count(name) > 1)!r}")
    for tenant in tenants:
        if tenant.work.topology is not tenants[0].work.topology:
            raise WeftError(f"tenants {names[0]!r} and {tenant.name!r} are not on the same topology; a plan of "
                            "circuits shares its fabric with nobody")
        if isinstance(tenant.work, Job) and not np.array_equal(_speed(tenant.work), _speed(_jobs(tenants)[0].work)):
            raise WeftError(f"jobs {_jobs(tenants)[0].name!r} and {tenant.name!r} give the NPUs different speeds")
    if len({tenant.priority for tenant in tenants}) > 1 and model.discipline != "priority":
        raise WeftError(f"the tenants differ in priority, and links that serve {model.discipline} look at none: choose "
                        "the discipline priority, which the fluid engine has not, or give all the same")


def _jobs(tenants: Sequence[Tenant]) -> list[Tenant]:
    return [tenant for tenant in tenants if isinstance(tenant.work, Job)]


def _speed(work: Schedule | Job) -> Sequence[float]:
    speed = work.speed if isinstance(work, Job) else None
    return np.ones(work.topology.n_npus).tolist() if speed is None else speed.tolist()
