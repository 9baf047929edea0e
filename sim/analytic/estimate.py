"""The alpha-beta estimate: steps in lockstep, each as long as its slowest transfer and its fullest link."""

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from collectives.core.transfers import Again, runs_of
from sim.analytic.closed_form import first_chunk, first_delivered
from sim.lower.lowered import Lowered
from sim.program import I32, I64, Program
from sim.program.columns import BLOCK, blocks, crossings, pieces
from sim.program.passes import fullest_of_runs
from topologies.core.paths import distinct_of
from topologies.stages import staged

PART = BLOCK // 8
"""Tasks whose hops are looked at together; eight times as many sums of a server in a step."""

FAR_PS = np.iinfo(np.int64).max

F64 = npt.NDArray[np.float64]


class Estimate(NamedTuple):
    """The two sums of the estimate, in ps: latencies of the steps, and the times of their fullest links."""

    latency_ps: int
    load_ps: int


@staged("bounds")
def estimate_ps(lowered: Lowered) -> int:
    """Time if every step began when the previous one had ended everywhere.

    A step takes the longest latency of its routes and the time that the bytes crossing its fullest link need there:
    sum over steps of alpha + n_s * congestion_s / bandwidth. Steps of one number in all ports run together, and steps
    whose transfers follow chunk by chunk are one step: the first chunk goes through all of it. Parts of an array in a
    pipeline have their own steps; see `_pipeline`. Ports that join at the ends of phases alone are not in lockstep; see
    `_phases`. Queueing inside a step and overlap between steps are what the simulation adds.
    """
    return sum(estimate_parts(lowered))


def estimate_parts(lowered: Lowered) -> Estimate:
    """The estimate of a schedule alone, in its parts."""
    program, starts = lowered.program, lowered.schedule.pattern.pipeline
    if program.n_tasks == 0:
        return Estimate(0, 0)
    found = _of_long_runs(lowered)
    if found is not None:
        return found
    step = _streamed(lowered)
    n_steps = int(step.max()) + 1
    if starts:
        transfers = lowered.transfers[0]
        assert transfers is not None
        slot = transfers.slot[lowered.task_row]
        step = step + n_steps * np.maximum(np.searchsorted(starts, slot, "right") - 1, 0)
    elif len(lowered.schedule.pattern.phases) > 1 and not program.parent.size:
        return _phases(lowered, step)
    wires, before = _until_last_service_ps(program)
    n_keys = int(step.max()) + 1
    alpha = _largest(step, n_keys, wires)
    streams = before if before is not None and program.parent.size else None
    load = _step_loads_ps(lowered, step, streams)
    if streams is not None:
        load -= alpha
    elif before is not None:
        load += _largest(step, n_keys, before) - alpha
    if starts:
        return _pipeline(lowered, step, n_steps, alpha, load)
    return Estimate(int(alpha.sum()), int(np.ceil(load.sum())))


def _of_long_runs(lowered: Lowered) -> Estimate | None:
    """The estimate of many tasks that cut through, wait for whole ones and come in long runs of steps; else None."""
    program, pattern, transfers = lowered.program, lowered.schedule.pattern, lowered.transfers[0]
    simple = program.cut_through and not program.parent.size and not pattern.pipeline and lowered.row is None
    if not simple or program.n_tasks <= PART or transfers is None:
        return None
    step, n = runs_of(transfers, "step")
    if len(pattern.phases) < 2:
        found = _in_runs(lowered, step, n)
        return found if found is None else Estimate(int(found[0].sum()), int(np.ceil(found[1].sum())))
    if not isinstance(transfers, Again) or "port" not in transfers.runs:
        return None
    port, starts = transfers.runs["port"][0].astype(np.int64), np.array(pattern.phases)
    n_ports = int(port.max()) + 1
    own = _in_runs(lowered, step * n_ports + port, n)
    shared = _in_runs(lowered, np.searchsorted(starts, step, "right") - 1, n)
    if own is None or shared is None:
        return None
    both = np.pad(np.stack(own), ((0, 0), (0, -own[0].size % n_ports)))
    return _of_phases(both, n_ports, starts, shared[1])


