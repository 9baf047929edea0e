"""Programs whose fabric changes in time: circuits that are up in one epoch and gone in the next.

A change that is known beforehand is a task on the optical controller. It waits for the circuits in use to drain,
takes its delay, and whatever uses the new circuits waits for it. Every circuit of an epoch is a server of its own,
so that no chunk can cross a circuit that is not up: a transfer is routed over the circuits of its own epoch, and
`check_circuits` holds the times of a run against the times at which they were up.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction

import numpy as np

from collectives.reconfiguration_plan import Plan
from collectives.reconfigured import Menu
from sim.program import I64, WHOLE, Program, ProgramBuilder
from sim.program.model import Model
from sim.program.outcome import Outcome
from topologies import Topology, WeftError
from topologies.core.paths import ranges
from topologies.units import PS_PER_S, Quantity, format_time, parse_time
from workloads.job import Reconfigure


def circuit_edges(
    changes: Sequence[tuple[int, Reconfigure]], task_route: I64, hops: I64, route_link: I64
) -> I64:
    """Dependencies of changes of circuits, (3, E): what has to drain before each, and what waits for it.

    Parameters
    ----------
    changes : sequence of (task, Reconfigure)
    task_route : (T,) int64
    hops : (R,) int64
        Hops of each route.
    route_link : (H,) int64
        Links of all routes; larger numbers are other servers.

    Raises
    ------
    WeftError
        A link that two changes bring up.
    """
    if not changes:
        return np.zeros((3, 0), np.int64)
    first = np.cumsum(hops) - hops
    link = route_link[ranges(first[task_route], hops[task_route])]
    task = np.repeat(np.arange(task_route.size), hops[task_route])
    order = np.argsort(link, kind="stable")
    link, task = link[order], task[order]
    came_up: dict[int, int] = {}
    edges = []
    for switching, work in changes:
        if twice := came_up.keys() & set(work.up):
            raise WeftError(f"link {min(twice)} is brought up twice: a circuit of a later epoch is a link of its own")
        came_up |= dict.fromkeys(work.up, switching)
    for switching, work in changes:
        waits = _crossing(link, task, work.up)
        edges.append([np.full(waits.size, switching), waits])
        if work.drain:
            before = [came_up[one] for one in work.down if one in came_up]
            drains = np.unique(np.append(_crossing(link, task, work.down), np.array(before, np.int64)))
            edges.append([drains, np.full(drains.size, switching)])
    parent, child = np.concatenate(edges, axis=1)
    return np.stack([parent, child, np.full(parent.size, WHOLE)])


def _crossing(link: I64, task: I64, wanted: Sequence[int]) -> I64:
    """Tasks that cross some of the links; both columns are in the order of the links."""
    some = np.array(wanted, np.int64)
    low, high = (np.searchsorted(link, some, side) for side in ("left", "right"))
    return np.unique(task[ranges(low, high - low)])


@dataclass
class Circuit:
    """A server that is a circuit of one epoch, or of several that follow each other.

    Attributes
    ----------
    name : str
    server : int
    up : int
        Task after which it may be used; -1: from the beginning.
    uses : list of int
        Tasks that cross it.
    down : int
        Task whose start takes it down; -1: none does.
    """

    name: str
    server: int
    up: int
    uses: list[int] = field(default_factory=list)
    down: int = -1


@dataclass(frozen=True, eq=False)
class EpochProgram:
    """A program and the circuits in it.

    Attributes
    ----------
    program : Program
    circuits : tuple of Circuit
    switching : tuple of int
        The tasks on the optical controller.
    """

    program: Program
    circuits: tuple[Circuit, ...]
    switching: tuple[int, ...]


@dataclass
class EpochBuilder:
    """Builds a program epoch by epoch.

    Parameters
    ----------
    model : Model
        Cutting, forwarding, delivery and endpoint latency.
    per_port : bool
        Whether a change darkens only the circuits that change, or the whole fabric.
    builder : ProgramBuilder, optional
        Where planes that switch each for itself make one program.

    Examples
    --------
    >>> from topologies import ring
    >>> epochs = EpochBuilder()
    >>> epochs.begin(ring(4))
    >>> first = epochs.send(0, 1, 1024)
    >>> epochs.begin(ring(4), delay="10us")
    >>> second = epochs.send(0, 1, 1024, after=[first])
    >>> len(epochs.build().circuits)
    16
    """

    model: Model = Model()
    per_port: bool = False
    builder: ProgramBuilder | None = None
    _fabric: Topology | None = None
    _latency: list[int] = field(default_factory=list)
    _up: dict[int, Circuit] = field(default_factory=dict)
    _all: list[Circuit] = field(default_factory=list)
    _switching: list[int] = field(default_factory=list)
    _vacated: dict[tuple[str, int], list[int]] = field(default_factory=dict)
    _dark: dict[tuple[str, int], list[Circuit]] = field(default_factory=dict)
    _controller: int = -1
    _last: int = -1

    def __post_init__(self) -> None:
        self.program = self.builder or ProgramBuilder(self.model.forwarding, self.model.deliver)

    def begin(self, fabric: Topology, delay: Quantity = 0, *, after: Iterable[int] = (), drain: bool = True) -> None:
        """Switch to another fabric; the first one is up in the beginning.

        Parameters
        ----------
        fabric : Topology
            Its links are the circuits.
        delay : quantity
            How long the ports that change are dark.
        after : iterable of int
            Further tasks to wait for, such as a rotor's clock.
        drain : bool
            Whether to wait for the circuits in use; without, `check_circuits` tells whether the caller did.
        """
        delay_ps = parse_time(delay, "reconfiguration delay")
        if self._fabric is None:
            self._up = {link: self._circuit(fabric, link, -1) for link in range(fabric.n_links)}
        elif self.per_port:
            self._switch_ports(self._fabric, fabric, delay_ps, list(after), drain)
        else:
            self._switch_all(fabric, delay_ps, list(after), drain)
        self._fabric = fabric
        self._latency = (fabric.latency_ps + fabric.hop_latency_ps[fabric.dst]).tolist()

    def routes(self, src: Sequence[int], dst: Sequence[int]) -> list[list[int]]:
        """Links of the present fabric from each source to each destination.

        Raises
        ------
        WeftError
            No epoch has begun, its circuits do not join a pair, or a tie rule with several routes for one pair.
        """
        if self._fabric is None:
            raise WeftError("transfers before the first epoch: begin one first")
        paths = self._fabric.paths(np.array(src, np.int64), np.array(dst, np.int64), self.model.tie, self.model.seed)
        if paths.pair.size != len(src):
            raise WeftError("epochs route each transfer one way: choose the tie rule first, alternating or ecmp")
        return [paths.links[paths.ptr[at] : paths.ptr[at + 1]].tolist() for at in range(len(src))]

    def send(
        self, src: int, dst: int, size_bytes: int, *, after: Iterable[int] = (), links: Sequence[int] | None = None,
        tie_class: int = 0, priority: int = 0,
    ) -> int:
        """Add a transfer over the circuits of the present epoch; returns its task.

        `links` are those of `routes`, where many were asked for at once.

        Raises
        ------
        WeftError
            No epoch has begun, or its circuits do not join the two.
        """
        route = self.routes([src], [dst])[0] if links is None else links
        crossed = [self._up[link] for link in route]
        path = [(one.server, self._latency[link]) for one, link in zip(crossed, route, strict=True)]
        if path:
            path[-1] = (path[-1][0], path[-1][1] + self.model.endpoint_latency_ps)
        task = self.program.task(
            size_bytes, path, self.model.cutting,
            after=dict.fromkeys([*after, *(one.up for one in crossed if one.up >= 0)]), tie_class=tie_class,
            priority=priority,
        )
        for one in crossed:
            one.uses.append(task)
        return task

    def build(self) -> EpochProgram:
        """The program, checked."""
        return EpochProgram(self.program.build(), tuple(self._all), tuple(self._switching))

    def _circuit(self, fabric: Topology, link: int, up: int) -> Circuit:
        one = Circuit(fabric.link_name(link), self.program.server(Fraction(float(fabric.bandwidth_Bps[link]))), up)
        self._all.append(one)
        return one

    def _switch(self, delay_ps: int, controller: int, after: Iterable[int]) -> int:
        """A task on the controller; a change that takes no time only waits."""
        # A latency of 1 ps: cut-through would raise none to that, and the delay is to be exact.
        path = [(controller, 1)] if delay_ps else []
        task = self.program.task(max(delay_ps - 1, 0), path, after=dict.fromkeys(after))
        self._switching.append(task)
        return task

    def _drained(self, circuits: Iterable[Circuit]) -> list[int]:
        return [task for one in circuits for task in (*one.uses, one.up) if task >= 0]

    def _switch_all(self, fabric: Topology, delay_ps: int, after: list[int], drain: bool) -> None:
        if self._controller < 0:
            self._controller = self.program.server(PS_PER_S)
        waits = self._drained(self._up.values()) if drain else []
        task = self._switch(delay_ps, self._controller, [*waits, *after, *([self._last] if self._last >= 0 else [])])
        self._last = task
        for one in self._up.values():
            one.down = task
        self._up = {link: self._circuit(fabric, link, task) for link in range(fabric.n_links)}

    def _switch_ports(self, old: Topology, new: Topology, delay_ps: int, after: list[int], drain: bool) -> None:
        """Circuits of both fabrics stay up; others wait for all that have left their two ports."""
        stays = {_key(old, link): circuit for link, circuit in self._up.items()}
        up: dict[int, Circuit] = {}
        for link in range(new.n_links):
            if _key(new, link) in stays:
                up[link] = stays.pop(_key(new, link))
        for (src, dst, _), gone in stays.items():
            for port in (("out", src), ("in", dst)):
                self._vacated.setdefault(port, []).extend(self._drained([gone]) if drain else [])
                self._dark.setdefault(port, []).append(gone)
        taken: dict[tuple[str, int], list[int]] = {}
        for link in range(new.n_links):
            if link in up:
                continue
            ports = (("out", int(new.src[link])), ("in", int(new.dst[link])))
            waits = [task for port in ports for task in self._vacated.get(port, [])]
            task = self._switch(delay_ps, self.program.server(PS_PER_S), [*waits, *after])
            up[link] = self._circuit(new, link, task)
            for port in ports:
                taken.setdefault(port, []).append(task)
                for gone in self._dark.pop(port, []):
                    gone.down = task if gone.down < 0 else gone.down
        # Whoever comes to these ports later waits for these changes, and so for all that they waited for.
        self._vacated |= taken
        self._up = up


def _key(fabric: Topology, link: int) -> tuple[int, int, float]:
    return int(fabric.src[link]), int(fabric.dst[link]), float(fabric.bandwidth_Bps[link])


def check_circuits(epochs: EpochProgram, outcome: Outcome) -> None:
    """Refuse a run in which a transfer used a circuit that was not up.

    Raises
    ------
    WeftError
        Names the circuit, the task and both times.
    """
    for one in epochs.circuits:
        up_ps = int(outcome.finish_ps[one.up]) if one.up >= 0 else 0
        down_ps = int(outcome.start_ps[one.down]) if one.down >= 0 else None
        for task in one.uses:
            start, finish = int(outcome.start_ps[task]), int(outcome.finish_ps[task])
            if start < up_ps:
                raise WeftError(
                    f"task {task} starts at {format_time(start)}; circuit {one.name} is up from {format_time(up_ps)}"
                )
            if down_ps is not None and finish > down_ps:
                raise WeftError(
                    f"task {task} ends at {format_time(finish)}; circuit {one.name} is down from {format_time(down_ps)}"
                )


def lower_plan(
    menu: Menu, plan: Plan, delay: Quantity, model: Model = Model(), *, per_port: bool = False, in_step: bool = True
) -> EpochProgram:
    """The program of a collective that switches circuits between its steps.

    Parameters
    ----------
    menu : Menu
    plan : Plan
        A fabric of the menu for each step.
    delay : quantity
        Of every change.
    model : Model
        Its endpoint latency is replaced by the start-up of a step.
    per_port : bool
        Whether a change darkens only the circuits that change.
    in_step : bool
        Whether a step begins when all ranks have ended the one before, as the plan counts, or each rank goes on by
        itself.
    """
    t = menu.schedule.pattern.transfers()
    if np.any(t.dep_lag != -1):
        raise WeftError(f"{menu.schedule.name} passes chunks on before its steps end; switching needs whole steps")
    epochs = EpochBuilder(replace(model, endpoint_latency_ps=menu.start_up_ps), per_port)
    epochs.begin(menu.fabrics[0])
    task_of: dict[tuple[int, int], int] = {}
    moves = t.src != t.dst
    fabric_of = dict(zip(np.unique(t.step[moves]).tolist(), plan.fabrics, strict=True))
    now, barrier = 0, -1
    for step in np.unique(t.step).tolist():
        rows = np.flatnonzero(t.step == step)
        if fabric_of.get(step, now) != now:
            now = fabric_of[step]
            epochs.begin(menu.fabrics[now], delay)
        routes = epochs.routes(t.src[rows].tolist(), t.dst[rows].tolist())
        tasks = []
        for row, links in zip(rows.tolist(), routes, strict=True):
            at = range(t.dep_ptr[row], t.dep_ptr[row + 1])
            after = [task_of[int(t.dep_src[i]), int(t.dep_slot[i])] for i in at]
            source = int(t.src[row])
            task = epochs.send(
                source, int(t.dst[row]), int(t.blocks[row]) * menu.schedule.block_bytes, links=links,
                after=after if barrier < 0 else [*after, barrier], tie_class=int(t.tie_class[row]), priority=step,
            )
            task_of[source, int(t.slot[row])] = task
            tasks.append(task)
        if in_step:
            barrier = epochs.program.task(0, after=tasks)
    return epochs.build()


def lower_planes(menu: Menu, delay: Quantity, planes: int = 2, model: Model = Model()) -> EpochProgram:
    """The program of a collective whose steps take turns on planes, each of which switches while the others transmit.

    Parameters
    ----------
    menu : Menu
    delay : quantity
    planes : int
        Each has an equal part of the rate of every circuit.
    model : Model
        Its endpoint latency is replaced by the start-up of a step.
    """
    if planes < 1:
        raise WeftError(f"{planes} planes: at least 1")
    model = replace(model, endpoint_latency_ps=menu.start_up_ps)
    program = ProgramBuilder(model.forwarding, model.deliver)
    turns = [EpochBuilder(model, builder=program) for _ in range(planes)]
    slower = [fabric.with_links(bandwidth_Bps=fabric.bandwidth_Bps / planes) for fabric in menu.fabrics]
    for plane in turns:
        plane.begin(slower[0])
    before: list[int] = []
    for at, (step, own) in enumerate(zip(menu.steps, menu.own, strict=True)):
        plane = turns[at % planes]
        plane.begin(slower[own], delay)
        routes = plane.routes(step.src, step.dst)
        moves = zip(step.src, step.dst, step.size_bytes, routes, strict=True)
        before = [program.task(0, after=before)] if before else []
        before = [plane.send(src, dst, size, after=before, links=links) for src, dst, size, links in moves]
    parts = [plane.build() for plane in turns]
    return EpochProgram(
        parts[0].program, tuple(one for part in parts for one in part.circuits),
        tuple(task for part in parts for task in part.switching),
    )
