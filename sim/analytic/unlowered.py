"""Bounds of a schedule from its transfers alone: they exclude most of what is compared before it is lowered.

No symmetry is looked for and no program made, which for small fabrics takes ten times as long. The bounds are those of
`sim.analytic.bounds` for whole transfers, which no other number of chunks falls below: that only rounds more services
up. Where transfers follow each other chunk by chunk, which pipelines gain from, none are known here.
"""

from contextlib import suppress
from fractions import Fraction
from functools import lru_cache, partial
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from collectives.core.emission import Emit
from collectives.core.pattern import Pattern
from collectives.core.schedule import Schedule
from collectives.core.transfers import Transfers
from sim.lower.progress import FREE, Waiting, waiting_of
from sim.lower.quotient import finder, routes_of
from sim.program import I32, I64, WHOLE, i32
from sim.program.columns import unique_rows
from sim.program.contract import CLOCK_END_PS
from sim.program.cutting import Rates
from sim.program.model import Model, changed
from topologies import Paths, Topology, WeftError
from topologies.compiled import cached
from topologies.core.rateless import wiring_of
from topologies.stages import staged

PLAIN = frozenset({"chunks", "discipline", "endpoint_latency_ps", "rank_progress", "seed", "tie"})
"""Fields of a model, of links alone, by which these bounds hold, whatever they are; but for `tie="split"`."""

MOST_NPUS = 64
"""Of a fabric all of whose routes are looked up at once."""

MOST_HOPS = 2**20
"""Of all transfers: up to here the bounds take less time than to lower."""

FAR = 2**12
"""Runs end so many times before the clock, with as many chunks as are ever tried."""


class Whole(NamedTuple):
    """Bounds of a schedule of whole transfers, in ps."""

    load_ps: int  # work of the busiest link
    path_ps: int  # the longest chain of transfers, each alone on its route
    unrounded_ps: int  # at least the work of the busiest link before services are rounded up
    hops: int  # of all transfers together


class _Chains(NamedTuple):
    """Transfers with what they cross and wait for, in an order in which what is waited for comes first."""

    ptr: I64  # links of routes, as in `Paths`
    links: I32
    route: I32  # (n,), of each transfer; in this order, as all that follows
    size: I32  # which of the sizes
    parent_ptr: I32
    parent: I32
    run_ptr: I32  # runs of transfers that do not wait for each other
    group: I32  # transfers that begin together have one number
    sizes: I64  # distinct numbers of blocks
    hops: int


class _Last(NamedTuple):
    """What was found last of some transfers."""

    of_chains: tuple[object, ...]
    chains: _Chains | None
    of_whole: tuple[object, ...] = ()
    whole: Whole | None = None


_last: "WeakKeyDictionary[Emit, _Last]" = WeakKeyDictionary()
"""By what emits the transfers, as shapes are."""


@staged("bounds")
def whole_of(schedule: Schedule, model: Model) -> Whole | None:
    """The bounds of whole transfers; None where the schedule has to be lowered to tell.

    That is where its transfers have not all been emitted, follow each other chunk by chunk or stand for several rounds;
    under a model with more than links; and near the end of the clock.
    """
    topology = schedule.topology
    plain = model.tie != "split" and PLAIN.issuperset(name for name, _ in changed(model))
    if not plain or topology.optics is not None or schedule.kind.weights is not None or not schedule.size_bytes:
        return None
    last, of = _chains_of(schedule.pattern, model), (topology, schedule.block_bytes, model)
    if last.of_whole != of:
        whole = None if last.chains is None else _whole(last.chains, schedule, model)
        last = _last[schedule.pattern.emit] = last._replace(of_whole=of, whole=whole)
    return last.whole


def _whole(chains: _Chains, schedule: Schedule, model: Model) -> Whole | None:
    topology = schedule.topology
    rates, link_rate = np.unique(topology.bandwidth_Bps, return_inverse=True)
    latency_ps = topology.latency_ps + topology.hop_latency_ps[topology.dst]
    after_ps = np.maximum([latency_ps, latency_ps + model.endpoint_latency_ps], 1)  # inside routes, and at their ends
    per_s, work = [Fraction(rate) for rate in rates.tolist()], chains.sizes[:, None] * schedule.block_bytes
    service_ps, crossed = Rates(per_s).times_ps(work, np.arange(rates.size)), np.zeros((2, link_rate.size), np.int64)
    if chains.hops * (int(service_ps.max(initial=0)) + int(after_ps.max(initial=0))) * FAR >= CLOCK_END_PS:
        return None
    release, finish = np.zeros((2, chains.group.size), np.int64)
    path_ps = _longest(*chains[:-2], link_rate.astype(np.int64), service_ps, after_ps, release, finish, crossed)
    load_ps, times = crossed
    return Whole(int(load_ps.max(initial=0)), path_ps, int((load_ps - times).max(initial=0)), chains.hops)


