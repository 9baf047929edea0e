"""The points of a sweep with their keys, each found once, as the sweep is read and the fabric of the point is at hand.

Whoever only looks points up builds no fabric again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from sim.study.file import Axes, Place, Sweep
from sim.study.key import point_key
from sim.study.points import Task, topology_of


@dataclass(frozen=True, eq=False)
class Keyed:
    """A sweep whose points can be looked up in a store; files that they name count as they were when it was read."""

    sweep: Sweep
    keys: tuple[str, ...]  # of its points
    fabrics: tuple[str, ...]  # names of their fabrics

    @cached_property
    def distinct(self) -> dict[str, Task]:
        """Its points by key."""
        return dict(zip(self.keys, self.sweep.points, strict=True))


def keyed(axes: Axes, points: Iterable[tuple[Task, Place]]) -> Keyed:
    """A sweep of points that may still be read, one after the other."""
    tasks, places, keys, fabrics = list[Task](), list[Place](), list[str](), list[str]()
    for task, place in points:
        tasks.append(task)
        places.append(place)
        keys.append(point_key(task))
        fabrics.append(topology_of(task.spec).name)
    return Keyed(Sweep(axes, tuple(tasks), tuple(places)), tuple(keys), tuple(fabrics))


def keyed_sweep(sweep: Sweep) -> Keyed:
    """A sweep that has been read."""
    return keyed(sweep.axes, zip(sweep.points, sweep.places, strict=True))


def by_key(points: Iterable[Task]) -> dict[str, Task]:
    """Points by key, each once."""
    return {point_key(task): task for task in points}
