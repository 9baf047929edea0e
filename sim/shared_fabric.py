"""Several collectives and jobs on one fabric at once: what each takes, and what it would take alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from collectives.schedule import Schedule
from sim.faults import FaultPlan
from sim.iteration import IterationResult, simulate_job
from sim.model import Model
from topologies import WeftError
from topologies.units import Quantity, format_time, parse_time
from workloads.job import Job


@dataclass(frozen=True, eq=False, kw_only=True)
class Tenant:
    """A collective or a job that shares the fabric.

    Attributes
    ----------
    name : str
    work : Schedule or Job
    arrival : quantity
    priority : int
        Small first, on links and streams; added to the priorities of a job's own operations.
    """

    name: str
    work: Schedule | Job
    arrival: Quantity = "0s"
    priority: int = 0


@dataclass(frozen=True)
class Share:
    """One tenant's part of a run.

    Attributes
    ----------
    name : str
    time_ps : int
        From its arrival to its end.
    alone_ps : int
        The same with the fabric to itself, and healthy.
    """

    name: str
    time_ps: int
    alone_ps: int

    @property
    def slowdown(self) -> float:
        """Time over the time alone; 1 where both are 0."""
        return self.time_ps / self.alone_ps if self.alone_ps else 1.0

    def __str__(self) -> str:
        alone = format_time(self.alone_ps)
        return f"{self.name}: {format_time(self.time_ps)}, alone {alone} ({self.slowdown:.2f} times)"


@dataclass(frozen=True, eq=False)
class SharedResult:
    """All tenants of a run.

    Attributes
    ----------
    shares : tuple of Share
        In the order of the tenants.
    run : IterationResult
        Of all tenants as one job.
    """

    shares: tuple[Share, ...]
    run: IterationResult = field(repr=False)

    @property
    def time_ps(self) -> int:
        """End of the last tenant."""
        return self.run.time_ps

    def __str__(self) -> str:
        faults = [] if self.run.faults is None else [str(self.run.faults)]
        return "\n".join([*(str(share) for share in self.shares), *faults])


def simulate_shared(
    tenants: Sequence[Tenant], model: Model = Model(), *, engine: str = "chunk", symmetry: str = "auto",
    check: bool = False, faults: FaultPlan | None = None,
) -> SharedResult:
    """Run several collectives and jobs at once.

    Parameters
    ----------
    tenants : sequence of Tenant
        All on the same topology.
    model : Model
        Its discipline must be "priority" where the tenants differ in priority.
    engine : {"chunk", "reference"}
    symmetry : {"auto", "off"}
    check : bool
        Check the certificates.
    faults : FaultPlan, optional

    Raises
    ------
    WeftError
        No tenants, two of one name, tenants on different topologies, or priorities that nothing looks at.

    Examples
    --------
    >>> from topologies import ring
    >>> from collectives import ring as rings
    >>> fabric = ring(4)
    >>> work = rings.all_reduce(fabric, "64KiB")
    >>> both = simulate_shared([Tenant(name="a", work=work), Tenant(name="b", work=work)])
    >>> [share.slowdown > 1 for share in both.shares]
    [True, True]
    """
    _check(tenants, model)
    job, spans = _merge(tenants, model)
    how = {"engine": engine, "symmetry": symmetry, "check": check}
    run = simulate_job(job, model, faults=faults, **how)  # type: ignore[arg-type]  # keywords of these names
    operation = run.lowered.task_operation
    finish = np.zeros(len(job.operations), np.int64)
    np.maximum.at(finish, operation, run.outcome.finish_ps[: operation.size])
    shares = []
    for tenant, span in zip(tenants, spans, strict=True):
        end = int(finish[span.start : span.stop].max(initial=0))
        alone = simulate_job(_merge([replace(tenant, arrival="0s")], model)[0], model, **how)  # type: ignore[arg-type]  # as above
        shares.append(Share(tenant.name, end - parse_time(tenant.arrival, "arrival"), alone.time_ps))
    return SharedResult(tuple(shares), run)


def _check(tenants: Sequence[Tenant], model: Model) -> None:
    if not tenants:
        raise WeftError("a shared fabric needs at least one tenant")
    names = [tenant.name for tenant in tenants]
    if len(set(names)) < len(names):
        raise WeftError(f"two tenants have the name {next(name for name in names if names.count(name) > 1)!r}")
    for tenant in tenants:
        if tenant.work.topology is not tenants[0].work.topology:
            raise WeftError(f"tenants {names[0]!r} and {tenant.name!r} are not on the same topology")
    if len({tenant.priority for tenant in tenants}) > 1 and model.discipline != "priority":
        raise WeftError(f"the tenants differ in priority and the links serve {model.discipline}: choose priority")


def _merge(tenants: Sequence[Tenant], model: Model) -> tuple[Job, list[range]]:
    """All tenants as one job, and the operations of each."""
    first = tenants[0].work
    speeds = [tenant.work.speed for tenant in tenants if isinstance(tenant.work, Job) and tenant.work.speed is not None]
    job = Job(first.topology, speed=speeds[0] if speeds else None)
    spans = []
    for tenant in tenants:
        arrival_ps = parse_time(tenant.arrival, "arrival")
        # Streams of one name are shared: the wait for an arrival must not occupy one.
        wait = f"arrival of {tenant.name}"
        # Cut-through raises the latency after a computation to 1 ps.
        waited_ps = max(arrival_ps - (model.forwarding == "cut-through"), 0)
        arrival = [job.compute(wait, waited_ps, stream=wait)] if arrival_ps else []
        begin = len(job.operations)
        if isinstance(tenant.work, Job):
            for one in tenant.work.operations:
                after = tuple(begin + other for other in one.after) or tuple(arrival)
                name, priority = f"{tenant.name}: {one.name}", tenant.priority + one.priority
                job.operations.append(replace(one, name=name, after=after, priority=priority))
        else:
            job.collective(tenant.name, tenant.work, after=arrival, priority=tenant.priority)
        spans.append(range(begin, len(job.operations)))
    return job, spans
