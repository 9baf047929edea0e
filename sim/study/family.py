"""Points of a sweep that differ in the rates of their links alone: what one of them built serves the others.

Fabrics of one wiring share schedules, symmetry and routes, and where the same links have equal rates and all latencies
are equal, the program but for its service times. Then a point is a table of these, a run in the memory of the last one,
and its bounds; all else in its row is found as of any point. Points with choices of their own, such as a number of
chunks, and what rates decide in other ways, are computed one by one: `family_of` says which.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from fractions import Fraction
from functools import cached_property, partial
from operator import attrgetter
from threading import local
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from collectives import ALGORITHMS, Schedule
from sim.analytic.bounds import BusyAndPath, Moved
from sim.analytic.estimate import Estimates
from sim.engine.reruns import Reruns
from sim.engine.run import SLICE_EVENTS
from sim.lower.job import lower
from sim.lower.lowered import Lowered
from sim.program import I64
from sim.program.contract import CLOCK_END_PS
from sim.program.cutting import Rates
from sim.program.outcome import Outcome
from sim.result import Result, rated
from sim.study.choice import BestForm, best_form
from sim.study.key import beside_fabric, is_wefts_own, point_spec
from sim.study.keys import TopologyKeys
from sim.study.points import Row, Task, ready_point, row_of, told_forms, topology_of
from sim.study.spec import LINK_KEYS
from sim.study.workload_keys import works
from topologies import Topology
from topologies.core.rateless import alike, at_alike_rates, wiring_of
from workloads.job import Job

F64 = npt.NDArray[np.float64]

MOST_FAMILIES = 64
"""Limit on those that are kept, each with the memory of a run; a grid goes through all its algorithms and sizes."""

MOST_TASKS = 2**14
"""Limit on the tasks of their programs: larger runs take longer than what they share."""

_FABRIC = attrgetter(*(key.name for key in fields(TopologyKeys) if key.name not in LINK_KEYS))


class _Form:
    """One schedule of a family, lowered, at the rates of one point after the other."""

    def __init__(self, schedule: Schedule, first: Lowered, moved: Moved) -> None:
        self.schedule, self.moved = schedule, moved
        self.program = first.program._replace(service_ps=first.program.service_ps.copy())
        self.reruns, self.busy_and_path = Reruns(self.program), BusyAndPath(self.program)
        self.lowered = first._replace(program=self.program)
        self.estimate = Estimates(self.lowered)
        self.link = self.lowered.server_link[np.unique(self.program.server_rate, return_index=True)[1]]
        self.wires = np.flatnonzero(np.isin(self.lowered.server_link, self.lowered.orbits.link))
        self.carriers = self.lowered.server_link[self.wires]
        self.bound_ps = 0

    def services_ps(self, rates_Bps: F64) -> Iterator[I64 | None]:
        """Service times at some rates of links, (points, links); None where they are not, or could outlast the clock.

        Links that are alike stay so, and the program is the same.
        """
        program, n_rates = self.program, self.link.size
        rates = [Fraction(rate) for rate in rates_Bps[:, self.link].reshape(-1).tolist()]
        found = Rates(rates).times_ps(program.chunk_work[:, None], np.arange(len(rates)))
        latency_ps, services = int(program.hop_latency_ps.max(initial=0)), program.chunk_hops()
        for times in found.reshape(-1, len(rates_Bps), n_rates).transpose(1, 0, 2):
            fits = services * (int(times.max(initial=1)) + latency_ps) < CLOCK_END_PS
            yield times.reshape(-1) if fits else None

    def run(self) -> "_Run":
        """Run with the service times that the program has."""
        return _Run(self, self.reruns.run())

    def on(self, topology: Topology) -> Lowered:
        """The program on a fabric that has the rates."""
        its = self.schedule
        schedule = Schedule(its.pattern.on(topology), its.size_bytes, its.element_bytes)
        return self.lowered._replace(job=Job.of(schedule))

    def result(self, topology: Topology, outcome: Outcome) -> Result:
        """All of a run there."""
        its = self.on(topology)
        result = Result(
            job=its.job, model=its.model, engine="chunk", time_ps=outcome.makespan_ps, events=outcome.events,
            wall_s=0.0, lowered=its, ran=outcome,
        )
        vars(result).update(lower_bound_ps=self.bound_ps)  # as it would find it
        return result

    def rated(self, rates_Bps: F64, on: Callable[[], Topology], outcome: Outcome) -> Row:
        """What the rates decide of the row of a run there; `on`: the fabric that has them."""
        carried_Bps = outcome.busy_ps[self.wires] / max(outcome.makespan_ps, 1) * rates_Bps[self.carriers]
        estimate_ps = self.estimate(rates_Bps, lambda: self.on(on()))
        return rated(self.schedule, outcome.makespan_ps, self.bound_ps, estimate_ps, carried_Bps)


class _Run(NamedTuple):
    form: _Form
    outcome: Outcome

    @property
    def time_ps(self) -> int:
        """Of the whole run."""
        return self.outcome.makespan_ps


class Family:
    """What its points share.

    Parameters
    ----------
    task : Task
        The first point.
    ready, refused
        Of `ready_point`.
    """

    def __init__(self, task: Task, ready: Mapping[str, Schedule], refused: Mapping[str, str]) -> None:
        self.task, self.ready, self.refused, self.fabric = task, ready, refused, topology_of(task.spec)
        self.spec, self.rows = point_spec(task).to_dict(), dict[str, Row]()  # by form: what rates do not decide

    @cached_property
    def forms(self) -> dict[int, _Form]:
        """Each form, by what its schedule is; none where a run is none of those that are repeated."""
        spec, model = self.task.spec, self.task.spec.build_model()
        if any(one.topology is not self.fabric for one in self.ready.values()):
            return {}  # on a fabric of their own, as where switches that reduce are slower
        lowered = [lower(one, model, spec.symmetry) for one in self.ready.values()]
        for program in (one.program for one in lowered):
            small = program.n_tasks <= MOST_TASKS and program.chunk_hops() <= SLICE_EVENTS
            if not small or program.is_packed or not Reruns.accept(program):
                return {}
        forms, known = dict[int, _Form](), dict[tuple[Any, ...], Moved]()
        for one, its in zip(self.ready.values(), lowered, strict=True):
            key = one.pattern.in_switches, one.pattern.root, one.pattern.is_part, its.program.delivers_heads
            forms[id(one)] = _Form(one, its, known.setdefault(key, Moved(its)))
        return forms

    def points(self, rates_Bps: F64) -> Iterator[Row | None]:
        """The row of each point by the rates of its links, (points, links); None of one to be computed alone."""
        forms = self.forms.values()
        for rates, *services in zip(rates_Bps, *(form.services_ps(rates_Bps) for form in forms), strict=True):
            if not services or any(times is None for times in services):
                yield None
                continue
            for form, times in zip(forms, services, strict=True):
                form.program.service_ps[:] = times
            yield self._row(rates, partial(at_alike_rates, self.fabric, rates))

    def _row(self, rates_Bps: F64, on: Callable[[], Topology]) -> Row:
        """The row of a point, for which all forms have their service times; `on`: its fabric."""
        began, forms = perf_counter(), self.forms
        moved_ps = {one: one(rates_Bps, on) for one in {form.moved for form in forms.values()}}
        for form in forms.values():
            form.bound_ps = max(*form.busy_and_path(), *moved_ps[form.moved])
        best = best_form(
            self.ready, lambda schedule: forms[id(schedule)].run(), self.refused,
            floor=lambda schedule: forms[id(schedule)].bound_ps,
        )
        form, outcome = best.result
        if best.name not in self.rows:
            whole = BestForm(best.name, form.result(on(), outcome), best.others)
            self.rows[best.name] = row_of(self.task, whole)
        rated_row = form.rated(rates_Bps, on, outcome) | {"wall_s": perf_counter() - began}
        rated_row["other_forms"] = told_forms(best.others, self.fabric)
        return self.rows[best.name] | rated_row


def at_links(task: Task, links: Mapping[str, str]) -> Task:
    """The same point at other links."""
    return task._replace(spec=task.spec.at_links(links))


class Group(NamedTuple):
    """Some points of a family, in the fewest words: they go to another process."""

    first: Task
    links: tuple[dict[str, str], ...]  # of each: its keys of links
    rates_Bps: F64  # (points, links)

    @classmethod
    def of(cls, tasks: Sequence[Task]) -> "Group":
        """The group of points of one family."""
        given = [{key: getattr(task.spec.topology, key) for key in LINK_KEYS} for task in tasks]
        links = tuple({key: value for key, value in one.items() if value is not None} for one in given)
        return cls(tasks[0], links, np.stack([topology_of(task.spec).bandwidth_Bps for task in tasks]))

    def points(self) -> Iterator[tuple[dict[str, Any], Row | None]]:
        """Each point: its spec as plain data, and its row, which is None where it is to be computed alone.

        WeftError: the first cannot run, nor can the others.
        """
        family = _FAMILIES.of(self.first)
        for links, row in zip(self.links, family.points(self.rates_Bps), strict=True):
            yield family.spec | {"topology": family.spec["topology"] | links}, row


class _Families(local):
    """The families that this thread has met last."""

    def __init__(self) -> None:
        self.known = OrderedDict[Any, Family]()

    def of(self, task: Task) -> Family:
        """That of a point."""
        if (key := family_of(task)) not in self.known:
            self.known[key] = Family(task, *ready_point(task))
            if len(self.known) > MOST_FAMILIES:
                self.known.popitem(last=False)
        return self.known[key]


_FAMILIES = _Families()


def family_of(task: Task) -> tuple[Any, ...] | None:
    """What the points of a family have in common; None of a point that has none.

    What is chosen, checked or perturbed is so point by point, and so are programs of faults, of NICs, of buffers, of
    circuits that switch, and of algorithms that are built from rates.
    """
    spec, chosen = task.spec, ALGORITHMS.get(task.algorithm)
    if chosen is None or chosen.built_from_rates or task.check or task.why or task.spread or not is_wefts_own(task):
        return None
    keys = spec.model
    if spec.engine != "chunk" or spec.chooses or works(spec) or keys.faults is not None or keys.nic is not None:
        return None
    if task.max_events is not None or keys.buffer is not None:
        return None
    topology = topology_of(spec)
    if topology.optics is not None:
        return None
    shared = wiring_of(topology), alike(topology), topology.latency_ps.tobytes(), topology.hop_latency_ps.tobytes()
    return task[1:], beside_fabric(spec), _FABRIC(spec.topology), *shared
