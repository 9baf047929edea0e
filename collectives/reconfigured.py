"""Collectives whose circuits are switched between steps: the pairs of each step, and the transfers on other circuits.

Applies to any schedule in steps. Nothing waits for the end of a step but the changes of circuits: they wait for what
crosses the circuits that go down, and what crosses those that come up waits for them.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain

import numpy as np
import numpy.typing as npt

from collectives.core.by_slots import WHOLE
from collectives.core.pattern import OwnProof, Pattern
from collectives.core.schedule import Schedule
from collectives.core.transfers import Transfers, sources_only, take
from topologies import Topology, WeftError
from topologies.core.epochs import Epochs, circuit_epochs
from topologies.core.paths import distinct_of
from topologies.core.rateless import wiring_of
from topologies.optics import joining
from topologies.process import heard
from topologies.stages import count

Pair = tuple[int, int]

Bools = npt.NDArray[np.bool_]

MOST_KEPT = 512
"""Limit on the patterns that are kept, for other rates of their fabric."""

_PATTERNS: dict[tuple[object, ...], Pattern] = {}

OWN = "own"
"""Static circuits that are those of a schedule's pairs."""


class Unswitchable(WeftError):
    """A schedule whose circuits cannot be switched between its steps."""


def step_numbers(t: Transfers) -> npt.NDArray[np.int64]:
    """The step of each transfer, counted from 0; of what moves nothing that of the step before."""
    return np.maximum(np.searchsorted(distinct_of(t.step[t.src != t.dst]), t.step, "right") - 1, 0)


def step_pairs(schedule: Schedule) -> list[frozenset[Pair]]:
    """The pairs of ranks that each step joins, first to last."""
    t, step = schedule.pattern.transfers(), step_numbers(schedule.pattern.transfers())
    rows = np.flatnonzero(t.src != t.dst)
    rows = rows[np.argsort(step[rows], kind="stable")]
    ends = np.cumsum(np.bincount(step[rows]))
    kept, found = dict[tuple[bytes, bytes], frozenset[Pair]](), list[frozenset[Pair]]()
    for at, some in enumerate(np.split(rows, ends)[:-1]):
        count("steps", at, ends.size)
        src, dst = t.src[some], t.dst[some]
        if (key := (src.tobytes(), dst.tobytes())) not in kept:
            kept[key] = frozenset(zip(src.tolist(), dst.tolist(), strict=True))
        found.append(kept[key])
    return found


def in_matchings(schedule: Schedule) -> Schedule:
    """A schedule whose transfers wait for nothing, in steps in which each rank sends and receives once.

    The matching that moves the most bytes first (Birkhoff, with few matchings: arXiv 2605.26845); of any other
    schedule, the schedule itself. On duplex ports both ways of a pair are in one step; where their number is even, the
    pairs of a step are cycles, which take two ports: so none is left over.
    """
    t = schedule.pattern.transfers()
    if t.dep_src.size or t.pool is not None or not np.any(t.src != t.dst):
        return schedule
    return _matched(schedule, t, np.zeros(t.src.size, np.int64), [0])


def fitted(schedule: Schedule) -> Schedule:
    """A schedule whose transfers wait, with what they allow in matchings; itself where that is nothing.

    Steps with more pairs than ports are divided, unless all are of one rank or wait for each other. Where nobody
    forwards in an all-to-all, transfers wait their turn only: on duplex ports they get other turns, in which both ways
    of a pair are used at once.
    """
    t, optics, old = schedule.pattern.transfers(), schedule.topology.optics, schedule.pattern
    if optics is None or optics.only or t.pool is not None or not t.dep_src.size or (old.n_sources or old.p) > old.p:
        return schedule
    if optics.duplex and not _forwards(schedule, t):
        one = _matched(schedule, t, np.zeros(t.src.size, np.int64), [0])
        fabric, key = one.topology, ("in turn", one.pattern.emission, wiring_of(one.topology))
        return _kept(one, fabric, key, lambda: _moved(one, _in_turn(one.pattern.transfers()), fabric).pattern)
    step, moves, (owner, source) = step_numbers(t), t.src != t.dst, waits(t)
    within = step[owner[(step[owner] == step[source]) & moves[source]]]
    wide = [number for number, pairs in enumerate(step_pairs(schedule))
            if joining(schedule.topology, pairs) is None and not frozenset.intersection(*map(frozenset, pairs))]
    wide = np.setdiff1d(wide, within).tolist()
    return _matched(schedule, t, step, wide) if wide else schedule


