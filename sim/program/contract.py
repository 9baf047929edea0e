"""The program that every engine runs: servers, tasks, what waits for what. Integers only.

This file is the contract of the engines. Given one `Program`, each of them must produce the same start and
finish of every task to the picosecond, whatever it does inside.

Time and service
    Time is int64 picoseconds from 0. A chunk of size z takes `service_ps[service_row[z] + server_rate[s]]` (at least 1)
    on server s, which serves one chunk at a time and never stops a service once begun.
Path
    A task is cut into chunks (`cut_*`), which cross the servers of its route in order; chunks of a task never
    overtake each other. With service [start, end) and latency L at a hop:
    store-and-forward: ready for the next server at end + L;
    cut-through: ready at max(start + L, end + L - service there).
    Delivered at end + L of the last hop, or, if that delivers heads (HEAD), at start + L.
    A task with an empty route delivers each chunk at the picosecond it is released (and granted).
Release
    Chunk j of task B is released when every whole parent is delivered in full, every stream parent A with
    lag 0 has delivered ceil((j+1) C_A / C_B) chunks, and every one with lag w >= 1 has delivered j-w+1.
Injection
    A released chunk joins its first server when the chunk before it has ended its service there (at its
    release, if that is later). A task has one chunk at most at its first server.
NIC
    A server that is the NIC of an NPU (`server_nic`) is the first of the routes of the tasks that the NPU sends, and of
    no other hop. Before it such a chunk goes through four stages, each of which takes the least (ps at which the
    chunk got there, class, chunk, hop, task):
    Post. A released chunk whose transfer holds no engine waits to be posted. The NPU posts one every `post_ps`. With
    `ports_in_turn`, the port of its last post is left out as long as another of its ports in the same phase has
    transfers that are not pushed in full: ports n k to n k + n - 1 are those of phase k, with n ports that take turns.
    Engine. The NIC has `nic_engines`. A posted transfer takes a free one, unless another transfer of its flow (source
    and destination, `task_flow`) holds one; then it waits for that one, and then takes its place by when it was posted.
    Push. The engine pushes the chunk into the queue of the NIC as soon as the chunks there, the one in service
    included, have less than `nic_queue` of work; the chunk arrives at the server then, and the engine has pushed it
    `push_ps[z]` later. If the next chunk is released by then, it waits to be pushed; else the engine is free, and that
    chunk will be posted when it is released.
    A child that waits for a pushed parent (`pushed_child`) waits until an engine has pushed the last chunk of it.
    Room in the queue is given back at the end of a service of the NIC's server.
Pool
    A chunk that would join (or, on an empty route, be delivered) first asks its task's pool, if any, for
    units: each chunk (`PER_CHUNK`), or the first chunk for all (`PER_TASK`). Requests are served in the
    pool's order and the head of the line blocks. A delivered chunk or task gives units back (`give_*`).
Order inside one picosecond
    1. Ends of service, deliveries, units given back, releases and requests, to their fixpoint. Then every
       pool grants what it can, in its order; what a grant delivers is part of the next fixpoint. Repeat
       until nothing changes.
       Then every NPU posts, its free engines take transfers, and engines push; nothing of this delivers or releases
       anything in the same picosecond.
    2. All arrivals at servers, the injected ones included.
    3. Each free server that has waiting chunks chooses one and starts it.
Choice
    The least (rank, arrival ps, class, chunk, hop, task): rank is 0 for FIFO, the task's priority for PRIORITY
    (small first), the work of the whole task for SMALLEST_FIRST, the chunk index for LOWEST_CHUNK_FIRST: each times
    its weight in `WEIGHED`.
    A pool chooses alike among its requests, with the picosecond of the request for the arrival and hop 0.
Turns
    A server of ROUND_ROBIN_FLOW has a queue for each flow (`task_flow`) at each hop of its routes, one of
    ROUND_ROBIN_PORT for each server from which chunks come, and one for those that begin there. A queue is in the
    order of FIFO, and so the queues get into the line of the server: each at the back, when a chunk arrives and it is
    not in line, with an allowance of a quantum. To choose, the server looks at the front of the line. An empty queue
    leaves the line. One whose first chunk costs more than its allowance goes to the back, with a quantum more.
    Else that chunk is served, at the cost of the allowance, and the queue stays in front until the next choice.
    A chunk costs its work, at least 1, and the quantum of a server is the cost of the largest chunk that crosses it.
Credits
    A server with a buffer (`server_buffer`) starts a chunk only if the chunks that hold the buffer, that one included,
    have no more work than it. A chunk holds it from the start of its service until `server_credit_ps` after the end of
    its service at the next server, or after it is in where there is none. A free server whose choice does not fit
    starts nothing, and chooses anew when a chunk arrives or room is given back, which is the first of the stages of a
    picosecond. Where queues take turns, the one whose turn it is waits for room, and the others for it.
Channels
    With `channels` above 1 a chunk waits in the channel of its hop (`hop_channel`). Each channel of a server is in the
    order of its discipline, or has a line of queues of its own that take turns. To choose, the server looks at the
    channels from the one behind that which it served last, at first from channel 0, and serves the choice of the first
    whose choice fits; a channel whose choice does not fit holds up no other. Each channel has a buffer of its own; or
    all of a server share one (`buffer_shared`), and what all of them hold counts against the `server_buffer` of the
    channel of a chunk.

What changes in time (arrays that are empty in a healthy program)
    Timetable. A server has a rate, or is down (DOWN), and adds a latency, each from a time on; what holds at the
    start of a service holds for all of it. No rate is faster than `server_rate`, which is what cut-through looks
    ahead with. A free server that is down, or whose chosen service would cross `down` and waits (`WAITS`), begins
    nothing until it is up again, when it chooses anew. With `COMPLETES` that service ends as if nothing were. With
    `LOSES` it is cut off there and the chunk is lost. With `DROPS` added to one of the three, a free server that is
    down loses whatever waits for it (and a service that may not cross waits until then, to be lost).
    To choose, a server that is up first lets the chunk that it would choose take its detour, and chooses anew if there
    was one; then it looks whether the chunk fits, and last whether its service may cross `down`. What would be chosen
    is, with channels, the first chunk of each queue at which the server looks, and with turns that of the queue whose
    turn it is. To look moves the line of turns as ever; an allowance is spent, and the turn of a channel passes, when a
    service begins. A server that is down does not look. One that waits for room looks again when a chunk arrives or
    room is given back, and, with `DROPS`, at the time that it goes down; neither that it is up again nor a detour
    makes it look.
    Loss. A service on server s that was not cut off is lost where `draw(0, ...) < server_loss[s]`.
    A lost chunk arrives again at the first server of its task's route, `server_resend_ps` after the loss (of the
    server that lost it); if it had not been served at its first server, the chunk after it waits on, unless a NIC sends
    the task. What is lost ATTEMPTS times is not sent again.
    What is lost in a service gives back the buffer behind that server, like the one before it, at the end of the
    service, and what is lost while it waits the one before it then; each is known `server_credit_ps` of the server that
    has the buffer later. Where what waits is lost, all queues that take turns leave the line.
    What arrives again at a NIC's server is not posted again, needs no engine and waits for no room. It is in the queue
    of the NIC from its arrival on, after the pushes of that picosecond, until the end of its service there, or until it
    is lost while it waits there, which engines see in the picosecond after.
    Jitter. A service on server s takes `jitter_ps[row, draw(1, ...) % columns]` longer, or its latency does
    (`jitter_of_service`), where row is `server_jitter[s]`.
    draw(what, task, chunk, hop, attempt) are the upper 63 bits of `hash64(seed, what, task, chunk, hop, attempt)`
    of topologies.core.routing.
    Detours. A chunk that joins (is pushed, at a NIC) or is sent again at or after `detour_from_ps` takes that route:
    the last one that holds. So does one that a server which is up chooses at the first hop of its route: with the same
    server it stays in its place of the queue, or goes to its place in the queue of its new channel, and the server
    chooses anew; with another it arrives there 1 ps later. Its hops count from where the task's own route begins in
    `route_hop`, wherever hops are compared or drawn; those that tell queues of flows apart count from where its detour
    begins. All routes of a task that a NIC sends begin at that NIC's server, and no other route crosses it. Quanta and
    buffers are of the chunks that may cross a server, those on detours included.
    Order. With jitter, loss or detours chunks may overtake; they are delivered in order, each when all before it
    are in.
    Deadline. At its deadline a task waits for no other task any more, also for none to be pushed.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from sim.program.model_options import DISCIPLINES, ORDERS, WEIGHED
from sim.program.passes import tally
from topologies.text.brief import one_line

I8 = npt.NDArray[np.int8]
I32 = npt.NDArray[np.int32]
I64 = npt.NDArray[np.int64]

FIFO, PRIORITY, SMALLEST_FIRST, LOWEST_CHUNK_FIRST = range(4)
ROUND_ROBIN_FLOW, ROUND_ROBIN_PORT = len(ORDERS), len(ORDERS) + 1
"""Places in `DISCIPLINES`."""
WEIGHTS = np.array([WEIGHED.get(name, (0, 0, 0)) for name in DISCIPLINES], np.int64)
"""(disciplines, 3), how a rank weighs the priority of the task, the work of the whole task and the chunk index."""

TAIL, HEAD = 1, 2
"""Of the last hop of a route: which of them counts as delivery."""
PER_CHUNK, PER_TASK = 0, 1
WHOLE = -1
"""Lag of an edge to a child that waits for the whole task; 0 is chunk by chunk, w >= 1 a window."""
PUSHED = -2
"""Lag of an edge to a child that waits until all of the task is pushed into the queue of a NIC."""

CLOCK_END_PS = 2**62

UNBOUNDED = 2**62
"""Work that a buffer without a limit has room for."""

DOWN = -1
"""In a timetable, in place of a rate."""
WAITS, LOSES, COMPLETES = 0, 1, 2
"""What becomes of a service that would cross the time at which its server goes down."""
DROPS = 4
"""Added to these where a server that is down loses what waits for it."""
ATTEMPTS = 256
NEVER_PS = 2**63 - 1

_NONE: tuple[I8, I32, I64] = (np.zeros(0, np.int8), np.zeros(0, np.int32), np.zeros(0, np.int64))


@one_line
class Program(NamedTuple):
    """Arrays of one program; S servers, R rates, Z chunk sizes, K cuts, U routes, T tasks, P pools.

    Attributes
    ----------
    cut_through : int
        0 or 1.
    server_rate : (S,) int32
        Rate of each server, below `n_rates`.
    server_discipline : (S,) int8
        Place in `DISCIPLINES`.
    service_ps : int64
        Service times, at least 1: that of chunk size z at rate r, if they meet, is `service_ps[service_row[z] + r]`.
        sim/program/service_table.py lays it out.
    service_row : (Z,) int64
        Where the row of each chunk size begins.
    n_rates : int
        R.
    cut_chunks, cut_first : (K,) int32
        Number of chunks, and how many of them, the leading ones, have the first size.
    cut_size : (K, 2) int32
        Chunk size of the leading chunks and of the rest.
    cut_work : (K,) int64
        Work of the whole task, for orders that weigh it.
    hop_server, hop_latency_ps, hop_last : (H,) int32, int64, int8
        Kinds of hop: server, latency after it, and whether it ends a route: 0, TAIL or HEAD by what it delivers.
    route_ptr : (U+1,) int32
        Hops of route u are `route_hop[route_ptr[u]:route_ptr[u+1]]`.
    route_hop : int32
        Kind of each hop.
    task_cut, task_route, task_class : (T,) int32
    task_priority : (T,) or (0,) int32
        Empty where no server and no pool looks at it.
    whole_ptr, whole_child : (T+1,) or (0,) int32, int32
        Children that wait for the whole task. The pointers of edges are empty where there are no such edges.
    stream_ptr, stream_child, stream_lag : (T+1,) or (0,) int32, int32, int32
        Children that wait chunk by chunk (lag 0) or in a window (lag >= 1); lags are empty where all are 0.
    parent_ptr, parent, parent_lag : (T+1,) or (0,) int32, int32, int32
        The same edges seen from the child.
    pool_capacity, pool_discipline : (P,) int32, (P,) int8
    task_pool, task_units, task_per : (T,) or (0,) int32, int32, int8
        Pool asked (-1 none), units, PER_CHUNK or PER_TASK. Empty when there are no pools.
    give_ptr, give_pool, give_units, give_per : (T+1,) or (0,) int32, int32, int32, int8
        What a delivered chunk (PER_CHUNK) or task (PER_TASK) returns.
    chunk_work : (Z,) int64
        Work of each chunk size.
    timetable_ptr, timetable_from_ps, timetable_rate, timetable_latency_ps : (S+1,) or (0,) int32, int64, int32, int64
        Rate column in force from a time on, DOWN for none, and latency added after the server. Before the first
        row of a server it is `server_rate`, and none.
    server_crossing : (S,) or (0,) int8
        WAITS, LOSES or COMPLETES, and DROPS or not; there where there are timetables.
    server_loss, server_resend_ps : (S,) or (0,) int64
        Of 2^63 services how many are lost; time until a lost chunk arrives again, at least 1.
    server_jitter : (S,) or (0,) int32
        Row of the two tables that follow; -1 none.
    jitter_ps, jitter_of_service : (J, columns) int64, (J,) int8
        Quantiles; whether they are added to the service or to the latency.
    detour_ptr, detour_from_ps, detour_route : (T+1,) or (0,) int32, int64, int32
        Routes of each task from a time on, in the order of time. Only tasks with a route have detours, and none is
        empty.
    detour_queue : (D,) or (0,) int32
        Queue of hop h of row d of the detours, counted from 0, is `hop_queue[detour_queue[d] + h]`. Empty where no
        server takes turns.
    task_deadline_ps : (T,) or (0,) int64
        NEVER_PS where there is none.
    seed : int
        Of loss and jitter.
    server_nic : (S,) or (0,) int32
        NIC that a server is, -1 for others. Empty, as all that follows, where there are no NICs.
    nic_engines : (N,) int32
        Engines of each NIC.
    task_port, task_flow : (T,) or (0,) int32
        Port from which a task is posted, and source and destination as one number, which is also there where flows
        take turns.
    push_ps : (Z,) or (0,) int64
        Time in which an engine pushes a chunk of each size, at least 1.
    pushed_ptr, pushed_child : (T+1,) or (0,) int32, int32
        Children that wait until a task is pushed.
    post_ps : int
        Between two posts of an NPU.
    nic_queue : int
        Work of the chunks in the queue of a NIC at which engines wait.
    ports_in_turn : int
        Ports of a phase that take turns; 0 for none.
    task_queue, hop_queue : (T,) or (0,), (...,) int32
        Queue of hop h of task t is `hop_queue[task_queue[t] + h]`. Empty where no server takes turns.
    server_quantum : (S,) or (0,) int64
        Cost of the largest chunk that crosses a server.
    server_buffer, server_credit_ps : (channels * S,), (S,) or (0,) int64
        Work for which there is room behind a server, or UNBOUNDED, all servers of channel 0 first; time until room that
        is given back is known to the server, at least 1. Empty where no server has a buffer.
    hop_channel : (H,) or (0,) int8
        Channel of each kind of hop. Empty where there is one.
    channels, buffer_shared : int
        Channels of each server; 1 where all channels of a server share one buffer.
    """

    cut_through: int
    server_rate: I32
    server_discipline: I8
    service_ps: I64
    service_row: I64
    n_rates: int
    cut_chunks: I32
    cut_first: I32
    cut_size: I32
    cut_work: I64
    hop_server: I32
    hop_latency_ps: I64
    hop_last: I8
    route_ptr: I32
    route_hop: I32
    task_cut: I32
    task_route: I32
    task_class: I32
    task_priority: I32
    whole_ptr: I32
    whole_child: I32
    stream_ptr: I32
    stream_child: I32
    stream_lag: I32
    parent_ptr: I32
    parent: I32
    parent_lag: I32
    pool_capacity: I32
    pool_discipline: I8
    task_pool: I32
    task_units: I32
    task_per: I8
    give_ptr: I32
    give_pool: I32
    give_units: I32
    give_per: I8
    chunk_work: I64 = _NONE[2]
    timetable_ptr: I32 = _NONE[1]
    timetable_from_ps: I64 = _NONE[2]
    timetable_rate: I32 = _NONE[1]
    timetable_latency_ps: I64 = _NONE[2]
    server_crossing: I8 = _NONE[0]
    server_loss: I64 = _NONE[2]
    server_resend_ps: I64 = _NONE[2]
    server_jitter: I32 = _NONE[1]
    jitter_ps: I64 = np.zeros((0, 1), np.int64)
    jitter_of_service: I8 = _NONE[0]
    detour_ptr: I32 = _NONE[1]
    detour_from_ps: I64 = _NONE[2]
    detour_route: I32 = _NONE[1]
    detour_queue: I32 = _NONE[1]
    task_deadline_ps: I64 = _NONE[2]
    seed: int = 0
    server_nic: I32 = _NONE[1]
    nic_engines: I32 = _NONE[1]
    task_port: I32 = _NONE[1]
    task_flow: I32 = _NONE[1]
    push_ps: I64 = _NONE[2]
    pushed_ptr: I32 = _NONE[1]
    pushed_child: I32 = _NONE[1]
    post_ps: int = 0
    nic_queue: int = 0
    ports_in_turn: int = 0
    task_queue: I32 = _NONE[1]
    hop_queue: I32 = _NONE[1]
    server_quantum: I64 = _NONE[2]
    server_buffer: I64 = _NONE[2]
    server_credit_ps: I64 = _NONE[2]
    hop_channel: I8 = _NONE[0]
    channels: int = 1
    buffer_shared: int = 0

    @property
    def is_healthy(self) -> bool:
        """Whether nothing changes in time, nothing is lost and nothing is drawn."""
        given = (self.timetable_ptr, self.server_loss, self.server_jitter, self.detour_ptr, self.task_deadline_ps)
        return all(array.size == 0 for array in given)

    @property
    def delivers_heads(self) -> bool:
        """Whether a task is delivered with its head."""
        return bool(np.any(self.hop_last == HEAD))

    @property
    def has_nics(self) -> bool:
        """Whether transfers are posted, and pushed into the queues of NICs."""
        return bool(self.nic_engines.size)

    @property
    def takes_turns(self) -> bool:
        """Whether a server has queues that take turns."""
        return bool(self.server_quantum.size)

    @property
    def has_credits(self) -> bool:
        """Whether a server waits for room behind it."""
        return bool(self.server_buffer.size)

    @property
    def bounded(self) -> npt.NDArray[np.bool_]:
        """Whether each server may wait for room behind it, (S,); computed."""
        if not self.has_credits:
            return np.zeros(self.n_servers, np.bool_)
        return np.asarray(self.server_buffer.reshape(self.channels, -1).min(axis=0) < UNBOUNDED, np.bool_)

    @property
    def has_channels(self) -> bool:
        """Whether fifo servers have several queues."""
        return self.channels > 1

    def service(self, size: npt.NDArray[np.integer] | int, rate: npt.NDArray[np.integer] | int) -> I64:
        """Service times of chunk sizes at rates that they meet, entry by entry."""
        found: I64 = self.service_ps[self.service_row[size] + rate]
        return found

    @property
    def is_packed(self) -> bool:
        """Whether the table of service times has room only for sizes and rates that meet."""
        return self.service_ps.size < self.service_row.size * self.n_rates

    @property
    def n_servers(self) -> int:
        """Servers."""
        return int(self.server_rate.size)

    @property
    def n_tasks(self) -> int:
        """Tasks."""
        return int(self.task_cut.size)

    @property
    def route_server(self) -> I32:
        """Server of each hop of the routes; computed."""
        return self.hop_server[self.route_hop]

    @property
    def route_line(self) -> I64:
        """Server and channel of each hop of the routes, s + c S, which number queues and buffers; computed."""
        server = self.route_server.astype(np.int64)
        if self.has_channels:
            server += self.n_servers * self.hop_channel[self.route_hop].astype(np.int64)
        return server

    @property
    def route_latency_ps(self) -> I64:
        """Latency after each hop of the routes; computed."""
        return self.hop_latency_ps[self.route_hop]

    @property
    def task_waits(self) -> I32:
        """Number of whole parents of each task, (T,); computed."""
        return np.bincount(self.whole_child, minlength=self.n_tasks).astype(np.int32)

    def waited_for(self, missing: I32 | None = None) -> I32:
        """Number of parents whose chunk, or whole, holds back the first chunk of each task, windows left out, (T,).

        `missing`: zeros, which are filled.
        """
        missing = np.zeros(self.n_tasks, np.int32) if missing is None else missing
        if self.whole_child.size > 2**20:
            tally(missing, self.whole_child)
        else:
            missing += self.task_waits
        if self.pushed_child.size:
            missing += self.pushed_waits
        if self.parent_lag.size and np.any(self.parent_lag == 0):
            child = _owners(self.parent_ptr)[self.parent_lag == 0]
            missing += np.bincount(child, minlength=self.n_tasks).astype(np.int32)
        elif self.parent.size and not self.parent_lag.size:
            missing += np.diff(self.parent_ptr)
        return missing

    def whole_edges(self) -> tuple[I32, I32]:
        """Parent and child of each wait for a whole task, in the order of the parents."""
        return _owners(self.whole_ptr), self.whole_child

    @property
    def pushed_waits(self) -> I32:
        """Number of parents of each task that it waits for until they are pushed, (T,); computed."""
        return np.bincount(self.pushed_child, minlength=self.n_tasks).astype(np.int32)

    def pushed_edges(self) -> tuple[I32, I32]:
        """Parent and child of each wait for a task to be pushed, in the order of the parents."""
        return _owners(self.pushed_ptr), self.pushed_child

    def stream_edges(self) -> tuple[I32, I32, I32]:
        """Parent, child and lag of each wait chunk by chunk or in a window, in the order of the children."""
        lag = self.parent_lag if self.parent_lag.size else np.zeros(self.parent.size, np.int32)
        return self.parent, _owners(self.parent_ptr), lag

    def chunks(self) -> I64:
        """Chunks of each task, (T,)."""
        return self.cut_chunks[self.task_cut].astype(np.int64)

    def hops(self) -> I64:
        """Hops of each task, (T,)."""
        return np.diff(self.route_ptr)[self.task_route].astype(np.int64)

    def every_route(self) -> tuple[I64, I64]:
        """Task and route of every task, and then of every row of the detours."""
        task, owner = np.arange(self.n_tasks), _owners(self.detour_ptr)
        return np.append(task, owner), np.append(self.task_route, self.detour_route).astype(np.int64)

    def other_routes(self) -> I32:
        """Routes of detours that are no task's own."""
        own = np.zeros(self.route_ptr.size, np.bool_)
        own[self.task_route] = True
        other: I32 = self.detour_route[~own[self.detour_route]]
        return other

    def has_hops(self, task: int) -> bool:
        """Whether a task crosses a server."""
        route = self.task_route[task]
        return bool(self.route_ptr[route] < self.route_ptr[route + 1])

    def chunk_hops(self) -> int:
        """Services in the whole run: each is one chunk on one server."""
        chunks, hops = self.cut_chunks.astype(np.int64), np.diff(self.route_ptr).astype(np.int64)
        if self.n_tasks and np.ptp(chunks) == np.ptp(hops) == 0:
            return self.n_tasks * int(chunks[0]) * int(hops[0])
        rows = [slice(first, first + 2**16) for first in range(0, self.n_tasks, 2**16)]
        return sum(int(np.dot(chunks[self.task_cut[some]], hops[self.task_route[some]])) for some in rows)

    def most_chunk_hops(self) -> int:
        """At least as many services as `chunk_hops`, without a look at each task."""
        return self.n_tasks * int(self.cut_chunks.max(initial=0)) * int(np.diff(self.route_ptr).max(initial=0))

    def over_tasks(self, of_cut: npt.NDArray[np.integer]) -> int:
        """Sum over all tasks of what holds for their cut, (K,)."""
        if not of_cut.size or np.all(of_cut == of_cut[0]):
            return self.n_tasks * int(of_cut[0]) if of_cut.size else 0
        return int(of_cut @ np.bincount(self.task_cut, minlength=of_cut.size))

    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return sum(field.nbytes for field in self if isinstance(field, np.ndarray))


def _owners(ptr: I32) -> I32:
    """The row that each entry of a CSR list belongs to."""
    return np.repeat(np.arange(max(ptr.size - 1, 0), dtype=np.int32), np.diff(ptr))
