"""Points of a comparison: one algorithm at one size, in its better form, in this process or in several."""

from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from functools import partial
from itertools import chain
from threading import Lock
from typing import Any, NamedTuple

import numpy as np

from collectives import ALGORITHMS, Schedule, algorithm, hierarchical, in_network, themis
from collectives.core.pattern import proofs_later
from collectives.formats.names import called
from collectives.registry import BUILT_IN, check_implements
from collectives.trees.edge_disjoint import most_trees
from sim.analytic.bounds import bounds, flows_bound_ps
from sim.analytic.circuits_bound import circuits_bound_ps
from sim.analytic.estimate import estimate_ps
from sim.analytic.unlowered import whole_of
from sim.engine.run import FOREVER_PS, MOST_SERVICES
from sim.how import How
from sim.lower.capacity import check_capacity
from sim.lower.credits import NoRoom
from sim.lower.job import lower
from sim.lower.lowered import Lowered
from sim.optimizer.circuits import on_circuits, orders_of, other_circuits, planned_as, tried_with
from sim.program.model import Model
from sim.program.outcome import Deadlock, Progress
from sim.result import Result
from sim.simulation import Alone, check_limits, simulate, struck
from sim.study.choice import (
    BestForm,
    best_form,
    choose,
    fitting,
    floor_of_all,
    ready_forms,
    switched_form,
    unchunked_load_ps,
)
from sim.study.overlap import OVERLAPPED, quickest_overlapped
from sim.study.spec import Spec
from sim.study.workload_keys import designs
from sim.why.spread import RUNS, Spread, spread
from topologies import TOPOLOGIES, Topology, WeftError
from topologies.checks import choice
from topologies.core.components import components
from topologies.core.extents import MAX_LINKS, links_at_most
from topologies.core.product import DimensionOrderRouter
from topologies.lazy import later
from topologies.optics import first_circuits
from topologies.registry import OWN_FAMILIES
from topologies.text.brief import one_line
from topologies.text.input_text import stamp_of
from topologies.units import PS_PER_S, counted, format_time
from workloads.job import Job

SPREAD_SERVICES = 2_000_000
"""Limit on the services of perturbed runs that nobody asked for: a third of a second. Beyond, there are none."""

MOST_PREPARED = 2**24
"""Limit on links times algorithms that nobody named: ten minutes on a core at 40 us each, as on torus:128x129, where to
half of the algorithms all NPUs are unlike."""

RUN_SERVICES = 80_000
"""Services that a core does while a small run is prepared: 4 ms."""

FEWEST_OF_WORKERS = 30_000_000
"""Services that a core does while processes start and load what they need: with fewer, one was done before two."""

PIPELINES = (hierarchical.NAME, themis.NAME)
TUNED = ("trees", "pipeline_chunks", "circuits")
"""Options of algorithms that are chosen by size, where they are not given."""

FEW_PARTS = (1, 2, 4)
"""Parts of a hierarchical collective that are tried beside its default: of small arrays, pipelines only fill."""

MOST_STRIPED = 128
"""Limit on nodes for trying several trees."""


@one_line
class Task(NamedTuple):
    """One point to compute; its row is a pure function of these."""

    spec: Spec
    algorithm: str
    size_bytes: int
    check: bool = False  # check every certificate
    why: bool = False  # account for the critical path; runs the point once more, with a log
    max_events: int | None = None  # give up after this many services
    spread: int | None = 0  # perturbed runs; None: a few where they are cheap, which `with_range` adds


Row = dict[str, Any]
"""One tidy row: of `Result.row`, with `why` (of `Why`; {} unless asked for), `other_forms` and `notes`."""


def compute(task: Task, progress: Callable[[Progress], None] | None = None) -> Row:
    """The row of one point."""
    return row_of(task, simulate_point(task, progress))