def _forwards(schedule: Schedule, t: Transfers) -> bool:
    """Whether more is sent than once from each rank to each other, or something else than that is asked for."""
    kind, p, n_blocks = schedule.kind, schedule.pattern.p, schedule.pattern.n_blocks
    if kind.name != "all-to-all" or kind.group_size is not None:
        return True
    block, size = np.arange(n_blocks), np.array(kind.weights or [1] * n_blocks)
    return bool(t.blocks[t.src != t.dst].sum() > size[block // p % p != block % p].sum())


def _in_turn(t: Transfers) -> Transfers:
    """Each of some transfers waits for what its source sent and received last, in a step before."""
    last, after = dict[int, list[int]](), [list[int]() for _ in t.src]
    for number in range(int(t.step.max()) + 1):
        now: dict[int, list[int]] = {}
        for row in np.flatnonzero((t.step == number) & (t.src != t.dst)).tolist():
            after[row] = last.get(int(t.src[row]), [])
            for end in (int(t.src[row]), int(t.dst[row])):
                now.setdefault(end, []).append(row)
        last |= now
    awaited = np.array([*chain.from_iterable(after)], np.int64)
    ptr = np.concatenate(([0], np.cumsum([*map(len, after)], dtype=np.int64)))
    lag = np.full(awaited.size, WHOLE, np.int32)
    return t._replace(dep_ptr=ptr, dep_src=t.src[awaited], dep_slot=t.slot[awaited], dep_lag=lag)


def _matched(schedule: Schedule, t: Transfers, group: npt.NDArray[np.int64], wide: Sequence[int]) -> Schedule:
    """Groups of transfers one after the other, those that are wide in matchings for the ports of the fabric.

    Every second one backwards, so that the circuits of the last matching before it may stay.
    """
    optics = schedule.topology.optics
    ports = (optics.duplex, optics.ports % 2) if optics else ()
    key = schedule.pattern.emission, wiring_of(schedule.topology), ports, *wide
    return _kept(schedule, schedule.topology, key, lambda: _in_steps(schedule, t, group, wide).pattern)


def _in_steps(schedule: Schedule, t: Transfers, group: npt.NDArray[np.int64], wide: Sequence[int]) -> Schedule:
    p, optics = schedule.pattern.p, schedule.topology.optics
    of = _heaviest if optics is None or not optics.duplex else _cycles if optics.ports % 2 == 0 else _both_ways
    step, first, moves = np.zeros(t.src.size, np.int32), 0, t.src != t.dst
    for one in range(int(group.max()) + 1):
        step[group == one], number = first, 0
        moved = left = np.flatnonzero((group == one) & moves & (one in wide))
        while left.size:
            weight, taken = np.zeros((p, p)), np.zeros((p, p), np.bool_)
            np.add.at(weight, (t.src[left], t.dst[left]), t.blocks[left])
            count("transfers in matchings", t.src.size - left.size, t.src.size)
            taken[of(weight, number)] = True
            here = taken[t.src[left], t.dst[left]]
            step[left[here]] = first + number
            left, number = left[~here], number + 1
        if one in wide[1::2]:
            step[moved] = 2 * first + number - 1 - step[moved]
        first += max(number, 1)
    return _moved(schedule, t._replace(step=step, via_ptr=None, via_links=None), schedule.topology)


Ends = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]
"""Sources and destinations of pairs."""


def _heaviest(weight: npt.NDArray[np.float64], number: int) -> Ends:
    """The pairs of the heaviest matching from each rank to another."""
    from scipy.optimize import linear_sum_assignment  # heavy: loaded where it is used

    found: Ends = heard(partial(linear_sum_assignment, weight, maximize=True))
    return found


def _cycles(weight: npt.NDArray[np.float64], number: int) -> Ends:
    """Both ways of the heaviest cycles; among equals those of ranks as far apart as the number of the step says."""
    p, both = len(weight), np.maximum(weight, weight.T)
    apart = (np.arange(p) - np.arange(p)[:, None]) % p
    once = (both > 0) & ((apart < p - apart) | (apart * 2 == p) & (apart == np.arange(p) - np.arange(p)[:, None]))
    src, dst = _heaviest(once * (both + (apart == number + 1) / (2 * p)), number)
    src, dst = src[once[src, dst]], dst[once[src, dst]]
    return np.concatenate([src, dst]), np.concatenate([dst, src])


def _both_ways(weight: npt.NDArray[np.float64], number: int) -> Ends:
    """Both ways of the heaviest matching of pairs; among equals that of a round: all meet each other once."""
    import rustworkx as rx  # heavy: loaded where it is used

    p, both = len(weight), np.maximum(weight, weight.T)
    rounds = p - 1 + p % 2  # the last of an even number meets who would meet itself
    graph = rx.PyGraph()
    graph.add_nodes_from(range(p))
    for a, b in np.argwhere(np.triu(both)).tolist():
        turn = (2 * a if b == rounds else a + b) % rounds == number
        graph.add_edge(a, b, 2 * p * round(both[a, b]) + turn)
    src, dst = np.array([*rx.max_weight_matching(graph, weight_fn=int)], np.int64).T
    return np.concatenate([src, dst]), np.concatenate([dst, src])


def of_steps(schedule: Schedule, first: int, last: int) -> Transfers:
    """The transfers of some steps alone.

    `first`, `last`: of the steps, counted from 0.
    """
    t = schedule.pattern.transfers()
    step = step_numbers(t)
    return of_rows(t, np.flatnonzero((step >= first) & (step <= last)))


def part(schedule: Schedule, transfers: Transfers, fabric: Topology) -> Schedule:
    """Some transfers of a schedule alone, on other circuits; those of other rates have the same pattern."""
    columns = [column.tobytes() for column in transfers if column is not None]
    key = schedule.pattern.emission, wiring_of(fabric), *columns
    return _kept(schedule, fabric, key, lambda: _moved(schedule, transfers, fabric, phases=(), is_part=True).pattern)


def _kept(schedule: Schedule, fabric: Topology, key: tuple[object, ...], make: Callable[[], Pattern]) -> Schedule:
    """A schedule of the size of another whose pattern is made once."""
    if key not in _PATTERNS:
        while len(_PATTERNS) >= MOST_KEPT:
            del _PATTERNS[next(iter(_PATTERNS))]
        _PATTERNS[key] = make()
    return Schedule(_PATTERNS[key].on(fabric), schedule.size_bytes, schedule.element_bytes)


def switched(schedule: Schedule, fabrics: Sequence[Topology]) -> Schedule:
    """The schedule with circuits that are switched between its steps.

    `fabrics`: what is up in each step; the first says how circuits are switched.
    WeftError: a step whose pairs its circuits do not join, or transfers that wait for those of later circuits.
    """
    t = schedule.pattern.transfers()
    optics, chosen, epoch_of = schedule.topology.optics, list[Topology](), list[int]()
    assert optics is not None
    for fabric in (*[schedule.topology] * bool(optics.circuits), *fabrics):
        if not chosen or fabric is not chosen[-1]:
            chosen.append(fabric)
        epoch_of.append(len(chosen) - 1)
    epoch_of = epoch_of[-len(fabrics):]
    if len(chosen) == 1 and not optics.paid:
        alike = chosen[0] is schedule.topology
        return schedule if alike else _moved(schedule, t._replace(via_ptr=None, via_links=None), chosen[0])
    epochs = circuit_epochs(chosen, keep=optics.per_port, name=schedule.topology.name)
    epoch = np.array(epoch_of, np.int64)[step_numbers(t)]
    _check_order(t, epoch, schedule.name)
    return _moved(schedule, _named(t, epochs, epoch), epochs.topology, epochs)


def on_own_circuits(schedule: Schedule) -> Schedule:
    """The schedule on circuits between all its pairs, which are up in the beginning and stay.

    Unswitchable: a server has more of them than ports, or the switches make no others than those of the fabric.
    """
    optics = schedule.topology.optics
    if optics is not None and optics.only:  # before all transfers are made
        raise Unswitchable(f"{schedule.topology.name} has circuits of its own form only: {', '.join(optics.only)}")
    pairs = step_pairs(schedule)
    fabric = joining(schedule.topology, frozenset().union(*pairs))
    if fabric is None:
        raise Unswitchable(f"{schedule.name} joins a server with more than the ports of {schedule.topology.name}")
    fabric = replace(fabric, name=f"{schedule.topology.name},circuits={OWN}")
    return _moved(schedule, schedule.pattern.transfers()._replace(via_ptr=None, via_links=None), fabric)


def on_epoch(schedule: Schedule, epochs: Epochs, epoch: int, npus: Sequence[int] | None = None) -> Schedule:
    """The schedule, or the groups of some NPUs, on the circuits of one epoch, which its transfers name."""
    t = schedule.pattern.transfers()
    t = t if npus is None else of_rows(t, np.flatnonzero(np.isin(t.src, npus)))
    return _moved(schedule, _named(t, epochs, np.full(t.src.size, epoch)), epochs.topology)


def _named(t: Transfers, epochs: Epochs, epoch: npt.NDArray[np.int64]) -> Transfers:
    """Transfers that name the circuits of the epoch of each, (n,)."""
    hops, links = np.zeros(t.src.size, np.int64), [np.zeros(0, np.int64)] * t.src.size
    for number in distinct_of(epoch).tolist():
        rows = np.flatnonzero(epoch == number)
        paths = epochs.fabrics[number].paths(t.src[rows], t.dst[rows])
        hops[rows] = np.diff(paths.ptr)
        crossed = np.split(epochs.links[number][paths.links], paths.ptr[1:-1])
        for row, route in zip(rows.tolist(), crossed, strict=True) if rows.size else ():
            links[row] = route
    crossed_links = np.concatenate(links).astype(np.int32)
    return t._replace(via_ptr=np.concatenate(([0], np.cumsum(hops))), via_links=crossed_links)


def _moved(
    schedule: Schedule, transfers: Transfers, fabric: Topology, circuits: Epochs | None = None,
    phases: tuple[int, ...] | None = None, is_part: bool = False,
) -> Schedule:
    """Transfers of a schedule on another fabric: every rank still gets and adds what its proof says."""
    old = schedule.pattern
    if (old.n_sources or old.p) > old.p:
        raise Unswitchable(f"{schedule.name} lets switches send; circuits are switched between servers")
    pattern = Pattern(
        topology=fabric, kind=old.kind, algorithm=old.algorithm, form=old.form, n_blocks=old.n_blocks,
        emit=partial(sources_only, transfers), blocks_of=old.blocks_of, root=old.root, pools=old.pools, note=old.note,
        own_proof=OwnProof(lambda: old.proof, unnamed=True), progress=old.progress,
        phases=old.phases if phases is None else phases, circuits=circuits, is_part=is_part,
    )
    return Schedule(pattern, schedule.size_bytes, schedule.element_bytes)


def waits(t: Transfers) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The row that waits of each dependency, and the row that it waits for."""
    return np.repeat(np.arange(t.src.size), np.diff(t.dep_ptr)), np.searchsorted(*_keys(t))


def _keys(t: Transfers) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """A number of each transfer, ascending as rows are, and those of what is waited for."""
    p = int(max(t.src.max(initial=0), t.dst.max(initial=0), t.dep_src.max(initial=0))) + 1
    return t.slot.astype(np.int64) * p + t.src, t.dep_slot * np.int64(p) + t.dep_src


def _check_order(t: Transfers, epoch: npt.NDArray[np.int64], name: str) -> None:
    owner, source = waits(t)
    if np.any(epoch[source] > epoch[owner]):
        raise Unswitchable(f"{name} has transfers that wait for those of later steps: its circuits cannot be switched")


def of_rows(t: Transfers, rows: npt.NDArray[np.int64]) -> Transfers:
    """Some of the transfers, by ascending rows, without what they wait for among the others."""
    some = take(t._replace(via_ptr=None, via_links=None), rows)
    key, wanted = _keys(some)
    stays = np.append(key, -1)[np.searchsorted(key, wanted)] == wanted
    owner = np.repeat(np.arange(rows.size), np.diff(some.dep_ptr))
    return some._replace(
        dep_ptr=np.concatenate(([0], np.cumsum(np.bincount(owner[stays], minlength=rows.size)))),
        dep_src=some.dep_src[stays], dep_slot=some.dep_slot[stays], dep_lag=some.dep_lag[stays],
    )
