"""How busy every link was, moment by moment: the services of a logged run, in intervals of equal length."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from sim.lower.lowered import Lowered
from sim.program import I64, Program
from sim.program.outcome import Outcome
from topologies import WeftError
from topologies.checks import checked

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