def row_of(task: Task, best: BestForm[Result]) -> Row:
    """The row of a point that has been simulated."""
    why = best.result.why() if task.why else None
    account = {} if why is None else {"makespan_ps": why.makespan_ps, "parts_ps": why.parts}
    notes = [*best.result.notes(), *_gains(best.result, task.max_events)]
    topology = topology_of(task.spec)
    label = _with_circuits(best.name, topology)
    tuned = {option: task.spec.options_of(task.algorithm).get(option) for option in TUNED[:-1]} | _split(label)[1]
    ends = NO_RANGE if task.spread is None else range_of(task, best.result)
    chosen = {"chunks_chosen": best.result.model.chunks if task.spec.chooses else None}
    fabric = {"topology": topology.name}  # whatever circuits are up, which have a column of their own
    return best.result.row() | fabric | ends | chosen | tuned | {
        "why": account, "other_forms": told_forms(best.others, topology), "notes": notes
    }


def told_forms(others: Mapping[str, str], topology: Topology) -> dict[str, str]:
    """The outcome of forms, by labels that name their circuits."""
    return {_with_circuits(label, topology).removeprefix(", "): said for label, said in others.items()}


def what_ran(spec: Spec, topology: Topology, row: Mapping[str, Any]) -> tuple[Job, Model]:
    """The job and the model of a row, with the form, trees, chunks and discipline that were chosen for it.

    WeftError: it cannot be built, or no algorithm of the spec has the name in the row.
    """
    names = {called(name): name for name in spec.algorithms}
    name = names[choice(row["algorithm"], names, "algorithm of the spec")]
    tuned = {option: row[option] for option in TUNED if row.get(option) is not None}
    circuits = tuned.pop("circuits", None)
    form = row.get("form") if row.get("form") in spec.forms_of(name) else None
    faults = spec.build_faults()
    at_first = topology.optics is not None and circuits == first_circuits(topology.optics)
    still = None if at_first or circuits == OVERLAPPED or circuits in tried_with(faults) else circuits
    schedule = on_circuits(still, topology, lambda on: spec.build_schedule(name, on, row["size_bytes"], form, **tuned))
    cut = {key: row[key] for key in ("chunk_bytes", "chunks", "discipline") if key in row}
    model = replace(spec.build_model(), **cut)
    if circuits == OVERLAPPED:
        return quickest_overlapped(orders_of(schedule)), model
    if circuits in tried_with(faults):
        schedule = planned_as(circuits, schedule, model, faults)
    return Job.of(schedule), model


NO_RANGE: dict[str, float | None] = {"spread_low_s": None, "spread_high_s": None, "alone_s": None}


def range_of(task: Task, result: Result) -> dict[str, float | None]:
    """Keys of a row: the range of a point under perturbations, if it was asked for, or is cheap."""
    runs = task.spread
    healthy = result.faults is None and result.outcome is not None and result.engine == "chunk"
    if runs is None:
        runs = RUNS if healthy and RUNS * result.events <= SPREAD_SERVICES else 0
    return _ends(result.spread(runs)) if runs else NO_RANGE


def _ends(found: Spread) -> dict[str, float | None]:
    return {"spread_low_s": found.low_s, "spread_high_s": found.high_s, "alone_s": found.alone_s}


def may_have_range(task: Task, row: Row) -> bool:
    """Whether `with_range` adds one: nobody said how many perturbed runs, and a few are cheap."""
    unsaid = task.spread is None and row["spread_low_s"] is None
    return (unsaid and task.spec.engine == "chunk" and task.spec.build_faults() is None
            and RUNS * row["events"] <= SPREAD_SERVICES)


def may_be_perturbed(task: Task, services: int) -> bool:
    """Whether a point with this many services, before its chunks are chosen, may end up with a range."""
    least = services // (task.spec.build_model().chunks or 1)
    return bool(task.spread) or (task.spread is None and RUNS * least <= SPREAD_SERVICES)


def with_range(task: Task, row: Row) -> Row:
    """The row of a point with its range, of a few perturbed runs."""
    job, model = what_ran(task.spec, topology_of(task.spec), row)
    return row | _ends(spread(job, RUNS, model=model, time_ps=round(row["time_s"] * PS_PER_S)))


