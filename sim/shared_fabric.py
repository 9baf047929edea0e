"""Several collectives and jobs on one fabric at once: what each takes, and what it would take alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from collectives.schedule import Schedule
from sim.fault_cost import slowdown, times
from sim.faults import FaultPlan
from sim.faulty_run import faulty_labels, place_job
from sim.iteration import IterationResult, simulate_job
from sim.lower_faults import Faulty
from sim.model import Model
from sim.why import Piece, Wait, walk_back
from sim.why_faults import walk_back_faults
from topologies import WeftError
from topologies.units import Quantity, format_time, parse_time
from workloads.job import CLOCK, Job

MOST_PRIORITY = 2**31 - 1
"""Priorities are 32 bits wide."""


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
    npus : tuple of int, optional
        Of a collective: whole process groups of its schedule; all of them unless given.

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
        if not isinstance(self.name, str) or not self.name.strip():
            raise WeftError(f"tenant {self.name!r}: a name is text, and not empty")
        where = f"tenant {self.name!r}"
        if not isinstance(self.work, (Schedule, Job)):
            raise WeftError(f"{where}: the work {self.work!r} is neither a schedule nor a job")
        if isinstance(self.arrival, bool):
            raise WeftError(f"{where}: arrival {self.arrival!r} is not a time")
        parse_time(self.arrival, f"{where}: arrival")
        if isinstance(self.priority, bool) or not isinstance(self.priority, int):
            raise WeftError(f"{where}: priority {self.priority!r} is not a whole number")
        own = [one.priority for one in self.work.operations] if isinstance(self.work, Job) else [0]
        for priority in (self.priority, *(self.priority + one for one in own)):
            if not -MOST_PRIORITY <= priority <= MOST_PRIORITY:
                raise WeftError(f"{where}: priority {priority} is out of range: at most {MOST_PRIORITY} from 0")
        if self.npus is not None and isinstance(self.work, Job):
            raise WeftError(f"{where}: the operations of a job say themselves on which NPUs they are")
        if self.npus is not None and not (isinstance(self.npus, tuple) and all(type(npu) is int for npu in self.npus)):
            raise WeftError(f"{where}: npus {self.npus!r} are not a tuple of whole numbers")


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
        share = next((one for one in self.shares if one.name == name), None)
        if share is None:
            raise WeftError(f"no tenant has the name {name!r}: they are {', '.join(one.name for one in self.shares)}")
        lowered, outcome = self.run.lowered, self.run.outcome
        mine = np.flatnonzero(np.isin(lowered.task_operation, share.operations))
        if not share.time_ps:
            return {}
        last = mine[np.argmax(outcome.finish_ps[mine])]
        faulty = (
            Faulty(lowered.program, {}, lowered.server_link) if self.run.faults is None else self.run.faults.faulty
        )
        walk = walk_back if outcome.journal is None else walk_back_faults
        labels = faulty_labels(faulty, place_job(lowered))
        (path,) = walk(self.run.program, outcome, labels, [Wait(int(last), share.arrival_ps, delivered=True)])
        parts: dict[str, int] = {}
        for piece in path:
            said = labels.server(piece.server) if piece.server in faulty.late else self._said(piece, share.name)
            parts[said] = parts.get(said, 0) + piece.end_ps - piece.start_ps
        return dict(sorted(parts.items(), key=lambda part: -part[1]))

    def _said(self, piece: Piece, name: str) -> str:
        """The name of a piece in the account of one tenant."""
        number = int(self.run.lowered.task_operation[piece.task])
        owner = next((one.name for one in self.shares if number in one.operations), None)
        if owner is None:
            return self.run.job.operations[number].name
        return piece.name if owner == name else f"behind {owner}: {piece.name}"

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
    _check(tenants, model)
    job, spans = _merge(tenants, model)
    run = simulate_job(job, model, engine=engine, symmetry=symmetry, check=check, faults=faults)
    operation = run.lowered.task_operation
    finish = np.zeros(len(job.operations), np.int64)
    np.maximum.at(finish, operation, run.outcome.finish_ps[: operation.size])
    shares = []
    for tenant, span in zip(tenants, spans, strict=True):
        arrival_ps = parse_time(tenant.arrival, "arrival")
        end_ps = int(finish[span.start : span.stop].max(initial=arrival_ps))
        single, _ = _merge([replace(tenant, arrival="0s")], model)
        alone = simulate_job(single, model, engine=engine, symmetry=symmetry, check=check)
        shares.append(Share(tenant.name, end_ps - arrival_ps, alone.time_ps, arrival_ps, span))
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
