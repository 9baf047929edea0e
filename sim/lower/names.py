"""The tasks of a program by name, for reports."""

from collections.abc import Callable
from functools import cache

import numpy as np

from sim.lower.lowered import NO_TRANSFER, Lowered

LATE_START, TIMEOUT, SUM = "a late start", "a timeout", "a sum at the switch"


def task_names(lowered: Lowered) -> Callable[[int], str]:
    """What a task is.

    Of a schedule alone "npu0 to npu1 (step 3)"; of a job "forward of npu0", "gradients from npu0 to npu1 (2 of 6)",
    "the end of gradients on npu0".
    """
    return _of_schedule(lowered) if lowered.job.alone is not None else _of_job(lowered)


def _of_schedule(lowered: Lowered) -> Callable[[int], str]:
    topology, transfers, rows = lowered.topology, lowered.transfers[0], lowered.task_row
    assert transfers is not None

    def name(task: int) -> str:
        if task >= rows.size:
            return LATE_START
        row = rows[task]
        if row == NO_TRANSFER:
            return TIMEOUT if lowered.program.has_hops(task) else SUM
        src, dst = (topology.node_name(int(end[row])) for end in (transfers.src, transfers.dst))
        return f"{src} to {dst} (step {transfers.step[row]})"

    return name


def _of_job(lowered: Lowered) -> Callable[[int], str]:
    topology, program = lowered.topology, lowered.program

    def ends(task: int) -> tuple[int, int, int]:
        """Operation, source and destination of a transfer."""
        number = int(lowered.task_operation[task])
        transfers = lowered.transfers[number]
        assert transfers is not None
        return number, int(lowered.task_rank[task]), int(transfers.dst[lowered.task_row[task]])

    @cache
    def alike(operation: int, src: int, dst: int) -> list[int]:
        """Transfers of one operation between the same two nodes, in their order."""
        crosses = program.hops()[: lowered.task_operation.size] > 0  # late starts come behind
        mine = (lowered.task_operation == operation) & (lowered.task_rank == src) & crosses
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
