"""Lower bounds on every run: of a schedule, a job, or several at once, exact in integer picoseconds."""

from collections.abc import Callable
from fractions import Fraction
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from collectives.core.collective import COLLECTIVES, Collective
from collectives.core.pairs import demand_of
from collectives.core.schedule import Schedule
from sim.analytic.cut_bound import cut_bound, is_cheap, pairs_bound
from sim.analytic.longest_path import latencies_around, work_and_path
from sim.lower.job import lower
from sim.lower.lowered import Lowered
from sim.program import Program
from sim.program.columns import BLOCK, i32, numbered, work_ps
from sim.program.contract import CLOCK_END_PS
from sim.program.flows import TOLERANCE
from sim.program.passes import farthest_child, tally
from topologies import Topology, egress_Bps, ingress_Bps
from topologies.checks import checked
from topologies.compiled import held
from topologies.flows.cuts import proportions
from topologies.flows.tightest_cut import remembered, remembered_in_proportion
from topologies.stages import staged
from topologies.text.brief import one_line
from topologies.units import PS_PER_S

F64 = npt.NDArray[np.float64]


@checked
@one_line
class Bounds(NamedTuple):
    """Lower bounds on the makespan, in ps.

    Attributes
    ----------
    load_ps : int
        The busiest server must serve all traffic that crosses it.
    path_ps : int
        The longest chain of dependencies, without contention.
    wire_ps : int
        Traffic that any algorithm must move into and out of the NPUs; 0 where heads count as delivery.
    cut_ps : int
        Traffic that any algorithm must move across the tightest cut; 0 where heads count as delivery, where the cut
        would take long to find (`sim.analytic.cut_bound`), and for process groups.
    """

    load_ps: int
    path_ps: int
    wire_ps: int
    cut_ps: int = 0

    @property
    def best_ps(self) -> int:
        """The tightest of them."""
        return max(self)


@staged("bounds")
@checked
def bounds(lowered: Lowered) -> Bounds:
    """Lower bounds on the time of a schedule under a model.

    With head delivery the service of the last chunk of a transfer does not count, so the bounds leave it out.
    """
    return Bounds(*BusyAndPath(lowered.program)(), *moved_ps(lowered))


def moved_ps(lowered: Lowered) -> tuple[int, int]:
    """The bounds of what any algorithm must move: into and out of the NPUs, and across the tightest cut."""
    t = lowered.topology
    if _is_unbounded(lowered):
        return 0, 0
    return _moved_ps(lowered, partial(_ends, t), lambda: t, partial(_cut_ps_per_byte, t))


class Moved:
    """`moved_ps` of one schedule, called again at other rates of links, which are alike where its fabric's are."""

    def __init__(self, lowered: Lowered) -> None:
        self.lowered, self.distinct = lowered, np.unique(lowered.topology.bandwidth_Bps, return_index=True)[1]
        self.last: tuple[Any, Fraction, Fraction] | None = None  # proportions, their unit, and the cut
        self.is_unbounded = _is_unbounded(lowered)

    def __call__(self, bandwidth_Bps: F64, on: Callable[[], Topology]) -> tuple[int, int]:
        """The bounds at some rates; `on`: the fabric that has them."""
        if self.is_unbounded:
            return 0, 0
        t = self.lowered.topology

        def ends(root: int | None) -> tuple[_Ends, Any]:
            into, out_of = (np.bincount(end, bandwidth_Bps, t.n_nodes)[: t.n_npus] for end in (t.dst, t.src))
            return _least(np.asarray(into, np.float64), np.asarray(out_of, np.float64), root)

        def cut(*what: Any) -> Fraction:
            unit, whole, which = proportions(bandwidth_Bps[self.distinct])
            of = whole, which.tobytes()
            if self.last is None or self.last[0] != of:
                self.last = of, unit, _cut_ps_per_byte(on(), *what)
            return _at_times(self.last[2], unit / self.last[1])

        return _moved_ps(self.lowered, ends, on, cut)


def _is_unbounded(lowered: Lowered) -> bool:
    """Whether it delivers heads, or is a collective of some ranks, whose links need not be the least of all."""
    return lowered.schedule.kind.name not in COLLECTIVES or lowered.program.delivers_heads


def _moved_ps(
    lowered: Lowered, ends: "_EndsOf", on: Callable[[], Topology], cut: Callable[[str, int, bool], Fraction]
) -> tuple[int, int]:
    return _wire_bound_ps(lowered.schedule, ends), _cut_bound_ps(lowered, on, cut)


