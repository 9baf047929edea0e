"""One run on several threads: which part owns which server, and the threads, which run windows.py."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import parent_process
from threading import Event
from time import sleep
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from sim.engine import setup as fifo
from sim.engine.compile.door import DISABLED
from sim.engine.compile.rows import row
from sim.engine.core import state as fields
from sim.engine.core.layouts import Run
from sim.engine.core.state import FifoState
from sim.engine.core.status import FAR, FINISHED, NEEDS_TOKENS, NONE, STUCK
from sim.engine.threads.halves import part_of_nodes
from sim.engine.threads.windows import ALONE, CROWDED, LINE, NEXT, WAS_FULL, find_deliveries, find_groups, run_part
from sim.program import I8, I32, I64, Program
from sim.program.service_table import shortest_ps
from topologies.core.extents import physical_memory
from topologies.core.paths import ranges
from topologies.cores import Watch
from topologies.cores import cores as of_process

MOST = fields.MOST_PARTS

LEAST_SERVICES = 1 << 26
"""Of a run that takes threads by itself, a second or two: a shorter one has little to gain."""
LEAST_A_WINDOW = 500
"""Services of a part within a lookahead; waiting for the other parts costs about as much as a hundred."""
LEAST_GAIN = 1.3
LEAST_WATCHED_S = 0.2
"""How long it is looked at which cores are idle before a run takes them: Linux counts hundredths of a second."""
NEARLY = 0.25
"""Of a core, what others may use of it that a thread takes."""
PATIENCE = 200_000
"""Looks at the other parts before a thread yields its core for a while: some tenths of a millisecond."""
NAP_S = 1e-5

FIRST_ROOM = 256
BINS = 64
STRIPES = (256, 32, 4, 1)
"""Consecutive groups that go to one part; that all of a part are consecutive is tried too."""
CROSSING = 0.5
"""What it costs to send a service's event to another part, in services: 0.4 to 0.5 measured."""
CLOSE = 0.9
"""Share of the most that parts can gain: stripes that reach it are taken without looking further."""
SAMPLED, SERVICES_A_TASK, LEAST_SAMPLE = 8, 512, 1024
"""Tasks that are sampled to find what passes between servers: per server, one per so many services, and at least."""
MOST_STEPS, LEAST_STEPS = 500, 100
SERVICES_A_LINK = 3
"""Services of a run for each link and step of the search for halves: it takes some 2 % of the run."""
APART = 512
"""Words between what two threads keep writing: more than a cache line and the lines that are fetched with it."""


class Cut(NamedTuple):
    """A partition of a program.

    Attributes
    ----------
    server_part, begin_part, delivery_parts : (S,) int8, (T,) int8, (T,) int64
        Part of a server, and that in which a task begins; and those that its deliveries are told to, as bits.
    ahead_ps : int
        What happens at one part has no effect on another earlier than this.
    gain : float
        The speedup over one thread at best: by how their work is balanced, and by what they send.
    """

    server_part: I8
    begin_part: I8
    delivery_parts: I64
    ahead_ps: int
    gain: float


class Groups(NamedTuple):
    """Servers that must be in one part, because of tasks that cross no server, and what waits for those.

    Attributes
    ----------
    first : (G,) int32
        First server of each group.
    owner : (S + T,) int32
        Of each server, and of each task that crosses none, the first node of its group.
    work : (S, BINS) int64
        Services of each server in tasks of the first classes, the next, ...
    """

    first: I32
    owner: I32
    work: I64


def groups_of(program: Program) -> Groups:
    """The groups of a program, in the order of their first servers, which is that of nodes."""
    owner = np.arange(program.n_servers + program.n_tasks, dtype=np.int32)
    work = np.zeros((program.n_servers, BINS), np.int64)
    find_groups(program, owner, work)
    return Groups(np.unique(owner[: program.n_servers]), owner, work)


