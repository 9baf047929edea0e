"""What waits for what, in the order in which the engines look it up; without sizes and rates."""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sim.program.columns import by_key
from sim.program.contract import I32, I64, PUSHED, WHOLE
from sim.program.passes import children, children_of_slots
from topologies import WeftError
from topologies.core.dealt import STREAM

NEVER = PUSHED - 1
"""Lag of a window that no chunk waits for."""


class Waits(NamedTuple):
    """Dependencies in CSR form, free of circles."""

    columns: dict[str, Any]  # fields of `Program`


def waits_of(
    parent: I32, child: I32, lag: I32, n_tasks: int, chunks: tuple[npt.NDArray[np.integer], I32] | None = None,
    forward: bool = False,
) -> Waits:
    """The dependencies of some tasks, sorted; lag WHOLE, PUSHED, 0 (chunk by chunk) or a window.

    `chunks`: by cut, and the cut of each task; None: of no matter, so that windows as wide as a task are kept.
    `forward`: whether it is known that nothing waits in a circle.
    WeftError: tasks that wait for each other in a circle, windows left out; a lag that no engine knows.
    """
    if (least := int(lag.min(initial=0))) < PUSHED:
        raise WeftError(f"task {child[np.argmin(lag)]} waits with lag {least}: give {WHOLE}, {PUSHED}, 0 or a window")
    firm = lag <= 0
    if chunks is not None:
        lag = _open_windows(child, lag, *chunks)
    if not forward and np.any(firm & (parent >= child)) and (circle := _circle(n_tasks, parent[firm], child[firm])):
        raise Cycle(circle)
    whole_ptr, whole_child, _ = by_key(parent, child, lag, (WHOLE, WHOLE), n_tasks)
    pushed_ptr, pushed_child, _ = by_key(parent, child, lag, (PUSHED, PUSHED), n_tasks)
    stream_ptr, stream_child, stream_lag = by_key(parent, child, lag, STREAM, n_tasks)
    parent_ptr, parents, parent_lag = by_key(child, parent, lag, STREAM, n_tasks)
    columns = {
        "whole_ptr": whole_ptr, "whole_child": whole_child,
        "pushed_ptr": pushed_ptr, "pushed_child": pushed_child,
        "stream_ptr": stream_ptr, "stream_child": stream_child, "stream_lag": stream_lag,
        "parent_ptr": parent_ptr, "parent": parents, "parent_lag": parent_lag,
    }
    return Waits(columns)


def _open_windows(child: I32, lag: I32, cut_chunks: npt.NDArray[np.integer], task_cut: I32) -> I32:
    """The lags, NEVER where a window is as wide as its task has chunks."""
    windows = np.flatnonzero(lag > 0)
    wide = windows[cut_chunks[task_cut[child[windows]]] <= lag[windows]]
    if not wide.size:
        return lag
    lags = lag.copy()
    lags[wide] = NEVER
    return lags


def whole_waits(ptr: npt.NDArray[np.integer], first: I64, src: I32, slot: I32, source: I32) -> Waits | None:
    """The same of tasks that wait for whole ones alone, one after the other; None where some do for others.

    `ptr`: offset of the parents of each task.
    `first`, `src`: first task of each slot, and source of each task.
    `slot`, `source`: of each parent.
    """
    found = np.zeros(ptr.size, np.int32), np.empty(slot.size, np.int32)
    if not slot.size or slot.size >= 2**31 or not children(first, src, ptr, slot, source, *found):
        return None
    return _whole(*found)


def slot_waits(child: I64, parent: I64, source: I64, sources: I32, n_slots: int) -> Waits | None:
    """The same of tasks that are slots by ranks; parameters as in `collectives.core.laid.Laid`.

    None where none waits, or their numbers do not fit.
    """
    p = sources.shape[1]
    if not child.size or child.size * p >= 2**31:
        return None
    fan, order, place = np.bincount(parent, minlength=n_slots), np.argsort(parent, kind="stable"), np.empty_like(parent)
    place[order] = np.arange(parent.size) - (np.cumsum(fan) - fan)[parent[order]]
    ptr, found = np.empty(n_slots * p + 1, np.int32), np.empty(child.size * p, np.int32)
    children_of_slots(child, parent, source, sources, fan, place, ptr, found)
    return _whole(ptr, found)


def _whole(ptr: I32, child: I32) -> Waits:
    none = np.zeros(0, np.int32)
    of_chunks = ("stream_ptr", "stream_child", "stream_lag", "parent_ptr", "parent", "parent_lag")
    others = dict.fromkeys(("pushed_ptr", "pushed_child", *of_chunks), none)
    return Waits({"whole_ptr": ptr, "whole_child": child, **others})


class Cycle(WeftError):
    """Tasks that wait for each other: each for the one before it, and the first is the last again."""

    def __init__(self, tasks: list[int]) -> None:
        super().__init__(f"tasks wait for each other in a circle: {' -> '.join(map(str, tasks))}")
        self.tasks = tasks


def _circle(n_tasks: int, parent: I32, child: I32) -> list[int]:
    """A cycle of tasks, or nothing. Peels tasks without parents, level by level."""
    waits = np.bincount(child, minlength=n_tasks)
    ptr, kids, _ = by_key(parent, child, np.zeros_like(parent), STREAM, n_tasks)
    ready = np.flatnonzero(waits == 0)
    while ready.size:
        counts = ptr[ready + 1] - ptr[ready]
        at = np.repeat(ptr[ready] - np.concatenate(([0], np.cumsum(counts)[:-1])), counts) + np.arange(counts.sum())
        hit, times = np.unique(kids[at], return_counts=True)
        waits[hit] -= times
        ready = hit[waits[hit] == 0]
    left = waits > 0
    if not np.any(left):
        return []
    back = {int(c): int(p) for p, c in zip(parent, child, strict=True) if left[p] and left[c]}
    seen: list[int] = []
    task = next(iter(back))
    while task not in seen:
        seen.append(task)
        task = back[task]
    return [*seen[seen.index(task):], task][::-1]