def _gains(result: Result, max_events: int | None) -> list[str]:
    """Reason why a run with faults is faster than the healthy one; both are run once more, with a log."""
    if result.faults is None or result.faults.time_ps >= result.faults.healthy_ps:
        return []
    healthy = simulate(result.job, model=result.model, engine=result.engine, max_events=max_events).why().parts
    faulty = result.why().parts
    saved = {name: ps - faulty.get(name, 0) for name, ps in healthy.items()}
    most = max(saved, key=lambda name: saved[name])
    return [
        f"faster than healthy: the critical path has {format_time(saved[most])} less of {most}: with these faults "
        "chunks meet in another order" + (" or on other links" if result.faults.detours else "")
    ]


def simulate_point(task: Task, progress: Callable[[Progress], None] | None = None) -> BestForm[Result]:
    """Simulate one point, in the better form."""
    return simulate_ready(task, *ready_point(task), progress)


Forms = tuple[dict[str, Schedule], dict[str, str]]
"""The schedules of a point by their forms, and why other forms cannot run."""


def ready_point(task: Task, symmetry: str = "auto") -> Forms:
    """The forms of a point that can run, and why the others cannot; nothing is simulated.

    `symmetry`: "off" where all ranks are simulated in the end.
    WeftError: no form can run.
    """
    return _ready(task.spec, topology_of(task.spec), task.algorithm, task.size_bytes, symmetry)


def simulate_ready(
    task: Task, ready: Mapping[str, Schedule], refused: Mapping[str, str],
    progress: Callable[[Progress], None] | None = None, limit_ps: int = FOREVER_PS,
) -> BestForm[Result]:
    """Simulate the forms of `ready_point` that can be the best, and where circuits may be switched what may beat it.

    Outrun: all take longer than `limit_ps`, which counts where chunks are chosen, or plans of circuits sought.
    """
    best, stuck = static_or_never(task, ready, refused, progress, limit_ps)
    if task.spec.engine == "analytic":
        return best
    how, run = How(check=task.check, max_events=task.max_events), _final(task, progress)
    found = switched_form(
        ready, best, lambda tried, model: run(tried, model=model), how, chooses=task.spec.chooses, limit_ps=limit_ps,
        faults=task.spec.build_faults(),
    )
    if stuck is not None:
        if found is best:
            raise stuck
        found.others[best.name] = str(stuck)
    return found


def static_or_never(
    task: Task, ready: Mapping[str, Schedule], refused: Mapping[str, str],
    progress: Callable[[Progress], None] | None = None, limit_ps: int = FOREVER_PS,
) -> tuple[BestForm[Result], Deadlock | None]:
    """What `simulate_static` finds; where faults leave no form that ends, and circuits may change, one that never does.

    And why it does not.
    """
    try:
        return simulate_static(task, ready, refused, progress, limit_ps), None
    except Deadlock as stuck:
        name, schedule = next(iter(ready.items()))
        if task.spec.build_faults() is None or schedule.topology.optics is None:
            raise
        healthy = simulate(schedule, model=task.spec.build_model(), max_events=task.max_events)
        return BestForm(name, replace(healthy, time_ps=FOREVER_PS), dict(refused)), stuck


def _final(task: Task, progress: Callable[[Progress], None] | None) -> Callable[..., Result]:
    return partial(
        simulate, engine=task.spec.engine, symmetry=task.spec.symmetry, check=task.check, progress=progress,
        max_events=task.max_events, faults=task.spec.build_faults(),
    )


