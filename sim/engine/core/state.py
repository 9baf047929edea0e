"""State of the fifo loop; its rows are declared in sim/engine/core/layouts.py."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sim.engine.compile.pointers import by_pointer
from sim.engine.compile.rows import Rows, rows
from sim.engine.core.layouts import (
    Backlog,
    Choice,
    Ends,
    Engine,
    Event,
    Flow,
    Nic,
    Node,
    Pool,
    Queue,
    Return,
    Room,
    Run,
    Server,
    Service,
    Slot,
    Task,
    Wish,
)
from sim.program.contract import I8, I32, I64

DIGIT = 13
SLOTS = 1 << DIGIT
LEVELS = -(-63 // DIGIT)
WORDS = SLOTS // 64
OPEN = LEVELS * SLOTS
BLOCK = 32
"""Events of a block."""

RADIX = 256

# Registers of a run, kept between calls: present, services done, tasks left, last delivery, top of the stack; servers
# touched in this picosecond, and how many of them are done; open events sorted, how many of these have happened,
# events in the heap of the late, an event delivered in this bucket whose place is free; first free block, free blocks,
# the slot whose events move to the levels below; the first pool that may have something to grant; NICs touched, how
# many of them are done, the first flow whose engine may be done, the first free place for a service of a NIC; of the
# queues of policies/choose.py the first free node, how many are free, and the number of the next one; and the
# constants of the run: bits of the offset in a bucket, of a task, a hop and a chunk in a key; of these queues how many
# buckets one has, bits of a rank that they do not look at, and the least priority; events that a service may put into
# the calendar; whether an event was put into the past, which is a fault of a kernel; and with faults, what is added to
# hops in keys, the next task whose deadline is to be set, when the chunk arrived that is served now, rows of the
# journal, and the first node of the chunks that were given up; bits of the number of buckets of a channel.
(
    NOW, EVENTS, LEFT, MAKESPAN, TOP, TOUCHED, SERVED, OPENED, HAPPENED, LATE, SPARE, FREE, BLOCKS, MOVING, STIRRED,
    TOUCHED_NICS, SERVED_NICS, ENDED, BACKLOG_FREE, FREE_NODE, FREE_NODES, NUMBER, WIDTH, TASK_BITS, HOP_BITS,
    CHUNK_BITS, BUCKETS, RANK_SHIFT, LEAST, MOST, PAST, BIAS, TIMER, ARRIVED_PS, JOURNALED, GIVEN_UP,
    BUCKET_BITS, REGISTERS,
) = range(38)

# Registers of a part of a run on several threads, of threads/windows.py: which part, of how many; events that fit a
# box, whether one is full; how far parts may be apart, and the end of the window; windows counted modulo BOXES; windows
# that it is done with, and whether it is at work in the next; the part whose events are received next, and how many of
# them were; the first event that it sent in the window, and in the one before.
(
    OWN, PARTS, ROOM, FULL, AHEAD, END, BOX, DONE, AT_WORK, SENDER, TAKEN, FIRST_PS, BEFORE_PS, FILLED,
) = range(14)

# Words of an event, int64.
TIME, KEY, PLACE, EVENT_WORDS = 0, 1, 2, 3
WOKEN, ALARM, PUSHED, ASKS, RINGS = -2, -3, -4, -5, -6
"""In place of a place. KEY then has: a server that is to choose again; the place of a NIC; a task; a task that asks a
pool; a task that has come to its deadline."""
# A place: where its hop is in the routes, FRESH before the first service of a chunk that faults may lose, how often it
# was lost, and its chunk size.
#
#     bit   63 ... 32 | 31    | 30 ... 23 | 22 ... 0
#           at        | FRESH | attempt   | size
ATTEMPT_SHIFT = 23
SIZES, FRESH = 1 << ATTEMPT_SHIFT, 1 << 31
JOURNAL_COLUMNS = 7
# Words of a server, int64.
FREE_PS, BUSY_PS, STAMP_PS, LINE, SERVER_WORDS = 0, 1, 2, 3, 4
# Half-words of a task, int32; the last two are its gate, int64.
RELEASED, JOINED, DELIVERED, MISSING, LINK, CHUNKS, GATE, TASK_WORDS = 0, 1, 2, 3, 4, 5, 3, 8
# Words of a node of sim/engine/core/nodes.py, int64, beside KEY and PLACE; its links, half-words, int32.
NODE_WORDS = 3
NEXT, CHILD = 0, 1
# Words of a pool, int32: units left, the first of those that ask (a node; in a line, a task) or NONE, and the pool
# below on the stack of those to look at, NONE at the bottom, or UNSTACKED.
FREE_UNITS, REQUESTS, LOOK, POOL_WORDS = 0, 1, 2, 3
# Words of a server that chooses, int64.
WAITING, WAKE_PS, CHOICE_WORDS = 0, 1, 2
BOXES = 4
"""Windows for which events that are sent, and what parts show, are kept: parts are at most a window apart, and what is
sent in one window is received in the next but one."""
BOARD_WORDS = 64
"""Room for what a part shows: a cache line for each of BOXES windows, away from those of other parts."""

MOST_PARTS = 32
"""Also the room for the lengths of a part's boxes."""

