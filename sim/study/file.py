"""A sweep: an experiment in TOML in which a list is an axis, and the points of all combinations."""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import Field, dataclass, fields
from pathlib import Path
from typing import Any

from sim.faults.apply import with_spares
from sim.faults.history import history_of
from sim.faults.plan import FaultPlan
from sim.how import How
from sim.program.model_options import Mismatch
from sim.study.designs import each_network, label_of_design
from sim.study.keys import AUTO, SWEPT
from sim.study.plans import label_of, no_model
from sim.study.points import Task, check_joined, topology_of
from sim.study.spec import LINK_KEYS, Spec, read_sections
from sim.study.workload_keys import by_each, check_no_collective, check_no_workload, designs, label_of_workload, works
from topologies import Topology, WeftError
from topologies.checks import checked
from topologies.core.rateless import wiring_of
from topologies.stages import count
from topologies.text.brief import one_line

MAX_POINTS = 1_000_000

SEVERAL = ("names", "options", "texts", "numbers", "integers")
"""Kinds of keys that take several values: of those a list of lists is an axis."""

_LINKS = frozenset(f"topology.{key}" for key in LINK_KEYS)

Axes = dict[str, tuple[Any, ...]]
"""By "section.key": the values of an axis."""

Place = dict[str, Any]
"""The value of a point on each axis."""


@checked
@one_line
@dataclass(frozen=True)
class Sweep:
    """Points to compute: sizes vary fastest, then algorithms, then the axes from the last; fabrics slowest.

    Attributes
    ----------
    axes : dict of str to tuple
        By "section.key": the values of the axis. Algorithms and sizes are columns of every row anyway.
    points : tuple of Task
    places : tuple of dict
        The value on each axis, of every point.
    """

    axes: Axes
    points: tuple[Task, ...]
    places: tuple[Place, ...]


@checked
def read_sweep(
    path: str | Path, *, check: bool = False, why: bool | None = None, max_events: int | None = None
) -> Sweep:
    """A sweep from a TOML file, or from the JSON of a sweep.

    Parameters
    ----------
    path : path
    check, why, max_events
        For every point; see `sim.study.points.Task`. Default of `why`: that of the section `[account]`.

    Raises
    ------
    WeftError
        The file cannot be read, has an unknown key or a value that is not accepted, or has too many points.
    """
    sections = read_sections(Path(path), "sweep file", "sweep")
    return make_sweep(sections, f"sweep file {path}", check=check, why=why, max_events=max_events)


@checked
def make_sweep(
    data: Mapping[str, Any], where: str = "sweep", *, check: bool = False, why: bool | None = None,
    max_events: int | None = None,
) -> Sweep:
    """A sweep from sections of keys; a list of values is an axis.

    Examples
    --------
    >>> sweep = make_sweep({"topology": {"spec": ["ring:4", "torus:4x4"]}, "model": {"chunks": [1, 4]},
    ...                     "collective": {"algorithms": ["ring", "bucket"]}, "sweep": {"begin": "1K", "end": "4K"}})
    >>> len(sweep.points), sweep.axes
    (24, {'topology.spec': ('ring:4', 'torus:4x4'), 'model.chunks': (1, 4)})
    """
    axes, points = points_of(data, where, How(check=check, max_events=max_events), why)
    found = list(points)
    return Sweep(axes, tuple(point for point, _ in found), tuple(place for _, place in found))


def points_of(
    data: Mapping[str, Any], where: str, how: How, why: bool | None = None
) -> tuple[Axes, Iterator[tuple[Task, Place]]]:
    """The axes of a sweep, and its points one by one, each while its fabric is at hand; see `make_sweep`."""
    account = Spec.from_dict({"account": data.get("account", {})}, where).account
    data = {section: keys for section, keys in data.items() if section != "account"}
    accounted = account.why if why is None else why
    axes = {f"{section}.{key}": values for section, key, values in _axes(data, where)}
    spread = account.spread or 0
    return axes, (
        (Task(one, name, size, how.check, accounted, how.max_events, spread), place)
        for spec, place, sizes in _specs(data, axes, where)
        for one, name in _named(spec)
        for size in sizes
    )


def _named(spec: Spec) -> Iterator[tuple[Spec, str]]:
    """A spec by what its points are called: by each algorithm, or as a plan or a workload."""
    if spec.iteration.model is None and not works(spec):
        yield from ((spec, name) for name in spec.algorithms)
        return
    if designs(spec):
        yield from ((one, label_of_design(one)) for one in each_network(spec))
        return
    label = label_of_workload if spec.iteration.model is None else label_of
    for one in by_each(spec).values() if spec.collective.algorithms else (spec,):
        yield one, label(one)


