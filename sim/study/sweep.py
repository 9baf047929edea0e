"""Run the points of a sweep that are not stored yet, on any executor; finished points are stored soon.

Results are tidy rows in the order of the sweep, whatever ran it and in whatever order points ended.
"""

import json
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from queue import SimpleQueue
from time import monotonic, sleep
from typing import Any, NamedTuple, ParamSpec, TypeVar

from collectives import Schedule
from sim.how import How
from sim.program.outcome import Deadlock, Progress
from sim.study.designs import cell_of, design_row, make_studies
from sim.study.family import Group, at_links, family_of
from sim.study.file import Sweep
from sim.study.key import Keyed, is_wefts_own, keyed_sweep, point_key, point_spec, stamps_of
from sim.study.keys import TopologyKeys
from sim.study.plans import check_composed, fitting, run_plan
from sim.study.points import Row, Task, at_hand, ready_point, row_of, simulate_ready
from sim.study.processes import check_workers, processes
from sim.study.store import Claims, Finished, Store
from sim.study.tables import to_csv
from sim.study.workload_keys import designs, named, works
from sim.study.workload_runs import open_of, run_workload
from sim.version import weft_version
from topologies import WeftError
from topologies.checks import checked
from topologies.stages import counting
from topologies.text.brief import Rows, one_line
from topologies.units import format_size

IN_FLIGHT = 4
"""Points per worker in flight: enough to keep it busy while finished ones are written."""

POLL_SECONDS = 0.2
"""Interval between checks for points that another process computes."""

STORE_SECONDS = 0.05
"""Interval between transactions of a store: one for each point takes a tenth of a sweep over bandwidths."""

TOGETHER = 32
"""Most points that are handed out together, of those that differ in the rates of links alone."""

AT_ONCE = 2**12
"""Most points among which those of one family are looked for."""

Point = tuple[str, Task]
"""A point with its key."""

P = ParamSpec("P")
T = TypeVar("T")


@checked
@one_line
@dataclass
class Tally:
    """Outcome of the points of a sweep.

    Attributes
    ----------
    stored : int
        Finished before this run.
    computed : int
        Finished by this run; `refused` among them.
    elsewhere : int
        Finished by another process in the meantime.
    refused : int
        Stored with a reason why they cannot run.
    failed : dict of str to str
        By key: why a point did not end (a limit, a deadlock, a broken certificate). Not stored.
    """

    stored: int = 0
    computed: int = 0
    elsewhere: int = 0
    refused: int = 0
    failed: dict[str, str] = field(default_factory=dict)