def _chains_of(pattern: Pattern, model: Model) -> _Last:
    t, waiting = pattern.emission.listed, waiting_of(pattern, model)
    if t is None or t.rounds is not None or np.any(t.dep_lag != WHOLE):
        return _Last((), None)
    key = wiring_of(pattern.topology), model.tie, model.seed if model.tie == "ecmp" else 0, waiting
    last = _last.get(pattern.emit)
    return last if last is not None and last.of_chains == key else _Last(key, _made(pattern, t, *key))


@lru_cache(maxsize=4)
def _between_npus(wiring: Topology, tie: str, seed: int) -> Paths | None:
    """The routes between all pairs of NPUs, which schedules have in common, where they are few."""
    if wiring.n_npus > MOST_NPUS:
        return None
    src, dst = np.divmod(np.arange(wiring.n_npus**2), wiring.n_npus)
    with suppress(WeftError):  # not all are joined
        return wiring.paths(src, dst, tie, seed)
    return None


def _made(
    pattern: Pattern, t: Transfers, wiring: Topology, tie: str, seed: int, waiting: Waiting
) -> _Chains | None:
    n, n_sources = t.src.size, pattern.n_sources or pattern.p
    key, want = (slot * np.int64(n_sources) + src for slot, src in ((t.slot, t.src), (t.dep_slot, t.dep_src)))
    parent, child = finder(key)(want), np.repeat(np.arange(n), np.diff(t.dep_ptr))
    if not np.array_equal(key[parent], want):
        return None
    every = None if t.via_ptr is not None or pattern.in_switches else _between_npus(wiring, tie, seed)
    if every is None:
        paths, route = routes_of(t, wiring, tie, seed)[:2]
    else:
        paths, route = every, t.src * np.int32(pattern.p) + t.dst
    hops = int(np.diff(paths.ptr)[route].sum())
    if hops > MOST_HOPS:
        return None
    sizes, size = unique_rows(t.blocks)
    made = _Chains(
        np.require(paths.ptr, None, "W"), np.require(paths.links, None, "W"),  # one kind of array to the kernel
        route, i32(size), i32(t.dep_ptr), i32(parent), np.arange(n + 1, dtype=np.int32),
        _groups(t, waiting), sizes, hops,
    )
    if waiting == FREE and np.all(parent < child):
        return made
    return _in_steps(made, t.step, child) if np.all(t.step[parent] < t.step[child]) else None


def _in_steps(found: _Chains, step: I32, child: I64) -> _Chains:
    """The same, step by step."""
    order = np.argsort(step, kind="stable")
    place = np.empty(order.size, np.int32)
    place[order] = np.arange(order.size)
    edge = np.argsort(place[child], kind="stable")
    begins = np.flatnonzero(np.diff(step[order], prepend=-1))
    return found._replace(
        route=found.route[order], size=found.size[order], group=found.group[order],
        run_ptr=i32(np.append(begins, step.size)), parent=place[found.parent[edge]],
        parent_ptr=i32(np.append(0, np.cumsum(np.diff(found.parent_ptr)[order]))),
    )


def _groups(t: Transfers, waiting: Waiting) -> I32:
    """Number of each transfer, one for those of a rank in a step that begin together."""
    key = np.arange(t.src.size)
    if waiting.steps is not None:
        together = (t.src != t.dst) & (np.isin(t.step, waiting.steps) if waiting.steps else np.True_)
        of_rank = t.src.astype(np.int64) * (int(t.step.max(initial=0)) + 1) + t.step
        key = np.where(together, key.size + of_rank, key)
    return i32(unique_rows(key)[1])


@partial(cached, nogil=True, _nrt=False)
def _longest(  # type: ignore[no-untyped-def]  # jitted
    ptr, links, route, size, parent_ptr, parent, run_ptr, group, link_rate, service_ps, after_ps, release, finish,
    crossed,
):
    """Finish of the last transfer if none ever waited for another's service.

    `service_ps` (sizes, rates): of a size at a rate; `link_rate` (links,): rate of each.
    `after_ps` (2, links): latency behind each, inside routes and at their ends.
    `release` (groups,), zeros; `finish` (n,): scratch.
    `crossed` (2, links): zeros; filled: work of each link, and how many transfers cross it.
    """
    latest = 0
    for run in range(run_ptr.size - 1):
        for row in range(run_ptr[run], run_ptr[run + 1]):
            for at in range(parent_ptr[row], parent_ptr[row + 1]):
                release[group[row]] = max(release[group[row]], finish[parent[at]])
        for row in range(run_ptr[run], run_ptr[run + 1]):
            end, along, slowest = ptr[route[row] + 1], 0, 0
            for at in range(ptr[route[row]], end):
                link = links[at]
                service = service_ps[size[row], link_rate[link]]
                crossed[0, link] += service
                crossed[1, link] += 1
                slowest = max(slowest, service)
                along += after_ps[1 if at + 1 == end else 0, link]
            finish[row] = release[group[row]] + along + slowest
            latest = max(latest, finish[row])
    return latest
