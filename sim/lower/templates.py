"""The tasks of an operation without its size, and where they join what is before and after on each NPU."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from collectives.core.routes import paths_of
from collectives.core.transfers import Transfers
from sim.lower.job_symmetry import Messages, emitter_of
from sim.lower.quotient import Emitter, Orbits, Quotient
from sim.lower.shape import Shape, make_shape, rows_waited_for
from sim.program import I32, I64
from sim.program.model import Model
from topologies import WeftError
from topologies.core.rateless import digest, wiring_of
from workloads.job import Communicate, Job, Operation, Send


class Template(NamedTuple):
    """The tasks of a collective or a message: equal for all operations that share a pattern and its NPUs."""

    shape: Shape  # with links for servers: `shape.server_link[server]`
    ranks: I64  # (n,): representatives, in rank order
    begins: I64  # (2, n_roots): task, and number of the rank at which it begins (into `ranks`)
    ends: I64  # (2, n_sinks): task, and number of the rank at which it ends

    @property
    def transfers(self) -> Transfers:
        return self.shape.quotient.transfers


def template_key(operation: Operation) -> object:
    """Equal for operations that have one template."""
    work = operation.work
    if isinstance(work, Send):
        return work.routed
    return (id(work.schedule.pattern) if isinstance(work, Communicate) else 0), operation.npus


MOST_TEMPLATES, MOST_TASKS = 512, 4096
"""Limits on the templates that are kept for further jobs, and on the tasks of each."""

_known: dict[tuple[object, ...], Template] = {}


def template_of(job: Job, operation: Operation, orbits: Orbits, ranks: I64, model: Model) -> Template:
    """`make_template`, once for jobs on topologies of one wiring that have the same representatives."""
    emitter = emitter_of(job, operation)
    what = emitter.send.routed if isinstance(emitter, Messages) else None if emitter is None else emitter.emit
    seed = model.seed if model.tie == "ecmp" else 0
    where = digest("", ranks, orbits.rank, orbits.link)
    key = wiring_of(job.topology), where, what, operation.npus, model.tie, seed
    template = _known.pop(key, None) or make_template(job, operation, orbits, ranks, model)
    if template.shape.task_row.size <= MOST_TASKS:
        _known[key] = template  # the latest is last
        if len(_known) > MOST_TEMPLATES:
            del _known[next(iter(_known))]
    return template


def make_template(job: Job, operation: Operation, orbits: Orbits, ranks: I64, model: Model) -> Template:
    """The template of an operation that sends.

    `ranks` (n,): representatives that the operation covers.
    `model`: its rule for ties between routes.
    WeftError: a collective that covers part of a process group.
    """
    emitter = emitter_of(job, operation)
    assert emitter is not None
    n_npus = job.topology.n_npus
    transfers = emitter.emit(np.append(ranks, np.arange(n_npus, emitter.n_sources or n_npus)))
    if operation.npus is not None:
        inside = np.ones(job.topology.n_nodes, np.bool_)
        inside[:n_npus] = False
        inside[list(operation.npus)] = True
        if not (np.all(inside[transfers.dst]) and np.all(inside[transfers.dep_src])):
            raise WeftError(f"operation {operation.name!r} covers a part of a process group: give whole groups")
    paths = paths_of(transfers, job.topology, model.tie, model.seed)
    quotient = Quotient(orbits, transfers, paths._replace(links=orbits.link[paths.links]), "")
    shape = make_shape(quotient)
    return Template(shape, ranks, *_ends(emitter, quotient, shape, ranks))


def _ends(emitter: Emitter, q: Quotient, shape: Shape, ranks: I64) -> tuple[I64, I64]:
    """Tasks without a predecessor of the same rank, and those without a successor of it, with the ranks.

    A transfer ends at its receiver as well: at the representative of that, where an image of the transfer arrives.
    """
    t = q.transfers
    child = np.repeat(np.arange(t.src.size), np.diff(t.dep_ptr))
    parent = rows_waited_for(q)
    own = (t.dep_src == t.src[child]) & (t.dep_slot != t.slot[child])  # rounds of one transfer follow each other
    waits, followed, passed_on = (np.zeros(t.src.size, np.bool_) for _ in range(3))
    waits[child[own]] = True
    followed[parent[own]] = True
    passed_on[parent[_receivers(emitter, q) == t.src[child]]] = True
    detached = isinstance(emitter, Messages) and emitter.send.detached
    roots, sent = np.flatnonzero(~waits), np.flatnonzero(~followed & (t.src == t.dst) if detached else ~followed)
    received = np.flatnonzero(~passed_on & (t.src != t.dst))
    begun, ended = (roots, t.src[roots]), (np.append(sent, received), np.append(t.src[sent], t.dst[received]))
    n_npus = emitter.topology.n_npus  # a switch neither waits for what is before the operation nor is waited for
    first, last = (_with_tasks(shape, rows[at < n_npus], at[at < n_npus]) for rows, at in (begun, ended))
    return tuple(  # type: ignore[return-value]  # two of them
        np.stack([task, np.searchsorted(ranks, q.orbits.rank[0][rank])]) for task, rank in (first, last)
    )


def _receivers(emitter: Emitter, q: Quotient) -> I64:
    """Destination of the transfer that each dependency refers to."""
    t = q.transfers
    if not t.dep_src.size:
        return np.zeros(0, np.int64)
    others = emitter.emit(np.unique(t.dep_src).astype(np.int64))
    stride = int(max(others.src.max(initial=0), t.dep_src.max(initial=0))) + 1
    key = others.slot.astype(np.int64) * stride + others.src
    want = t.dep_slot.astype(np.int64) * stride + t.dep_src
    return others.dst[np.searchsorted(key, want)].astype(np.int64)


def _with_tasks(shape: Shape, rows: I64, ranks: I32) -> tuple[I64, I32]:
    """The tasks of some rows, two where a transfer is split, and the rank of each."""
    first = np.searchsorted(shape.task_row, rows)
    count = np.searchsorted(shape.task_row, rows, side="right") - first
    twice = np.flatnonzero(count == 2)
    return np.concatenate([first, first[twice] + 1]), np.concatenate([ranks, ranks[twice]])
