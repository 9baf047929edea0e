"""The tasks of an operation without its size, and where they join what is before and after on each NPU."""

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from itertools import pairwise
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from collectives.core.pattern import Pattern
from collectives.core.transfers import Transfers
from sim.lower.messages import Messages
from sim.lower.progress import FREE, Waiting, sends_end_pushed, waiting_of
from sim.lower.quotient import Emitter, Orbits, Quotient, Ranks, made_of
from sim.lower.shape import Shape, make_shape, rows_waited_for
from sim.program import I32, I64, PUSHED, WHOLE, i32, unique_rows
from sim.program.model import Model
from topologies import WeftError
from topologies.core.paths import distinct_of
from topologies.core.rateless import digest, wiring_of
from workloads.job import Communicate, Job, Operation, Send


class Template(NamedTuple):
    """The tasks of a collective or of messages: equal for all operations that share a pattern and its NPUs."""

    shape: Shape  # with links for servers: `shape.server_link[server]`
    tasks: slice  # of the shape: all of a collective's; sends that are new in one job share a shape
    tie: I32  # (n_tasks,): what orders them at a server, numbers from 0 on without gaps
    ties: int  # how many
    ranks: I64  # (n,): representatives, in rank order
    # parent, child and lag of its dependencies, (n,): joins at the begin on each rank are 0 to n_ranks - 1, then come
    # the tasks, and joins at the end on each rank
    edges: tuple[I32, I32, I32]
    begun: int  # how many of them are before those of the ends

    @property
    def transfers(self) -> Transfers:
        """The transfers of the ranks that are simulated, and those of sends that share the shape."""
        return self.shape.quotient.transfers


MOST_KEPT, MOST_TASKS = 4096, 2**21
"""Limits on what is kept for further jobs: collectives and sets of messages, and their tasks."""

K = TypeVar("K", bound=Hashable)

class Where(NamedTuple):
    """Representatives, the rule for ties between routes with its seed, and what routes have besides links."""

    orbits: Orbits
    tie: str
    seed: int
    ranks: Ranks
    pushed: bool  # whether a rank's own send ends for it when it is pushed


_known: dict[tuple[Hashable, Hashable], Template] = {}


def templates_of(job: Job, orbits: Orbits, model: Model, ranks: Ranks) -> list[Template | None]:
    """The template of each operation that sends, None of others.

    WeftError: a collective that covers part of a process group.
    """
    where = Where(orbits, model.tie, model.seed if model.tie == "ecmp" else 0, ranks, sends_end_pushed(model))
    place = wiring_of(job.topology), digest("", orbits.rank, orbits.link), *where[1:]
    found: list[Template | None] = [None] * len(job.operations)
    collectives: dict[object, Template] = {}
    for number, operation in enumerate(job.operations):
        if isinstance(operation.work, Communicate):
            pattern = operation.work.schedule.pattern
            key = id(pattern), operation.npus
            if key not in collectives:
                waiting = waiting_of(pattern, model)
                make = partial(_of_collective, pattern, operation, job.ranks(operation), where)
                (collectives[key],) = _kept(place, [(pattern.emit, operation.npus, waiting)], make)
            found[number] = collectives[key]
    sends = sends_of(job)
    templates = _kept(place, [*sends], lambda new: _of_messages(Messages(job.topology, new), where))
    for template, numbers in zip(templates, sends.values(), strict=True):
        for number in numbers:
            found[number] = template
    return found


def sends_of(job: Job) -> dict[Send, list[int]]:
    """The operations of each distinct set of messages of a job, sizes left out."""
    found: dict[Send, list[int]] = {}
    for number, operation in enumerate(job.operations):
        if isinstance(operation.work, Send):
            found.setdefault(operation.work.routed, []).append(number)
    return found