BOX_END, OWN_REGISTERS = FILLED + MOST_PARTS, FILLED + 2 * MOST_PARTS
"""For each receiver, from FILLED on, where the next event goes in its box of this window, and where that box ends."""

_NONE, _FEW, _SMALL = np.zeros(0, np.int64), np.zeros(0, np.int32), np.zeros(0, np.int8)


@by_pointer
class FifoState(NamedTuple):
    """State of a run; S servers, T tasks, B blocks, N events that can be open.

    Attributes
    ----------
    run : Run
        One row, of the registers.
    tasks, servers : (T,), (S,)
    start_ps : (T,) int64
    touched : (S,) int32
        Servers at which something arrived in this picosecond.
    events : (B * BLOCK,)
    next_block : (B,) int32
    slots : (OPEN + 1,)
    occupied : (LEVELS * WORDS,) int64
        Which slots are not empty.
    order, other, late : (N,) int64
        The open events in the order of time, room to sort them, and the heap of those that came late.
    digit : (RADIX,) int32
    log_base, log_start_ps, log_before : (T+1,) or (0,), ... int64
    last_row : (S,) or (0,) int64
        The log, where asked for; see sim.program.outcome.Log.
    own : (OWN_REGISTERS,) or (0,) int64
        Registers of a part of a run on several threads. Empty, as all up to `board`, where there is one thread.
    server_part, begin_part : (S,) or (0,), (T,) or (0,) int8
        Part of a server, and the part in which a task begins.
    delivery_parts : (T,) or (0,) int64
        The parts that a delivery is told to, as bits: those in which tasks begin that wait for it.
    mail : (parts * BOXES * parts * ROOM * EVENT_WORDS,) or (0,) int64
        Events that the parts send to each other: boxes by sender, window, and receiver.
    mailed : (parts * BOXES * MOST_PARTS,) or (0,) int64
        Events in each box, once its window is over.
    board : (parts * BOARD_WORDS,) or (0,) int64
        What every part shows to the others.
    nics, flows, wishes : (N,), (flows,), (T,) or (0,)
    engines, backlog : (engines,), (services,) or (0,)
        Empty, as the two that follow, where there are no NICs.
    port_left : (N * ports,) or (0,) int32
        Transfers of each port that are not pushed in full.
    touched_nic : (N,) or (0,) int32
        NICs to look at in this picosecond.
    choices : (S,) or (0,)
        Empty, as the rest, where no server chooses and there are no pools.
    filled, ends : (S * words,), (S * buckets,) or (0,) int64, Ends
        Buckets of the queues, and which of them are not empty; see sim/engine/policies/choose.py.
    nodes, returns : (nodes,) or (0,)
        Chunks that wait for servers or pools, and the same memory as returns of room.
    node_rank : (nodes,) or (0,) int64
        What is compared first of nodes in heaps; empty where there are none.
    pools : (P,)
    work_rank : (K,) or (0,) int32
        Place of each cut in the order of the work of its tasks.
    chooses : (S,) or (0,) int8
        Whether a server chooses; the others are committed on arrival.
    channel : (S,) or (0,) int32
        Channel that has the next turn; empty where there is one.
    rooms, returned : (channels * S,), (channels * S * 2,) or (0,)
        Buffers, and lists of returns of each: of chunks that go on, and of those that are delivered.
    queues, turns : (queues,), (channels * S,) or (0,)
        Queues that take turns, and lines of them, as rooms are numbered; empty where there are none.
    row : (S,) or (0,) int32
        Row of the timetable that held when the server last looked; the row before its first where none did. Empty, as
        all that follows, in a healthy program.
    held : (T,) or (0,) int32
        Nodes of chunks that are in, while one of a chunk before them is not: a list.
    node_since : (nodes,) or (0,) int64
        When the chunks in nodes arrived, or asked.
    journal : (rows,) or (0,)
        Every service, where asked for.
    """

    run: Rows[Run]
    tasks: Rows[Task]
    start_ps: I64
    servers: Rows[Server]
    touched: I32
    events: Rows[Event]
    next_block: I32
    slots: Rows[Slot]
    occupied: I64
    order: I64
    other: I64
    late: I64
    digit: I32
    log_base: I64
    log_start_ps: I64
    log_before: I64
    last_row: I64
    own: I64 = _NONE
    server_part: I8 = _SMALL
    begin_part: I8 = _SMALL
    delivery_parts: I64 = _NONE
    mail: I64 = _NONE
    mailed: I64 = _NONE
    board: I64 = _NONE
    nics: Rows[Nic] = rows(Nic)
    flows: Rows[Flow] = rows(Flow)
    wishes: Rows[Wish] = rows(Wish)
    engines: Rows[Engine] = rows(Engine)
    backlog: Rows[Backlog] = rows(Backlog)
    port_left: I32 = _FEW
    touched_nic: I32 = _FEW
    choices: Rows[Choice] = rows(Choice)
    filled: I64 = _NONE
    ends: Rows[Ends] = rows(Ends)
    nodes: Rows[Node] = rows(Node)
    returns: Rows[Return] = rows(Return)
    node_rank: I64 = _NONE
    pools: Rows[Pool] = rows(Pool)
    work_rank: I32 = _FEW
    chooses: I8 = _SMALL
    channel: I32 = _FEW
    rooms: Rows[Room] = rows(Room)
    returned: Rows[Ends] = rows(Ends)
    queues: Rows[Queue] = rows(Queue)
    turns: Rows[Ends] = rows(Ends)
    row: I32 = _FEW
    held: I32 = _FEW
    node_since: I64 = _NONE
    journal: Rows[Service] = rows(Service)

    @property
    def joined(self) -> I32:
        """Chunks of each task that went to the first server, (T,)."""
        return np.asarray(self.tasks["joined"])

    @property
    def delivered(self) -> I32:
        """Chunks delivered of each task, (T,)."""
        return np.asarray(self.tasks["delivered"])

    @property
    def finish_ps(self) -> I64:
        """When each task was delivered, -1 where it was not, (T,); computed."""
        return np.where(self.delivered == self.tasks["chunks"], self.tasks["gate_ps"], -1)

    @property
    def busy_ps(self) -> I64:
        """Busy time of each server, (S,); computed."""
        return np.array(self.servers["busy_ps"])

    @property
    def tokens(self) -> int:
        """Room for chunks in flight: for events, and for nodes, in which chunks wait for servers that choose."""
        return self.events.size + self.nodes.size

    # The same memory as arrays of words, for skipping, tapes and threads, which are not by name.

    @property
    def register(self) -> I64:
        return self.run.reshape(1).view(np.int64)

    @property
    def task(self) -> I32:
        return self.tasks.view(np.int32)

    @property
    def gate_ps(self) -> I64:
        return self.tasks.view(np.int64)

    @property
    def server(self) -> I64:
        return self.servers.view(np.int64)

    @property
    def event(self) -> I64:
        return self.events.view(np.int64)

    @property
    def slot(self) -> I32:
        return self.slots.view(np.int32)
