"""A run with names, for pictures of it: which node and track each service is drawn on, and what it is called."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sim.lower.lowered import NO_TRANSFER, SUM, TIMEOUT, Lowered
from sim.lower.progress import progress_told
from sim.program import I64, Program
from sim.program.outcome import Outcome
from topologies.checks import WeftError, checked
from topologies.text.brief import one_line
from workloads.job import Compute, Operation, Reconfigure

LATE = "late start"


class Track(NamedTuple):
    """Where the services of a server are drawn."""

    process: str  # node
    thread: str  # link or stream
    group: str  # of the utilization counter: "dimension 0"
    category: str  # "link", "compute", or "late" for the late start of an NPU


@checked
@one_line
class Timeline(NamedTuple):
    """A logged run with the names of its servers and tasks.

    Attributes
    ----------
    program : Program
    outcome : Outcome
        With a log or a journal.
    tracks : sequence of Track
        One a server.
    processes : sequence of str
        Nodes in the order in which they are shown.
    task_name : callable (task) -> str
    task_facts : callable (task) -> dict
        What a click on a slice shows.
    about : mapping of str to value
        What the whole file is about.
    """

    program: Program
    outcome: Outcome
    tracks: Sequence[Track]
    processes: Sequence[str]
    task_name: Callable[[int], str]
    task_facts: Callable[[int], dict[str, Any]]
    about: Mapping[str, Any]


def timeline(lowered: Lowered, outcome: Outcome) -> Timeline:
    """The timeline of a logged run; with symmetry on, that of the links and NPUs that represent the others."""
    tracks = [_track(lowered, server) for server in range(lowered.program.n_servers)]
    topology = lowered.topology
    places = [*(topology.node_name(node) for node in range(topology.n_nodes)), *(track.process for track in tracks)]
    named = _JobNames(lowered) if lowered.job.alone is None else _ScheduleNames(lowered)
    told = lowered.model.describe(progress=progress_told(lowered.job, lowered.model))
    about = named.about | {"model": told, "symmetry": lowered.symmetry}
    processes = list(dict.fromkeys(places))
    return Timeline(lowered.program, outcome, tracks, processes, named.name, named.facts, about)


class _ScheduleNames(NamedTuple):
    """A task is a transfer from node to node."""

    lowered: Lowered

    @property
    def about(self) -> dict[str, Any]:
        schedule = self.lowered.schedule
        return {
            "collective": schedule.kind.name, "algorithm": schedule.name, "size_bytes": schedule.size_bytes,
            "topology": schedule.topology.name,
        }

    def name(self, task: int) -> str:
        lowered, transfers = self.lowered, self.lowered.transfers[0]
        if transfers is None or task >= lowered.task_row.size:
            return LATE
        row, name = lowered.task_row[task], lowered.topology.node_name
        if row == NO_TRANSFER:
            return TIMEOUT if lowered.program.has_hops(task) else SUM
        return f"{name(int(transfers.src[row]))} to {name(int(transfers.dst[row]))}"

    def facts(self, task: int) -> dict[str, Any]:
        lowered, transfers = self.lowered, self.lowered.transfers[0]
        if transfers is None or task >= lowered.task_row.size:
            return {}
        row = lowered.task_row[task]
        if row == NO_TRANSFER:
            return {}
        return {
            "algorithm": lowered.schedule.name, "step": int(transfers.step[row]), "port": int(transfers.port[row]),
            "transfer_bytes": int(lowered.task_bytes[task]), "adds": bool(transfers.reduces[row]),
        }


class _JobNames(NamedTuple):
    """A task has the name of its operation."""

    lowered: Lowered

    @property
    def about(self) -> dict[str, Any]:
        return {"topology": self.lowered.topology.name, "operations": len(self.lowered.job.operations)}

    def _operation(self, task: int) -> Operation | None:
        lowered = self.lowered
        here = task < lowered.task_operation.size
        return lowered.job.operations[int(lowered.task_operation[task])] if here else None

    def name(self, task: int) -> str:
        operation = self._operation(task)
        return LATE if operation is None else operation.name

    def facts(self, task: int) -> dict[str, Any]:
        operation = self._operation(task)
        if operation is None:
            return {}
        nowhere = isinstance(operation.work, (Compute, Reconfigure))
        source = {} if nowhere else {"from": self.lowered.topology.node_name(int(self.lowered.task_rank[task]))}
        return {"kind": operation.kind, **source}


class Rows(NamedTuple):
    """Task, chunk, server, start, time drawn and loss of every service, in the order task, chunk, start."""

    task: I64
    chunk: I64
    server: I64
    start_ps: I64
    service_ps: I64
    lost: np.ndarray[Any, np.dtype[np.bool_]]
    first: I64  # (T+1,): services of task t are rows `first[t]:first[t+1]`


def rows_of(timeline: Timeline) -> Rows:
    """The services of a timeline.

    WeftError: a run without a log.
    """
    program, journal = timeline.program, timeline.outcome.journal
    done = services(program, timeline.outcome)
    lost = np.zeros(done.task.size, np.bool_)
    if journal is not None:
        order = np.lexsort((done.start_ps, done.chunk, done.task))
        order = order[~journal.moved[order]]  # those left a queue, and were not served
        done, lost = Services(*(column[order] for column in done)), journal.lost[order]
    first = np.searchsorted(done.task, np.arange(program.n_tasks + 1)).astype(np.int64)
    late = np.array([track.category == "late" for track in timeline.tracks], np.bool_)[done.server]
    # The server of a late start serves for 1 ps; the start is late by the latency after it.
    end_ps = np.where(late, timeline.outcome.finish_ps[done.task], done.end_ps)
    return Rows(done.task, done.chunk, done.server, done.start_ps, end_ps - done.start_ps, lost, first)


def _track(lowered: Lowered, server: int) -> Track:
    """The track of a link, a compute stream, or the late start of an NPU."""
    topology = lowered.topology
    if server in lowered.late:
        return Track(lowered.late[server], LATE, LATE, "late")
    if (number := int(lowered.server_stream[server])) >= 0:
        rank = int(lowered.server_rank[server])
        where = topology.node_name(rank) if rank >= 0 else "circuits"
        if lowered.is_end(server):
            return Track(where, lowered.streams[number], "NICs", "link")
        return Track(where, lowered.streams[number], "compute streams", "compute")
    link = int(lowered.server_link[server])
    dimension = int(topology.dimension[link])
    src, dst = topology.node_name(int(topology.src[link])), topology.node_name(int(topology.dst[link]))
    return Track(src, f"link to {dst}", f"dimension {dimension}" if dimension >= 0 else "links", "link")


Floats = npt.NDArray[np.float64]

MOST_SHARES = 2**27
"""Limit on shares, of servers in frames: 1 GiB."""


class Services(NamedTuple):
    """Every service of a run, one row each, in the order of the log."""

    task: I64  # (n,)
    chunk: I64  # (n,)
    server: I64  # (n,)
    start_ps: I64  # (n,)
    end_ps: I64  # (n,)


def services(program: Program, outcome: Outcome) -> Services:
    """The services of a logged run.

    WeftError: the run kept no log.
    """
    if (journal := outcome.journal) is not None:  # faults change services, and send chunks on other routes
        at = program.route_server[journal.at].astype(np.int64)
        return Services(journal.task, journal.chunk, at, journal.start_ps, journal.end_ps)
    if outcome.log is None:
        raise WeftError("what happened when needs a run with log=True")
    hops, base = program.hops().astype(np.int64), outcome.log.base
    task = np.repeat(np.arange(program.n_tasks), np.diff(base))
    chunk, hop = np.divmod(np.arange(task.size) - base[task], np.maximum(hops[task], 1))
    server = program.route_server[program.route_ptr[program.task_route[task]].astype(np.int64) + hop].astype(np.int64)
    cut = program.task_cut[task]
    size = program.cut_size[cut, (chunk >= program.cut_first[cut]).astype(np.int64)]
    start = outcome.log.start_ps
    return Services(task, chunk, server, start, start + program.service(size, program.server_rate[server]))


@checked
def link_load(lowered: Lowered, outcome: Outcome, frames: int) -> Floats:
    """The busy share of every link in each interval.

    Parameters
    ----------
    lowered : Lowered
    outcome : Outcome
        Of a run with `log=True`.
    frames : int
        Intervals, from 0 to the makespan.

    Returns
    -------
    (frames, n_links) float
        0 to 1; the mean over the intervals is the share over the run.
    """
    busy = server_load(services(lowered.program, outcome), lowered.program.n_servers, outcome.makespan_ps, frames)
    load, is_link = np.zeros((frames, lowered.topology.n_links)), lowered.server_link >= 0
    load[:, lowered.server_link[is_link]] = busy[is_link].T
    return load[:, lowered.orbits.link]


def server_load(done: Services, n_servers: int, makespan_ps: int, frames: int) -> Floats:
    """The busy share of every server in each interval, (n_servers, frames)."""
    if frames < 1:
        raise WeftError(f"{frames} frames: give at least 1")
    if frames * n_servers > MOST_SHARES:
        raise WeftError(f"{frames} frames of {n_servers} servers: at most {MOST_SHARES // n_servers} frames")
    load = np.zeros((n_servers, frames))
    if makespan_ps == 0:
        return load
    scale = frames / makespan_ps
    # What a server has served up to the edge of an interval is piecewise linear; each service adds two corners.
    edges = np.arange(frames + 1)
    order = np.lexsort((done.start_ps, done.server))
    counts = np.bincount(done.server, minlength=n_servers)
    for server, mine in enumerate(np.split(order, np.cumsum(counts)[:-1])):
        start, end = (times[mine] * scale for times in (done.start_ps, done.end_ps))
        served = np.concatenate(([0.0], np.cumsum(end - start)))
        corners = np.stack([start, end], axis=1).ravel()
        heights = np.stack([served[:-1], served[1:]], axis=1).ravel()
        if mine.size:
            load[server] = np.diff(np.interp(edges, corners, heights, left=0.0, right=served[-1]))
    return np.clip(load, 0.0, 1.0)
