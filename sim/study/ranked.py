"""All points of a comparison, or of each size those that may be among its two fastest; and the ranges that decide."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from heapq import heapify, heappop, heappush, nsmallest
from itertools import compress
from typing import Any, NamedTuple, Protocol, TypeVar

from collectives import ALGORITHMS
from collectives.core.proof import ScheduleError
from sim.engine.run import FOREVER_PS, Known, known_again
from sim.lower.credits import NoRoom
from sim.program.outcome import Deadlock, Outrun, Progress
from sim.program.retime import SHARE
from sim.study.points import (
    Forms,
    Row,
    Task,
    estimated_ps,
    floor_ps,
    least_load_ps,
    may_be_perturbed,
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
    done_first = later("concurrent.futures:as_completed")  # as every process, only of several
    with later("sim.study.processes:processes")(min(workers, most)) as pool:
        yield lambda call, parts: (
            one.result() for one in done_first([pool.submit(_listed, call, part) for part in parts])
        )


def _listed(call: Callable[..., Iterable[tuple[Task, Found]]], part: tuple[Any, ...]) -> list[tuple[Task, Found]]:
    return list(call(*part))


def _point(task: Task, progress: Callable[[Progress], None] | None = None) -> Iterator[tuple[Task, Found]]:
    try:
        yield task, row_of(task, simulate_ready(task, *ready_point(task), progress))
    except (Deadlock, NoRoom, ScheduleError) as wrong:
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


class Floor(NamedTuple):
    """A lower bound on the time of an algorithm at the sizes of a comparison, from the smallest and the largest."""

    least_ps: int = 0
    load_ps: int = 0  # of the busiest server at the largest size, but for what is rounded up
    largest_bytes: int = 0

    def at(self, size_bytes: int) -> int:
        """The bound at a size.

        More bytes take no less time; and a block of a k-th of the bytes has at least a k-th of the block, so that
        every server has at least a k-th of its work.
        """
        share_ps = self.load_ps // max(1, -(-self.largest_bytes // size_bytes)) if size_bytes else 0
        return max(self.least_ps, share_ps)


def least_floors(sizes: Sequence[Sequence[Task]]) -> dict[str, Floor]:
    """Lower bounds on the time of algorithms at any size.

    Of algorithms whose transfers do not depend on rates, and whose forms can all run at the smallest and at the largest
    size; whose ranks have blocks of one size.
    """
    floors: dict[str, Floor] = {}
    ends = [each(sizes, key=lambda some: some[0].size_bytes) for each in (min, max)] if len(sizes) > 1 else []
    for small, large in zip(*ends, strict=True):
        known = ALGORITHMS.get(small.algorithm)
        if known is not None and not known.built_from_rates:
            with suppress(NoRoom):
                (ready, refused), (all_of_it, too_large) = ready_point(small), ready_point(large)
                if not refused and not too_large:
                    load_ps = least_load_ps(large.spec, all_of_it.values())
                    floors[small.algorithm] = Floor(floor_ps(small.spec, ready.values()), load_ps, large.size_bytes)
    return floors


def _fastest(
    tasks: Sequence[Task], floors: Mapping[str, Floor], progress: Callable[[Progress], None] | None = None
) -> Iterator[tuple[Task, Found]]:
    """The points of one size, those that are expected to be the fastest first: rows, why there is none, or bounds.

    What takes long comes last, and only where there are fewer than two rows; what is too long for a range comes after
    what may have one. A run ends where it takes longer than two others, and is not near the fastest or has no range. A
    row comes once more where it has a range. `floors`: of `least_floors`.
    """
    rows: dict[Task, Row] = {}
    known = [floors.get(task.algorithm, Floor()).at(task.size_bytes) for task in tasks]
    alone = [not may_be_perturbed(task, 0) for task in tasks]
    waiting = [_Waiting(False, *of, at, of[1]) for at, of in enumerate(zip(alone, known, strict=True))]
    left: list[_Waiting] = []
    runs = Known()
    heapify(waiting)
    while waiting:
        one = heappop(waiting)
        task, most_ps = tasks[one.at], _most_ps(one, rows.values())
        try:
            if len(rows) > 1 and (one.is_long or one.expected_ps > most_ps):
                left.append(one)
            elif not one.is_estimated:
                heappush(waiting, _looked_at(task, one))
            else:
                assert one.forms is not None
                limit_ps = most_ps if one.is_alone else max(most_ps, _near_ps(rows.values()))
                with known_again(runs):
                    rows[task] = row_of(task, simulate_ready(task, *one.forms, progress, limit_ps))
                yield task, rows[task]
        except Outrun as outrun:
            left.append(one._replace(floor_ps=outrun.limit_ps + 1))
        except (Deadlock, NoRoom, ScheduleError) as wrong:
            yield task, wrong
        if not waiting:
            for task in near_the_fastest(tasks, rows):
                rows[task] = with_range(task, rows[task])
                yield task, rows[task]
            waiting, left = _let_in(left, rows.values())
    for one in left:
        yield tasks[one.at], one.floor_ps


class _Waiting(NamedTuple):
    """A point in the heap of a size: first with its bound at the smallest size, then with its own, then estimated."""

    is_long: bool
    is_alone: bool  # known to have no range, so that it ties with nothing
    expected_ps: int
    at: int  # its number
    floor_ps: int = 0
    forms: Forms | None = None  # once they have been built
    is_estimated: bool = False


def _looked_at(task: Task, one: _Waiting) -> _Waiting:
    """A point with its bound, or if it has that with what it is expected to take and whether it is long, or alone."""
    if one.forms is None:
        forms = ready_point(task)
        floor = max(one.floor_ps, floor_ps(task.spec, forms[0].values()))
        return one._replace(expected_ps=floor, floor_ps=floor, forms=forms)
    schedules = one.forms[0].values()
    services = services_of(task.spec, schedules)
    return one._replace(
        is_long=services > LONG_SERVICES, is_alone=not may_be_perturbed(task, services), is_estimated=True,
        expected_ps=max(one.floor_ps, estimated_ps(task.spec, schedules)),
    )


def _most_ps(one: _Waiting, rows: Collection[Row]) -> int:
    """What the second fastest takes.

    What may tie counts up to the end of the range of the fastest, and beyond by what perturbations may save.
    """
    if len(rows) < 2:
        return FOREVER_PS
    first_s, second_s = nsmallest(2, (float(row["time_s"]) for row in rows))
    if one.is_alone:
        return int(second_s * PS_PER_S) + 1
    high_s = max(float(row["spread_high_s"] or 0) for row in rows if float(row["time_s"]) == first_s)
    return int(max(second_s, high_s) * PS_PER_S / (1 - 2 * SHARE))


def _near_ps(rows: Collection[Row]) -> int:
    """What is near the fastest; see `near_the_fastest`."""
    if len(rows) < 2:
        return FOREVER_PS
    return int(NEAR * min(float(row["time_s"]) for row in rows) * PS_PER_S) + 1


def _let_in(left: Sequence[_Waiting], rows: Collection[Row]) -> tuple[list[_Waiting], list[_Waiting]]:
    """Of the points that were left out those that count after all, now that ranges are known; and the others."""
    if len(rows) < 2:
        return [], [*left]
    counts = [not one.is_long and one.floor_ps <= _most_ps(one, rows) for one in left]
    counting = [one._replace(expected_ps=one.floor_ps) for one in compress(left, counts)]
    return counting, [one for one, is_in in zip(left, counts, strict=True) if not is_in]