def _kept(
    place: Hashable, keys: Sequence[K], make: Callable[[tuple[K, ...]], tuple[Template, ...]]
) -> list[Template]:
    """What `make` returns of some keys; once for jobs on topologies of one wiring that have the same representatives.

    Those that are new are made together, so that messages are routed together; each is then kept by itself.
    """
    found = {key: one for key in keys if (one := _known.get((place, key))) is not None}
    if new := tuple(key for key in keys if key not in found):
        found.update(zip(new, make(new), strict=True))
    for key in keys:
        _known.pop((place, key), None)
        _known[place, key] = found[key]  # the latest is last
    if new:
        _forget()
    return [found[key] for key in keys]


def _forget() -> None:
    """Drop the longest unused; a shape stays as long as one of its templates does."""
    of_shape = Counter(id(one.shape) for one in _known.values())
    tasks = sum({id(one.shape): one.shape.task_route.size for one in _known.values()}.values())
    while len(_known) > MOST_KEPT or tasks > MOST_TASKS:
        shape = _known.pop(next(iter(_known))).shape
        of_shape[id(shape)] -= 1
        tasks -= 0 if of_shape[id(shape)] else shape.task_route.size


def _of_messages(messages: Messages, where: Where) -> tuple[Template, ...]:
    """The templates of some sends, which are routed together."""
    stands, p, n_sends = where.orbits.rank[0], messages.p, len(messages.sends)
    number, _, src, dst = messages.all
    kept = np.flatnonzero(stands[src] == src)
    shape = _shape(messages, messages.emit(src[kept]), where)
    ends, at = unique_rows(np.concatenate([number * p + stands[src], number * p + stands[dst]]))
    of_send = np.searchsorted(ends, np.arange(n_sends + 1) * p)
    here, there = (at - np.tile(of_send[number], 2)).reshape(2, -1)  # number of the representative in those of the send

    row = kept[shape.task_row]  # message of each task
    first = np.searchsorted(number[row], np.arange(n_sends + 1))
    task = np.arange(row.size) - first[number[row]]
    moves = src[row] != dst[row]
    sent, received = np.flatnonzero(~(moves & messages.of_sends("detached")[row])), np.flatnonzero(moves)
    last = np.append(sent, received)
    lag = np.append(_sent_lag(moves[sent], where.pushed), np.full(received.size, WHOLE))
    begun = np.stack([task, here[row]])
    ended = np.stack([task[last], np.append(here[row[sent]], there[row[received]]), lag])
    order = np.argsort(number[row[last]], kind="stable")
    ended, until = ended[:, order], np.searchsorted(number[row[last[order]]], np.arange(n_sends + 1))
    ranks = ends % p
    parts = [[slice(*pair) for pair in pairwise(ptr.tolist())] for ptr in (first, of_send, until)]
    return tuple(
        _template(shape, tasks, ranks[mine], begun[:, tasks], ended[:, arrived])
        for tasks, mine, arrived in zip(*parts, strict=True)
    )


def _of_collective(
    pattern: Pattern, operation: Operation, covered: I64, where: Where, new: tuple[tuple[Hashable, Hashable, Waiting]]
) -> tuple[Template]:
    """The template of a collective on the NPUs that are covered."""
    ((_, _, waiting),) = new
    orbits, n_npus, n_nodes = where.orbits, pattern.topology.n_npus, pattern.topology.n_nodes
    ranks = covered[orbits.rank[0][covered] == covered]
    transfers = pattern.emit(np.append(ranks, np.arange(n_npus, pattern.n_sources or n_npus)))
    if operation.npus is not None:
        inside = np.arange(n_nodes) >= n_npus
        inside[covered] = True
        npus = np.arange(n_npus)
        into = pattern.emit(npus[(orbits.rank[0][:n_npus] == npus) & ~inside[:n_npus]]).dst
        sent, waited = np.all(inside[transfers.dst]), np.all(inside[transfers.dep_src])
        if not sent or not waited or np.any(inside[into[into < n_npus]]):
            raise WeftError(f"operation {operation.name!r} covers a part of a process group: give whole groups")
    shape = _shape(pattern, transfers, where, waiting)
    begun, ended = _ends(pattern, shape, ranks, where.pushed)
    return (_template(shape, slice(0, shape.task_row.size), ranks, begun, ended),)


