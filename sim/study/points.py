"""Points of a comparison: one algorithm at one size, in its better form, in this process or in several."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from concurrent.futures import Future, as_completed
from contextlib import suppress
from dataclasses import replace
from functools import partial
from threading import Lock
from typing import Any, NamedTuple

import numpy as np

from collectives import Schedule, algorithm, hierarchical, in_network, themis
from collectives.formats.files import called
from collectives.registry import check_implements
from collectives.trees.edge_disjoint import most_trees
from sim.analytic.bounds import bounds
from sim.analytic.program_bound import flows_bound_ps
from sim.engine.run import MOST_SERVICES
from sim.how import How
from sim.lower.credits import NoRoom
from sim.lower.job import lower
from sim.program.model import Model
from sim.program.outcome import Deadlock, Progress
from sim.program.perturb import SHARE
from sim.result import Result
from sim.simulation import check_limits, simulate
from sim.study.choice import BestForm, best_form, choose, floor_of_all, ready_forms
from sim.study.circuits import PLANNED, planned, switched_form
from sim.study.processes import check_workers, processes
from sim.study.spec import Spec
from sim.why.spread import RUNS
from topologies import TOPOLOGIES, Topology, WeftError
from topologies.checks import choice
from topologies.core.components import components
from topologies.optics import layouts
from topologies.registry import OWN_FAMILIES
from topologies.text.brief import one_line
from topologies.text.input_text import stamp_of
from topologies.units import PS_PER_S, counted, format_time

SPREAD_SERVICES = 2_000_000
"""Limit on the services of perturbed runs that nobody asked for: a third of a second. Beyond, there are none."""

RUN_SERVICES = 80_000
"""Services that a core does while a small run is prepared: 4 ms."""

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
    spread: int | None = 0  # perturbed runs; None: a few where they are cheap


Row = dict[str, Any]
"""One tidy row: of `Result.row`, with `why` (of `Why`; {} unless asked for), `other_forms` and `notes`."""


def compute(task: Task, progress: Callable[[Progress], None] | None = None) -> Row:
    """The row of one point."""
    return row_of(task, simulate_point(task, progress))


def row_of(task: Task, best: BestForm) -> Row:
    """The row of a point that has been simulated."""
    why = best.result.why() if task.why else None
    account = {} if why is None else {"makespan_ps": why.makespan_ps, "parts_ps": why.parts}
    notes = [*best.result.notes(), *_gains(best.result, task.max_events)]
    options = TUNED if best.result.job.topology.optics else TUNED[:-1]
    tuned = {option: task.spec.options_of(task.algorithm).get(option) for option in options} | _split(best.name)[1]
    ends = range_of(task, best.result)
    chosen = {"chunks_chosen": best.result.model.chunks if task.spec.chooses else None}
    return best.result.row() | ends | chosen | tuned | {"why": account, "other_forms": best.others, "notes": notes}


def what_ran(spec: Spec, topology: Topology, row: Mapping[str, Any]) -> tuple[Schedule, Model]:
    """The schedule and the model of a row, with the form, trees, chunks and discipline that were chosen for it.

    WeftError: it cannot be built, or no algorithm of the spec has the name in the row.
    """
    names = {called(name): name for name in spec.algorithms}
    name = names[choice(row["algorithm"], names, "algorithm of the spec")]
    tuned = {option: row[option] for option in TUNED if row.get(option) is not None}
    circuits = tuned.pop("circuits", None)
    topology = topology if circuits in (None, PLANNED) else layouts(topology)[circuits]
    form = row.get("form") if row.get("form") in spec.forms_of(name) else None
    schedule = spec.build_schedule(name, topology, row["size_bytes"], form, **tuned)
    cut = {key: row[key] for key in ("chunk_bytes", "chunks", "discipline") if key in row}
    model = replace(spec.build_model(), **cut)
    return planned(schedule, model) if circuits == PLANNED else schedule, model


def range_of(task: Task, result: Result) -> dict[str, float | None]:
    """Keys of a row: the range of a point under perturbations, if it was asked for, or is cheap."""
    runs = task.spread
    healthy = result.faults is None and result.outcome is not None and result.engine == "chunk"
    if runs is None:
        runs = RUNS if healthy and RUNS * result.events <= SPREAD_SERVICES else 0
    spread = result.spread(runs) if runs else None
    return {"spread_low_s": spread and spread.low_s, "spread_high_s": spread and spread.high_s}


def _gains(result: Result, max_events: int | None) -> list[str]:
    """Reason why a run with faults is faster than the healthy one; both are run once more, with a log."""
    if result.faults is None or result.faults.time_ps >= result.faults.healthy_ps:
        return []
    healthy = simulate(result.schedule, model=result.model, engine=result.engine, max_events=max_events).why().parts
    faulty = result.why().parts
    saved = {name: ps - faulty.get(name, 0) for name, ps in healthy.items()}
    most = max(saved, key=lambda name: saved[name])
    return [
        f"faster than healthy: the critical path has {format_time(saved[most])} less of {most}: with these faults "
        "chunks meet in another order" + (" or on other links" if result.faults.detours else "")
    ]


def simulate_point(task: Task, progress: Callable[[Progress], None] | None = None) -> BestForm:
    """Simulate one point, in the better form."""
    return simulate_ready(task, *ready_point(task), progress)


def ready_point(task: Task) -> tuple[dict[str, Schedule], dict[str, str]]:
    """The forms of a point that can run, and why the others cannot; nothing is simulated.

    WeftError: no form can run.
    """
    return _ready(task.spec, topology_of(task.spec), task.algorithm, task.size_bytes)


def simulate_ready(
    task: Task, ready: Mapping[str, Schedule], refused: Mapping[str, str],
    progress: Callable[[Progress], None] | None = None,
) -> BestForm:
    """Simulate the forms of `ready_point` that can be the best, and where circuits may be switched what may beat it."""
    best = simulate_static(task, ready, refused, progress)
    if task.spec.engine == "analytic":
        return best
    how = How(check=task.check, max_events=task.max_events)
    return switched_form(ready, best, partial(_final(task, progress), model=best.result.model), how)


def _final(task: Task, progress: Callable[[Progress], None] | None) -> Callable[..., Result]:
    return partial(
        simulate, engine=task.spec.engine, symmetry=task.spec.symmetry, check=task.check, progress=progress,
        max_events=task.max_events, faults=task.spec.build_faults(),
    )


def simulate_static(
    task: Task, ready: Mapping[str, Schedule], refused: Mapping[str, str],
    progress: Callable[[Progress], None] | None = None,
) -> BestForm:
    """Simulate the forms of `ready_point` that can be the best, on circuits that stay as they are."""
    spec, faults = task.spec, task.spec.build_faults()
    # the trials of `choose` are all of the chunk engine
    check_limits(spec.engine, task.max_events, task.check)
    final = _final(task, progress)
    if spec.chooses:
        is_final = spec.engine == "chunk" and not task.check and faults is None

        def run(schedule: Schedule) -> Result:
            chosen = _chosen(task, schedule, progress)
            return chosen if is_final else final(schedule, model=chosen.model)
    else:
        run = partial(final, model=spec.build_model())
    bounded = spec.engine != "analytic" and (faults is None or not faults.moves_routes)
    return best_form(ready, run, refused, floor=partial(floor_ps, spec) if bounded else None)


def floor_ps(spec: Spec, schedule: Schedule) -> int:
    """Lower bound on the time of a point, whatever chunks are chosen for it."""
    model = spec.build_model()
    if spec.chooses:
        return floor_of_all(schedule, model, spec.symmetry)
    lowered = lower(schedule, model, spec.symmetry)
    return flows_bound_ps(lowered) if spec.engine == "fluid" else bounds(lowered).best_ps


def _chosen(task: Task, schedule: Schedule, progress: Callable[[Progress], None] | None) -> Result:
    """The run with the chunks and the discipline that suit a schedule, on the fabric without faults."""
    spec = task.spec
    trial = partial(simulate, symmetry=spec.symmetry, progress=progress, max_events=task.max_events)
    return choose(
        schedule, spec.build_model(), lambda tried, model: trial(tried, model=model), symmetry=spec.symmetry,
        discipline=None if spec.model.discipline else algorithm(task.algorithm).discipline,
    )


def refusals(
    spec: Spec, names: Sequence[str], size_bytes: int, begin: Callable[[str], None] = lambda name: None,
    done: Callable[[str], None] = lambda name: None, *, first: bool = False,
) -> dict[str, str]:
    """Why algorithms cannot run, at the largest size; those that can are left out. Nothing is simulated.

    Chunks that do not fit the buffers of links are left to each point: those of smaller sizes may.

    `begin`, `done`: called before and after the schedule of each algorithm is built and checked.
    `first`: whether one reason is enough, so that nothing is built after it.
    WeftError: with `first`, an algorithm that does not implement the collective, before anything is built.
    """
    topology = topology_of(spec)
    spec.build_model()  # an error in the model or the fabric is not a limit of an algorithm
    check_joined(topology)
    refused: dict[str, str] = {}
    for name in names if first else ():
        check_implements(name, spec.kind.name)
    for name in names:
        if first and refused:
            break
        begin(name)
        try:
            _ready(spec, topology, name, size_bytes)
        except NoRoom:
            pass
        except WeftError as wrong:
            refused[name] = str(wrong)
        done(name)
    return refused


def check_cost(spec: Spec, names: Sequence[str], max_events: int | None) -> None:
    """Reject points that together have more services than anybody waits for unasked, perturbed runs included.

    `names`: algorithms that can run. The largest size tells of all; chunks are those before any are chosen.
    """
    runs, model, sizes = 1 + (spec.account.spread or 0), spec.build_model(), spec.sizes_bytes
    if max_events is not None or spec.engine != "chunk":
        return
    each = [0]
    for name in names:
        with suppress(NoRoom):  # which its smaller sizes may have
            ready, _ = ready_point(Task(spec, name, max(sizes)))
            each.append(min(lower(one, model, spec.symmetry).program.chunk_hops() for one in ready.values()))
    alike = sum(sizes) / max(1, *sizes) if model.chunk_bytes and not model.chunks else len(sizes)
    services = round((sum(each) + RUN_SERVICES * len(names)) * alike * runs)
    if services > MOST_SERVICES:
        perturbed = f", each {runs:,} times (--spread)" if runs > 1 else ""
        raise WeftError(
            f"{counted(len(names), 'algorithm')} at {counted(len(sizes), 'size')}{perturbed} take as long as about "
            f"{services:,} services; more than {MOST_SERVICES:,}, which take a core many minutes, must be asked for: "
            f"use fewer of them, larger chunks, or --max-events ({max(each)} are enough for each run)"
        )


def check_joined(topology: Topology) -> None:
    """Reject a fabric in which an NPU cannot reach another.

    WeftError: with such a pair.
    """
    together = components(topology.n_nodes, topology.src, topology.dst, strong=True)[: topology.n_npus]
    apart = np.flatnonzero(together != together[0])
    if apart.size:
        names = topology.node_name(0), topology.node_name(int(apart[0]))
        raise WeftError(f"topology {topology.name}: no route joins {names[0]} and {names[1]} in both directions")


def compute_all(
    tasks: Sequence[Task],
    workers: int = 1,
    done: Callable[[Task, Row], None] = lambda task, row: None,
    progress: Callable[[Progress], None] | None = None,
    stuck: Callable[[Task, WeftError], None] | None = None,
    left_out: Callable[[Task, int], None] | None = None,
) -> list[Row]:
    """Every point, in the order of the tasks, whatever the number of workers.

    `workers`: processes; 1 computes in this one.
    `done`: called as each point is ready.
    `progress`: called inside long points, with one worker only.
    `stuck`: called for each point that can never end under its faults, or whose chunks do not fit the buffers; it has
        no row. The first is raised unless given.
    `left_out`: called, with a lower bound in ps, for each point that is not computed, for it is slower than two others
        of its size; it has no row. Unless given, none is left out.
    """
    check_workers(workers)
    if left_out is not None:
        return _fastest(tasks, workers, done, progress, stuck, left_out)
    if workers == 1 or len(tasks) < 2:
        ended = ((index, partial(compute, task, progress)) for index, task in enumerate(tasks))
        return _collected(tasks, ended, done, stuck)
    with processes(min(workers, len(tasks))) as pool:
        found: dict[Future[Row], int] = {pool.submit(compute, task): index for index, task in enumerate(tasks)}
        return _collected(tasks, ((found[one], one.result) for one in as_completed(found)), done, stuck)


def leaves_out(spec: Spec) -> bool:
    """Whether the bounds of a spec's points hold for everything that is tried of them, perturbed runs included."""
    return spec.chooses and spec.engine == "chunk" and spec.build_faults() is None


