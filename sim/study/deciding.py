"""Other values of flags, tried where that is cheap: defaults that decide who is first, and what narrows a range."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from functools import cache
from math import inf
from typing import Any, NamedTuple

import numpy as np

from collectives import ALGORITHMS, algorithm, in_network
from collectives.formats.names import called
from collectives.registry import REDUCING
from sim.engine.run import FOREVER_PS
from sim.how import How
from sim.program.model_options import DEFAULT_CHUNKS, LEFT_OPEN
from sim.program.outcome import Deadlock, Outrun
from sim.study.points import (
    SPREAD_SERVICES,
    Task,
    compute,
    floor_ps,
    lowered,
    numbers_of_trees,
    ready_point,
    simulate_ready,
    topology_of,
)
from sim.study.spec import Spec
from sim.study.tables import Row, range_words, tied_with, time_text, width_of
from sim.why.spread import RUNS
from topologies import Topology, WeftError
from topologies.units import PS_PER_S, format_rate, format_size

WORTH_SAYING = 0.05
"""Share of its time that another value of a default must save the fastest, to be told where the ranking stays."""


class Alternative(NamedTuple):
    """Another value of a default."""

    default: str  # "links serve fifo"
    instead: str  # "lowest-chunk-first"
    flag: str
    spec: Spec
    names: frozenset[str]  # algorithms whose times it changes
    told: frozenset[str] = frozenset()  # of these, those whose times are told where they are longer, too
    shared: bool = False  # whether it is about routes that might be others, or have links in common
    same: Callable[[Row], bool] = lambda row: False  # whether a row is of such a run already


def deciding_defaults(spec: Spec, topology: Topology, rows: Sequence[Row], how: How = How()) -> list[str]:
    """One line for each default without which another algorithm is the fastest at some size, or the fastest is faster.

    What ranks wait for is told wherever it changes the time of the fastest, or of a single algorithm. Alternatives are
    simulated, at all sizes or, beyond a limit on the services, not at all, which is said. Of a single algorithm there
    is no ranking, and the other engines have no such limit.
    """
    if spec.engine != "chunk":
        return []
    if len({row["algorithm"] for row in rows}) < 2:
        return deciding_alone(spec, rows, how)
    return _lines(spec, _alternatives(spec, topology, rows), rows, how)


def deciding_alone(spec: Spec, rows: Sequence[Row], how: How = How()) -> list[str]:
    """A line where ports that go on alone, or flows that take turns, change the time of a single algorithm."""
    is_one = len({row["algorithm"] for row in rows}) == 1
    left = [row for row in rows if not is_one or _may_take_less(spec, row)]
    return _lines(spec, _of_waits(spec, rows), rows, how) + _lines(spec, _of_turns(spec, left), left, how)


def _lines(spec: Spec, alternatives: Iterable[Alternative], rows: Sequence[Row], how: How) -> list[str]:
    to_neighbors = cache(lambda name, size_bytes: goes_to_neighbors(Task(spec, name, size_bytes)))
    return [line for one in alternatives if (line := _tried(one, rows, how, to_neighbors))]


def _may_take_less(spec: Spec, row: Row) -> bool:
    """Whether bounds, which hold in any order of service, leave a share of the time to be saved."""
    (name,) = [name for name in spec.algorithms if called(name) == row["algorithm"]]
    schedules = ready_point(Task(spec, name, row["size_bytes"]))[0].values()
    return floor_ps(spec, schedules) < (1 - WORTH_SAYING) * float(row["time_s"]) * PS_PER_S


def _of_turns(spec: Spec, rows: Sequence[Row]) -> Iterator[Alternative]:
    """Flows that take turns on links, for what is near the fastest at some size and served in order of arrival."""
    near = frozenset(
        str(row["algorithm"]) for here in (_at(rows, size) for size in _sizes(rows)) for row in here
        if row["discipline"] == "fifo" and float(row["time_s"]) <= (1 + 2 * WORTH_SAYING) * float(here[0]["time_s"])
    )
    if near and spec.model.discipline is None and spec.engine == "chunk":
        yield _alternative("links serve chunks as they arrive", "turns of flows", "--discipline round-robin-flow", spec,
                           {"model": {"discipline": "round-robin-flow"}}, near)._replace(shared=True)


def _of_waits(spec: Spec, rows: Sequence[Row]) -> Iterator[Alternative]:
    waits = frozenset(str(row["algorithm"]) for row in rows if row["rank_progress"] != "free")
    if waits and spec.model.rank_progress is None and spec.build_model().rank_progress in LEFT_OPEN:
        made = _alternative(f"ranks of {_names(waits)} wait for all ports of a step", "ports that go on alone",
                            "--rank-progress free", spec, {"model": {"rank_progress": "free"}}, waits)
        yield made._replace(told=waits)


def _alternatives(spec: Spec, topology: Topology, rows: Sequence[Row]) -> Iterator[Alternative]:
    every = frozenset(str(row["algorithm"]) for row in rows)
    first = frozenset[str]().union(*(_fastest(_at(rows, size)) for size in _sizes(rows)))
    if (reducing := REDUCING & first) and not topology.boxes_reduce and spec.topology.aggregation_rate is None:
        rate_Bps = int(topology.bandwidth_Bps.max())
        yield _alternative(
            "switches or routers reduce at any rate", f"{format_rate(rate_Bps)} a switch, the rate of one link",
            "--aggregation-rate", spec,
            {"topology": {"aggregation_rate": f"{rate_Bps}B/s"}}, reducing,
        )
    served = {str(row["algorithm"]) for row in rows if row["discipline"] != "fifo"} & first
    if served and spec.model.discipline is None:
        yield _alternative(f"{_names(served)} with the discipline of the design", "fifo for all", "--discipline fifo",
                           spec, {"model": {"discipline": "fifo"}}, served)
    yield from _of_waits(spec, rows)
    yield from _of_turns(spec, rows)
    if spec.model.rank_progress is None and topology.ports_have_links and (hurried := _may_be_first_waiting(rows)):
        yield _alternative("ports of a rank go on alone", f"ranks of {_names(hurried)} that wait for all of them",
                           "--rank-progress all", spec, {"model": {"rank_progress": "all"}}, hurried)
    recut = {str(row["algorithm"]) for row in rows if row["chunks"] != DEFAULT_CHUNKS}
    if spec.chooses and recut & first:
        yield _alternative(f"{_names(recut & first)} in as many chunks as suit it", f"{DEFAULT_CHUNKS} for all",
                           f"--chunks {DEFAULT_CHUNKS}", spec, {"model": {"chunks": DEFAULT_CHUNKS}}, recut)._replace(
            same=lambda row: row["chunks"] == DEFAULT_CHUNKS and row["discipline"] == "fifo")
    if spec.model.tie is None and spec.build_model().tie == "first":
        yield _alternative("of routes of equal length, the first", "all of them", "--tie split", spec,
                           {"model": {"tie": "split"}}, every)._replace(shared=True)
    if spec.build_model().deliver == "head":
        yield _alternative("a chunk is delivered with its head", "its tail", "--deliver tail", spec,
                           {"model": {"deliver": "tail"}}, every)
    if spec.chooses:
        return
    slower = (every - first) & {*ALGORITHMS}
    for discipline in sorted({algorithm(name).discipline for name in slower} - {"fifo"}):
        if spec.model.discipline is None:
            designed = {name for name in slower if algorithm(name).discipline == discipline}
            yield _alternative(f"{_names(designed)} with fifo", discipline, f"--discipline {discipline}", spec,
                               {"model": {"discipline": discipline}}, designed)
    if in_network.NAME in slower and "trees" not in spec.options_of(in_network.NAME):
        for trees in numbers_of_trees(spec, topology, in_network.NAME):
            options = (*(spec.collective.options or ()), f"trees={trees}")
            yield _alternative(f"{in_network.NAME} over one tree", f"{trees} trees", f"--option trees={trees}", spec,
                               {"collective": {"options": options}}, {in_network.NAME})


def _may_be_first_waiting(rows: Sequence[Row]) -> set[str]:
    """Algorithms whose ranks do not wait, and whose bound is so far below the fastest that waits might pay."""
    first_s = {size: float(_at(rows, size)[0]["time_s"]) for size in _sizes(rows)}
    return {
        str(row["algorithm"]) for row in rows if row["rank_progress"] == "free"
        and float(row["lower_bound_s"] or 0) < (1 - WORTH_SAYING) * first_s[row["size_bytes"]]
    }


def _alternative(
    default: str, instead: str, flag: str, spec: Spec, changes: Mapping[str, Mapping[str, Any]], names: Set[str]
) -> Alternative:
    return Alternative(default, instead, flag, spec.updated(changes), frozenset(names))


def _stays(one: Alternative, name: str, size_bytes: int, to_neighbors: Callable[[str, int], bool]) -> bool:
    """Whether an alternative is known to change no run of a point.

    Where all goes to neighbors no route has another of its length, and each link has one flow, which takes all turns.
    Transfers that name their links have no other route.
    """
    if not one.shared or (one.spec.model.discipline and algorithm(name).discipline != "fifo"):
        return False  # the discipline of its design is tried beside that of the user
    turns = one.spec.model.discipline is not None
    return to_neighbors(name, size_bytes) or (not turns and names_links(Task(one.spec, name, size_bytes)))


def goes_to_neighbors(task: Task) -> bool:
    """Whether all that NPUs send at a point, in any of its forms, goes to a neighbor, by the only route."""
    spec = task.spec
    if spec.build_faults() or spec.build_model().buffer_bytes is not None or topology_of(spec).optics:
        return False
    with suppress(WeftError):
        return all(
            not one.pattern.in_switches and has_one_route(one.topology)
            and lowered(spec, one).program.hops().max(initial=0) < 2 for one in ready_point(task)[0].values()
        )
    return False


def names_links(task: Task) -> bool:
    """Whether the transfers of a point name the links that they cross, in all of its forms."""
    with suppress(WeftError):
        tables = [lowered(task.spec, one).transfers[0] for one in ready_point(task)[0].values()]
        return all(t is not None and t.via_ptr is not None and bool(np.diff(t.via_ptr).all()) for t in tables)
    return False


def has_one_route(topology: Topology) -> bool:
    """Whether the link between two NPUs that have one is the only route of its length, by every rule."""
    link = np.flatnonzero(np.maximum(topology.src, topology.dst) < topology.n_npus)
    return np.array_equal(topology.paths(topology.src[link], topology.dst[link], "split").links, link)


def _tried(one: Alternative, rows: Sequence[Row], how: How, to_neighbors: Callable[[str, int], bool]) -> str:
    """Who is the fastest with an alternative, and where; "" if that changes nothing, or nothing it changes can run."""
    changed = [row for row in rows if row["algorithm"] in one.names]
    if sum(row["events"] for row in changed) > SPREAD_SERVICES:
        return f"perhaps: {one.default}; {one.instead} was not tried, for it takes long ({one.flag})"
    given = {called(name): name for name in one.spec.algorithms}
    winners: dict[str, list[int]] = {}
    others: list[str] = []
    stuck: set[str] = set()
    for size in _sizes(rows):
        here = _at(rows, size)
        before, first, least_s = _fastest(here), here[0]["algorithm"], float(here[0]["time_s"])
        times = {row["algorithm"]: float(row["time_s"]) for row in here}
        stay = {row["algorithm"] for row in here if one.same(row)}
        left = [name for name in times if name in one.names - stay and not _stays(one, given[name], size, to_neighbors)]
        for name in sorted(left, key=lambda name: (name != first, name in before)):
            known = {other: time_s for other, time_s in times.items() if other not in left}
            leader = min(known, key=lambda name: known[name], default=first)
            limit_s = inf if name == first else known[leader]
            if len(times) == 1 and name not in one.told:  # of a single one that is not said which takes no less
                limit_s = (1 - WORTH_SAYING) * least_s
            if name != first and {name, leader} <= before:  # one is as good as the other, but for what is worth saying
                limit_s = min(limit_s, (1 - WORTH_SAYING) * least_s)
            try:
                times[name] = _time_s(Task(one.spec, given[name], size, **how.arguments()), limit_s)
            except WeftError:  # it cannot run so, and stays as it is
                stuck.add(name)
            left.remove(name)
        found = min(times, key=lambda name: times[name])
        if found not in before:
            winners.setdefault(found, []).append(size)
        if found in before and times[found] < (1 - WORTH_SAYING) * least_s:
            others.append(_takes(found, times[found], size))
        elif first in one.told and times[first] > (1 + WORTH_SAYING) * least_s:
            others.append(_takes(first, times[first], size))
    if len(others) > 3:
        others = [*others[:2], f"and at {len(others) - 2} more sizes"]
    said = ", ".join([*(f"{name} is the fastest at {_listed(sizes)}" for name, sizes in winners.items()), *others])
    so = f", and {_names(stuck)} cannot run" * bool(stuck)
    return said and f"{one.default}; with {one.instead}, {said}{so} ({one.flag})"


def _time_s(task: Task, limit_s: float) -> float:
    """The time of a point; infinity where it is longer than a limit, which need not be simulated."""
    ready, limit_ps = ready_point(task), FOREVER_PS if limit_s == inf else round(limit_s * PS_PER_S)
    if floor_ps(task.spec, ready[0].values()) > limit_ps:
        return inf
    with suppress(Outrun):
        return simulate_ready(task, *ready, limit_ps=limit_ps).result.time_s
    return inf


def _takes(name: str, time_s: float, size_bytes: int) -> str:
    return f"{name} takes {time_text(time_s)} at {format_size(size_bytes)}"


def _sizes(rows: Sequence[Row]) -> list[int]:
    return list(dict.fromkeys(row["size_bytes"] for row in rows))


def _at(rows: Sequence[Row], size_bytes: int) -> list[Row]:
    """The rows of a size, the fastest first."""
    return sorted((row for row in rows if row["size_bytes"] == size_bytes), key=lambda row: float(row["time_s"]))


def _fastest(here: Sequence[Row]) -> frozenset[str]:
    """The fastest of the rows of a size, and those that are tied with it."""
    return frozenset([here[0]["algorithm"], *tied_with(here)])


def _listed(sizes: Sequence[int]) -> str:
    if len(sizes) < 4:
        return ", ".join(map(format_size, sizes))
    return f"{len(sizes)} sizes, {format_size(sizes[0])} to {format_size(sizes[-1])}"


def _names(names: Set[str]) -> str:
    return ", ".join(sorted(names))


TOO_WIDE = 0.05
"""Share of a time beyond which its range asks for a cure."""


def cures(spec: Spec, rows: Sequence[Row]) -> list[str]:
    """A line for each algorithm with a wider range than that, of its widest: the first flag that narrows it to that.

    Where it is the fastest, or tied. A flag that makes it slower than its range is none. Those of the same time and
    range at the same size have one line, whose flag is of the first.
    """
    by_size: dict[int, list[Row]] = {}
    for row in sorted(rows, key=lambda row: float(row["time_s"])):
        by_size.setdefault(row["size_bytes"], []).append(row)
    first = [row for here in by_size.values() for row in here if row is here[0] or row["algorithm"] in tied_with(here)]
    widest = {row["algorithm"]: row for row in sorted(first, key=width_of) if width_of(row) > TOO_WIDE}
    alike: dict[tuple[int, str], list[Row]] = {}
    for row in widest.values():
        alike.setdefault((row["size_bytes"], _told(row)), []).append(row)
    return [_cure(spec, *some) for some in alike.values()]


def _cure(spec: Spec, row: Row, *same: Row) -> str:
    others = f" (so {'do' if len(same) > 1 else 'does'} {', '.join(other['algorithm'] for other in same)})" * bool(same)
    where = f"{row['algorithm']} at {format_size(row['size_bytes'])} takes {_told(row)}{others}"
    name = {called(one): one for one in spec.algorithms}[row["algorithm"]]
    left, optics = SPREAD_SERVICES, topology_of(spec).optics
    is_planned = optics is not None and not optics.dwell_ps  # anew with each flag, which takes hundreds of runs
    for flag, key, value in _candidates(row):
        if (left := left - (RUNS + 1) * row["events"]) < 0 or is_planned:
            return f"{where}, an accident; what narrows it was not tried, for it takes long ({flag})"
        try:
            other = compute(Task(spec.updated({"model": {key: value}}), name, row["size_bytes"], spread=RUNS))
        except (WeftError, Deadlock):  # it cannot run so
            continue
        if width_of(other) <= TOO_WIDE and other["time_s"] <= float(row["spread_high_s"] or row["time_s"]):
            return f"{where}, an accident; with {flag} {_told(other)}"
    return f"{where}, an accident that no flag tried narrows without more time: take the range for the answer"


def _candidates(row: Row) -> Iterator[tuple[str, str, Any]]:
    if row["rank_progress"] == "free":
        yield "--rank-progress all", "rank_progress", "all"
    for discipline in ("lowest-chunk-first", "round-robin-flow"):
        if row["discipline"] != discipline:
            yield f"--discipline {discipline}", "discipline", discipline
    yield "--tie split", "tie", "split"


def _told(row: Row) -> str:
    return f"{time_text(row['time_s'])}{range_words(row)}"