def cut(program: Program, parts: int) -> Cut:
    """Cut a program into parts that are about equally busy at any time.

    Groups are dealt out in stripes: wide ones send less, narrow ones are better balanced when regions of the fabric are
    busy at different times. Where stripes send much, as on a random graph, the graph of what passes between groups is
    bisected as well.
    """
    groups = groups_of(program)
    links = links_of(program, groups)
    of_group = np.bincount(groups.owner[: program.n_servers], groups.work.sum(axis=1), program.n_servers)[groups.first]
    ends, number = np.cumsum(of_group), np.arange(groups.first.size)
    by_work = np.minimum((ends - of_group / 2) * parts // max(ends[-1], 1), parts - 1)
    deals = [by_work] + [number // width % parts for width in STRIPES]
    gains = [_gain_of(program, groups, links, parts, deal) for deal in deals]
    steps = program.chunk_hops() // (SERVICES_A_LINK * max(links.nnz, 1) * parts.bit_length())
    if max(gains) < CLOSE * parts and steps >= LEAST_STEPS:
        deals.append(part_of_nodes(links, of_group.astype(float), parts, min(steps, MOST_STEPS)))
        gains.append(_gain_of(program, groups, links, parts, deals[-1]))
    return dealt(program, groups, parts, deals[int(np.argmax(gains))])


def links_of(program: Program, groups: Groups) -> csr_array:
    """Chunks that pass between two groups, (G, G), symmetric; estimated from a sample of the tasks.

    Deliveries to a join that is in no group, since nothing that crosses a server waits for it, are left out.
    """
    crosses, server = program.hops() > 0, program.route_server
    sent = np.flatnonzero(crosses)
    most = max(min(SAMPLED * program.n_servers, program.chunk_hops() // SERVICES_A_TASK), LEAST_SAMPLE)
    scale = max(sent.size / most, 1)
    if scale > 1:
        sent = sent[np.sort(np.random.default_rng(0).integers(0, sent.size, most))]
    route, chunks = program.task_route[sent], scale * program.cut_chunks[program.task_cut[sent]]
    begin, end = program.route_ptr[route].astype(np.int64), program.route_ptr[route + 1].astype(np.int64) - 1
    at = ranges(begin, end - begin)
    passed = [(server[at], server[at + 1], np.repeat(chunks, end - begin))]
    for ptr, child in ((program.whole_ptr, program.whole_child), (program.stream_ptr, program.stream_child)):
        if child.size == 0:
            continue
        count = ptr[sent + 1].astype(np.int64) - ptr[sent]
        waits = child[ranges(ptr[sent].astype(np.int64), count)]
        first = server[np.minimum(program.route_ptr[program.task_route[waits]], server.size - 1)]
        node = np.where(crosses[waits], first, program.n_servers + waits)
        passed.append((np.repeat(server[end], count), node, np.repeat(chunks, count)))
    one, other, weight = map(np.concatenate, zip(*passed, strict=True))
    grouped = groups.owner[other] < program.n_servers
    one, other, weight = one[grouped], other[grouped], weight[grouped]
    one, other = (np.searchsorted(groups.first, groups.owner[nodes]) for nodes in (one, other))
    ends = np.concatenate([one, other]), np.concatenate([other, one])
    return csr_array((np.tile(weight * (one != other), 2), ends), shape=(groups.first.size,) * 2)


def _gain_of(program: Program, groups: Groups, links: csr_array, parts: int, part_of_group: npt.NDArray[Any]) -> float:
    """The speedup of a deal at best, by what passes between groups."""
    between = links.tocoo()
    n_sent = between.data[part_of_group[between.row] != part_of_group[between.col]].sum() / 2
    part = np.zeros(groups.owner.size, np.int8)
    part[groups.first] = part_of_group
    return _gain(groups, part[groups.owner[: program.n_servers]], parts, n_sent)


def _gain(groups: Groups, server_part: I8, parts: int, n_sent: float) -> float:
    """The speedup over one thread at best, where `n_sent` services send their event to another part."""
    busy = np.array([groups.work[server_part == part].sum(axis=0) for part in range(parts)])
    return float(groups.work.sum() / max(busy.max(axis=0).sum() + CROSSING * n_sent / parts, 1))


def dealt(program: Program, groups: Groups, parts: int, part_of_group: npt.NDArray[Any]) -> Cut:
    """The cut of a deal: its lookahead, and what it gains."""
    part_of = np.zeros(groups.owner.size, np.int8)
    part_of[groups.first] = part_of_group
    part_of = part_of[groups.owner]
    server_part, begin_part = part_of[: program.n_servers], np.zeros(program.n_tasks, np.int8)
    delivery_parts, chunks = np.zeros(program.n_tasks, np.int64), np.zeros((program.route_ptr.size - 1, 2), np.int64)
    find_deliveries(program, part_of, begin_part, delivery_parts, chunks)
    part, last = server_part[program.route_server], program.hop_last[program.route_hop] != 0
    across = np.append(part[1:] != part[:-1], np.zeros(min(part.size, 1), bool)) & ~last
    n_sent = np.repeat(chunks[:, 0], np.diff(program.route_ptr))[across].sum() + chunks[:, 1].sum()
    across[program.route_ptr[1:][chunks[:, 1] > 0] - 1] = True
    shortest = shortest_ps(program)[program.server_rate[program.route_server]]
    after_its_end = np.where(last, not program.deliver_head, not program.cut_through)
    ahead_ps = int((program.route_latency_ps + after_its_end * shortest)[across].min(initial=FAR >> 2))
    return Cut(server_part, begin_part, delivery_parts, ahead_ps, _gain(groups, server_part, parts, n_sent))


def cores() -> int:
    """Cores for the threads of a run: one in a worker process, which is one of many."""
    return 1 if parent_process() is not None else of_process()


def idle_cores(watch: Watch) -> int:
    """Cores that threads may take beside the one that the run has."""
    return int(watch.idle() + NEARLY)


def obstacle(cut: Cut, state: FifoState, parts: int) -> str:
    """Why a run cannot go on in parts; "" where it can."""
    if cut.ahead_ps == 0:
        return "chunks are passed on without any latency"
    if cut.gain <= 1:
        return "it does not fall into parts that share its work"
    copies = parts * (state.tasks.nbytes + state.servers.nbytes)
    return "" if copies < physical_memory() // 4 else "the copies of its state would not fit in memory"


def loss(cut: Cut, state: FifoState, parts: int) -> str:
    """Why a run would not gain from going on in parts; "" where it would."""
    done, now_ps = int(state.register[fields.EVENTS]), int(state.register[fields.NOW])
    if done * cut.ahead_ps < LEAST_A_WINDOW * parts * max(now_ps, 1):
        return "too little happens within a latency"
    return "" if cut.gain >= LEAST_GAIN else "its parts are busy at different times"


class Parts:
    """A run of the fifo loop that goes on in parts, in as many threads.

    Each part has a copy of the state of tasks and servers, of which it uses its own rows: a cache line that two cores
    write costs as much as ten services.

    `whole`: the state so far, between two picoseconds. Its times and numbers stay true; its tasks and servers only
    after `collect`.
    `in_turn`: one thread runs all parts, window by window.
    """

    def __init__(self, program: Program, whole: FifoState, parts: int, cut: Cut, in_turn: bool = DISABLED) -> None:
        self.program, self.whole, self.cut, self.in_turn = program, whole, cut, in_turn
        events = fifo.waiting(whole)
        task = events["key"] & ((1 << whole.run["task_bits"]) - 1)
        server = program.route_server[np.maximum(events["place"] >> 32, 0)]
        to = 1 << cut.server_part[server].astype(np.int64)
        to = np.where(events["place"] == NONE, cut.delivery_parts[task], to)
        own = [events[to >> part & 1 == 1] for part in range(parts)]
        counts = np.array([one.shape[0] for one in own])
        room = max(FIRST_ROOM, int(counts.max()))
        mail = np.zeros((parts, fields.BOXES, parts, room, fields.EVENT_WORDS), np.int64)
        mailed = np.zeros((parts, fields.BOXES, fields.MOST_PARTS), np.int64)
        # As if the first part had sent them in the window before the last, of the number -1; the last has the number 0.
        for part in range(parts):
            mail[0, -1, part, : counts[part]] = own[part].view(np.int64).reshape(-1, fields.EVENT_WORDS)
        mailed[0, -1, :parts] = counts
        board = np.zeros((parts, fields.BOARD_WORDS), np.int64)
        board[:, NEXT] = whole.register[fields.NOW]
        shared: dict[str, Any] = {
            "server_part": cut.server_part, "begin_part": cut.begin_part, "delivery_parts": cut.delivery_parts,
            "mail": mail.reshape(-1), "mailed": mailed.reshape(-1),
            "board": board.reshape(-1),
        }
        self.states = [self._state(part, parts, room, int(counts[part]), shared) for part in range(parts)]
        self._advance(self._in_turn, 0, 0)  # deals the events out, and compiles in this thread

    def _state(self, part: int, parts: int, room: int, n_events: int, shared: dict[str, Any]) -> FifoState:
        """The state of a part before its first window."""
        whole, n_servers = self.whole, self.program.n_servers
        register = np.zeros(2 * APART, np.int64)[APART : APART + fields.REGISTERS]
        own = np.zeros(2 * APART, np.int64)[APART : APART + fields.OWN_REGISTERS]
        register[:] = whole.register
        register[fields.EVENTS] *= part == 0  # all together are those so far
        register[fields.LEFT] = self.program.n_tasks + 1  # never done by itself
        register[fields.WIDTH] = fifo.width(self.program, n_servers // parts)
        own[[fields.OWN, fields.PARTS, fields.ROOM, fields.AHEAD]] = part, parts, room, self.cut.ahead_ps
        own[[fields.END, fields.FIRST_PS, fields.BEFORE_PS]] = register[fields.NOW] + 1, FAR, FAR
        own[[fields.BOX, fields.AT_WORK]] = 1
        boxes = fields.EVENT_WORDS * room * ((fields.BOXES * part + 1) * parts + np.arange(parts + 1))
        own[fields.FILLED : fields.FILLED + parts], own[fields.BOX_END : fields.BOX_END + parts] = boxes[:-1], boxes[1:]
        run = row(Run, register)
        return whole._replace(
            run=run, own=own, tasks=whole.tasks.copy(), servers=whole.servers.copy(),
            touched=np.zeros_like(whole.touched), **fifo.empty_calendar(run, n_events + n_servers, n_servers), **shared,
        )

    def advance(self, most: int, until_ps: int) -> int:
        """Go on until the end, or until a limit is reached between two windows; returns the status."""
        return self._advance(self._in_turn if self.in_turn else self._in_threads, most, until_ps)

    def collect(self) -> None:
        """Bring what the parts know of tasks and servers together in the whole."""
        task, gate_ps = _by_task(self.whole)
        server = self.whole.server.reshape(-1, fields.SERVER_WORDS)
        for part, state in enumerate(self.states):
            own = self.cut.server_part == part
            server[own] = state.server.reshape(server.shape)[own]
            own = self.cut.begin_part == part
            task[own] = _by_task(state)[0][own]
        for part, state in enumerate(self.states):
            # Last, as these words are those of the parts that are told.
            own = self.cut.delivery_parts >> part & 1 == 1
            of_part, gate_of_part = _by_task(state)
            task[own, fields.DELIVERED] = of_part[own, fields.DELIVERED]
            own &= task[:, fields.DELIVERED] == task[:, fields.CHUNKS]
            gate_ps[own] = gate_of_part[own]

    def _advance(self, how: Callable[[int, int], int], most: int, until_ps: int) -> int:
        while (status := how(most, until_ps)) == CROWDED:
            self._give_larger_boxes()
        register, of_parts = self.whole.register, np.array([state.register for state in self.states])
        register[fields.EVENTS] = of_parts[:, fields.EVENTS].sum()
        register[[fields.NOW, fields.MAKESPAN]] = of_parts[:, [fields.NOW, fields.MAKESPAN]].max(axis=0)
        if status == STUCK:
            self.collect()
            register[fields.LEFT] = (self.whole.delivered < self.whole.task[fields.CHUNKS :: fields.TASK_WORDS]).sum()
        return FINISHED if status == STUCK and register[fields.LEFT] == 0 else status

    def _in_turn(self, most: int, until_ps: int) -> int:
        status = [ALONE] * len(self.states)
        while ALONE in status:
            for part in range(len(self.states)):
                if status[part] == ALONE:
                    status[part] = self._run_part(part, most, until_ps, 0)
        return status[0]

    def _in_threads(self, most: int, until_ps: int) -> int:
        stop = Event()

        def work(part: int) -> int:
            status = ALONE
            try:
                while status == ALONE and not stop.is_set():
                    status = self._run_part(part, most, until_ps, PATIENCE)
                    if status == ALONE:
                        sleep(NAP_S)
            finally:
                if status == ALONE:
                    stop.set()  # nobody waits for a thread that has failed
            return status

        with ThreadPoolExecutor(len(self.states)) as pool:
            try:
                return max(pool.map(work, range(len(self.states))))
            except BaseException:
                stop.set()
                raise

    def _run_part(self, part: int, most: int, until_ps: int, patience: int) -> int:
        """Let a part go on, with more room for its events whenever it needs that."""
        while (status := self._run(self.states[part], most, until_ps, patience)) == NEEDS_TOKENS:
            self.states[part] = fifo.with_more_room(self.states[part])
        return status

    def _run(self, state: FifoState, most: int, until_ps: int, patience: int) -> int:
        return int(run_part(self.program, state, np.int64(most), np.int64(until_ps), np.int64(patience)))

    def _give_larger_boxes(self) -> None:
        """All parts have stopped, as one of them has filled a box."""
        parts, room = len(self.states), int(self.states[0].own[fields.ROOM])
        boxes = self.states[0].mail.reshape(parts, fields.BOXES, parts, room, fields.EVENT_WORDS)
        mail = np.concatenate([boxes, np.zeros_like(boxes)], axis=3).reshape(-1)
        self.states = [state._replace(mail=mail) for state in self.states]
        self.states[0].board[WAS_FULL::LINE] = 0
        for state in self.states:
            state.own[[fields.FULL, fields.ROOM]] = 0, 2 * room


def _by_task(state: FifoState) -> tuple[I32, I64]:
    """Words and gate of each task."""
    return state.task.reshape(-1, fields.TASK_WORDS), state.gate_ps[fields.GATE :: fields.TASK_WORDS // 2]