def _fastest(
    tasks: Sequence[Task], workers: int, done: Callable[[Task, Row], None],
    progress: Callable[[Progress], None] | None, stuck: Callable[[Task, WeftError], None] | None,
    left_out: Callable[[Task, int], None],
) -> list[Row]:
    """The points of each size that may be among its two fastest; a process takes all of a size."""
    rows: dict[Task, Row] = {}

    def tell(task: Task, found: Row | WeftError | int) -> None:
        if isinstance(found, int):
            left_out(task, found)
        elif isinstance(found, WeftError):
            if stuck is None:
                raise found
            stuck(task, found)
        else:
            rows[task] = found
            done(task, found)

    every = dict.fromkeys(one.size_bytes for one in tasks)
    sizes = [[task for task in tasks if task.size_bytes == size] for size in every]
    if workers == 1 or len(sizes) < 2:
        for some in sizes:
            _of_size(some, progress, tell)
    else:
        with processes(min(workers, len(sizes))) as pool:
            for one in as_completed([pool.submit(_of_size, some) for some in sizes]):
                for task, found in one.result():
                    tell(task, found)
    return [rows[task] for task in tasks if task in rows]


def _of_size(
    tasks: Sequence[Task], progress: Callable[[Progress], None] | None = None,
    tell: Callable[[Task, Row | WeftError | int], None] = lambda task, found: None,
) -> list[tuple[Task, Row | WeftError | int]]:
    """The points of one size, those with the lowest bound first: rows, why there is none, or the bounds of others."""
    ended: list[tuple[Task, Row | WeftError | int]] = []
    points: list[tuple[int, Task, dict[str, Schedule], dict[str, str]]] = []
    times_ps: list[float] = []
    high_ps = 0.0  # of the fastest

    def end(task: Task, found: Row | WeftError | int) -> None:
        ended.append((task, found))
        tell(task, found)

    for task in tasks:
        try:
            ready, refused = ready_point(task)
            points.append((min(floor_ps(task.spec, one) for one in ready.values()), task, ready, refused))
        except NoRoom as wrong:
            end(task, wrong)
    for floor_ps, task, ready, refused in sorted(points, key=lambda point: point[0]):
        if len(times_ps) > 1 and floor_ps * (1 - 2 * SHARE) > max(times_ps[1], high_ps):
            end(task, floor_ps)
            continue
        try:
            row = row_of(task, best := simulate_ready(task, ready, refused, progress))
        except (Deadlock, NoRoom) as wrong:
            end(task, wrong)
            continue
        times_ps = sorted([*times_ps, best.result.time_ps])
        if times_ps[0] == best.result.time_ps:
            high_ps = (row["spread_high_s"] or 0.0) * PS_PER_S
        end(task, row)
    return ended


