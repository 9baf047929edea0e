"""The tasks of a job's program by name, for reports."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np

from sim.lower.job import LoweredJob

LATE_START = "a late start"


def task_names(lowered: LoweredJob) -> Callable[[int], str]:
    """What a task is: "forward of npu0", "gradients from npu0 to npu1 (2 of 6)", "the end of gradients on npu0"."""
    topology, program = lowered.job.topology, lowered.program

    def ends(task: int) -> tuple[int, int, int]:
        """Operation, source and destination of a transfer."""
        last = int(program.route_ptr[program.task_route[task] + 1]) - 1
        link = int(lowered.server_link[program.route_server[last]])
        return int(lowered.task_operation[task]), int(lowered.task_rank[task]), int(topology.dst[link])

    @cache
    def alike(operation: int, src: int, dst: int) -> list[int]:
        """Transfers of one operation between the same two nodes, in their order."""
        mine = (lowered.task_operation == operation) & (lowered.task_rank == src) & (program.hops() > 0)
        return [task for task in np.flatnonzero(mine).tolist() if ends(task) == (operation, src, dst)]

    def name(task: int) -> str:
        if task >= lowered.task_operation.size:
            return LATE_START
        number, rank = int(lowered.task_operation[task]), int(lowered.task_rank[task])
        operation = lowered.job.operations[number].name
        if rank < 0:
            return operation  # a change of circuits
        here = topology.node_name(rank)
        if lowered.begin_task.get((number, rank)) == task == lowered.end_task.get((number, rank)):
            return f"{operation} of {here}"
        if program.hops()[task] == 0:
            which = "start" if lowered.begin_task.get((number, rank)) == task else "end"
            return f"the {which} of {operation} on {here}"
        group = alike(*ends(task))
        which = f" ({group.index(task) + 1} of {len(group)})" if len(group) > 1 else ""
        return f"{operation} from {here} to {topology.node_name(ends(task)[2])}{which}"

    return name
