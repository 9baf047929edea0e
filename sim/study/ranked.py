"""All points of a comparison, or of each size those that may be among its two fastest; and the ranges that decide."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import as_completed
from contextlib import contextmanager, suppress
from heapq import heapify, heappop, heappush, nsmallest
from itertools import compress
from typing import Any, Protocol, TypeVar

from collectives import ALGORITHMS
from sim.lower.credits import NoRoom
from sim.program.outcome import Deadlock, Progress
from sim.program.retime import SHARE
from sim.study.points import (
    Forms,
    Row,
    Task,
    floor_ps,
    may_have_range,
    ready_point,
    row_of,
    services_of,
    simulate_ready,
    with_range,
)
from sim.study.spec import Spec
from topologies import WeftError
from topologies.lazy import later
from topologies.units import PS_PER_S

NEAR = 1.25
"""Ranges over perturbed runs that nobody asked for are of points that take at most this much of the fastest's time,
where there are several: who is the fastest by more is the fastest in all of them."""

LONG_SERVICES = 100_000_000
"""Services of a run, some five seconds, beyond which a point is not simulated where two others of its size are."""

K = TypeVar("K")

Found = Row | WeftError | int
"""Of a point: its row, why there is none, or a lower bound in ps where it is not simulated."""


def compute_all(
    tasks: Sequence[Task],
    workers: int = 1,
    done: Callable[[Task, Row], None] = lambda task, row: None,
    progress: Callable[[Progress], None] | None = None,
    stuck: Callable[[Task, WeftError], None] | None = None,
    left_out: Callable[[Task, int], None] | None = None,
    rows: dict[Task, Row] | None = None,
) -> list[Row]:
    """Every point, in the order of the tasks, whatever the number of workers.

    `workers`: processes; 1 computes in this one.
    `done`: called as each point is ready, but for its range.
    `progress`: called inside long points, with one worker only.
    `stuck`: called for each point that can never end under its faults, or whose chunks do not fit the buffers; it has
        no row. The first is raised unless given.
    `left_out`: called, with a lower bound in ps, for each point that is not computed, for it is slower than two others
        of its size, or takes long; it has no row. Unless given, none is left out.
    `rows`: filled with what is ready, for whoever is interrupted.
    """
    if workers != 1:
        later("sim.study.processes:check_workers")(workers)
    rows = {} if rows is None else rows

    def tell(task: Task, found: Found) -> None:
        if isinstance(found, int):
            assert left_out is not None
            left_out(task, found)
        elif isinstance(found, WeftError):
            if stuck is None:
                raise found
            stuck(task, found)
        else:
            is_new, rows[task] = task not in rows, found
            if is_new:
                done(task, found)

    sizes = [[task for task in tasks if task.size_bytes == size] for size in dict.fromkeys(t.size_bytes for t in tasks)]
    floors = least_floors(sizes) if left_out else {}
    parts = [(some, floors) for some in sizes] if left_out else [(task,) for task in tasks]
    call: Callable[..., Iterable[tuple[Task, Found]]] = _fastest if left_out else _point
    with _calls(workers, len(parts), progress) as each:
        for ended in each(call, parts):
            for task, found in ended:
                tell(task, found)
        if not left_out:
            near = [(task, rows[task]) for some in sizes for task in near_the_fastest(some, rows)]
            for ended in each(_ranged, near):
                for task, found in ended:
                    tell(task, found)
    return [rows[task] for task in tasks if task in rows]


class _Each(Protocol):
    def __call__(
        self, call: Callable[..., Iterable[tuple[Task, Found]]], parts: Sequence[tuple[Any, ...]]
    ) -> Iterator[Iterable[tuple[Task, Found]]]: ...


@contextmanager
def _calls(workers: int, most: int, progress: Callable[[Progress], None] | None) -> Iterator[_Each]:
    """Calls with each part, in this process one after the other, or in several, as they end."""
    if workers == 1 or most < 2:
        yield lambda call, parts: (call(*part, progress=progress) for part in parts)
        return
    with later("sim.study.processes:processes")(min(workers, most)) as pool:
        yield lambda call, parts: (
            one.result() for one in as_completed([pool.submit(_listed, call, part) for part in parts])
        )


def _listed(call: Callable[..., Iterable[tuple[Task, Found]]], part: tuple[Any, ...]) -> list[tuple[Task, Found]]:
    return list(call(*part))


def _point(task: Task, progress: Callable[[Progress], None] | None = None) -> Iterator[tuple[Task, Found]]:
    try:
        yield task, row_of(task, simulate_ready(task, *ready_point(task), progress))
    except (Deadlock, NoRoom) as wrong:
        yield task, wrong


def _ranged(task: Task, row: Row, progress: object = None) -> Iterator[tuple[Task, Found]]:
    yield task, with_range(task, row)


def near_the_fastest(tasks: Iterable[Task], rows: Mapping[Task, Row]) -> list[Task]:
    """The points of a size whose ranges may decide which is the fastest, and have none yet."""
    times_s = {task: float(rows[task]["time_s"]) for task in tasks if task in rows}
    return [task for task in close_together(times_s) if may_have_range(task, rows[task])]


def close_together(times_s: Mapping[K, float]) -> list[K]:
    """Those near the fastest and itself; of several none where it is far ahead."""
    most_s = NEAR * min(times_s.values(), default=0.0)
    near = [one for one, time_s in times_s.items() if time_s <= most_s]
    return near if len(near) > 1 or len(times_s) == 1 else []


def leaves_out(spec: Spec) -> bool:
    """Whether the bounds of a spec's points hold for everything that is tried of them, perturbed runs included."""
    return spec.chooses and spec.engine == "chunk" and spec.build_faults() is None