def _collected(
    tasks: Sequence[Task], ended: Iterable[tuple[int, Callable[[], Row]]], done: Callable[[Task, Row], None],
    stuck: Callable[[Task, WeftError], None] | None,
) -> list[Row]:
    """Rows that arrive with the number of their point, put in the order of the tasks."""
    rows: dict[int, Row] = {}
    for index, row in ended:
        try:
            rows[index] = row()
        except (Deadlock, NoRoom) as wrong:
            if stuck is None:
                raise
            stuck(tasks[index], wrong)
        else:
            done(tasks[index], rows[index])
    return [rows[index] for index in sorted(rows)]


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
            if key in self._known:
                self._known.move_to_end(key)
                return self._known[key]
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
    family = TOPOLOGIES.get((spec.topology.spec or "").strip().partition(":")[0])
    if family is not None and family not in OWN_FAMILIES:
        return spec.build_topology()
    key = spec.topology, spec.model.preset, stamp_of(spec.fabric_file) if spec.fabric_file else ()
    return _KEPT.get(key, spec.build_topology)


_KEPT = Kept()


def _ready(spec: Spec, topology: Topology, name: str, size_bytes: int) -> tuple[dict[str, Schedule], dict[str, str]]:
    forms, more = forms_of(spec, topology, name)
    build = partial(schedule_of, spec, topology, name, size_bytes)
    ready, refused = ready_forms((*forms, *more), build, spec.build_model(), spec.symmetry, spec.engine,
                                 spec.chooses)
    return ready, {label: why for label, why in refused.items() if label not in more}