def _wire_bound_ps(schedule: Schedule, ends: "_EndsOf") -> int:
    """Bytes that must enter and leave NPUs, whatever the algorithm, at the bandwidth of their links.

    An NPU that wants what others have must receive it; one whose contribution others need must send it. All-reduce
    without reducing switches moves at least 2(p-1) times the array in all (Patarasuk and Yuan, 2009, section 2).
    """
    size, p, n = schedule.size_bytes, schedule.pattern.p, schedule.pattern.group_size
    unknown = schedule.pattern.is_part or schedule.kind.weights is not None
    if n == 1 or size == 0 or unknown:
        return 0
    share = size * (n - 1) / n
    if schedule.kind.rooted:
        root, others = ends(schedule.pattern.root)
        with np.errstate(divide="ignore"):  # of other kinds: circuits of a broadcast may lead out of its root alone
            seconds = {
                "broadcast": max(size / others.into, size / root.out_of),
                "reduce": max(size / root.into, size / others.out_of),
                "gather": max(share / root.into, share / (n - 1) / others.out_of),
                "scatter": max(share / root.out_of, share / (n - 1) / others.into),
            }[schedule.kind.name]
    else:
        least, all_Bps = ends(None)
        all_groups = 0 if schedule.pattern.in_switches else 2 * (p - p // n) * size
        seconds = {
            "all-reduce": max(size / least.into, size / least.out_of, all_groups / all_Bps),
            "reduce-scatter": max((share / (n - 1)) / least.into, share / least.out_of),  # one sum for all others
            "all-gather": max(share / least.into, (share / (n - 1)) / least.out_of),
            "all-to-all": max(share / least.into, share / least.out_of),
        }[schedule.kind.name]
    return int(np.floor(seconds * PS_PER_S * (1 - 1e-12)))


class _Ends(NamedTuple):
    """Bandwidth of the links of an NPU, in bytes/s; of several NPUs, the least."""

    into: np.float64
    out_of: np.float64


_EndsOf = Callable[[int | None], tuple[_Ends, Any]]
"""Of any NPU, and the bandwidth of all of them together, the less of both directions; of a root, and of any other."""


@remembered
def _ends(topology: Topology, root: int | None) -> tuple[_Ends, Any]:
    return _least(ingress_Bps(topology), egress_Bps(topology), root)


def _least(into: F64, out_of: F64, root: int | None) -> tuple[_Ends, Any]:
    if root is None:
        return _Ends(into.min(), out_of.min()), min(into.sum(), out_of.sum())
    others = np.arange(into.size) != root
    return _Ends(into[root], out_of[root]), _Ends(*(of[others].min(initial=np.inf) for of in (into, out_of)))


def _cut_bound_ps(lowered: Lowered, on: Callable[[], Topology], cut: Callable[[str, int, bool], Fraction]) -> int:
    """Time for the traffic that must cross the tightest cut of the collective."""
    schedule = lowered.schedule
    pattern = schedule.pattern
    nothing = schedule.size_bytes == 0 or pattern.group_size < pattern.p
    nothing |= pattern.is_part or pattern.circuits is not None
    if nothing or not is_cheap(lowered.topology):
        return 0
    if schedule.kind.weights is not None:
        s_per_byte = _pairs_s_per_byte(on(), schedule.kind, schedule.element_bytes, schedule.size_bytes)
        return int(s_per_byte * PS_PER_S * schedule.size_bytes)
    ps_per_byte = cut(schedule.kind.name, pattern.root, pattern.in_switches)
    return ps_per_byte.numerator * schedule.size_bytes // ps_per_byte.denominator


@remembered
def _pairs_s_per_byte(topology: Topology, kind: Collective, element_bytes: int, size_bytes: int) -> Fraction:
    return pairs_bound(topology, demand_of(kind, topology.n_npus), element_bytes, size_bytes).s_per_byte


def _at_times(ps_per_byte: Fraction, times: Fraction) -> Fraction:
    return ps_per_byte / times


@remembered_in_proportion(_at_times)
def _cut_ps_per_byte(topology: Topology, collective: str, root: int, reducing: bool) -> Fraction:
    return cut_bound(topology, collective, root, reducing_switches=reducing).s_per_byte * PS_PER_S


@staged("bounds")
def busy_and_path_ps(program: Program) -> tuple[int, int]:
    """Work of the busiest server, and the longest chain of dependencies, each task alone on its route.

    With head delivery the longest service of a server does not count: it may be that of a last chunk.
    """
    return BusyAndPath(program)()


@staged("bounds")
def load_ps(program: Program, *, latencies: bool = True) -> int:
    """Work of a server, and the latencies before its first service and behind its last: the most of all servers.

    As long with any number of chunks, but for headers of packets; 0 of heads, whose last chunks do not count, small or
    large.

    `latencies`: whether they count; of many tasks they do not.
    """
    if program.delivers_heads:
        return 0
    if program.n_tasks > BLOCK or not latencies:
        return busy_and_path_ps(program)[0]
    busy, around = work_ps(program), np.full((2, program.n_servers), CLOCK_END_PS)
    latency = np.append(0, np.cumsum(program.hop_latency_ps[program.route_hop]))[program.route_ptr]
    scratch = np.zeros((2, program.n_tasks), np.int32)
    latencies_around(program, np.tile(np.diff(latency), (3, 1)), *scratch, np.zeros(scratch.shape, np.int64), around)
    return int((busy + around.sum(axis=0))[around[0] < CLOCK_END_PS].max(initial=0))


class BusyAndPath:
    """`busy_and_path_ps` of one program, called again as its service times change."""

    def __init__(self, program: Program) -> None:
        n_routes, n_tasks, n_servers = program.route_ptr.size - 1, program.n_tasks, program.n_servers
        n_kinds = program.cut_chunks.size * n_routes
        if n_kinds <= n_tasks + 1024:  # all of them, also where no task is of a kind
            kinds, kind = np.arange(n_kinds), program.task_route
            if program.cut_chunks.size > 1:
                kind = program.task_cut * np.int32(n_routes) + program.task_route
        else:
            kinds, kind = numbered(
                n_tasks, lambda some: program.task_cut[some].astype(np.int64) * n_routes + program.task_route[some]
            )
        cut, route = np.divmod(kinds, max(n_routes, 1))
        waits = program.whole_ptr, program.whole_child
        maybe = not program.stream_child.size and n_tasks > BLOCK // 8
        in_order = (far := farthest_child(*waits) if maybe else -1) >= 0
        if n_tasks > BLOCK:
            tally(tasks := np.zeros(kinds.size, np.int64), kind)
        else:
            tasks = np.bincount(kind, minlength=kinds.size)
        self._of_servers = np.empty((2, n_servers), np.int64)
        self._zeroed = np.empty((2, 0 if in_order else n_tasks), np.int32)
        self._times = np.empty((1, 1 << far.bit_length()) if in_order else (2, n_tasks), np.int64)
        self._call = held(
            work_and_path, program, kind, cut, route, tasks, *self._of_servers,
            np.empty((3, kinds.size), np.int64), *self._zeroed, self._times,
        )

    def __call__(self) -> tuple[int, int]:
        """Work of the busiest server, and the longest chain."""
        for array in (self._of_servers, self._zeroed, self._times):
            array[:] = 0
        path = self._call()
        busy, longest = self._of_servers
        return int((busy - longest).max(initial=0)), int(path)


class Faults(Protocol):
    """What a bound needs to know of a fault plan."""

    @property
    def moves_routes(self) -> bool:
        """Whether chunks may take other routes than on the healthy fabric."""


def lower_bound_ps(lowered: Lowered, plan: Faults | None = None) -> int:
    """Lower bound of a run with the faults of a plan, in ps; for a schedule alone also what any algorithm must move."""
    if lowered.job.alone is None:
        return program_bound_ps(lowered.program)
    return bound_under(plan, bounds(lowered if plan is None else lower(lowered.job, lowered.model)))


def flows_bound_ps(lowered: Lowered, plan: Faults | None = None) -> int:
    """Lower bound of a fluid run with the faults of a plan, in ps.

    Flows share links: only the end of each is rounded, where the chunk engine rounds every service.
    """
    alone = lowered.job.alone is not None
    healthy = lower(lowered.job, lowered.model) if alone and plan is not None else lowered
    program = healthy.program._replace(service_ps=np.maximum(healthy.program.service_ps - 1, 0))
    found = bound_under(plan, bounds(healthy._replace(program=program))) if alone else program_bound_ps(program)
    return max(found - 1 - program.n_tasks // TOLERANCE, 0)


def bound_under(plan: Faults | None, found: Bounds) -> int:
    """The tightest of the bounds of a healthy fabric that holds under a plan, in ps.

    What servers must serve, and the path of every transfer, hold for the healthy routes: where chunks may take others,
    what has to enter and leave the NPUs, and to cross the tightest cut, is what is left.
    """
    return found.best_ps if plan is None or not plan.moves_routes else max(found.wire_ps, found.cut_ps)


def program_bound_ps(program: Program) -> int:
    """Work of the busiest server, or the longest chain of dependencies, in ps.

    Faults only add to services and latencies, so that the bound of the healthy servers holds for them. A task that may
    take a detour crosses other servers: nothing of it is counted.
    """
    return max(busy_and_path_ps(_without_detoured(program)))


def _without_detoured(program: Program) -> Program:
    """The program in which tasks that have detours take no time."""
    if not program.detour_ptr.size:
        return program
    nowhere = program.route_ptr.size - 1
    return program._replace(
        route_ptr=i32(np.append(program.route_ptr, program.route_ptr[-1])),
        task_route=i32(np.where(np.diff(program.detour_ptr) > 0, nowhere, program.task_route)),
    )