def simulate_static(
    task: Task, ready: Mapping[str, Schedule], refused: Mapping[str, str],
    progress: Callable[[Progress], None] | None = None, limit_ps: int = FOREVER_PS,
) -> BestForm[Result]:
    """Simulate the forms of `ready_point` that can be the best, on circuits that stay as they are.

    `limit_ps`: as for `simulate_ready`.
    """
    spec, faults = task.spec, task.spec.build_faults()
    # the trials of `choose` are all of the chunk engine
    check_limits(spec.engine, task.max_events, task.check)
    final, healthy_ps = _final(task, progress), list[int]()

    def run(schedule: Schedule) -> Result:
        found = _chosen(task, schedule, progress, limit_ps) if spec.chooses else None
        if found is not None and spec.engine == "chunk" and not task.check and faults is None:
            return found
        model = spec.build_model() if found is None else found.model
        if found is None or faults is None or not _is_known(task, schedule):
            found = final(schedule, model=model)
            healthy_ps.extend([] if found.faults is None else [found.faults.healthy_ps])
            return found
        alone = Alone.of(found, spec.symmetry)
        healthy_ps.append(alone.time_ps)
        del found  # whose arrays would stay as long as the second run takes
        return struck(schedule, model, spec.symmetry, faults, alone, progress, task.max_events)

    best = best_form(ready, run, refused, floor=None if spec.engine == "analytic" else partial(_floor_ps, spec))
    if (cost := best.result.faults) is None:
        return best
    return best._replace(result=replace(best.result, faults=replace(cost, healthy_ps=min(healthy_ps))))


def _is_known(task: Task, schedule: Schedule) -> bool:
    """Whether the run in which the chunks were chosen is the healthy one beside the faults."""
    found = task.spec.engine == "chunk" and not task.check and task.spec.build_faults() is not None
    return found and schedule.topology.optics is None


def floor_ps(spec: Spec, schedules: Iterable[Schedule], *, static: bool = False) -> int:
    """Lower bound on the time of a point in the best of its forms, whatever chunks are chosen for it.

    `static`: on circuits that stay as they are; otherwise of plans that switch them as well, where there are some.
    """
    some = [*schedules]
    found, fabric = min(_floor_ps(spec, one) for one in some), some[0].topology
    if static or fabric.optics is None:
        return found
    return min(found, circuits_bound_ps(fabric, some[0].kind, some[0].size_bytes, spec.build_model()))


def least_load_ps(spec: Spec, schedules: Iterable[Schedule]) -> int:
    """Work of the busiest server in the best form of a point, for any choice of chunks.

    Less what services are rounded up; 0 where blocks are unequal, or circuits may change.
    """
    some = [*schedules]
    if any(one.kind.weights is not None or one.topology.optics is not None for one in some):
        return 0
    return min(unchunked_load_ps(one, spec.build_model(), spec.symmetry) for one in some)


def services_of(spec: Spec, schedules: Iterable[Schedule]) -> int:
    """Services of the form that has the fewest, with the chunks before any are chosen."""
    return min(lowered(spec, one).program.chunk_hops() for one in schedules)


def most_services(spec: Spec, schedules: Iterable[Schedule]) -> int:
    """The same, or of few transfers all that there would be without symmetry: they are not lowered to tell."""
    model = spec.build_model()
    known = [whole_of(one, model) for one in schedules] if spec.chooses else [None]
    least = [one.hops * (model.chunks or 1) for one in known if one is not None]
    return services_of(spec, schedules) if len(least) < len(known) else min(least)


def estimated_ps(spec: Spec, schedules: Iterable[Schedule]) -> int:
    """Estimated time of the best form of a point with its default chunks; not a bound."""
    return min(estimate_ps(lowered(spec, one)) for one in schedules)


def lowered(spec: Spec, schedule: Schedule) -> Lowered:
    """With the chunks before any are chosen, or as many more as the buffers of links need."""
    model = spec.build_model()
    return lower(schedule, fitting(schedule, model, spec.symmetry) if spec.chooses else model, spec.symmetry)


def _floor_ps(spec: Spec, schedule: Schedule) -> int:
    model, faults = spec.build_model(), spec.build_faults()
    if faults is not None and faults.moves_routes:
        return 0
    if spec.chooses:
        return floor_of_all(schedule, model, spec.symmetry)
    made = lower(schedule, model, spec.symmetry)
    return flows_bound_ps(made) if spec.engine == "fluid" else bounds(made).best_ps


