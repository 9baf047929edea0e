"""What each tenant of a fabric takes beside the others, and what it would take alone."""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, Unpack

import numpy as np

from sim.faults.cost import finite, slowdown, times
from sim.faults.plan import FaultPlan
from sim.how import How
from sim.lower.tenants import Tenant
from sim.program import I64
from sim.program.model import Model, make_model
from sim.program.model_options import ModelOptions
from sim.result import Result
from sim.simulation import simulate
from sim.why.backward import MEETS, NONE
from sim.why.faulty_path import walk_of
from sim.why.path import Piece, Wait, Waits, classes_of
from sim.why.spans import Names
from topologies.checks import WeftError, checked, choice
from topologies.core.paths import distinct_of
from topologies.process import few_searches
from topologies.stages import staged
from topologies.text.brief import Tabular, one_line
from topologies.units import PS_PER_S, format_time, parse_time
from workloads.job import Reconfigure


@dataclass(frozen=True)
class Share:
    """One tenant's part of a run."""

    name: str
    time_ps: int  # from its arrival to its end
    alone_ps: int  # the same with the fabric to itself, and healthy
    arrival_ps: int = 0
    operations: range = range(0)  # its operations in the job of all tenants

    @property
    def slowdown(self) -> float:
        """Time over the time alone; 1 where both are 0, and infinite where it takes no time alone."""
        return slowdown(self.time_ps, self.alone_ps)

    def __str__(self) -> str:
        return f"{self.name}: {format_time(self.time_ps)}, alone {format_time(self.alone_ps)} {times(self.slowdown)}"


NOBODY = -1
"""Owner of the arrivals, and of what faults delay: they have one name for all tenants."""


@staged("critical path")
@few_searches()
def tenant_accounts(run: Result, shares: Sequence[Share]) -> dict[str, dict[str, int]]:
    """The account of each tenant; see `Shares.why`.

    `run`: of all tenants as one job.
    """
    return _Accounts(run, shares).all()


