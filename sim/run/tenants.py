"""Several collectives and jobs on one fabric at once: what each takes, and what it would take alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from numbers import Real

import numpy as np

from collectives.core.schedule import Schedule
from sim.faults.cost import slowdown, times
from sim.faults.names import LONGEST_TOLD, told
from sim.faults.plan import FaultPlan
from sim.program.contract import check_choice
from sim.program.model import SYMMETRY, Model
from sim.run.iteration import IterationResult, simulate_job
from sim.run.tenant_accounts import tenant_accounts
from topologies import WeftError
from topologies.text.brief import one_line
from topologies.units import Quantity, format_time, parse_time
from workloads.job import CLOCK, Job

MOST_PRIORITY = 2**31 - 1
"""Priorities are 32 bits wide."""

LONGEST_NAME = 60
"""Characters in the name of a tenant: it stands in tables."""


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
        Text with a unit, or seconds.
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
    arrival: Quantity = "0s"
    priority: int = 0
    npus: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        named = isinstance(self.name, str) and self.name.strip() and self.name.isprintable()
        if not named or len(self.name) > LONGEST_NAME:
            accepted = f"printable text, not empty and of at most {LONGEST_NAME} characters"
            raise WeftError(f"tenant {told(self.name)}: a name is {accepted}")
        where = f"tenant {self.name!r}"
        if not isinstance(self.work, (Schedule, Job)):
            raise WeftError(f"{where}: the work {told(self.work)} is neither a schedule nor a job")
        self._check_arrival(where)
        if isinstance(self.priority, bool) or not isinstance(self.priority, int):
            raise WeftError(f"{where}: priority {told(self.priority)} is not a whole number")
        own = [one.priority for one in self.work.operations] if isinstance(self.work, Job) else [0]
        for priority in (self.priority, *(self.priority + one for one in own)):
            if not -MOST_PRIORITY <= priority <= MOST_PRIORITY:
                raise WeftError(f"{where}: priority {told(priority)} is out of range: at most {MOST_PRIORITY} from 0")
        self._check_npus(where)

    def _check_arrival(self, where: str) -> None:
        time = self.arrival
        long = time.bit_length() > 64 if isinstance(time, int) else len(str(time)) > LONGEST_TOLD
        if isinstance(time, bool) or not isinstance(time, (str, Real)) or long:
            raise WeftError(f"{where}: arrival {told(time)} is not a time: write text with a unit, such as 300ns")
        parse_time(time, f"{where}: arrival")

    def _check_npus(self, where: str) -> None:
        if self.npus is None:
            return
        if isinstance(self.work, Job):
            raise WeftError(f"{where}: the operations of a job say themselves on which NPUs they are")
        said, n_npus = told(self.npus), self.work.topology.n_npus
        if not isinstance(self.npus, tuple) or not all(type(npu) is int for npu in self.npus):
            raise WeftError(f"{where}: npus {said} are not a tuple of whole numbers")
        if not self.npus:
            raise WeftError(f"{where}: npus are empty: name some, or leave them out for all")
        if not all(0 <= npu < n_npus for npu in self.npus):
            raise WeftError(f"{where}: npus {said}: the NPUs are 0 to {n_npus - 1}")
        if len(set(self.npus)) < len(self.npus):
            raise WeftError(f"{where}: npus {said} name an NPU twice")


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
    arrival_ps : int
    operations : range
        Its operations in the job of all tenants.
    """

    name: str
    time_ps: int
    alone_ps: int
    arrival_ps: int = 0
    operations: range = range(0)

    @property
    def slowdown(self) -> float:
        """Time over the time alone; 1 where both are 0, and infinite where it takes no time alone."""
        return slowdown(self.time_ps, self.alone_ps)

    def __str__(self) -> str:
        return f"{self.name}: {format_time(self.time_ps)}, alone {format_time(self.alone_ps)} {times(self.slowdown)}"


@one_line
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

    def why(self, name: str) -> dict[str, int]:
        """Where the time of a tenant went, in ps by name, largest first: the critical path from its arrival to its end.

        What was spent on the transfers of another tenant is called "behind" that one. The parts sum to the time.
        """
        if name not in self.accounts:
            raise WeftError(f"no tenant has the name {name!r}: they are {', '.join(self.accounts)}")
        return self.accounts[name]

    @cached_property
    def accounts(self) -> dict[str, dict[str, int]]:
        """`why` of every tenant, by name: much less work together than one by one."""
        return tenant_accounts(self.run, self.shares)

    def __str__(self) -> str:
        faults = [] if self.run.faults is None else [str(self.run.faults)]
        return "\n".join([*(str(share) for share in self.shares), *faults])


