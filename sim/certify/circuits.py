"""The certificate of circuits that change: nothing crosses one that is not up."""

from collections.abc import Callable, Sequence

import numpy as np

from sim.program import I32, Program
from sim.program.columns import crossings
from sim.program.outcome import CertificateError, Outcome
from topologies import Topology
from topologies.units import format_time
from workloads.job import Reconfigure


def certify_circuits(
    program: Program, outcome: Outcome, topology: Topology, server_link: I32,
    changes: Sequence[tuple[int, Reconfigure]], name: Callable[[int], str] = "task {}".format,
) -> None:
    """Reject a run in which a transfer crossed a circuit before it was up, or after it began to go down.

    `server_link` (S,): link of each server, -1 for others.
    `changes`: with the task of each.
    `name`: what a task is.
    CertificateError: names the circuit, the task and both times.
    """
    if not changes:
        return
    task, server = crossings(program)
    link = server_link[server]
    up_ps = np.zeros(topology.n_links, np.int64)
    down_ps = np.full(topology.n_links, np.iinfo(np.int64).max)
    for change, work in changes:
        up_ps[list(work.up)] = outcome.finish_ps[change]
        down_ps[list(work.down)] = np.minimum(down_ps[list(work.down)], outcome.start_ps[change])
    task, link = task[link >= 0], link[link >= 0]
    start, finish = outcome.start_ps[task], outcome.finish_ps[task]
    for bad, words, moment, limit in (
        (start < up_ps[link], ("starts", "up"), start, up_ps[link]),
        (finish > down_ps[link], ("ends", "down"), finish, down_ps[link]),
    ):
        if np.any(bad):
            at = int(np.flatnonzero(bad)[0])
            circuit = topology.link_name(int(link[at]))
            raise CertificateError(
                f"{name(int(task[at]))} {words[0]} at {format_time(moment[at])}; circuit {circuit} is {words[1]} from "
                f"{format_time(limit[at])}"
            )