class _Accounts:
    """Names and paths of one run."""

    def __init__(self, run: Result, shares: Sequence[Share]) -> None:
        self.run, self.shares, lowered = run, shares, run.lowered
        owner = np.full(len(run.job.operations), NOBODY, np.int64)
        for number, share in enumerate(shares):
            owner[share.operations] = number
        self.task_owner = owner[lowered.task_operation]
        self.classes = classes_of(
            (who, isinstance(one.work, Reconfigure), one.name if who == NOBODY else "")
            for who, one in zip(owner.tolist(), run.job.operations, strict=True)
        )
        self.names = Names(lowered)
        self.walks = walk_of(lowered.program, run.logged, self.names.labels)

    def all(self) -> dict[str, dict[str, int]]:
        """Accounts by name, in the order of the tenants; a piece that is on many paths is looked at once."""
        last = _last_tasks(self.task_owner, self.run.logged.finish_ps[: self.task_owner.size], len(self.shares))
        late = sorted((share.arrival_ps + share.time_ps, at) for at, share in enumerate(self.shares) if share.time_ps)
        numbers = [at for _, at in reversed(late)]  # the longest first, which the others meet
        waits = Waits.of([Wait(int(last[at]), self.shares[at].arrival_ps, True) for at in numbers])
        rows, first = self.walks.walked(waits)
        piece = rows.view(np.ndarray)
        is_part = piece["what"] > MEETS
        on, meets = np.flatnonzero(is_part), np.flatnonzero(~is_part)
        ways = zip(numbers, map(partial(_ranges, piece, meets), first.tolist(), waits.since_ps.tolist()), strict=True)
        paths = {number: ends for number, ends in ways if ends}
        times, keys = self._times(piece, on, paths)
        none = np.zeros(len(keys), np.int64)
        return {share.name: self._account(at, keys, times.get(at, none)) for at, share in enumerate(self.shares)}

    def _times(
        self, piece: Any, on: I64, paths: dict[int, list[tuple[int, int]]]
    ) -> tuple[dict[int, I64], list[tuple[int, str]]]:
        """How long each path is on pieces of each key, and the keys; `on`: the pieces that do not only lead on."""
        cuts = distinct_of(np.array([ends for path in paths.values() for ends in path], np.int64))
        classes, n = self.names.class_of(piece["task"][on], self.classes), self.classes.size + 1
        cut = np.repeat(np.arange(cuts.size + 1), np.diff(np.searchsorted(on, cuts), prepend=0, append=on.size))
        trail, group = self.walks.together(piece.take(on), cut * n + classes)
        numbers = [*paths]
        lasts, path = self.walks.named(piece[[ends[-1][1] - 1 for ends in paths.values()]])
        some, kind = self.names.kinds(self.walks, trail.before(lasts), self.classes)
        total = np.zeros((cuts.size + 1, len(some)), np.int64)  # of all pieces before each cut
        np.add.at(total, (group // n, kind[: group.size]), trail.length_ps)
        np.cumsum(total, axis=0, out=total)
        times = {number: np.zeros(len(some), np.int64) for number in numbers}
        for number, ends in paths.items():
            for begin, end in np.searchsorted(cuts, ends):
                times[number] += total[end] - total[begin]
        parts = zip(path.tolist(), kind[group.size :].tolist(), lasts.start_ps, lasts.end_ps, strict=True)
        for at, of, start_ps, end_ps in parts:  # the last piece may have begun before the arrival
            times[numbers[at]][of] -= max(min(end_ps, self.shares[numbers[at]].arrival_ps) - start_ps, 0)
        return times, [self._key(one) for one in some]

    def _account(self, number: int, keys: Sequence[tuple[int, str]], times: I64) -> dict[str, int]:
        parts: dict[str, int] = {}
        for at in sorted(np.flatnonzero(times).tolist(), key=keys.__getitem__):
            owner, said = keys[at]
            name = said if owner in (NOBODY, number) else f"behind {self.shares[owner].name}: {said}"
            parts[name] = parts.get(name, 0) + int(times[at])
        return dict(sorted(parts.items(), key=lambda part: -part[1]))

    def _key(self, piece: Piece) -> tuple[int, str]:
        """The owner and the name of a piece."""
        owner = NOBODY if piece.server in self.run.lowered.late else int(self.task_owner[piece.task])
        return owner, self.names.name(piece, "operation" if owner == NOBODY else "dimension")


def _ranges(piece: Any, meets: I64, first: int, since_ps: int) -> list[tuple[int, int]]:
    """Where the pieces of a path back to a time lie, from its first one on; the last one may begin before that.

    `meets`: the pieces at which a path goes on where another one is.
    """
    at, found = first, list[tuple[int, int]]()
    while at != NONE:
        end = int(meets[np.searchsorted(meets, at)])
        inside = at + bisect_left(range(at, end), -since_ps, key=lambda one: -int(piece["start_ps"][one]))
        if inside < end:
            return [*found, (at, inside + 1)]
        found += [(at, end)] if end > at else []
        at = int(piece["at"][end])
    return found


def _last_tasks(owner: I64, finish_ps: I64, n_owners: int) -> I64:
    """The first of the tasks of each owner that end last, (n_owners,); 0 where it has none."""
    order = np.lexsort((-np.arange(owner.size), finish_ps))
    order = order[owner[order] != NOBODY]
    last = np.zeros(n_owners, np.int64)
    last[owner[order]] = order  # of several, the last one stays
    return last


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
    shares = []
    for tenant, span, end_ps in _spans(run, tenants):
        arrival_ps = parse_time(tenant.arrival, "arrival")
        alone = simulate([replace(tenant, arrival="0s")], model=model, engine=engine, symmetry=symmetry, **how)
        done(f"{tenant.name} alone", alone.time_ps)
        shares.append(Share(tenant.name, end_ps - arrival_ps, alone.time_ps, arrival_ps, span))
    return Shares(tuple(shares), run)


def ends_ps(tenants: Sequence[Tenant], **run: Any) -> dict[str, int]:
    """When each tenant ends, by name, in a run of all; `run` as `simulate` takes it."""
    return {tenant.name: end_ps for tenant, _, end_ps in _spans(simulate(tenants, log=True, **run), tenants)}


def _spans(run: Result, tenants: Sequence[Tenant]) -> Iterator[tuple[Tenant, range, int]]:
    """The operations of each tenant, and when the last one ends."""
    finish_ps = _operations_end_ps(run)
    for tenant in tenants:
        span = _operations_of(run, tenant.name)
        yield tenant, span, int(finish_ps[span.start : span.stop].max(initial=parse_time(tenant.arrival, "arrival")))


def _operations_of(run: Result, tenant: str) -> range:
    """The operations of a tenant, which follow each other."""
    mine = [number for number, operation in enumerate(run.job.operations) if operation.tenant == tenant]
    return range(mine[0], mine[-1] + 1) if mine else range(0)


def _operations_end_ps(run: Result) -> I64:
    operation = run.lowered.task_operation
    finish = np.zeros(len(run.job.operations), np.int64)
    np.maximum.at(finish, operation, run.logged.finish_ps[: operation.size])
    return finish
