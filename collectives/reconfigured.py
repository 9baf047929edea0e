"""Collectives whose circuits may be switched between steps: the available fabrics, and plans over them.

Applies to any schedule in steps: recursive doubling, Swing, ring, pairwise all-to-all. The base fabric is that of the
schedule; its links define the rate and latency of all other circuits.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from collectives.core.pattern import OwnProof, Pattern
from collectives.core.schedule import Schedule
from collectives.core.transfers import WHOLE, Transfers, sources_only
from collectives.reconfiguration_plan import (
    Ints,
    Plan,
    Step,
    alternating_planes_ps,
    best_plan,
    cost_of,
    matched_fabric,
    only,
    step_cost_ps,
    step_costs_ps,
    steps_of,
    stride_rings,
)
from topologies import Topology, WeftError
from topologies.stages import staged
from topologies.units import Quantity, bytes_per_s, parse_time


@dataclass(frozen=True, eq=False)
class Menu:
    """The fabrics a schedule may run on, and their costs."""

    schedule: Schedule
    steps: tuple[Step, ...]
    fabrics: tuple[Topology, ...]  # the base fabric first, then the distinct matched ones, then stride rings
    own: tuple[int, ...]  # the matched fabric of each step
    rings: tuple[int, ...]  # stride rings among the fabrics, excluding the base
    costs_ps: Ints  # (steps, fabrics)
    start_up_ps: int  # added to every step

    def static(self) -> Plan:
        """All steps on the base fabric."""
        return cost_of([0] * len(self.steps), self.costs_ps, 0)

    def every_step(self, delay: Quantity) -> Plan:
        """Each step on its own circuits; adjacent steps with the same pairs share them."""
        return cost_of(self.own, self.costs_ps, _delay_ps(delay))

    def two_state(self, delay: Quantity) -> Plan:
        """The best plan over the base fabric and each step's own circuits."""
        return best_plan(only(self.costs_ps, [{0, own} for own in self.own]), _delay_ps(delay))

    def segments(self, delay: Quantity) -> Plan:
        """The best plan over the base fabric and stride rings."""
        return best_plan(only(self.costs_ps, [{0, *self.rings}] * len(self.steps)), _delay_ps(delay))

    def best(self, delay: Quantity) -> Plan:
        """The best plan over all fabrics."""
        return best_plan(self.costs_ps, _delay_ps(delay))

    def overlapped_ps(self, delay: Quantity, planes: int = 2) -> int:
        """Time when steps take turns on planes that each have part of the rate and switch while others transmit."""
        costs = []
        for step, own in zip(self.steps, self.own, strict=True):
            plane = self.fabrics[own].with_links(bandwidth_Bps=self.fabrics[own].bandwidth_Bps / planes)
            costs.append(step_cost_ps(plane, step, self.start_up_ps))
        return alternating_planes_ps(costs, _delay_ps(delay), planes)


@staged("search")
def menu(schedule: Schedule, *, interfaces: int = 2, start_up: Quantity = 0) -> Menu:
    """The fabrics a schedule may be switched to, and the cost of each step on each fabric.

    `schedule`: on a fabric of uniform links between NPUs: the initial circuits.
    `interfaces`: optical ones of each server.
    `start_up`: added to every step.
    WeftError: a fabric with switches or unequal links, or a step in which a rank has more peers than interfaces.
    """
    base, steps = schedule.topology, tuple(steps_of(schedule))
    rate, latency = _uniform(base)
    hop_latency = f"{base.hop_latency_ps[0]}ps"
    n = base.n_npus
    matched: dict[tuple[tuple[int, int], ...], Step] = {}
    for step in steps:
        matched.setdefault(step.pairs, step)
    place = {pairs: 1 + at for at, pairs in enumerate(matched)}
    circuits = [
        matched_fabric(n, step, interfaces, bandwidth=rate, latency=latency, hop_latency=hop_latency)
        for step in matched.values()
    ]
    rings = stride_rings(n, bandwidth=rate, latency=latency, hop_latency=hop_latency) if interfaces > 1 else []
    fabrics = (base, *circuits, *rings)
    start_up_ps = parse_time(start_up, "start-up of a step")
    costs = step_costs_ps(fabrics, steps, start_up_ps)
    first_ring = 1 + len(circuits)
    return Menu(
        schedule, steps, fabrics, tuple(place[step.pairs] for step in steps),
        tuple(range(first_ring, first_ring + len(rings))), costs, start_up_ps,
    )


