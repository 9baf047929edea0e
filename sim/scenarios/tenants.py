"""What each tenant of a fabric takes beside the others, and what it would take alone.

Where tenants are placed as they come and go, and how much of what is free lies in fragments.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from itertools import pairwise
from random import Random
from typing import Any, NamedTuple, Unpack

import numpy as np
import numpy.typing as npt

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
from sim.why.path import Piece, Wait
from sim.why.spans import Names, classes_of
from topologies import Topology
from topologies.checks import WeftError, checked, choice
from topologies.core.components import components
from topologies.core.topology import NPU
from topologies.flows.load import hop_distances, link_loads
from topologies.text.brief import Tabular, one_line
from topologies.units import PS_PER_S, Time, format_time, parse_time
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
        rows, first = self.walks.walked([Wait(int(last[at]), self.shares[at].arrival_ps, True) for at in numbers])
        piece = rows.view(np.ndarray)
        on = np.flatnonzero(piece["what"] != MEETS)
        trail, source = self.walks.named(piece[on])
        some, kind = self.names.kinds(self.walks, trail, self.classes)
        paths = dict(zip(numbers, map(partial(_ranges, piece), first.tolist(), self._arrivals(numbers)), strict=True))
        cuts = np.unique([end for path in paths.values() for ends in path for end in ends])
        total = np.zeros((cuts.size + 1, len(some)), np.int64)  # of all pieces before each cut
        np.add.at(total, (np.searchsorted(cuts, on[source], side="right"), kind), trail.length_ps)
        np.cumsum(total, axis=0, out=total)
        keys, found = [self._key(one) for one in some], {}
        for number, share in enumerate(self.shares):
            times = np.zeros(len(some), np.int64)
            for begin, end in np.searchsorted(cuts, paths.get(number, np.zeros((0, 2), np.int64))):
                times += total[end] - total[begin]
            if paths.get(number):  # the last piece may have begun before the arrival
                parts = slice(*np.searchsorted(on[source], [paths[number][-1][1] - 1, paths[number][-1][1]]))
                before = np.minimum(trail.end_ps[parts], share.arrival_ps) - trail.start_ps[parts]
                np.subtract.at(times, kind[parts], np.maximum(before, 0))
            found[share.name] = self._account(number, keys, times)
        return found

    def _arrivals(self, numbers: Sequence[int]) -> list[int]:
        return [self.shares[number].arrival_ps for number in numbers]

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


def _ranges(piece: Any, first: int, since_ps: int) -> list[tuple[int, int]]:
    """Where the pieces of a path back to a time lie, from its first one on; the last one may begin before that."""
    meets, at, found = np.flatnonzero(piece["what"] == MEETS), first, list[tuple[int, int]]()
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
        return _Accounts(self.run, self.shares).all()

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


WAYS = ("packed", "random", "contention")

FAR = 1 << 30
"""More links than on any path: between NPUs without one."""

MOST_NODES = 2048
"""Of fabrics on which tenants are placed: distances between all NPUs are compared from each on."""

Npus = tuple[int, ...]
Held = tuple[Npus, int, int]  # some NPUs, from when and until when


class Wanted(NamedTuple):
    """A tenant that takes some of the free NPUs when it arrives, or waits until there are enough."""

    name: str
    way: str
    n_npus: int
    arrival: Time
    build: Callable[[Npus, str], Tenant]  # on some NPUs, from a time on


def placed(
    tenants: Sequence[Tenant | Wanted], fabric: Topology, model: Model, named: Mapping[str, Npus],
    done: Callable[[str, int], None] = lambda what, time_ps: None, **run: Any,
) -> tuple[list[Tenant], dict[str, Npus]]:
    """All tenants, and the NPUs of those that hold some: the wanted ones placed, first come, first served.

    Until the next one begins, nobody's end depends on it: each is placed by a run of all that came before.

    `named`: NPUs of the others, by tenant; those who name none hold none.
    `done` (what, time_ps): called after each is placed, with the time from which it holds NPUs.
    `run`: as `simulate` takes it.
    """
    rng, held, now_ps = Random(model.seed), dict(named), 0
    running = [one for one in tenants if isinstance(one, Tenant)]
    queue = sorted((one for one in tenants if isinstance(one, Wanted)), key=lambda one: parse_time(one.arrival))
    for one in queue:
        now_ps = max(now_ps, parse_time(one.arrival, "arrival"))
        spans = spans_of(running, held, ends_ps(running, model=model, **run) if running else {})
        while len(free := _free(spans, now_ps, fabric.n_npus)) < one.n_npus:
            now_ps = min(end for _, _, end in spans if end > now_ps)
        others = [npus for npus, begin, end in spans if begin <= now_ps < end]
        held[one.name] = choose(one.way, fabric, free, one.n_npus, others, rng, model.tie, model.seed)
        running.append(one.build(held[one.name], f"{now_ps}ps"))
        done(f"{one.name} placed", now_ps)
    by_name = {one.name: one for one in running}
    return [by_name[one.name] for one in tenants], held


def spans_of(tenants: Iterable[Tenant], held: Mapping[str, Npus], end_ps: Mapping[str, int]) -> list[Held]:
    """What is held from when until when, given when tenants end."""
    return [(held[one.name], parse_time(one.arrival), end_ps[one.name]) for one in tenants if one.name in held]


def _free(spans: Iterable[Held], now_ps: int, n: int) -> list[int]:
    taken = {npu for npus, begin, end in spans if begin <= now_ps < end for npu in npus}
    return [npu for npu in range(n) if npu not in taken]


def choose(
    way: str, fabric: Topology, free: Sequence[int], count: int, others: Sequence[Npus], rng: Random,
    tie: str = "first", seed: int = 0,
) -> Npus:
    """NPUs among the free ones, ascending.

    "random": any. "packed": from each free NPU on, always the one nearest to all that are taken; of these sets the one
    of least distances in it, then of most distance to the free ones. "contention": of these sets, first, the one whose
    routes between all of its pairs cross the fewest of those of `others`, counted on each link.
    """
    if way == "random":
        return tuple(sorted(rng.sample(free, count)))
    sets = _near(fabric, np.asarray(free), count)
    if way == "contention" and others:
        def load(npus: Npus) -> npt.NDArray[np.float64]:
            src, dst = (ends.ravel() for ends in np.meshgrid(npus, npus))
            return link_loads(fabric, src[src != dst], dst[src != dst], 1.0, tie, seed)
        busy = sum(map(load, others))
        return min(sets, key=lambda one: (round(float(load(one[-1]) @ busy), 6), *one))[-1]
    return min(sets)[-1]


def _near(fabric: Topology, free: npt.NDArray[Any], count: int) -> list[tuple[int, int, Npus]]:
    """Sets of NPUs that are near to each other: their distances, the negated one to all free NPUs, and the set."""
    apart = _distances(fabric)[np.ix_(free, free)]
    row, total, within = np.arange(free.size), apart.copy(), np.zeros(free.size, np.int64)
    taken = np.eye(free.size, dtype=bool)
    for _ in range(count - 1):
        near = np.where(taken, np.iinfo(np.int64).max, total).argmin(1)
        within += total[row, near]
        taken[row, near] = True
        total += apart[near]
    around = -(taken @ apart.sum(1))
    return [(int(within[at]), int(around[at]), tuple(free[taken[at]].tolist())) for at in row]


@cache
def _distances(fabric: Topology) -> npt.NDArray[np.int64]:
    """Links there and back, (n_npus, n_npus)."""
    apart = hop_distances(fabric)[: fabric.n_npus, : fabric.n_npus]
    apart = np.where(apart < 0, FAR, apart)
    return apart + apart.T


def spread(fabric: Topology, npus: Npus) -> float:
    """Links between two NPUs of a tenant, over those if it were packed on an empty fabric; 1 for one NPU."""
    best = min(_near(fabric, np.arange(fabric.n_npus), len(npus)))[0]
    return float(_distances(fabric)[np.ix_(npus, npus)].sum() / 2 / best) if best else 1.0


def fragments(fabric: Topology, free: Sequence[int]) -> float:
    """Share of the free NPUs outside of the largest part that free NPUs and switches join."""
    if not free:
        return 0.0
    usable = np.asarray(fabric.kind) != NPU
    usable[free] = True
    kept = usable[fabric.src] & usable[fabric.dst]
    part = components(fabric.n_nodes, fabric.src[kept], fabric.dst[kept])
    return 1 - int(np.bincount(part[free]).max()) / len(free)


def fragmentation(fabric: Topology, spans: Sequence[Held]) -> float:
    """Mean of `fragments` over the time in which any NPU is held."""
    times = sorted({time for _, *ends in spans for time in ends})
    pieces = [(end - begin, fragments(fabric, free)) for begin, end in pairwise(times)
              if len(free := _free(spans, begin, fabric.n_npus)) < fabric.n_npus]
    total = sum(length for length, _ in pieces)
    return sum(length * part for length, part in pieces) / total if total else 0.0
