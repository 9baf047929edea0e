"""The certificate of circuits that change: nothing crosses one that is not up."""

from collections.abc import Callable, Sequence

import numpy as np

from sim.program import I32, Program
from sim.program.columns import crossings
from sim.program.outcome import CertificateError, Outcome
from topologies import Topology
from topologies.units import format_time
from workloads.job import Reconfigure

NEVER = np.iinfo(np.int64).max


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
    ups: dict[int, list[int]] = {}
    downs: dict[int, list[int]] = {}
    for change, work in changes:
        for one in work.down:
            ups.setdefault(one, [0])  # up in the beginning, for it goes down before it comes up
            downs.setdefault(one, []).append(int(outcome.start_ps[change]))
        for one in work.up:
            ups.setdefault(one, []).append(int(outcome.finish_ps[change]))
    task, link = task[link >= 0], link[link >= 0]
    start, finish = outcome.start_ps[task], outcome.finish_ps[task]
    up_ps, down_ps = np.zeros(link.size, np.int64), np.full(link.size, NEVER)
    for one in np.unique(link).tolist():
        rows, gone, came = np.flatnonzero(link == one), sorted(downs.get(one, ())), sorted(ups.get(one, (0,)))
        era = np.maximum(np.searchsorted(came, start[rows], "right") - 1, 0)  # it goes down as often as it comes up
        up_ps[rows], down_ps[rows] = np.array(came)[era], np.array([*gone, *[NEVER] * len(came)])[era]
    for bad, words, moment, limit in (
        (start < up_ps, ("starts", "up"), start, up_ps),
        (finish > down_ps, ("ends", "down"), finish, down_ps),
    ):
        if np.any(bad):
            at = int(np.flatnonzero(bad)[0])
            circuit = topology.link_name(int(link[at]))
            raise CertificateError(
                f"{name(int(task[at]))} {words[0]} at {format_time(moment[at])}; circuit {circuit} is {words[1]} from "
                f"{format_time(limit[at])}"
            )
