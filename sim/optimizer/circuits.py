"""When circuits are switched during a collective: plans, whose parts are simulated unless their bounds exclude them.

A step, or several whose pairs fit the ports together, runs on circuits of its own; or steps run on other circuits, such
as those of the fabric, or stride rings, over several hops ("When Light Bends to the Collective Will", arXiv 2510.08072;
"Harvest", arXiv 2602.09188). A dynamic program over such parts finds the plan; its winner is simulated as a whole.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from math import inf
from typing import NamedTuple

import numpy as np

from collectives import Schedule, Transfers
from collectives.core.transfers import take
from collectives.reconfigured import (
    OWN,
    Unswitchable,
    fitted,
    in_matchings,
    of_rows,
    on_own_circuits,
    part,
    step_pairs,
    switched,
)
from sim.analytic.bounds import busy_and_path_ps
from sim.analytic.circuits_bound import circuits_bound_ps
from sim.analytic.steps_bound import F64, StepBounds
from sim.faults.apply import add_faults
from sim.faults.plan import Fault, FaultPlan, Jitter, Loss, Straggler
from sim.how import AS_USUAL, How
from sim.lower.job import lower
from sim.program import I64
from sim.program.contract import Program
from sim.program.model import Model
from sim.program.outcome import Deadlock
from topologies import Topology, WeftError
from topologies.core.epochs import packet_links
from topologies.core.paths import distinct_of
from topologies.optics import States, all_states, joining, layouts, stride_rings
from topologies.stages import count, staged
from topologies.units import PS_PER_S

STATIC, EVERY_STEP, PLANNED = "static", "every step", "planned"
POLICIES = (EVERY_STEP, "two states", "stride rings", PLANNED)
"""Own circuits in each step; or those, or the first ones; the first ones, or stride rings; all of these. Beside them
`STATIC`: one state from the first step to the last."""

MOST_PARTS, MOST_BOUNDS, MOST_TRIED = 120, 1_100_000, 100
"""Limits on the parts of a schedule that are tried on all circuits of few servers, on these times the circuits, and on
the circuits on which a part is simulated."""

MOST_PRICED = 24
"""Limit on the steps of a schedule whose single steps are priced on circuits neither their own nor the first."""

Piece = tuple[int, int, int]
"""First and last step, and the number of what is up."""


class Plan(NamedTuple):
    """Which circuits are up in each step, and what that takes."""

    policy: str
    fabrics: tuple[Topology, ...]  # of each step
    letters: str  # of each step: B on the first circuits, R on others after switching, m on the same as before
    time_ps: int  # simulated part by part
    changes: int


class Planner:
    """Prices of the steps of a schedule on the circuits that the ports of its fabric allow.

    `faults`: as if they began with each part; what begins late does so in the first.
    """

    def __init__(
        self, schedule: Schedule, model: Model = Model(), how: How = AS_USUAL, faults: FaultPlan | None = None
    ) -> None:
        optics = schedule.topology.optics
        if optics is None:
            raise WeftError(f"{schedule.topology.name} has no circuits to switch: choose a fabric such as ocs:16x4")
        schedule = in_matchings(schedule)
        self.schedule, self.model, self.optics = schedule, model, optics
        self.how = how if faults is None else replace(how, check=False)  # the run of the whole is checked
        self.faults, self.later = faults, faults and _begun(faults)
        self.pairs, self.bounds = step_pairs(schedule), StepBounds(schedule, model)
        self.states, self._numbers = [schedule.topology], {_circuits(schedule.topology): 0}
        self.own: dict[frozenset[tuple[int, int]], int | None] = {}
        self._prices: dict[tuple[object, ...], int | None] = {}
        self._keys: dict[Piece, tuple[object, ...]] = {}
        self._transfers: dict[tuple[int, int], Transfers] = {}
        self._found: dict[tuple[str, float, int], list[Piece]] = {}
        self._places: dict[int, int] = {}  # of all circuits: their numbers here

    @cached_property
    def own_ps(self) -> int:
        """What all steps take one by one on circuits of their own; 0 where the ports do not suffice."""
        own = [self._own(step, step) for step in range(len(self.pairs))]
        prices = [None if piece is None else self.price_ps(*piece) for piece in own]
        return 0 if None in prices else sum(price or 0 for price in prices)

    @cached_property
    def least_ps(self) -> int:
        """No plan takes less, nor any other circuits that change at other times."""
        return self._anywhere_ps(0, len(self.pairs) - 1)

    def _anywhere_ps(self, first: int, last: int) -> int:
        """What some steps take at least, of which each pair has all ports of its servers."""
        fabric, latency_ps, rate_Bps = self.schedule.topology, *self._ports
        return int(self.bounds.anywhere_ps(first, last, fabric.n_nodes, latency_ps, rate_Bps) * (1 - 1e-9))

    @cached_property
    def _ports(self) -> tuple[int, float]:
        """The latency of a link at least, and the rate of all ports of a server, those to packet switches included."""
        fabric, stays = self.schedule.topology, packet_links(self.schedule.topology)
        packets_Bps = np.bincount(fabric.src[stays], fabric.bandwidth_Bps[stays], fabric.n_nodes)[: fabric.n_npus].max()
        latency_ps = int(fabric.latency_ps.min()) if fabric.n_links else 0
        return latency_ps, self.optics.ports * self.optics.rate_Bps + float(packets_Bps)

    @staged("search")
    def plan(self, policy: str, limit_ps: float = inf) -> Plan | None:
        """The quickest plan; among equals the one that changes less often. None if there is none.

        Some that take as long as `limit_ps` or longer are left out.
        Steps on the same circuits run into each other, and may hold each other up: what the program takes for one by
        one is simulated together, and compared with plans whose parts lie between changes.
        """
        if not self.pairs:
            return None
        plans = [self._plan(policy, joins, limit_ps) for joins in (True, False)]
        return min((one for one in plans if one is not None), key=lambda one: (one.time_ps, one.changes), default=None)

    def _plan(self, policy: str, joins: bool, limit_ps: float) -> Plan | None:
        """The least sum of parts; `joins`: whether parts on the same circuits may follow each other.

        Parts count with their bounds until they are on the least sum; then they are priced, and it is sought again.
        """
        n, delay_ps = len(self.pairs), self.optics.delay_ps
        if (asked := (policy, limit_ps, delay_ps)) not in self._found:
            self._found[asked] = sorted(piece for piece in self._pieces(policy, limit_ps) if piece is not None)
        times_ps, priced = {piece: self._bound_ps(*piece) for piece in self._found[asked]}, set[Piece]()
        while (found := self._least(times_ps, joins)) is not None and not priced.issuperset(found[1]):
            times_ps |= {piece: self.price_ps(*piece) for piece in found[1]}
            priced.update(found[1])
            count("prices of steps", len(priced), len(times_ps))
        if found is None:
            return None
        changes, chosen = found[0], [state for first, last, state in found[1] for _ in range(first, last + 1)]
        letters = "".join("B" if one == 0 else "m" if at and chosen[at - 1] == one else "R"
                          for at, one in enumerate(chosen))
        starts = [at for at in range(n) if at == 0 or chosen[at] != chosen[at - 1]]
        runs = [self.price_ps(first, last - 1, chosen[first]) or 0
                for first, last in zip(starts, [*starts[1:], n], strict=True)]
        time_ps = sum(runs) + changes * delay_ps
        return Plan(policy, tuple(self.states[one] for one in chosen), letters, time_ps, changes)

    def _least(self, times_ps: Mapping[Piece, int | None], joins: bool) -> tuple[int, tuple[Piece, ...]] | None:
        """The changes and the parts of the least sum of all steps, of parts in ascending order; None if there is none.

        Among equals the one that changes less often, then that of the lower states.
        """
        n, delay_ps = len(self.pairs), self.optics.delay_ps
        best: list[dict[int, tuple[int, int, tuple[int, ...], tuple[Piece, ...]]]] = [{} for _ in range(n + 1)]
        for piece, price in times_ps.items():
            if price is None:
                continue
            first, last, state = piece
            came: list[tuple[int, int, tuple[int, ...], tuple[Piece, ...]]] = []
            if first == 0:
                free = not self.optics.paid and (not self.optics.circuits or state == 0)
                came.append((0 if free else delay_ps, 0 if free else 1, (), ()))
            for before, (time_ps, changes, chosen, parts) in best[first].items():
                moves = before != state
                if not moves and not joins:
                    continue
                came.append((time_ps + delay_ps * moves, changes + moves, chosen, parts))
            if came:
                time_ps, changes, chosen, parts = min(came)
                found = time_ps + price, changes, (*chosen, *[state] * (last + 1 - first)), (*parts, piece)
                best[last + 1][state] = min(best[last + 1].get(state, found), found)
        if not best[n]:
            return None
        _, changes, _, parts = min(best[n].values())
        return changes, parts

    def _bound_ps(self, first: int, last: int, state: int) -> int | None:
        """What some steps take at least; None without a route."""
        if self._is_whole(first, last, state):
            return 0  # it may name its routes
        return self.bounds.least_ps(first, last, self.states[state], state)

    def _pieces(self, policy: str, limit_ps: float = inf) -> Iterator[Piece | None]:
        n, fabric = len(self.pairs), self.schedule.topology
        if policy == STATIC:
            yield self._own(0, n - 1)
            yield from ((0, n - 1, self._state(one)) for one in layouts(fabric).values())
            yield from self._everywhere(limit_ps, whole=True)
            return
        if policy in (EVERY_STEP, "two states"):
            yield from (self._own(step, step) for step in range(n))
        if policy == PLANNED:
            for first in range(n):
                for last in range(first, n):
                    piece = self._own(first, last)
                    if piece is None:
                        break
                    yield piece
            yield 0, n - 1, 0
            yield from self._everywhere(limit_ps)
        others = [] if policy == EVERY_STEP else [0]
        if policy in ("stride rings", PLANNED) and n <= MOST_PRICED:
            others += [self._state(ring) for ring in stride_rings(fabric)]
        if policy == PLANNED and n <= MOST_PRICED:
            others += [self._state(one) for one in layouts(fabric).values()]
        yield from ((step, step, state) for step in range(n) for state in dict.fromkeys(others))

    def _everywhere(self, limit_ps: float, *, whole: bool = False) -> list[Piece]:
        """Of all circuits of few servers those on which parts end first, where these may be of a plan below the limit.

        Each part counts with the least of its prices, and of the bounds of circuits on which it has none, until those
        on the least sum are priced: what is on none, or what its bound excludes, is not simulated.

        `whole`: of all steps as one part.
        """
        n, delay_ps, states = len(self.pairs), self.optics.delay_ps, all_states(self.schedule.topology)
        parts_of_all = n if whole else n * (n + 1) // 2
        if states is None or parts_of_all > min(MOST_PARTS, MOST_BOUNDS // len(states.circuits)):
            return []
        ahead = dict[tuple[int, int], list[tuple[float, int]]]()
        rooms_ps = self._rooms_ps(limit_ps, whole=whole)
        some = self._with_room(states, rooms_ps)
        for ends, places, least_ps in self._bounds_ps(States(*(each[some] for each in states)), rooms_ps):
            order = np.argsort(least_ps, kind="stable")[:MOST_TRIED][::-1]
            ahead[ends] = [(inf, -1), *zip(least_ps[order].tolist(), some[places[order]].tolist(), strict=True)]
        best = dict.fromkeys(ahead, (inf, -1))
        while True:
            least: list[tuple[float, int]] = [(delay_ps * self.optics.paid, 0)]  # so far, and where the last part began
            for last in range(n):
                least.append(min(
                    ((least[at][0] + delay_ps * (at > 0) + min(best[at, last][0], ahead[at, last][-1][0]), at)
                     for at in range(last + 1) if (at, last) in ahead), default=(inf, 0)))
            last, parts = n - 1, list[tuple[int, int]]()
            while last >= 0 and least[n][0] < limit_ps:
                parts.append((least[last + 1][1], last))
                last = parts[-1][0] - 1
            if not (asked := [ends for ends in parts if ahead[ends][-1][0] < best[ends][0]]):
                return [(*ends, state) for ends, (_, state) in best.items() if state >= 0]
            for ends in asked:
                if (place := ahead[ends].pop()[1]) not in self._places:
                    self._places[place] = self._state(states.fabric(self.schedule.topology, place))
                state = self._places[place]
                if (price := self.price_ps(*ends, state)) is not None:
                    best[ends] = min(best[ends], (price, state))

    def _rooms_ps(self, limit_ps: float, *, whole: bool) -> dict[tuple[int, int], float]:
        """What parts of a plan below a limit may take, as long as the others at least take; of those that have room."""
        n, delay_ps = len(self.pairs), self.optics.delay_ps
        parts = [(0, n - 1)] if whole else [(first, last) for first in range(n) for last in range(first, n)]
        takes_ps = {ends: self._anywhere_ps(*ends) for ends in parts}
        before, after = np.full(n + 1, inf), np.full(n + 1, inf)  # with the change that follows, or comes before
        before[0], after[n] = delay_ps * self.optics.paid, 0
        for first, last in parts:
            before[last + 1] = min(before[last + 1], before[first] + takes_ps[first, last] + delay_ps)
        for first, last in reversed(parts):
            after[first] = min(after[first], takes_ps[first, last] + after[last + 1] + delay_ps * (first > 0))
        rooms_ps = {(first, last): limit_ps - before[first] - after[last + 1] for first, last in parts}
        return {ends: room_ps for ends, room_ps in rooms_ps.items() if takes_ps[ends] < room_ps}

    def _with_room(self, states: States, rooms_ps: Mapping[tuple[int, int], float]) -> I64:
        """The states on which some part may take less than it has room for, were all circuits equally busy."""
        sent = [self._sent(np.concatenate(self.bounds.rows[first : last + 1])).ravel() for first, last in rooms_ps]
        crossed = states.hops.reshape(len(states.hops), -1) @ np.array(sent).reshape(-1, states.hops[0].size).T
        n_circuits = states.circuits.sum(axis=(1, 2), dtype=np.int64)[:, None]
        takes_ps = crossed / n_circuits * self._ps_per_byte * (1 - 1e-9)
        return np.flatnonzero(np.any(takes_ps < np.array([*rooms_ps.values()]), axis=1))

    def _bounds_ps(
        self, states: States, rooms_ps: Mapping[tuple[int, int], float]
    ) -> Iterator[tuple[tuple[int, int], I64, F64]]:
        """What parts take at least on states: what the busiest circuit sends, and what waits for each other.

        Of each part the numbers of the states on which it may take less than it has room for, and the bounds there.
        """
        t, link_ps = self.bounds.transfers, float(self.schedule.topology.latency_ps.min())
        ps_per_byte, times = self._ps_per_byte, np.maximum(states.circuits, 1)
        ends = np.minimum(times.max(axis=2)[:, :, None], times.max(axis=1)[:, None])
        per_byte = ps_per_byte / np.where(states.hops == 1, times, ends)
        latency_ps = np.where(states.hops < times.shape[1], states.hops * link_ps, inf)
        loads = dict[tuple[int, int], F64]()
        for first in dict.fromkeys(first for first, _ in rooms_ps):
            load, busy, begin = np.zeros(times.shape), dict[int, F64](), first
            for last in (last for at, last in rooms_ps if at == first):
                if (begin, last) not in loads:
                    rows = np.concatenate(self.bounds.rows[begin : last + 1])
                    loads[begin, last] = self._loads(states, rows) / times * ps_per_byte
                load += loads[begin, last]
                busy[last], begin = (load.max(axis=(1, 2)) + link_ps) * (1 - 1e-9), last + 1
            some = np.flatnonzero(np.any([busy[last] < rooms_ps[first, last] for last in busy], axis=0))
            least_ps, ended = np.full(some.size, link_ps), np.zeros((2, some.size, t.src.size))
            for last in range(first, max(busy) + 1):
                rows = self.bounds.rows[last]
                begun = np.zeros((some.size, rows.size))
                for (place, row), one in zip(self.bounds.waits[last], ended, strict=True):
                    begins = np.flatnonzero(np.diff(place, prepend=-1))
                    latest = np.maximum.reduceat(one[:, row], begins, axis=1) if place.size else 0.0
                    begun[:, place[begins]] = np.maximum(begun[:, place[begins]], latest)
                pairs = some[:, None], t.src[rows], t.dst[rows]
                sizes = self.bounds.sizes(take(t, rows), self._sizes(rows))
                ended[:, :, rows] = begun + [latency_ps[pairs] + per_byte[pairs] * size for size in sizes]
                least_ps = np.maximum(least_ps, ended[0, :, rows].max(axis=0))
                if last in busy:
                    bound_ps = np.maximum(least_ps * (1 - 1e-9), busy[last][some])
                    within = bound_ps < rooms_ps[first, last]
                    yield (first, last), some[within], bound_ps[within]

    @property
    def _ps_per_byte(self) -> float:
        return 0.0 if self.model.deliver == "head" else PS_PER_S / self.optics.rate_Bps

    def _sizes(self, rows: I64) -> F64:
        """Bytes of some transfers, none where nothing moves."""
        t = self.bounds.transfers
        return np.where(t.src[rows] != t.dst[rows], t.blocks[rows] * float(self.schedule.block_bytes), 0.0)

    def _sent(self, rows: I64) -> F64:
        """Bytes of some transfers from each server to each, (n, n)."""
        sent = np.zeros((self.schedule.topology.n_npus,) * 2)
        np.add.at(sent, (self.bounds.transfers.src[rows], self.bounds.transfers.dst[rows]), self._sizes(rows))
        return sent

    def _loads(self, states: States, rows: I64) -> F64:
        """Bytes of transfers on each circuit of each state, (n_states, n, n)."""
        load, every, sent = np.zeros(states.circuits.shape), np.arange(len(states.circuits)), self._sent(rows)
        for src, dst in np.argwhere(sent).tolist():
            at = np.full(every.size, src)
            for _ in range(len(sent) - 1):
                onward = states.onward[every, at, dst]
                load[every, at, onward] += sent[src, dst] * (at != dst)
                at = onward
        return load

    def _state(self, fabric: Topology) -> int:
        """The number of a fabric; equal ones have one."""
        number = self._numbers.setdefault(_circuits(fabric), len(self.states))
        if number == len(self.states):
            self.states.append(fabric)
        return number

    def _own(self, first: int, last: int) -> Piece | None:
        """Circuits for all pairs of some steps; None if the ports do not suffice."""
        pairs = frozenset().union(*self.pairs[first : last + 1])
        if pairs not in self.own:
            fabric = joining(self.schedule.topology, pairs)
            self.own[pairs] = None if fabric is None else self._state(fabric)
        state = self.own[pairs]
        return None if state is None else (first, last, state)

    def _of(self, first: int, last: int) -> Transfers:
        """The transfers of some steps."""
        if (first, last) not in self._transfers:
            rows = np.sort(np.concatenate(self.bounds.rows[first : last + 1]))
            self._transfers[first, last] = of_rows(self.bounds.transfers, rows)
        return self._transfers[first, last]

    def _is_whole(self, first: int, last: int, state: int) -> bool:
        return state == 0 and last - first == len(self.pairs) - 1

    def price_ps(self, first: int, last: int, state: int) -> int | None:
        """Simulated time of some steps alone; None without a route."""
        piece = first, last, state
        if piece not in self._keys:
            t = self._of(first, last)
            faults = self.later if first else self.faults
            key = self._keys[piece] = (*self._key(t, state), faults)
            if key not in self._prices:
                fabric = self.states[state]
                self._prices[key] = None
                whole = self._is_whole(*piece)  # which may name its routes
                if whole or self.bounds.least_ps(first, last, fabric, state) is not None:
                    program = self._program(self.schedule if whole else None, t, fabric, faults)
                    with suppress(Deadlock):  # pools that steps before would have given back
                        if program is not None:
                            self._prices[key] = self.how.run(
                                program, lower_bound_ps=lambda one: max(busy_and_path_ps(one))
                            ).makespan_ps
        return self._prices[self._keys[piece]]

    def _program(
        self, whole: Schedule | None, t: Transfers, fabric: Topology, faults: FaultPlan | None
    ) -> Program | None:
        """The whole, or some transfers of it on a fabric; None where they cannot be switched, or the model refuses."""
        try:
            some = part(self.schedule, t, fabric) if whole is None else whole
        except Unswitchable:
            return None
        with suppress(WeftError):  # such as a rule for ties that cannot serve chunks that follow each other
            if faults is not None:
                return add_faults(lower(some, self.model, "off"), faults).program
            return lower(some, self.model).program
        return None

    def _key(self, t: Transfers, state: int) -> tuple[object, ...]:
        """What the price depends on: of transfers that wait for nothing, each on a circuit of its own, the largest."""
        moves = t.src != t.dst
        links = self.states[state].link_ids(t.src[moves], t.dst[moves])
        alone = np.all(links >= 0) and distinct_of(links).size == links.size
        if self.faults is None and t.dep_src.size == 0 and t.rounds is None and alone:
            rates = self.states[state].bandwidth_Bps[links]
            return "direct", int(t.blocks.max(initial=0)), float(rates.min(initial=0)), float(rates.max(initial=0))
        return state, *(column.tobytes() for column in (t.src, t.dst, t.blocks, t.slot, t.dep_src, t.dep_slot))


def _begun(faults: FaultPlan) -> FaultPlan:
    """A plan after the late have begun."""
    return replace(faults, faults=tuple(
        replace(one, delay="0s") if isinstance(one, Straggler) else one for one in faults.faults))


def _circuits(fabric: Topology) -> bytes:
    """What tells the circuits of a fabric from others."""
    return b"".join(column.tobytes() for column in (fabric.src, fabric.dst, fabric.bandwidth_Bps))


def other_circuits(fabric: Topology) -> list[str]:
    """The static circuits that a collective may have instead of those of a fabric, by name."""
    if (optics := fabric.optics) is None:
        return []
    return [*[*layouts(fabric)][1:], *[OWN] * (not (optics.circuits or optics.paid))]


def on_circuits(name: object, fabric: Topology, build: Callable[[Topology], Schedule]) -> Schedule:
    """A schedule on static circuits: by name, its own, or those of the fabric where there is no name."""
    if name == OWN:
        return on_own_circuits(build(fabric))
    return build(fabric if name is None else layouts(fabric)[str(name)])


def policy_below(time_ps: int, schedule: Schedule, model: Model) -> str | None:
    """Whether plans of other circuits may be faster than a time: any, those that change none, or none at all."""
    of = schedule.topology, schedule.kind, schedule.size_bytes, model
    if circuits_bound_ps(*of, least_changes=1) < time_ps:
        return PLANNED
    return STATIC if circuits_bound_ps(*of) < time_ps else None


def planners_of(
    schedule: Schedule, model: Model, how: How = AS_USUAL, faults: FaultPlan | None = None
) -> list[Planner]:
    """Of the orders of a schedule."""
    return [Planner(one, model, how, faults) for one in orders_of(schedule)]


def orders_of(schedule: Schedule) -> list[Schedule]:
    """A schedule in steps that fit the ports of its fabric, and in those of its own where these are others."""
    return [in_matchings(one) for one in dict.fromkeys((fitted(schedule), schedule))]


def quickest(planners: Sequence[Planner], policy: str, limit_ps: float = inf) -> tuple[Plan, Schedule] | None:
    """The plan of a policy that takes least, and its steps; None if there is none."""
    found = list[tuple[Plan, Schedule]]()
    for planner in planners:
        if planner.least_ps < limit_ps and (plan := planner.plan(policy, limit_ps)) is not None:
            found.append((plan, planner.schedule))
            limit_ps = min(limit_ps, plan.time_ps)
    return min(found, key=lambda one: (one[0].time_ps, one[0].changes), default=None)


def tried_with(faults: FaultPlan | None) -> dict[str, tuple[str, FaultPlan | None]]:
    """The plans that are tried, by name: their policy, and the faults with which parts are priced.

    With faults a price is no bound, as parts go on where others were held up: there single policies are tried, too.
    """
    some = (PLANNED,) if faults is None else (STATIC, EVERY_STEP, PLANNED)
    without: dict[str, tuple[str, FaultPlan | None]] = {policy: (policy, None) for policy in some}
    if faults is None or not any(map(_tells_circuits_apart, faults.faults)):
        return without
    return without | {f"{policy} for faults": (policy, faults) for policy in some}


def _tells_circuits_apart(fault: Fault) -> bool:
    return not (isinstance(fault, Loss | Jitter) and fault.link == "*")


def planned_as(name: str, schedule: Schedule, model: Model, faults: FaultPlan | None) -> Schedule:
    """A plan of `tried_with` by its name; those before it leave circuits that it may use."""
    tried = tried_with(faults)
    planners = planners_of(schedule, model, faults=tried[name][1])
    for one, (policy, priced) in tried.items():
        if priced is tried[name][1]:
            found = planned_by(planners, schedule, policy)
            if one == name:
                break
    return found


def planned(
    schedule: Schedule, model: Model, how: How = AS_USUAL, policy: str = PLANNED, limit_ps: float = inf,
    faults: FaultPlan | None = None,
) -> Schedule:
    """The schedule with the circuits of its best plan, or the best of a policy; itself where there is none.

    `faults`: with which parts are priced.
    `limit_ps`: plans that take as long may be overlooked, and are where nothing goes on while circuits switch.
    """
    return planned_by(planners_of(schedule, model, how, faults), schedule, policy, limit_ps)


def planned_by(planners: Sequence[Planner], schedule: Schedule, policy: str, limit_ps: float = inf) -> Schedule:
    """The same, by the planners of the schedule."""
    found, goes_on = quickest(planners, policy, limit_ps), packet_links(schedule.topology).any()
    goes_on |= planners[0].optics.per_port
    if found is None or (found[0].time_ps >= limit_ps and not goes_on):  # if so, the whole may take less than its parts
        return schedule
    return switched(found[1], found[0].fabrics)