def in_steps(
    schedule: Schedule, topology: Topology, routes: Sequence[Mapping[tuple[int, int], Sequence[int]]]
) -> Schedule:
    """A schedule whose steps begin together, on named circuits.

    `topology`: has the circuits of every step, on the nodes of the schedule's own.
    `routes`: links from each source to each destination, for each step that moves something.
    WeftError: a schedule that passes chunks on before its steps end.
    """
    pattern = schedule.pattern
    plain = pattern.transfers()._replace(pool=None)  # a step ends before the next begins: pools would hold nothing back
    transfers = _with_barriers(_with_routes(plain, routes, schedule.name))

    # Other routes and more waits: every rank still gets and adds what the proof of the schedule says.
    stepped = Pattern(
        topology=topology, kind=pattern.kind, algorithm=pattern.algorithm, form=pattern.form, n_blocks=pattern.n_blocks,
        emit=partial(sources_only, transfers), blocks_of=pattern.blocks_of, root=pattern.root,
        own_proof=OwnProof(lambda: pattern.proof, unnamed=True),
    )
    return Schedule(stepped, schedule.size_bytes, schedule.element_bytes)


def _with_routes(t: Transfers, routes: Sequence[Mapping[tuple[int, int], Sequence[int]]], name: str) -> Transfers:
    """Transfers that name the circuits of their step."""
    if np.any(t.dep_lag != WHOLE):
        raise WeftError(f"{name} passes chunks on before its steps end; switching needs whole steps")
    place = np.searchsorted(np.unique(t.step[t.src != t.dst]), t.step).tolist()
    links = [
        routes[step][src, dst] if src != dst else ()
        for step, src, dst in zip(place, t.src.tolist(), t.dst.tolist(), strict=True)
    ]
    ptr = np.concatenate(([0], np.cumsum([len(route) for route in links], dtype=np.int64)))
    return t._replace(via_ptr=ptr, via_links=np.array([link for route in links for link in route], np.int32))


def _with_barriers(t: Transfers) -> Transfers:
    """Between two steps, a transfer of nothing from rank 0 to itself waits for all of one and lets the next begin."""
    steps, step = np.unique(t.step, return_inverse=True)
    n, first_slot = t.src.size, int(t.slot.max(initial=-1)) + 1
    later = np.flatnonzero(step > 0)
    owner = np.concatenate([np.repeat(np.arange(n), np.diff(t.dep_ptr)), later, n + step])
    source = np.concatenate([t.dep_src, np.zeros(later.size, np.int32), t.src])
    slot = np.concatenate([t.dep_slot, first_slot + step[later] - 1, t.slot])
    order = np.argsort(owner, kind="stable")
    nothing = np.zeros(steps.size, np.int32)
    counts = np.bincount(owner, minlength=n + steps.size)
    assert t.via_ptr is not None
    return t._replace(
        src=np.append(t.src, nothing), dst=np.append(t.dst, nothing),
        slot=np.append(t.slot, first_slot + np.arange(steps.size, dtype=np.int32)), step=np.append(t.step, steps),
        port=np.append(t.port, nothing), blocks=np.append(t.blocks, nothing.astype(np.int64)),
        reduces=np.append(t.reduces, nothing.astype(np.bool_)),
        tie_class=np.append(t.tie_class, nothing.astype(np.int64)),
        dep_ptr=np.concatenate(([0], np.cumsum(counts))), dep_src=source[order].astype(np.int32),
        dep_slot=slot[order].astype(np.int32), dep_lag=np.full(owner.size, WHOLE, np.int32),
        via_ptr=np.append(t.via_ptr, np.full(steps.size, t.via_ptr[-1])),
    )


def _uniform(base: Topology) -> tuple[str, str]:
    """Bandwidth and latency of every link."""
    if base.n_nodes > base.n_npus:
        raise WeftError(f"circuits are switched between servers; {base.name} has {base.n_nodes - base.n_npus} switches")
    rates, latencies = np.unique(base.bandwidth_Bps), np.unique(base.latency_ps)
    if base.n_links == 0:
        return "1B/s", "0s"  # a single server: there is nothing to switch
    if rates.size != 1 or latencies.size != 1:
        raise WeftError(f"the circuits of {base.name} differ in rate or latency; switching needs uniform circuits")
    return bytes_per_s(rates[0]), f"{latencies[0]}ps"


def _delay_ps(delay: Quantity) -> int:
    return parse_time(delay, "reconfiguration delay")