def simulate_shared(
    tenants: Sequence[Tenant], model: Model = Model(), *, engine: str = "chunk", symmetry: str = "auto",
    check: bool = False, faults: FaultPlan | None = None, done: Callable[[str, int], None] = lambda what, time_ps: None,
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
    done : callable (what, time_ps)
        Called after the run of all tenants, and after that of each one alone.

    Raises
    ------
    WeftError
        Not a list of tenants, none, two of one name, tenants on different topologies, or priorities that nothing
        looks at.
    Deadlock
        Faults leave tenants that can never end: who waits for whom.

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
    check_choice(symmetry, SYMMETRY, "symmetry")
    _check(tenants, model)
    job, spans = _merge(tenants, model)
    run = simulate_job(job, model, engine=engine, symmetry=symmetry, check=check, faults=faults)
    done("all together", run.time_ps)
    operation = run.lowered.task_operation
    finish = np.zeros(len(job.operations), np.int64)
    np.maximum.at(finish, operation, run.outcome.finish_ps[: operation.size])
    shares = []
    for tenant, span in zip(tenants, spans, strict=True):
        arrival_ps = parse_time(tenant.arrival, "arrival")
        end_ps = int(finish[span.start : span.stop].max(initial=arrival_ps))
        single, _ = _merge([replace(tenant, arrival="0s")], model)
        alone = simulate_job(single, model, engine=engine, symmetry=symmetry, check=check)
        done(f"{tenant.name} alone", alone.time_ps)
        shares.append(Share(tenant.name, end_ps - arrival_ps, alone.time_ps, arrival_ps, span))
    return SharedResult(tuple(shares), run)


def _check(tenants: Sequence[Tenant], model: Model) -> None:
    if not isinstance(tenants, (list, tuple)) or not all(isinstance(tenant, Tenant) for tenant in tenants):
        raise WeftError(f"the tenants {told(tenants)} are not a list of Tenant")
    if not isinstance(model, Model):
        raise WeftError(f"model {told(model)} is not a Model")
    if not tenants:
        raise WeftError("a shared fabric needs at least one tenant")
    names = [tenant.name for tenant in tenants]
    if len(set(names)) < len(names):
        raise WeftError(f"two tenants have the name {next(name for name in names if names.count(name) > 1)!r}")
    for tenant in tenants:
        if tenant.work.topology is not tenants[0].work.topology:
            raise WeftError(f"tenants {names[0]!r} and {tenant.name!r} are not on the same topology")
        if isinstance(tenant.work, Job) and not np.array_equal(_speed(tenant.work), _speed(_jobs(tenants)[0].work)):
            raise WeftError(f"jobs {_jobs(tenants)[0].name!r} and {tenant.name!r} give the NPUs different speeds")
    if len({tenant.priority for tenant in tenants}) > 1 and model.discipline != "priority":
        raise WeftError(f"the tenants differ in priority and the links serve {model.discipline}: choose priority")


def _jobs(tenants: Sequence[Tenant]) -> list[Tenant]:
    return [tenant for tenant in tenants if isinstance(tenant.work, Job)]


def _speed(work: Schedule | Job) -> Sequence[float]:
    speed = work.speed if isinstance(work, Job) else None
    return np.ones(work.topology.n_npus).tolist() if speed is None else speed.tolist()


def _merge(tenants: Sequence[Tenant], model: Model) -> tuple[Job, list[range]]:
    """All tenants as one job, and the operations of each."""
    first = tenants[0].work
    speeds = [tenant.work.speed for tenant in tenants if isinstance(tenant.work, Job) and tenant.work.speed is not None]
    job = Job(first.topology, speed=speeds[0] if speeds else None)
    spans = []
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
                job.operations.append(replace(one, name=name, after=after, priority=priority))
        else:
            job.collective(tenant.name, tenant.work, npus=tenant.npus, after=arrival, priority=tenant.priority)
        spans.append(range(begin, len(job.operations)))
    return job, spans
