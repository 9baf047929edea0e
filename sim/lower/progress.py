"""What a rank waits for beyond the dependencies of a schedule: all ports of a step, and its own sends until when."""

from typing import NamedTuple

import numpy as np

from collectives.core.pattern import Pattern
from collectives.core.transfers import Transfers
from sim.program import I32, PUSHED, WHOLE, i32, unique_rows
from sim.program.columns import joined
from sim.program.model import Model
from topologies import WeftError
from topologies.core.paths import ranges
from topologies.core.rateless import wiring_of
from workloads.job import Communicate, Job


class Waiting(NamedTuple):
    """What is added to the dependencies of a pattern."""

    steps: tuple[int, ...] | None = None  # with which all ports of a rank begin together; () for all, None for no step
    pushed: bool = False  # whether a rank's own send ends for it when it is pushed


FREE = Waiting()


def progress_of(pattern: Pattern, model: Model) -> str:
    """What ranks wait for: by default what the authors have them wait for, where ports have links of their own."""
    rule = model.rank_progress
    if rule == "auto":
        rule = "authors" if pattern.progress != "free" and wiring_of(pattern.topology).ports_have_links else "free"
    return pattern.progress if rule == "authors" else rule


def progress_told(job: Job, model: Model) -> str:
    """What ranks wait for in a job, for people: "all", or "all (swing), free (ring)" where algorithms differ."""
    names: dict[str, list[str]] = {}
    patterns = (one.work.schedule.pattern for one in job.operations if isinstance(one.work, Communicate))
    for pattern in dict.fromkeys(patterns):
        rule = progress_of(pattern, model)
        if rule == "any" and model.nic is None:  # which is about posts, too; its phases join by the authors' rule alone
            rule = "authors"
        names.setdefault(rule, []).append(pattern.algorithm)
    if len(names) < 2:
        return next(iter(names), "free")
    return ", ".join(f"{rule} ({', '.join(dict.fromkeys(some))})" for rule, some in sorted(names.items()))


def sends_end_pushed(model: Model) -> bool:
    """Whether a rank's own send ends for it when it is pushed."""
    return model.nic is not None and model.nic.send_complete == "pushed"


def waiting_of(pattern: Pattern, model: Model) -> Waiting:
    """What a model adds to the dependencies of a pattern."""
    progress = progress_of(pattern, model)
    steps = {"free": None, "any": pattern.phases or None, "all": ()}[progress]
    return Waiting(steps, sends_end_pushed(model))


def waiting_rows(t: Transfers, waiting: Waiting, parent: I32, child: I32, lag: I32) -> tuple[I32, I32, I32]:
    """The dependencies between rows of transfers, with those that are added.

    WeftError: ports that wait for each other inside a step.
    """
    lags = lag.astype(np.int32)
    if waiting.pushed:
        own, moves = t.dep_src == t.src[child], t.src != t.dst
        lags[own & (lags == WHOLE) & moves[parent] & moves[child]] = PUSHED
    if waiting.steps is None:
        return i32(parent), i32(child), lags
    return _together(t, waiting.steps, i32(parent), i32(child), lags)


def _together(t: Transfers, steps: tuple[int, ...], parent: I32, child: I32, lag: I32) -> tuple[I32, I32, I32]:
    """Let each transfer of a rank in a step wait for what any of them waits for."""
    chosen = (t.src != t.dst) & (np.isin(t.step, steps) if steps else np.True_)
    group = unique_rows(t.src.astype(np.int64) * (int(t.step.max(initial=0)) + 1) + t.step)[1]
    is_joint = chosen[child] & (lag < 0)
    joint = np.flatnonzero(is_joint)
    if np.any(inside := group[parent[joint]] == group[child[joint]]):
        row = child[joint[inside]][0]
        raise WeftError(
            f"rank progress: transfers of rank {t.src[row]} in step {t.step[row]} wait for each other, so that ports "
            "cannot go on together: choose free, or another algorithm (bucket, ring, swing)"
        )
    # Once, by what is waited for and not by its representative: two ranks of one orbit are two to wait for.
    named = joined(group[child[joint]], t.dep_src[joint], t.dep_slot[joint], lag[joint])
    joint = joint[np.unique(named, return_index=True)[1]]
    count = np.bincount(group[child[joint]], minlength=int(group.max(initial=-1)) + 1)
    first = np.cumsum(count) - count
    rows = i32(np.flatnonzero(chosen))
    edge = np.concatenate([np.flatnonzero(~is_joint), joint[ranges(first[group[rows]], count[group[rows]])]])
    children = np.concatenate([child[~is_joint], np.repeat(rows, count[group[rows]])])
    return parent[edge], children, lag[edge]
