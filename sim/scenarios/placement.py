"""Where tenants are placed as they come and go, and how much of what is free lies in fragments."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from itertools import pairwise
from random import Random
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sim.lower.tenants import Tenant
from sim.program.model import Model
from sim.scenarios.tenants import ends_ps
from topologies import Topology
from topologies.core.components import components
from topologies.core.topology import NPU
from topologies.flows.load import hop_distances, link_loads
from topologies.units import Time, parse_time

WAYS = ("packed", "random", "contention")

FAR = 1 << 30
"""More links than on any path: between NPUs without one."""

MOST_NODES = 2048
"""Of fabrics on which tenants are placed: distances between all NPUs are compared from each on."""

Npus = tuple[int, ...]
Held = tuple[Npus, int, int]  # some NPUs, from when and until when


class Wanted(NamedTuple):
    """A tenant that takes some of the free NPUs when it arrives, or waits until there are enough."""

    name: str
    way: str
    n_npus: int
    arrival: Time
    build: Callable[[Npus, str], Tenant]  # on some NPUs, from a time on


def placed(
    tenants: Sequence[Tenant | Wanted], fabric: Topology, model: Model, named: Mapping[str, Npus],
    done: Callable[[str, int], None] = lambda what, time_ps: None, **run: Any,
) -> tuple[list[Tenant], dict[str, Npus]]:
    """All tenants, and the NPUs of those that hold some: the wanted ones placed, first come, first served.

    Until the next one begins, nobody's end depends on it: each is placed by a run of all that came before.

    `named`: NPUs of the others, by tenant; those who name none hold none.
    `done` (what, time_ps): called after each is placed, with the time from which it holds NPUs.
    `run`: as `simulate` takes it.
    """
    rng, held, now_ps = Random(model.seed), dict(named), 0
    running = [one for one in tenants if isinstance(one, Tenant)]
    queue = sorted((one for one in tenants if isinstance(one, Wanted)), key=lambda one: parse_time(one.arrival))
    for one in queue:
        now_ps = max(now_ps, parse_time(one.arrival, "arrival"))
        spans = spans_of(running, held, ends_ps(running, model=model, **run) if running else {})
        while len(free := _free(spans, now_ps, fabric.n_npus)) < one.n_npus:
            now_ps = min(end for _, _, end in spans if end > now_ps)
        others = [npus for npus, begin, end in spans if begin <= now_ps < end]
        held[one.name] = choose(one.way, fabric, free, one.n_npus, others, rng, model.tie, model.seed)
        running.append(one.build(held[one.name], f"{now_ps}ps"))
        done(f"{one.name} placed", now_ps)
    by_name = {one.name: one for one in running}
    return [by_name[one.name] for one in tenants], held


def spans_of(tenants: Iterable[Tenant], held: Mapping[str, Npus], end_ps: Mapping[str, int]) -> list[Held]:
    """What is held from when until when, given when tenants end."""
    return [(held[one.name], parse_time(one.arrival), end_ps[one.name]) for one in tenants if one.name in held]


def _free(spans: Iterable[Held], now_ps: int, n: int) -> list[int]:
    taken = {npu for npus, begin, end in spans if begin <= now_ps < end for npu in npus}
    return [npu for npu in range(n) if npu not in taken]


def choose(
    way: str, fabric: Topology, free: Sequence[int], count: int, others: Sequence[Npus], rng: Random,
    tie: str = "first", seed: int = 0,
) -> Npus:
    """NPUs among the free ones, ascending.

    "random": any. "packed": from each free NPU on, always the one nearest to all that are taken; of these sets the one
    of least distances in it, then of most distance to the free ones. "contention": of these sets, first, the one whose
    routes between all of its pairs cross the fewest of those of `others`, counted on each link.
    """
    if way == "random":
        return tuple(sorted(rng.sample(free, count)))
    sets = _near(fabric, np.asarray(free), count)
    if way == "contention" and others:
        def load(npus: Npus) -> npt.NDArray[np.float64]:
            src, dst = (ends.ravel() for ends in np.meshgrid(npus, npus))
            return link_loads(fabric, src[src != dst], dst[src != dst], 1.0, tie, seed)
        busy = sum(map(load, others))
        return min(sets, key=lambda one: (round(float(load(one[-1]) @ busy), 6), *one))[-1]
    return min(sets)[-1]


def _near(fabric: Topology, free: npt.NDArray[Any], count: int) -> list[tuple[int, int, Npus]]:
    """Sets of NPUs that are near to each other: their distances, the negated one to all free NPUs, and the set."""
    apart = _distances(fabric)[np.ix_(free, free)]
    row, total, within = np.arange(free.size), apart.copy(), np.zeros(free.size, np.int64)
    taken = np.eye(free.size, dtype=bool)
    for _ in range(count - 1):
        near = np.where(taken, np.iinfo(np.int64).max, total).argmin(1)
        within += total[row, near]
        taken[row, near] = True
        total += apart[near]
    around = -(taken @ apart.sum(1))
    return [(int(within[at]), int(around[at]), tuple(free[taken[at]].tolist())) for at in row]


@cache
def _distances(fabric: Topology) -> npt.NDArray[np.int64]:
    """Links there and back, (n_npus, n_npus)."""
    apart = hop_distances(fabric)[: fabric.n_npus, : fabric.n_npus]
    apart = np.where(apart < 0, FAR, apart)
    return apart + apart.T


def spread(fabric: Topology, npus: Npus) -> float:
    """Links between two NPUs of a tenant, over those if it were packed on an empty fabric; 1 for one NPU."""
    best = min(_near(fabric, np.arange(fabric.n_npus), len(npus)))[0]
    return float(_distances(fabric)[np.ix_(npus, npus)].sum() / 2 / best) if best else 1.0


def fragments(fabric: Topology, free: Sequence[int]) -> float:
    """Share of the free NPUs outside of the largest part that free NPUs and switches join."""
    if not free:
        return 0.0
    usable = np.asarray(fabric.kind) != NPU
    usable[free] = True
    kept = usable[fabric.src] & usable[fabric.dst]
    part = components(fabric.n_nodes, fabric.src[kept], fabric.dst[kept])
    return 1 - int(np.bincount(part[free]).max()) / len(free)


def fragmentation(fabric: Topology, spans: Sequence[Held]) -> float:
    """Mean of `fragments` over the time in which any NPU is held."""
    times = sorted({time for _, *ends in spans for time in ends})
    pieces = [(end - begin, fragments(fabric, free)) for begin, end in pairwise(times)
              if len(free := _free(spans, begin, fabric.n_npus)) < fabric.n_npus]
    total = sum(length for length, _ in pieces)
    return sum(length * part for length, part in pieces) / total if total else 0.0
