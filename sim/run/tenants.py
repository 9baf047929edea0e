"""What each tenant of a fabric takes beside the others, and what it would take alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Unpack

import numpy as np

from sim.faults.cost import finite
from sim.faults.plan import FaultPlan
from sim.how import How
from sim.lower.tenants import Tenant
from sim.program import I64
from sim.program.model import Model, make_model
from sim.program.model_options import ModelOptions
from sim.result import Result
from sim.run.share import Share
from sim.run.tenant_accounts import tenant_accounts
from sim.simulation import simulate
from topologies import WeftError
from topologies.checks import checked, choice
from topologies.text.brief import one_line
from topologies.text.notebook import Tabular
from topologies.units import PS_PER_S, parse_time


@checked
@one_line
@dataclass(frozen=True, eq=False)
class Shares(Tabular):
    """All tenants of a run.

    Attributes
    ----------
    shares : tuple of Share
        In the order of the tenants.
    run : Result
        Of all tenants as one job.
    """

    shares: tuple[Share, ...]
    run: Result = field(repr=False)

    @property
    def time_ps(self) -> int:
        """End of the last tenant."""
        return self.run.time_ps

    def rows(self) -> list[dict[str, Any]]:
        """One row per tenant: when it starts and ends, its time, its time alone, and its critical path."""
        return [
            {
                "tenant": share.name, "start_s": share.arrival_ps / PS_PER_S, "time_s": share.time_ps / PS_PER_S,
                "alone_s": share.alone_ps / PS_PER_S, "slowdown": finite(share.slowdown),
                "end_s": (share.arrival_ps + share.time_ps) / PS_PER_S,
                "why": {"makespan_ps": share.time_ps, "parts_ps": self.why(share.name)},
            }
            for share in self.shares
        ]

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


@checked
def share_fabric(
    tenants: Sequence[Tenant], model: Model = Model(), *, engine: str = "chunk", symmetry: str = "auto",
    check: bool = False, max_events: int | None = None, faults: FaultPlan | None = None,
    done: Callable[[str, int], None] = lambda what, time_ps: None, **options: Unpack[ModelOptions],
) -> Shares:
    """Run several collectives and jobs at once, and each of them alone.

    Parameters
    ----------
    tenants : sequence of Tenant
        All on the same topology.
    model : Model
        Where to start from; `options` change it. Where tenants differ in priority its discipline must be "priority".
    engine : {"chunk", "reference"}
    symmetry : {"auto", "off"}
    check : bool
        Check the certificates.
    max_events : int, optional
        Give up a run after this many services.
    faults : FaultPlan, optional
        Of the run of all tenants; each one alone is healthy.
    done : callable (what, time_ps)
        Called after the run of all tenants, and after that of each one alone.
    **options : ModelOptions
        As `simulate` takes them.

    Raises
    ------
    WeftError
        What `sim.lower.tenants.merge` rejects.
    Deadlock
        Faults leave tenants that can never finish; names what waits for what.

    Examples
    --------
    >>> from topologies import ring
    >>> from collectives import ring as rings
    >>> fabric = ring(4)
    >>> work = rings.all_reduce(fabric, "64KiB")
    >>> both = share_fabric([Tenant(name="a", work=work), Tenant(name="b", work=work)])
    >>> [one.slowdown > 1 for one in both.shares]
    [True, True]
    """
    choice(engine, ("chunk", "reference"), "engine of tenants")
    model = make_model(model, **options)
    how = How(check=check, max_events=max_events).arguments()
    run = simulate(tenants, model=model, engine=engine, symmetry=symmetry, log=True, faults=faults, **how)
    done("all together", run.time_ps)
    finish_ps = _operations_end_ps(run)
    shares = []
    for tenant in tenants:
        arrival_ps = parse_time(tenant.arrival, "arrival")
        span = _operations_of(run, tenant.name)
        end_ps = int(finish_ps[span.start : span.stop].max(initial=arrival_ps))
        alone = simulate(
            [replace(tenant, arrival="0s")], model=model, engine=engine, symmetry=symmetry, **how
        )
        done(f"{tenant.name} alone", alone.time_ps)
        shares.append(Share(tenant.name, end_ps - arrival_ps, alone.time_ps, arrival_ps, span))
    return Shares(tuple(shares), run)


def _operations_of(run: Result, tenant: str) -> range:
    """The operations of a tenant, which follow each other."""
    mine = [number for number, operation in enumerate(run.job.operations) if operation.tenant == tenant]
    return range(mine[0], mine[-1] + 1) if mine else range(0)


def _operations_end_ps(run: Result) -> I64:
    operation = run.lowered.task_operation
    finish = np.zeros(len(run.job.operations), np.int64)
    np.maximum.at(finish, operation, run.logged.finish_ps[: operation.size])
    return finish