def least_floors(sizes: Sequence[Sequence[Task]]) -> dict[str, int]:
    """Lower bounds on the time of algorithms at any size, in ps: those at the smallest.

    Of algorithms that take no less time for more bytes: whose transfers do not depend on rates, and whose forms can
    all run at the smallest size.
    """
    floors: dict[str, int] = {}
    for task in min(sizes, key=lambda some: some[0].size_bytes) if len(sizes) > 1 else ():
        known = ALGORITHMS.get(task.algorithm)
        if known is not None and not known.built_from_rates:
            with suppress(NoRoom):
                ready, refused = ready_point(task)
                if not refused:
                    floors[task.algorithm] = floor_ps(task.spec, ready.values())
    return floors


def _fastest(
    tasks: Sequence[Task], floors: Mapping[str, int], progress: Callable[[Progress], None] | None = None
) -> Iterator[tuple[Task, Found]]:
    """The points of one size, those with the lowest bound first: rows, why there is none, or the bounds of others.

    What takes long comes last, and only where there are fewer than two rows. A row comes once more where it has a
    range. `floors`: of `least_floors`.
    """
    rows: dict[Task, Row] = {}
    waiting: list[_Waiting] = [(False, floors.get(task.algorithm, 0), at, None) for at, task in enumerate(tasks)]
    left: list[_Waiting] = []
    heapify(waiting)
    while waiting:
        is_long, least_ps, at, forms = one = heappop(waiting)
        try:
            if len(rows) > 1 and (is_long or least_ps > _slowest_that_counts_ps(rows.values())):
                left.append(one)
            elif forms is None:
                forms = ready_point(tasks[at])
                floor = max(least_ps, floor_ps(tasks[at].spec, forms[0].values()))
                heappush(waiting, (services_of(tasks[at].spec, forms[0].values()) > LONG_SERVICES, floor, at, forms))
            else:
                rows[tasks[at]] = row_of(tasks[at], simulate_ready(tasks[at], *forms, progress))
                yield tasks[at], rows[tasks[at]]
        except (Deadlock, NoRoom) as wrong:
            yield tasks[at], wrong
        if not waiting:
            for task in near_the_fastest(tasks, rows):
                rows[task] = with_range(task, rows[task])
                yield task, rows[task]
            waiting, left = _let_in(left, rows.values())
    for _, least_ps, at, _ in left:
        yield tasks[at], least_ps


_Waiting = tuple[bool, int, int, Forms | None]
"""Whether a point takes long, its lower bound, its number, and its forms where they have been built: a heap."""


def _slowest_that_counts_ps(rows: Collection[Row]) -> float:
    """The time of the second fastest, or the end of the range of the fastest, but for what perturbations may save."""
    first, second = nsmallest(2, rows, key=lambda row: float(row["time_s"]))
    return max(float(second["time_s"]), float(first["spread_high_s"] or 0)) * PS_PER_S / (1 - 2 * SHARE)


def _let_in(left: Sequence[_Waiting], rows: Collection[Row]) -> tuple[list[_Waiting], list[_Waiting]]:
    """Of the points that were left out those that count after all, now that ranges are known; and the others."""
    if len(rows) < 2:
        return [], [*left]
    most_ps = _slowest_that_counts_ps(rows)
    counts = [not is_long and least_ps <= most_ps for is_long, least_ps, *_ in left]
    return [*compress(left, counts)], [one for one, is_in in zip(left, counts, strict=True) if not is_in]