def _axes(data: Mapping[str, Any], where: str) -> Iterator[tuple[str, str, tuple[Any, ...]]]:
    """Lists given for keys that take one value; unknown sections and keys are left to `Spec.from_dict`."""
    points = 1
    for section, kind in SWEPT.items():  # the fabric varies slowest: it is built once
        keys = data.get(section, {})
        known = {key.name: key for key in fields(kind)}
        for name, value in keys.items() if isinstance(keys, Mapping) else ():
            if name in known and _is_axis(known[name], value):
                points *= len(value)
                _check_count(points, where)
                _check_axis(f"{where}: [{section}] {name}", value)
                yield section, name, tuple(tuple(one) if isinstance(one, list) else one for one in value)


def _is_axis(key: Field[Any], value: Any) -> bool:
    if not isinstance(value, list):
        return False
    return key.metadata["kind"] not in SEVERAL or any(isinstance(one, list) for one in value)


def _check_axis(what: str, values: list[Any]) -> None:
    if not values:
        raise WeftError(f"{what} is an empty list: give at least one value")
    seen = set[Any]()
    for value in values:
        kept = repr(value) if isinstance(value, (list, dict)) else value
        if kept in seen:
            raise WeftError(f"{what} lists {value!r} twice")
        seen.add(kept)


def _check_count(count: int, where: str) -> None:
    if count > MAX_POINTS:
        raise WeftError(f"{where} has {count:,} points or more: at most {MAX_POINTS:,}")


def _specs(
    data: Mapping[str, Any], axes: Mapping[str, tuple[Any, ...]], where: str
) -> Iterator[tuple[Spec, Place, Sequence[int]]]:
    """Every combination with its sizes, checked as a whole: links, model, sizes and algorithm names.

    Mismatch: of every one. Where others are accepted, those that are not cannot run, as their points say.
    """
    points = 0
    joined: tuple[Topology, FaultPlan | None] | None = None
    every = math.prod(map(len, axes.values()))
    mismatches: list[Mismatch | None] = []
    links = {name.removeprefix("topology."): name for name in axes if name in _LINKS}
    # by the values on axes that are not of links
    met: dict[tuple[str, ...], tuple[Spec, Mismatch | None, int, FaultPlan | None]] = {}
    for values in itertools.product(*axes.values()):
        place = dict(zip(axes, values, strict=True))
        beside = tuple(repr(value) for name, value in place.items() if name not in _LINKS)
        if beside in met:
            spec, mismatch, names, plan = met[beside]
            spec = spec.at_links({key: place[name] for key, name in links.items()})
        else:
            spec = _checked(Spec.from_dict(_placed(data, place), where))
            mismatch, names, plan = _mismatch(spec), len([*_named(spec)]), spec.build_faults()
            met[beside] = spec, mismatch, names, plan
        mismatches.append(mismatch)
        for topology in map(_built, each_network(spec) if designs(spec) else (spec,)):
            if (here := (wiring_of(topology), plan)) != joined:
                check_joined(topology)
                _check_fits(plan, topology, where)
                joined = here
        sizes = (0,) if works(spec) else spec.sizes_bytes
        points += names * len(sizes)
        _check_count(points, where)
        count("combinations read", len(mismatches), every)
        yield spec, place, sizes
    if mismatches and all(mismatches):
        raise next(filter(None, mismatches))


def _checked(spec: Spec) -> Spec:
    """A combination without keys that its points do not use, and with chunks to choose where they are collectives."""
    if spec.iteration.model is not None or designs(spec):
        return spec
    no_model(spec)
    if not works(spec):
        check_no_workload(spec.workload, spec.training)
        return spec.choosing()
    check_no_collective(spec)
    if spec.chooses:
        raise WeftError(f"chunks {AUTO} is for collectives, of which each is tried alone: give a number")
    return spec


def _built(spec: Spec) -> Topology:
    """The fabric of a combination; one that cannot be built is named, for a sweep may have many."""
    try:
        return topology_of(spec)
    except WeftError as wrong:
        name = spec.fabric or ""
        raise wrong if name in str(wrong) else WeftError(f"topology {name}: {wrong}") from None


def _check_fits(plan: FaultPlan | None, topology: Topology, where: str) -> None:
    """Reject a plan with a name that a fabric does not have, before any point runs."""
    if plan is not None:
        try:
            history_of(topology, with_spares(topology, plan))
        except WeftError as wrong:
            raise WeftError(f"{where}: faults of [model] do not fit each fabric: {wrong}") from None


def _mismatch(spec: Spec) -> Mismatch | None:
    try:
        spec.build_model()
    except Mismatch as wrong:
        return wrong
    return None


def _placed(data: Mapping[str, Any], place: Mapping[str, Any]) -> dict[str, Any]:
    placed = {section: dict(keys) if isinstance(keys, Mapping) else keys for section, keys in data.items()}
    for name, value in place.items():
        section, _, key = name.partition(".")
        placed[section][key] = value
    return placed