def _chosen(
    task: Task, schedule: Schedule, progress: Callable[[Progress], None] | None, limit_ps: int
) -> Result:
    """The run with the chunks and the discipline that suit a schedule, on the fabric without faults.

    Beside a run with faults only its time is told, so that it goes by symmetry, if there is one, in any case.
    """
    spec, bounded = task.spec, schedule.topology.optics is None
    alike = "auto" if _is_known(task, schedule) and schedule.pattern.groups else spec.symmetry
    trial = partial(simulate, symmetry=alike, progress=progress, max_events=task.max_events)
    designed = spec.model.discipline or schedule.pattern.in_switches  # whose trees fill the sooner with FIFO
    return choose(
        schedule, spec.build_model(),
        lambda tried, model, most_ps: trial(tried, model=model, limit_ps=most_ps if bounded else None),
        symmetry=spec.symmetry, discipline=None if designed else algorithm(task.algorithm).discipline,
        limit_ps=limit_ps if bounded else FOREVER_PS,
    )


def refusals(
    spec: Spec, names: Sequence[str], size_bytes: int, begin: Callable[[str], None] = lambda name: None,
    done: Callable[[str], None] = lambda name: None, *, first: bool = False, cost: "Cost | None" = None,
) -> dict[str, str]:
    """Why algorithms cannot run, at the largest size; those that can are left out. Nothing is simulated.

    Chunks that do not fit the buffers of links are left to each point: those of smaller sizes may.

    `begin`, `done`: called before and after the schedule of each algorithm is built and checked.
    `first`: whether one reason is enough, so that nothing is built after it.
    `cost`: of those that can run.
    WeftError: with `first`, an algorithm that does not implement the collective, before anything is built.
    """
    topology = topology_of(spec)
    spec.build_model()  # an error in the model or the fabric is not a limit of an algorithm
    check_joined(topology)
    refused: dict[str, str] = {}
    for name in names if first else ():
        check_implements(name, spec.kind.name)
    for name in names if first and len(names) > 1 else ():  # which takes less time than to lower one of the others
        if why := _unbuilt(spec, topology, name, size_bytes):
            return {name: why}
    for name in names:
        if first and refused:
            break
        begin(name)
        try:
            ready = dict[str, Schedule]()
            with suppress(NoRoom):  # which its smaller sizes may have
                ready, _ = _ready(spec, topology, name, size_bytes, "auto")
            if cost is not None:
                cost.add(name, ready.values())
        except TooMany:
            raise
        except WeftError as wrong:
            refused[name] = str(wrong)
        done(name)
    return refused