def _template(shape: Shape, tasks: slice, ranks: I64, begins: I64, ends: I64) -> Template:
    """The template of some tasks.

    `begins` (2, n_roots): task, and number of the rank at which it begins (into `ranks`).
    `ends` (3, n_sinks): task, number of the rank at which it ends, and WHOLE or PUSHED.
    """
    distinct, tie = unique_rows(shape.task_tie(tasks))
    first, every = ranks.size, np.arange(ranks.size)
    last, (parent, child, lag) = first + tie.size, shape.edges
    whole = np.full(begins.shape[1] + first, WHOLE)
    edges = (
        np.concatenate([first + parent, begins[1], every, first + ends[0]]),
        np.concatenate([first + child, first + begins[0], last + every, last + ends[1]]),
        np.concatenate([lag, whole, ends[2]]),
    )
    return Template(shape, tasks, i32(tie), distinct.size, ranks, (i32(edges[0]), i32(edges[1]), i32(edges[2])),
                    parent.size + begins.shape[1])


def _shape(emitter: Emitter, transfers: Transfers, where: Where, waiting: Waiting = FREE) -> Shape:
    return make_shape(made_of(emitter, where.orbits, transfers, where.tie, where.seed, where.ranks), waiting)


def _sent_lag(moves: npt.NDArray[np.bool_], pushed: bool) -> I64:
    """What the end of an operation on a rank waits for of what the rank sends."""
    lag: I64 = np.where(moves & pushed, PUSHED, WHOLE)
    return lag


def _ends(pattern: Pattern, shape: Shape, ranks: I64, pushed: bool) -> tuple[I64, I64]:
    """Tasks without a predecessor of the same rank, and those without a successor of it, with the ranks.

    A transfer ends at its receiver as well: at the representative of that, where an image of the transfer arrives.
    """
    q, t = shape.quotient, shape.quotient.transfers
    child = np.repeat(np.arange(t.src.size), np.diff(t.dep_ptr))
    parent = rows_waited_for(q)
    own = (t.dep_src == t.src[child]) & (t.dep_slot != t.slot[child])  # rounds of one transfer follow each other
    waits, followed, passed_on = (np.zeros(t.src.size, np.bool_) for _ in range(3))
    waits[child[own]] = True
    followed[parent[own]] = True
    passed_on[parent[_receivers(pattern, q) == t.src[child]]] = True
    roots, sent = np.flatnonzero(~waits), np.flatnonzero(~followed)
    received = np.flatnonzero(~passed_on & (t.src != t.dst))
    lag = np.append(_sent_lag(t.src[sent] != t.dst[sent], pushed), np.full(received.size, WHOLE))
    begun = np.stack([roots, t.src[roots]])
    ended = np.stack([np.append(sent, received), np.append(t.src[sent], t.dst[received]), lag])
    n_npus = pattern.topology.n_npus  # a switch neither waits for what is before the operation nor is waited for
    first, last = (_with_tasks(shape, of[:, of[1] < n_npus]) for of in (begun, ended))
    for of in (first, last):
        of[1] = np.searchsorted(ranks, q.orbits.rank[0][of[1]])
    return first, last


def _receivers(pattern: Pattern, q: Quotient) -> I64:
    """Destination of the transfer that each dependency refers to."""
    t = q.transfers
    if not t.dep_src.size:
        return np.zeros(0, np.int64)
    others = pattern.emit(distinct_of(t.dep_src))
    stride = int(max(others.src.max(initial=0), t.dep_src.max(initial=0))) + 1
    key = others.slot.astype(np.int64) * stride + others.src
    want = t.dep_slot.astype(np.int64) * stride + t.dep_src
    return others.dst[np.searchsorted(key, want)].astype(np.int64)


def _with_tasks(shape: Shape, columns: I64) -> I64:
    """The same columns with tasks for rows, the first of them: two where a transfer is split."""
    first = np.searchsorted(shape.task_row, columns[0])
    twice = np.flatnonzero(np.searchsorted(shape.task_row, columns[0], side="right") - first == 2)
    found = np.concatenate([columns, columns[:, twice]], axis=1)
    found[0] = np.append(first, first[twice] + 1)
    return found