@checked
def run_sweep(
    points: Iterable[Task] | Mapping[str, Task],
    store: Store | str | Path,
    executor: Executor | None = None,
    *,
    workers: int = 1,
    in_flight: int | None = None,
    done: Callable[[Task, Finished | str | None], None] = lambda task, point: None,
    progress: Callable[[Progress], None] | None = None,
) -> Tally:
    """Compute and store the points that are not stored yet.

    If interrupted at any moment, even by kill -9, it resumes when called again. Several processes may run the same
    sweep on one store: they share the points.

    Parameters
    ----------
    points : iterable of Task, or mapping of str to Task
        For example `read_sweep(file).points`; or by the key of each.
    store : Store or path
    executor : concurrent.futures.Executor, optional
        Where to compute: threads, processes, a cluster. It is not shut down.
    workers : int
        Processes to compute in without an executor; 1: in this process.
    in_flight : int, optional
        Points, or groups of at most as many, handed out at a time; default: four per worker (with an executor: 64).
    done : callable (task, point)
        Called as each point is finished; with text where it failed, None where another process finished it.
    progress : callable, optional
        Called inside long points that this process computes itself.

    Returns
    -------
    Tally
        The rows in the store are the same whatever ran them.

    Raises
    ------
    WeftError
        The store cannot be opened, or the executor has lost its workers.
    OSError
        The disk is full.
    """
    check_workers(workers)
    keyed = points if isinstance(points, Mapping) else {point_key(task): task for task in points}
    where: AbstractContextManager[Executor]
    if executor is not None:
        where, size = nullcontext(executor), 64
    elif workers > 1:
        where, size = processes(workers), IN_FLIGHT * workers
    else:
        where, size = nullcontext(_Here(progress)), 1
    with nullcontext(store) if isinstance(store, Store) else Store(store) as opened, Claims(opened.path) as claims:
        run = _Run(opened, claims, done, keys_hold=executor is None)
        waiting = run.missing(keyed)
        if waiting:
            with where as pool:
                run.all(waiting, pool, in_flight or size, max(1, min(TOGETHER, in_flight or len(waiting) // size)))
        return run.tally


def finish(
    task: Task, key: str | None = None, progress: Callable[[Progress], None] | None = None
) -> Finished | str:
    """Compute a point, wherever it is called; text if it did not end.

    `key`: as the same weft has found it; found again where a file, or what is not weft's own, may have changed.
    """
    if key is not None and is_wefts_own(task):
        return _finish(task, key, progress)
    stamps = stamps_of(task)
    key = point_key(task)
    found = _finish(task, key, progress)
    if stamps_of(task) != stamps and point_key(task) != key:
        return "a file that it reads has changed while it was computed: run the sweep again"
    return found


def finish_together(
    group: Group, keys: Sequence[str], progress: Callable[[Progress], None] | None = None
) -> list[Finished | str]:
    """`finish` of the first points of a group, as many as take a moment; at least one."""
    found, begun, points = list[Finished | str](), monotonic(), group.points()
    for key in keys:
        try:
            spec, row = next(points, ({}, None))
        except WeftError:  # none of them can run, as each says
            spec, row = {}, None
        if row is None:
            found.append(_finish(at_links(group.first, group.links[len(found)]), key, progress))
        else:
            found.append(Finished(key, spec, wall_s=row.pop("wall_s"), row=row, refused=None, weft=weft_version()))
        if monotonic() - begun > STORE_SECONDS:
            break
    return found


def _finish(task: Task, key: str, progress: Callable[[Progress], None] | None) -> Finished | str:
    begun = partial(Finished, key, point_spec(task).to_dict(), weft=weft_version())
    how = How(check=task.check, max_events=task.max_events)
    run: Callable[[], Row]
    try:
        if designs(task.spec):
            run = partial(design_row, *make_studies(task.spec, how))
        elif task.spec.iteration.model is not None:
            one = fitting(task.spec, how)
            if not task.spec.iteration.inline:
                check_composed(one, task.spread, task.why)
            run = partial(run_plan, task.spec, one, how, task.spread, task.why)
        elif works(task.spec):
            run = partial(run_workload, task.spec, open_of(task.spec, how), how, task.spread, task.why)
        else:
            run = partial(_row_at, task, *ready_point(task), progress)
    except WeftError as wrong:
        return begun(row=None, refused=str(wrong), wall_s=0.0)
    try:
        row = run()
    except Deadlock as wrong:
        return begun(row=None, refused=str(wrong), wall_s=0.0)
    except WeftError as wrong:
        if isinstance(wrong.__context__, KeyboardInterrupt):
            raise wrong.__context__ from None
        return str(wrong)
    return begun(wall_s=row.pop("wall_s"), row=row, refused=None)


def _row_at(
    task: Task, ready: Mapping[str, Schedule], refused: Mapping[str, str], progress: Callable[[Progress], None] | None
) -> Row:
    """Rows are stored, and must not depend on the flags of who was first."""
    return row_of(task, simulate_ready(task, ready, refused, progress))


class _Run:
    """One run of a sweep: hands points out, and stores what comes back."""

    def __init__(
        self, store: Store, claims: Claims, done: Callable[[Task, Finished | str | None], None], *, keys_hold: bool
    ) -> None:
        self.store, self.claims, self.done, self.tally = store, claims, done, Tally()
        self.keys_hold = keys_hold  # whether the same weft computes
        self.flying: dict[Future[list[Finished | str]], list[Point]] = {}
        self.ended: list[tuple[str, Task, Finished | str]] = []  # and not stored yet
        self.stored_s = monotonic()
        self.landed: SimpleQueue[Future[list[Finished | str]]] = SimpleQueue()

    def missing(self, points: Mapping[str, Task]) -> list[Point]:
        """Points to compute."""
        known = self.store.reasons()
        self.tally.stored = sum(key in known for key in points)
        self.tally.refused = sum(known.get(key) is not None for key in points)
        return [(key, task) for key, task in points.items() if key not in known]

    def all(self, points: list[Point], pool: Executor, in_flight: int, together: int) -> None:
        """Go on until every point is stored, here or by another process, or has failed."""
        groups, whole, left = self._grouped(points, together), True, deque[list[Point]]()
        others: list[Point] = []
        try:
            while whole or left or others or self.flying:
                while (whole or left) and len(self.flying) < in_flight:
                    some = left.popleft() if left else next(groups, [])
                    whole = bool(some)
                    others += self._send(some, pool)
                if self.flying and (rest := self._land(self.landed.get())):
                    left.appendleft(rest)
                if not (whole or left or self.flying) or monotonic() - self.stored_s >= STORE_SECONDS:
                    self._store()
                if others and not self.flying:
                    sleep(POLL_SECONDS)
                    left.extend([one] for one in others)
                    others.clear()
        finally:
            for future in self.flying:
                future.cancel()
            self._store()

    def _grouped(self, points: list[Point], together: int) -> Iterator[list[Point]]:
        """Points of one family together, where they are found by the same weft; of fabrics that are at hand at once."""
        families: dict[Any, list[Point]] = {}
        fabrics = set[TopologyKeys]()
        for at, (key, task) in enumerate(points):
            family = family_of(task) if self.keys_hold and together > 1 else None
            families.setdefault(family or key, []).append((key, task))
            fabrics.add(task.spec.topology)
            if at + 1 == len(points) or len(fabrics) >= at_hand(task.spec) or at % AT_ONCE == AT_ONCE - 1:
                for some in families.values():
                    yield from (some[first : first + together] for first in range(0, len(some), together))
                families.clear()
                fabrics.clear()

    def _send(self, points: list[Point], pool: Executor) -> list[Point]:
        """Hand points out, unless they are stored by now; returns those that another process computes."""
        claimed = [self.claims.take(key) for key, _ in points]
        others = [point for point, taken in zip(points, claimed, strict=True) if not taken]
        known, mine = self.store.reasons(*(key for key, _ in points)) if any(claimed) else {}, list[Point]()
        for (key, task), taken in zip(points, claimed, strict=True):
            if taken and key in known:
                self.claims.give_back(key)
                self.tally.elsewhere += 1
                self.tally.refused += known[key] is not None
                self.done(task, None)
            elif taken:
                mine.append((key, task))
        if mine:
            future = _submitted(pool, mine, keys_hold=self.keys_hold)
            self.flying[future] = mine
            future.add_done_callback(self.landed.put)
        return others

    def _land(self, future: Future[list[Finished | str]]) -> list[Point]:
        """Take what has ended; returns the points that are left of a group."""
        sent, found = self.flying.pop(future), _result(future)
        for (key, task), point in zip(sent, found, strict=False):
            if not isinstance(point, str) and point.key != key:
                raise WeftError(
                    f"{task.spec.fabric} is not the same where the point was computed: another file, or another "
                    f"version of weft; point {key} came back as {point.key}"
                )
            self.ended.append((key, task, point))
        return sent[len(found) :]

    def _store(self) -> None:
        """Write what has ended since the last time."""
        ended, self.ended, self.stored_s = self.ended, [], monotonic()
        if not ended:
            return
        self.store.add(*(point for _, _, point in ended if not isinstance(point, str)))
        for key, _, point in ended:
            if isinstance(point, str):
                self.tally.failed[key] = point
            else:
                self.tally.computed += 1
                self.tally.refused += point.refused is not None
            self.claims.give_back(key)
        for _, task, point in ended:
            self.done(task, point)


def _submitted(pool: Executor, points: list[Point], *, keys_hold: bool) -> Future[list[Finished | str]]:
    try:
        if len(points) > 1:
            return pool.submit(finish_together, Group.of([task for _, task in points]), [key for key, _ in points])
        [(key, task)] = points
        return pool.submit(_finish_one, task, key if keys_hold else None)
    except BrokenExecutor as fault:
        raise _lost(fault) from None


def _finish_one(
    task: Task, key: str | None, progress: Callable[[Progress], None] | None = None
) -> list[Finished | str]:
    return [finish(task, key, progress=progress)]


def _result(future: Future[list[Finished | str]]) -> list[Finished | str]:
    try:
        return future.result()
    except (BrokenExecutor, CancelledError) as fault:
        raise _lost(fault) from None


def _lost(fault: BaseException) -> WeftError:
    said = str(fault) or type(fault).__name__
    return WeftError(f"the workers are gone ({said}); finished points are stored: run the sweep again to go on")


class _Here(Executor):
    """Computes in this thread, at once."""

    def __init__(self, progress: Callable[[Progress], None] | None) -> None:
        self.progress = progress

    def submit(self, work: Callable[P, T], /, *given: P.args, **named: P.kwargs) -> Future[T]:
        future: Future[T] = Future()
        future.set_result(work(*given, **named, progress=self.progress))  # type: ignore[arg-type]  # `finish` takes it
        return future


Counts = dict[str, Counter[int]]
"""Number of points, by name and size."""


class Status(NamedTuple):
    """How far a sweep has come."""

    points: int  # distinct ones
    finished: int
    # those of them that cannot run, by reason: names of algorithms and fabrics, with the sizes unless it holds at all
    refused: dict[str, list[str]]

    @property
    def left(self) -> int:
        """Points that are not finished."""
        return self.points - self.finished


def status_of(swept: Keyed, store: Store) -> Status:
    """Look up every point in a store."""
    known = store.reasons()
    every: Counts = {}
    refused: dict[str, Counts] = {}
    for key, task in swept.distinct.items():
        name = f"{task.algorithm} on {task.spec.fabric}"
        reason = known.get(key)
        for counts in (every, *([] if reason is None else [refused.setdefault(reason, {})])):
            counts.setdefault(name, Counter())[task.size_bytes] += 1
    said = {reason: [_at(name, here, every[name]) for name, here in names.items()] for reason, names in refused.items()}
    return Status(len(swept.distinct), sum(key in known for key in swept.distinct), said)


def _at(name: str, here: Mapping[int, int], every: Mapping[int, int]) -> str:
    """A name, with sizes unless all are affected, and counts where only some points of a size are."""
    if here == every:
        return name
    some = {size: "" if count == every[size] else f" ({count} of {every[size]} points)" for size, count in here.items()}
    return f"{name} at {', '.join(format_size(size) + some[size] for size in sorted(here))}"


@checked
def sweep_rows(sweep: Sweep, store: Store) -> Rows:
    """Rows of the finished points: the value on each axis, the columns of `Result.row` but of the run, and `refused`.

    Every row has all columns; those of a point that cannot run are None except those that identify it. A point that
    occurs twice on the axes has two rows.
    """
    return keyed_rows(keyed_sweep(sweep), store)


def keyed_rows(swept: Keyed, store: Store) -> Rows:
    """The rows of `sweep_rows`."""
    rows = []
    places = counting("rows", swept.sweep.places)
    for task, place, key, fabric in zip(swept.sweep.points, places, swept.keys, swept.fabrics, strict=True):
        if (found := store.get(key)) is not None:
            rows.append({name: cell_of(value) for name, value in place.items()} | _row(task, fabric, found))
    columns = dict.fromkeys(name for row in sorted(rows, key=len, reverse=True) for name in row)
    return Rows({name: row.get(name) for name in columns} for row in rows)


def _row(task: Task, fabric: str, found: Finished) -> Row:
    """`fabric`: its name as its file has it now, which may have been another when the point was computed."""
    if found.row is not None:
        return found.row | {"topology": fabric, "refused": None}
    if designs(task.spec):
        return {"topology": fabric, "network": fabric, "workload": task.algorithm, "refused": found.refused}
    if works(task.spec):
        work = {"model": task.spec.iteration.model} if task.spec.iteration.model else {
            "workload": named(task.spec.workload), "algorithm": ",".join(task.spec.collective.algorithms or ())}
        return {"topology": fabric, **work, "refused": found.refused}
    what = {"topology": fabric, "collective": task.spec.kind.name}
    return what | {"algorithm": task.algorithm, "size_bytes": task.size_bytes, "refused": found.refused}


@checked
def export(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Write rows as CSV or Parquet, by the suffix.

    Raises
    ------
    WeftError
        Another suffix, or Parquet without pyarrow.
    """
    if path.suffix == ".csv":
        path.write_text(to_csv(rows), encoding="utf-8")
    elif path.suffix == ".parquet":
        write_parquet(rows, path)
    else:
        raise WeftError(f"{path} has the suffix {path.suffix!r}: write .csv or .parquet")


def write_parquet(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Write rows as Parquet; nested values as JSON, and columns of mixed kinds as text, as in CSV.

    WeftError: pyarrow is not installed.
    """
    check_parquet()
    import pyarrow  # an extra
    from pyarrow import parquet

    columns: dict[str, list[Any]] = {name: [row[name] for row in rows] for name in (rows[0] if rows else ())}
    for name, values in columns.items():
        flat = [json.dumps(value) if isinstance(value, (dict, list)) else value for value in values]
        mixed = len({str if isinstance(value, str) else float for value in flat if value is not None}) > 1
        columns[name] = [None if value is None else str(value) for value in flat] if mixed else flat
    parquet.write_table(pyarrow.table(columns), path)


def check_parquet() -> None:
    """Reject Parquet if it cannot be written, before anything is computed."""
    if find_spec("pyarrow") is None:
        raise WeftError("Parquet needs pyarrow: pip install 'weft[data]', or write .csv")