class Cost:
    """Rejects points that together have more services than anybody waits for unasked, perturbed runs included.

    The largest size tells of all; chunks are those before any are chosen.

    `at_least`: how many algorithms are simulated at each size whatever their bounds say, of the fewest services;
        all where omitted, and then the first that is too many ends the search.
    """

    def __init__(self, spec: Spec, max_events: int | None, at_least: int | None = None) -> None:
        self.spec, self.at_least = spec, at_least
        self.asked = max_events is not None or spec.engine != "chunk"
        self.each: dict[str, int] = {}

    def add(self, name: str, schedules: Collection[Schedule]) -> None:
        """One more algorithm, with the schedules of its forms at the largest size (none: no room)."""
        if self.asked:
            return
        spec, chunk = self.spec, self.spec.build_model().chunk_bytes
        count = services_of if self.at_least is None else most_services
        self.each[name] = count(spec, schedules) if schedules else 0
        if self.at_least is None or (chunk and max(spec.sizes_bytes) // chunk > MOST_SERVICES):
            self.check()  # an NPU receives its array, or nearly, by any algorithm

    @property
    def _each(self) -> list[int]:
        return sorted(self.each.values())[: self.at_least]

    @property
    def services(self) -> int:
        """Of what is simulated."""
        spec, model, sizes = self.spec, self.spec.build_model(), self.spec.sizes_bytes
        alike = sum(sizes) / max(1, *sizes) if model.chunk_bytes and not model.chunks else len(sizes)
        return round((sum(self._each) + RUN_SERVICES * len(self._each)) * alike * (1 + (spec.account.spread or 0)))

    def workers(self, asked: int) -> int:
        """How many processes are worth their start."""
        return asked if self.asked or self.services > FEWEST_OF_WORKERS else 1

    def check(self) -> None:
        """TooMany: of what is simulated."""
        sizes, runs, services = self.spec.sizes_bytes, 1 + (self.spec.account.spread or 0), self.services
        if services > MOST_SERVICES:
            perturbed = f", each {runs:,} times (--spread)" if runs > 1 else ""
            raise TooMany(
                f"{', '.join(self.each)} at {counted(len(sizes), 'size')}{perturbed} take as long as about "
                f"{services:,} services; more than {MOST_SERVICES:,}, which take a core many minutes, must be "
                f"asked for: use fewer algorithms, larger chunks, or --max-events (such as {max(self._each)})"
            )


class TooMany(WeftError):
    """More services than anybody waits for unasked."""


def check_joined(topology: Topology) -> None:
    """Reject a fabric in which an NPU cannot reach another.

    WeftError: with such a pair.
    """
    if isinstance(topology.router, DimensionOrderRouter):
        return  # a product of joined blocks
    together = components(topology.n_nodes, topology.src, topology.dst, strong=True)[: topology.n_npus]
    apart = np.flatnonzero(together != together[0])
    if apart.size:
        names = topology.node_name(0), topology.node_name(int(apart[0]))
        raise WeftError(f"topology {topology.name}: no route joins {names[0]} and {names[1]} in both directions")


MOST_LINKS = 2**21
"""Limit on the links of all fabrics that are kept: 32 MiB of rates; 8,192 of torus:8x8, whose wiring is shared."""

LAST = 4
"""Fabrics that are kept whatever their links."""


class Kept:
    """The fabrics that were asked for last, by what they were built from."""

    def __init__(self, most_links: int = MOST_LINKS) -> None:
        self.most_links, self.n_links = most_links, 0
        self._known: OrderedDict[Hashable, Topology] = OrderedDict()
        self._lock = Lock()

    def get(self, key: Hashable, build: Callable[[], Topology]) -> Topology:
        """The fabric of a key, built unless it is kept."""
        with self._lock:
            if (known := self._known.get(key)) is not None:
                self._known.move_to_end(key)
                return known
        built = build()
        with self._lock:
            found = self._known.setdefault(key, built)  # another thread may have been first
            self.n_links += built.n_links if found is built else 0
            while self.n_links > self.most_links and len(self._known) > LAST:
                self.n_links -= self._known.popitem(last=False)[1].n_links
        return found


def topology_of(spec: Spec) -> Topology:
    """The fabric of a spec; specs with the same fabric share it, and what is cached for it.

    One of a family that is not weft's own is built each time: nothing tells when what builds it has changed.
    """
    if designs(spec):
        read = later("sim.optimizer.network:read_any_network")  # what solves: of sweeps over splits alone
        found: Topology = read(str(spec.fabric), spec.topology.link_latency, spec.topology.hop_latency).topology
        return found
    family = TOPOLOGIES.get((spec.topology.spec or "").strip().partition(":")[0])
    if family is not None and family not in OWN_FAMILIES:
        return _built(spec)
    key = spec.topology, spec.model.preset, stamp_of(spec.fabric_file) if spec.fabric_file else ()
    return _KEPT.get(key, partial(_built, spec))


def _built(spec: Spec) -> Topology:
    most, why = MAX_LINKS, ""
    if spec.collective.algorithms is None and not spec.messages:
        many = len(spec.algorithms)
        most = MOST_PREPARED // many
        why = f"for {many} algorithms that nobody named, which would take many minutes: name some (--algorithms)"
    with links_at_most(most, why):
        return spec.build_topology()


_KEPT = Kept()


def at_hand(spec: Spec) -> int:
    """How many fabrics such as that of a spec are kept."""
    return max(LAST, _KEPT.most_links // max(topology_of(spec).n_links, 1))


def _ready(spec: Spec, topology: Topology, name: str, size_bytes: int, symmetry: str) -> Forms:
    forms, more = forms_of(spec, topology, name)

    def build(form: str) -> Schedule:
        schedule = schedule_of(spec, topology, name, size_bytes, form)
        if symmetry == "off":
            check_capacity(schedule.pattern, topology.n_npus)
        return schedule

    is_own = id(ALGORITHMS.get(name)) in BUILT_IN
    with proofs_later() if is_own else nullcontext():  # most are excluded by their bounds, and not simulated
        ready, refused = ready_forms(
            (*forms, *more), build, spec.build_model(), spec.symmetry, spec.engine, spec.chooses,
        )
    return ready, {label: why for label, why in refused.items() if label not in more}


def _unbuilt(spec: Spec, topology: Topology, name: str, size_bytes: int) -> str:
    """Why no form of an algorithm has a schedule; empty if one has. Nothing is proved or lowered."""
    why = ""
    with proofs_later() if id(ALGORITHMS.get(name)) in BUILT_IN else nullcontext():
        for form in chain(*forms_of(spec, topology, name)):
            try:
                schedule_of(spec, topology, name, size_bytes, form)
            except WeftError as wrong:
                why = why or str(wrong)
            else:
                return ""
    return why


def forms_of(spec: Spec, topology: Topology, name: str) -> tuple[Sequence[str], list[str]]:
    """The forms that an algorithm is tried in ("": the only one), and those with several trees or in few parts."""
    forms, more = spec.forms_of(name) or ("",), []
    if spec.chooses:
        more += [f"{form}, trees={count}" for form in forms for count in numbers_of_trees(spec, topology, name)]
    if spec.chooses and name in PIPELINES and "pipeline_chunks" not in spec.options_of(name):
        more += [f"{form}, pipeline_chunks={parts}" for form in forms for parts in FEW_PARTS]
    labels = [*forms, *more]
    return forms, more + [f"{label}, circuits={one}" for one in other_circuits(topology) for label in labels]


def schedule_of(spec: Spec, topology: Topology, name: str, size_bytes: int, label: str) -> Schedule:
    """The schedule of an algorithm in one of the forms of `forms_of`."""
    form, tuned = _split(label)
    circuits = tuned.pop("circuits", None)
    return on_circuits(circuits, topology, lambda on: spec.build_schedule(name, on, size_bytes, form or None, **tuned))


def numbers_of_trees(spec: Spec, topology: Topology, name: str) -> list[int]:
    """Numbers of trees beyond one that are tried, where NPUs have several cables: two, and as many as there may be."""
    if name != in_network.NAME or "trees" in spec.options_of(name):
        return []
    routers = spec.options_of(name).get("routers", True) is True
    cables = int(np.bincount(topology.src, minlength=topology.n_nodes)[: topology.n_npus].min())
    most = min(cables, most_trees(topology, routers)) if topology.n_nodes <= MOST_STRIPED and cables > 1 else 1
    return sorted({2, most}) if most > 1 else []


def _with_circuits(label: str, topology: Topology) -> str:
    """A label that names its circuits, where a fabric has any."""
    optics = topology.optics
    return label if optics is None or "circuits=" in label else f"{label}, circuits={first_circuits(optics)}"


def _split(label: str) -> tuple[str, dict[str, int | str]]:
    """The form, and the options that were chosen, of a label such as "push, trees=2, circuits=4x4"."""
    form, *tuned = label.split(", ")
    options = dict(one.split("=") for one in tuned)
    return form, {name: value if name == "circuits" else int(value) for name, value in options.items()}