def forms_of(spec: Spec, topology: Topology, name: str) -> tuple[Sequence[str], list[str]]:
    """The forms that an algorithm is tried in ("": the only one), and those with several trees or in few parts."""
    forms, more = spec.forms_of(name) or ("",), []
    if spec.chooses:
        more += [f"{form}, trees={count}" for form in forms for count in numbers_of_trees(spec, topology, name)]
    if spec.chooses and name in PIPELINES and "pipeline_chunks" not in spec.options_of(name):
        more += [f"{form}, pipeline_chunks={parts}" for form in forms for parts in FEW_PARTS]
    if topology.optics is not None:
        labels = [*forms, *more]
        more += [f"{label}, circuits={one}" for one in [*layouts(topology)][1:] for label in labels]
    return forms, more


def schedule_of(spec: Spec, topology: Topology, name: str, size_bytes: int, label: str) -> Schedule:
    """The schedule of an algorithm in one of the forms of `forms_of`."""
    form, tuned = _split(label)
    fabric = layouts(topology)[str(circuits)] if (circuits := tuned.pop("circuits", None)) else topology
    return spec.build_schedule(name, fabric, size_bytes, form or None, **tuned)


def numbers_of_trees(spec: Spec, topology: Topology, name: str) -> list[int]:
    """Numbers of trees beyond one that are tried, where NPUs have several cables: two, and as many as there may be."""
    if name != in_network.NAME or "trees" in spec.options_of(name):
        return []
    routers = spec.options_of(name).get("routers", True) is True
    cables = int(np.bincount(topology.src, minlength=topology.n_nodes)[: topology.n_npus].min())
    most = min(cables, most_trees(topology, routers)) if topology.n_nodes <= MOST_STRIPED and cables > 1 else 1
    return sorted({2, most}) if most > 1 else []


def _split(label: str) -> tuple[str, dict[str, int | str]]:
    """The form, and the options that were chosen, of a label such as "push, trees=2, circuits=4x4"."""
    form, *tuned = label.split(", ")
    options = dict(one.split("=") for one in tuned)
    return form, {name: value if name == "circuits" else int(value) for name, value in options.items()}