def _in_runs(
    lowered: Lowered, step: npt.NDArray[np.integer], count: npt.NDArray[np.integer] | int
) -> tuple[I64, F64] | None:
    """The longest latency and the time of the fullest link in each step; None where one has several runs.

    `step`: of some tasks each, of `count` of them.
    """
    begins = np.flatnonzero(np.append(True, step[1:] != step[:-1]))
    of, program, wire = step[begins], lowered.program, lowered.server_link >= 0
    if distinct_of(of).size < of.size:
        return None
    ptr = np.append(0, np.cumsum(np.broadcast_to(count, step.size)))[np.append(begins, step.size)]
    rate = np.where(wire, lowered.topology.bandwidth_Bps[lowered.server_link], 0)
    scratch = np.empty(program.n_servers), np.full(program.n_servers, -1)
    longest, fullest = np.zeros(of.size, np.int64), np.zeros(of.size)
    fullest_of_runs(ptr, program, rate, lowered.task_bytes, *scratch, longest, fullest)
    found = np.zeros(int(of.max()) + 1, np.int64), np.zeros(int(of.max()) + 1)
    found[0][of], found[1][of] = longest, fullest
    return found


class Estimates:
    """`estimate_ps` of one program, called again as rates and service times change.

    Of transfers that cut through and wait for whole ones, what links serve in each step is found once.
    """

    def __init__(self, lowered: Lowered) -> None:
        program, pattern = lowered.program, lowered.schedule.pattern
        simple = program.cut_through and not program.parent.size and not pattern.pipeline
        self._steps: tuple[_Loads, ...] = ()  # of the steps; or of the ports in each, and of the phases
        if simple and 0 < program.n_tasks <= PART and (lowered.server_link >= 0).all():
            step, self._phases = lowered.task_step.astype(np.int64), np.array(pattern.phases)
            self._many = len(pattern.phases) > 1
            keys, self._n_ports = _of_ports(lowered, step) if self._many else ((step,), 1)
            n_keys = -(-(int(keys[0].max()) + 1) // self._n_ports) * self._n_ports
            self._alpha = _largest(keys[0], n_keys, _until_last_service_ps(program)[0])
            if n_keys * program.n_servers <= 8 * PART:
                self._steps = tuple(_Loads(lowered, key, n_keys) for key in keys)

    def __call__(self, bandwidth_Bps: F64, lowered: Callable[[], Lowered]) -> int:
        """The estimate at other rates of links; `lowered`: the program there, with the fabric that has them."""
        if not self._steps:
            return estimate_ps(lowered())
        load, *of_phases = (of(bandwidth_Bps) for of in self._steps)
        if not self._many:
            return int(self._alpha.sum()) + int(np.ceil(load.sum()))
        shared = of_phases[0][: self._phases.size]
        return sum(_of_phases(np.stack([self._alpha, load]), self._n_ports, self._phases, shared))


class _Loads:
    """The time of the fullest link in each of some steps at any rates, where no chunks are passed on in them."""

    def __init__(self, lowered: Lowered, step: I64, n_steps: int) -> None:
        task, server = crossings(lowered.program, np.arange(lowered.program.n_tasks))
        self.key, self.shape = step[task] * lowered.program.n_servers + server, (n_steps, lowered.program.n_servers)
        self.sent_ps, self.link = lowered.task_bytes[task].astype(np.float64) * 1e12, lowered.server_link[server]

    def __call__(self, bandwidth_Bps: F64) -> F64:
        load = np.bincount(self.key, self.sent_ps / bandwidth_Bps[self.link], math.prod(self.shape))
        fullest: F64 = load.reshape(self.shape).max(axis=1)
        return fullest


def _of_ports(lowered: Lowered, step: I64) -> tuple[tuple[I64, I64], int]:
    """The step of its port, and the phase, of each task; and the number of ports."""
    transfers = lowered.transfers[0]
    assert transfers is not None
    port = transfers.port[lowered.task_row].astype(np.int64)
    n_ports = int(port.max()) + 1
    phase = np.searchsorted(np.array(lowered.schedule.pattern.phases), step, "right") - 1
    return (step * n_ports + port, phase), n_ports


def _phases(lowered: Lowered, step: I64) -> Estimate:
    """Phases in lockstep: within one each port goes through its own steps, or a link that ports share decides."""
    wires, before = _until_last_service_ps(lowered.program)
    (chain, phase), n_ports = _of_ports(lowered, step)
    n_chains = int(chain.max()) + 1
    own = np.stack([_largest(chain, n_chains, wires), _step_loads_ps(lowered, chain, None)])
    if before is not None:
        own[1] += _largest(chain, n_chains, before) - own[0]
    own = np.pad(own, ((0, 0), (0, -n_chains % n_ports)))
    return _of_phases(own, n_ports, np.array(lowered.schedule.pattern.phases), _step_loads_ps(lowered, phase, None))


def _of_phases(own: F64, n_ports: int, starts: I64, shared: F64) -> Estimate:
    ports = np.add.reduceat(own.reshape(2, -1, n_ports), starts, axis=1)
    longest = ports[:, np.arange(starts.size), ports.sum(axis=0).argmax(axis=1)]
    return Estimate(int(longest[0].sum()), math.ceil(np.maximum(longest[1], shared).sum()))


def _streamed(lowered: Lowered) -> I64:
    """The step of each task, where steps between which chunks are passed on are one."""
    step = lowered.task_step.astype(np.int64)
    if not lowered.program.parent.size:
        return step
    parent, child, lag = lowered.program.stream_edges()
    ends = np.sort(step[np.stack([parent, child])[:, lag == 0]], axis=0)
    spans = np.zeros(int(step.max()) + 2, np.int64)
    np.add.at(spans, ends[0] + 1, 1)
    np.add.at(spans, ends[1] + 1, -1)
    return (np.cumsum(np.cumsum(spans) == 0) - 1)[step]


class _Chains(NamedTuple):
    """A time for each task: `times_ps[row]`."""

    times_ps: I64
    row: I32 | I64


def _until_last_service_ps(program: Program) -> tuple[_Chains, _Chains | None]:
    """Latencies of each task's first chunk, and its time until its last service begins, where that is more.

    Both are those of the longest chain of streams before it, and it.
    """
    if program.cut_through and not program.parent.size:
        return _Chains(_route_latencies_ps(program), program.task_route), None
    longest, time_ps = first_chunk(program)
    wire_ps = _route_latencies_ps(program)[program.task_route]
    every, (reached_ps, begun_ps) = np.arange(program.n_tasks), first_delivered(program, wire_ps, time_ps)
    return _Chains(reached_ps, every), _Chains(begun_ps - longest, every)


def _largest(step: I64, n_steps: int, chains: _Chains) -> I64:
    """The longest of each step."""
    largest = np.zeros(n_steps, np.int64)
    for some in blocks(step.size):
        np.maximum.at(largest, step[some], chains.times_ps[chains.row[some]])
    return largest


def _pipeline(lowered: Lowered, step: I64, n_steps: int, alpha: I64, load: F64) -> Estimate:
    """Parts that go through the dimensions one behind the other, as many at once as a pool allows.

    The busiest dimension decides: its links serve all parts, and each part holds its place for the latencies of its
    steps as well. What the other dimensions take of the quickest part comes before and after.
    """
    program, topology, pattern = lowered.program, lowered.topology, lowered.schedule.pattern
    n_parts, n_dims = len(pattern.pipeline), len(topology.shape)
    moves = np.flatnonzero(np.diff(program.route_ptr)[program.task_route] > 0)
    first = program.route_ptr[program.task_route[moves]]
    first += lowered.server_link[program.route_server[first]] < 0  # a NIC comes before
    first_link = lowered.server_link[program.route_server[first]]
    dimension = np.full(alpha.size, -1)
    dimension[step[moves]] = topology.dimension[first_link]
    waits, works = np.zeros((2, n_parts, n_dims))
    known = np.flatnonzero(dimension >= 0)
    np.add.at(waits, (known // n_steps, dimension[known]), alpha[known])
    np.add.at(works, (known // n_steps, dimension[known]), load[known])
    at_once = min(pattern.pools[0].capacity, n_parts)
    found = []
    for dim in range(n_dims):
        quickest = np.argmin(np.delete(waits + works, dim, axis=1).sum(axis=1))
        rest = [np.delete(of[quickest], dim).sum() for of in (waits, works)]
        held = waits[:, dim].sum() / at_once, works[:, dim].sum() / at_once
        served = waits[quickest, dim], works[:, dim].sum()
        found.append(np.add(rest, max(held, served, key=sum)))
    latency, work = max(found, key=sum)
    return Estimate(math.ceil(latency), math.ceil(work))


def _step_loads_ps(lowered: Lowered, step: I64, streams: _Chains | None) -> F64:
    """Time of the fullest link in each step; in streams from the first chunk on: a link begins with its earliest task.

    Nor is a task over before its own chunks have followed its first one.
    """
    program, wire, n_servers = lowered.program, lowered.server_link >= 0, lowered.program.n_servers
    rate = np.where(wire, lowered.topology.bandwidth_Bps[lowered.server_link], 1.0)
    fullest = np.zeros(int(step.max()) + 1)
    hops = program.hops()
    for tasks in _whole_steps(step, n_servers):
        low, high = int(step[tasks].min()), int(step[tasks].max())
        load = np.zeros((high - low + 1) * n_servers)
        earliest = np.full(load.size if streams is not None else 0, FAR_PS)
        for some in pieces(hops[tasks]):
            task, server = crossings(program, tasks[some])
            if not wire.all():
                on_link = wire[server]
                task, server = task[on_link], server[on_link]
            key = (step[task] - low) * n_servers + server
            own = lowered.task_bytes[task] * 1e12 / rate[server]
            np.add.at(load, key, own)
            if streams is not None:
                begin = streams.times_ps[streams.row[task]]
                np.minimum.at(earliest, key, begin)
                np.maximum.at(fullest, step[task], begin + own)
        if streams is not None:
            load += np.where(earliest < FAR_PS, earliest, 0)
        of_step = fullest[low : high + 1]
        np.maximum(of_step, load.reshape(of_step.size, -1).max(axis=1), out=of_step)
    return fullest


def _whole_steps(step: I64, n_servers: int) -> Iterator[I64]:
    """All tasks, in parts of whole steps: one after the other, they take less memory."""
    if step.size <= PART and (int(step.max()) + 1) * n_servers <= 8 * PART:
        yield np.arange(step.size)
        return
    order = np.argsort(step, kind="stable")
    ends, first, begun = np.cumsum(np.bincount(step)), 0, 0
    while first < step.size:
        until = min(int(np.searchsorted(ends, first + PART)), begun + 8 * PART // n_servers, ends.size - 1)
        end, begun = int(ends[until]), until + 1
        if end > first:
            yield order[first:end]
        first = end


def _route_latencies_ps(program: Program) -> I64:
    """The sum along each route."""
    ptr = program.route_ptr.astype(np.int64)
    sums = np.zeros(ptr.size - 1, np.int64)
    for some in pieces(np.diff(ptr)):
        at = ptr[some.start : some.stop + 1]
        total = np.cumsum(program.hop_latency_ps[program.route_hop[at[0] : at[-1]]])
        sums[some] = np.diff(np.append(0, total)[at - at[0]])
    return sums
